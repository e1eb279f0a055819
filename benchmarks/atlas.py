"""Measure the page of the atlas: its size, how soon it shows something, and how fast it answers.

    python -m benchmarks.atlas --case flights us_counties --data FOLDER

The page is opened from a file in Debian's Chromium, whose times are left out if it is not installed. The first view is
complete when the largest flows are listed. The answers are the totals of 200 areas of the last level, as a reader who
draws around them waits for, and their trips by category and by distance, which are shown next. The first profile, of
all trips, is shown after the first view; for it, the categories are fitted. The case flights_by_day has the flights by
day of the week, with places of the airports. Data sets other than the flights are read from the subfolders of FOLDER.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from playwright.sync_api import sync_playwright

from benchmarks.estimator import MADE, READ, data_set
from benchmarks.measuring import machine, printed, timed
from benchmarks.segments import ROOT, us_flights
from od_core import Budget, Geography, PrivacyUnit, Release, plan_release, release_flows
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.publishing.atlas import write_atlas
from od_core.flows.publishing.flow_tables import FlowTables
from od_core.flows.release import run_plan
from od_core.ledger.chain import BUNDLE_FORMAT
from od_core.ledger.measurements import MemoryMeasurements
from od_core.meaning.subject import Subject
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS

SELECTED = 200
_OPENINGS = 5
_TIMED = """async ([name, ask]) => {
    const start = performance.now();
    await atlas.client.ask(name, ask);
    return (performance.now() - start) / 1000;
}"""


def released(data: KnownFlows, budget: Budget) -> Release:
    """Return a release of a data set."""
    plan = plan_release(data.geography, unit=PrivacyUnit("trip"), budget=budget, acceptance=NO_FAULTS)
    return run_plan(plan, data.trips, resolve_noise_source("table"), MemoryMeasurements())


def flights_by_day(budget: Budget) -> Release:
    """Return a release of the flights by day of the week."""
    trips, _, days = us_flights(None)
    airports = pd.read_csv(ROOT / "data/us_flights/airports.csv", dtype={"airport": str})
    levels = ["region", "division", "state", "airport"]
    geography = Geography.from_frame(airports, levels, coordinates=("latitude", "longitude"))
    options: dict[str, Any] = {"noise": "table", "fault_threshold": 0, "segments": {days.name: days.categories}}
    return release_flows(trips, geography, unit=PrivacyUnit("trip"), budget=budget, **options)


def measure(name: str, release: Release, folder: Path, *, opened: bool) -> dict[str, Any]:
    """Return the figures of one release; those of the browser only if the page is opened."""
    mechanism = {"name": release.plan.mechanism.name, "options": release.plan.mechanism.options}
    stated = {"unit": "trip", "interval": {}, "guarantee": {"protected": "Each trip is protected."}, "exact": []}
    stated |= {"mechanism": mechanism, "geographies": {}, "subject": Subject.from_plan(release.plan).facts()}
    certificate: Any = {"release": f"{name}/2001/r1", "period": "2001", "bundle_format": BUNDLE_FORMAT, **stated}
    page = folder / "atlas.html"

    def write() -> None:
        with page.open("wb") as file:
            write_atlas(FlowTables.from_release(release, certificate), certificate, file)

    written = timed(write)
    return {
        "areas": len(release.tree.origin.zones),
        "measured_leaves": len(release.fitted.levels[-1].nodes),
        "released_flows": len(release.leaves),
        "write_seconds": written["median"],
        "megabytes": page.stat().st_size / 1e6,
        **(in_browser(page, release) if opened else {}),
    }


def in_browser(page: Path, release: Release) -> dict[str, float]:
    """Return the seconds until the first view, and those of an answer, each the median of several openings."""
    program = shutil.which("chromium")
    if program is None:
        return {}
    tree = release.tree
    step = max(1, len(tree.origin.zones) // SELECTED)
    selected = {"level": tree.origin.depth, "areas": list(range(0, len(tree.origin.zones), step))[:SELECTED]}
    ends = {"origins": selected, "destinations": {"level": 0, "areas": [0]}}
    asks = {"totals": {"selected": selected}, "categories": ends, "distances": ends}
    first: list[float] = []
    answers: dict[str, list[float]] = {name: [] for name in ("first_profile", *asks)}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(_OPENINGS):
            opened = browser.new_page()
            start = time.perf_counter()
            opened.goto(page.as_uri())
            opened.wait_for_selector("#panel[aria-busy=false] table")
            first.append(time.perf_counter() - start)
            opened.wait_for_selector("#profile[aria-busy=false]", state="attached")
            answers["first_profile"].append(time.perf_counter() - start)
            for name, ask in asks.items():
                answers[name].append(min(opened.evaluate(_TIMED, [name, ask]) for _ in range(3)))
            opened.close()
        browser.close()
    return {
        "first_view_seconds": sorted(first)[_OPENINGS // 2],
        **{f"{name}_seconds": sorted(seconds)[_OPENINGS // 2] for name, seconds in answers.items()},
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", choices=[*MADE, *READ, "flights_by_day"], default=["flights"])
    parser.add_argument("--data", type=Path, help="folder with the data sets other than the flights")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--small", action="store_true", help="few synthetic trips, and no browser")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for case in ["random"] if options.small else options.case:
        budget = Budget(epsilon=options.epsilon, delta="1e-8")
        if case == "flights_by_day":
            release = flights_by_day(budget)
        else:
            release = released(data_set(case, options.data, small=options.small), budget)
        with tempfile.TemporaryDirectory() as folder:
            result = measure(case, release, Path(folder), opened=not options.small)
        printed({"machine": machine(), "data": case, "epsilon": options.epsilon, **result}, as_json=options.json)


if __name__ == "__main__":
    main()
