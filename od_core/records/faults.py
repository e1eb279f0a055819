"""Define the errors for faulty trips, shared by all functions that count trips. No message quotes a record."""

from __future__ import annotations

import csv
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pyarrow as pa

from od_core.errors import OdError, raise_alone
from od_core.files.duckdb_session import of_machine, parquet_rows, scratch_database

MAX_COUNT = 1 << 53

NOT_NUMBERS = "values that are not numbers"
MISSING = "a missing value, NaN or a text that is not a plain number (1234 is one, 1,234 and 1.234,5 are not)"
NEGATIVE = "a negative number"
TOO_LARGE = "a number above 2^53 or infinite"
FRACTION = "a fraction"
SUM_TOO_LARGE = "numbers that sum to more than 2^53"


def bad_count(what: str, *, column: str = "trips", row: int | None = None, rows: int = 0) -> OdError:
    """Return the OdError for a column with a fault such as ``MISSING``; ``row`` of ``rows``, from 0, is the first."""
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


def filled_with_zeros(column: str, codes: Sequence[str]) -> str:
    """Return SQL that pads shorter codes with leading zeros to the usual length of ``codes``. Others become NULL.

    The usual length is the most frequent one, or the largest of those that are equally frequent.
    """
    lengths = Counter(map(len, codes))
    length = max(lengths, key=lambda length: (lengths[length], length))
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

    ``faulty`` and ``trips`` are numbers of records if these have weights. ``lost_zeros`` returns whether most unlisted
    codes have probably lost their leading zeros; it is called only if the error is raised. ``advice`` ends the next
    step, and follows from public facts alone.
    """
    if faulty <= fault_threshold * trips:
        return
    raise OdError(
        "OD-TRIPS-FAULTS",
        f"more than {float(fault_threshold):.3%} of the trips are of another period, lack a valid user id (one that"
        " matches id_pattern, if declared), weight or listed category that is needed, or have an origin or destination"
        " that is not in the zone list (missing, misspelt, different case, spaces, lost leading"
        " zeros, or 1E+05 from a spreadsheet)"
        + ("; most such codes have lost their leading zeros" if lost_zeros() else ""),
        next_step=f"correct the records or the zone list, or raise the operator's fault threshold{advice}",
        confidential_detail=f"{faulty} of {trips} trips",
    )


def reading_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that an unreadable file raises. Their messages may quote the file.

    A fault is an exception of DuckDB if it is in the first rows of a stream of Arrow, and an OSError in later ones.
    """
    import duckdb  # takes a third of a second, and a release in memory rarely needs it

    return (duckdb.Error, pa.ArrowException, OSError, MemoryError, UnicodeError, csv.Error, EOFError, zlib.error)


def not_counted(error: Exception) -> OdError:
    """Return the OdError for loaded records that could not be counted.

    The message of ``error`` may quote a value, so it goes into the confidential detail.
    """
    return of_machine(error, "the loaded records cannot be counted") or OdError(
        "OD-TRIPS-NOT-COUNTED",
        "the loaded records cannot be counted: their file is missing or damaged, or the counts cannot be written",
        next_step="run the release again from its first step, which reads the file of records",
        confidential_detail=str(error),
    )


def sound_records(
    records: Path, lists: Mapping[str, pa.Table], placed: str, faulty: str, wanted: str, fault_threshold: Fraction
) -> pa.Table:
    """Return what a query finds among loaded records, unless too many are faulty. The result is confidential.

    ``lists`` are public tables, by name, that the SQL ``placed`` reads, which has one row for each row of ``records``,
    a file of :func:`od_core.records.load.load_records`. ``faulty`` is the SQL condition of its faulty rows, and
    ``wanted`` the SQL of the result, which reads ``placed``. Raises OdError if too many records are faulty, or the
    records cannot be read.
    """
    both = f"WITH records AS (FROM {parquet_rows(records)}), placed AS ({placed})"
    numbers = "SELECT count(*), count(*) FILTER (WHERE"
    try:
        with scratch_database(records.parent, records) as connection:
            for name, table in lists.items():
                connection.register(name, table)
            counted, faults = connection.execute(f"{both} {numbers} {faulty}) FROM placed").fetchall()[0]
            refuse_too_many_faults(faults, counted, fault_threshold)
            return connection.sql(f"{both} {wanted}").to_arrow_table()
    except reading_errors() as error:
        raise_alone(not_counted(error))
