"""Measure the processor time of the web site of published months: made at first, made again, and with one more month.

The months have made-up trips between 263 zones. The releases are published by the library, without a ledger.
"""

from __future__ import annotations

import tempfile
import time
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.taxis import ZONES, geography
from od_core import Budget, Geography, PrivacyUnit, release_flows
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.balance import Balance
from od_core.ledger.chain import EntryName
from od_core.ledger.ledger import ReleaseRecord
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import publish_folder, write_bundle
from od_core.publication.certificate import CheckResult
from od_core.publication.certify import build_certificate
from od_core.publication.kind import ReleaseContext
from od_core.published.site import write_site
from od_core.published.site_release import SiteDescription

SERIES = "taxis"
MONTHS = [f"2020-{month:02d}" for month in range(1, 7)]
ONE_MORE = "2021-01"
TRIPS = 9_840
"""Trips of a made-up month."""

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


def publish(trips: pd.DataFrame, zones: Geography, month: str, releases: Path) -> None:
    """Release the flows of a month, and write their bundle."""
    key, budget = ReleaseKey(SERIES, month), Budget(epsilon=1, delta="1e-8")
    release = release_flows(trips, zones, unit=PrivacyUnit("trip"), budget=budget, noise="table", fault_threshold=0)
    facts = build_certificate(
        FLOWS, release, key, SERIES, [CheckResult(subject="flows", check="sum to n", passed=True)], record=_RECORD
    )
    balance = Balance(SERIES, month, Fraction(9), Fraction(2), {str(key): Fraction(2)}, 0)
    render_report = partial(FLOWS.render_report, release, context=ReleaseContext(balance, None))
    with publish_folder(partial(write_bundle, FLOWS, release, facts, render_report), releases / key.folder):
        pass


def measured(months: list[str], trips: int) -> dict[str, float]:
    """Return the processor seconds of the site of some months: at first, again, and with one more month."""
    records, zones = made_up(months, trips)
    with tempfile.TemporaryDirectory() as name:
        releases, folder = Path(name) / "releases", Path(name) / "site"

        def seconds() -> float:
            start = time.process_time()
            write_site(releases, folder, _SITE)
            return time.process_time() - start

        for month, own in records.items():
            publish(own, zones, month, releases)
        found = {"at first": seconds(), "nothing changed": seconds()}
        publish(records[months[-1]], zones, ONE_MORE, releases)
        return found | {"one more month": seconds()}
