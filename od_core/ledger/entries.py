"""Define the entries of a ledger: an append-only list, in which each entry has the hash of the entry before it.

This module has no rules about budgets, and does not know which database stores the entries.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from od_core.errors import STAYS_CHARGED, OdError
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.budget import Charge

DOMAIN, CAP, RESERVED, DRAWING, MEASURED, PUBLISHED = "DOMAIN", "CAP", "RESERVED", "DRAWING", "MEASURED", "PUBLISHED"
"""Kinds of entries: for a domain and its cap, for the states of a level, and for the publication of a release."""

KINDS = frozenset({DOMAIN, CAP, RESERVED, DRAWING, MEASURED, PUBLISHED})
"""All kinds. A later version that stores other facts must add a kind, so that this version refuses its ledgers."""


class EntryName(NamedTuple):
    """The number and hash of a ledger entry. Together they identify the entry among the entries of all ledgers.

    Attributes:
        number: position of the entry, from 1.
        hash: SHA-256 of the entry, which depends on all entries before it.
    """

    number: int
    hash: str


NONE = EntryName(0, "")
"""Name of the last entry of a ledger without entries."""

_AMOUNTS = ("rho", "epsilon", "delta")


class Entries:
    """The entries of a ledger, read and added within one transaction.

    Args:
        connection: connection to the database, whose rows are mappings by column name.
        indexes_hold: function that returns whether the indexes agree with the entries, where the database does not
            ensure it.
        placeholder: how a value is written in SQL for this connection. In the SQL here, it is a question mark.
    """

    def __init__(
        self, connection: Any, indexes_hold: Callable[[], bool] = lambda: True, placeholder: str = "?"
    ) -> None:
        self._connection = connection
        self._indexes_hold = indexes_hold
        self._placeholder = placeholder
        self.added: str | None = None
        """Number and hash of the last entry that this transaction added, as in the head file; None if it added none."""

    def _execute(self, statement: str, *values: object) -> Iterable[Mapping[str, Any]]:
        """Execute one statement, and return the selected rows by column name."""
        rows: Iterable[Mapping[str, Any]] = self._connection.execute(statement.replace("?", self._placeholder), values)
        return rows

    def select(self, where: str, *values: str | int) -> list[dict[str, Any]]:
        """Return the entries that satisfy an SQL condition of our own code, oldest first, as dictionaries by column.

        ``values`` are those of the placeholders in the condition. Column ``content`` is parsed from JSON.
        """
        return self._read(f"{where} ORDER BY number", *values)

    def newest(self, *kinds: str, **columns: str | int) -> dict[str, Any] | None:
        """Return the newest entry that has one of the kinds and the given values in its columns, or None."""
        where = f"kind IN ({', '.join('?' * len(kinds))})" + "".join(f" AND {name} = ?" for name in columns)
        newest = f"SELECT max(number) FROM entries WHERE {where}"  # noqa: S608  # our own SQL; found in an index alone
        found = self._read(f"number = ({newest})", *kinds, *columns.values())
        return found[0] if found else None

    def has(self, name: EntryName) -> bool:
        """Return whether there is an entry with this number and this hash."""
        found = self._execute("SELECT hash FROM entries WHERE number = ?", name.number)
        return any(entry["hash"] == name.hash for entry in found)

    def groups(self, columns: str, where: str, *values: str | int) -> list[dict[str, Any]]:
        """Return the values of some columns in the entries that satisfy a condition, each combination once.

        The combinations are dictionaries by column, oldest first; ``count`` is the number of entries of each. Column
        ``content`` is not parsed. The condition is as for :meth:`select`.
        """
        grouped = f"WHERE {where} GROUP BY {columns} ORDER BY min(number)"
        found = self._execute(f"SELECT {columns}, count(*) AS count FROM entries {grouped}", *values)  # noqa: S608
        return [dict(group) for group in found]

    def _read(self, where: str, *values: str | int) -> list[dict[str, Any]]:
        found = self._execute(f"SELECT * FROM entries WHERE {where}", *values)  # noqa: S608  # our own SQL
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
        """Add an entry with the present time and its hash after the last entry, and set :attr:`added`."""
        last = next(iter(self._execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1")), None)
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
        self._add({**entry, "hash": _entry_hash(entry)})

    def copy(self, source: Entries) -> int:
        """Add all entries of another ledger unchanged to this one, which must be empty, and return their number.

        Raises OdError if this ledger has entries.
        """
        if self.verify() != NONE:
            raise OdError(
                "OD-LEDGER-STATE",
                "the ledger to copy to has entries already",
                next_step="name a ledger without entries; two ledgers cannot be merged",
            )
        for entry in source.rows():
            self._add(entry)
        return self.verify().number

    def rows(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Return the entries after a number oldest first; by default all, whatever their numbers."""
        later, values = (" WHERE number > ?", (after,)) if after else ("", ())
        return map(dict, self._execute(f"SELECT * FROM entries{later} ORDER BY number", *values))  # noqa: S608

    def _add(self, entry: Mapping[str, Any]) -> None:
        values = ", ".join("?" * len(entry))
        self._execute(f"INSERT INTO entries ({', '.join(entry)}) VALUES ({values})", *entry.values())  # noqa: S608  # column names only
        self.added = f"{entry['number']:012d} {entry['hash']}"

    def hold_to(self, newest: EntryName) -> None:
        """Raise OdError unless the entries contain the newest one that was ever added, and none was edited."""
        if not self.has(newest):
            self.verify()  # raises the error for an edited entry, if there is one, instead of the error below
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                "the ledger is missing, or it lacks the newest entry that was ever made",
                next_step="restore the newest ledger, or set OD_LEDGER if it is in PostgreSQL; an older one does not"
                " record all that was spent",
                spent=STAYS_CHARGED,
            )

    def verify(self, since: EntryName = NONE) -> EntryName:
        """Verify the chain of hashes, and return the name of the last entry.

        If the whole chain is verified, so are the indexes: a damaged index would hide charges. ``since`` is an entry up
        to which the chain is verified already; if there is none, the whole chain is verified. Raises OdError if the
        chain is broken, or a later version of this package added a kind of its own.
        """
        kinds: set[str] = set()
        last, previous = since if since == NONE or self.has(since) else NONE
        if last == 0 and not self._indexes_hold():
            raise broken()
        for number, entry in enumerate(self.rows(last), start=last + 1):
            stated = entry.pop("hash")
            if entry["number"] != number or entry["previous"] != previous or _entry_hash(entry) != stated:
                raise broken()
            last, previous = number, stated
            kinds.add(entry["kind"])
        if kinds - KINDS:
            raise OdError(
                "OD-LEDGER-NEWER",
                f"the ledger has entries of a later version of od-release: {', '.join(sorted(kinds - KINDS))}",
                next_step="install the newest version that has released here; an older one may not count all charges",
            )
        return EntryName(last, previous)


def _entry_hash(entry: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def broken() -> OdError:
    """Return the OdError for a ledger whose entries differ from those that were written."""
    return OdError(
        "OD-LEDGER-BROKEN",
        "the ledger is damaged or was edited",
        next_step="restore the newest ledger; without it, nothing is drawn or published",
    )
