"""Confidential: take the columns of a table that a caller passes, in memory or as a Parquet or CSV file.

No message quotes a value of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import InputError, OdError, nearest_only, raise_alone
from od_core.files.data_frame import TableOrFile, data_frame, exact_numbers, holds_numbers, shown_columns
from od_core.files.duckdb_session import memory_database, quoted_name
from od_core.files.durable import absence
from od_core.records.contribution_bound import texts
from od_core.records.faults import FRACTION, MAX_COUNT, MISSING, NEGATIVE, NOT_NUMBERS, TOO_LARGE
from od_core.records.formats import TABLE, column_in
from od_core.records.open_file import opened
from od_core.records.record_query import as_count

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

    A table is read alike as a file and in memory.

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
    of_text = [name for name in numbers if name in names and _is_text(frame[name])]
    return ReadTable(frame.assign(**{name: _as_counts(frame[name]) for name in of_text}), names, named)


def whole_numbers(column: pd.Series, fault: Callable[[str, NDArray[np.bool_] | None], OdError]) -> NDArray[np.int64]:
    """Return a column of whole numbers from 0 to 2^53 without rounding, whatever type of numbers it has.

    Args:
        column: the column; shape (rows,).
        fault: function that returns the error for a description of a fault, such as ``MISSING``, and the mask of the
            faulty rows, None for the whole column.

    Raises:
        OdError: the error of ``fault``.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not holds_numbers(column):
        if len(column) == 0:
            return np.empty(0, dtype=np.int64)
        raise fault(NOT_NUMBERS, None)
    missing = column.isna().to_numpy(dtype=bool)
    if missing.any():
        raise fault(MISSING, missing)
    values = exact_numbers(column)
    for faulty, what in ((values != values, MISSING), (values < 0, NEGATIVE), (values > MAX_COUNT, TOO_LARGE)):
        if faulty.any():
            raise fault(what, faulty)
    counts = values.astype(np.int64)
    if (faulty := counts != values).any():
        raise fault(FRACTION, faulty)
    return counts


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.infer_dtype(column, skipna=True) == "string"


def _as_counts(column: pd.Series) -> pd.Series:
    """Return the numbers of a column of text, as :func:`od_core.records.record_query.as_count` reads a file.

    A column with another text is returned unchanged.
    """
    query = f"SELECT {as_count('value')} AS value FROM given"  # noqa: S608  # names of our own
    with memory_database() as connection:
        connection.register("given", pa.table({"value": texts(column)}))
        read = pd.Series(connection.sql(query).to_arrow_table()["value"].to_numpy(), column.index, name=column.name)
    return column if (read.isna() & column.notna()).any() else read


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
    """Read a file with the pipeline's reader of tables. Its faults get a next step that a caller can take."""
    if (absent := absence(source)) is not None:
        raise OdError("OD-FILE-MISSING", absent, next_step="correct the path")
    try:
        with opened(source, TABLE, whole=True) as file:
            types = file.types
            for name in needed:
                if column_in(name, list(types)) is None:
                    raise file.missing(name, needed).changed(code=code)
            for name in optional:
                if name not in types and (repeated := file.repeated(name)) is not None:
                    raise repeated.changed(code=code)
            wanted = [name for name in dict.fromkeys((*needed, *optional)) if name in types]
            fields = ", ".join(_field(name, types[name], name in numbers) for name in wanted)
            frame = data_frame(file.relation.select(fields).to_arrow_reader().read_all())
    except InputError as fault:
        raise_alone(fault if fault.code == "OD-FILE-INCOMPLETE" else fault.changed(next_step=_CORRECT))
    return ReadTable(frame, list(types), source.name)


def _field(name: str, kind: str, is_number: bool) -> str:
    column = quoted_name(name)
    if kind != "VARCHAR" or not (is_number or name == IN_PERIOD):
        return column
    return f"{as_count(column) if is_number else f'TRY_CAST({column} AS BOOLEAN)'} AS {column}"
