/** Draw areas and flows on a map, and let the reader choose areas on it. */

import { geoAzimuthalEqualArea, geoGraticule, geoPath, type GeoProjection } from "d3-geo";
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomBehavior, type ZoomTransform } from "d3-zoom";

import type { Change } from "./changes";
import { isolated } from "./dom";

/** An area on the map. */
export interface Circle {
  area: number;
  label: string;
  trips: number;
  selected: boolean;
  /** Whether the trips may be 0. */
  faint: boolean;
  interval: [lower: number, upper: number] | null;
  /** Since another release, if the reader compares with one; its size is drawn instead of the trips. */
  change?: Change;
}

/** A flow between two areas on the map. */
export interface Line {
  from: number;
  to: number;
  trips: number;
  faint: boolean;
}

export interface Scene {
  /** Longitude and latitude of each area of the level. */
  places: Float64Array;
  circles: Circle[];
  lines: Line[];
  /** Rings of each area of the level; null if there are no boundaries. */
  shapes: Float32Array[][] | null;
}

interface Events {
  chosen(area: number): void;
  surrounded(areas: number[]): void;
  pointed(circle: Circle | null): void;
}

export type Point = [x: number, y: number];

const LARGEST_RADIUS = 22;
const REACH = 12;
const COLOURS = ["ink", "paper", "line", "flow", "less", "selected"];
/** Largest scale to which the map zooms by itself. */
const FOCUS = 24;
const LABELS = 10;

export class FlowMap {
  private scene: Scene = { places: new Float64Array(0), circles: [], lines: [], shapes: null };
  /** Boundaries of the areas before the map is moved or zoomed. */
  private paths: Path2D[] = [];
  private projection: GeoProjection = geoAzimuthalEqualArea();
  private transform: ZoomTransform = zoomIdentity;
  private readonly zooming: ZoomBehavior<HTMLCanvasElement, unknown>;
  private drawn: Point[] | null = null;
  private drawing = false;
  /** Whether the next click only ends a drawn line. */
  private ended = false;
  private frame = 0;
  /** Largest extent of a circle. */
  private most = 1;
  private width = 0;
  private height = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    /** Places that the map has in view at first: longitude and latitude. */
    private readonly view: Point[],
    private readonly events: Events,
  ) {
    this.zooming = zoom<HTMLCanvasElement, unknown>()
      .scaleExtent([0.2, 200])
      .filter((event: MouseEvent) => !this.drawing && !event.button && !event.ctrlKey)
      .on("zoom", ({ transform }: { transform: ZoomTransform }) => {
        this.transform = transform;
        this.draw();
      });
    select(canvas).call(this.zooming).on("dblclick.zoom", null);
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => this.end());
    canvas.addEventListener("pointercancel", () => {
      this.drawn = null;
      this.draw();
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    matchMedia("print").addEventListener("change", () => this.paint());
  }

  show(scene: Scene): void {
    this.scene = scene;
    this.most = scene.circles.reduce((most, circle) => Math.max(most, extent(circle)), 1);
    this.paths = this.outlines();
    this.draw();
  }

  /** Whether dragging draws around areas instead of moving the map. */
  set lasso(on: boolean) {
    this.drawing = on;
    this.canvas.style.cursor = on ? "crosshair" : "";
  }

  /** Move and zoom so that some areas fill the map; they need not have been shown yet. */
  focus(places: Float64Array, areas: number[]): void {
    const points = areas
      .filter((area) => !Number.isNaN(places[2 * area]))
      .map((area) => this.projection([places[2 * area], places[2 * area + 1]]))
      .filter((point) => point !== null);
    if (!points.length || !this.width) return;
    const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = 0.8 * Math.min(this.width / (right - left + 1), this.height / (bottom - top + 1));
    const k = Math.max(1, Math.min(scale, FOCUS));
    const [x, y] = [this.width / 2 - (k * (left + right)) / 2, this.height / 2 - (k * (top + bottom)) / 2];
    this.zooming.transform(select(this.canvas), zoomIdentity.translate(x, y).scale(k));
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.canvas;
    [this.width, this.height] = [clientWidth, clientHeight];
    this.canvas.width = clientWidth * devicePixelRatio;
    this.canvas.height = clientHeight * devicePixelRatio;
    const margin = Math.min(40, clientWidth / 10, clientHeight / 10);
    const extent: [Point, Point] = [
      [margin, margin],
      [Math.max(clientWidth - margin, margin + 1), Math.max(clientHeight - margin, margin + 1)],
    ];
    const [longitude, latitude] = middle(this.view);
    this.projection = geoAzimuthalEqualArea().rotate([-longitude, -latitude]);
    const [first] = this.view;
    if (this.view.some((place) => place[0] !== first[0] || place[1] !== first[1])) {
      this.projection.fitExtent(extent, { type: "MultiPoint", coordinates: this.view });
    } else {
      this.projection.translate([clientWidth / 2, clientHeight / 2]);
    }
    this.paths = this.outlines();
    this.draw();
  }

  /** Place of an area in CSS pixels, or null if it is unknown. */
  private place(area: number): Point | null {
    const longitude = this.scene.places[2 * area];
    if (Number.isNaN(longitude)) return null;
    const point = this.projection([longitude, this.scene.places[2 * area + 1]]);
    return point && this.transform.apply(point);
  }

  private draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    const context = this.canvas.getContext("2d");
    if (!context || !this.width) return;
    const colours = new Map(COLOURS.map((name) => [name, this.colour(name)]));
    const colour = (name: string): string => colours.get(name) ?? "";
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.drawGraticule(context, colour("line"));
    if (this.scene.shapes) this.drawShapes(context, colour);
    const mostOfLines = Math.max(1, ...this.scene.lines.map((line) => Math.abs(line.trips)));
    context.lineCap = "round";
    for (const line of [...this.scene.lines].reverse()) {
      const [from, to] = [this.place(line.from), this.place(line.to)];
      if (!from || !to) continue;
      context.globalAlpha = line.faint ? 0.25 : 0.55;
      context.strokeStyle = colour(line.trips < 0 ? "less" : "flow");
      context.lineWidth = 0.5 + (5 * Math.abs(line.trips)) / mostOfLines;
      context.beginPath();
      context.moveTo(...from);
      const [x, y] = [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2];
      context.quadraticCurveTo(x - 0.12 * (to[1] - from[1]), y + 0.12 * (to[0] - from[0]), ...to);
      context.stroke();
    }
    context.globalAlpha = 1;
    const labelled: { circle: Circle; point: Point; radius: number }[] = [];
    for (const circle of this.bySize()) {
      const point = this.place(circle.area);
      if (!point) continue;
      if (this.scene.shapes) {
        labelled.push({ circle, point, radius: 0 });
        continue;
      }
      const radius = this.radius(circle);
      context.beginPath();
      context.arc(...point, radius, 0, 2 * Math.PI);
      context.globalAlpha = circle.selected ? 0.9 : circle.faint ? 0.25 : 0.6;
      context.fillStyle = colour(fillOf(circle));
      context.fill();
      context.globalAlpha = 1;
      context.lineWidth = circle.selected ? 2 : 0.75;
      context.strokeStyle = colour(circle.selected ? "ink" : "paper");
      context.stroke();
      labelled.push({ circle, point, radius });
    }
    this.drawLabels(context, labelled, colour("ink"), colour("paper"));
    if (this.drawn) {
      context.beginPath();
      for (const point of this.drawn) context.lineTo(...point);
      context.closePath();
      context.lineWidth = 2;
      context.strokeStyle = colour("selected");
      context.stroke();
    }
  }

  /** Colour of a name in the styles, light or dark as the reader prefers. */
  private colour(name: string): string {
    this.canvas.style.color = `var(--${name})`;
    return getComputedStyle(this.canvas).color;
  }

  private drawGraticule(context: CanvasRenderingContext2D, colour: string): void {
    const { k, x, y } = this.transform;
    context.save();
    context.translate(x, y);
    context.scale(k, k);
    context.beginPath();
    geoPath(this.projection, context)(geoGraticule().step([10, 10])());
    context.restore();
    context.globalAlpha = 0.5;
    context.lineWidth = 0.5;
    context.strokeStyle = colour;
    context.stroke();
    context.globalAlpha = 1;
  }

  /** Draw the areas by their boundaries: the more trips, the darker. */
  private drawShapes(context: CanvasRenderingContext2D, colour: (name: string) => string): void {
    const { k, x, y } = this.transform;
    context.save();
    context.translate(x, y);
    context.scale(k, k);
    context.lineWidth = 0.5 / k;
    for (const circle of this.scene.circles) {
      const share = Math.sqrt(extent(circle) / this.most);
      context.globalAlpha = circle.selected ? 0.9 : extent(circle) ? (0.12 + 0.8 * share) * (circle.faint ? 0.4 : 1) : 0.15;
      context.fillStyle = colour(fillOf(circle));
      context.fill(this.paths[circle.area], "evenodd");
      context.globalAlpha = 1;
      context.strokeStyle = colour("line");
      context.stroke(this.paths[circle.area]);
    }
    context.restore();
  }

  private outlines(): Path2D[] {
    if (!this.scene.shapes || !this.width) return [];
    return this.scene.shapes.map((rings) => {
      const path = new Path2D();
      for (const ring of rings) {
        for (let k = 0; k < ring.length; k += 2) {
          const point = this.projection([ring[k], ring[k + 1]]);
          if (point) path[k ? "lineTo" : "moveTo"](...point);
        }
        path.closePath();
      }
      return path;
    });
  }

  /** Write the labels of the selected areas and of the largest, without overlaps. */
  private drawLabels(
    context: CanvasRenderingContext2D,
    circles: { circle: Circle; point: Point; radius: number }[],
    ink: string,
    paper: string,
  ): void {
    context.font = "600 12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const order = [...circles].sort((one, two) => Number(two.circle.selected) - Number(one.circle.selected));
    const taken: [number, number, number][] = [];
    for (const { circle, point, radius } of order) {
      const [x, y] = [point[0] + radius + 4, point[1]];
      const label = isolated(circle.label);
      const width = context.measureText(label).width;
      const free = taken.every(([left, middle, right]) => Math.abs(middle - y) > 15 || x > right || x + width < left);
      if (!extent(circle) || !free || x + width > this.width || x < 0 || y < 8 || y > this.height - 8) continue;
      taken.push([x, y, x + width]);
      context.lineWidth = 3;
      context.strokeStyle = paper;
      context.strokeText(label, x, y);
      context.fillStyle = ink;
      context.fillText(label, x, y);
      if (taken.length === LABELS) return;
    }
  }

  private bySize(): Circle[] {
    return [...this.scene.circles].sort((one, two) => extent(two) - extent(one));
  }

  private radius(circle: Circle): number {
    return 2 + (LARGEST_RADIUS - 2) * Math.sqrt(extent(circle) / this.most);
  }

  /** The smallest circle at a point, or the nearest one within reach. */
  private circleAt(at: Point): Circle | null {
    const context = this.canvas.getContext("2d");
    if (this.scene.shapes && context) {
      const [x, y] = this.transform.invert(at);
      context.setTransform(1, 0, 0, 1, 0, 0);
      const found = this.scene.circles.find(({ area }) => context.isPointInPath(this.paths[area], x, y, "evenodd"));
      if (found) return found;
    }
    let [nearest, least] = [null as Circle | null, Infinity];
    for (const circle of this.scene.circles) {
      const point = this.place(circle.area);
      if (!point) continue;
      const distance = Math.hypot(point[0] - at[0], point[1] - at[1]);
      const [inside, radius] = [distance <= this.radius(circle), this.radius(circle)];
      const rank = inside ? radius : distance <= REACH ? LARGEST_RADIUS + distance : Infinity;
      if (rank < least) [nearest, least] = [circle, rank];
    }
    return nearest;
  }

  private click(event: MouseEvent): void {
    const ends = this.drawing || this.ended || event.defaultPrevented;
    this.ended = false;
    const circle = ends ? null : this.circleAt([event.offsetX, event.offsetY]);
    if (circle) this.events.chosen(circle.area);
  }

  private begin(event: PointerEvent): void {
    if (!this.drawing) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drawn = [[event.offsetX, event.offsetY]];
  }

  private move(event: PointerEvent): void {
    if (this.drawn) {
      this.drawn.push([event.offsetX, event.offsetY]);
      this.draw();
    } else {
      this.events.pointed(this.circleAt([event.offsetX, event.offsetY]));
    }
  }

  private end(): void {
    if (!this.drawn) return;
    const around = this.drawn;
    this.drawn = null;
    this.ended = true;
    setTimeout(() => (this.ended = false));
    const inside = this.scene.circles.filter(({ area }) => {
      const point = this.place(area);
      return point && contains(around, point);
    });
    this.draw();
    this.events.surrounded(inside.map(({ area }) => area));
  }

  private key(event: KeyboardEvent): void {
    const step = 60 / this.transform.k;
    const moves: Record<string, Point> = {
      ArrowLeft: [step, 0],
      ArrowRight: [-step, 0],
      ArrowUp: [0, step],
      ArrowDown: [0, -step],
    };
    const target = select(this.canvas);
    if (moves[event.key]) this.zooming.translateBy(target, ...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zooming.scaleBy(target, 1.5);
    else if (event.key === "-") this.zooming.scaleBy(target, 1 / 1.5);
    else if (event.key === "0") this.zooming.transform(target, zoomIdentity);
    else return;
    event.preventDefault();
  }
}

/** Name of the colour of an area. */
function fillOf(circle: Circle): string {
  if (circle.selected) return "selected";
  if ((circle.change?.change ?? 0) < 0) return "less";
  return extent(circle) ? "flow" : "line";
}

/** What the size of a circle shows: its change, or its trips. */
export function extent({ trips, change }: Circle): number {
  return change ? Math.abs(change.change) : Math.max(0, trips);
}

/** Weighted mean place of some places on the sphere, in degrees. */
export function middle(places: Point[], weights?: number[]): Point {
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

/** Whether a point lies in a polygon: whether a ray from it crosses an odd number of sides. */
function contains(polygon: Point[], [x, y]: Point): boolean {
  let inside = false;
  for (let k = 0, last = polygon.length - 1; k < polygon.length; last = k++) {
    const [[x1, y1], [x2, y2]] = [polygon[k], polygon[last]];
    if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) inside = !inside;
  }
  return inside;
}
