/** The facts that `od_core/flows/planning_page.py` writes into the page. */

import { byId } from "../dom";

/** A charge, and the same as text, rounded up: rho or, with Laplace noise, epsilon. */
export type Charge = [value: number, text: string];

/** Numbers of areas by shape, and the pairs of shapes of parents and children that occur: parent, child, number. */
export interface ShapeFacts {
  areas: number[][];
  pairs: [parents: number[], children: number[], counts: number[]][];
  /** Whether similar shapes were treated as one. */
  merged: boolean;
}

/** Numbers of leaf pairs below the largest nodes of a level, the largest first, each with how many nodes have it. */
export type Nodes = [pairs: number, count: number][];

export interface BudgetFacts {
  /** The promised epsilon as text, rounded up, and as a number. */
  epsilon: string;
  promised: number;
  declared: "epsilon" | "rho";
  /** The declared number, exactly. */
  exact: string;
  /** Rho by the simple conversion or, with Laplace noise, epsilon. */
  charge: Charge;
}

/** Nouns in place of those of flows and trips. */
export type Nouns = Record<"record" | "counted" | "cell" | "cells" | "pair" | "pairs" | "zone_pair" | "same_zones" | "one_record", string>;

export interface UnitFacts {
  kind: "trip" | "user" | "user_period" | "user_year";
  relation: "bounded" | "unbounded";
  /** Number of trips of a unit that are counted; null if readers choose it. */
  trips: number | null;
  /** What the promise is for, without and with segments. */
  change: [string, string];
  /** The same with a cap for each pair of zones; null if readers choose no trips. */
  changeOfPairs: [string, string] | null;
  publishesTotal: [boolean, boolean];
}

/** What the declared shares give: the shares of the levels, and the part of the budget that area totals leave to them;
 * rho by budget if it depends on the shares; and by budget, where the exact privacy loss is computed, epsilon and the
 * largest chance of a right guess. */
export interface Rule {
  shares: [level: number, share: number][];
  ofTree: number;
  fits: boolean;
  rho: Charge[] | null;
  promise: ([epsilon: number, guess: number] | null)[] | null;
}

export interface LevelSet {
  /** Numbers of the levels that are kept, from 1. */
  kept: number[];
  origin: ShapeFacts;
  destination: ShapeFacts | null;
  /** Whether no node is dropped, without and with segments. */
  keepsAll: [boolean, boolean];
  /** Nodes of each level of the tree, root first, and then those of area totals. */
  nodes: Nodes[];
  /** Largest number of leaf pairs of a node, by level; null if every level is measured. */
  mostLeaves: number[] | null;
}

export interface Breakdown {
  name: string;
  categories: number;
}

export interface Delta {
  value: number;
  text: string;
  exact: string;
  /** The logarithm of 1 / delta. */
  logInverse: number;
}

export interface Facts {
  name: string;
  nouns: Nouns;
  /** What the cap allows in each measure by which it may count a charge; null if it does not count by it. */
  cap: { rho: number | null; epsilon: number | null } | null;
  /** Null with Laplace noise, whose promise is an epsilon alone. */
  delta: Delta | null;
  /** `isPlain` is false if options change estimates in ways that depend on the records. */
  mechanism: { measures: "every_level" | "all_leaves"; refines: boolean; isPlain: boolean };
  order: "destination" | "origin" | "both";
  /** Names of the levels of the origins and of the destinations; counts by one hierarchy have no destinations. */
  levels: string[][];
  /** Equally likely values that approximate a standard normal variable. */
  normal: number[];
  declared: { budget: number; unit: number; trips: number; pair: number | null; segments: boolean };
  /** Number of elementary periods of a year, and declared trips of a user in it; null if no unit bounds a year. */
  year: { periods: number; trips: number } | null;
  budgets: BudgetFacts[];
  conversion: string;
  units: UnitFacts[];
  segments: { breakdowns: Breakdown[]; share: number } | null;
  /** The first one has all levels. */
  sets: LevelSet[];
  /** By set of levels, unit, and without or with segments. */
  rules: Rule[][][];
}

/** The facts in the text of the page. */
export function readFacts(): Facts {
  return JSON.parse(byId("data").textContent!) as Facts;
}
