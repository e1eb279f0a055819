"""Whether a row is one trip or many, where nothing says it: counted as one trip, a row of a hundred loses 99 of them.

Columns that nobody has named are looked at by name and type alone: those are the schema. What the records themselves
say of it is confidential, and no release depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from od_core.errors import OdError
from od_core.files.duckdb_session import quoted_name, quoted_text, scratch_database
from od_core.records.file_faults import READING_ERRORS, unreadable
from od_core.records.format import RecordColumns, RecordFormat, column_in
from od_core.records.open_file import OpenFile, files_read, open_records

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
"""Words in the names of columns that hold numbers of trips, or weights."""

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
"""Types of numbers as DuckDB and Spark name them."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")


def is_count_name(name: str) -> bool:
    """Whether a column's name says that it holds numbers of trips.

    >>> [is_count_name(name) for name in ("count", "Trips_2001", "tripCount", "n", "trip_id", "country", "discount")]
    [True, True, True, True, False, False, False]
    """
    return any(word.casefold() in _COUNT_WORDS for word in _WORD.findall(name))


def is_number_type(kind: str) -> bool:
    """Whether a type of DuckDB or Spark, by its name without what it is made of, is one of numbers."""
    return kind.casefold() in _NUMBER_TYPES


def unclear_columns(is_number: Mapping[str, bool], named: Iterable[str]) -> list[str]:
    """Columns that nobody has named and that may hold the trips of a row; those whose names say so first.

    Args:
        is_number: of every column, whether its type is one of numbers.
        named: columns that are read, or choose rows.
    """
    unnamed = [name for name in is_number if name not in set(named)]
    by_name = [name for name in unnamed if is_count_name(name)]
    return [*by_name, *(name for name in unnamed if is_number[name] and name not in by_name)]


def refuse_unclear_columns(columns: list[str], table: str, next_step: str) -> None:
    """Raise OdError where there are columns that may hold the trips of a row.

    Args:
        columns: see :func:`unclear_columns`.
        table: what has them, in words.
        next_step: how to say what a row is.
    """
    if columns:
        more = f" (and {len(columns) - 1} more)" if len(columns) > 1 else ""
        raise OdError(
            "OD-TRIPS-ROWS",
            f"{table}: column {columns[0]!r}{more} may hold the trips of a row, by its name or as a column of numbers;"
            " nothing says whether a row is one trip",
            next_step=next_step,
        )


# Columns of a file of records that nobody has named, where rows are counted: one of them may hold the trips of a row.
#
# At a release they are judged by the schema alone. What the records themselves say is looked at only before it, for
# whoever declares or checks an input.


_FIRST_ROWS = 100_000
"""So many rows are looked at."""

_MANY_ROWS = 100
"""Of fewer rows each pair of places may well stand once."""

_NUMBER = r"\s*-?(0|[1-9]\d*|[1-9]\d{0,2}([ ,.'\x{00A0}]\d{3})+)([.,]\d+)?\s*"
"""A number, in groups of three digits too; no code that begins with a zero. In the language of RE2."""


def unnamed_columns(types: Mapping[str, str], columns: RecordColumns, form: RecordFormat) -> list[str]:
    """Columns that nobody has named and that may hold the trips of a row, by the schema alone; none where it is said.

    Args:
        types: of every column, without what they are made of.
        columns: those that are named.
        form: how the records stand in the file.
    """
    if form.one_row_a_trip or not columns.counts_rows:
        return []
    return unclear_columns({name: is_number_type(kind) for name, kind in types.items()}, _named(types, columns, form))


def refuse_unclear(columns: list[str], table: str) -> None:
    """Raise OdError where there are such columns."""
    name = columns[0] if columns else ""
    step = f"write columns: {{trips: {name}}} if it holds the trips of a row, or one_row_a_trip: true,"
    refuse_unclear_columns(columns, table, f"{step} beside the path of the files")


def refuse_unclear_rows(file: OpenFile, columns: RecordColumns) -> None:
    """Raise OdError as :func:`refuse_unclear`, of an open file whose named columns are there."""
    refuse_unclear(unnamed_columns(file.types, columns, file.form), f"{file.source.name} (reader {file.form.name!r})")


def unclear_records(source: Path, columns: RecordColumns, form: RecordFormat) -> tuple[list[str], bool]:
    """Confidential: what the first records of a file say of the meaning of a row.

    Args:
        source: the file.
        columns, form: how it is read.

    Returns:
        Columns that nobody has named and that may hold the trips of a row, by the schema or as texts that are numbers;
        and whether there are many rows, each of another pair of places, as in a table of flows. Neither where what a
        row is has been said, or a column that is named is not there.

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
            rows, pairs, *are_numbers = file.relation.limit(_FIRST_ROWS).aggregate(", ".join(wanted)).fetchall()[0]
    except READING_ERRORS as error:
        raise unreadable(source, form, error) from None
    numeric = dict(zip(texts, are_numbers, strict=True))
    judged = {name: is_number_type(kind) or numeric.get(name, False) for name, kind in types.items()}
    return unclear_columns(judged, named), rows >= _MANY_ROWS and pairs == rows


def _named(types: Mapping[str, str], columns: RecordColumns, form: RecordFormat) -> list[str]:
    """Columns that are read, or choose rows, as the file calls them."""
    names = (*columns.names, *(column for column, _ in form.categories))
    return [str(column_in(name, list(types))) for name in names]
