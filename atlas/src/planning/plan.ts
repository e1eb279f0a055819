/** The plan of a setting: its charge, its noise and its errors, as `ReleasePlan` computes them. */

import { halfWidth } from "../confidence";
import { number } from "../dom";
import type { BudgetFacts, Facts, LevelSet, Rho, Rule, UnitFacts } from "./facts";
import { Tree, type Variances } from "./tree";

/** Variance of a root that was not measured, as a multiple of the largest variance of the noise. */
const UNMEASURED = 1e12;

/** What a reader has chosen, as far as the plan depends on it. */
export interface Setting {
  /** Numbers of the budget, the unit and the set of levels among those that the page has. */
  budget: number;
  unit: number;
  set: number;
  /** Trips of a user that are counted. */
  trips: number;
  segments: boolean;
  /** Weight of each level of the tree with all levels, root first; null for the declared shares. */
  weights: number[] | null;
}

/** Errors of the totals, or of the trips of one category of a breakdown; by level, root first. */
export interface Accuracy {
  errors: number[];
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
  rho: Rho;
  budget: BudgetFacts;
  /** Share of the budget of each level that has one. */
  shares: Map<number, number>;
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
  const depth = 2 * facts.sets[setting.set].kept.length;
  if (facts.mechanism.measures === "all_leaves") return [depth];
  const first = !setting.segments && facts.units[setting.unit].publishesTotal[0] ? 1 : 0;
  return Array.from({ length: depth + 1 - first }, (_, place) => first + place);
}

/** The level of the tree with all levels that a level of the tree of a set corresponds to. */
export function declaredLevel(set: LevelSet, level: number): number {
  return level === 0 ? 0 : 2 * set.kept[Math.ceil(level / 2) - 1] - (level % 2);
}

export function ruleOf(facts: Facts, setting: Setting): Rule {
  return facts.rules[setting.set][setting.unit][Number(setting.segments)];
}

export function sharesOf(facts: Facts, setting: Setting): Map<number, number> {
  const { weights } = setting;
  if (!weights) return new Map(ruleOf(facts, setting).shares);
  const levels = weightedLevels(facts, setting);
  const own = levels.map((level) => weights[declaredLevel(facts.sets[setting.set], level)]);
  const sum = own.reduce((one, other) => one + other, 0);
  return new Map(levels.map((level, place) => [level, own[place] / sum]));
}

export function plan(facts: Facts, setting: Setting): Planned {
  const set = facts.sets[setting.set];
  const tree = trees.get(set) ?? new Tree(facts, set);
  trees.set(set, tree);
  const unit = facts.units[setting.unit];
  const segments = setting.segments ? facts.segments : null;
  const rule = ruleOf(facts, setting);
  const shares = sharesOf(facts, setting);
  const rho = (setting.weights ? null : rule.rho?.[setting.budget]) ?? facts.budgets[setting.budget].rho;
  const invariant = unit.publishesTotal[Number(setting.segments)];
  const publishesTotal = invariant && facts.mechanism.measures === "every_level";
  const m = unit.trips ?? setting.trips;

  const below = (unit.relation === "bounded" ? 2 : 1) * m * m;
  const totalShare = 1 - (segments?.share ?? 0);
  const hasTotal = (level: number): boolean => level > 0 || !invariant;
  let whole = 0;
  for (const [level, share] of shares) whole += (hasTotal(level) ? share * totalShare : 0) + share * (1 - totalShare);
  const noise = (sensitivity: number, share: number): number => sensitivity / (2 * rho[0] * (share / whole));

  const variances: Variances = new Map();
  const ofBreakdowns = (segments?.breakdowns ?? []).map((): Variances => new Map());
  for (const [level, share] of shares) {
    const each = segments ? (share * segments.share) / segments.breakdowns.length : 0;
    for (const own of ofBreakdowns) own.set(level, noise(below, each));
    if (!hasTotal(level)) continue;
    let precision = 1 / noise(level > 0 ? below : m * m, share * totalShare);
    for (const [place, own] of ofBreakdowns.entries()) {
      precision += 1 / (segments!.breakdowns[place].categories * own.get(level)!);
    }
    variances.set(level, 1 / precision);
  }

  const keepsAll = set.keepsAll[Number(setting.segments)];
  const { refines, measures } = facts.mechanism;
  const leaf = variances.get(tree.depth)!;
  const totals =
    measures === "all_leaves"
      ? accuracy(tree.summedErrors(leaf), set.mostLeaves!.map((most) => most * leaf))
      : accuracy(
          tree.expectedErrors(variances, refines, facts.normal),
          keepsAll ? tree.largestVariances(variances) : alone(tree, variances, publishesTotal ? 0 : null),
        );
  const breakdowns = ofBreakdowns.map((own, place) => {
    const { name, categories } = segments!.breakdowns[place];
    const known: Variances = new Map([[0, UNMEASURED * Math.max(...own.values())], ...own]);
    const errors = tree.expectedErrors(known, true, facts.normal);
    const largest = keepsAll ? tree.largestVariances(known) : alone(tree, known, null);
    const combined = (total: number, each: number): number => total / categories ** 2 + each * (1 - 1 / categories);
    return {
      name,
      measured: [...own.keys()],
      ...accuracy(
        errors.map((error, level) => Math.sqrt(combined(totals.errors[level] ** 2, error ** 2))),
        largest.map((variance, level) => combined(totals.variances[level], variance)),
      ),
    };
  });
  const measured = [...variances.keys()];
  const names = tree.names.map(([origin, destination]) => `${origin} x ${destination}`);
  const verdicts = [
    ...measured.map((level) => `${names[level]}: ${verdict(totals.widths[level])}`),
    ...breakdowns.flatMap(({ name, widths, measured: own }) =>
      own.map((level) => `${names[level]} by ${name}: ${verdict(widths[level])}`),
    ),
  ];
  const found = { totals, breakdowns, measured, verdicts };
  return { setting, tree, unit, rule, rho, budget: facts.budgets[setting.budget], shares, publishesTotal, keepsAll, ...found };
}

function accuracy(errors: number[], variances: number[]): Accuracy {
  return { errors, variances, widths: variances.map((variance) => halfWidth(0, variance)) };
}

/** The variance of the measured counts of each level, root first; `root` is that of a root that is known exactly. */
function alone(tree: Tree, variances: Variances, root: number | null): number[] {
  const largest = [root ?? variances.get(0)!];
  for (let level = tree.depth; level > 0; level--) largest.splice(1, 0, variances.get(level) ?? largest[1]);
  return largest;
}

/** A number of trips, rounded up to two digits, as in the sentences of `od-release plan`. */
export function roundedUp(trips: number): number {
  const unit = 10 ** Math.max(String(Math.ceil(trips)).length - 2, 0);
  return Math.ceil(trips / unit) * unit;
}

/** What intervals of at most this half width say of flows; the sentence of `od-release plan`. */
function verdict(width: number): string {
  const trips = roundedUp(width);
  return (
    `below ${number(trips)} trips, a flow cannot always be told from 0; from ${number(10 * trips)} on, it is known to` +
    ` within 10 %, 9 times in 10.`
  );
}
