"""The atlas in a real browser: it asks nobody, and everybody can use it."""

import pandas as pd
import pytest
import shapely

from od_core import Geography, Release, open_release
from od_core.flows.indicators import indicators
from od_core.flows.publishing import atlas
from tests.browser import atlases
from tests.browser.conftest import DESK, PHONE, inaccessible, show, too_wide
from tests.od_core.publication.examples import facts
from tests.od_core.publication.reports import EVIL


def test_a_release_without_intervals_shows_trips_alone(opened, tmp_path):
    release = atlases.random_release(5, mechanism="stability_histogram")
    page, seen = opened(atlases.written(release, facts(release), tmp_path))
    page.wait_for_selector("#panel table")
    assert "no intervals" in page.inner_text("#under")
    assert "90 % interval" not in page.inner_text("#panel")
    assert seen.errors == []


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_asks_nobody_fits_and_is_accessible(opened, bundle, width, scheme):
    address = (bundle / "atlas.html").as_uri()
    page, seen = opened(address, width)
    page.emulate_media(color_scheme=scheme)
    page.wait_for_selector("#panel[aria-busy=false] #profile[aria-busy=false] table")
    assert inaccessible(page) == []
    for level, view in (("state", "map"), ("airport", "matrix"), ("airport", "list")):
        page.select_option("#level", label=level)
        page.locator(f"input[value={view}]").check()
        page.fill("#search", "o")
        page.keyboard.press("Enter")
        page.wait_for_selector(".tiles")
        page.wait_for_selector(f"#{view}:not([hidden])")
        page.wait_for_selector("#panel[aria-busy=false] #profile[aria-busy=false] table")
        assert too_wide(page) == ""
        show(page, f"atlas-{view}-{'phone' if width == PHONE else 'desk'}-{scheme}", whole=True)
        assert inaccessible(page) == []
    assert [url for url in seen.asked if not url.startswith("blob:")] == [address]
    assert seen.errors == []


def test_areas_are_chosen_by_keyboard_and_the_address_leads_back(opened, bundle):
    address = (bundle / "atlas.html").as_uri()
    page, _ = opened(address)
    page.wait_for_selector("#panel table")
    page.focus("#search")
    page.keyboard.type("nowhere")
    assert page.inner_text("#found") == "No area has this name or code"
    page.fill("#search", "")
    page.keyboard.type("illin")
    found = page.inner_text("#found").splitlines()
    assert found[0] == "Illinois (IL), state in East North Central"  # the page shows regions
    assert "Chicago O'Hare International (ORD), airport in Illinois" in found
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Where flights from here go")
    page.locator("input[value=to]").focus()
    page.keyboard.press("Space")
    page.wait_for_selector("text=Where flights here come from")
    panel, link = page.inner_text("#panel"), page.url
    assert "Illinois" in panel
    again, _ = opened(link)
    again.wait_for_selector("text=Where flights here come from")
    assert again.inner_text("#panel") == panel


SOUGHT = {
    "boston": "Logan International (BOS)",
    "Airport of Boston": "Logan International (BOS)",
    "international logan": "Logan International (BOS)",
    "logan massachusetts": "Logan International (BOS)",
    "sao paulo": "São Paulo (GRU)",
    "PAULO, são": "São Paulo (GRU)",
    "lodz": "Łódź Airport (LCJ)",
    "litzmannstadt": "Łódź Airport (LCJ)",
    "the state of Massachusetts": "Massachusetts (MA)",
    "MA": "Massachusetts (MA)",
    "airport": "Łódź Airport (LCJ)",
}
"""Texts that people type, and the area that each must find first."""


def test_areas_are_found_by_the_words_of_people(opened, tmp_path):
    """Without accents, case, order and small words, by other names, and with the names of the areas above."""
    table = pd.DataFrame(
        [
            ("MA", "Massachusetts", "BOS", "Logan International", "Boston; Boston Logan"),
            ("SP", "", "GRU", "São Paulo", "Guarulhos"),
            ("LD", "", "LCJ", "Łódź Airport", "Litzmannstadt"),
        ],
        columns=["state", "state_name", "airport", "name", "other"],
    )
    zones = Geography.from_frame(
        table, ["state", "airport"], names={"state": "state_name", "airport": "name"}, aliases={"airport": "other"}
    )
    release = atlases.of_all_pairs(zones, zones)
    page, seen = opened(atlases.written(release, facts(release), tmp_path))
    page.wait_for_selector("#panel table")
    for text, first in SOUGHT.items():
        page.fill("#search", text)
        assert page.locator("#found li").first.inner_text().partition(",")[0] == first, text
    page.fill("#search", "guarulhos")
    assert page.inner_text("#found") == "São Paulo (GRU), airport in SP, also Guarulhos"
    page.check("input[value=list]")
    page.fill("#filter", "airport of BOSTON")
    page.wait_for_selector("text=1 of 1 areas")
    assert "Logan" in page.inner_text("#areas")
    assert seen.errors == []


def test_areas_within_a_drawn_line_are_selected(opened, bundle):
    page, _ = opened((bundle / "atlas.html").as_uri())
    page.wait_for_selector("#panel table")
    page.select_option("#level", label="airport")
    page.click("#lasso")
    box = page.locator("#map").bounding_box()
    corners = [(0.3, 0.02), (0.98, 0.02), (0.98, 0.98), (0.3, 0.98)]
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
    """Together, the selected states are a division, which has indicators."""
    release, chosen = open_release(bundle), ["NJ", "NY", "PA"]
    page, _ = opened(f"{(bundle / 'atlas.html').as_uri()}#level=state&areas={','.join(chosen)}")
    page.wait_for_selector(".tiles")
    _, rows = atlases.downloaded(page)
    assert {(row["selection"], row["release"]) for row in rows} == {(" ".join(chosen), "us_flights/2001-06/r1")}
    assert all("noise" in row["note"] for row in rows)
    totals = {row["measure"]: [int(row[name]) for name in ("value", "lower", "upper")] for row in rows[:3]}
    others = set(release.tree.origin.codes[release.tree.origin.find_level_number("state")]) - {*chosen}
    (division,) = indicators(release, ["division"]).query("area == 'Middle Atlantic'").to_dict("records")
    assert totals["flights to elsewhere"] == [division[f"outflow{end}"] for end in ("", "_lower", "_upper")]
    # The number of the division is one of a table, whose largest are read; that of chosen states is not.
    assert totals["flights within"] == list(release.trips_between("state", chosen, "state", chosen))
    flows = {row["area"]: row for row in rows if row["measure"] == "flights from the selection"}
    assert set(flows) <= others
    ca = list(release.trips_between("state", chosen, "state", ["CA"]))
    assert [int(flows["CA"][name]) for name in ("value", "lower", "upper")] == ca
    assert flows["CA"]["name"] == "California"
    begun = list(release.trips_between("state", chosen, "all", ["all"]))
    bands = [row for row in rows if row["measure"] == "flights from the selection by distance"]
    assert sum(int(row["value"]) for row in bands) == begun[0]
    assert all(int(row["lower"]) <= int(row["value"]) <= int(row["upper"]) for row in bands)
    assert bands[0]["name"].startswith("below ")
    for row in rows:
        is_count = row["measure"].startswith("flights")  # and not a share or a mean
        known = [int(row[name]) for name in ("value", "lower", "upper")] if is_count else [0] * 3
        assert row["reliability"] == atlases.word_of(*known)


def test_names_that_are_markup_are_read_and_do_nothing(opened, tmp_path):
    zones = pd.DataFrame({"region": ["r1", "r1", "r2"], "zone": ["a", "b", "c"], "title": list(EVIL)[:3]})
    geography = Geography.from_frame(zones, ["region", "zone"], names={"zone": "title"})
    flows = pd.DataFrame({"origin": ["a", "b", "c"], "destination": ["b", "c", "a"], "trips": [500, 400, 300]})
    release = atlases.released(flows, geography)
    page, seen = opened(atlases.written(release, facts(release), tmp_path) + "#level=zone&areas=a")
    page.wait_for_selector("#panel h2")
    assert page.inner_text("#panel h2").split() == EVIL[0].split()
    assert page.locator("#panel b, #panel img, #panel script").count() == 0
    assert seen.errors == []


@pytest.mark.parametrize(
    "fragment", ["#level=county", "#level=%ZZ&areas=%ZZ", "#areas=none", "#view=globe&trips=up", "#level=all&areas=all"]
)
def test_an_address_that_states_nothing_true_shows_all_areas(opened, bundle, fragment):
    page, seen = opened((bundle / "atlas.html").as_uri() + fragment)
    page.wait_for_selector("text=The largest flows between different areas (state)")
    assert seen.errors == []


def test_a_damaged_page_says_so(opened, bundle, tmp_path):
    text = (bundle / "atlas.html").read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    (tmp_path / "atlas.html").write_text(f"{text[:start]}AAAA{text[start + 4 :]}", encoding="utf-8")
    page, _ = opened((tmp_path / "atlas.html").as_uri())
    page.wait_for_selector("text=This page could not read its data")


def test_origins_and_destinations_with_other_areas(opened, two_sides):
    """A row of both sides names the levels of both."""
    whole, _ = opened(two_sides[1] + "#level=home")
    whole.wait_for_selector("#panel[aria-busy=false] table")
    assert {(row["measure"], row["level"]) for row in atlases.downloaded(whole)[1]} == {
        ("trips", "home to work"),
        ("trips by distance", ""),
    }
    page, seen = opened(two_sides[1] + "#level=home&areas=home4")
    page.wait_for_selector("text=Where trips from here go")
    assert page.locator("#level option").all_inner_texts() == ["region", "home"]
    page.click("#panel tbody tr:nth-child(1) button")  # a place of work
    page.wait_for_selector("text=Where trips here come from")
    assert page.inner_text("#panel h2") == "work8"
    assert page.locator("#level option").all_inner_texts() == ["province", "work"]
    page.select_option("#level", label="province")
    page.wait_for_selector("h2:has-text('province2')")
    box = page.locator("#map").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # near all regions of homes
    page.wait_for_selector("text=Where trips from here go")
    assert page.inner_text("#panel h2").startswith("region")
    assert seen.errors == []


@pytest.fixture(scope="module")
def bounded(tmp_path_factory) -> tuple[Release, str]:
    """Nine zones that are squares in a square; the one in the middle has no boundary. Rows of zones are regions."""
    zones = pd.DataFrame([(f"r{k // 3}", f"z{k}") for k in range(9)], columns=["region", "zone"])
    shapes = [shapely.to_wkb(shapely.box(k % 3, k // 3, k % 3 + 1, k // 3 + 1)).hex() for k in range(9)]
    zones["shape"] = [*shapes[:4], "", *shapes[5:]]
    geography = Geography.from_frame(zones, ["region", "zone"], boundaries="shape")
    release = atlases.of_all_pairs(geography, geography)
    return release, atlases.written(release, facts(release), tmp_path_factory.mktemp("bounded"))


def test_areas_with_boundaries_are_chosen_anywhere_within(opened, bounded):
    """Also at coarser levels, whose boundaries are dissolved, and after the map was zoomed."""
    page, seen = opened(bounded[1] + "#level=zone")
    page.wait_for_selector("#panel table")
    box = page.locator("#map").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    side = min(box["width"], box["height"]) / 4

    def chosen(x, y):
        page.click("#clear")
        page.wait_for_selector("text=All areas")
        page.mouse.click(middle[0] + x, middle[1] + y)
        page.wait_for_selector(".chips")
        return page.inner_text("#panel h2")

    assert [chosen(side, side), chosen(1.1 * side, 1.4 * side), chosen(-side, -side)] == ["z2", "z2", "z6"]
    page.select_option("#level", label="region")
    assert [chosen(side, side), chosen(0, side), chosen(0, -side)] == ["r0", "r0", "r2"]
    page.focus("#map")
    page.keyboard.press("+")
    assert chosen(0, 1.6 * side) == "r0"
    show(page, "atlas-boundaries", whole=True)
    assert seen.errors == []


def test_an_atlas_of_other_areas_is_not_compared(opened, bundle, tmp_path):
    page, _ = opened((bundle / "atlas.html").as_uri())
    page.wait_for_selector("#panel table")
    atlases.in_folder(atlases.random_release(1), tmp_path / "other")
    for other, words in (
        (tmp_path / "other" / "atlas.html", "The other page has different areas."),
        (bundle / "atlas.html", "This is the same release."),
        (bundle / "report.html", "This file is not an atlas."),
    ):
        atlases.compare_with(page, other)
        page.wait_for_selector(f"text=Nothing is compared. {words}")
        page.wait_for_selector("#panel[aria-busy=false]")
        assert "flights" in page.inner_text("#panel table thead")


def test_atlases_are_compared_as_the_report_does_it(opened, tmp_path, monkeypatch):
    """Not if they count other trips; with a caution if their rules differ; the earlier revision or period first.

    Under a bound of users, a quarter is not compared with a month.
    """
    release = atlases.random_release(1)
    plan, records = facts(release)["plan"], {"categories": {"mode": ["bike"]}}
    plans = [
        plan | {"segments": {"breakdowns": [{"name": "mode", "categories": ["bike", "car"], "unknown": unknown}]}}
        for unknown in ("bike", "car")
    ]
    own = {"plan": plans[0], "release": "other/2001-Q1/r10"}
    of_users = plan | {"unit": "user"}
    page, _ = opened(atlases.in_folder(release, tmp_path / "own", "2001-Q1", **own))
    page.wait_for_selector("#panel table")
    other = "The two pages have different"
    for number, (period, stated, words) in enumerate(
        [
            ("2001-Q2", {"plan": plan | {"contribution_bound": 2}}, f"{other} bounds of what is counted."),
            ("2001-Q2", {"records": records}, f"{other} selections of records."),
            ("2001-02", {"plan": of_users}, f"{other} bounds of what is counted."),
            ("2001-Q2", {"plan": plans[1]}, f"{other} categories of 'mode'."),
        ]
    ):
        atlases.in_folder(release, tmp_path / f"{number}", period, **stated)
        atlases.compare_with(page, tmp_path / f"{number}" / "atlas.html")
        page.wait_for_selector(f"text=Nothing is compared. {words}")
        atlases.compare_with(page, tmp_path / "own" / "atlas.html")
        page.wait_for_selector("text=This is the same release.")
    for number, (period, stated, words) in enumerate(
        [
            ("2001-Q1", {"release": "other/2001-Q1/r9"}, "from other/2001-Q1/r9 to other/2001-Q1/r10."),
            ("2001-04--2001-06", {}, "from other/2001-Q1/r10 to other/2001-04--2001-06/r1."),
            ("2000-Q4", {"plan": plans[0]}, "from other/2000-Q4/r1 to other/2001-Q1/r10."),
            ("2001-Q2", {"mechanism": {"name": "tda_l2", "options": {}}}, "rules, inftda_refined and tda_l2, so"),
        ]
    ):
        atlases.in_folder(release, tmp_path / f"known{number}", period, **stated)
        atlases.compare_with(page, tmp_path / f"known{number}" / "atlas.html")
        page.wait_for_selector(f"text={words}")
        assert "earlier version" not in page.inner_text("#compared")
        page.click("#compare")  # stops comparing
    monkeypatch.setattr(atlas, "_list_comparison_facts", lambda _: {})
    atlases.in_folder(release, tmp_path / "early", "2000-Q4")
    atlases.compare_with(page, tmp_path / "early" / "atlas.html")
    page.wait_for_selector("text=to other/2001-Q1/r10.")
    assert "A page of an earlier version does not say" in page.inner_text("#compared")


def test_a_table_of_one_zone(opened, tmp_path):
    """Its map has one place, and there are no other areas."""
    zones = pd.DataFrame({"zone": ["a"], "latitude": [1.0], "longitude": [2.0]})
    geography = Geography.from_frame(zones, ["zone"], coordinates=("latitude", "longitude"))
    flows = pd.DataFrame({"origin": ["a"], "destination": ["a"], "trips": [500]})
    release = atlases.released(flows, geography)
    page, seen = opened(atlases.written(release, facts(release), tmp_path))
    page.wait_for_selector("#panel h2")
    box = page.locator("#map").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector(".tiles")
    assert page.inner_text("#panel h2") == "a"
    assert "500" in page.inner_text(".tiles")
    assert seen.errors == []
