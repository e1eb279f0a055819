"""The list of areas of the atlas, by keyboard alone, and names that are written from right to left."""

import pandas as pd
import pytest

from od_core import Geography, open_release
from tests.browser.atlases import released, with_word, written
from tests.browser.conftest import DESK, PHONE, show, too_wide
from tests.od_core.publication.examples import facts


def listed(page) -> list[list[str]]:
    """The rows of the list as a reader sees them: the label and the numbers."""
    page.wait_for_selector("#areas table")
    return page.evaluate(
        "() => [...document.querySelectorAll('#areas tbody tr')].map((row) => [...row.cells].map((c) => c.innerText))"
    )


def test_the_list_has_the_numbers_of_all_areas(opened, bundle):
    release = open_release(bundle)
    codes = release.tree.origin.codes[release.tree.origin.find_level_number("state")]
    page, seen = opened((bundle / "atlas.html").as_uri() + "#level=state&areas=IL,NY&view=list")
    page.wait_for_selector("#panel[aria-busy=false]")
    rows = listed(page)
    assert len(rows) == len(codes)
    for label, all_trips, from_selected in rows:
        code = label.split()[-1]
        assert with_word(all_trips) == list(release.trips_between("state", [code], "all", ["all"]))
        assert with_word(from_selected) == list(release.trips_between("state", ["IL", "NY"], "state", [code]))
    trips = [with_word(row[1])[0] for row in rows]
    assert trips == sorted(trips, reverse=True)
    assert seen.errors == []


def test_areas_are_selected_in_the_list_by_keyboard_alone(opened, bundle):
    """The focus stays on the area, also after the list was made again."""
    page, seen = opened((bundle / "atlas.html").as_uri() + "#level=state")
    page.wait_for_selector("#panel[aria-busy=false]")
    page.focus("input[name=view]:checked")
    for _ in range(2):
        page.keyboard.press("ArrowRight")  # from the map to the list
    page.wait_for_selector("#areas table")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "filter":
            break
    page.keyboard.type("carolina")
    page.wait_for_selector("#areas tbody:has(tr:nth-child(2)):not(:has(tr:nth-child(3)))")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    for others in ("", "tr:has(:checked) ~ "):
        page.keyboard.press("Space")
        page.wait_for_selector(f"#areas tbody:has({others}tr:has(:checked))")
        page.wait_for_selector("#panel[aria-busy=false] #profile[aria-busy=false]", state="attached")
        page.wait_for_selector("#areas input:checked:focus")
        page.keyboard.press("Tab")
    assert page.inner_text("#panel h2") == "2 areas together"
    assert set(page.locator(".chips bdi").all_inner_texts()) == {"North Carolina", "South Carolina"}
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    page.wait_for_selector(".chips:not(:has(li:nth-child(2)))")
    assert page.inner_text("#panel h2") in ("North Carolina", "South Carolina")
    assert page.inner_text("#said") == page.inner_text("#panel h2")
    assert seen.errors == []


def test_a_list_of_two_sides_has_the_areas_that_can_be_selected(opened, two_sides):
    release, address = two_sides
    page, _ = opened(address + "#level=home&areas=home4&view=list")
    page.wait_for_selector("#panel[aria-busy=false]")
    assert {row[0] for row in listed(page)} == {*release.tree.origin.zones}
    page.locator("input[value=to]").check()
    page.wait_for_selector("#areas label:has-text('work8')")
    for label, trips in listed(page):
        assert with_word(trips) == list(release.trips_between("all", ["all"], "work", [label]))


NAMES = {
    "a": "القاهرة",
    "b": "תל אביב (יפו)",
    "c": "<b>\u202eevil\u202c</b>",  # markup, and letters that are forced from right to left
    "d": "\u2067unclosed \u202e(1)",  # marks that would turn what follows them
    "e": "دمشق 12",
}


@pytest.fixture
def arabic(tmp_path, monkeypatch):
    """A page whose areas have these names, although a geography refuses the marks in two of them."""
    for module in ("codes", "geography"):
        monkeypatch.setattr(f"od_core.geography.{module}.check_codes", lambda *_, **__: None)
    zones = pd.DataFrame({"region": ["r1", "r1", "r2", "r2", "r2"], "zone": list(NAMES), "title": list(NAMES.values())})
    zones["latitude"], zones["longitude"] = [30.0, 32.1, 31.0, 33.0, 33.5], [31.2, 34.8, 33.0, 34.0, 36.3]
    geography = Geography.from_frame(
        zones, ["region", "zone"], names={"zone": "title"}, coordinates=("latitude", "longitude")
    )
    pairs = [(o, d, 500 + 30 * k) for k, o in enumerate(NAMES) for d in NAMES]
    release = released(pd.DataFrame(pairs, columns=["origin", "destination", "trips"]), geography)
    return release, written(release, facts(release), tmp_path)


_ORDER = """(selector) => [...document.querySelectorAll(selector)].map((cell) => {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const boxes = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        if (node.parentElement.closest("bdi")) continue;
        for (let k = 0; k < node.length; k++) {
            const range = document.createRange();
            range.setStart(node, k);
            range.setEnd(node, k + 1);
            const { left, top } = range.getBoundingClientRect();
            if (node.data[k].trim()) boxes.push([Math.round(top), left, node.data[k]]);
        }
    }
    const ordered = [...boxes].sort((one, two) => one[0] - two[0] || one[1] - two[1]);
    return [boxes.map((box) => box[2]).join(""), ordered.map((box) => box[2]).join("")];
})"""
"""The characters of elements outside names, in the order of the text and in the order on the screen."""


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("view", ["map", "matrix", "list"])
def test_names_from_right_to_left_do_not_turn_the_numbers(opened, arabic, view, width):
    page, seen = opened(arabic[1] + f"#level=zone&areas=a,d,b&view={view}", width)
    page.wait_for_selector("#profile[aria-busy=false]")
    for selector in ("#panel td, #panel th, .chips li, .tiles dd", "#matrix td, #areas td", "#areas label"):
        assert all(read == seen_order for read, seen_order in page.evaluate(_ORDER, selector))
    assert too_wide(page) == ""
    assert page.locator("main b").count() == 0
    texts = page.locator(".chips bdi").all_inner_texts()
    assert texts == [NAMES[code] for code in "adb"]
    directions = page.evaluate("[...document.querySelectorAll('.chips bdi')].map((e) => getComputedStyle(e).direction)")
    assert directions == ["rtl", "ltr", "rtl"]
    show(page, f"atlas-arabic-{view}-{'phone' if width == PHONE else 'desk'}", whole=True)
    assert seen.errors == []
