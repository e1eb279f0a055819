"""Read a table of Apache Iceberg with the library pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from od_core.errors import OdError
from od_core.records.stored_table import DayRange, NamedTable, TableState


@dataclass(frozen=True)
class IcebergTable(NamedTable):
    """A table of Apache Iceberg.

    Attributes:
        catalog: name of the catalog, for pyiceberg's own configuration: ``.pyiceberg.yaml`` and the environment.
        table: name of the table, with its namespace.
        snapshot: id of the snapshot that is read; None for the current one.
        properties: properties of the catalog that the configuration lacks. They may contain a credential.
    """

    catalog: str
    table: str
    snapshot: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    store: ClassVar[str] = "Iceberg"
    extra: ClassVar[str] = "iceberg"

    @contextmanager
    def open_state(self) -> Iterator[TableState]:
        """Open the declared snapshot of the table, or its current one.

        Raises OdError if there is no such snapshot, or nothing was ever written; and any error of pyiceberg.
        """
        from pyiceberg.catalog import load_catalog
        from pyiceberg.expressions import And, GreaterThanOrEqual, IsNull, LessThan, Or
        from pyiceberg.expressions.literals import literal

        table = load_catalog(self.catalog, **self.properties).load_table(self.table)
        snapshot = table.current_snapshot() if self.snapshot is None else table.snapshot_by_id(self.snapshot)
        if snapshot is None:
            stated = "no snapshot" if self.snapshot is None else f"no snapshot {self.snapshot}"
            message = f"table {self.name} of Iceberg has {stated}"
            raise OdError("OD-TABLE-UNREADABLE", message, next_step="write to the table, or correct the snapshot")
        scan = table.scan(snapshot_id=snapshot.snapshot_id)

        def read(columns: Sequence[str], days: DayRange | None) -> pa.RecordBatchReader:
            """Start to read columns of the rows of some days; see :class:`TableState`."""
            chosen = scan.update(selected_fields=tuple(columns))
            if days is not None:
                first, end = map(literal, days.limits)
                within = And(GreaterThanOrEqual(term=days.column, value=first), LessThan(term=days.column, value=end))
                # If a partition has no day (apache/iceberg-python issue 3498), or the column's name has a dot, which
                # would be that of a nested column, the filter raises an error, and all days are read.
                with suppress(TypeError, ValueError):
                    return chosen.filter(Or(within, IsNull(term=days.column))).to_arrow_batch_reader()
            return chosen.to_arrow_batch_reader()

        yield TableState(scan.projection().as_arrow(), str(snapshot.snapshot_id), read)
