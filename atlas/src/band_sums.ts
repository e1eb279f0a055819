/** Sums of nodes by band of distance; the formulas are those of `od_core/flows/estimation/node_sums.py`. */

/** What is known of the sums of nodes below a node, one for each band of distance. */
export class BandSums {
  readonly factor: Float64Array;
  readonly residual: Float64Array;
  readonly estimate: Float64Array;
  /** `most`, `unseen` and `doubt`, which are those of all bands. */
  readonly dropped = new Float64Array(3);

  constructor(bands: number) {
    [this.factor, this.residual, this.estimate] = [0, 0, 0].map(() => new Float64Array(bands));
  }

  clear(): void {
    for (const values of [this.factor, this.residual, this.estimate, this.dropped]) values.fill(0);
  }

  /** Add the sums below a child whose estimate from itself and the levels below it has the variance `own`. */
  add(below: BandSums, own: number): void {
    for (let band = 0; band < this.factor.length; band++) {
      const factor = below.factor[band];
      this.factor[band] += factor * own;
      this.residual[band] += below.residual[band] + factor * factor * own;
      this.estimate[band] += below.estimate[band];
    }
    below.dropped.forEach((value, k) => (this.dropped[k] += value));
  }

  /** Make sums over children those below their parent, given the sum of all children's variances. */
  divide(siblings: number): void {
    this.factor.forEach((follows, band) => {
      this.factor[band] = follows / siblings;
      this.residual[band] = Math.max(0, this.residual[band] - follows * this.factor[band]);
    });
  }
}
