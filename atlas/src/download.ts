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

export function rowsOf(totals: Totals | null, flows: Flow[], measure: string, of: (flow: Flow) => Partial<Row>): Row[] {
  const empty = { level: "", area: "", name: "" };
  const whole: Row[] = !totals
    ? []
    : [
        { measure: `${counted} to elsewhere`, ...empty, ...numbers(totals.outflow) },
        { measure: `${counted} from elsewhere`, ...empty, ...numbers(totals.inflow) },
        { measure: `${counted} within`, ...empty, ...numbers(totals.within) },
        {
          measure: `share of ${counted} that stay`,
          ...empty,
          value: totals.selfContainment.share,
          interval: totals.selfContainment.interval,
        },
        ...(totals.meanDistance
          ? [
              {
                measure: `mean distance of ${counted} from here, in km`,
                ...empty,
                value: totals.meanDistance.mean,
                interval: totals.meanDistance.interval,
              },
            ]
          : []),
      ];
  return [...whole, ...flows.map((flow) => ({ measure, ...empty, ...numbers(flow), ...of(flow) }))];
}

/** A row of the trips of one category, or of one band of distance. */
export function partRow(measure: string, name: string, of: Trips): Row {
  return { measure, level: "", area: "", name, ...numbers(of) };
}

function numbers({ trips, interval, change }: Trips): Pick<Row, "value" | "interval" | "word" | "change"> {
  return { value: trips, interval, word: reliability(trips, interval), change };
}

/** What a row is of: what is selected, in which release, and what a reader must know. */
interface Stated {
  selection: string;
  release: string;
  note: string;
}

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

function field(value: string | number): string {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function save(text: string, name: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
