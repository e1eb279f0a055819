/** Save what the page shows as a picture, SVG or PNG, with what a reader must know of it. */

import { save } from "./download";
import { outlined, SvgPen, type Pen } from "./pen";

/** Something of the page that can be saved. */
export interface Figure {
  name: string;
  /** Drawn one below the other: elements of the page, or the map, which draws itself. */
  parts: (HTMLElement | { canvas: HTMLCanvasElement; paint(pen: Pen): void })[];
}

/** What is written above and below a figure. */
export interface Frame {
  title: string;
  subtitle: string;
  notes: string[];
}

const [MARGIN, GAP, WIDTH] = [24, 12, 560];
/** Pixels of a PNG for each pixel of the page. */
const SCALE = 2;
const FONT = "system-ui, sans-serif";
/** Elements that are only there to be used. */
const USED = "input, textarea";

/** Save a figure as a file with this name, without its ending. */
export async function savePicture(figure: Figure, frame: Frame, ending: "svg" | "png", name: string): Promise<void> {
  if (ending === "svg") {
    const pen = new SvgPen();
    const [width, height] = compose(pen, figure, frame);
    save(pen.finished(width, height, `${frame.title}. ${frame.subtitle}`), `${name}.svg`, "image/svg+xml");
    return;
  }
  const canvas = document.createElement("canvas");
  const pen = canvas.getContext("2d")!;
  const [width, height] = compose(pen, figure, frame); // of which only the size is used
  [canvas.width, canvas.height] = [SCALE * width, SCALE * height];
  pen.scale(SCALE, SCALE);
  compose(pen, figure, frame);
  const file = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!file) throw new Error("The browser cannot draw a picture of this size.");
  save(file, `${name}.png`, "image/png");
}

/** Draw a figure in its frame, and return the width and height of the picture. */
function compose(pen: Pen, { parts }: Figure, { title, subtitle, notes }: Frame): [width: number, height: number] {
  const boxes = parts.map((part) => ("canvas" in part ? part.canvas : part).getBoundingClientRect());
  const inner = Math.max(WIDTH, ...boxes.map((box) => Math.ceil(box.width)));
  const style = getComputedStyle(document.body);
  const muted = colourOf("--muted");
  const above = [...wrapped(pen, title, `600 20px ${FONT}`, inner), ...wrapped(pen, subtitle, `16px ${FONT}`, inner)];
  const below = notes.flatMap((note) => wrapped(pen, note, `12px ${FONT}`, inner));
  const heights = [above, below].map((lines) => lines.reduce((sum, { height }) => sum + height, 0));
  const height = Math.ceil(2 * MARGIN + heights[0] + heights[1] + boxes.reduce((sum, box) => sum + box.height + GAP, GAP));
  pen.fillStyle = colourOf("--paper");
  pen.fillRect(0, 0, inner + 2 * MARGIN, height);
  let top = write(pen, above, MARGIN, style.color) + GAP;
  parts.forEach((part, k) => {
    pen.save();
    pen.translate(MARGIN, top);
    if ("canvas" in part) paintMap(pen, part, boxes[k]);
    else paintElement(pen, part, boxes[k]);
    pen.restore();
    top += boxes[k].height + GAP;
  });
  write(pen, below, top, muted);
  return [inner + 2 * MARGIN, height];
}

/** A colour of the styles by its name. */
function colourOf(name: string): string {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

interface TextLine {
  text: string;
  font: string;
  height: number;
}

/** A text in lines of at most a width. */
function wrapped(pen: Pen, text: string, font: string, width: number): TextLine[] {
  pen.font = font;
  const lines: string[] = [];
  const fits = (line: string): boolean => pen.measureText(line).width <= width;
  for (const word of text.split(" ").filter((one) => one)) {
    const longer = lines.length ? `${lines[lines.length - 1]} ${word}` : word;
    if (lines.length && fits(longer)) {
      lines[lines.length - 1] = longer;
      continue;
    }
    lines.push("");
    for (const letter of word) { // an address may be longer than a line
      if (fits(lines[lines.length - 1] + letter)) lines[lines.length - 1] += letter;
      else lines.push(letter);
    }
  }
  const height = 1.35 * Number(/(\d+)px/.exec(font)?.[1]);
  return lines.map((line) => ({ text: line, font, height }));
}

/** Write lines from the top, and return where they end. */
function write(pen: Pen, lines: TextLine[], top: number, colour: string): number {
  pen.textBaseline = "middle";
  pen.fillStyle = colour;
  for (const { text, font, height } of lines) {
    pen.font = font;
    pen.fillText(text, MARGIN, top + height / 2);
    top += height;
  }
  return top;
}

/** The map, cut where it ends. */
function paintMap(pen: Pen, { canvas, paint }: { canvas: HTMLCanvasElement; paint(pen: Pen): void }, { width, height }: DOMRect): void {
  pen.beginPath();
  pen.rect(0, 0, width, height);
  pen.clip();
  pen.fillStyle = getComputedStyle(canvas).backgroundColor;
  pen.fillRect(0, 0, width, height);
  paint(pen);
}

/** An element as it is seen: backgrounds, lines and texts, each word where it is. */
function paintElement(pen: Pen, element: Element, origin: DOMRect): void {
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden" || element.matches(USED)) return;
  const box = element.getBoundingClientRect();
  const [left, top] = [box.left - origin.left, box.top - origin.top];
  pen.save();
  pen.globalAlpha *= Number(style.opacity);
  if (element instanceof SVGElement) paintSample(pen, element, left, top);
  if (!/^rgba\(.*, 0\)$|transparent/.test(style.backgroundColor)) {
    pen.fillStyle = style.backgroundColor;
    pen.fillRect(left, top, box.width, box.height);
  }
  for (const [side, at] of [["Top", top], ["Bottom", top + box.height]] as const) {
    const width = parseFloat(style[`border${side}Width`]);
    if (style[`border${side}Style`] !== "solid" || !width) continue;
    pen.fillStyle = style[`border${side}Color`];
    pen.fillRect(left, side === "Top" ? at : at - width, box.width, width);
  }
  pen.fillStyle = style.color;
  pen.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  pen.textBaseline = "middle";
  for (const child of element.childNodes) {
    if (child instanceof Text) paintWords(pen, child, origin);
    else if (child instanceof Element && !(element instanceof SVGElement)) paintElement(pen, child, origin);
  }
  pen.restore();
}

/** The words of a text, each where the browser has put it. */
function paintWords(pen: Pen, text: Text, origin: DOMRect): void {
  const range = document.createRange();
  const paint = (start: number, piece: string): void => {
    range.setStart(text, start);
    range.setEnd(text, start + piece.length);
    const [box, next] = range.getClientRects();
    if (next && piece.length > 1) [...piece].forEach((letter, k) => paint(start + k, letter)); // the browser broke it
    else if (box) pen.fillText(piece, box.left - origin.left, box.top - origin.top + box.height / 2);
  };
  for (const { index, 0: piece } of text.data.matchAll(/[^\s-]+-?|-/g)) paint(index, piece);
}

/** A small picture of a key: lines, rectangles and circles. */
function paintSample(pen: Pen, picture: SVGElement, left: number, top: number): void {
  const view = picture.getAttribute("viewBox")?.split(" ").map(Number) ?? [0, 0];
  pen.translate(left - view[0], top - view[1]);
  for (const shape of picture.children) {
    const style = getComputedStyle(shape);
    const of = (name: string): number => Number(shape.getAttribute(name) ?? 0);
    const [x, y, r] = [of("cx"), of("cy"), of("r")];
    const texts: Record<string, string> = {
      path: shape.getAttribute("d") ?? "",
      line: `M${of("x1")} ${of("y1")}L${of("x2")} ${of("y2")}`,
      rect: `M${of("x")} ${of("y")}h${of("width")}v${of("height")}h${-of("width")}Z`,
      circle: `M${x + r} ${y}A${r} ${r} 0 1 1 ${x - r} ${y}A${r} ${r} 0 1 1 ${x + r} ${y}Z`,
    };
    const path = outlined(texts[shape.tagName] ?? "");
    const alpha = pen.globalAlpha;
    pen.globalAlpha = alpha * Number(style.fillOpacity);
    if (style.fill !== "none" && shape.tagName !== "path") {
      pen.fillStyle = style.fill;
      pen.fill(path);
    }
    pen.globalAlpha = alpha;
    if (style.stroke === "none") continue;
    pen.strokeStyle = style.stroke;
    pen.lineWidth = parseFloat(style.strokeWidth);
    pen.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[ ,]+/).map(parseFloat));
    pen.stroke(path);
    pen.setLineDash([]);
  }
}
