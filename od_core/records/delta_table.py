"""Read a table of Delta Lake with the library deltalake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import ClassVar
from urllib.parse import urlsplit

import pyarrow as pa

from od_core.errors import OdError
from od_core.records.stored_table import DayRange, StoredTable, TableState

_AZURE_SCHEMES = ("abfs", "abfss")
"""Schemes of Azure, whose addresses have the name of a container in the place of a user."""


@dataclass(frozen=True)
class DeltaTable(StoredTable):
    """A table of Delta Lake, in a folder or at an address.

    Deletion vectors and mapped columns are read, because the library's own engine reads the rows.

    Raises OdError if an address has more than a host and a path, because it may be a credential.

    Attributes:
        path: folder or address of the table.
        version: number of the version that is read; None for the newest.
    """

    path: str = field(repr=False)
    version: int | None = None

    store: ClassVar[str] = "Delta Lake"
    extra: ClassVar[str] = "delta"

    def __post_init__(self) -> None:
        parts = urlsplit(self.path)
        has_user = parts.password is not None if parts.scheme in _AZURE_SCHEMES else "@" in parts.netloc
        if "://" in self.path and (has_user or parts.query or parts.fragment):
            message = "the address of a Delta table has a user, a query or a fragment, which may be a credential"
            step = "leave it out, and state credentials in the environment, where deltalake looks for them"
            raise OdError("OD-READER-OPTIONS", message, next_step=step)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return PurePath(urlsplit(self.path).path if "://" in self.path else self.path).name

    @contextmanager
    def open_state(self) -> Iterator[TableState]:
        """Open the version of the table, or its newest. Raises any error of deltalake."""
        import deltalake

        table = deltalake.DeltaTable(self.path, version=self.version)

        def read(columns: Sequence[str], days: DayRange | None) -> pa.RecordBatchReader:
            """Start to read columns of the rows of some days; see :class:`TableState`."""
            predicate = None
            if days is not None:
                predicate = days.make_sql("DATE" if pa.types.is_date(days.kind) else "TIMESTAMP")
            return pa.RecordBatchReader.from_stream(table.scan(columns=list(columns), predicate=predicate))

        yield TableState(pa.schema(table.schema().to_arrow()), str(table.version()), read)
