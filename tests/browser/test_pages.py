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
