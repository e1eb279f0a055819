/** Several sums of nodes at once; the formulas are those of `od_core/flows/estimation/fitted_tree.py`. */

/** What is known of the sums of nodes below a node, such as one for each band of distance. */
export class Sums {
  readonly factor: Float64Array;
  readonly residual: Float64Array;
  readonly estimate: Float64Array;
  /** `most`, `unseen` and `doubt`, which are those of all sums. */
  readonly dropped = new Float64Array(3);

  constructor(count: number) {
    [this.factor, this.residual, this.estimate] = [0, 0, 0].map(() => new Float64Array(count));
  }

  /** Set all sums to 0. */
  clear(): void {
    for (const values of [this.factor, this.residual, this.estimate, this.dropped]) values.fill(0);
  }

  /** Add a node, with a weight, to a sum.
   *
   * `own` is the variance of its estimate from itself and the levels below it. `noise` is that of a noisy value; null if
   * the value is an estimate.
   */
  addNode(sum: number, weight: number, value: number, own: number, noise: number | null): void {
    if (noise === null) this.factor[sum] += weight * own;
    this.residual[sum] += weight * weight * (noise ?? own);
    this.estimate[sum] += weight * value;
  }

  /** Add the sums below a child whose estimate from itself and the levels below it has the variance `own`. */
  add(below: Sums, own: number): void {
    for (let sum = 0; sum < this.factor.length; sum++) {
      const factor = below.factor[sum];
      this.factor[sum] += factor * own;
      this.residual[sum] += below.residual[sum] + factor * factor * own;
      this.estimate[sum] += below.estimate[sum];
    }
    below.dropped.forEach((value, k) => (this.dropped[k] += value));
  }

  /** Make sums over children those below their parent, given the sum of all children's variances. */
  divide(siblings: number): void {
    this.factor.forEach((follows, sum) => {
      this.factor[sum] = follows / siblings;
      this.residual[sum] = Math.max(0, this.residual[sum] - follows * this.factor[sum]);
    });
  }
}
