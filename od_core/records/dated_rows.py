"""Confidential: find out whether a column of a file holds dates. Only commands that declare an input ask."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from od_core.files.duckdb_session import quoted_name, scratch_database
from od_core.records.file_faults import reading_errors, unreadable
from od_core.records.format import RecordFormat
from od_core.records.load_query import local_time_and_day
from od_core.records.open_file import files_read, open_records
from od_core.records.row_meaning import FIRST_ROWS

_ANY_ZONE = "UTC"
"""Time zone for times that have one: it changes days, and not whether there is one."""


def has_dates(source: Path, column: str, form: RecordFormat) -> bool:
    """Return whether one of the first records of a file has a date in a column, or whether there is no record.

    Args:
        source: the file.
        column: name of the column, as the file writes it.
        form: format of the records in the file.

    Raises:
        OdError: the file cannot be read.
    """
    try:
        with TemporaryDirectory() as empty, scratch_database(Path(empty), *files_read(source)) as connection:
            file = open_records(connection, source, form)
            found = local_time_and_day(quoted_name(column), file.types[column], _ANY_ZONE)
            if found is None:
                return False
            counted = file.relation.limit(FIRST_ROWS).aggregate(f"count(*), count({found[1]})")
            rows, dated = counted.fetchall()[0]
    except reading_errors() as error:
        raise unreadable(source, form, error) from None
    return bool(dated or not rows)
