"""Define the errors for faulty trips, shared by all functions that count trips. No message quotes a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from od_core.errors import OdError

MAX_COUNT = 1 << 53

NOT_NUMBERS = "values that are not numbers"
MISSING = "a missing value or NaN"
NEGATIVE = "a negative number"
TOO_LARGE = "a number above 2^53 or infinite"
FRACTION = "a fraction"
SUM_TOO_LARGE = "numbers that sum to more than 2^53"


def bad_count(what: str, *, column: str = "trips", row: int | None = None, rows: int | None = None) -> OdError:
    """Return the OdError for a column of invalid counts.

    Args:
        what: description of the fault, such as ``MISSING``.
        column: name of the column.
        row: position of the first faulty row, from 0; confidential.
        rows: number of rows; confidential.
    """
    return OdError(
        "OD-TRIPS-COUNT",
        f"column {column!r} holds {what}",
        next_step=(
            "give whole numbers of trips; weights of single records need a column 'weight' and a declared max_weight"
            if what == FRACTION
            else "give every row a whole number of trips, from 0 to 2^53"
        ),
        confidential_detail=None if row is None else f"first in row {row + 1} of {rows}",
    )


def usual_length(codes: Sequence[str]) -> int:
    """Return the most frequent length of the codes. If several lengths are equally frequent, return the largest."""
    lengths = Counter(map(len, codes))
    return max(lengths, key=lambda length: (lengths[length], length))


def filled_with_zeros(column: str, codes: Sequence[str]) -> str:
    """Return SQL that pads shorter codes of a column with leading zeros to the usual length. Other codes become NULL.

    Args:
        column: SQL of the column.
        codes: listed codes, whose most frequent length is the usual length.
    """
    length = usual_length(codes)
    return f"CASE WHEN length({column}) < {length} THEN lpad({column}, {length}, '0') END"


def refuse_too_many_faults(
    faulty: int,
    trips: int,
    fault_threshold: Fraction,
    *,
    lost_zeros: Callable[[], bool] = lambda: False,
    advice: str = "",
) -> None:
    """Raise OdError if more than the allowed share of the trips is faulty (``docs/how-to/zones-and-records.md``).

    The message names no record.

    Args:
        faulty: number of faulty trips; of faulty records if records have weights.
        trips: number of all trips or records.
        fault_threshold: the allowed share.
        lost_zeros: function that returns whether most unlisted codes have probably lost their leading zeros. It is
            called only if the error is raised.
        advice: end of the next step, from public facts alone.
    """
    if faulty <= fault_threshold * trips:
        return
    raise OdError(
        "OD-TRIPS-FAULTS",
        f"more than {float(fault_threshold):.3%} of the trips are of another period, lack a valid user id (one that"
        " matches id_pattern, if declared), weight or listed category that is needed, or have an origin or destination"
        " that is not in the zone list (missing, misspelt, different case, spaces, or lost leading zeros)"
        + ("; most such codes have lost their leading zeros" if lost_zeros() else ""),
        next_step=f"correct the records or the zone list, or raise the operator's fault threshold{advice}",
        confidential_detail=f"{faulty} of {trips} trips",
    )


def not_counted(error: Exception) -> OdError:
    """Return the OdError for records that DuckDB could not count.

    DuckDB's own message may quote a value, so it goes into the confidential detail.
    """
    return OdError(
        "OD-TRIPS-NOT-COUNTED",
        "the loaded records cannot be read, or counting them needs more memory or disk space than there is",
        next_step="free space on the disk of the confidential folder, then run the release again",
        confidential_detail=str(error),
    )
