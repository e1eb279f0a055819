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

from od_core.errors import OdError, base_name, nearest_only
from od_core.files.duckdb_session import memory_database
from od_core.privacy.unit import PrivacyUnit
from od_core.records.faults import not_counted

IS_USER_ID = r"[^\t\n\f\r \p{Z}]"
"""A user id has a sign that can be seen; in the language of RE2, which DuckDB and Arrow speak, and in that of Java."""

_BLOCK = 64
"""Bytes of a block of SHA-256, to which the key is filled up with zeros (RFC 2104)."""

_FIELDS = ("person", "secret.period", "origin", "destination", "CAST(occurrence AS STRING)")

_MESSAGE = " || ',' || ".join(f"coalesce(hex({field}), '-')" for field in _FIELDS)
"""No two records are one text: each field stands as its bytes in hexadecimal digits, a missing one as no digits can."""

_INNER = f"sha2(secret.inner_key || CAST({_MESSAGE} AS BINARY), 256)"

_HMAC = f"sha2(secret.outer_key || unhex({_INNER}), 256)"

_AS_SPARK_SAYS = "CREATE TEMP MACRO sha2(value, bits) AS sha256(value)"
"""The name that Spark knows the hash by; with it DuckDB runs the same text, and finds the same digits."""


def bounded(placed: str, max_trips: int) -> str:
    """Rank and whether it is faulty of every record, as SQL for DuckDB and Spark; those above the bound have rank -1.

    The text reads the relation ``secret`` of :func:`secret_table`.

    Args:
        placed: SQL of the records, with the columns person, origin, destination (text), faulty, and rank, that of the
            leaf pair where the record counts, -1 for one that is dropped: it takes no place of its user's.
        max_trips: so many of a user's are counted at most, m.
    """
    return f"""
        SELECT faulty, CASE
            WHEN row_number() OVER (PARTITION BY person, rank < 0 ORDER BY {_HMAC}) <= {max_trips:d} THEN rank ELSE -1
        END AS rank
        FROM (
            SELECT *, row_number() OVER (PARTITION BY person, rank < 0, origin, destination ORDER BY rank) AS occurrence
            FROM ({placed}) AS placed
        ) AS numbered CROSS JOIN secret
    """  # noqa: S608  # a number, and queries of our own


def secret_table(key: bytes, period: str) -> pa.Table:
    """Confidential: what the text of :func:`bounded` reads as ``secret``, so that neither stands in a query or a plan.

    Raises:
        OdError: the key is shorter than 32 bytes, or longer than a block.
    """
    if not 32 <= len(key) <= _BLOCK:
        raise OdError(
            "OD-KEY-LENGTH", "users' trips are cut by a key of 32 to 64 bytes", next_step="use ConfidentialFolder.key()"
        )
    padded = key.ljust(_BLOCK, b"\0")
    inner, outer = (bytes(byte ^ mask for byte in padded) for mask in (0x36, 0x5C))
    fields = {"inner_key": pa.array([inner], pa.binary()), "outer_key": pa.array([outer], pa.binary())}
    return pa.table({**fields, "period": [period]})


def set_secret(connection: duckdb.DuckDBPyConnection, key: bytes, period: str) -> None:
    """Make a database ready for the text of :func:`bounded`. Raises OdError as :func:`secret_table`."""
    connection.execute(_AS_SPARK_SAYS)
    connection.register("secret", secret_table(key, period))


def bounded_counts(
    records: pa.Table, max_trips: int, key: bytes, period: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rank and trips of every leaf pair, in any order, at most ``max_trips`` of a user; shape (pairs,) each.

    Args:
        records: in memory, none of them faulty; columns person, origin, destination (text) and rank.
        max_trips, key, period: see :func:`bounded` and :func:`secret_table`.
    """
    query = f"""
        SELECT rank, count(*) AS trips FROM ({bounded("SELECT *, false AS faulty FROM records", max_trips)})
        WHERE rank >= 0 GROUP BY rank
    """  # noqa: S608  # a query of our own
    try:
        with memory_database() as connection:
            set_secret(connection, key, period)
            connection.register("records", records)
            counts = connection.sql(query).to_arrow_table()
    except (duckdb.Error, pa.ArrowException) as error:
        raise not_counted(error) from None
    return counts["rank"].to_numpy().copy(), counts["trips"].to_numpy()  # an array of its own, to be sorted in place


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
        raise no_user_ids(f"column {unit.column!r} holds {base_name(column.dtype)}")
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
