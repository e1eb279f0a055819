"""The privacy domain, and the elementary periods that a release charges, against the standard library's calendar."""

import datetime
import itertools
from fractions import Fraction

import pytest

from od_core import Cap, OdError, PrivacyUnit
from od_core.periods import Period
from od_core.privacy.domain import (
    CALENDAR,
    PrivacyDomain,
    list_charged_periods,
    list_periods_of_year,
    name_declared_year,
)

DAY = datetime.timedelta(days=1)
CAP = Cap(rho=Fraction(1))
USER_YEAR = PrivacyUnit("user_year", "bounded", "id", 2, max_trips_year=5, id_pattern="[0-9]+")


def days(first: str, last: str) -> tuple[str, ...]:
    start, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
    return tuple((start + datetime.timedelta(days=k)).isoformat() for k in range((end - start).days + 1))


@pytest.mark.parametrize("unit", ["trip", "user_period", "user_year"])
@pytest.mark.parametrize(
    ("period", "elementary", "charged"),
    [
        ("2001-06", "month", ("2001-06",)),
        ("2001", "month", tuple(f"2001-{month:02d}" for month in range(1, 13))),
        ("2001-06-30", "day", ("2001-06-30",)),
        ("2000-02", "day", days("2000-02-01", "2000-02-29")),
        ("2004", "day", days("2004-01-01", "2004-12-31")),
        ("2001-W23", "week", ("2001-W23",)),
        ("2001-W52--2002-W01", "week", ("2001-W52", "2002-W01")),
        ("2001-Q4", "month", ("2001-10", "2001-11", "2001-12")),
        ("2000--2001", "quarter", tuple(f"{year}-Q{quarter}" for year in (2000, 2001) for quarter in (1, 2, 3, 4))),
    ],
)
def test_a_release_charges_every_elementary_period_that_it_touches(unit, period, elementary, charged):
    """Under ``user_period`` and ``user_year`` it may touch one alone."""
    if unit != "trip" and len(charged) > 1:
        with pytest.raises(OdError, match="OD-DOMAIN-PERIOD: a release of"):
            list_charged_periods(Period(period), elementary, unit)
        return
    assert list_charged_periods(Period(period), elementary, unit) == charged


@pytest.mark.parametrize("unit", ["trip", "user", "user_period", "user_year"])
@pytest.mark.parametrize(
    ("period", "elementary"),
    [
        ("2001-06-30", "month"),
        ("2001-06", "year"),
        ("2001-W23", "month"),
        ("2001-06", "week"),
        ("2001-02--2001-06", "quarter"),
    ],
)
def test_every_release_is_made_of_whole_elementary_periods(unit, period, elementary):
    """Else a trip of January may be replaced by one of February, and the exact n of January tells."""
    with pytest.raises(OdError, match=r"OD-DOMAIN-PERIOD: a release of .* does not consist of whole"):
        list_charged_periods(Period(period), elementary, unit)


@pytest.mark.parametrize("period", ["2001", "2001-06"])
def test_a_user_is_protected_for_ever(period):
    """Whatever the period, the losses of a user add up."""
    assert list_charged_periods(Period(period), "month", "user") == ("all",)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "Trips"}, "OD-DOMAIN-NAME"),
        ({"cap_reason": " "}, "OD-DOMAIN-REASON"),
        ({"elementary_period": "mont"}, "month"),
        ({"time_zone": "Europe/Roma"}, "OD-TIME-ZONE"),
        ({"year": "2001-09--2002-08"}, "OD-DOMAIN-YEAR: unit 'trip' has no year"),
    ],
)
def test_a_domain_cannot_be_built_wrong(change, code):
    given = {"name": "trips", "unit": PrivacyUnit("trip"), "cap": CAP, "cap_reason": "why", **change}
    with pytest.raises(OdError, match=code):
        PrivacyDomain(**given)


def domain_of_years(elementary="month", year=None, unit=USER_YEAR):
    return PrivacyDomain("trips", unit, CAP, "why", elementary, year=year)


@pytest.mark.parametrize(
    ("elementary", "year"),
    [
        ("day", None),
        ("month", None),
        ("month", "2001-09--2002-08"),
        ("week", "2001-W01--2001-W52"),
        ("week", "2001-W36--2002-W35"),
        ("day", "2001-09-01--2002-08-31"),
        ("quarter", "2001-Q2--2002-Q1"),
        ("year", "2001--2004"),
        ("month", "2001"),
    ],
)
def test_a_year_is_a_calendar_year_or_a_span_of_elementary_periods(elementary, year):
    facts = domain_of_years(elementary, year).facts()
    assert facts["year"] == (year or "calendar")
    bounds = {name: facts[name] for name in ("unit", "max_trips", "max_trips_year", "id_pattern")}
    assert bounds == {"unit": "user_year", "max_trips": 2, "max_trips_year": 5, "id_pattern": "[0-9]+"}


@pytest.mark.parametrize(
    ("elementary", "year"),
    [
        ("week", None),
        ("year", None),
        ("week", "2001-09--2002-08"),
        ("week", "2001"),
        ("month", "2001-06"),
        ("year", "2001"),
    ],
)
def test_a_year_of_no_whole_elementary_periods_is_refused(elementary, year):
    with pytest.raises(OdError, match=r"OD-DOMAIN-YEAR: the year .* does not consist of several whole") as refused:
        domain_of_years(elementary, year)
    assert "2001-W01--2001-W52" in refused.value.next_step


# elementary period, year, period: name, number of elementary periods, first and last of its year
YEARS = [
    ("month", CALENDAR, "2001-06", "2001", 12, "2001-01", "2001-12"),
    ("quarter", CALENDAR, "1999-Q4", "1999", 4, "1999-Q1", "1999-Q4"),
    ("day", CALENDAR, "2004-02-29", "2004", 366, "2004-01-01", "2004-12-31"),
    ("month", "2001-09--2002-08", "2002-08", "2001-09--2002-08", 12, "2001-09", "2002-08"),
    ("month", "2001-09--2002-08", "2002-09", "2002-09--2003-08", 12, "2002-09", "2003-08"),
    ("month", "2001-09--2002-08", "2001-08", "2000-09--2001-08", 12, "2000-09", "2001-08"),
    ("month", "2001-09--2002-08", "1991-09", "1991-09--1992-08", 12, "1991-09", "1992-08"),
    ("quarter", "2001-Q2--2002-Q1", "2002-Q2", "2002-Q2--2003-Q1", 4, "2002-Q2", "2003-Q1"),
    ("week", "2001-W01--2001-W52", "2002-W01", "2002-W01--2002-W52", 52, "2002-W01", "2002-W52"),
    ("week", "2004-W01--2004-W52", "2004-W53", "2004-W53--2005-W51", 52, "2004-W53", "2005-W51"),
    ("week", "2001-W01--2001-W52", "2000-W52", "2000-W01--2000-W52", 52, "2000-W01", "2000-W52"),
    ("day", "2003-03-01--2004-02-28", "2004-02-29", "2004-02-29--2005-02-27", 365, "2004-02-29", "2005-02-27"),
    ("day", "2004-01-01--2004-12-31", "2003-12-31", "2002-12-31--2003-12-31", 366, "2002-12-31", "2003-12-31"),
    ("month", "2001", "2000-12", "2000-01--2000-12", 12, "2000-01", "2000-12"),
]


@pytest.mark.parametrize(("elementary", "year", "period", "name", "number", "first", "last"), YEARS)
def test_every_elementary_period_is_of_one_year(elementary, year, period, name, number, first, last):
    parts = list_periods_of_year(Period(period), elementary, year)
    assert (name_declared_year(parts, year), len(parts), parts[0].text, parts[-1].text) == (name, number, first, last)
    assert Period(period) in parts
    assert all(list_periods_of_year(part, elementary, year) == parts for part in (parts[0], parts[-1]))


@pytest.mark.parametrize(
    ("elementary", "year"),
    [("week", "2001-W36--2002-W35"), ("day", "2003-03-01--2004-02-28"), ("month", "2001-09--2002-08")],
)
def test_the_years_of_a_span_are_consecutive(elementary, year):
    """From five years before the span until five years after, without a gap."""
    parts = list_periods_of_year(Period(year.partition("--")[0]), elementary, year)
    years = [parts]
    for _ in range(5):
        years.insert(0, list_periods_of_year(Period.from_day(years[0][0].first - DAY, elementary), elementary, year))
        years.append(list_periods_of_year(Period.from_day(years[-1][-1].end, elementary), elementary, year))
    for one, later in itertools.pairwise(years):
        assert one[-1].end == later[0].first
        assert len(one) == len(later) == len(parts)
