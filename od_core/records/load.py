"""Load the records of a period from files into the confidential folder.

The file may be larger than the memory. The result is a Parquet file with the columns ``date``, ``origin``,
``destination`` (text codes), ``in_period`` and, if requested, ``stop_1``, ``stop_2`` and so on (text codes), ``trips``,
``weight`` (unchanged, NULL if it is not a number), ``user`` (text) and, for each breakdown, ``segment_`` and its name
(the category as text, NULL if it is missing). Nothing is guessed from a sample of the file. No message quotes a record.
"""

from __future__ import annotations

from pathlib import Path

from od_core.errors import OdError
from od_core.files.duckdb_session import quoted_name, quoted_text, spill_folder
from od_core.files.durable import absence, write_durably
from od_core.geography.geography import Geography
from od_core.periods import Period, check_time_zone
from od_core.records.formats import TABLE, RecordColumns, RecordFormat, column_in
from od_core.records.open_file import UNSTATED_TIME, opened, record_schema
from od_core.records.record_query import FileQuery, part_of_time

FIRST_ROWS = 100_000
"""Largest number of rows that commands which declare an input read."""

_MANY_ROWS = 100  # in a shorter file, each pair of places may occur only once by chance

_NUMBER = r"[\s\p{Z}]*[-+]?\p{Nd}[\p{Nd}\p{Z}\s.,''\x{2019}_]*"
"""RE2 pattern of a number within quotes of SQL: in any digits, possibly padded, grouped or with decimals."""


def count_columns(source: Path, columns: list[str], form: RecordFormat) -> list[str]:
    """Confidential: return the columns of a file that look like counts, as most of their first values are numbers.

    ``columns`` are those to look at, named as in the file. Raises OdError if the file cannot be read.
    """
    texts = [f"nullif(trim({quoted_name(name)}::VARCHAR), '')" for name in columns]
    are_numbers = [f"2 * count_if(regexp_full_match({text}, '{_NUMBER}')) > count({text})" for text in texts]
    found = _of_first_rows(source, form, are_numbers) if columns else ()
    return [name for name, is_number in zip(columns, found, strict=True) if is_number]


def has_single_pairs(source: Path, columns: RecordColumns, form: RecordFormat) -> bool:
    """Confidential: return whether the first rows, at least 100, each have another pair of places, as tables of flows.

    The columns of origins and destinations must be there. Raises OdError if the file cannot be read.
    """
    there = list(record_schema(source, form))
    ends = [quoted_name(str(column_in(end, there))) for end in (columns.origin, columns.destination)]
    rows, pairs = _of_first_rows(source, form, ["count(*)", f"count(DISTINCT ({', '.join(ends)}))"])
    return bool(rows >= _MANY_ROWS and pairs == rows)


def _of_first_rows(source: Path, form: RecordFormat, asked: list[str]) -> tuple[int, ...]:
    """Return the values of SQL aggregates over the first rows of a file."""
    with opened(source, form) as file:
        found: tuple[int, ...] = file.relation.limit(FIRST_ROWS).aggregate(", ".join(asked)).fetchall()[0]
    return found


def has_dates(source: Path, column: str, form: RecordFormat) -> bool:
    """Return whether one of the first records of a file has a date in a column, or whether there is no record.

    The column is named as the file writes it. Raises OdError if the file cannot be read, or does not state whether the
    times of the column have a zone.
    """
    with opened(source, form) as file:
        if file.types[column] == UNSTATED_TIME:
            raise file.unstated_time(column)
        day = part_of_time("duckdb", "day", quoted_name(column), file.types[column], "UTC", quoted_text)
        if day is None:
            return False
        rows, dated = file.relation.limit(FIRST_ROWS).aggregate(f"count(*), count({day})").fetchall()[0]
        return bool(dated or not rows)


def load_records(
    source: Path,
    columns: RecordColumns,
    period: str,
    target: Path,
    *,
    record_format: RecordFormat = TABLE,
    geography: Geography | None = None,
    destination_geography: Geography | None = None,
    time_zone: str | None = None,
) -> None:
    """Copy the records of a file into the confidential folder, and mark those of the period.

    A row is left out if the format's categories do not select it, or if it belongs to another period and
    ``outside_period`` of the format is ``drop``. A row that is left out counts neither as a record nor as a fault.

    Args:
        source, columns: the file, and the names of its columns.
        period: text of a :class:`od_core.periods.Period`.
        target: Parquet file to write, durably and with mode 0600.
        record_format: format of the file; by default CSV or Parquet with any columns.
        geography, destination_geography: geography of the zones, and of the destinations if it differs. Codes in the
            format's ``nowhere`` are replaced by its ``unknown`` zone, unless they are zones or there is none.
        time_zone: time zone in which times that have a zone are assigned to days, such as ``Europe/Rome``. If None,
            such times are refused. Local times are not converted.

    Raises:
        OdError: the file is missing, may not be read, is unreadable, or has another kind than its name or the format
            states; a column is missing or has the wrong type (such as numbers for codes, or times with a zone without a
            ``time_zone``); each row counts as one trip, and an unnamed column may contain the trips of a row; the time
            zone is unknown; or the disk is full.
    """
    form = record_format
    form.refuse_estimates(columns)
    refuse_absent(source)
    if time_zone is not None:
        check_time_zone(time_zone)
    with opened(source, form, target.parent, whole=True) as file:
        query = FileQuery(file, columns, time_zone).sql(Period(period), geography, destination_geography or geography)
        written = spill_folder(target.parent) / target.name
        file.connection.register("records", file.relation)
        file.connection.sql(query).write_parquet(str(written))
        write_durably(target, written.replace)


def refuse_absent(source: Path) -> None:
    """Raise OdError if a file of records is missing or may not be read."""
    if (absent := absence(source)) is not None:
        step = "wait for the file of records, or correct its path or the rights to read it"
        raise OdError("OD-FILE-MISSING", absent, next_step=step)
