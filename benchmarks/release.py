"""Time of ``release_flows``: a month of flights, and a national table of 8,000 zones.

python -m benchmarks.release --json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measuring import machine, peak_memory_gigabytes, timed
from od_core import Budget, Geography, PrivacyUnit, Release, release_flows

FLIGHTS = Path(__file__).resolve().parent.parent / "data" / "us_flights"
SEED = 20010101


def flights() -> tuple[pd.DataFrame, Geography]:
    """Records of June 2001 and the public airports."""
    zones = pd.read_csv(FLIGHTS / "airports.csv", dtype=str, keep_default_na=False)
    geography = Geography.from_frame(zones, levels=["region", "division", "state", "airport"])
    return pd.read_parquet(FLIGHTS / "2001-06.parquet"), geography


def national(zones: int, pairs: int, trips: int) -> tuple[pd.DataFrame, Geography]:
    """Synthetic commuting over 20 regions, 110 provinces and towns of heavy-tailed size.

    Half of the trips stay within their town; of the other pairs most lie in one province, and their flows are
    heavy-tailed, as commuting is.
    """
    generator = np.random.default_rng(SEED)
    province = np.sort(generator.integers(0, 110, zones))
    region = province * 20 // 110
    frame = pd.DataFrame(
        {
            "region": [f"R{r:02d}" for r in region],
            "province": [f"P{p:03d}" for p in province],
            "town": [f"T{town:05d}" for town in range(zones)],
        }
    )
    size = generator.pareto(1.1, zones) + 1
    before = np.concatenate(([0.0], np.cumsum(size)))
    drawn = 4 * pairs
    origin = np.searchsorted(before, generator.random(drawn) * before[-1], side="right") - 1
    reach = generator.choice(3, drawn, p=[0.7, 0.2, 0.1])  # province, region, nation
    area = np.where(reach == 0, province[origin], region[origin])
    first = np.where(
        reach == 0, np.searchsorted(province, area), np.where(reach == 1, np.searchsorted(region, area), 0)
    )
    end = np.where(
        reach == 0,
        np.searchsorted(province, area, side="right"),
        np.where(reach == 1, np.searchsorted(region, area, side="right"), zones),
    )
    at = before[first] + generator.random(drawn) * (before[end] - before[first])
    destination = np.clip(np.searchsorted(before, at, side="right") - 1, first, end - 1)
    towns = np.arange(zones)
    flows = (
        pd.DataFrame({"origin": np.append(towns, origin), "destination": np.append(towns, destination)})
        .drop_duplicates()
        .head(pairs)
    )
    within = (flows["origin"] == flows["destination"]).to_numpy()
    weight = np.where(within, size[flows["origin"]], generator.pareto(1.0, len(flows)) + 1)
    weight[within] /= weight[within].sum()
    weight[~within] /= weight[~within].sum()
    flows["trips"] = 1 + generator.multinomial(trips - len(flows), weight / 2)
    codes = frame["town"].to_numpy()
    flows["origin"], flows["destination"] = codes[flows["origin"]], codes[flows["destination"]]
    return flows, Geography.from_frame(frame, levels=["region", "province", "town"])


def main() -> None:
    """Run both cases and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="a small national table, to see that it runs")
    options = parser.parse_args()
    size = (400, 3_000, 100_000) if options.small else (8_000, 300_000, 13_000_000)
    cases: dict[str, tuple[Callable[[], tuple[pd.DataFrame, Geography]], int]] = {
        "flights_one_month": (flights, 3),
        "national": (lambda: national(*size), 1),
    }
    results = {"machine": machine(), "epsilon": 1, "noise": "opendp"}
    results |= {name: _case(make, repeats) for name, (make, repeats) in cases.items()}
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for name, figures in results.items():
        print(f"{name}: {figures}")


def _case(make: Callable[[], tuple[pd.DataFrame, Geography]], repeats: int) -> dict[str, Any]:
    flows, geography = make()
    releases: list[Release] = []

    def work() -> None:
        releases[:] = [
            release_flows(flows, geography, unit=PrivacyUnit("trip"), budget=Budget(epsilon=1, delta="1e-8"))
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
