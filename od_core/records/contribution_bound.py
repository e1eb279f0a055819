"""Confidential: limit the counted trips of each user to the contribution bound m.

All trips of a user above the bound are dropped before anything is counted. The trips of a user are sorted by an
HMAC-SHA256, and the first m are counted. Under unit ``user_year``, fewer are counted if the year allows no more
(:mod:`od_core.ledger.user_counters`). The HMAC covers the user id, the period, the counted fields, and a number that
distinguishes trips of this user with equal fields. So the choice depends neither on the order of the records nor on the
records of other users. The key is chosen without using the data. With the same key, the same trips are chosen when the
release is run again. One SQL text applies the rule to records in files and in memory.

If trips are also counted by segment, trips with equal fields may differ in their segments. A keyed hash of the segment
then decides which of them gets which number. So the bound keeps as many trips of each leaf pair as without segments.

See ``docs/explanation/privacy.md``.
"""

from __future__ import annotations

import pyarrow as pa

from od_core.errors import OdError, nearest_only
from od_core.ledger.user_counters import USER, Allowances
from od_core.privacy.unit import PrivacyUnit, whole_match

IS_USER_ID = r"[^\t\n\f\r \p{Z}]"
"""Regular expression, for RE2 and Java, for one visible character. A valid user id has at least one."""

_BLOCK = 64
"""Block length of SHA-256 in bytes. The key is padded with zeros to this length (RFC 2104)."""


def _hmac(message: str) -> str:
    """Return SQL for the HMAC of a text (RFC 2104). ``message`` is SQL for the text."""
    inner = f"sha2(secret.inner_key || CAST({message} AS BINARY), 256)"
    return f"sha2(secret.outer_key || unhex({inner}), 256)"


def _record_hmac(last: str) -> str:
    """Return SQL for the HMAC of a record, which covers its fields and a further text.

    The message states the bytes of each field in hexadecimal, or ``-`` for a missing field, so it is unambiguous.
    """
    fields = ("person", "secret.period", "origin", "destination", last)
    return _hmac(" || ',' || ".join(f"coalesce(hex({field}), '-')" for field in fields))


_HMAC = _record_hmac("CAST(occurrence AS STRING)")

_SEGMENT_HMAC = _record_hmac("'segment ' || CAST(segment AS STRING)")
"""SQL that orders equal trips by segment. The word keeps it independent of ``_HMAC``: with equal hashes of occurrence 1
and segment 1, of two trips the one in segment 1 would always be counted."""

SPARK_FUNCTIONS = """
    CREATE TEMP MACRO sha2(value, bits) AS sha256(value);
    CREATE TEMP MACRO conv(value, radix, wanted) AS CAST('0x' || value AS BIGINT);
"""
"""Statements for DuckDB that define functions under their names in Spark, so that both run the same SQL."""


def bounded(placed: str, max_trips: int, *, by_segment: bool = False, with_users: bool = False) -> str:
    """Return SQL that applies the contribution bound to records, for DuckDB and Spark.

    The SQL reads the relation ``secret`` of :func:`secret_table`. Its result has one row per record, with the columns
    faulty (unchanged) and rank. The rank is -1 for a record that the bound drops, and unchanged for all others.

    Args:
        placed: SQL of the records, with the columns person, origin, destination (text), faulty and rank. The rank is
            the position, in tree order, of the record's leaf pair (origin zone, destination zone), or -1 if the record
            was dropped earlier. A dropped record is not one of the m trips of its user.
        max_trips: the contribution bound m.
        by_segment: whether the records, and the result, also have a column segment (a number).
        with_users: whether some users are allowed fewer trips, as the relation ``users`` of :func:`users_of` states.
    """
    segment, order = (", segment", f"rank, {_SEGMENT_HMAC}") if by_segment else ("", "rank")
    keyed = " CROSS JOIN secret" if by_segment else ""
    allowed, limits = f"{max_trips:d}", ""
    if with_users:
        allowed = f"coalesce(allowed, {max_trips:d})"
        fewer = f"SELECT person AS limited, allowed FROM users WHERE allowed < {max_trips:d}"  # noqa: S608  # a number
        limits = f"LEFT JOIN ({fewer}) AS limits ON person = limited"
    return f"""
        SELECT faulty{segment}, CASE
            WHEN row_number() OVER (PARTITION BY person, rank < 0 ORDER BY {_HMAC}) <= {allowed} THEN rank
            ELSE -1
        END AS rank
        FROM (
            SELECT placed.*,
                row_number() OVER (PARTITION BY person, rank < 0, origin, destination ORDER BY {order}) AS occurrence
            FROM ({placed}) AS placed{keyed}
        ) AS numbered CROSS JOIN secret {limits}
    """  # noqa: S608  # a number, and queries of our own


def users_of(placed: str, allowances: Allowances) -> str:
    """Return SQL with one row per user of whom a record may be counted, for DuckDB and Spark.

    The SQL reads the relations ``secret`` and ``allowances``, the table of the same name. Its columns are person, the
    two columns of :data:`od_core.ledger.user_counters.USER`, allowed (the largest number of trips to count), counted
    (the number of trips to count) and trips (the number of valid trips). ``placed`` is as for :func:`bounded`.
    """
    places = zip(USER, (1, 16), strict=True)
    digits = [f"CAST(conv(substr(hash, {first}, 15), 16, 10) AS BIGINT) AS {name}" for name, first in places]
    same = " AND ".join(f"hashed.{name} = allowances.{name}" for name in USER)
    named = ", ".join(f"hashed.{name}" for name in USER)
    allowed = f"coalesce(allowances.allowed, {allowances.others:d})"
    return f"""
        SELECT person, {named}, {allowed} AS allowed, CAST(least(trips, {allowed}) AS INTEGER) AS counted,
            CAST(trips AS BIGINT) AS trips
        FROM (
            SELECT person, trips, {", ".join(digits)}
            FROM (
                SELECT person, trips, {_hmac("'user ' || hex(person)")} AS hash
                FROM (SELECT person, count(*) AS trips FROM ({placed}) AS placed WHERE rank >= 0 GROUP BY person)
                    AS counts CROSS JOIN secret
            ) AS keyed
        ) AS hashed LEFT JOIN allowances ON {same}
    """  # noqa: S608  # numbers, names and queries of our own


COUNTERS = f"SELECT {', '.join(USER)}, counted, trips FROM users"  # noqa: S608  # names of our own
"""SQL of the rows of :data:`od_core.ledger.user_counters.SCHEMA`, from the relation ``users`` of :func:`users_of`."""


def secret_table(key: bytes, period: str) -> pa.Table:
    """Confidential: return the relation ``secret``, which has one row with the key and the period.

    The SQL reads them from this relation, so they appear in no query text and no query plan. The key is stored as the
    two padded keys of HMAC. Raises OdError if the key is shorter than 32 bytes, or longer than 64.
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


def id_patterns(unit: PrivacyUnit) -> tuple[str, ...]:
    """Return the regular expressions, for RE2 and Java, each of which must match a part of a valid user id."""
    return (IS_USER_ID,) if unit.id_pattern is None else (IS_USER_ID, whole_match(unit.id_pattern))


def check_user_column(column: str, unit: PrivacyUnit, names: list[str], *, trips: str = "trips") -> None:
    """Raise OdError if records with columns ``names`` lack that of user ids, or have one of numbers of trips."""
    if column not in names:
        raise OdError(
            "OD-TRIPS-COLUMN",
            f"the records have no column {column!r} of user ids{nearest_only(column, tuple(names))}",
            next_step="name the column of the user id, or use unit 'trip'",
        )
    if trips in names:
        raise OdError(
            "OD-TRIPS-WEIGHTS",
            f"column {trips!r} gives records a weight, but under unit {unit.kind!r} one record counts 1",
            next_step=f"give one row per trip, without the column {trips!r}",
        )


def no_user_ids(what: str) -> OdError:
    """Return the OdError for a column whose type cannot be that of user ids.

    Floats are refused, because different ids may be rounded to the same float.
    """
    return OdError(
        "OD-TRIPS-USER-ID",
        f"{what}; user ids are text or whole numbers",
        next_step="read or write the user ids as text",
    )
