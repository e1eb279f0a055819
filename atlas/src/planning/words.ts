/** Numbers as text, rounded towards the weaker statement. */

import { make, number } from "../dom";
import type { Facts } from "./facts";
import { roundedUp } from "./plan";

/** Beyond this, a factor or a share says nothing to a reader. */
const MOST_FACTOR = 1_000_000;
/** Digits of a double that are trusted: 1.1 / 0.01 is 110, and not a little more. */
const DIGITS = 13;

/** What is said of flows, and what is said in its place of counts by one hierarchy. */
const OF_COUNTS: [RegExp, string][] = [
  [/pairs of areas/gi, "areas"],
  [/pair of areas/gi, "area"],
  [/pair of zones/gi, "zone"],
  [/between two areas/gi, "in an area"],
  [/between two zones/gi, "in a zone"],
  [/between the same two zones/gi, "in the same zone"],
  [/flows between/gi, "counts in"],
  [/flow between/gi, "count in"],
  [/flow/gi, "count"],
  [/trip record/gi, "record"],
];
let replaced: [RegExp, string][] = [];

/** Choose the words for the rest of the page: of flows and trips, or of counts and of what a record counts. */
export function speakOf(facts: Facts): void {
  const isWeighted = facts.units.some(({ trips }) => trips !== null && trips > 1);
  if (facts.levels.length === 1) replaced = [...OF_COUNTS, [/trip/gi, isWeighted ? "unit" : "record"]];
}

/** A text of flows in the words of the page. */
export function inWords(text: string): string {
  return replaced.reduce((said, [word, other]) => said.replace(word, (match) => like(match, other)), text);
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

export function trips(count: number): string {
  return `${number(count)} ${inWords(count === 1 ? "trip" : "trips")}`;
}

/** How far from the truth a flow is, in trips and as a share of the flow; both rounded up. */
export function plusMinus(width: number): string {
  return `± ${number(roundedUp(width))}`;
}

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
