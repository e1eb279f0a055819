"""Confidential: find out whether a column of a file holds dates. Only commands that declare an input ask."""

from __future__ import annotations

from pathlib import Path

from od_core.files.duckdb_session import quoted_name
from od_core.records.format import RecordFormat
from od_core.records.load_query import local_time_and_day
from od_core.records.open_file import UNSTATED_TIME, opened
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
        OdError: the file cannot be read, or does not state whether the times of the column have a zone.
    """
    with opened(source, form) as file:
        if file.types[column] == UNSTATED_TIME:
            raise file.unstated_time(column)
        found = local_time_and_day(quoted_name(column), file.types[column], _ANY_ZONE)
        if found is None:
            return False
        rows, dated = file.relation.limit(FIRST_ROWS).aggregate(f"count(*), count({found[1]})").fetchall()[0]
        return bool(dated or not rows)
