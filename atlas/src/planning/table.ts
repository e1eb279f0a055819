/** Tables that scroll by themselves on a narrow page. */

import { make } from "../dom";

export function table(title: string, heads: string[], rows: HTMLElement[]): HTMLElement {
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  const content = make("table", {}, make("caption", {}, title), make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, content);
}
