"""One table in every container, through the library and the pipeline: the same counts, or refused by the same code."""

import csv
import re
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, FlowTree, Geography, Grid, OdError, PrivacyUnit, Trajectories, release_flows
from od_core.group_sizes.groups import GroupSizes
from od_core.records.counting import count_records_in_memory, count_trips
from od_core.records.formats import TABLE, RecordColumns
from od_core.records.load import load_records
from od_core.records.segments import Breakdown, SegmentSource
from tests.od_core.records.conftest import OnlyAStream
from tests.od_core.truth import pairs_of

pytestmark = pytest.mark.usefixtures("one_scratch_database")

ZONES = ["01", "02", "NA"]
GEOGRAPHY = Geography.from_frame(pd.DataFrame({"zone": ZONES}), ["zone"])
TREE = FlowTree(GEOGRAPHY, GEOGRAPHY)


def parquet(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "t.parquet")
    return folder / "t.parquet"


def text(table: pa.Table, folder: Path) -> Path:
    with (folder / "t.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([table.column_names, *zip(*(one.to_pylist() for one in table.columns), strict=True)])
    return folder / "t.csv"


def database(table: pa.Table, folder: Path) -> Path:
    with duckdb.connect(folder / "t.duckdb") as connection:
        connection.register("given", table)
        connection.execute("CREATE OR REPLACE TABLE t AS FROM given")
    return folder / "t.duckdb"


NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.uint8(): pd.UInt8Dtype(), pa.float64(): pd.Float64Dtype()}

LIBRARY: dict[str, Callable[[pa.Table, Path], Any]] = {
    "relation": lambda table, _: duckdb.from_arrow(table),
    "arrow": lambda table, _: table,
    "stream": lambda table, _: OnlyAStream(table),
    "pandas": lambda table, _: table.to_pandas(),
    "objects": lambda table, _: pd.DataFrame(table.to_pydict(), dtype=object),
    "nullable": lambda table, _: table.to_pandas(types_mapper=NULLABLE.get),
    "pandas of Arrow": lambda table, _: table.to_pandas(types_mapper=pd.ArrowDtype),
    "parquet": parquet,
    "csv": text,
}
PIPELINE = {"parquet": parquet, "csv": text, "duckdb": database}


def counted(table: pa.Table, container: str, folder: Path, trips: str | None = "riders", **options: Any) -> Any:
    """Trips of each pair of zones, counted by the library."""
    columns = {} if trips is None else {"trips": trips}
    return pairs_of(TREE, count_trips(LIBRARY[container](table, folder), TREE, columns=columns, **options))


def piped(
    table: pa.Table, container: str, folder: Path, columns: RecordColumns, *, one_row_a_trip: bool = False
) -> Any:
    """Trips of each pair of zones, counted by the steps of the pipeline."""
    form = TABLE.with_options(table="t" if container == "duckdb" else None, one_row_a_trip=one_row_a_trip)
    loaded = folder / "loaded.parquet"
    load_records(PIPELINE[container](table, folder), columns, "2026-01", loaded, record_format=form)
    return pairs_of(TREE, count_records_in_memory(loaded, TREE))


def outcome(count: Callable[[], Any]) -> Any:
    """What is counted, or the code of the error."""
    try:
        return dict(count())
    except OdError as error:
        return error.code


def decimals(*values: str | None, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([None if one is None else Decimal(one) for one in values], kind or pa.decimal128(38, 20))


GOOD = {
    "int64": pa.array([77, 2]),
    "uint8": pa.array([77, 2], pa.uint8()),
    "float64": pa.array([77.0, 2.0]),
    "decimal128(18, 0)": decimals("77", "2", kind=pa.decimal128(18, 0)),
    "decimal128(38, 20)": decimals("77", "2"),
    "text": pa.array(["77", "2"]),
    "text with a point": pa.array(["77.0", "+2."]),
    "text with exponents": pa.array(["770e-1", "0.02E+2"]),
    "text with zeros after its digits": pa.array([" 77.00", "2.00000"]),
}
BAD = {
    "a decimal fraction": decimals("77", "1.5"),
    "a decimal fraction that no double holds": decimals("77", "1.00000000000000000001"),
    "a missing decimal": decimals("77", None),
    "a negative decimal": decimals("77", "-2"),
    "a decimal above 2^53": decimals("77", str(2**53 + 1)),
    "a decimal above 2^64": decimals("77", "1" + "0" * 30, kind=pa.decimal128(38, 0)),
    "a sum above 2^53": decimals("77", str(2**53)),
    "a missing number": pa.array([77, None]),
    "a number of 64 bits above 2^53": pa.array([77, 2**53 + 1], pa.uint64()),
    "a missing number of 8 bits": pa.array([77, None], pa.uint8()),
    "NaN": pa.array([77.0, float("nan")]),
    "a fraction": pa.array([77.0, 1.5]),
    "a fraction as text": pa.array(["77", "1.00000000000000000001"]),
    "a fraction by its exponent": pa.array(["77", "99999999999999999e-17"]),
    "a fraction by a large exponent": pa.array(["77", "1e-99999999999999999999"]),
    "a text of a decimal above 2^53": pa.array(["77", "900719925474099.3e1"]),
    "a text above every double": pa.array(["77", "1e400"]),
    "a point between thousands": pa.array(["77", "12.000"]),
    "a sign and a point between thousands": pa.array(["77", " +12.000 "]),
    "a point before three zeros": pa.array(["77", "0.000"]),
    "points between thousands": pa.array(["77", "1.000.000"]),
    "a sign alone": pa.array(["77", "-"]),
    "no number": pa.array(["77", "*"]),
    "Booleans": pa.array([True, False]),
}
"""Columns of trips of two rows."""


def with_counts(riders: pa.Array) -> pa.Table:
    return pa.table({"origin": ["01", "02"], "destination": ["02", "NA"], "riders": riders})


@pytest.mark.representatives(
    "uint8",
    "decimal128(38, 20)",
    "a decimal fraction that no double holds",
    "a decimal above 2^53",
    "a missing number of 8 bits",
    "NaN",
    "a fraction as text",
)
@pytest.mark.parametrize("column", [*GOOD, *BAD])
def test_a_column_of_trips_is_judged_alike_in_every_container(tmp_path, column):
    """Exactly, and by its own type: whole decimals are counts, and no rounding makes a count of a fraction."""
    table = with_counts((GOOD | BAD)[column])
    right = {("01", "02"): 77, ("02", "NA"): 2} if column in GOOD else "OD-TRIPS-COUNT"
    pipe = {name: outcome(partial(piped, table, name, tmp_path, RecordColumns(trips="riders"))) for name in PIPELINE}
    assert pipe == dict.fromkeys(pipe, right)
    for container in LIBRARY:
        if column in GOOD:
            assert outcome(partial(counted, table, container, tmp_path)) == right
            continue
        with pytest.raises(OdError, match=r"column 'riders' holds [^7]*$") as refused:
            counted(table, container, tmp_path)
        assert refused.value.code == right


@pytest.mark.parametrize("container", LIBRARY)
@pytest.mark.parametrize("kind", [pa.float64(), pa.string()])
def test_coordinates_are_no_counts(tmp_path, container, kind):
    """As text or as numbers, they are fractions, also with three digits after a point."""
    places = pa.table({"x": pa.array(["1.75", "3.000"]), "y": pa.array(["0.25", "2.9"])})
    given = LIBRARY[container](places.cast(pa.schema([("x", kind), ("y", kind)])), tmp_path)
    bounds = [(0, 4), (0, 4)]
    placed = Trajectories.from_coordinates(given, Grid((8, 8)), bounds, columns=["x", "y"])
    assert placed.points.tolist() == [[3, 0], [6, 5]]


@pytest.mark.parametrize("container", LIBRARY)
def test_whole_user_ids_stay_whole_if_one_is_missing(tmp_path, container):
    """As floats, ids above 2^53 would be those of other users."""
    ids = pa.array([2**53, 2**53 + 1, 2**53 + 1, *[7] * 2_000, None])
    table = pa.table({"origin": ["01"] * len(ids), "destination": ["02"] * len(ids), "who": ids})
    unit = PrivacyUnit("user", column="who", max_trips=1)
    found = outcome(partial(counted, table, container, tmp_path, trips=None, unit=unit, key=bytes(32)))
    assert found == ("OD-TRIPS-USER-ID" if container == "pandas" else {("01", "02"): 3})


OTHER_TYPES = {
    "binary": pa.array([b"01", b"02"]),
    "list": pa.array([["01"], ["02"]]),
    "struct": pa.array([{"zone": "01"}, {"zone": "02"}]),
    "map": pa.array([[("zone", "01")], [("zone", "02")]], pa.map_(pa.string(), pa.string())),
    "timestamp": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)]),
    "date": pa.array([date(2026, 1, 1), date(2026, 1, 2)]),
    "time": pa.array([time(7), time(8)]),
    "Boolean": pa.array([True, False]),
    "decimal": decimals("1", "2", kind=pa.decimal128(9, 0)),
    "double": pa.array([1.0, 2.0]),
    "UUID": pa.array([UUID(int=1).bytes, UUID(int=2).bytes], pa.uuid()),
}
MIXED = {
    "bytes": ["01", b"02"],
    "list": ["01", ["02"]],
    "dict": [{"zone": "01"}, "02"],
    "UUID": ["01", UUID(int=2)],
    "Decimal": [Decimal(1), "02"],
    "Timestamp": [pd.Timestamp(2026, 1, 1), None],
    "Timedelta": [pd.Timedelta(1), None],
    "bool": [np.nan, True],
    "float": ["01", 2.0],
}


CODES = ["OD-TRIPS-NOT-TEXT", "OD-TRIPS-USER-ID", "OD-TRIPS-NOT-TEXT"]


def refused_types(flows: Any) -> list[str]:
    """What is said of column x as that of zone codes, of user ids and of categories."""
    said = []
    for columns, unit, breakdowns in (
        ({"origin": "x"}, PrivacyUnit("trip"), []),
        ({}, PrivacyUnit("user", column="x", max_trips=1), []),
        ({"kind": "x"}, PrivacyUnit("trip"), [Breakdown("kind", ("01", "02"), unknown="02")]),
    ):
        options = {"unit": unit, "breakdowns": breakdowns, "key": bytes(32), "fault_threshold": 1}
        with pytest.raises(OdError) as refused:
            count_trips(flows, TREE, one_row_a_trip=True, columns=columns, **options)
        said.append(f"{refused.value.code}: {refused.value.message}")
    return said


@pytest.mark.representatives("binary", "struct", "UUID")
@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_a_column_of_another_type_than_text_is_refused_by_its_type_in_every_container(tmp_path, kind):
    table = pa.table({"origin": ["01", "02"], "destination": ["02", "NA"], "x": OTHER_TYPES[kind]})
    for container in set(LIBRARY) - {"csv"}:
        for said, code in zip(refused_types(LIBRARY[container](table, tmp_path)), CODES, strict=True):
            assert re.fullmatch(rf"{code}: column 'x' holds [\w.]+; .*text.*", said), (container, said)
    for container in ("parquet", "duckdb"):
        columns = [RecordColumns(origin="x"), RecordColumns(user="x")]
        columns.append(RecordColumns(segments=(SegmentSource("kind", "x"),)))
        found = [outcome(partial(piped, table, container, tmp_path, one, one_row_a_trip=True)) for one in columns]
        assert found == CODES, container


@pytest.mark.parametrize("kind", MIXED)
def test_objects_of_another_type_among_text_are_refused_by_it(kind):
    frame = pd.DataFrame({"origin": ["01", "02"], "destination": "NA", "x": pd.Series(MIXED[kind], dtype=object)})
    for given_ in (frame, frame.astype({"x": "category"})) if kind not in ("list", "dict") else (frame,):
        assert all(f"column 'x' holds {kind};" in said for said in refused_types(given_))
    groups = frame.rename(columns={"x": "area"}).assign(group=["g", "h"], size=1)
    with pytest.raises(OdError, match=f"OD-GROUPS-AREA: column 'area' holds {kind};"):
        GroupSizes.from_frame(groups, GEOGRAPHY)
    with pytest.raises(OdError, match=f"OD-STOPS-ZONE: column 'x' holds {kind};"):
        Trajectories.from_zones(frame[["x"]], ZONES)


def test_dictionaries_of_arrow_in_pandas_are_columns_of_their_values():
    def encoded(values: list[Any]) -> pd.Series:
        return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(values).dictionary_encode()])))

    frame = pd.DataFrame({"origin": encoded(["01", "02", "02"]), "destination": encoded(["NA"] * 3)})
    counted = count_trips(frame.assign(trips=encoded([5, 7, 7])), TREE)
    assert pairs_of(TREE, counted) == {("01", "NA"): 5, ("02", "NA"): 14}
    unit, options = PrivacyUnit("user", column="x", max_trips=1), {"key": bytes(32), "one_row_a_trip": True}
    assert count_trips(frame.assign(x=encoded([8, 9, 9])), TREE, unit=unit, **options).total == 2
    with pytest.raises(OdError, match="OD-TRIPS-NOT-TEXT: column 'origin' holds int64; zone codes must be text"):
        count_trips(frame.assign(origin=encoded([1, 2, 2])), TREE, one_row_a_trip=True)


NAMES = ("riders", "count", "Fallzahl", "人数", "nombre d'élèves", "x", "n_trips", "Итого", "it's", "TRIPS")
MARKS = ("*", "..", "-", "c", "<5", "n/a", "\u2026", "(u)", "NULL", "0*")
NUMBERS: dict[str, Callable[[list[int]], pa.Array]] = {
    "int64": lambda numbers: pa.array(numbers, pa.int64()),
    "uint16": lambda numbers: pa.array(numbers, pa.uint16()),
    "float64": lambda numbers: pa.array(numbers, pa.float64()),
    "decimal": lambda numbers: decimals(*map(str, numbers)),
    "text": lambda numbers: pa.array(list(map(str, numbers))),
    "dictionary": lambda numbers: pa.array(list(map(str, numbers))).dictionary_encode(),
    "padded text": lambda numbers: pa.array([f" {number:>7} " for number in numbers]),
    "decimal text": lambda numbers: pa.array([f"{number}.0" for number in numbers]),
    "thin spaces": lambda numbers: pa.array([f"{number:,}".replace(",", "\u2009") for number in numbers]),
    "commas": lambda numbers: pa.array([f"{number:,}" for number in numbers]),
    "bytes": lambda numbers: pa.array([str(number).encode() for number in numbers]),
    "durations": lambda numbers: pa.array(numbers, pa.duration("s")),
}
"""Columns of the same whole numbers."""


@given(number=st.integers(0, 2**32))
def test_a_table_of_any_form_is_published_right_or_refused_by_name(tmp_path, number):
    """At epsilon 60, where the noise has a standard deviation below 1, a wrong meaning of the rows would be seen.

    The extra column holds thousands of trips in every row. An error of 60 has a probability far below 1e-6.
    """
    drawn = np.random.default_rng(number)
    name, kind, stated = drawn.choice(NAMES), drawn.choice(list(NUMBERS)), drawn.choice(["trips", "row", "nothing"])
    numbers = drawn.integers(1_000, 9_999, size=drawn.integers(3, 40)).tolist()
    codes = [drawn.choice(ZONES, size=len(numbers)).tolist() for _ in range(2)]
    extra = NUMBERS[kind](numbers)
    if drawn.random() < 0.3:
        marked = extra.to_pylist()
        marked[drawn.integers(len(marked))] = str(drawn.choice(MARKS)) if pa.types.is_string(extra.type) else None
        extra = pa.array(marked, extra.type)
    table = pa.table({"origin": codes[0], "destination": codes[1], name: extra})
    meant = numbers if stated == "trips" or (stated == "nothing" and name == "trips") else [1] * len(numbers)
    right: Counter[tuple[str, str]] = Counter()
    for origin, destination, trips in zip(*codes, meant, strict=True):
        right[origin, destination] += trips

    def by_the_library() -> dict[tuple[str, str], int]:
        given = {"columns": {"trips": name}} if stated == "trips" else {"one_row_a_trip": stated == "row"}
        source = LIBRARY[drawn.choice(list(LIBRARY))](table, tmp_path)
        budget = Budget(epsilon=60, delta=1e-9)
        unit = PrivacyUnit("trip")
        release = release_flows(source, GEOGRAPHY, unit=unit, budget=budget, noise="table", **given)
        flows = release.flows_at("zone", "zone")
        return dict(zip(zip(flows["origin"], flows["destination"], strict=True), flows["trips"], strict=True))

    def by_the_pipeline() -> dict[tuple[str, str], int]:
        columns = RecordColumns(trips=name if stated == "trips" else None)
        return piped(table, drawn.choice(list(PIPELINE)), tmp_path, columns, one_row_a_trip=stated == "row")

    for count in (by_the_library, by_the_pipeline):
        error, found = None, None
        try:
            found = count()
        except OdError as refused:
            error = refused
        if error is not None:
            assert error.code in ("OD-TRIPS-ROWS", "OD-TRIPS-COUNT"), error
            assert {repr(str(name)), "'trips'"} & set(re.findall(r"'[^']+'|\"[^\"]+\"", error.message)), error
        else:
            assert stated != "nothing", (name, kind)
            assert all(abs(found.get(pair, 0) - right[pair]) < 60 for pair in {*found, *right}), (name, kind, stated)
