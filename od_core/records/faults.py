"""Define which values of records are faulty, and the errors for them, shared by all functions that count trips.

No message quotes a record.
"""

from __future__ import annotations

import csv
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from unicodedata import normalize

import pyarrow as pa

from od_core.errors import OdError, suggest_similar_name
from od_core.privacy.unit import PrivacyUnit, anchor_pattern

MAX_COUNT = 1 << 53
"""Largest number of trips of a row, and of all rows: floating-point numbers up to it are exact."""

_PLAIN = "(1234 is one, 1,234, 1.234,5 and 12.000 are not)"
NOT_NUMBERS = f"values that are not numbers {_PLAIN}"
MISSING = f"a missing value, NaN or a text that is not a plain number {_PLAIN}"
NEGATIVE = "a negative number"
TOO_LARGE = "a number above 2^53 or infinite"
FRACTION = "a fraction"
SUM_TOO_LARGE = "numbers that sum to more than 2^53"

IS_USER_ID = r"[^\t\n\f\r \p{Z}]"
"""Regular expression, for RE2 and Java, for one visible character. A valid user id has at least one."""

WEIGHT = "weight"
"""Name of the column of weights, in data frames and in loaded records."""

IS_WEIGHT = f"coalesce({WEIGHT} >= 0 AND {WEIGHT} < CAST('Infinity' AS DOUBLE), false)"
"""SQL condition, for DuckDB and Spark, that a weight is valid. NaN is not, because it is greater than infinity."""


def make_count_error(fault: str, *, column: str = "trips", row: int | None = None, rows: int = 0) -> OdError:
    """Return the OdError for a column of counts with a fault.

    Args:
        fault: description of the fault, such as ``MISSING``.
        column: name of the column.
        row: position, from 0, of the first row with the fault; None for a fault of the whole column.
        rows: number of all rows.
    """
    step = "give every row a whole number of trips, from 0 to 2^53"
    if fault == FRACTION:
        step = "give whole numbers of trips; weights of single records need a column 'weight' and a declared max_weight"
    detail = None if row is None else f"first in row {row + 1} of {rows}"
    return OdError("OD-TRIPS-COUNT", f"column {column!r} holds {fault}", next_step=step, confidential_detail=detail)


def make_zero_padding_sql(column: str, codes: Sequence[str]) -> str:
    """Return SQL that pads shorter values of a column with leading zeros to the most frequent length of ``codes``.

    Values that are not shorter become NULL. Of equally frequent lengths, the largest counts.
    """
    codes_by_length = Counter(map(len, codes))
    frequent_length = max(codes_by_length, key=lambda length: (codes_by_length[length], length))
    return f"CASE WHEN length({column}) < {frequent_length} THEN lpad({column}, {frequent_length}, '0') END"


def make_other_encoding_sql(column: str, codes: Sequence[str]) -> str:
    """Return SQL for whether a value of a column is one of ``codes`` with its accents encoded in another way.

    The two encodings are the Unicode forms NFC and NFD. The SQL is false for a value that is one of ``codes``.
    """
    with_accents = [code for code in codes if not code.isascii()]
    encodings = {normalize(form, code) for form in ("NFC", "NFD") for code in with_accents}
    other_encodings = sorted(encodings.difference(codes))
    listed = ", ".join(f"'{code.encode().hex().upper()}'" for code in other_encodings)
    return f"hex({column}) IN ({listed or 'NULL'})"


def refuse_too_many_faults(
    faulty: int,
    trips: int,
    fault_threshold: Fraction,
    *,
    most_unlisted: Callable[[], Sequence[bool]] = lambda: (False, False),
    advice: str = "",
) -> None:
    """Raise OdError if more than the allowed share of the trips is faulty (``docs/how-to/zones-and-records.md``).

    Args:
        faulty, trips: numbers of faulty trips and of all trips; numbers of records if these have weights.
        fault_threshold: largest allowed share.
        most_unlisted: returns whether most unlisted codes have probably lost their leading zeros, and whether most have
            their accents encoded otherwise. It is called only if the error is raised.
        advice: end of the next step. It must follow from public facts alone.
    """
    if faulty <= fault_threshold * trips:
        return
    lost_zeros, are_encoded_otherwise = most_unlisted()
    raise OdError(
        "OD-TRIPS-FAULTS",
        f"more than {float(fault_threshold):.3%} of the trips are of another period, lack a valid user id (one that"
        " matches id_pattern, if declared), weight or listed category that is needed, or have an origin or destination"
        " that is not in the zone list (missing, misspelt, different case or encoding, spaces, lost leading"
        " zeros, or 1E+05 from a spreadsheet)"
        + ("; most such codes have lost their leading zeros" if lost_zeros else "")
        + ("; most such codes are listed but for how accents are encoded (NFC, NFD)" if are_encoded_otherwise else ""),
        next_step=f"correct the records or the zone list, or raise the operator's fault threshold{advice}",
        confidential_detail=f"{faulty} of {trips} trips",
    )


def list_reading_errors() -> tuple[type[Exception], ...]:
    """Return the types of exceptions that reading an unreadable file raises. Their messages may quote the file.

    In a stream of Arrow, a fault of the first rows is an exception of DuckDB, and a fault of later rows an OSError.
    """
    import duckdb  # takes a third of a second, and a release in memory rarely needs it

    return (duckdb.Error, pa.ArrowException, OSError, MemoryError, UnicodeError, csv.Error, EOFError, zlib.error)


def check_unit_columns(
    unit: PrivacyUnit, names: Sequence[str], *, user: str, weight: str = WEIGHT, trips: str = "trips"
) -> None:
    """Raise OdError if records with columns ``names`` lack one that the unit needs, or have one that it forbids."""
    if unit.max_weight is None and weight in names:
        message = f"column {weight!r} gives records a weight, but no max_weight is declared, so each record counts 1"
        raise OdError("OD-TRIPS-WEIGHTS", message, next_step="declare the unit's max_weight, or leave the column out")
    if unit.max_weight is not None and weight not in names:
        raise OdError(
            "OD-TRIPS-COLUMN",
            f"max_weight is declared, but the records have no column {weight!r}"
            f"{suggest_similar_name(weight, tuple(names))}",
            next_step="name the column of the weights, or leave out max_weight",
        )
    if unit.max_weight is not None and trips in names:
        raise make_trips_weight_error(trips, weight)
    if not unit.is_of_users:
        return
    if user not in names:
        message = f"the records have no column {user!r} of user ids{suggest_similar_name(user, tuple(names))}"
        raise OdError("OD-TRIPS-COLUMN", message, next_step="name the column of the user id, or use unit 'trip'")
    if trips in names:
        message = f"column {trips!r} gives records a weight, but under unit {unit.kind!r} one record counts 1"
        raise OdError("OD-TRIPS-WEIGHTS", message, next_step=f"give one row per trip, without the column {trips!r}")


def make_trips_weight_error(trips: str = "trips", weight: str = WEIGHT) -> OdError:
    """Return the OdError for rows with both a number of trips and a weight. Only a single record can have a weight."""
    return OdError(
        "OD-TRIPS-WEIGHTS",
        f"the records have columns {trips!r} and {weight!r}, but only a row that is a single record can have a weight",
        next_step="give one row per record with its weight, or only the number of trips",
    )


def make_weight_type_error(what: str) -> OdError:
    """Return the OdError for a column whose type is not one of weights; ``what`` begins its message."""
    return OdError("OD-TRIPS-WEIGHTS", f"{what}, not weights", next_step="give the weights as numbers")


def make_user_id_error(what: str) -> OdError:
    """Return the OdError for a column whose type is not one of user ids.

    Floats are refused, because different ids may be rounded to the same float.
    """
    message = f"{what}; user ids are text or whole numbers"
    return OdError("OD-TRIPS-USER-ID", message, next_step="read or write the user ids as text")


def list_id_patterns(unit: PrivacyUnit) -> tuple[str, ...]:
    """Return the regular expressions, for RE2 and Java, each of which must match a part of a valid user id."""
    return (IS_USER_ID,) if unit.id_pattern is None else (IS_USER_ID, anchor_pattern(unit.id_pattern))
