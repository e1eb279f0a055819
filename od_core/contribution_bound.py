"""Confidential: of every user at most m trips are counted, the others are cut before (spec 6, "Contribution bound").

Which ones stay is decided among the trips of that user alone, by HMAC-SHA256 of the user id, the period, the fields
that are counted and the occurrence number among the user's trips that are equal in them. So it depends neither on the
order of the records nor on those of other users; the key is chosen without a look at the data, and keeps the same
trips at every replay. The rule is SQL, for records in a file and in memory alike.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_only
from od_core.privacy.unit import PrivacyUnit
from od_core.readers.scratch import memory_database
from od_core.trip_faults import not_counted

IS_USER_ID = r"[^\s\p{Z}]"
"""A user id has a sign that can be seen; in RE2's language, which DuckDB and Arrow both speak."""

_BLOCK = 64
"""Bytes of a block of SHA-256, to which the key is filled up with zeros (RFC 2104)."""

_MESSAGE = """encode(json_array("user", getvariable('period'), origin, destination, occurrence)::VARCHAR)"""
"""As JSON no two records are one text: not NULL and 'null', nor fields that are cut in another place."""

_HMAC = f"sha256(getvariable('outer_key') || unhex(sha256(getvariable('inner_key') || {_MESSAGE})))"


def bounded(placed: str, max_trips: int) -> str:
    """The placed records as SQL, where those above the bound have no place either: -1.

    Args:
        placed: SQL of the records, with the columns user, origin, destination (text) and place, the number of the
            leaf pair where the record counts, -1 for one that is dropped: it takes no place of its user's.
        max_trips: so many of a user's are counted at most, m.
    """
    return f"""
        SELECT * REPLACE (
            CASE WHEN row_number() OVER (PARTITION BY "user", place < 0 ORDER BY {_HMAC}) <= {max_trips:d}
                THEN place ELSE -1 END AS place
        )
        FROM (
            SELECT *, row_number() OVER (PARTITION BY "user", place < 0, origin, destination) AS occurrence
            FROM ({placed})
        )
    """  # noqa: S608  # a number, and queries of our own


def set_key(connection: duckdb.DuckDBPyConnection, key: bytes, period: str) -> None:
    """Tell the database the key and the period of :func:`bounded`, which stand in no query.

    Raises:
        OdError: the key is shorter than 32 bytes, or longer than a block.
    """
    if not 32 <= len(key) <= _BLOCK:
        raise OdError(
            "OD-KEY-LENGTH", "users' trips are cut by a key of 32 to 64 bytes", next_step="use ConfidentialFolder.key()"
        )
    padded = key.ljust(_BLOCK, b"\0")
    connection.execute("SET VARIABLE inner_key = $1", [bytes(byte ^ 0x36 for byte in padded)])
    connection.execute("SET VARIABLE outer_key = $1", [bytes(byte ^ 0x5C for byte in padded)])
    connection.execute("SET VARIABLE period = $1", [period])


def bounded_counts(
    records: pa.Table, max_trips: int, key: bytes, period: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Place and trips of every leaf pair, in any order, at most ``max_trips`` of a user; shape (pairs,) each.

    Args:
        records: in memory; columns user, origin, destination (text) and place.
        max_trips, key, period: see :func:`bounded` and :func:`set_key`.
    """
    query = f"""
        SELECT place, count(*) AS trips FROM ({bounded("FROM records", max_trips)})
        WHERE place >= 0 GROUP BY place
    """  # noqa: S608  # a query of our own
    try:
        with memory_database() as connection:
            set_key(connection, key, period)
            connection.register("records", records)
            counts = connection.sql(query).to_arrow_table()
    except (duckdb.Error, pa.ArrowException) as error:
        raise not_counted(error) from None
    return counts["place"].to_numpy().copy(), counts["trips"].to_numpy()  # an array of its own, to be sorted in place


def user_ids(flows: pd.DataFrame, unit: PrivacyUnit) -> tuple[pa.Array, NDArray[np.bool_]]:
    """The user id of each record as text, and whether it is one; shape (records,) each.

    Raises:
        OdError: the column is missing, twice there, or holds neither text nor whole numbers; rows have weights.
    """
    names = [str(name) for name in flows.columns]
    check_user_column(str(unit.column), unit, names)
    if names.count(str(unit.column)) > 1:
        raise OdError("OD-TRIPS-COLUMN", f"the records have column {unit.column!r} twice", next_step="keep one of them")
    column = flows[unit.column]
    if pd.api.types.is_integer_dtype(column.dtype):
        ids = pa.array(column).cast(pa.large_string())
    elif column.notna().any() and not _may_hold_text(column):
        raise no_user_ids(f"column {unit.column!r} holds {column.dtype}")
    else:
        ids = texts(column.astype(object).map(lambda value: str(value) if _is_whole(value) else value))
    return ids, pc.fill_null(pc.match_substring_regex(ids, IS_USER_ID), False).to_numpy(zero_copy_only=False)


def check_user_column(column: str, unit: PrivacyUnit, names: list[str]) -> None:
    """Refuse records without a column of user ids, or with weights. Raises OdError.

    Args:
        column: where the user id is looked for.
        unit: a user unit.
        names: columns that the records have.
    """
    if column not in names:
        raise OdError(
            "OD-TRIPS-COLUMN",
            f"the records have no column {column!r} of user ids{nearest_only(column, tuple(names))}",
            next_step="name the column of the user id, or use unit 'trip'",
        )
    if "trips" in names:
        raise OdError(
            "OD-TRIPS-WEIGHTS",
            f"column 'trips' gives records a weight, but under unit {unit.kind!r} one record counts 1",
            next_step="give one row a trip, without the column 'trips'",
        )


def no_user_ids(what: str) -> OdError:
    """The error for a column whose type is not that of an id: two floats may be one id, or one id two floats."""
    return OdError(
        "OD-TRIPS-USER-ID",
        f"{what}; user ids are text or whole numbers",
        next_step="read or write the user ids as text",
    )


def texts(column: pd.Series) -> pa.Array:
    """The texts of a column; NULL for what is no text, or none that UTF-8 can write."""
    return pa.array([value if _is_text(value) else None for value in column.astype(object)], pa.large_string())


def _is_text(value: object) -> bool:
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _may_hold_text(column: pd.Series) -> bool:
    kinds = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    return bool(pd.api.types.is_object_dtype(kinds.dtype) or pd.api.types.is_string_dtype(kinds.dtype))
