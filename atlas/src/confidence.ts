/** The ends of 90 % intervals, as `od_core/flows/interval_ends.py` computes them, bit for bit. */

import type { Trips } from "./flows";

/** Standard deviations from the middle of a normal distribution within which 90 % of it lies. */
export const DEVIATIONS = 1.6448536269514722;
/** Relative error of an estimate from rounding, and the most trips by which an interval is widened for it. */
const TOLERANCE = 1e-9;
const MOST_TOLERANCE = 0.25;
/** Standard deviations above 0 from which the selection of an estimate by its sign matters little. */
const FAR = 5;

/** Half the width of an interval around an estimate, before its ends are cut to whole numbers. */
export function halfWidth(estimate: number, variance: number, deviations = DEVIATIONS): number {
  const width = deviations * Math.sqrt(variance);
  const rounding = Math.min(TOLERANCE * (1 + Math.abs(estimate)), MOST_TOLERANCE);
  return Math.max(Math.max(width + 0.25, 0.5), Math.ceil(width - 0.5)) + rounding;
}

/** Which numbers of a table people read, as `Selection` in `od_core/flows/interval_ends.py`: deviations of the lower ends
 * of those above 0, the least of the largest, and the deviations of changes. */
export interface Selection {
  deviations: number;
  leastListed: number;
  changes: number;
}

/** Of numbers that were not chosen by what was released. */
export const CHOSEN_BEFORE: Selection = { deviations: DEVIATIONS, leastListed: Infinity, changes: DEVIATIONS };

/** The lower end; other `deviations` are those of numbers that were released above 0. */
export function lowerBound(estimate: number, variance: number, deviations = DEVIATIONS, isListed = false): number {
  const own = isListed || estimate < FAR * Math.sqrt(variance) ? deviations : DEVIATIONS;
  return Math.max(Math.ceil(estimate - halfWidth(estimate, variance, own)), 0);
}

/** The upper end. */
export function upperBound(estimate: number, variance: number): number {
  return Math.max(Math.floor(estimate + halfWidth(estimate, variance)), 0);
}

/** What an interval says of its number; "" of one that was released as 0, or has no interval. */
export type Reliability = "solid" | "rough" | "may be none" | "";

/** The word on trips with their interval, as `choose_reliability_words` in `interval_ends.py`. */
export function reliability(trips: number, interval: [lower: number, upper: number] | null): Reliability {
  if (!interval || trips === 0) return "";
  if (interval[0] <= 0) return "may be none";
  return 4 * (interval[1] - interval[0]) <= trips ? "solid" : "rough";
}

/** Whether trips may be none or, if releases are compared, may not have changed. */
export function isFaint({ trips, interval, change }: Trips): boolean {
  return change ? !change.certain : reliability(trips, interval) === "may be none";
}

/** Estimates of a sum of nodes; see `Estimates` in `od_core/flows/estimation/fitted_tree.py`. */
export interface Estimate {
  estimate: number;
  variance: number;
  /** Of the dropped nodes that the sum overlaps: the sum of their upper bounds, the estimate of their trips, and its
   * variance. */
  most: number;
  unseen: number;
  doubt: number;
}

/** The sum of two independent estimates. */
export function added(one: Estimate, other: Estimate): Estimate {
  return {
    estimate: one.estimate + other.estimate,
    variance: one.variance + other.variance,
    most: one.most + other.most,
    unseen: one.unseen + other.unseen,
    doubt: one.doubt + other.doubt,
  };
}

/** The interval of a sum; see `compute_bounds` in `od_core/flows/estimation/intervals.py`. */
export function bounds(sum: Estimate, deviations = DEVIATIONS, isListed = false): [lower: number, upper: number] {
  const alone = upperBound(sum.estimate, sum.variance) + Math.trunc(sum.most);
  const together = upperBound(sum.estimate + Math.max(sum.unseen, 0), sum.variance + sum.doubt);
  return [lowerBound(sum.estimate, sum.variance, deviations, isListed), sum.most > 0 ? Math.min(alone, together) : alone];
}

/** The side on which the true trips probably are if the released ones lie at an end of their interval, and the unbiased
 * estimate; see `_find_likely_sides` in `od_core/flows/indicators.py`. */
export function likely(trips: number, sum: Estimate): Likely | null {
  const half = halfWidth(sum.estimate, sum.variance);
  const about = Math.round(sum.estimate);
  const alone = Math.floor(sum.estimate + half) + Math.trunc(sum.most);
  const withUnseen = sum.estimate + Math.max(sum.unseen, 0);
  const together = Math.floor(withUnseen + halfWidth(withUnseen, sum.variance + sum.doubt));
  const low = Math.ceil(sum.estimate - half);
  const high = sum.most > 0 ? Math.min(alone, together) : alone;
  if (trips < half) return null;
  if (trips <= low && trips < about) return { side: "higher", about };
  if (trips >= high && trips > about) return { side: "lower", about };
  return null;
}

/** Whether the true trips probably are more or fewer than the released ones, and about how many they are. */
export interface Likely {
  side: "higher" | "lower";
  about: number;
}

/** The interval of the share of a part in a whole that is the sum of the part and a rest; see
 * `od_core/flows/indicators.py`. If nodes were dropped, it follows from the bounds of both.
 */
export function shareBounds(
  part: Estimate,
  whole: Estimate,
  rest: Estimate,
  nothingDropped: boolean,
): [lower: number, upper: number] {
  if (nothingDropped) {
    const covariance = (whole.variance + part.variance - rest.variance) / 2;
    return roundedOutwards(fieller(part, whole, covariance, 1), 6);
  }
  const [[stayLow, stayHigh], [leaveLow, leaveHigh]] = [bounds(part), bounds(rest)];
  const low = stayLow + leaveHigh > 0 ? stayLow / (stayLow + leaveHigh) : 0;
  const high = stayHigh + leaveLow > 0 ? stayHigh / (stayHigh + leaveLow) : 1;
  return roundedOutwards([low, high], 6);
}

/** The interval of the mean of a quantity of trips; see `_compute_distance_bounds` in `od_core/flows/indicators.py`.
 *
 * The quantity of a trip is at most `most`, which trips of dropped nodes may have. `mixed` is the estimate of the sum of
 * the quantity and `scale`, over all trips.
 */
export function meanBounds(
  trips: Estimate,
  total: Estimate,
  mixed: Estimate,
  scale: number,
  most: number,
): [lower: number, upper: number] {
  const covariance = (mixed.variance - total.variance - scale * scale * trips.variance) / (2 * scale);
  const [low, high] = fieller(total, trips, covariance, most);
  const unseen = bounds({ ...trips, estimate: 0, variance: 0 })[1];
  const seen = lowerBound(trips.estimate, trips.variance);
  const part = unseen > 0 ? seen / (seen + unseen) : 1;
  return roundedOutwards([low * part, high * part + most * (1 - part)], 3);
}

/** The interval of part / whole, from 0 to `most`; see `compute_fieller_ends` in `od_core/flows/estimation/intervals.py`. */
function fieller(part: Estimate, whole: Estimate, covariance: number, most: number): [lower: number, upper: number] {
  const square = DEVIATIONS ** 2;
  const a = whole.estimate * whole.estimate - square * whole.variance;
  const b = part.estimate * whole.estimate - square * covariance;
  const c = part.estimate * part.estimate - square * part.variance;
  if (a <= 0 || whole.estimate <= 0) return [0, most];
  const reach = Math.sqrt(Math.max(b * b - a * c, 0));
  const inside = (ratio: number): number => Math.min(Math.max(ratio, 0), most);
  return [inside((b - reach) / a), inside((b + reach) / a)];
}

/** An interval whose ends are rounded outwards to some decimal places. */
function roundedOutwards([low, high]: [number, number], places: number): [lower: number, upper: number] {
  const scale = 10 ** places;
  return [Math.floor(low * scale) / scale, Math.ceil(high * scale) / scale];
}
