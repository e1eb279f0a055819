"""Store append-only entries in one SQLite file, each with the hash of the entry before it.

This module has no rules about budgets. It stores entries in order, each whole or absent, and detects damage and edits.
The number and hash of the newest entry are also stored in a second file, the *head*, beside the confidential data. The
head reveals that the ledger was lost or replaced by an older copy.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import CONFIDENTIAL_FOLDER_MODE, make_folder, write_durably
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.cap import Charge

_LOCK_SECONDS = 60.0

_PASSING = ("BUSY", "LOCKED", "READONLY", "CANTOPEN", "FULL", "IOERR", "PERM")
"""Beginnings of the names of SQLite errors (without ``SQLITE_``) that do not concern the content of the file.

Any other error means that the file is damaged.
"""

DOMAIN, CAP, RESERVED, DRAWING, MEASURED, PUBLISHED = "DOMAIN", "CAP", "RESERVED", "DRAWING", "MEASURED", "PUBLISHED"
"""Kinds of entries."""

_HEAD = re.compile(rb"[0-9]{12} [0-9a-f]{64}")

_AMOUNTS = ("rho", "epsilon", "delta")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    domain TEXT NOT NULL,
    period TEXT,
    release TEXT,
    level INTEGER,
    draw INTEGER,
    rho TEXT,
    epsilon TEXT,
    delta TEXT,
    content TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS entries_are_final BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never changed'); END;
CREATE TRIGGER IF NOT EXISTS entries_stay BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never removed'); END;
"""


class Entries:
    """The entries of the chain, read and added within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.added: str | None = None
        """Number and hash of the last entry that this transaction added, as in the head file; None if it added none."""

    def select(self, where: str, *values: str | int) -> list[dict[str, Any]]:
        """Return the entries that satisfy an SQL condition, oldest first: one dictionary by column name per entry.

        Args:
            where: the condition. It must come from our own code only.
            values: values of the placeholders in the condition.

        Returns:
            The entries. Column ``content`` is parsed from JSON.
        """
        return self._read(f"{where} ORDER BY number", values)

    def newest(self, *kinds: str, **columns: str | int) -> dict[str, Any] | None:
        """Return the newest entry that has one of the kinds and the given values in its columns, or None."""
        where = f"kind IN ({', '.join('?' * len(kinds))})" + "".join(f" AND {name} = ?" for name in columns)
        found = self._read(f"{where} ORDER BY number DESC LIMIT 1", (*kinds, *columns.values()))
        return found[0] if found else None

    def has(self, number: int, entry_hash: str) -> bool:
        """Return whether there is an entry with this number and this hash."""
        found = self._connection.execute("SELECT hash FROM entries WHERE number = ?", (number,)).fetchone()
        return found is not None and found["hash"] == entry_hash

    def _read(self, where: str, values: tuple[str | int, ...]) -> list[dict[str, Any]]:
        found = self._connection.execute(f"SELECT * FROM entries WHERE {where}", values)  # noqa: S608  # our own SQL
        return [{**dict(entry), "content": json.loads(entry["content"])} for entry in found]

    def append(
        self,
        kind: str,
        domain: str,
        key: ReleaseKey | None = None,
        *,
        level: int | None = None,
        draw: int | None = None,
        charge: Charge | None = None,
        content: dict[str, Any] | None = None,
    ) -> None:
        """Add an entry after the last one, with the present time and its hash, and set :attr:`added`."""
        last = self._connection.execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        entry = {
            "number": 1 if last is None else last["number"] + 1,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "kind": kind,
            "domain": domain,
            "period": None if key is None else key.period,
            "release": None if key is None else str(key),
            "level": level,
            "draw": draw,
            **{name: None if charge is None else str(getattr(charge, name)) for name in _AMOUNTS},
            "content": json.dumps(content or {}, sort_keys=True),
            "previous": "" if last is None else last["hash"],
        }
        entry["hash"] = _entry_hash(entry)
        names = ", ".join(entry)
        self._connection.execute(
            f"INSERT INTO entries ({names}) VALUES ({', '.join('?' * len(entry))})",  # noqa: S608  # column names only
            tuple(entry.values()),
        )
        self.added = f"{entry['number']:012d} {entry['hash']}"

    def hold_to(self, head: str) -> None:
        """Check that the entries contain the newest entry that was ever added.

        Args:
            head: number and hash of that entry, as the head file states them.

        Raises:
            OdError: the entries lack it, or an entry was edited.
        """
        number, stated = head.split(" ")
        if not self.has(int(number), stated):
            self.verify()  # raises the error for an edited entry, if there is one, instead of the error below
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                "the ledger is missing, or it lacks the newest entry that was ever made",
                next_step="restore the newest ledger; an older one does not record all that was spent",
                spent=STAYS_CHARGED,
            )

    def verify(self) -> int:
        """Verify the chain of hashes and return the number of entries. Raises OdError if the chain is broken."""
        number, previous = 0, ""
        for number, found in enumerate(self._connection.execute("SELECT * FROM entries ORDER BY number"), start=1):
            entry = dict(found)
            stated = entry.pop("hash")
            if entry["number"] != number or entry["previous"] != previous or _entry_hash(entry) != stated:
                raise broken()
            previous = stated
        return number


def _entry_hash(entry: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


class Chain:
    """A SQLite file of entries, and its head file, which states the number and hash of the newest entry."""

    def __init__(self, path: Path, head: Path) -> None:
        self.path = path
        self._head = head
        self._kept: sqlite3.Connection | None = None
        self._kept_file: tuple[int, int] | None = None

    @contextmanager
    def transaction(self) -> Iterator[Entries]:
        """Open a transaction on the file, and commit it when the context ends without an exception.

        No other process can write to the file at the same time. If an exception leaves the context, no entry is added.
        A missing file is created if nothing was ever charged. After the commit, the head is updated.

        Yields:
            The entries.

        Raises:
            OdError: the file cannot be used now, is damaged, or is older than its head. Or a release was charged, and
                the head is missing or damaged.
        """
        try:
            with self._connected() as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    entries = Entries(connection)
                    self._check_head(entries)
                    yield entries
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
                if entries.added is not None:
                    self._renew_head(entries.added)
        except sqlite3.DatabaseError as error:
            raise _unusable(error) from None

    @contextmanager
    def look(self) -> Iterator[Entries]:
        """Open the entries for reading only. No entry is added, and no file is created.

        Yields:
            The entries.

        Raises:
            OdError: there is no file, or :meth:`transaction` would refuse it.
        """
        try:
            with closing(sqlite3.connect(_existing(self.path), uri=True, timeout=_LOCK_SECONDS)) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                entries = Entries(connection)
                self._check_head(entries)
                yield entries
        except sqlite3.DatabaseError as error:
            raise _unusable(error) from None

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Use one connection for all transactions in this context. This saves time and keeps every commit durable."""
        with suppress(sqlite3.Error):  # the first transaction reports any fault of the file
            self._kept, self._kept_file = _connect(self.path), _identity(self.path)
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
        if self._kept is not None and _identity(self.path) == self._kept_file:
            yield self._kept
            return
        with closing(_connect(self.path)) as connection:
            yield connection

    def _check_head(self, entries: Entries) -> None:
        """Raise OdError if the entries are older than the head, or if the head is damaged or missing.

        The head may be missing if nothing was ever charged.
        """
        head = self._head.read_bytes() if self._head.exists() else None
        if head is None and entries.newest(RESERVED) is None:
            return  # nothing was charged yet, so nothing can be lost
        if head is None or not _HEAD.fullmatch(head):
            raise OdError(
                "OD-LEDGER-HEAD",
                f"confidential/{self._head.name}, which names the newest entry of the ledger, is"
                f" {'missing' if head is None else 'damaged'}",
                next_step="restore it from the newest backup of the confidential folder",
                spent=STAYS_CHARGED,
            )
        entries.hold_to(head.decode())

    def _renew_head(self, newest: str) -> None:
        """Write the number and hash of the newest entry to the head, unless another process has written newer ones.

        The head is overwritten in place. It is one short line in one sector of the disk, so a crash leaves either the
        old or the new head. The old head also names an entry of the chain. So it can miss that the newest entries were
        lost, but it never causes a false error.
        """
        if not self._head.exists():
            make_folder(self._head.parent, CONFIDENTIAL_FOLDER_MODE)
            write_durably(self._head, lambda file: file.write_text(newest, encoding="utf-8"))
            return
        with self._head.open("rb+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.read().decode() < newest:
                written, head = 0, newest.encode()
                while written < len(head):  # one call may write only a part
                    written += os.pwrite(file.fileno(), head[written:], written)
                os.fdatasync(file.fileno())


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _existing(path: Path) -> str:
    """Return the SQLite URI of a database, with the mode that opens the file only if it exists."""
    return f"{path.absolute().as_uri()}?mode=rw"


def _unusable(error: sqlite3.DatabaseError) -> OdError:
    """Return the OdError for an SQLite error: the file cannot be used now, or it is damaged."""
    if getattr(error, "sqlite_errorname", "").partition("_")[2].startswith(_PASSING):
        return OdError(
            "OD-LEDGER-UNAVAILABLE",
            f"the ledger cannot be used: {error}",
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


def broken() -> OdError:
    """Return the OdError for a ledger whose entries differ from those that were written."""
    return OdError(
        "OD-LEDGER-BROKEN",
        "the ledger is damaged or was edited",
        next_step="restore the ledger file; without it, nothing is drawn or published",
    )
