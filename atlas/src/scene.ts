/** Make what the map shows: all areas with the largest flows, or the flows of a selection. */

import { reliability } from "./confidence";
import type { Direction, Flow } from "./flows";
import { extent, type Circle, type Line, type Scene } from "./map";
import type { Opened, Side } from "./messages";
import { isFaint } from "./panel";
import { otherSide, selectedSide, type State } from "./state";

const LINES = 40;

/** The area at the other end of a flow of the selection. */
export function partner(flow: Flow, direction: Direction): number {
  return direction === "from" ? flow.destination : flow.origin;
}

/** All areas of one side by their trips, and the largest flows. */
export function sceneOfAll(opened: Opened, { level, direction }: State, flows: Flow[]): Scene | null {
  const side = selectedSide(opened, direction);
  const circles = circlesOf(side, level, side.sizes[level]);
  const lines = flows.map((flow) => lineOf(flow.origin, flow.destination, flow));
  return scene(side, level, circles, opened.sameAreas ? lines : []);
}

/** The areas of the other side by their flows from or to the selection. */
export function sceneOfSelection(opened: Opened, { level, areas, direction }: State, flows: Flow[]): Scene | null {
  const side = otherSide(opened, direction);
  const circles = circlesOf(side, level, new Float64Array(side.codes[level].length));
  for (const flow of flows) {
    const { trips, interval, change } = flow;
    Object.assign(circles[partner(flow, direction)], { trips, interval, change, faint: isFaint(flow) });
  }
  if (!opened.sameAreas) return scene(side, level, circles, []);
  const lines = flows.slice(0, areas.length === 1 ? LINES : 0).map((flow) => {
    const [from, to] = direction === "from" ? [areas[0], flow.destination] : [flow.origin, areas[0]];
    return lineOf(from, to, flow);
  });
  const largest = circles.reduce((most, circle) => Math.max(most, extent(circle)), 1);
  for (const area of areas) Object.assign(circles[area], { selected: true, trips: largest / 4 });
  return scene(side, level, circles, lines);
}

function scene(side: Side, level: number, circles: Circle[], lines: Line[]): Scene | null {
  const bounded = (areas: Float32Array[][]): boolean => areas.some((rings) => rings.length > 0);
  const own = side.shapes?.[level];
  const shapes = own && bounded(own) ? own : null;
  const base = shapes ? null : (side.shapes?.slice(0, level).findLast(bounded)?.flat() ?? null);
  return side.places && { places: side.places[level], shapes, base, circles, lines };
}

function circlesOf(side: Side, level: number, trips: Float64Array): Circle[] {
  return side.labels[level].map((label, area) => {
    return { area, label, trips: trips[area], selected: false, faint: false, interval: null };
  });
}

function lineOf(from: number, to: number, flow: Flow): Line {
  const word = isFaint(flow) ? "may be none" : flow.change ? "solid" : reliability(flow.trips, flow.interval);
  return { from, to, trips: flow.change?.change ?? Math.max(0, flow.trips), word };
}
