"""Store the entries of a ledger in one SQLite file. Each entry is stored whole or not at all, and is never changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from od_core.errors import STAYS_CHARGED, OdError
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
            raise _unusable(error) from None

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
            raise _unusable(error) from None

    @contextmanager
    def _readable(self) -> Iterator[sqlite3.Connection]:
        """Yield the shared connection as :meth:`_connected` does, and otherwise a new one that cannot write."""
        if self._kept is not None and _identity(self._path) == self._kept_file:
            yield self._kept
            return
        with closing(sqlite3.connect(_existing(self._path), uri=True, timeout=WAIT_SECONDS)) as connection:
            connection.row_factory, connection.isolation_level = sqlite3.Row, None
            connection.execute("PRAGMA query_only = ON")
            yield connection

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


def _connect(path: Path) -> sqlite3.Connection:
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


def _existing(path: Path) -> str:
    """Return the SQLite URI of a database, with the mode that opens the file only if it exists."""
    return f"{path.absolute().as_uri()}?mode=rw"


def _unusable(error: sqlite3.DatabaseError) -> OdError:
    """Return the OdError for an SQLite error, which means that the ledger cannot be used now or is damaged."""
    name = getattr(error, "sqlite_errorname", "")
    if name.partition("_")[2].startswith(_PASSING):
        return OdError(
            "OD-LEDGER-UNAVAILABLE",
            f"the ledger cannot be used: SQLite reports {name}",
            next_step="check the disk, close other programs that have the ledger open, then run the release again",
            spent=STAYS_CHARGED,
        )
    return broken()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path, or None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
