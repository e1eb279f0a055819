"""Files of a table with a log, and files that hold what another one holds, are refused before they are read."""

import gzip
import os
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import FlowTree, Geography, OdError
from od_core.records.counting import count_trips
from od_core.records.formats import TABLE
from od_core.records.load import refuse_repeated_tables
from od_core.records.open_file import read_column_types, refuse_table_log
from od_core.records.zone_lists import read_zones

pytestmark = pytest.mark.usefixtures("one_scratch_database")

TRIPS = pa.table({"origin": ["01", "02"], "destination": ["02", "01"], "trips": [500, 20]})
GEOGRAPHY = Geography.from_frame(pd.DataFrame({"region": ["n", "n"], "zone": ["01", "02"]}), ["region", "zone"])
TREE = FlowTree(GEOGRAPHY, GEOGRAPHY)
SINK = pa.BufferOutputStream()
pq.write_table(TRIPS, SINK)
PARQUET = SINK.getvalue().to_pybytes()


def lake(folder: Path, log: str, file: str = "lake/month=2026-01/a.parquet") -> Path:
    """A file of trips in a lake, and a log in it: a folder if its name ends in a slash."""
    for name in (log, file):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / log).mkdir() if log.endswith("/") else (folder / log).touch()
    pq.write_table(TRIPS, folder / file)
    return folder / file


LOGS = {
    "a partition of Delta": ("lake/_delta_log/", "Delta"),
    "a file in the root of Delta": ("lake/month=2026-01/_delta_log/", "Delta"),
    "a partition of Hudi": ("lake/.hoodie/", "Hudi"),
    "a copied partition of Hudi": ("lake/month=2026-01/.hoodie_partition_metadata", "Hudi"),
    "one with metadata in Parquet": ("lake/month=2026-01/.hoodie_partition_metadata.parquet", "Hudi"),
    "data of Iceberg": ("lake/metadata/00001-0c6f.metadata.json", "Iceberg"),
    "data of a Hadoop catalog": ("lake/metadata/version-hint.text", "Iceberg"),
    "packed metadata": ("lake/metadata/v3.gz.metadata.json", "Iceberg"),
    "metadata of Iceberg, packed by PyIceberg": ("lake/metadata/00002-7be0.gz.metadata.json", "Iceberg"),
    "a partition of DuckLake": ("lake/month=2026-01/ducklake-0198d2f3-7c1a-delete.parquet", "DuckLake"),
    "a base of Hive": ("lake/month=2026-01/base_0000001/", "Hive with transactions"),
    "a compacted base of Hive": ("lake/base_0000004_v0000017/", "Hive with transactions"),
    "inserts of Hive": ("lake/month=2026-01/delta_0000002_0000002_0000/", "Hive with transactions"),
    "deletions of Hive": ("lake/month=2026-01/delete_delta_0000003_0000003/", "Hive with transactions"),
    "a partition of a stream": ("lake/_spark_metadata/", "Spark Structured Streaming"),
}


@pytest.mark.parametrize("log", LOGS)
def test_a_file_of_a_table_with_a_log_is_refused_by_every_reader(tmp_path, log):
    """As it is given, behind a link, and behind a linked folder."""
    name, table = LOGS[log]
    file = lake(tmp_path, name)
    (tmp_path / "linked.parquet").symlink_to(file)
    (tmp_path / "linked").symlink_to(file.parent)
    for path in (file, tmp_path / "linked.parquet", tmp_path / "linked" / "a.parquet"):
        for read in (lambda file: count_trips(file, TREE), lambda file: read_column_types(file, TABLE), read_zones):
            with pytest.raises(OdError, match=f"OD-FILE-INCOMPLETE: {path.name} is in a table of {table}, ") as refused:
                read(path)
            assert "write plain Parquet files outside that table" in refused.value.next_step


def test_a_file_in_a_folder_of_hive_is_refused_by_its_own_name(tmp_path):
    with pytest.raises(OdError, match="OD-FILE-INCOMPLETE: a is in a table of Hive with transactions, "):
        refuse_table_log(lake(tmp_path, "lake/notes/", "lake/delta_0000002_0000002/a"))


def test_a_log_above_a_link_counts_and_relative_paths_are_followed_to_the_root(tmp_path, monkeypatch):
    elsewhere = lake(tmp_path, "lake/_delta_log/", "elsewhere/a.parquet")
    (tmp_path / "lake" / "month=1").mkdir()
    (tmp_path / "lake" / "month=1" / "a.parquet").symlink_to(elsewhere)
    monkeypatch.chdir(tmp_path / "lake" / "month=1")
    for path in (Path("a.parquet"), Path("../month=1/a.parquet")):
        with pytest.raises(OdError, match="a table of Delta"):
            refuse_table_log(path)
    refuse_table_log(Path("../../elsewhere/a.parquet"))


@pytest.mark.parametrize(
    "name",
    [
        "lake/metadata/trips.json",
        "lake/metadata/trips.metadata.json",
        "lake/metadata/",
        "lake/other/_delta_log/",
        "lake/.hoodie.txt",
        "lake/base_0000001",
        "lake/base_20010101/",
        "lake/delta_1_2/",
        "lake/data/",
    ],
)
def test_what_is_no_log_of_the_table_refuses_nothing(tmp_path, name):
    assert count_trips(lake(tmp_path, name), TREE).total == 520


@pytest.mark.usefixtures("own_scratch_databases")
def test_a_duckdb_file_is_no_way_around_a_log(tmp_path):
    """A view of a database reads no other file, and a database in a table is refused."""
    file, form = lake(tmp_path, "lake/_delta_log/"), TABLE.with_options(table="trips")
    for place in (tmp_path / "trips.duckdb", tmp_path / "lake" / "trips.duckdb"):
        with duckdb.connect(str(place)) as database:
            database.execute(f"CREATE VIEW trips AS FROM read_parquet('{file}')")
    with pytest.raises(OdError, match=r"OD-FILE-UNREADABLE: trips\.duckdb"):
        read_column_types(tmp_path / "trips.duckdb", form)
    with pytest.raises(OdError, match="a table of Delta"):
        read_column_types(tmp_path / "lake" / "trips.duckdb", form)


NONE, ONE = b"origin,destination\n", b"origin,destination\n01,02\n"
OTHER = b"origin,destination\n02,01\n"
REPEATED: dict[str, tuple[dict[str, bytes | str], str | None]] = {
    "hard links": ({"a.csv": ONE, "b.csv": "a.csv"}, r"a\.csv and b\.csv are two names of one file"),
    "a copy": ({"a.csv": ONE, "b.csv": OTHER, "c.csv": ONE}, r"a\.csv and c\.csv have the same content"),
    "packed": (
        {"a.csv": ONE, "a.csv.gz": gzip.compress(ONE)},
        r"a\.csv and a\.csv\.gz hold one table in two containers",
    ),
    "Parquet": ({"a.csv": ONE, "a.parquet": PARQUET}, r"a\.csv and a\.parquet hold one table in two containers"),
    "no rows": ({"a.csv": NONE, "b.csv": NONE, "c.csv": "a.csv"}, None),
    "rows in one": ({"a.csv": NONE, "a.parquet": PARQUET}, None),
    "names with points": ({"2026.01.csv": ONE, "2026.02.csv": OTHER}, None),
    "other folders": ({"1/a.csv": ONE, "2/a.parquet": PARQUET}, None),
}
"""Files of a period, as bytes or as another name of a file, and why they are refused."""


@pytest.mark.parametrize("what", REPEATED)
def test_a_table_that_is_there_twice_is_refused_unless_it_has_no_rows(tmp_path, what):
    contents, why = REPEATED[what]
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
        else:
            os.link(tmp_path / content, tmp_path / name)
    files = [(tmp_path / name, None) for name in contents]
    if why is None:
        refuse_repeated_tables(files, TABLE)
        return
    with pytest.raises(OdError, match=f"OD-FILE-REPEATED: {why}, so records would be counted twice"):
        refuse_repeated_tables(files, TABLE)


def test_tables_of_one_duckdb_file_are_no_copies(tmp_path):
    file = tmp_path / "trips.duckdb"
    with duckdb.connect(str(file)) as database:
        database.execute("CREATE TABLE one AS SELECT 1 AS a; CREATE TABLE two AS SELECT 2 AS a")
    files = [(file, "one"), (file, "two")]
    refuse_repeated_tables(files, TABLE)
    os.link(file, tmp_path / "other.duckdb")
    with pytest.raises(OdError, match="OD-FILE-REPEATED"):
        refuse_repeated_tables([*files, (tmp_path / "other.duckdb", "two")], TABLE)


@pytest.mark.parametrize("log", ["ducklake-1.parquet", "delta_0000002_0000002/", "base_0000001/", "_delta_log/"])
def test_a_log_that_appears_after_a_first_look_is_found(tmp_path, log):
    """A folder of many files is listed once for all of them, until it changes."""
    path = lake(tmp_path, "lake/other.txt", "lake/a.parquet")
    refuse_table_log(path)
    lake(tmp_path, f"lake/{log}", "lake/b.parquet")
    with pytest.raises(OdError, match="OD-FILE-INCOMPLETE"):
        refuse_table_log(path)
