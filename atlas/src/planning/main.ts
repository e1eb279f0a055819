/** The planning page: what the reader decides, and what follows from it. */

import { byId, make, number } from "../dom";
import { accuracy, smallFlows } from "./accuracy";
import { alternatives } from "./alternatives";
import { yearFactor } from "./bounds";
import { Controls, unitText } from "./controls";
import { declaration } from "./declaration";
import { readFacts } from "./facts";
import { areasOf, isOfDeclaredUnit, isPure, plan, type Planned } from "./plan";
import { promise } from "./promise";
import { seen } from "./privacy";
import { declaredState, fragment, stated, type State } from "./state";
import { chanceAtMost, exact, inWords, oneIn, plusMinus, shareOf, speakOf, trips, trusted, up, worded } from "./words";

const facts = readFacts();
speakOf(facts);
let state = stated(location.hash, facts);

/** Change the state, the address of the page and what it shows. */
function change(changed: Partial<State>): void {
  state = { ...state, ...changed };
  history.replaceState(null, "", fragment(state, facts));
  show();
}

const controls = new Controls(facts, () => state, change, () => change(declaredState(facts)));

/** Show the plan of the state in all sections. */
function show(): void {
  const planned = plan(facts, state);
  controls.show(planned);
  fill("short", "This setting in short", [make("p", {}, settingText(planned)), short(planned)]);
  fill("promise", "What a person is promised", promise(facts, state, planned));
  fill("accuracy", inWords("How exact the flows are"), accuracy(facts, state, planned));
  fill("seen", worded`Is a flow of ${trips(state.small)} seen?`, smallFlows(facts, state, planned));
  fill("alternatives", "The alternatives side by side", alternatives(facts, state, planned));
  fill("declaration", "For the declaration", declaration(facts, planned));
  byId("results").dataset.shown = fragment(state, facts);
  byId("said").textContent = said(planned);
}

/** Fill a section; what is folded out stays so. */
function fill(id: string, title: string, content: Node[]): void {
  const section = byId(id);
  const open = [...section.querySelectorAll("details")].map((details) => details.open);
  section.replaceChildren(make("h2", { id: `${id}-title` }, title), ...content);
  for (const [place, details] of [...section.querySelectorAll("details")].entries()) details.open = open[place] ?? false;
}

/** The setting in four numbers. */
function short(planned: Planned): HTMLElement {
  const { budget } = planned;
  const finest = planned.tree.depth;
  const { widths, variances } = planned.totals;
  const measure = isPure(facts) ? "epsilon" : "rho";
  const chance = seen(state.small, widths[finest], variances[finest], isPure(facts));
  const tiles: [string, Node, string][] = [
    [
      "Privacy budget, at most",
      make("span", { "data-name": "budget" }, `epsilon ${budget.epsilon}`),
      facts.delta === null ? "without delta" : `at delta ${facts.delta.text} (${oneIn(facts.delta.value)})`,
    ],
    [
      "Charge to the data set",
      make("span", { "data-name": "charge" }, exact(planned.charge[0], `${measure} ${planned.charge[1]}`)),
      ofCap(planned),
    ],
    [
      worded`A flow of ${number(state.flow)} (${planned.tree.names[finest]})`,
      make("span", {}, worded`${plusMinus(widths[finest])} trips`),
      `${shareOf(widths[finest], state.flow)}, nine times in ten`,
    ],
    [
      worded`A flow of ${number(state.small)} (${planned.tree.names[finest]}) is told from 0`,
      make("span", {}, chanceAtMost(chance)),
      "of cases, at most about",
    ],
  ];
  return make(
    "dl",
    { class: "tiles" },
    ...tiles.map(([name, value, note]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, note))),
    ),
  );
}

/** The setting in words, which is also read where the controls are not shown, as on paper. */
function settingText(planned: Planned): string {
  const { set } = planned.tree;
  const levels = set.kept.map((level) => areasOf(facts, level));
  const unit = unitText(planned.unit, state);
  const segments = facts.segments ? `; ${state.segments ? "with" : "without"} segments` : "";
  const shares = state.weights ? "chosen" : planned.rule.fits ? "declared" : "the mechanism's";
  return (
    `Epsilon ${planned.budget.epsilon}; ${unit}; levels ${levels.join(", ")}${segments};` +
    ` ${shares} shares of the budget.`
  );
}

/** What the charge is of the cap, which holds for the declared unit alone. */
function ofCap(planned: Planned): string {
  if (facts.cap === null || !isOfDeclaredUnit(facts, state)) return "of one release";
  // The cap counts by the measure of which the charge is the smaller part.
  const ofRho = facts.cap.rho === null ? Infinity : planned.rho / facts.cap.rho;
  const ofEpsilon = facts.cap.epsilon === null ? Infinity : planned.charge[0] / facts.cap.epsilon;
  const part = Math.min(ofRho, ofEpsilon);
  const share = 100 * part;
  const asRho = isPure(facts) && ofRho < ofEpsilon ? `, as rho ${up(planned.rho)}` : "";
  const said = `${up(share)} % of the cap of the data set${asRho}`;
  if (part > 1) return `${said}: more than it allows, so od-release would refuse it`;
  if (planned.unit.kind !== "user_year") return said;
  const { periods } = facts.year!;
  const all = share * yearFactor(periods, state, planned.tree.set, planned.charges);
  const over = trusted(all) > 100 ? ": more than it allows, so od-release would refuse some of them" : "";
  return `${said}, which is for a year; ${number(periods)} such releases, one of each period, take ${up(all)} %${over}`;
}

/** What a screen reader says of a new setting. */
function said(planned: Planned): string {
  const finest = planned.tree.depth;
  return (
    worded`Epsilon ${planned.budget.epsilon}. A flow of ${trips(state.flow)} (${planned.tree.names[finest]}) is` +
    worded` known to ${plusMinus(planned.totals.widths[finest])} trips.`
  );
}

addEventListener("hashchange", () => {
  state = stated(location.hash, facts);
  show();
});
document.querySelector("main")!.hidden = false;
show();
