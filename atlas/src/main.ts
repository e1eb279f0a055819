/** The page: what the reader chooses, and what is shown of it. */

import { Client } from "./client";
import { byId, isolated, make, number } from "./dom";
import { csv, partRow, rowsOf, save } from "./download";
import { Counted, counted, speakOf } from "./nouns";
import type { Areas, Flow, Totals } from "./flows";
import { AreaList, type Column } from "./list";
import { viewOf } from "./frames";
import { FlowMap, type Circle, type Scene } from "./map";
import type { Opened, Side } from "./messages";
import { changeText, chips, flowTable, intervalAndWord, matrixTable, tiles, type Named } from "./panel";
import { divided, profileTables, type Profile } from "./profile";
import { MOST_LINES, partner, sceneOfAll, sceneOfSelection } from "./scene";
import { Search } from "./search";
import { savePicture, type Figure } from "./picture";
import { copy, embedCode, sentence } from "./quote";
import { atLevel, fragment, fragmentOfNumber, otherRelease, otherSide, selectedSide, stated, type State } from "./state";

/** Data of a page, in its text. */
const DATA = /<script type="text\/plain" id="data">([A-Za-z0-9+/=]+)<\/script>/;
/** Number of the flows that are compared with another release: those with the largest changes. */
const COMPARED = 300;
/** Number of the largest flows in the download if no area is selected. */
const DOWNLOADED = 1000;
/** Largest number of rows and of columns of the matrix. */
const MATRIX = 16;
/** Number of the largest flows of an area that are in view when it is found by name. */
const NEAR = 8;

class Atlas {
  private state: State;
  private readonly map: FlowMap | null;
  private readonly list: AreaList;
  /** The later of two releases that are compared, whose trips are shown; null if none are. */
  private after: string | null = null;
  /** Whether the map shows the side that is not selected. */
  private showsOther = false;
  /** Whether the selection was found by name or is that of the address, so that the map moves there. */
  private found = false;
  /** Number of the latest view: answers for an earlier one are not shown. */
  private view = 0;

  constructor(
    private readonly client: Client,
    private readonly opened: Opened,
  ) {
    this.state = stated(location.hash, opened);
    this.found = this.state.areas.length > 0;
    const level = byId<HTMLSelectElement>("level");
    for (const place of opened.origin.levels.keys()) if (place) level.append(make("option", { value: place }));
    level.onchange = () => this.change({ level: Number(level.value) });
    for (const input of document.querySelectorAll<HTMLInputElement>("#controls input[type=radio]")) {
      input.onchange = () => this.change({ [input.name]: input.value });
    }
    speakOf(opened.header.counted);
    const lasso = byId<HTMLButtonElement>("lasso");
    lasso.onclick = () => this.drawAround(lasso.getAttribute("aria-pressed") !== "true");
    byId("clear").onclick = () => this.change({ areas: [] });
    byId("download").onclick = () => void this.download();
    for (const ending of ["svg", "png"] as const) byId(ending).onclick = () => void this.savePicture(ending);
    const embed = byId("embed");
    embed.hidden = !location.protocol.startsWith("http");
    embed.onclick = () => void copied(embed, embedCode(addressOf(fragment(this.state, opened)), opened.header.title));
    this.prepareCategories();
    this.prepareComparison();
    byId<HTMLFormElement>("controls").onsubmit = (event) => event.preventDefault();
    const fold = byId<HTMLButtonElement>("fold");
    fold.onclick = () => fold.setAttribute("aria-expanded", String(fold.getAttribute("aria-expanded") !== "true"));
    addEventListener("hashchange", () => {
      this.state = stated(location.hash, opened);
      this.found = this.state.areas.length > 0;
      this.sayOtherRelease();
      this.show();
    });
    new Search(
      () => ({ side: this.side, level: this.state.level }),
      (found, area) => {
        this.found = true;
        const others = found === this.state.level ? this.state.areas.filter((other) => other !== area) : [];
        this.change({ level: found, areas: [...others, area] });
      },
    );
    this.list = new AreaList(client, (area, chosen) => {
      const others = this.state.areas.filter((other) => other !== area);
      this.change({ areas: chosen ? [...others, area] : others });
    });
    for (const id of ["controls", "notes"]) byId(id).hidden = false;
    document.querySelector("main")!.hidden = false;
    this.map = this.makeMap();
    byId("under").textContent = opened.header.notes[0];
    byId("words").hidden = !opened.hasIntervals;
    byId("notes").replaceChildren(...opened.header.notes.slice(1).map((note) => make("p", {}, note)), citation(opened));
    this.sayOtherRelease();
    this.show();
  }

  /** Say that the address is one of a number of another release, and where that is on a site. */
  private sayOtherRelease(): void {
    const [other, status] = [otherRelease(location.hash, this.opened), byId("compared")];
    if (!other && status.querySelector("[data-other]")) status.hidden = true;
    if (!other) return;
    const onSite = location.protocol.startsWith("http") && location.pathname.endsWith(`/${this.opened.header.release}/atlas.html`);
    const leads = onSite ? make("a", { "data-other": "", href: `../../../${other}/atlas.html${location.hash}` }, `Open ${other}`) : make("span", { "data-other": "" }, `Open the atlas of ${other}`);
    status.replaceChildren(`The address names a number of ${other}, and this is ${this.opened.header.release}. `, leads, ".");
    status.hidden = false;
  }

  /** The side whose areas are selected. */
  private get side(): Side {
    return selectedSide(this.opened, this.state.direction);
  }

  private get comparing(): boolean {
    return this.after !== null;
  }

  /** The side at the other end of the flows of the selection. */
  private get other(): Side {
    return otherSide(this.opened, this.state.direction);
  }

  /** The map; null, with a note in its place, if no area has coordinates. */
  private makeMap(): FlowMap | null {
    const { origin, destination, sameAreas } = this.opened;
    const view = viewOf(sameAreas ? [origin] : [origin, destination]);
    if (!view) {
      byId("hint").textContent = "The areas have no coordinates, so there is no map. Find areas by name or in the list, or see the matrix.";
      return null;
    }
    return new FlowMap(byId<HTMLCanvasElement>("map"), view, {
      chosen: (area) => this.choose([area]),
      surrounded: (areas) => {
        this.drawAround(false);
        if (areas.length) this.choose(areas);
      },
      pointed: (circle) => this.describeCircle(circle),
    });
  }

  /** Select areas that were chosen on the map, or deselect a selected one. */
  private choose(chosen: number[]): void {
    const { areas } = this.state;
    if (this.showsOther) this.selectOther(chosen);
    else if (chosen.length === 1 && areas.includes(chosen[0])) {
      this.change({ areas: areas.filter((area) => area !== chosen[0]) });
    } else this.change({ areas: [...new Set([...areas, ...chosen])] });
  }

  /** Select areas of the other side. If it has the same areas, the direction stays. */
  private selectOther(areas: number[]): void {
    const opposite = this.state.direction === "from" ? "to" : "from";
    this.change(this.opened.sameAreas ? { areas } : { areas, direction: opposite });
  }

  /** Compare with the atlas of another period, which the reader chooses, or stop comparing. */
  private prepareComparison(): void {
    const [button, file] = [byId<HTMLButtonElement>("compare"), byId<HTMLInputElement>("other")];
    button.hidden = !this.opened.header.comparable;
    if (!button.hidden) this.offerPeriods().catch(() => undefined);
    button.onclick = () => (this.comparing ? void this.compare(null) : file.click());
    file.onchange = async () => {
      const page = file.files?.[0];
      file.value = "";
      if (page) void this.compare(await page.text());
    };
  }

  /** On a web site, offer the other periods of the series, which the site lists; elsewhere, files alone. */
  private async offerPeriods(): Promise<void> {
    if (!location.protocol.startsWith("http")) return;
    const select = byId<HTMLSelectElement>("period");
    const listed = await fetchText("../../periods.json").then((text) => JSON.parse(text) as { release: string; period: string }[]);
    const others = listed.filter(({ release }) => release !== this.opened.header.release);
    if (!others.length) return;
    const none = make("option", { value: "" }, "Compare with another period");
    const file = make("option", { value: "file" }, "that of a file");
    select.replaceChildren(none, ...others.map(({ release, period }) => make("option", { value: release }, period)), file);
    select.onchange = async () => {
      if (select.value === "file") byId("other").click();
      else if (!select.value) void this.compare(null);
      else void this.compare(await fetchText(`../../../${select.value}/atlas.html`).catch(() => ""));
    };
    select.hidden = false;
    byId("compare").hidden = true;
  }

  /** Show the trips of one category alone, if the release has categories. */
  private prepareCategories(): void {
    const { segments } = this.opened;
    if (!segments) return;
    const select = byId<HTMLSelectElement>("category");
    const parts = segments.names.flatMap((breakdown, k) => segments.categories[k].map((category) => ({ breakdown, category })));
    const options = parts.map(({ breakdown, category }, k) => make("option", { value: k }, `${breakdown}: ${category}`));
    select.append(make("option", { value: "" }, `all ${counted}`), ...options);
    select.onchange = () => {
      const part = select.value === "" ? null : parts[Number(select.value)];
      this.change({ part, level: part ? Math.min(this.state.level, segments.level) : this.state.level });
    };
    byId("only").hidden = false;
  }

  /** The name of the category that alone is shown, after a comma. */
  private get categoryText(): string {
    const { part } = this.state;
    return part ? `, only ${isolated(part.breakdown)} ${isolated(part.category)}` : "";
  }

  /** Compare with the release of another page, given its text, or with none. A refusal is said beside the button. */
  private async compare(page: string | null): Promise<void> {
    const status = byId("compared");
    try {
      const data = page === null ? null : DATA.exec(page)?.[1];
      if (data === undefined) throw new Error("This file is not an atlas.");
      const compared = await this.client.ask("compare", { data });
      this.after = compared && compared.after;
      status.textContent = compared ? `Changes from ${compared.before} to ${compared.after}. ${Counted} are those of ${compared.after}; tables of categories and distances have this page's release alone.${compared.caution}` : "";
    } catch (error) {
      this.after = null;
      status.textContent = `Nothing is compared. ${(error as Error).message}`;
    }
    status.hidden = !status.textContent;
    if (!this.comparing) byId<HTMLSelectElement>("period").value = "";
    byId("compare").textContent = this.comparing ? "Stop comparing" : "Compare with another period";
    this.show();
  }

  /** Let dragging on the map draw around areas, or move the map again. */
  private drawAround(on: boolean): void {
    byId("lasso").setAttribute("aria-pressed", String(on));
    if (this.map) this.map.lasso = on;
  }

  /** Change the state, the address of the page and what it shows. Selected areas are carried to another level. */
  private change(change: Partial<State>): void {
    const { level, areas, direction } = this.state;
    const next: State = { ...this.state, partner: null, ...change };
    if (Object.keys(change).join() === "view") next.partner = this.state.partner;
    if (!change.areas) {
      if (next.level !== level) next.areas = atLevel(this.side, areas, level, next.level);
      if (next.direction !== direction && !this.opened.sameAreas) next.areas = [];
    }
    this.state = next;
    history.replaceState(null, "", fragment(next, this.opened));
    this.show();
  }

  /** Show the state in the controls, and ask for the numbers of its view. */
  private show(): void {
    const { level, direction, view, part } = this.state;
    const select = byId<HTMLSelectElement>("level");
    for (const option of select.options) {
      option.textContent = this.side.levels[Number(option.value)];
      option.disabled = part !== null && Number(option.value) > (this.opened.segments?.level ?? 0);
    }
    for (const option of byId<HTMLSelectElement>("category").options) {
      option.selected = option.value !== "" ? option.textContent === `${part?.breakdown}: ${part?.category}` : !part;
    }
    select.value = String(level);
    for (const input of document.querySelectorAll<HTMLInputElement>("#controls input[type=radio]")) {
      input.checked = input.value === direction || input.value === view;
    }
    byId("map").hidden = view !== "map" || !this.map;
    byId("key").hidden = view !== "map" || !this.map;
    byId("lasso").hidden = view !== "map" || !this.map;
    byId("hint").hidden = view !== "map" && this.map !== null;
    byId("matrix").hidden = view !== "matrix";
    byId("list").hidden = view !== "list";
    void this.showNumbers(++this.view);
  }

  /** Ask the worker for what a view shows, and show it unless the reader has chosen another view meanwhile. */
  private async showNumbers(view: number): Promise<void> {
    const { level, areas, direction, part } = this.state;
    const selected = { level, areas };
    const latest = (): boolean => view === this.view;
    const panel = byId("panel");
    panel.setAttribute("aria-busy", "true");
    try {
      await this.client.ask("choose", { part });
      if (areas.length) {
        const totals = this.opened.sameAreas ? await this.client.ask("totals", { selected }) : null;
        const most = this.comparing ? COMPARED : Infinity;
        const flows = await this.client.ask("partners", { selected, direction, level, most });
        if (latest()) this.showSelection(totals, flows);
      } else {
        const flows = await this.client.ask("largest", { level, most: this.comparing ? COMPARED : MOST_LINES.ofAll });
        if (latest()) this.showLargest(flows);
      }
      if (this.state.view === "matrix" && latest()) await this.showMatrix(latest);
      if (this.state.view === "list" && latest()) await this.showList();
      if (latest()) await this.showQuote(latest);
    } catch (error) {
      if (latest()) panel.replaceChildren(make("p", {}, `This could not be computed. (${(error as Error).message})`));
    }
    if (!latest()) return;
    panel.setAttribute("aria-busy", "false");
    const profile = await this.askProfile();
    if (!latest()) return;
    this.showProfile(profile);
    this.listFigures();
  }

  /** Show the sentence that quotes the chosen number: a flow of the selected area, or all its trips. */
  private async showQuote(latest: () => boolean): Promise<void> {
    const { level, areas, direction, partner } = this.state;
    if (areas.length !== 1 || this.comparing) return;
    const own: Areas = { level, areas };
    const other: Areas = partner === null ? { level: 0, areas: [0] } : { level, areas: [partner] };
    const [origins, destinations] = direction === "from" ? [own, other] : [other, own];
    const of = await this.client.ask("between", { origins, destinations });
    if (!latest()) return;
    const { header } = this.opened;
    const name = (side: Side, { level: at, areas: [area] }: Areas): string => (at ? side.labels[at][area] : "");
    const ends = [["from", name(this.opened.origin, origins)], ["to", name(this.opened.destination, destinations)]];
    const where = ends.filter(([, label]) => label).map(([word, label]) => `${word} ${label}`).join(" ");
    const address = addressOf(fragmentOfNumber(this.state, this.opened));
    const by = header.about?.publisher ?? header.about?.source;
    const origin = [...(by ? [by] : []), `release ${header.release}`, ...(address ? [address] : [])];
    const text = sentence(of, { counted, where: `${where}${this.categoryText}`, when: header.when ?? header.period, origin });
    const button = (label: string, what: string): HTMLElement => {
      const made = make("button", { type: "button", click: () => void copied(made, what) }, label);
      return made;
    };
    const buttons = [button("Copy as quote", text), ...(address ? [button("Copy address", address)] : [])];
    const quote = make("section", { id: "quote", "aria-label": "Quote" }, make("p", {}, text), make("p", { class: "buttons" }, ...buttons));
    byId("quote")?.remove();
    byId("panel").querySelector("h2")?.after(quote);
  }

  /** List what can be saved as a picture: the view, and the tables of the panel. */
  private listFigures(): void {
    const select = byId<HTMLSelectElement>("figure");
    const names = this.figures().map(({ name }) => name);
    const chosen = select.selectedIndex > 0 ? select.value : names[0];
    select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    select.value = names.includes(chosen) ? chosen : names[0];
  }

  private figures(): Figure[] {
    const { view } = this.state;
    const tables = [...document.querySelectorAll<HTMLTableElement>("#panel table")];
    const own: Figure[] = [];
    if (view === "map" && this.map) {
      const map = this.map;
      own.push({ name: "map", parts: [{ canvas: byId<HTMLCanvasElement>("map"), paint: (pen) => map.paintWith(pen) }, byId("key"), byId("hint")] });
    }
    const table = document.querySelector<HTMLTableElement>(view === "matrix" ? "#matrix table" : "#areas table");
    if (view !== "map" && table) own.push({ name: view, parts: [table] });
    const nameOf = (of: HTMLTableElement): string => (of.closest("#profile") ? `table by ${of.tHead?.rows[0].cells[0].textContent}` : "table of flows");
    return [...own, ...tables.map((part) => ({ name: nameOf(part), parts: [part] }))];
  }

  /** Save the chosen figure with the title, the selection, and what a reader must know. */
  private async savePicture(ending: "svg" | "png"): Promise<void> {
    const { header } = this.opened;
    const named = this.figures();
    const figure = named.find(({ name }) => name === byId<HTMLSelectElement>("figure").value) ?? named[0];
    const { publisher, source, licence } = header.about ?? {};
    const stated = [["Source", source], ["Publisher", publisher], ["Licence", licence]].flatMap(([word, text]) => (text ? [`${word}: ${text}`] : []));
    const address = addressOf(fragment(this.state, this.opened));
    const since = this.comparing ? [byId("compared").textContent ?? ""] : [];
    const notes = [header.notes[0], ...since, [...stated, `Release ${this.after ?? header.release}`].join(". "), ...(address ? [address] : [])];
    const subtitle = document.querySelector("#panel h2")?.textContent ?? "";
    const name = `${(this.after ?? header.release).replaceAll("/", "_")}_${figure.name.split(/\W+/).slice(0, 4).join("_").toLowerCase()}`;
    await savePicture(figure, { title: header.title, subtitle, notes }, ending, name);
  }

  /** Trips from or to the selection, those within it included, by category and by distance; without one, all trips. */
  private async askProfile(): Promise<Profile> {
    const { level, areas, direction } = this.state;
    const all: Areas = { level: 0, areas: [0] };
    const own = areas.length ? { level, areas } : all;
    const ends = direction === "from" ? { origins: own, destinations: all } : { origins: all, destinations: own };
    const [categories, distances] = [this.client.ask("categories", ends), this.client.ask("distances", ends)];
    return { categories: await categories, distances: await distances };
  }

  /** Show the tables by category and by distance, with notes on what they have. */
  private showProfile(profile: Profile): void {
    const { areas, direction } = this.state;
    const { segments } = this.opened;
    const which = areas.length ? `${Counted} ${direction} here` : `All ${counted}`;
    const notes = [];
    if (areas.length && (profile.categories || profile.distances)) notes.push("Trips within the selected areas are included.");
    if (profile.distances) notes.push("Distances are those between the places of two zones, and 0 within a zone.");
    if (this.state.part) notes.push(`These tables have the ${counted} of all categories.`);
    if (segments && !profile.categories) {
      const names = segments.names.map(isolated).join(" and ");
      notes.push(`Trips by ${names} are known for areas down to ${isolated(this.side.levels[segments.level])}.`);
    }
    byId("profile").replaceChildren(
      ...profileTables(profile, which),
      ...(notes.length ? [make("p", { class: "note" }, notes.join(" "))] : []),
    );
    byId("profile").setAttribute("aria-busy", "false");
  }

  /** Show the list of all areas of the level, with their trips and, if areas are selected, those from or to these. */
  private showList(): Promise<void> {
    const { level, areas, direction } = this.state;
    const from = direction === "from";
    const all: Areas = { level: 0, areas: [0] };
    const ends = (own: Areas, other: Areas) => (from ? { origins: own, destinations: other } : { origins: other, destinations: own });
    const columns: Column[] = [{ measure: `all ${counted} ${direction} the area`, ends: (area) => ends(area, all) }];
    if (areas.length && this.opened.sameAreas) {
      const measure = from ? "from the selected areas" : "to the selected areas";
      columns.push({ measure, ends: (area) => ends({ level, areas }, area) });
    }
    return this.list.show({ side: this.side, level, selected: areas, columns });
  }

  /** Show the totals and the flows of the selected areas in the panel and on the map. */
  private showSelection(totals: Totals | null, flows: Flow[]): void {
    const { level, areas, direction } = this.state;
    const labels = this.side.labels[level];
    const where = direction === "from" ? `Where ${counted} from here go` : `Where ${counted} here come from`;
    const title = this.comparing ? `${where}, by the largest change` : where;
    const table = flowTable(title, direction === "from" ? "to" : "from", flows, (flow): Named => {
      const area = partner(flow, direction);
      const quote = areas.length === 1 ? () => this.change({ partner: area }) : undefined;
      return { texts: [this.other.labels[level][area]], choose: () => this.selectOther([area]), quote };
    });
    const heading = areas.length === 1 ? labels[areas[0]] : `${number(areas.length)} areas together`;
    const chosen = chips(
      areas.map((area) => labels[area]),
      (place) => this.change({ areas: areas.filter((_, other) => other !== place) }),
    );
    fillPanel(`${heading}${this.categoryText}`, [chosen, ...(totals ? [tiles(totals)] : []), table]);
    this.draw(sceneOfSelection(this.opened, this.state, flows), !this.opened.sameAreas);
    if (this.found && this.map && this.other.places && this.opened.sameAreas) {
      const near = flows.slice(0, NEAR).map((flow) => partner(flow, direction));
      this.map.focus(this.other.places[level], [...areas, ...near]);
    }
    this.found = false;
    this.describeMap(`Flows ${direction} the selected areas.`);
  }

  /** Show the largest flows between all areas in the panel and on the map. */
  private showLargest(flows: Flow[]): void {
    const { level } = this.state;
    const { origin, destination, sameAreas } = this.opened;
    const between = sameAreas ? ` between different areas (${origin.levels[level]})` : "";
    const title = this.comparing ? `The largest changes of flows${between}` : `The largest flows${between}`;
    const table = flowTable(title, "from → to", flows, (flow): Named => ({
      texts: [origin.labels[level][flow.origin], destination.labels[level][flow.destination]],
      choose: () => this.change({ areas: [flow.origin], direction: "from" }),
      quote: () => this.change({ areas: [flow.origin], direction: "from", partner: flow.destination }),
    }));
    fillPanel(`All areas${this.categoryText}`, [make("p", {}, `Choose areas on the map, in the list, by name, or in the table to see their ${counted}.`), table]);
    this.draw(sceneOfAll(this.opened, this.state, flows), false);
    this.describeMap(`All areas by the ${counted} that ${this.state.direction === "from" ? "begin" : "end"} there.`);
  }

  /** Show a scene; without one, because the side has no coordinates, the map is empty. */
  private draw(scene: Scene | null, showsOther: boolean): void {
    this.showsOther = showsOther;
    this.map?.show(scene ?? { places: new Float64Array(0), circles: [], lines: [], shapes: null, base: null });
  }

  /** Show the flows between the selected areas and those with most trips, unless the view is not the latest any more. */
  private async showMatrix(latest: () => boolean): Promise<void> {
    const { level, areas, direction } = this.state;
    const { origin, destination, sameAreas } = this.opened;
    const listed = (side: Side, own: boolean): number[] => {
      const busiest = [...side.sizes[level].keys()].sort((one, two) => side.sizes[level][two] - side.sizes[level][one]);
      return [...new Set([...(own ? areas : []), ...busiest])].slice(0, MATRIX);
    };
    const origins = listed(origin, sameAreas || direction === "from");
    const destinations = sameAreas ? origins : listed(destination, direction === "to");
    const cells = await this.client.ask("matrix", { level, origins, destinations });
    if (!latest()) return;
    const few = areas.length > MATRIX ? `the first ${MATRIX} of ${number(areas.length)} selected areas` : "";
    const which = few || `${areas.length ? "the selected areas and those" : "the areas"} with the most ${counted}`;
    const names = (side: Side, of: number[]): string[] => of.map((area) => side.labels[level][area]);
    const title = `${Counted} from rows to columns${this.categoryText}: ${which}`;
    const chosen = sameAreas || direction === "from" ? Math.min(areas.length, MATRIX) : 0;
    byId("matrix").replaceChildren(matrixTable(title, names(origin, origins), names(destination, destinations), cells, sameAreas, chosen));
  }

  /** Write below the map, and for screen readers, what it shows. */
  private describeMap(shown: string): void {
    if (!this.map) return;
    const hasShapes = (this.showsOther ? this.other : this.side).shapes !== null;
    const plain = hasShapes ? `Darker areas have more ${counted}.` : `Larger circles have more ${counted}.`;
    const sizes = !this.comparing ? plain : `Blue: more ${counted} than before. Red: fewer. Dotted or striped: may not have changed.`;
    byId("map").setAttribute("aria-label", `Map. ${shown} Move with the arrow keys, zoom with + and -. The list has the same areas as a table.`);
    const drawn = this.map.lineCount;
    const lines = drawn > 1 ? ` The ${drawn} largest ${this.comparing ? "changes of flows" : "flows"} are lines.` : "";
    byId("hint").textContent = `${shown} ${sizes}${lines}`;
  }

  /** Write below the map what is known of the area under the pointer. */
  private describeCircle(circle: Circle | null): void {
    if (!circle) return;
    const { trips, interval: known, change, label } = circle;
    const range = known ? ` (${intervalAndWord({ trips, interval: known })})` : "";
    const changed = change ? `, change ${changeText({ trips, interval: known, change })}` : "";
    const numbers = circle.selected ? [] : [`: ${number(trips)} ${counted}${range}${changed}`];
    byId("hint").replaceChildren(make("bdi", {}, label), ...numbers);
  }

  /** Save what the panel shows as a CSV file, with all flows of the selection and its profile. */
  private async download(): Promise<void> {
    const { level, areas, direction } = this.state;
    const selected = { level, areas };
    const { header, origin, destination } = this.opened;
    const whole = !areas.length;
    const flows = whole
      ? await this.client.ask("largest", { level, most: this.comparing ? COMPARED : DOWNLOADED })
      : await this.client.ask("partners", { selected, direction, level, most: Infinity });
    const totals = whole || !this.opened.sameAreas ? null : await this.client.ask("totals", { selected });
    const measure = whole ? counted : `${counted} ${direction} the selection`;
    const rows = rowsOf(totals, flows, measure, (flow) => {
      const sides = whole ? [origin, destination] : [this.other];
      const ends = whole ? [flow.origin, flow.destination] : [partner(flow, direction)];
      const texts = (of: "codes" | "labels"): string => sides.map((side, k) => side[of][level][ends[k]]).join(" to ");
      const levels = new Set(sides.map((side) => side.levels[level]));
      return { level: [...levels].join(" to "), area: texts("codes"), name: texts("labels") };
    });
    const selection = whole ? "all" : areas.map((area) => this.side.codes[level][area]).join(" ");
    const release = this.after ?? header.release;
    const since = this.comparing ? ` ${byId("compared").textContent}` : "";
    const shown = { selection: `${selection}${this.categoryText}`, release, note: `${header.notes[0]}${since}` };
    const ofPage = { selection, release: header.release, note: header.notes[0] };
    const parts = divided(await this.askProfile()).flatMap(({ by, rows: named }) =>
      named.map(({ name, of }) => partRow(`${measure} by ${by}`, name, of)),
    );
    const text = csv([...rows.map((row) => ({ ...row, ...shown })), ...parts.map((row) => ({ ...row, ...ofPage }))]);
    save(text, `${release.replaceAll("/", "_")}_selection.csv`);
  }
}

/** Fill the panel. The heading gets the focus if it was in the panel, and is said by screen readers. */
function fillPanel(heading: string, content: Node[]): void {
  const panel = byId("panel");
  const focused = panel.contains(document.activeElement);
  const title = make("h2", { tabindex: -1 }, make("bdi", {}, heading));
  panel.replaceChildren(title, ...content, make("div", { id: "profile", "aria-busy": "true" }));
  if (focused) title.focus();
  byId("said").textContent = heading;
}

/** The address of this page with another end; empty if it is a file, whose address leads nowhere for others. */
function addressOf(end: string): string {
  return location.protocol.startsWith("http") ? `${location.origin}${location.pathname}${end}` : "";
}

/** Copy a text, and say so on the button and to screen readers. */
async function copied(button: HTMLElement, text: string): Promise<void> {
  await copy(text);
  const label = button.textContent ?? "";
  if (label !== "Copied") setTimeout(() => (button.textContent = label), 1500);
  button.textContent = "Copied";
  byId("said").textContent = "Copied";
}

/** The text of a file of the same site. */
async function fetchText(address: string): Promise<string> {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer.text();
}

/** How to cite the release. */
function citation({ header }: Opened): HTMLElement {
  return make("p", {}, `Cite as: ${header.title}. Release ${header.release}. The certificate beside this page states the guarantee.`);
}

/** Open the data of the page, and show it. */
async function start(): Promise<void> {
  const client = new Client();
  const data = byId("data");
  try {
    const opened = await client.ask("open", { data: data.textContent ?? "" });
    data.remove();
    const atlas = new Atlas(client, opened);
    Object.assign(globalThis, { atlas, between: (ask: never) => client.ask("between", ask) });
  } catch (error) {
    byId("under").textContent = `This page could not read its data. Use a current browser, or the tables beside this page. (${error})`;
    throw error;
  }
}

void start();
