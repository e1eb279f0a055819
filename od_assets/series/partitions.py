"""Map the periods of a series to Dagster's partitions, and find the ended periods."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from od_core.errors import OdError, suggest_known_names
from od_core.periods import LENGTHS, Length, Period, check_time_zone, compute_period_number, make_periods

if TYPE_CHECKING:
    import dagster as dg

PERIODS, SERIES = "period", "series"
"""Names of the dimensions of partitions where several series share their assets."""

SINGLE = "single"
"""Value of ``every`` for a series with one release, whose period may have any length."""

CRON: dict[Length, str] = {
    "day": "0 0 * * *",
    "week": "0 0 * * 1",
    "month": "0 0 1 * *",
    "quarter": "0 0 1 1,4,7,10 *",
    "year": "0 0 1 1 *",
}
"""Cron lines of the times at which periods of each length begin."""

_KEY_FORMATS: dict[Length, str] = {
    "day": "%Y-%m-%d",
    "week": "%G-W%V-%u",
    "month": "%Y-%m",
    "quarter": "%Y-%m",
    "year": "%Y",
}
"""Formats of partition keys, applied to the first day of a period. Dagster must be able to parse that day from the key.
"""

_YEARS = range(1900, 2200)
"""Years in which periods may begin: a year far outside them is a misprint, and would make thousands of partitions."""


@dataclass(frozen=True)
class SeriesPeriods:
    """The periods of a series: consecutive periods of one length, or a single period.

    Attributes:
        every: length of the periods, or ``single``.
        first: first period; for a single release, its period.
        last: last period; None for a series without an end.
        time_zone: time zone in which days begin; None if it is not stated.

    Raises:
        OdError: the length or the time zone is unknown; first and last do not have that length, are not in this order,
            or are outside the years 1900 to 2199; or a single release has a last period.
    """

    every: str
    first: Period
    last: Period | None
    time_zone: str | None

    def __post_init__(self) -> None:
        lengths = (*LENGTHS, SINGLE)
        if self.every not in lengths:
            raise _make_period_error(f"every cannot be {self.every!r} ({suggest_known_names(self.every, lengths)})")
        if self.time_zone is not None:
            check_time_zone(self.time_zone)
        for period in filter(None, (self.first, self.last)):
            if period.first.year not in _YEARS:
                raise _make_period_error(f"{period} is outside the years 1900 to 2199")
            if self.every not in (SINGLE, period.length):
                raise _make_period_error(f"{period} is not a {self.every}")
        if self.last is not None and self.last.first < self.first.first:
            raise _make_period_error(f"the last period {self.last} is before the first period {self.first}")
        if self.every == SINGLE and self.last is not None:
            raise _make_period_error(
                "a single release has only one period, first, such as 2024-01--2024-03: leave out last"
            )

    @property
    def dagster_time_zone(self) -> str:
        """Time zone in which Dagster's days begin: the stated one, otherwise UTC."""
        return self.time_zone or "UTC"

    def make_partitions_definition(self, series: Sequence[str] = ()) -> dg.PartitionsDefinition:
        """Return the Dagster partitions. For a series without an end, they grow with every period that ends.

        If several series share these periods and their assets, each is a partition beside the periods.
        """
        import dagster as dg  # takes a second, and most commands need the periods alone

        if series:
            names = dg.StaticPartitionsDefinition(series)
            return dg.MultiPartitionsDefinition({PERIODS: self.make_partitions_definition(), SERIES: names})
        length = self._length
        if length is None:
            return dg.StaticPartitionsDefinition([self.first.text])
        return dg.TimeWindowPartitionsDefinition(
            start=self.first.first.strftime(_KEY_FORMATS[length]),
            end=None if self.last is None else self.last.end.strftime(_KEY_FORMATS[length]),
            fmt=_KEY_FORMATS[length],
            cron_schedule=CRON[length],
            timezone=self.dagster_time_zone,
        )

    def format_partition(self, period: Period, series: str | None = None) -> str:
        """Return Dagster's partition key of a period, combined with the name of a series if one is given.

        Only a series that shares its assets with others has its name in the key.
        """
        key = period.text if self._length is None else period.first.strftime(_KEY_FORMATS[self._length])
        if series is None:
            return key
        import dagster as dg

        return dg.MultiPartitionKey({PERIODS: key, SERIES: series})

    def parse_partition(self, partition: str) -> Period:
        """Return the period of Dagster's partition key."""
        return parse_partition_key(partition, self.every)

    def list_ended_periods(self, moment: datetime.datetime | None = None) -> list[Period]:
        """Return the periods that have ended by a moment (now by default), oldest first.

        They are the periods of Dagster's partition keys, which Dagster takes ten times as long to list.
        """
        day = self.convert_to_day(moment or datetime.datetime.now(datetime.UTC))
        return self._list_periods_until(day if self.last is None else min(day, self.last.end))

    def list_declared_periods(self) -> list[Period]:
        """Return all periods, oldest first; for a series without an end, those that have ended."""
        if self.last is None and self._length is not None:
            return self.list_ended_periods()
        return self._list_periods_until((self.last or self.first).end)

    def _list_periods_until(self, day: datetime.date) -> list[Period]:
        """Return the periods that have ended on a day, oldest first."""
        if self._length is None:
            return [self.first] if self.first.end <= day else []
        first = compute_period_number(self.first.first, self._length)
        end = compute_period_number(day, self._length)
        return list(make_periods(range(first, end), self._length))

    def find_last_ended_period(self, moment: datetime.datetime) -> Period | None:
        """Return the period that ended last before a moment; None if the series has not begun or is over by then.

        For a series with a single period, that period is returned at any moment after its end.
        """
        newest = next(reversed(self.list_ended_periods(moment)), None)
        if newest is None or self._length is None:
            return newest
        following = Period.from_day(newest.end, self._length)  # not in the series if it has ended, too
        is_over = following.end <= self.convert_to_day(moment)
        return None if is_over else newest

    def convert_to_day(self, moment: datetime.datetime) -> datetime.date:
        """Return the day of a moment in the time zone of the series."""
        return moment.astimezone(ZoneInfo(self.dagster_time_zone)).date()

    @property
    def _length(self) -> Length | None:
        """Length of the periods; None for a single release, whose period may have any length."""
        return _find_length(self.every)


def parse_partition_key(partition: str, every: str) -> Period:
    """Return the period of Dagster's partition key; ``every`` is the length of the series' periods, or ``single``."""
    partition, _ = split_partition_key(partition)
    length = _find_length(every)
    if length is None:
        return Period(partition)
    day = datetime.datetime.strptime(partition, _KEY_FORMATS[length])  # dates only, without a time zone
    return Period.from_day(day.date(), length)


def split_partition_key(partition: str) -> tuple[str, str]:
    """Return the two parts of Dagster's partition key: the key of the period, and the name of the series or ``""``."""
    period, _, series = partition.partition("|")  # Dagster joins the keys in the order of the names of the dimensions
    return period, series


def list_partition_keys(period: str, every: str | None = None) -> set[str]:
    """Return the partition keys that Dagster may have for a period: one of a single release, one of its length.

    With the length ``every`` of a series, as in its declaration, they are one key or none.
    """
    keys_by_length = {SINGLE: period}
    parsed = Period(period)
    if parsed.length is not None:
        keys_by_length[parsed.length] = parsed.first.strftime(_KEY_FORMATS[parsed.length])
    return {key for length, key in keys_by_length.items() if every in (None, length)}


def _find_length(every: str) -> Length | None:
    """Return the length of periods that a text names; None for ``single`` and other texts."""
    return next((length for length in LENGTHS if length == every), None)


def _make_period_error(message: str) -> OdError:
    """Return the error for wrong periods of a series."""
    return OdError("OD-PERIOD", message, next_step="correct the periods of the release")
