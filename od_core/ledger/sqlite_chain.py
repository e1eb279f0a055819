"""Store the entries of a ledger in one SQLite file. Each entry is stored whole or not at all, and is never changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import PUBLIC_FILE_MODE, may_write, rights
from od_core.ledger.chain import WAIT_SECONDS, Chain
from od_core.ledger.entries import COLUMNS, INDEXES, Entries, broken

_PASSING = ("BUSY", "LOCKED", "READONLY", "CANTOPEN", "FULL", "IOERR", "PERM")
"""Beginnings of the names of SQLite errors (without ``SQLITE_``) that do not concern the content of the file.

Any other error means that the file is damaged.
"""

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
{COLUMNS}
) STRICT;
CREATE TRIGGER IF NOT EXISTS entries_are_final BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never changed'); END;
CREATE TRIGGER IF NOT EXISTS entries_stay BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never removed'); END;
{INDEXES}"""


class SqliteChain(Chain):
    """The entries of a ledger in a SQLite file, which is created if it is missing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)
        self._path = path
        self._kept: sqlite3.Connection | None = None
        self._kept_file: tuple[int, int] | None = None

    def exists(self) -> bool:
        """Return whether there is a file."""
        return self._path.exists()

    @contextmanager
    def _begun(self) -> Iterator[Entries]:
        try:
            with self._connected() as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield Entries(connection, partial(_indexes_hold, connection))
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from None

    @contextmanager
    def _tried(self) -> Iterator[Entries]:
        """Copy the entries into memory for a trial, which so needs no right to write, and keeps no release waiting.

        A ledger that does not exist yet has no entries.
        """
        try:
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
                copy.row_factory = sqlite3.Row
                if self._path.exists():
                    with self._readable() as ledger:
                        ledger.backup(copy)
                else:
                    copy.executescript(_SCHEMA)
                yield Entries(copy)
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from None

    @contextmanager
    def _snapshot(self) -> Iterator[Entries]:
        """Open the entries as :meth:`Chain._snapshot` does. A missing file is not created."""
        try:
            with self._readable() as connection:
                connection.execute("BEGIN")
                try:
                    yield Entries(connection, partial(_indexes_hold, connection))
                finally:
                    connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from None

    @contextmanager
    def _readable(self) -> Iterator[sqlite3.Connection]:
        """Yield the shared connection as :meth:`_connected` does, and otherwise a new one that cannot write.

        To read a file in WAL mode, SQLite makes files beside it. A process that may not do so uses those of a process
        that has the ledger open, or reads a ledger that nobody has open as a file that does not change.
        """
        if self._kept is not None and _identity(self._path) == self._kept_file:
            yield self._kept
            return
        mode, state = "rw", None
        if not (may_write(self._path) and may_write(self._path.parent)):
            mode = "ro"
            if self._path.exists() and not self._log.exists():
                mode, state = "ro&immutable=1", self._path.stat()
        place = f"{self._path.absolute().as_uri()}?mode={mode}"  # no mode creates the file
        try:
            with closing(sqlite3.connect(place, uri=True, timeout=WAIT_SECONDS)) as connection:
                connection.row_factory, connection.isolation_level = sqlite3.Row, None
                connection.execute("PRAGMA query_only = ON")
                yield connection
        finally:
            if state is not None and _version(self._path.stat()) != _version(state):
                raise OdError(
                    "OD-LEDGER-UNAVAILABLE",
                    "the ledger was written to while it was read without the right to write",
                    next_step="run it again",
                )

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep one connection open as :meth:`Chain.kept_open` does, unless the file is replaced by another one."""
        with suppress(sqlite3.Error):  # the first transaction reports any fault of the file
            self._kept, self._kept_file = _connect(self._path), _identity(self._path)
        try:
            yield
        finally:
            if self._kept is not None:
                self._kept.close()
            self._kept = None

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection to the file that is now at the path.

        It is the shared connection of :meth:`kept_open` if that was opened to the same file, and a new one otherwise.
        """
        if self._kept is not None and _identity(self._path) == self._kept_file:
            yield self._kept
            return
        with closing(_connect(self._path)) as connection:
            yield connection

    @property
    def _log(self) -> Path:
        """File of the entries that are not in the file yet. SQLite removes it when the last process closes it."""
        return self._path.with_name(f"{self._path.name}-wal")

    def _unusable(self, error: sqlite3.DatabaseError) -> OdError:
        """Return the OdError for an SQLite error, which means that the ledger cannot be used now or is damaged."""
        name = getattr(error, "sqlite_errorname", "")
        if not name.partition("_")[2].startswith(_PASSING):
            return broken()
        message, step = f"the ledger cannot be used: SQLite reports {name}", "check the disk, close other programs that"
        step = f"{step} have the ledger open, then run the release again"
        closed = [place for place in (self._path, self._path.parent) if not may_write(place)]
        if closed:
            message = f"{message}; {rights(closed[0])}"
            step = "run it as the owner"
            if self._log.exists():
                step = f"{step}, or read a copy of {self._path.name} and {self._log.name} in a folder of your own"
        return OdError("OD-LEDGER-UNAVAILABLE", message, next_step=step, spent=STAYS_CHARGED)


def _connect(path: Path) -> sqlite3.Connection:
    """Open the ledger to write, and create it if it is missing, with the mode of public files, whatever the umask.

    SQLite gives the mode of the file to those that it makes beside it.
    """
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, PUBLIC_FILE_MODE))
        path.chmod(PUBLIC_FILE_MODE)
    connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _indexes_hold(connection: sqlite3.Connection) -> bool:
    return [row[0] for row in connection.execute("PRAGMA integrity_check(1)")] == ["ok"]


def _version(state: os.stat_result) -> tuple[int, ...]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path, or None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
