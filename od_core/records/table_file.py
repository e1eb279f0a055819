"""Confidential: take the columns of a table that a caller passes, in memory or as a Parquet or CSV file.

No message quotes a value of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pandas as pd

from od_core.errors import OdError, nearest_only
from od_core.files.data_frame import TableOrFile, data_frame, shown_columns
from od_core.files.duckdb_session import quoted_name, scratch_database
from od_core.files.durable import absence
from od_core.records.file_faults import reading_errors, refuse_truncated, unreadable
from od_core.records.formats.table import TABLE
from od_core.records.load_query import as_count
from od_core.records.open_file import OpenFile, open_records

IN_PERIOD = "in_period"
"""Name of a column of true and false, which marks the records of the period."""

_CORRECT = "correct the file or the names in columns, or read the file yourself and pass the table"
"""Next step of a fault of a file. Those of the pipeline's readers speak of a declaration, which a caller lacks."""


class ReadTable(NamedTuple):
    """A table in memory.

    Attributes:
        frame: at least the columns that were asked for.
        columns: names of all columns of the table.
        named: name of the table for a message, such as ``the records`` or the name of its file.
    """

    frame: pd.DataFrame
    columns: list[str]
    named: str


def read_table(
    table: TableOrFile,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    *,
    numbers: Sequence[str] = (),
    named: str,
    code: str,
) -> ReadTable:
    """Return the columns of a table. Those of a CSV file are text, unless they are listed in ``numbers``.

    Args:
        table: a table, or the path of a file: Parquet if its name ends in .parquet, else CSV with commas, in UTF-8,
            compressed by gzip if its name ends in .gz.
        needed: names of columns that the table must have.
        optional: names of further columns, which are read if the table has them.
        numbers: columns whose text is converted to numbers. Text that is not a number becomes NaN.
        named: name of a table in memory for messages, a plural such as ``the records``.
        code: code of the error for a column that is missing or occurs twice.

    Raises:
        OdError: the object is not a table, the file cannot be read, or a column is missing or occurs twice.
    """
    if isinstance(table, (str, Path)):
        return _read_file(Path(table), needed, optional, numbers, code)
    frame = data_frame(table)
    names = [str(name) for name in frame.columns]
    frame = frame.set_axis(names, axis="columns")
    for name in (*needed, *optional):
        if names.count(name) > 1:
            raise OdError(code, f"{named} have column {name!r} more than once", next_step="keep one of them")
    for name in needed:
        if name not in names:
            raise _missing(name, needed, names, named, code)
    return ReadTable(frame, names, named)


def _missing(name: str, needed: Sequence[str], names: list[str], named: str, code: str) -> OdError:
    """Return the OdError for a column that a table in memory lacks.

    The message lists the columns only if one of the needed columns is there: else they may be values of the first
    record, which a table without a header shows as names.
    """
    has = f"; they have {shown_columns(names)}" if any(one in names for one in needed) else ""
    return OdError(
        code,
        f"{named} have no column {name!r}{nearest_only(name, tuple(names))}{has}",
        next_step=f'give the names of your own columns, as in columns={{"{needed[0]}": ...}}, or rename them',
    )


def _read_file(
    source: Path, needed: Sequence[str], optional: Sequence[str], numbers: Sequence[str], code: str
) -> ReadTable:
    with _opened(source) as file:
        types = file.types
        for name in needed:
            if name not in types:
                raise file.missing(name, needed).changed(code=code)
        wanted = [name for name in dict.fromkeys((*needed, *optional)) if name in types]
        fields = ", ".join(_field(name, types[name], name in numbers) for name in wanted)
        frame = data_frame(file.relation.select(fields).to_arrow_reader().read_all())
    return ReadTable(frame, list(types), source.name)


def _field(name: str, kind: str, is_number: bool) -> str:
    column = quoted_name(name)
    if kind != "VARCHAR" or not (is_number or name == IN_PERIOD):
        return column
    return f"{as_count(column) if is_number else f'TRY_CAST({column} AS BOOLEAN)'} AS {column}"


@contextmanager
def _opened(source: Path) -> Iterator[OpenFile]:
    """Open a file with the pipeline's reader of tables. Its faults get a next step that a caller can take."""
    if (absent := absence(source)) is not None:
        raise OdError("OD-FILE-MISSING", absent, next_step="correct the path")
    try:
        with TemporaryDirectory() as scratch, scratch_database(Path(scratch), source) as connection:
            file = open_records(connection, source, TABLE)
            refuse_truncated(source)
            yield file
    except OdError as fault:
        raise fault.changed(next_step=_CORRECT) from None
    except reading_errors() as error:
        raise unreadable(source, TABLE, error).changed(next_step=_CORRECT) from None
