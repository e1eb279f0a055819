"""Define the privacy domain of a data set: its privacy unit, its elementary period, its years and its cap.

Under unit ``user_year``, a user may have m counted trips in each elementary period, and M in the year. The loss of a
release grows with the square of the user's counted trips in its period. So a user loses most with m trips in the
periods that cost most, until the M trips are used up. ``docs/explanation/person-year.md`` has the proof.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from od_core.errors import OdError
from od_core.periods import LENGTHS, Length, Period, check_time_zone, number_of, numbered
from od_core.privacy.budget import Cap, Spent
from od_core.privacy.unit import PrivacyUnit, UnitKind
from od_core.registry import refuse_unknown

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""Pattern of the names of data sets and of release series."""

ALL_PERIODS = "all"
"""Name of the single period that all releases charge under unit ``user``, because its losses add up over time."""

CALENDAR = "calendar"
"""Name of the years that begin on 1 January."""

_SOME_DAY = datetime.date(2001, 1, 1)
"""A day whose calendar year shows whether the elementary periods fill years; a Monday, for weeks."""


@dataclass(frozen=True)
class PrivacyDomain:
    """The rules for a data set: its privacy unit, its elementary period, and its cap for each elementary period.

    Attributes:
        name: name of the data set. Every release of the data set charges this domain.
        unit: privacy unit and neighbour relation. Each release states its own ``max_trips``, except under unit
            ``user_year``, where all releases have the same.
        cap: largest budget that all releases together may charge to one elementary period; under unit ``user_year``, to
            one year.
        cap_reason: reason for the cap. A changed cap needs a reason that was not given before.
        elementary_period: length of the shortest period that can be released. Unit ``user_period`` protects all trips
            of a user in one such period.
        time_zone: time zone in which the days of all releases begin; None if not stated. It must be the same for all
            releases: with two time zones, one record could be charged to two elementary periods.
        year: under unit ``user_year``, a year as a span of elementary periods, such as ``2001-09--2002-08``, which
            other years precede and follow. If None, years are those of the calendar.

    Raises:
        OdError: the name, elementary period or time zone is not valid, the reason is blank, or a year does not consist
            of several whole elementary periods. Or a year is given, and the unit is not ``user_year``.
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
            raise OdError(
                "OD-DOMAIN-NAME",
                f"the data set name {self.name!r} must contain only lower-case letters, digits and underscores",
                next_step="correct the privacy domain",
            )
        if not self.cap_reason.strip():
            raise OdError("OD-DOMAIN-REASON", "the cap has no reason", next_step="state a reason")
        field, step = "elementary period", "correct the privacy domain"
        refuse_unknown(field, self.elementary_period, LENGTHS, code="OD-DOMAIN-PERIOD", next_step=step)
        if self.time_zone is not None:
            check_time_zone(self.time_zone)
        if self.unit.kind == "user_year":
            day = Period(self.year).first if self.year else _SOME_DAY
            self.periods_of_year(Period.around(day, self.elementary_period))
        elif self.year is not None:
            raise OdError("OD-DOMAIN-YEAR", "a year is for unit 'user_year' only", next_step=step)

    def periods_of_year(self, period: Period) -> tuple[Period, ...]:
        """Return the elementary periods of the year that contains an elementary period, under unit ``user_year``."""
        return year_of(period, self.elementary_period, self.year or CALENDAR)

    def facts(self) -> dict[str, str | int | None]:
        """Return the facts that must not change once the domain is declared, as JSON-ready values."""
        zone = {} if self.time_zone is None else {"time_zone": self.time_zone}
        year = {"year": self.year or CALENDAR} if self.unit.kind == "user_year" else {}
        return {**unit_facts(self.unit), "elementary_period": self.elementary_period, **zone, **year}


def unit_facts(unit: PrivacyUnit) -> dict[str, str | int | None]:
    """Return the facts of a unit that all releases of a domain share.

    ``max_trips`` and ``max_weight`` may differ, except under unit ``user_year``: a user's trips of a period are bounded
    once for all releases that count them.
    """
    facts = {"unit": unit.kind, "neighbours": unit.neighbours, "column": unit.column}
    bound = {"max_trips": unit.max_trips} if unit.kind == "user_year" else {}
    return {**facts, **bound, **unit.year_facts()}


def charged_periods(period: Period, elementary: Length, unit: UnitKind) -> tuple[str, ...]:
    """Return the texts of all elementary periods that a release of a period charges.

    Losses of different elementary periods do not add up, because they concern different trips, or different pairs of
    user and period. Under unit ``user`` they do add up, so every release charges the one period ``ALL_PERIODS``. Under
    unit ``user_year``, those of a year add up as :func:`largest_rho` defines.

    Raises:
        OdError: the period does not consist of whole elementary periods. Otherwise, a trip could be replaced by another
            trip of the same elementary period and leave the release, and the exact total would reveal this. Or the unit
            is ``user_period`` or ``user_year``, and there are several elementary periods. The trips of a user in one
            would then affect which trips in another are counted.
    """
    parts = period.parts(elementary)
    if not parts:
        raise OdError(
            "OD-DOMAIN-PERIOD",
            f"a release of {period} does not consist of whole elementary periods ({elementary}s) of the data set",
            next_step="release whole elementary periods, or declare a data set with a shorter elementary period",
        )
    if unit == "user":
        return (ALL_PERIODS,)
    if unit in ("user_period", "user_year") and len(parts) > 1:
        raise OdError(
            "OD-DOMAIN-PERIOD",
            f"a release of {period} spans several elementary periods ({elementary}s), which unit {unit!r} does not"
            " allow",
            next_step="release one elementary period at a time, declare a longer one, or use unit 'user'",
        )
    return tuple(part.text for part in parts)


# What the releases of a year cost a user, for unit `user_year`.


def largest_rho(spent: Iterable[Fraction], max_trips: int, max_trips_year: int) -> Fraction:
    """Return the largest rho that the releases of a year can cost one user.

    Args:
        spent: for each elementary period, the rho that its releases cost a user with ``max_trips`` counted trips.
        max_trips: m, the largest number of a user's counted trips in one period.
        max_trips_year: M, the largest number of a user's counted trips in the year; at least m.
    """
    periods, remaining_trips = divmod(max_trips_year, max_trips)
    costly = sorted(spent, reverse=True)
    last = sum(costly[periods : periods + 1], start=Fraction(0))
    return sum(costly[:periods], start=Fraction(0)) + Fraction(remaining_trips, max_trips) ** 2 * last


def equal_periods(unit: PrivacyUnit, periods: int | None = None) -> Fraction:
    """Return :func:`largest_rho` of a year of ``user_year`` with so many periods, which cost rho 1 each.

    By default, there are so many periods that further ones do not cost more.
    """
    m, most = unit.contribution_bound, unit.max_trips_year or 0
    return largest_rho([Fraction(1)] * (most // m + 1 if periods is None else periods), m, most)


def alike(unit: PrivacyUnit, spent: Spent, periods: int) -> Fraction:
    """Return the rho of a year of releases that all spend the same, one in each period."""
    return equal_periods(unit, periods) * (spent.rho - spent.every_period) + periods * spent.every_period


def most_in_a_year(period: Period) -> int:
    """Return the largest number of elementary periods like this one that a year of the calendar has."""
    fixed = {"month": 12, "quarter": 4}
    return fixed.get(period.length or "", -(-366 // (period.end - period.first).days))


def year_of(period: Period, elementary: Length, year: str) -> tuple[Period, ...]:
    """Return the elementary periods of the year that contains an elementary period.

    ``year`` is ``calendar``, or the text of a span of elementary periods, such as ``2001-09--2002-08``. The years
    before and after the span have the same number of elementary periods. Raises OdError if a year does not consist of
    whole elementary periods, or of only one.
    """
    if year == CALENDAR:
        return _parts(Period.around(period.first, "year"), elementary)
    parts = _parts(Period(year), elementary)
    first, size = number_of(parts[0].first, elementary), len(parts)
    start = first + (number_of(period.first, elementary) - first) // size * size
    return numbered(range(start, start + size), elementary)


def year_text(parts: tuple[Period, ...], year: str) -> str:
    """Return the name of a year of :func:`year_of`: ``2001``, or the span of its elementary periods."""
    return f"{parts[0].first.year:04d}" if year == CALENDAR else f"{parts[0]}--{parts[-1]}"


def _parts(year: Period, elementary: Length) -> tuple[Period, ...]:
    """Return the elementary periods of a year. Raises OdError unless there are several."""
    parts = year.parts(elementary)
    if len(parts) < 2:
        raise OdError(
            "OD-DOMAIN-YEAR",
            f"the year {year} does not consist of several whole elementary periods ({elementary}s) of the data set",
            next_step="declare a shorter elementary period, or the first year as a span of elementary periods, such as"
            " 2001-W01--2001-W52",
        )
    return parts
