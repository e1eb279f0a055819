"""Databases of other versions of the software: older ones are continued, newer ones are refused unchanged."""

import json
import struct
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from od_core import Budget, Geography, OdError, PrivacyUnit, ReleaseKey, open_release, release_flows
from od_core.flows.publishing.kind import FLOWS
from od_core.publication.database import FORMAT, list_stored_releases
from tests.od_core.publication.examples import KEY, facts

OLD = Path(__file__).with_name("database_0_1_0.sql").read_text(encoding="utf-8")
LATER = ReleaseKey("commuters", "2001-07")


@pytest.fixture
def old(tmp_path):
    """A database with the release of June that version 0.1.0 made."""
    database = tmp_path / "release.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(OLD)
    return database


@pytest.fixture(scope="module")
def july():
    """A release of July over the same areas."""
    zones = pd.DataFrame([("n", "n1"), ("n", "n2"), ("s", "s1")], columns=["region", "zone"], dtype="str")
    trips = pd.DataFrame({"origin": ["n1", "s1"], "destination": ["s1", "s1"], "trips": [120, 300]})
    geography = Geography.from_frame(zones, ["region", "zone"])
    unit = PrivacyUnit("trip", neighbours="bounded")
    return release_flows(trips, geography, unit=unit, budget=Budget(epsilon=1, delta="1e-8"))


def query(database, sql):
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_a_database_of_version_0_1_0_is_read_verified_and_continued(old, july):
    before = open_release(old)
    [(certificate,)] = query(old, "SELECT certificate FROM releases")
    assert json.loads(certificate)["software"]["od-release"] == "0.1.0"
    assert list_stored_releases(old) == [KEY]

    FLOWS.store(old, july, LATER, facts(july, LATER))
    assert query(old, "FROM format") == [(FORMAT,)]
    assert list_stored_releases(old) == [KEY, LATER]
    assert list(FLOWS.find_differences(old, july, LATER, facts(july, LATER))) == []

    after = open_release(old, period="2001-06")
    assert list(FLOWS.find_differences(old, after, KEY, json.loads(certificate))) == []
    pd.testing.assert_frame_equal(after.flows, before.flows)
    pd.testing.assert_frame_equal(after.measurements, before.measurements)
    whole = "(origin, destination) = ('all', 'all')"
    totals = query(old, f"SELECT trips FROM flows_by_level WHERE {whole} ORDER BY release")
    assert totals == [(before.flows["trips"].sum(),), (july.flows["trips"].sum(),)]


def test_a_database_of_a_newer_format_is_refused_unchanged(old, july):
    FLOWS.store(old, july, LATER, facts(july, LATER))
    with duckdb.connect(str(old)) as connection:
        connection.execute("UPDATE format SET version = version + 1")
    said = rf"release\.duckdb has format {FORMAT + 1}, .* reads up to format {FORMAT} .*od-release that"
    refuse_everywhere(old, july, said)


def test_a_file_of_a_newer_duckdb_is_refused_unchanged(old, july):
    """And not called broken: the next step would be to remove it."""
    content = bytearray(old.read_bytes())
    assert content[8:12] == b"DUCK"
    content[12:20] = struct.pack("<Q", 1 << 20)  # the version of the storage, in the first block of 4096 bytes
    content[:8] = struct.pack("<Q", checksum(content[8:4096]))
    old.write_bytes(content)
    refuse_everywhere(old, july, "a newer version of DuckDB than .* version of DuckDB that wrote it")


@pytest.mark.representatives("None")
@pytest.mark.parametrize("earlier", [None, "latest", "v1.2.0"])
def test_the_lowest_allowed_duckdb_reads_the_storage(tmp_path, july, earlier):
    """Read from the header of the file, made anew or continued; a file of a newer storage is rewritten, with all."""
    database = tmp_path / "release.duckdb"
    if earlier is not None:
        with duckdb.connect() as connection:
            connection.execute(f"ATTACH '{database}' AS old (STORAGE_VERSION '{earlier}'); USE old")
            connection.execute(OLD)
    for key in (LATER, ReleaseKey("commuters", "2001-08")):
        FLOWS.store(database, july, key, facts(july, key))
        assert struct.unpack("<Q", database.read_bytes()[12:20]) == (64,)
        assert query(database, "SELECT block_size FROM pragma_database_size()") == [(1 << 16,)]
    assert list_stored_releases(database) == [*([KEY] if earlier else []), LATER, key]
    assert {path.name for path in tmp_path.iterdir()} == {"release.duckdb", ".release.duckdb.lock"}
    [(tables, described)] = query(database, "SELECT count(*), count(comment) FROM duckdb_tables()")
    assert tables == described > 5
    open_release(database, period="2001-07")


@pytest.mark.representatives("settings0")
@pytest.mark.parametrize("settings", [{"read_only": True}, {}, {"config": {"threads": 1}}])
def test_a_release_is_opened_beside_the_readers_own_connection(tmp_path, july, settings):
    """In one process, DuckDB opens a file with one configuration alone."""
    database = tmp_path / "release.duckdb"
    FLOWS.store(database, july, LATER, facts(july, LATER))
    with duckdb.connect(str(database), **settings) as own:
        opened = open_release(database)
        assert own.execute("SELECT sum(trips) FROM flows").fetchone() == (opened.flows["trips"].sum(),)
    pd.testing.assert_frame_equal(opened.flows, july.flows)


def test_what_the_readers_own_connection_wrote_is_seen_beside_it(tmp_path, july):
    """DuckDB keeps it in a log beside the file at first."""
    database = tmp_path / "release.duckdb"
    FLOWS.store(database, july, LATER, facts(july, LATER))
    with duckdb.connect(str(database)) as own:
        own.execute("DELETE FROM releases")
        assert database.with_name("release.duckdb.wal").exists()
        with pytest.raises(OdError, match="OD-RELEASE-KIND: commuters"):
            open_release(database)


def checksum(block: bytes) -> int:
    """DuckDB's checksum of a block."""
    found = 5381
    for (word,) in struct.iter_unpack("<Q", block):
        found ^= word * 0xBF58476D1CE4E5B9 % 2**64
    return found


def refuse_everywhere(database, july, message):
    """Refuse to open, to list, to verify and to store, by one code; and change nothing."""
    content = database.read_bytes()
    certificate = facts(july, LATER)
    uses = (
        lambda: open_release(database),
        lambda: list_stored_releases(database),
        lambda: [*FLOWS.find_differences(database, july, LATER, certificate)],
        lambda: FLOWS.store(database, july, LATER, certificate),
    )
    for use in uses:
        with pytest.raises(OdError, match=message) as refused:
            use()
        assert refused.value.code == "OD-DATABASE-NEWER"
    assert database.read_bytes() == content
    assert {path.name for path in database.parent.iterdir()} == {"release.duckdb", ".release.duckdb.lock"}
