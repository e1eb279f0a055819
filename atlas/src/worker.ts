/** Decode the data and answer questions, so that the page itself never waits. */

import { Comparison, isPerDay, type Days } from "./changes";
import { Data, type Header, type SegmentData } from "./columns";
import { Flows } from "./flows";
import type { Geography } from "./geography";
import type { Answer, Opened, Question, Questions, Name, Side } from "./messages";
import type { Part } from "./segments";

let flows: Flows;
let comparison: Comparison | null = null;
/** The releases that are shown or compared, and the category whose trips alone are asked for. */
let shown: Flows[] = [];
let part: Part | null = null;

function side(geography: Geography, size: (level: number) => Float64Array): Side {
  const { levels, codes, labels, aliases, parents, places, shapes } = geography;
  return { levels, codes, labels, aliases, parents, places, shapes, sizes: levels.map((_, level) => size(level)) };
}

async function open(base64: string): Promise<Opened> {
  const data = await Data.decoded(base64);
  flows = new Flows(data);
  shown = [flows];
  const { origin, destination } = flows.tree;
  const sizes = origin.levels.map((_, level) => flows.sizes(level));
  const { title, release, counted, notes, comparable, period, when, about, segments } = data.header;
  return {
    header: { title, release, counted, notes, comparable, period, when, about },
    origin: side(origin, (level) => sizes[level].begun),
    destination: side(destination, (level) => sizes[level].ended),
    sameAreas: flows.sameAreas,
    segments: segments && { ...namesOf(segments), level: segments.depth },
    hasIntervals: data.header.fits.length > 0,
  };
}

function namesOf({ breakdowns }: SegmentData): { names: string[]; categories: string[][] } {
  return { names: breakdowns.map(({ name }) => name), categories: breakdowns.map(({ categories }) => categories) };
}

const UNKNOWN_TRIPS = " A page of an earlier version does not say whether both count the same, in periods of how many days.";

/** What differs so that two releases are not compared, as `comparability.py` in `od_core/publication` says it. */
function differing(own: Record<string, string> = {}, other: Record<string, string> = {}): string[] {
  return Object.keys(own).filter((name) => (other[name] ?? own[name]) !== own[name]);
}

/** Sentences of `changes.yaml` in `od_core/publication/templates`. */
function differentLengths(before: Header, after: Header): string {
  const lengths = ` ${before.period} has ${before.days} days and ${after.period} ${after.days}: changes are told per day.`;
  const bounded =
    " A bound of what is counted of each person holds for a whole period, however many days it has, so a number per day may change for this reason alone.";
  return before.bounded ? lengths + bounded : lengths;
}

function differentRules(before: string, after: string): string {
  return ` The two releases were estimated by different rules, ${before} and ${after}, so a flow, above all a small one, may change for this reason alone.`;
}

/** Whether a release is of an earlier period, or of an earlier revision of the same: 9 is before 10. */
function isBefore(one: Header, other: Header): boolean {
  const [first, second] = one.end && other.end ? [one.end, other.end] : [one.period, other.period];
  return `${first} ${one.release}`.localeCompare(`${second} ${other.release}`, "en", { numeric: true }) < 0;
}

/** Compare with another release, in the order of their periods. Throws an error if that is not possible. */
async function compare(base64: string): Promise<Questions["compare"]["answer"]> {
  const other = new Flows(await Data.decoded(base64));
  if (other.data.header.release === flows.data.header.release) throw new Error("This is the same release.");
  if (!other.data.header.comparable) throw new Error("Only releases with intervals and noise of their own are compared.");
  if (!flows.hasAreasOf(other)) throw new Error("The other page has different areas.");
  const [{ header: own }, { header: given }] = [flows.data, other.data];
  const differences = [...differing(own.facts, given.facts), ...differing(own.categories, given.categories)];
  if (differences.length) throw new Error(`The two pages have different ${differences.join(" and different ")}.`);
  other.choose(part);
  shown = [flows, other];
  const [before, after] = isBefore(given, own) ? [other, flows] : [flows, other];
  const [{ header: old }, { header: now }] = [before.data, after.data];
  const known = old.days !== undefined && now.days !== undefined;
  const days: Days = known ? [old.days!, now.days!] : [1, 1];
  comparison = new Comparison(before, after, days);
  const place = old.rules?.findIndex((rule, k) => now.rules && rule !== now.rules[k]) ?? -1;
  const rules = place < 0 ? "" : differentRules(old.rules![place], now.rules![place]);
  const lengths = isPerDay(days) ? differentLengths(old, now) : "";
  const caution = `${lengths}${old.caution ?? now.caution ?? ""}${rules}${known ? "" : UNKNOWN_TRIPS}`;
  return { before: old.release, after: now.release, caution };
}

async function answer(question: Question): Promise<Questions[Name]["answer"]> {
  switch (question.name) {
    case "open":
      return open(question.ask.data);
    case "compare":
      [comparison, shown] = [null, [flows]];
      return question.ask.data === null ? null : compare(question.ask.data);
    case "choose":
      for (const each of shown) each.choose(question.ask.part);
      part = question.ask.part;
      return null;
    case "totals":
      return (comparison ?? flows).totals(question.ask.selected);
    case "partners": {
      const { selected, direction, level, most } = question.ask;
      return (comparison ?? flows).partners(selected, direction, level, most);
    }
    case "largest":
      return (comparison ?? flows).largest(question.ask.level, question.ask.most);
    case "matrix": {
      const { level, origins, destinations } = question.ask;
      const flow = (o: number, d: number) => (comparison ?? flows).between({ level, areas: [o] }, { level, areas: [d] });
      return origins.map((o) => destinations.map((d) => flow(o, d)));
    }
    case "between":
      return flows.between(question.ask.origins, question.ask.destinations);
    case "categories":
      return flows.categories(question.ask.origins, question.ask.destinations);
    case "distances":
      return flows.byDistance(question.ask.origins, question.ask.destinations);
    case "several":
      return question.ask.ends.map(({ origins, destinations }) => (comparison ?? flows).between(origins, destinations));
  }
}

onmessage = async ({ data: question }: MessageEvent<Question>) => {
  let reply: Answer;
  try {
    reply = { id: question.id, answer: await answer(question) };
  } catch (error) {
    reply = { id: question.id, error: error instanceof Error ? error.message : String(error) };
  }
  postMessage(reply);
};
