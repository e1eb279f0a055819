"""Measure how long the web site of 36 published months takes: made at first, made again, and with one more month.

    python -m benchmarks.site --data FOLDER

The months are those of the taxi trips in the subfolder nyc_yellow_taxi of FOLDER; without it, made-up trips of their
number between 263 zones. The releases are published by the library, without a ledger.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measuring import machine, peak_memory_gigabytes, printed, steps
from benchmarks.taxis import LEVELS, ZONES, geography
from od_core import Budget, Geography, PrivacyUnit, release_flows
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.balance import Balance
from od_core.ledger.chain import EntryName
from od_core.ledger.ledger import ReleaseRecord
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import staged_folder, write_bundle
from od_core.publication.certificate import CheckResult
from od_core.publication.certify import certificate
from od_core.publication.kind import ReleaseContext
from od_core.published.site import Site, SiteDescription, write_site

SERIES = "taxis"
MONTHS = [f"{year}-{month:02d}" for year in (2018, 2019, 2020) for month in range(1, 13)]
ONE_MORE = "2021-01"
TRIPS = 9_840
"""Trips of a made-up month, as many as an average month of the sample has."""

_SITE = SiteDescription(
    "Taxi trips", "https://statistics.example/taxis", "Benchmark", "https://creativecommons.org/publicdomain/zero/1.0/"
)
_RECORD = ReleaseRecord("2021-02-03T09:00:00+00:00", 0, EntryName(1, "5" * 64))


def made_up(months: list[str], trips: int) -> tuple[dict[str, pd.DataFrame], Geography]:
    """Return trips of each month, most of which are between few zones, and their zones."""
    generator = np.random.default_rng(29)

    def month() -> pd.DataFrame:
        zones = 1 + (ZONES * generator.random((2, trips)) ** 2).astype(int)
        return pd.DataFrame({"origin": zones[0].astype(str), "destination": zones[1].astype(str)})

    return {name: month() for name in months}, geography()


def sampled(folder: Path) -> tuple[dict[str, pd.DataFrame], Geography]:
    """Return the trips of each month of the sample, and their zones."""
    zones = pd.read_csv(folder / "zones.csv", dtype=str)
    names = {"PULocationID": "origin", "DOLocationID": "destination"}
    trips = pd.read_csv(folder / "trips.csv.gz", dtype=str).rename(columns=names)
    months = {str(month): own[[*names.values()]] for month, own in trips.groupby("month")}
    return months, Geography.from_frame(zones.rename(columns={"zone": "code", "taxi_zone": "zone"}), LEVELS)


def publish(trips: pd.DataFrame, zones: Geography, month: str, releases: Path) -> None:
    """Release the flows of a month, and write their bundle."""
    key, budget = ReleaseKey(SERIES, month), Budget(epsilon=1, delta="1e-8")
    release = release_flows(trips, zones, unit=PrivacyUnit("trip"), budget=budget, noise="table", fault_threshold=0)
    facts = certificate(
        FLOWS, release, key, SERIES, [CheckResult(subject="flows", check="sum to n", passed=True)], record=_RECORD
    )
    balance = Balance(SERIES, month, Fraction(9), Fraction(2), {str(key): Fraction(2)}, 0)
    report = FLOWS.report(release, facts, ReleaseContext(balance, None))
    with staged_folder(lambda folder: write_bundle(FLOWS, release, facts, report, folder), releases / key.folder):
        pass


def seconds(work: Callable[[], Site]) -> dict[str, float]:
    """Return how long it took to write a site, and how many files were written."""
    start = time.perf_counter()
    site = work()
    return {"seconds": time.perf_counter() - start, "releases": site.releases, "files_written": len(site.changed)}


def main() -> None:
    """Publish the months, write their site and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="two months of few trips, to see that it runs")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the sample of taxi trips is")
    options = parser.parse_args()
    trips, zones = (
        sampled(options.data / "nyc_yellow_taxi")
        if options.data
        else made_up(MONTHS[:2] if options.small else MONTHS, 1_000 if options.small else TRIPS)
    )
    with tempfile.TemporaryDirectory() as name:
        releases, folder = Path(name) / "releases", Path(name) / "site"

        def write() -> Site:
            return write_site(releases, folder, _SITE)

        start = time.perf_counter()
        for month in steps(sorted(trips), "releases"):
            publish(trips[month], zones, month, releases)
        published = time.perf_counter() - start
        rows: dict[str, Any] = {"at first": seconds(write), "nothing changed": seconds(write)}
        publish(trips[max(trips)], zones, ONE_MORE, releases)
        rows["one more month"] = seconds(write)
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    facts = {"publishing_seconds": published, "files": len(sizes), "megabytes": sum(sizes) / 1e6}
    memory = {"peak_memory_gigabytes": peak_memory_gigabytes()}
    printed({"machine": machine()} | facts | memory | {"site": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
