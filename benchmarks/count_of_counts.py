"""Measure group sizes at the full numbers of groups of the papers, which are given as numbers by area and size.

    python -m benchmarks.count_of_counts --json > results.json
    python -m benchmarks.count_of_counts --read results.json --csv docs/reference/tables
    python -m benchmarks.count_of_counts --part census --noise opendp

The census has the numbers of [fioretto2019hierarchical, section 11.1]. Its times are of everything from the file of
numbers to the released tables, in a process of its own.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measuring import (
    machine,
    peak_memory_gigabytes,
    printed,
    read_again,
    reset_peak_memory,
)
from benchmarks.synthetic_groups import KnownGroups, full_number
from benchmarks.tables import csv_figure, write_csv
from od_core import Budget, PrivacyUnit, release_group_sizes
from od_core.evaluation.known_flows import SEED
from od_core.group_sizes.release import GroupSizeRelease, evaluate_group_sizes

UNIT = PrivacyUnit("trip", "unbounded")
PARTS = ("census",)


def full_census(*, small: bool) -> KnownGroups:
    """Return 117,630,445 groups in 7,592 counties, K = 1,000; if ``small``, fewer of all."""
    if small:
        return full_number(SEED, states=3, counties=6, groups=50_000, top_code=50, outliers=(10, 40))
    return full_number(SEED)


def census(noise: str, *, small: bool) -> dict[str, Any]:
    """Measure a release of the census, with the mechanism that the rule selects, at epsilon 1."""

    def released(groups: Path, data: KnownGroups) -> GroupSizeRelease:
        budget = Budget(epsilon=1)
        return release_group_sizes(
            groups, data.geography, unit=UNIT, budget=budget, top_code=data.top_code, noise=noise
        )

    with tempfile.TemporaryDirectory() as folder:
        path, few = Path(folder, "census.csv"), full_census(small=True)
        few.to_frame().to_csv(path, index=False)
        released(path, few)  # warms up
        data = full_census(small=small)
        data.to_frame().to_csv(path, index=False)
        reset_peak_memory()
        start = time.perf_counter()
        release = released(path, data)
        seconds, memory = time.perf_counter() - start, peak_memory_gigabytes()
    errors = evaluate_group_sizes(release, data.groups).groupby("level", sort=False)
    return {
        "groups": int(data.groups.groups.sum()),
        "members": data.groups.total,
        "rows": len(data.groups.size),
        "areas": sum(map(len, release.histograms)),
        "top_code": data.top_code,
        "mechanism": release.plan.mechanism.name,
        "noise": noise,
        "seconds": seconds,
        "peak_memory_gigabytes": memory,
        "distance": errors["earth_movers_distance"].mean().tolist(),
        "l1_of_level": errors["l1_error"].sum().tolist(),
    }


def csv_tables(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of ``group-sizes-full-census.csv``."""
    rows = [
        {
            **{name: row[name] for name in ("groups", "rows", "mechanism", "noise")},
            "seconds": csv_figure(row["seconds"]),
            "memory_gb": "" if row["peak_memory_gigabytes"] is None else f"{row['peak_memory_gigabytes']:.1f}",
            "level": level,
            "distance": csv_figure(distance),
            "l1_of_level": csv_figure(l1),
        }
        for row in results["census"]
        for level, (distance, l1) in enumerate(zip(row["distance"], row["l1_of_level"], strict=True), start=1)
    ]
    return {"group-sizes-full-census.csv": rows}


def measured(parts: list[str], noise: str, *, small: bool) -> dict[str, Any]:
    """Measure the figures of some parts."""
    results: dict[str, Any] = {"machine": machine(), "census": []}
    if "census" in parts:
        results["census"].append(census(noise, small=small))
    return results


def main() -> None:
    """Measure the figures, or read measured ones, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the tables to CSV files in this folder")
    parser.add_argument("--small", action="store_true", help="small data, to see that it runs")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--noise", default="table", help="noise backend of the census")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="figures printed by --json before")
    options = parser.parse_args()
    if options.read:
        results = read_again(options.read, ("census",))
    else:
        results = measured(options.part, options.noise, small=options.small)
    if options.csv:
        for name, rows in csv_tables(results).items():
            write_csv(options.csv / name, rows)
    printed(results, as_json=options.json)


if __name__ == "__main__":
    main()
