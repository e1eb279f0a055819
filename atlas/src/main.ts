/** The page: what the reader chooses, and what is shown of it. */

import { geoDistance } from "d3-geo";

import { Client } from "./client";
import { byId, make, number } from "./dom";
import { csv, rowsOf, save } from "./download";
import type { Direction, Flow, Totals } from "./flows";
import { extent, FlowMap, middle, type Circle, type Line, type Point } from "./map";
import type { Opened, Side } from "./messages";
import { changeText, chips, flowTable, interval, matrixTable, mayBeZero, tiles } from "./panel";
import { Search } from "./search";
import { atLevel, fragment, selectedSide, stated, type State } from "./state";

/** Share of the trips whose zones are in view at first. */
const IN_VIEW = 0.97;
/** Data of a page, in its text. */
const DATA = /<script type="text\/plain" id="data">([A-Za-z0-9+/=]*)<\/script>/;
const LARGEST = 25;
const KNOWN_ON_MAP = 300;
const LINES = 40;
const MATRIX = 16;
const CHANGES = "Larger circles changed more: blue ones have more trips than before, red ones fewer. Pale ones may not have changed.";
const DOWNLOADED = 10_000;

class Atlas {
  private state: State;
  private readonly map: FlowMap | null;
  private comparing = false;
  /** Number of the latest view: answers for an earlier one are not shown. */
  private view = 0;

  constructor(
    private readonly client: Client,
    private readonly opened: Opened,
  ) {
    this.state = stated(location.hash, opened);
    const level = byId<HTMLSelectElement>("level");
    for (const name of opened.origin.levels.slice(1)) level.append(make("option", { value: name }, name));
    level.onchange = () => this.change({ level: this.side.levels.indexOf(level.value) });
    for (const input of document.querySelectorAll<HTMLInputElement>("#controls input[type=radio]")) {
      input.onchange = () => this.change({ [input.name]: input.value });
    }
    const lasso = byId<HTMLButtonElement>("lasso");
    lasso.onclick = () => this.drawAround(lasso.getAttribute("aria-pressed") !== "true");
    byId("clear").onclick = () => this.change({ areas: [] });
    byId("download").onclick = () => void this.download();
    this.prepareComparison();
    byId<HTMLFormElement>("controls").onsubmit = (event) => event.preventDefault();
    addEventListener("hashchange", () => {
      this.state = stated(location.hash, opened);
      this.show();
    });
    new Search(
      () => ({ labels: this.side.labels[this.state.level], codes: this.side.codes[this.state.level] }),
      (area) => this.change({ areas: [...this.state.areas.filter((other) => other !== area), area] }),
    );
    for (const id of ["controls", "notes"]) byId(id).hidden = false;
    document.querySelector("main")!.hidden = false;
    this.map = this.makeMap();
    byId("under").textContent = opened.header.notes[0];
    byId("notes").replaceChildren(...opened.header.notes.slice(1).map((note) => make("p", {}, note)), citation(opened));
    this.show();
  }

  private get side(): Side {
    return selectedSide(this.opened, this.state.direction);
  }

  private get otherSide(): Side {
    return this.state.direction === "from" ? this.opened.destination : this.opened.origin;
  }

  private makeMap(): FlowMap | null {
    const view = [this.opened.origin, this.opened.destination].flatMap(centralPlaces);
    if (!view.length) {
      byId("map").hidden = true;
      byId("lasso").hidden = true;
      byId("hint").textContent = "The areas have no coordinates, so there is no map. Find areas by name, or see the matrix.";
      return null;
    }
    return new FlowMap(byId<HTMLCanvasElement>("map"), view, {
      chosen: (area) => this.toggle(area),
      surrounded: (areas) => {
        this.drawAround(false);
        this.change({ areas: [...new Set([...this.state.areas, ...areas])] });
      },
      pointed: (circle) => this.hint(circle),
    });
  }

  /** Compare with the atlas of another period, which the reader chooses, or stop comparing. */
  private prepareComparison(): void {
    const [button, file] = [byId<HTMLButtonElement>("compare"), byId<HTMLInputElement>("other")];
    button.onclick = () => (this.comparing ? void this.compare(null) : file.click());
    file.onchange = async () => {
      const page = file.files?.[0];
      file.value = "";
      if (page) void this.compare(await page.text());
    };
  }

  private async compare(page: string | null): Promise<void> {
    const status = byId("compared");
    status.hidden = false;
    try {
      const data = page === null ? null : (DATA.exec(page)?.[1] ?? "");
      const other = await this.client.ask("compare", { data });
      this.comparing = other !== null;
      status.textContent = other ? `Compared with ${other.title} (${other.release}).` : "";
      status.hidden = !other;
    } catch (error) {
      this.comparing = false;
      status.textContent = `This is not an atlas of the same areas, so nothing is compared. (${(error as Error).message})`;
    }
    byId("compare").textContent = this.comparing ? "Stop comparing" : "Compare with another period";
    this.show();
  }

  private toggle(area: number): void {
    const { areas } = this.state;
    this.change({ areas: areas.includes(area) ? areas.filter((other) => other !== area) : [...areas, area] });
  }

  private drawAround(on: boolean): void {
    byId("lasso").setAttribute("aria-pressed", String(on));
    if (this.map) this.map.lasso = on;
  }

  private change(change: Partial<State>): void {
    const { level, areas, direction } = this.state;
    const next = { ...this.state, ...change };
    if (next.level !== level && !change.areas) next.areas = atLevel(this.side, areas, level, next.level);
    if (next.direction !== direction && !this.opened.sameAreas) next.areas = [];
    this.state = next;
    history.replaceState(null, "", fragment(next, this.opened));
    this.show();
  }

  private show(): void {
    const { level, direction, view } = this.state;
    byId<HTMLSelectElement>("level").value = this.side.levels[level];
    for (const input of document.querySelectorAll<HTMLInputElement>("#controls input[type=radio]")) {
      input.checked = input.value === direction || input.value === view;
    }
    byId("map").hidden = view !== "map" || !this.map;
    byId("hint").hidden = view !== "map" && this.map !== null;
    byId("matrix").hidden = view !== "matrix";
    void this.answer(++this.view);
  }

  private async answer(view: number): Promise<void> {
    const { level, areas, direction } = this.state;
    const selected = { level, areas };
    const latest = (): boolean => view === this.view;
    byId("panel").setAttribute("aria-busy", "true");
    if (areas.length) {
      const totals = this.opened.sameAreas ? await this.client.ask("totals", { selected }) : null;
      const flows = await this.client.ask("partners", { selected, direction, level, most: KNOWN_ON_MAP });
      if (latest()) this.showSelection(totals, flows);
    } else {
      const most = this.comparing ? KNOWN_ON_MAP : LARGEST;
      const flows = await this.client.ask("largest", { level, most });
      if (latest()) this.showLargest(flows);
    }
    if (latest()) byId("panel").setAttribute("aria-busy", "false");
    if (this.state.view === "matrix" && latest()) await this.showMatrix(latest);
  }

  private showSelection(totals: Totals | null, flows: Flow[]): void {
    const { level, areas, direction } = this.state;
    const labels = this.side.labels[level];
    const where = direction === "from" ? "Where trips from here go" : "Where trips to here come from";
    const title = this.comparing ? `${where}, by the largest change` : where;
    const table = flowTable(title, direction === "from" ? "to" : "from", flows, (flow) => {
      const area = partner(flow, direction);
      return { text: this.otherSide.labels[level][area], choose: () => this.choosePartner(area) };
    });
    const heading = areas.length === 1 ? labels[areas[0]] : `${number(areas.length)} areas together`;
    byId("panel").replaceChildren(
      make("h2", {}, heading),
      chips(
        areas.map((area) => labels[area]),
        (place) => this.change({ areas: areas.filter((_, other) => other !== place) }),
      ),
      ...(totals ? [tiles(totals)] : []),
      table,
    );
    this.drawSelection(flows);
  }

  private drawSelection(flows: Flow[]): void {
    const { level, areas, direction } = this.state;
    if (!this.map || !this.side.places || !this.otherSide.places) return;
    const faint = (flow: Flow): boolean =>
      flow.change ? !flow.change.certain : flow.interval ? mayBeZero(flow) : this.opened.hasIntervals;
    const circles = this.circles(this.otherSide, new Float64Array(this.otherSide.codes[level].length));
    for (const flow of flows) {
      const { trips, interval: range, change } = flow;
      Object.assign(circles[partner(flow, direction)], { trips, faint: faint(flow), interval: range, change });
    }
    const ends = (area: number): [number, number] => (direction === "from" ? [areas[0], area] : [area, areas[0]]);
    const lines: Line[] = flows.slice(0, areas.length === 1 && this.opened.sameAreas ? LINES : 0).map((flow) => {
      const [from, to] = ends(partner(flow, direction));
      return { from, to, trips: flow.change?.change ?? flow.trips, faint: faint(flow) };
    });
    if (this.opened.sameAreas) for (const area of areas) circles[area].selected = true;
    const largest = circles.reduce((most, circle) => Math.max(most, extent(circle)), 1);
    for (const circle of circles) if (circle.selected) circle.trips = largest / 4;
    this.map.show({ places: this.otherSide.places[level], circles, lines });
    const sizes = this.comparing ? CHANGES : "Larger circles have more trips.";
    this.describe(`Flows ${direction} the selected areas. ${sizes}`);
  }

  private showLargest(flows: Flow[]): void {
    const { level } = this.state;
    const { origin, destination, sameAreas } = this.opened;
    const between = sameAreas ? ` between different areas (${origin.levels[level]})` : "";
    const title = this.comparing ? `The largest changes of flows${between}` : `The largest flows${between}`;
    const table = flowTable(title, "from → to", flows, (flow) => ({
      text: `${origin.labels[level][flow.origin]} → ${destination.labels[level][flow.destination]}`,
      choose: () => this.change({ areas: [flow.origin], direction: "from" }),
    }));
    byId("panel").replaceChildren(
      make("h2", {}, "All areas"),
      make("p", {}, "Choose areas on the map, by name, or in the table to see their trips."),
      table,
    );
    if (!this.map || !this.side.places) return;
    const circles = this.circles(this.side, this.side.sizes[level]);
    const drawn = sameAreas
      ? flows.slice(0, LARGEST).map(({ origin: from, destination: to, trips, interval: range, change }) => {
          return { from, to, trips: change?.change ?? trips, faint: change ? !change.certain : mayBeZero({ trips, interval: range }) };
        })
      : [];
    this.map.show({ places: this.side.places[level], circles, lines: drawn });
    const lines = this.comparing ? " Blue lines have more trips than before, red ones fewer." : "";
    this.describe(`All areas. Larger circles have more trips.${lines}`);
  }

  private circles(side: Side, trips: Float64Array): Circle[] {
    const labels = side.labels[this.state.level];
    return labels.map((label, area) => ({ area, label, trips: trips[area], selected: false, faint: false, interval: null }));
  }

  private choosePartner(area: number): void {
    if (this.opened.sameAreas) this.change({ areas: [area] });
    else this.change({ areas: [area], direction: this.state.direction === "from" ? "to" : "from" });
  }

  private async showMatrix(latest: () => boolean): Promise<void> {
    const { level, areas, direction } = this.state;
    const { origin, destination, sameAreas } = this.opened;
    const busiest = (sizes: Float64Array): number[] =>
      [...sizes.keys()].sort((one, two) => sizes[two] - sizes[one] || one - two).slice(0, MATRIX);
    const chosen = (side: Side, own: boolean): number[] =>
      own && areas.length > 1 ? areas.slice(0, MATRIX) : busiest(side.sizes[level]);
    const origins = chosen(origin, sameAreas || direction === "from");
    const destinations = sameAreas ? origins : chosen(destination, direction === "to");
    const cells = await this.client.ask("matrix", { level, origins, destinations });
    if (!latest()) return;
    const which = areas.length > 1 ? "the selected areas" : "the areas with the most trips";
    const title = `Trips from rows to columns, ${which}; pale numbers may be 0`;
    const names = (side: Side, of: number[]): string[] => of.map((area) => side.labels[level][area]);
    byId("matrix").replaceChildren(matrixTable(title, names(origin, origins), names(destination, destinations), cells));
  }

  private describe(text: string): void {
    byId("map").setAttribute("aria-label", `Map. ${text} Move with the arrow keys, zoom with + and -.`);
    byId("hint").textContent = text;
  }

  private hint(circle: Circle | null): void {
    if (!circle) return;
    const range = circle.interval ? ` (${interval({ trips: circle.trips, interval: circle.interval })})` : "";
    const { trips, interval: known, change } = circle;
    const changed = change ? `, change ${changeText({ trips, interval: known, change })}` : "";
    byId("hint").textContent = circle.selected ? circle.label : `${circle.label}: ${number(trips)} trips${range}${changed}`;
  }

  private async download(): Promise<void> {
    const { level, areas, direction } = this.state;
    const selected = { level, areas };
    const { header, origin, destination } = this.opened;
    const whole = !areas.length;
    const flows = whole
      ? await this.client.ask("largest", { level, most: this.comparing ? KNOWN_ON_MAP : LARGEST })
      : await this.client.ask("partners", { selected, direction, level, most: DOWNLOADED });
    const totals = whole || !this.opened.sameAreas ? null : await this.client.ask("totals", { selected });
    const rows = rowsOf(totals, flows, whole ? "trips" : `trips ${direction} the selection`, (flow) => {
      const [sides, ends] = whole
        ? [[origin, destination], [flow.origin, flow.destination]]
        : [[this.otherSide], [partner(flow, direction)]];
      const texts = (of: "codes" | "labels"): string => sides.map((side, k) => side[of][level][ends[k]]).join(" to ");
      return { level: sides[0].levels[level], area: texts("codes"), name: texts("labels") };
    });
    const since = byId("compared").textContent ?? "";
    const note = this.comparing ? `${header.notes[0]} ${since}` : header.notes[0];
    const selection = whole ? "all" : areas.map((area) => this.side.codes[level][area]).join(" ");
    save(csv(rows, selection, header.release, note), `${header.release.replaceAll("/", "_")}_selection.csv`);
  }
}

/** Places of the zones near the middle, with most of a side's trips: a few places far away do not shrink the map. */
function centralPlaces({ places, sizes }: Side): Point[] {
  const [zones, trips] = [places?.at(-1), sizes.at(-1)];
  if (!zones || !trips) return [];
  const place = (zone: number): Point => [zones[2 * zone], zones[2 * zone + 1]];
  const known = [...trips.keys()].filter((zone) => !Number.isNaN(zones[2 * zone]));
  const centre = middle(known.map(place), known.map((zone) => trips[zone] + 1));
  const away = new Map(known.map((zone) => [zone, geoDistance(centre, place(zone))]));
  known.sort((one, two) => away.get(one)! - away.get(two)!);
  let left = IN_VIEW * known.reduce((sum, zone) => sum + trips[zone] + 1, 0);
  return known.filter((zone) => (left -= trips[zone] + 1) + trips[zone] + 1 > 0).map(place);
}

/** The area at the other end of a flow of the selection. */
function partner(flow: Flow, direction: Direction): number {
  return direction === "from" ? flow.destination : flow.origin;
}

function citation({ header }: Opened): HTMLElement {
  return make("p", {}, `Cite as: ${header.title}. Release ${header.release}. The certificate beside this page states the guarantee.`);
}

async function start(): Promise<void> {
  const client = new Client();
  const data = byId("data");
  try {
    const opened = await client.ask("open", { data: data.textContent ?? "" });
    data.remove();
    const atlas = new Atlas(client, opened);
    Object.assign(globalThis, { atlas, between: (ask: never) => client.ask("between", ask) });
  } catch (error) {
    byId("under").textContent = `This page could not read its data. Use a current browser, or the CSV files. (${error})`;
    throw error;
  }
}

void start();
