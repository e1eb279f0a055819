/** The released flows as they are stored: by origin, then destination. */

import type { Data, PairsData } from "./columns";

export class Pairs {
  private readonly first: Int32Array;
  private readonly destination: Int32Array;
  /** The trips of each pair. */
  readonly trips: Float64Array;

  constructor(data: Data, given: PairsData) {
    const perOrigin = data.numbers(given.perOrigin);
    this.first = new Int32Array(perOrigin.length + 1);
    perOrigin.forEach((count: number, origin: number) => {
      this.first[origin + 1] = this.first[origin] + count;
    });
    this.destination = data.integers(given.destination);
    this.trips = data.reals(given.trips);
  }

  /** Visit the pairs from some origins to some destinations. */
  each(
    origins: Uint8Array | null,
    destinations: Uint8Array | null,
    visit: (origin: number, destination: number, pair: number) => void,
  ): void {
    for (let origin = 0; origin + 1 < this.first.length; origin++) {
      if (origins && !origins[origin]) continue;
      for (let pair = this.first[origin]; pair < this.first[origin + 1]; pair++) {
        const destination = this.destination[pair];
        if (!destinations || destinations[destination]) visit(origin, destination, pair);
      }
    }
  }
}
