/** A text field that finds areas of any level by name, other name or code, with the keyboard or a pointer. */

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
    const sought = wordsOf(text);
    const said = side.levels.findIndex((level, k) => k && wordsOf(level).every((word) => sought.includes(word)));
    const named = said > 0 ? said : first;
    const rankOf = ranker(text, side.levels);
    const ranked: (Found & { rank: number })[] = [];
    side.labels.forEach((labels, level) => {
      if (!level || !text) return;
      labels.forEach((label, area) => {
        const rank = rankOf([label, ...otherNames(side, level, area)], this.above(level, area));
        if (rank < Infinity) ranked.push({ level, area, rank: rank + (level === named ? 0 : 0.5) });
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
    const rankOf = ranker(this.input.value, side.levels);
    const matches = (of: string): boolean => rankOf([of], []) < Infinity;
    const also = matches(name) ? [] : aliasesOf(side.aliases?.[level][area]).filter(matches).slice(0, 1);
    const other = also.map((alias) => `, also ${isolated(alias)}`);
    return [make("bdi", {}, name), new Text(`, ${isolated(side.levels[level])}${within.join("")}${other.join("")}`)];
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

/** Words that say nothing of which area is meant, in languages that often have them. */
const SMALL = new Set("of the in at and de du des d la le les l el los las da do dos di del der die das von van".split(" "));
/** Letters with strokes and ligatures, which have no accents that could be taken off. */
const LETTERS: Record<string, string> = { ß: "ss", æ: "ae", œ: "oe", ø: "o", ł: "l", đ: "d", ð: "d", þ: "th", ı: "i" };

/** How well a text names an area: its names, the label first, and those of the areas that contain it, are given.
 *
 * The smaller, the better, and Infinity if it does not. 0: it is one of its names; 1: one of them begins with it; 2: its
 * words, in any order, begin words of a name, or the label has it; 3: they begin words of its names and of areas that
 * contain it; 4 and 5: as 0 and 1, of these areas. Small words and those of the `levels`, as in "airport of Boston", only
 * count where the whole text does.
 */
export function ranker(text: string, levels: string[]): (names: string[], above: string[]) => number {
  const ignored = new Set([...SMALL, ...levels.flatMap(wordsOf)]);
  const told = (words: string[]): string[] => (words.every((word) => ignored.has(word)) ? words : words.filter((word) => !ignored.has(word)));
  const whole = wordsOf(text);
  const sought = told(whole);
  const [phrase, short] = [whole.join(" "), sought.join(" ")];
  const is = (words: string[]): boolean => words.join(" ") === phrase || told(words).join(" ") === short;
  const begins = (words: string[]): boolean => words.join(" ").startsWith(phrase) || told(words).join(" ").startsWith(short);
  const begun = (one: string, words: string[]): boolean => words.some((word) => word.startsWith(one));
  const have = (words: string[]): boolean => sought.every((one) => begun(one, words));
  return (names, above) => {
    if (!sought.length) return Infinity;
    const [own, around] = [names.map(wordsOf), above.map(wordsOf)];
    if (own.some((words) => words.join(" ") === phrase)) return 0;
    if (own.some(is)) return 0.2;
    if (own.some(begins)) return 1;
    if (own.some(have) || own[0].join(" ").includes(phrase)) return 2;
    if (sought.some((one) => begun(one, own.flat())) && have([...own, ...around].flat())) return 3;
    if (around.some(is)) return 4;
    return around.some(begins) ? 5 : Infinity;
  };
}

/** The code and the aliases of an area, by which it is found besides its label. */
export function otherNames({ codes, aliases }: Pick<Side, "codes" | "aliases">, level: number, area: number): string[] {
  return [codes[level][area], ...aliasesOf(aliases?.[level][area])];
}

/** The aliases in a text that separates them by semicolons. */
export function aliasesOf(text: string | undefined): string[] {
  return (text ?? "").split(";").map((alias) => alias.trim()).filter((alias) => alias);
}

/** Words of texts that were asked before: a list of areas is searched at each key. */
const known = new Map<string, string[]>();

/** The words of a text without case, accents and punctuation. */
function wordsOf(text: string): string[] {
  const words = known.get(text) ?? split(text);
  known.set(text, words);
  return words;
}

function split(text: string): string[] {
  const plain = text.normalize("NFD").replace(/\p{Diacritic}/gu, "").toLowerCase();
  return plain.replace(/[ßæœøłđðþı]/g, (letter) => LETTERS[letter]).replace(/['’]/g, "").split(/[^\p{L}\p{N}\p{M}]+/u).filter((word) => word);
}
