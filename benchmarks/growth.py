"""Measure how the time of a release grows with the number of measured cells: by trips, by zones and by depth.

    python -m benchmarks.growth --json
    python -m benchmarks.growth --figure docs/figures/growth.svg
    python -m benchmarks.growth --releases 30 --csv docs/reference/tables

Times include the ledger and durable measurement files, but not making and sorting the data. A family is a sequence of
releases in which one size grows; each family runs in its own process. The figure is written as SVG and as PNG.

With ``--releases``, measure instead how the folder ``var`` of a project grows with its releases, in bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.durable import check_invariants, durable_release, figures
from benchmarks.measuring import fresh_process, machine, printed, read_peak_memory_gigabytes, steps
from benchmarks.projects import write_project
from benchmarks.sections import italy_sections
from benchmarks.tables import write_csv
from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.evaluation.known_flows import SyntheticFlows, make_binary_flows, make_italy_flows
from od_core.noise.backends import resolve_noise_source
from od_core.parallel import choose_thread_count
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from od_core.warmup import compile_all_kernels

SEED = 20010101
NOISE = "table"
TRIPS = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
TOWN_SCALES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SECTION_SCALES = (0.01, 0.03, 0.1, 0.2, 0.33)
DEPTHS = range(2, 9)
MARKERS = "os^D"
LARGER = 30
"""Points with at least the largest number of cells divided by this number are used to fit a slope."""

LEAST_SPAN = 4
"""Least ratio of the largest to the smallest number of cells for which a slope is fitted."""

Point = dict[str, Any]


def by_trips(small: bool) -> Iterator[SyntheticFlows]:
    """Yield flows with more and more trips between the same towns, on as many pairs."""
    for trips in TRIPS[:2] if small else TRIPS:
        yield make_italy_flows(SEED, scale=0.01 if small else 1.0, trips=trips)


def by_towns(small: bool) -> Iterator[SyntheticFlows]:
    """Yield flows over more and more towns, with pairs and trips in proportion: 6 levels, up to 6.5 million pairs."""
    for scale in (0.01, 0.03) if small else TOWN_SCALES:
        yield make_italy_flows(SEED, scale=scale)


def by_sections(small: bool) -> Iterator[SyntheticFlows]:
    """Yield flows over more and more census sections, with pairs and trips in proportion.

    They have 10 levels and up to 7.6 million pairs.
    """
    for scale in (0.0002, 0.001) if small else SECTION_SCALES:
        yield italy_sections(SEED, scale=scale)


def by_levels(small: bool) -> Iterator[SyntheticFlows]:
    """Yield the same flows between 4,096 zones, with more and more levels between the whole space and the zones."""
    halvings = 8 if small else 12
    flows = make_binary_flows(SEED, levels=halvings, filled=Fraction(1, 20), trips=80_000 if small else 20_000_000)
    zones = flows.geography.to_frame()
    for depth in (2, 3) if small else DEPTHS:
        levels = [f"level_{round(halvings * level / depth)}" for level in range(1, depth + 1)]
        yield replace(flows, geography=Geography.from_frame(zones, levels))


FAMILIES: dict[str, Callable[[bool], Iterator[SyntheticFlows]]] = {
    "trips": by_trips,
    "towns": by_towns,
    "sections": by_sections,
    "levels": by_levels,
}


def measured(family: str, *, repeats: int, small: bool) -> list[Point]:
    """Measure the points of a family in this process.

    ``fixed_seconds`` is the time of the same plan with a single trip: the ledger, the file and the wait for the disk at
    every level, and one-time work.
    """
    compile_all_kernels()  # kernels are loaded or compiled once per process
    points = []
    for flows in FAMILIES[family](small):
        plan = plan_release(
            flows.geography,
            unit=PrivacyUnit("trip"),
            budget=Budget(epsilon=1, delta="1e-8", conversion="tight"),
            mechanism="inftda",
            acceptance=NO_FAULTS,
        )
        _ = plan.digest  # digests of geographies are computed once per process
        trips = TripCounts.from_pairs(plan.tree, flows.origin, flows.destination, flows.trips)
        one_trip = TripCounts.from_pairs(plan.tree, flows.origin[:1], flows.destination[:1], flows.trips[:1] * 0 + 1)
        runs = []
        for _ in range(repeats + 1):  # in turn, so that the machine has the same load for both
            seconds, cells = _release(plan, trips)
            runs.append((cells, seconds, _release(plan, one_trip)[0]))
        cells, seconds, fixed_seconds = map(statistics.median, zip(*runs[1:], strict=True))
        points.append(
            {
                "family": family,
                "zones": len(flows.geography.zones),
                "levels": plan.tree.depth,
                "pairs": len(trips.rank),
                "trips": trips.total,
                "cells": int(cells),
                "seconds": seconds,
                "fixed_seconds": fixed_seconds,
            }
        )
    return points


def _release(plan: ReleasePlan, trips: TripCounts) -> tuple[float, int]:
    """Return the seconds and the number of measured cells of a durable release."""
    with durable_release(plan, trips, resolve_noise_source(NOISE)) as (release, phases):
        check_invariants(release, trips.total)
        return phases["total"], figures(release)["draws"]


def slopes(points: list[Point]) -> list[dict[str, Any]]:
    """Fit the slope of log seconds on log measured cells over the larger points of each family, and of all.

    A slope of 1 means that the time is proportional to the cells. It is given with and without the fixed seconds. It is
    None if the points span too few sizes, or do not exceed the fixed seconds.
    """
    groups = {family: [point for point in points if point["family"] == family] for family in FAMILIES}
    return [{"family": name} | _slopes(group) for name, group in (groups | {"all": points}).items()]


def _slopes(points: list[Point]) -> dict[str, Any]:
    least = max(point["cells"] for point in points) / LARGER
    larger = [point for point in points if point["cells"] >= least]
    cells = [point["cells"] for point in larger]
    seconds = [point["seconds"] for point in larger]
    rest = [point["seconds"] - point["fixed_seconds"] for point in larger]
    return {"points": len(larger), "slope": _slope(cells, seconds), "slope_without_fixed": _slope(cells, rest)}


def _slope(cells: list[int], seconds: list[float]) -> float | None:
    if max(cells) < LEAST_SPAN * min(cells) or min(seconds) <= 0:
        return None
    return statistics.linear_regression([math.log(x) for x in cells], [math.log(y) for y in seconds]).slope


def draw(points: list[Point], path: Path) -> None:
    """Write a figure of seconds by measured cells on logarithmic axes. The same points give the same bytes.

    Args:
        points: points from :func:`measured`.
        path: path of the SVG; the PNG is written beside it.
    """
    with mpl.rc_context({"svg.hashsalt": "growth", "font.size": 10, "axes.spines.top": False}):
        figure = Figure(figsize=(6, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.spines["right"].set_visible(False)
        for family, marker in zip(FAMILIES, MARKERS, strict=True):
            own = [point for point in points if point["family"] == family]
            cells, seconds = [p["cells"] for p in own], [p["seconds"] for p in own]
            axes.loglog(cells, seconds, marker, label=f"more {family}", markersize=5, fillstyle="none")
        largest = max(points, key=lambda point: int(point["cells"]))
        line = [(largest["cells"] / factor, largest["seconds"] / factor) for factor in (LARGER, 1)]
        axes.loglog(*zip(*line, strict=True), "--", color="0.5", linewidth=1, label="slope 1")
        axes.set_xlabel("measured cells")
        axes.set_ylabel("seconds")
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=200)


def daily_project(root: Path, days: int, trips: int = 2000) -> None:
    """Declare a series of days of invented trips between 20 zones in 3 levels, and write its files of records."""
    zones = [(f"R{zone // 10}", f"D{zone // 5}", f"Z{zone:02d}") for zone in range(20)]
    listed = pd.DataFrame(zones, columns=["region", "district", "zone"])
    listed.to_csv(root / "zones.csv", index=False)
    periods = [date(2001, 1, 1) + timedelta(day) for day in range(days)]
    attributes = {
        "name": "trips",
        "owners": ["team:benchmarks"],
        "trips": {"files": "{period}.csv", "columns": {"date": "date"}, "one_row_a_trip": True},
        "geography": {"file": "zones.csv", "levels": [*listed.columns]},
        "periods": {"every": "day", "first": f"{periods[0]}", "last": f"{periods[-1]}"},
        "domain": "trips",
        "privacy": {"epsilon": "1", "delta": "1e-8"},
    }
    domain = {"name": "trips", "elementary_period": "day", "cap": {"rho": "1", "reason": "a benchmark"}}
    write_project(root, domain, [attributes])
    generator = np.random.default_rng(SEED)
    for period in periods:
        ends = {side: generator.choice(listed["zone"], trips) for side in ("origin", "destination")}
        pd.DataFrame(ends).assign(date=f"{period}").to_csv(root / f"{period}.csv", index=False)


def bytes_of_releases(releases: int) -> list[Point]:
    """Release some days of 2,000 trips with ``od-release run``, and return the bytes in ``var``, by what they are."""
    with TemporaryDirectory(prefix="od-benchmark-") as name:
        root = Path(name)
        daily_project(root, releases)
        path = os.pathsep.join(filter(None, [name, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "OD_PROJECT": name, "OD_VAR": str(root / "var"), "PYTHONPATH": path}
        environment.pop("DAGSTER_HOME", None)
        command = [sys.executable, "-m", "od_assets.cli", "run", "trips", "--all", "--json"]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)  # noqa: S603  # ourselves
        sizes = _bytes_by_place(root / "var")
    sizes["all"] = sum(sizes.values())
    return [{"place": place, "bytes": size, "bytes_a_release": size // releases} for place, size in sizes.items()]


def _bytes_by_place(var: Path) -> dict[str, int]:
    """Return the bytes of the files in ``var``, by the name of its entry; zip files apart, and logs apart."""
    sizes: dict[str, int] = {}
    for file in (path for path in sorted(var.rglob("*")) if path.is_file()):
        place = file.relative_to(var)
        name = place.parts[0]
        if file.suffix == ".zip" or place.parts[1:2] == ("history",):
            name = f"{name}, {'zip files' if file.suffix == '.zip' else 'history'}"
        sizes[name] = sizes.get(name, 0) + file.stat().st_size
    return sizes


def family_figures(family: str, *, small: bool) -> dict[str, Any]:
    """Measure the points of a family, and the peak memory so far."""
    points = measured(family, repeats=1 if small else 3, small=small)
    return {"points": points, "peak_memory_gigabytes": read_peak_memory_gigabytes()}


def main() -> None:
    """Run the families, each in its own process, and print their points and slopes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--family", choices=FAMILIES, help="one family alone, in this process")
    parser.add_argument("--figure", type=Path, help="write the figure there (.svg), and beside it as .png")
    parser.add_argument("--releases", type=int, help="measure the bytes of so many daily releases instead")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write these bytes to growth-bytes.csv there")
    options = parser.parse_args()
    if options.releases:
        rows = bytes_of_releases(options.releases)
        if options.csv:
            write_csv(options.csv / "growth-bytes.csv", rows)
        printed({"machine": machine(), "releases": options.releases, "bytes": rows}, as_json=options.json)
        return
    results: dict[str, Any] = {"machine": machine(), "epsilon": 1, "noise": NOISE, "threads": choose_thread_count()}
    if options.family:
        printed(results | family_figures(options.family, small=options.small), as_json=options.json)
        return
    runs = [
        family_figures(family, small=True)  # too small for a separate process
        if options.small
        else json.loads(fresh_process("benchmarks.growth", "--family", family))
        for family in steps(list(FAMILIES), "growth")
    ]
    points = [point for run in runs for point in run["points"]]
    results |= {"points": points, "slopes": slopes(points)}
    results["peak_memory_gigabytes"] = max(run["peak_memory_gigabytes"] for run in runs)
    if options.figure:
        draw(points, options.figure)
    printed(results, as_json=options.json)


if __name__ == "__main__":
    main()
