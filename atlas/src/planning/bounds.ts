/** What the bounds of a user's trips mean for the noise and for a year. */

import type { LevelSet, Nodes } from "./facts";

/** The bounds that a reader chooses: the trips of a user that are counted. */
export interface Bounds {
  /** In a period. */
  trips: number;
  /** Between the same two zones; if it is not below `trips`, it bounds nothing. */
  pair: number;
  /** In a year, for a unit of a year. */
  yearly: number;
}

/** The cap for each pair of zones; null if there is none. */
export function pairCap({ trips, pair }: Bounds): number | null {
  return pair < trips ? pair : null;
}

/** The largest sum of squares of the counts of a user with some trips at a level; see `compute_largest_square_sum` in
 * `od_core/privacy/neighbours.py`. */
export function largestSquares(trips: number, cap: number | null, nodes: Nodes): number {
  if (cap === null) return trips ** 2;
  let [left, squares] = [trips, 0];
  for (const [pairs, count] of nodes) {
    const most = Math.min(trips, cap * pairs);
    const filled = Math.min(count, Math.floor(left / most));
    squares += filled * most ** 2;
    left -= filled * most;
    if (filled < count) return squares + left ** 2;
  }
  return squares;
}

/** Rho of a year of equal periods for a user, as a multiple of that of one of them, given the charge of each level; see
 * `bound_rho_of_year` in `od_core/privacy/domain.py`. */
export function yearFactor(periods: number, bounds: Bounds, set: LevelSet, charges: Map<number, number>): number {
  const { trips: most, yearly } = bounds;
  const cap = pairCap(bounds);
  const full = Math.floor(yearly / most);
  if (full >= periods) return periods;
  if (cap === null) return full + ((yearly % most) / most) ** 2;
  const slopes = majorant(costsByTrips(most, cap, set, charges));
  let [left, factor] = [yearly, 0];
  for (const slope of slopes) {
    const used = Math.min(periods, left);
    factor += used * slope;
    left -= used;
  }
  return Math.min(factor, periods);
}

/** What a release costs a user with 0, 1, and up to `most` counted trips, as a part of its rho. */
function costsByTrips(most: number, cap: number, set: LevelSet, charges: Map<number, number>): number[] {
  const all = [...charges.values()].reduce((one, other) => one + other, 0);
  const costs = new Array<number>(most + 1).fill(0);
  for (const [level, charge] of charges) {
    const nodes = set.nodes[level];
    const part = charge / all / largestSquares(most, cap, nodes);
    for (let trips = 1; trips <= most; trips++) costs[trips] += part * largestSquares(trips, cap, nodes);
  }
  return costs;
}

/** By how much each trip raises the least concave function that is never below the costs. */
function majorant(costs: number[]): number[] {
  const corners = [0];
  const slope = (from: number, to: number): number => (costs[to] - costs[from]) / (to - from);
  for (let trips = 1; trips < costs.length; trips++) {
    while (corners.length > 1 && slope(corners.at(-2)!, corners.at(-1)!) <= slope(corners.at(-1)!, trips)) corners.pop();
    corners.push(trips);
  }
  return corners.slice(1).flatMap((corner, place) => {
    return new Array<number>(corner - corners[place]).fill(slope(corners[place], corner));
  });
}
