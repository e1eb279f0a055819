/** What the reader has chosen. It is part of the page's address, so a link leads to the same view. */

import type { Facts } from "./facts";
import { pairCap } from "./bounds";
import { declaredLevel, ruleOf, weightedLevels, type Setting } from "./plan";

export interface State extends Setting {
  /** Trips of the flow whose error is shown. */
  flow: number;
  /** Trips of the flow that may be told from 0. */
  small: number;
  /** Trips of the person to whom the promise is stated. */
  person: number;
  /** By how much a longer period is longer. */
  times: number;
}

export const MOST_WEIGHT = 100;
/** Of trips between two zones, it is so many that they are not bounded. */
const MOST_TRIPS = 1_000_000;
/** Numbers that readers type: their limits, and the number with which the page begins. */
export const NUMBERS = {
  trips: { least: 1, most: 1000 }, // MOST_TRIPS of `planning_page.py`
  pair: { least: 1, most: MOST_TRIPS },
  yearly: { least: 1, most: MOST_TRIPS },
  flow: { least: 1, most: MOST_TRIPS },
  small: { least: 1, most: MOST_TRIPS },
  person: { least: 1, most: MOST_TRIPS },
  times: { least: 2, most: 100 },
} as const;
export type NumberName = keyof typeof NUMBERS;

interface Limits {
  least: number;
  most: number;
}

/** The declared setting, with which the page begins. */
export function declaredState(facts: Facts): State {
  const { budget, unit, trips, pair, segments } = facts.declared;
  const bounds = { trips, pair: pair ?? MOST_TRIPS, yearly: facts.year?.trips ?? trips };
  return { budget, unit, set: 0, ...bounds, segments, weights: null, flow: 100, small: 5, person: 10, times: 4 };
}

/** Weights that give about the declared shares, from which a reader begins. */
export function weightsOfRule(facts: Facts, state: State): number[] {
  const set = facts.sets[state.set];
  const weights = new Array<number>(facts.levels.flat().length + 1).fill(MOST_WEIGHT / 2);
  const shares = new Map(ruleOf(facts, state).shares);
  const most = Math.max(...shares.values());
  for (const level of weightedLevels(facts, state)) {
    const weight = Math.round((MOST_WEIGHT * (shares.get(level) ?? 0)) / most);
    weights[declaredLevel(facts, set, level)] = Math.max(weight, 1);
  }
  return weights;
}

/** The end of the address of the page that states what is chosen; see `stated`. */
export function fragment(state: State, facts: Facts): string {
  const { kind, relation, trips } = facts.units[state.unit];
  const parts: [string, string | number][] = [
    ["budget", state.budget],
    ["unit", kind],
    ["neighbours", relation],
    ...(trips === null ? [["trips", state.trips] as [string, number]] : []),
    ...(trips === null ? [["pair", shownPair(state)] as [string, number]] : []),
    ...(kind === "user_year" ? [["yearly", state.yearly] as [string, number]] : []),
    ["levels", facts.sets[state.set].kept.join(",")],
    ...(facts.segments ? [["segments", Number(state.segments)] as [string, number]] : []),
    ...(state.weights ? [["weights", state.weights.join(",")] as [string, string]] : []),
    ...(["flow", "small", "person", "times"] as const).map((name): [string, number] => [name, state[name]]),
  ];
  return `#${parts.map(([name, value]) => `${name}=${value}`).join("&")}`;
}

/** The largest number of trips between two zones as it is shown: that of all trips if there is no cap. */
export function shownPair(state: State): number {
  return pairCap(state) ?? state.trips;
}

/** What a reader who types a number changes. As many trips between two zones as in all are no cap, whatever follows. */
export function typed(name: NumberName, value: number, state: State): Partial<State> {
  return { [name]: name === "pair" && value >= state.trips ? MOST_TRIPS : value };
}

/** Read the state from the address. What it does not state, or states wrongly, is as declared. */
export function stated(address: string, facts: Facts): State {
  const given = new Map(address.replace(/^#/, "").split("&").map((part) => part.split("=", 2) as [string, string]));
  const state = declaredState(facts);
  const budget = whole(given.get("budget"));
  if (budget !== null && budget < facts.budgets.length) state.budget = budget;
  const unit = facts.units.findIndex(({ kind, relation }) => {
    return kind === given.get("unit") && relation === given.get("neighbours");
  });
  if (unit >= 0) state.unit = unit;
  const set = facts.sets.findIndex(({ kept }) => kept.join(",") === given.get("levels"));
  if (set >= 0) state.set = set;
  if (facts.segments && given.has("segments")) state.segments = given.get("segments") === "1";
  for (const name of Object.keys(NUMBERS) as NumberName[]) {
    const value = within(NUMBERS[name], whole(given.get(name)));
    if (value !== null) Object.assign(state, typed(name, value, state));
  }
  if (facts.year && state.trips > state.yearly) [state.trips, state.yearly] = [facts.declared.trips, facts.year.trips];
  const weights = given.get("weights")?.split(",").map(whole) ?? [];
  const allowed = weights.every((weight) => weight !== null && weight >= 1 && weight <= MOST_WEIGHT);
  if (allowed && weights.length === facts.levels.flat().length + 1) state.weights = weights as number[];
  if (weightedLevels(facts, state).length < 2) state.weights = null;
  return state;
}

/** The limits of a number that a reader types: at most as many trips are counted in a period as in a year. */
export function limits(name: NumberName, state: State, facts: Facts): Limits {
  const { least, most } = NUMBERS[name];
  if (facts.year && name === "trips") return { least, most: Math.min(most, state.yearly) };
  if (name === "pair") return { least, most: state.trips };
  return { least: name === "yearly" ? state.trips : least, most };
}

/** A number that a reader typed, if it is within its limits; otherwise null. */
export function within({ least, most }: Limits, value: number | null): number | null {
  return value !== null && value >= least && value <= most ? value : null;
}

/** A text of up to nine digits as a number; null for any other text. */
export function whole(text: string | undefined): number | null {
  return text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : null;
}
