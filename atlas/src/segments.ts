/** Trips by category, with their intervals, as `od_core/flows/estimation/intervals.py` computes them. */

import type { BreakdownData, Data, SegmentData, SegmentLevelData, SelectionData } from "./columns";
import { added, upperBound, type Estimate } from "./confidence";
import { estimatesOf, spreadsOf, type FittedTree, type Nodes, type Spread } from "./fitted_tree";
import { Part as Share } from "./geography";
import { Pairs } from "./pairs";

/** Trips between selected zones in each category of a breakdown; the estimates are null without intervals. */
export interface Breakdown {
  name: string;
  categories: string[];
  trips: number[];
  estimates: Estimate[] | null;
  selection?: SelectionData | null;
}

/** A category of a breakdown, by their names. */
export interface Part {
  breakdown: string;
  category: string;
}

/** The trips of a category between areas of the level `depth`, and what is known of their sums. */
export interface Category {
  depth: number;
  pairs: Pairs;
  trips: Float64Array;
  selection?: SelectionData | null;
  estimate(from: Uint8Array[], to: Uint8Array[]): Estimate | null;
}

export class Segments {
  private readonly pairs: Pairs;
  private readonly trips: Float64Array[][];
  /** Of each breakdown, those of each release; they are fitted when the reader first sees categories. */
  private fits: SegmentFit[][] | null = null;

  constructor(
    private readonly data: Data,
    private readonly totals: FittedTree[],
    private readonly given: SegmentData,
    leaves: Pairs,
  ) {
    this.pairs = given.pairs ? new Pairs(data, given.pairs) : leaves;
    this.trips = given.breakdowns.map(({ trips }) => trips.map((column) => data.reals(column)));
  }

  /** Trips from some zones to others; null if the zones are only a part of an area whose categories the page has. */
  between(origins: Uint8Array[], destinations: Uint8Array[]): Breakdown[] | null {
    const { depth, breakdowns } = this.given;
    if (origins[depth].includes(Share.Some) || destinations[depth].includes(Share.Some)) return null;
    this.fits ??= breakdowns.map((one) => this.fitted(one));
    const fits = this.fits;
    return breakdowns.map(({ name, categories, selection }, k) => {
      const trips = categories.map(() => 0);
      this.pairs.each(origins[depth], destinations[depth], (_, __, pair) => {
        for (let category = 0; category < trips.length; category++) trips[category] += this.trips[k][category][pair];
      });
      const each = fits[k].map((fit) => fit.sumBetween(origins, destinations));
      const sums = each.length ? categories.map((_, c) => each.map((estimates) => estimates[c]).reduce(added)) : null;
      return { name, categories, trips, estimates: sums, selection };
    });
  }

  /** One category; null if there is none of this name. */
  category({ breakdown, category }: Part): Category | null {
    const { depth, breakdowns } = this.given;
    const k = breakdowns.findIndex(({ name }) => name === breakdown);
    const c = k < 0 ? -1 : breakdowns[k].categories.indexOf(category);
    if (c < 0) return null;
    const fits = (this.fits ??= breakdowns.map((one) => this.fitted(one)))[k];
    const estimate = (from: Uint8Array[], to: Uint8Array[]): Estimate | null =>
      fits.length ? fits.map((fit) => fit.sumBetween(from, to)[c]).reduce(added) : null;
    return { depth, pairs: this.pairs, trips: this.trips[k][c], selection: breakdowns[k].selection, estimate };
  }

  /** The estimates of a breakdown by each release. */
  private fitted({ fits }: BreakdownData): SegmentFit[] {
    return fits.map((levels, release) => new SegmentFit(this.data, this.totals[release], levels));
  }
}

/** What is known of the sums of nodes below a node: one factor and residual, and an estimate for each category. */
class CategorySums {
  factor = 0;
  residual = 0;
  readonly estimate: Float64Array;
  /** Upper bounds of the dropped nodes in each category. */
  readonly most: Float64Array;

  constructor(categories: number) {
    [this.estimate, this.most] = [new Float64Array(categories), new Float64Array(categories)];
  }

  /** Set all sums to 0. */
  clear(): void {
    [this.factor, this.residual] = [0, 0];
    this.estimate.fill(0);
    this.most.fill(0);
  }

  /** Add the sums below a child whose estimate from itself and the levels below it has the variance `own`. */
  add(below: CategorySums, own: number): void {
    this.factor += below.factor * own;
    this.residual += below.residual + below.factor * below.factor * own;
    for (let category = 0; category < this.most.length; category++) {
      this.estimate[category] += below.estimate[category];
      this.most[category] += below.most[category];
    }
  }
}

/** The estimates of one release in each category. All categories have the same variances. */
class SegmentFit {
  private readonly nodes: Nodes[];
  private readonly spreads: Spread[];
  /** Estimates of each category at each level. */
  private readonly estimates: Float64Array[][];
  private readonly categories: number;

  constructor(
    data: Data,
    private readonly totals: FittedTree,
    given: SegmentLevelData[],
  ) {
    this.nodes = totals.levels.slice(0, given.length);
    this.categories = given[0].values.length;
    const known = given.map(({ variance }) => variance && data.reals(variance));
    const noise = given.map((level) => level.noise ?? Infinity);
    this.spreads = spreadsOf(this.nodes, noise, known);
    this.estimates = given[0].values.map((_, category) => {
      const noisy = given.map(({ values }) => data.reals(values[category]));
      return estimatesOf(this.nodes, this.spreads, noisy, known);
    });
  }

  /** Estimates of the trips from some zones to others in each category. */
  sumBetween(origins: Uint8Array[], destinations: Uint8Array[]): Estimate[] {
    const total = this.totals.sumBetween(origins, destinations);
    const sums = this.nodes.map(() => new CategorySums(this.categories));
    const [sum, parts] = [sums[0], [origins[0][0], destinations[0][0]]];
    if (parts.every((part) => part === Share.All)) {
      sum.factor = 1;
      this.estimates.forEach((levels, category) => (sum.estimate[category] = levels[0][0]));
    } else if (!parts.includes(Share.None)) {
      this.sumBelow(0, 0, origins, destinations, sums);
    }
    const own = sum.residual + sum.factor * sum.factor * this.spreads[0].variance[0];
    const [estimates, variance] = this.combined(total.estimate, total.variance, sum.estimate, own);
    const { unseen, doubt } = total;
    return estimates.map((estimate, k) => ({ estimate, variance, most: sum.most[k], unseen, doubt }));
  }

  /** Write the sums of the selected zone pairs below a node, some but not all of its pairs, into `sums[k]`. */
  private sumBelow(
    k: number,
    node: number,
    origins: Uint8Array[],
    destinations: Uint8Array[],
    sums: CategorySums[],
  ): void {
    const sum = sums[k];
    sum.clear();
    const parent = this.nodes[k].place[node];
    if (parent >= 0) {
      const [level, spread] = [this.nodes[k + 1], this.spreads[k + 1]];
      const [from, to] = [origins[level.pair[0]], destinations[level.pair[1]]];
      for (let child = level.offsets[parent]; child < level.offsets[parent + 1]; child++) {
        const [origin, destination] = [from[level.origin[child]], to[level.destination[child]]];
        if (origin === Share.None || destination === Share.None) continue;
        const own = spread.own[child];
        if (origin === Share.All && destination === Share.All) {
          sum.factor += own;
          sum.residual += own;
          for (let c = 0; c < this.categories; c++) sum.estimate[c] += this.estimates[c][k + 1][child];
        } else {
          this.sumBelow(k + 1, child, origins, destinations, sums);
          sum.add(sums[k + 1], own);
        }
      }
      const follows = sum.factor;
      sum.factor = follows / spread.siblings[parent];
      sum.residual = Math.max(0, sum.residual - follows * sum.factor);
    } else {
      this.bounds(k, node).forEach((bound, category) => (sum.most[category] += bound));
    }
  }

  /** Upper bounds of the trips of a dropped node in each category: at most that of all its trips. */
  private bounds(k: number, node: number): number[] {
    const [total, totalVariance] = [this.totals.levels[k].estimate[node], this.totals.levels[k].variance[node]];
    const own = this.estimates.map((levels) => levels[k][node]);
    const [estimates, variance] = this.combined(total, totalVariance, own, this.spreads[k].variance[node]);
    const most = upperBound(total, totalVariance);
    return estimates.map((estimate) => Math.min(upperBound(estimate, variance), most));
  }

  /** The estimates of each category and their variance, from those of the total and of the categories alone. */
  private combined(
    total: number,
    variance: number,
    own: ArrayLike<number>,
    ownVariance: number,
  ): [estimates: number[], variance: number] {
    const count = this.categories;
    const excess = (total - Array.from(own).reduce((sum, estimate) => sum + estimate, 0)) / count;
    const estimates = Array.from(own, (estimate) => estimate + excess);
    return [estimates, variance / (count * count) + ownVariance * (1 - 1 / count)];
  }
}
