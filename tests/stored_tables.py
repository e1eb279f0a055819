"""Tables of PostgreSQL, Delta Lake and Iceberg with given rows, which the stores' own libraries write."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from od_core.records.delta_table import DeltaTable
from od_core.records.iceberg_table import IcebergTable
from od_core.records.postgres_table import PostgresTable
from od_core.records.sqlite_table import SqliteTable
from od_core.records.stored_table import StoredTable
from tests.postgres import USER, Server

POSTGRES_TYPES = {"string": "text", "int64": "bigint", "date32[day]": "date", "double": "float8"}


class Stores:
    """Writes tables of a test; ``declared`` are their keys in a declaration, by the name of the store."""

    def __init__(self, folder: Path, find_server: Callable[[], Server]) -> None:
        self.folder, self._find_server = folder, find_server
        self.properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        (folder / "lake").mkdir()

    @property
    def address(self) -> str:
        return self._find_server().address("postgres", USER)

    @property
    def catalog(self) -> Catalog:
        catalog = load_catalog("tests", **self.properties)
        catalog.create_namespace_if_not_exists("mobility")
        return catalog

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run SQL in PostgreSQL, and return the rows of the last statement; none if it has none."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def find_iceberg_table(self, name: str = "mobility.trips", snapshot: int | None = None) -> IcebergTable:
        return IcebergTable("tests", name, snapshot, self.properties)

    def write(self, store: str, rows: pa.Table) -> tuple[StoredTable, dict[str, Any]]:
        """Write a table of the rows, and return it with the section that declares it."""
        if store == "delta":
            deltalake.write_deltalake(str(self.folder / "trips"), rows, mode="overwrite")
            return DeltaTable(str(self.folder / "trips")), {"delta": {"path": str(self.folder / "trips")}}
        if store == "iceberg":
            self.catalog.create_table("mobility.trips", rows.schema).append(rows)
            stated = {"catalog": "tests", "table": "mobility.trips", "properties": self.properties}
            return self.find_iceberg_table(), {"iceberg": stated}
        if store == "sqlite":
            with closing(sqlite3.connect(self.folder / "trips.sqlite")) as connection, connection:
                connection.execute("DROP TABLE IF EXISTS trips")
                connection.execute(f"CREATE TABLE trips ({', '.join(rows.column_names)})")
                texts = pa.table([column.cast(pa.string()) for column in rows.columns], names=rows.column_names)
                marks = ", ".join("?" * rows.num_columns)
                connection.executemany(
                    f"INSERT INTO trips VALUES ({marks})", zip(*texts.to_pydict().values(), strict=True)
                )
            stated = {"path": str(self.folder / "trips.sqlite"), "table": "trips"}
            return SqliteTable(**stated), {"sqlite": stated}
        columns = ", ".join(f'"{field.name}" {POSTGRES_TYPES[str(field.type)]}' for field in rows.schema)
        self.execute("DROP SCHEMA IF EXISTS mobility CASCADE", "CREATE SCHEMA mobility")
        with psycopg.connect(self.address, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE mobility.trips ({columns})".encode())
            with cursor.copy("COPY mobility.trips FROM STDIN") as copy:
                for row in zip(*rows.to_pydict().values(), strict=True):
                    copy.write_row(row)
        return PostgresTable(self.address, "mobility.trips"), {
            "postgres": {"address": "{{ env.OD_TRIPS }}", "table": "mobility.trips"}
        }
