"""The pages of a site in a real browser: nothing is asked of anybody, they fit a phone, and they are accessible."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from od_core.published.documents import CHECKLIST_PAGE, NOTICE, disclosure_documents
from od_core.published.site import SiteDescription, write_site
from tests.browser.conftest import PERIOD, show
from tests.browser.test_pages import DESK, PAPER, PHONE, too_wide

PAGES = {
    "home": "index.html",
    "series": "us_flights/index.html",
    "over-time": "us_flights/over_time.html",
    "not-found": "404.html",
    "report": f"us_flights/{PERIOD}/r1/report.html",
    "certificate": f"us_flights/{PERIOD}/r1/certificate.html",
}

LONGEST = "Fayetteville/Springdale/Rogers Intercontinental"
"""A name with the longest word of any airport: which airports are listed depends on the noise."""


@pytest.fixture(scope="module")
def site(bundle, tmp_path_factory) -> Path:
    """A site of one month, with the longest texts that people state."""
    folder = tmp_path_factory.mktemp("site")
    licence = "https://creativecommons.org/licenses/by-nc-nd/4.0/legalcode.en"
    description = SiteDescription("Trips", "https://statistics.example/trips", "Office of Statistics", licence)
    return write_site(bundle.parents[2], folder, description).folder


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_site_asks_nobody_fits_and_is_accessible(opened, site, name, width):
    """Contrast, labels, roles and headings, by the rules of axe-core."""
    address = (site / PAGES[name]).as_uri()
    page, seen = opened(address, width)
    show(page, f"site-{name}-{'phone' if width == PHONE else 'desk'}", whole=True)
    assert (seen.asked, seen.errors) == ([address], [])
    assert too_wide(page) == ""
    assert [(found["id"], found["nodes"]) for found in Axe().run(page).response["violations"]] == []


@pytest.mark.parametrize("name", [CHECKLIST_PAGE, NOTICE])
def test_documents_for_people_are_accessible(opened, bundle, tmp_path, name):
    (tmp_path / name).write_text(disclosure_documents(bundle)[1][name], encoding="utf-8")
    page, seen = opened((tmp_path / name).as_uri())
    assert seen.errors == []
    assert [(found["id"], found["nodes"]) for found in Axe().run(page).response["violations"]] == []


@pytest.mark.parametrize("name", ["home", "series", "over-time"])
def test_a_page_of_the_site_is_printed_whole(opened, site, name):
    page, _ = opened((site / PAGES[name]).as_uri(), PAPER)
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER


def test_intervals_are_read_on_a_phone_without_scrolling(opened, site):
    """Matrices and pictures are wider than a phone; no other table with an interval is."""
    page, _ = opened((site / PAGES["report"]).as_uri(), PHONE)
    cut = page.evaluate(
        """(name) => {
            const tables = [...document.querySelectorAll(".scroll:has(table:not(.heat))")]
                .filter((region) => region.innerText.includes(" to "))
            const names = document.querySelectorAll("table:not(.heat) tbody :is(th, td:not(.n, .bar))")
            for (const cell of names) cell.innerText = name
            return tables.filter((region) => region.scrollWidth > region.clientWidth).map((region) => region.ariaLabel)
        }""",
        LONGEST,
    )
    assert cut == []


def test_a_reader_finds_an_area_and_what_changed(opened, site):
    """By its name or that of its state; a link leads to the same flow, and one to no area says so."""
    page, seen = opened((site / PAGES["over-time"]).as_uri() + "#from=state:TX&to=state:CA")
    assert page.locator("#flow h3").inner_text() == "Trips from Texas (TX) to California (CA)"
    assert "Only one period is published" in page.locator(".verdict").inner_text()
    page.fill("#from", "JFK")
    page.fill("#to", "new york")
    page.keyboard.press("Enter")
    assert page.locator("#flow h3").inner_text() == "Trips from John F Kennedy Intl (JFK) to New York (NY)"
    found = page.locator("#from-areas option").evaluate_all("all => all.map(one => one.value)")
    assert any("JFK" in name and "New York" in name for name in found)
    page.fill("#to", "Atlantis")
    page.keyboard.press("Enter")
    assert "No area has this name" in page.locator("#flow").inner_text()
    assert seen.errors == []


def test_the_areas_are_listed_without_a_program(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / PAGES["over-time"]).as_uri())
    assert page.locator("#ask").is_hidden()
    assert page.locator("#find tbody tr").count() == 5 + 10 + 51 + 229
    context.close()
