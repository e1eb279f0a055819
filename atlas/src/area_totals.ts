/** Estimates of all trips from or to areas, from a fitted tree and the measured totals of areas.
 *
 * The formulas are those of `FittedTree.estimate_sum_with_totals` in `od_core/flows/estimation/fitted_tree.py`, and of `_estimate_areas_of_release`
 * in `od_core/flows/estimation/intervals.py`.
 */

import type { Data, Header } from "./columns";
import { added, type Estimate } from "./confidence";
import type { FittedTree } from "./fitted_tree";
import { Part } from "./geography";

/** Estimates of the trips of some areas, taken together as one: to themselves, to and from others, and all from them. */
export interface AreaEstimates {
  within: Estimate;
  outflow: Estimate;
  inflow: Estimate;
  begun: Estimate;
}

/** The measured totals of the areas of the page's finest level. */
interface Measured {
  noisy: Float64Array;
  variance: Float64Array;
}

const NONE = { most: 0, unseen: 0, doubt: 0 };

/** The estimates of one release. */
export class AreaTotals {
  private readonly measured: (Measured | null)[];

  constructor(
    data: Data,
    private readonly fit: FittedTree,
    given: Header["fits"][number]["totals"],
  ) {
    this.measured = (given ?? []).map(
      (side) => side && { noisy: data.reals(side.noisy), variance: data.reals(side.variance) },
    );
  }

  /** Estimate of the trips from some zones to others, given how much of each area is selected. */
  sumBetween(origins: Uint8Array[], destinations: Uint8Array[]): Estimate {
    const ends = [origins, destinations];
    return ends.reduce((sum, chosen, side) => {
      const isWhole = ends[1 - side][0][0] === Part.All && chosen[0][0] !== Part.None;
      const measured = isWhole ? this.total(side, chosen) : null;
      return measured ? this.withMeasured(sum, measured) : sum;
    }, this.fit.sumBetween(origins, destinations));
  }

  /** Estimates of the selected areas, given how much of each area is selected, not selected, and all of it. */
  ofAreas(here: Uint8Array[], elsewhere: Uint8Array[], all: Uint8Array[]): AreaEstimates {
    const { fit } = this;
    const within = fit.sumBetween(here, here);
    const [outflow, inflow] = [fit.sumBetween(here, elsewhere), fit.sumBetween(elsewhere, here)];
    const ofTree = fit.sumBetween(here, all);
    const totals = [0, 1].map((side) => this.total(side, here));
    if (!totals[0] && !totals[1]) return { within, outflow, inflow, begun: ofTree };
    if (fit.nothingDropped) {
      return this.improved([within, outflow, inflow], [ofTree, fit.sumBetween(all, here)], totals, here, all);
    }
    const [leaving, arriving] = [outflow, inflow].map((other, k) => withoutTripsWithin(totals[k], within, other));
    const begun = totals[0] ? this.withMeasured(ofTree, totals[0]) : ofTree;
    return { within, outflow: leaving, inflow: arriving, begun };
  }

  /** The measured total of some areas of one side (0 for origins); null if there is none. */
  private total(side: number, chosen: Uint8Array[]): Estimate | null {
    const measured = this.measured[side];
    if (!measured) return null;
    let [estimate, variance] = [0, 0];
    chosen[chosen.length - 1].forEach((part, area) => {
      if (part !== Part.All) return;
      estimate += measured.noisy[area];
      variance += measured.variance[area];
    });
    return { estimate, variance, ...NONE };
  }

  /** An estimate by the tree with an independent measurement of the same sum, which contains dropped nodes. */
  private withMeasured(ofTree: Estimate, measured: Estimate): Estimate {
    if (!this.fit.nothingDropped) return ofTree.variance < measured.variance ? ofTree : measured;
    const part = ratio(ofTree.variance, ofTree.variance + measured.variance);
    const estimate = ofTree.estimate + part * (measured.estimate - ofTree.estimate);
    return { estimate, variance: part * measured.variance, ...NONE };
  }

  /** The trips within, from and to areas, with the measured totals; see `_combine_with_measured_totals` in `intervals.py`. */
  private improved(
    parts: Estimate[],
    sums: Estimate[],
    totals: (Estimate | null)[],
    here: Uint8Array[],
    all: Uint8Array[],
  ): AreaEstimates {
    const estimate = parts.map((part) => part.estimate);
    const shared = parts.map((part, row) => parts.map((_, column) => (row === column ? part.variance : 0)));
    sums.forEach((sum, side) => {
      shared[0][side + 1] = (sum.variance - parts[0].variance - parts[side + 1].variance) / 2;
      shared[side + 1][0] = shared[0][side + 1];
    });
    const exchanged = this.fit.sumOfExchange(here, all);
    shared[1][2] = shared[2][1] = (exchanged.variance - parts[1].variance - parts[2].variance) / 2;
    totals.forEach((measured, side) => {
      if (!measured) return;
      const k = side + 1;
      const withSum = shared[0].map((value, part) => value + shared[k][part]);
      const [lacking, variance] = [measured.estimate - estimate[0] - estimate[k], withSum[0] + withSum[k] + measured.variance];
      withSum.forEach((one, row) => {
        estimate[row] += ratio(one, variance) * lacking;
        withSum.forEach((other, column) => (shared[row][column] -= ratio(one, variance) * other));
      });
    });
    const of = (value: number, variance: number): Estimate => ({ estimate: value, variance: Math.max(variance, 0), ...NONE });
    const [within, outflow, inflow] = estimate.map((value, k) => of(value, shared[k][k]));
    const begun = of(estimate[0] + estimate[1], shared[0][0] + shared[1][1] + 2 * shared[0][1]);
    return { within, outflow, inflow, begun };
  }
}

/** A part of a whole; 0 if this is 0, as of areas that cannot have trips. */
function ratio(part: number, whole: number): number {
  return whole > 0 ? part / whole : 0;
}

/** The sums of the estimates of independent releases. */
export function addedAreas(one: AreaEstimates, other: AreaEstimates): AreaEstimates {
  return {
    within: added(one.within, other.within),
    outflow: added(one.outflow, other.outflow),
    inflow: added(one.inflow, other.inflow),
    begun: added(one.begun, other.begun),
  };
}

/** Outflow or inflow where nodes were dropped; see `_subtract_trips_within` in `intervals.py`. */
function withoutTripsWithin(measured: Estimate | null, within: Estimate, other: Estimate): Estimate {
  if (!measured || measured.variance + within.variance >= other.variance) return other;
  const estimate = measured.estimate - within.estimate - within.most;
  return { estimate, variance: measured.variance + within.variance, most: within.most, unseen: within.most, doubt: 0 };
}
