/** The expected errors and the largest variances of a flow tree, as `od_core/flows/accuracy.py` computes them. */

import type { Facts, LevelSet, ShapeFacts } from "./facts";

/** Values by pair of shapes: rows are shapes of origin areas, columns shapes of destination areas. */
class Matrix {
  readonly values: Float64Array;

  constructor(
    readonly rows: number,
    readonly columns: number,
    value = 0,
  ) {
    this.values = new Float64Array(rows * columns).fill(value);
  }

  /** A matrix with a function of each value and its place. */
  map(change: (value: number, place: number) => number): Matrix {
    const result = new Matrix(this.rows, this.columns);
    for (let place = 0; place < this.values.length; place++) result.values[place] = change(this.values[place], place);
    return result;
  }

  get max(): number {
    return this.values.reduce((one, other) => Math.max(one, other), -Infinity);
  }
}

/** A step from one level to the next; see `_Step` in Python. The divided side is the origin or the destination. */
class Step {
  /** Number of children of an area of each shape of the divided side. */
  readonly fanOut: Float64Array;

  constructor(
    readonly splitsOrigin: boolean,
    private readonly pairs: ShapeFacts["pairs"][number],
    private readonly above: number[],
    private readonly below: number[],
    private readonly whole: number[],
  ) {
    this.fanOut = new Float64Array(above.length);
    for (const [k, parent] of pairs[0].entries()) this.fanOut[parent] += pairs[2][k] / above[parent];
  }

  /** Call for each pair of shapes of parent and child, and each shape of the whole side, with places in two matrices. */
  private each(call: (above: number, below: number, pair: number) => void): void {
    const [parents, children] = this.pairs;
    const width = this.whole.length;
    for (let pair = 0; pair < parents.length; pair++) {
      for (let other = 0; other < width; other++) {
        if (this.splitsOrigin) call(parents[pair] * width + other, children[pair] * width + other, pair);
        else call(other * this.above.length + parents[pair], other * this.below.length + children[pair], pair);
      }
    }
  }

  /** A matrix of shapes of the divided side and those of the whole side. */
  private matrix(shapes: number[], value = 0): Matrix {
    const other = this.whole.length;
    return this.splitsOrigin ? new Matrix(shapes.length, other, value) : new Matrix(other, shapes.length, value);
  }

  /** For each pair of shapes above, the sum of values over the children of a node. */
  overChildren(values: Matrix): Matrix {
    const result = this.matrix(this.above);
    const [parents, , counts] = this.pairs;
    this.each((above, below, pair) => {
      result.values[above] += (counts[pair] / this.above[parents[pair]]) * values.values[below];
    });
    return result;
  }

  /** For each pair of shapes below, the mean of values over the parents of its nodes. */
  overParents(values: Matrix): Matrix {
    const result = this.matrix(this.below);
    const [, children, counts] = this.pairs;
    this.each((above, below, pair) => {
      result.values[below] += (counts[pair] / this.below[children[pair]]) * values.values[above];
    });
    return result;
  }

  /** For each pair of shapes below, the largest of values over the parents of its nodes. */
  largestParent(values: Matrix): Matrix {
    const result = this.matrix(this.below, -Infinity);
    this.each((above, below) => {
      result.values[below] = Math.max(result.values[below], values.values[above]);
    });
    return result;
  }

  /** For each shape of the divided side, the mean of values over the areas of the whole side. */
  overWhole(values: Matrix): Float64Array {
    const shapes = this.splitsOrigin ? values.rows : values.columns;
    const areas = this.whole.reduce((one, other) => one + other, 0);
    const result = new Float64Array(shapes);
    for (let shape = 0; shape < shapes; shape++) {
      for (let other = 0; other < this.whole.length; other++) {
        const place = this.splitsOrigin ? shape * values.columns + other : other * values.columns + shape;
        result[shape] += values.values[place] * (this.whole[other] / areas);
      }
    }
    return result;
  }

  /** For each pair of shapes below, the mean over the parents of values by shape above on the divided side. */
  toChildren(values: Float64Array): Matrix {
    const spread = this.matrix(this.above);
    const width = spread.columns;
    return this.overParents(spread.map((_, place) => values[this.splitsOrigin ? Math.floor(place / width) : place % width]));
  }
}

/** Variance of the noise by level; a level without one is not measured. */
export type Variances = Map<number, number>;

export class Tree {
  readonly depth: number;
  /** Names of the levels of both sides at every level, root first; of one side, if there are no destinations. */
  readonly names: string[];
  /** Number of public nodes of each level. */
  readonly cells: number[];
  /** Levels of the tree that divides one side at a time, for each level of this one; see `FlowTree.in_turn` in Python. */
  private readonly stride: number;
  private readonly steps: Step[] = [];
  private readonly nodes: [origin: number[], destination: number[]][];

  constructor(
    facts: Facts,
    readonly set: LevelSet,
  ) {
    const sides = [set.origin, set.destination ?? set.origin];
    this.depth = levelsPerArea(facts) * set.kept.length;
    this.stride = (facts.levels.length * set.kept.length) / this.depth;
    const pairs = Array.from({ length: this.stride * this.depth + 1 }, (_, level) => levelPair(level, facts));
    const name = (side: 0 | 1, level: number): string => (level ? facts.levels[side][set.kept[level - 1] - 1] : "all");
    const isOfOneSide = facts.levels.length === 1;
    this.names = this.ofLevels(pairs).map(([origin, destination]) =>
      isOfOneSide ? name(0, origin) : `${name(0, origin)} x ${name(1, destination)}`,
    );
    this.nodes = pairs.map(([origin, destination]) => [sides[0].areas[origin], sides[1].areas[destination]]);
    this.cells = this.ofLevels(this.nodes).map(([origin, destination]) => total(origin) * total(destination));
    for (let level = 1; level < pairs.length; level++) {
      const split = pairs[level][0] !== pairs[level - 1][0] ? 0 : 1;
      const [above, below] = [this.nodes[level - 1], this.nodes[level]];
      const counted = sides[split].pairs[pairs[level - 1][split]];
      this.steps.push(new Step(split === 0, counted, above[split], below[split], below[1 - split]));
    }
  }

  /** What there is of the levels of this tree, among all levels that divide one side at a time. */
  private ofLevels<T>(all: T[]): T[] {
    return all.filter((_, level) => level % this.stride === 0);
  }

  /** The expected root-mean-square error of each level, root first. */
  expectedErrors(variances: Variances, refines: boolean, normal: number[]): number[] {
    const { own, siblings } = this.ownVariances(variances, refines);
    let estimate = variances.has(0) ? own[0].map((value) => value + (refines ? 1 / 12 : 0)) : new Matrix(1, 1);
    const errors = [Math.sqrt(estimate.values[0])];
    for (const [above, step] of this.steps.entries()) {
      const [v, s, parent] = [own[above + 1], siblings[above], estimate];
      const uneven = refines
        ? step.fanOut.map((fanOut) => fanOut / 12)
        : step.overWhole(parent.map((value, place) => value + s.values[place]));
      const rounding = step.toChildren(
        step.fanOut.map((fanOut, shape) => {
          return shiftError(fanOut, uneven[shape], normal) + (refines ? (1 - 1 / fanOut) / 12 : 0);
        }),
      );
      const passed = step.overParents(parent.map((value, place) => (value / s.values[place] - 1) / s.values[place]));
      estimate = v.map((value, place) => {
        return Math.max(value + value ** 2 * passed.values[place] + rounding.values[place], 0);
      });
      const [origins, destinations] = this.nodes[above + 1];
      let sum = 0;
      for (const [row, number] of origins.entries()) {
        for (const [column, other] of destinations.entries()) {
          sum += number * other * estimate.values[row * destinations.length + column];
        }
      }
      errors.push(Math.sqrt(sum / (total(origins) * total(destinations))));
    }
    return this.ofLevels(errors);
  }

  /** The largest variance of the least-squares estimate of a node of each level, root first. */
  largestVariances(variances: Variances): number[] {
    const { own, siblings } = this.ownVariances(variances, true);
    let estimate = variances.has(0) ? own[0] : new Matrix(1, 1);
    const largest = [estimate.max];
    for (const [above, step] of this.steps.entries()) {
      const s = siblings[above];
      const passed = step.largestParent(estimate.map((value, place) => (value / s.values[place] - 1) / s.values[place]));
      estimate = own[above + 1].map((value, place) => Math.max(value + value ** 2 * passed.values[place], 0));
      largest.push(estimate.max);
    }
    return this.ofLevels(largest);
  }

  /** The expected error of each level, root first, if noisy leaf pairs are added up. */
  summedErrors(variance: number): number[] {
    return this.cells.map((cells) => Math.sqrt((variance * this.cells[this.depth]) / cells));
  }

  /** Variances of the estimates of nodes from themselves and the levels below, and of sums of siblings; root first. */
  private ownVariances(variances: Variances, refines: boolean): { own: Matrix[]; siblings: Matrix[] } {
    const [origins, destinations] = this.nodes[this.nodes.length - 1];
    const own = [new Matrix(origins.length, destinations.length, variances.get(this.depth)!)];
    const siblings: Matrix[] = [];
    for (let level = this.steps.length - 1; level >= 0; level--) {
      const below = this.steps[level].overChildren(own[0]);
      const noise = variances.get(level / this.stride) ?? Infinity;
      siblings.unshift(below);
      own.unshift(below.map((value) => (noise === Infinity ? value : refines ? 1 / (1 / noise + 1 / value) : noise)));
    }
    return { own, siblings };
  }
}

/** Number of levels of the tree for each level of the areas: two if it divides one side at a time. */
export function levelsPerArea({ levels, order }: Facts): number {
  return order === "both" ? 1 : levels.length;
}

/** Numbers of the levels of the origin and of the destination at a level of the tree that divides one side at a time. */
function levelPair(level: number, { levels, order }: Facts): [origin: number, destination: number] {
  if (levels.length === 1) return [level, 0];
  const [first, second] = [Math.floor((level + 1) / 2), Math.floor(level / 2)];
  return order === "destination" ? [second, first] : [first, second];
}

function total(numbers: number[]): number {
  return numbers.reduce((one, other) => one + other, 0);
}

/** The mean squared difference between IntOpt's shifts of siblings and equal shifts; see `_shift_error` in Python. */
function shiftError(fanOut: number, lacking: number, normal: number[]): number {
  let sum = 0;
  for (const value of normal) {
    const x = roundHalfEven(value * Math.sqrt(lacking));
    const a = Math.ceil(x / fanOut);
    const excess = a * fanOut - x;
    const last = excess % Math.max(2 * a, 1);
    const f = excess / fanOut;
    sum += a > 0 ? 2 * a * f - f ** 2 - ((2 * a - last) * last) / fanOut : f * (1 - f);
  }
  return sum / normal.length;
}

/** Round as NumPy does. */
function roundHalfEven(value: number): number {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}
