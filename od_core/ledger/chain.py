"""Keep the entries of a ledger in a database, such as a file of SQLite, and the newest one in the head.

The entries are an append-only list, in which each entry has the hash of the entry before it. This module has no rules
about budgets. A chain opens the entries, locks them, and adds to them in transactions that follow each other.
:mod:`od_core.ledger.postgres_chain` keeps the entries in PostgreSQL.

The *head* is a file of its own in the confidential folder, with the number and hash of the newest entry. If the ledger
is lost or replaced by an older copy, it lacks the entry that the head names.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import get_ident
from typing import Any, ClassVar, NamedTuple, Protocol, TypedDict

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import (
    CONFIDENTIAL_FOLDER_MODE,
    PUBLIC_FILE_MODE,
    can_write,
    choose_writing_advice,
    compute_facts_digest,
    describe_rights,
    make_folder,
    read_file_state,
    write_durably,
)
from od_core.ledger.confidential import LOCK_SECONDS, lock_folder
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.budget import Charge

DOMAIN, CAP, RESERVED, DRAWING, MEASURED, PUBLISHED = "DOMAIN", "CAP", "RESERVED", "DRAWING", "MEASURED", "PUBLISHED"
WITHDRAWN, ENVIRONMENT = "WITHDRAWN", "ENVIRONMENT"
"""Kinds of entries: the declaration of a domain, and its cap; the three states of a level of a release; the publication
and the withdrawal of a release; and the environment that charges the ledger."""

KINDS = frozenset({DOMAIN, CAP, RESERVED, DRAWING, MEASURED, PUBLISHED, WITHDRAWN, ENVIRONMENT})
"""All kinds. A later version that stores other facts must add a kind, so that this version refuses its ledgers."""


BUNDLE_FORMAT = 10
"""Format of the bundles of this version (:mod:`od_core.publication.bundle`), which each reservation states."""


class EntryName(NamedTuple):
    """The number and hash of a ledger entry. Together they identify the entry among the entries of all ledgers.

    The numbers begin with 1. The hash is a SHA-256, which depends on all entries before it.
    """

    number: int
    hash: str


NO_ENTRY = EntryName(0, "")
"""Name of the last entry of a ledger without entries."""


_AMOUNTS = ("rho", "epsilon", "delta")


class Entry(TypedDict):
    """An entry of a ledger, by column. Entries that are not of a release, level or charge have None in its columns."""

    number: int
    at: str
    kind: str
    domain: str
    period: str | Any
    release: str | Any
    level: int | Any
    draw: int | Any
    rho: str | None
    epsilon: str | None
    delta: str | None
    content: Any  # the facts that its kind has
    previous: str
    hash: str


class Session(Protocol):
    """A connection to a database, of SQLite or of PostgreSQL, whose rows are mappings by column name."""

    def execute(self, statement: Any, values: tuple[object, ...] = ..., /) -> Iterable[Any]:
        """Execute a statement with its values, and return the rows."""

    def close(self) -> None:
        """Close the connection."""


class Entries:
    """The entries of a ledger, read and added within one transaction.

    Args:
        connection: connection to the database, whose rows are mappings by column name.
        indexes_hold: returns whether the indexes agree with the entries; True if the database ensures this.
        placeholder: how a value is written in SQL for this connection. In the SQL here, it is a question mark.
    """

    def __init__(
        self, connection: Session, indexes_hold: Callable[[], bool] = lambda: True, placeholder: str = "?"
    ) -> None:
        self._connection = connection
        self._indexes_hold = indexes_hold
        self._placeholder = placeholder
        self.added: EntryName | None = None
        """Last entry that this transaction added; None if it added none."""

    def _execute(self, statement: str, *values: object) -> Iterable[Mapping[str, Any]]:
        """Execute SQL, in which a question mark stands for each value, and return the rows."""
        return self._connection.execute(statement.replace("?", self._placeholder), values)

    def select(self, where: str, *values: str | int) -> list[Entry]:
        """Return the entries that satisfy an SQL condition of our own code, oldest first, as dictionaries by column.

        ``values`` are those of the placeholders in the condition. Column ``content`` is parsed from JSON.
        """
        return self._read(f"{where} ORDER BY number", *values)

    def find_newest(self, *kinds: str, **columns: str | int) -> Entry | None:
        """Return the newest entry of one of the kinds with the given values in its columns; None if there is none."""
        where = f"kind IN ({', '.join('?' * len(kinds))})" + "".join(f" AND {name} = ?" for name in columns)
        newest = f"SELECT max(number) FROM entries WHERE {where}"  # noqa: S608  # our own SQL; found in an index alone
        rows = self._read(f"number = ({newest})", *kinds, *columns.values())
        return rows[0] if rows else None

    def has(self, name: EntryName) -> bool:
        """Return whether there is an entry with this number and this hash."""
        rows = self._execute("SELECT hash FROM entries WHERE number = ?", name.number)
        return any(entry["hash"] == name.hash for entry in rows)

    def group_by(self, columns: str, where: str, *values: str | int) -> list[dict[str, Any]]:
        """Return each combination of values of some columns in the entries that satisfy a condition.

        ``columns`` are names separated by commas, and the condition and its values are as for :meth:`select`. The
        combinations are dictionaries by column, in the order of their oldest entries. ``count`` is the number of
        entries of each. Column ``content`` is not parsed.
        """
        grouped = f"WHERE {where} GROUP BY {columns} ORDER BY min(number)"
        rows = self._execute(f"SELECT {columns}, count(*) AS count FROM entries {grouped}", *values)  # noqa: S608
        return [dict(group) for group in rows]

    def _read(self, where: str, *values: str | int) -> list[Entry]:
        """Return the entries that satisfy a condition, which may end with ``ORDER BY``, with their content parsed."""
        rows = self._execute(f"SELECT * FROM entries WHERE {where}", *values)  # noqa: S608  # our own SQL
        entries: list[Any] = [{**dict(entry), "content": json.loads(entry["content"])} for entry in rows]
        return entries

    def append(
        self,
        kind: str,
        domain: str,
        key: ReleaseKey | None = None,
        *,
        level: int | None = None,
        draw: int | None = None,
        charge: Charge | None = None,
        content: Mapping[str, object] | None = None,
    ) -> None:
        """Add an entry after the last one, with the present time and its hash, and set :attr:`added`.

        Args:
            kind, domain: kind of the entry, and name of the data set.
            key: release of the entry; None if it is not of a release.
            level, draw, charge: level, number of the draw, and charge; None if the kind has none.
            content: JSON-ready facts that the kind has.
        """
        last = NO_ENTRY
        for row in self._execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1"):
            last = EntryName(row["number"], row["hash"])
        entry = {
            "number": last.number + 1,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "kind": kind,
            "domain": domain,
            "period": None if key is None else key.period,
            "release": None if key is None else str(key),
            "level": level,
            "draw": draw,
            **{name: None if charge is None else str(getattr(charge, name)) for name in _AMOUNTS},
            "content": json.dumps(content or {}, sort_keys=True),
            "previous": last.hash,
        }
        self._add({**entry, "hash": compute_facts_digest(entry)})

    def copy(self, source: Entries) -> int:
        """Add all entries of another ledger, and return their number. Raises OdError if this one has entries."""
        if self.verify() != NO_ENTRY:
            step = "name a ledger without entries; two ledgers cannot be merged"
            raise OdError("OD-LEDGER-STATE", "the ledger to copy to has entries already", next_step=step)
        for entry in source.iterate_rows():
            self._add(entry)
        return self.verify().number

    def iterate_rows(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Return the rows with a number above ``after``, oldest first; column ``content`` is not parsed."""
        if after:
            rows = self._execute("SELECT * FROM entries WHERE number > ? ORDER BY number", after)
        else:
            rows = self._execute("SELECT * FROM entries ORDER BY number")
        return map(dict, rows)

    def _add(self, entry: Mapping[str, Any]) -> None:
        """Add an entry whose columns are all given, also its number and hash, and set :attr:`added`."""
        values = ", ".join("?" * len(entry))
        self._execute(f"INSERT INTO entries ({', '.join(entry)}) VALUES ({values})", *entry.values())  # noqa: S608  # column names only
        self.added = EntryName(entry["number"], entry["hash"])

    def hold_to(self, newest: EntryName) -> None:
        """Raise OdError unless the entries contain ``newest``, the last entry that is known to have been added.

        If the entries lack it because one was edited, the error says so.
        """
        if not self.has(newest):
            self.verify()  # raises the error for an edited entry, if there is one, instead of the error below
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                "the ledger is missing, or it lacks the newest entry that was ever made",
                next_step="restore the newest ledger, or set OD_LEDGER if it is in PostgreSQL; an older one does not"
                " record all that was spent",
                spent=STAYS_CHARGED,
            )

    def verify(self, since: EntryName = NO_ENTRY) -> EntryName:
        """Verify the chain of hashes, and return the name of the last entry.

        ``since`` is an entry up to which the chain is verified already. If the ledger has no such entry, the whole
        chain is verified, and so are the indexes: a damaged index would hide charges. Raises OdError if the chain is
        broken, or a later version of this package added a kind of its own.
        """
        last = since if since == NO_ENTRY or self.has(since) else NO_ENTRY
        if last == NO_ENTRY and not self._indexes_hold():
            raise make_damage_error()
        kinds: set[str] = set()
        for entry in self.iterate_rows(last.number):
            stated_hash = entry.pop("hash")
            follows_last = entry["number"] == last.number + 1 and entry["previous"] == last.hash
            if not follows_last or compute_facts_digest(entry) != stated_hash:
                raise make_damage_error()
            last = EntryName(entry["number"], stated_hash)
            kinds.add(entry["kind"])
        unknown_kinds = sorted(kinds - KINDS)
        if unknown_kinds:
            raise make_newer_version_error(", ".join(unknown_kinds))
        return last


def make_newer_version_error(what: str) -> OdError:
    """Return the OdError for a ledger with entries of a later version of this package; ``what`` says which."""
    message = f"the ledger has entries of a later version of od-release: {what}"
    step = "install the newest version that has released here; an older one may not count all charges"
    return OdError("OD-LEDGER-NEWER", message, next_step=step)


def make_damage_error() -> OdError:
    """Return the OdError for a ledger whose entries differ from those that were written."""
    step = "restore the newest ledger; without it, nothing is drawn or published"
    return OdError("OD-LEDGER-BROKEN", "the ledger is damaged or was edited", next_step=step)


def make_unavailable_error(message: str, next_step: str) -> OdError:
    """Return the OdError for a ledger that cannot be used now."""
    return OdError("OD-LEDGER-UNAVAILABLE", message, next_step=next_step, spent=STAYS_CHARGED)


_HEAD_PATTERN = re.compile(rb"[0-9]{12} [0-9a-f]{64}")


@cache
def read_statements(name: str) -> str:
    """Return the SQL statements of the file ``name``. They belong to the format of a ledger, and never change."""
    return Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8")


WAIT_SECONDS = 60.0
"""Longest time that a transaction waits for another one."""


class Chain(ABC):
    """The entries of a ledger in a database, and the head file, which states the number and hash of the newest entry.

    Args:
        folder: folder of the lock of releases. The head file is in the folder ``confidential`` below it.
    """

    _begin: ClassVar[str]
    """SQL that begins a transaction in which entries may be added."""

    _begin_to_read: ClassVar[str]
    """SQL that begins a transaction that only reads."""

    _error: type[Exception]
    """Class of the errors of the database."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._head = folder / "confidential" / "ledger.head"
        self._verified = NO_ENTRY
        """Entry up to which this object has verified the chain."""
        self._shared: Any = None
        """Connection of :meth:`keep_open`, used only while :meth:`_read_circumstances` returns the same as at first."""
        self._shared_in: object = None

    @contextmanager
    def _open_entries(self, connected: AbstractContextManager[Session], begin: str, end: str) -> Iterator[Entries]:
        """Open the entries in a transaction, while this context lasts. An exception in it rolls the transaction back.

        ``connected`` is a context with the connection. The transaction begins with ``begin`` and ends with ``end``.
        """
        with self._convert_database_errors(), connected as connection:
            connection.execute(begin)
            try:
                yield self._make_entries(connection)
                connection.execute(end)
            except BaseException:
                with suppress(self._error):  # the database may have ended the transaction, and so rolled it back
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _convert_database_errors(self) -> Iterator[None]:
        """Convert an error of the database that is raised in this context to an OdError."""
        try:
            yield
        except self._error as error:
            raise self._make_database_error(error) from None

    @abstractmethod
    def _make_database_error(self, error: Any) -> OdError:
        """Return the OdError for an error of the database's driver: the ledger cannot be used now, or is damaged."""

    @abstractmethod
    def _make_entries(self, connection: Any) -> Entries:
        """Return the entries that a connection reads and adds, in the SQL of this database."""

    @abstractmethod
    def _connect(self) -> Session:
        """Open a new connection to write."""

    @abstractmethod
    def _read_circumstances(self) -> object:
        """Return a value that stays equal as long as the connection of :meth:`keep_open` can be used here.

        It has, for example, the number of the thread. If the value differs from the one when the connection was opened,
        each transaction opens a connection of its own.
        """

    def _find_shared_connection(self) -> Any:
        """Return the connection of :meth:`keep_open` if it can still be used here, otherwise None."""
        return self._shared if self._shared is not None and self._shared_in == self._read_circumstances() else None

    @contextmanager
    def keep_open(self) -> Iterator[None]:
        """Use one connection for all transactions in this context. This saves time and keeps every commit durable."""
        with suppress(OdError, self._error):  # the first transaction reports any fault
            self._shared = self._connect()
            self._shared_in = self._read_circumstances()
        try:
            yield
        finally:
            if self._shared is not None:
                self._shared.close()
            self._shared = None

    @contextmanager
    def _use_connection(self) -> Iterator[Session]:
        """Yield the connection of :meth:`keep_open`, or a new one, which is closed when the context ends."""
        shared = self._find_shared_connection()
        if shared is not None:
            yield shared
            return
        with closing(self._connect()) as connection:
            yield connection

    def _connect_read_only(self) -> AbstractContextManager[Session]:
        """Return a context with a connection for reading. It creates no ledger."""
        return self._use_connection()

    def _copy_into(self, memory: sqlite3.Connection) -> None:
        """Copy all entries into an empty database in memory."""
        memory.executescript(read_statements("sqlite_schema"))
        with self.open_read_only() as entries:
            Entries(memory).copy(entries)

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the ledger has been created."""

    @contextmanager
    def open_transaction(self, *, whole: bool = False) -> Iterator[Entries]:
        """Open a transaction, and commit it when the context ends without an exception. Then update the head.

        The first transaction of this object verifies the whole chain. A later one verifies the entries that were added
        since the last verification or, if ``whole``, the whole chain again. So nothing is charged or drawn after
        another process has edited an earlier entry. Raises OdError if the ledger cannot be used now, is damaged, or
        lacks the entry that the head names; or a release was charged, and the head is missing or damaged.
        """
        with self._open_entries(self._use_connection(), self._begin, "COMMIT") as entries:
            head = self._check_head(entries, self._read_head())
            self._verified = entries.verify(NO_ENTRY if whole else self._verified)
            if head == NO_ENTRY and self._verified != NO_ENTRY:  # a process was killed between an entry and the head
                self._renew_head(self._verified)
            yield entries
        if entries.added is not None:
            self._renew_head(entries.added)

    @contextmanager
    def open_trial(self) -> Iterator[Entries]:
        """Open a copy of the entries in memory, in which entries are tried and then forgotten.

        No lock is held while the copy is open, so no release waits for it. Because nothing is charged here, the chain
        is verified as :meth:`open_read_only` does, with the same errors.
        """
        head = self._read_head()  # before the copy, which lacks what another process adds while it is made
        with closing(_open_sqlite(":memory:")) as memory, self._convert_database_errors():
            self._copy_into(memory)
            entries = Entries(memory)
            entries.verify(self._check_head(entries, head))
            yield entries

    @contextmanager
    def open_read_only(self) -> Iterator[Entries]:
        """Open the entries for reading only. No entry is added, and no ledger is created.

        The chain is verified from the entry that the head names, which was added after the entries before it had been
        verified. No lock is taken. Raises OdError if there is no ledger, it lacks the entry that the head names, or an
        entry after that one was edited.
        """
        head = self._read_head()  # before the transaction, which sees nothing that another process adds later
        with self._open_entries(self._connect_read_only(), self._begin_to_read, "ROLLBACK") as entries:
            entries.verify(self._check_head(entries, head))
            yield entries

    def _read_head(self) -> bytes | None:
        """Return the bytes of the head, or None if there is none. Raises OdError if it cannot be read."""
        try:
            return self._head.read_bytes()
        except FileNotFoundError:
            return None
        except PermissionError:
            message = f"confidential/{self._head.name}, which names the newest entry of the ledger, cannot be read"
            step = "run it as the owner, or on a copy of the whole folder that this user may read"
            raise make_unavailable_error(f"{message}: {describe_rights(self._head)}", step) from None

    def _check_head(self, entries: Entries, head: bytes | None) -> EntryName:
        """Return the entry that the head names; ``NO_ENTRY`` without a head, if nothing was charged yet.

        ``head`` are the bytes of the head, which must have been read before the entries, or while no other process can
        add one. Raises OdError if the entries lack the entry that the head names, or if a release was charged and the
        head is missing or damaged.
        """
        if head is None and entries.find_newest(RESERVED) is None:
            return NO_ENTRY  # nothing was charged yet, so nothing can be lost
        if head is None or not _HEAD_PATTERN.fullmatch(head):
            raise OdError(
                "OD-LEDGER-HEAD",
                f"confidential/{self._head.name}, which names the newest entry of the ledger, is"
                f" {'missing' if head is None else 'damaged'}",
                next_step="restore it from the newest backup of the confidential folder; if this project released"
                " nothing, copy that of another project with this ledger",
                spent=STAYS_CHARGED,
            )
        number, entry_hash = head.decode().split(" ")
        newest = EntryName(int(number), entry_hash)
        entries.hold_to(newest)
        return newest

    def _renew_head(self, newest: EntryName) -> None:
        """Write the number and hash of the newest entry to the head, unless another process has written newer ones.

        The head is overwritten in place. It is one short line in one sector of the disk, so a crash leaves either the
        old or the new head. With the old one, the loss of the newest entries may go unnoticed.
        """
        head = f"{newest.number:012d} {newest.hash}".encode()  # of fixed width, so the head of a later entry is greater
        if not self._head.exists():
            make_folder(self._head.parent, CONFIDENTIAL_FOLDER_MODE)
            write_durably(self._head, lambda file: file.write_bytes(head))
            return
        with self._head.open("rb+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.read() < head:
                written = 0
                while written < len(head):  # one call may write only a part
                    written += os.pwrite(file.fileno(), head[written:], written)
                os.fdatasync(file.fileno())

    def copy_to(self, target: Chain) -> int:
        """Copy all entries to a ledger that has none, and return their number. The head file stays as it is.

        Raises OdError if the other ledger has entries, or :meth:`open_transaction` would refuse this one.
        """
        opened_target = target._open_entries(target._use_connection(), target._begin, "COMMIT")
        with self.open_read_only() as entries, opened_target as target_entries:
            return target_entries.copy(entries)

    def lock_for_release(self, seconds: float = LOCK_SECONDS) -> AbstractContextManager[None]:
        """Return a context that only one release at a time can be in; see :func:`lock_folder`."""
        return lock_folder(self._folder, seconds=seconds)


_NO_DAMAGE_ERRORS = ("BUSY", "LOCKED", "READONLY", "CANTOPEN", "FULL", "IOERR", "PERM")
"""Beginnings of the names of SQLite errors (without ``SQLITE_``) that do not concern the content of the file.

Any other error means that the file is damaged.
"""


class SqliteChain(Chain):
    """The entries of a ledger in a SQLite file, which is created if it is missing."""

    _begin, _begin_to_read, _error = "BEGIN IMMEDIATE", "BEGIN", sqlite3.DatabaseError

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)
        self._path = path

    def exists(self) -> bool:
        """Return whether there is a file with a table of entries, which a process that is killed may not have made."""
        with suppress(OdError, self._error), self._connect_read_only() as connection:
            return any(connection.execute("SELECT name FROM sqlite_schema WHERE name = 'entries'"))
        return self._path.exists()  # opening it reports what is wrong with it

    def _copy_into(self, memory: sqlite3.Connection) -> None:
        """Copy the whole file into an empty database in memory, which needs no right to write the file."""
        with self._connect_read_only() as ledger:
            ledger.backup(memory)

    def _make_entries(self, connection: sqlite3.Connection) -> Entries:
        """Return the entries, with a function that checks that the indexes of the file agree with them."""

        def check_integrity() -> bool:
            """Return whether SQLite finds no fault in the tables and indexes."""
            (verdict,) = next(connection.execute("PRAGMA integrity_check(1)"))
            return bool(verdict == "ok")

        return Entries(connection, check_integrity)

    @contextmanager
    def _connect_read_only(self) -> Iterator[sqlite3.Connection]:
        """Yield the shared connection as :meth:`_use_connection` does, and otherwise a new one that cannot write.

        To read a file in WAL mode, SQLite makes files beside it. A process that may not do so uses those of a process
        that has the ledger open, or reads a ledger that nobody has open as a file that does not change. In the last
        case, an OdError is raised at the end if the file has changed.
        """
        shared = self._find_shared_connection()
        if shared is not None:
            yield shared
            return
        mode = "rw"
        state: list[int] | None = None
        if not (can_write(self._path) and can_write(self._path.parent)):
            mode = "ro"
            if self._path.exists() and not self._log.exists():
                mode = "ro&immutable=1"
                state = read_file_state(self._path)
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"  # no mode creates the file
        try:
            with closing(_open_sqlite(uri)) as connection:
                connection.execute("PRAGMA query_only = ON")
                yield connection
        finally:
            if state is not None and read_file_state(self._path) != state:
                raise make_unavailable_error(
                    "the ledger was written to while it was read without the right to write", "run it again"
                )

    def _read_circumstances(self) -> object:
        """Return the number of this thread, and the device and inode of the file at the path; None for no file."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return get_ident(), None
        return get_ident(), status.st_dev, status.st_ino

    def _connect(self) -> sqlite3.Connection:
        """Open the ledger to write. A missing one is created with the mode of public files, whatever the umask."""
        if not self._path.exists():
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, PUBLIC_FILE_MODE))
            self._path.chmod(PUBLIC_FILE_MODE)
        connection = _open_sqlite(self._path.absolute().as_uri())
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(read_statements("sqlite_schema"))
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _log(self) -> Path:
        """SQLite's write-ahead log. It exists while a process has the ledger open, or after one was killed."""
        return self._path.with_name(f"{self._path.name}-wal")

    def _make_database_error(self, error: sqlite3.DatabaseError) -> OdError:
        """Return the OdError for a SQLite error. It states who may write the file if this process may not."""
        name = getattr(error, "sqlite_errorname", "")
        if not name.partition("_")[2].startswith(_NO_DAMAGE_ERRORS):
            return make_damage_error()
        message = f"the ledger cannot be used: SQLite reports {name}"
        step = "check the disk, close other programs that have the ledger open, then run the release again"
        not_writable = [path for path in (self._path, self._path.parent) if not can_write(path)]
        if not_writable:
            message = f"{message}; {describe_rights(not_writable[0])}"
            step = choose_writing_advice(not_writable[0])
            if self._log.exists():
                step = f"{step}, or read a copy of {self._path.name} and {self._log.name} in a folder of your own"
        return make_unavailable_error(message, step)


def _open_sqlite(address: str) -> sqlite3.Connection:
    """Open a SQLite database at an address, without transactions of Python's own. Rows are mappings by column."""
    connection = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection
