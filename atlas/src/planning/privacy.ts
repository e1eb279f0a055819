/** What a person is promised, from rho: epsilon at a delta, right guesses, and odds. */

/** Orders of the Rényi divergence, less 1, that `_bound_delta_by_renyi` in `od_core/privacy/posterior.py` tries at epsilon 0. */
const ORDERS = [0.001, 0.1, 0.3, 1];

/** Epsilon at a delta by the conversion `tight`; see `compute_tight_epsilon` in `od_core/privacy/accounting.py`. */
export function epsilonTight(rho: number, logInverseDelta: number): number {
  let [low, high] = [0, Math.sqrt(logInverseDelta / rho)];
  for (let k = 0; k < 200; k++) {
    const middle = (low + high) / 2;
    if (middle === low || middle === high) break;
    if (rho * middle * middle + Math.log1p(middle) < logInverseDelta) low = middle;
    else high = middle;
  }
  const u = high;
  return Math.max(0, rho * (1 + u) + (logInverseDelta + u * Math.log(u) - (1 + u) * Math.log1p(u)) / u);
}

/** The largest chance of a right guess between two inputs that are equally likely: 1/2 + d/2, where d bounds the delta
 * at epsilon 0. The smallest bound that follows from epsilon and delta, or from rho, is taken; see `Guarantee` in
 * `od_core/privacy/posterior.py`, which proves them. */
export function rightGuess(epsilon: number, delta: number, rho: number): number {
  const byPromise = Math.max(delta, 1 - (2 * (1 - delta)) / (1 + Math.exp(epsilon)));
  const byDivergence = Math.sqrt(Math.min(rho / 2, -Math.expm1(-rho)));
  const byRenyi = ORDERS.map((u) => Math.exp(u * (1 + u) * rho + (1 + u) * (Math.log(u) - Math.log1p(u)) - Math.log(u)));
  return (1 + Math.min(1, byPromise, byDivergence, ...byRenyi)) / 2;
}

/** The logarithm of the factor by which the odds of the truth grow at most, except with a chance of delta
 * [bun2016concentrated, proof of Proposition 1.3]. */
export function logOdds(rho: number, logInverseDelta: number): number {
  return rho + 2 * Math.sqrt(rho * logInverseDelta);
}

/** The chance that a standard normal variable is at most `x`. */
export function normalBelow(x: number): number {
  if (Math.abs(x) > 8) return x < 0 ? 0 : 1;
  let [sum, term] = [x, x];
  for (let odd = 3; Math.abs(term) > 1e-18 * Math.abs(sum); odd += 2) sum += term *= (x * x) / odd;
  return Math.min(Math.max(0.5 + (sum * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI), 0), 1);
}

/** The chance that the 90 % interval of a flow does not contain 0: its estimate is above the half width. The error is
 * between normal noise and, if the noise is Laplace noise, a single draw of it; the larger chance is taken. */
export function seen(trips: number, width: number, variance: number, isLaplace: boolean): number {
  if (variance <= 0) return Number(trips > width);
  const above = (trips - width) / Math.sqrt(variance);
  return isLaplace ? Math.max(normalBelow(above), laplaceBelow(above)) : normalBelow(above);
}

/** The chance that a Laplace variable of variance 1 is at most `x`. */
function laplaceBelow(x: number): number {
  const tail = Math.exp(-Math.SQRT2 * Math.abs(x)) / 2;
  return x < 0 ? tail : 1 - tail;
}

/** The variance of discrete Laplace noise; see `bound_laplace_variance` in `od_core/privacy/stability.py`. */
export function laplaceVariance(scale: number): number {
  return 1 / (2 * Math.sinh(1 / (2 * scale)) ** 2);
}
