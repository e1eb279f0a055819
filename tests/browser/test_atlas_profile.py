"""The numbers of the atlas by category and by distance in a real browser are those of the library."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, Release, sum_releases
from od_core.flows.estimation.fitted_tree import Estimates, estimate_dropped_trips
from od_core.flows.estimation.intervals import compute_bounds
from od_core.flows.indicators import distance_bands
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.publishing import atlas
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.places import ZoneDistances
from tests.browser.atlases import between_some, downloaded, released, written
from tests.browser.test_atlas_numbers import by_library, selections
from tests.od_core.publication.examples import facts

MODES, DAYS = ("car", "bus", "train <b>"), ("week", "weekend")
DROPPING = InfTDARefined(keep_all_cap=0)
"""It drops nodes that it estimates as 0, with all nodes below them."""

SEGMENTS = {"segments": {"mode": MODES, "day": DAYS}}

ASK = """async ([name, asked]) => {
    const got = [];
    for (const ask of asked) got.push(await atlas.client.ask(name, ask));
    return got;
}"""


def zones_of(number: int, seed: int, *, unknown: int = 0) -> Geography:
    """Zones of three levels within some hundred kilometres; some have no coordinates."""
    random = np.random.default_rng(seed)
    town = np.cumsum(random.random(number) < 0.4)
    names = {"region": town // 4, "town": town, "zone": np.arange(number)}
    table = pd.DataFrame({level: [f"{level}{k}" for k in numbers] for level, numbers in names.items()})
    table["latitude"], table["longitude"] = 47 + 4 * random.random(number), 5 + 6 * random.random(number)
    table.loc[random.choice(number, unknown, replace=False), ["latitude", "longitude"]] = np.nan
    levels = ["region", "town", "zone"]
    return Geography.from_frame(table, levels, coordinates=("latitude", "longitude"))


def made(seed: int, *, number: int = 40, unknown: int = 0, some: bool = False, **changes) -> Release:
    """A release of trips by mode and day; most pairs have no trips, or only ``some`` can."""
    random, geography = np.random.default_rng(seed), zones_of(number, seed, unknown=unknown)
    rows = 8 * number
    columns = {"origin": geography.zones, "destination": geography.zones, "mode": MODES, "day": DAYS}
    flows = pd.DataFrame({name: random.choice(list(values), rows) for name, values in columns.items()})
    flows = flows.drop_duplicates().assign(trips=lambda flows: random.choice([1, 5, 300], len(flows)))
    if some:
        flows, possible = between_some(flows, geography.zones)
        changes |= possible
    return released(flows, geography, **{"budget": Budget(epsilon=1, delta="1e-8")} | SEGMENTS | changes)


def asked_of(opened, address: str, name: str, asks: Sequence[dict]) -> list:
    page, seen = opened(address)
    page.wait_for_selector("#panel[aria-busy=false] h2")
    got = page.evaluate(ASK, [name, list(asks)])
    assert seen.errors == []
    return got


def ends_of(row: dict) -> list[int]:
    return [row["trips"], *row["interval"]]


def by_category(flows: ReleasedFlows, ask: dict) -> dict[str, dict[str, list[int]]]:
    """The trips of a selection by category and their intervals, by the library."""
    return {
        one.name: {category: by_library(flows, ask, segment=one.name, category=category) for category in one.categories}
        for one in flows.breakdowns
    }


def compare_categories(opened, address: str, flows: ReleasedFlows, number: int, finest: int | None = None) -> None:
    asks = selections(flows, number, finest)
    got = asked_of(opened, address, "categories", asks)
    found = [{one["name"]: {row["category"]: ends_of(row) for row in one["rows"]} for one in each} for each in got]
    assert found == [by_category(flows, ask) for ask in asks]


@pytest.mark.slow
def test_a_thousand_selections_by_category_are_those_of_the_library(opened, tmp_path):
    release = made(1)
    compare_categories(opened, written(release, facts(release), tmp_path), release, 1000)


@pytest.mark.parametrize("tree", ["destination", "origin"])
def test_categories_below_dropped_nodes_are_those_of_the_library(opened, tmp_path, tree):
    release = made(2, tree=tree, mechanism=DROPPING)
    assert not release.fitted.nothing_dropped
    compare_categories(opened, written(release, facts(release), tmp_path), release, 100)


@pytest.mark.parametrize("tree", ["destination", "both"])
def test_categories_and_bands_where_some_pairs_cannot_have_trips_are_those_of_the_library(opened, tmp_path, tree):
    release = made(2, some=True, tree=tree, area_totals="1/5")
    address = written(release, facts(release), tmp_path)
    compare_categories(opened, address, release, 50)
    asks = selections(release, 50)
    assert banded(opened, address, asks) == [expected_bands(release, ask) for ask in asks]


def test_categories_of_a_sum_of_releases_are_those_of_the_library(opened, tmp_path):
    first = made(3)
    flows = sum_releases([first, made(3)])
    compare_categories(opened, written(flows, facts(first), tmp_path), flows, 50)


@pytest.mark.parametrize("dropped", [False, True])
def test_categories_of_a_page_that_is_cut_are_those_of_the_library(opened, tmp_path, monkeypatch, dropped):
    monkeypatch.setattr(atlas, "_choose_depth", lambda *_: 2)
    release = made(4, mechanism=DROPPING if dropped else "inftda_refined")
    compare_categories(opened, written(release, facts(release), tmp_path), release, 50, finest=2)


def test_a_page_may_have_the_categories_of_its_coarser_areas_alone(opened, tmp_path, monkeypatch):
    release = made(5)
    towns, zones = (release.tree.origin.size(level) for level in (2, 3))
    monkeypatch.setattr(atlas, "MOST_NODES", max(zones**2, 5 * towns**2))  # less than all zones in five categories
    address = written(release, facts(release), tmp_path)
    compare_categories(opened, address, release, 50, finest=2)
    parents = release.tree.origin.parents[3]
    zone = int(np.flatnonzero(np.bincount(parents)[parents] > 1)[0])  # a part of its town
    page, _ = opened(f"{address}#level=zone&areas={release.tree.origin.zones[zone]}")
    page.wait_for_selector("#profile[aria-busy=false]")
    assert "are shown for areas down to town" in page.inner_text("footer")
    assert "Trips by mode and day are known for areas down to town." in page.inner_text("#profile")
    (got,) = asked_of(opened, address, "categories", [dict.fromkeys(("origins", "destinations"), area(3, [zone]))])
    assert got is None


CHOSEN = """async ([part, level, asks]) => {
    await atlas.client.ask("choose", {part});
    const between = [];
    for (const ask of asks) between.push(await atlas.client.ask("between", ask));
    return [between, await atlas.client.ask("largest", {level, most: 10000})];
}"""


@pytest.mark.parametrize("is_cut", [False, True])
def test_one_category_alone_has_the_numbers_of_the_library(opened, tmp_path, monkeypatch, is_cut):
    """Sums of areas and single flows, with intervals; also on a page with the categories of coarser areas alone."""
    release = made(5)
    finest = 2 if is_cut else 3
    if is_cut:
        towns, zones = (release.tree.origin.size(level) for level in (2, 3))
        monkeypatch.setattr(atlas, "MOST_NODES", max(zones**2, 5 * towns**2))
    page, seen = opened(written(release, facts(release), tmp_path))
    page.wait_for_selector("#panel[aria-busy=false] h2")
    asks = selections(release, 50, finest)
    for breakdown, category in (("mode", MODES[2]), ("day", DAYS[0])):
        part = {"breakdown": breakdown, "category": category}
        between, largest = page.evaluate(CHOSEN, [part, finest, list(asks)])
        assert [ends_of(row) for row in between] == [by_category(release, ask)[breakdown][category] for ask in asks]
        level = release.tree.origin.level_names[finest]
        table = release.flows_at(level, level, segment=breakdown, interval=True)
        table = table[(table[breakdown] == category) & (table["origin"] != table["destination"])]
        codes = release.tree.origin.codes[finest]
        found = {(codes[row["origin"]], codes[row["destination"]]): ends_of(row) for row in largest}
        assert found == {(one[0], one[1]): list(one[3:]) for one in table.itertuples(index=False) if one[3]}
    assert seen.errors == []


def test_a_reader_chooses_a_category(opened, tmp_path):
    """The heading, the address and the file say so, but not of its trips by category, which are all trips.

    Finer levels than are known by category cannot be chosen.
    """
    release = made(5)
    page, seen = opened(written(release, facts(release), tmp_path) + "#level=town&only=mode:" + "train%20%3Cb%3E")
    page.wait_for_selector("#panel[aria-busy=false] h2")
    assert page.inner_text("#panel h2") == "All areas, only mode train <b>"
    page.select_option("#category", label="day: weekend")
    page.wait_for_selector("text=All areas, only day weekend")
    assert page.url.endswith("only=day:weekend")
    selections_of = {(row["measure"], row["selection"]) for row in downloaded(page)[1]}
    by = {(f"trips by {name}", "all") for name in ("mode", "day", "distance")}
    assert selections_of == {("trips", "all, only day weekend"), *by}
    page.select_option("#category", label="all trips")
    page.wait_for_selector("#panel h2 bdi:text-is('All areas')")
    assert seen.errors == []


def area(level: int, areas: list[int]) -> dict:
    return {"level": level, "areas": areas}


ALL = area(0, [0])


def banded(opened, address: str, asks: Sequence[dict]) -> list[list[list[int]]]:
    return [[ends_of(row) for row in rows] for rows in asked_of(opened, address, "distances", asks)]


@pytest.mark.parametrize("unknown", [0, 3])
@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda", "vanilla_gauss"])
def test_bands_of_every_area_are_those_of_the_table(opened, tmp_path, mechanism, unknown):
    """Also of the whole space. ``inftda`` drops nodes, whose trips may have any distance."""
    release = made(6, mechanism=mechanism, unknown=unknown, segments=None)
    table = distance_bands(release)
    table["level"] = table["level"].map(release.tree.origin.find_level_number)
    asks, expected = [], []
    for level, codes in enumerate(release.tree.origin.codes):
        for number, code in enumerate(codes):
            asks.append({"origins": area(level, [number]), "destinations": ALL})
            own = table[(table["level"] == level) & (table["area"] == code)]
            expected.append(own[["trips", "lower", "upper"]].to_numpy().tolist())
    assert banded(opened, written(release, facts(release), tmp_path), asks) == expected


def group_of(release: ReleasedFlows):
    """The number of the band of pairs of zones, from their distances in kilometres."""
    distances = ZoneDistances.from_tree(release.tree)
    return lambda o, d: np.searchsorted(distances.edges, distances.compute_distances(o, d), side="right")


def expected_bands(release: Release, ask: dict) -> list[list[int]]:
    """The interval of each band of a selection: of the set of its pairs of zones, by weights that are 0 or 1."""
    tree = release.tree
    inside = [
        side.mask_zones(ask[name]["level"], [side.codes[ask[name]["level"]][k] for k in ask[name]["areas"]])
        for name, side in (("origins", tree.origin), ("destinations", tree.destination))
    ]
    band, count = group_of(release), len(ZoneDistances.from_tree(tree).edges) + 1
    sums = release.intervals.estimate_begun_trips(0, lambda o, d: inside[0][o] & inside[1][d], band, count)
    own = inside[0][release.leaves.origin] & inside[1][release.leaves.destination]
    released_bands = band(release.leaves.origin[own], release.leaves.destination[own])
    trips = np.bincount(released_bands, release.leaves.trips[own], count).astype(int)
    ends = [[int(end[0]) for end in compute_bounds(one)] for one in sums]
    return [[n, min(low, n), max(high, n)] for n, (low, high) in zip(trips.tolist(), ends, strict=True)]


@pytest.mark.parametrize("tree", ["destination", "origin"])
def test_bands_of_selections_are_those_of_their_pairs(opened, tmp_path, tree):
    release = made(7, tree=tree, segments=None)
    asks = selections(release, 100)
    asks += [{"origins": ALL, "destinations": ask["destinations"]} for ask in asks[:30]]
    assert banded(opened, written(release, facts(release), tmp_path), asks) == [
        expected_bands(release, ask) for ask in asks
    ]


def dropped_bands(release: Release, areas: list[int]) -> list[list[int]]:
    """The bands of the trips from some regions if nodes were dropped, added up by hand.

    Each pair of zones that was measured has its noisy value, which is independent of all others. Trips of the dropped
    nodes that begin in the regions may belong to any band.
    """
    tree, count = release.tree, len(ZoneDistances.from_tree(release.tree).edges) + 1
    inside = np.isin(tree.origin.ancestors(1), areas)
    *above, last = release.fitted.levels
    own = inside[last.nodes.origin]
    place = group_of(release)(last.nodes.origin[own], last.nodes.destination[own])
    estimate = np.bincount(place, last.noisy[own], count)
    variance = last.noise * np.bincount(place, minlength=count)
    most, unseen, doubt = 0.0, 0.0, 0.0
    for level in above[1:]:
        zones = np.diff(
            np.concatenate([[0], np.cumsum(inside)])[tree.origin.first_zone[tree.level_pair(level.nodes.level)[0]]]
        )
        here = zones[level.nodes.origin] > 0
        kept = np.isin(np.arange(len(here)), level.divided)
        most += level.bound[here & ~kept].sum()
        hidden, spread = estimate_dropped_trips(level)
        unseen, doubt = unseen + hidden[here].sum(), doubt + spread[here].sum()
    ones = np.ones(count)
    lower, upper = compute_bounds(Estimates(estimate, variance, most * ones, unseen * ones, doubt * ones, 0 * ones))
    here = inside[release.leaves.origin]
    leaves = group_of(release)(release.leaves.origin[here], release.leaves.destination[here])
    trips = np.bincount(leaves, release.leaves.trips[here], count).astype(int)
    return np.column_stack([trips, np.minimum(lower, trips), np.maximum(upper, trips)]).tolist()


def test_bands_of_selections_above_dropped_nodes_have_their_trips(opened, tmp_path):
    release = made(8, mechanism="inftda", segments=None)
    assert not release.fitted.nothing_dropped
    regions = release.tree.origin.size(1)
    chosen = [[0, k] for k in range(1, regions)]
    asks = [{"origins": area(1, areas), "destinations": ALL} for areas in chosen]
    expected = [dropped_bands(release, areas) for areas in chosen]
    assert banded(opened, written(release, facts(release), tmp_path), asks) == expected


def test_bands_of_a_sum_of_releases_are_those_of_the_table(opened, tmp_path):
    first = made(9, segments=None)
    flows = sum_releases([first, made(9, segments=None)])
    table = distance_bands(flows, ["all"])
    (got,) = banded(opened, written(flows, facts(first), tmp_path), [{"origins": ALL, "destinations": ALL}])
    assert got == table[["trips", "lower", "upper"]].to_numpy().tolist()
