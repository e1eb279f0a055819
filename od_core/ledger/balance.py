"""Compute what a domain has spent in each elementary period and what its cap leaves, and refuse what exceeds it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NotRequired, TypedDict

from od_core.errors import OdError
from od_core.languages import translate
from od_core.ledger.chain import CAP, DOMAIN, RESERVED, Entries
from od_core.periods import Length, Period
from od_core.privacy.accounting import format_rounded_down, format_rounded_up
from od_core.privacy.budget import Cap, Charge, ChargeSum, Measure
from od_core.privacy.domain import (
    ALL_PERIODS,
    Charged,
    bound_rho_of_year,
    list_charged_periods,
    list_periods_of_year,
    name_declared_year,
)
from od_core.privacy.unit import RECORDS_OF, UnitKind

LARGEST_NUMBER = (1 << 63) - 1
"""Largest possible number (position in the ledger) of an entry; as a limit, it includes all entries."""


class DomainFacts(TypedDict):
    """Facts with which a data set was declared, as far as the ledger reads them.

    Only a unit of a year has ``year``, the text that declares when a year begins.
    """

    unit: UnitKind
    elementary_period: Length
    max_trips: int
    max_trips_year: int
    max_trips_pair: NotRequired[int | None]
    year: NotRequired[str]


@dataclass(frozen=True)
class _Charges:
    """Equal reservations of one release.

    Attributes:
        charge: charge of each reservation.
        noise: facts of the step that is charged, for a unit of a year; otherwise empty.
        number: number of the reservations.
        release: key of the release as text; None if the releases are not read.
        redrawn: whether they are for levels that are drawn again, because an earlier draw was lost.
        periods: elementary periods that each reservation charges.
    """

    charge: Charge
    noise: Mapping[str, Any]
    number: int
    release: str | None
    redrawn: bool
    periods: Sequence[str]


@dataclass(frozen=True)
class Balance:
    """The cap and the spending of a domain in one elementary period, or in one year under a unit of a year.

    Attributes:
        domain: name of the data set.
        period: the elementary period or the year; ``all`` under unit ``user``.
        cap: amount that the cap allows. For a cap in (epsilon, delta), the deltas of all charges are first subtracted
            from its delta.
        spent: amount of all reservations. As rho, a charge in epsilon, with or without a delta, counts as
            epsilon^2 / 2. Those of a year add up by :func:`od_core.privacy.domain.bound_rho_of_year`.
        charged: amount of all reservations of each release that is charged to the period, by its key as text; empty if
            they were added up without reading the releases.
        lost_draws: number of draws that were lost with their process and charged once more.
        asked: amount by which a requested charge would raise ``spent``; 0 if none is requested.
        measure: whether the amounts are rho or epsilons; see :meth:`od_core.privacy.budget.Cap.choose_measure`.
        parts: for a year, the rho of each elementary period that was charged, by its text; otherwise empty.
        of: elementary periods whose charges count against the cap; for a year, all of its periods.

    Examples:
        >>> balance = ledger.balance("flights", "2001-06")
        >>> balance.cap, balance.left == balance.cap - balance.spent, balance.releases
        (Fraction(1, 2), True, 1)
    """

    domain: str
    period: str
    cap: Fraction
    spent: Fraction
    charged: Mapping[str, Fraction]
    lost_draws: int
    asked: Fraction = Fraction(0)
    measure: Measure = "rho"
    parts: Mapping[str, Fraction] = field(default_factory=dict)
    of: frozenset[str] = frozenset()

    @property
    def time(self) -> str:
        """The period in words."""
        if self.period == ALL_PERIODS:
            return translate("all periods together")
        return translate("period {period}").format(period=self.period)

    @property
    def left(self) -> Fraction:
        """Remaining amount: the cap less what is spent."""
        return self.cap - self.spent

    @property
    def left_part(self) -> Fraction:
        """Part of the cap that remains if the requested charge is made; negative if the cap does not allow it."""
        return (self.left - self.asked) / self.cap if self.cap else min(self.left - self.asked, Fraction(0))

    @property
    def releases(self) -> int:
        """Number of releases that are charged to the period."""
        return len(self.charged)


def find_least_balance(balances: Iterable[Balance]) -> Balance:
    """Return the balance with the least :attr:`Balance.left_part`. There must be at least one.

    Only the remaining parts of the caps are compared, because amounts may be in rho or in epsilon.
    """
    return min(balances, key=lambda balance: balance.left_part)


def read_charge(row: Mapping[str, Any]) -> Charge:
    """Return the charge of a RESERVED entry, from its columns ``rho``, ``epsilon`` and ``delta``."""
    return _parse_charge(row["rho"], row["epsilon"], row["delta"])


@lru_cache(maxsize=1024)  # many releases have the same charge
def _parse_charge(rho: str, epsilon: str, delta: str) -> Charge:
    """Return the charge with the exact numbers that these texts state. The result is cached."""
    return Charge(Fraction(rho), Fraction(epsilon), Fraction(delta))


RequestedCharges = Sequence[tuple[Mapping[str, Any], Charge]]
"""Requested charges: the facts of each step, and its charge."""


def compute_balances(
    entries: Entries,
    domain: str,
    periods: Sequence[str] | None = None,
    asked: RequestedCharges = (),
    until: int = LARGEST_NUMBER,
    *,
    by_release: bool = True,
) -> list[Balance]:
    """Return the balance of each elementary period, in the order of ``periods``, or of each year that contains some.

    Args:
        entries, domain: entries of the ledger, and the name of the data set, which is declared.
        periods: the elementary periods; by default all that were charged, sorted.
        asked: requested charge to each of the periods, which is not reserved yet. Its delta is subtracted from the cap
            like the delta of a reservation, and the balance is in the measure of all charges with it.
        until: number of the last entry to include.
        by_release: False if :attr:`Balance.charged` is not needed, so that less is read.
    """
    condition = "kind = ? AND domain = ? AND number <= ?"
    declared: DomainFacts = entries.select(condition, DOMAIN, domain, until)[-1]["content"]
    cap = Cap.from_facts(entries.select(condition, CAP, domain, until)[-1]["content"])
    read_periods = None  # all
    if periods is not None:
        read_periods = frozenset[str]().union(*_group_periods_by_cap(declared, periods).values())
    all_charges = _read_charges(entries, declared, domain, read_periods, until, by_release=by_release)
    positions_by_period = _index_charges_by_period(all_charges)
    periods = sorted(positions_by_period) if periods is None else periods
    requested = [_Charges(charge, noise, 1, None, redrawn=False, periods=periods) for noise, charge in asked]
    balances = []
    for name, parts in _group_periods_by_cap(declared, periods).items():
        # A charge may count in several elementary periods, but counts once against their cap.
        positions = {position for part in parts for position in positions_by_period.get(part, ())}
        charges_of_cap = [all_charges[position] for position in sorted(positions)]
        reserved, rho_of_part = _sum_charges(declared, parts, charges_of_cap)
        with_request = reserved
        if requested:
            with_request, _ = _sum_charges(declared, parts, [*charges_of_cap, *requested])
        measure = cap.choose_measure(with_request)
        spent = reserved.select_amount(measure)
        balances.append(
            Balance(
                domain,
                name,
                cap=cap.compute_allowed(measure, with_request.delta),
                spent=spent,
                charged=_sum_by_release(charges_of_cap, measure),
                lost_draws=sum(charges.number for charges in charges_of_cap if charges.redrawn),
                asked=with_request.select_amount(measure) - spent,
                measure=measure,
                parts=rho_of_part if "year" in declared else {},
                of=parts,
            )
        )
    return balances


def _index_charges_by_period(all_charges: Sequence[_Charges]) -> Mapping[str, list[int]]:
    """Return, by the text of an elementary period, the positions in ``all_charges`` of those that charge it."""
    positions_by_period = defaultdict[str, list[int]](list)
    for position, charges in enumerate(all_charges):
        for period in charges.periods:
            positions_by_period[period].append(position)
    return positions_by_period


def _sum_by_release(all_charges: Sequence[_Charges], measure: Measure) -> dict[str, Fraction]:
    """Return the amount of the charges of each release, by its key as text; empty if the releases were not read."""
    amount_by_release = defaultdict[str, Fraction](Fraction)
    for charges in all_charges:
        if charges.release is not None:
            amount_by_release[charges.release] += charges.number * charges.charge.select_amount(measure)
    return amount_by_release


def _read_charges(
    entries: Entries,
    declared: DomainFacts,
    domain: str,
    periods: frozenset[str] | None,
    until: int,
    *,
    by_release: bool,
) -> list[_Charges]:
    """Return the reservations that charge one of the elementary ``periods``, oldest first; all if that is None.

    The database groups equal reservations, which become one item with their number. Reservations are equal if the
    columns agree that are needed: with the release only if ``by_release``, and with the content (the facts of the
    noise) only for a unit of a year. Only entries up to the number ``until`` are read.
    """
    is_of_all_time = RECORDS_OF[declared["unit"]].is_of_all_time
    # "number + 0" keeps SQLite from reading all entries in the order of their numbers.
    where, values = "kind = ? AND domain = ? AND number + 0 <= ?", (RESERVED, domain, until)
    columns = ["rho", "epsilon", "delta", "draw"]
    if by_release:
        columns.append("release")
    if not is_of_all_time:  # a unit of all time has one period, which all releases charge
        columns.append("period")
        if periods is not None:
            release_periods = [group["period"] for group in entries.group_by("period", where, *values)]
            charging = [
                text for text in release_periods if not periods.isdisjoint(find_charged_periods(declared, text))
            ]
            if not charging:
                return []
            if len(charging) < len(release_periods):
                placeholders = ", ".join("?" * len(charging))
                where, values = f"{where} AND period IN ({placeholders})", (*values, *charging)
    if "year" in declared:
        columns.append("content")
    return [
        _Charges(
            read_charge(group),
            noise=json.loads(group["content"]) if "year" in declared else {},
            number=group["count"],
            release=group.get("release"),
            redrawn=group["draw"] > 1,
            periods=(ALL_PERIODS,) if is_of_all_time else find_charged_periods(declared, group["period"]),
        )
        for group in entries.group_by(", ".join(columns), where, *values)
    ]


@lru_cache(maxsize=1 << 16)
def _cache_charged_periods(period: str, elementary: Length, unit: UnitKind) -> tuple[str, ...]:
    """Return the result of :func:`list_charged_periods` for the text of a period. It is cached."""
    return list_charged_periods(Period(period), elementary, unit)


def find_charged_periods(declared: DomainFacts, period: str) -> tuple[str, ...]:
    """Return the elementary periods that a release of a period charges. Raises OdError if it cannot be charged."""
    return _cache_charged_periods(period, declared["elementary_period"], declared["unit"])


def _group_periods_by_cap(declared: DomainFacts, periods: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the elementary periods whose charges count against the same cap as any of ``periods``, grouped by cap.

    The names of the groups are the periods themselves or, under a unit of a year, their years.
    """
    if "year" not in declared:
        return {period: frozenset([period]) for period in periods}
    groups: dict[str, frozenset[str]] = {}
    for period in periods:
        parts = list_periods_of_year(Period(period), declared["elementary_period"], declared["year"])
        groups[name_declared_year(parts, declared["year"])] = frozenset(part.text for part in parts)
    return groups


def _sum_charges(
    declared: DomainFacts, parts: frozenset[str], charges: Sequence[_Charges]
) -> tuple[ChargeSum, dict[str, Fraction]]:
    """Return the sums of the charges that count against one cap, and the rho of each of its periods that is charged.

    ``parts`` are the elementary periods whose charges count against the cap. Under a unit of a year, the rho of the sum
    is that of :func:`bound_rho_of_year`, which is at most the sum of the rho of its periods.
    """
    numbers = [(equal.charge, equal.number) for equal in charges]
    charged_in: dict[str, list[Charged]] = {part: [] for part in sorted(parts)}
    for equal in charges:
        for part in parts.intersection(equal.periods):
            charged_in[part].append((equal.noise, equal.number * equal.charge.as_rho))
    sums = {part: sum((rho for _, rho in charged), start=Fraction(0)) for part, charged in charged_in.items()}
    rho_of_part = {part: rho for part, rho in sums.items() if rho}
    rho = sum(sums.values(), start=Fraction(0))
    if "year" in declared:
        bounds = declared["max_trips"], declared["max_trips_year"], declared.get("max_trips_pair")
        rho = bound_rho_of_year(charged_in.values(), *bounds)
    return ChargeSum.from_charges(numbers, rho), rho_of_part


def check_cap(
    entries: Entries, domain: str, periods: Sequence[str], asked: RequestedCharges, *, lost_draw: bool = False
) -> None:
    """Raise OdError if the cap does not allow the requested charges in each of the elementary periods.

    The message states the cap, and the spent and the remaining amount, of the period with the least remaining part.
    ``lost_draw`` states whether the charges are for drawing a lost level again, which changes the message alone.
    """
    balance = find_least_balance(compute_balances(entries, domain, periods, asked, by_release=False))
    if balance.asked > balance.left:
        reason = "drawing a lost level again" if lost_draw else "the release"
        raise OdError(
            "OD-LEDGER-CAP",
            f"{reason} needs {balance.measure} {format_rounded_up(balance.asked)} in {balance.period}, but data set"
            f" {domain!r} has a cap of {format_rounded_up(balance.cap)}, of which {format_rounded_up(balance.spent)} is"
            f" spent and {format_rounded_down(max(balance.left, Fraction(0)))} remains",
            next_step="request a smaller budget, or raise the cap and state a reason",
            spent="nothing more was spent" if lost_draw else "nothing was spent",
        )
