"""Names and types of the columns of a file of records, without reading a record.

The first line of a CSV file may be a record, where somebody has left out the header: its fields are confidential until
one of them is known to be a column.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from od_core.readers.file_faults import READING_ERRORS, unreadable
from od_core.readers.opening import files_read, open_records
from od_core.readers.record_format import RecordFormat
from od_core.readers.scratch import scratch_database


def record_schema(source: Path, form: RecordFormat) -> dict[str, str]:
    """The name of DuckDB's type of every column, by name; the names of a CSV file are confidential.

    Raises:
        OdError: the file cannot be opened as it should stand.
    """
    try:
        with TemporaryDirectory() as empty, scratch_database(Path(empty), *files_read(source)) as connection:
            return open_records(connection, source, form).types
    except READING_ERRORS as error:
        raise unreadable(source, form, error) from None
