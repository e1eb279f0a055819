"""Measure a level, or read records, in a process whose files may not grow beyond a limit, as on a full disk."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np

from od_core.archive.confidential import ConfidentialFolder
from od_core.archive.ledger import Ledger
from od_core.archive.measurements import begin_release
from od_core.archive.release_key import ReleaseKey
from od_core.readers.records import RecordColumns, load_records
from od_core.trips import count_trips
from tests.od_core.archive.ledger_rows import FLOWS, small_plan

KEY = ReleaseKey("commuters", "2001-06")
PLAN = small_plan()
VALUES = np.random.default_rng(2).integers(-(2**60), 2**60, 200_000)
"""About 1.6 MB in a file."""


def begun(folder: Path, ledger: Ledger):
    confidential = ConfidentialFolder(folder / "confidential")
    return begin_release(confidential, ledger, KEY, "commuters", PLAN, count_trips(FLOWS, PLAN.tree))


def read_records(folder: Path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    load_records(folder / "trips.parquet", RecordColumns(), "2001-06", folder / "confidential" / "raw_trips.parquet")


def measure(folder: Path, limit: int) -> None:
    measurements = begun(folder, Ledger(folder / "ledger.sqlite"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    def draw():
        print("drawn", flush=True)
        return VALUES

    measurements.once(PLAN.step(1), draw)


if __name__ == "__main__":
    {"measure": measure, "read": read_records}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
