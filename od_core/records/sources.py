"""Refuse files that do not hold a table by themselves, or that hold one which is read already."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.files.durable import file_digest

_LOGS = {
    "Delta": ("_delta_log",),
    "Hudi": (".hoodie", *(f".hoodie_partition_metadata{ending}" for ending in ("", ".parquet", ".orc"))),
    "Iceberg": ("metadata/version-hint.text", "metadata/*.metadata.json*"),
    "Spark Structured Streaming": ("_spark_metadata",),
}
"""Patterns of the log in the folder of a table, or in one of its partitions, by the format of the table."""

_CONTAINER = re.compile(r"(\.(csv|tsv|txt|parquet))?(\.gz)?$", re.IGNORECASE)


def refuse_table_log(path: Path, *inner: Path) -> None:
    """Raise OdError if a file or folder is in a table whose log says which of its files and rows are valid.

    The path is taken as it is given, and as its links lead. ``inner`` are folders from which files are read, too.
    """
    ends = [Path(to(place)) for place in (path, *inner) for to in (os.path.abspath, os.path.realpath)]
    folders = {folder for end in ends for folder in (end, *end.parents)}
    refuse_logs(path.name, folders, lambda folder, logs: any(any(folder.glob(log)) for log in logs))


def refuse_logs(named: str, folders: Iterable[Any], finds: Callable[[Any, Sequence[str]], bool]) -> None:
    """Raise OdError if ``finds`` finds a file of one of some patterns, those of a table's log, in a folder."""
    for folder in folders:
        for table, logs in _LOGS.items():
            if finds(folder, logs):
                message = f"{named} is in a table of {table}, whose log is not read: some files or rows may be invalid"
                step = "let the asset, or an export, write plain Parquet files outside that table, and name these"
                raise OdError("OD-FILE-INCOMPLETE", message, next_step=step)


def refuse_repeated(files: Sequence[tuple[Path, str | None]], has_rows: Callable[[Path, str | None], bool]) -> None:
    """Raise OdError if two files of a period hold the same table, whose records would be counted twice.

    The files exist, each with the name of a table in it, since a file may have several. ``has_rows`` returns whether
    such a table has rows: without any, it may occur again.
    """
    sizes, seen = Counter(file.stat().st_size for file, _ in files), dict[tuple[object, ...], Path]()
    for file, table in files:
        state = file.stat()
        alike: dict[str, tuple[object, ...]] = {
            "are two names of one file": (state.st_dev, state.st_ino, table),
            "hold one table in two containers": (file.parent, _CONTAINER.sub("", file.name), table),
        }
        if sizes[state.st_size] > 1:  # no other file is read here
            alike["have the same content"] = (file_digest(file), table)
        for why, key in alike.items():
            other = seen.setdefault(key, file)
            if other != file and has_rows(other, table) and has_rows(file, table):
                message = f"{other.name} and {file.name} {why}, so records would be counted twice"
                step = "keep one of them; if their records differ, write them to one file"
                raise OdError("OD-FILE-REPEATED", message, next_step=step, confidential_detail=f"{other}, {file}")
