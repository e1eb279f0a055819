"""A disk that is full: no half measurement, no draw that the ledger could not write down, and a charge on retry."""

import signal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core.flows.publishing.kind import FLOWS as FLOW_KIND
from od_core.ledger.ledger import Ledger
from od_core.publication.database import list_stored_releases
from tests.faults.full_disk import KEY, PLAN, VALUES, begun
from tests.od_core.ledger.ledger_rows import assert_chain, charged, domain, rows, states
from tests.od_core.publication.examples import KEY as EXAMPLE_KEY
from tests.od_core.publication.examples import facts, release

FIRST = Fraction(3, 70)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.declare(domain(1))
    return ledger


def files(folder):
    return sorted(path.name for path in (folder / "confidential" / str(KEY)).iterdir())


def assert_retried(folder, ledger, *, lost):
    """With room again, the level is drawn and kept; what was lost is paid for."""
    noisy = begun(folder, Ledger(ledger.path)).draw_once(PLAN.step(1), lambda: [VALUES + 1])
    np.testing.assert_array_equal(noisy.read_values(), VALUES + 1)
    assert charged(ledger.path) == Fraction(3, 7) + lost * FIRST
    assert files(folder) == ["identity.json", f"noisy_measurement_1.draw_{lost + 1}.parquet"]
    assert_chain(ledger.path)


def test_a_measurement_that_does_not_fit_leaves_no_half_file(tmp_path, ledger, started):
    process = started("full_disk", "measure", tmp_path, 400_000)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    assert output == "drawn\n"
    assert files(tmp_path) == ["identity.json"]
    assert states(ledger.path, str(KEY))[1] == "DRAWING"
    assert_retried(tmp_path, ledger, lost=1)


def test_nothing_is_drawn_that_the_ledger_cannot_write_down(tmp_path, ledger, started):
    process = started("full_disk", "full ledger", tmp_path, 0)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert output == ""
    assert "OD-LEDGER-UNAVAILABLE" in errors.splitlines()[-1]
    assert files(tmp_path) == ["identity.json"]
    assert states(ledger.path, str(KEY))[1] == "RESERVED"
    history = rows(ledger.path)
    assert_retried(tmp_path, ledger, lost=0)
    assert rows(ledger.path)[: len(history)] == history


@pytest.mark.parametrize("limit", [0, 5_000, 10_000, 300_000])
def test_a_process_killed_while_it_makes_the_database_blocks_none_after_it(tmp_path, started, limit):
    """DuckDB writes a file in steps, and opens none in which one is missing: it is made beside its place."""
    process = started("full_disk", "database", tmp_path, limit)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGXFSZ, errors
    database = tmp_path / "public" / "release.duckdb"
    assert not database.exists()
    FLOW_KIND.store(database, release(), EXAMPLE_KEY, facts(release()))
    assert EXAMPLE_KEY in list_stored_releases(database)
    assert {path.name for path in database.parent.iterdir()} == {database.name, f".{database.name}.lock"}


def test_a_full_disk_is_not_blamed_on_the_records(tmp_path, started):
    """Nothing is left behind, and the error tells the operator of the disk: the file of records is whole."""
    codes = [f"QX-CANARY-{k}" for k in np.random.default_rng(1).integers(10**9, size=200_000)]
    pq.write_table(pa.table({"origin": codes, "destination": codes}), tmp_path / "trips.parquet")
    (tmp_path / "confidential").mkdir(mode=0o700)
    process = started("full_disk", "read", tmp_path, 100_000)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert not list((tmp_path / "confidential").iterdir())
    assert "QX-CANARY" not in errors
    assert "OD-FILE-UNREADABLE" not in errors
    assert "correct the file" not in errors
