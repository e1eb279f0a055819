/** Make elements and texts. Texts are never read as markup. */

type Properties = Record<string, string | number | boolean | ((event: Event) => void)>;

/** Make an element: functions become listeners, and other properties attributes. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...content: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, String(value));
  }
  element.append(...content);
  return element;
}

/** Make a table that scrolls by itself on a narrow page. */
export function scrollingTable(title: string, heads: string[], rows: HTMLElement[]): HTMLElement {
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  const content = make("table", {}, make("caption", {}, title), make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, content);
}

/** The element of the page with an identifier. */
export function byId<E extends HTMLElement = HTMLElement>(id: string): E {
  return document.getElementById(id) as E;
}

/** A text without line breaks whose direction of writing does not affect the text around it, for plain texts. */
export function isolated(text: string): string {
  return /^[\x20-\x7e]*$/.test(text) ? text : `\u2068${text}\u2069`;
}

/** The language of the page, in which numbers are written; the worker has none. */
const LANGUAGE = (typeof document === "object" && document.documentElement.lang) || "en";

/** A number with thousands separators. */
export function number(value: number): string {
  return value.toLocaleString(LANGUAGE);
}

/** With three significant digits, the whole part in full, and at most three decimal places. */
export function rounded(value: number): string {
  const digits = value ? 3 - [1, 10, 100].filter((bound) => Math.abs(value) >= bound).length : 0;
  return value.toLocaleString(LANGUAGE, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Kilometres with at most one decimal place, and their unit. */
export function kilometres(distance: number): string {
  return `${distance.toLocaleString("en", { maximumFractionDigits: 1 })} km`;
}

/** A share in percent with at most one decimal place. */
export function percent(share: number): string {
  return `${(100 * share).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}
