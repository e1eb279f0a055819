/** Show numbers of the selection beside the map: totals and the largest flows, each with its interval. */

import { counted } from "./nouns";
import { isFaint, reliability } from "./confidence";
import { isPerDay, type Change } from "./changes";
import { isolated, kilometres, make, number, percent, rounded } from "./dom";
import type { Flow, Mean, Totals, Trips } from "./flows";

/** Number of the flows in a table of the panel. */
const LISTED = 15;
/** Number of the selected areas that are named at first. */
const CHIPS = 8;

/** Names of one or both ends of a flow. */
export interface Named {
  texts: string[];
  /** What a click on the names does. */
  choose(): void;
  /** What a click on the number does; absent where it is of several areas. */
  quote?(): void;
}

/** The ends of an interval; "" without one. */
export function interval(of: { interval: Trips["interval"] }, shown: (value: number) => string = number): string {
  return of.interval ? `${shown(of.interval[0])} to ${shown(of.interval[1])}` : "";
}

/** The interval of trips; one from 0 to 0 is no certainty, so it has a word in place of its ends. */
function intervalOfTrips(of: Trips): string {
  return of.trips === 0 && of.interval?.[1] === 0 ? "likely none" : interval(of);
}

/** The interval of trips, and the word on what it says of them. */
export function intervalAndWord(of: Trips): string {
  return [intervalOfTrips(of), reliability(of.trips, of.interval)].filter((text) => text).join(", ");
}

/** The selected areas, each with a button that removes it. */
export function chips(labels: string[], remove: (place: number) => void): HTMLElement {
  const all = labels.map((label, place) =>
    make(
      "li",
      {},
      make("bdi", {}, label),
      make("button", { type: "button", "aria-label": `Remove ${isolated(label)}`, click: () => remove(place) }, "×"),
    ),
  );
  const list = make("ul", { class: "chips" }, ...all.slice(0, CHIPS));
  const rest = all.slice(CHIPS);
  if (rest.length) {
    const open = (): void => {
      more.replaceWith(...rest);
      rest[0].querySelector("button")?.focus();
    };
    const more = make("li", {}, make("button", { type: "button", class: "more", click: open }, `and ${number(rest.length)} more`));
    list.append(more);
  }
  return list;
}

/** Totals of the selection, taken as one area. */
export function tiles(totals: Totals): HTMLElement {
  const { outflow, inflow, within, selfContainment, meanDistance } = totals;
  const { share } = selfContainment;
  return make(
    "dl",
    { class: "tiles" },
    tile("from here to elsewhere", number(outflow.trips), intervalAndWord(outflow), likely(outflow), changed(outflow)),
    tile("from elsewhere to here", number(inflow.trips), intervalAndWord(inflow), likely(inflow), changed(inflow)),
    tile("within", number(within.trips), intervalAndWord(within), changed(within)),
    tile(`share of ${counted} from here that stay`, share === null ? "–" : percent(share), interval(selfContainment, percent)),
    ...(meanDistance ? [tile(`mean distance of ${counted} from here`, ...meanTexts(meanDistance))] : []),
  );
}

/** A mean distance, and its interval. */
function meanTexts(of: Mean): [value: string, below: string] {
  return [of.mean === null ? "–" : kilometres(of.mean), interval(of, kilometres)];
}

/** The side on which the true number probably is; "" if nothing says so. */
function likely(of: Trips): string {
  return of.likely ? `likely ${of.likely.side}: about ${number(Math.max(of.likely.about, 0))}` : "";
}

/** The change of some trips; "" if the reader does not compare. */
function changed(of: Trips): string {
  return of.change ? `change ${changeText(of)}` : "";
}

/** A number with its name above and further lines below it. */
function tile(name: string, value: string, ...below: string[]): HTMLElement {
  const lines = below.filter((text) => text).map((text) => make("small", {}, text));
  return make("div", {}, make("dt", {}, name), make("dd", {}, value, ...lines));
}

/** Names with arrows between them, each with its own direction of writing. */
function named({ texts, choose }: Named): HTMLElement {
  const names = texts.flatMap((text, k) => [...(k ? [" → "] : []), make("bdi", {}, text)]);
  return make("th", { scope: "row" }, make("button", { type: "button", click: choose }, ...names));
}

/** A table of flows, largest first, with a bar for the trips and a line for the interval, or with their changes. */
export function flowTable(title: string, first: string, flows: Flow[], ends: (flow: Flow) => Named): HTMLElement {
  if (!flows.length) return make("p", {}, `${title}: none was released above 0.`);
  if (flows[0].change) return changeTable(title, first, flows, ends);
  const listed = flows.slice(0, LISTED);
  const left = flows.length - listed.length;
  const more = left > 0 ? [`${number(left)} smaller flows are in the download.`] : [];
  const rows = listed.map((flow) => ({ head: named(ends(flow)), of: flow, quote: ends(flow).quote }));
  return barTable(titleOf(title, listed), first, rows, more);
}

/** The title of a list of the largest numbers, which says how many of them may be none. */
function titleOf(title: string, listed: Trips[]): string {
  const faint = listed.filter(isFaint).length;
  return faint ? `${title} (${number(faint)} of these ${number(listed.length)} may be none)` : title;
}

/** A table of trips with a bar for the trips and a line for the interval. Notes are written below it. */
export function barTable(
  title: string,
  first: string,
  rows: { head: HTMLElement; of: Trips; quote?(): void }[],
  notes: string[] = [],
): HTMLElement {
  const most = Math.max(1, ...rows.map(({ of }) => of.interval?.[1] ?? of.trips));
  const intervals = rows.some(({ of }) => of.interval);
  const body = rows.map(({ head, of, quote }) => {
    const trips = quote ? make("button", { type: "button", class: "number", title: "Quote this number", click: quote }, number(of.trips)) : number(of.trips);
    const bar = make("div", { class: "bar", "aria-hidden": "true" });
    bar.append(mark("value", 0, of.trips / most));
    if (of.interval) bar.append(mark("range", of.interval[0] / most, of.interval[1] / most));
    return make(
      "tr",
      { class: isFaint(of) ? "faint" : "" },
      head,
      make("td", { class: "number" }, trips),
      ...(intervals ? [make("td", { class: "number" }, intervalOfTrips(of)), make("td", { class: "word" }, reliability(of.trips, of.interval))] : []),
      make("td", { class: "bars" }, bar),
    );
  });
  const heads = [first, counted, ...(intervals ? ["90 % interval"] : [])].map((head) => make("th", { scope: "col" }, head));
  if (intervals) heads.push(make("th", { scope: "col", class: "word" }, "reliability"));
  return make(
    "div",
    {},
    make(
      "table",
      {},
      make("caption", {}, title),
      make("thead", {}, make("tr", {}, ...heads, make("td"))),
      make("tbody", {}, ...body),
    ),
    ...notes.map((note) => make("p", { class: "note" }, note)),
  );
}

/** A table of flows with their changes since another release, those larger than their uncertainty first. */
function changeTable(title: string, first: string, flows: Flow[], ends: (flow: Flow) => Named): HTMLElement {
  const listed = flows.filter(({ change }) => change?.change).slice(0, LISTED);
  const certain = flows.filter(({ change }) => change?.certain);
  const grew = certain.filter(({ change }) => change && change.change > 0).length;
  const rows = listed.map((flow) => {
    return make(
      "tr",
      { class: isFaint(flow) ? "faint" : "" },
      named(ends(flow)),
      ...beforeAndAfter(flow).map((text) => make("td", { class: "number" }, text)),
      make("td", { class: "number" }, changeText(flow)),
    );
  });
  const perDay = flows[0].change && isPerDay(flows[0].change.days) ? " per day" : "";
  const heads = [first, `before${perDay}`, `after${perDay}`, `change${perDay} (90 % interval)`];
  return make(
    "div",
    {},
    make(
      "table",
      {},
      make("caption", {}, titleOf(title, listed)),
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...rows),
    ),
    make(
      "p",
      { class: "note" },
      `${number(certain.length)} of ${number(flows.length)} compared flows changed by more than their uncertainty:` +
        ` ${number(grew)} grew, and ${number(certain.length - grew)} fell. Pale rows may not have changed. Of flows that did not` +
        " change, up to one in ten is not pale.",
    ),
  );
}

/** The numbers of both releases; per day if their periods have different numbers of days. */
function beforeAndAfter({ trips, change }: Flow): string[] {
  const { before, days }: Pick<Change, "before" | "days"> = change ?? { before: 0, days: [1, 1] };
  return isPerDay(days) ? [rounded(before / days[0]), rounded(trips / days[1])] : [number(before), number(trips)];
}

/** A change with its sign and its interval; those per day say so. */
export function changeText({ trips, change }: Trips): string {
  if (!change) return "";
  const perDay = isPerDay(change.days);
  const shown = (value: number): string => `${value > 0 ? "+" : ""}${perDay ? rounded(value) : number(value)}`.replace("-", "−");
  const [lower, upper] = change.interval ?? [];
  const exact = trips > 0 ? " (exact)" : ""; // of two numbers that are likely none, none is exact
  const range = lower === undefined ? "" : lower === upper ? exact : ` (${shown(lower)} to ${shown(upper!)})`;
  return `${shown(change.change)}${perDay ? " per day" : ""}${range}`;
}

/** Part of a bar from one share of its width to another. */
function mark(name: string, from: number, to: number): HTMLElement {
  const part = make("i", { class: name });
  part.style.left = `${100 * Math.max(0, from)}%`;
  part.style.width = `${100 * Math.max(0, Math.min(1, to) - Math.max(0, from))}%`;
  return part;
}

/** A matrix of flows, or of their changes, between areas: the first `chosen` rows stay in sight.
 *
 * If rows and columns are the same areas, trips within them are often many more: the scale is that of the others.
 */
export function matrixTable(title: string, origins: string[], destinations: string[], cells: Trips[][], same: boolean, chosen: number): HTMLElement {
  const size = ({ trips, change }: Trips): number => (change ? Math.abs(change.change) : Math.max(0, trips));
  const most = Math.max(1, ...cells.flatMap((row, o) => row.filter((_, d) => !same || o !== d).map(size)));
  const body = cells.map((row, o) =>
    make(
      "tr",
      { class: o < chosen ? "chosen" : "" },
      make("th", { scope: "row" }, make("bdi", {}, origins[o])),
      ...row.map((cell) => {
        const shown = make("td", { class: isFaint(cell) ? "number faint" : "number" }, number(cell.trips));
        if (cell.change) shown.append(make("small", {}, changeText(cell)));
        else if (cell.interval) shown.append(make("small", {}, intervalOfTrips(cell)), make("small", {}, reliability(cell.trips, cell.interval)));
        if ((cell.change?.change ?? 0) < 0) shown.classList.add("less");
        shown.style.setProperty("--share", String(Math.sqrt(Math.min(1, size(cell) / most))));
        return shown;
      }),
    ),
  );
  return make(
    "table",
    { class: "matrix" },
    make("caption", {}, make("span", {}, `${title}.${cells[0][0].change && cells.flat().some(isFaint) ? " Pale numbers may not have changed." : ""}`)),
    make("thead", {}, make("tr", {}, make("td"), ...destinations.map((name) => make("th", { scope: "col" }, make("bdi", {}, name))))),
    make("tbody", {}, ...body),
  );
}
