"""Define how a ledger is opened, whichever database stores its entries: in transactions, and held to its head file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from od_core.ledger.entries import NONE, Entries
from od_core.ledger.head import Head
from od_core.ledger.lock import LOCK_SECONDS, exclusive

WAIT_SECONDS = 60.0
"""Longest time that a transaction waits for another one."""


class _Undone(Exception):  # noqa: N818  # no error: it rolls a transaction back
    """The end of a trial."""


class Chain(ABC):
    """The entries of a ledger in a database, and the head file, which states the number and hash of the newest entry.

    Args:
        folder: folder of the lock of releases. The head file is in the folder ``confidential`` below it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._head = Head(folder / "confidential" / "ledger.head")
        self._verified = NONE
        """Number and hash of the entry up to which this object has verified the chain."""

    @abstractmethod
    def _begun(self) -> AbstractContextManager[Entries]:
        """Begin a transaction, and commit it durably when the context ends without an exception.

        No other process can write to the ledger meanwhile. If an exception leaves the context, no entry is added.
        """

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[Entries]:
        """Open the entries as they are now, for reading only."""

    def _tried(self) -> AbstractContextManager[Entries]:
        """Open the entries for a trial."""
        return self._begun()

    @abstractmethod
    def kept_open(self) -> AbstractContextManager[None]:
        """Use one connection for all transactions in this context. This saves time and keeps every commit durable."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the ledger has been created."""

    @contextmanager
    def transaction(self) -> Iterator[Entries]:
        """Open a transaction, and commit it when the context ends without an exception. Then update the head.

        The first transaction of this object verifies the whole chain, and each other one the entries since then. So
        nothing is charged or drawn with a ledger of which another process has changed an entry before.

        Yields:
            The entries.

        Raises:
            OdError: the ledger cannot be used now, is damaged, or lacks the entry that the head names. Or a release was
                charged, and the head is missing or damaged.
        """
        with self._begun() as entries:
            self._head.check(entries)
            self._verified = entries.verify(self._verified)
            yield entries
        if entries.added is not None:
            self._head.renew(entries.added)

    @contextmanager
    def trial(self) -> Iterator[Entries]:
        """Open a transaction of which nothing is kept, to find out whether entries would be refused.

        Yields:
            The entries. What is added to them is rolled back when the context ends.

        Raises:
            OdError: as in :meth:`transaction`.
        """
        with suppress(_Undone), self._tried() as entries:
            self._head.check(entries)
            yield entries
            raise _Undone

    @contextmanager
    def look(self) -> Iterator[Entries]:
        """Open the entries for reading only. No entry is added, and no ledger is created.

        The chain is verified from the entry that the head names, which was added after the entries before it had been
        verified. No lock is taken.

        Yields:
            The entries.

        Raises:
            OdError: there is no ledger, it lacks the entry that the head names, or an entry after that one was edited.
        """
        with self._snapshot() as entries:
            entries.verify(self._head.check(entries))
            yield entries

    def copy_to(self, target: Chain) -> int:
        """Copy all entries to a ledger that has none, and return their number. The head file stays as it is.

        Raises:
            OdError: the other ledger has entries, or :meth:`transaction` would refuse this one.
        """
        with self.look() as entries, target._begun() as copied:
            return copied.copy(entries)

    def exclusive(self, seconds: float = LOCK_SECONDS) -> AbstractContextManager[None]:
        """Return a context that only one release can be in, as :func:`od_core.ledger.lock.exclusive` does."""
        return exclusive(self._folder, seconds=seconds)
