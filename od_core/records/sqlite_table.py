"""Read a table of a SQLite file with Python's own library."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from od_core.errors import OdError
from od_core.files.duckdb_session import quote_identifier
from od_core.records.stored_table import DayRange, NamedTable, TableState

_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class SqliteTable(NamedTable):
    """A table or view of a SQLite file.

    SQLite has types of values, not of columns. So all values are read as the texts that a CSV file would have, and all
    rows are read, whatever their day.

    Attributes:
        path: the file.
        table: name of the table or view.
    """

    path: str
    table: str

    store: ClassVar[str] = "SQLite"

    @contextmanager
    def open_state(self) -> Iterator[TableState]:
        """Open the file for reading, in one transaction. SQLite keeps no earlier state, so this state has no name.

        Raises OdError if the file has no such table, and any error of SQLite.
        """
        address = f"{Path(self.path).absolute().as_uri()}?mode=ro"
        # DuckDB reads the batches in a thread of its own.
        with closing(sqlite3.connect(address, uri=True, check_same_thread=False, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            columns = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden <> 1"  # with generated columns
            names = [name for (name,) in connection.execute(columns, [self.table])]
            if not names:
                message = f"the SQLite file {Path(self.path).name} has no table or view {self.table!r}"
                raise OdError("OD-TABLE-UNREADABLE", message, next_step="correct the table")

            def read(columns: Sequence[str], _days: DayRange | None) -> pa.RecordBatchReader:
                """Start to read columns of all rows; see :class:`TableState`."""
                chosen = ", ".join(map(_make_text_sql, columns))
                rows = connection.execute(f"SELECT {chosen} FROM {quote_identifier(self.table)}")  # noqa: S608  # quoted
                schema = pa.schema([(name, pa.string()) for name in columns])
                return pa.RecordBatchReader.from_batches(schema, _make_batches(rows, schema))

            yield TableState(pa.schema([(name, pa.string()) for name in names]), None, read)


def _make_text_sql(name: str) -> str:
    """Return SQL for the values of a column as text. The text of a whole number has no decimals."""
    column = quote_identifier(name)
    whole = f"CAST({column} AS INTEGER)"
    is_whole = f"typeof({column}) = 'real' AND {column} = {whole}"
    return f"CAST(CASE WHEN {is_whole} THEN {whole} ELSE {column} END AS TEXT)"


def _make_batches(rows: sqlite3.Cursor, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query as batches of a schema, whose columns are text."""
    while piece := rows.fetchmany(_ROWS_AT_ONCE):
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, pa.string()) for column in zip(*piece, strict=True)], schema=schema
        )
