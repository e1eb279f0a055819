/** Make what the map shows: all areas with the largest flows, or the flows of a selection. */

import { isFaint, reliability } from "./confidence";
import type { Direction, Flow } from "./flows";
import { extent, type Circle, type Line, type Scene } from "./map";
import type { Opened, Side } from "./messages";
import { otherSide, selectedSide, type State } from "./state";

/** Largest number of lines that the map draws: between all areas, and from or to one selected area. */
export const MOST_LINES = { ofAll: 15, ofSelection: 30 };

/** The area at the other end of a flow of the selection. */
export function partner(flow: Flow, direction: Direction): number {
  return direction === "from" ? flow.destination : flow.origin;
}

/** All areas of one side by their trips, and the largest of some flows, which are sorted. */
export function sceneOfAll(opened: Opened, { level, direction }: State, flows: Flow[]): Scene | null {
  const side = selectedSide(opened, direction);
  const circles = circlesOf(side, level, side.sizes[level]);
  const lines = flows.slice(0, MOST_LINES.ofAll).map((flow) => lineOf(flow.origin, flow.destination, flow));
  return makeScene(side, level, circles, opened.sameAreas ? lines : []);
}

/** The areas of the other side by their flows from or to the selection; the largest flows of one area are lines, too. */
export function sceneOfSelection(opened: Opened, { level, areas, direction }: State, flows: Flow[]): Scene | null {
  const side = otherSide(opened, direction);
  const circles = circlesOf(side, level, new Float64Array(side.codes[level].length));
  for (const flow of flows) {
    const { trips, interval, change } = flow;
    Object.assign(circles[partner(flow, direction)], { trips, interval, change, faint: isFaint(flow) });
  }
  if (!opened.sameAreas) return makeScene(side, level, circles, []);
  const drawn = areas.length === 1 ? flows.slice(0, MOST_LINES.ofSelection) : [];
  const lines = drawn.map((flow) => {
    const [from, to] = direction === "from" ? [areas[0], flow.destination] : [flow.origin, areas[0]];
    return lineOf(from, to, flow);
  });
  const largest = circles.reduce((most, circle) => Math.max(most, extent(circle)), 1);
  for (const area of areas) Object.assign(circles[area], { selected: true, trips: largest / 4 });
  return makeScene(side, level, circles, lines);
}

/** The scene with the boundaries of the level or, if it has none, of the finest coarser level; null without places. */
function makeScene(side: Side, level: number, circles: Circle[], lines: Line[]): Scene | null {
  const isBounded = (areas: Float32Array[][]): boolean => areas.some((rings) => rings.length > 0);
  const own = side.shapes?.[level];
  const shapes = own && isBounded(own) ? own : null;
  const base = shapes ? null : (side.shapes?.slice(0, level).findLast(isBounded)?.flat() ?? null);
  return side.places && { places: side.places[level], shapes, base, circles, lines };
}

/** A circle for each area of a level, with its trips and nothing else known. */
function circlesOf(side: Side, level: number, trips: Float64Array): Circle[] {
  return side.labels[level].map((label, area) => {
    return { area, label, trips: trips[area], selected: false, faint: false, interval: null };
  });
}

/** The line of a flow, whose width shows its change if releases are compared. */
function lineOf(from: number, to: number, flow: Flow): Line {
  const word = isFaint(flow) ? "may be none" : flow.change ? "solid" : reliability(flow.trips, flow.interval);
  return { from, to, trips: flow.change?.change ?? Math.max(0, flow.trips), word };
}
