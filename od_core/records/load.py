"""Confidential: copy trip records or flows from an agency's file into the confidential folder, with DuckDB.

The file may be larger than the memory. The result is a Parquet file with the columns ``date``, ``origin``,
``destination`` (text codes), ``in_period`` and, if requested, ``stop_1``, ``stop_2`` and so on (text codes), ``trips``,
``weight`` (unchanged, NULL if it is not a number), ``user`` (text) and, for each breakdown, ``segment_`` and its name
(the category as text, NULL if it is missing). Every record is read by fixed rules from its own fields alone: nothing is
guessed from a sample of the file. No message quotes a record.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from od_core.errors import OdError, nearest_only
from od_core.files.duckdb_session import spill_folder
from od_core.files.durable import absence, write_durably
from od_core.geography.geography import Geography
from od_core.periods import Period
from od_core.records.format import RecordColumns, RecordFormat
from od_core.records.formats.table import TABLE
from od_core.records.load_query import RecordQuery
from od_core.records.open_file import opened

if TYPE_CHECKING:
    import duckdb


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
        source: the file.
        columns: names of the columns in the file.
        period: text of a :class:`od_core.periods.Period`.
        target: Parquet file to write, durably and with mode 0600.
        record_format: format of the file; by default CSV or Parquet with any columns.
        geography: geography of the zones. Codes in the format's ``nowhere`` are replaced by its ``unknown`` zone,
            unless they are zones. Without an ``unknown`` zone, they stay unchanged.
        destination_geography: geography of the destinations, if it differs from ``geography``.
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
    with opened(source, form, target.parent, whole=True) as file:
        _check_time_zone(file.connection, time_zone)
        query = RecordQuery(file, columns, time_zone).text(
            Period(period), geography, destination_geography or geography
        )
        written = spill_folder(target.parent) / target.name
        file.connection.register("records", file.relation)
        file.connection.sql(query).write_parquet(str(written))
        write_durably(target, written.replace)


def refuse_absent(source: Path) -> None:
    """Raise OdError if a file of records is missing or may not be read."""
    if (absent := absence(source)) is not None:
        step = "wait for the file of records, or correct its path or the rights to read it"
        raise OdError("OD-FILE-MISSING", absent, next_step=step)


def _check_time_zone(connection: duckdb.DuckDBPyConnection, name: str | None) -> None:
    if name is None:
        return
    known = tuple(one for (one,) in connection.sql("SELECT name FROM pg_timezone_names()").fetchall())
    if name not in known:
        raise OdError(
            "OD-TIME-ZONE",
            f"there is no time zone {name!r}{nearest_only(name, known)}",
            next_step="use a name such as Europe/Rome or America/New_York",
        )
