"""Measure monthly Parquet files of taxi trips in the format of TLC, through their reader, to leaf counts and releases.

The files are twelve months of made-up trips between 263 zones, a few of them from an unknown place or another month.
Everything runs in one process, so the peak memory is that of the largest step.

python -m benchmarks.taxis --json
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from benchmarks.durable import check_invariants, durable_release
from benchmarks.measuring import machine, printed, read_peak_memory_gigabytes, steps
from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.files.durable import CONFIDENTIAL_FOLDER_MODE
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_records_in_memory
from od_core.records.formats import FORMATS
from od_core.records.load import load_records

TLC = FORMATS["tlc"]

LEVELS = ("borough", "service_area", "zone")
ZONES = 263
MONTHS = [f"2019-{month:02d}" for month in range(1, 13)]


def geography() -> Geography:
    """Return zones 1 to 263 in six boroughs, and zone 264 for unknown places."""
    numbers = range(1, ZONES + 2)
    boroughs = ["Unknown" if number > ZONES else f"borough {number % 6}" for number in numbers]
    areas = [f"{borough} / {number % 2}" for borough, number in zip(boroughs, numbers, strict=True)]
    columns = (boroughs, areas, [str(number) for number in numbers])
    return Geography.from_frame(pd.DataFrame(dict(zip(LEVELS, columns, strict=True))), LEVELS, unknown="264")


def make_month(month: str, trips: int, path: Path) -> None:
    """Write the file of a month.

    Most trips are between few zones. One in a hundred has an unknown origin, and one in 10,000 has a date in 2009.
    """
    with duckdb.connect() as connection:
        connection.sql(f"""
            SELECT 1::INTEGER AS VendorID, pickup AS tpep_pickup_datetime,
                pickup + INTERVAL 15 MINUTE AS tpep_dropoff_datetime, 1.5::DOUBLE AS trip_distance,
                CASE WHEN hash(i, 6) % 100 = 0 THEN 264
                    ELSE 1 + floor({ZONES} * power(hash(i, 1) / 18446744073709551616.0, 2)) END::INTEGER
                    AS PULocationID,
                (1 + floor({ZONES} * power(hash(i, 2) / 18446744073709551616.0, 2)))::INTEGER AS DOLocationID,
                20.5::DOUBLE AS fare_amount
            FROM (
                SELECT i, CASE WHEN hash(i, 5) % 10000 = 0 THEN TIMESTAMP '2009-01-01'
                    ELSE TIMESTAMP '{month}-01' + (hash(i, 3) % (28 * 86400))::INTEGER * INTERVAL 1 SECOND END AS pickup
                FROM range({trips}) AS numbers(i)
            )
        """).write_parquet(str(path), compression="zstd")  # noqa: S608  # numbers, and a month of ours


def release_month(plan: ReleasePlan, source: Path, month: str, target: Path) -> dict[str, float]:
    """Make a durable release from a file, check its invariants, and return the seconds of each step."""
    start = time.perf_counter()
    tree = plan.tree
    load_records(source, TLC.columns, month, target, record_format=TLC, geography=tree.origin)
    loaded = time.perf_counter()
    trips = count_records_in_memory(target, tree)
    counted = time.perf_counter()
    with durable_release(plan, trips, resolve_noise_source("table")) as (release, seconds):
        check_invariants(release, trips.total)
    return {"load": loaded - start, "count": counted - loaded, "release": seconds["total"], "trips": trips.total}


def main() -> None:
    """Write the files, release all of them and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="few trips, to see that it runs")
    options = parser.parse_args()
    months = MONTHS[:2] if options.small else MONTHS
    trips = 20_000 if options.small else 100_000_000 // len(MONTHS) + 1
    plan = plan_release(
        geography(), unit=PrivacyUnit("trip"), budget=Budget(epsilon=1, delta="1e-8"), acceptance=NO_FAULTS
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder, staged = Path(name), Path(name) / "staged"
        staged.mkdir(mode=CONFIDENTIAL_FOLDER_MODE)
        for month in steps(months, "files"):
            make_month(month, trips, folder / f"yellow_tripdata_{month}.parquet")
        before = read_peak_memory_gigabytes()
        for month in steps(months, "releases"):
            source = folder / f"yellow_tripdata_{month}.parquet"
            rows.append({"month": month} | release_month(plan, source, month, staged / "records.parquet"))
    total = {step: sum(row[step] for row in rows) for step in ("load", "count", "release", "trips")}
    memory = {"peak_memory_gigabytes": read_peak_memory_gigabytes(), "of_it_before": before}
    printed({"machine": machine(), "total": total | memory, "months": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
