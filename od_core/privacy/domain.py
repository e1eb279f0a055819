"""Define the privacy domain of a data set: its privacy unit, its elementary period, its years and its cap.

Under a unit of a year, a user may have m counted trips in each elementary period, and M in the year. The loss of a
release grows with the square of the user's counted trips in its period. So a user loses most with m trips in the
periods that cost most, until the M trips are used up. ``docs/explanation/person-year.md`` has the proof. Under a pair
cap, the loss grows otherwise, and :func:`bound_rho_by_trips` bounds it.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from od_core.errors import OdError
from od_core.periods import LENGTHS, Length, Period, check_time_zone, compute_period_number, make_periods
from od_core.privacy.budget import Cap
from od_core.privacy.neighbours import NodeSizes, compute_largest_square_sum
from od_core.privacy.unit import RECORDS_OF, PrivacyUnit, UnitKind
from od_core.registry import refuse_unknown

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""Pattern of the names of data sets and of release series."""

ALL_PERIODS = "all"
"""Name of the single period that all releases charge under unit ``user``, because its losses add up over time."""

CALENDAR = "calendar"
"""Name of the years that begin on 1 January."""

_EXAMPLE_DAY = datetime.date(2001, 1, 1)
"""A day whose calendar year shows whether the elementary periods fill years; a Monday, for weeks."""


@dataclass(frozen=True)
class PrivacyDomain:
    """The rules for a data set: its privacy unit, its elementary period, and its cap for each elementary period.

    Attributes:
        name: name of the data set. Every release of the data set charges this domain.
        unit: privacy unit and neighbour relation. Each release states its own ``max_trips``, except under a unit
            of a year, where all releases have the same.
        cap: largest budget that all releases together may charge to one elementary period; under a unit of a year, to
            one year.
        cap_reason: reason for the cap. A changed cap needs a reason that was not given before.
        elementary_period: length of the shortest period that can be released. Unit ``user_period`` protects all trips
            of a user in one such period.
        time_zone: time zone in which the days of all releases begin; None if not stated. It must be the same for all
            releases: with two time zones, one record could be charged to two elementary periods.
        year: under a unit of a year, a year as a span of elementary periods, such as ``2001-09--2002-08``, which
            other years precede and follow. If None, years are those of the calendar.

    Raises:
        OdError: the name, elementary period or time zone is not valid, the reason is blank, or a year does not consist
            of several whole elementary periods. Or a year is given, and the unit is not of a year.

    Examples:
        >>> june = PrivacyDomain("buses", unit, Cap(rho="1/10"), cap_reason="two releases of each month")
        >>> june.elementary_period
        'month'
    """

    name: str
    unit: PrivacyUnit
    cap: Cap
    cap_reason: str
    elementary_period: Length = "month"
    time_zone: str | None = None
    year: str | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            message = f"the data set name {self.name!r} must contain only lower-case letters, digits and underscores"
            raise OdError("OD-DOMAIN-NAME", message, next_step="correct the privacy domain")
        if not self.cap_reason.strip():
            raise OdError("OD-DOMAIN-REASON", "the cap has no reason", next_step="state a reason")
        field, step = "elementary period", "correct the privacy domain"
        refuse_unknown(field, self.elementary_period, LENGTHS, code="OD-DOMAIN-PERIOD", next_step=step)
        if self.time_zone is not None:
            check_time_zone(self.time_zone)
        if self.unit.is_of_year:
            day = Period(self.year).first if self.year else _EXAMPLE_DAY
            self.periods_of_year(Period.from_day(day, self.elementary_period))
        elif self.year is not None:
            raise OdError("OD-DOMAIN-YEAR", f"unit {self.unit.kind!r} has no year", next_step=step)

    def periods_of_year(self, period: Period) -> tuple[Period, ...]:
        """Return the elementary periods of the year that contains the elementary period ``period``.

        Raises OdError if a year does not consist of several whole elementary periods.
        """
        return list_periods_of_year(period, self.elementary_period, self.year or CALENDAR)

    def facts(self) -> dict[str, str | int | None]:
        """Return the facts that must not change once the domain is declared, as JSON-ready values."""
        facts = {**list_unit_facts(self.unit), "elementary_period": self.elementary_period}
        if self.time_zone is not None:
            facts["time_zone"] = self.time_zone
        if self.unit.is_of_year:
            facts["year"] = self.year or CALENDAR
        return facts


def list_unit_facts(unit: PrivacyUnit) -> dict[str, str | int | None]:
    """Return the facts of a unit that all releases of a domain must share, by name.

    ``max_trips``, ``max_trips_pair`` and ``max_weight`` may differ between releases, so they are not among the facts.
    Under a unit of a year, the first two are, because a user's trips of a period are bounded once for all releases.
    """
    facts: dict[str, str | int | None] = {"unit": unit.kind, "neighbours": unit.neighbours, "column": unit.column}
    if unit.is_of_year:
        facts["max_trips"] = unit.max_trips
        if unit.max_trips_pair is not None:
            facts["max_trips_pair"] = unit.max_trips_pair
    return facts | unit.list_year_facts()


def list_charged_periods(period: Period, elementary: Length, unit: UnitKind) -> tuple[str, ...]:
    """Return the texts of all elementary periods that a release of ``period`` charges.

    The elementary periods have the length ``elementary``. Losses of different ones do not add up, because they concern
    different trips, or different pairs of user and period. Under unit ``user``, they do add up, so every release
    charges the one period ``ALL_PERIODS``. Under a unit of a year, the losses of a year add up as
    :func:`bound_rho_of_year` defines.

    Raises:
        OdError: the period does not consist of whole elementary periods. Otherwise, a trip could be replaced by another
            trip of the same elementary period and leave the release, and the exact total would reveal this. Or a unit
            has the records of a user in one span, and there are several elementary periods. The trips of a user in one
            would then affect which trips in another are counted.
    """
    parts = period.split_into(elementary)
    if not parts:
        message = f"a release of {period} does not consist of whole elementary periods ({elementary}s) of the data set"
        step = "release whole elementary periods, or declare a data set with a shorter elementary period"
        raise OdError("OD-DOMAIN-PERIOD", message, next_step=step)
    if RECORDS_OF[unit].is_of_all_time:
        return (ALL_PERIODS,)
    if RECORDS_OF[unit].span is not None and len(parts) > 1:
        raise OdError(
            "OD-DOMAIN-PERIOD",
            f"a release of {period} spans several elementary periods ({elementary}s), which unit {unit!r} does not"
            " allow",
            next_step="release one elementary period at a time, declare a longer one, or use unit 'user'",
        )
    return tuple(part.text for part in parts)


# What the releases of a year cost a user, for a unit of a year.


Charged = tuple[Mapping[str, Any], Fraction]
"""The :attr:`od_core.privacy.plan.Step.noise_facts` of a step, and the rho of its draws for a user with m trips."""


def is_of_uncounted(facts: Mapping[str, Any]) -> bool:
    """Return whether ``facts``, of a step or of its RESERVED entry, are of the measurement of uncounted trips."""
    return "max_uncounted" in facts


def bound_rho_of_year(
    periods: Iterable[Iterable[Charged]], max_trips: int, max_trips_year: int, max_trips_pair: int | None = None
) -> Fraction:
    """Return an upper bound of the rho that the releases of a year can cost one user.

    Without a pair cap, the bound is the largest cost itself. Charges for uncounted trips add up in full, because a user
    costs them even in periods in which none of the user's trips is counted.

    Args:
        periods: for each elementary period, its charges.
        max_trips, max_trips_year, max_trips_pair: bounds m, M and c of the privacy unit.
    """
    rho_of_uncounted = Fraction(0)
    charges_for_counted: list[list[Charged]] = []
    for charges in periods:
        charges_of_period: list[Charged] = []
        for facts, rho in charges:
            if is_of_uncounted(facts):
                rho_of_uncounted += rho
            else:
                charges_of_period.append((facts, rho))
        charges_for_counted.append(charges_of_period)
    if max_trips_pair is None:
        spent = [sum((rho for _, rho in charges), start=Fraction(0)) for charges in charges_for_counted]
        return rho_of_uncounted + compute_largest_rho(spent, max_trips, max_trips_year)
    costs = (compute_costs_by_trips(charges, max_trips, max_trips_pair) for charges in charges_for_counted)
    return rho_of_uncounted + bound_rho_by_trips(costs, max_trips_year)


Costs = Sequence[Fraction]
"""The rho that releases cost a user with 1, 2, and up to m counted trips, under a pair cap; shape (m,)."""


def compute_costs_by_trips(charges: Iterable[Charged], max_trips: int, max_trips_pair: int) -> Costs:
    """Return the rho that all charges together cost a user with 1, 2, and up to m counted trips; shape (m,).

    Args:
        charges: charges of steps that count nodes; their facts have the sizes of the nodes.
        max_trips, max_trips_pair: bounds m and c of the privacy unit.
    """
    costs = [Fraction(0)] * max_trips
    for facts, rho in charges:
        sizes = tuple((pairs, nodes) for pairs, nodes in facts["node_sizes"])
        shares = _compute_cost_shares(sizes, max_trips, max_trips_pair)
        costs = [cost + rho * share for cost, share in zip(costs, shares, strict=True)]
    return costs


@lru_cache(maxsize=256)
def _compute_cost_shares(nodes: NodeSizes, max_trips: int, max_trips_pair: int) -> Costs:
    """Return the cost for a user with 1, 2, and up to m counted trips, each as a share of that for m; shape (m,).

    The cost is in proportion to the largest sum of squares of the user's counts; see
    :func:`compute_largest_square_sum`.
    """
    square_sums = [compute_largest_square_sum(trips, max_trips_pair, nodes) for trips in range(1, max_trips + 1)]
    return [Fraction(square_sum, square_sums[-1]) for square_sum in square_sums]


def bound_rho_by_trips(spent: Iterable[Costs], max_trips_year: int) -> Fraction:
    """Return a bound of the rho that the releases of a year can cost one user, under a pair cap.

    The bound is the largest cost of M trips, divided among the periods in any way, if the cost of each period is
    replaced by its concave majorant, the least concave function that is never below it. Each further trip is then in
    the period where it costs most.

    Args:
        spent: for each elementary period, what its releases cost.
        max_trips_year: M, the largest number of a user's counted trips in the year.
    """
    slopes = [slope for costs in spent for slope in _iterate_majorant_slopes(costs)]
    steepest = sorted(slopes, reverse=True)[:max_trips_year]
    return sum(steepest, start=Fraction(0))


def _iterate_majorant_slopes(costs: Costs) -> Iterator[Fraction]:
    """Yield, for each of m trips, by how much the concave majorant of the costs of 0, 1, and up to m trips rises.

    The corners of the majorant are found from the left: a corner is dropped if the slope does not fall there.
    """
    corners: list[tuple[int, Fraction]] = [(0, Fraction(0))]  # number of trips, and cost
    for corner in enumerate(costs, start=1):
        while len(corners) > 1 and _compute_slope(corners[-2], corners[-1]) <= _compute_slope(corners[-1], corner):
            corners.pop()
        corners.append(corner)
    for left, right in pairwise(corners):
        (trips_at_left, _), (trips_at_right, _) = left, right
        yield from [_compute_slope(left, right)] * (trips_at_right - trips_at_left)


def _compute_slope(left: tuple[int, Fraction], right: tuple[int, Fraction]) -> Fraction:
    """Return the slope, as cost per trip, between two points (number of trips, cost)."""
    (trips_at_left, cost_at_left), (trips_at_right, cost_at_right) = left, right
    return (cost_at_right - cost_at_left) / (trips_at_right - trips_at_left)


def compute_largest_rho(spent: Iterable[Fraction], max_trips: int, max_trips_year: int) -> Fraction:
    """Return the largest rho that the releases of a year can cost one user, without a pair cap.

    The cost of a period grows with the square of the user's counted trips in it. So a user costs most with m trips in
    each of the costliest periods, and the remaining trips in the next one.

    Args:
        spent: for each elementary period, the rho that its releases cost a user with ``max_trips`` counted trips.
        max_trips: m, the largest number of a user's counted trips in one period.
        max_trips_year: M, the largest number of a user's counted trips in the year; at least m.
    """
    full_periods, remaining_trips = divmod(max_trips_year, max_trips)
    costliest = sorted(spent, reverse=True)
    largest = sum(costliest[:full_periods], start=Fraction(0))
    if full_periods < len(costliest):
        largest += Fraction(remaining_trips, max_trips) ** 2 * costliest[full_periods]
    return largest


def bound_periods_per_year(period: Period) -> int:
    """Return an upper bound of the number of periods of this one's length in a year of the calendar.

    For a length other than a month or a quarter, it is 366 days divided by the days of the period, rounded up.
    """
    if period.length == "month":
        return 12
    if period.length == "quarter":
        return 4
    return math.ceil(366 / period.days)


def list_periods_of_year(period: Period, elementary: Length, year: str) -> tuple[Period, ...]:
    """Return the elementary periods of the year that contains an elementary period.

    ``elementary`` is the length of elementary periods. ``year`` is ``calendar``, or the text of a span of elementary
    periods, such as ``2001-09--2002-08``. The years before and after the span have as many elementary periods as it.
    Raises OdError if a year does not consist of several whole elementary periods.
    """
    if year == CALENDAR:
        return _split_year(Period.from_day(period.first, "year"), elementary)
    declared_year = _split_year(Period(year), elementary)
    length = len(declared_year)
    declared_start = compute_period_number(declared_year[0].first, elementary)
    years_later = (compute_period_number(period.first, elementary) - declared_start) // length
    start = declared_start + years_later * length
    return make_periods(range(start, start + length), elementary)


def name_declared_year(parts: tuple[Period, ...], declared: str) -> str:
    """Return the name of the year with the elementary periods ``parts``: ``2001``, or the span of the periods.

    ``declared`` is the argument ``year`` of :func:`list_periods_of_year`. The name is a span unless it is ``calendar``.
    """
    return f"{parts[0].first.year:04d}" if declared == CALENDAR else f"{parts[0]}--{parts[-1]}"


def _split_year(year: Period, elementary: Length) -> tuple[Period, ...]:
    """Return the elementary periods of a year. Raises OdError unless there are several."""
    parts = year.split_into(elementary)
    if len(parts) < 2:
        raise OdError(
            "OD-DOMAIN-YEAR",
            f"the year {year} does not consist of several whole elementary periods ({elementary}s) of the data set",
            next_step="declare a shorter elementary period, or the first year as a span of elementary periods, such as"
            " 2001-W01--2001-W52",
        )
    return parts
