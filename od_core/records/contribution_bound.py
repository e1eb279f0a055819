"""Confidential: limit the counted trips of each user to the contribution bound m.

The surplus is cut before anything is counted. The trips that stay are chosen among those of the same user alone, by the
HMAC-SHA256 of the user id, the period, the counted fields and the occurrence number among the user's trips with equal
fields. So the choice depends neither on the order of the records nor on other users' records. The key is chosen without
a look at the data, and it selects the same trips at every replay. The rule is written in SQL, for records in a file and
in memory alike.

See ``docs/explanation/privacy.md``.
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
"""Regular expression of a visible character, which every user id has; RE2 (DuckDB, Arrow) and Java both read it."""

_BLOCK = 64
"""Bytes of a block of SHA-256; the key is padded with zeros to this length (RFC 2104)."""

_FIELDS = ("person", "secret.period", "origin", "destination", "CAST(occurrence AS STRING)")

_MESSAGE = " || ',' || ".join(f"coalesce(hex({field}), '-')" for field in _FIELDS)
"""Unambiguous text of a record: each field as the hexadecimal digits of its bytes, and a missing field as ``-``."""

_INNER = f"sha2(secret.inner_key || CAST({_MESSAGE} AS BINARY), 256)"

_HMAC = f"sha2(secret.outer_key || unhex({_INNER}), 256)"

_AS_SPARK_SAYS = "CREATE TEMP MACRO sha2(value, bits) AS sha256(value)"
"""Statement that gives the hash Spark's name, so that DuckDB runs the same text and gets the same digests."""


def bounded(placed: str, max_trips: int) -> str:
    """Return SQL, for DuckDB and Spark, of every record's rank and fault; records above the bound have rank -1.

    The SQL reads the relation ``secret`` of :func:`secret_table`.

    Args:
        placed: SQL of the records, with the columns person, origin, destination (text), faulty and rank. The rank is
            that of the leaf pair where the record counts, or -1 for a dropped record, which uses up none of its user's
            m trips.
        max_trips: the contribution bound m.
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
    """Confidential: return the relation ``secret``, which keeps the key and the period out of query texts and plans.

    Raises:
        OdError: the key is shorter than 32 bytes, or longer than a block of 64.
    """
    if not 32 <= len(key) <= _BLOCK:
        raise OdError(
            "OD-KEY-LENGTH",
            "the key that selects users' trips must have 32 to 64 bytes",
            next_step="use ConfidentialFolder.key()",
        )
    padded = key.ljust(_BLOCK, b"\0")
    inner, outer = (bytes(byte ^ mask for byte in padded) for mask in (0x36, 0x5C))
    fields = {"inner_key": pa.array([inner], pa.binary()), "outer_key": pa.array([outer], pa.binary())}
    return pa.table({**fields, "period": [period]})


def set_secret(connection: duckdb.DuckDBPyConnection, key: bytes, period: str) -> None:
    """Prepare a database to run the SQL of :func:`bounded`. Raises OdError as :func:`secret_table`."""
    connection.execute(_AS_SPARK_SAYS)
    connection.register("secret", secret_table(key, period))


def bounded_counts(
    records: pa.Table, max_trips: int, key: bytes, period: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rank and trips of every leaf pair, in any order, at most ``max_trips`` per user; shape (pairs,) each.

    Args:
        records: table in memory, without faulty records; columns person, origin, destination (text) and rank.
        max_trips, key, period: see :func:`bounded` and :func:`secret_table`.

    Raises:
        OdError: the key has a wrong length, or DuckDB could not count the records.
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
    return counts["rank"].to_numpy().copy(), counts["trips"].to_numpy()  # a copy, since it is sorted in place


def user_ids(flows: pd.DataFrame, unit: PrivacyUnit) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return the user id of each record as text, and whether it is valid; shape (records,) each.

    Raises:
        OdError: the column is missing, occurs twice, or holds neither text nor whole numbers; rows have a column
            ``trips``.
    """
    names = [str(name) for name in flows.columns]
    check_user_column(str(unit.column), unit, names)
    if names.count(str(unit.column)) > 1:
        raise OdError(
            "OD-TRIPS-COLUMN", f"the records have column {unit.column!r} more than once", next_step="keep one of them"
        )
    column = flows[unit.column]
    if pd.api.types.is_integer_dtype(column.dtype):
        ids = pa.array(column).cast(pa.large_string())
    elif column.notna().any() and not _may_hold_text(column):
        raise no_user_ids(f"column {unit.column!r} holds {base_name(column.dtype)}")
    else:
        ids = texts(column.astype(object).map(lambda value: str(value) if _is_whole(value) else value))
    return ids, pc.fill_null(pc.match_substring_regex(ids, IS_USER_ID), False).to_numpy(zero_copy_only=False)


def check_user_column(column: str, unit: PrivacyUnit, names: list[str]) -> None:
    """Refuse records without a column of user ids, or with a column ``trips``. Raises OdError.

    Args:
        column: the name of the column of user ids.
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
            next_step="give one row per trip, without the column 'trips'",
        )


def no_user_ids(what: str) -> OdError:
    """Return the error for a column that cannot hold ids: two floats may be one id, and two ids one float."""
    return OdError(
        "OD-TRIPS-USER-ID",
        f"{what}; user ids are text or whole numbers",
        next_step="read or write the user ids as text",
    )


def texts(column: pd.Series) -> pa.Array:
    """Return a column's texts; values that are no text, or that UTF-8 cannot encode, become NULL."""
    return pa.array([value if _is_text(value) else None for value in column.astype(object)], pa.large_string())


def _is_text(value: object) -> bool:
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _may_hold_text(column: pd.Series) -> bool:
    kinds = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    return bool(pd.api.types.is_object_dtype(kinds.dtype) or pd.api.types.is_string_dtype(kinds.dtype))
