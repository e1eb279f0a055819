"""The periods of a series as Dagster's partitions, and which of them have ended."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import dagster as dg

from od_core.errors import OdError, nearest_known
from od_core.periods import LENGTHS, Length, Period, check_time_zone

SINGLE = "single"
"""A series of one release, of any period."""

_CRON: dict[Length, str] = {
    "day": "0 0 * * *",
    "week": "0 0 * * 1",
    "month": "0 0 1 * *",
    "quarter": "0 0 1 1,4,7,10 *",
    "year": "0 0 1 1 *",
}
"""When a period of each length begins."""

_KEYS: dict[Length, str] = {"day": "%Y-%m-%d", "week": "%G-W%V-%u", "month": "%Y-%m", "quarter": "%Y-%m", "year": "%Y"}
"""How Dagster names a partition, by its first day: it must be able to read the day back from the name."""

_YEARS = range(1900, 2200)


@dataclass(frozen=True)
class SeriesPeriods:
    """The periods of a series: consecutive ones of a length, or a single one.

    Attributes:
        every: length of the periods, or ``single``.
        first: first period; of a single release, its period.
        last: last period; None for a series that goes on.
        time_zone: in which days begin; None where it is not stated.

    Raises:
        OdError: an unknown length or time zone; first and last are not of that length, or not in this order.
    """

    every: str
    first: Period
    last: Period | None
    time_zone: str | None

    def __post_init__(self) -> None:
        known = (*LENGTHS, SINGLE)
        if self.every not in known:
            raise _fault(f"there are no periods of every {self.every!r} ({nearest_known(self.every, known)})")
        if self.time_zone is not None:
            check_time_zone(self.time_zone)
        for period in (self.first, self.last):
            if period is None:
                continue
            if period.first.year not in _YEARS:
                raise _fault(f"{period} is not of our time")
            if self.every not in (SINGLE, period.length):
                raise _fault(f"{period} is no {self.every}")
        if self.last is not None and self.last.first < self.first.first:
            raise _fault(f"the last period, {self.last}, is before the first, {self.first}")
        if self.every == SINGLE and self.last is not None:
            raise _fault(f"a single release has one period: write first: {self.first}--{self.last}")

    @property
    def clock(self) -> str:
        """The time zone by which Dagster's days begin: the stated one, else UTC."""
        return self.time_zone or "UTC"

    def definition(self) -> dg.PartitionsDefinition:
        """The partitions; of a series that goes on, those that have ended at any time."""
        length = self._length
        if length is None:
            return dg.StaticPartitionsDefinition([self.first.text])
        return dg.TimeWindowPartitionsDefinition(
            start=self.first.first.strftime(_KEYS[length]),
            end=None if self.last is None else self.last.end.strftime(_KEYS[length]),
            fmt=_KEYS[length],
            cron_schedule=_CRON[length],
            timezone=self.clock,
        )

    def partition(self, period: Period) -> str:
        """Dagster's key of a period."""
        return period.text if self._length is None else period.first.strftime(_KEYS[self._length])

    def period(self, partition: str) -> Period:
        """The period behind Dagster's key."""
        return period_of(partition, self.every)

    def ended(self, moment: datetime.datetime | None = None) -> list[Period]:
        """The periods that have ended at a moment, now if left out, oldest first."""
        moment = moment or datetime.datetime.now(datetime.UTC)
        if self._length is None:
            return [self.first] if self.first.end <= self.day(moment) else []
        return [self.period(key) for key in self.definition().get_partition_keys(current_time=moment)]

    def ended_before(self, moment: datetime.datetime) -> Period | None:
        """The period that has ended last before a moment; None before the first one, and when the series is over."""
        if self._length is None:
            return next(iter(self.ended(moment)), None)
        last = Period.around(self.day(moment), self._length).first - datetime.timedelta(days=1)
        period = Period.around(last, self._length)
        over = self.last is not None and period.first > self.last.first
        return None if over or period.first < self.first.first else period

    def day(self, moment: datetime.datetime) -> datetime.date:
        """The day of a moment in the series' time zone."""
        return moment.astimezone(ZoneInfo(self.clock)).date()

    @property
    def _length(self) -> Length | None:
        return _length_of(self.every)


def period_of(partition: str, every: str) -> Period:
    """The period behind Dagster's key, in a series whose periods have a length."""
    length = _length_of(every)
    if length is None:
        return Period(partition)
    day = datetime.datetime.strptime(partition, _KEYS[length])  # a day
    return Period.around(day.date(), length)


def _length_of(every: str) -> Length | None:
    """The length of a series' periods; None where it has a single one."""
    return next((length for length in LENGTHS if length == every), None)


def _fault(message: str) -> OdError:
    return OdError("OD-PERIOD", message, next_step="correct the periods of the release")
