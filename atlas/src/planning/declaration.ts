/** The lines of the declaration that make a setting the plan of a release. */

import { make } from "../dom";
import { pairCap } from "./bounds";
import type { Facts } from "./facts";
import { declaredLevel, isOfDeclaredUnit, type Planned } from "./plan";

export function declaration(facts: Facts, planned: Planned): Node[] {
  const { setting, rule, unit, tree } = planned;
  const budget = facts.budgets[setting.budget];
  const declared = facts.units[facts.declared.unit];
  const parts = [`${budget.declared}: "${budget.exact}"`, ...(facts.delta ? [`delta: "${facts.delta.exact}"`] : [])];
  if (setting.weights) {
    const { weights } = setting;
    const own = [...planned.shares.keys()].map((level) => weights[declaredLevel(facts, tree.set, level)]);
    const sum = own.reduce((one, other) => one + other, 0);
    if (facts.delta) parts.push(`conversion: ${facts.conversion}`);
    parts.push(`shares: [${own.map((weight) => `"${weight}/${sum}"`).join(", ")}]`);
  }
  const lines = [`privacy: {${parts.join(", ")}}`];
  const notes = ["A planner makes this setting the plan of the release with these lines; the rest stays as declared."];
  if (!setting.weights) {
    notes.push(
      rule.fits
        ? `${facts.delta ? "The conversion and the" : "The"} shares of the budget stay as declared, too.`
        : "The declared shares are for other levels, so they are left out, and the mechanism shares the budget.",
    );
  }
  if (rule.ofTree < 1) {
    notes.push(`Area totals have ${Math.round(1000 * (1 - rule.ofTree)) / 10} % of the budget, and the levels the rest.`);
  }
  const isYear = unit.kind === "user_year";
  const cap = pairCap(setting);
  const bounds = [`max_trips: ${setting.trips}`, ...(cap === null ? [] : [`max_trips_pair: ${cap}`])].join(", ");
  if (unit.trips === null && !isYear) lines.push(`bounds: {${bounds}}`);
  if (facts.declared.pair !== null && (unit.trips !== null || cap === null)) notes.push("max_trips_pair is left out.");
  if (setting.set > 0) {
    const { kept } = tree.set;
    const names = facts.levels.map((side) => kept.map((level) => JSON.stringify(side[level - 1])).join(", "));
    lines.push(`geography: {levels: [${names[0]}]}`);
    if (names.length > 1 && names[0] !== names[1]) lines.push(`destination_geography: {levels: [${names[1]}]}`);
    if (kept.at(-1) !== facts.levels[0].length) {
      notes.push("The list of zones then needs one row for each area of the new finest level.");
    }
  }
  if (facts.segments && !setting.segments) notes.push("The section segments is left out.");
  if (!isOfDeclaredUnit(facts, setting)) {
    lines.push("", "# in the file of the data set", `unit: ${unit.kind}`, `neighbours: ${unit.relation}`);
    if (isYear) lines.push(`bounds: {${bounds}, max_trips_year: ${setting.yearly}}`);
    const what = isYear ? "The unit, its neighbours and its bounds" : "The unit and its neighbours";
    notes.push(`${what} are declared once, for all releases of a data set.`);
    if (!isYear && declared.kind === "user_year") {
      notes.push("Unit trip takes no column, bounds, id_pattern or year, so leave these out.");
    }
  }
  return [make("pre", { tabindex: 0 }, lines.join("\n")), ...notes.map((note) => make("p", { class: "note" }, note))];
}
