"""Where rows are counted, a column that may hold the trips of a row is refused until somebody says what it is."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import OdError
from od_core.records.format import RecordColumns, RecordFormat
from od_core.records.formats.table import TABLE
from od_core.records.formats.tlc import TLC
from od_core.records.row_meaning import unclear_records

CODES = {"origin": ["aa", "ab", "aa"], "destination": ["ba", "ba", "ab"]}
SAID = TABLE.declared(one_row_a_trip=True)
NUMBERS = [pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2)]
OTHERS = [pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.binary(), pa.time64("us")]


def parquet(tmp_path, kind, name="x"):
    pq.write_table(pa.table({**CODES, name: pa.array([None] * 3, kind)}), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def read_as(loaded, source, columns=None, form=TABLE) -> str | None:
    """The code of the refusal, if any."""
    try:
        loaded(source, columns or RecordColumns(), record_format=form)
    except OdError as error:
        return error.code
    return None


@pytest.mark.parametrize("kind", [*NUMBERS, *OTHERS], ids=str)
def test_by_the_type_of_a_column(tmp_path, loaded, kind):
    """Though no record has a value there: what is in the records plays no part."""
    source = parquet(tmp_path, kind)
    assert read_as(loaded, source) == ("OD-TRIPS-ROWS" if kind in NUMBERS else None)
    assert read_as(loaded, source, form=SAID) is None


def test_columns_that_are_named_are_known(tmp_path, loaded):
    source = parquet(tmp_path, pa.int64())
    of_users, by_category = RecordColumns(user="x"), TABLE.declared(categories=(("x", ("3",)),))
    for columns, form in ((RecordColumns(trips="x"), TABLE), (of_users, TABLE), (RecordColumns(), by_category)):
        assert read_as(loaded, source, columns, form) is None
    weighted = parquet(tmp_path, pa.int64(), "n").rename(tmp_path / "w.parquet")
    assert read_as(loaded, weighted, RecordColumns(weight="n")) is None
    assert read_as(loaded, weighted, RecordColumns(user="origin")) == "OD-TRIPS-ROWS"


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        *((name, True) for name in ("count", "Trips", "n", "tripCount", "total_2001", "weight")),
        *((name, False) for name in ("age", "trip_id", "country", "flight_number", "S000")),
    ],
)
def test_of_text_by_the_name_of_a_column_alone(loaded, written, name, is_refused):
    """All of a CSV file is text: that its values are numbers is content, on which no release may depend."""
    for value in ("7", "many"):
        source = written([("origin", "destination", name), ("aa", "ba", value)])
        assert read_as(loaded, source) == ("OD-TRIPS-ROWS" if is_refused else None)
        assert read_as(loaded, source, form=SAID) is None


def test_the_refusal_says_what_to_write(loaded, written):
    source = written([("origin", "destination", "age", "count", "n"), ("aa", "ba", "70", "7731", "1")])
    with pytest.raises(OdError, match="OD-TRIPS-ROWS") as error:
        loaded(source, RecordColumns())
    assert (
        "trips.csv (reader 'table'): column 'count' (and 1 more) may hold the number of trips of a row"
        in error.value.message
    )
    assert "columns: {trips: count}" in error.value.next_step
    assert "one_row_a_trip: true" in error.value.next_step
    assert "7731" not in str(error.value)


def test_a_reader_knows_its_columns(tmp_path, loaded):
    ids = pa.array([1, 2, 3], pa.int32())
    times = pa.array([0, 1, 2], pa.timestamp("us"))
    table = {"tpep_pickup_datetime": times, "PULocationID": ids, "DOLocationID": ids, "passenger_count": ids}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    assert read_as(loaded, tmp_path / "t.parquet", TLC.columns, TLC) is None


def found(source, columns: RecordColumns | None = None, form: RecordFormat = TABLE) -> tuple[list[str], bool]:
    return unclear_records(source, columns or RecordColumns(), form)


@pytest.mark.parametrize(
    ("values", "is_number"),
    [
        (["1", "20"], True),
        (["1,200", "7"], True),
        (["1 200", "-7.5"], True),
        (["7", ""], True),
        ([" 7 ", "0"], True),
        (["", ""], False),
        (["7", "many"], False),
        (["01", "02"], False),
        (["2001-01-03", "2001-01-03"], False),
    ],
)
def test_before_a_release_texts_that_are_numbers_are_looked_at(written, values, is_number):
    rows = [("aa", "ba", value) for value in values]
    source = written([("origin", "destination", "x"), *rows])
    assert found(source) == (["x"] if is_number else [], False)
    assert found(source, RecordColumns(trips="x")) == found(source, form=SAID) == ([], False)
    assert found(source, RecordColumns(origin="absent")) == ([], False)


def test_before_a_release_pairs_that_stand_once_are_looked_at(written):
    pairs = [(f"a{k // 20}", f"b{k % 20}") for k in range(400)]
    for number, more in enumerate(([], [pairs[7]])):
        source = written([("origin", "destination"), *pairs, *more], f"{number}.csv")
        assert found(source) == ([], not more)
    assert found(written([("origin", "destination"), *pairs[:20]], "few.csv")) == ([], False)


def test_a_frame_of_records_reaches_the_same_columns(tmp_path, loaded):
    """What is kept of the records holds none of the columns that are not read."""
    source = parquet(tmp_path, pa.int64())
    assert "x" not in loaded(source, RecordColumns(), record_format=SAID).columns
    assert pd.read_parquet(source).columns.tolist() == ["origin", "destination", "x"]
