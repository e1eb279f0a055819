"""The privacy domain, and the elementary periods that a release charges, against the standard library's calendar."""

from __future__ import annotations

import datetime
from fractions import Fraction

import pytest

from od_core import OdError, PrivacyUnit
from od_core.periods import Period
from od_core.privacy.cap import Cap
from od_core.privacy.domain import PrivacyDomain, charged_periods

CAP = Cap(rho=Fraction(1))


def days(first: str, last: str) -> tuple[str, ...]:
    start, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
    return tuple((start + datetime.timedelta(days=k)).isoformat() for k in range((end - start).days + 1))


@pytest.mark.parametrize("unit", ["trip", "user_period"])
@pytest.mark.parametrize(
    ("period", "elementary", "charged"),
    [
        ("2001-06", "month", ("2001-06",)),
        ("2001", "month", tuple(f"2001-{month:02d}" for month in range(1, 13))),
        ("2001-06-30", "day", ("2001-06-30",)),
        ("2000-02", "day", days("2000-02-01", "2000-02-29")),
        ("1900-02", "day", days("1900-02-01", "1900-02-28")),
        ("2004", "day", days("2004-01-01", "2004-12-31")),
        ("2001-W23", "day", days("2001-06-04", "2001-06-10")),
        ("2001-W23", "week", ("2001-W23",)),
        ("2001-W52--2002-W01", "week", ("2001-W52", "2002-W01")),
        ("2001-Q4", "month", ("2001-10", "2001-11", "2001-12")),
        ("2000--2001", "quarter", tuple(f"{year}-Q{quarter}" for year in (2000, 2001) for quarter in (1, 2, 3, 4))),
    ],
)
def test_a_release_charges_every_elementary_period_that_it_touches(unit, period, elementary, charged):
    """Under ``user_period`` it may touch one alone."""
    if unit == "user_period" and len(charged) > 1:
        with pytest.raises(OdError, match="OD-DOMAIN-PERIOD: a release of"):
            charged_periods(Period(period), elementary, unit)
        return
    assert charged_periods(Period(period), elementary, unit) == charged


@pytest.mark.parametrize("unit", ["trip", "user", "user_period"])
@pytest.mark.parametrize(
    ("period", "elementary"),
    [
        ("2001-06-30", "month"),
        ("2001-06-30", "year"),
        ("2001-06", "year"),
        ("2001-W23", "month"),
        ("2001-06", "week"),
        ("2001-02--2001-06", "quarter"),
        ("2001-01--2001-05", "quarter"),
    ],
)
def test_every_release_is_made_of_whole_elementary_periods(unit, period, elementary):
    """Else a trip of January may be replaced by one of February, and the exact n of January tells."""
    with pytest.raises(OdError, match=r"OD-DOMAIN-PERIOD: a release of .* does not consist of whole"):
        charged_periods(Period(period), elementary, unit)


@pytest.mark.parametrize("period", ["2001", "2001-06"])
def test_a_user_is_protected_for_ever(period):
    """Whatever the period, the losses of a user add up."""
    assert charged_periods(Period(period), "month", "user") == ("all",)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "Trips"}, "OD-DOMAIN-NAME"),
        ({"cap_reason": " "}, "OD-DOMAIN-REASON"),
        ({"elementary_period": "mont"}, "month"),
        ({"time_zone": "Europe/Roma"}, "OD-TIME-ZONE"),
    ],
)
def test_a_domain_cannot_be_built_wrong(change, code):
    given = {"name": "trips", "unit": PrivacyUnit("trip"), "cap": CAP, "cap_reason": "why", **change}
    with pytest.raises(OdError, match=code):
        PrivacyDomain(**given)


def test_a_data_set_has_one_time_zone():
    """In two, one record could lie in two periods, and be charged to the cap of each."""
    given = {"name": "trips", "unit": PrivacyUnit("trip"), "cap": CAP, "cap_reason": "why"}
    zones = [PrivacyDomain(**given, time_zone=zone).facts().get("time_zone") for zone in (None, "UTC", "Europe/Rome")]
    assert zones == [None, "UTC", "Europe/Rome"]
    assert "time_zone" not in PrivacyDomain(**given).facts()  # as in ledgers of before
