/** Questions that the page asks of the worker, which holds the data, and the answers. */

import type { Header } from "./columns";
import type { Band } from "./distances";
import type { Areas, Categories, Direction, Flow, Totals, Trips } from "./flows";
import type { Part } from "./segments";

/** The areas of one side, as the page needs them. */
export interface Side {
  levels: string[];
  codes: string[][];
  labels: string[][];
  /** Other names of the areas, separated by semicolons; null if there are none. */
  aliases: string[][] | null;
  /** Number of the area of the level above that contains each area. */
  parents: Int32Array[];
  /** Longitude and latitude of each area of each level in degrees, NaN where unknown. */
  places: Float64Array[] | null;
  /** Rings of each area of each level; null if there are no boundaries. */
  shapes: Float32Array[][][] | null;
  /** Trips that begin (of origins) or end (of destinations) in each area of each level. */
  sizes: Float64Array[];
}

export interface Opened {
  header: Pick<Header, "title" | "release" | "counted" | "notes" | "comparable" | "period" | "when" | "about">;
  origin: Side;
  destination: Side;
  sameAreas: boolean;
  /** Names of the breakdowns, and the finest level whose areas have categories; null if there are none. */
  segments: { names: string[]; categories: string[][]; level: number } | null;
  hasIntervals: boolean;
}

export interface Questions {
  open: { ask: { data: string }; answer: Opened };
  /** Compare with the release of another page, or with none if `data` is null. The answer names both by time. */
  compare: { ask: { data: string | null }; answer: { before: string; after: string; caution: string } | null };
  /** Answer the questions that follow for the trips of one category alone, but for `categories` and `distances`. */
  choose: { ask: { part: Part | null }; answer: null };
  totals: { ask: { selected: Areas }; answer: Totals };
  partners: { ask: { selected: Areas; direction: Direction; level: number; most: number }; answer: Flow[] };
  largest: { ask: { level: number; most: number }; answer: Flow[] };
  matrix: { ask: { level: number; origins: number[]; destinations: number[] }; answer: Trips[][] };
  between: { ask: { origins: Areas; destinations: Areas }; answer: Trips };
  categories: { ask: { origins: Areas; destinations: Areas }; answer: Categories[] | null };
  distances: { ask: { origins: Areas; destinations: Areas }; answer: (Band & Trips)[] | null };
  several: { ask: { ends: { origins: Areas; destinations: Areas }[] }; answer: Trips[] };
}

export type Name = keyof Questions;
export type Question = { [K in Name]: { id: number; name: K; ask: Questions[K]["ask"] } }[Name];
export type Answer = { id: number; answer: Questions[Name]["answer"] } | { id: number; error: string };
