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


@contextmanager
def scratch_database(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that spills into a confidential folder, and leaves nothing there.

    The order of rows is kept: without it (``preserve_insertion_order = false``, which saves little here) an ordered
    result may arrive in batches that are out of order.
    """
    spill = folder / "spill"
    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(spill),
        "memory_limit": MEMORY_LIMIT,
        "threads": THREADS,
    }
    try:
        with duckdb.connect(config=config) as connection:
            yield connection
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def file_name(path: Path) -> str:
    """The path as DuckDB reads it, where signs that stand for many files stand for themselves."""
    return "".join(f"[{sign}]" if sign in "[*?" else sign for sign in str(path))


def quoted_name(name: str) -> str:
    """A column's name in a query."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(value: str) -> str:
    """A text in a query."""
    return "'" + value.replace("'", "''") + "'"
