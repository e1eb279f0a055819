"""Read a table of a database or of a lakehouse where it is, in Arrow batches.

Each store has a module of its own, with a class of tables. A table is read once, at one state of it: only the columns
that are declared, and only the days of the period with one more on each side, which the rules of
:mod:`od_core.records.load` then narrow to the period. No message contains the text of an error of a store, because it
may quote a record or an address.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from od_core.errors import OdError, raise_without_context
from od_core.extras import require
from od_core.files.duckdb_session import make_machine_error, open_scratch_database, quote_identifier
from od_core.periods import Period
from od_core.records.faults import list_reading_errors
from od_core.records.formats import RecordColumns, RecordFormat, find_column
from od_core.records.open_file import OpenFile


@dataclass(frozen=True)
class DayRange:
    """The rows of a table that may be of a period: those of a range of days, and those without a day.

    Attributes:
        column: name of the column of dates or of times.
        kind: Arrow type of the column.
        first, end: first day, and the day after the last one.
    """

    column: str
    kind: pa.DataType
    first: datetime.date
    end: datetime.date

    @classmethod
    def from_period(cls, period: Period, column: str, kind: pa.DataType) -> DayRange | None:
        """Return the days of a period and one more on each side; None for a type of column without days, such as text.

        One more day suffices, because local time in any time zone differs from UTC by less than a day.
        """
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        day = datetime.timedelta(days=1)
        return cls(column, kind, period.first - day, period.end + day)

    @property
    def limits(self) -> tuple[str, str]:
        """The first day and the end as texts of ISO 8601: dates for a column of dates, otherwise times."""
        ending = "" if pa.types.is_date(self.kind) else "T00:00:00"
        if ending and self.kind.tz is not None:
            ending += "+00:00"
        return f"{self.first}{ending}", f"{self.end}{ending}"

    def make_sql(self, type_name: str) -> str:
        """Return the SQL condition of the rows. ``type_name``, such as DATE, is put before the literal of a limit."""
        quoted = quote_identifier(self.column)
        first, end = self.limits
        return f"{quoted} >= {type_name} '{first}' AND {quoted} < {type_name} '{end}' OR {quoted} IS NULL"


@dataclass(frozen=True)
class TableState:
    """A state of a table, which does not change while it is read.

    Attributes:
        schema: names and types of all columns.
        snapshot: name by which the store can read this state later; None if it keeps no states.
        read: starts to read the given columns; of the rows of a range of days, or of all rows for None.
    """

    schema: pa.Schema
    snapshot: str | None
    read: Callable[[Sequence[str], DayRange | None], pa.RecordBatchReader]


@dataclass(frozen=True)
class StoredTable(ABC):
    """A table in a database or a lakehouse of the team. Each store has a subclass, whose fields say where it is."""

    store: ClassVar[str]
    """Name of the store, in messages and in the certificate."""

    extra: ClassVar[str | None] = None
    """Name of the extra that installs the library of the store; None if Python has it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Public name of the table, without an address or a credential."""

    @abstractmethod
    def open_state(self) -> AbstractContextManager[TableState]:
        """Open the declared or newest state of the table. Raises OdError, or any error of the store's library."""

    def with_table(self, _table: str) -> StoredTable:
        """Return the table with the name that an upstream asset states; by default, this table itself."""
        return self

    def find_reason(self, _error: Exception) -> str:
        """Return why an error of the store occurred, as the end of a message; by default, its type."""
        return type(_error).__name__

    def facts(self) -> dict[str, str]:
        """Return where the table is, JSON-ready, for the certificate."""
        return {"store": self.store, "table": self.name}

    def make_unreadable_error(self, error: Exception) -> OdError:
        """Return the OdError for a table that cannot be read. It does not contain the text of ``error``."""
        message = f"table {self.name} of {self.store} cannot be read: {self.find_reason(error)}"
        step = "read the table with another program on this machine, as the same role; then correct the declaration"
        return OdError("OD-TABLE-UNREADABLE", message, next_step=step)


class NamedTable(StoredTable):
    """A table that has a name in its store. Subclasses, which are dataclasses, have the field ``table``."""

    table: str

    @property
    def name(self) -> str:
        """Name of the table, with its schema or namespace."""
        return self.table

    def with_table(self, table: str) -> StoredTable:
        """Return the table of another name in the same place."""
        return replace(self, table=table)  # type: ignore[call-arg]  # a field of each subclass


@dataclass(frozen=True, kw_only=True)
class OpenTable(OpenFile):
    """A stored table that is open in DuckDB. Its relation has the columns, and no rows."""

    table: StoredTable
    state: TableState

    @property
    def named(self) -> str:
        """Name of the table and of its store, with which a message begins."""
        return f"table {self.table.name} of {self.table.store}"

    @property
    def snapshot(self) -> str | None:
        """Name of the state that is read; see :class:`TableState`."""
        return self.state.snapshot

    def register_records(self, columns: RecordColumns, period: Period) -> None:
        """Register the rows as the relation ``records``, with the declared columns only, to be read once.

        If the format drops records of other periods, rows that cannot be of the period are not read. Raises OdError if
        the table cannot be read.
        """
        names = list(self.types)
        declared = (*columns.names, *(column for column, _ in self.form.categories))
        own_names = list(dict.fromkeys(str(find_column(name, names)) for name in declared))
        days = None
        if columns.date is not None and self.form.outside_period == "drop":
            date = str(find_column(columns.date, names))
            days = DayRange.from_period(period, date, self.state.schema.field(date).type)
        with _convert_errors(self.table):
            self.connection.register("records", self.state.read(own_names, days))


@contextmanager
def _convert_errors(table: StoredTable) -> Iterator[None]:
    """Convert any exception of this context to an OdError without its text, because it may quote a record."""
    try:
        yield
    except OdError:
        raise
    except Exception as error:  # noqa: BLE001  # as above
        raise_without_context(table.make_unreadable_error(error))


@contextmanager
def open_stored_table(table: StoredTable, form: RecordFormat, folder: Path) -> Iterator[OpenTable]:
    """Open a stored table while this context lasts; ``folder`` has DuckDB's temporary files.

    Raises OdError if the library of the store is not installed, or the table cannot be read, also after rows were read.
    """
    if table.extra is not None:
        require(table.extra)
    state_context = table.open_state()
    with _convert_errors(table):
        state = state_context.__enter__()
    try:
        with open_scratch_database(folder) as connection:
            relation = connection.from_arrow(state.schema.empty_table())
            own_form = replace(form, container="stored")
            yield OpenTable(Path(table.name), own_form, relation, connection, table=table, state=state)
    except list_reading_errors() as error:
        machine_error = make_machine_error(error, f"table {table.name} of {table.store} cannot be read")
        raise_without_context(machine_error or table.make_unreadable_error(error))
    finally:
        with _convert_errors(table):  # after a lost connection, to close it fails, too
            state_context.__exit__(None, None, None)
