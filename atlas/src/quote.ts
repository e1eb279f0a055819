/** A sentence that quotes a number with its uncertainty, and code that embeds the page. */

import type { Trips } from "./flows";
import { number } from "./dom";

/** What a sentence says besides the number: between which areas, when, by whom, and where it is found. */
export interface Quoted {
  counted: string;
  /** Such as "from A to B". */
  where: string;
  when: string;
  /** Publisher or source, and release; maybe the address. */
  origin: string[];
}

/** A number rounded to what its interval says, and the interval rounded outwards: the step is at most a fifth of it. */
export function roundedToInterval(trips: number, [lower, upper]: [number, number]): [trips: number, lower: number, upper: number] {
  const step = Math.max(1, 10 ** Math.floor(Math.log10(Math.max(1, (upper - lower) / 5))));
  return [Math.round(trips / step) * step, Math.floor(lower / step) * step, Math.ceil(upper / step) * step];
}

/** A sentence such as "About 12,300 trips (90 % interval 11,900 to 12,800) from A to B in May 2019, Office, release, address". */
export function sentence(of: Trips, { counted, where, when, origin }: Quoted): string {
  return [`${amount(of, counted)} ${where} ${preposition(when)} ${when}`, ...origin].join(", ");
}

function preposition(when: string): string {
  if (when.includes(" to ")) return "from";
  return /^\d\d? /.test(when) ? "on" : when.includes("quarter") ? "in the" : "in";
}

/** The number with its uncertainty. */
function amount({ trips, interval }: Trips, counted: string): string {
  if (!interval) return `About ${number(trips)} ${counted} (with noise, without an interval)`;
  const [lower, upper] = interval;
  if (lower === upper && trips) return `Exactly ${number(trips)} ${counted}`;
  const [about, from, to] = roundedToInterval(trips, interval);
  const range = `90 % interval ${number(Math.max(0, from))} to ${number(to)}`;
  if (trips <= 0) return `Few or no ${counted} (${upper ? range : "likely none"})`;
  return `About ${number(about)} ${counted} (${range}${lower <= 0 ? ", may be none" : ""})`;
}

/** Code that embeds an address in a page of another site. */
export function embedCode(address: string, title: string): string {
  const escaped = (text: string): string => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
  return `<iframe src="${escaped(address)}" title="${escaped(title)}" width="100%" height="800" style="border:0" loading="lazy"></iframe>`;
}

/** Copy a text to the clipboard, also where a page may not ask for it. */
export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
