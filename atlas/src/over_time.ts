/** A flow of a series in every period: the reader chooses where trips begin and end. `site.py` writes the data. */

import { changeBetween, isPerDay } from "./changes";
import { reliability } from "./confidence";
import { byId, isolated, make, number, rounded } from "./dom";
import type { Trips } from "./flows";
import { aliasesOf, ranker } from "./search";

interface Level {
  level: string;
  codes: string[];
  labels: string[];
  parents: number[];
  /** Other names, separated by semicolons; absent if no area of the side has any. */
  aliases?: string[];
}

/** Trips, and how far their interval reaches down and up, by period, origin and destination; null if not listed. */
type Columns = [trips: (number | null)[], down: (number | null)[], up: (number | null)[]];

interface Given {
  periods: string[];
  comparable: boolean[];
  days: number[];
  sides: [Level[], Level[]];
  values: Columns;
  totals: [Columns, Columns];
  sizes: [number, number];
  /** Of the ends towards 0 of changes, by period and by the levels of origins and destinations. */
  deviations: number[][][];
  /** The place of the same period of the year before, or null where the page has none. */
  yearBefore: (number | null)[];
  /** The texts of the page in its language, by name; `over_time.yaml` has them. */
  words: Record<string, string>;
}

/** An area of a side: its place among those of all levels, its names and those of the areas that contain it. */
interface Place {
  place: number;
  level: number;
  key: string;
  name: string;
  shown: string;
  names: string[];
  above: string[];
}

const given = JSON.parse(byId("data").textContent ?? "") as Given;
const perDay = byId<HTMLInputElement>("per-day");
const [HEIGHT, LEFT, TOP, BOTTOM] = [260, 70, 14, 34];

/** A text of the page, with values in place of the names in braces. */
function say(name: string, values: Record<string, string> = {}): string {
  return given.words[name].replace(/\{(\w+)\}/g, (_, value: string) => values[value]);
}

/** The areas of all levels of a side; the first one is the whole space. */
function placesOf(levels: Level[]): Place[] {
  const places: Place[] = [];
  /** Labels of the areas that contain each area of each level, from that of the level above. */
  const labelsAbove: string[][][] = [];
  levels.forEach(({ level, codes, labels, parents, aliases }, depth) => {
    labelsAbove.push(codes.map((_, area) => {
      if (depth <= 1) return [];
      const parent = parents[area];
      return [levels[depth - 1].labels[parent], ...labelsAbove[depth - 1][parent]];
    }));
    codes.forEach((code, area) => {
      const [label, above] = [labels[area], labelsAbove[depth][area]];
      const names = [label, code, ...aliasesOf(aliases?.[area])];
      const place = places.length;
      if (depth === 0) {
        const name = say("all_areas");
        places.push({ place, level: depth, key: "all", name, shown: name, names: [name, ...names], above });
        return;
      }
      const name = label.includes(code) ? label : `${label} (${code})`;
      const shown = `${[name, ...above].join(", ")} – ${level}`;
      places.push({ place, level: depth, key: `${level}:${code}`, name, shown, names, above });
    });
  });
  return places;
}

const sides = given.sides.map(placesOf);
const inputs = ["from", "to"].map((name) => byId<HTMLInputElement>(name));

/** The flow in each period; null where the release does not list it, and for pairs of areas that the page lacks. */
function flow(origin: Place, destination: Place): (Trips | null)[] | null {
  const [origins, destinations] = given.sizes;
  let [columns, width, place] = [given.values, origins * destinations, origin.place * destinations + destination.place];
  if (origin.place >= origins || destination.place >= destinations) {
    if (origin.place && destination.place) return null;
    const side = origin.place ? 0 : 1;
    [columns, width, place] = [given.totals[side], sides[side].length, [origin, destination][side].place];
  }
  return given.periods.map((_, period) => {
    const [trips, down, up] = columns.map((column) => column[period * width + place]);
    return trips === null ? null : { trips, interval: [trips - (down ?? 0), trips + (up ?? 0)] };
  });
}

/** The area that a text names best. */
function found(side: number, text: string): Place | undefined {
  const rankOf = ranker(text, given.sides[side].map(({ level }) => level));
  const ranked = sides[side].map((place) => ({ place, rank: place.shown === text || place.key === text ? -1 : rankOf(place.names, place.above) }));
  return ranked.filter(({ rank }) => rank < Infinity).sort((one, two) => one.rank - two.rank)[0]?.place;
}

/** Show the flow between the areas that the two fields name, or what is wrong with them. */
function show(): void {
  const [origin, destination] = inputs.map((input, side) => found(side, input.value.trim() || "all"));
  const result = byId("flow");
  if (!origin || !destination) {
    result.replaceChildren(make("p", {}, say("unknown_area")));
    return;
  }
  [inputs[0].value, inputs[1].value] = [origin.shown, destination.shown];
  history.replaceState(null, "", `#from=${encodeURIComponent(origin.key)}&to=${encodeURIComponent(destination.key)}`);
  const trips = flow(origin, destination);
  if (!trips) {
    result.replaceChildren(make("p", {}, say("small_levels")));
    return;
  }
  const title = given.sides[1].length > 1 ? say("flow", { origin: isolated(origin.name), destination: isolated(destination.name) }) : isolated(origin.name);
  const change: Changed = (before, after) => changed(trips, before, after, [origin, destination]);
  const said = verdicts(trips.length - 1, change).map((text) => make("p", { class: "verdict" }, text));
  result.replaceChildren(make("h3", {}, title), ...said, chart(trips, title), table(trips, title, change));
}

type Changed = (before: number, after: number) => Trips | undefined;

/** The change between two periods; undefined if it is not known, or their areas differ. */
function changed(trips: (Trips | null)[], before: number, after: number, [from, to]: [Place, Place]): Trips | undefined {
  const [old, now] = [trips[before], trips[after]];
  const same = given.comparable.slice(before, after).every(Boolean);
  const deviations = Math.min(...[before, after].map((period) => given.deviations[period][from.level][to.level]));
  return old && now && same ? { ...now, change: changeBetween(old, now, deviations, [given.days[before], given.days[after]]) } : undefined;
}

/** What can be said of the change since the period before, since a year before, and since the first period. */
function verdicts(last: number, change: Changed): string[] {
  if (!last) return [say("one_period")];
  const year = given.yearBefore[last];
  const before = [...new Set([last - 1, ...(year === null ? [] : [year]), 0])];
  return before.map((period) => {
    const [of, ends] = [change(period, last), { before: periodAndDays(period), after: periodAndDays(last) }];
    const text = period === year ? "since_last_year" : "since";
    if (!of?.change) return say(text, { ...ends, verdict: say("not_computed") });
    const { certain, change: size } = of.change;
    const verdict = say(certain ? (size > 0 ? "more" : "fewer") : "unchanged", { change: changeText(of) });
    return say(text, { ...ends, verdict });
  });
}

/** A period, with its days if others of the page have more or fewer. */
function periodAndDays(k: number): string {
  const period = given.periods[k];
  return new Set(given.days).size > 1 ? say("days", { period, days: number(given.days[k]) }) : period;
}

/** A number of trips of a period as it is chosen: in all, or per day. */
function shownTrips(value: number, period: number): string {
  return perDay.checked ? rounded(value / given.days[period]) : number(value);
}

/** A change with its sign and its interval; those per day say so. */
function changeText({ trips, change }: Trips): string {
  if (!change) return "";
  const [isOfDay, days] = [isPerDay(change.days), change.days[0]];
  const daily = isOfDay || perDay.checked;
  const each = (value: number): number => (daily && !isOfDay ? value / days : value);
  const signed = (value: number): string => `${value > 0 ? "+" : ""}${daily ? rounded(each(value)) : number(value)}`.replace("-", "−");
  const shown = daily ? say("per_day", { number: signed(change.change) }) : signed(change.change);
  if (!change.interval) return shown;
  const [lower, upper] = change.interval;
  if (lower < upper) return say("change_and_range", { change: shown, range: say("range", { lower: signed(lower), upper: signed(upper) }) });
  return trips > 0 ? say("exact_change", { change: shown }) : shown; // of two numbers that are likely none, none is exact
}

/** The interval of a number of a period with its word, or that the number is exact. */
function reach({ trips, interval }: Trips, period: number): string {
  if (!interval) return "";
  const [lower, upper] = interval;
  if (lower === upper) return say(trips > 0 ? "exact" : "likely none");
  const word = reliability(trips, interval);
  const range = say("range", { lower: shownTrips(lower, period), upper: shownTrips(upper, period) });
  return word ? `${range}, ${say(word)}` : range;
}

/** A table of the trips of each period, the newest first, with their change since the period before. */
function table(trips: (Trips | null)[], title: string, changeOf: Changed): HTMLElement {
  const rows = trips.map((of, k) => {
    const change = k ? changeOf(k - 1, k) : undefined;
    const said = change ? say(change.change?.certain ? "changed" : "may_be_unchanged") : "";
    const cells = [of ? shownTrips(of.trips, k) : say("not_listed"), of ? reach(of, k) : "", change ? changeText(change) : ""];
    return make("tr", {}, make("th", { scope: "row" }, periodAndDays(k)), ...cells.map((text) => make("td", { class: "n" }, text)), make("td", {}, said));
  });
  const heads = ["period", perDay.checked ? "counted_per_day" : "counted", "interval", "change", "verdict"].map((name) => say(name));
  const head = make("tr", {}, ...heads.map((text, k) => make("th", { scope: "col", class: k && k < 4 ? "n" : "" }, text)));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows.reverse())));
}

/** Round numbers of an axis from the lowest to the most; from 0, but where intervals would then be hard to see. */
function ticks(lowest: number, most: number): number[] {
  const begin = lowest >= 0 && lowest < most / 2 ? 0 : lowest;
  const least = Math.max(1, (most - begin) / 4);
  const unit = 10 ** Math.floor(Math.log10(least));
  const step = unit * ([1, 2, 5].find((times) => times * unit >= least) ?? 10);
  const first = Math.floor(begin / step);
  const last = Math.max(first + 1, Math.ceil(most / step));
  return Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step);
}

/** The trips as a line within the band of their intervals; an axis that does not begin at 0 has a mark and says so. */
function chart(trips: (Trips | null)[], title: string): Element {
  const part = (k: number): number => (perDay.checked ? given.days[k] : 1);
  const known = trips.flatMap((of, k) => (of ? [{ k, trips: of.trips / part(k), ends: (of.interval ?? [of.trips, of.trips]).map((end) => end / part(k)) }] : []));
  const largest = Math.max(1, ...known.map(({ ends }) => ends[1]));
  const values = ticks(Math.min(largest, ...known.map(({ ends }) => ends[0])), largest);
  const [least, most] = [values[0], values[values.length - 1]];
  const width = Math.min(Math.max(byId("flow").clientWidth, 300), 860);
  const x = (k: number): number => (trips.length < 2 ? (LEFT + width) / 2 : LEFT + 20 + (k * (width - LEFT - 50)) / (trips.length - 1));
  const y = (value: number): number => TOP + ((most - value) * (HEIGHT - TOP - BOTTOM)) / (most - least);
  const point = (k: number, value: number): string => `${x(k).toFixed(1)},${y(value).toFixed(1)}`;
  const upper = known.map(({ k, ends }) => point(k, ends[1]));
  const lower = known.map(({ k, ends }) => point(k, ends[0])).reverse();
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", class: "ribbon", "aria-label": say("picture", { title }) });
  for (const value of values) {
    picture.append(svg("line", { class: "grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }));
    picture.append(svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  if (least > 0) picture.append(svg("path", { class: "line cut", d: `M${LEFT} ${y(least)}v2l-4 2l8 3l-4 2v2` }));
  picture.append(svg("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
  picture.append(svg("polyline", { class: "line", points: known.map(({ k, trips: value }) => point(k, value)).join(" ") }));
  const every = Math.ceil(trips.length / (width < 500 ? 4 : 8));
  for (const { k, trips: value, ends } of known) {
    picture.append(svg("line", { class: "reach", x1: x(k), x2: x(k), y1: y(ends[0]), y2: y(ends[1]) }));
    picture.append(svg("circle", { class: "dot", cx: x(k), cy: y(value), r: 3 }));
    if (k % every === 0) picture.append(svg("text", { x: x(k), y: HEIGHT - 10, "text-anchor": "middle" }, given.periods[k]));
  }
  const cut = least > 0 ? [make("figcaption", {}, say("axis", { value: number(least) }))] : [];
  return make("figure", {}, picture, ...cut);
}

/** Make an element of a picture. */
function svg(tag: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.textContent = text;
  return element;
}

/** Take the areas from the address of the page, and show their flow. */
function showStated(): void {
  const parts = new Map(location.hash.slice(1).split("&").map((part) => part.split("=", 2) as [string, string]));
  for (const [side, name] of ["from", "to"].entries()) {
    try {
      inputs[side].value = decodeURIComponent(parts.get(name) ?? "all");
    } catch {
      inputs[side].value = "all";
    }
  }
  show();
}

for (const [side, name] of ["from", "to"].entries()) {
  byId(`${name}-areas`).append(...sides[side].map(({ shown }) => make("option", { value: shown })));
  inputs[side].addEventListener("focus", () => inputs[side].select());
  inputs[side].addEventListener("change", show);
}
perDay.onchange = show;
byId("swap").onclick = () => {
  [inputs[0].value, inputs[1].value] = [inputs[1].value, inputs[0].value];
  show();
};
byId<HTMLFormElement>("ask").onsubmit = (event) => {
  event.preventDefault();
  show();
};
addEventListener("hashchange", showStated);
byId("ask").hidden = false;
showStated();
