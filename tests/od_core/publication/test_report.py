"""The report: well-formed, alone in the world, and its numbers are those of the release."""

import html
import math
import re
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from markupsafe import escape

from od_core import Budget, Cap, FlowTree, Geography, Ledger, OdError, PrivacyDomain, PrivacyUnit, ReleaseKey
from od_core.flows.indicators import indicators
from od_core.flows.publishing.changes import changes
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.publishing.maps import DesireLines, render_flow_map
from od_core.group_sizes.publishing import BAND_TITLE
from od_core.publication.bundle import write_bundle
from od_core.publication.certify import build_certificate, read_release_context
from od_core.publication.number_formats import format_change, format_interval_and_word, format_rounded
from tests.od_core.doubles import SeededNoise
from tests.od_core.publication.examples import ALL_FORMATS, CHECKS, released_trips
from tests.od_core.publication.published_kinds import publish
from tests.od_core.publication.reports import EVIL, ZONES, Reported, examples, flows, geography, reported

CONTENTS = ("flows", "group sizes", "boxes")
VOID = {"meta"}
MARK = "\u25cf "


class Page(HTMLParser):
    """What a browser would build; every element must be closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
        if {"td", "th"} & set(self.open) and "svg" not in self.open:
            self.tables[-1][-1][-1] += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(contents: str) -> Page:
    return Page(examples()[contents].text)


@pytest.mark.parametrize("contents", CONTENTS)
def test_a_report_is_one_page_that_asks_nobody_and_runs_nothing(contents):
    text, built = examples()[contents].text, page(contents)
    assert text.startswith("<!DOCTYPE html>\n")
    assert built.named("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in built.named("meta")
    loading = {"script", "link", "img", "iframe", "object", "embed", "use", "image", "base", "form", "video", "audio"}
    assert not loading & {tag for tag, _ in built.elements}
    assert not re.search(r"https?:|url\(|@import|javascript:|src=|\bon[a-z]+=", _unquoted(text))
    links = [attributes["href"] for attributes in built.named("a")]
    ids = [attributes["id"] for _, attributes in built.elements if "id" in attributes]
    assert links
    assert [link.removeprefix("#") for link in links if link != "atlas.html"] == ids
    assert len(set(ids)) == len(ids)


def _unquoted(text: str) -> str:
    """The page without the codes of its zones, which are text. The map has the first words or letters of long ones."""
    parts = {part for whole in EVIL for part in (whole, whole[:19], *accumulate(whole.split(" "), "{} {}".format))}
    for code in sorted(parts, key=len, reverse=True):
        text = text.replace(str(escape(code)), "")
    return text


def _numbers(cells: list[str]) -> list[int]:
    return [int(cell.replace(",", "").replace("\u2212", "-")) for cell in cells]


def test_the_numbers_of_flows_are_those_of_the_release():
    """The largest flows with their intervals, the upper areas and their sums, classes of size, changes."""
    example, built = examples()["flows"], page("flows")
    release = example.release
    of_zones = [table for table in built.tables if table[0][0] == "from zone" and "reliability" in table[0]]
    listed = [row for table in of_zones for row in table[1:]]
    largest = [[], *(row for row in listed if row[0] != row[1])]
    within = [[], *(row for row in listed if row[0] == row[1])]
    heat = next(table for table in built.tables if table[0][-1] == "all")
    totals = next(table for table in built.tables if table[0][:2] == ["zone", "outflow"])
    flows_of = release.flows_at("zone", "zone", interval=True).set_index(["origin", "destination"])
    assert len(listed) == (flows_of["lower"] > 0).sum() <= len(release.leaves) <= 20
    for origin, destination, trips, interval, word, _ in [*largest[1:], *within[1:]]:
        row = flows_of.loc[(origin, destination)]
        assert _numbers([trips, *interval.split(" to ")]) == [row["trips"], row["lower"], row["upper"]]
        assert word == ("solid" if row["upper"] - row["lower"] <= row["trips"] / 4 else "rough")
    for listed in (largest, within):
        shown = [_numbers([row[2]])[0] for row in listed[1:]]
        assert shown == sorted(shown, reverse=True)

    trips = flows_of["trips"].unstack("destination")
    codes = heat[0][1:-1]
    for row in heat[1:]:
        assert _numbers(row[1:-1]) == [trips.loc[row[0], code] for code in codes]
        assert int(row[-1].replace(",", "")) == trips.loc[row[0]].sum()
    known = indicators(release, ["zone"]).set_index("area")
    for area, outflow, inflow, own, share, _ in totals[1:]:
        for name, cell in (("outflow", outflow), ("inflow", inflow), ("within", own)):
            row = known.loc[area]
            ends = row[name], row[f"{name}_lower"], row[f"{name}_upper"]
            assert cell.startswith(f"{ends[0]:,} ({format_interval_and_word(*ends)})")
        out, entering, inside = (_numbers([cell.split(" (")[0]])[0] for cell in (outflow, inflow, own))
        assert (out + inside, entering + inside) == (trips.loc[area].sum(), trips[area].sum())
        assert inside == trips.loc[area, area]
        assert share.startswith(f"{100 * inside / (out + inside):.1f}\u00a0% (")
    sizes = next(table for table in built.tables if table[0][0] == "trips of a pair of zones")
    assert sum(_numbers([row[1] for row in sizes[1:]])) == len(release.leaves)
    assert sum(_numbers([row[3] for row in sizes[1:]])) == release.leaves.trips.sum()
    before = example.context.previous[1].flows_at("zone", "zone", interval=True).set_index(["origin", "destination"])
    changed = changes_of(built)
    for origin, destination, then, now, change in changed:
        of_may, of_june = (table.loc[(origin, destination), "trips"] for table in (before, flows_of))
        assert [then, now] == [format_rounded(of_may / 31), format_rounded(of_june / 30)]
        assert changed_by(change) == format_change((31 * of_june - 30 * of_may) / 930)


def changed_by(cell: str) -> str:
    """The number in a cell of changes, without its mark and its interval."""
    return cell.removeprefix(MARK).split(" (")[0]


def of_months(example: Reported) -> pd.DataFrame:
    """Its changes since May, which has a day more."""
    return changes(example.context.previous[1], example.release, "zone", "zone", days=(31, 30))


def changes_of(built: Page) -> list[list[str]]:
    """Rows of the tables of changes: the 5 largest increases, and the 5 largest decreases, largest first."""
    example = examples()["flows"]
    found = of_months(example)["change_per_day"]
    tables = [table[1:] for table in built.tables if table[0][2] == "2001-05 per day"]
    shown = [[changed_by(row[4]) for row in table] for table in tables]
    changed = (found[found > 0], found[found < 0])
    assert shown == [[format_change(change) for change in some.head(5)] for some in changed]
    return [row for table in tables for row in table]


def main_results(example: Reported) -> list[str]:
    """The sentences of the first section."""
    section = one_line(example.text).split("<h2>Main results</h2>")[1].split("</section>")[0]
    return [html.unescape(sentence) for sentence in re.findall("<li>(.*?)</li>", section)]


def one_line(text: str) -> str:
    """A page as a browser reads it: a line break is a space."""
    return " ".join(text.split())


def test_the_main_results_are_those_of_the_release():
    """The trips, the largest flow between two zones, what a 0 may be, and how much changed."""
    example = examples()["flows"]
    trips, largest, within, changed = main_results(example)  # no pair is released as 0
    flows_of = example.release.flows_at("zone", "zone", interval=True)
    assert trips == f"2001-06 has exactly {flows_of['trips'].sum():,} trips."
    most = flows_of[flows_of["origin"] != flows_of["destination"]].nlargest(1, "trips").iloc[0]
    reach = format_interval_and_word(most["trips"], most["lower"], most["upper"])
    assert largest == (
        f"The largest flow from one zone to another is that from {most['origin']} to {most['destination']}:"
        f" {most['trips']:,} trips (90 % interval: {reach})."
    )
    above = flows_of.query("trips > 0")
    down, up = (above["trips"] - above["lower"]).max(), (above["upper"] - above["trips"]).max()
    assert f"reach at most {down} down and {up} up from the released number" in within
    assert within.endswith(f"at most {math.ceil((above['upper'] - above['lower']).median())} wide.")
    marked = of_months(example).query("significant")
    grew, fell = (int((sign * marked["change_per_day"] > 0).sum()) for sign in (1, -1))
    assert changed == (
        f"Since 2001-05, {grew + fell} of 16 flows from zone to zone changed by more than their uncertainty: {grew}"
        f" grew, and {fell} fell. 2001-05 has 31 days and 2001-06 30: changes are told per day."
    )
    few = reported(flows(size=3), FLOWS)
    assert f"its true count is at most {few.release.zero_bound('zone', 'zone'):,}," in " ".join(main_results(few))
    silent = replace(few, certificate=few.certificate | {"interval": None})
    assert "interval" not in " ".join(main_results(silent))
    wide = main_results(reported(flows(size=3, budget=Budget(rho="1e-5", delta="1e-8")), FLOWS))
    assert not any("largest flow" in sentence for sentence in wide)  # its interval is wider than its number
    none = reported(flows(size=0), FLOWS)
    assert main_results(none)[0] == "2001-06 has exactly 0 trips."


@pytest.mark.parametrize(
    ("counted", "uncounted", "share"), [(505, 177, "26 %"), (0, 0, "0 %"), (0, -3, "0 %"), (0, 8, "100 %")]
)
def test_the_share_of_uncounted_trips_is_rounded_once(counted, uncounted, share):
    """177 of 682 are 25.953 %; and a release may have counted nothing."""
    example = reported(flows(), FLOWS)
    stated = {"trips": uncounted, "lower": 0, "upper": 9, "share": 0.2595, "max_trips": 8}
    contents = example.certificate["contents"] | {"trips": counted}
    facts = example.certificate | {"uncounted": stated, "contents": contents}
    assert f"{share} of all trips." in main_results(replace(example, certificate=facts))[1]


def test_the_map_has_no_flow_that_may_be_none():
    given = {"size": 10, "budget": Budget(rho="1/50", delta="1e-8")}
    example = replace(reported(flows(**given), FLOWS), release=flows(**given, noise=SeededNoise(1)))
    found = example.release.flows_at("zone", "zone", interval=True).query("origin != destination and trips > 0")
    assert 0 < (found["lower"] > 0).sum() < len(found)
    (picture,) = example.kind.render_pictures(example.release, example.certificate).values()
    drawn = re.findall(r"<title>[^<]*: ([0-9,]+) \(([^)]*)\)</title>", picture)
    expected = found[found["lower"] > 0]
    rows = [(row.trips, row.lower, row.upper) for row in expected.itertuples()]
    assert sorted(drawn) == sorted((f"{row[0]:,}", format_interval_and_word(*row)) for row in rows)


def test_a_release_of_one_zone_has_a_whole_bundle(tmp_path):
    """With a place and a boundary; no flow goes from one zone to another."""
    shape = shapely.to_wkb(shapely.box(0, 0, 1, 1)).hex()
    zones = pd.DataFrame({"zone": ["a"], "latitude": ["0.5"], "longitude": ["0.5"], "boundary": [shape]})
    only = Geography.from_frame(zones, ["zone"], coordinates=("latitude", "longitude"), boundaries="boundary")
    trips = pd.DataFrame({"origin": ["a"], "destination": ["a"], "trips": [500]})
    release = released_trips(trips, only)
    example = reported(release, FLOWS)
    built = Page(example.text)
    assert "2001-06 has exactly 500 trips." in built.text
    (tmp_path / "bundle").mkdir()
    write_bundle(FLOWS, release, example.certificate, lambda _: example.text, tmp_path / "bundle")
    listed = pd.read_csv(tmp_path / "bundle" / "tables/indicators.csv")
    assert listed[["outflow", "inflow", "within", "self_containment"]].to_numpy().tolist() == [[0, 0, 500, 1]]
    assert (tmp_path / "bundle" / "tables/boundaries.parquet").is_file()


def stated(row: dict[str, Any], name: str = "groups") -> str:
    """A number with its interval in brackets, as in a cell of a table."""
    return f"{row[name]:,} ({format_interval_and_word(row[name], row['lower'], row['upper'])})"


def test_group_sizes_are_those_of_the_release():
    release, built = examples()["group sizes"].release, page("group sizes")
    distribution, members, by_area, *_ = built.tables
    whole = release.histograms[0].sum(axis=0)
    bounds = [(0, 0), (1, 1), (2, 3), (4, 10)]
    counts = [whole[low : high + 1].sum() for low, high in bounds]
    shares = [f"{count} ({count / whole.sum():.1%})".replace("%", " %") for count in counts]
    assert [row[1] for row in distribution[1:]] == shares
    at_most = release.at_most([0, 1, 3]).query("level == 'all'")
    assert [row[3] for row in distribution[1:]] == [*map(stated, at_most.to_dict("records")), str(whole.sum())]
    zones = release.members.query("level == 'zone'")
    expected = {row["area"]: stated(row, "members") for row in zones.to_dict("records")}
    assert {row[0]: row[2] for row in members[1:]} == expected
    zones = release.frame.geography.zones
    for row in by_area[1:]:
        histogram = release.histograms[1][zones.index(row[0])]
        assert _numbers(row[1:-1]) == [histogram[low : high + 1].sum() for low, high in bounds]


def test_the_chart_of_group_sizes_has_the_released_numbers_within_their_band():
    """At the height of its share, on an axis of the logarithm of the size and 1."""
    example = examples()["group sizes"]
    at_most = example.release.at_most().query("level == 'all'")
    picture = example.kind.render_pictures(example.release, example.certificate)[BAND_TITLE]
    assert str(picture) in example.text
    found = [re.search(f'<{tag} points="([^"]+)"', picture)[1].split() for tag in ("polyline", "polygon")]
    line, band = ([point.split(",") for point in points] for points in found)
    groups = int(example.release.frame.groups.sum())
    drawn = [*zip(at_most["size"], at_most["groups"], strict=True), (10, groups)]
    across, up = np.array(line, dtype=float).T
    left, right = across[[0, -1]]
    expected = [np.log1p(size) / np.log1p(10) for size, _ in drawn]
    np.testing.assert_allclose((across - left) / (right - left), expected, atol=1e-3)
    bottom, top = (float(y) for y in re.findall(r'<line x1="84" x2="684" y1="([0-9.]+)"', picture)[:5:4])
    np.testing.assert_allclose((bottom - up) / (bottom - top), [count / groups for _, count in drawn], atol=1e-3)
    ends = np.array(band, dtype=float)[:, 1]
    lower, upper = ends[: len(drawn)], ends[len(drawn) :][::-1]
    expected = [*(at_most["lower"] / groups), 1], [*(at_most["upper"] / groups), 1]
    np.testing.assert_allclose((bottom - np.array([lower, upper])) / (bottom - top), expected, atol=1e-3)
    assert (upper <= up).all()
    assert (up <= lower).all()


def test_the_largest_boxes_have_their_intervals():
    example = examples()["boxes"]
    largest = example.release.boxes.nlargest(20, "count", keep="first")
    rows = page("boxes").tables[0]
    assert rows[0][2] == "trips"
    expected = zip(largest["count"], largest["count_lower"], largest["count_upper"], strict=True)
    assert [row[2] for row in rows[1:]] == [f"{row[0]:,} ({format_interval_and_word(*row)})" for row in expected]
    doubtful = int(((largest["count"] > 0) & (largest["count_lower"] == 0)).sum())
    assert (f", of which {doubtful} may be none" in example.text) == (doubtful > 0)


def test_the_maps_of_boxes_hold_all_their_trips():
    """Each box spread evenly over its part of the map; against a sum over the cells."""
    from od_core.stops.publishing import _compute_density

    release = examples()["boxes"].release
    boxes, side = release.measured, release.plan.map.side
    for place in (0, 1):
        expected = np.zeros((side, side))
        for lower, upper, count in zip(boxes.lower, boxes.upper, release.counts, strict=True):
            (w, s), (e, n) = lower[2 * place : 2 * place + 2], upper[2 * place : 2 * place + 2] + 1
            expected[w:e, s:n] += count / ((e - w) * (n - s))
        np.testing.assert_allclose(_compute_density(release, place), expected, atol=1e-9)


def test_a_map_reaches_over_the_last_meridian():
    """Zones at 170 and -170 degrees are neighbours: none of them is at the other end of the picture."""
    text = examples()["flows"].text
    drawn = re.findall(r'<circle cx="([-0-9.]+)" cy="([-0-9.]+)" r="3.2"', text)
    places = sorted((float(x), float(y)) for x, y in drawn)
    assert len(places) == 4
    assert all(0 <= x <= 720 and 0 <= y <= 560 for x, y in places)
    longitudes = {45: 170, 46.5: 190, -20: 179.5, 10: 182}
    by_latitude = sorted(places, key=lambda place: -place[1])  # south first
    assert [longitudes[latitude] for latitude in sorted(longitudes)] == [179.5, 182, 170, 190]
    assert np.argsort([x for x, _ in by_latitude]).tolist() == [2, 0, 1, 3]
    assert "Where the largest flows go" not in reported(flows(geography=geography(located=False)), FLOWS).text


UNIT = PrivacyUnit("trip")


@pytest.mark.slow
def test_circumstances_are_those_of_the_day_whenever_they_are_asked_for(tmp_path):
    """Later charges, periods, revisions and caps change nothing; an earlier period is the newest one before."""
    ledger, here = Ledger(tmp_path / "ledger.sqlite"), Geography.from_frame(ZONES[["zone"]], ["zone"])
    ledger.declare(PrivacyDomain("small", UNIT, Cap(rho=Fraction(9)), "first"))
    keys = [ReleaseKey("small", month) for month in ("2001-04", "2001-05", "2001-06")]

    def measured(key: ReleaseKey, seed: int):
        return flows(seed=seed, unit=UNIT, ledger=ledger, release_id=str(key), geography=here)

    def published(key: ReleaseKey, release) -> dict[str, Any]:
        return publish(FLOWS, release, key, "small", tmp_path, CHECKS)[1]

    def around(key: ReleaseKey):
        return read_release_context(FLOWS, ledger, key, "small", tmp_path / "releases")

    def balance(key: ReleaseKey):
        found = around(key).balance
        return found.cap, found.left, found.releases - 1

    made = [measured(keys[0], 1)]
    stated = [published(keys[0], made[0])]
    made += [measured(keys[1], 2), measured(keys[2], 3)]  # before the month before it is published
    stated += [published(key, release) for key, release in zip(keys[1:], made[1:], strict=True)]
    assert [around(key).previous and str(around(key).previous[0]) for key in keys] == [None, *["small/2001-04/r1"] * 2]
    again = ReleaseKey("small", "2001-05", 2)
    other = measured(again, 4)
    ledger.declare(PrivacyDomain("small", UNIT, Cap(rho=Fraction(20)), "second"))
    published(again, other)
    assert balance(again) == (9, 5, 1)
    assert around(again).previous_certificate["release"] == "small/2001-04/r1"
    assert str(around(again).previous[0]) == "small/2001-04/r1"  # and not the month after it, which is public
    june = ReleaseKey("small", "2001-06", 2)
    measured(june, 5)
    assert str(around(june).previous[0]) == "small/2001-05/r2"
    for key, release, facts in zip(keys, made, stated, strict=True):
        assert balance(key) == (9, 7, 0)
        now = {"record": ledger.record(key), "formats": ALL_FORMATS}
        assert build_certificate(FLOWS, release, key, "small", CHECKS, **now) == facts
        report = (tmp_path / "releases" / key.folder / "report.html").read_text(encoding="utf-8")
        assert FLOWS.render_report(release, facts, around(key)) == report
    (tmp_path / "releases" / keys[0].folder / "tables/flows.parquet").unlink()
    with pytest.raises(OdError, match=r"OD-PREVIOUS-ABSENT.*small/2001-04/r1"):
        around(keys[1])
    assert around(keys[0]).previous is None


def map_of(tree: FlowTree, pairs: list[tuple[str, str, int]]) -> str:
    """The map of given flows between zones."""
    flows = pa.table(pd.DataFrame(pairs, columns=["origin", "destination", "trips"]))
    columns = dict(zip(flows.column_names, flows.columns, strict=True))
    sides = {"origin": tree.origin, "destination": tree.destination}
    tables = SimpleNamespace(tree=tree, sides=sides, pairs=[SimpleNamespace(columns=columns)])
    drawn, ends = DesireLines(tables, {}).lines
    stated = {"unit": "trip", "neighbours": "bounded", "guarantee": {}}
    return str(render_flow_map(tree, drawn.to_pandas(), ends, stated, "a map"))


def test_a_map_between_two_geographies_goes_from_the_places_of_one_to_those_of_the_other():
    """One code stands on both sides, at two places; a destination without coordinates is not drawn."""
    homes = pd.DataFrame({"zone": ["a", "b"], "north": [0.0, 10.0], "east": [0.0, 0.0]})
    works = pd.DataFrame({"block": ["a", "c", "d"], "north": [0.0, 10.0, None], "east": [20.0, 20.0, None]})
    given = [(table, [table.columns[0]]) for table in (homes, works)]
    tree = FlowTree(*(Geography.from_frame(*one, coordinates=("north", "east")) for one in given))
    pairs = [("a", "a", 5), ("b", "c", 3), ("b", "d", 9)]
    picture = map_of(tree, pairs)
    titles = [line for line in re.findall("<title>([^<]*)</title>", picture) if " to " in line]
    assert titles == ["b to c: 3", "a to a: 5"]
    ends = [(float(x), float(u)) for x, u in re.findall(r'd="M([0-9.]+) [0-9.]+Q[^ ]+ [^ ]+ ([0-9.]+) ', picture)]
    assert len(ends) == 2
    assert all(x < 100 < 600 < u for x, u in ends)


FAR = {"a": (40, -100), "b": (38, -90), "c": (34, -95), "d": (21, -157), "e": (20, -155), "f": (61, -150)}
"""Latitude and longitude of six zones: three together, two of them far in the west, and one far in the north."""


def far_map(pairs: list[tuple[str, str, int]]) -> str:
    zones = pd.DataFrame([(zone, *place) for zone, place in FAR.items()], columns=["zone", "north", "east"])
    side = Geography.from_frame(zones, ["zone"], coordinates=("north", "east"))
    return map_of(FlowTree(side, side), pairs)


def drawn_lines(picture: str) -> dict[str, dict[str, list[float]]]:
    """The curve, the arrowhead and the width of each line, by its title."""
    title, curve = r"<title>(\w) to (\w): [^<]*</title>", r'<path d="([^"]*)" fill="none" stroke-width="([^"]*)"/>'
    pattern = title + r"\s*" + curve + r'\s*<path d="([^"]*)"'
    return {
        f"{start}{end}": {"curve": _coordinates(curve), "head": _coordinates(head), "width": [float(width)]}
        for start, end, curve, width, head in re.findall(pattern, picture)
    }


def _coordinates(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[0-9.]+", path)]


def test_widths_are_in_proportion_and_arrowheads_at_destinations():
    pairs = [("a", "b", 4000), ("b", "a", 1000), ("b", "c", 2000), ("d", "e", 100), ("f", "a", 90)]
    lines = drawn_lines(far_map(pairs))
    assert lines["ab"]["width"][0] / lines["bc"]["width"][0] == pytest.approx(2, rel=0.01)
    assert lines["ab"]["width"][0] / lines["ba"]["width"][0] == pytest.approx(4, rel=0.01)
    for line, opposite in (("ab", "ba"), ("ba", "ab")):
        tip, end = lines[line]["head"][:2], lines[opposite]["curve"][:2]
        assert math.dist(tip, end) < 5  # beside the dot of the destination
        assert math.dist(tip, lines[line]["curve"][:2]) > 30
    picture = far_map([("a", "b", 4000), ("b", "c", 2000)])
    key = [float(width) for width in re.findall(r'h28" stroke="[^"]*" stroke-width="([^"]*)"', picture)]
    widest = drawn_lines(picture)["ab"]["width"][0]
    # 200 trips would be thinner than the thinnest line
    assert key == pytest.approx([widest * trips / 4000 for trips in (2000, 1000)] * 2, abs=0.01)  # also for phones


def test_labels_for_phones_are_few_and_large_and_begin_with_the_busiest_place():
    generator = np.random.default_rng(3)
    names = [f"{letter}{letter} Long Name of an Airport" for letter in "ABCDEFGHIJKL"]
    places = pd.DataFrame({"zone": names, "north": generator.random(12) * 20, "east": generator.random(12) * 30})
    side = Geography.from_frame(places, ["zone"], coordinates=("north", "east"))
    picture = map_of(FlowTree(side, side), [(names[k], names[0], 1000 - k) for k in range(1, 12)])
    wide, narrow = re.findall(r'<g class="(?:wide|narrow)".*?</g>', picture, re.DOTALL)
    labels = {part: re.findall(r'<text x="([^"]*)" y="([^"]*)">([^<]*)</text>', part) for part in (wide, narrow)}
    busiest = "AA Long Name of an"
    assert labels[narrow][0][2] == labels[wide][0][2] == busiest
    assert len(labels[narrow]) <= 6 < len(labels[wide])
    sizes = [float(size) for size in re.findall(r'font-size="([^"]*)"', wide + narrow)]
    assert sizes[1] > 2 * sizes[0]
    assert 'display="none"' in narrow
    spaces = [(float(x), float(y), len(text) * sizes[1] * 0.6) for x, y, text in labels[narrow]]
    for number, (x, y, width) in enumerate(spaces):
        for other_x, other_y, other_width in spaces[:number]:
            beside = x + width < other_x or other_x + other_width < x
            assert beside or abs(y - other_y) > sizes[1]
