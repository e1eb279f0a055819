"""Declare where the confidential records are: files of the project, or a table of a database or a lakehouse."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StrictInt, model_validator

from od_assets.series.section import Number, Section
from od_core.errors import OdError
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records.delta_table import DeltaTable
from od_core.records.formats import FORMATS, TABLE, RecordFormat, find_format
from od_core.records.iceberg_table import IcebergTable
from od_core.records.postgres_table import PostgresTable
from od_core.records.sqlite_table import SqliteTable
from od_core.records.stored_table import StoredTable

AssetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$")]
"""Key of a team's asset, as Dagster writes keys."""


class PostgresSection(Section):
    """A table or view of a PostgreSQL database."""

    address: str = Field(min_length=1, repr=False)
    table: str = Field(min_length=1)

    def to_stored_table(self, _folder: Path) -> StoredTable:
        """Return the table in the terms of od_core. The folder is not used, because the address names a server."""
        return PostgresTable(self.address, self.table)


class DeltaSection(Section):
    """A table of Delta Lake."""

    path: str = Field(min_length=1, repr=False)
    version: StrictInt | None = None

    def to_stored_table(self, folder: Path) -> StoredTable:
        """Return the table in the terms of od_core. A path without a scheme, such as ``s3://``, is below ``folder``."""
        path = self.path if "://" in self.path else str(folder / self.path)
        return DeltaTable(path, self.version)


class IcebergSection(Section):
    """A table of Apache Iceberg."""

    catalog: str = Field(min_length=1)
    table: str = Field(min_length=1)
    snapshot: StrictInt | None = None
    properties: dict[str, str] = Field(default_factory=dict, repr=False)

    def to_stored_table(self, _folder: Path) -> StoredTable:
        """Return the table in the terms of od_core. The folder is not used, because a catalog locates the table."""
        return IcebergTable(self.catalog, self.table, self.snapshot, self.properties)


class SqliteSection(Section):
    """A table or view of a SQLite file."""

    path: str = Field(min_length=1)
    table: str = Field(min_length=1)

    def to_stored_table(self, folder: Path) -> StoredTable:
        """Return the table in the terms of od_core. The path of its file is relative to ``folder``."""
        return SqliteTable(str(folder / self.path), self.table)


class Records(Section):
    """Location and format of the confidential records. Subclasses add the columns that they read."""

    files: str = ""
    postgres: PostgresSection | None = None
    delta: DeltaSection | None = None
    iceberg: IcebergSection | None = None
    sqlite: SqliteSection | None = None
    asset: AssetName | None = None
    reader: str = Field(
        "table", description=f"Reader, that is, the published format of the records: {', '.join(FORMATS)}."
    )
    delimiter: str | None = None
    encoding: str | None = None
    table: str | None = None
    timestamps: str | None = None
    one_row_a_trip: bool = False
    categories: dict[str, list[str]] = Field(default_factory=dict)
    nowhere: list[str] = Field(default_factory=list)
    outside_period: str | None = None
    fault_threshold: Number = str(FAULT_THRESHOLD)
    accept_empty: bool = False

    @model_validator(mode="after")
    def require_one_location(self) -> Self:
        """Return the section. Raises ValueError if it locates the records nowhere, or in several places."""
        locations = (self.files, self.postgres, self.delta, self.iceberg, self.sqlite)
        if sum(map(bool, locations)) != 1:
            raise ValueError("name one of files, postgres, delta, iceberg and sqlite")
        return self

    def find_stored_table(self, folder: Path) -> StoredTable | None:
        """Return the declared table; None if the records are in files. A path of a table is relative to ``folder``."""
        section = self.postgres or self.delta or self.iceberg or self.sqlite
        return None if section is None else section.to_stored_table(folder)

    def to_record_format(self) -> RecordFormat:
        """Return the format of the records. Raises OdError for an unknown reader or an option that does not fit it."""
        may_have_other_periods = "{period" not in self.files
        form = find_format(self.reader)
        if not self.files:
            if form != TABLE:
                message = f"reader {self.reader!r} reads files, and the records are in a table"
                raise OdError("OD-READER-OPTIONS", message, next_step="leave out the reader")
            form = replace(form, container="stored", takes=())
        form = form.with_options(
            categories=tuple((column, tuple(values)) for column, values in self.categories.items()),
            nowhere=tuple(self.nowhere),
            outside_period=self.outside_period or ("drop" if may_have_other_periods else "refuse"),
            **self.model_dump(include={"one_row_a_trip", "delimiter", "encoding", "table", "timestamps"}),
        )
        form.refuse_options_of_text(Path(self.files))
        return form
