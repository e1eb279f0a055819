"""Rows written column by column are what the csv module writes and reads."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from od_core.files import csv_text
from od_core.files.csv_text import write_rows

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('",é '), min_size=1, max_size=5)
ROWS = st.lists(st.tuples(TEXT, st.integers(-(2**63), 2**63 - 1), TEXT), max_size=8)


@given(ROWS, st.integers(1, 3))
def test_rows_are_those_of_the_csv_module(rows, at_one_time):
    whole, csv_text._ROWS = csv_text._ROWS, at_one_time
    try:
        file = io.BytesIO()
        frame = pd.DataFrame(rows, columns=["origin", "trips", "destination"]).astype(
            {"origin": "str", "trips": "int64", "destination": "str"}
        )
        table = pa.Table.from_pandas(frame)
        write_rows(file, table, header=True)
        write_rows(file, table, header=False)
    finally:
        csv_text._ROWS = whole
    expected = io.StringIO(newline="")
    csv.writer(expected, lineterminator="\r\n").writerows([("origin", "trips", "destination"), *rows, *rows])
    text = file.getvalue().decode("utf-8")
    assert text == expected.getvalue()
    read = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert read == [[str(value) for value in row] for row in (*rows, *rows)]
