/** Draw areas and flows on a map, and let the reader choose areas on it. */

import { geoAzimuthalEqualArea, geoGraticule, geoPath, type GeoProjection } from "d3-geo";
import type { Change } from "./changes";
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomBehavior, type ZoomTransform } from "d3-zoom";

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
}

interface Events {
  chosen(area: number): void;
  surrounded(areas: number[]): void;
  pointed(circle: Circle | null): void;
}

export type Point = [x: number, y: number];

const LARGEST_RADIUS = 22;
const REACH = 12;
const LABELS = 10;

export class FlowMap {
  private scene: Scene = { places: new Float64Array(0), circles: [], lines: [] };
  private projection: GeoProjection = geoAzimuthalEqualArea();
  private transform: ZoomTransform = zoomIdentity;
  private readonly zooming: ZoomBehavior<HTMLCanvasElement, unknown>;
  private drawn: Point[] | null = null;
  private drawing = false;
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
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(scene: Scene): void {
    this.scene = scene;
    this.most = scene.circles.reduce((most, circle) => Math.max(most, extent(circle)), 1);
    this.draw();
  }

  /** Whether dragging draws around areas instead of moving the map. */
  set lasso(on: boolean) {
    this.drawing = on;
    this.canvas.style.cursor = on ? "crosshair" : "";
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
    if (this.view.length > 1) {
      this.projection.fitExtent(extent, { type: "MultiPoint", coordinates: this.view });
    } else {
      this.projection.translate([clientWidth / 2, clientHeight / 2]);
    }
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
    const context = this.canvas.getContext("2d");
    if (!context || !this.width) return;
    const colour = (name: string): string => this.colour(name);
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.drawGraticule(context, colour("line"));
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
      const radius = this.radius(circle);
      context.beginPath();
      context.arc(...point, radius, 0, 2 * Math.PI);
      context.globalAlpha = circle.selected ? 0.9 : circle.faint ? 0.25 : 0.6;
      const [size, less] = [extent(circle), (circle.change?.change ?? 0) < 0];
      context.fillStyle = colour(circle.selected ? "selected" : less ? "less" : size ? "flow" : "line");
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
      const width = context.measureText(circle.label).width;
      const free = taken.every(([left, middle, right]) => Math.abs(middle - y) > 15 || x > right || x + width < left);
      if (!extent(circle) || !free || x + width > this.width || x < 0 || y < 8 || y > this.height - 8) continue;
      taken.push([x, y, x + width]);
      context.lineWidth = 3;
      context.strokeStyle = paper;
      context.strokeText(circle.label, x, y);
      context.fillStyle = ink;
      context.fillText(circle.label, x, y);
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
    const circle = this.drawing || event.defaultPrevented ? null : this.circleAt([event.offsetX, event.offsetY]);
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

/** What the size of a circle shows: its change, or its trips. */
export function extent({ trips, change }: Circle): number {
  return Math.abs(change?.change ?? trips);
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
