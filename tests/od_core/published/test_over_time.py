"""The page of a series' flows over time has the numbers of its bundles, and the one statistic of change."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from od_core import Ledger, ReleaseKey, open_release
from od_core.flows.publishing.changes import PER_DAY, changes
from od_core.flows.publishing.kind import FLOWS
from od_core.publication.templates import render_template
from od_core.published import flows_over_time, site
from od_core.published.flows_over_time import OverTime
from od_core.published.site import render_series_page
from od_core.published.site_release import SiteDescription, SiteRelease
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.published_kinds import flows, publish

PERIODS = ("2001-05", "2001-06")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two months of flows of two levels; not to be changed."""
    folder = tmp_path_factory.mktemp("over_time")
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.declare(ledger_rows.domain(9))
    for period in PERIODS:
        key = ReleaseKey("commuters", period)
        release = flows(geography=ledger_rows.GEOGRAPHY, ledger=ledger, release_id=str(key))
        publish(FLOWS, release, key, "commuters", folder)
    return folder


@pytest.fixture
def newest(root: Path) -> list[SiteRelease]:
    keys = [ReleaseKey("commuters", period) for period in reversed(PERIODS)]
    return [SiteRelease.from_bundle(key, root / "releases" / str(key)) for key in keys]


def page_of(releases: list[SiteRelease]) -> str:
    return site.make_over_time_page(SiteDescription("Trips"), releases[0], OverTime.from_releases(releases))


def listed(data: dict[str, Any], side: int) -> list[tuple[str, str]]:
    return [(level["level"], code) for level in data["sides"][side] for code in level["codes"]]


def test_the_noise_of_each_period_is_known_from_its_certificate(newest: list[SiteRelease]) -> None:
    """Levels with Laplace noise state a scale; the ends of changes between few released flows follow from it."""
    levels = [level | {"scale": 3.0} for level in newest[0].certificate["levels"]]
    laplace = replace(newest[0], certificate=newest[0].certificate | {"levels": levels})
    assert OverTime.from_releases(newest).have_laplace_noise == (False, False)
    assert OverTime.from_releases([laplace, newest[1]]).have_laplace_noise == (False, True)


def test_every_number_is_that_of_its_release(newest: list[SiteRelease]) -> None:
    """Of every pair of areas of every pair of levels in every period, as the release opens and sums it."""
    data = OverTime.from_releases(newest).data
    assert data["periods"] == PERIODS
    origins, destinations = data["sizes"]
    assert (origins, destinations) == (len(listed(data, 0)), len(listed(data, 1)))
    for period, release in enumerate(reversed(newest)):
        opened = open_release(release.place)
        for o, (origin_level, origin) in enumerate(listed(data, 0)):
            for d, (level, destination) in enumerate(listed(data, 1)):
                frame = opened.flows_at(origin_level, level, interval=True)
                (row,) = frame[(frame["origin"] == origin) & (frame["destination"] == destination)].to_dict("records")
                place = (period * origins + o) * destinations + d
                trips, down, up = (column[place] for column in data["values"])
                assert (trips, trips - down, trips + up) == (row["trips"], row["lower"], row["upper"])
                for own, (here, there) in enumerate([(o, d), (d, o)]):
                    if there == 0:
                        total = [column[period * data["sizes"][own] + here] for column in data["totals"][own]]
                        assert total == [trips, down, up]


def test_the_tables_state_the_change_of_the_library(newest: list[SiteRelease]) -> None:
    """That of ``od-release compare`` between the last two periods, from each area and to it."""
    page, (after, before) = OverTime.from_releases(newest), [open_release(one.place) for one in newest[:2]]
    for number, level in enumerate(page.sides[0].level_names):
        rows = page.list_largest_areas(number)
        assert len(rows) == page.sides[0].size(number)
        trips = [row["ways"][0]["numbers"][-1][0] for row in rows]
        assert trips == sorted(trips, reverse=True)
        for way, levels in enumerate([(level, "all"), ("all", level)]):
            expected = changes(before, after, *levels, days=(31, 30)).set_index(("origin", "destination")[way])
            for row in rows:
                found, known = row["ways"][way]["change"], expected.loc[row["name"]]
                for name in ("change", "lower", "upper"):
                    assert found[name] == known[PER_DAY[name]]
                assert found["significant"] == known["significant"]


def altered(release: SiteRelease, folder: Path, change: Callable[[Any], Any], **certificate: Any) -> SiteRelease:
    shutil.copytree(release.place, folder)
    table = release.locate_table("flows").relative_to(release.place)
    pq.write_table(change(pq.read_table(folder / table)), folder / table)
    return replace(release, place=folder, certificate=release.certificate | certificate)


def test_areas_that_a_period_lacks_have_no_number_and_no_change(newest: list[SiteRelease], tmp_path: Path) -> None:
    """And where the areas of two periods differ, no change between them is computed."""
    gone = listed(OverTime.from_releases(newest).data, 0)[-1][1]
    other = {"geographies": dict.fromkeys(("origin", "destination"), "0" * 64)}
    before = altered(newest[1], tmp_path / "r1", lambda rows: rows.filter(pc.field("origin") != gone), **other)
    page = OverTime.from_releases([newest[0], before])
    assert page.data["comparable"] == [False]
    data, (origins, destinations) = page.data, page.values.shape[2:]
    row = [column[(origins - 1) * destinations : origins * destinations] for column in data["values"]]
    assert row == [[None] * destinations] * 3
    assert not any("change" in way for one in page.list_largest_areas(2) for way in one["ways"])
    assert "No change is told between periods with different areas. The areas are" in page_of([newest[0], before])
    plan = newest[1].certificate["plan"]
    others = {"bounds of what is counted": {"plan": plan | {"max_trips_pair": 1}}}
    others["selections of records"] = {"records": {"categories": {"mode": ["bike"]}}}
    for number, (differing, facts) in enumerate(others.items(), start=3):
        other = altered(newest[1], tmp_path / f"r{number}", lambda rows: rows, **facts)
        assert OverTime.from_releases([newest[0], other]).data["comparable"] == [False]
        assert f"between periods with different {differing}." in page_of([newest[0], other])
    assert OverTime.from_releases(newest).data["comparable"] == [True]
    assert "No change is told" not in page_of(newest)
    missing = altered(newest[1], tmp_path / "r2", lambda rows: rows.filter(pc.field("origin") != gone))
    rows = {row["name"]: row["ways"] for row in OverTime.from_releases([newest[0], missing]).list_largest_areas(2)}
    assert {name for name, ways in rows.items() if "change" not in ways[0]} == {gone}
    assert "not listed" in page_of([missing])


def test_a_series_without_the_exact_total_names_the_one_that_has_it(newest: list[SiteRelease]) -> None:
    """Of the same days, data set, selection, column and bounds, maybe between other areas; on the first page, too."""
    stated = newest[0].certificate
    total = stated["contents"]["trips"]
    exact = replace(newest[0], key=ReleaseKey("exact", "2001-06"), certificate=stated | {"exact": {"trips": total}})
    noisy = replace(newest[0], key=ReleaseKey("noisy", "2001-06"), certificate=stated | {"exact": {}})
    link = f'{total:,} (exact) in <a href="{{}}exact/index.html">exact</a>'

    def said(one: SiteRelease, other: SiteRelease) -> tuple[bool, bool, int]:
        series = {one.key.release: [one], other.key.release: [other]}
        page = render_series_page(SiteDescription("Trips"), one.key.release, [one], series)
        both = render_series_page(SiteDescription("Trips"), one.key.release, [one, newest[1]], series)
        given = {"site": SiteDescription("Trips"), "series": series, "releases": [one], "over_time": {}}
        home = render_template("site/home.html", **given)
        return link.format("../") in page, link.format("") in home, both.count("; " + link.format("../"))

    assert said(noisy, exact) == (True, True, 1)
    assert said(exact, noisy)[0] is False
    facts = (
        ({"geographies": dict.fromkeys(("origin", "destination"), "0" * 64)}, True),
        ({"data_set": "elsewhere"}, False),
        ({"records": {"categories": {"mode": ["bike"]}}}, False),
        ({"records": {"columns": {"trips": "heads"}}}, False),
        ({"plan": stated["plan"] | {"max_weight": 4}}, False),
        ({"exact": {}}, False),
    )
    for own, is_named in facts:
        assert said(noisy, replace(exact, certificate=exact.certificate | own))[:2] == (is_named, is_named)
    assert not said(noisy, replace(exact, key=ReleaseKey("exact", "2001-07")))[0]
    derived = {name: fact for name, fact in noisy.certificate.items() if name != "plan"}
    assert replace(noisy, certificate=derived).find_exact_release({"exact": [exact]}) is exact


@pytest.mark.parametrize(
    ("most", "depth", "deepest"), [(2 * 64, 2, 2), (2 * 64 - 1, 1, 2), (2 * 9 - 1, 0, 1), (2 * 6 - 1, 0, 0), (1, 0, 0)]
)
def test_the_page_has_a_bound(
    newest: list[SiteRelease], monkeypatch: pytest.MonkeyPatch, most: int, depth: int, deepest: int
) -> None:
    """Down to each level there are 1, 3 and 8 areas on each side: 1, 9 and 64 pairs, and 2, 6 and 16 totals."""
    monkeypatch.setattr(flows_over_time, "MOST_NUMBERS", most)
    page = OverTime.from_releases(newest)
    assert (page.depths, page.listed) == ((depth, depth), (deepest, deepest))


def test_a_page_without_intervals_or_with_shared_noise_is_not_made(root: Path, newest: list[SiteRelease]) -> None:
    without = replace(newest[0], certificate=newest[0].certificate | {"interval": None})
    assert site.select_comparable_releases([without, *newest[1:]]) == newest[1:]
    summed = replace(newest[0], certificate=newest[0].certificate | {"format": "od-release sum certificate 1"})
    assert site.select_comparable_releases([summed]) == []


def test_one_period_and_titles_of_strangers(newest: list[SiteRelease]) -> None:
    """A title with markup, or one of 300 characters, stays text; the data cannot end its element."""
    evil = "</script><script>alert(1)</script>" + "x" * 300
    about = {"title": evil, "coverage": "a tenth of <i>riders</i>"}
    one = replace(newest[0], certificate=newest[0].certificate | {"about": about})
    page = page_of([one])
    assert "Records: A tenth of &lt;i&gt;riders&lt;/i&gt;. The intervals cover the noise" in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "&lt;/script&gt;" in page
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert json.loads(data)["periods"] == [PERIODS[-1]]
    assert "<small>grew" not in page


@pytest.mark.parametrize(
    ("periods", "positions"),
    [
        (("2000-06", "2001-05", "2001-06"), [None, None, 0]),
        (("1999", "2000"), [None, 0]),
        (("2000-Q2", "2001-Q1", "2001-Q2"), [None, None, 0]),
        (("2000-01-01--2000-06-30", "2001-01-01--2001-06-30"), [None, 0]),
    ],
)
def test_a_period_is_compared_with_the_same_one_of_the_year_before(
    newest: list[SiteRelease], periods: tuple[str, ...], positions: list[int | None]
) -> None:
    page = replace(OverTime.from_releases(newest), periods=periods)
    assert page.find_year_before() == positions
