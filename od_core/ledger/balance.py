"""Compute the cap and the spending of a domain per elementary period from the ledger, and enforce the cap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from od_core.errors import OdError
from od_core.ledger.entries import CAP, RESERVED, Entries
from od_core.privacy.cap import Cap, Charge

NEWEST = (1 << 63) - 1
"""Largest possible number (position in the ledger) of an entry; as a limit, it includes all entries."""


@dataclass(frozen=True)
class Balance:
    """The cap and the spending of a domain in one elementary period.

    Attributes:
        domain: name of the data set.
        period: the elementary period; ``all`` under unit ``user``.
        cap: rho that the cap allows. For a cap in (epsilon, delta), the deltas of all charges are first subtracted from
            its delta.
        spent: rho of all reservations. A charge in epsilon, with or without a delta, counts as epsilon^2 / 2.
        releases: number of releases that are charged to the period.
        lost_draws: number of draws that were lost with their process and charged once more.
    """

    domain: str
    period: str
    cap: Fraction
    spent: Fraction
    releases: int
    lost_draws: int

    @property
    def left(self) -> Fraction:
        """Remaining rho: the cap less the spent rho."""
        return self.cap - self.spent


def charge_of(row: dict[str, Any]) -> Charge:
    """Return the charge of a RESERVED entry."""
    return Charge(*(Fraction(row[name]) for name in ("rho", "epsilon", "delta")))


def balances(
    entries: Entries, domain: str, periods: Iterable[str], asked: Charge | None = None, until: int = NEWEST
) -> list[Balance]:
    """Return the balance of each elementary period, in the order of ``periods``.

    Args:
        entries: entries of the ledger.
        domain: name of the data set.
        periods: the elementary periods.
        asked: requested charge, which is not reserved yet. Its delta is subtracted from the cap like the delta of a
            reservation. Its rho or epsilon is not part of ``spent``.
        until: number of the last entry to include.
    """
    of_domain = "kind = ? AND domain = ? AND number <= ?"
    cap = Cap.from_facts(entries.select(of_domain, CAP, domain, until)[-1]["content"])
    rows = [(row, charge_of(row)) for row in entries.select(of_domain, RESERVED, domain, until)]
    asked_delta = Fraction(0) if asked is None else asked.delta
    found = []
    for period in periods:
        mine = [(row, charge) for row, charge in rows if period in row["content"]["periods"]]
        delta = sum((charge.delta for _, charge in mine), start=asked_delta)
        found.append(
            Balance(
                domain,
                period,
                cap=cap.allowed_rho(delta),
                spent=sum((charge.as_rho for _, charge in mine), start=Fraction(0)),
                releases=len({row["release"] for row, _ in mine}),
                lost_draws=sum(row["draw"] > 1 for row, _ in mine),
            )
        )
    return found


def check_cap(entries: Entries, domain: str, periods: Iterable[str], asked: Charge, *, lost_draw: bool = False) -> None:
    """Check that the cap allows a charge in each of the periods.

    Args:
        entries: entries of the ledger.
        domain: name of the data set.
        periods: elementary periods to charge.
        asked: requested charge.
        lost_draw: True if the charge is for drawing a lost level again; it only changes the message.

    Raises:
        OdError: the cap does not allow the charge in one of the periods. The message states the cap, the spent and the
            remaining rho of the period with the least remaining rho.
    """
    balance = min(balances(entries, domain, periods, asked), key=lambda balance: balance.left)
    if asked.as_rho > balance.left:
        what = "drawing a lost level again" if lost_draw else "the release"
        raise OdError(
            "OD-LEDGER-CAP",
            f"{what} needs rho {float(asked.as_rho):.6g} in {balance.period}, but data set {domain!r} has"
            f" a cap of {float(balance.cap):.6g}, of which {float(balance.spent):.6g} is spent and"
            f" {float(balance.left):.6g} remains",
            next_step="request a smaller budget, or raise the cap and state a reason",
            spent="nothing more was spent" if lost_draw else "nothing was spent",
        )
