"""Whether a row is one trip or many, where nothing says it: counted as one trip, a row of a hundred loses 99 of them.

Columns that nobody has named are looked at by name and type alone: those are the schema. What the records themselves
say of it is confidential, and no release depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from od_core.errors import OdError

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
