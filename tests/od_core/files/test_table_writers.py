"""Rows written column by column are those of the csv module; row groups do not depend on how rows are handed over."""

import csv
import io
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.files import table_writers
from od_core.files.table_writers import write_batches, write_csv_rows

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('",é '), min_size=1, max_size=5)
WHOLE = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(*(st.none() | one for one in (TEXT, WHOLE, st.floats(), TEXT))), max_size=8)
NAMES = ("origin", "trips", "distance", "destination")


@given(ROWS, st.integers(1, 3))
def test_rows_are_those_of_the_csv_module(rows, at_one_time):
    whole, table_writers._ROWS_AT_A_TIME = table_writers._ROWS_AT_A_TIME, at_one_time
    try:
        file = io.BytesIO()
        types = (pa.string(), pa.int64(), pa.float64(), pa.large_string())
        columns = [*zip(*rows, strict=True)] or [()] * 4
        table = pa.table([pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], NAMES)
        write_csv_rows(file, table, header=True)
        write_csv_rows(file, table, header=False)
    finally:
        table_writers._ROWS_AT_A_TIME = whole
    text = file.getvalue().decode("utf-8")
    head, *read = csv.reader(io.StringIO(text, newline=""))
    assert tuple(head) == NAMES
    expected = [tuple("" if value is None else str(value) for value in (one[0], one[1], one[3])) for one in rows]
    assert [(one[0], one[1], one[3]) for one in read] == expected * 2
    numbers = [None if one[2] is None or math.isnan(one[2]) else one[2] for one in (*rows, *rows)]
    assert [float(one[2]) if one[2] else None for one in read] == numbers
    expected = io.StringIO(newline="")
    csv.writer(expected, lineterminator="\r\n").writerows([head, *read])
    assert text == expected.getvalue()


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3))
def test_a_table_may_have_texts_alone_and_the_same_in_every_row(rows):
    file, expected = io.BytesIO(), io.StringIO(newline="")
    write_csv_rows(file, pa.table([*zip(*rows, strict=True)], ["origin", "destination"]), header=False)
    csv.writer(expected, lineterminator="\r\n").writerows(rows)
    assert file.getvalue().decode("utf-8") == expected.getvalue()


@pytest.mark.parametrize("sizes", [(20,), (7, 7, 6), (1,) * 20, (5, 0, 15), (19, 1)])
def test_all_row_groups_but_the_last_are_full(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    rows = pa.table({"number": range(sum(sizes) + 3)})
    batches, first = [], 0
    for size in (*sizes, 3):
        batches += rows.slice(first, size).to_batches()
        first += size
    write_batches(tmp_path / "rows.parquet", rows.schema, batches, rows=5)
    with pq.ParquetFile(tmp_path / "rows.parquet") as file:
        groups = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        assert (groups, file.read()) == ([5, 5, 5, 5, 3], rows)
