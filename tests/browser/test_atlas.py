"""The atlas in a real browser: its numbers are those of the library, it asks nobody, and everybody can use it."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe

from od_core import Budget, Geography, PrivacyUnit, Release, open_release, release_flows, sum_releases
from od_core.flows.indicators import indicators
from od_core.flows.publishing import atlas
from od_core.flows.publishing.atlas import write_atlas
from od_core.flows.publishing.changes import changes
from od_core.flows.publishing.flow_tables import FlowTables
from od_core.flows.released_flows import ReleasedFlows
from tests.browser.conftest import show
from tests.browser.test_pages import DESK, PHONE, too_wide
from tests.od_core.publication.examples import facts
from tests.od_core.publication.reports import EVIL

ENDS = ("", "_lower", "_upper")

ASK = "async (asked) => { const got = []; for (const ask of asked) got.push(await between(ask)); return got; }"


def written(flows: ReleasedFlows, certificate: dict, folder: Path) -> str:
    """The address of the atlas of some flows."""
    place = folder / "atlas.html"
    with place.open("wb") as file:
        write_atlas(FlowTables.of(flows, certificate), certificate, file)
    return place.as_uri()


def random_release(
    seed: int, *, mechanism: str = "inftda_refined", zones: int = 40, areas: int | None = None
) -> Release:
    """Flows between zones of three levels, which follow from ``areas``; most pairs have no trips."""
    random = np.random.default_rng(seed)
    town = np.cumsum(np.random.default_rng(seed if areas is None else areas).random(zones) < 0.4)
    names = {"region": town // 4, "town": town, "zone": np.arange(zones)}
    table = pd.DataFrame({level: [f"{level}{number}" for number in numbers] for level, numbers in names.items()})
    pairs = pd.DataFrame({side: random.choice(table["zone"], 4 * zones) for side in ("origin", "destination")})
    flows = pairs.drop_duplicates().assign(trips=lambda flows: random.choice([1, 5, 300], len(flows)))
    return release_flows(
        flows,
        Geography.from_frame(table, ["region", "town", "zone"]),
        unit=PrivacyUnit("trip"),
        budget=Budget(epsilon=1, delta="1e-8"),
        mechanism=mechanism,
        fault_threshold=0,
    )


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


def expected(flows: ReleasedFlows, ask: dict) -> list[int]:
    """The same by the library."""
    named = []
    for side, geography in (("origins", flows.tree.origin), ("destinations", flows.tree.destination)):
        level = ask[side]["level"]
        named += [geography.level_names[level], [geography.codes[level][area] for area in ask[side]["areas"]]]
    return list(flows.trips_between(*named))


def compared(opened, address: str, flows: ReleasedFlows, number: int = 60, finest: int | None = None) -> None:
    page, seen = opened(address)
    page.wait_for_selector("#panel h2")
    asked = selections(flows, number, finest)
    found = [[got["trips"], *got["interval"]] for got in page.evaluate(ASK, asked)]
    assert found == [expected(flows, ask) for ask in asked]
    assert seen.errors == []


def test_a_thousand_selections_of_the_flights_are_those_of_the_library(opened, bundle):
    compared(opened, (bundle / "atlas.html").as_uri(), open_release(bundle), number=1000)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda", "tda_l2", "vanilla_gauss"])
def test_selections_of_every_mechanism_are_those_of_the_library(opened, tmp_path, mechanism, seed):
    """``inftda`` and ``tda_l2`` drop nodes without trips, of which less is known."""
    release = random_release(seed, mechanism=mechanism)
    assert release.fitted.nothing_dropped == (mechanism in ("inftda_refined", "vanilla_gauss"))
    compared(opened, written(release, facts(release), tmp_path), release)


def test_selections_of_a_sum_of_releases_are_those_of_the_library(opened, tmp_path):
    first = random_release(1)
    flows = sum_releases([first, replace(first)])
    compared(opened, written(flows, facts(first), tmp_path), flows)


@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda"])
def test_a_table_that_is_too_large_has_its_coarser_areas_exactly(opened, tmp_path, monkeypatch, mechanism):
    monkeypatch.setattr(atlas, "MOST_NODES", 300)
    release = random_release(3, mechanism=mechanism)
    address = written(release, facts(release), tmp_path)
    compared(opened, address, release, finest=2)
    page, _ = opened(address)
    page.wait_for_selector("#panel h2")
    assert "shows areas down to town" in page.inner_text("footer")
    assert page.locator("#level option").all_inner_texts() == ["region", "town"]


def test_totals_of_an_area_are_its_indicators(opened, bundle):
    release = open_release(bundle)
    table = indicators(release, ["state"])
    page, _ = opened((bundle / "atlas.html").as_uri())
    page.wait_for_selector("#panel h2")
    level = release.tree.origin.level_number("state")
    for number, row in table.iterrows():
        ask = {"level": level, "areas": [number]}
        got = page.evaluate("(selected) => atlas.client.ask('totals', { selected })", ask)
        for name in ("outflow", "inflow", "within"):
            assert [got[name]["trips"], *got[name]["interval"]] == [
                row[name],
                row[f"{name}_lower"],
                row[f"{name}_upper"],
            ]
        if not pd.isna(row["self_containment"]):
            ends = [row[f"self_containment{end}"] for end in ("", "_lower", "_upper")]
            assert [got["selfContainment"]["share"], *got["selfContainment"]["interval"]] == pytest.approx(
                ends, abs=2e-6
            )


def test_a_release_without_intervals_shows_trips_alone(opened, tmp_path):
    release = random_release(5, mechanism="stability_histogram")
    page, seen = opened(written(release, facts(release), tmp_path))
    page.wait_for_selector("#panel table")
    assert "no intervals" in page.inner_text("#under")
    assert "90 % interval" not in page.inner_text("#panel")
    assert seen.errors == []


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_asks_nobody_and_fits(opened, bundle, width, scheme):
    address = (bundle / "atlas.html").as_uri()
    page, seen = opened(address, width)
    page.emulate_media(color_scheme=scheme)
    page.wait_for_selector("#panel table")
    for level, view in (("state", "map"), ("airport", "matrix")):
        page.select_option("#level", level)
        page.locator(f"input[value={view}]").check()
        page.fill("#search", "o")
        page.keyboard.press("Enter")
        page.wait_for_selector(".tiles")
        page.wait_for_selector(f"#{view}:not([hidden])")
        assert too_wide(page) == ""
        show(page, f"atlas-{view}-{'phone' if width == PHONE else 'desk'}-{scheme}", whole=True)
    assert [url for url in seen.asked if not url.startswith("blob:")] == [address]
    assert seen.errors == []


def test_areas_are_chosen_by_keyboard_and_the_address_leads_back(opened, bundle):
    address = (bundle / "atlas.html").as_uri()
    page, _ = opened(address)
    page.wait_for_selector("#panel table")
    page.focus("#search")
    page.keyboard.type("illin")
    assert page.inner_text("#found") == "No area has this name or code"  # a region has not
    page.select_option("#level", "state")
    page.fill("#search", "")
    page.focus("#search")
    page.keyboard.type("illin")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Where trips from here go")
    page.locator("input[value=to]").focus()
    page.keyboard.press("Space")
    page.wait_for_selector("text=Where trips to here come from")
    panel, link = page.inner_text("#panel"), page.url
    assert "Illinois" in panel
    again, _ = opened(link)
    again.wait_for_selector("text=Where trips to here come from")
    assert again.inner_text("#panel") == panel


def test_areas_within_a_drawn_line_are_selected(opened, bundle):
    page, _ = opened((bundle / "atlas.html").as_uri())
    page.wait_for_selector("#panel table")
    page.select_option("#level", "airport")
    page.click("#lasso")
    box = page.locator("#map").bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98)]
    for number, (x, y) in enumerate(corners):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        if number == 0:
            page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("text=areas together")
    chosen = int(page.inner_text("#panel h2").split()[0])
    assert 100 < chosen < page.evaluate("atlas.opened.origin.codes.at(-1).length")
    assert page.get_attribute("#lasso", "aria-pressed") == "false"
    page.click("#clear")
    page.wait_for_selector("text=All areas")


def test_the_download_has_the_numbers_of_the_selection(opened, bundle):
    release = open_release(bundle)
    page, _ = opened((bundle / "atlas.html").as_uri() + "#level=state&areas=IL,NY")
    page.wait_for_selector(".tiles")
    with page.expect_download() as saved:
        page.click("#download")
    with Path(saved.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["selection"], row["release"]) for row in rows} == {("IL NY", "us_flights/2001-06/r1")}
    assert all("noise" in row["note"] for row in rows)
    totals = {row["measure"]: [int(row[name]) for name in ("value", "lower", "upper")] for row in rows[:3]}
    others = [
        code
        for code in release.tree.origin.codes[release.tree.origin.level_number("state")]
        if code not in ("IL", "NY")
    ]
    assert totals["trips to elsewhere"] == list(release.trips_between("state", ["IL", "NY"], "state", others))
    assert totals["trips within"] == list(release.trips_between("state", ["IL", "NY"], "state", ["IL", "NY"]))
    flows = {row["area"]: row for row in rows if row["measure"] == "trips from the selection"}
    assert set(flows) <= set(others)
    ca = list(release.trips_between("state", ["IL", "NY"], "state", ["CA"]))
    assert [int(flows["CA"][name]) for name in ("value", "lower", "upper")] == ca
    assert flows["CA"]["name"] == "California"


def test_names_that_are_markup_are_read_and_do_nothing(opened, tmp_path):
    zones = pd.DataFrame({"region": ["r1", "r1", "r2"], "zone": ["a", "b", "c"], "title": list(EVIL)[:3]})
    geography = Geography.from_frame(zones, ["region", "zone"], names={"zone": "title"})
    flows = pd.DataFrame({"origin": ["a", "b", "c"], "destination": ["b", "c", "a"], "trips": [500, 400, 300]})
    unit, budget = PrivacyUnit("trip"), Budget(epsilon=5, delta="1e-8")
    release = release_flows(flows, geography, unit=unit, budget=budget, fault_threshold=0)
    page, seen = opened(written(release, facts(release), tmp_path) + "#level=zone&areas=a")
    page.wait_for_selector("#panel h2")
    assert page.inner_text("#panel h2").split() == EVIL[0].split()
    assert page.locator("#panel b, #panel img, #panel script").count() == 0
    assert seen.errors == []


@pytest.mark.parametrize(
    "fragment", ["#level=county", "#level=%ZZ&areas=%ZZ", "#areas=none", "#view=globe&trips=up", "#level=all&areas=all"]
)
def test_an_address_that_states_nothing_true_shows_all_areas(opened, bundle, fragment):
    page, seen = opened((bundle / "atlas.html").as_uri() + fragment)
    page.wait_for_selector("text=The largest flows between different areas (region)")
    assert seen.errors == []


def test_a_damaged_page_says_so(opened, bundle, tmp_path):
    text = (bundle / "atlas.html").read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    (tmp_path / "atlas.html").write_text(f"{text[:start]}AAAA{text[start + 4 :]}", encoding="utf-8")
    page, _ = opened((tmp_path / "atlas.html").as_uri())
    page.wait_for_selector("text=This page could not read its data")


def compare_with(page, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.click("#compare")
    chooser.value.set_files(path)


def in_folder(release: Release, folder: Path) -> str:
    folder.mkdir()
    return written(release, facts(release), folder)


def test_changes_since_another_atlas_are_those_of_the_library(opened, tmp_path):
    before, after = (random_release(seed, areas=1) for seed in (1, 2))
    page, seen = opened(in_folder(after, tmp_path / "after"))
    page.wait_for_selector("#panel table")
    in_folder(before, tmp_path / "before")
    compare_with(page, tmp_path / "before" / "atlas.html")
    page.wait_for_selector("text=Compared with")
    for number, level in enumerate(("region", "town"), start=1):
        codes = after.tree.origin.codes[number]
        table = changes(before, after, level, level).set_index(["origin", "destination"])
        for area, code in enumerate(codes):
            ask = {"selected": {"level": number, "areas": [area]}, "direction": "from", "level": number, "most": 1000}
            for flow in page.evaluate("(ask) => atlas.client.ask('partners', ask)", ask):
                row, change = table.loc[(code, codes[flow["destination"]])], flow["change"]
                assert [change["before"], flow["trips"], change["change"]] == [row.before, row.after, row.change]
                assert [*change["interval"], change["certain"]] == [row.lower, row.upper, row.significant]
    page.click("#compare")
    page.wait_for_selector("text=Compared with", state="hidden")
    assert "change" not in page.inner_text("#panel")
    assert seen.errors == []


def test_an_atlas_of_other_areas_is_not_compared(opened, bundle, tmp_path):
    page, _ = opened((bundle / "atlas.html").as_uri())
    page.wait_for_selector("#panel table")
    in_folder(random_release(1), tmp_path / "other")
    for other in (tmp_path / "other" / "atlas.html", bundle / "report.html"):
        compare_with(page, other)
        page.wait_for_selector("text=This is not an atlas of the same areas")
        page.wait_for_selector("#panel[aria-busy=false]")
        assert "trips" in page.inner_text("#panel table thead")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("fragment", ["", "#level=state&areas=OH,NY", "#level=airport&areas=ORD&view=matrix"])
def test_axe_finds_nothing(opened, bundle, fragment, scheme):
    """Contrast, labels, roles and keyboard, by the rules of axe-core."""
    page, _ = opened((bundle / "atlas.html").as_uri() + fragment)
    page.emulate_media(color_scheme=scheme)
    page.wait_for_selector(".matrix" if "matrix" in fragment else "#panel[aria-busy=false] table")
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []
