/** Distances between zones, and their bands as `od_core/flows/indicators.py` has them.
 *
 * A pair of zones belongs to a band by the square of the chord between its places. It is added up in the same order as
 * in `od_core/geography/places.py`, from the same unit vectors, so the bands are the same.
 */

import type { Data, DistanceData } from "./columns";

/** A band in kilometres: the lower end belongs to it, the upper one does not. Both are null if distances are unknown. */
export interface Band {
  from: number | null;
  to: number | null;
}

const RADIUS = 6_371_008.8;

export class Distances {
  readonly farthest: number | null;
  /** The bands; the first has the pairs whose distance is unknown, if there are any. */
  readonly bands: Band[];
  private readonly first: number;
  private readonly squares: number[];
  private readonly origins: Float64Array;
  private readonly destinations: Float64Array;

  constructor(data: Data, { edges, squares, allKnown, farthest, origins, destinations }: DistanceData) {
    const known = [0, ...edges].map((from, k) => ({ from, to: edges[k] ?? null }));
    this.first = allKnown ? 0 : 1;
    this.bands = allKnown ? known : [{ from: null, to: null }, ...known];
    this.squares = squares;
    this.farthest = farthest ?? null;
    this.origins = data.reals(origins);
    this.destinations = destinations ? data.reals(destinations) : this.origins;
  }

  /** Number of the band of a pair of zones. */
  band(origin: number, destination: number): number {
    const square = this.square(origin, destination);
    if (Number.isNaN(square)) return 0;
    let band = this.first;
    for (const least of this.squares) if (square >= least) band += 1;
    return band;
  }

  /** Kilometres between a pair of zones, with three decimal places; NaN if they are unknown. */
  kilometres(origin: number, destination: number): number {
    const arc = 2 * Math.asin(Math.min(1, Math.sqrt(this.square(origin, destination)) / 2));
    return Math.round(arc * RADIUS) / 1000;
  }

  /** Square of the chord between the places of a pair of zones. */
  private square(origin: number, destination: number): number {
    let square = 0;
    for (let axis = 0; axis < 3; axis++) {
      const step = this.origins[3 * origin + axis] - this.destinations[3 * destination + axis];
      square += step * step;
    }
    return square;
  }
}
