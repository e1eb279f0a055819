"""What Spark counts in the lake is what DuckDB counts in a file, record for record; and no plan tells the key."""

import datetime
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from od_core import FlowTree, Geography, OdError, PrivacyUnit
from od_core.ledger.object_store import LocalStore
from od_core.ledger.release_key import ReleaseKey
from od_core.records.counting import CountQuery, count_records_in_memory
from od_core.records.counts import CountFiles
from od_core.records.formats import TABLE, PointColumns, RecordColumns
from od_core.records.load import load_records
from od_core.records.segments import Breakdown, SegmentSource
from od_core.spark.counting import _SparkCount, count_in_spark
from tests.od_core.ledger.person_years import PersonYear

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pyspark") is None or shutil.which("java") is None, reason="Spark is not installed"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of PySpark
]

ROOT = Path(__file__).parents[2]
KEY = bytes(range(100, 132))
PERIOD = "2001-06"
CANARY = "QX-CANARY-7731"
ODD = ["é", "it's", '"a"', "a,b", "🚲", "\\n", "`", "0012"]
HOMES = pd.DataFrame(
    {"region": ["n", "n", "s", "s"] + ["odd"] * len(ODD), "zone": ["01", "02", "10", "elsewhere", *ODD]}
)
WORKS = pd.DataFrame({"region": ["e", "w", "w", "w"], "zone": ["A", "B", "0012", "?"]})
CODES = [*HOMES["zone"], *WORKS["zone"], "A ", "a", "", " ", "x\ty", "z\x00z", "\n", "nowhere", "1", CANARY, None]


def tree_of(order: str, *, unknown: bool) -> FlowTree:
    """Two geographies."""
    sides = [(HOMES, "elsewhere"), (WORKS, "?")]
    geographies = [
        Geography.from_frame(zones, ["region", "zone"], unknown=area if unknown else None) for zones, area in sides
    ]
    return FlowTree(*geographies, order)


TREES = {
    f"{order}{', unknown zones' if unknown else ''}": tree_of(order, unknown=unknown)
    for order in ("destination", "origin")
    for unknown in (False, True)
}


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Iterator[Any]:
    """One classic session on two threads, whose time zone is not that of any record."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("lake")),
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def some_records(seed: int, number: int = 400, **columns: pa.Array) -> pa.Table:
    """Records of all kinds, half of them among few zones; ``columns`` are further ones."""
    generator = np.random.default_rng(seed)

    def drawn(usual, all_of_them):
        few = generator.random(number) < 0.5
        picks = (generator.integers(0, len(values), number) for values in (usual, all_of_them))
        return [usual[a] if is_usual else all_of_them[b] for is_usual, a, b in zip(few, *picks, strict=True)]

    days = [datetime.date(*day) for day in ((2001, 5, 31), (2001, 6, 1), (2001, 6, 30), (2001, 7, 1))]
    return pa.table(
        {
            "home": pa.array(drawn(["01", "02", "é"], CODES), pa.string()),
            "work": pa.array(drawn(["A", "B"], CODES), pa.string()),
            "day": pa.array(drawn(days[1:3], [*days, None]), pa.date32()),
            "kind": pa.array(drawn(["1"], ["1", "2", "", None]), pa.string()),
            "person": pa.array(drawn(USERS[:3], USERS), pa.string()),
            "number": pa.array(generator.integers(0, 9, number), pa.int64()),
            "weight": pa.array(drawn([1.0, 2.5, 3.5], WEIGHTS), pa.float64()),
        }
        | columns
    )


USERS = ["u1", "u2", "é", "U1", "u1 ", "null", "-", "a,b", '"', "🚲", "", " ", "\t", "\u00a0", "\x0b", "x\x00", None]
WEIGHTS = [0.0, -0.0, 0.49, 0.5, 0.49999999999999994, 4.0, 1e300, -1.0, float("nan"), float("inf"), None]

COLUMNS = RecordColumns(origin="home", destination="work", date="day")
TRIP = PrivacyUnit("trip")


def of_users(column: str, **bounds: int) -> tuple[RecordColumns, PrivacyUnit]:
    """Columns and unit of records with a column of users."""
    unit = PrivacyUnit("user", neighbours="unbounded", column=column, **bounds)
    return RecordColumns("home", "work", "day", user=column), unit


WEIGHTED = RecordColumns("home", "work", "day", weight="weight")
WAYS = {
    "one row a trip": (COLUMNS, TRIP),
    "counts": (RecordColumns("home", "work", "day", trips="number"), TRIP),
    "weights": (WEIGHTED, PrivacyUnit("trip", neighbours="unbounded", max_weight=3)),
    "users": of_users("person", max_trips=3),
    "numbered users": of_users("number", max_trips=2),
    "people": of_users("person", max_trips=4, max_trips_pair=1),
}
PLAIN = TABLE.with_options(one_row_a_trip=True)
FORM = PLAIN.with_options(categories=(("kind", ("1", "")),), nowhere=("nowhere", ""), outside_period="drop")


def counted(count: Any) -> Any:
    """Counts, or the code and the message of the refusal."""
    try:
        counts = count()
    except OdError as error:
        shown = CANARY in "".join(traceback.format_exception(error))
        return error.code, error.message.partition("column")[2], error.confidential_detail, shown
    whole = counts.read_all() if isinstance(counts, CountFiles) else counts
    segments = [(one.rank.tolist(), one.before.tolist()) for own in whole.by_segment.values() for one in own]
    return whole.rank.tolist(), whole.before.tolist(), *segments


def both(session: Any, folder: Path, table: pa.Table, way: str, tree: FlowTree, **given: Any) -> tuple[Any, Any]:
    """What Spark and what DuckDB find in one Parquet file."""
    columns, unit = WAYS[way]
    segments: dict[SegmentSource, Breakdown] = given.pop("segments", {})
    columns = replace(columns, segments=tuple(segments))
    given["breakdowns"] = tuple(segments.values())
    source = folder / f"records-{len(list(folder.glob('records-*')))}.parquet"
    pq.write_table(table, source, use_deprecated_int96_timestamps=given.pop("int96", False))
    form, zone = given.pop("form", PLAIN), given.pop("time_zone", None)
    threshold = {"fault_threshold": Fraction(1), **given}
    bound = {"unit": unit, "key": KEY} if unit.kind != "trip" else {"unit": unit}

    def by_spark():
        return count_in_spark(
            session, str(source), columns, PERIOD, tree, LocalStore(folder), f"counts-{source.stem}",
            record_format=form, time_zone=zone, **bound, **threshold,
        )  # fmt: skip

    def by_duckdb():
        target = folder / "raw_trips.parquet"
        sides = {"geography": tree.origin, "destination_geography": tree.destination}
        load_records(source, columns, PERIOD, target, record_format=form, time_zone=zone, **sides)
        return count_records_in_memory(target, tree, period=PERIOD, **bound, **threshold)

    return counted(by_spark), counted(by_duckdb)


@pytest.mark.parametrize("name", ["destination", "origin, unknown zones"])
@pytest.mark.parametrize("way", WAYS)
def test_counts_are_those_of_duckdb(session, tmp_path, monkeypatch, way, name):
    """Records with every fault, and names that a query could stumble over; several files."""
    monkeypatch.setattr("od_core.records.counts.PAIRS_PER_FILE", 7)
    seed = 100 * list(WAYS).index(way) + list(TREES).index(name)
    form = FORM if "unknown" in name else PLAIN
    by_spark, by_duckdb = both(session, tmp_path, some_records(seed), way, TREES[name], form=form)
    assert by_spark == by_duckdb
    assert len(by_spark[0]) > 7
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("counts-*/**/*") if path.is_file()}
    assert modes == {0o600}


MODES = SegmentSource("mode", "mode"), Breakdown("mode", ("car", "bus", "é"), unknown="bus")
BY_KIND = SegmentSource("kind", "kind", lookup=(("1", "one"), ("2", "two"))), Breakdown("kind", ("two", "one"))


@pytest.mark.parametrize("name", ["destination", "origin, unknown zones"])
@pytest.mark.parametrize("way", WAYS)
def test_counts_by_segment_are_those_of_duckdb(session, tmp_path, monkeypatch, way, name):
    """By two breakdowns: one with a category of what is not listed, and one whose faults are dropped."""
    monkeypatch.setattr("od_core.records.counts.PAIRS_PER_FILE", 7)
    modes = np.resize(np.array(["car", "bus", "car", "Car", "é", None, " car"], dtype=object), 400)
    table = some_records(900 + list(WAYS).index(way), mode=pa.array(modes, pa.string()))
    by_spark, by_duckdb = both(session, tmp_path, table, way, TREES[name], segments=dict([MODES, BY_KIND]))
    assert by_spark == by_duckdb
    assert all(of_category[0] for of_category in by_spark[2:])
    assert len(by_spark[2:]) == 5


@pytest.mark.parametrize("segments", [{}, dict([MODES])], ids=["totals", "segments"])
def test_users_of_a_year_are_counted_as_by_duckdb_with_the_same_counters(session, tmp_path, segments):
    """Two months and a revision; in the second one, some of the users have used up the year."""
    columns = RecordColumns("home", "work", "day", user="person", segments=tuple(segments))
    tree = TREES["origin, unknown zones"]
    years = {engine: PersonYear(tmp_path / engine, m=3, most=4) for engine in ("spark", "duckdb")}
    for month, revision in ((6, 1), (7, 1), (6, 2)):
        key = ReleaseKey("commuters", f"2001-0{month}", revision)
        modes = np.resize(np.array(["car", "bus", "Car", "é", None], dtype=object), 400)
        table = some_records(700 + month, mode=pa.array(modes, pa.string()))
        days = pa.array([datetime.date(2001, month, 1 + row % 30) for row in range(400)])
        source = tmp_path / f"records-{month}-{revision}.parquet"
        pq.write_table(table.set_column(table.column_names.index("day"), "day", days), source)

        def given(engine, key=key):
            year = years[engine]
            bound = {"unit": year.unit, "key": year.confidential.read_or_make_key(), "counters": year.counters(key)}
            return bound | {"fault_threshold": Fraction(1), "breakdowns": tuple(segments.values())}

        folder = f"counts-{month}-{revision}"
        store = LocalStore(tmp_path)
        files = count_in_spark(
            session, str(source), columns, key.period, tree, store, folder, record_format=PLAIN, **given("spark")
        )
        load_records(source, columns, key.period, tmp_path / "raw.parquet", record_format=PLAIN)
        by_duckdb = count_records_in_memory(tmp_path / "raw.parquet", tree, period=key.period, **given("duckdb"))
        assert counted(files.read_all) == counted(lambda counts=by_duckdb: counts)
        stored = {engine: pq.read_table(year.path(key)) for engine, year in years.items()}
        assert stored["spark"].equals(stored["duckdb"])
        assert len({year.counters(key).compute_fingerprint(key) for year in years.values()}) == 1
        assert years["spark"].path(key).stat().st_mode & 0o777 == 0o600
        assert not (tmp_path / folder / "users").exists()
        users = years["spark"].counted(key, ["u1", "u2", "null"])
        assert (min(users.values()), max(users.values())) == ((1, 1) if month == 7 else (3, 3))


def test_counts_and_counters_of_users_are_of_one_reading_of_a_source_that_looks_stable(session, tmp_path):
    """A function that Spark takes for deterministic names the users, and says how often it was called."""
    table, calls = some_records(7), tmp_path / "calls"

    from pyspark.sql.functions import udf

    def named(person):
        with calls.open("a", encoding="utf-8") as file:
            file.write("x")
        return person

    name = "people_" + tmp_path.name.replace("-", "_")
    renamed = udf(named, "string")
    session.createDataFrame(table).withColumn("person", renamed("person")).createOrReplaceTempView(name)
    year, key = PersonYear(tmp_path / "year", m=3, most=4), ReleaseKey("commuters", PERIOD)
    bound = {"unit": year.unit, "key": year.confidential.read_or_make_key(), "counters": year.counters(key)}
    columns = RecordColumns("home", "work", "day", user="person")
    given = bound | {"fault_threshold": Fraction(1), "record_format": PLAIN}
    count_in_spark(session, name, columns, PERIOD, TREES["destination"], LocalStore(tmp_path), "a", **given)
    assert calls.stat().st_size == len(table)


@pytest.mark.parametrize("random", ["rand() < 0.5", "uuid() < '8'", "monotonically_increasing_id() % 2 = 0"])
def test_a_view_with_random_values_is_refused(session, tmp_path, random):
    session.createDataFrame(some_records(7)).createOrReplaceTempView("steady")
    session.sql(f"SELECT * FROM steady WHERE {random}").createOrReplaceTempView("unsteady")
    with pytest.raises(OdError, match="OD-SPARK-SOURCE"):
        count_all(session, "unsteady", tmp_path)


def count_all(session, source: str, folder: Path, attempt: str = "a") -> CountFiles:
    given = {"fault_threshold": Fraction(1), "record_format": PLAIN}
    columns, store = RecordColumns("home", "work", "day"), LocalStore(folder)
    return count_in_spark(session, source, columns, PERIOD, TREES["destination"], store, attempt, **given)


SAMPLES = {
    "SELECT * FROM steady TABLESAMPLE (90 PERCENT)": False,
    "SELECT * FROM steady TABLESAMPLE (BUCKET 1 OUT OF 2)": False,
    "SELECT * FROM steady TABLESAMPLE (9 ROWS)": False,
    "SELECT * FROM steady LIMIT 9": False,
    "SELECT * FROM steady OFFSET 9": False,
    "SELECT * FROM steady SORT BY day LIMIT 9": False,
    "SELECT home, 1 + 1 AS x, work, day FROM (SELECT * FROM sampled WHERE day > '2000-01-01')": False,
    "WITH s AS (SELECT * FROM steady TABLESAMPLE (9 PERCENT)) SELECT * FROM steady UNION ALL SELECT * FROM s": False,
    "SELECT * FROM steady WHERE work IN (SELECT work FROM steady TABLESAMPLE (9 PERCENT))": False,
    "SELECT * FROM steady JOIN (SELECT max(home) AS m FROM sampled) ON home < m": False,
    "SELECT * FROM steady TABLESAMPLE (90 PERCENT) REPEATABLE (7)": True,
    "SELECT * FROM steady ORDER BY day LIMIT 9": False,
    "SELECT * FROM steady ORDER BY day OFFSET 9": False,
    "SELECT home, first(work) AS work, day FROM steady GROUP BY home, day": False,
    "SELECT home, any_value(work) AS work, day FROM steady GROUP BY home, day": False,
    "SELECT home, collect_list(work)[0] AS work, day FROM steady GROUP BY home, day": False,
    "SELECT home, last(work) OVER (PARTITION BY home ORDER BY day) AS work, day FROM steady": False,
    "SELECT home, min(work) AS work, day FROM steady GROUP BY home, day": True,
    "SELECT home, work, day, 'first(work)' AS text FROM steady ORDER BY day": True,
    "SELECT home, work, day, '\\nSample 1' AS text FROM steady": True,
}
"""Definitions of views, and whether each query of them reads the same records."""


@pytest.mark.parametrize("definition", SAMPLES)
def test_a_view_that_samples_is_refused_unless_it_states_its_seed(session, tmp_path, definition):
    session.createDataFrame(some_records(7)).createOrReplaceTempView("steady")
    session.sql("SELECT * FROM steady TABLESAMPLE (50 PERCENT)").createOrReplaceTempView("sampled")
    session.sql("CREATE OR REPLACE TEMPORARY VIEW sampled AS SELECT * FROM steady TABLESAMPLE (50 PERCENT)")
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW partial AS {definition}")
    if SAMPLES[definition]:
        assert counted(lambda: count_all(session, "partial", tmp_path)) == counted(
            lambda: count_all(session, "partial", tmp_path, "b")
        )
        return
    with pytest.raises(OdError, match=r"OD-SPARK-SOURCE.*a sample without a seed"):
        count_all(session, "partial", tmp_path)


LOGS = {
    "lake/base_0000001": "Hive with transactions",
    "lake/_delta_log": "Delta",
    "lake/.hoodie": "Hudi",
    "lake/month=2001-06/.hoodie_partition_metadata": "Hudi",
    "lake/metadata/00001-0c6f.metadata.json": "Iceberg",
    "lake/metadata/trips.json": None,
    "lake/other/_delta_log": None,
}


@pytest.mark.parametrize("sees_disk", [True, False])
@pytest.mark.parametrize("log", LOGS)
def test_files_of_a_table_with_a_log_are_refused_by_path_and_in_views(session, tmp_path, monkeypatch, log, sees_disk):
    """Also where Spark alone reaches them, in folders whose names have the signs of patterns."""
    if not sees_disk:
        monkeypatch.setattr("od_core.spark.counting.refuse_table_log", lambda _: None)
    root = tmp_path / "a {b},[c] %20"
    folder = root / "lake" / "month=2001-06"
    folder.mkdir(parents=True)
    (root / log).mkdir(parents=True)
    pq.write_table(some_records(7), folder / "a.parquet")
    place = "file:" + re.sub(r"([][{},])", r"\\\1", str(folder))
    session.read.parquet(place).createOrReplaceTempView("lake")
    session.sql("CREATE OR REPLACE TEMPORARY VIEW of_lake AS SELECT * FROM lake WHERE home > '' UNION ALL TABLE lake")
    for number, source in enumerate((place, "lake", "of_lake")):
        if LOGS[log] is None:
            count_all(session, source, tmp_path, str(number))
            continue
        with pytest.raises(OdError, match=f"OD-FILE-INCOMPLETE: .* is in a table of {LOGS[log]}, "):
            count_all(session, source, tmp_path)


def test_an_id_that_the_pattern_refuses_is_told_as_by_duckdb(session, tmp_path):
    table = pa.table({"home": ["01"] * 2, "work": ["A"] * 2, "day": [datetime.date(2001, 6, 1)] * 2})
    source = tmp_path / "records.parquet"
    pq.write_table(table.append_column("person", pa.array(["ann", CANARY])), source)
    columns, tree = RecordColumns("home", "work", "day", user="person"), TREES["destination"]
    bound = {"unit": PersonYear(tmp_path / "year", m=3, most=4).unit, "key": KEY, "fault_threshold": Fraction(0)}
    load_records(source, columns, PERIOD, tmp_path / "raw.parquet", record_format=PLAIN)
    store = LocalStore(tmp_path)
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as by_spark:
        count_in_spark(session, str(source), columns, PERIOD, tree, store, "counts", record_format=PLAIN, **bound)
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as by_duckdb:
        count_records_in_memory(tmp_path / "raw.parquet", tree, period=PERIOD, **bound)
    assert str(by_spark.value) == str(by_duckdb.value)
    assert by_spark.value.confidential_detail == by_duckdb.value.confidential_detail == "1 of 2 trips"
    assert "lack a valid user id (one that matches id_pattern, if declared)" in by_spark.value.message
    assert CANARY not in "".join(traceback.format_exception(by_spark.value))


OSLO = "Europe/Oslo"
TIMES = [
    *("2001-05-31", "2001-06-01", "2001-06-30T23:59", "2001-06-30 24:00:00", "2001-06-30T24:00:01"),
    *("2001-06-30T24:00:00.0", "2001-06-31", "2001-06-01T25:00:00", "2001-06-01 10:00:60"),
    *("2001-06-01T10:00:00Z", "2001-6-1", " 2001-06-01", "2001-06-01\n", "2001-06-01T", "2001-06-01 10", "2001-07-01"),
    *("2001-06-01 10:00:00.1234567", "", CANARY, None),
]  # fmt: skip
MOMENTS = [
    datetime.datetime(2001, month, day, hour, minute, second, microsecond)
    for month, day in ((5, 31), (6, 1), (6, 30), (7, 1))
    for hour, minute, second, microsecond in ((0, 0, 0, 0), (14, 59, 59, 0), (15, 0, 0, 0), (21, 59, 59, 999_999),
                                              (22, 0, 0, 0), (23, 59, 59, 999_999))
]  # fmt: skip
DAYS = {
    "text": (pa.array(TIMES, pa.string()), None),
    "local times": (pa.array([*MOMENTS, None], pa.timestamp("us")), None),
    "instants": (pa.array([*MOMENTS, None], pa.timestamp("us", "UTC")), OSLO),
    "INT96": (pa.array([*MOMENTS, None], pa.timestamp("us", "UTC")), OSLO),
}


CLOCKS = ["00:00", "07:59:59.999", "23:59", "24:00", "7:30", "12", "12:60", " 12:00", "12:00\n"]
HOURS = tuple(f"{hour:02d}" for hour in range(24))
NUMBERS = [-1.0, 0.0, -0.0, 0.1, 4.999, 5.0, 1e300, float("inf"), -float("inf"), float("nan"), None]
WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def derived(derive: str, *categories: str, **options: Any) -> dict[SegmentSource, Breakdown]:
    return {SegmentSource("by", "value", derive, **options): Breakdown("by", (*categories, "else"), unknown="else")}


DERIVED = {
    "hours of text": (pa.array([*TIMES, *CLOCKS]), None, derived("hour", *HOURS)),
    "hours of local times": (DAYS["local times"][0], None, derived("hour", *HOURS)),
    "hours of instants": (DAYS["instants"][0], OSLO, derived("hour", *HOURS)),
    "instants without a zone": (DAYS["instants"][0], None, derived("hour", *HOURS)),
    "hours of dates": (pa.array([datetime.date(2001, 6, 1)]), None, derived("hour", *HOURS)),
    "days of text": (pa.array(TIMES), None, derived("day_of_week", *WEEK)),
    "days of local times": (DAYS["local times"][0], None, derived("day_type", "weekday", "saturday", "sunday")),
    "days of instants": (DAYS["instants"][0], OSLO, derived("day_of_week", *WEEK)),
    "days before 1970": (pa.array([datetime.date(1969, 12, day) for day in range(20, 32)]), None,
                         derived("day_of_week", *WEEK)),
    "nights": (DAYS["instants"][0], OSLO, derived("hour", "night", lookup=tuple((f"0{k}", "night") for k in range(6)))),
    "numbers looked up": (pa.array([1, 2, 3, -1, None]), None, derived("text", "a", lookup=(("1", "a"), ("-1", "a")))),
    "Booleans": (pa.array([True, False, None]), None, derived("text", "yes", lookup=(("true", "yes"),))),
    "Booleans as Python writes them": (pa.array([True]), None, derived("text", "yes", lookup=(("True", "yes"),))),
    "bands": (pa.array(NUMBERS), None,
              derived("number", "low", "middle", breaks=(0, 5), bands=("low", "middle", "else"))),
    "bands of whole numbers": (pa.array([-1, 0, 4, 5, 6, None]), None,
                               derived("number", "low", breaks=(5,), bands=("low", "else"))),
    "bands of decimals": (pa.array([Decimal("4.99"), Decimal("5.00"), Decimal("-0.01"), None], pa.decimal128(10, 2)),
                          None, derived("number", "low", breaks=(5,), bands=("low", "else"))),
    "bands of long decimals": (pa.array([Decimal("0.1"), Decimal("0.3"), Decimal("0.09")], pa.decimal128(38, 30)),
                               None, derived("number", "low", breaks=(0.1,), bands=("low", "else"))),
    "numbers without a lookup": (pa.array([1, 2]), None, derived("text", "1")),
    "lists": (pa.array([["a"], ["b"]]), None, derived("number", "low", breaks=(5,), bands=("low", "else"))),
}  # fmt: skip


@pytest.mark.parametrize("case", DERIVED)
def test_derived_categories_are_those_of_duckdb(session, tmp_path, case):
    """One count a record, so that each is known by it; whatever the session's own time zone."""
    value, zone, segments = DERIVED[case]
    trips = 2 ** np.arange(len(value), dtype=np.int64)
    day = [datetime.date(2001, 6, 1)] * len(value)
    table = pa.table({"home": ["01"] * len(value), "work": ["A"] * len(value), "day": day, "number": trips})
    table = table.append_column("value", value)
    form = PLAIN.with_options(timestamps=zone and "utc")
    by_spark, by_duckdb = both(
        session, tmp_path, table, "counts", TREES["destination"], form=form, time_zone=zone, segments=segments
    )
    if isinstance(by_duckdb[0], str):
        assert by_spark[0] == by_duckdb[0]
        assert not by_spark[-1]
    else:
        assert by_spark == by_duckdb
        used = [of_category[1][-1] for of_category in by_spark[2:]]
        assert sum(used) == 2 ** len(value) - 1
        assert np.count_nonzero(used) > 1


@pytest.mark.parametrize("kind", DAYS)
@pytest.mark.parametrize("outside", ["drop", "refuse"])
def test_days_are_those_of_duckdb(session, tmp_path, kind, outside):
    """One count a record, so that each is known by it; whatever the session's own time zone."""
    day, zone = DAYS[kind]
    trips = 2 ** np.arange(len(day), dtype=np.int64)
    table = pa.table({"home": ["01"] * len(day), "work": ["A"] * len(day), "day": day, "number": trips})
    plain = TABLE.with_options(outside_period=outside)
    form = plain.with_options(timestamps=zone and "utc")
    given = {"time_zone": zone, "int96": kind == "INT96"}
    by_spark, by_duckdb = both(session, tmp_path, table, "counts", TREES["destination"], form=form, **given)
    assert by_spark == by_duckdb
    assert 0 < by_spark[1][-1] < 2 ** len(day) - 1
    if zone:  # Spark sees no difference between the two physical types
        by_spark, by_duckdb = both(session, tmp_path, table, "counts", TREES["destination"], form=plain, **given)
        assert by_spark[0] == "OD-TRIPS-DATE"
        assert (by_duckdb[0] == "OD-TRIPS-DATE") == (kind == "INT96")
        local = plain.with_options(timestamps="local")
        assert both(session, tmp_path, table, "counts", TREES["destination"], form=local, **given)[0][0] == by_spark[0]
    refused = both(session, tmp_path, table, "counts", TREES["destination"], form=form, fault_threshold=0, **given)
    assert refused[0] == refused[1]
    assert refused[0][0] == "OD-TRIPS-FAULTS" or outside == "drop"


def test_too_many_faults_are_the_same_refusal(session, tmp_path):
    """With the same numbers, the same word on lost zeros, and no files left."""
    for seed, way in enumerate(["one row a trip", "counts", "weights", "users"]):
        by_spark, by_duckdb = both(
            session, tmp_path, some_records(seed), way, TREES["destination"], fault_threshold=Fraction(1, 10)
        )
        assert by_spark == by_duckdb
        assert by_spark[0] == "OD-TRIPS-FAULTS"
    table = pa.table({"home": ["1", "2", "01"], "work": ["A", "B", "12"], "day": [datetime.date(2001, 6, 1)] * 3})
    for rows, is_lost in ((table, True), (table.set_column(0, "home", pa.array(["x", "y", "01"])), False)):
        pq.write_table(rows, tmp_path / "zeros.parquet")
        given_ = (f"{tmp_path}/zeros.parquet", COLUMNS, PERIOD, tree_of_numbers(), LocalStore(tmp_path), "zeros")
        with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as refused:
            count_in_spark(session, *given_)
        assert ("lost their leading zeros" in refused.value.message) == is_lost
    listed = Geography.from_frame(pd.DataFrame({"zone": ["\u00c9vora", "A"]}), ["zone"])
    for code, is_said in (("E\u0301vora", True), ("Evora", False)):
        rows = pa.table({"home": [code] * 2, "work": ["A"] * 2, "day": [datetime.date(2001, 6, 1)] * 2})
        pq.write_table(rows, tmp_path / "zeros.parquet")
        given_ = (f"{tmp_path}/zeros.parquet", COLUMNS, PERIOD, FlowTree(listed, listed), LocalStore(tmp_path), "zeros")
        with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as refused:
            count_in_spark(session, *given_)
        assert ("listed but for how accents are encoded" in refused.value.message) == is_said
    assert not list(tmp_path.glob("counts-*"))
    assert not (tmp_path / "zeros").exists()
    assert not [view.name for view in session.catalog.listTables() if view.name.startswith("od_")]


def tree_of_numbers() -> FlowTree:
    homes = Geography.from_frame(pd.DataFrame({"zone": ["01", "02"]}), ["zone"])
    return FlowTree(homes, Geography.from_frame(pd.DataFrame({"zone": ["A", "B"]}), ["zone"]))


@pytest.mark.parametrize(
    ("counts", "what"),
    [
        ([1, None, 2], "missing"),
        ([1, -7731, 2], "negative"),
        ([1, 2**53 + 1, 2], "above 2^53"),
        ([2**53, 1, 0], "sum to more"),
        ([2**53, 0, 0], None),
    ],
)
def test_bad_counts_are_the_same_refusal(session, tmp_path, counts, what):
    table = some_records(3, len(counts)).set_column(5, "number", pa.array(counts, pa.int64()))
    by_spark, by_duckdb = both(session, tmp_path, table, "counts", TREES["destination, unknown zones"])
    assert by_spark[:2] == by_duckdb[:2]
    if what is None:
        assert isinstance(by_spark[0], list)
    else:
        assert by_spark[0] == "OD-TRIPS-COUNT"
        assert what in by_spark[1]


OTHERS = {
    "home": (pa.array([1, 2]), "OD-TRIPS-NOT-TEXT"),
    "work": (pa.array([1.5, 2]), "OD-TRIPS-NOT-TEXT"),
    "day": (pa.array([MOMENTS[0]] * 2, pa.timestamp("us", "UTC")), "OD-TRIPS-DATE"),
    "number": (pa.array([1.0, 7731.0]), "OD-TRIPS-COUNT"),
    "person": (pa.array([1.0, 7731.0]), "OD-TRIPS-USER-ID"),
    "weight": (pa.array(["1", CANARY]), "OD-TRIPS-WEIGHTS"),
    "kind": (pa.array([{CANARY: 7731}] * 2), "OD-TRIPS-CATEGORY"),
}


@pytest.mark.parametrize("column", OTHERS)
def test_columns_of_other_types_are_refused_by_name(session, tmp_path, column):
    """And so is one that is absent; no message holds a value."""
    values, code = OTHERS[column]
    table = some_records(4, 2)
    position = table.column_names.index(column)
    way = {"number": "counts", "person": "users", "weight": "weights"}.get(column, "one row a trip")
    columns, unit = WAYS[way]
    for number, (changed, expected) in enumerate(
        [(table.set_column(position, column, values), code), (table.drop_columns([column]), "OD-TRIPS-COLUMN")]
    ):
        pq.write_table(changed, tmp_path / f"{number}.parquet")
        with pytest.raises(OdError, match=f"^{expected}:") as refused:
            count_in_spark(
                session, f"{tmp_path}/{number}.parquet", columns, PERIOD, TREES["origin"], LocalStore(tmp_path),
                "counts", unit=unit, key=KEY, record_format=FORM,
            )  # fmt: skip
        assert repr(column) in refused.value.message
        assert CANARY not in str(refused.value)
        assert not {CANARY, "7731"} & set("".join(traceback.format_exception(refused.value)).split())


def test_a_table_of_the_lake_is_read_by_its_name(session, tmp_path):
    """A column whose name has a sign of quotation, too; text of a collation is no code."""
    table = some_records(5)
    frame = session.createDataFrame(table).withColumnRenamed("home", "ho`me")
    frame.write.mode("overwrite").saveAsTable("flows_of_june")
    columns = RecordColumns(origin="ho`me", destination="work", date="day")
    tree, store = TREES["destination"], LocalStore(tmp_path)
    given = {"fault_threshold": Fraction(1)}
    with pytest.raises(OdError, match=r"OD-TRIPS-ROWS.*'weight'"):
        count_in_spark(session, "flows_of_june", columns, PERIOD, tree, store, "a", **given)
    counts = count_in_spark(session, "flows_of_june", columns, PERIOD, tree, store, "a", record_format=PLAIN, **given)
    by_spark, by_duckdb = both(session, tmp_path, table, "one row a trip", tree)
    assert counted(lambda: counts) == by_spark == by_duckdb
    with pytest.raises(OdError, match="OD-SPARK-FAILED"):
        count_in_spark(session, "no_such_table", columns, PERIOD, tree, store, "b")
    lower = session.sql("SELECT `ho``me` COLLATE UTF8_LCASE AS `ho``me`, work, day FROM flows_of_june")
    lower.createOrReplaceTempView("lower")
    with pytest.raises(OdError, match="OD-TRIPS-NOT-TEXT"):
        count_in_spark(session, "lower", columns, PERIOD, tree, store, "c")


def test_neither_key_nor_period_nor_a_record_stands_in_a_plan(session, tmp_path):
    """Not in what is parsed, analysed, optimised or run: as text, hexadecimal digits, numbers or Base64."""
    period, tree = "2031-11-19", TREES["destination, unknown zones"]
    records = session.createDataFrame(
        pa.table({"origin": [CANARY], "destination": ["A"], "in_period": [True], "person": [f"{CANARY}-person"]})
    )
    count = CountQuery(tree, WAYS["users"][1], key=KEY, period=period)
    public = count.relations | {"secret": count.secret}
    frames = {name: session.createDataFrame(table) for name, table in public.items()}
    ranked = _SparkCount(session, count, {"records": records, **frames}).run_query("ranked").repartitionByRange("rank")
    by_rank = _SparkCount(session, count, {"ranked": ranked}).run_query("by_rank", "ranked")
    counts = by_rank.sortWithinPartitions("rank")
    counts.collect()
    plans = str(counts._jdf.queryExecution().toString()) + "".join(
        counts._jdf.queryExecution().explainString(
            session._jvm.org.apache.spark.sql.execution.ExplainMode.fromString(mode)
        )
        for mode in ("extended", "codegen", "formatted", "cost")
    )
    assert "inner_key" in plans
    table = count.secret
    hidden = [KEY, *(table[name][0].as_py() for name in ("inner_key", "outer_key")), period.encode(), CANARY.encode()]
    for value in hidden:
        part = value[:8]
        for shown in (part.decode("latin-1"), part.hex(), str(list(part))[1:-1]):
            assert shown.lower() not in plans.lower()


def test_what_fails_in_a_task_stays_in_the_store(session, tmp_path):
    """The details in a file for its owner alone; nothing of the attempt is left."""
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "counts").write_text("a file where a folder should be")
    pq.write_table(some_records(6), tmp_path / "records.parquet")
    with pytest.raises(OdError, match="OD-SPARK-TASK") as refused:
        count_in_spark(
            session, f"{tmp_path}/records.parquet", COLUMNS, PERIOD, TREES["origin"], LocalStore(folder), "counts",
            fault_threshold=Fraction(1), record_format=PLAIN,
        )  # fmt: skip
    told = "".join(traceback.format_exception(refused.value))
    assert "Error" not in told.replace("OdError", "").replace("ExecutionError", "")
    details = list((folder / "errors").iterdir())
    assert details
    assert {stat.S_IMODE(path.stat().st_mode) for path in details} == {0o600}
    assert all("Traceback" in path.read_text() for path in details)


CONNECTED = """
import sys
from fractions import Fraction
from pathlib import Path
from pyspark.sql import SparkSession
from od_core.ledger.object_store import LocalStore
from od_core.ledger.release_key import ReleaseKey
from od_core.spark.counting import count_in_spark
from tests.spark.test_spark_counting import FORM, KEY, PERIOD, TREES, WAYS
session = SparkSession.builder.remote("local[2]").getOrCreate()
columns, unit = WAYS["users"]
count_in_spark(session, sys.argv[1], columns, PERIOD, TREES["origin, unknown zones"], LocalStore(Path(sys.argv[2])),
    "connected", unit=unit, key=KEY, record_format=FORM, fault_threshold=Fraction(1))
session.stop()
"""


def test_a_session_of_spark_connect_counts_the_same(session, tmp_path):
    """In a process of its own, since one process has one kind of session."""
    tree = TREES["origin, unknown zones"]
    expected = both(session, tmp_path, some_records(7), "users", tree, form=FORM)
    [source] = tmp_path.glob("records-*.parquet")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", CONNECTED, str(source), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert counted(lambda: CountFiles(LocalStore(tmp_path), "connected")) == expected[0] == expected[1]


def test_points_are_placed_as_by_duckdb(session, tmp_path, monkeypatch):
    """Two columns of degrees and one of points; a border of two zones, points in none, and missing ones."""
    squares = {zone: shapely.box(west, 0, west + 1, 1) for west, zone in enumerate("BAC")}
    zones = pd.DataFrame({"zone": [*squares, "OTHER"], "boundary": [*(s.wkb.hex() for s in squares.values()), ""]})
    place = Geography.from_frame(zones, levels=["zone"], unknown="OTHER", boundaries={"zone": "boundary"})
    degrees = np.random.default_rng(8).random((300, 4)) * [3.2, 1.1, 3.2, 1.1]
    degrees[:6] = [
        [1, 0.5, 2, 0.5],
        [0, 0, 3, 1],
        [np.nan, 0.5, 1, np.nan],
        [9, 9, 1, 1],
        [2, 1, 0.5, 0],
        [180, 0, 0, 90],
    ]
    ends = shapely.to_wkb(shapely.points(degrees[:, 2:]))
    table = pa.table({"lon": degrees[:, 0], "lat": degrees[:, 1], "end": pa.array(ends, pa.binary())})
    columns = RecordColumns(PointColumns(("lon", "lat")), PointColumns(("end",)))
    monkeypatch.setitem(WAYS, "points", (columns, TRIP))
    tree = FlowTree(place, place)
    by_spark, by_duckdb = both(session, tmp_path, table, "points", tree, form=PLAIN.with_options(nowhere=("",)))
    assert by_spark == by_duckdb
    assert len(by_spark[0]) > 7
