/** The alternatives to a setting, side by side. */

import { make, number, scrollingTable } from "../dom";
import { pairCap } from "./bounds";
import type { Facts } from "./facts";
import { areasOf, plan, type Planned, type Setting } from "./plan";
import { declaredState, type State } from "./state";
import { levelsPerArea } from "./tree";
import { exact, inWords, plusMinus, shareOf, trips, worded } from "./words";

const DECLARED = "As declared";

interface Alternative {
  name: string;
  planned: Planned;
  /** Trips of the example in the period of this alternative. */
  flow: number;
}

/** The table of alternatives, with notes. */
export function alternatives(facts: Facts, state: State, now: Planned): Node[] {
  const all = plan(facts, declaredState(facts));
  const perArea = levelsPerArea(facts);
  const levels = facts.levels[0].map((_, place) => place + 1);
  const shown = listed(facts, state, now);
  const others = shown.some(({ name }) => name === DECLARED)
    ? `The row "${DECLARED}" is the declared setting, and every other row changes one thing.`
    : "It is the declared setting. Every other row changes one thing.";
  const unfit = !now.setting.weights && shown.some(({ planned }) => !planned.rule.fits);
  const shares = unfit ? " Where the declared shares do not fit, the mechanism shares the budget." : "";
  const rows = shown.map(({ name, planned, flow }, place) =>
    make(
      "tr",
      { class: place ? "" : "now", "data-alternative": name },
      make("th", { scope: "row" }, name),
      ...levels.map((level) => {
        const at = planned.tree.set.kept.indexOf(level);
        if (at < 0) return make("td", { class: "number faint" }, "not a level");
        const width = planned.totals.widths[perArea * (at + 1)];
        const share = `${shareOf(width, flow)} of ${number(flow)}`;
        return make("td", { class: "number" }, exact(width, plusMinus(width)), make("small", {}, share));
      }),
    ),
  );
  const heads = ["", ...levels.map((level) => all.tree.names[perArea * level])];
  heads[0] = inWords("± trips, 9 times in 10");
  return [
    make("p", {}, worded`The first row is this setting. ${others}${shares} The example is a flow of ${trips(state.flow)}.`),
    scrollingTable(inWords("± trips by alternative"), heads, rows),
    make(
      "p",
      { class: "note" },
      worded`Longer periods: the noise does not depend on the length of a period. If a flow of ${trips(state.flow)} becomes one` +
        ` of ${number(state.times * state.flow)} in a period ${number(state.times)} times as long, the same number of` +
        worded` trips is a smaller share of it.${userNote(now, state)}`,
    ),
    make("p", { class: "note" }, fewerLevels(facts)),
    ...mixedNote(facts, now),
  ];
}

/** What happens to the budget and the numbers of a level that is left out. */
function fewerLevels(facts: Facts): string {
  const divided = facts.mechanism.measures === "every_level" ? "the budget is divided among fewer measurements, and " : "";
  return `Fewer levels: ${divided}a number of a level that is left out is a sum of noisy numbers, or is not published.`;
}

/** That the bound of a user's trips holds for a longer period, too; "" for a unit of single trips. */
function userNote(now: Planned, state: State): string {
  if (now.unit.kind === "trip") return "";
  return ` At most ${trips(state.trips)} of a person are then counted in the whole longer period.`;
}

/** Why the row of the declared setting has less noise although nothing but a share was moved. */
function mixedNote(facts: Facts, now: Planned): Node[] {
  const { setting, rule } = now;
  const exactRho = rule.rho?.[setting.budget];
  if (!setting.weights || !exactRho) return [];
  const more = 100 * (Math.sqrt(exactRho[0] / facts.budgets[setting.budget].charge[0]) - 1);
  const text =
    `Shares that you choose are planned with the conversion ${facts.conversion}, and declared shares with the conversion` +
    ` exact. For the declared shares, the conversion ${facts.conversion} would need noise that is about` +
    ` ${more.toLocaleString("en", { maximumFractionDigits: 1 })} % wider, so compare your shares with other rows with care.`;
  return [make("p", { class: "note", "data-more": more }, text)];
}

/** The alternatives: this setting, the declared one, and each with one thing left out or longer. */
function listed(facts: Facts, state: State, now: Planned): Alternative[] {
  const { flow } = state;
  const changed = (change: Partial<Setting>): Planned => plan(facts, { ...now.setting, ...change });
  const found: Alternative[] = [{ name: "This setting", planned: now, flow }];
  const declared = declaredState(facts);
  if (!same(declared, now)) {
    found.push({ name: DECLARED, planned: plan(facts, declared), flow });
  }
  const { kept } = now.tree.set;
  for (const level of [...kept].reverse()) {
    const others = kept.filter((other) => other !== level).join(",");
    const set = facts.sets.findIndex((each) => each.kept.join(",") === others);
    if (set < 0) continue;
    const coarser = level === kept.at(-1) ? "Coarser zones: without" : "Without";
    found.push({ name: `${coarser} ${areasOf(facts, level)}`, planned: changed({ set }), flow });
  }
  if (state.segments) found.push({ name: "Without segments", planned: changed({ segments: false }), flow });
  if (now.unit.trips === null && pairCap(now.setting) !== null) {
    found.push({ name: inWords("Without the cap for each pair of zones"), planned: changed({ pair: now.setting.trips }), flow });
  }
  found.push({ name: `A period ${number(state.times)} times as long`, planned: now, flow: flow * state.times });
  return found;
}

/** Whether a setting gives the same plan as another; what its unit does not use may differ. */
function same(one: Setting, { setting: other, unit }: Planned): boolean {
  const names: (keyof Setting)[] = ["budget", "unit", "set", "segments"];
  if (unit.trips === null) names.push("trips");
  if (unit.kind === "user_year") names.push("yearly");
  if (unit.trips === null && pairCap(one) !== pairCap(other)) return false;
  return !other.weights && names.every((name) => one[name] === other[name]);
}
