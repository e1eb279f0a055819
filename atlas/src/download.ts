/** Write the numbers of a selection as CSV (RFC 4180), with what a reader must know in every row. */

import { counted } from "./nouns";
import { isPerDay, type Change } from "./changes";
import { reliability, type Reliability } from "./confidence";
import { make } from "./dom";
import type { Flow, Totals, Trips } from "./flows";

export interface Row {
  measure: string;
  level: string;
  area: string;
  name: string;
  value: number | null;
  interval: [lower: number, upper: number] | null;
  /** Of trips alone. */
  word?: Reliability;
  /** Since another release, if the reader compares with one. */
  change?: Change;
}

/** The rows of a selection: its totals, if it has any, and its flows, of which `of` says between which areas they are. */
export function rowsOf(totals: Totals | null, flows: Flow[], measure: string, of: (flow: Flow) => Partial<Row>): Row[] {
  const rows = totals ? rowsOfTotals(totals) : [];
  return [...rows, ...flows.map((flow) => ({ measure, ...UNNAMED, ...numbers(flow), ...of(flow) }))];
}

/** What a row of no area in particular says of its area. */
const UNNAMED = { level: "", area: "", name: "" };

function rowsOfTotals({ outflow, inflow, within, selfContainment, meanDistance }: Totals): Row[] {
  const { share, interval } = selfContainment;
  const rows: Row[] = [
    { measure: `${counted} to elsewhere`, ...UNNAMED, ...numbers(outflow) },
    { measure: `${counted} from elsewhere`, ...UNNAMED, ...numbers(inflow) },
    { measure: `${counted} within`, ...UNNAMED, ...numbers(within) },
    { measure: `share of ${counted} that stay`, ...UNNAMED, value: share, interval },
  ];
  if (meanDistance) {
    const measure = `mean distance of ${counted} from here, in km`;
    rows.push({ measure, ...UNNAMED, value: meanDistance.mean, interval: meanDistance.interval });
  }
  return rows;
}

/** A row of the trips of one category, or of one band of distance. */
export function partRow(measure: string, name: string, of: Trips): Row {
  return { measure, ...UNNAMED, name, ...numbers(of) };
}

/** The part of a row that has numbers. */
function numbers({ trips, interval, change }: Trips): Pick<Row, "value" | "interval" | "word" | "change"> {
  return { value: trips, interval, word: reliability(trips, interval), change };
}

/** What a row is of: what is selected, in which release, and what a reader must know. */
interface Stated {
  selection: string;
  release: string;
  note: string;
}

/** The text of a CSV file. Columns on changes are only there if a row has a change. */
export function csv(rows: (Row & Stated)[]): string {
  const perDay = rows.some(({ change }) => change && isPerDay(change.days)) ? "_per_day" : "";
  const changes = rows.some(({ change }) => change) ? ["before", ...["change", "change_lower", "change_upper"].map((name) => `${name}${perDay}`)] : [];
  const heads = ["measure", "level", "area", "name", "value", "lower", "upper", "reliability", ...changes, "selection", "release", "note"];
  const lines = rows.map(({ measure, level, area, name, value, interval, word, change, selection, release, note }) => [
    measure,
    level,
    area,
    name,
    value ?? "",
    interval?.[0] ?? "",
    interval?.[1] ?? "",
    word ?? "",
    ...[change?.before, change?.change, change?.interval?.[0], change?.interval?.[1]]
      .slice(0, changes.length)
      .map((number) => number ?? ""),
    selection,
    release,
    note,
  ]);
  return [heads, ...lines].map((line) => `${line.map(field).join(",")}\r\n`).join("");
}

/** A value as a field of a CSV file, in quotes where it needs them. */
function field(value: string | number): string {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Let the browser save a text or other content as a file. */
export function save(content: string | Blob, name: string, type = "text/csv"): void {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
