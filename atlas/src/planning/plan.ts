/** The plan of a setting: its charge, its noise and its errors, as `ReleasePlan` computes them. */

import { halfWidth } from "../confidence";
import { number } from "../dom";
import { largestSquares, pairCap, type Bounds } from "./bounds";
import type { Breakdown, BudgetFacts, Charge, Facts, LevelSet, Rule, UnitFacts } from "./facts";
import { laplaceVariance } from "./privacy";
import { levelsPerArea, Tree, type Variances } from "./tree";

/** Variance of a root that was not measured, as a multiple of the largest variance of the noise. */
const UNMEASURED = 1e12;

/** What a reader has chosen, as far as the plan depends on it. */
export interface Setting extends Bounds {
  /** Numbers of the budget, the unit and the set of levels among those that the page has. */
  budget: number;
  unit: number;
  set: number;
  segments: boolean;
  /** Weight of each level of the tree with all levels, root first; null for the declared shares. */
  weights: number[] | null;
}

/** Errors of the totals, or of the trips of one category of a breakdown; by level, root first. */
export interface Accuracy {
  errors: () => number[];
  /** Largest variance of an unbiased estimate. */
  variances: number[];
  /** Largest half width of the 90 % intervals. */
  widths: number[];
}

export interface Planned {
  setting: Setting;
  tree: Tree;
  unit: UnitFacts;
  rule: Rule;
  /** Rho of the release or, with Laplace noise, epsilon. */
  charge: Charge;
  /** The charges of all queries as rho; an epsilon is epsilon^2 / 2. */
  rho: number;
  budget: BudgetFacts;
  /** Share of the budget of each level that has one. */
  shares: Map<number, number>;
  /** What the queries of each level are charged; after the levels of the tree, those of area totals. */
  charges: Map<number, number>;
  publishesTotal: boolean;
  keepsAll: boolean;
  /** Levels whose totals are measured. */
  measured: number[];
  totals: Accuracy;
  breakdowns: (Accuracy & { name: string; measured: number[] })[];
  verdicts: string[];
}

const trees = new Map<LevelSet, Tree>();

/** The levels that have a share of the budget if a reader gives their weights. */
export function weightedLevels(facts: Facts, setting: Setting): number[] {
  const depth = levelsPerArea(facts) * facts.sets[setting.set].kept.length;
  if (facts.mechanism.measures === "all_leaves") return [depth];
  const first = !setting.segments && facts.units[setting.unit].publishesTotal[0] ? 1 : 0;
  return Array.from({ length: depth + 1 - first }, (_, place) => first + place);
}

/** The level of the tree with all levels that a level of the tree of a set corresponds to. */
export function declaredLevel(facts: Facts, set: LevelSet, level: number): number {
  const steps = levelsPerArea(facts);
  return level === 0 ? 0 : steps * set.kept[Math.ceil(level / steps) - 1] - (level % steps);
}

/** The name of a level of the areas of both sides, or of the only one. */
export function areasOf(facts: Facts, level: number): string {
  return [...new Set(facts.levels.map((side) => side[level - 1]))].join(" and ");
}

/** What the declared shares give for the levels, the unit and the segments of a setting. */
export function ruleOf(facts: Facts, setting: Setting): Rule {
  return facts.rules[setting.set][setting.unit][Number(setting.segments)];
}

/** Whether a setting is one of the declared data set; under unit `user_year`, its bounds are those of the data set. */
export function isOfDeclaredUnit(facts: Facts, setting: Setting): boolean {
  const { unit, trips, yearly } = setting;
  const { declared, year } = facts;
  if (unit !== declared.unit) return false;
  if (facts.units[unit].kind !== "user_year") return true;
  return trips === declared.trips && yearly === year!.trips && pairCap(setting) === declared.pair;
}

/** The share of the budget of each level that has one: by the weights that a reader gave, or as declared. */
export function sharesOf(facts: Facts, setting: Setting): Map<number, number> {
  const { weights } = setting;
  if (!weights) return new Map(ruleOf(facts, setting).shares);
  const levels = weightedLevels(facts, setting);
  const own = levels.map((level) => weights[declaredLevel(facts, facts.sets[setting.set], level)]);
  const sum = own.reduce((one, other) => one + other, 0);
  return new Map(levels.map((level, place) => [level, own[place] / sum]));
}

/** The plan of a setting: what it charges, and how exact its numbers are. */
export function plan(facts: Facts, setting: Setting): Planned {
  const set = facts.sets[setting.set];
  const tree = trees.get(set) ?? new Tree(facts, set);
  trees.set(set, tree);
  const unit = facts.units[setting.unit];
  const rule = ruleOf(facts, setting);
  const charge = (setting.weights ? null : rule.rho?.[setting.budget]) ?? facts.budgets[setting.budget].charge;
  const invariant = unit.publishesTotal[Number(setting.segments)];
  const publishesTotal = invariant && facts.mechanism.measures === "every_level";
  const keepsAll = set.keepsAll[Number(setting.segments)];
  const shares = sharesOf(facts, setting);
  const noise = variancesOf(facts, setting, shares, charge[0] * rule.ofTree);
  const totals = totalAccuracy(facts, tree, noise.totals, keepsAll, publishesTotal);
  const breakdowns = noise.breakdowns.map(({ name, categories, variances }) => ({
    name,
    measured: [...variances.keys()],
    ...segmentAccuracy(facts, tree, variances, keepsAll, categories, totals),
  }));
  const measured = [...noise.totals.keys()];
  const budget = facts.budgets[setting.budget];
  const verdicts = verdictsOf(tree, measured, totals, breakdowns);
  const { charges } = noise;
  const ofAreas = rule.ofTree < 1 ? set.nodes.length - tree.depth - 1 : 0;
  for (let place = 1; place <= ofAreas; place++) charges.set(tree.depth + place, (charge[0] * (1 - rule.ofTree)) / ofAreas);
  const rho = isPure(facts) ? [...charges.values()].reduce((sum, epsilon) => sum + epsilon ** 2 / 2, 0) : charge[0];
  const found = { charges, measured, totals, breakdowns, verdicts };
  return { setting, tree, unit, rule, charge, rho, budget, shares, publishesTotal, keepsAll, ...found };
}

interface Noise {
  /** Variances of the totals, which combine the measured totals and the sums of the segments. */
  totals: Variances;
  breakdowns: (Breakdown & { variances: Variances })[];
  /** Charge of each level. */
  charges: Map<number, number>;
}

/** Whether the noise is Laplace noise, which is charged in epsilon and needs no delta. */
export function isPure(facts: Facts): boolean {
  return facts.delta === null;
}

/** The variances of the noise; see `plan_steps` in `od_core/flows/step.py`, and `CombinedTotals`. */
function variancesOf(facts: Facts, setting: Setting, shares: Map<number, number>, charge: number): Noise {
  const unit = facts.units[setting.unit];
  const invariant = unit.publishesTotal[Number(setting.segments)];
  const segments = setting.segments ? facts.segments! : { breakdowns: [], share: 0 };
  const { nodes } = facts.sets[setting.set];
  const units = unit.relation === "bounded" ? 2 : 1;
  const squares = (level: number): number =>
    unit.trips === null ? largestSquares(setting.trips, pairCap(setting), nodes[level]) : unit.trips ** 2;
  const hasTotal = (level: number): boolean => level > 0 || !invariant;
  let whole = 0;
  for (const [level, share] of shares) whole += share * (hasTotal(level) ? 1 : segments.share);
  const ofShare = (share: number): number => charge * (share / whole);
  const variance = (squared: number, share: number): number => squared / (2 * ofShare(share));

  const totals: Variances = new Map();
  const charges = new Map<number, number>();
  const breakdowns = segments.breakdowns.map((each) => ({ ...each, variances: new Map() as Variances }));
  for (const [level, share] of shares) {
    const each = (share * segments.share) / breakdowns.length;
    const sensitivity = units * squares(level);
    charges.set(level, (charge * share * (hasTotal(level) ? 1 : segments.share)) / whole);
    if (isPure(facts)) {
      const absolute = (unit.trips ?? setting.trips) * (level > 0 ? units : 1);
      if (hasTotal(level)) totals.set(level, laplaceVariance(absolute / ofShare(share)));
      continue;
    }
    for (const own of breakdowns) own.variances.set(level, variance(sensitivity, each));
    if (!hasTotal(level)) continue;
    const ofTotal = level > 0 || unit.kind === "user_year" ? sensitivity : squares(level);
    let precision = 1 / variance(ofTotal, share * (1 - segments.share));
    for (const own of breakdowns) precision += 1 / (own.categories * own.variances.get(level)!);
    totals.set(level, 1 / precision);
  }
  return { totals, breakdowns, charges };
}

/** The accuracy of all trips; see `expected_errors` and `known_to_within` of `ReleasePlan`. */
function totalAccuracy(facts: Facts, tree: Tree, variances: Variances, keepsAll: boolean, exactRoot: boolean): Accuracy {
  if (facts.mechanism.measures === "all_leaves") {
    const leaf = variances.get(tree.depth)!;
    return accuracy(() => tree.summedErrors(leaf), tree.set.mostLeaves!.map((most) => most * leaf));
  }
  const known: Variances = exactRoot ? variances : new Map([[0, Infinity], ...variances]); // a measured root replaces it
  const largest = keepsAll ? tree.largestVariances(known) : alone(tree, known, exactRoot ? 0 : null);
  return accuracy(() => tree.expectedErrors(known, facts.mechanism.refines, facts.normal), largest);
}

/** The accuracy of the trips of one category; see `compute_segment_variance` in `od_core/flows/accuracy.py`. */
function segmentAccuracy(
  facts: Facts,
  tree: Tree,
  variances: Variances,
  keepsAll: boolean,
  categories: number,
  totals: Accuracy,
): Accuracy {
  const known: Variances = new Map([[0, UNMEASURED * Math.max(...variances.values())], ...variances]);
  const combined = (total: number, own: number): number => total / categories ** 2 + own * (1 - 1 / categories);
  const errors = (): number[] =>
    tree
      .expectedErrors(known, true, facts.normal)
      .map((error, level) => Math.sqrt(combined(totals.errors()[level] ** 2, error ** 2)));
  const largest = keepsAll ? tree.largestVariances(known) : alone(tree, known, null);
  return accuracy(errors, largest.map((variance, level) => combined(totals.variances[level], variance)));
}

/** Errors are computed once, and only if they are shown: the alternatives to a setting show widths alone. */
function accuracy(errors: () => number[], variances: number[]): Accuracy {
  let found: number[] | null = null;
  return { errors: () => (found ??= errors()), variances, widths: variances.map((variance) => halfWidth(0, variance)) };
}

/** A sentence for each measured level, of all trips and of each breakdown. */
function verdictsOf(tree: Tree, measured: number[], totals: Accuracy, breakdowns: Planned["breakdowns"]): string[] {
  return [
    ...measured.map((level) => `${tree.names[level]}: ${verdict(totals.widths[level])}`),
    ...breakdowns.flatMap(({ name, widths, measured: own }) =>
      own.map((level) => `${tree.names[level]} by ${name}: ${verdict(widths[level])}`),
    ),
  ];
}

/** The variance of the measured counts of each level, root first; `root` is that of a root that is known exactly. */
function alone(tree: Tree, variances: Variances, root: number | null): number[] {
  const largest = [variances.get(tree.depth)!];
  for (let level = tree.depth - 1; level >= 0; level--) {
    const noise = variances.get(level) ?? Infinity;
    largest.unshift(noise < Infinity ? noise : largest[0]);
  }
  largest[0] = root ?? largest[0];
  return largest;
}

/** A number of trips, rounded up to two digits, as in the sentences of `od-release plan`. */
export function roundedUp(trips: number): number {
  const width = trips - 1e-9; // by which intervals are widened for rounding
  const unit = 10 ** Math.max(String(Math.ceil(width)).length - 2, 0);
  return Math.ceil(width / unit) * unit;
}

/** What intervals of at most this half width say of flows; the sentence of `od-release plan`. */
function verdict(width: number): string {
  const trips = roundedUp(width);
  return (
    `below ${number(trips)} trips, a flow cannot always be told from 0; from ${number(10 * trips)} on, it is known to` +
    ` within 10 %, 9 times in 10.`
  );
}
