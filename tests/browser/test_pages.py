"""Reports and certificates in a real browser: nothing is asked of anybody, nothing runs, and it fits a phone."""

import pytest

from tests.browser.conftest import DESK, PHONE, inaccessible, show, too_wide
from tests.od_core.publication.reports import EVIL, examples


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("file", ["report", "certificate"])
def test_a_page_of_the_bundle_is_read_from_the_file_alone(opened, bundle, file, width):
    address = (bundle / f"{file}.html").as_uri()
    page, seen = opened(address, width)
    show(page, f"{file}-{'phone' if width == PHONE else 'desk'}", whole=True)
    assert (seen.asked, seen.errors) == ([address], [])
    assert too_wide(page) == ""
    tallest = page.evaluate("Math.max(...[...document.querySelectorAll('td')].map((cell) => cell.offsetHeight))")
    assert tallest < 120, "a cell is so narrow that its words are broken"  # five lines of a marked total have 100
    assert inaccessible(page) == []


def test_a_certificate_is_read_on_one_screen_and_its_folds_open(opened, bundle):
    """By a link to a field, by an address with a field, and on paper; all of its parts are accessible."""
    address = (bundle / "certificate.html").as_uri()
    page, seen = opened(address, 1400, 900)
    assert page.locator("footer").bounding_box()["y"] + page.locator("footer").bounding_box()["height"] <= 900
    told = page.inner_text("body")
    words = (
        "Who protects whom",
        "epsilon",
        "left of the cap",
        "checks passed",
        "8 of 8",
        "ledger entry",
        "od-release verify",
    )
    assert [word for word in words if word not in told] == []
    assert page.locator("details[open]").count() == 0
    page.click(".brief a[href='#ledger']")
    assert page.locator("details[open] #ledger").count() == 1
    page, _ = opened(f"{address}#spent", 1400, 900)
    assert page.locator("details[open] #spent").count() == 1
    page.emulate_media(media="print")
    assert page.locator("dt[id]").evaluate_all("all => all.every(one => one.checkVisibility())")
    page.emulate_media(media="screen")
    page.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    assert inaccessible(page) == []
    assert seen.errors == []


@pytest.mark.parametrize("contents", sorted(examples()))
def test_codes_that_are_markup_are_read_and_do_nothing(opened, tmp_path, contents):
    (tmp_path / "report.html").write_text(examples()[contents].text, encoding="utf-8")
    address = (tmp_path / "report.html").as_uri()
    page, seen = opened(address, PHONE)
    page.emulate_media(color_scheme="dark")
    show(page, f"small-{contents.replace(' ', '-')}", whole=True)
    assert (seen.asked, seen.errors) == ([address], [])
    assert page.locator("script, img, i:not(.key i), b").count() == 0
    assert too_wide(page) == ""
    assert inaccessible(page) == []
    if contents == "flows":
        assert all(code in page.inner_text("body") for code in EVIL)
