"""Tables of PostgreSQL, Delta Lake and Iceberg are read as files with the same rows, and as their own libraries do."""

import datetime
import json
import sqlite3
import string
import struct
from collections import Counter
from contextlib import closing

import deltalake
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import DayTransform, MonthTransform
from pyiceberg.types import StringType
from pyroaring import BitMap

from od_core.errors import OdError
from od_core.periods import Period
from od_core.records.delta_table import DeltaTable
from od_core.records.formats import TABLE, RecordColumns
from od_core.records.iceberg_table import IcebergTable
from od_core.records.load import load_records
from od_core.records.postgres_table import PostgresTable
from od_core.records.sqlite_table import SqliteTable
from od_core.records.stored_table import DayRange, StoredTable

STORES = ("postgres", "delta", "iceberg", "sqlite")
TYPED = STORES[:3]
"""Stores whose columns have types."""
DROPPING = TABLE.with_options(outside_period="drop")
COLUMNS = RecordColumns(date="day", trips="n")


def make_rows(*days: str | None) -> pa.Table:
    """Trips of some days, from a different zone each day."""
    numbers = range(len(days))
    return pa.table(
        {
            "day": pa.array([day and datetime.date.fromisoformat(day) for day in days], pa.date32()),
            "origin": [f"0{number % 10}" for number in numbers],
            "destination": ["Ö'\"x"] * len(days),
            "n": pa.array(numbers, pa.int64()),
            "secret": pa.array([1.5] * len(days), pa.float64()),
        }
    )


ROWS = make_rows("2001-01-01", "2001-01-31", "2001-02-01", "2000-12-31", None, "1999-07-01", "2001-01-31")


def load(table: StoredTable, folder, *, columns=COLUMNS, form=DROPPING, time_zone=None) -> pa.Table:
    """The loaded records of January 2001, in an order of their own."""
    target = folder / "loaded.parquet"
    load_records(table, columns, "2001-01", target, record_format=form, time_zone=time_zone)
    loaded = pq.read_table(target)
    return loaded.sort_by([(name, "ascending") for name in loaded.column_names])


def refuse(table: StoredTable, folder, **options) -> str:
    with pytest.raises(OdError) as refused:
        load(table, folder, **options)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    return str(refused.value)


@pytest.mark.parametrize("store", STORES)
def test_a_table_is_read_as_a_file_with_the_same_rows(store, stores, tmp_path):
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    loaded = load(stores.write(store, ROWS)[0], tmp_path)
    expected = load(tmp_path / "rows.parquet", tmp_path)
    if store == "sqlite":  # it has all days, and numbers are texts until they are counted
        loaded = loaded.set_column(loaded.column_names.index("trips"), "trips", loaded["trips"].cast(pa.int64()))
    in_period = pc.field("in_period") | pc.is_null(pc.field("date"))
    assert loaded.filter(in_period).equals(expected.filter(in_period))


@pytest.mark.parametrize("store", TYPED)
def test_only_declared_columns_and_days_near_the_period_are_read(
    store,
    stores,
):
    table, _ = stores.write(store, ROWS)
    with table.open_state() as state:
        days = DayRange.from_period(Period("2001-01"), "day", state.schema.field("day").type)
        read = state.read(["n", "day"], days).read_all()
    assert {*read.column_names} == {"n", "day"}
    assert Counter(read["n"].to_pylist()) == Counter({0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 6: 1})  # all but July 1999


@pytest.mark.parametrize("store", STORES)
def test_records_of_other_periods_are_faults_where_they_are_to_be_refused(store, stores, tmp_path):
    loaded = load(stores.write(store, ROWS)[0], tmp_path, form=TABLE)
    assert loaded["in_period"].to_pylist().count(False) == 4
    assert len(loaded) == len(ROWS)


@pytest.mark.parametrize("store", STORES)
def test_a_table_without_rows_has_no_records(store, stores, tmp_path):
    assert len(load(stores.write(store, ROWS.slice(0, 0))[0], tmp_path)) == 0


@pytest.mark.parametrize("store", STORES)
def test_an_unused_column_or_a_missing_one_is_named(store, stores, tmp_path):
    table, _ = stores.write(store, ROWS)
    assert "OD-TRIPS-ROWS" in refuse(table, tmp_path, columns=RecordColumns(date="day"))
    text = refuse(table, tmp_path, columns=RecordColumns(date="dax", trips="n"))
    assert "trips of" in text
    assert "has no column 'dax'; it has 'day', 'origin'" in text


INSTANTS = [datetime.datetime(2000, 12, 31, 22, 59), datetime.datetime(2000, 12, 31, 23, 0)]


@pytest.mark.parametrize("store", TYPED)
def test_instants_are_of_the_days_of_a_time_zone(store, stores, tmp_path):
    """At 23:00 in London, a new year begins in Rome. Without a time zone, instants are refused."""
    times = pa.array(INSTANTS, pa.timestamp("us", "UTC"))
    rows = make_rows("2001-01-01", "2001-01-01").set_column(0, "day", times)
    if store == "postgres":
        stores.write(store, make_rows("2001-01-01", "2001-01-01"))
        texts = " ".join(f"WHEN {number} THEN '{time}Z'::timestamptz" for number, time in enumerate(INSTANTS))
        stores.execute(f"ALTER TABLE mobility.trips ALTER COLUMN day TYPE timestamptz USING CASE n {texts} END")
        table: StoredTable = PostgresTable(stores.address, "mobility.trips")
    else:
        table, _ = stores.write(store, rows)
    assert load(table, tmp_path, time_zone="Europe/Rome")["trips"].to_pylist() == [1]
    assert "OD-TRIPS-DATE" in refuse(table, tmp_path)


def test_delta_tables_with_deletes_new_columns_and_versions(stores, tmp_path):
    """The counts are those of the library's own reader, of each version."""
    folder = str(stores.folder / "trips")
    table, _ = stores.write("delta", ROWS)
    more = ROWS.append_column("mode", pa.array(["car"] * len(ROWS)))
    deltalake.write_deltalake(folder, more, mode="append", schema_mode="merge")
    deltalake.DeltaTable(folder).delete("n = 1")
    for version in range(3):
        expected = deltalake.DeltaTable(folder, version=version).to_pyarrow_table()
        january = expected.filter(pc.field("day") >= datetime.date(2001, 1, 1)).filter(
            pc.field("day") < datetime.date(2001, 2, 1)
        )
        loaded = load(DeltaTable(folder, version), tmp_path).filter(pc.field("in_period"))
        assert sorted(loaded["trips"].to_pylist()) == sorted(january["n"].to_pylist())
    assert load_records(table, COLUMNS, "2001-01", tmp_path / "x", record_format=DROPPING) == "2"
    assert len(load(DeltaTable(folder, 0), tmp_path)) != len(load(table, tmp_path))


def test_a_delta_table_with_a_deletion_vector(stores, tmp_path):
    """The vector is written by hand, as Spark does: inline, of the rows 1 and 3."""
    folder = stores.folder / "vectors"
    deltalake.write_deltalake(str(folder), ROWS, configuration={"delta.enableDeletionVectors": "true"})
    log = folder / "_delta_log"
    actions = map(json.loads, (log / f"{0:020}.json").read_text(encoding="utf-8").splitlines())
    added = next(action["add"] for action in actions if "add" in action)
    bitmaps = struct.pack("<IQI", 1681511377, 1, 0) + BitMap([1, 3]).serialize()
    vector = {
        "storageType": "i",
        "pathOrInlineDv": encode_z85(bitmaps),
        "sizeInBytes": len(bitmaps),
        "cardinality": 2,
    }
    removal = {"path": added["path"], "deletionTimestamp": added["modificationTime"], "dataChange": True}
    lines = [json.dumps({"remove": removal}), json.dumps({"add": added | {"deletionVector": vector}})]
    (log / f"{1:020}.json").write_text("\n".join(lines), encoding="utf-8")
    loaded = load(DeltaTable(str(folder)), tmp_path, form=TABLE)
    assert sorted(loaded["trips"].to_pylist()) == [0, 2, 4, 5, 6]
    assert len(load(DeltaTable(str(folder), 0), tmp_path, form=TABLE)) == len(ROWS)


def encode_z85(content: bytes) -> str:
    """Text of bytes, which are padded to words of four, as ZeroMQ's RFC 32 writes it."""
    digits = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    words = struct.iter_unpack(">I", content + bytes(-len(content) % 4))
    return "".join(digits[word // 85**place % 85] for (word,) in words for place in (4, 3, 2, 1, 0))


def test_iceberg_tables_with_deletes_new_columns_partitions_and_snapshots(stores, tmp_path):
    """The counts are those of the library's own reader, of each snapshot."""
    stores.write("iceberg", ROWS)
    table = stores.catalog.load_table("mobility.trips")
    with table.update_spec() as spec:
        spec.add_field("day", MonthTransform(), "month")
    table.append(ROWS)
    with table.update_schema() as schema:
        schema.add_column("mode", StringType())
        schema.rename_column("n", "number")
    with table.update_spec() as spec:
        spec.remove_field("month")
        spec.add_field("day", DayTransform(), "each_day")
    table.append(ROWS.rename_columns(["day", "origin", "destination", "number", "secret"]))
    table.delete(EqualTo("number", 1))
    snapshots = [snapshot.snapshot_id for snapshot in table.snapshots()]
    assert len(snapshots) >= 4
    for snapshot in snapshots:
        scan = table.scan(snapshot_id=snapshot)
        name = "number" if "number" in scan.projection().as_arrow().names else "n"
        expected = scan.to_arrow()
        days = expected["day"].to_pylist()
        january = [
            number
            for number, day in zip(expected[name].to_pylist(), days, strict=True)
            if day is not None and (day.year, day.month) == (2001, 1)
        ]
        own = RecordColumns(date="day", trips=name)
        loaded = load(stores.find_iceberg_table(snapshot=snapshot), tmp_path, columns=own)
        assert sorted(loaded.filter(pc.field("in_period"))["trips"].to_pylist()) == sorted(january)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (DeltaTable("absent"), "table absent of Delta Lake cannot be read"),
        (IcebergTable("absent", "mobility.trips"), "table mobility.trips of Iceberg cannot be read"),
        (PostgresTable("postgresql://reader:hunter2@127.0.0.1:1/trips", "trips"), "there is no connection"),
        (PostgresTable("postgresql://reader:hunter%zz2@host/trips", "trips"), "there is no connection"),
    ],
)
def test_what_cannot_be_opened_is_named_without_a_credential(table, reason, stores, tmp_path):
    text = refuse(table, tmp_path)
    assert reason in text
    assert "hunter" not in text + repr(table)


def test_an_iceberg_table_without_a_snapshot(stores, tmp_path):
    stores.catalog.create_table("mobility.trips", ROWS.schema)
    assert "has no snapshot" in refuse(stores.find_iceberg_table(), tmp_path)
    assert "has no snapshot 5" in refuse(stores.find_iceberg_table(snapshot=5), tmp_path)
    absent = refuse(stores.find_iceberg_table("mobility.absent"), tmp_path)
    assert "table mobility.absent of Iceberg cannot be read: NoSuchTableError" in absent


def test_types_of_postgresql_are_read_as_their_text(stores, tmp_path):
    stores.execute(
        "DROP SCHEMA IF EXISTS mobility CASCADE; CREATE SCHEMA mobility",
        "CREATE TYPE mobility.side AS ENUM ('north')",
        'CREATE TABLE mobility."Trips" (origin char(4), destination mobility.side, n numeric(9, 3), day timestamp)',
        "INSERT INTO mobility.\"Trips\" VALUES ('01', 'north', 12.000, '2001-01-31 23:59:59.999')",
    )
    loaded = load(PostgresTable(stores.address, 'mobility."Trips"'), tmp_path)
    assert loaded.select(["origin", "destination", "trips"]).to_pylist() == [
        {"origin": "01", "destination": "north", "trips": 12}
    ]


def test_values_of_sqlite_are_read_as_their_texts(stores, tmp_path):
    path = stores.folder / "odd name?.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE "my trips" (origin, destination, n REAL, date, day AS (date))')
        connection.executemany(
            'INSERT INTO "my trips" VALUES (?, ?, ?, ?)',
            [("01", 7, 12.0, "2001-01-05"), ("02", None, 3, "2001-01-06 10:30:00"), ("03", 2.5, 1, None)],
        )
    table = SqliteTable(str(path), "my trips")
    loaded = load(table, tmp_path)
    assert {row["origin"]: row["destination"] for row in loaded.to_pylist()} == {"01": "7", "02": None, "03": "2.5"}
    assert {row["origin"]: float(row["trips"]) for row in loaded.to_pylist()} == {"01": 12, "02": 3, "03": 1}
    assert "has no table or view 'trips'" in refuse(SqliteTable(str(path), "trips"), tmp_path)
    assert "cannot be read" in refuse(SqliteTable(str(path.with_name("no.sqlite")), "trips"), tmp_path)
    assert not path.with_name("no.sqlite").exists()


def test_a_view_is_read_but_none_that_changes_data(stores, tmp_path):
    stores.write("postgres", ROWS)
    stores.execute(
        "CREATE VIEW mobility.january AS SELECT * FROM mobility.trips WHERE day = '2001-01-31'",
        "CREATE FUNCTION mobility.add() RETURNS bigint LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO mobility.trips (n) VALUES (9); RETURN 1; END $$",
        "CREATE VIEW mobility.changing AS SELECT day, origin, destination, mobility.add() AS n FROM mobility.trips",
    )
    assert len(load(PostgresTable(stores.address, "mobility.january"), tmp_path)) == 2
    text = refuse(PostgresTable(stores.address, "mobility.changing"), tmp_path)
    assert "would change data" in text
    assert stores.execute("SELECT count(*) FROM mobility.trips WHERE n = 9") == [(0,)]
    assert "its name is not one of SQL" in refuse(PostgresTable(stores.address, "trips; DROP"), tmp_path)
    assert "no table or view mobility.no" in refuse(PostgresTable(stores.address, "mobility.no"), tmp_path)


def test_a_role_without_rights_is_refused(stores, tmp_path):
    stores.write("postgres", ROWS)
    stores.execute("GRANT USAGE ON SCHEMA mobility TO owner")
    address = stores.address.replace("//postgres@", "//owner@")
    assert "the role may not read it" in refuse(PostgresTable(address, "mobility.trips"), tmp_path)


def test_rows_that_a_policy_hides_are_not_left_out(stores, tmp_path):
    stores.write("postgres", ROWS)
    stores.execute(
        "GRANT USAGE ON SCHEMA mobility TO owner",
        "GRANT SELECT ON mobility.trips TO owner",
        "ALTER TABLE mobility.trips ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON mobility.trips USING (n < 2)",
    )
    address = stores.address.replace("//postgres@", "//owner@")
    assert "or not all of its rows" in refuse(PostgresTable(address, "mobility.trips"), tmp_path)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_texts_of_other_encodings_are_converted_or_refused(encoding, stores, tmp_path):
    stores.execute(
        "DROP DATABASE IF EXISTS other",
        f"CREATE DATABASE other ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0",
    )
    address = stores.address.replace("/postgres?", "/other?")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SET client_encoding = 'LATIN1'")
        connection.execute("CREATE TABLE trips (day date, origin text, destination text, n int)")
        text = "'Zürich'" if encoding == "LATIN1" else "convert_from('\\x5afc72696368', 'SQL_ASCII')"
        connection.execute(f"INSERT INTO trips VALUES ('2001-01-02', {text}, 'b', 1)".encode("latin-1"))
    table = PostgresTable(address, "trips")
    if encoding == "LATIN1":
        assert load(table, tmp_path)["origin"].to_pylist() == ["Zürich"]
    else:
        assert "a text is not UTF-8" in refuse(table, tmp_path)


@pytest.mark.parametrize("name", ['My "Day', "a.day", "a\\day"])
@pytest.mark.parametrize("store", ["delta", "iceberg"])
def test_any_name_of_a_column_of_dates_is_read(store, name, stores, tmp_path):
    table, _ = stores.write(store, ROWS.rename_columns([name, *ROWS.column_names[1:]]))
    loaded = load(table, tmp_path, columns=RecordColumns(date=name, trips="n"))
    assert sorted(loaded.filter(pc.field("in_period"))["trips"].to_pylist()) == [0, 1, 6]


@pytest.mark.parametrize(
    "address",
    [
        "s3://KEY:hunter2@lake/trips",
        "s3://hunter2@lake/t",
        "abfs://lake:hunter2@account/t",
        "az://lake/trips?sig=hunter2",
        "s3://lake/t#hunter2",
    ],
)
def test_an_address_that_may_have_a_credential_is_refused(address):
    with pytest.raises(OdError, match="OD-READER-OPTIONS") as refused:
        DeltaTable(address)
    assert "hunter2" not in str(refused.value)
    assert "lake" not in repr(DeltaTable("s3://lake/trips"))
    assert DeltaTable("s3://lake/trips/").name == "trips"
    assert DeltaTable("abfss://lake@account.dfs.core.windows.net/raw/trips").name == "trips"  # a container is no user


def test_a_connection_that_is_lost_after_rows_were_read(stores, tmp_path):
    """A view ends its own session at the last row. The text of the error, which quotes the query, is not passed on."""
    stores.write("postgres", make_rows(*["2001-01-02"] * 200_000))
    stores.execute(
        "CREATE VIEW mobility.ending AS SELECT day, origin, destination, n,"
        " CASE WHEN n = 199999 THEN pg_terminate_backend(pg_backend_pid()) END AS ended FROM mobility.trips"
    )
    columns = RecordColumns(date="day", trips="n")
    table = PostgresTable(stores.address, "mobility.ending")
    form = DROPPING.with_options(categories=(("ended", ("true", "")),))
    text = refuse(table, tmp_path, columns=columns, form=form)
    assert "OD-TABLE-UNREADABLE" in text
    assert "SELECT" not in text
    assert not (tmp_path / "loaded.parquet").exists()
    with pytest.raises(psycopg.Error):
        stores.execute("SELECT * FROM mobility.ending")
