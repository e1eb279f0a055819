/** A text field that finds areas by name or code, with the keyboard or a pointer. */

import { byId, make } from "./dom";

const MOST_FOUND = 12;

export class Search {
  private readonly input = byId<HTMLInputElement>("search");
  private readonly list = byId<HTMLUListElement>("found");
  private found: number[] = [];
  private active = -1;

  constructor(
    /** Labels and codes of the areas that can be chosen now. */
    private readonly areas: () => { labels: string[]; codes: string[] },
    private readonly chosen: (area: number) => void,
  ) {
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
  }

  private find(): void {
    const text = folded(this.input.value.trim());
    const { labels, codes } = this.areas();
    const ranked: [rank: number, area: number][] = [];
    labels.forEach((label, area) => {
      const [name, code] = [folded(label), folded(codes[area])];
      const rank = code === text || name === text ? 0 : name.startsWith(text) || code.startsWith(text) ? 1 : 2;
      if (text && (rank < 2 || name.includes(text))) ranked.push([rank, area]);
    });
    ranked.sort((one, two) => one[0] - two[0] || one[1] - two[1]);
    this.found = ranked.slice(0, MOST_FOUND).map(([, area]) => area);
    this.active = this.found.length ? 0 : -1;
    const options = this.found.map((area, k) =>
      make("li", { role: "option", id: `found-${k}`, pointerdown: () => this.choose(area) }, this.named(area)),
    );
    const none = make("li", { role: "option", "aria-disabled": "true" }, "No area has this name or code");
    this.list.replaceChildren(...(options.length ? options : [none]));
    this.open(text !== "");
  }

  private named(area: number): string {
    const { labels, codes } = this.areas();
    return labels[area].includes(codes[area]) ? labels[area] : `${labels[area]} (${codes[area]})`;
  }

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

  private choose(area: number): void {
    this.input.value = "";
    this.close();
    this.chosen(area);
  }

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

  private mark(): void {
    for (const [k, option] of [...this.list.children].entries()) {
      option.setAttribute("aria-selected", String(k === this.active));
    }
    if (this.active >= 0) this.input.setAttribute("aria-activedescendant", `found-${this.active}`);
    else this.input.removeAttribute("aria-activedescendant");
  }
}

/** A text without case and accents. */
function folded(text: string): string {
  return text.normalize("NFD").replace(/\p{Diacritic}/gu, "").toLowerCase();
}
