"""Define the errors for faulty trips, the same wherever trips are counted; no message holds a value of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from od_core.errors import OdError

MAX_COUNT = 1 << 53

MISSING = "a missing value or NaN"
NEGATIVE = "a negative number"
TOO_LARGE = "a number above 2^53 or infinite"
FRACTION = "a fraction"
SUM_TOO_LARGE = "numbers that sum to more than 2^53"


def bad_count(what: str, *, row: int | None = None, rows: int | None = None) -> OdError:
    """Return the error for counts that are not valid.

    Args:
        what: one of the texts above.
        row, rows: the first faulty row, from 0, and the number of rows; confidential.
    """
    return OdError(
        "OD-TRIPS-COUNT",
        f"column 'trips' holds {what}",
        next_step=(
            "give whole numbers of trips; weights of single records need a column 'weight' and a declared max_weight"
            if what == FRACTION
            else "give every row a whole number of trips, from 0 to 2^53"
        ),
        confidential_detail=None if row is None else f"first in row {row + 1} of {rows}",
    )


def usual_length(codes: Sequence[str]) -> int:
    """Return the most frequent length of the codes of a list; of equally frequent lengths, the greatest."""
    lengths = Counter(map(len, codes))
    return max(lengths, key=lambda length: (lengths[length], length))


def filled_with_zeros(column: str, codes: Sequence[str]) -> str:
    """Return SQL for a code padded with zeros to the usual length of a list's codes; NULL if it is as long already."""
    length = usual_length(codes)
    return f"CASE WHEN length({column}) < {length} THEN lpad({column}, {length}, '0') END"


def refuse_too_many_faults(
    faulty: int, trips: int, fault_threshold: Fraction, *, lost_zeros: Callable[[], bool] = lambda: False
) -> None:
    """Raise OdError if more than the allowed share of the trips is faulty (``docs/how-to/zones-and-records.md``).

    The message names no record.

    Args:
        faulty, trips: number of faulty trips and of all trips.
        fault_threshold: the allowed share.
        lost_zeros: tells whether most unlisted codes would be listed with zeros before them; called only if the trips
            are refused.
    """
    if faulty <= fault_threshold * trips:
        return
    raise OdError(
        "OD-TRIPS-FAULTS",
        f"more than {float(fault_threshold):.3%} of the trips are of another period, lack a user id or weight that is"
        " needed, or have an origin or destination that is not in the zone list (missing, misspelt, different case,"
        " spaces, or lost leading zeros)" + ("; most such codes have lost their leading zeros" if lost_zeros() else ""),
        next_step="correct the records or the zone list, or raise the operator's fault threshold",
        confidential_detail=f"{faulty} of {trips} trips",
    )


def not_counted(error: Exception) -> OdError:
    """Return the error for records that DuckDB could not count; DuckDB's own message may quote a value."""
    return OdError(
        "OD-TRIPS-NOT-COUNTED",
        "the loaded records cannot be read, or counting them needs more memory or disk space than there is",
        next_step="free space on the disk of the confidential folder, then run the release again",
        confidential_detail=str(error),
    )
