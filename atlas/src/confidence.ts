/** The ends of 90 % intervals, as `od_core/flows/confidence.py` computes them, bit for bit. */

export const DEVIATIONS = 1.6448536269514722;
const TOLERANCE = 1e-9;
const MOST_TOLERANCE = 0.25;

export function halfWidth(estimate: number, variance: number): number {
  const width = DEVIATIONS * Math.sqrt(variance);
  const rounding = Math.min(TOLERANCE * (1 + Math.abs(estimate)), MOST_TOLERANCE);
  return Math.max(Math.max(width + 0.25, 0.5), Math.ceil(width - 0.5)) + rounding;
}

export function lowerBound(estimate: number, variance: number): number {
  return Math.max(Math.ceil(estimate - halfWidth(estimate, variance)), 0);
}

export function upperBound(estimate: number, variance: number): number {
  return Math.max(Math.floor(estimate + halfWidth(estimate, variance)), 0);
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

export function added(one: Estimate, other: Estimate): Estimate {
  return {
    estimate: one.estimate + other.estimate,
    variance: one.variance + other.variance,
    most: one.most + other.most,
    unseen: one.unseen + other.unseen,
    doubt: one.doubt + other.doubt,
  };
}

/** The interval of a sum; see `bounds_of` in `od_core/flows/estimation/intervals.py`. */
export function bounds(sum: Estimate): [lower: number, upper: number] {
  const alone = upperBound(sum.estimate, sum.variance) + Math.trunc(sum.most);
  const together = upperBound(sum.estimate + Math.max(sum.unseen, 0), sum.variance + sum.doubt);
  return [lowerBound(sum.estimate, sum.variance), sum.most > 0 ? Math.min(alone, together) : alone];
}

const SHARES = 1e6;

/** The interval of the share of a part in a whole that is the sum of the part and a rest, by Fieller's theorem, or from
 * the bounds of both if nodes were dropped; see `od_core/flows/indicators.py`. */
export function shareBounds(
  part: Estimate,
  whole: Estimate,
  rest: Estimate,
  nothingDropped: boolean,
): [lower: number, upper: number] {
  let [low, high] = [0, 1];
  if (nothingDropped) {
    const square = DEVIATIONS ** 2;
    const covariance = (whole.variance + part.variance - rest.variance) / 2;
    const a = whole.estimate * whole.estimate - square * whole.variance;
    const b = part.estimate * whole.estimate - square * covariance;
    const c = part.estimate * part.estimate - square * part.variance;
    if (a > 0 && whole.estimate > 0) {
      const reach = Math.sqrt(Math.max(b * b - a * c, 0));
      [low, high] = [(b - reach) / a, (b + reach) / a];
    }
  } else {
    const [[stayLow, stayHigh], [leaveLow, leaveHigh]] = [bounds(part), bounds(rest)];
    low = stayLow + leaveHigh > 0 ? stayLow / (stayLow + leaveHigh) : 0;
    high = stayHigh + leaveLow > 0 ? stayHigh / (stayHigh + leaveLow) : 1;
  }
  const inside = (share: number): number => Math.min(Math.max(share, 0), 1);
  return [Math.floor(inside(low) * SHARES) / SHARES, Math.ceil(inside(high) * SHARES) / SHARES];
}
