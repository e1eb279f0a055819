"""The Dagster UI of a released month: its pages load, say what was done, and ask nobody else for anything."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.browser.conftest import PERIOD, outside, show

VERTICAL = """localStorage.setItem("asset-graph-direction", '"vertical"')"""
GROUPS = ("us_flights", "us_flights/inputs", "us_flights/levels", "us_flights/publication")
GRAPH = "/asset-groups/?expanded=" + quote(",".join(f"global@global:{group}" for group in GROUPS), safe="")
BUNDLE = f"/assets/us_flights/bundle?view=partitions&partition={PERIOD}"

PAGES = {
    "graph": (GRAPH, ("raw_trips", "trip_counts", "estimate_1", "estimate_8", "refined_flows", "bundle")),
    "checks": ("/assets/us_flights/flows?view=checks", ("same_at_every_level", "spend_is_plan", "blocking", "Passed")),
    "run": ("/runs", ("us_flights_release", PERIOD, "Success")),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_and_says_what_was_done(opened, ui, name):
    path, expected = PAGES[name]
    page, seen = opened(ui + path, 1400, 1500 if name == "graph" else 900, before=VERTICAL)
    for words in expected:
        page.get_by_text(words).first.wait_for(timeout=120_000)
    if name == "run":
        page.locator("a[href^='/runs/']").first.click()
        page.get_by_text("us_flights__bundle").first.wait_for(timeout=120_000)
    if name == "graph":
        page.wait_for_timeout(2000)  # it is laid out in steps, and draws each
    show(page, f"ui-{name}")
    assert seen.errors == []
    assert outside(seen.asked, ui) == []


def test_the_bundle_shows_what_the_report_does(opened, ui):
    """Numbers, tables, where the report is; and the map, which is in the metadata itself."""
    page, seen = opened(ui + BUNDLE, 1400, 1300)
    for words in ("Materialized", "report.html", "differentially private", "left_rho", "largest_flows", "lower"):
        page.get_by_text(words).first.wait_for(timeout=120_000)
    show(page, "ui-metadata")
    page.get_by_text("Show Markdown").first.click()
    picture = page.locator("img[src^='data:image/svg+xml']")
    picture.wait_for(timeout=120_000)
    assert picture.evaluate("image => image.naturalWidth") > 300
    show(page, "ui-pictures")
    assert seen.errors == []
    assert outside(seen.asked, ui) == []
