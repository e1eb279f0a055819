/** What a person is promised, in sentences and as a table. */

import { make, number, scrollingTable } from "../dom";
import { pairCap, yearFactor } from "./bounds";
import type { Delta, Facts, UnitFacts } from "./facts";
import { isPure, type Planned } from "./plan";
import { epsilonTight, logOdds, rightGuess } from "./privacy";
import type { State } from "./state";
import { chanceAtMost, exact, factorAtMost, inWords, oneIn, rounded, trips, up, worded } from "./words";

const PERSONS = [1, 2, 5, 10, 20, 50];

const SPANS: Record<UnitFacts["kind"], string> = {
  trip: "",
  user: "",
  user_period: " in one elementary period",
  user_year: " in one year",
};

/** Other releases that add to the promise. */
const OTHERS: Record<UnitFacts["kind"], string> = {
  trip: "of the same trips",
  user: "with trips of this person, also of other periods,",
  user_period: "of the same trips",
  user_year: "with trips of this person, also of other years,",
};

/** The promise in sentences, and a table of what it means for one person. */
export function promise(facts: Facts, state: State, planned: Planned): Node[] {
  const { unit } = planned;
  const bounds = { trips: number(state.trips), pair: number(state.pair), yearly: number(state.yearly) };
  const isCapped = unit.changeOfPairs !== null && pairCap(state) !== null;
  const named = (isCapped ? unit.changeOfPairs! : unit.change)[Number(state.segments)];
  const change = named.replace(/{(trips|pair|yearly)}/g, (_, name: keyof typeof bounds) => bounds[name]);
  const record = unit.trips !== null && unit.trips > 1 ? "record" : "trip";
  const isTrip = unit.kind === "trip";
  const isYear = unit.kind === "user_year";
  const whole = planned.publishesTotal ? " The number of all trips is published exactly, and is not protected." : "";
  const ofPeriods =
    ` in each period, and at most ${bounds.yearly} in the year. Once so many are counted, the other periods of the` +
    " year count none of this person.";
  const sentences = [
    `The promise compares the records as they are with the records as they would be if ${change}.${whole}`,
    isTrip
      ? `It is made for one ${record}. For a person with several ${record}s, all of which change, it is weaker: with k` +
        ` ${record}s, ${isPure(facts) ? "epsilon is k times" : "the charge rho is k x k times"} as large.`
      : `It is made for all trips of a person${SPANS[unit.kind]}, whatever their number: at most ${bounds.trips} of` +
        ` them are counted${isYear ? ofPeriods : "."}`,
    ...(isCapped ? [ofPairs(state.pair, isYear)] : []),
  ];
  const heads = [
    isYear ? "Releases" : worded`${record === "trip" ? inWords("Trips") : "Records"} of the person`,
    facts.delta === null ? "Epsilon, at most" : `Epsilon at delta ${facts.delta.text}, at most`,
    "Somebody guesses right, at most",
    "Odds of the truth grow, at most",
  ];
  return [
    ...sentences.map((sentence) => make("p", {}, inWords(sentence))),
    ...(isYear ? [ofYear(facts, state, planned)] : []),
    scrollingTable("What the promise means for one person", heads, rows(facts, state, planned, record)),
    make(
      "p",
      { class: "note" },
      "Guessing: somebody who finds both sets of records equally likely beforehand says, from the tables, which one is" +
        " real. Without the tables, they would be right in 50 %. The limit holds whatever else they know." +
        (planned.rule.promise && !exactPromise(planned)
          ? " For this setting, epsilon and this limit are computed from rho alone, so they may be larger than the plan" +
            " and the documents of the release will state."
          : ""),
    ),
    make(
      "p",
      { class: "note" },
      `Odds: whatever odds somebody gave the two sets of records beforehand, the tables multiply the odds of the real one` +
        ` by at most this factor${facts.delta ? `, except with a chance of at most ${oneIn(facts.delta.value)}` : ""}.`,
    ),
    make(
      "p",
      { class: "note" },
      `The promise is for ${isYear ? "the releases that a row names" : "one release"}. Other releases` +
        ` ${inWords(OTHERS[unit.kind])} add to it. It does not say that nothing can be learnt about a person: what the tables` +
        " show of everybody may be true of this person, too.",
    ),
  ];
}

/** What a cap for each pair of zones means for the flows. */
function ofPairs(pair: number, isYear: boolean): string {
  const counted = `${pair === 1 ? "is" : "are"} counted${isYear ? " in each period" : ""}`;
  const bound = `Of these, at most ${number(pair)} with the same origin and destination zone ${counted}`;
  const people = ", so a flow between two zones is a number of people, and a sum of flows counts a person once for each pair";
  return `${bound}${pair === 1 ? `${people} of zones` : ""}.`;
}

/** What a year costs if each of its periods is released once, and what its bound saves. */
function ofYear(facts: Facts, state: State, planned: Planned): HTMLElement {
  const { periods } = facts.year!;
  const factor = yearFactor(periods, state, planned.tree.set, planned.charges);
  const { rho } = planned;
  const cost = (times: number): HTMLElement =>
    make("span", { "data-cost": times }, exact(times * rho, `rho ${up(times * rho)}`));
  const larger = Math.sqrt(periods / factor);
  const saved =
    factor < periods
      ? [
          `Without the bound of ${trips(state.yearly)} in the year, they would cost at most `,
          cost(periods),
          `, which is ${number(periods)} times as much as one release. For the same promise for the year, the noise` +
            " would then be about ",
          make("span", { "data-name": "larger" }, exact(larger, rounded(larger))),
          " times as large.",
        ]
      : [
          `The bound of ${trips(state.yearly)} in the year changes nothing here: without it, at most` +
            ` ${number(periods * state.trips)} would be counted.`,
        ];
  return make(
    "p",
    {},
    `A year has ${number(periods)} elementary periods. If each is released once, like this one, these releases` +
      " together cost a person at most ",
    cost(factor),
    `: at most ${factor === 1 ? "" : `${up(factor)} times `}as much as one release. `,
    ...saved,
  );
}

/** The rows of the table: for persons with several trips, for one release, or for a year. */
function rows(facts: Facts, state: State, planned: Planned, record: string): HTMLElement[] {
  if (planned.unit.kind === "trip") {
    const persons = [...new Set([...PERSONS, state.person])].sort((one, other) => one - other);
    return persons.map((count) => {
      const name = inWords(`${number(count)} ${record}${count === 1 ? "" : "s"}`);
      return row(facts, planned, name, { units: count }, count === state.person);
    });
  }
  if (planned.unit.kind !== "user_year") return [row(facts, planned, "any number", {})];
  const { periods } = facts.year!;
  const factor = yearFactor(periods, state, planned.tree.set, planned.charges);
  return [
    row(facts, planned, "one release", {}),
    row(facts, planned, `a year of ${number(periods)} such releases`, { releases: factor }),
    row(facts, planned, "such a year without its bound", { releases: periods }),
  ];
}

/** How much is compared: a person with several units, or several releases as a multiple of the rho of one. */
interface Extent {
  units?: number;
  releases?: number;
}

/** A row: epsilon, the chance of a right guess and the odds that follow from rho or, with Laplace noise, from epsilon. */
function row(facts: Facts, planned: Planned, name: string, extent: Extent, chosen = false): HTMLElement {
  const [stated, guess, odds] = facts.delta === null ? pure(planned, extent) : converted(facts.delta, planned, extent);
  return make(
    "tr",
    { class: chosen ? "now" : "" },
    make("th", { scope: "row" }, name),
    make("td", { class: "number", "data-name": "epsilon" }, exact(stated, up(stated))),
    make("td", { class: "number", "data-name": "guess" }, exact(guess, chanceAtMost(guess))),
    make("td", { class: "number", "data-name": "odds" }, exact(odds, factorAtMost(odds))),
  );
}

/** Epsilon, the chance of a right guess and the logarithm of the odds, from rho; for several units, see
 * [bun2016concentrated, Proposition 1.9]. */
function converted(delta: Delta, planned: Planned, { units = 1, releases = 1 }: Extent): [number, number, number] {
  const rho = planned.rho * units ** 2 * releases;
  const epsilon = epsilonTight(rho, delta.logInverse);
  // One release of single trips has an exact privacy loss, which Python computed for the declared shares.
  const own = units === 1 && releases === 1 ? exactPromise(planned) : null;
  const [stated, guess] = own ?? [epsilon, rightGuess(epsilon, delta.value, rho)];
  return [stated, guess, logOdds(rho, delta.logInverse)];
}

/** The same from epsilon, which is the logarithm of the odds. No unit spans several releases. */
function pure({ charge, rho }: Planned, { units = 1 }: Extent): [number, number, number] {
  const epsilon = units * charge[0];
  return [epsilon, rightGuess(epsilon, 0, units ** 2 * rho), epsilon];
}

/** Epsilon and the chance of a right guess for one trip, if Python computed them from the exact privacy loss. */
function exactPromise({ rule, setting }: Planned): [epsilon: number, guess: number] | null {
  return (!setting.weights && rule.promise?.[setting.budget]) || null;
}
