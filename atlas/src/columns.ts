/** Read the data of the page: a JSON header, then columns of numbers. `od_core/flows/publishing/atlas.py` writes it. */

export type Numbers = Int8Array | Int16Array | Int32Array | Float64Array;

/** Place of a column in the data, in bytes after the header, and its number of values. */
export interface Column {
  type: "i1" | "i2" | "i4" | "f8";
  start: number;
  length: number;
}

export interface GeographyData {
  levels: string[];
  codes: string[][];
  /** For people: names, or codes where areas have none. Absent if all labels are codes. */
  labels: string[][] | null;
  /** Other names, separated by semicolons; absent if no area has any. */
  aliases?: string[][];
  parents: Column[];
  /** Latitude and longitude of each area of the finest level of the page in degrees, NaN for an area without; absent if
   * none has any. */
  coordinates: Column | null;
  /** The same of the mean place of each area of the levels between the whole space and that level. */
  centres: Column[] | null;
  /** Boundaries of the areas of all levels below the whole space, on a grid; absent if there are none. */
  shapes: { step: number; perArea: Column; perRing: Column; points: Column } | null;
}

export interface LevelData {
  number: number;
  /** Variance of the noise; null if the level was not measured. */
  noise: number | null;
  noisy: Column;
  /** The nodes and how many each divided node above has, if some pairs cannot have trips; otherwise null. */
  nodes?: { perParent: Column; origin: Column; destination: Column } | null;
  /** 1 for each node whose children were measured; null if all were, or none at the last level. */
  divided: Column | null;
  /** Estimates from the node and the levels below it, which the page does not have, and their variances. */
  below: { estimate: Column; variance: Column } | null;
}

/** Measured totals of the areas of the finest level of one side, with the variances of their noise. */
export interface TotalsData {
  noisy: Column;
  variance: Column;
}

/** Released flows by origin, then destination. */
export interface PairsData {
  perOrigin: Column;
  destination: Column;
  trips: Column;
}

/** What the bands of distance of pairs of zones follow from. */
export interface DistanceData {
  /** Ends of the bands in kilometres, ascending. */
  edges: number[];
  /** The smallest square of a chord between two places that are at least so far apart. */
  squares: number[];
  allKnown: boolean;
  /** Largest distance between two zones in kilometres; absent from pages of earlier versions. */
  farthest?: number;
  /** Unit vectors of the zones, NaN where unknown; null if destinations are the same zones. */
  origins: Column;
  destinations: Column | null;
}

/** A level measured by category; its nodes are those of the totals. */
export interface SegmentLevelData {
  /** Variance of the noise; null if the level was not measured. */
  noise: number | null;
  /** For each category, the noisy values or, with a variance, estimates from the nodes and the levels below them. */
  values: Column[];
  variance: Column | null;
}

/** See `Selection` in `confidence.ts`; by the levels of origins and destinations. */
export interface SelectionData {
  deviations: number[][];
  leastListed: number[][];
  changes: number[][];
}

export interface BreakdownData {
  name: string;
  categories: string[];
  /** For each category, the released trips of each pair of areas. */
  trips: Column[];
  selection?: SelectionData | null;
  /** For each release, its levels. */
  fits: SegmentLevelData[][];
}

export interface SegmentData {
  /** Number of the finest level of areas whose flows are known by category. */
  depth: number;
  /** Pairs of areas of that level; null if they are those of the released flows. */
  pairs: PairsData | null;
  breakdowns: BreakdownData[];
}

export interface Header {
  title: string;
  release: string;
  /** What is counted, in the plural; absent in the pages of earlier versions, which this program only compares. */
  counted: string;
  /** Whether the release can be compared with another one: whether it has intervals and noise of its own. */
  comparable: boolean;
  period: string;
  /** The period as people write it, and what the publisher says of the series; absent in the pages of earlier versions. */
  when?: string;
  about?: { publisher?: string; source?: string; licence?: string };
  /** Day after the period, its number of days, digests of what must be the same in releases that are compared (and of the
   * definitions of breakdowns) by the words on a difference, and mechanism and rule of estimation; only if
   * `comparable`, and absent in the pages of earlier versions. */
  end?: string;
  days?: number;
  /** Whether trips of users are bounded in each period. */
  bounded?: boolean;
  facts?: Record<string, string>;
  categories?: Record<string, string>;
  rules?: string[];
  /** What a reader of changes from or to this release must know; absent if there is nothing. */
  caution?: string;
  notes: string[];
  order: "destination" | "origin" | "both";
  origin: GeographyData;
  /** Null if origins and destinations have the same areas. */
  destination: GeographyData | null;
  /** Whether the totals of the zones of each side were measured; absent in the pages of earlier versions. */
  measured?: [origin: boolean, destination: boolean];
  /** Totals are null for a side without, and absent in the pages of earlier versions. */
  fits: { byNoise: boolean; nothingDropped: boolean; levels: LevelData[]; totals?: (TotalsData | null)[] }[];
  leaves: PairsData;
  /** Null without intervals of what people read, and absent in the pages of earlier versions. */
  selection?: SelectionData | null;
  /** Null if places are unknown, or the page has no zones. */
  distances: DistanceData | null;
  /** Null if there are no breakdowns. */
  segments: SegmentData | null;
}

/** The header and the columns. */
export class Data {
  private constructor(
    readonly header: Header,
    private readonly bytes: ArrayBuffer,
    private readonly first: number,
  ) {}

  /** Unpack the data of a page: Base64 of gzip, in which the length of the header, the header and the columns follow. */
  static async decoded(base64: string): Promise<Data> {
    const characters = atob(base64);
    const packed = new Uint8Array(characters.length);
    for (let place = 0; place < packed.length; place++) packed[place] = characters.charCodeAt(place);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = await new Response(stream).arrayBuffer();
    const length = new DataView(bytes).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))) as Header;
    return new Data(header, bytes, 8 * Math.ceil((4 + length) / 8));
  }

  /** The values of a column, as they are stored. */
  numbers(column: Column): Numbers {
    const start = this.first + column.start;
    switch (column.type) {
      case "i1":
        return new Int8Array(this.bytes, start, column.length);
      case "i2":
        return new Int16Array(this.bytes, start, column.length);
      case "i4":
        return new Int32Array(this.bytes, start, column.length);
      case "f8":
        return new Float64Array(this.bytes, start, column.length);
    }
  }

  /** The values of a column as floating-point numbers. */
  reals(column: Column): Float64Array {
    const numbers = this.numbers(column);
    return numbers instanceof Float64Array ? numbers : Float64Array.from(numbers);
  }

  /** The values of a column as integers of 32 bits. */
  integers(column: Column): Int32Array {
    return Int32Array.from(this.numbers(column));
  }
}
