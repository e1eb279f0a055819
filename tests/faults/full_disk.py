"""Measure a level, or read records, in a process whose files may not grow beyond a limit, as on a full disk."""

import resource
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from od_core.flows.publishing.kind import FLOWS as FLOW_KIND
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import DurableMeasurements, begin_release
from od_core.ledger.release_key import ReleaseKey
from od_core.records.counting import count_trips
from od_core.records.load import RecordColumns, load_records
from tests.od_core.ledger.ledger_rows import FLOWS, domain, small_plan
from tests.od_core.publication.examples import KEY as EXAMPLE_KEY
from tests.od_core.publication.examples import facts, release

KEY = ReleaseKey("commuters", "2001-06")
PLAN = small_plan()
VALUES = np.random.default_rng(2).integers(-(2**60), 2**60, 200_000)
"""About 1.6 MB in a file."""


def begun(folder: Path, ledger: Ledger) -> DurableMeasurements:
    confidential = ConfidentialFolder(folder / "confidential")
    return begin_release(confidential, ledger, KEY, "commuters", PLAN, count_trips(FLOWS, PLAN.tree))


def read_records(folder: Path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    load_records(folder / "trips.parquet", RecordColumns(), "2001-06", folder / "confidential" / "raw_trips.parquet")


def drawn() -> list[NDArray[np.int64]]:
    print("drawn", flush=True)
    return [VALUES]


def measure(folder: Path, limit: int) -> None:
    measurements = begun(folder, Ledger(folder / "ledger.sqlite"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    measurements.draw_once(PLAN.step(1), drawn)


def measure_where_the_ledger_is_full(folder: Path, _limit: int) -> None:
    """The ledger can still be read, but its log has no room for one more row."""
    ledger = Ledger(folder / "ledger.sqlite")
    measurements, log = begun(folder, ledger), folder / "ledger.sqlite-wal"
    with closing(sqlite3.connect(ledger.path)) as open_ledger:
        open_ledger.execute("SELECT count(*) FROM entries").fetchall()  # while it is open, its log stays and grows
        for cap in range(2, 100):
            ledger.declare(domain(cap, f"reason {cap}"))
            if log.stat().st_size > 100_000:
                break
        limit = log.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        measurements.draw_once(PLAN.step(1), drawn)


def create_database(folder: Path, limit: int) -> None:
    """Die in the middle of DuckDB's first writes: the system kills a process whose file grows beyond the limit."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    FLOW_KIND.store(folder / "public" / "release.duckdb", release(), EXAMPLE_KEY, facts(release()))


KINDS = {
    "database": create_database,
    "measure": measure,
    "read": read_records,
    "full ledger": measure_where_the_ledger_is_full,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
