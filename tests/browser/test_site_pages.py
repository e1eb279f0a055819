"""The pages of a site in a real browser: nothing is asked of anybody, they fit a phone, and they are accessible."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from od_core.flows.publishing.changes import changes
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.publication import number_formats
from od_core.published.documents import CHECKLIST_PAGE, NOTICE, disclosure_documents
from od_core.published.site import write_site
from od_core.published.site_release import SiteDescription
from tests.browser.atlases import in_folder, random_release, with_word
from tests.browser.conftest import DESK, PHONE, inaccessible, show, too_wide
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.published_kinds import flows, publish

OF_SERIES = {"series": "us_flights/index.html", "over-time": "us_flights/over_time.html"}
PAGES = OF_SERIES | {"home": "index.html", "not-found": "404.html"}


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
    assert page.locator(".scroll").evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length") == 0
    assert inaccessible(page) == []


@pytest.mark.parametrize("name", [CHECKLIST_PAGE, NOTICE])
def test_documents_for_people_are_accessible(opened, bundle, tmp_path, name):
    (tmp_path / name).write_text(disclosure_documents(bundle)[1][name], encoding="utf-8")
    page, seen = opened((tmp_path / name).as_uri())
    assert seen.errors == []
    assert inaccessible(page) == []


def test_a_reader_finds_an_area_and_what_changed(opened, site):
    """By its name or that of its state; a link leads to the same flow, and one to no area says so."""
    page, seen = opened((site / PAGES["over-time"]).as_uri() + "#from=state:TX&to=state:CA")
    assert page.locator("#flow h3").inner_text() == "From Texas (TX) to California (CA)"
    assert "Only one period is published" in page.locator(".verdict").inner_text()
    _, trips, interval, *_ = page.locator("#flow tbody tr").locator("th, td").all_inner_texts()
    assert with_word(f"{trips} {interval}")[0] > 0
    page.fill("#from", "JFK")
    page.fill("#to", "new york")
    page.keyboard.press("Enter")
    assert page.locator("#flow h3").inner_text() == "From John F Kennedy Intl (JFK) to New York (NY)"
    found = page.locator("#from-areas option").evaluate_all("all => all.map(one => one.value)")
    assert any("JFK" in name and "New York" in name for name in found)
    page.fill("#to", "airport of BOSTON")  # its city
    page.keyboard.press("Enter")
    assert page.locator("#flow h3").inner_text().endswith(" to Gen Edw L Logan Intl (BOS)")
    page.fill("#to", "Atlantis")
    page.keyboard.press("Enter")
    assert "No area has this name" in page.locator("#flow").inner_text()
    assert seen.errors == []


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing."""


def test_the_atlas_of_a_site_compares_periods_in_each_view(opened, tmp_path):
    """It asks its own site alone, and shows the changes of the library in the matrix and the list."""
    months = {period: random_release(seed, areas=1, zones=12) for seed, period in enumerate(("2001-01", "2001-02"))}
    for period, release in months.items():
        (tmp_path / "other" / period).mkdir(parents=True)
        in_folder(release, tmp_path / "other" / period / "r1", period)
    listed = [{"release": f"other/{period}/r1", "period": period} for period in months]
    (tmp_path / "other" / "periods.json").write_text(json.dumps(listed))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        page, seen = opened(f"{address}other/2001-02/r1/atlas.html#level=region&view=matrix")
        page.wait_for_selector("#period option:nth-child(3)", state="attached")
        assert page.is_hidden("#compare")
        page.select_option("#period", label="2001-01")
        page.wait_for_selector("text=Changes from other/2001-01/r1 to other/2001-02/r1")
        page.wait_for_selector("#panel[aria-busy=false]")
        found = page.locator(".matrix td.number").all_inner_texts()
        page.check("input[value=list]")
        page.wait_for_selector("text=its change with the 90 % interval")
        rows = page.locator("#areas tbody tr").all_inner_texts()
        server.shutdown()
    assert [url for url in seen.asked if not url.startswith((address, "blob:"))] == []
    assert seen.errors == []
    table = changes(*months.values(), "region", "region", days=(31, 28))
    expected = {f"{one.after:,} {signed(one)}" for one in table.itertuples()}
    assert {" ".join(cell.split()) for cell in found} == expected
    totals = changes(*months.values(), "region", "all", days=(31, 28)).itertuples()
    assert {" ".join(row.split()[1:]) for row in rows} == {f"{one.after:,} {signed(one)}" for one in totals}


def signed(change) -> str:
    """A change per day with its interval, as the atlas writes it."""
    ends = (change.change_per_day, change.lower_per_day, change.upper_per_day)
    value, lower, upper = map(number_formats.format_change, ends)
    return f"{value} per day (exact)" if lower == upper else f"{value} per day ({lower} to {upper})"


def test_the_page_over_time_tells_changes_per_day(opened, tmp_path):
    """Of the library, for the last two months and for the same month of the year before, which has as many days."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.declare(ledger_rows.domain(27))
    months = {}
    for period in ("2000-07", "2001-06", "2001-07"):
        key = ReleaseKey("commuters", period)
        months[period] = flows(geography=ledger_rows.GEOGRAPHY, ledger=ledger, release_id=str(key))
        publish(FLOWS, months[period], key, "commuters", tmp_path)
    folder = write_site(tmp_path / "releases", tmp_path / "site", SiteDescription("Trips")).folder
    page, seen = opened((folder / "commuters/over_time.html").as_uri())
    year_before, june, july = months.values()
    for level in ("region", "all"):
        row = next(changes(june, july, level, "all", days=(30, 31)).itertuples())
        since_year = next(changes(year_before, july, level, "all").query("origin == @row.origin").itertuples())
        page.fill("#from", "all" if level == "all" else f"{level}:{row.origin}")
        page.keyboard.press("Enter")
        last, of_year = page.locator(".verdict").all_inner_texts()
        more = "more trips:" if row.change_per_day > 0 else "fewer trips:"
        word = more if row.significant else "may not have changed:"
        assert last == f"From 2001-06 (30 days) to 2001-07 (31 days): {word} {signed(row)}."
        check_axis(page)
        value, lower, upper = map(number_formats.format_change, (since_year.change, since_year.lower, since_year.upper))
        told = f"{value} (exact)" if lower == upper else f"{value} ({lower} to {upper})"
        assert of_year.endswith(f": {told}.")
        assert "2000-07 (31 days) to 2001-07 (31 days) (a year)" in of_year
    page.fill("#from", "all")
    page.keyboard.press("Enter")
    assert {*page.locator("#flow tbody td:nth-child(3)").all_inner_texts()} == {"exact"}
    shown = ["2001-07 (31 days)", "2001-06 (30 days)", "2000-07 (31 days)"]
    assert page.locator("#flow tbody th").all_inner_texts() == shown
    page.check("#per-day")
    per_day = [
        number_formats.format_rounded(int(of.leaves.trips.sum()) / days)
        for of, days in zip((july, june, year_before), (31, 30, 31), strict=True)
    ]
    assert page.locator("#flow tbody td:nth-child(2)").all_inner_texts() == per_day
    assert seen.errors == []


def check_axis(page) -> None:
    """Its numbers are 1, 2 or 5 times a power of ten apart; one that does not begin at 0 has a mark and says so."""
    texts = page.locator(".ribbon text[text-anchor=end]").all_text_contents()
    ticks = [int(text.replace(",", "")) for text in texts]
    (step,) = {after - before for before, after in pairwise(ticks)}
    assert str(step).rstrip("0") in {"1", "2", "5"}
    assert all(tick % step == 0 for tick in ticks)
    said = [f"The vertical axis begins at {texts[0]}, not at 0."] if ticks[0] else []
    assert page.locator("#flow figcaption").all_inner_texts() == said
    assert page.locator(".ribbon .cut").count() == len(said)
