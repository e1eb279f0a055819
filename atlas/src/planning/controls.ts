/** The controls of a setting: they show the state, and change it. */

import { byId, make, number, percent } from "../dom";
import { pairCap } from "./bounds";
import type { Facts, UnitFacts } from "./facts";
import { areasOf, declaredLevel, weightedLevels, type Planned, type Setting } from "./plan";
import { limits, MOST_WEIGHT, NUMBERS, shownPair, typed, weightsOfRule } from "./state";
import { whole, within, type NumberName, type State } from "./state";
import { inWords } from "./words";

const KINDS: Record<UnitFacts["kind"], string> = {
  trip: "one trip",
  user: "all trips of a person",
  user_period: "all trips of a person in one elementary period",
  user_year: "all trips of a person in one year",
};

const RELATIONS: Record<UnitFacts["relation"], string> = {
  bounded: "replaced by another",
  unbounded: "added or removed",
};

/** The protected change in a few words. */
export function unitText({ kind, relation, trips }: UnitFacts, chosen: Setting): string {
  const bound = kind === "user_year" ? ` in each period and ${number(chosen.yearly)} in the year` : "";
  const cap = pairCap(chosen);
  const ofPair = cap === null ? "" : inWords(`, and at most ${number(cap)} with the same origin and destination zone,`);
  const counted = trips === null ? `, of which at most ${number(chosen.trips)}${bound}${ofPair} are counted,` : "";
  return `${kindText(kind, trips)}${counted} ${kind === "trip" ? "is" : "are"} ${RELATIONS[relation]}`;
}

/** The privacy unit in a few words. */
function kindText(kind: UnitFacts["kind"], trips: number | null): string {
  return kind === "trip" && trips! > 1 ? inWords(`one record of at most ${trips} trips`) : inWords(KINDS[kind]);
}

export class Controls {
  /** The sliders of the weights, by level of the tree with all levels; made anew if there are other levels. */
  private sliders = new Map<number, { input: HTMLInputElement; text: HTMLElement }>();
  private slidersOf = "";

  constructor(
    private readonly facts: Facts,
    private readonly state: () => State,
    private readonly change: (changed: Partial<State>) => void,
    reset: () => void,
  ) {
    const texts = document.createTreeWalker(byId("controls"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.nodeValue = inWords(texts.currentNode.nodeValue!);
    const budget = byId<HTMLInputElement>("budget");
    budget.max = String(facts.budgets.length - 1);
    budget.oninput = () => change({ budget: Number(budget.value) });
    this.prepareUnits();
    this.prepareLevels();
    this.prepareNumbers();
    const segments = byId<HTMLInputElement>("segments");
    byId("breakdowns").hidden = !facts.segments;
    const names = facts.segments?.breakdowns.map(({ name, categories }) => `${name} (${categories} categories)`) ?? [];
    segments.nextElementSibling!.textContent = `${inWords("also count trips by")} ${names.join(" and ")}`;
    segments.onchange = () => change({ segments: segments.checked });
    byId("rule").onclick = () => change({ weights: null });
    byId("declared").onclick = reset;
    byId<HTMLFormElement>("controls").onsubmit = (event) => event.preventDefault();
  }

  /** Fill the menus of units and of neighbours. A combination that the page does not have changes nothing. */
  private prepareUnits(): void {
    const { units } = this.facts;
    const [kind, relation] = [byId<HTMLSelectElement>("kind"), byId<HTMLSelectElement>("relation")];
    for (const name of new Set(units.map((unit) => unit.kind))) {
      const { trips } = units.find((unit) => unit.kind === name)!;
      kind.append(make("option", { value: name }, kindText(name, trips)));
    }
    for (const [name, text] of Object.entries(RELATIONS)) relation.append(make("option", { value: name }, text));
    kind.onchange = relation.onchange = () => {
      const unit = units.findIndex((each) => each.kind === kind.value && each.relation === relation.value);
      this.change({ unit });
    };
  }

  /** Make a box for each level of areas. */
  private prepareLevels(): void {
    const depth = this.facts.levels[0].length;
    for (let level = 1; level <= depth; level++) {
      const box = make("input", { type: "checkbox", name: "level", value: level });
      box.onchange = () => this.chooseLevels();
      byId("levels").append(make("label", {}, box, ` ${areasOf(this.facts, level)}`));
    }
    const every = 2 ** depth - 1;
    if (this.facts.sets.length < every) {
      byId("levels").append(make("p", { class: "note" }, "Only the first and the last levels can be left out here."));
    }
  }

  /** Take the levels whose boxes are checked, if the page has this set of levels. */
  private chooseLevels(): void {
    const kept = [...byId("levels").querySelectorAll<HTMLInputElement>("input:checked")].map((box) => box.value);
    const set = this.facts.sets.findIndex((each) => each.kept.join(",") === kept.join(","));
    this.change(set < 0 ? {} : { set });
  }

  /** Take numbers as they are typed, if they are within their limits. */
  private prepareNumbers(): void {
    for (const name of Object.keys(NUMBERS) as NumberName[]) {
      const input = byId<HTMLInputElement>(name);
      input.oninput = () => {
        const value = within(limits(name, this.state(), this.facts), whole(input.value));
        input.setAttribute("aria-invalid", String(value === null));
        if (value !== null) this.change(typed(name, value, this.state()));
      };
      input.onchange = () => {
        input.value = this.shown(name);
        input.setAttribute("aria-invalid", "false");
      };
    }
  }

  /** The text of a number that readers type. */
  private shown(name: NumberName): string {
    return String(name === "pair" ? shownPair(this.state()) : this.state()[name]);
  }

  /** Show a setting in all controls. */
  show(planned: Planned): void {
    const { facts } = this;
    const state = this.state();
    const { kind, relation, trips } = planned.unit;
    const budget = byId<HTMLInputElement>("budget");
    const text = `epsilon ${facts.budgets[state.budget].epsilon}`;
    budget.value = String(state.budget);
    budget.setAttribute("aria-valuetext", text);
    byId("budget-text").textContent = state.budget === facts.declared.budget ? `${text} (declared)` : text;
    byId<HTMLSelectElement>("kind").value = kind;
    byId<HTMLSelectElement>("relation").value = relation;
    byId("trips-label").hidden = trips !== null;
    byId("trips-label").querySelector("span")!.textContent = kind === "user_year" ? " in each period" : "";
    byId("pair-label").hidden = trips !== null;
    byId("yearly-label").hidden = kind !== "user_year";
    byId("person-label").hidden = kind !== "trip";
    byId("person-label").querySelector("span")!.textContent = trips !== null && trips > 1 ? "records" : inWords("trips");
    for (const name of Object.keys(NUMBERS) as NumberName[]) {
      const input = byId<HTMLInputElement>(name);
      const { least, most } = limits(name, state, facts);
      [input.min, input.max] = [String(least), String(most)];
      if (document.activeElement !== input) input.value = this.shown(name);
    }
    this.showLevels(planned.tree.set.kept);
    byId<HTMLInputElement>("segments").checked = state.segments;
    this.showWeights(planned);
  }

  /** Show the kept levels. A level whose change would give levels that the page does not have cannot be chosen. */
  private showLevels(kept: number[]): void {
    for (const box of byId("levels").querySelectorAll<HTMLInputElement>("input")) {
      const level = Number(box.value);
      box.checked = kept.includes(level);
      const other = box.checked ? kept.filter((each) => each !== level) : [...kept, level].sort((a, b) => a - b);
      box.disabled = !this.facts.sets.some((set) => set.kept.join(",") === other.join(","));
    }
  }

  /** Show a slider for the weight of each level, and its share of the budget; make the sliders anew for other levels. */
  private showWeights(planned: Planned): void {
    const { facts } = this;
    const state = this.state();
    const levels = weightedLevels(facts, state);
    byId("weights").hidden = levels.length < 2;
    byId<HTMLButtonElement>("rule").disabled = !state.weights;
    const { set } = planned.tree;
    if (this.slidersOf !== `${state.set} ${levels.length}`) {
      this.slidersOf = `${state.set} ${levels.length}`;
      this.sliders.clear();
      const rows = levels.map((level) => {
        const at = declaredLevel(facts, set, level);
        const id = `weight-${at}`;
        const input = make("input", { id, type: "range", min: 1, max: MOST_WEIGHT, step: 1 });
        const text = make("output", { for: id });
        input.oninput = () => this.weigh(at, Number(input.value));
        this.sliders.set(at, { input, text });
        return make("p", { class: "weight" }, make("label", { for: id }, `${planned.tree.names[level]}: `, text), input);
      });
      byId("weights").querySelector("div")!.replaceChildren(...rows);
    }
    const weights = state.weights ?? weightsOfRule(facts, state);
    for (const level of levels) {
      const { input, text } = this.sliders.get(declaredLevel(facts, set, level))!;
      text.textContent = percent(planned.shares.get(level) ?? 0);
      input.value = String(weights[declaredLevel(facts, set, level)]);
      input.setAttribute("aria-valuetext", text.textContent);
    }
  }

  /** Change the weight of one level; the others stay, or begin as the declared shares. */
  private weigh(level: number, weight: number): void {
    const weights = [...(this.state().weights ?? weightsOfRule(this.facts, this.state()))];
    weights[level] = weight;
    this.change({ weights });
  }
}
