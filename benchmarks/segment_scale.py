"""Measure time and memory from a file of raw records to a release by segment.

- ``hours``: 100 million records between 264 zones, by the hour of their time (24 categories), in one pass.
- ``sections``: 28.8 million records between 357,708 census sections, by four groups of days, in parts.

Each case runs in its own process. The seconds are wall time. Those of the release include the ledger and durable
measurements; epsilon is 1, and the noise is ``table``.

python -m benchmarks.segment_scale --json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.counting import NATION, PERIOD, REGION, geography, make_records, make_zones
from benchmarks.durable import durable_release
from benchmarks.measuring import fresh_process, machine, printed, read_peak_memory_gigabytes, reset_peak_memory
from benchmarks.parts import CUTS, parted_release
from od_core import Budget, PrivacyUnit, plan_release
from od_core.flows.bands import Bands
from od_core.flows.parts import Threads
from od_core.flows.staging import StagedRelease
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_records
from od_core.records.formats import RecordColumns
from od_core.records.load import load_records
from od_core.records.segments import DAYS, SegmentSource
from od_core.warmup import compile_all_kernels

CITY = (6, 12, 24, 66, 264)
_GROUP = {day: "weekend" if day in DAYS[5:] else day if day in ("monday", "friday") else "midweek" for day in DAYS}


class Case(NamedTuple):
    """A data set and how it is released.

    Attributes:
        records: number of records.
        zones: number of areas of each level, coarsest first.
        source: where the category of a record comes from.
        in_parts: whether the levels below ``CUTS`` are released in parts.
    """

    records: int
    zones: tuple[int, ...]
    source: SegmentSource
    in_parts: bool


BY_HOUR = SegmentSource("hour", "date", "hour")
BY_DAYS = SegmentSource("days", "date", "day_of_week", lookup=tuple(_GROUP.items()))
CASES = {
    "hours": Case(100_000_000, CITY, BY_HOUR, in_parts=False),
    "sections": Case(28_800_000, NATION, BY_DAYS, in_parts=True),
}
SMALL = {
    "hours": Case(20_000, CITY, BY_HOUR, in_parts=False),
    "sections": Case(20_000, REGION, BY_DAYS, in_parts=True),
}


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Write the records of a case, release them, and return seconds, memory and sizes."""
    make_zones(case.zones, folder)
    make_records(case.records, folder, times=True)
    compile_all_kernels()
    staged, public = StagedRelease(folder), geography(folder)
    segments = {case.source.breakdown: case.source.given or ()}
    plan = plan_release(
        public,
        unit=PrivacyUnit("trip"),
        budget=Budget(epsilon=1, delta="1e-8"),
        bands=Bands(CUTS, max(2_000, case.records // 30)) if case.in_parts else None,
        acceptance=NO_FAULTS,
        segments=segments,
    )
    _ = plan.digest
    reset_peak_memory()
    start = time.perf_counter()
    columns = RecordColumns(date="date", segments=(case.source,))
    load_records(folder / "trips.parquet", columns, PERIOD, staged.records)
    loaded = time.perf_counter()
    folder_of_counts, listed = staged.begin_trip_counts(), plan.breakdowns
    counts = count_records(staged.records, plan.tree, staged.store, folder_of_counts, breakdowns=listed)
    counted = time.perf_counter()
    reading_peak = read_peak_memory_gigabytes()
    reset_peak_memory()
    noise = resolve_noise_source("table")
    if case.in_parts:
        with parted_release(plan, counts, noise, Threads()) as (parted, _):
            cells = sum(own[case.source.breakdown].size for _, own in parted.segment_pieces())
    else:
        with durable_release(plan, counts.read_all(), noise) as (release, _):
            cells = release.segments[case.source.breakdown].size
    end = time.perf_counter()
    return {
        "records": case.records,
        "categories": len(listed[0].categories),
        "load_seconds": loaded - start,
        "count_seconds": counted - loaded,
        "release_seconds": end - counted,
        "seconds": end - start,
        "reading_peak_memory_gigabytes": reading_peak,
        "peak_memory_gigabytes": read_peak_memory_gigabytes(),
        "released_cells": cells,
    }


def main() -> None:
    """Run every case, in a child process unless the records are few, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="few records, to see that it runs")
    parser.add_argument("--case", choices=CASES, help="run a single case")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [options.case] if options.case else list(CASES)
    rows = []
    for name in names:
        if options.small or options.child:
            with tempfile.TemporaryDirectory() as folder:
                rows.append({"case": name} | measure((SMALL if options.small else CASES)[name], Path(folder)))
        else:
            rows.append(json.loads(fresh_process("benchmarks.segment_scale", "--case", name, "--child")))
    if options.child:
        print(json.dumps(rows[0]))
        return
    printed({"machine": machine(), "cases": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
