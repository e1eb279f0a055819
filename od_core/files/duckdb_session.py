"""Confidential: open DuckDB sessions with limited memory and limited access to files."""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from od_core.errors import OdError
from od_core.files.durable import LOST_STORAGE_ERRNOS

if TYPE_CHECKING:
    import duckdb

MEMORY_LIMIT = "1GB"
"""Memory that DuckDB may use before it writes to disk. With 4 GB, counting 100 million records is no faster."""

THREADS = 2
"""Number of threads. It also limits the memory, because each thread of a scan or a group-by has its own buffers."""

_CLOSE_ACCESS = "SET enable_external_access = false; SET lock_configuration = true"
"""Statements after which no query can access further files or change these settings."""


@contextmanager
def open_scratch_database(folder: Path, *sources: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory database that may write temporary files, while this context lasts.

    The database can access only the files ``sources`` and the spill folder (:func:`locate_spill_folder`) in ``folder``,
    and no query can change this. So a query with names that another person chose, or a view that another person wrote,
    cannot read or write any other file. The spill folder is removed at the end of the context.

    The order of rows is preserved. With ``preserve_insertion_order = false``, which would save little memory here, an
    ordered result could arrive in batches that are out of order. The statistics of a Parquet file are not used: its
    least and greatest values leave out NaN, and DuckDB would conclude that no value is NaN.
    """
    import duckdb  # takes a third of a second, and a release in memory rarely needs it

    spill = locate_spill_folder(folder)
    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(spill),
        "memory_limit": MEMORY_LIMIT,
        "threads": THREADS,
    }
    try:
        with duckdb.connect(config=config) as connection:
            spill.mkdir(mode=0o700, exist_ok=True)
            folders = f"SET allowed_directories = [{quote_literal(str(spill))}]"
            paths = f"SET allowed_paths = [{_make_paths_sql(sources)}]"
            connection.execute(
                f"SET disabled_optimizers = 'statistics_propagation'; {folders}; {paths}; {_CLOSE_ACCESS}"
            )
            yield connection
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def connect_to_memory_database() -> duckdb.DuckDBPyConnection:
    """Connect to an in-memory database that can neither read nor write files. Use it in a ``with`` statement.

    All connections of a process share one database, because opening a database takes longer than most queries. The
    relations that a connection registers, and its temporary tables and views, belong to it alone and end with it.
    """
    return _open_memory_database(os.getpid()).cursor()


@cache
def _open_memory_database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the in-memory database of a process: a forked one opens its own, since a fork inherits no threads."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET temp_directory = ''; {_CLOSE_ACCESS}")
    atexit.register(_open_memory_database.cache_clear)  # kept to the end, it makes DuckDB report leaks on the screen
    return connection


def is_query(sql: str) -> bool:
    """Return whether a text is a single SELECT statement.

    >>> is_query("SELECT 1"), is_query("SELECT 1; SELECT 2"), is_query("DROP TABLE flows"), is_query("SELEC")
    (True, False, False, False)
    """
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error:
        return False
    return len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT


def open_folder_database(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database that can read the files of a public folder, and no other. Use it as a context."""
    import duckdb

    connection = duckdb.connect(config={"temp_directory": "", "memory_limit": MEMORY_LIMIT, "threads": THREADS})
    connection.execute(f"SET allowed_paths = [{_make_paths_sql(folder.rglob('*'))}]; {_CLOSE_ACCESS}")
    return connection


def locate_spill_folder(folder: Path) -> Path:
    """Return the path of the folder for DuckDB's temporary files, the only one that a scratch database may write to."""
    return folder / "spill"


def _make_paths_sql(sources: Iterable[Path]) -> str:
    """Return the SQL of a list of allowed paths: each source as a literal as it is, and with escaped wildcards."""
    names: list[str] = []
    for source in sources:
        names += [str(source), escape_path_wildcards(source)]
    return ", ".join(map(quote_literal, names))


def escape_path_wildcards(path: Path) -> str:
    """Return a path as DuckDB reads it, with wildcards escaped so that they match only themselves."""
    return re.sub(r"[\[*?]", r"[\g<0>]", str(path))


def make_parquet_sql(path: Path, *, numbered: bool = False) -> str:
    """Return the SQL table expression for a Parquet file. Folder names such as ``origin=x`` do not become columns.

    ``numbered`` adds a column ``file_row_number``, the position of each row from 0.
    """
    row_number = ", file_row_number = true" if numbered else ""
    return f"read_parquet({quote_literal(escape_path_wildcards(path))}, hive_partitioning = false{row_number})"


_FULL_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers with which the system reports that a disk, a quota or a file is full."""

_STEP_BY_ERRNO = {
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit of open files (ulimit -n), then run again"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "check the owner and the rights of the file, of the confidential folder and of the folder of temporary files",
    ),
    **dict.fromkeys(LOST_STORAGE_ERRNOS, "check the disk or the connection to the file server, then run again"),
    errno.ENOENT: "check that the file, the confidential folder and that of temporary files are in their places",
}
"""Next step for each error number of the system that is no fault of a file, apart from a full disk."""


def make_machine_error(error: Exception, what: str) -> OdError | None:
    """Return the OdError for a fault of the machine, such as a full disk; None if the error is not one of the machine.

    ``what`` begins the message: what could not be done, such as "trips.csv cannot be read".

    Arrow passes on an exception of DuckDB as an OSError without a number, whose text begins with the kind of the fault.
    For the kinds that are recognized here, the text quotes no record.
    """
    text, number = str(error), _find_error_number(error)
    if isinstance(error, MemoryError) or text.startswith("Out of Memory Error"):
        code, fault = "OD-SYSTEM-MEMORY", f"the memory does not suffice, of which DuckDB may use {MEMORY_LIMIT}"
        step = "free memory, then run again; a Parquet file needs less memory if its row groups are smaller"
    elif number in _FULL_DISK_ERRNOS:
        code = "OD-DISK-WRITE"
        fault = "a disk, such as that of the confidential folder or of temporary files, is full or cannot be written"
        step = "free space on it, up to twice the unpacked size of the file of records, then run again"
    elif number in _STEP_BY_ERRNO:
        code, fault, step = "OD-SYSTEM", f"the system reports {os.strerror(number)!r}", _STEP_BY_ERRNO[number]
    else:
        return None
    message = f"{what}: {fault}; nothing was lost, and the records are unchanged"
    return OdError(code, message, next_step=step, confidential_detail=text)


def _find_error_number(error: Exception) -> int | None:
    """Return the system's error number (errno) of an error, which DuckDB states in words; None if it has none."""
    number = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if number is not None or not text.startswith("IO Error"):
        return number
    for known_number in (*_FULL_DISK_ERRNOS, *_STEP_BY_ERRNO):
        if os.strerror(known_number) in text:
            return known_number
    return errno.ENOSPC if "Could not write" in text else None


class SqlMacros:
    """The macros of a file of Jinja templates of SQL. ``macros["name"]`` is a function that returns SQL.

    The macros are compiled when the first one is used, because most processes that import this package count nothing.

    Args:
        path: file of templates.
        known: values and functions that the templates can use, by name.
    """

    def __init__(self, path: Path, **known: object) -> None:
        self._path, self._known = path, known

    def __getitem__(self, name: str) -> Callable[..., str]:
        return self._compiled[name]

    @cached_property
    def _compiled(self) -> dict[str, Callable[..., str]]:
        """The functions by name."""
        from jinja2 import Environment, StrictUndefined

        environment = Environment(undefined=StrictUndefined)  # noqa: S701  # SQL
        return vars(environment.from_string(self._path.read_text(encoding="utf-8"), self._known).module)


def quote_identifier(name: str) -> str:
    """Return the name of a column, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(value: str) -> str:
    """Return a text as a quoted SQL literal."""
    return "'" + value.replace("'", "''") + "'"
