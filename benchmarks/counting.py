"""Measure time and memory from a file of raw records to true counts in tree order, and on to a release at full depth.

Each step runs in its own process. The last step is all of them in one process.

python -m benchmarks.counting --json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from benchmarks.durable import check_invariants, durable_release, figures
from benchmarks.measuring import machine, printed, read_peak_memory_gigabytes
from od_core import Budget, FlowTree, Geography, PrivacyUnit, plan_release
from od_core.flows.staging import StagedRelease
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_records
from od_core.records.formats import RecordColumns
from od_core.records.load import load_records

LEVELS = ("region", "province", "town", "district", "section")
NATION = (20, 110, 7_900, 9_249, 357_708)
REGION = (1, 5, 40, 50, 2_000)
PERIOD = "2001-06"
SEED = 20010601


def geography(folder: Path) -> Geography:
    """Return the public zones: census sections with codes of twelve digits, in five levels."""
    zones = pd.read_parquet(folder / "zones.parquet")
    return Geography.from_frame(zones, LEVELS)


def make_zones(sizes: tuple[int, ...], folder: Path) -> None:
    """Write the areas of every level, evenly distributed over the areas of the level above."""
    area = np.arange(sizes[-1])
    codes = {LEVELS[-1]: [f"{section:012d}" for section in area]}
    for level in range(len(sizes) - 2, -1, -1):
        area = area * sizes[level] // sizes[level + 1]
        codes[LEVELS[level]] = [f"{LEVELS[level][0].upper()}{number:05d}" for number in area]
    pd.DataFrame({level: codes[level] for level in LEVELS}).to_parquet(folder / "zones.parquet")


def make_records(records: int, folder: Path, *, times: bool = False) -> None:
    """Write one row per trip, in random order. Pairs have heavy-tailed sizes, and seven in ten join near zones.

    Of 100 million records, some 55 million pairs are distinct. With ``times``, the date is a time of day.
    """
    date = f"DATE '{PERIOD}-01' + (hash(i, 5) % 30)::INTEGER"
    if times:
        date = f"{date} + to_seconds((hash(i, 6) % 86400)::INTEGER)"
    with duckdb.connect(config={"temp_directory": str(folder / "spill")}) as connection:
        zones = connection.sql(f"SELECT count(*) FROM '{folder}/zones.parquet'").fetchall()[0][0]  # noqa: S608
        connection.sql(f"""
            WITH codes AS (SELECT section, row_number() OVER () - 1 AS number FROM '{folder}/zones.parquet'),
            drawn AS (
                SELECT i, floor({1.07 * records} * power(hash(i, {SEED}) / 18446744073709551616.0, 2))::BIGINT AS pair
                FROM range({records}) AS numbers(i)
            ),
            located AS (SELECT i, pair, (hash(pair, 1) % {zones})::BIGINT AS origin FROM drawn),
            ends AS (
                SELECT i, origin,
                    CASE WHEN hash(pair, 2) % 10 < 7 THEN (origin + (hash(pair, 3) % 5000)::BIGINT) % {zones}
                        ELSE (hash(pair, 4) % {zones})::BIGINT END AS destination
                FROM located
            )
            SELECT {date} AS date, origins.section AS origin, destinations.section AS destination
            FROM ends JOIN codes AS origins ON ends.origin = origins.number
            JOIN codes AS destinations ON ends.destination = destinations.number
        """).write_parquet(str(folder / "trips.parquet"), compression="zstd")  # noqa: S608  # numbers, and our folder


def load(folder: Path) -> Callable[[], object]:
    """Return the step that loads the raw file into the confidential folder."""
    columns = RecordColumns(date="date")
    return lambda: load_records(folder / "trips.parquet", columns, PERIOD, StagedRelease(folder).records)


def count(folder: Path) -> Callable[[], object]:
    """Return the step that counts the loaded records into files."""
    public, staged = geography(folder), StagedRelease(folder)
    tree = FlowTree(public, public)
    tree.compute_rank_terms(tree.depth)

    def work() -> object:
        trips = count_records(staged.records, tree, staged.store, staged.begin_trip_counts())
        staged.save_trip_counts(trips)
        return {"pairs": sum(file.pairs for file in trips.files)}

    return work


def read(folder: Path) -> Callable[[], object]:
    """Return the step that reads the counts back from their files, as every measured level does."""
    staged = StagedRelease(folder)
    return lambda: {"pairs": len(staged.open_trip_counts().read_all().rank)}


def release(folder: Path) -> Callable[[], object]:
    """Return the step from the raw file to a durable release at full depth; epsilon is 1, the noise is ``table``.

    The step also checks the invariants.
    """
    public, staged = geography(folder), StagedRelease(folder)
    budget = Budget(epsilon=1, delta="1e-8", conversion="tight")
    plan = plan_release(public, unit=PrivacyUnit("trip"), budget=budget, mechanism="inftda", acceptance=NO_FAULTS)
    _ = plan.digest

    def work() -> object:
        load(folder)()
        trips = count_records(staged.records, plan.tree, staged.store, staged.begin_trip_counts()).read_all()
        with durable_release(plan, trips, resolve_noise_source("table")) as (released, seconds):
            check_invariants(released, trips.total)
            return figures(released) | {"release_seconds": seconds["total"]}

    return work


STEPS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "load": load,
    "count": count,
    "read": read,
    "release": release,
}


def measure_step(name: str, folder: Path) -> dict[str, Any]:
    """Measure one step in this process."""
    work = STEPS[name](folder)
    at_start = read_peak_memory_gigabytes()
    start, busy = time.perf_counter(), time.process_time()
    found = work()
    measured: dict[str, Any] = {"seconds": time.perf_counter() - start, "processor_seconds": time.process_time() - busy}
    measured |= {"peak_memory_gigabytes": read_peak_memory_gigabytes(), "of_it_before_the_step": at_start}
    return measured | (found if isinstance(found, dict) else {})


def main() -> None:
    """Write the records, run every step in a child process, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="few records, to see that it runs")
    parser.add_argument("--step", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(measure_step(options.step[0], Path(options.step[1]))))
        return
    records = 100_000 if options.small else 100_000_000
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_zones(REGION if options.small else NATION, folder)
        make_records(records, folder)
        for step in STEPS:
            command = [sys.executable, "-m", "benchmarks.counting", "--step", step, name]
            child = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # ourselves
            rows.append({"step": step} | json.loads(child.stdout))
    printed({"machine": machine(), "records": records, "steps": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
