"""Find columns that may contain the number of trips of a row, if no declaration states whether a row is one trip.

If a row stands for 100 trips and is counted as one trip, 99 are lost. An *unnamed* column is a column that no
declaration reads or selects rows by. A release checks unnamed columns by name and type alone, because the content of
the records is confidential and must not decide whether a release is refused. Only commands that declare or check an
input use the content (:func:`unclear_records`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from od_core.errors import OdError, raise_alone
from od_core.files.duckdb_session import quoted_name, quoted_text, scratch_database
from od_core.records.faults import reading_errors
from od_core.records.file_faults import unreadable
from od_core.records.format import RecordColumns, RecordFormat, column_in
from od_core.records.open_file import files_read, open_records

_COUNT_WORDS = frozenset(
    [
        "commuters",
        "count",
        "counts",
        "flow",
        "flows",
        "freq",
        "frequency",
        "jobs",
        "journeys",
        "n",
        "passengers",
        "people",
        "persons",
        "total",
        "totals",
        "travellers",
        "travelers",
        "trips",
        "volume",
        "volumes",
        "weight",
        "weights",
        "workers",
    ]
)
"""Words in the names of columns that contain numbers of trips or weights."""

_NUMBER_TYPES = frozenset(
    [
        "tinyint",
        "smallint",
        "int",
        "integer",
        "bigint",
        "hugeint",
        "utinyint",
        "usmallint",
        "uinteger",
        "ubigint",
        "uhugeint",
        "bignum",
        "float",
        "double",
        "real",
        "decimal",
    ]
)
"""Names of the number types of DuckDB and Spark."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")


def is_count_name(name: str) -> bool:
    """Return whether a column's name contains a word for numbers of trips or weights.

    >>> [is_count_name(name) for name in ("count", "Trips_2001", "tripCount", "n", "trip_id", "country", "discount")]
    [True, True, True, True, False, False, False]
    """
    return any(word.casefold() in _COUNT_WORDS for word in _WORD.findall(name))


def is_number_type(kind: str) -> bool:
    """Return whether a DuckDB or Spark type is a number type. The type is given without its parameters."""
    return kind.casefold() in _NUMBER_TYPES


def unclear_columns(is_number: Mapping[str, bool], named: Iterable[str]) -> list[str]:
    """Return the columns that may contain the number of trips of a row, those with a name such as ``count`` first.

    Args:
        is_number: for every column of the file, whether its type is a number type.
        named: columns that are read or by which rows are selected. They are left out of the result.
    """
    unnamed = [name for name in is_number if name not in set(named)]
    by_name = [name for name in unnamed if is_count_name(name)]
    return [*by_name, *(name for name in unnamed if is_number[name] and name not in by_name)]


def refuse_unclear_columns(columns: list[str], table: str, next_step: str) -> None:
    """Raise OdError if a column may contain the number of trips of a row.

    Args:
        columns: the result of :func:`unclear_columns`.
        table: description of the table, with which the message begins.
        next_step: next step of the error, which tells the user how to declare the meaning of a row.
    """
    if columns:
        more = f" (and {len(columns) - 1} more)" if len(columns) > 1 else ""
        raise OdError(
            "OD-TRIPS-ROWS",
            f"{table}: column {columns[0]!r}{more} may hold the number of trips of a row, judging by its name or its"
            " numbers; nothing says whether a row is one trip",
            next_step=next_step,
        )


FIRST_ROWS = 100_000
"""Largest number of rows that commands which declare an input read."""

_MANY_ROWS = 100
"""Smallest number of rows from which :func:`unclear_records` concludes that a file is a table of flows.

In a shorter file, each pair of places may occur only once by chance.
"""

_NUMBER = r"\s*-?(0|[1-9]\d*|[1-9]\d{0,2}([ ,.'\x{00A0}]\d{3})+)([.,]\d+)?\s*"
"""RE2 pattern of a number, possibly in groups of three digits, but not of a code with a leading zero."""


def refuse_unclear_rows(types: Mapping[str, str], columns: RecordColumns, form: RecordFormat, table: str) -> None:
    """Raise OdError if an unnamed column may contain the number of trips of a row, judging by its name and type.

    Nothing is refused if a column of trips or weights is named, or if the format states that a row is one trip.

    Args:
        types: type of every column, without its parameters.
        columns: the named columns.
        form: format of the records.
        table: description of the table, with which the message begins.
    """
    if form.one_row_a_trip or not columns.counts_rows:
        return
    is_number = {name: is_number_type(kind) for name, kind in types.items()}
    unclear = unclear_columns(is_number, _named(types, columns, form))
    step = f"write columns: {{trips: {''.join(unclear[:1])}}} if it holds the number of trips of a row, or"
    refuse_unclear_columns(unclear, table, f"{step} one_row_a_trip: true, next to the path of the files")


def unclear_records(source: Path, columns: RecordColumns, form: RecordFormat) -> tuple[list[str], bool]:
    """Confidential: find out from the first records of a file whether a row may be several trips.

    Args:
        source: the file.
        columns: the named columns.
        form: format of the records in the file.

    Returns:
        The unnamed columns that may contain the number of trips of a row, because of their names, their types or
        because all their texts are numbers. And whether the file looks like a table of flows: it has at least 100 rows,
        and each has a different pair of places. If the declaration states that a row is one trip or names a column of
        trips or weights, or if a named column is missing, an empty list and False.

    Raises:
        OdError: the file cannot be read.
    """
    try:
        with TemporaryDirectory() as empty, scratch_database(Path(empty), *files_read(source)) as connection:
            file = open_records(connection, source, form)
            types = file.types
            missing = any(column_in(name, list(types)) is None for name in columns.names)
            if form.one_row_a_trip or not columns.counts_rows or missing:
                return [], False
            named = _named(types, columns, form)
            texts = [name for name, kind in types.items() if kind == "VARCHAR" and name not in named]
            ends = [quoted_name(str(column_in(end, list(types)))) for end in (columns.origin, columns.destination)]
            filled = [f"{quoted_name(name)} IS NOT NULL AND trim({quoted_name(name)}) <> ''" for name in texts]
            is_number = [f"regexp_full_match({quoted_name(name)}, {quoted_text(_NUMBER)})" for name in texts]
            wanted = [
                "count(*)",
                f"count(DISTINCT ({', '.join(ends)}))",
                *(
                    f"coalesce(bool_and({number}) FILTER (WHERE {has}), false)"
                    for number, has in zip(is_number, filled, strict=True)
                ),
            ]
            rows, pairs, *are_numbers = file.relation.limit(FIRST_ROWS).aggregate(", ".join(wanted)).fetchall()[0]
    except reading_errors() as error:
        raise_alone(unreadable(source, form, error))
    numeric = dict(zip(texts, are_numbers, strict=True))
    judged = {name: is_number_type(kind) or numeric.get(name, False) for name, kind in types.items()}
    return unclear_columns(judged, named), rows >= _MANY_ROWS and pairs == rows


def _named(types: Mapping[str, str], columns: RecordColumns, form: RecordFormat) -> list[str]:
    """Return the columns that are read or by which rows are selected, named as in the file."""
    names = (*columns.names, *(column for column, _ in form.categories))
    return [str(column_in(name, list(types))) for name in names]
