/** Draw on a canvas or as SVG with the same calls, of which there are only those that the atlas needs. */

type Used =
  | "save" | "restore" | "translate" | "scale" | "beginPath" | "moveTo" | "lineTo" | "quadraticCurveTo" | "arc" | "rect" | "closePath" | "clip"
  | "fill" | "stroke" | "fillRect" | "strokeRect" | "setLineDash" | "measureText" | "fillText" | "strokeText" | "createPattern"
  | "fillStyle" | "strokeStyle" | "lineWidth" | "lineJoin" | "lineCap" | "globalAlpha" | "font" | "textBaseline";

/** What a canvas and a picture in SVG can both do. */
export type Pen = Pick<CanvasRenderingContext2D, Used>;

/** The commands of outlines, which a browser does not tell of a `Path2D`. */
const commands = new WeakMap<Path2D, string>();
/** The colours of striped patterns. */
const stripes = new WeakMap<CanvasPattern, string>();

/** An outline, given its commands in SVG. */
export function outlined(text: string): Path2D {
  const path = new Path2D(text);
  commands.set(path, text);
  return path;
}

/** Diagonal stripes of a colour. */
export function striped(pen: Pen, colour: string): CanvasPattern {
  const tile = new OffscreenCanvas(6, 6);
  const drawn = tile.getContext("2d")!;
  drawn.fillStyle = colour;
  for (let k = 0; k < 6; k++) for (const x of [k, (k + 1) % 6]) drawn.fillRect(x, 5 - k, 1, 1);
  const pattern = pen.createPattern(tile, "repeat")!;
  stripes.set(pattern, colour);
  return pattern;
}

interface Settings {
  fillStyle: string | CanvasGradient | CanvasPattern;
  strokeStyle: string | CanvasGradient | CanvasPattern;
  lineWidth: number;
  lineJoin: CanvasLineJoin;
  lineCap: CanvasLineCap;
  globalAlpha: number;
  font: string;
  textBaseline: CanvasTextBaseline;
  dashes: number[];
  /** Scale and place of the coordinates. */
  k: number;
  x: number;
  y: number;
  /** Groups that are open since these settings were saved. */
  groups: number;
}

/** Record what is drawn as elements of SVG. */
export class SvgPen implements Pen {
  private readonly measuring = document.createElement("canvas").getContext("2d", { willReadFrequently: true })!;
  private readonly elements: string[] = [];
  private readonly definitions: string[] = [];
  private readonly saved: Settings[] = [];
  private now: Settings = {
    fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, lineJoin: "miter", lineCap: "butt", globalAlpha: 1,
    font: "12px sans-serif", textBaseline: "alphabetic", dashes: [], k: 1, x: 0, y: 0, groups: 0,
  };
  private path: string[] = [];

  /** The text of a file of SVG with what was drawn. */
  finished(width: number, height: number, title: string): string {
    const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">`;
    return [head, element("title", escaped(title)), element("defs", this.definitions.join("")), ...this.elements, "</svg>\n"].join("\n");
  }

  get fillStyle() { return this.now.fillStyle; }
  set fillStyle(value) { this.now.fillStyle = value; }
  get strokeStyle() { return this.now.strokeStyle; }
  set strokeStyle(value) { this.now.strokeStyle = value; }
  get lineWidth() { return this.now.lineWidth; }
  set lineWidth(value) { this.now.lineWidth = value; }
  get lineJoin() { return this.now.lineJoin; }
  set lineJoin(value) { this.now.lineJoin = value; }
  get lineCap() { return this.now.lineCap; }
  set lineCap(value) { this.now.lineCap = value; }
  get globalAlpha() { return this.now.globalAlpha; }
  set globalAlpha(value) { this.now.globalAlpha = value; }
  get font() { return this.now.font; }
  set font(value) { this.now.font = value; }
  get textBaseline() { return this.now.textBaseline; }
  set textBaseline(value) { this.now.textBaseline = value; }

  save(): void {
    this.saved.push({ ...this.now });
    this.now.groups = 0;
  }

  restore(): void {
    this.elements.push("</g>".repeat(this.now.groups));
    this.now = this.saved.pop() ?? this.now;
  }

  translate(x: number, y: number): void {
    const { k } = this.now;
    Object.assign(this.now, { x: this.now.x + k * x, y: this.now.y + k * y });
  }

  scale(by: number): void {
    this.now.k *= by;
  }

  beginPath(): void {
    this.path = [];
  }

  moveTo(x: number, y: number): void {
    this.path.push(`M${this.at(x, y)}`);
  }

  lineTo(x: number, y: number): void {
    this.path.push(`${this.path.length ? "L" : "M"}${this.at(x, y)}`);
  }

  quadraticCurveTo(u: number, v: number, x: number, y: number): void {
    this.path.push(`Q${this.at(u, v)} ${this.at(x, y)}`);
  }

  /** A whole circle: the atlas draws no other arcs. */
  arc(x: number, y: number, radius: number): void {
    const r = short(radius * this.now.k);
    this.path.push(`M${this.at(x + radius, y)}A${r} ${r} 0 1 1 ${this.at(x - radius, y)}A${r} ${r} 0 1 1 ${this.at(x + radius, y)}Z`);
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.path.push(`M${this.at(x, y)}L${this.at(x + width, y)}L${this.at(x + width, y + height)}L${this.at(x, y + height)}Z`);
  }

  closePath(): void {
    this.path.push("Z");
  }

  /** What follows is only drawn within the path, until the settings are restored. */
  clip(): void {
    const id = `c${this.definitions.length}`;
    this.definitions.push(`<clipPath id="${id}"><path d="${this.path.join("")}"/></clipPath>`);
    this.elements.push(`<g clip-path="url(#${id})">`);
    this.now.groups += 1;
  }

  fill(path?: Path2D | CanvasFillRule, rule?: CanvasFillRule): void {
    this.draw(path instanceof Path2D ? path : undefined, `fill="${this.paint(this.now.fillStyle)}" fill-rule="${rule ?? "nonzero"}"`);
  }

  stroke(path?: Path2D): void {
    this.draw(path, `fill="none" ${this.line(path ? 1 : this.now.k)}`);
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.beginPath();
    this.rect(x, y, width, height);
    this.fill();
  }

  strokeRect(x: number, y: number, width: number, height: number): void {
    this.beginPath();
    this.rect(x, y, width, height);
    this.stroke();
  }

  setLineDash(dashes: Iterable<number>): void {
    this.now.dashes = [...dashes];
  }

  createPattern(image: CanvasImageSource, repetition: string | null): CanvasPattern | null {
    return this.measuring.createPattern(image, repetition);
  }

  measureText(text: string): TextMetrics {
    this.measuring.font = this.now.font;
    return this.measuring.measureText(text);
  }

  fillText(text: string, x: number, y: number): void {
    this.write(text, x, y, `fill="${this.paint(this.now.fillStyle)}"`);
  }

  strokeText(text: string, x: number, y: number): void {
    this.write(text, x, y, `fill="none" ${this.line(1)}`);
  }

  /** Add a path: one of its own coordinates, or the one that was begun, whose coordinates are those of the picture. */
  private draw(path: Path2D | undefined, style: string): void {
    const { k, x, y, globalAlpha } = this.now;
    const d = path ? (commands.get(path) ?? "") : this.path.join("");
    const moved = path && (k !== 1 || x || y) ? ` transform="translate(${short(x)} ${short(y)}) scale(${short(k, 5)})"` : "";
    if (d && globalAlpha > 0) this.elements.push(`<path d="${d}"${moved} ${style}${globalAlpha < 1 ? ` opacity="${short(globalAlpha)}"` : ""}/>`);
  }

  private write(text: string, x: number, y: number, style: string): void {
    const baseline = this.now.textBaseline === "middle" ? ' dominant-baseline="central"' : "";
    const [left, top] = this.at(x, y).split(" ");
    this.elements.push(`<text x="${left}" y="${top}" style="font:${escaped(this.now.font)}"${baseline} xml:space="preserve" ${style}>${escaped(text)}</text>`);
  }

  /** How lines are drawn; `scale` is that of their width. */
  private line(scale: number): string {
    const { strokeStyle, lineWidth, lineJoin, lineCap, dashes } = this.now;
    const dash = dashes.length ? ` stroke-dasharray="${dashes.join(" ")}"` : "";
    return `stroke="${this.paint(strokeStyle)}" stroke-width="${short(scale * lineWidth, 4)}" stroke-linejoin="${lineJoin}" stroke-linecap="${lineCap}"${dash}`;
  }

  /** A colour, or the stripes of a pattern. */
  private paint(style: Settings["fillStyle"]): string {
    if (typeof style === "string") return this.hexadecimal(style);
    const id = `p${this.definitions.length}`;
    const colour = this.hexadecimal(stripes.get(style as CanvasPattern) ?? "transparent");
    const size = short(6 / this.now.k, 4);
    this.definitions.push(
      `<pattern id="${id}" width="${size}" height="${size}" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="${short(2 / this.now.k, 4)}" height="${size}" fill="${colour}"/></pattern>`,
    );
    return `url(#${id})`;
  }

  /** A colour as programs other than browsers know it. */
  private hexadecimal(colour: string): string {
    const { measuring } = this;
    measuring.clearRect(0, 0, 1, 1);
    measuring.fillStyle = colour;
    measuring.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = measuring.getImageData(0, 0, 1, 1).data;
    if (alpha === 0) return "none";
    const [r, g, b] = [red, green, blue].map((value) => value.toString(16).padStart(2, "0"));
    return alpha === 255 ? `#${r}${g}${b}` : `rgba(${red},${green},${blue},${short(alpha / 255, 3)})`;
  }

  /** A point in the coordinates of the picture. */
  private at(x: number, y: number): string {
    const { k } = this.now;
    return `${short(this.now.x + k * x)} ${short(this.now.y + k * y)}`;
  }
}

/** An element without attributes. */
function element(tag: string, content: string): string {
  return `<${tag}>${content}</${tag}>`;
}

/** A number with few decimal places. */
function short(value: number, places = 2): string {
  return String(Number(value.toFixed(places)));
}

/** A text as it is written in XML. */
function escaped(text: string): string {
  const signs: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return text.replace(/[&<>"]/g, (sign) => signs[sign]).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
}
