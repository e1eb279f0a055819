"""Every DuckDB connection reaches its own files alone, and no statement can open it again."""

import subprocess
import sys
from contextlib import suppress

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_core import FlowTree, OdError, open_release
from od_core.files import duckdb_session
from od_core.files.duckdb_session import connect_to_memory_database, locate_spill_folder, make_parquet_sql
from od_core.flows.publishing.kind import FLOWS as FLOW_KIND
from od_core.publication.database import list_stored_releases
from od_core.records.counting import count_records_in_memory
from od_core.records.formats import TABLE
from od_core.records.load import RecordColumns, load_records
from od_core.records.open_file import read_column_types
from tests.od_core.ledger.ledger_rows import FLOWS, GEOGRAPHY
from tests.od_core.publication.examples import KEY, facts, release


def escapes(connection, elsewhere) -> list[str]:
    """Statements that read or write another file, or change a setting, and were not refused."""
    (elsewhere / "other.csv").write_text("secret\n1\n")
    statements = [
        f"FROM read_csv('{elsewhere}/other.csv')",
        f"FROM read_text('{elsewhere}/*')",
        f"COPY (SELECT 1) TO '{elsewhere}/copied.parquet'",
        f"ATTACH '{elsewhere}/attached.duckdb'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET lock_configuration = false",
        "SET temp_directory = '/tmp'",
        "SET threads = 1",
        "RESET memory_limit",
    ]
    succeeded = []
    for statement in statements:
        try:
            connection.execute(statement)
        except duckdb.Error as error:
            if not any(words in str(error) for words in ("disabled by configuration", "has been locked")):
                succeeded.append(f"{statement}: {error}")
        else:
            succeeded.append(statement)
    return succeeded


class Probed:
    """A connection that is tried for a way out when its work is done."""

    def __init__(self, connection, elsewhere, found):
        self._connection, self._elsewhere, self._found = connection, elsewhere, found

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with suppress(duckdb.TransactionException):
            self._connection.execute("ROLLBACK")  # where the work left one open
        self._found.append(escapes(self._connection, self._elsewhere))
        self._connection.close()


@pytest.fixture
def probes(tmp_path, monkeypatch) -> list[list[str]]:
    """The ways out of each connection that a test has closed."""
    elsewhere, found, connect = tmp_path / "elsewhere", [], duckdb.connect
    elsewhere.mkdir()
    monkeypatch.setattr(duckdb, "connect", lambda *a, **named: Probed(connect(*a, **named), elsewhere, found))
    yield found
    assert [path.name for path in elsewhere.iterdir()] == ["other.csv"]


def test_the_memory_database_is_closed_and_its_connections_share_no_table(tmp_path):
    with connect_to_memory_database() as one, connect_to_memory_database() as other:
        one.register("records", FLOWS)
        one.execute("CREATE TEMP TABLE counted AS FROM records")
        for name in ("records", "counted"):
            with pytest.raises(duckdb.CatalogException):
                other.execute(f"FROM {name}")
        assert escapes(other, tmp_path) == []
    with connect_to_memory_database() as later, pytest.raises(duckdb.CatalogException):
        later.execute("FROM counted")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_records_are_read_and_counted_behind_closed_doors(tmp_path, probes, suffix):
    folder, source = tmp_path / "confidential", tmp_path / f"trips.{suffix}"
    folder.mkdir()
    FLOWS.to_csv(source, index=False) if suffix == "csv" else FLOWS.to_parquet(source)
    load_records(source, RecordColumns(trips="trips"), "2001-06", folder / "raw_trips.parquet")
    counts = count_records_in_memory(folder / "raw_trips.parquet", FlowTree(GEOGRAPHY, GEOGRAPHY))
    assert counts.total == FLOWS["trips"].sum()
    assert probes == [[], []]


def test_of_a_folder_and_a_source_nothing_beside_them_is_reached(tmp_path):
    """Also where names hold the signs that stand for many files."""
    folder, source = tmp_path / "con[f]*'s", tmp_path / "trips[1].csv"
    folder.mkdir()
    for path in (source, tmp_path / "trips1.csv", tmp_path / "trips2.csv"):
        path.write_text("a\n1\n")
    with duckdb_session.open_scratch_database(folder, source) as connection:
        assert connection.read_csv(f"{tmp_path}/trips[[]1].csv").fetchall() == [(1,)]
        connection.sql("SELECT 1 AS one").write_parquet(str(locate_spill_folder(folder) / "written.parquet"))
        (locate_spill_folder(folder) / "written.parquet").rename(folder / "kept.parquet")
        for other in ("trips1.csv", "trips2.csv", "trips*.csv", f"{folder.name}/../trips2.csv"):
            with pytest.raises(duckdb.PermissionException):
                connection.read_csv(f"{tmp_path}/{other}").fetchall()
        for closed in (tmp_path, folder):
            with pytest.raises(duckdb.PermissionException):
                connection.sql("SELECT 1 AS one").write_parquet(str(closed / "written.parquet"))
        with pytest.raises(duckdb.PermissionException):
            connection.sql(f"FROM {make_parquet_sql(folder / 'kept.parquet')}")
    assert pq.read_table(folder / "kept.parquet").to_pylist() == [{"one": 1}]
    assert not locate_spill_folder(folder).exists()


VIEWS = {
    "by its path": "read_parquet('{folder}/measured.parquet')",
    "by its bare path": "'{folder}/measured.parquet'",
    "by a pattern": "read_parquet('{folder}/*.parquet')",
    "through other folders": "read_parquet('{folder}/spill/../measured.parquet')",
    "as bytes": "read_blob('{folder}/measured.parquet')",
    "as text": "read_text('{folder}/counts.csv')",
    "as a table of text": "read_csv('{folder}/counts.csv')",
    "as a database": "read_duckdb('{folder}/other.duckdb', table_name = 'measured')",
    "its description": "parquet_metadata('{folder}/measured.parquet')",
    "its name": "glob('{folder}/*')",
    "by a query in a text": "query('FROM read_csv(''{folder}/counts.csv'')')",
}


def test_a_view_of_a_source_reaches_no_other_file_of_the_confidential_folder(tmp_path):
    """Nor any other file: what is released is what is in the source."""
    folder = tmp_path / "confidential"
    locate_spill_folder(folder).mkdir(parents=True)  # DuckDB looks at a view as it is made
    measured = pd.DataFrame({"origin": ["aa"], "destination": ["ba"]})
    measured.to_parquet(folder / "measured.parquet")
    measured.to_csv(folder / "counts.csv", index=False)
    for path in (folder / "other.duckdb", tmp_path / "trips.duckdb"):
        with duckdb.connect(path) as connection:
            connection.register("flows", measured)
            connection.execute("CREATE TABLE measured AS FROM flows")
            connection.execute("CREATE VIEW sound AS FROM measured")
            if path.name == "trips.duckdb":
                for number, view in enumerate(VIEWS.values()):
                    fields = f"SELECT 'aa' AS origin, 'ba' AS destination FROM {view.format(folder=folder)}"
                    connection.execute(f"CREATE VIEW view_{number} AS {fields}")
    before = {path.name for path in folder.iterdir()} - {"spill"}
    for number, what in enumerate(VIEWS):
        options = {"record_format": TABLE.with_options(table=f"view_{number}")}
        with pytest.raises(OdError, match="OD-FILE-UNREADABLE") as refused:
            load_records(tmp_path / "trips.duckdb", RecordColumns(), "2001-06", folder / "raw.parquet", **options)
        assert "disabled by configuration" in refused.value.confidential_detail, what
        assert {path.name for path in folder.iterdir()} == before, what
    options = {"record_format": TABLE.with_options(table="sound")}
    load_records(tmp_path / "trips.duckdb", RecordColumns(), "2001-06", folder / "raw.parquet", **options)
    assert len(pd.read_parquet(folder / "raw.parquet")) == 1


def test_the_public_database_is_written_and_read_behind_closed_doors(tmp_path, probes):
    database = tmp_path / "release.duckdb"
    release()  # counts its trips in a database, unless another test has made it
    probes.clear()
    FLOW_KIND.store(database, release(), KEY, facts(release()))
    FLOW_KIND.store(database, release(), KEY, facts(release()))
    assert KEY in list_stored_releases(database)
    pd.testing.assert_frame_equal(open_release(database).flows, release().flows)
    assert probes == [[]] * 5


def test_a_table_that_reads_other_files_is_no_release(tmp_path):
    """A database from elsewhere may hold views of files of its reader."""
    secret, database = tmp_path / "secret.csv", tmp_path / "release.duckdb"
    secret.write_text("release\ncommuters/2001-06/r1\n")
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE VIEW releases AS FROM read_csv('{secret}')")
    with pytest.raises(OdError, match="OD-RELEASE-ABSENT"):
        open_release(database)


def test_a_database_that_is_open_elsewhere_in_this_process_is_waited_for(tmp_path, monkeypatch):
    """And not called broken: the operator would throw it away."""
    monkeypatch.setattr("od_core.publication.database._LOCK_SECONDS", 0.3)
    database = tmp_path / "release.duckdb"
    FLOW_KIND.store(database, release(), KEY, facts(release()))
    with duckdb.connect(str(database), read_only=True), pytest.raises(OdError, match="OD-DATABASE-LOCKED"):
        FLOW_KIND.store(database, release(), KEY, facts(release()))


FOLDER = "origin=HACK"
"""A folder whose name DuckDB takes for the value of a column of all files below it."""


@pytest.mark.parametrize("name", ["trips.csv", "trips.csv.gz", "trips.parquet", "trips.duckdb"])
def test_the_name_of_a_folder_is_no_column(tmp_path, name):
    """Neither of the records, nor of what is read and counted of them in the confidential folder."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    source, target = folder / name, folder / "raw_trips.parquet"
    if name.endswith("duckdb"):
        with duckdb.connect(source) as connection:
            connection.register("flows", FLOWS)
            connection.execute("CREATE TABLE trips AS FROM flows")
    elif name.endswith("parquet"):
        FLOWS.to_parquet(source)
    else:
        FLOWS.to_csv(source, index=False)
    table = "trips" if name.endswith("duckdb") else None
    load_records(source, RecordColumns(trips="trips"), "2001-06", target, record_format=TABLE.with_options(table=table))
    assert pd.read_parquet(target)["origin"].tolist() == FLOWS["origin"].tolist()
    assert list(read_column_types(source, TABLE.with_options(table=table))) == list(FLOWS.columns)
    counts = count_records_in_memory(target, FlowTree(GEOGRAPHY, GEOGRAPHY))
    assert counts.total == FLOWS["trips"].sum()


def test_a_process_ends_without_a_word_of_duckdb():
    """A kernel that takes a named tuple keeps the globals of our modules, and so what they keep, to the very end."""
    program = """
from od_core.warmup import *
zones = pd.DataFrame({"zone": ["a", "b"]}, dtype="str")
flows = pd.DataFrame({"origin": ["a"], "destination": ["b"], "trips": [40]})
options = {"unit": PrivacyUnit("trip"), "budget": Budget(epsilon=1, delta="1e-8"), "noise": "table"}
mechanism = InfTDARefined(leaves="empirical_bayes")
release_flows(flows, Geography.from_frame(zones, levels=["zone"]), mechanism=mechanism, **options)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
