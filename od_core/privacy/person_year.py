"""Bound what all releases of a year cost a user whose trips are bounded in each period and in the whole year.

A user may have m counted trips in each elementary period, and M in the year. The loss of a release grows with the
square of the user's counted trips in its period. So a user loses most with m trips in the periods that cost most, until
the M trips are used up. ``docs/explanation/person-year.md`` has the proof.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from fractions import Fraction
from itertools import islice

from od_core.errors import OdError
from od_core.periods import Length, Period, following
from od_core.privacy.budget import Spent
from od_core.privacy.unit import PrivacyUnit

CALENDAR = "calendar"
"""Name of the years that begin on 1 January."""


def largest_rho(spent: Iterable[Fraction], max_trips: int, max_trips_year: int) -> Fraction:
    """Return the largest rho that the releases of a year can cost one user.

    Args:
        spent: for each elementary period, the rho that its releases cost a user with ``max_trips`` counted trips.
        max_trips: m, the largest number of a user's counted trips in one period.
        max_trips_year: M, the largest number of a user's counted trips in the year; at least m.
    """
    periods, rest = divmod(max_trips_year, max_trips)
    costly = sorted(spent, reverse=True)
    last = sum(costly[periods : periods + 1], start=Fraction(0))
    return sum(costly[:periods], start=Fraction(0)) + Fraction(rest, max_trips) ** 2 * last


def equal_periods(unit: PrivacyUnit, periods: int | None = None) -> Fraction:
    """Return :func:`largest_rho` of a year of ``user_year`` with so many periods, which cost rho 1 each.

    By default, there are so many periods that further ones do not cost more.
    """
    m, most = unit.contribution_bound, unit.max_trips_year or 0
    return largest_rho([Fraction(1)] * (most // m + 1 if periods is None else periods), m, most)


def alike(unit: PrivacyUnit, spent: Spent, periods: int) -> Fraction:
    """Return the rho of a year with so many periods if each is released once and spends the same."""
    return equal_periods(unit, periods) * (spent.rho - spent.every_period) + periods * spent.every_period


def most_in_a_year(period: Period) -> int:
    """Return the largest number of elementary periods like this one that a year of the calendar has."""
    fixed = {"month": 12, "quarter": 4}
    return fixed.get(period.length or "", -(-366 // (period.end - period.first).days))


def year_of(period: Period, elementary: Length, year: str) -> tuple[Period, ...]:
    """Return the elementary periods of the year that contains an elementary period.

    Args:
        period, elementary: an elementary period and its length.
        year: ``calendar``, or the text of a span of elementary periods, such as ``2001-09--2002-08``. The years before
            and after the span have the same number of elementary periods.

    Raises:
        OdError: a year does not consist of whole elementary periods, or of only one.
    """
    if year == CALENDAR:
        return _parts(Period.around(period.first, "year"), elementary)
    parts = _parts(Period(year), elementary)
    while period.first >= parts[-1].end:
        parts = tuple(islice(following(parts[-1].end, elementary), len(parts)))
    while period.first < parts[0].first:
        earlier = [parts[0]]
        while len(earlier) <= len(parts):
            earlier.insert(0, Period.around(earlier[0].first - datetime.timedelta(days=1), elementary))
        parts = tuple(earlier[:-1])
    return parts


def year_text(parts: tuple[Period, ...], year: str) -> str:
    """Return the name of a year of :func:`year_of`: ``2001``, or the span of its elementary periods."""
    return f"{parts[0].first.year:04d}" if year == CALENDAR else f"{parts[0]}--{parts[-1]}"


def _parts(year: Period, elementary: Length) -> tuple[Period, ...]:
    parts = year.parts(elementary)
    if len(parts) < 2:
        raise OdError(
            "OD-DOMAIN-YEAR",
            f"the year {year} does not consist of several whole elementary periods ({elementary}s) of the data set",
            next_step="declare a shorter elementary period, or the first year as a span of elementary periods, such as"
            " 2001-W01--2001-W52",
        )
    return parts
