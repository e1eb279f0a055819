/** A measured flow tree with the estimates of all nodes, and the estimates of sums of them.
 *
 * The formulas are those of `od_core/flows/estimation/least_squares.py` and `fitted_tree.py`. Every
 * operation is done in the same order as there, so that the page and `trips_between` give the same numbers.
 */

import { Sums } from "./sums";
import type { Data, Header, LevelData } from "./columns";
import { upperBound, type Estimate } from "./confidence";
import type { Distances } from "./distances";
import { Part, type Geography } from "./geography";

/** The two geographies and the order in which the levels of the tree refine them. */
export class FlowTree {
  constructor(
    readonly origin: Geography,
    readonly destination: Geography,
    readonly order: Header["order"],
  ) {}

  /** The levels of the two geographies, (origin level, destination level), at a level of the tree. */
  levelPair(level: number): [origin: number, destination: number] {
    if (this.order === "both") return [level, level];
    const [first, second] = [Math.floor((level + 1) / 2), Math.floor(level / 2)];
    return this.order === "destination" ? [second, first] : [first, second];
  }

  /** The level below that of a pair of levels. */
  levelBelow([origin, destination]: [origin: number, destination: number]): number {
    return (this.order === "both" ? origin : origin + destination) + 1;
  }
}

/** Nodes of a level. */
export interface Nodes {
  /** Levels of the two geographies. */
  pair: [origin: number, destination: number];
  origin: Int32Array;
  destination: Int32Array;
  /** The children of divided node `p` of the level above are `offsets[p]` to `offsets[p + 1]`. */
  offsets: Int32Array;
  /** Number of each node among the divided nodes of the level, or -1. */
  place: Int32Array;
  divided: Int32Array;
}

/** Variances of a level, which follow from its noise and from the shape of the tree. */
export interface Spread {
  /** Of the noise; infinite if the level was not measured. */
  noise: number;
  /** Of the estimates from a node and the levels below it, and their sums over siblings. */
  own: Float64Array;
  siblings: Float64Array;
  /** Of the estimates from all levels. */
  variance: Float64Array;
}

interface Level extends Nodes, Spread {
  noisy: Float64Array;
  estimate: Float64Array;
}

/** Contributions of each node to what is known of the trips of dropped nodes. */
interface Unseen {
  most: Float64Array;
  unseen: Float64Array;
  doubt: Float64Array;
}

/** What is known of a sum of nodes below a node; see the module docstring of `fitted_tree.py`. */
interface NodeSum {
  factor: number;
  residual: number;
  estimate: number;
  most: number;
  unseen: number;
  doubt: number;
}

/** Adds a node of the last level to sums; the last three arguments are those of `Sums.addNode`. */
type Add = (sums: Sums, node: number, value: number, own: number, noise: number | null) => void;

const NOTHING: NodeSum = { factor: 0, residual: 0, estimate: 0, most: 0, unseen: 0, doubt: 0 };

export class FittedTree {
  readonly nothingDropped: boolean;
  readonly levels: readonly Level[];
  /** Whether nodes were dropped by their noisy values. */
  private readonly byNoise: boolean;
  private readonly unseen: Unseen[];
  /** Number of the band of each node of the last level. */
  private bands: Uint8Array | null = null;

  constructor(
    data: Data,
    private readonly tree: FlowTree,
    given: Header["fits"][number],
  ) {
    const nodes: Nodes[] = [];
    for (const level of given.levels) nodes.push(this.measured(data, level, nodes.at(-1)));
    const noise = given.levels.map((level) => level.noise ?? Infinity);
    const noisy = given.levels.map((level) => data.reals(level.noisy));
    const known = given.levels.map(({ below }) => below && data.reals(below.variance));
    const best = given.levels.map(({ below }, k) => (below ? data.reals(below.estimate) : noisy[k]));
    const spreads = spreadsOf(nodes, noise, known);
    const estimates = estimatesOf(nodes, spreads, best, known);
    this.levels = nodes.map((each, k) => ({ ...each, ...spreads[k], noisy: noisy[k], estimate: estimates[k] }));
    this.nothingDropped = given.nothingDropped;
    this.byNoise = given.byNoise;
    this.unseen = this.nothingDropped ? [] : this.levels.map(unseenTrips);
  }

  /** Estimate of the trips from some zones to others, given how much of each area is selected. */
  sumBetween(origins: Uint8Array[], destinations: Uint8Array[]): Estimate {
    const [root] = this.levels;
    const [origin, destination] = [origins[0][0], destinations[0][0]];
    let sum = NOTHING;
    if (origin === Part.All && destination === Part.All) {
      const noisy = { ...NOTHING, residual: root.noise, estimate: root.noisy[0] };
      sum = this.usesNoisy(root) ? noisy : { ...NOTHING, factor: 1, estimate: root.estimate[0] };
    } else if (origin !== Part.None && destination !== Part.None) {
      sum = this.sumBelow(0, 0, origins, destinations);
    }
    const variance = sum.residual + sum.factor * sum.factor * root.variance[0];
    return { estimate: sum.estimate, variance, most: sum.most, unseen: sum.unseen, doubt: sum.doubt };
  }

  /** Whether the noisy values of a level replace its estimates: nodes were dropped by their noise, which biases them. */
  private usesNoisy(level: Level): boolean {
    return !this.nothingDropped && level.noise !== 0 && this.byNoise;
  }

  /** The sum of the selected zone pairs below a node of the level at position `k`: some of its pairs, but not all. */
  private sumBelow(k: number, node: number, origins: Uint8Array[], destinations: Uint8Array[]): NodeSum {
    const sum = { ...NOTHING };
    const parent = this.levels[k].place[node];
    if (parent >= 0) {
      const level = this.levels[k + 1];
      const [from, to] = [origins[level.pair[0]], destinations[level.pair[1]]];
      const usesNoisy = this.usesNoisy(level);
      for (let child = level.offsets[parent]; child < level.offsets[parent + 1]; child++) {
        const [origin, destination] = [from[level.origin[child]], to[level.destination[child]]];
        if (origin === Part.None || destination === Part.None) continue;
        const own = level.own[child];
        if (origin === Part.All && destination === Part.All) {
          if (!usesNoisy) sum.factor += own;
          sum.residual += usesNoisy ? level.noise : own;
          sum.estimate += usesNoisy ? level.noisy[child] : level.estimate[child];
        } else {
          const below = this.sumBelow(k + 1, child, origins, destinations);
          sum.factor += below.factor * own;
          sum.residual += below.residual + below.factor * below.factor * own;
          sum.estimate += below.estimate;
          sum.most += below.most;
          sum.unseen += below.unseen;
          sum.doubt += below.doubt;
        }
      }
      const follows = sum.factor;
      sum.factor = follows / level.siblings[parent];
      sum.residual = Math.max(0, sum.residual - follows * sum.factor);
    }
    if (!this.nothingDropped) {
      sum.most += this.unseen[k].most[node];
      sum.unseen += this.unseen[k].unseen[node];
      sum.doubt += this.unseen[k].doubt[node];
    }
    return sum;
  }

  /** Estimates, by band of distance, of the trips from some zones to others, as `Intervals.estimate_begun_trips` computes them.
   *
   * They are sums of nodes of the last level. The trips of dropped nodes may belong to any band.
   */
  sumByBand(origins: Uint8Array[], destinations: Uint8Array[], distances: Distances): Estimate[] {
    const finest = this.levels[this.levels.length - 1];
    this.bands ??= Uint8Array.from(finest.origin, (origin, node) => distances.band(origin, finest.destination[node]));
    const bands = this.bands;
    return this.sums(origins, destinations, distances.bands.length, (sums, node, value, own, noise) => {
      sums.addNode(bands[node], 1, value, own, noise);
    });
  }

  /** Estimates of the trips from some zones to others whose distance is known, of their kilometres, and of the sum of
   * these two, the first times `scale`.
   */
  sumOfDistances(
    origins: Uint8Array[],
    destinations: Uint8Array[],
    distances: Distances,
    scale: number,
  ): [trips: Estimate, kilometres: Estimate, mixed: Estimate] {
    const finest = this.levels[this.levels.length - 1];
    const [trips, kilometres, mixed] = this.sums(origins, destinations, 3, (sums, node, value, own, noise) => {
      const distance = distances.kilometres(finest.origin[node], finest.destination[node]);
      if (Number.isNaN(distance)) return;
      sums.addNode(0, 1, value, own, noise);
      sums.addNode(1, distance, value, own, noise);
      sums.addNode(2, distance + scale, value, own, noise);
    });
    return [trips, kilometres, mixed];
  }

  /** Estimate of the trips from some areas to others and from others to them, given how much of each is selected. */
  sumOfExchange(here: Uint8Array[], all: Uint8Array[]): Estimate {
    const finest = this.levels[this.levels.length - 1];
    const inside = here[finest.pair[0]];
    const [exchange] = this.sums(all, all, 1, (sums, node, value, own, noise) => {
      if (inside[finest.origin[node]] !== inside[finest.destination[node]]) sums.addNode(0, 1, value, own, noise);
    });
    return exchange;
  }

  /** Estimates of several sums of the nodes of the last level from some zones to others. */
  private sums(origins: Uint8Array[], destinations: Uint8Array[], count: number, add: Add): Estimate[] {
    const each = this.levels.map(() => new Sums(count));
    this.addBelow(0, 0, origins, destinations, each, add);
    const { factor, residual, estimate, dropped } = each[0];
    return Array.from(estimate, (sum, k) => {
      const variance = residual[k] + factor[k] * factor[k] * this.levels[0].variance[0];
      return { estimate: sum, variance, most: dropped[0], unseen: dropped[1], doubt: dropped[2] };
    });
  }

  /** Write the sums below a node of the level at position `k`, which has selected zone pairs, into `each[k]`. */
  private addBelow(
    k: number,
    node: number,
    origins: Uint8Array[],
    destinations: Uint8Array[],
    each: Sums[],
    add: Add,
  ): void {
    const sums = each[k];
    sums.clear();
    const parent = this.levels[k].place[node];
    if (parent >= 0) {
      const level = this.levels[k + 1];
      const [from, to] = [origins[level.pair[0]], destinations[level.pair[1]]];
      const isLast = k + 2 === this.levels.length;
      const values = this.usesNoisy(level) ? level.noisy : level.estimate;
      const noise = this.usesNoisy(level) ? level.noise : null;
      for (let child = level.offsets[parent]; child < level.offsets[parent + 1]; child++) {
        if (from[level.origin[child]] === Part.None || to[level.destination[child]] === Part.None) continue;
        const own = level.own[child];
        if (isLast) {
          add(sums, child, values[child], own, noise);
        } else {
          this.addBelow(k + 1, child, origins, destinations, each, add);
          sums.add(each[k + 1], own);
        }
      }
      sums.divide(level.siblings[parent]);
    }
    if (!this.nothingDropped) {
      const { most, unseen, doubt } = this.unseen[k];
      sums.dropped[0] += most[node];
      sums.dropped[1] += unseen[node];
      sums.dropped[2] += doubt[node];
    }
  }

  /** The nodes of a level, which are the children of the divided nodes of the level above. */
  private measured(data: Data, given: LevelData, above: Nodes | undefined): Nodes {
    const listed = given.nodes && {
      origin: data.integers(given.nodes.origin),
      destination: data.integers(given.nodes.destination),
      offsets: offsetsOf(data.integers(given.nodes.perParent)),
    };
    const nodes = listed ?? (above ? this.children(above) : root());
    const size = given.noisy.length;
    const flags = given.divided && data.numbers(given.divided);
    const all = Int32Array.from({ length: size }, (_, node) => node);
    const divided = flags ? all.filter((node) => flags[node] === 1) : all;
    const place = new Int32Array(size).fill(-1);
    divided.forEach((node, number) => (place[node] = number));
    return { pair: this.tree.levelPair(given.number), ...nodes, place, divided };
  }

  /** The children of the divided nodes of a level. Levels that were not measured have one child a node. */
  private children(above: Nodes): Pick<Nodes, "origin" | "destination" | "offsets"> {
    const next = this.tree.levelPair(this.tree.levelBelow(above.pair));
    const origins = areasBelow(this.tree.origin, above.pair[0], next[0], above.origin);
    const destinations = areasBelow(this.tree.destination, above.pair[1], next[1], above.destination);
    const offsets = new Int32Array(above.divided.length + 1);
    above.divided.forEach((node, p) => {
      const [rows, columns] = [origins(node), destinations(node)].map(([first, end]) => end - first);
      offsets[p + 1] = offsets[p] + rows * columns;
    });
    const origin = new Int32Array(offsets[above.divided.length]);
    const destination = new Int32Array(origin.length);
    let child = 0;
    for (const node of above.divided) {
      const [[firstRow, endRow], [firstColumn, endColumn]] = [origins(node), destinations(node)];
      for (let row = firstRow; row < endRow; row++) {
        for (let column = firstColumn; column < endColumn; column++, child++) {
          origin[child] = row;
          destination[child] = column;
        }
      }
    }
    return { origin, destination, offsets };
  }
}

/** The first area at level `next` below the area of a node, and the end of them; the area itself if `level` is `next`. */
function areasBelow(side: Geography, level: number, next: number, areas: Int32Array): (node: number) => [number, number] {
  if (level === next) return (node) => [areas[node], areas[node] + 1];
  const firstChild = side.firstChild[level];
  return (node) => [firstChild[areas[node]], firstChild[areas[node] + 1]];
}

/** Where runs of given lengths begin, and the end of the last one. */
function offsetsOf(lengths: Int32Array): Int32Array {
  const offsets = new Int32Array(lengths.length + 1);
  lengths.forEach((length, run) => (offsets[run + 1] = offsets[run] + length));
  return offsets;
}

/** The one node of the first level, which has no parent. */
function root(): Pick<Nodes, "origin" | "destination" | "offsets"> {
  return { origin: new Int32Array(1), destination: new Int32Array(1), offsets: new Int32Array(1) };
}

/** Compute the variances of the best estimates of every node; see `least_squares.py`.
 *
 * `known` has those of the last level from its nodes and levels below it that the page does not have, and otherwise null.
 */
export function spreadsOf(levels: Nodes[], noise: number[], known: (Float64Array | null)[]): Spread[] {
  const spreads: Spread[] = [];
  for (let k = levels.length - 1; k >= 0; k--) {
    const { divided, place, offsets } = levels[k];
    const own = known[k] ?? new Float64Array(place.length).fill(noise[k]);
    if (k + 1 < levels.length) {
      divided.forEach((node, p) => {
        const below = spreads[k + 1].siblings[p];
        own[node] = noise[k] === Infinity ? below : (noise[k] * below) / (noise[k] + below);
      });
    }
    spreads[k] = { noise: noise[k], own, siblings: runSums(own, offsets), variance: own.slice() };
  }
  levels.forEach(({ offsets }, k) => {
    const { own, siblings, variance } = spreads[k];
    levels[k - 1]?.divided.forEach((node, p) => {
      for (let child = offsets[p]; child < offsets[p + 1]; child++) {
        const part = own[child] / siblings[p];
        variance[child] = own[child] - own[child] * part + part * part * spreads[k - 1].variance[node];
      }
    });
    variance.forEach((value, node) => (variance[node] = Math.max(value, 0)));
  });
  return spreads;
}

/** Compute the best estimate of every node, given noisy values or, where `known`, estimates from the levels below. */
export function estimatesOf(
  levels: Nodes[],
  spreads: Spread[],
  noisy: Float64Array[],
  known: (Float64Array | null)[],
): Float64Array[] {
  const estimates = noisy.map((values) => values.slice());
  const sums: Float64Array[] = [];
  for (let k = levels.length - 1; k >= 0; k--) {
    if (!known[k] && k + 1 < levels.length) {
      const [z, noise, below] = [estimates[k], spreads[k].noise, spreads[k + 1].siblings];
      levels[k].divided.forEach((node, p) => {
        if (noise === Infinity) z[node] = sums[k + 1][p];
        else z[node] += (noise / (noise + below[p])) * (sums[k + 1][p] - z[node]);
      });
    }
    sums[k] = runSums(estimates[k], levels[k].offsets);
  }
  for (let k = 1; k < levels.length; k++) {
    const { offsets } = levels[k];
    const { own, siblings } = spreads[k];
    levels[k - 1].divided.forEach((node, p) => {
      const lacking = estimates[k - 1][node] - sums[k][p];
      for (let child = offsets[p]; child < offsets[p + 1]; child++) {
        estimates[k][child] += (own[child] / siblings[p]) * lacking;
      }
    });
  }
  return estimates;
}

/** Sums of values over runs, each from one offset to the next. */
function runSums(values: Float64Array, offsets: Int32Array): Float64Array {
  const sums = new Float64Array(offsets.length - 1);
  for (let run = 0; run < sums.length; run++) {
    for (let i = offsets[run]; i < offsets[run + 1]; i++) sums[run] += values[i];
  }
  return sums;
}

/** What each node of a level says of the trips of dropped nodes; see `estimate_dropped_trips` in `fitted_tree.py`. */
function unseenTrips(level: Level): Unseen {
  const around = Math.max(1, Math.ceil(Math.sqrt(level.noise) / 2));
  const weight = nearThreshold(level, around);
  const [most, unseen, doubt] = [weight.slice(), weight.slice(), weight.slice()];
  weight.forEach((near, node) => {
    const dropped = level.place[node] < 0;
    const extra = near * (level.noise / (2 * around));
    most[node] = dropped ? upperBound(level.estimate[node], level.variance[node]) : 0;
    unseen[node] = (dropped ? level.noisy[node] : 0) + extra;
    doubt[node] = (dropped ? level.noise : 0) + extra * extra;
  });
  return { most, unseen, doubt };
}

/** Weight of each noisy value in the estimated density at the threshold of its siblings; see `_near_threshold`. */
function nearThreshold({ offsets, noisy, place }: Level, around: number): Float64Array {
  const weight = new Float64Array(noisy.length);
  for (let parent = 0; parent + 1 < offsets.length; parent++) {
    let [threshold, least] = [-Infinity, Infinity];
    for (let i = offsets[parent]; i < offsets[parent + 1]; i++) {
      if (place[i] >= 0) least = Math.min(least, noisy[i]);
      else threshold = Math.max(threshold, noisy[i]);
    }
    if (threshold === -Infinity) threshold = least - 1;
    for (let i = offsets[parent]; i < offsets[parent + 1]; i++) {
      if (threshold - around < noisy[i] && noisy[i] <= threshold + around) weight[i] += 4 / 3;
      if (threshold - 2 * around < noisy[i] && noisy[i] <= threshold + 2 * around) weight[i] += -1 / 6;
    }
  }
  return weight;
}
