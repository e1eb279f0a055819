"""The release database: its view at every pair of levels, releases side by side, and readers that hold it."""

import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from od_core import OdError, ReleaseKey
from od_core.flows.publishing.kind import FLOWS
from od_core.publication import database as store_module
from tests.od_core.files.disks import room_for
from tests.od_core.publication.examples import KEY, LEVELS, by_hand, facts, release

TABLES = ("releases", "areas", "flows", "measurements", "checks")


def contents(database):
    """All rows of all tables and of the view, in a fixed order."""
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in (*TABLES, "flows_by_level")}
        return {name: sorted(found, key=repr) for name, found in rows.items()}


SOME = ("unbounded origin tree", "unknown zones", "no trips")
"""Both sorts of neighbours and trees, other destinations, unknown zones and no trips each occur."""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """One database with some kinds of releases of the same name and period."""
    database = tmp_path_factory.mktemp("shelf") / "release.duckdb"
    keys = {kind: ReleaseKey("commuters", "2001-06", number) for number, kind in enumerate(SOME, start=1)}
    for kind, key in keys.items():
        FLOWS.store(database, release(kind), key, facts(release(kind), key))
    return database, keys


def test_a_disk_that_refuses_a_part_of_the_database_is_told_of(tmp_path):
    """Nothing is left behind, and the release is stored once there is room."""
    database = tmp_path / "release.duckdb"
    with pytest.raises(OdError, match="OD-DISK-WRITE"), room_for(200_000):
        FLOWS.store(database, release(), KEY, facts(release()))
    FLOWS.store(database, release(), KEY, facts(release()))
    assert {path.name for path in tmp_path.iterdir()} == {"release.duckdb", ".release.duckdb.lock"}
    assert len(contents(database)["releases"]) == 1


@pytest.mark.parametrize("kind", SOME)
def test_the_view_is_the_sum_of_the_leaves_at_every_pair_of_levels(shelf, kind):
    """The whole space included, beside other releases, over other destinations; whole numbers, no pair twice."""
    database, keys = shelf
    with duckdb.connect(str(database), read_only=True) as connection:
        view = connection.execute("SELECT * FROM flows_by_level WHERE release = ?", [str(keys[kind])]).df()
        kinds = connection.execute("DESCRIBE flows_by_level").fetchall()
        [(stated,)] = connection.execute("SELECT trips FROM releases WHERE release = ?", [str(keys[kind])]).fetchall()
    assert [row[1] for row in kinds if row[0] == "trips"] == ["BIGINT"]
    made, names = release(kind), ["all", *LEVELS]
    found: dict[tuple[str, str], dict[tuple[str, str], int]] = {(o, d): {} for o in names for d in names}
    for row in view.itertuples(index=False):
        cells = found[row.origin_level, row.destination_level]
        assert (row.origin, row.destination) not in cells
        cells[row.origin, row.destination] = row.trips
    for (origin_level, destination_level), cells in found.items():
        assert cells == by_hand(made, origin_level, destination_level)
    total = int(made.flows["trips"].sum())
    assert found["all", "all"] == ({("all", "all"): total} if total else {})
    assert stated == total


def test_what_is_no_database_is_refused_without_waiting_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_LOCK_SECONDS", math.inf)
    database = tmp_path / "release.duckdb"
    database.write_bytes(b"no database" * 5000)
    with pytest.raises(OdError, match="OD-DATABASE-BROKEN:"):
        FLOWS.store(database, release(), KEY, facts(release()))
    assert database.read_bytes() == b"no database" * 5000


@pytest.fixture
def holder():
    """Start a program that has a database open, for reading or for writing, until its standard input is closed."""
    with ExitStack() as running:

        def start(database, how):
            command = [sys.executable, str(Path(__file__).with_name("holder.py")), str(database), how]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            running.enter_context(process)
            assert process.stdout.readline() == "held\n"
            return process

        yield start


def test_a_reader_keeps_what_it_reads_and_keeps_no_writer_waiting(tmp_path, holder, monkeypatch):
    monkeypatch.setattr(store_module, "_LOCK_SECONDS", 0.5)
    database, second = tmp_path / "release.duckdb", ReleaseKey("commuters", "2001-06", 2)
    FLOWS.store(database, release(), KEY, facts(release()))
    reader = holder(database, "reading")
    FLOWS.store(database, release(), second, facts(release(), second))
    assert reader.communicate()[0] == "1\n"
    assert {row[0] for row in contents(database)["releases"]} == {str(KEY), str(second)}


def test_a_writer_that_holds_the_file_is_waited_for(tmp_path, holder, monkeypatch):
    """First for longer than the store waits, then for less; a refused store changes nothing."""
    database, second = tmp_path / "release.duckdb", ReleaseKey("commuters", "2001-06", 2)
    FLOWS.store(database, release(), KEY, facts(release()))
    before = database.read_bytes()
    writer = holder(database, "writing")
    monkeypatch.setattr(store_module, "_LOCK_SECONDS", 0.5)
    with pytest.raises(OdError, match="OD-DATABASE-LOCKED:") as refused:
        FLOWS.store(database, release(), second, facts(release(), second))
    assert "release.duckdb is open in another process" in refused.value.message
    assert database.read_bytes() == before

    monkeypatch.setattr(store_module, "_LOCK_SECONDS", 30.0)
    letting_go = threading.Timer(0.6, writer.stdin.close)
    letting_go.start()
    FLOWS.store(database, release(), second, facts(release(), second))
    letting_go.join()
    assert {row[0] for row in contents(database)["releases"]} == {str(KEY), str(second)}


@pytest.mark.slow
def test_rows_that_a_killed_program_left_in_the_log_stay(tmp_path, holder):
    """A database that an earlier version wrote may have a log beside it, which nothing but DuckDB may remove."""
    database, second = tmp_path / "release.duckdb", ReleaseKey("commuters", "2001-06", 2)
    FLOWS.store(database, release(), KEY, facts(release()))
    writer = holder(database, "writing")
    writer.kill()
    writer.wait()
    assert database.with_name("release.duckdb.wal").stat().st_size > 0
    FLOWS.store(database, release(), second, facts(release(), second))
    assert not database.with_name("release.duckdb.wal").exists()
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("FROM notes").fetchall() == [("a note",)]
    assert {row[0] for row in contents(database)["releases"]} == {str(KEY), str(second)}


def test_stores_at_once_all_arrive(tmp_path):
    """In threads of one process; each replaces the whole database."""
    database, keys = tmp_path / "release.duckdb", [ReleaseKey("commuters", "2001-06", number) for number in range(1, 5)]
    with ThreadPoolExecutor(3) as threads:
        for _ in threads.map(lambda key: FLOWS.store(database, release(), key, facts(release(), key)), keys):
            pass
    assert {row[0] for row in contents(database)["releases"]} == set(map(str, keys))


def test_a_damaged_database_is_called_broken_where_its_rows_are_met(tmp_path):
    database = tmp_path / "release.duckdb"
    FLOWS.store(database, release(), KEY, facts(release()))
    with database.open("r+b") as file:
        for block in range(12_288, database.stat().st_size, 262_144):
            file.seek(block + 100)
            file.write(b"damage")
    with pytest.raises(OdError, match="OD-DATABASE-BROKEN"):
        FLOWS.store(database, release(), KEY, facts(release()))
    with pytest.raises(OdError, match="OD-DATABASE-BROKEN"):
        store_module.list_stored_releases(database)


def test_one_flipped_bit_anywhere_is_found(tmp_path):
    """In what is met when the file is opened, in rows, and in an index; nothing is stored in such a database."""
    database, copy = tmp_path / "release.duckdb", tmp_path / "copy.duckdb"
    FLOWS.store(database, release(), KEY, facts(release()))
    store_module.read_every_row(database)
    content = database.read_bytes()
    for block in range(12_288, len(content), 262_144):
        flipped = bytearray(content)
        flipped[block + 4321] ^= 4
        copy.write_bytes(flipped)
        with pytest.raises(OdError, match=r"OD-DATABASE-BROKEN: copy\.duckdb is (damaged|not a release database)"):
            store_module.read_every_row(copy)
        with pytest.raises(OdError, match="OD-DATABASE-BROKEN"):
            FLOWS.store(copy, release(), KEY, facts(release()))


def test_a_removed_release_leaves_no_trace_in_the_file(tmp_path):
    database, second = tmp_path / "release.duckdb", ReleaseKey("commuters", "2001-06", 2)
    for key in (KEY, second):
        FLOWS.store(database, release(), key, facts(release(), key))
    before = contents(database)
    store_module.remove_release(database, second)
    after = contents(database)
    assert str(second).encode() not in database.read_bytes()
    assert after == {table: [row for row in rows if str(second) not in row] for table, rows in before.items()}
    FLOWS.store(database, release(), second, facts(release(), second))
    assert store_module.list_stored_releases(database) == [KEY, second]


def test_a_release_without_intervals_has_none_in_the_database(tmp_path):
    """They were switched off, or it was certified before there were any; later ones have theirs beside it."""
    database, second = tmp_path / "release.duckdb", ReleaseKey("commuters", "2001-06", 2)
    older = {name: fact for name, fact in facts(release()).items() if name != "interval"}
    FLOWS.store(database, release(), KEY, older)
    FLOWS.store(database, release(), second, facts(release(), second))
    with duckdb.connect(str(database), read_only=True) as connection:
        found = connection.execute("SELECT release, count(*) FROM flow_intervals GROUP BY ALL").fetchall()
    tree = release().plan.tree
    levels = sum(tree.origin.area_counts.values()) * sum(tree.destination.area_counts.values())
    assert found == [(str(second), levels)]


@pytest.mark.parametrize(("bundle_format", "interval"), [(2, True), (3, False), (4, True)])
def test_indicators_are_those_of_the_bundle(tmp_path, bundle_format, interval):
    """A bundle of format 2 has none, and one of format 3 has no balance."""
    made = release()
    certificate = facts(made) | {"bundle_format": bundle_format} | ({} if interval else {"interval": None})
    FLOWS.store(tmp_path / "release.duckdb", made, KEY, certificate)
    files = {file.name: file for file in FLOWS.list_files(made, certificate)}
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as connection:
        rows = connection.execute("SELECT * EXCLUDE release FROM indicators ORDER BY rowid").df()
        without = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'indicators' AND comment IS NULL"
        uncommented = connection.execute(without).fetchall()
    assert uncommented == []
    if "indicators.parquet" not in files:
        assert (bundle_format, len(rows)) == (2, 0)
        return
    with (tmp_path / "indicators.parquet").open("wb") as file:
        files["indicators.parquet"].write(file)
    published = pd.read_parquet(tmp_path / "indicators.parquet")
    assert len(published) > 0
    pd.testing.assert_frame_equal(rows[[*published.columns]], published, check_dtype=False)
    assert rows.drop(columns=published.columns).isna().all(axis=None)


def test_intervals_of_large_pairs_of_levels_are_left_to_the_bundle(tmp_path, monkeypatch):
    monkeypatch.setattr("od_core.flows.publishing.kind.MAX_STORED_CELLS", 10)
    FLOWS.store(tmp_path / "release.duckdb", release(), KEY, facts(release()))
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as connection:
        found = connection.execute("SELECT DISTINCT origin_level, destination_level FROM flow_intervals").fetchall()
    sizes = release().plan.tree.origin.area_counts
    assert {*found} == {(o, d) for o in sizes for d in sizes if sizes[o] * sizes[d] <= 10}
