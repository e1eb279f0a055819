/** Draw areas and flows on a map: widths of lines, sizes of circles, labels and key. The reader chooses areas on it. */

import { counted } from "./nouns";
import { geoAzimuthalEqualArea, geoGraticule, geoPath, type GeoProjection } from "d3-geo";
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomBehavior, type ZoomTransform } from "d3-zoom";

import { isPerDay, type Change } from "./changes";
import type { Reliability } from "./confidence";
import { byId, isolated, make, number } from "./dom";
import { frameOf, type Point, type View } from "./frames";
import { outlined, striped, type Pen } from "./pen";

/** An area on the map. */
export interface Circle {
  area: number;
  label: string;
  trips: number;
  selected: boolean;
  /** Whether the trips may be none or, if the reader compares, may not have changed. */
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
  /** Of changes, "solid" or "may be none". */
  word: Reliability;
}

export interface Scene {
  /** Longitude and latitude of each area of the level. */
  places: Float64Array;
  circles: Circle[];
  lines: Line[];
  /** Rings of each area of the level; null if it has no boundaries. */
  shapes: Float32Array[][] | null;
  /** Without them, the rings of the finest coarser level with boundaries, below the circles. */
  base: Float32Array[] | null;
}

interface Events {
  chosen(area: number): void;
  surrounded(areas: number[]): void;
  pointed(circle: Circle | null): void;
}

/** The map itself, or a box for places far away, with its place on the map. */
interface Frame {
  projection: GeoProjection;
  box: [left: number, top: number, width: number, height: number] | null;
}

/** Outlines in each frame, before the map is moved or zoomed. */
type Outline = Path2D[];

/** Radii of circles in pixels. */
const LARGEST_RADIUS = 22;
const LEAST_RADIUS = 2.5;
/** Widths of lines in pixels. */
const WIDEST = 7;
const THINNEST = 0.4;
/** Pixels from a circle within which a click still chooses it. */
const REACH = 12;
/** Names of colours in the styles. */
const COLOURS = ["ink", "paper", "raised", "muted", "line", "border", "flow", "route", "less", "selected"];
/** Pixels of the dashes and gaps of lines, by what their intervals say. */
const DASHES: Record<Reliability, number[]> = { solid: [], rough: [9, 3], "may be none": [2, 4], "": [] };
/** Largest scale to which the map zooms by itself. */
const FOCUS = 24;
/** Pixels of the map for each label, and the most and the fewest labels. */
const PER_LABEL = 24_000;
const LABELS = [8, 30];

export class FlowMap {
  private scene: Scene = { places: new Float64Array(0), circles: [], lines: [], shapes: null, base: null };
  private paths: Outline[] = [];
  private base: Outline = [];
  /** The map itself is the first; the boxes are those of the view. */
  private frames: Frame[] = [{ projection: geoAzimuthalEqualArea(), box: null }];
  private transform: ZoomTransform = zoomIdentity;
  private readonly zooming: ZoomBehavior<HTMLCanvasElement, unknown>;
  private drawn: Point[] | null = null;
  private drawing = false;
  /** Whether the next click only ends a drawn line. */
  private ended = false;
  private frame = 0;
  /** Largest extent of a circle. */
  private most = 1;
  private mostOfLines = 1;
  /** By colour. */
  private readonly stripes = new Map<string, CanvasPattern>();
  private width = 0;
  private height = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly view: View,
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

  /** Show another scene in the same view. */
  show(scene: Scene): void {
    this.scene = scene;
    this.most = scene.circles.reduce((most, circle) => Math.max(most, extent(circle)), 1);
    this.outline();
    this.showKey();
    this.draw();
  }

  /** Number of flows that are lines. */
  get lineCount(): number {
    return this.scene.lines.length;
  }

  /** Whether dragging draws around areas instead of moving the map. */
  set lasso(on: boolean) {
    this.drawing = on;
    this.canvas.style.cursor = on ? "crosshair" : "";
  }

  /** Move and zoom so that some areas fill the map; they need not have been shown yet. */
  focus(places: Float64Array, areas: number[]): void {
    if (!this.width) this.resize(); // the observer may not have been told of the size yet
    const points = areas
      .map((area): Point => [places[2 * area], places[2 * area + 1]])
      .filter((place) => !Number.isNaN(place[0]) && !frameOf(this.view, place))
      .map((place) => this.frames[0].projection(place))
      .filter((point) => point !== null);
    if (!points.length || !this.width) return;
    const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = 0.8 * Math.min(this.width / (right - left + 1), this.height / (bottom - top + 1));
    const k = Math.min(scale, FOCUS);
    const [x, y] = [this.width / 2 - (k * (left + right)) / 2, this.height / 2 - (k * (top + bottom)) / 2];
    this.zooming.transform(select(this.canvas), zoomIdentity.translate(x, y).scale(k));
  }

  /** Fit the map and its boxes into the present size of the canvas. */
  private resize(): void {
    const { clientWidth, clientHeight } = this.canvas;
    [this.width, this.height] = [clientWidth, clientHeight];
    this.canvas.width = clientWidth * devicePixelRatio;
    this.canvas.height = clientHeight * devicePixelRatio;
    const margin = Math.min(24, clientWidth / 16, clientHeight / 16);
    const [width, height] = [Math.min(170, 0.23 * clientWidth), Math.min(120, 0.2 * clientHeight)];
    const { main, centre, boxes } = this.view;
    const below = boxes.length ? 0.75 * height : 0;
    this.frames = [{ projection: fitted(main, centre, [margin, margin, clientWidth - 2 * margin, clientHeight - 2 * margin - below]), box: null }];
    boxes.forEach(({ zones, outline }, k) => {
      const box: Frame["box"] = [6 + k * (width + 6), clientHeight - height - 6, width, height];
      const inside: Frame["box"] = [box[0] + 8, box[1] + 8, width - 16, height - 16];
      this.frames.push({ projection: fitted(outline, zones[0], inside), box });
    });
    this.outline();
    this.draw();
  }

  /** Place of an area in CSS pixels, or null if it is unknown. */
  private place(area: number): Point | null {
    const place: Point = [this.scene.places[2 * area], this.scene.places[2 * area + 1]];
    if (Number.isNaN(place[0])) return null;
    const frame = frameOf(this.view, place);
    const point = this.frames[frame].projection(place);
    return point && (frame ? point : this.transform.apply(point));
  }

  /** Whether a point of the map lies under a box that shows another place. */
  private hidden(area: number, [x, y]: Point): boolean {
    const at = this.frames.findIndex(({ box }) => box && x > box[0] && x < box[0] + box[2] && y > box[1] && y < box[1] + box[3]);
    return at > 0 && frameOf(this.view, [this.scene.places[2 * area], this.scene.places[2 * area + 1]]) !== at;
  }

  /** Whether an area is drawn by its boundary. */
  private isShape(area: number): boolean {
    return Boolean(this.scene.shapes?.[area]?.length);
  }

  /** Paint once before the browser shows the next picture, however often this is asked. */
  private draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    const context = this.canvas.getContext("2d");
    if (!context || !this.width) return;
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.paintWith(context);
  }

  /** Paint the scene with a pen: land and boundaries, then lines, circles and labels, and what the reader draws. */
  paintWith(context: Pen): void {
    const colours = new Map(COLOURS.map((name) => [name, this.colour(name)]));
    const colour = (name: string): string => colours.get(name) ?? "";
    this.drawGraticule(context, colour("line"));
    this.frames.forEach((_, frame) => this.drawShapes(context, colour, frame));
    const leaving: [label: string, point: Point][] = [];
    for (const line of [...this.scene.lines].reverse()) {
      const [from, to] = [this.place(line.from), this.place(line.to)];
      if (!from || !to) continue;
      this.drawLine(context, line, from, to, colour);
      for (const [area, point, other] of [[line.from, from, to], [line.to, to, from]] as [number, Point, Point][]) {
        const edge = this.contains(other) && !this.contains(point) ? this.edge(other, point) : null;
        if (edge) leaving.unshift([isolated(this.scene.circles[area]?.label ?? ""), edge]);
      }
    }
    context.globalAlpha = 1;
    const ends = new Set(this.scene.lines.flatMap(({ from, to }) => [from, to]));
    const labelled: { circle: Circle; point: Point; radius: number }[] = [];
    for (const circle of this.bySize()) {
      const point = this.place(circle.area);
      if (!point || this.hidden(circle.area, point)) continue;
      if (this.isShape(circle.area)) {
        labelled.push({ circle, point, radius: 0 });
        if (!ends.has(circle.area)) continue;
        context.beginPath();
        context.arc(...point, 2.5, 0, 2 * Math.PI);
        context.fillStyle = colour("ink");
        context.fill();
        continue;
      }
      const radius = this.radius(circle);
      context.beginPath();
      context.arc(...point, radius, 0, 2 * Math.PI);
      context.globalAlpha = circle.selected ? 0.9 : 0.6;
      context.fillStyle = this.fill(context, circle, colour(fillOf(circle)), 1);
      context.fill();
      context.globalAlpha = 1;
      context.lineWidth = circle.selected ? 2 : 0.75;
      context.strokeStyle = colour(circle.selected ? "ink" : "paper");
      context.stroke();
      labelled.push({ circle, point, radius });
    }
    this.drawLabels(context, labelled, ends, leaving, colour);
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

  /** Draw meridians and parallels, ten degrees apart. */
  private drawGraticule(context: Pen, colour: string): void {
    const { k, x, y } = this.transform;
    context.save();
    context.translate(x, y);
    context.scale(k, k);
    context.beginPath();
    geoPath(this.frames[0].projection, context)(geoGraticule().step([10, 10])());
    context.restore();
    context.globalAlpha = 0.5;
    context.lineWidth = 0.5;
    context.strokeStyle = colour;
    context.stroke();
    context.globalAlpha = 1;
  }

  /** Draw the land, and the areas by their boundaries: the more trips, the darker. */
  private drawShapes(context: Pen, colour: (name: string) => string, frame: number): void {
    const { box } = this.frames[frame];
    const { k, x, y } = box ? zoomIdentity : this.transform;
    context.save();
    if (box) {
      context.fillStyle = colour("raised");
      context.strokeStyle = colour("muted");
      context.lineWidth = 1;
      context.fillRect(...box);
      context.strokeRect(...box);
    }
    context.translate(x, y);
    context.scale(k, k);
    context.lineWidth = 0.7 / k;
    context.lineJoin = "round";
    context.strokeStyle = colour("border");
    context.fillStyle = colour("paper");
    if (this.base[frame]) {
      context.fill(this.base[frame], "evenodd");
      context.stroke(this.base[frame]);
    }
    for (const circle of this.scene.circles) {
      const path = this.paths[circle.area]?.[frame];
      if (!path) continue;
      context.fillStyle = colour("paper");
      context.fill(path, "evenodd");
      const share = Math.sqrt(extent(circle) / this.most);
      context.globalAlpha = circle.selected ? 0.75 : extent(circle) ? shade(share) : 0;
      context.fillStyle = this.fill(context, circle, colour(fillOf(circle)), k);
      context.fill(path, "evenodd");
      context.globalAlpha = 1;
      context.stroke(path);
    }
    context.restore();
  }

  /** A colour, or stripes of it for areas whose trips may be none; `scale` is that of the drawing. */
  private fill(context: Pen, circle: Circle, colour: string, scale: number): string | CanvasPattern {
    if (!circle.faint || circle.selected) return colour;
    const stripes = this.stripes.get(colour) ?? striped(context, colour);
    this.stripes.set(colour, stripes);
    stripes.setTransform(new DOMMatrix().scale(1 / scale));
    return stripes;
  }

  /** Make the outlines of the areas in each frame. */
  private outline(): void {
    const outlines = (rings: Float32Array[]): Outline => {
      const texts: string[] = [];
      for (const ring of rings) {
        const frame = frameOf(this.view, [ring[0], ring[1]]);
        texts[frame] ??= "";
        for (let k = 0; k < ring.length; k += 2) {
          const point = this.frames[frame].projection([ring[k], ring[k + 1]]);
          if (point) texts[frame] += `${k ? "L" : "M"}${point[0].toFixed(3)} ${point[1].toFixed(3)}`;
        }
        texts[frame] += "Z";
      }
      return texts.map(outlined);
    };
    this.paths = this.width && this.scene.shapes ? this.scene.shapes.map(outlines) : [];
    this.base = this.width && this.scene.base ? outlines(this.scene.base) : [];
  }

  /** Draw a flow as a curve with an arrowhead. Seen from its origin, it bends to the left. */
  private drawLine(context: Pen, line: Line, from: Point, to: Point, colour: (name: string) => string): void {
    const width = this.widthOf(line.trips);
    const bend: Point = [(from[0] + to[0]) / 2 + 0.14 * (to[1] - from[1]), (from[1] + to[1]) / 2 - 0.14 * (to[0] - from[0])];
    const head = Math.min(Math.max(6, 2.2 * width), Math.hypot(to[0] - from[0], to[1] - from[1]) / 2);
    const circle = this.scene.circles[line.to];
    const gap = circle && !this.isShape(line.to) ? this.radius(circle) : 0;
    const tip = onCurve(from, bend, to, gap);
    const neck = onCurve(from, bend, to, gap + head);
    const [x, y] = [(tip[0] - neck[0]) / head, (tip[1] - neck[1]) / head];
    const half = Math.max(3, 1.1 * width);
    for (const [name, wider, alpha] of [["paper", Math.min(1.6, width), 0.8], [line.trips < 0 ? "less" : "route", 0, 0.85]] as const) {
      context.globalAlpha = alpha;
      context.strokeStyle = context.fillStyle = colour(name);
      context.lineWidth = width + wider;
      context.lineCap = "butt";
      context.setLineDash(name === "paper" ? [] : DASHES[line.word]);
      context.beginPath();
      context.moveTo(...from);
      const part = along(from, bend, to, gap + head);
      context.quadraticCurveTo(from[0] + part * (bend[0] - from[0]), from[1] + part * (bend[1] - from[1]), ...neck);
      context.stroke();
      context.setLineDash([]);
      context.beginPath();
      context.moveTo(...tip);
      context.lineTo(neck[0] - half * y, neck[1] + half * x);
      context.lineTo(neck[0] + half * y, neck[1] - half * x);
      context.closePath();
      context.fill();
    }
  }

  /** Width of a line in pixels: in proportion to its trips, down to a hairline. */
  private widthOf(trips: number): number {
    return Math.max(THINNEST, (WIDEST * Math.abs(trips)) / this.mostOfLines);
  }

  /** State what widths of lines and sizes or shades of areas mean. */
  private showKey(): void {
    this.mostOfLines = Math.max(1, ...this.scene.lines.map((line) => Math.abs(line.trips)));
    const compares = this.scene.circles.find(({ change }) => change)?.change;
    const [noun, sign] = compares ? [`change of ${counted}${isPerDay(compares.days) ? " per day" : ""}`, "\u00b1"] : [counted, ""];
    const said = (word: Reliability): string => (!compares ? word : word === "solid" ? "changed" : "may not have changed");
    const text = (value: number): string => `${sign}${number(value)}`;
    const sample = (size: number, shape: string): HTMLElement => {
      const drawn = make("i");
      const height = Math.max(20, this.scene.shapes ? 0 : size);
      drawn.innerHTML = `<svg width="${size}" height="${height}" viewBox="0 ${10 - height / 2} ${size} ${height}" aria-hidden="true">${shape}</svg>`;
      return drawn;
    };
    const [ofLines, ofAreas]: HTMLElement[][] = [[], []];
    const values = this.scene.lines.length ? steps(this.mostOfLines).filter((value) => this.widthOf(value) > THINNEST) : [];
    if (values.length) ofLines.push(make("span", {}, `Lines, ${noun}:`));
    for (const value of values) {
      const width = this.widthOf(value);
      ofLines.push(make("span", {}, sample(20, `<path d="M0 10H20" stroke="var(--route)" stroke-width="${width}"/>`), text(value)));
    }
    const words = new Set(this.scene.lines.map(({ word }) => word));
    for (const word of (["solid", "rough", "may be none"] as const).filter((one) => words.has(one))) {
      const line = `<line x2="32" y1="10" y2="10" stroke="var(--route)" stroke-width="3" stroke-dasharray="${DASHES[word].join(" ")}"/>`;
      ofLines.push(make("span", {}, sample(32, line), said(word)));
    }
    const sizes = this.scene.circles.some((circle) => !circle.selected && extent(circle)) ? steps(this.most) : [];
    if (sizes.length) ofAreas.push(make("span", {}, `Areas, ${noun}:`));
    for (const value of sizes) {
      const [share, r] = [Math.sqrt(value / this.most), LARGEST_RADIUS * Math.sqrt(value / this.most)];
      const shape = this.scene.shapes
        ? `<rect width="20" height="14" y="3" fill="var(--flow)" fill-opacity="${shade(share)}" stroke="var(--border)"/>`
        : `<circle cx="${r}" cy="10" r="${r}" fill="var(--flow)" fill-opacity="0.6"/>`;
      ofAreas.push(make("span", {}, sample(this.scene.shapes ? 20 : 2 * r, shape), text(value)));
    }
    const striped = this.scene.circles.some((circle) => circle.faint && !circle.selected && extent(circle));
    if (striped) ofAreas.push(make("span", {}, `Striped areas: ${said("may be none")}`));
    if (this.frames.length > 1) ofAreas.push(make("span", {}, "Areas far away are in boxes, at other scales."));
    byId("key").replaceChildren(...[ofLines, ofAreas].map((items) => make("span", { class: "group" }, ...items)));
  }

  /** Whether a point is in view. */
  private contains([x, y]: Point): boolean {
    return x >= 0 && x <= this.width && y >= 0 && y <= this.height;
  }

  /** Where the way from a point on the map to one beyond leaves it. */
  private edge(inside: Point, beyond: Point): Point {
    const [dx, dy] = [beyond[0] - inside[0], beyond[1] - inside[1]];
    const across = dx > 0 ? (this.width - inside[0]) / dx : dx < 0 ? -inside[0] / dx : Infinity;
    const down = dy > 0 ? (this.height - inside[1]) / dy : dy < 0 ? -inside[1] / dy : Infinity;
    const part = Math.min(across, down);
    return [inside[0] + part * dx, inside[1] + part * dy];
  }

  /** Write the labels of the selected areas and of the largest without overlaps, and where lines lead that leave the map. */
  private drawLabels(
    context: Pen,
    circles: { circle: Circle; point: Point; radius: number }[],
    ends: Set<number>,
    leaving: [label: string, point: Point][],
    colour: (name: string) => string,
  ): void {
    context.textBaseline = "middle";
    context.lineJoin = "round";
    const taken: [left: number, top: number, right: number, bottom: number][] = [];
    /** Write a text at the first position that is free and on the map. */
    const write = (text: string, places: (width: number) => Point[], within: Frame["box"]): boolean => {
      const width = context.measureText(text).width;
      const [left, top, across, down] = within ?? [0, 0, this.width, this.height];
      for (const [x, y] of places(width)) {
        const box = [x, y - 8, x + width, y + 8] as (typeof taken)[number];
        const free = taken.every((other) => other[2] + 6 < box[0] || box[2] + 6 < other[0] || other[3] < box[1] || box[3] < other[1]);
        if (!free || box[0] < left + 2 || box[2] > left + across - 2 || box[1] < top || box[3] > top + down) continue;
        taken.push(box);
        context.lineWidth = 3;
        context.strokeStyle = colour("paper");
        context.strokeText(text, x, y);
        context.fillStyle = colour("ink");
        context.fillText(text, x, y);
        return true;
      }
      return false;
    };
    context.font = "italic 12px system-ui, sans-serif";
    for (const [label, [x, y]] of new Map(leaving.map((one) => [one[0], one])).values()) {
      const inside = (width: number): Point => [Math.min(Math.max(3, x - width / 2), this.width - width - 3), Math.min(Math.max(9, y), this.height - 9)];
      write(`to or from ${label}`, (width) => [0, 18, -18].map((step) => [inside(width)[0], inside(width)[1] + step]), null);
    }
    context.font = "600 12px system-ui, sans-serif";
    const order = [...circles].sort((one, two) => Number(two.circle.selected) - Number(one.circle.selected));
    let left = Math.min(LABELS[1], Math.max(LABELS[0], (this.width * this.height) / PER_LABEL));
    for (const { circle, point, radius } of order) {
      if (!extent(circle) || !this.contains(point)) continue;
      const [[x, y], r] = [point, radius + 4];
      const places = (width: number): Point[] =>
        this.isShape(circle.area)
          ? (ends.has(circle.area) ? [12, -12, 0] : [0, 10, -10]).map((step) => [x - width / 2, y + step])
          : [[x + r, y], [x - r - width, y], [x - width / 2, y - r - 6], [x - width / 2, y + r + 6]];
      const { box } = this.frames[frameOf(this.view, [this.scene.places[2 * circle.area], this.scene.places[2 * circle.area + 1]])];
      if (write(isolated(circle.label), places, box) && --left < 1) return;
    }
  }

  /** The circles, the largest first, so that smaller ones are drawn over them. */
  private bySize(): Circle[] {
    return [...this.scene.circles].sort((one, two) => extent(two) - extent(one));
  }

  /** Radius of a circle in pixels: its area is in proportion to what it shows. */
  private radius(circle: Circle): number {
    return Math.max(LEAST_RADIUS, LARGEST_RADIUS * Math.sqrt(extent(circle) / this.most));
  }

  /** The smallest circle at a point, or the nearest one within reach. */
  private circleAt(at: Point): Circle | null {
    const context = this.canvas.getContext("2d");
    if (this.scene.shapes && context) {
      context.setTransform(1, 0, 0, 1, 0, 0);
      const inBox = this.frames.findIndex(({ box }) => box && at[0] > box[0] && at[0] < box[0] + box[2] && at[1] > box[1]);
      const [frame, [x, y]] = inBox > 0 ? [inBox, at] : [0, this.transform.invert(at)];
      const found = this.scene.circles.find(({ area }) => {
        const path = this.paths[area]?.[frame];
        return path && context.isPointInPath(path, x, y, "evenodd");
      });
      if (found) return found;
    }
    let [nearest, least] = [null as Circle | null, Infinity];
    for (const circle of this.scene.circles) {
      const point = this.place(circle.area);
      if (!point || this.hidden(circle.area, point)) continue;
      const distance = Math.hypot(point[0] - at[0], point[1] - at[1]);
      const [inside, radius] = [distance <= this.radius(circle), this.radius(circle)];
      const rank = inside ? radius : distance <= REACH ? LARGEST_RADIUS + distance : Infinity;
      if (rank < least) [nearest, least] = [circle, rank];
    }
    return nearest;
  }

  /** Choose the area at a click that does not end a drawn line. */
  private click(event: MouseEvent): void {
    const ends = this.drawing || this.ended || event.defaultPrevented;
    this.ended = false;
    const circle = ends ? null : this.circleAt([event.offsetX, event.offsetY]);
    if (circle) this.events.chosen(circle.area);
  }

  /** Begin to draw around areas, if the reader does. */
  private begin(event: PointerEvent): void {
    if (!this.drawing) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drawn = [[event.offsetX, event.offsetY]];
  }

  /** Go on drawing, or tell which area is under the pointer. */
  private move(event: PointerEvent): void {
    if (this.drawn) {
      this.drawn.push([event.offsetX, event.offsetY]);
      this.draw();
    } else {
      this.events.pointed(this.circleAt([event.offsetX, event.offsetY]));
    }
  }

  /** End a drawn line, and tell which areas it surrounds. */
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

  /** Move with the arrow keys, zoom with + and -, and show all with 0. */
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

/** A projection that fits places into a rectangle. */
function fitted(places: Point[], [longitude, latitude]: Point, [left, top, width, height]: NonNullable<Frame["box"]>): GeoProjection {
  const projection = geoAzimuthalEqualArea().rotate([-longitude, -latitude]);
  const [first] = places;
  const apart = places.some((place) => place[0] !== first[0] || place[1] !== first[1]);
  if (!apart) return projection.translate([left + width / 2, top + height / 2]);
  const extent: [Point, Point] = [[left, top], [left + Math.max(width, 1), top + Math.max(height, 1)]];
  return projection.fitExtent(extent, { type: "MultiPoint", coordinates: places });
}

/** Part of a quadratic curve from its start, after which about a given length is left. */
function along(from: Point, bend: Point, to: Point, left: number): number {
  let part = 1;
  while (part > 0.5 && Math.hypot(...minus(at(from, bend, to, part), to)) < left) part -= 0.01;
  return part;
}

/** The point of a curve after which about a given length is left. */
function onCurve(from: Point, bend: Point, to: Point, left: number): Point {
  return at(from, bend, to, along(from, bend, to, left));
}

/** The point of a quadratic curve at a part of it. */
function at(from: Point, bend: Point, to: Point, part: number): Point {
  const [a, b, c] = [(1 - part) ** 2, 2 * part * (1 - part), part ** 2];
  return [a * from[0] + b * bend[0] + c * to[0], a * from[1] + b * bend[1] + c * to[1]];
}

/** The difference of two points. */
function minus([x, y]: Point, [u, v]: Point): Point {
  return [x - u, y - v];
}

/** Opacity of an area whose trips are the square of a share of the most. */
function shade(share: number): number {
  return 0.08 + 0.5 * share;
}

/** Two or three round numbers up to the largest, for a key. */
function steps(most: number): number[] {
  const unit = 10 ** Math.floor(Math.log10(most));
  const largest = unit * ([5, 2].find((times) => times * unit <= most) ?? 1);
  return [largest / 10, largest / 2, largest].filter((value) => Number.isInteger(value) && value > 0);
}

/** Name of the colour of an area. */
function fillOf(circle: Circle): string {
  if (circle.selected) return "selected";
  if ((circle.change?.change ?? 0) < 0) return "less";
  return extent(circle) ? "flow" : "muted";
}

/** What the size of a circle shows: its change, or its trips. */
export function extent({ trips, change }: Circle): number {
  return change ? Math.abs(change.change) : Math.max(0, trips);
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
