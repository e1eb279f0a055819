/** Numbers as text, rounded towards the weaker statement. */

import { make, number } from "../dom";
import type { Facts } from "./facts";
import { roundedUp } from "./plan";

/** Beyond this, a factor or a share says nothing to a reader. */
const MOST_FACTOR = 1_000_000;
/** Digits of a double that are trusted: 1.1 / 0.01 is 110, and not a little more. */
const DIGITS = 13;

let words: Record<string, string> = {};
let pattern: RegExp | null = null;

/** Choose the words for the rest of the page, which is written of flows and trips, by the nouns of the release. */
export function speakOf({ nouns, levels }: Facts): void {
  const ofOne = {
    "between two areas": "in an area",
    "between two zones": "in a zone",
    "flows between": `${nouns.cells} in`,
    "flow between": `${nouns.cell} in`,
  };
  words = {
    "pairs of areas": nouns.pairs,
    "pair of areas": nouns.pair,
    "pair of zones": nouns.zone_pair,
    "with the same origin and destination zone": nouns.same_zones,
    ...(levels.length === 1 ? ofOne : {}),
    flows: nouns.cells,
    flow: nouns.cell,
    "one trip record": nouns.one_record,
    trips: nouns.counted,
    trip: nouns.record,
  };
  pattern = new RegExp(Object.keys(words).join("|"), "gi");
}

/** A text of flows in the words of the page. */
export function inWords(text: string): string {
  return pattern === null ? text : text.replace(pattern, (match) => like(match, words[match.toLowerCase()]));
}

/** The same for the parts of a template, without the values, which may be names. */
export function worded(parts: TemplateStringsArray, ...values: (string | number)[]): string {
  return parts.map((part, place) => `${inWords(part)}${values[place] ?? ""}`).join("");
}

/** A word with a capital letter if the one that it replaces has one. */
function like(match: string, word: string): string {
  return /[A-Z]/.test(match[0]) ? word[0].toUpperCase() + word.slice(1) : word;
}

/** Text with the exact number that it rounds, for programs that read the page. */
export function exact(value: number, text: string): HTMLDataElement {
  return make("data", { value: String(value) }, text);
}

/** A number rounded up to three significant digits. */
export function up(value: number): string {
  if (value === 0) return "0";
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  const steps = ceiling(value / unit);
  return Number((steps * unit).toPrecision(12)).toLocaleString("en", { maximumFractionDigits: 12 });
}

/** The least whole number that is not below a number, whose last digits may be wrong. */
function ceiling(value: number): number {
  return Math.ceil(trusted(value));
}

/** A number without the digits that are not trusted. */
export function trusted(value: number): number {
  return Number(value.toPrecision(DIGITS));
}

/** A number rounded to three significant digits. */
export function rounded(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 12 });
}

/** A number of trips, in the noun of the page. */
export function trips(count: number): string {
  return `${number(count)} ${inWords(count === 1 ? "trip" : "trips")}`;
}

/** How far from the truth a flow is, in trips; rounded up. */
export function plusMinus(width: number): string {
  return `± ${number(roundedUp(width))}`;
}

/** The same as a share of the flow; rounded up. */
export function shareOf(width: number, flow: number): string {
  const share = (100 * roundedUp(width)) / flow;
  if (share > 100) return "over 100 %";
  return `${(share >= 10 ? ceiling(share) : ceiling(10 * share) / 10).toLocaleString("en")} %`;
}

/** A chance of which it is said that it is at most this. */
export function chanceAtMost(chance: number): string {
  const share = ceiling(1000 * chance) / 10;
  return share >= 100 ? "100 %" : `${share.toLocaleString("en", { minimumFractionDigits: 1 })} %`;
}

/** A factor, given its logarithm, of which it is said that it is at most this. */
export function factorAtMost(logarithm: number): string {
  return logarithm > Math.log(MOST_FACTOR) ? `over ${number(MOST_FACTOR)}` : `${up(Math.exp(logarithm))} times`;
}

/** A small chance as one in so many. */
export function oneIn(chance: number): string {
  return `1 in ${number(Math.floor(Number((1 / chance).toPrecision(DIGITS))))}`;
}
