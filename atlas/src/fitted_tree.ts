/** A measured flow tree with the estimates of all nodes, and the estimates of sums of them.
 *
 * The formulas are those of `od_core/flows/estimation/least_squares.py`, `node_sums.py` and `fitted_tree.py`. Every
 * operation is done in the same order as there, so that the page and `trips_between` give the same numbers.
 */

import type { Data, Header, LevelData } from "./columns";
import { upperBound, type Estimate } from "./confidence";
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
    const [first, second] = [Math.floor((level + 1) / 2), Math.floor(level / 2)];
    return this.order === "destination" ? [second, first] : [first, second];
  }
}

interface Level {
  /** Levels of the two geographies. */
  pair: [origin: number, destination: number];
  origin: Int32Array;
  destination: Int32Array;
  /** The children of divided node `p` of the level above are `offsets[p]` to `offsets[p + 1]`. */
  offsets: Int32Array;
  /** Number of each node among the divided nodes of the level, or -1. */
  place: Int32Array;
  divided: Int32Array;
  noisy: Float64Array;
  noise: number;
  own: Float64Array;
  siblings: Float64Array;
  estimate: Float64Array;
  variance: Float64Array;
}

/** Contributions of each node to what is known of the trips of dropped nodes. */
interface Unseen {
  most: Float64Array;
  unseen: Float64Array;
  doubt: Float64Array;
}

/** What is known of a sum of nodes below a node; see the module docstring of `node_sums.py`. */
interface NodeSum {
  factor: number;
  residual: number;
  estimate: number;
  most: number;
  unseen: number;
  doubt: number;
}

const NOTHING: NodeSum = { factor: 0, residual: 0, estimate: 0, most: 0, unseen: 0, doubt: 0 };

export class FittedTree {
  readonly nothingDropped: boolean;
  private readonly levels: Level[] = [];
  private readonly unseen: Unseen[];

  constructor(
    data: Data,
    private readonly tree: FlowTree,
    given: Header["fits"][number],
  ) {
    for (const [k, level] of given.levels.entries()) this.levels.push(this.measured(data, level, k));
    fit(
      this.levels,
      given.levels.map(({ below }) => below && [data.reals(below.estimate), data.reals(below.variance)]),
    );
    this.nothingDropped = given.nothingDropped;
    this.byNoise = given.byNoise;
    this.unseen = this.nothingDropped ? [] : this.levels.map(unseenTrips);
  }

  private readonly byNoise: boolean;

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

  /** A level with its nodes, which are the children of the divided nodes of the level above. */
  private measured(data: Data, given: LevelData, k: number): Level {
    const noisy = data.reals(given.noisy);
    const nodes = k === 0 ? root() : this.children(this.levels[k - 1]);
    const flags = given.divided && data.numbers(given.divided);
    const all = noisy.map((_, node) => node);
    const divided = Int32Array.from(flags ? all.filter((node) => flags[node] === 1) : all);
    const place = new Int32Array(noisy.length).fill(-1);
    divided.forEach((node, number) => (place[node] = number));
    const none = new Float64Array(0);
    return {
      pair: this.tree.levelPair(given.number),
      ...nodes,
      place,
      divided,
      noisy,
      noise: given.noise ?? Infinity,
      own: none,
      siblings: none,
      estimate: none,
      variance: none,
    };
  }

  /** The children of the divided nodes of a level. Levels that were not measured have one child a node. */
  private children(above: Level): Pick<Level, "origin" | "destination" | "offsets"> {
    const [from, to] = above.pair;
    const next = this.tree.levelPair(from + to + 1);
    const splitsOrigin = next[0] !== from;
    const firstChild = splitsOrigin ? this.tree.origin.firstChild[from] : this.tree.destination.firstChild[to];
    const split = splitsOrigin ? above.origin : above.destination;
    const offsets = new Int32Array(above.divided.length + 1);
    above.divided.forEach((node, p) => {
      offsets[p + 1] = offsets[p] + firstChild[split[node] + 1] - firstChild[split[node]];
    });
    const origin = new Int32Array(offsets[above.divided.length]);
    const destination = new Int32Array(origin.length);
    above.divided.forEach((node, p) => {
      for (let child = offsets[p], area = firstChild[split[node]]; child < offsets[p + 1]; child++, area++) {
        origin[child] = splitsOrigin ? area : above.origin[node];
        destination[child] = splitsOrigin ? above.destination[node] : area;
      }
    });
    return { origin, destination, offsets };
  }
}

function root(): Pick<Level, "origin" | "destination" | "offsets"> {
  return { origin: new Int32Array(1), destination: new Int32Array(1), offsets: new Int32Array(1) };
}

/** Compute the best estimate of every node and its variance; see `least_squares.py`. */
function fit(levels: Level[], known: (readonly [Float64Array, Float64Array] | null)[]): void {
  const z: Float64Array[] = [];
  const sums: Float64Array[] = [];
  for (let k = levels.length - 1; k >= 0; k--) {
    const level = levels[k];
    const below = known[k];
    if (below) {
      [z[k], level.own] = below;
    } else {
      z[k] = level.noisy.slice();
      level.own = new Float64Array(z[k].length).fill(level.noise);
      if (k + 1 < levels.length) combine(level, z[k], sums[k + 1], levels[k + 1].siblings);
    }
    sums[k] = runSums(z[k], level.offsets);
    level.siblings = runSums(level.own, level.offsets);
  }
  levels.forEach((level, k) => {
    if (k === 0) {
      [level.estimate, level.variance] = [z[0], level.own.slice()];
    } else {
      const above = levels[k - 1];
      level.estimate = new Float64Array(z[k].length);
      level.variance = new Float64Array(z[k].length);
      above.divided.forEach((node, p) => {
        const lacking = above.estimate[node] - sums[k][p];
        for (let child = level.offsets[p]; child < level.offsets[p + 1]; child++) {
          const own = level.own[child];
          const part = own / level.siblings[p];
          level.estimate[child] = z[k][child] + part * lacking;
          level.variance[child] = own - own * part + part * part * above.variance[node];
        }
      });
    }
    level.variance.forEach((variance, node) => (level.variance[node] = Math.max(variance, 0)));
  });
}

/** Combine the noisy values of a level with the sums over the children, in place. */
function combine(level: Level, z: Float64Array, sums: Float64Array, spread: Float64Array): void {
  level.divided.forEach((node, p) => {
    if (level.noise === Infinity) {
      [z[node], level.own[node]] = [sums[p], spread[p]];
    } else {
      z[node] += (level.noise / (level.noise + spread[p])) * (sums[p] - z[node]);
      level.own[node] = (level.noise * spread[p]) / (level.noise + spread[p]);
    }
  });
}

function runSums(values: Float64Array, offsets: Int32Array): Float64Array {
  const sums = new Float64Array(offsets.length - 1);
  for (let run = 0; run < sums.length; run++) {
    for (let i = offsets[run]; i < offsets[run + 1]; i++) sums[run] += values[i];
  }
  return sums;
}

/** What each node of a level says of the trips of dropped nodes; see `dropped_trips` in `node_sums.py`. */
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
