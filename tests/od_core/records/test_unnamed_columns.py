"""Where rows are counted and a column is unused, the records are refused until somebody says what a row is."""

import csv
import gzip
import re

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import OdError
from od_core.privacy.unit import TRIP
from od_core.records.callers_table import load_trips, read_table
from od_core.records.formats import TABLE, RecordColumns
from od_core.records.load import find_likely_count_columns
from od_core.records.open_file import has_header

pytestmark = pytest.mark.usefixtures("one_scratch_database")


CODES = {"origin": ["aa", "ab", "aa"], "destination": ["ba", "ba", "ab"]}
SAID = TABLE.with_options(one_row_a_trip=True)
NUMBERS = [pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2)]
OTHERS = [pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.binary(), pa.time64("us")]


def parquet(tmp_path, kind, name="x"):
    pq.write_table(pa.table({**CODES, name: pa.array([None] * 3, kind)}), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def read_as(loaded, source, columns=None, form=TABLE) -> str | None:
    """The code of the refusal, if any."""
    try:
        loaded(source, columns or RecordColumns(), record_format=form, unstated=True)
    except OdError as error:
        return error.code
    return None


@pytest.mark.parametrize("kind", [*NUMBERS, *OTHERS], ids=str)
def test_by_the_type_of_a_column(tmp_path, loaded, kind):
    """Though no record has a value there: what is in the records plays no part."""
    source = parquet(tmp_path, kind)
    assert read_as(loaded, source) == "OD-TRIPS-ROWS"
    assert read_as(loaded, source, form=SAID) is None
    for table in (pd.read_parquet(source), pq.read_table(source)):
        with pytest.raises(OdError, match="OD-TRIPS-ROWS"):
            load_trips(table, TRIP, None, (), one_row_a_trip=False)
        assert len(load_trips(table, TRIP, None, (), one_row_a_trip=True)) == 3


def test_columns_that_are_named_are_known(tmp_path, loaded):
    source = parquet(tmp_path, pa.int64())
    of_users, by_category = RecordColumns(user="x"), TABLE.with_options(categories=(("x", ("3",)),))
    for columns, form in ((RecordColumns(trips="x"), TABLE), (of_users, TABLE), (RecordColumns(), by_category)):
        assert read_as(loaded, source, columns, form) is None
    weighted = parquet(tmp_path, pa.int64(), "n").rename(tmp_path / "w.parquet")
    assert read_as(loaded, weighted, RecordColumns(weight="n")) is None
    assert read_as(loaded, weighted, RecordColumns(user="origin")) == "OD-TRIPS-ROWS"


@pytest.mark.parametrize("name", ["Anzahl", "人数", "عدد"])
@pytest.mark.parametrize(
    "values", [["300", "*"], ["0300", " 7 "], ["1\u2009200", "1\u00a0200"]], ids=["mark", "pad", "space"]
)
def test_no_name_and_no_mark_hides_a_count(loaded, written, name, values):
    """At release the names decide; what most values are is asked by init alone, to offer a column."""
    source = written([("origin", "destination", name, "sex"), *(("aa", "ba", value, "m") for value in values * 3)])
    assert read_as(loaded, source) == "OD-TRIPS-ROWS"
    with pytest.raises(OdError, match="OD-TRIPS-ROWS"):
        load_trips(source, TRIP, None, (), one_row_a_trip=False)
    assert find_likely_count_columns(source, [name, "sex"], TABLE) == ([] if "*" in values else [name])
    marked = written([("origin", "destination", name), *(("aa", "ba", n) for n in ("7", "8", "<5"))], "m.csv")
    assert find_likely_count_columns(marked, [name], TABLE) == [name]


def table_of(tmp_path, names, container):
    """Three rows of which each field says its column."""
    columns = [[f"{place}"] * 3 for place in range(1, len(names) + 1)]
    if container == "parquet":
        pq.write_table(pa.table(columns, list(names)), tmp_path / "t.parquet")
        return tmp_path / "t.parquet"
    with (gzip.open if container == "csv.gz" else open)(tmp_path / f"t.{container}", "wt", newline="") as file:
        csv.writer(file).writerows([names, *zip(*columns, strict=True)])
    return tmp_path / f"t.{container}"


BY_PLACE = ("column0", "column1", "C0", "C1", "_1", "x_1", "Unnamed: 0", "(column 1: it has no name)")


@pytest.mark.representatives
@pytest.mark.parametrize("container", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize(
    "names",
    [
        ("", "origin", "destination"),  # an index of pandas or R
        ("origin", "destination", ""),  # a comma at the end of each line
        ("", "origin", " ", "destination", ""),
        ("x", "origin", "X", "destination", "x"),
    ],
)
def test_columns_without_a_name_of_their_own_are_left_unread(tmp_path, loaded, names, container):
    """Nothing reads one by a name that a library made up; a refusal says where it stands."""
    source = table_of(tmp_path, names, container)
    ends = ["origin", "destination"]
    places = [f"{names.index(end) + 1}" for end in ends]
    assert loaded(source, record_format=SAID)[ends].to_numpy().tolist() == [places] * 3
    with pytest.raises(OdError, match=r"OD-TRIPS-ROWS.*column \d: it") as error:
        loaded(source, unstated=True)
    places = [int(place) for place in re.findall(r"\(column (\d): it", error.value.message)]
    assert places == [place for place, name in enumerate(names, start=1) if name not in ends]
    for name in (*BY_PLACE, "", " "):
        assert read_as(loaded, source, RecordColumns(name), SAID) in ("OD-TRIPS-COLUMN", "OD-FILE-UNREADABLE")
        with pytest.raises(OdError, match="OD-TRIPS-COLUMN"):
            read_table(source, [name, "origin"], named="the records", code="OD-TRIPS-COLUMN")


@pytest.mark.parametrize("container", ["csv", "parquet"])
def test_a_column_that_is_used_and_there_twice_is_named_with_its_places(tmp_path, loaded, container):
    source = table_of(tmp_path, ("Origin", "destination", "origin"), container)
    said = r"more than once \(case is ignored\): 'origin' names its columns 1 and 3"
    with pytest.raises(OdError, match=f"OD-FILE-UNREADABLE.*{said}"):
        loaded(source, record_format=SAID)
    for needed, optional in ((["origin"], []), (["destination"], ["origin"])):
        with pytest.raises(OdError, match=f"OD-TRIPS-COLUMN.*{said}"):
            read_table(source, needed, optional, named="the records", code="OD-TRIPS-COLUMN")


def test_a_first_record_with_an_empty_field_is_no_header(tmp_path):
    """Its values would be shown as names of columns."""
    (tmp_path / "t.csv").write_text("Rome,,Z\n" + "1,2,3\n" * 9, encoding="utf-8")
    assert not has_header(tmp_path / "t.csv", TABLE)
