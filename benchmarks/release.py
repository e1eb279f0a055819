"""Measure the time of ``release_flows`` on a month of flights and on a national table of 8,092 zones.

python -m benchmarks.release --json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.flights import read_flights
from benchmarks.measuring import machine, peak_memory_gigabytes, printed, timed
from od_core import Budget, Geography, PrivacyUnit, Release, release_flows
from od_core.evaluation.known_flows import SEED, italy

FLIGHTS = Path(__file__).resolve().parent.parent / "data" / "us_flights"


def flights() -> tuple[pd.DataFrame, Geography]:
    """Return the records of June 2001 and the public airports."""
    return read_flights(FLIGHTS)


def national(scale: float) -> tuple[pd.DataFrame, Geography]:
    """Return synthetic commuting between the towns of a country."""
    flows = italy(SEED, scale=scale)
    return flows.to_frame(), flows.geography


def main() -> None:
    """Run both cases and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="a small national table, no repeats, to see that it runs")
    options = parser.parse_args()
    cases: dict[str, tuple[Callable[[], tuple[pd.DataFrame, Geography]], int]] = {
        "flights_one_month": (flights, 1 if options.small else 3),
        "national": (lambda: national(0.05 if options.small else 1.0), 1),
    }
    measured = [{"case": name} | _case(make, repeats) for name, (make, repeats) in cases.items()]
    printed({"machine": machine(), "epsilon": 1, "noise": "opendp", "cases": measured}, as_json=options.json)


def _case(make: Callable[[], tuple[pd.DataFrame, Geography]], repeats: int) -> dict[str, Any]:
    flows, geography = make()
    releases: list[Release] = []

    def work() -> None:
        releases[:] = [
            release_flows(
                flows, geography, unit=PrivacyUnit("trip"), budget=Budget(epsilon=1, delta="1e-8"), fault_threshold=0
            )
        ]

    seconds = timed(work, repeats=repeats)
    return {
        "seconds": seconds,
        "rows": len(flows),
        "zones": len(geography.zones),
        "draws": sum(len(measurement.noisy) for measurement in releases[0].measured),
        "released_flows": len(releases[0].leaves),
        "peak_memory_gigabytes": peak_memory_gigabytes(),
    }


if __name__ == "__main__":
    main()
