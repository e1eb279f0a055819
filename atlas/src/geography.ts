/** The areas of one side, as `od_core/geography/geography.py` has them. Level 0 is the whole space. */

import type { Column, Data, GeographyData } from "./columns";

/** Whether none, some or all zones of an area are selected. */
export const enum Part {
  None,
  Some,
  All,
}

export class Geography {
  readonly levels: string[];
  readonly depth: number;
  readonly codes: string[][];
  readonly labels: string[][];
  readonly aliases: string[][] | null;
  readonly parents: Int32Array[];
  /** Number of each area's first child, then the number of all children. */
  readonly firstChild: Int32Array[] = [];
  /** Number of the first zone in each area, then the number of all zones. */
  readonly firstZone: Int32Array[] = [];
  /** Longitude and latitude of each area in degrees, NaN where unknown; null if no zone has any. */
  readonly places: Float64Array[] | null;
  /** Rings of each area of each level: longitude and latitude of their points; null if there are no boundaries. */
  readonly shapes: Float32Array[][][] | null;

  constructor(data: Data, given: GeographyData) {
    this.levels = ["all", ...given.levels];
    this.depth = given.levels.length;
    this.codes = [["all"], ...given.codes];
    this.labels = [["all areas"], ...(given.labels ?? given.codes)];
    this.aliases = given.aliases ? [[""], ...given.aliases] : null;
    this.parents = [new Int32Array(0), ...given.parents.map((column) => data.integers(column))];
    for (let level = 0; level < this.depth; level++) {
      this.firstChild.push(starts(this.parents[level + 1], this.codes[level].length));
    }
    this.firstZone[this.depth] = Int32Array.from({ length: this.zones + 1 }, (_, zone) => zone);
    for (let level = this.depth - 1; level >= 0; level--) {
      this.firstZone[level] = this.firstChild[level].map((child) => this.firstZone[level + 1][child]);
    }
    this.places = given.coordinates && given.centres && readPlaces(data, [...given.centres, given.coordinates]);
    this.shapes = given.shapes && this.readRings(data, given.shapes);
  }

  /** Number of zones. */
  get zones(): number {
    return this.codes[this.depth].length;
  }

  /** Number of areas of a level. */
  size(level: number): number {
    return this.codes[level].length;
  }

  /** Number of the area of a level that contains each zone. */
  zoneAreas(level: number): Int32Array {
    const areas = new Int32Array(this.zones);
    const first = this.firstZone[level];
    for (let area = 0; area + 1 < first.length; area++) areas.fill(area, first[area], first[area + 1]);
    return areas;
  }

  /** A mask of the zones in some areas of a level. */
  zonesIn(level: number, areas: Iterable<number>): Uint8Array {
    const mask = new Uint8Array(this.zones);
    const first = this.firstZone[level];
    for (const area of areas) mask.fill(1, first[area], first[area + 1]);
    return mask;
  }

  /** How much of each area of each level is selected, given a mask of zones. */
  parts(mask: Uint8Array): Uint8Array[] {
    const before = new Int32Array(mask.length + 1);
    for (let zone = 0; zone < mask.length; zone++) before[zone + 1] = before[zone] + mask[zone];
    return this.firstZone.map((first) => {
      const parts = new Uint8Array(first.length - 1);
      for (let area = 0; area < parts.length; area++) {
        const inside = before[first[area + 1]] - before[first[area]];
        parts[area] = inside === 0 ? Part.None : inside === first[area + 1] - first[area] ? Part.All : Part.Some;
      }
      return parts;
    });
  }

  /** Rings of each area of each level; the whole space has none. */
  private readRings(data: Data, { step, ...given }: NonNullable<GeographyData["shapes"]>): Float32Array[][][] {
    const [perArea, perRing, points] = [given.perArea, given.perRing, given.points].map((column) => data.numbers(column));
    let [area, ring, point, x, y] = [0, 0, 0, 0, 0];
    const nextRing = (): Float32Array => {
      const line = new Float32Array(2 * perRing[ring++]);
      for (let k = 0; k < line.length; k += 2) {
        x += points[point++];
        y += points[point++];
        line[k] = x * step;
        line[k + 1] = y * step;
      }
      return line;
    };
    const level = (codes: string[]): Float32Array[][] => codes.map(() => Array.from({ length: perArea[area++] }, nextRing));
    return [[[]], ...this.codes.slice(1).map(level)];
  }
}

/** Longitudes and latitudes of all levels, given latitudes and longitudes; the place of the whole space is unknown. */
function readPlaces(data: Data, columns: Column[]): Float64Array[] {
  const levels = columns.map((column) => {
    const degrees = data.reals(column);
    return degrees.map((_, k) => degrees[k % 2 ? k - 1 : k + 1]);
  });
  return [new Float64Array(2).fill(NaN), ...levels];
}

/** Position of the first of each value's places in a sorted list of values, then the length of the list. */
function starts(sorted: Int32Array, values: number): Int32Array {
  const first = new Int32Array(values + 1);
  for (const value of sorted) first[value + 1] += 1;
  for (let value = 0; value < values; value++) first[value + 1] += first[value];
  return first;
}
