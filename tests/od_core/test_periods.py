"""Periods against pandas' calendar, which knows days, months, quarters and years, and ISO weeks by their Mondays."""

import datetime
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import OdError
from od_core.ledger.release_key import ReleaseKey, select_earlier_releases
from od_core.periods import LENGTHS, Period

PANDAS = {"day": "D", "week": "W-SUN", "month": "M", "quarter": "Q", "year": "Y"}
DAYS = st.dates(datetime.date(1900, 1, 1), datetime.date(2199, 12, 31))


@given(DAYS, st.sampled_from(LENGTHS))
def test_the_period_around_a_day_is_that_of_pandas(day, length):
    period, expected = Period.from_day(day, length), pd.Period(day, PANDAS[length])
    assert (period.length, Period(period.text)) == (length, period)
    assert period.first == expected.start_time.date()
    assert period.end == (expected.end_time + pd.Timedelta(1, "D")).date()
    assert period.days == len(pd.date_range(expected.start_time, expected.end_time, freq="D"))


@pytest.mark.parametrize(
    ("text", "first", "end"),
    [
        ("2001", "2001-01-01", "2002-01-01"),
        ("2001-Q4", "2001-10-01", "2002-01-01"),
        ("2000-02", "2000-02-01", "2000-03-01"),
        ("1900-02", "1900-02-01", "1900-03-01"),
        ("2001-12", "2001-12-01", "2002-01-01"),
        ("2001-12-31", "2001-12-31", "2002-01-01"),
        ("2020-W53", "2020-12-28", "2021-01-04"),
        ("2018-01--2020-12", "2018-01-01", "2021-01-01"),
        ("2001-06-03--2001-06-04", "2001-06-03", "2001-06-05"),
        ("2001-W01--2001-W02", "2001-01-01", "2001-01-15"),
    ],
)
def test_first_and_last_day(text, first, end):
    period = Period(text)
    assert (period.first.isoformat(), period.end.isoformat()) == (first, end)
    assert (period.length is None) == ("--" in text)
    assert ReleaseKey.parse(f"trips/{text}/r1").period == text


@given(DAYS, st.integers(0, 400), st.sampled_from(LENGTHS))
def test_parts_are_whole_and_follow_one_another(day, more, length):
    period = Period(f"{day}--{day + datetime.timedelta(days=more)}") if more else Period(day.isoformat())
    around = [Period.from_day(each, length) for each in (period.first, period.end - datetime.timedelta(days=1))]
    whole = around[0].first == period.first and around[1].end == period.end
    parts = period.split_into(length)
    assert bool(parts) == whole
    if whole:
        assert (parts[0], parts[-1]) == tuple(around)
        assert all(before.end == after.first for before, after in pairwise(parts))


@pytest.mark.parametrize(
    "text",
    [
        *("", "all", "01", "2001-6", "2001-00", "2001-13", "2001-02-29", "2001-W00", "2001-W53", "2001-Q0", "2001-Q5"),
        *("2001-W1", "2001-06/2001-07", "2001-06--", "--2001-06", "2001-06--2001-06", "2001-06--2001-05"),
        *(
            "2001--2002-06",
            "2001-01--2001-02--2001-03",
            " 2001",
            "2001\n",
            "\uff12\uff10\uff10\uff11",
            "9999",
            "9999-12-31",
            "0000",
        ),
    ],
)
def test_what_is_no_period(text):
    with pytest.raises(OdError, match="OD-PERIOD-TEXT") as refused:
        Period(text)
    assert "\n" not in str(refused.value)
    with pytest.raises(OdError):
        ReleaseKey("trips", text)


def test_only_a_period_that_has_ended_is_before_another():
    """The year with a month, and a span with its last month, are not, whatever the order of their texts."""
    texts = ("2000", "2001", "2001-05", "2001-Q1", "2001-04--2001-06", "2001-12", "2002-01")
    keys = [ReleaseKey("a", text) for text in texts] + [ReleaseKey("a", "2001-05", 2)]
    newest_first = ["2001-05/r2", "2001-05/r1", "2001-Q1/r1", "2000/r1"]
    assert [str(key)[2:] for key in select_earlier_releases(ReleaseKey("a", "2001-06"), keys)] == newest_first
    assert str(select_earlier_releases(ReleaseKey("a", "2002-01"), keys)[0]) == "a/2001-12/r1"
