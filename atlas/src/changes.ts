/** Changes between two releases of the same areas, as `od_core/flows/publishing/changes.py` computes them. */

import { DEVIATIONS } from "./confidence";
import type { Areas, Direction, Flow, Flows, Totals, Trips } from "./flows";

/** The change of some trips since an earlier release; per day if the periods have different numbers of days. */
export interface Change {
  before: number;
  days: Days;
  change: number;
  /** The 90 % interval of the change; null if one of the releases has no intervals. */
  interval: [lower: number, upper: number] | null;
  /** Whether the change is larger than its uncertainty: whether 0 lies outside its interval. */
  certain: boolean;
}

/** Numbers of days of the periods before and after; equal ones if they are not known. */
export type Days = [before: number, after: number];

const SAME: Days = [1, 1];

/** Whether numbers of two periods are compared per day, because the periods have different numbers of days. */
export function isPerDay([before, after]: Days): boolean {
  return before !== after;
}

/** Least common multiple of the days: trips in so many days are whole numbers. */
function commonMultiple([before, after]: Days): number {
  let [divisor, rest] = [before, after];
  while (rest) [divisor, rest] = [rest, divisor % rest];
  return (before / divisor) * after;
}

/** The change between two numbers; `deviations` are those of numbers that were selected. */
export function changeBetween(before: Trips, after: Trips, deviations = DEVIATIONS, days = SAME): Change {
  if (!isPerDay(days)) return { ...changeOfWhole(before, after, deviations), before: before.trips, days };
  const span = commonMultiple(days);
  const [old, now] = [before, after].map(({ trips, interval }, k): Trips => {
    const times = span / days[k];
    return { trips: trips * times, interval: interval && [interval[0] * times, interval[1] * times] };
  });
  const { change, interval, certain } = changeOfWhole(old, now, deviations);
  return { before: before.trips, days, change: change / span, interval: interval && [interval[0] / span, interval[1] / span], certain };
}

/** The change between two whole numbers of trips. The end towards 0 is further away if the changes were selected. */
function changeOfWhole(before: Trips, after: Trips, deviations: number): Pick<Change, "change" | "interval" | "certain"> {
  const change = after.trips - before.trips;
  if (!before.interval || !after.interval) return { change, interval: null, certain: false };
  const [old, now] = [distances(before.trips, before.interval), distances(after.trips, after.interval)];
  const k = deviations / DEVIATIONS;
  const lower =
    k > 1 && change > 0
      ? change - root(Math.max(now.down, k * now.up), k * old.up)
      : change - Math.min(root(now.reachDown, old.up), now.down + old.up);
  const upper =
    k > 1 && change < 0
      ? change + root(k * now.up, Math.max(old.down, k * old.up))
      : change + Math.min(root(now.up, old.reachDown), now.up + old.down);
  return { change, interval: [lower, upper], certain: lower > 0 || upper < 0 };
}

/** Distances from trips to the ends of their interval. `reachDown` is that to the lower end as if it were not cut at 0. */
function distances(trips: number, [lower, upper]: [number, number]): { down: number; up: number; reachDown: number } {
  const [down, up] = [trips - lower, upper - trips];
  return { down, up, reachDown: lower === 0 ? Math.max(down, up) : down };
}

/** The root of the sum of two squares, rounded up. */
function root(one: number, other: number): number {
  return Math.ceil(Math.sqrt(one * one + other * other));
}

/** Two releases of the same areas, with the days of their periods. */
export class Comparison {
  constructor(
    private readonly before: Flows,
    private readonly after: Flows,
    private readonly days: Days,
  ) {}

  /** The later trips from some areas to others, with their change. */
  between(origins: Areas, destinations: Areas): Trips & { change: Change } {
    const [then, now] = [this.before, this.after].map((flows) => flows.between(origins, destinations));
    return { ...now, change: changeBetween(then, now, this.deviations(origins, destinations), this.days) };
  }

  /** Deviations of the change of one flow: the fewer of those of both releases. */
  private deviations(origins: Areas, destinations: Areas): number {
    return Math.min(...[this.before, this.after].map((flows) => flows.selection(origins, destinations).changes));
  }

  /** The later totals of some areas, with their changes. */
  totals(selected: Areas): Totals {
    const [before, after] = [this.before.totals(selected), this.after.totals(selected)];
    const changed = (name: "outflow" | "inflow" | "within", deviations?: number): Trips => ({
      ...after[name],
      change: changeBetween(before[name], after[name], deviations, this.days),
    });
    const within = changed("within", this.deviations(selected, selected));
    return { ...after, outflow: changed("outflow"), inflow: changed("inflow"), within };
  }

  /** Flows of the selection, changes that are larger than their uncertainty first. Only `most` are compared. */
  partners(selected: Areas, direction: Direction, level: number, most: number): Flow[] {
    const each = [this.before, this.after].map((flows) => flows.partners(selected, direction, level, 0));
    const ends = ({ origin, destination }: Flow): [Areas, Areas] => [
      origin < 0 ? selected : { level, areas: [origin] },
      destination < 0 ? selected : { level, areas: [destination] },
    ];
    return this.compared(each[0], each[1], most, ends);
  }

  /** Flows between areas of a level with the largest changes, those larger than their uncertainty first. */
  largest(level: number, most: number): Flow[] {
    const each = [this.before, this.after].map((flows) => flows.largest(level, Infinity, 0));
    const ends = ({ origin, destination }: Flow): [Areas, Areas] => [
      { level, areas: [origin] },
      { level, areas: [destination] },
    ];
    return this.compared(each[0], each[1], most, ends);
  }

  /** The flows of either release with the largest changes, those larger than their uncertainty first. */
  private compared(before: Flow[], after: Flow[], most: number, ends: (flow: Flow) => [Areas, Areas]): Flow[] {
    const both = new Map<string, { flow: Flow; before: number; after: number }>();
    for (const [name, flows] of [["before", before], ["after", after]] as const) {
      for (const flow of flows) {
        const key = `${flow.origin} ${flow.destination}`;
        const pair = both.get(key) ?? { flow, before: 0, after: 0 };
        both.set(key, { ...pair, [name]: flow.trips });
      }
    }
    const size = (pair: { before: number; after: number }): number => Math.abs(pair.after / this.days[1] - pair.before / this.days[0]);
    const largest = [...both.values()].sort((one, two) => size(two) - size(one)).slice(0, most);
    const compared = largest.map(({ flow }) => ({ ...flow, ...this.between(...ends(flow)) }));
    return compared.sort((one, two) => Number(two.change.certain) - Number(one.change.certain));
  }
}
