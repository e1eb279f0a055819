/** Show the trips of the selection by category and by distance, each with its interval. */

import { isolated, make, number } from "./dom";
import type { Band } from "./distances";
import type { Categories, Trips } from "./flows";
import { barTable } from "./panel";

export interface Profile {
  categories: Categories[] | null;
  distances: (Band & Trips)[] | null;
}

/** One row of a table of the profile, for people. */
interface Named {
  name: string;
  of: Trips;
}

/** Tables of the profile: what divides the trips, and the name of each part with its trips. */
export function divided({ categories, distances }: Profile): { by: string; rows: Named[] }[] {
  const breakdowns = (categories ?? []).map(({ name, rows }) => ({
    by: name,
    rows: rows.map((row) => ({ name: row.category, of: row })),
  }));
  const bands = distances && { by: "distance", rows: distances.map((band) => ({ name: nameOf(band), of: band })) };
  return bands ? [...breakdowns, bands] : breakdowns;
}

/** The tables of some trips, which the titles call `which`. */
export function profileTables(profile: Profile, which: string): HTMLElement[] {
  return divided(profile).map(({ by, rows }) => {
    const named = rows.map(({ name, of }) => ({ head: make("th", { scope: "row" }, make("bdi", {}, name)), of }));
    return barTable(`${which} by ${isolated(by)}`, by, named);
  });
}

/** The name of a band, as in the report. */
function nameOf({ from, to }: Band): string {
  if (from === null) return "unknown";
  if (to === null) return `${number(from)} km or more`;
  return from === 0 ? `below ${number(to)} km` : `${number(from)} to ${number(to)} km`;
}
