"""Confidential: DuckDB in little memory, for as long as one step reads records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

MEMORY_LIMIT = "1GB"
"""What DuckDB holds before it spills: 100 million records take no longer in 1 GB than in 4 (spec 7, "Counting")."""

THREADS = 2
"""Each thread of a scan and of a group-by holds buffers of its own, so they are bounded too."""

_NO_WAY_OUT = "SET enable_external_access = false; SET lock_configuration = true"
"""From here on no query reaches another file, or changes that."""


@contextmanager
def scratch_database(folder: Path, *sources: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that spills into a confidential folder, and leaves nothing there.

    It reaches no files but the sources and those in its own :func:`spill_folder`, and no query can change that: a query
    made of names that somebody else has chosen, or a view that somebody else has written, neither reads nor writes
    another place (spec 6, "Leaks to close"), the rest of the confidential folder included.

    The order of rows is kept: without it (``preserve_insertion_order = false``, which saves little here) an ordered
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
    """A database of tables that are handed to it: no spilling, no files, and no changing that."""
    with duckdb.connect() as connection:
        connection.execute(f"SET temp_directory = ''; {_NO_WAY_OUT}")
        yield connection


def spill_folder(folder: Path) -> Path:
    """Where the database of a confidential folder spills to, and may write; removed with all that is left in it."""
    return folder / "spill"


def _closed(spill: Path, sources: tuple[Path, ...]) -> str:
    """Statements, since DuckDB takes a list of places only once it runs."""
    paths = ", ".join(quoted_text(name) for source in sources for name in (str(source), file_name(source)))
    return f"SET allowed_directories = [{quoted_text(str(spill))}]; SET allowed_paths = [{paths}]; {_NO_WAY_OUT}"


def file_name(path: Path) -> str:
    """The path as DuckDB reads it, where signs that stand for many files stand for themselves."""
    return "".join(f"[{sign}]" if sign in "[*?" else sign for sign in str(path))


def parquet_rows(path: Path, *, numbered: bool = False) -> str:
    """The rows of a Parquet file, in a query; its folders' names, such as ``origin=x``, are no columns of it.

    Args:
        path: of the file.
        numbered: with a column ``file_row_number``, from 0.
    """
    numbers = ", file_row_number = true" if numbered else ""
    return f"read_parquet({quoted_text(file_name(path))}, hive_partitioning = false{numbers})"


def quoted_name(name: str) -> str:
    """A column's name in a query."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(value: str) -> str:
    """A text in a query."""
    return "'" + value.replace("'", "''") + "'"
