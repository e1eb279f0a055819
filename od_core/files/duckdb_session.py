"""Confidential: open DuckDB in little memory, for as long as one step reads records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

MEMORY_LIMIT = "1GB"
"""Memory that DuckDB uses before it spills. Counting 100 million records takes no longer in 1 GB than in 4 GB."""

THREADS = 2
"""Number of threads. Each thread of a scan and of a group-by holds its own buffers, so it bounds the memory too."""

_NO_WAY_OUT = "SET enable_external_access = false; SET lock_configuration = true"
"""Statements after which no query can reach further files or change these settings."""


@contextmanager
def scratch_database(folder: Path, *sources: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory database that spills into a confidential folder and leaves nothing there.

    It can reach only the sources and the files in its own :func:`spill_folder`, and no query can change that. So a
    query that contains names chosen by somebody else, or a view written by somebody else, cannot read or write any
    other place, including the rest of the confidential folder.

    The order of rows is preserved. With ``preserve_insertion_order = false``, which saves little here, an ordered
    result may arrive in batches that are out of order.

    Args:
        folder: the confidential folder.
        sources: files that may be read.
    """
    spill = spill_folder(folder)
    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(spill),
        "memory_limit": MEMORY_LIMIT,
        "threads": THREADS,
    }
    try:
        with duckdb.connect(config=config) as connection:
            spill.mkdir(mode=0o700, exist_ok=True)
            connection.execute(_closed(spill, sources))
            yield connection
    finally:
        shutil.rmtree(spill, ignore_errors=True)


@contextmanager
def memory_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database for tables that are handed to it.

    It neither spills nor reaches files, and no query can change that.
    """
    with duckdb.connect() as connection:
        connection.execute(f"SET temp_directory = ''; {_NO_WAY_OUT}")
        yield connection


def spill_folder(folder: Path) -> Path:
    """Return the only folder that a scratch database may write to. It is removed with its content after use."""
    return folder / "spill"


def _closed(spill: Path, sources: tuple[Path, ...]) -> str:
    """Return the statements that restrict a session. DuckDB accepts lists of paths only in a running session."""
    paths = ", ".join(quoted_text(name) for source in sources for name in (str(source), file_name(source)))
    return f"SET allowed_directories = [{quoted_text(str(spill))}]; SET allowed_paths = [{paths}]; {_NO_WAY_OUT}"


def file_name(path: Path) -> str:
    """Return the path for DuckDB, with wildcards escaped so that they stand for themselves."""
    return "".join(f"[{sign}]" if sign in "[*?" else sign for sign in str(path))


def parquet_rows(path: Path, *, numbered: bool = False) -> str:
    """Return a query's table expression for a Parquet file. Folder names such as ``origin=x`` do not become columns.

    Args:
        path: path of the file.
        numbered: add a column ``file_row_number``, which counts from 0.
    """
    numbers = ", file_row_number = true" if numbered else ""
    return f"read_parquet({quoted_text(file_name(path))}, hive_partitioning = false{numbers})"


def quoted_name(name: str) -> str:
    """Quote a column's name for a query."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(value: str) -> str:
    """Quote a text for a query."""
    return "'" + value.replace("'", "''") + "'"
