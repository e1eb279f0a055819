/** A text field that finds areas of any level by name or code, with the keyboard or a pointer. */

import { byId, isolated, make } from "./dom";
import type { Side } from "./messages";

const MOST_FOUND = 12;

interface Found {
  level: number;
  area: number;
}

export class Search {
  private readonly input = byId<HTMLInputElement>("search");
  private readonly list = byId<HTMLUListElement>("found");
  private found: Found[] = [];
  private active = -1;

  constructor(
    /** The side whose areas can be chosen now, and the level whose areas are listed first. */
    private readonly searched: () => { side: Side; level: number },
    private readonly chosen: (level: number, area: number) => void,
  ) {
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
  }

  /** List the areas that the text in the field names. */
  private find(): void {
    const text = this.input.value.trim();
    const { side, level: first } = this.searched();
    const ranked: (Found & { rank: number })[] = [];
    side.labels.forEach((labels, level) => {
      if (!level || !text) return;
      labels.forEach((label, area) => {
        const rank = rankOf(text, [label, side.codes[level][area]], this.above(level, area));
        if (rank < Infinity) ranked.push({ level, area, rank: rank + (level === first ? 0 : 0.5) });
      });
    });
    ranked.sort((one, two) => one.rank - two.rank || one.level - two.level || one.area - two.area);
    this.found = ranked.slice(0, MOST_FOUND);
    this.active = this.found.length ? 0 : -1;
    const options = this.found.map((found, k) =>
      make("li", { role: "option", id: `found-${k}`, pointerdown: () => this.choose(found) }, ...this.named(found)),
    );
    const none = make("li", { role: "option", "aria-disabled": "true" }, "No area has this name or code");
    this.list.replaceChildren(...(options.length ? options : [none]));
    this.open(text !== "");
  }

  /** The name of an area with its code, its level and the area that contains it. */
  private named({ level, area }: Found): Node[] {
    const { side } = this.searched();
    const [label, code] = [side.labels[level][area], side.codes[level][area]];
    const name = label.includes(code) ? label : `${label} (${code})`;
    const within = this.above(level, area).slice(0, 1).map((above) => ` in ${isolated(above)}`);
    return [make("bdi", {}, name), new Text(`, ${isolated(side.levels[level])}${within.join("")}`)];
  }

  /** Names of the areas that contain an area, from that of the level above. */
  private above(level: number, area: number): string[] {
    const { side } = this.searched();
    const names: string[] = [];
    for (let above = level, place = area; above > 1; above--) {
      place = side.parents[above][place];
      names.push(side.labels[above - 1][place]);
    }
    return names;
  }

  /** Choose with Enter, close with Escape, and move with the arrow keys. */
  private key(event: KeyboardEvent): void {
    if (event.key === "Enter") {
      event.preventDefault();
      if (this.active >= 0) this.choose(this.found[this.active]);
    } else if (event.key === "Escape") {
      this.close();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : this.found.length - 1;
      if (this.found.length) this.active = (this.active + step) % this.found.length;
      this.mark();
    }
  }

  /** Take an area that was found, and empty the field. */
  private choose({ level, area }: Found): void {
    this.input.value = "";
    this.close();
    this.chosen(level, area);
  }

  /** Show or hide the list. */
  private open(open: boolean): void {
    this.list.hidden = !open;
    this.input.setAttribute("aria-expanded", String(open));
    this.mark();
  }

  private close(): void {
    this.found = [];
    this.active = -1;
    this.open(false);
  }

  /** Mark the active area of the list, also for screen readers. */
  private mark(): void {
    for (const [k, option] of [...this.list.children].entries()) {
      option.setAttribute("aria-selected", String(k === this.active));
    }
    if (this.active >= 0) this.input.setAttribute("aria-activedescendant", `found-${this.active}`);
    else this.input.removeAttribute("aria-activedescendant");
  }
}

/** How well a text names an area, by its name and code (0 exactly, 1 their begin, 2 in the name), or (3, 4) by those
 * that contain it; the smaller, the better, and Infinity if it does not. */
export function rankOf(text: string, names: string[], above: string[]): number {
  const [sought, own, around] = [folded(text), names.map(folded), above.map(folded)];
  if (own.includes(sought)) return 0;
  if (own.some((name) => name.startsWith(sought))) return 1;
  if (own[0].includes(sought)) return 2;
  if (around.includes(sought)) return 3;
  return around.some((name) => name.startsWith(sought)) ? 4 : Infinity;
}

/** A text without case and accents. */
export function folded(text: string): string {
  return text.normalize("NFD").replace(/\p{Diacritic}/gu, "").toLowerCase();
}
