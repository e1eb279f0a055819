"""Verify a ledger: its chain of hashes, every charge, and the presence of all entries that public releases name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from od_core.errors import STAYS_CHARGED, OdError
from od_core.ledger.balance import charge_of
from od_core.ledger.chain import SCHEMES, Chain, PostgresChain, SqliteChain
from od_core.ledger.entries import RESERVED, Entries
from od_core.privacy.budget import refuse_other_charge


@dataclass(frozen=True)
class EntryName:
    """The number and hash of a ledger entry. Together they identify the entry among the entries of all ledgers.

    Attributes:
        number: position of the entry, from 1.
        hash: SHA-256 of the entry, which depends on all entries before it.
    """

    number: int
    hash: str


def chain_of(path: Path, server: str | None = None) -> Chain:
    """Return the chain of a ledger, from the arguments of :class:`od_core.ledger.ledger.Ledger`.

    Raises:
        OdError: the address is not that of a PostgreSQL database, or psycopg is not installed.
    """
    if server is None:
        return SqliteChain(path)
    if not server.startswith(SCHEMES):
        raise OdError(
            "OD-CONFIG",
            "the address of the ledger is not that of a PostgreSQL database",
            next_step="write it as postgresql://role@host/database, with the password in a file of libpq",
        )
    return PostgresChain(server, path.parent)


def look_at_ledger(path: Path, witnesses: Mapping[str, EntryName], server: str | None = None) -> int:
    """Verify a ledger, and return the number of its entries. No entry is added, and no file is created.

    Args:
        path: path of the ledger's file, which must exist unless there is a server.
        witnesses: entries that the certificates of public releases name, by release.
        server: see :class:`od_core.ledger.ledger.Ledger`.

    Raises:
        OdError: the ledger was edited, is damaged, cannot be used now, or lacks one of the witnesses or the entry that
            its head file names. Or a charge is not the cost of its noise.
    """
    with chain_of(path, server).look() as entries:
        hold_to_witnesses(entries, witnesses)
        return verify_entries(entries)


def verify_entries(entries: Entries) -> int:
    """Verify the hashes and the charges of all entries, and return their number. Raises OdError if one is wrong."""
    number, _ = entries.verify()
    for row in entries.select("kind = ?", RESERVED):
        refuse_other_charge(_noise_of(row["content"]), charge_of(row))
    return number


def _noise_of(facts: Mapping[str, Any]) -> dict[str, int | str]:
    """Return the sensitivity and the noise parameters from the content of a RESERVED entry, by name."""
    named = ("sensitivity_squared", "sensitivity", "variance", "scale")
    return {name: fact for name, fact in facts.items() if name in named or name.startswith("scale_of_")}


def hold_to_witnesses(entries: Entries, witnesses: Mapping[str, EntryName]) -> None:
    """Check that the entries contain every entry that a public release names.

    Args:
        entries: entries of the ledger.
        witnesses: entries that the certificates of public releases name, by release.

    Raises:
        OdError: one of these entries is missing, so the ledger is older than the release.
    """
    for release, entry in witnesses.items():
        if not entries.has(entry.number, entry.hash):
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"{release} is public, but the ledger lacks the entry that its certificate names",
                next_step="restore the newest ledger; an older one does not record all that was spent",
                spent=STAYS_CHARGED,
            )
