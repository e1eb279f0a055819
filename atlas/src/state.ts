/** What the reader has chosen. It is part of the page's address, so a link leads to the same view. */

import type { Direction } from "./flows";
import type { Opened, Side } from "./messages";
import type { Part } from "./segments";

export const VIEWS = ["map", "matrix", "list"] as const;
/** Most areas of the level that is shown at first. */
const SEEN = 100;
export type View = (typeof VIEWS)[number];

export interface State {
  level: number;
  /** Numbers of the selected areas of the level: origins, or destinations if trips to them are shown. */
  areas: number[];
  direction: Direction;
  view: View;
  /** The category whose trips alone are shown; null for all trips. */
  part: Part | null;
  /** Number of the area at the other end of the flow whose number is quoted; null for all areas. */
  partner: number | null;
}

/** The word in addresses for all areas. */
const ALL = "all";

/** The side whose areas are selected: the origins of the trips from them, or the destinations of those to them. */
export function selectedSide(opened: Opened, direction: Direction): Side {
  return direction === "from" ? opened.origin : opened.destination;
}

/** The side at the other end of these trips. */
export function otherSide(opened: Opened, direction: Direction): Side {
  return selectedSide(opened, direction === "from" ? "to" : "from");
}

/** The end of the address of the page that states what is chosen; see `stated`. */
export function fragment(state: State, opened: Opened): string {
  const { levels, codes } = selectedSide(opened, state.direction);
  const areas = state.areas.map((area) => encodeURIComponent(codes[state.level][area])).join(",");
  const stated = [`level=${encodeURIComponent(levels[state.level])}`, `trips=${state.direction}`, `view=${state.view}`];
  const which = state.partner !== null ? ends(state, opened) : areas ? [`areas=${areas}`] : [];
  return `#${[...stated, ...which, ...only(state)].join("&")}`;
}

/** The end of the permanent address of the number of a selected area: it names the release and both ends. */
export function fragmentOfNumber(state: State, opened: Opened): string {
  const { levels } = selectedSide(opened, state.direction);
  const stated = [`level=${encodeURIComponent(levels[state.level])}`, ...ends(state, opened)];
  const direction = state.direction === "to" && state.partner !== null ? ["trips=to"] : [];
  return `#${[...statedRelease(opened), ...stated, ...direction, ...only(state)].join("&")}`;
}

/** The parts of an address that name the period and the revision of the page. */
function statedRelease({ header }: Opened): string[] {
  const [, period, revision] = header.release.split("/");
  return [`period=${period}`, `revision=${revision?.slice(1)}`];
}

/** The parts of an address that name both ends of a number. */
function ends({ level, areas, direction, partner }: State, opened: Opened): string[] {
  const [own, other] = [selectedSide(opened, direction), otherSide(opened, direction)];
  const here = encodeURIComponent(own.codes[level][areas[0]]);
  const there = partner === null ? ALL : encodeURIComponent(other.codes[level][partner]);
  return direction === "from" ? [`from=${here}`, `to=${there}`] : [`from=${there}`, `to=${here}`];
}

function only({ part }: State): string[] {
  return part ? [`only=${[part.breakdown, part.category].map(encodeURIComponent).join(":")}`] : [];
}

/** The release of the same series that an address names, if it is not the one of the page. */
export function otherRelease(address: string, opened: Opened): string | null {
  const given = partsOf(address);
  const [period, revision] = [given.get("period"), given.get("revision")];
  if (!period || !revision || !/^[\w-]+$/.test(period) || !/^\d+$/.test(revision)) return null;
  const release = [opened.header.release.split("/")[0], period, `r${revision}`].join("/");
  return release === opened.header.release ? null : release;
}

function partsOf(address: string): Map<string, string> {
  return new Map(address.replace(/^#/, "").split("&").map((part) => part.split("=", 2) as [string, string]));
}

/** Read the state from the address. What it does not state, or states wrongly, has its default. */
export function stated(address: string, opened: Opened): State {
  const given = partsOf(address);
  const [from, to] = [given.get("from"), given.get("to")];
  const direction = from === ALL || (to !== ALL && given.get("trips") === "to") ? "to" : "from";
  const { levels, codes } = selectedSide(opened, direction);
  const level = levels.indexOf(decoded(given.get("level") ?? ""), 1);
  const state: State = {
    level: level > 0 ? level : overview(codes),
    areas: [],
    direction,
    view: VIEWS.find((view) => view === given.get("view")) ?? "map",
    part: statedPart(given.get("only") ?? "", opened),
    partner: null,
  };
  if (state.part && opened.segments) state.level = Math.min(state.level, opened.segments.level);
  const numbers = new Map(codes[state.level].map((code, area) => [code, area]));
  const [own, other] = direction === "from" ? [from, to] : [to, from];
  const named = (given.get("areas") ?? own ?? "").split(",").map((code) => numbers.get(decoded(code)));
  state.areas = [...new Set(named.filter((area) => area !== undefined))];
  const partner = otherSide(opened, direction).codes[state.level].indexOf(decoded(other ?? ""));
  if (partner >= 0 && own !== undefined && state.areas.length === 1) state.partner = partner;
  return state;
}

/** The category that the address states; null if it states none that the release has. */
function statedPart(text: string, { segments }: Opened): Part | null {
  const [breakdown, category] = text.split(":").map(decoded);
  const known = segments?.categories[segments.names.indexOf(breakdown)]?.includes(category);
  return known ? { breakdown, category } : null;
}

/** The areas of another level that contain, or lie in, some areas. */
export function atLevel(side: Side, areas: number[], from: number, to: number): number[] {
  let current = new Set(areas);
  for (let level = from; level > to; level--) current = new Set([...current].map((area) => side.parents[level][area]));
  for (let level = from + 1; level <= to; level++) {
    const children = [...side.parents[level].keys()];
    current = new Set(children.filter((area) => current.has(side.parents[level][area])));
  }
  return [...current];
}

/** The finest level that can be looked at as a whole; if each has more areas, the coarsest with at least two. */
function overview(codes: string[][]): number {
  const seen = codes.findLastIndex((areas) => areas.length > 1 && areas.length <= SEEN);
  const level = seen > 0 ? seen : codes.findIndex((areas) => areas.length > 1);
  return level > 0 ? level : codes.length - 1;
}

/** A text without the escapes of an address; "" if they are wrong. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
