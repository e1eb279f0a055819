/** What a person is promised, in sentences and as a table. */

import { make, number } from "../dom";
import type { Facts } from "./facts";
import type { Planned } from "./plan";
import { epsilonTight, logOdds, rhoOfGroup, rightGuess } from "./privacy";
import type { State } from "./state";
import { table } from "./table";
import { chanceAtMost, exact, factorAtMost, oneIn, up } from "./words";

const PERSONS = [1, 2, 5, 10, 20, 50];

export function promise(facts: Facts, state: State, planned: Planned): Node[] {
  const { unit } = planned;
  const change = unit.change[Number(state.segments)].replace("{trips}", number(state.trips));
  const chance = oneIn(facts.delta.value);
  const record = unit.trips !== null && unit.trips > 1 ? "record" : "trip";
  const isTrip = unit.kind === "trip";
  const period = unit.kind === "user_period" ? " in one elementary period" : "";
  const others = unit.kind === "user" ? "with trips of this person, also of other periods," : "of the same trips";
  const whole = planned.publishesTotal ? " The number of all trips is published exactly, and is not protected." : "";
  const sentences = [
    `The promise compares the records as they are with the records as they would be if ${change}.${whole}`,
    isTrip
      ? `It is made for one ${record}. For a person with several ${record}s, all of which change, it is weaker: with k` +
        ` ${record}s, the charge rho is k x k times as large.`
      : `It is made for all trips of a person${period}, whatever their number: at most ${number(state.trips)} of them` +
        " are counted.",
  ];
  const persons = isTrip ? [...new Set([...PERSONS, state.person])].sort((one, other) => one - other) : [null];
  const rows = persons.map((trips) => row(facts, planned, trips, record, trips === state.person));
  const heads = [
    isTrip ? `${record === "trip" ? "Trips" : "Records"} of the person` : "Trips of the person",
    `Epsilon at delta ${facts.delta.text}, at most`,
    "Somebody guesses right, at most",
    "Odds of the truth grow, at most",
  ];
  return [
    ...sentences.map((sentence) => make("p", {}, sentence)),
    table("What the promise means for one person", heads, rows),
    make(
      "p",
      { class: "note" },
      "Guessing: somebody who finds both sets of records equally likely beforehand says, from the tables, which one is" +
        " real. Without the tables, they would be right in 50 %. The limit holds whatever else they know.",
    ),
    make(
      "p",
      { class: "note" },
      `Odds: whatever odds somebody gave the two sets of records beforehand, the tables multiply the odds of the real one` +
        ` by at most this factor, except with a chance of at most ${chance}.`,
    ),
    make(
      "p",
      { class: "note" },
      `The promise is for one release. Other releases ${others} add to it. It does not say that nothing can be learnt` +
        " about a person: what the tables show of everybody may be true of this person, too.",
    ),
  ];
}

function row(facts: Facts, planned: Planned, trips: number | null, record: string, chosen: boolean): HTMLElement {
  const rho = trips === null ? planned.rho[0] : rhoOfGroup(planned.rho[0], trips);
  const epsilon = epsilonTight(rho, facts.logInverseDelta);
  // The budget's own epsilon may be smaller, because its conversion is more exact.
  const stated = trips === null || trips === 1 ? Math.min(epsilon, planned.budget.promised) : epsilon;
  const guess = rightGuess(stated, facts.delta.value, rho);
  const odds = logOdds(rho, facts.logInverseDelta);
  return make(
    "tr",
    { class: chosen ? "now" : "" },
    make("th", { scope: "row" }, trips === null ? "any number" : `${number(trips)} ${record}${trips === 1 ? "" : "s"}`),
    make("td", { class: "number", "data-name": "epsilon" }, exact(stated, up(stated))),
    make("td", { class: "number", "data-name": "guess" }, exact(guess, chanceAtMost(guess))),
    make("td", { class: "number", "data-name": "odds" }, exact(odds, factorAtMost(odds))),
  );
}
