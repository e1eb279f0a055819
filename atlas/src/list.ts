/** A list of the areas of a level with their trips, in which the reader chooses areas with the keyboard or a pointer. */

import { counted } from "./nouns";
import type { Client } from "./client";
import { isFaint } from "./confidence";
import { byId, isolated, make, number } from "./dom";
import type { Areas, Trips } from "./flows";
import type { Side } from "./messages";
import { changeText, intervalAndWord } from "./panel";
import { otherNames, ranker } from "./search";

/** Number of areas that are listed at first, and that a click adds. */
const STEP = 100;

/** What the list has. */
export interface Listed {
  side: Side;
  level: number;
  selected: number[];
  columns: Column[];
}

/** Trips of each area: what they are, and between which areas. */
export interface Column {
  measure: string;
  ends(area: Areas): { origins: Areas; destinations: Areas };
}

export class AreaList {
  private readonly filter = byId<HTMLInputElement>("filter");
  private readonly more = byId<HTMLButtonElement>("more");
  private most = STEP;
  private listed: Listed | null = null;
  /** Number of the latest list: answers for an earlier one are not shown. */
  private latest = 0;

  constructor(
    private readonly client: Client,
    private readonly choose: (area: number, chosen: boolean) => void,
  ) {
    this.filter.addEventListener("input", () => {
      this.most = STEP;
      void this.fill();
    });
    this.more.onclick = () => {
      this.most += STEP;
      void this.fill();
    };
  }

  /** Show another list; of other areas, only the first ones. */
  show(listed: Listed): Promise<void> {
    if (listed.side !== this.listed?.side || listed.level !== this.listed.level) this.most = STEP;
    this.listed = listed;
    return this.fill();
  }

  /** Ask for the trips of the listed areas, and write the table. */
  private async fill(): Promise<void> {
    if (!this.listed) return;
    const asked = ++this.latest;
    const { side, level, selected, columns } = this.listed;
    const matches = this.findMatches(side, level);
    const areas = matches.slice(0, this.most);
    const ends = columns.map(({ ends }) => areas.map((area) => ends({ level, areas: [area] })));
    const trips = await Promise.all(ends.map((each) => this.client.ask("several", { ends: each })));
    if (asked !== this.latest) return;
    const intervals = trips.flat().some((one) => one.interval);
    const cell = (of: Trips): HTMLElement =>
      make("td", { class: isFaint(of) ? "number faint" : "number" }, number(of.trips), " ", ...small(of));
    const small = (of: Trips): HTMLElement[] => (of.change || of.interval ? [make("small", {}, of.change ? changeText(of) : intervalAndWord(of))] : []);
    const rows = areas.map((area, k) => {
      const box = make("input", {
        type: "checkbox",
        value: area,
        change: () => this.choose(area, box.checked),
      });
      box.checked = selected.includes(area);
      const [label, code] = [side.labels[level][area], side.codes[level][area]];
      const named = [make("bdi", {}, label), ...(label.includes(code) ? [] : [" ", make("bdi", { class: "code" }, code)])];
      return make(
        "tr",
        {},
        make("th", { scope: "row" }, make("label", {}, box, " ", ...named)),
        ...trips.map((each) => cell(each[k])),
      );
    });
    const heads = [isolated(side.levels[level]), ...columns.map(({ measure }) => measure)];
    const changes = trips.flat().some((one) => one.change);
    const note = changes ? " Beside each number is its change with the 90 % interval; pale ones may not have changed." : intervals ? " Beside each number is its 90 % interval and the word on it." : "";
    const focused = document.activeElement instanceof HTMLInputElement ? document.activeElement.value : "";
    const table = byId("areas");
    const held = table.contains(document.activeElement);
    table.replaceChildren(
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
        make("tbody", {}, ...rows),
      ),
    );
    if (held) table.querySelector<HTMLInputElement>(`input[value="${focused}"]`)?.focus();
    this.more.hidden = areas.length === matches.length;
    byId("listed").textContent = `${number(areas.length)} of ${number(matches.length)} areas are listed, those with the most ${counted} first.${note}`;
  }

  /** The areas that the text of the filter names, those with the most trips first. */
  private findMatches(side: Side, level: number): number[] {
    const text = this.filter.value.trim();
    const sizes = side.sizes[level];
    const rankOf = ranker(text, side.levels);
    const isNamed = (area: number): boolean => rankOf([side.labels[level][area], ...otherNames(side, level, area)], []) < Infinity;
    const matches = [...side.codes[level].keys()].filter((area) => !text || isNamed(area));
    return matches.sort((one, two) => sizes[two] - sizes[one] || one - two);
  }
}
