"""The periods of a series as Dagster's partitions."""

import datetime
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_assets.series.partitions import SeriesPeriods
from od_core import OdError
from od_core.periods import LENGTHS, Period

ROME = "Europe/Rome"
FIRST = {"day": "2001-06-30", "week": "2001-W26", "month": "2001-06", "quarter": "2001-Q2", "year": "2001"}


def series(every: str, first: str, last: str | None = None, zone: str = "UTC") -> SeriesPeriods:
    return SeriesPeriods(every, Period(first), None if last is None else Period(last), zone)


@pytest.mark.parametrize("every", LENGTHS)
@given(days=st.integers(0, 900))
def test_the_partitions_of_dagster_are_the_periods_that_have_ended(every, days):
    """Dagster makes its keys with a cron line and names of days, the periods come from the calendar."""
    periods = series(every, FIRST[every], zone=ROME)
    now = datetime.datetime(2001, 6, 30, 12, tzinfo=ZoneInfo(ROME)) + datetime.timedelta(days=days)
    expected, period = [], Period(FIRST[every])
    while period.end <= now.date():
        expected.append(period)
        period = Period.from_day(period.end, every)
    assert periods.list_ended_periods(now) == expected
    keys = periods.make_partitions_definition().get_partition_keys(current_time=now)
    assert [periods.format_partition(each) for each in expected] == keys
    assert [periods.parse_partition(key) for key in keys] == expected
    assert periods.find_last_ended_period(now) == (expected[-1] if expected else None)


@pytest.mark.parametrize(
    ("every", "last", "number"),
    [("day", "2001-07-02", 3), ("week", "2002-W01", 28), ("month", "2001-12", 7), ("quarter", "2002-Q1", 4)],
)
def test_a_series_that_ends(every, last, number):
    periods = series(every, FIRST[every], last)
    assert (periods.list_ended_periods()[-1].text, len(periods.list_ended_periods())) == (last, number)
    assert len(periods.make_partitions_definition().get_partition_keys()) == number
    just_after = datetime.datetime.combine(Period(last).end, datetime.time(6), datetime.UTC)
    assert periods.find_last_ended_period(just_after) == Period(last)
    assert periods.find_last_ended_period(just_after + datetime.timedelta(days=100)) is None


def test_a_day_ends_when_it_ends_in_its_time_zone():
    late = datetime.datetime(2001, 7, 1, 5, tzinfo=datetime.UTC)  # one in the morning in New York
    assert series("month", "2001-06", zone="America/New_York").list_ended_periods(late) == [Period("2001-06")]
    assert series("month", "2001-06", zone="America/Los_Angeles").list_ended_periods(late) == []
    assert series("month", "2001-06", zone="America/Los_Angeles").find_last_ended_period(late) is None


def test_a_day_whose_midnight_the_clock_skips_begins_for_dagster_when_it_begins():
    """In Brazil, the clock went from midnight to one on 4 November 2018, which is three in the morning of UTC."""
    periods = series("day", "2018-11-01", zone="America/Sao_Paulo")
    for minutes in (-1, 0, 1):
        now = datetime.datetime(2018, 11, 4, 3, tzinfo=datetime.UTC) + datetime.timedelta(minutes=minutes)
        keys = periods.make_partitions_definition().get_partition_keys(current_time=now)
        assert [period.text for period in periods.list_ended_periods(now)] == keys
        assert len(keys) == (2 if minutes < 0 else 3)


def test_a_single_release_of_a_span():
    periods = series("single", "2018-01--2020-12")
    assert isinstance(periods.make_partitions_definition(), dg.StaticPartitionsDefinition)
    assert [period.text for period in periods.list_ended_periods()] == ["2018-01--2020-12"]
    assert periods.parse_partition(periods.format_partition(periods.first)) == periods.first
    before = datetime.datetime(2020, 12, 31, 23, tzinfo=datetime.UTC)
    assert (periods.list_ended_periods(before), periods.find_last_ended_period(before)) == ([], None)
    assert periods.find_last_ended_period(before + datetime.timedelta(hours=1)) == periods.first


@pytest.mark.parametrize(
    ("every", "first", "last", "zone", "said"),
    [
        ("fortnight", "2001-06", None, "UTC", "every cannot be 'fortnight'"),
        ("month", "2001", None, "UTC", "2001 is not a month"),
        ("month", "2001-06", "2001-06-30", "UTC", "2001-06-30 is not a month"),
        ("week", "2001-06", None, "UTC", "2001-06 is not a week"),
        ("month", "2001-06", "2001-05", "UTC", "2001-05 is before the first period 2001-06"),
        ("single", "2001", "2002", "UTC", "leave out last"),
        ("month", "2001-06", None, "Europe/Roma", "no time zone 'Europe/Roma' (did you mean 'Europe/Rome'?)"),
        ("month", "2001-06", None, "../etc/passwd", "no time zone"),
        ("month", "1492-10", None, "UTC", "outside the years 1900 to 2199"),
    ],
)
def test_what_are_no_periods(every, first, last, zone, said):
    with pytest.raises(OdError, match=r"OD-PERIOD|OD-TIME-ZONE") as refused:
        series(every, first, last, zone)
    assert said in str(refused.value)
