"""Refuse records of which nothing says whether a row is one trip or several.

If a row stands for 100 trips and is counted as one trip, 99 are lost. What a row is cannot be seen in the records: a
number of trips may have any name, and a single mark such as ``*`` makes text of its column. So it must be stated as
soon as the records have an *unused* column, which no declaration reads and by which no rows are selected. The names of
the columns alone decide, so a refusal tells nothing about the records. Only ``od-release init``, where a person
answers, looks at the content (:func:`count_columns`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from od_core.errors import OdError
from od_core.files.data_frame import shown_columns
from od_core.files.duckdb_session import quoted_name
from od_core.records.format import RecordColumns, RecordFormat, column_in
from od_core.records.open_file import opened, record_schema

FIRST_ROWS = 100_000
"""Largest number of rows that commands which declare an input read."""

_MANY_ROWS = 100
"""Smallest number of rows from which :func:`has_single_pairs` concludes that a file is a table of flows.

In a shorter file, each pair of places may occur only once by chance.
"""

_NUMBER = r"[\s\p{Z}]*[-+]?\p{Nd}[\p{Nd}\p{Z}\s.,''\x{2019}_]*"
"""RE2 pattern of a number within quotes of SQL: in any digits, possibly padded, grouped or with decimals."""


def unused_columns(there: Iterable[str], columns: RecordColumns, form: RecordFormat) -> list[str]:
    """Return the columns that are not read and by which no rows are selected, in the order of the records.

    Args:
        there: names of all columns of the records.
        columns: the columns that are read.
        form: format of the records.
    """
    names = list(there)
    used = {column_in(name, names) for name in (*columns.names, *(column for column, _ in form.categories))}
    return [name for name in names if name not in used]


def refuse_unstated_rows(there: Iterable[str], columns: RecordColumns, form: RecordFormat, table: str) -> None:
    """Raise OdError if the records have unused columns, and nothing states whether a row is one trip.

    Nothing is refused if a column of trips or weights is named, or if the format states that a row is one trip.

    Args:
        there: names of all columns of the records.
        columns: the columns that are read.
        form: format of the records.
        table: description of the table, with which the message begins.
    """
    if not form.one_row_a_trip and columns.counts_rows:
        step = "one_row_a_trip: true if each row is one trip, or columns: {trips: COLUMN} if COLUMN holds the number"
        unused = unused_columns(there, columns, form)
        refuse_unused(unused, table, f"write {step} of trips of a row, next to the path of the files")


def refuse_unused(unused: list[str], table: str, next_step: str) -> None:
    """Raise OdError if there are unused columns.

    Args:
        unused: names of the unused columns.
        table: description of the table, with which the message begins.
        next_step: next step of the error, which says how to state the meaning of a row.
    """
    if unused:
        columns = "column" if len(unused) == 1 else "columns"
        raise OdError(
            "OD-TRIPS-ROWS",
            f"{table}: nothing says whether a row is one trip, and unused {columns} might hold the number of trips:"
            f" {shown_columns(unused)}",
            next_step=next_step,
        )


def count_columns(source: Path, columns: list[str], form: RecordFormat) -> list[str]:
    """Confidential: return the columns that look like counts, as most of their first values are numbers.

    Args:
        source: the file of records.
        columns: the columns to look at, named as in the file.
        form: format of the records in the file.

    Raises:
        OdError: the file cannot be read.
    """
    texts = [f"nullif(trim({quoted_name(name)}::VARCHAR), '')" for name in columns]
    are_numbers = [f"2 * count_if(regexp_full_match({text}, '{_NUMBER}')) > count({text})" for text in texts]
    if not columns:
        return []
    return [
        name for name, is_number in zip(columns, _of_first_rows(source, form, are_numbers), strict=True) if is_number
    ]


def has_single_pairs(source: Path, columns: RecordColumns, form: RecordFormat) -> bool:
    """Confidential: return whether the first rows, at least 100, each have another pair of places, as tables of flows.

    Args:
        source: the file of records.
        columns: the columns that are read. Origin and destination must be there.
        form: format of the records in the file.

    Raises:
        OdError: the file cannot be read.
    """
    there = list(record_schema(source, form))
    ends = [quoted_name(str(column_in(end, there))) for end in (columns.origin, columns.destination)]
    rows, pairs = _of_first_rows(source, form, ["count(*)", f"count(DISTINCT ({', '.join(ends)}))"])
    return bool(rows >= _MANY_ROWS and pairs == rows)


def _of_first_rows(source: Path, form: RecordFormat, asked: list[str]) -> tuple[int, ...]:
    """Return the values of SQL aggregates over the first rows of a file."""
    with opened(source, form) as file:
        found: tuple[int, ...] = file.relation.limit(FIRST_ROWS).aggregate(", ".join(asked)).fetchall()[0]
    return found
