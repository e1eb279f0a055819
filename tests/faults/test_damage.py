"""What is lost, damaged or held by others between two runs: refused by name, and whole again once it is put back.

Each fault meets a release that is stopped between two levels and one that is published.
"""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pandas as pd
import pytest

from od_core import OdError, open_release
from od_core.ledger import chain, postgres_chain
from od_core.noise.opendp import OpenDPNoise
from od_core.publication import database as store
from od_core.publication.templates import render_template
from tests.faults.account import assert_account, drawn, measurement_files
from tests.faults.publisher import publish
from tests.faults.worker import LEVEL_RHO, R1, RHO, declare, side_file, watched
from tests.od_core.ledger.ledger_rows import FLOWS, charged, put_back, rows
from tests.od_core.publication import test_database
from tests.postgres import server_of, session, without_guards

Broken = Callable[[Path], object]


def changed_byte(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def edited_row(folder: Path) -> None:
    """One digit of one entry, where it stands in the file or in the table."""
    path = folder / "ledger.sqlite"
    if server_of(path):
        without_guards(path, "UPDATE entries SET rho = '1/8' WHERE kind = 'RESERVED' AND level = 2")
        return
    changed_byte(path, path.read_bytes().index(str(LEVEL_RHO).encode()))


def half_ledger(folder: Path) -> None:
    path = folder / "ledger.sqlite"
    if server_of(path):
        without_guards(path, "DELETE FROM entries WHERE number <= (SELECT max(number) / 2 FROM entries)")
        return
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def older_ledger(folder: Path) -> None:
    """The backup of before the last level was measured."""
    path, older = folder / "ledger.sqlite", folder / "older.ledger"
    put_back(path, json.loads(older.read_text()) if server_of(path) else older.read_bytes())


def first_measurement(folder: Path) -> Path:
    return folder / "confidential" / R1 / "noisy_measurement_1.draw_1.parquet"


LASTING: dict[str, tuple[Broken, str]] = {
    "ledger missing": (lambda folder: put_back(folder / "ledger.sqlite", None), "OD-LEDGER-ROLLED-BACK"),
    "ledger truncated": (half_ledger, "OD-LEDGER-BROKEN"),
    "ledger edited by a byte": (edited_row, "OD-LEDGER-BROKEN"),
    "ledger from a backup": (older_ledger, "OD-LEDGER-ROLLED-BACK"),
    "measurement missing": (lambda folder: first_measurement(folder).unlink(), "OD-MEASUREMENT-CHANGED"),
    "measurement changed": (lambda folder: changed_byte(first_measurement(folder), -20), "OD-MEASUREMENT-CHANGED"),
    "key lost": (lambda folder: (folder / "confidential" / "hmac.key").unlink(), "OD-KEY-LOST"),
    "fingerprint lost": (
        lambda folder: (folder / "confidential" / R1 / "identity.json").unlink(),
        "OD-IDENTITY-MISSING",
    ),
}
"""What is done to the folder, and the code of the refusal."""


@contextmanager
def ledger_locked(folder: Path) -> Iterator[None]:
    path = folder / "ledger.sqlite"
    if server_of(path):
        with session(path) as holder, holder.transaction():
            holder.execute("SELECT pg_advisory_xact_lock(%s)", (postgres_chain._TRANSACTIONS,))
            yield
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def database_written(folder: Path) -> Iterator[None]:
    """Another program has the public database open for writing."""
    holder = str(Path(test_database.__file__).with_name("holder.py"))
    command = [sys.executable, holder, str(folder / "release.duckdb"), "writing"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        yield
        writer.communicate()


def keep_a_backup(folder: Path) -> None:
    """What is in a SQLite file's log, too, is in the backup that SQLite makes."""
    path, older = folder / "ledger.sqlite", folder / "older.ledger"
    if server_of(path):
        older.write_text(json.dumps(rows(path)))
        return
    with closing(sqlite3.connect(path)) as ledger, closing(sqlite3.connect(older)) as backup:
        ledger.backup(backup)


@pytest.fixture(params=["stopped", "published"])
def begun(engine, tmp_path, monkeypatch, request) -> Path:
    """A release after its second level or published, and beside it a backup of the ledger from its last draw."""
    declare(tmp_path, Fraction(1))

    def keep_and_stop(noise, variance, level, first, size):
        if level == 3 and request.param == "stopped":
            raise KeyboardInterrupt
        keep_a_backup(tmp_path)
        return real(noise, variance, level, first, size)

    real = watched(side_file(tmp_path))
    monkeypatch.setattr(OpenDPNoise, "draw", keep_and_stop)
    if request.param == "stopped":
        with pytest.raises(KeyboardInterrupt):
            publish(tmp_path)
    else:
        publish(tmp_path)
    monkeypatch.setattr(OpenDPNoise, "draw", watched(side_file(tmp_path)))
    monkeypatch.setattr(chain, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(postgres_chain.PostgresChain, "_begin", postgres_chain._BEGIN.replace("'60.0s'", "'0.2s'", 1))
    monkeypatch.setattr(store, "_LOCK_SECONDS", 0.2)
    return tmp_path


def all_files(folder: Path, *under: str) -> dict[str, bytes]:
    places = [folder / name for name in under] if under else [folder]
    return {str(path): path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}


def assert_refused(folder: Path, code: str, flows: pd.DataFrame = FLOWS) -> None:
    """Twice alike, with a state and a next step; nothing is drawn, measured or published."""
    public, draws, measured = all_files(folder, "releases"), drawn(folder), measurement_files(folder)
    for _ in range(2):
        with pytest.raises(OdError, match=f"{code}:") as refused:
            publish(folder, flows=flows)
        assert refused.value.next_step
        assert "\n" not in str(refused.value)
        assert (all_files(folder, "releases"), drawn(folder), measurement_files(folder)) == (public, draws, measured)
    if public:
        for place in ("releases/r1", "release.duckdb"):
            assert open_release(folder / place).spent.rho == RHO


def assert_ends_well(folder: Path, measured: dict[str, str]) -> None:
    """The release is published from what was measured, charged for its plan and what was lost."""
    public = all_files(folder, "releases")
    publish(folder)
    assert all_files(folder, "releases").items() >= public.items()
    assert measurement_files(folder).items() >= measured.items()
    stopped = int(len(measured) < 4)  # its third level was DRAWING when it stopped
    assert charged(folder / "ledger.sqlite") == RHO + stopped * LEVEL_RHO
    assert_account(folder)
    back = open_release(folder / "releases/r1")
    pd.testing.assert_frame_equal(open_release(folder / "release.duckdb").flows, back.flows)
    assert back.spent.rho == RHO + stopped * LEVEL_RHO


@pytest.mark.parametrize("fault", LASTING)
def test_what_is_lost_or_damaged_is_refused_until_it_is_put_back(begun, fault):
    damage, code = LASTING[fault]
    whole, measured, history = all_files(begun), measurement_files(begun), rows(begun / "ledger.sqlite")
    damage(begun)
    damaged = {name: content for name, content in all_files(begun).items() if "confidential" in name}
    assert_refused(begun, code)
    after = all_files(begun)
    assert {name: after[name] for name in after if "confidential" in name} == damaged  # a lost key is not made anew
    for name in after.keys() - whole.keys():
        Path(name).unlink()
    for name, content in whole.items():
        Path(name).write_bytes(content)
    if server_of(begun / "ledger.sqlite"):
        put_back(begun / "ledger.sqlite", history)
    assert_ends_well(begun, measured)


@pytest.mark.parametrize("change", ["a trip more", "another destination"])
def test_other_records_are_refused_and_the_right_ones_taken_again(begun, change):
    measured, history = measurement_files(begun), rows(begun / "ledger.sqlite")
    other = FLOWS.assign(trips=[41, 7, 1, 300]) if change == "a trip more" else FLOWS.assign(destination="ba")
    assert_refused(begun, "OD-REPLAY-INPUT-CHANGED", other)
    assert rows(begun / "ledger.sqlite") == history
    assert_ends_well(begun, measured)


def test_a_locked_ledger_is_waited_for_and_named(begun):
    measured = measurement_files(begun)
    with ledger_locked(begun):
        assert_refused(begun, "OD-LEDGER-UNAVAILABLE")
    assert_ends_well(begun, measured)


def test_a_database_that_somebody_writes_is_waited_for_and_named(begun):
    """What is to be measured is measured meanwhile; nothing of it is public before the writer is gone."""
    with duckdb.connect(str(begun / "release.duckdb")) as connection:
        shared = render_template("database/shared.sql", format=store.FORMAT)
        connection.execute(shared + render_template("database/flows.sql", release=SimpleNamespace(breakdowns=())))
    public = all_files(begun, "releases")
    for _ in range(2):
        with database_written(begun), pytest.raises(OdError, match=r"OD-DATABASE-LOCKED: .*; next: close the programs"):
            publish(begun)
        assert all_files(begun, "releases") == public
        assert len(measurement_files(begun)) == 4
    history = rows(begun / "ledger.sqlite")
    publish(begun)
    assert [row["kind"] for row in rows(begun / "ledger.sqlite")[len(history) :]] == ([] if public else ["PUBLISHED"])
    assert all_files(begun, "releases").items() >= public.items()
    assert_account(begun)
    back = open_release(begun / "releases/r1")
    pd.testing.assert_frame_equal(open_release(begun / "release.duckdb").flows, back.flows)
