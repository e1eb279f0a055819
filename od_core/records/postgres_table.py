"""Read a table or view of a PostgreSQL database by ADBC, its driver for Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from od_core.errors import OdError
from od_core.files.duckdb_session import quote_identifier
from od_core.records.stored_table import DayRange, NamedTable, TableState

_UNCONVERTED_TYPES = {
    *("bool", "bytea", "date", "float4", "float8", "int2", "int4", "int8", "text", "timestamp", "timestamptz"),
    "varchar",
}
"""Types of PostgreSQL that are read as Arrow types of the same values. Others are read as text."""

# The name of each column of a table, and of its type; NULL for a type that is not a base type, such as an enum.
_COLUMNS_SQL = """
SELECT attname::text, CASE typtype WHEN 'b' THEN typname::text END
FROM pg_attribute JOIN pg_type ON atttypid = pg_type.oid
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

_SETTINGS = (
    "TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "row_security = off",  # rows that a policy hides from the role are an error, and are not left out
    "client_encoding = 'UTF8'",
    "datestyle = 'ISO'",  # of dates that are read as text
)

_REASONS = {
    "08": "the connection was lost",
    "25006": "reading it would change data",
    "28": "the server refuses the role or its password",
    "3D000": "there is no such database",
    "42602": "its name is not one of SQL",
    "42501": "the role may not read it, or not all of its rows",
    "57": "the server ended the query",
}
"""Reasons by the beginnings of SQLSTATE codes. Source: PostgreSQL, appendix A."""


@dataclass(frozen=True)
class PostgresTable(NamedTable):
    """A table or view of a PostgreSQL database. It is read in one transaction that cannot change anything.

    Attributes:
        address: address of the database, as libpq reads it. It may contain a password.
        table: name of the table as in SQL, with its schema where the search path lacks it.
    """

    address: str = field(repr=False)
    table: str

    store: ClassVar[str] = "PostgreSQL"
    extra: ClassVar[str] = "postgres-tables"

    @contextmanager
    def open_state(self) -> Iterator[TableState]:
        """Begin a transaction. PostgreSQL keeps no earlier state, so this state has no name.

        Raises OdError if there is no such table, and any error of the driver.
        """
        from adbc_driver_postgresql import dbapi

        with closing(dbapi.connect(self.address)) as connection, connection.cursor() as cursor:
            for setting in _SETTINGS:
                cursor.execute(f"SET {setting}")
            cursor.execute("SELECT to_regclass($1)::text", parameters=(self.table,))
            [[relation]] = cursor.fetchall()
            if relation is None:
                message = f"PostgreSQL has no table or view {self.table}"
                step = "correct the table, with its schema, or grant the role the use of that schema"
                raise OdError("OD-TABLE-UNREADABLE", message, next_step=step)
            cursor.execute(_COLUMNS_SQL, parameters=(self.table,))
            fields = {name: _make_field_sql(name, kind) for name, kind in cursor.fetchall()}

            def read(columns: Sequence[str], days: DayRange | None) -> pa.RecordBatchReader:
                """Start to read columns of the rows of some days; see :class:`TableState`."""
                condition = "true" if days is None else days.make_sql("")
                chosen = ", ".join(fields[name] for name in columns)
                cursor.execute(f"SELECT {chosen} FROM {relation} WHERE {condition}")  # noqa: S608  # quoted by the server
                reader = cursor.fetch_record_batch()
                return pa.RecordBatchReader.from_batches(reader.schema, _iterate_valid_batches(reader))

            cursor.execute(f"SELECT {', '.join(fields.values())} FROM {relation} LIMIT 0")  # noqa: S608  # as above
            yield TableState(cursor.fetch_arrow_table().schema, None, read)

    def find_reason(self, error: Exception) -> str:
        """Return why the table cannot be read, by the SQLSTATE code of the error, as the end of a message."""
        state = getattr(error, "sqlstate", "")
        if state is None:
            return "there is no connection to the server"
        if not state:  # DuckDB passes on an error of the driver without its code
            return "the query failed at a row, would change data, or lost the connection, or a text is not UTF-8"
        known = next((reason for code, reason in _REASONS.items() if state.startswith(code)), None)
        return known or f"PostgreSQL reports {state}"


def _iterate_valid_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches unchanged. Raises ArrowInvalid if a text is not UTF-8, as in a database without an encoding."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def _make_field_sql(name: str, kind: str | None) -> str:
    """Return the SQL that selects a column of PostgreSQL's type ``kind``; None for a type that is not a base type.

    Types other than ``_UNCONVERTED_TYPES``, such as numeric, are selected as text.
    """
    column = quote_identifier(name)
    if kind in _UNCONVERTED_TYPES:
        return column
    value = f"trim_scale({column})" if kind == "numeric" else column
    return f"{value}::text AS {column}"
