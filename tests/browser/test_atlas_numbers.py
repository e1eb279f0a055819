"""The numbers of the atlas in a real browser are those of the library."""

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, InfTDARefined, Release, open_release, sum_releases
from od_core.flows.estimation.intervals import Intervals, _subtract_trips_within, compute_bounds
from od_core.flows.indicators import _find_likely_sides, indicators
from od_core.flows.publishing import atlas
from od_core.flows.publishing.changes import changes
from od_core.flows.released_flows import ReleasedFlows, make_zone_function
from tests.browser import atlases
from tests.od_core.publication.examples import facts

ENDS = ("", "_lower", "_upper")

ASK = "async (asked) => { const got = []; for (const ask of asked) got.push(await between(ask)); return got; }"


def selections(flows: ReleasedFlows, number: int, finest: int | None = None) -> list[dict]:
    """Random sets of areas of both sides, as the page asks for them."""
    random, asked = np.random.default_rng(7), []
    for _ in range(number):
        ask = {}
        for side, geography in (("origins", flows.tree.origin), ("destinations", flows.tree.destination)):
            level = int(random.integers(1, (finest or geography.depth) + 1))
            size = min(geography.size(level), int(random.choice([1, 2, 5, 50, 10_000])))
            areas = random.choice(geography.size(level), size, replace=False)
            ask[side] = {"level": level, "areas": areas.tolist()}
        asked.append(ask)
    return asked


def by_library(flows: ReleasedFlows, ask: dict, **part: str) -> list[int]:
    """The trips of a selection and their interval: a row of the tables if it is one area on each side, or else a sum.

    If nodes were dropped, the estimate of such a row is also that of the sum, with the deviations of the table.
    ``part`` is a breakdown and a category, if it is that of one category.
    """
    named = []
    for side, geography in (("origins", flows.tree.origin), ("destinations", flows.tree.destination)):
        level = ask[side]["level"]
        named += [geography.level_names[level], [geography.codes[level][area] for area in ask[side]["areas"]]]
    if len(named[1]) == len(named[3]) == 1:
        table = flows.flows_at(named[0], named[2], segment=part.get("segment"), interval=True)
        is_row = (table["origin"] == named[1][0]) & (table["destination"] == named[3][0])
        row = table[is_row & (table[part["segment"]] == part["category"]) if part else is_row]
        if len(row) and flows.intervals.nothing_dropped:  # a large table lists no flows of 0
            return row[["trips", "lower", "upper"]].iloc[0].tolist()
        return dropped_row(flows, named, **part)
    return list(flows.trips_between(*named, **part))


def dropped_row(
    flows: ReleasedFlows, named: list, segment: str | None = None, category: str | None = None
) -> list[int]:
    trips = flows.trips_between(*named, **{"segment": segment, "category": category} if segment else {}).trips
    sides = (flows.tree.origin, flows.tree.destination)
    levels = tuple(side.find_level_number(name) for side, name in zip(sides, named[::2], strict=True))
    inside = [side.mask_zones(level, areas) for side, level, areas in zip(sides, levels, named[1::2], strict=True)]
    if segment is None:
        sums = [fit.sum_between(*inside) for fit in flows.intervals.fits]
    else:
        (k,) = (one.position(category) for one in flows.breakdowns if one.name == segment)
        sums = [fit.sum_between(*inside)[k] for fit in flows.segment_intervals(segment)._fits]
    ends = flows.make_selection(levels, segment).make_lower_ends(np.array([trips]))
    (lower,), (upper,) = compute_bounds(reduce(add, sums), ends)
    return [trips, min(lower, trips), max(upper, trips)]


def shown(opened, address: str) -> Any:
    """The page of an atlas, once it shows its areas."""
    page, _ = opened(address)
    page.wait_for_selector("#panel h2")
    return page


def totals_of(page: Any, level: int, areas: list[int]) -> dict[str, Any]:
    """What the page says of the trips from, to and within some areas together."""
    found: dict[str, Any] = page.evaluate(
        "(selected) => atlas.client.ask('totals', { selected })", {"level": level, "areas": areas}
    )
    return found


def compared(opened, address: str, flows: ReleasedFlows, number: int = 60, finest: int | None = None) -> None:
    page, seen = opened(address)
    page.wait_for_selector("#panel h2")
    asked = selections(flows, number, finest)
    found = [[got["trips"], *got["interval"]] for got in page.evaluate(ASK, asked)]
    assert found == [by_library(flows, ask) for ask in asked]
    assert seen.errors == []


def test_a_thousand_selections_of_the_flights_are_those_of_the_library(opened, bundle):
    compared(opened, (bundle / "atlas.html").as_uri(), open_release(bundle), number=1000)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda", "tda_l2", "vanilla_gauss"])
def test_selections_of_every_mechanism_are_those_of_the_library(opened, tmp_path, mechanism, seed):
    """``inftda`` and ``tda_l2`` drop nodes without trips, of which less is known."""
    release = atlases.random_release(seed, mechanism=mechanism)
    assert release.fitted.nothing_dropped == (mechanism in ("inftda_refined", "vanilla_gauss"))
    compared(opened, atlases.written(release, facts(release), tmp_path), release)


DROPPING = InfTDARefined(keep_all_cap=0)


@pytest.mark.parametrize("share", [None, "1/5"])
@pytest.mark.parametrize("mechanism", ["inftda_refined", DROPPING])
def test_selections_of_a_tree_that_refines_both_sides_are_those_of_the_library(opened, tmp_path, mechanism, share):
    release = atlases.random_release(6, mechanism=mechanism, tree="both", area_totals=share)
    assert [len({*pair}) for pair in map(release.tree.level_pair, range(4))] == [1] * 4
    assert release.fitted.nothing_dropped == (mechanism != DROPPING)
    compared(opened, atlases.written(release, facts(release), tmp_path), release)


@pytest.mark.parametrize("share", [None, "1/5"])
def test_selections_of_laplace_noise_are_those_of_the_library(opened, tmp_path, share):
    """Every flow above 0 has a lower end that knows the tails, however large it is."""
    mechanism = InfTDARefined(noise_distribution="laplace")
    release = atlases.random_release(6, mechanism=mechanism, tree="both", budget=Budget(1), area_totals=share)
    assert release.make_selection((3, 3)).least_listed == 1
    compared(opened, atlases.written(release, facts(release), tmp_path), release)


@pytest.mark.parametrize("levels", [("region", "town", "zone"), ("town", "zone"), ("zone",)])
@pytest.mark.parametrize("mechanism", ["inftda_refined", DROPPING])
def test_selections_use_measured_totals_of_areas_as_the_library_does(opened, tmp_path, mechanism, levels):
    """With zones alone, the tree has the totals of destinations, and only those of origins are measured beside it."""
    release = atlases.random_release(6, mechanism=mechanism, levels=levels, area_totals="1/5")
    assert release.fitted.nothing_dropped == (mechanism != DROPPING)
    assert set(release.fitted.area_totals) == ({0} if levels == ("zone",) else {0, 1})
    compared(opened, atlases.written(release, facts(release), tmp_path), release)


@pytest.mark.parametrize("share", [None, "1/5"])
@pytest.mark.parametrize("tree", ["destination", "origin", "both", "Laplace"])
def test_numbers_where_some_pairs_cannot_have_trips_are_those_of_the_library(opened, tmp_path, tree, share):
    """Of selections, and of areas, of which one has no pair on either side."""
    changes: dict[str, Any] = {"tree": tree}
    if tree == "Laplace":
        mechanism = InfTDARefined(noise_distribution="laplace")
        changes = {"tree": "both", "mechanism": mechanism, "budget": Budget(1)}
    release = atlases.random_release(6, some=True, area_totals=share, **changes)
    address = atlases.written(release, facts(release), tmp_path)
    compared(opened, address, release)
    page = shown(opened, address)
    for level in release.tree.origin.levels:
        same_totals(page, release, level)
    assert f"Only {release.tree.cells(release.tree.depth)} of 1,600 pairs of zones can have trips" in page.inner_text(
        "footer"
    )


@pytest.mark.parametrize("mechanism", ["vanilla_gauss", InfTDARefined()])
def test_a_page_of_some_pairs_may_be_cut_or_have_levels_that_were_not_measured(
    opened, tmp_path, monkeypatch, mechanism
):
    if mechanism != "vanilla_gauss":
        monkeypatch.setattr(atlas, "_choose_depth", lambda *_: 2)
    release = atlases.random_release(6, some=True, mechanism=mechanism)
    compared(opened, atlases.written(release, facts(release), tmp_path), release, finest=2)


def test_selections_of_a_sum_of_releases_are_those_of_the_library(opened, tmp_path):
    first = atlases.random_release(1)
    flows = sum_releases([first, replace(first)])
    compared(opened, atlases.written(flows, facts(first), tmp_path), flows)


def sparse_below(mechanism: str) -> Release:
    """Every pair of towns has many trips, and few pairs of zones have any: nodes are dropped at the zones alone."""
    zones = [(f"r{k // 20}", f"t{k // 10}", f"z{k:02}", 50 + k / 50, k % 7) for k in range(60)]
    levels, places = ["region", "town", "zone"], ("latitude", "longitude")
    geography = Geography.from_frame(pd.DataFrame(zones, columns=[*levels, *places]), levels, coordinates=places)
    pairs = [(f"z{10 * o:02}", f"z{10 * d:02}", 5_000) for o in range(6) for d in range(6)]
    flows = pd.DataFrame(pairs, columns=["origin", "destination", "trips"])
    return atlases.released(flows, geography, mechanism=mechanism, budget=Budget(epsilon=1, delta="1e-8"))


@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda"])
def test_a_page_is_cut_exactly_whatever_was_dropped_above(opened, tmp_path, monkeypatch, mechanism):
    monkeypatch.setattr(atlas, "_choose_depth", lambda *_: 2)  # noise decides how many nodes there are
    release = atlases.random_release(3, mechanism=mechanism)
    compared(opened, atlases.written(release, facts(release), tmp_path), release, finest=2)


@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda"])
def test_a_table_that_is_too_large_has_its_coarser_areas_exactly(opened, tmp_path, monkeypatch, mechanism):
    """Every pair of towns is measured, 36, and all of their zones, at least 360, whatever the noise."""
    monkeypatch.setattr(atlas, "MOST_NODES", 100)
    release = sparse_below(mechanism)
    assert release.fitted.nothing_dropped == (mechanism == "inftda_refined")  # else below what the page shows
    assert all(len(level.divided) == len(level.nodes) for level in release.fitted.levels if level.nodes.level < 4)
    address = atlases.written(release, facts(release), tmp_path)
    compared(opened, address, release, finest=2)
    page = shown(opened, address)
    assert "shows areas down to town" in page.inner_text("footer")
    assert page.locator("#level option").all_inner_texts() == ["region", "town"]


def test_selections_between_other_areas_are_those_of_the_library(opened, two_sides):
    compared(opened, two_sides[1], two_sides[0])


@pytest.mark.parametrize(
    ("mechanism", "measured"), [("inftda_refined", False), ("inftda", False), ("inftda_refined", True)]
)
def test_totals_are_marked_as_the_indicators_are(opened, tmp_path, monkeypatch, mechanism, measured):
    """Six zones have all trips, and lose some to the others, which marks 3 of 12 totals on average.

    A page that states that totals were measured has no marks, whatever the estimates of its flow tree say.
    If nodes were dropped, the estimates of the page are those of sums of zones, which differ from those of areas.
    """

    def marks(release, zone):
        here = np.arange(60) == zone
        stated = []
        for column, ends in (("outflow", (here, ~here)), ("inflow", (~here, here))):
            sums = release.fitted.sum_between(*ends)
            about = np.rint(sums.estimate).astype(np.int64)
            trips = indicators(release, ["zone"], interval=False)[column].to_numpy()[[zone]]
            side = str(_find_likely_sides(trips, about, sums)[0])
            stated.append({"side": side, "about": int(about[0])} if side else None)
        return stated

    every = (sparse_below(mechanism) for _ in range(50))
    found = ((release, zone, marks(release, zone)) for release in every for zone in range(0, 60, 10))
    release, zone, (mark, _) = next(each for each in found if each[2][0])
    if release.fitted.nothing_dropped:
        table = indicators(release, ["zone"])
        assert [table["outflow_likely"][zone], table["outflow_unbiased"][zone]] == list(mark.values())
    if measured:
        monkeypatch.setattr(Intervals, "has_measured_totals", lambda *_: True)
    page, _ = opened(f"{atlases.written(release, facts(release), tmp_path)}#level=zone&areas=z{zone:02}")
    page.wait_for_selector(".tiles")
    for number in range(60):
        got = totals_of(page, 3, [number])
        likely = [got[name]["likely"] for name in ("outflow", "inflow")]
        assert likely == ([None, None] if measured else marks(release, number))
    words = f"likely {mark['side']}: about {mark['about']:,}"
    assert (words in page.inner_text(".tiles")) is not measured


def same_totals(page: Any, release: ReleasedFlows, level: str) -> None:
    """Every area's totals in the page are its indicators."""
    number = release.tree.origin.find_level_number(level)
    for area, row in indicators(release, [level]).iterrows():
        got = totals_of(page, number, [area])
        for name in ("outflow", "inflow", "within"):
            ends = [row[f"{name}{end}"] for end in ENDS]
            assert [got[name]["trips"], *got[name]["interval"]] == ends
        if not pd.isna(row["self_containment"]):
            ends = [row[f"self_containment{end}"] for end in ENDS]
            share = got["selfContainment"]
            assert [share["share"], *share["interval"]] == pytest.approx(ends, abs=2e-6)
        if not pd.isna(row.get("mean_distance")):
            ends = [row[f"mean_distance{end}"] for end in ENDS]
            mean = got["meanDistance"]
            assert [mean["mean"], *mean["interval"]] == pytest.approx(ends, abs=2e-3)


def test_totals_of_an_area_are_its_indicators(opened, bundle):
    page = shown(opened, (bundle / "atlas.html").as_uri())
    same_totals(page, open_release(bundle), "state")


@pytest.mark.parametrize("levels", [("region", "town", "zone"), ("zone",)])
@pytest.mark.parametrize("releases", [1, 2])
def test_totals_use_measured_totals_of_areas_as_the_indicators_do(opened, tmp_path, levels, releases):
    release = atlases.random_release(6, levels=levels, area_totals="1/5")
    flows = sum_releases([release, replace(release)]) if releases == 2 else release
    page = shown(opened, atlases.written(flows, facts(release), tmp_path))
    for level in levels:
        same_totals(page, flows, level)


def test_totals_below_dropped_nodes_are_the_measured_ones_where_these_are_more_exact(opened, tmp_path):
    """Less the trips within, where nodes of the tree were dropped; see ``intervals._subtract_trips_within``."""
    release = atlases.random_release(6, mechanism=DROPPING, area_totals="1/20")
    fit, geography, of_measured = release.fitted, release.tree.origin, 0
    page = shown(opened, atlases.written(release, facts(release), tmp_path))
    for zone in range(geography.size(3)):
        here = np.arange(geography.size(3)) == zone
        got = totals_of(page, 3, [zone])
        within = fit.sum_between(here, here)
        for side, (name, ends) in enumerate((("outflow", (here, ~here)), ("inflow", (~here, here)))):
            measured = fit.sum_measured_totals(side, 3).take(np.array([zone]))
            sums, chosen = _subtract_trips_within(measured, within, fit.sum_between(*ends))
            trips, ((lower,), (upper,)) = got[name]["trips"], compute_bounds(sums)
            assert got[name]["interval"] == [min(lower, trips), max(upper, trips)]
            of_measured += int(chosen[0])
    assert 0 < of_measured < 80


@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda"])
def test_mean_distances_are_indicators_whatever_was_dropped(opened, tmp_path, mechanism):
    release = sparse_below(mechanism)
    assert release.fitted.nothing_dropped == (mechanism == "inftda_refined")
    page = shown(opened, atlases.written(release, facts(release), tmp_path))
    for number, row in indicators(release, ["town"]).iterrows():
        mean = totals_of(page, 2, [number])["meanDistance"]
        ends = [row[f"mean_distance{end}"] for end in ENDS]
        assert [mean["mean"], *mean["interval"]] == pytest.approx(ends, abs=2e-3)


def test_the_mean_distance_of_several_areas_is_a_ratio_of_weighted_sums(opened, tmp_path):
    """As in every public table, the interval is widened to contain the released number.

    Weighted sums use measured totals of areas. Mean distances, here and among the indicators, follow from the flows.
    """
    release, chosen = sparse_below("inftda_refined"), ["t0", "t3", "t4"]
    level = release.tree.origin.find_level_number("town")
    inside = release.tree.origin.mask_zones(level, chosen)
    zones = dict(zip(release.tree.origin.zones, inside, strict=True))
    known = make_zone_function(release.tree, "has_distance"), make_zone_function(release.tree, "distance")
    numbers = {code: number for number, code in enumerate(release.tree.origin.zones)}

    def weight(quantity):
        def of(origins, destinations):
            ends = (np.array([numbers[code] for code in side]) for side in (origins, destinations))
            return quantity(*ends) * np.array([zones[code] for code in origins])

        return of

    expected = release.weighted_sum(weight(known[1]), per=weight(known[0]))
    page = shown(opened, atlases.written(release, facts(release), tmp_path))
    mean = totals_of(page, level, [release.tree.origin.codes[level].index(code) for code in chosen])["meanDistance"]
    lower, upper = min(expected.lower, expected.released), max(expected.upper, expected.released)
    assert [mean["mean"], *mean["interval"]] == pytest.approx([expected.released, lower, upper], abs=2e-3)


SCENE = """() => {
    const { lines, circles } = atlas.map.scene;
    const known = circles.filter(({ interval }) => interval);
    const circle = ({ trips, interval, faint }) => [trips, ...interval, faint];
    return [lines.map(({ trips, word }) => [trips, word]), known.map(circle)];
}"""


DRAWN = """() => {
    const drawn = new Set(), { prototype } = CanvasRenderingContext2D, { setLineDash } = prototype;
    prototype.setLineDash = function (dashes) { drawn.add(dashes.join()); setLineDash.call(this, dashes); };
    atlas.map.paint();
    prototype.setLineDash = setLineDash;
    return [drawn.size, atlas.map.stripes.size];
}"""
"""How many kinds of lines are drawn, and of stripes."""


def test_flows_have_the_words_of_the_table(opened, bundle):
    """In the file that the page makes, beside the map and on it: of the largest flows, and from one airport."""
    table = pd.read_parquet(bundle / "tables/flows.parquet")
    table = table[
        (table["origin_level"] == "airport") & (table["destination_level"] == "airport") & (table["trips"] > 0)
    ]
    table = table[table["origin"] != table["destination"]]
    numbers, said = ["trips", "lower", "upper", "reliability"], set()
    doubtful = (table["reliability"] == "may be none").groupby(table["origin"]).mean().idxmax()
    for areas in ("", doubtful):
        page, seen = opened(f"{(bundle / 'atlas.html').as_uri()}#level=airport&areas={areas}")
        page.wait_for_selector("#profile[aria-busy=false] table")
        own = table[table["origin"] == areas] if areas else table
        flows = own.set_index("destination" if areas else own["origin"] + " to " + own["destination"])[numbers]
        measure = "flights from the selection" if areas else "flights"
        rows = [row for row in atlases.downloaded(page)[1] if row["measure"] == measure]
        assert len(rows) == min(len(flows), 1000)
        for row in rows:
            assert [int(row[name]) for name in ("value", "lower", "upper")] == flows.loc[
                row["area"], numbers[:3]
            ].tolist()
            assert row["reliability"] == flows.loc[row["area"], "reliability"]
        cells = page.locator("#panel > div:not(#profile) tbody tr").evaluate_all(
            "(all) => all.map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
        assert [atlases.with_word(f"{trips} {interval}, {word}") for _, trips, interval, word, _ in cells] == [
            [int(row[name]) for name in ("value", "lower", "upper")] for row in rows[:15]
        ]
        marked = sum(row["reliability"] == "may be none" for row in rows[:15])
        caption = page.inner_text("#panel > div:not(#profile) caption")
        assert caption.endswith(
            f" ({marked} of these {min(len(rows), 15)} may be none)" if marked else ("(airport)", "go")[bool(areas)]
        )
        lines, circles = page.evaluate(SCENE)
        assert lines == [[int(row["value"]), row["reliability"]] for row in rows[: 30 if areas else 15]]
        assert [faint for *_, faint in circles] == [atlases.word_of(*known) == "may be none" for *known, _ in circles]
        keys = page.locator("#key span").all_inner_texts()
        words = {"solid", "rough", "may be none"}
        assert words & {*keys} == {word for _, word in lines}
        assert ("Striped areas: may be none" in keys) == any(faint for *_, faint in circles)
        kinds = len({word for _, word in lines} | {"solid"})  # outlines are whole, too
        assert page.evaluate(DRAWN) == [kinds, any(faint for *_, faint in circles)]
        assert page.is_visible("#words")
        said |= {row["reliability"] for row in rows}
        assert seen.errors == []
    assert said == words


@pytest.mark.parametrize(("later", "days"), [("03", 31), ("02", 28)])
@pytest.mark.parametrize("own", ["01", None])
def test_changes_since_another_atlas_are_those_of_the_library(opened, tmp_path, own, later, days):
    """Whichever of the two pages is open, changes are from the earlier period to the later one; per day to February."""
    before, after = (atlases.random_release(seed, areas=1) for seed in (1, 2))
    pages = {
        name: atlases.in_folder(one, tmp_path / name, f"2001-{name}") for name, one in (("01", before), (later, after))
    }
    names = ["change", "lower", "upper"] if days == 31 else ["change_per_day", "lower_per_day", "upper_per_day"]
    page, seen = opened(pages[own or later] + "#level=region")
    page.wait_for_selector("#panel table")
    (other,) = pages.keys() - {own or later}
    atlases.compare_with(page, tmp_path / other / "atlas.html")
    page.wait_for_selector(f"text=Changes from other/2001-01/r1 to other/2001-{later}/r1.")
    for number, level in enumerate(("region", "town"), start=1):
        codes = after.tree.origin.codes[number]
        table = changes(before, after, level, level, days=(31, days)).set_index(["origin", "destination"])
        for area, code in enumerate(codes):
            ask = {"selected": {"level": number, "areas": [area]}, "direction": "from", "level": number, "most": 1000}
            for flow in page.evaluate("(ask) => atlas.client.ask('partners', ask)", ask):
                row, change = table.loc[(code, codes[flow["destination"]])], flow["change"]
                assert [change["before"], flow["trips"]] == [row.before, row.after]
                assert [change["change"], *change["interval"]] == row[names].to_list()
                assert change["certain"] == row.significant
    table = changes(before, after, "region", "region", days=(31, days)).query("origin != destination")
    grew, fell = (int((table["significant"] & (sign * table[names[0]] > 0)).sum()) for sign in (1, -1))
    said = (
        f"{grew + fell} of {len(table)} compared flows changed by more than their uncertainty: {grew} grew, and {fell}"
    )
    assert said in page.inner_text("#panel")
    name, rows = atlases.downloaded(page)
    later_key = f"other/2001-{later}/r1"
    assert (name, {row["release"] for row in rows}) == (f"other_2001-{later}_r1_selection.csv", {later_key})
    assert (names[0] in rows[0], "per day" in page.inner_text("#panel")) == (True, days == 28)
    lengths = "2001-01 has 31 days and 2001-02 28: changes are told per day."
    assert (lengths in page.inner_text("#compared")) == (days == 28)
    page.click("#compare")
    page.wait_for_selector("#compared", state="hidden")
    assert "change" not in page.inner_text("#panel")
    assert seen.errors == []
