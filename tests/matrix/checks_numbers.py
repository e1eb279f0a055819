"""Numbers that stand twice: one number has one interval, and one promise, wherever it is."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from od_core.flows.publishing.changes import changes
from tests.matrix.findings import Finding
from tests.matrix.made import Bundle, Made
from tests.matrix.pages import Page
from tests.matrix.readers import workbook_rows

Place = tuple[str, str, str, str]
"""Levels of origin and destination, and their areas."""

Ends = tuple[int, ...]
"""A number, and the ends of its interval if it has one."""

_MINUS = "\u2212"
_END = rf"([+{_MINUS}-]?[\d,]+)"
_SHOWN = re.compile(rf"(?<![\w.,]){_END}(?: [a-z]+)? \((?:90 % interval:? )?{_END} to {_END}(?=[,)\s])")
_PROMISE = re.compile(r"the release is \(([\d.e-]+), ([\d.e-]+)\)-differential")


def flows_of(bundle: Bundle) -> dict[Place, Ends]:
    """Return the numbers of ``flows.parquet`` with their intervals; empty for other kinds."""
    path = bundle.file("tables/flows.parquet")
    if not path.is_file():
        return {}
    rows = pq.read_table(path).to_pylist()
    place = ("origin_level", "destination_level", "origin", "destination")
    return {tuple(row[name] for name in place): _ends(row, "trips") for row in rows}  # type: ignore[misc]


def _ends(row: dict[str, Any], name: str, lower: str = "lower", upper: str = "upper") -> Ends:
    values = [row[name], row.get(lower), row.get(upper)]
    return tuple(int(value) for value in values if value not in (None, ""))


def same_intervals(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each number of a file whose interval differs from that of the same number in ``flows.parquet``."""
    for name, bundle in made.bundles.items():
        known = flows_of(bundle)
        for file, place, ends in (*_copies(bundle), *_of_site(made, bundle)):
            if known and place in known and known[place] != ends:
                stated = f"{known[place]} in flows.parquet, {ends} here"
                yield Finding(f"{name}/{file}", "one number has two intervals", f"{'/'.join(place)}: {stated}")


def _copies(bundle: Bundle) -> Iterator[tuple[str, Place, Ends]]:
    """Yield each number of a file that is in ``flows.parquet``, too: file, place and interval."""
    for path in bundle.folder.glob("tables/flows_*.csv"):
        if "_by_" not in path.name:
            yield from ((f"tables/{path.name}", *copy) for copy in _in_csv(path))
    for file, copies in _COPIES.items():
        if bundle.file(file).is_file():
            yield from ((file, *copy) for copy in copies(bundle.file(file)))


def _in_csv(path: Path) -> Iterator[tuple[Place, Ends]]:
    _, *levels = path.stem.split("_")
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        yield (levels[0], levels[1], row["origin"], row["destination"]), _ends(row, "trips")


def _in_sdmx(path: Path) -> Iterator[tuple[Place, Ends]]:
    levels = {"L0": "all", "L1": "region", "L2": "zone"}
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        ends = [row[name].split("_", 1) for name in ("ORIGIN", "DESTINATION") if name in row]
        if len(ends) == 2 and all(value == "_T" for name, value in row.items() if name in ("MODE", "HOUR")):
            (origin_level, origin), (destination_level, destination) = ends
            place = levels[origin_level], levels[destination_level], origin, destination
            yield place, _ends(row, "OBS_VALUE", "LOWER", "UPPER")


def _in_workbook(path: Path) -> Iterator[tuple[Place, Ends]]:
    for sheet, rows in workbook_rows(path).items():
        levels, head = sheet.split("_"), next((row for row in rows if "trips" in row), None)
        if head is None or len(levels) != 2 or "destination" not in head:
            continue
        for row in rows[rows.index(head) + 1 :]:
            named = dict(zip(head, row, strict=False))
            yield (levels[0], levels[1], str(named["origin"]), str(named["destination"])), _ends(named, "trips")


def _in_indicators(path: Path) -> Iterator[tuple[Place, Ends]]:
    for row in pq.read_table(path).to_pylist():
        yield (
            (row["level"], row["level"], row["area"], row["area"]),
            _ends(row, "within", "within_lower", "within_upper"),
        )


def _in_lines(path: Path) -> Iterator[tuple[Place, Ends]]:
    for line in json.loads(path.read_text(encoding="utf-8"))["features"]:
        row = line["properties"]
        yield ("zone", "zone", row["origin"], row["destination"]), _ends(row, "trips")


_COPIES: dict[str, Callable[[Path], Iterator[tuple[Place, Ends]]]] = {
    "sdmx/flows.sdmx.csv": _in_sdmx,
    "spreadsheet/flows.xlsx": _in_workbook,
    "tables/indicators.parquet": _in_indicators,
    "gis/desire_lines.geojson": _in_lines,
}
"""Functions that read the numbers of files that have some of ``flows.parquet``."""


def _of_site(made: Made, bundle: Bundle) -> Iterator[tuple[str, Place, Ends]]:
    """Yield the numbers of the page over time that are of a bundle."""
    page = made.site / bundle.key.release / "over_time.html"
    if bundle.name not in ("release", "earlier") or not page.is_file():
        return
    found = re.search(r'id="data">([^<]*)<', page.read_text(encoding="utf-8"))
    data = json.loads(found[1] if found else "{}")
    period, sides = data["periods"].index(bundle.key.period), data["sides"]
    areas = [[(level["level"], code) for level in side for code in level["codes"]] for side in sides]
    counts, pairs = data["sizes"], [*product(areas[0][: data["sizes"][0]], areas[1][: data["sizes"][1]])]
    grids = [(pairs, data["values"], counts[0] * counts[1])]
    grids += [([(area, ("all", "all")) for area in areas[0]], data["totals"][0], len(areas[0]))]
    grids += [([(("all", "all"), area) for area in areas[1]], data["totals"][1], len(areas[1]))]
    for places, (values, down, up), size in grids:
        for number, ((origin_level, origin), (destination_level, destination)) in enumerate(places):
            at = period * size + number
            if values[at] is not None:
                ends = (values[at], values[at] - (down[at] or 0), values[at] + (up[at] or 0))
                yield "over_time.html", (origin_level, destination_level, origin, destination), ends


def shown_intervals(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each interval of a page that is in no table: it was computed a second time, and otherwise."""
    tables = {name: _intervals(bundle) for name, bundle in made.bundles.items()}
    of_changes = _changes(made)
    every = set[Ends]().union(*tables.values()) | of_changes
    for page in pages:
        known = every if page.of == "site" or page.name == "compare" else tables.get(page.of, set()) | of_changes
        if (
            page.name in ("report.html", "certificate.html", "codebook.md", "README.txt", "compare")
            or page.of == "site"
        ):
            for text in _SHOWN.findall(page.text):
                if (ends := tuple(int(part.replace(",", "").replace(_MINUS, "-")) for part in text)) not in known:
                    yield Finding(page.file, "an interval that no table has", f"{ends[0]} ({ends[1]} to {ends[2]})")


def _intervals(bundle: Bundle) -> set[Ends]:
    """Return all numbers with intervals in the Parquet tables of a bundle."""
    found = set[Ends]()
    for path in bundle.folder.glob("tables/*.parquet"):
        table = pq.read_table(path).to_pandas()
        for name in table.columns:
            prefix = (
                "" if name in ("trips", "groups", "members", "count") and f"{name}_lower" not in table else f"{name}_"
            )
            if f"{prefix}lower" in table and pd.api.types.is_numeric_dtype(table[name]):
                rows = table[[name, f"{prefix}lower", f"{prefix}upper"]].dropna()
                found |= {tuple(map(int, row)) for row in rows.to_numpy()}
    return found


def _changes(made: Made) -> set[Ends]:
    """Return the changes between the two releases of a row with their intervals, at all levels."""
    if "earlier" not in made.bundles or not flows_of(made.main) or made.main.facts.get("interval") is None:
        return set()
    before, after = made.bundles["earlier"].release, made.main.release
    tree, found = after.plan.tree, set[Ends]()
    compute = partial(changes, before, after)
    for levels in product(tree.origin.level_names, tree.destination.level_names):
        for segment in (None, *(one.name for one in after.plan.breakdowns)):
            table = compute(*levels, segment)[["change", "lower", "upper"]].dropna()
            found |= {tuple(map(int, row)) for row in table.to_numpy()}
    return found


def exact_totals(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page on which a number that is published exactly has an interval, or is not called exact."""
    for name, bundle in made.bundles.items():
        exact = bundle.facts["exact"].get("trips")
        if exact is None:
            if name == "assisted" and "trips" in made.main.facts["exact"]:
                yield Finding("assisted/certificate.json", "the total is exact in its release, and not here")
            continue
        shown = f"{exact:,}"
        at_site = [
            page for page in pages if page.of == "site" and page.name.count("/") < 2 and page.name.endswith("html")
        ]
        for page in [page for page in pages if page.of == name] + (at_site if name == "release" else []):
            if page.name not in ("certificate.html", "report.html", "README.txt", "codebook.md") and page.of != "site":
                continue
            text = " ".join(page.text.split())
            if re.search(rf"(?<![\d,]){shown}(?: [a-z]+)? \((?:90 % interval:? )?[\d,]+ to ", text):
                yield Finding(page.file, "an exact number has an interval", shown)
            stands = re.search(rf"(?<![\d,]){shown}(?![\d,])", text)
            if stands and not re.search(rf"(?<![\d,]){shown}(?![\d,]).{{0,90}}exact|exact.{{0,200}}{shown}", text):
                yield Finding(page.file, "an exact number is not called exact", shown)
        row = flows_of(bundle).get(("all", "all", "all", "all"))
        if row and row != (exact,) * len(row):
            yield Finding(f"{name}/tables/flows.parquet", "an exact number has an interval", str(row))


def zeros_without_doubt(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each table of flows with intervals whose codebook does not say with which confidence a 0 is none."""
    for name, bundle in made.bundles.items():
        zeros = [place for place, ends in flows_of(bundle).items() if ends[0] == 0 and len(ends) > 1]
        said = "with the confidence of the interval" in bundle.file("codebook.md").read_text(encoding="utf-8")
        if zeros and not said:
            yield Finding(f"{name}/tables/flows.parquet", "a released 0 is certainly none", f"{len(zeros)} pairs")


def totals_of_site(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that hides a total which another series of the same data set and period has exactly.

    The page of the series leads to that series, and the first page has the exact number beside the one with noise.
    """
    of_period = [bundle for bundle in made.bundles.values() if "trips" in bundle.facts["contents"]]
    for other in [bundle for bundle in of_period if "trips" not in bundle.facts["exact"]]:
        exact = [one for one in of_period if one.key.period == other.key.period and "trips" in one.facts["exact"]]
        for page in pages if exact else ():
            if page.file == f"site/{other.key.release}/index.html":
                if not _links(made, page) & {one.key.release for one in exact}:
                    yield Finding(page.file, "another series has this total exactly, and is not named", other.name)
            elif page.file == "site/index.html":
                noisy, true = (f"{one.facts['contents']['trips']:,}" for one in (other, exact[0]))
                for text in re.split(rf"(?<![\d,]){noisy} \w+ \(", page.text)[1:]:
                    if not re.search(rf"(?<![\d,]){true} \(exact", text[:200]):
                        yield Finding(page.file, "the exact total of another series is not beside this one", other.name)


def _links(made: Made, page: Page) -> set[str]:
    """Return the names of the series to which the main part of a page of the site leads."""
    text = made.site.joinpath(page.name).read_text(encoding="utf-8").partition("<main")[2]
    return {name for link in re.findall(r'href="([^"]*)"', text) for name in link.split("/")}


_TOLD = {
    "report.html": re.compile(rf"([+{_MINUS}][\d,.]+) \("),
    "compare": re.compile(r"│ +-?[\d.]+ │ +-?[\d.]+ │ +(-?[\d.]+) │"),
    "over_time.html": re.compile(rf"([+{_MINUS}][\d,.]+)(?: per day)? \("),
}
"""Changes between two releases, by the last part of the name of their page."""
_DAYS = 31, 30
"""Numbers of days of the two months of a row."""


def changes_per_day(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each change between two months that a page tells, and that is none of the changes per day."""
    if made.row["series"] != "two" or made.row["period"] != "month" or not flows_of(made.main):
        return
    days = [
        {place: ends[0] / of for place, ends in flows_of(made.bundles[name]).items()}
        for name, of in zip(("earlier", "release"), _DAYS, strict=True)
    ]
    known = {days[1].get(place, 0) - days[0].get(place, 0) for place in days[0].keys() | days[1].keys()}
    for page in pages:
        if page.file in ("release/report.html", "release/compare", f"site/{made.main.key.release}/over_time.html"):
            for text in _TOLD[page.name.split("/")[-1]].findall(page.text):
                told = float(text.replace(",", "").replace(_MINUS, "-"))
                if not any(abs(told - change) <= 0.001 + 0.005 * abs(change) for change in known):
                    yield Finding(page.file, "a change is not one per day", text)
            if page.of == "site" and (bare := re.search(rf"[+{_MINUS}][\d,.]+ \([{_MINUS}+\d]", page.text)):
                yield Finding(page.file, "a change per day is not called so", bare[0])


def usual_widths(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each interval that is told as that of any number, and is 1.5 times as wide as the median one."""
    zones = {("zone", "zone"), ("zone", "all")} if made.row["kind"] == "counts" else {("zone", "zone")}
    for page in pages:
        for text in re.findall(r"interval[^.]* is about ± ([\d,]+)", page.text) if page.of in made.bundles else ():
            numbers = [ends for place, ends in flows_of(made.bundles[page.of]).items() if place[:2] in zones]
            usual = median((ends[2] - ends[1]) / 2 for ends in numbers if ends[0] > 0 and len(ends) > 1)
            if int(text.replace(",", "")) > 1.5 * usual:
                yield Finding(page.file, "an interval is told as usual, and is wider", f"± {text}, median ± {usual}")


def same_promises(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that states another promise than the certificate."""
    for page in pages:
        if page.of == "release" and page.name != "explain":
            spent = made.main.facts["spent"]
            for epsilon, delta in _PROMISE.findall(page.text):
                if not _is_above(float(epsilon), spent["epsilon"]) or float(delta) != spent["delta"]:
                    yield Finding(page.file, "another promise than the certificate", f"({epsilon}, {delta})")
        if page.file == "release/report.html":
            for name, text in pairwise(page.blocks):
                if name == "epsilon" and not _is_above(float(text), made.main.facts["spent"]["epsilon"]):
                    yield Finding(page.file, "another promise than the certificate", f"epsilon {text}")
    needed = ("certificate.html", "report.html", "codebook.md", "registry-entry.yaml", "explain")
    for page in pages:
        if page.of == "release" and page.name in needed:
            epsilon = made.main.facts["spent"]["epsilon"]
            if not any(_is_above(float(text), epsilon) for text in re.findall(r"\d+(?:\.\d+)?", page.text)):
                yield Finding(page.file, "the promise of the certificate is not stated", f"{epsilon:g}")


def _is_above(rounded: float, number: float) -> bool:
    """Return whether a number is another one, rounded up."""
    return number <= rounded * (1 + 1e-12) <= 1.002 * number
