/** Divide the map into the area with most trips and boxes for groups of areas far away from it. */

import { geoDistance } from "d3-geo";

import type { Side } from "./messages";

export type Point = [x: number, y: number];

/** What is in view at first. Places are longitudes and latitudes; distances are angles, in radians. */
export interface View {
  /** Places with most trips, and the boundaries near them. */
  main: Point[];
  centre: Point;
  /** Distance from the centre up to which a place is on the map itself. */
  reach: number;
  /** Zones that are further away but connected with the others or without trips, which have no box. */
  connected: Point[];
  /** Groups of zones far away. */
  boxes: { zones: Point[]; outline: Point[] }[];
}

/** Share of the trips whose zones are in view at first. */
const IN_VIEW = 0.97;
/** Largest distances between neighbours on the map and in a group far away, as shares of the reach. */
const LINK = 0.25;
const GROUP = 0.45;
const MOST_BOXES = 4;

/** What is in view at first of two sides; null if no place is known. */
export function viewOf(sides: Side[]): View | null {
  const main = sides.flatMap(centralPlaces);
  if (!main.length) return null;
  const centre = middle(main);
  const reach = 1.15 * Math.max(...main.map((place) => geoDistance(centre, place)));
  const trips = new Map(sides.flatMap(knownPlaces));
  const away = [...trips.keys()].filter((place) => geoDistance(centre, place) > reach);
  const near = [...trips.keys()].filter((place) => geoDistance(centre, place) <= reach);
  const connected = linked(near, away, LINK * reach);
  let groups: Point[][] = [];
  for (let link = GROUP * reach; !groups.length || groups.length > MOST_BOXES; link *= 2) {
    const left = new Set(away.filter((place) => !connected.includes(place)));
    groups = [];
    while (left.size) {
      const [first] = left;
      left.delete(first);
      const group = [first, ...linked([first], [...left], link)];
      group.forEach((place) => left.delete(place));
      groups.push(group);
    }
    if (!groups.length) break;
  }
  const boxed = groups.filter((zones) => zones.some((place) => trips.get(place)));
  connected.push(...groups.filter((zones) => !boxed.includes(zones)).flat());
  const view: View = { main, centre, reach, connected, boxes: boxed.map((zones) => ({ zones, outline: [...zones] })) };
  view.boxes.sort((one, two) => two.zones.length - one.zones.length);
  for (const ring of sides.flatMap(finestRings)) {
    const points = Array.from({ length: ring.length / 2 }, (_, k): Point => [ring[2 * k], ring[2 * k + 1]]);
    const frame = frameOf(view, points[0]);
    if (frame) view.boxes[frame - 1].outline.push(...points);
    else view.main.push(...points.filter((point) => geoDistance(centre, point) <= reach));
  }
  return view;
}

/** Number of the box that shows a place, from 1; 0 if it is on the map itself. */
export function frameOf({ centre, reach, connected, boxes }: View, place: Point): number {
  if (!boxes.length || geoDistance(centre, place) <= reach) return 0;
  const away = [connected, ...boxes.map(({ zones }) => zones)].map((zones) =>
    zones.reduce((least, zone) => Math.min(least, geoDistance(zone, place)), Infinity),
  );
  return away.indexOf(Math.min(...away));
}

/** Places that a chain of short distances connects with the first ones. */
function linked(from: Point[], others: Point[], link: number): Point[] {
  const [left, found, open] = [new Set(others), [] as Point[], [...from]];
  for (let place = open.pop(); place; place = open.pop()) {
    for (const other of left) {
      if (geoDistance(place, other) > link) continue;
      left.delete(other);
      found.push(other);
      open.push(other);
    }
  }
  return found;
}

/** The finest level with known places. */
function placedLevel({ places }: Side): number {
  return places ? places.findLastIndex((level) => level.some((degree) => !Number.isNaN(degree))) : -1;
}

/** The known places of that level, each with the trips of its area. */
function knownPlaces(side: Side): [Point, number][] {
  const level = placedLevel(side);
  const places = side.places?.[level];
  if (!places) return [];
  const all = [...side.sizes[level]].map((trips, area): [Point, number] => [[places[2 * area], places[2 * area + 1]], trips]);
  return all.filter(([[longitude]]) => !Number.isNaN(longitude));
}

/** Rings of the areas of the finest level with boundaries. */
function finestRings({ shapes }: Side): Float32Array[] {
  return shapes?.findLast((level) => level.some((rings) => rings.length))?.flat() ?? [];
}

/** Places near the middle, with most of a side's trips: a few places far away do not shrink the map. */
function centralPlaces(side: Side): Point[] {
  const level = placedLevel(side);
  const [zones, trips] = [side.places?.[level], side.sizes[level]];
  if (!zones || !trips) return [];
  const place = (zone: number): Point => [zones[2 * zone], zones[2 * zone + 1]];
  const weight = (zone: number): number => Math.max(0, trips[zone]) + 1;
  const known = [...trips.keys()].filter((zone) => !Number.isNaN(zones[2 * zone]));
  const centre = middle(known.map(place), known.map(weight));
  const away = new Map(known.map((zone) => [zone, geoDistance(centre, place(zone))]));
  known.sort((one, two) => away.get(one)! - away.get(two)!);
  let left = IN_VIEW * known.reduce((sum, zone) => sum + weight(zone), 0);
  const shown = known.filter((zone) => (left -= weight(zone)) + weight(zone) > 0);
  const apart = shown.some((zone) => away.get(zone) !== away.get(shown[0]));
  return (apart ? shown : known).map(place);
}

/** Weighted mean place of some places on the sphere, in degrees. */
function middle(places: Point[], weights?: number[]): Point {
  const radians = Math.PI / 180;
  let [x, y, z] = [0, 0, 0];
  places.forEach(([longitude, latitude], k) => {
    const weight = weights?.[k] ?? 1;
    x += weight * Math.cos(latitude * radians) * Math.cos(longitude * radians);
    y += weight * Math.cos(latitude * radians) * Math.sin(longitude * radians);
    z += weight * Math.sin(latitude * radians);
  });
  return [Math.atan2(y, x) / radians, Math.atan2(z, Math.hypot(x, y)) / radians];
}
