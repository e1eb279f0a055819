/** Write the numbers of a selection as CSV (RFC 4180), with what a reader must know in every row. */

import { make } from "./dom";
import type { Flow, Totals } from "./flows";

export interface Row {
  measure: string;
  level: string;
  area: string;
  name: string;
  value: number | null;
  interval: [lower: number, upper: number] | null;
}

export function rowsOf(totals: Totals | null, flows: Flow[], measure: string, of: (flow: Flow) => Partial<Row>): Row[] {
  const empty = { level: "", area: "", name: "" };
  const whole: Row[] = !totals
    ? []
    : [
        { measure: "trips to elsewhere", ...empty, value: totals.outflow.trips, interval: totals.outflow.interval },
        { measure: "trips from elsewhere", ...empty, value: totals.inflow.trips, interval: totals.inflow.interval },
        { measure: "trips within", ...empty, value: totals.within.trips, interval: totals.within.interval },
        {
          measure: "share of trips that stay",
          ...empty,
          value: totals.selfContainment.share,
          interval: totals.selfContainment.interval,
        },
      ];
  return [...whole, ...flows.map((flow) => ({ measure, ...empty, value: flow.trips, interval: flow.interval, ...of(flow) }))];
}

export function csv(rows: Row[], selection: string, release: string, note: string): string {
  const heads = ["measure", "level", "area", "name", "value", "lower", "upper", "selection", "release", "note"];
  const lines = rows.map(({ measure, level, area, name, value, interval }) => [
    measure,
    level,
    area,
    name,
    value ?? "",
    interval?.[0] ?? "",
    interval?.[1] ?? "",
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
