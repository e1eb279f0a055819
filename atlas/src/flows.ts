/** The released flows between areas, with their intervals. */

import { AreaTotals, addedAreas, type AreaEstimates } from "./area_totals";
import type { Change } from "./changes";
import { Data } from "./columns";
import {
  CHOSEN_BEFORE,
  DEVIATIONS,
  added,
  bounds,
  likely,
  meanBounds,
  shareBounds,
  type Estimate,
  type Likely,
  type Selection,
} from "./confidence";
import { Distances, type Band } from "./distances";
import { FittedTree, FlowTree } from "./fitted_tree";
import { Geography } from "./geography";
import { Pairs } from "./pairs";
import { Segments, type Category, type Part } from "./segments";

/** Trips, and the ends of their 90 % interval if the release has intervals. */
export interface Trips {
  trips: number;
  interval: [lower: number, upper: number] | null;
  /** Since an earlier release, if the reader compares with one. */
  change?: Change;
  /** Of totals, the side on which the true number probably is; null if nothing says so. */
  likely?: Likely | null;
}

export interface Share {
  share: number | null;
  interval: [lower: number, upper: number] | null;
}

/** Trips that begin or end in a selection of areas. */
export interface Totals {
  outflow: Trips;
  inflow: Trips;
  within: Trips;
  selfContainment: Share;
  /** Kilometres of the trips that begin in the selection and whose distance is known; null if the page has none. */
  meanDistance: Mean | null;
}

export interface Mean {
  mean: number | null;
  interval: [lower: number, upper: number] | null;
}

/** A flow between two areas. The selection, as one of them, is -1. */
export interface Flow extends Trips {
  origin: number;
  destination: number;
}

/** Trips by the categories of a breakdown. */
export interface Categories {
  name: string;
  rows: ({ category: string } & Trips)[];
}

export type Direction = "from" | "to";

/** Areas of a level, by number. */
export interface Areas {
  level: number;
  areas: number[];
}

export class Flows {
  readonly tree: FlowTree;
  /** Whether trips within areas exist: whether origins and destinations have the same areas. */
  readonly sameAreas: boolean;
  private readonly fits: FittedTree[];
  private readonly areaTotals: AreaTotals[];
  private readonly leaves: Pairs;
  private readonly distances: Distances | null;
  private readonly segments: Segments | null;
  /** The category whose trips alone are shown; null for all trips. */
  private category: Category | null = null;

  constructor(readonly data: Data) {
    const { header } = data;
    const origin = new Geography(data, header.origin);
    this.sameAreas = header.destination === null;
    const destination = header.destination ? new Geography(data, header.destination) : origin;
    this.tree = new FlowTree(origin, destination, header.order);
    this.fits = header.fits.map((given) => new FittedTree(data, this.tree, given));
    this.areaTotals = header.fits.map((given, k) => new AreaTotals(data, this.fits[k], given.totals));
    this.leaves = new Pairs(data, header.leaves);
    this.distances = header.distances && new Distances(data, header.distances);
    this.segments = header.segments && new Segments(data, this.fits, header.segments, this.leaves);
  }

  /** Show the trips of one category alone, or of all. Throws an error if this page has no such category. */
  choose(part: Part | null): void {
    this.category = part && (this.segments?.category(part) ?? null);
    if (part && !this.category) throw new Error("The other page does not have this category.");
  }

  /** Trips from some areas to others: a row of the tables if both are one area, otherwise `ReleasedFlows.trips_between`. */
  between(origins: Areas, destinations: Areas): Trips {
    const selection = this.selection(origins, destinations);
    return this.betweenZones(this.originZones(origins), this.destinationZones(destinations), selection);
  }

  /** Trips from and to some areas of both sides, taken together as one area. */
  totals(selected: Areas): Totals {
    const inside = this.originZones(selected);
    const outside = inside.map((isInside) => 1 - isInside);
    const everywhere = new Uint8Array(inside.length).fill(1);
    const [here, elsewhere, all] = [inside, outside, everywhere].map((mask) => this.tree.origin.parts(mask));
    const estimates = this.areaEstimates(here, elsewhere, all);
    const outflow = this.marked(0, this.sum(inside, outside), estimates && estimates.outflow);
    const inflow = this.marked(1, this.sum(outside, inside), estimates && estimates.inflow);
    const own = this.selection(selected, selected);
    const within = this.withInterval(this.sum(inside, inside), estimates && this.estimate(here, here), own); // as that flow
    const begun = within.trips + outflow.trips;
    const share = begun > 0 && !this.category ? Math.round(1e6 * Math.min(Math.max(within.trips / begun, 0), 1)) / 1e6 : null;
    const selfContainment: Share = { share, interval: null };
    if (estimates && !this.category) {
      const nothingDropped = this.fits.every((fit) => fit.nothingDropped);
      const [lower, upper] = shareBounds(estimates.within, estimates.begun, estimates.outflow, nothingDropped);
      selfContainment.interval = [Math.min(lower, share ?? 1), Math.max(upper, share ?? 0)];
    }
    return { outflow, inflow, within, meanDistance: this.meanDistance(inside, here, all), selfContainment };
  }

  /** Estimates of selected areas, given how much of each area is selected, not selected, and all; null without intervals. */
  private areaEstimates(here: Uint8Array[], elsewhere: Uint8Array[], all: Uint8Array[]): AreaEstimates | null {
    if (!this.category && !this.fits.length) return null;
    if (!this.category) return this.areaTotals.map((each) => each.ofAreas(here, elsewhere, all)).reduce(addedAreas);
    const [within, outflow] = [this.estimate(here, here), this.estimate(here, elsewhere)];
    const [inflow, begun] = [this.estimate(elsewhere, here), this.estimate(here, all)];
    return within && outflow && inflow && begun && { within, outflow, inflow, begun };
  }

  /** Mean distance of the trips from some zones; `here` and `all` are how much of each area is selected, and all of it. */
  private meanDistance(inside: Uint8Array, here: Uint8Array[], all: Uint8Array[]): Mean | null {
    const { distances } = this;
    if (!distances || distances.farthest === null || this.category) return null;
    let trips = 0;
    let metres = 0;
    this.leaves.each(inside, null, (origin, destination, leaf) => {
      const distance = distances.kilometres(origin, destination);
      if (Number.isNaN(distance)) return;
      trips += this.leaves.trips[leaf];
      metres += Math.round(1000 * distance) * this.leaves.trips[leaf];
    });
    const mean = trips > 0 ? Math.round(Math.max(metres / trips, 0)) / 1000 : null;
    if (!this.fits.length) return { mean, interval: null };
    const [scale, most] = [Math.max(distances.farthest / 10, 1), distances.farthest];
    const each = this.fits.map((fit) => fit.sumOfDistances(here, all, distances, scale));
    const [known, total, mixed] = [0, 1, 2].map((k) => each.map((sums) => sums[k]).reduce(added));
    const [lower, upper] = meanBounds(known, total, mixed, scale, most);
    return { mean, interval: [Math.min(lower, mean ?? lower), Math.max(upper, mean ?? upper)] };
  }

  /** Trips between the selected areas and each area of a level on the other side, largest first.
   *
   * Flows to the selected areas themselves are left out. Only the first `most` flows have intervals.
   */
  partners(selected: Areas, direction: Direction, level: number, most: number): Flow[] {
    const { origin, destination } = this.tree;
    const inside = direction === "from" ? this.originZones(selected) : this.destinationZones(selected);
    const other = direction === "from" ? destination : origin;
    const trips = new Float64Array(other.size(level));
    const areaOf = other.zoneAreas(level);
    this.each((from, to, count) => {
      const [chosen, partner] = direction === "from" ? [from, to] : [to, from];
      if (inside[chosen]) trips[areaOf[partner]] += count;
    });
    const own = this.sameAreas ? new Set(this.areasOf(inside, level)) : new Set<number>();
    const selection = (direction === "from" ? origin : destination).parts(inside);
    const found = [...trips.keys()].filter((area) => trips[area] !== 0 && !own.has(area));
    found.sort((one, two) => trips[two] - trips[one] || one - two);
    return found.map((area, rank) => {
      const ends = direction === "from" ? { origin: -1, destination: area } : { origin: area, destination: -1 };
      if (rank >= most) return { ...ends, trips: trips[area], interval: null };
      const partner = other.parts(other.zonesIn(level, [area]));
      const estimate = direction === "from" ? this.estimate(selection, partner) : this.estimate(partner, selection);
      const one = { level, areas: [area] };
      const own = direction === "from" ? this.selection(selected, one) : this.selection(one, selected);
      return { ...ends, ...this.withInterval(trips[area], estimate, own) };
    });
  }

  /** The `most` largest flows between different areas of a level of both sides. Only the first `known` have intervals. */
  largest(level: number, most: number, known = most): Flow[] {
    const { origin, destination } = this.tree;
    const [from, to, width] = [origin.zoneAreas(level), destination.zoneAreas(level), destination.size(level)];
    const trips = new Map<number, number>();
    this.each((o, d, count) => {
      if (this.sameAreas && from[o] === to[d]) return;
      const pair = from[o] * width + to[d];
      trips.set(pair, (trips.get(pair) ?? 0) + count);
    });
    const pairs = [...trips].filter(([, count]) => count).sort((one, two) => two[1] - one[1] || one[0] - two[0]).slice(0, most);
    return pairs.map(([pair, count], rank) => {
      const [o, d] = [Math.floor(pair / width), pair % width];
      if (rank >= known) return { origin: o, destination: d, trips: count, interval: null };
      const [one, other] = [origin.zonesIn(level, [o]), destination.zonesIn(level, [d])];
      const estimate = this.estimate(origin.parts(one), destination.parts(other));
      const selection = this.selection({ level, areas: [o] }, { level, areas: [d] });
      return { origin: o, destination: d, ...this.withInterval(count, estimate, selection) };
    });
  }

  /** The same by category; null if the page does not have the categories of these areas. */
  categories(origins: Areas, destinations: Areas): Categories[] | null {
    const from = this.tree.origin.parts(this.originZones(origins));
    const to = this.tree.destination.parts(this.destinationZones(destinations));
    const found = this.segments?.between(from, to);
    if (!found) return null;
    return found.map(({ name, categories, trips, estimates, selection }) => {
      const own = this.selection(origins, destinations, selection);
      const row = (k: number): Trips => this.withInterval(trips[k], estimates && estimates[k], own);
      return { name, rows: categories.map((category, k) => ({ category, ...row(k) })) };
    });
  }

  /** Trips from some areas to others by bands of their distance; null if the page has no distances. */
  byDistance(origins: Areas, destinations: Areas): (Band & Trips)[] | null {
    const { distances } = this;
    if (!distances) return null;
    const [from, to] = [this.originZones(origins), this.destinationZones(destinations)];
    const trips = distances.bands.map(() => 0);
    this.leaves.each(from, to, (origin, destination, leaf) => {
      trips[distances.band(origin, destination)] += this.leaves.trips[leaf];
    });
    const parts = [this.tree.origin.parts(from), this.tree.destination.parts(to)];
    const each = this.fits.map((fit) => fit.sumByBand(parts[0], parts[1], distances));
    return distances.bands.map((band, k) => {
      const estimate = each.length ? each.map((estimates) => estimates[k]).reduce(added) : null;
      return { ...band, ...this.withInterval(trips[k], estimate) };
    });
  }

  /** Trips that begin and that end in each area of a level. */
  sizes(level: number): { begun: Float64Array; ended: Float64Array } {
    const { origin, destination } = this.tree;
    const [from, to] = [origin.zoneAreas(level), destination.zoneAreas(level)];
    const [begun, ended] = [new Float64Array(origin.size(level)), new Float64Array(destination.size(level))];
    this.each((o, d, count) => {
      begun[from[o]] += count;
      ended[to[d]] += count;
    });
    return { begun, ended };
  }

  /** Whether another release has the same areas. */
  hasAreasOf(other: Flows): boolean {
    const areas = ({ origin, destination }: FlowTree): string =>
      JSON.stringify([origin, destination].map(({ levels, codes, parents }) => [levels, codes, parents.map((level) => [...level])]));
    return areas(this.tree) === areas(other.tree);
  }

  /** Visit the trips between zones that are shown; those of a category begin and end in the first zone of an area. */
  private each(visit: (origin: number, destination: number, trips: number) => void): void {
    const { leaves, category } = this;
    if (!category) return leaves.each(null, null, (origin, destination, leaf) => visit(origin, destination, leaves.trips[leaf]));
    const { depth, pairs, trips } = category;
    const [from, to] = [this.tree.origin, this.tree.destination].map((side) => firstZones(side.zoneAreas(depth)));
    pairs.each(null, null, (origin, destination, pair) => visit(from[origin], to[destination], trips[pair]));
  }

  /** The areas of a level with selected zones, once for each of them. */
  private areasOf(zones: Uint8Array, level: number): number[] {
    const areaOf = this.tree.origin.zoneAreas(level);
    return [...zones.keys()].filter((zone) => zones[zone]).map((zone) => areaOf[zone]);
  }

  /** A mask of the zones in some areas of the origins. */
  private originZones({ level, areas }: Areas): Uint8Array {
    return this.tree.origin.zonesIn(level, areas);
  }

  /** A mask of the zones in some areas of the destinations. */
  private destinationZones({ level, areas }: Areas): Uint8Array {
    return this.tree.destination.zonesIn(level, areas);
  }

  /** Trips from some zones to others, given a mask of each. */
  private betweenZones(origins: Uint8Array, destinations: Uint8Array, selection?: Selection): Trips {
    const [from, to] = [this.tree.origin.parts(origins), this.tree.destination.parts(destinations)];
    return this.withInterval(this.sum(origins, destinations), this.estimate(from, to), selection);
  }

  /** The selection of the trips from one area to another, whose intervals the tables have, too. Areas that a reader takes
   * together were not chosen by their trips. */
  selection(origins: Areas, destinations: Areas, given = (this.category ?? this.data.header).selection): Selection {
    if (!given || origins.areas.length !== 1 || destinations.areas.length !== 1) return CHOSEN_BEFORE;
    const at = (of: number[][]): number => of[origins.level][destinations.level];
    return { deviations: at(given.deviations), leastListed: at(given.leastListed), changes: at(given.changes) };
  }

  /** Released trips from some zones to others. */
  private sum(origins: Uint8Array, destinations: Uint8Array): number {
    let trips = 0;
    if (this.category) {
      this.each((from, to, count) => {
        if (origins[from] && destinations[to]) trips += count;
      });
    } else {
      this.leaves.each(origins, destinations, (_origin, _destination, leaf) => (trips += this.leaves.trips[leaf]));
    }
    return trips;
  }

  /** Trips with the interval of their estimate, which is widened to contain them. */
  private withInterval(trips: number, estimate: Estimate | null, selection = CHOSEN_BEFORE): Trips {
    if (!estimate) return { trips, interval: null };
    const deviations = trips > 0 ? selection.deviations : DEVIATIONS;
    const [lower, upper] = bounds(estimate, deviations, trips >= selection.leastListed);
    return { trips, interval: [Math.min(lower, trips), Math.max(upper, trips)] };
  }

  /** The total of one side (0 for origins) with its interval and, if such totals were not measured, its likely side. */
  private marked(side: 0 | 1, trips: number, estimate: Estimate | null): Trips {
    const isMarked = !this.category && estimate && !this.data.header.measured?.[side];
    return { ...this.withInterval(trips, estimate), likely: isMarked ? likely(trips, estimate) : null };
  }

  /** The estimate of the trips between zones, given how much of each area is selected; null without intervals. */
  private estimate(from: Uint8Array[], to: Uint8Array[]): Estimate | null {
    if (this.category) return this.category.estimate(from, to);
    if (!this.fits.length) return null;
    return this.areaTotals.map((each) => each.sumBetween(from, to)).reduce(added);
  }
}

/** The first zone of each area, given the area of each zone. */
function firstZones(areas: ArrayLike<number>): number[] {
  const first: number[] = [];
  for (let zone = areas.length - 1; zone >= 0; zone--) first[areas[zone]] = zone;
  return first;
}
