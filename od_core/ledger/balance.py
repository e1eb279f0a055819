"""Compute cap and spending of a domain in each elementary period from the ledger's entries, and enforce the cap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from od_core.errors import OdError
from od_core.ledger.chain import CAP, RESERVED, Entries
from od_core.privacy.cap import Cap, Charge

NEWEST = (1 << 63) - 1
"""Largest possible number of an entry."""


@dataclass(frozen=True)
class Balance:
    """The cap and the spending of a domain in one elementary period.

    Attributes:
        domain: the data set.
        period: the elementary period; ``all`` under unit ``user``.
        cap: rho that the cap allows, after the deltas of (epsilon, delta) events are deducted.
        spent: sum of all reservations; pure epsilon and (epsilon, delta) events count as epsilon^2 / 2.
        releases: number of releases that charged the period.
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
        """Remaining rho for further reservations."""
        return self.cap - self.spent


def charge_of(row: dict[str, Any]) -> Charge:
    """Return the charge of a RESERVED entry."""
    return Charge(*(Fraction(row[name]) for name in ("rho", "epsilon", "delta")))


def balances(
    entries: Entries, domain: str, periods: Iterable[str], asked: Charge | None = None, until: int = NEWEST
) -> list[Balance]:
    """Return the balance of each elementary period, from the entries up to number ``until``.

    The delta of a charge that is ``asked`` for is deducted from the cap.
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
    """Refuse a charge that the cap does not allow in every period. Raises OdError with the numbers."""
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
