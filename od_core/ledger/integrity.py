"""Verify a ledger: its chain of hashes, every charge, and the presence of all entries that public releases name."""

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
    """The number and hash of a ledger entry. Together they identify the entry among the entries of all ledgers.

    Attributes:
        number: position of the entry, from 1.
        hash: SHA-256 of the entry, which depends on all entries before it.
    """

    number: int
    hash: str


def chain_of(path: Path) -> Chain:
    """Return the chain in a ledger's file. Its head file is in the folder ``confidential`` beside the ledger."""
    return Chain(path, path.parent / "confidential" / "ledger.head")


def look_at_ledger(path: Path, witnesses: Mapping[str, EntryName]) -> int:
    """Verify a ledger, and return how many entries it has. No entry is added, and no file is created.

    Args:
        path: path of the ledger's file, which must exist.
        witnesses: entries that the certificates of public releases name, by release.

    Raises:
        OdError: the ledger was edited, is damaged, is older than its head, lacks one of the witnesses, or cannot be
            used now. Or a charge is not the cost of its noise.
    """
    with chain_of(path).look() as entries:
        hold_to_witnesses(entries, witnesses)
        return verify_entries(entries)


def verify_entries(entries: Entries) -> int:
    """Verify the chain of hashes and every charge, and return how many entries there are.

    Raises:
        OdError: the chain is broken, or a charge is not the cost of its noise.
    """
    number = entries.verify()
    for row in entries.select("kind = ?", RESERVED):
        refuse_other_charge(_noise_of(row["content"]), charge_of(row))
    return number


def _noise_of(facts: Mapping[str, Any]) -> dict[str, int | str]:
    """Return those facts of a reserved step that state its sensitivity and its noise."""
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
