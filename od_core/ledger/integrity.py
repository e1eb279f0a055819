"""Verify the entries of a ledger: the chain, every charge, and the entries that public releases name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from od_core.errors import STAYS_CHARGED, OdError
from od_core.ledger.balance import charge_of
from od_core.ledger.chain import RESERVED, Chain, Entries
from od_core.privacy.cap import refuse_other_charge


@dataclass(frozen=True)
class EntryName:
    """The unique name of a ledger entry, which no other ledger contains.

    Attributes:
        number: position of the entry, from 1.
        hash: SHA-256 of the entry, which depends on all entries before it.
    """

    number: int
    hash: str


def chain_of(path: Path) -> Chain:
    """Return the chain of a ledger's file, whose head is in the folder ``confidential`` beside it."""
    return Chain(path, path.parent / "confidential" / "ledger.head")


def look_at_ledger(path: Path, witnesses: Mapping[str, EntryName]) -> int:
    """Verify a ledger and return its number of entries, without adding an entry or creating a file.

    Args:
        path: path of the ledger's file, which must exist.
        witnesses: entries that public releases name, as for :meth:`od_core.ledger.ledger.Ledger.hold_to`.

    Raises:
        OdError: the ledger is edited, damaged, older than its head or a witness, or cannot be used now.
    """
    with chain_of(path).look() as entries:
        hold_to_witnesses(entries, witnesses)
        return verify_entries(entries)


def verify_entries(entries: Entries) -> int:
    """Verify the entries and return their number; see :meth:`od_core.ledger.ledger.Ledger.verify`."""
    number = entries.verify()
    for row in entries.select("kind = ?", RESERVED):
        refuse_other_charge(_noise_of(row["content"]), charge_of(row))
    return number


def _noise_of(facts: Mapping[str, Any]) -> dict[str, int | str]:
    """Return the facts of a step that describe its noise."""
    named = ("sensitivity_squared", "sensitivity", "variance", "scale")
    return {name: fact for name, fact in facts.items() if name in named or name.startswith("scale_of_")}


def hold_to_witnesses(entries: Entries, witnesses: Mapping[str, EntryName]) -> None:
    """Refuse entries that lack a named one; see :meth:`od_core.ledger.ledger.Ledger.hold_to`."""
    for release, entry in witnesses.items():
        if not entries.has(entry.number, entry.hash):
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"{release} is public, but the ledger lacks the entry that its certificate names",
                next_step="restore the newest ledger; an older one does not record all that was spent",
                spent=STAYS_CHARGED,
            )
