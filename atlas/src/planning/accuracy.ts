/** How exact the numbers of a setting are, by level and by size of a flow. */

import { make, number, scrollingTable } from "../dom";
import type { Facts } from "./facts";
import { isPure, type Accuracy, type Planned } from "./plan";
import { seen } from "./privacy";
import type { State } from "./state";
import { chanceAtMost, exact, inWords, plusMinus, rounded, shareOf, trips, worded } from "./words";

const FLOWS = [10, 100, 1_000, 10_000];

/** Levels of the tree at which origins and destinations have the same level of areas; without destinations, all. */
export function evenLevels({ tree }: Planned): number[] {
  const step = tree.depth / tree.set.kept.length;
  return tree.set.kept.map((_, place) => step * (place + 1));
}

/** How exact flows of the setting are, in a sentence, in tables and in the words of `od-release plan`. */
export function accuracy(facts: Facts, state: State, planned: Planned): Node[] {
  const finest = planned.tree.depth;
  const width = planned.totals.widths[finest];
  const flows = [...new Set([...FLOWS, state.flow])].sort((one, other) => one - other);
  const merged = [planned.tree.set.origin, planned.tree.set.destination].some((shapes) => shapes?.merged);
  const ofCounts = facts.levels.length === 1 ? ", where a count is a flow, and a record a trip" : "";
  const keepsAll = planned.keepsAll || facts.mechanism.measures === "all_leaves";
  const notes = [
    "± trips: nine times in ten, or more often, the unbiased estimate of a flow is at most this far from the number of" +
      " counted trips. It holds for the pair of areas with the widest interval of the level, and is rounded up. It" +
      " depends on the setting alone, not on the size of the flow.",
    ...(keepsAll ? [] : ["Pairs of areas that seem to have no trips are dropped early here. This is said of the others."]),
    ...(facts.mechanism.measures === "all_leaves"
      ? []
      : [
          "Published flows are whole numbers of at least 0 that add up over the levels. Where most pairs of areas have no" +
            " trips, they can be further off than this.",
        ]),
    "Expected error: the root mean square of the error of the published numbers over all pairs of areas of the level," +
      " if no estimate is cut at 0. It is a forecast from the noise alone.",
    ...(facts.mechanism.isPlain
      ? []
      : ["The options of the mechanism change the published numbers further. The expected error is that without them."]),
    ...(merged ? ["Areas of similar shapes are treated as one here, so the numbers are an approximation."] : []),
  ];
  return [
    make(
      "p",
      { class: "lead" },
      worded`A flow of ${trips(state.flow)} between two areas of the finest level (${planned.tree.names[finest]}) is known to `,
      make("strong", {}, worded`${plusMinus(width)} trips`),
      ` (${shareOf(width, state.flow)}), nine times in ten.`,
    ),
    accuracyTable(inWords("Flows of all trips"), "", planned, planned.totals, flows),
    ...planned.breakdowns.map((each) =>
      accuracyTable(worded`Flows of one category of ${each.name}`, each.name, planned, each, flows),
    ),
    ...notes.map((note) => make("p", { class: "note" }, inWords(note))),
    make(
      "details",
      {},
      make("summary", {}, `The same in sentences, as od-release plan prints them${ofCounts}`),
      make("ul", { class: "verdicts" }, ...planned.verdicts.map((verdict) => make("li", {}, verdict))),
    ),
  ];
}

/** A table of the errors by level: of all trips, or of one category of a breakdown. */
function accuracyTable(title: string, name: string, planned: Planned, of: Accuracy, flows: number[]): HTMLElement {
  const heads = ["Flows between", "Pairs of areas", "± trips, 9 times in 10"].map(inWords);
  heads.push(...flows.map((flow) => `of ${trips(flow)}`), inWords("Expected error, in trips"));
  const errors = of.errors();
  const rows = planned.tree.names.map((_, level) => {
    const isExact = level === 0 && name === "" && planned.publishesTotal;
    const width = of.widths[level];
    const known = isExact
      ? [exact(width, "exact"), ...flows.map(() => "0 %")]
      : [exact(width, plusMinus(width)), ...flows.map((flow) => shareOf(width, flow))];
    return make(
      "tr",
      { "data-level": level, "data-by": name },
      make("th", { scope: "row" }, planned.tree.names[level]),
      make("td", { class: "number" }, number(planned.tree.cells[level])),
      ...known.map((text, place) => make("td", { class: "number", ...(place ? {} : { "data-name": "width" }) }, text)),
      make("td", { class: "number", "data-name": "error" }, exact(errors[level], rounded(errors[level]))),
    );
  });
  return scrollingTable(title, heads, rows);
}

/** The chance that a small flow is told from 0, by level. */
export function smallFlows(facts: Facts, state: State, planned: Planned): Node[] {
  const rows = evenLevels(planned).map((level) => {
    const { widths, variances } = planned.totals;
    const chance = seen(state.small, widths[level], variances[level], isPure(facts));
    const bar = make("div", { class: "bar" }, make("i", { class: "value", style: `left:0;width:${100 * chance}%` }));
    return make(
      "tr",
      { "data-level": level },
      make("th", { scope: "row" }, planned.tree.names[level]),
      make("td", { class: "number", "data-name": "seen" }, exact(chance, chanceAtMost(chance))),
      make("td", { class: "bars", "aria-hidden": "true" }, bar),
    );
  });
  const heads = [inWords("A flow between"), "Told from 0, at most about", "0 to 100 %"];
  const noise = isPure(facts) ? "normal or Laplace noise, whichever gives more" : "normal noise";
  const notes = [
    `Told from 0: the 90 % interval of the flow does not contain 0. The chance is computed for the pair of areas with the` +
      ` widest interval of the level, and with ${noise}. Where few pairs of areas are published above 0, the intervals` +
      ` of these reach further down, and fewer are told from 0.`,
    "This is not the chance that the published number is above 0. Of the pairs of areas without any trip, at most about one" +
      " in twenty has an interval that does not contain 0.",
  ];
  return [
    scrollingTable(worded`The chance that a flow of ${trips(state.small)} is told from 0`, heads, rows),
    ...notes.map((note) => make("p", { class: "note" }, inWords(note))),
  ];
}
