"""Parse and split periods of releases: days, weeks, months and years of ISO 8601, quarters, and spans of these."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from od_core.errors import OdError, suggest_similar_name
from od_core.languages import ENGLISH, get_language, localise_date, translate

Length = Literal["day", "week", "month", "quarter", "year"]
LENGTHS: tuple[Length, ...] = ("day", "week", "month", "quarter", "year")

_PATTERNS: dict[Length, re.Pattern[str]] = {
    "day": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "week": re.compile(r"([0-9]{4})-W([0-9]{2})"),
    "month": re.compile(r"([0-9]{4})-([0-9]{2})"),
    "quarter": re.compile(r"([0-9]{4})-Q([1-4])"),
    "year": re.compile(r"[0-9]{4}"),
}
_SKELETONS: dict[str, str] = {"day": "yMMMMd", "month": "yMMMM", "quarter": "yQQQQ", "year": "y"}
"""What the words on a period in another language than English have, as patterns of Unicode CLDR, by its length."""

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ONE_DAY = datetime.timedelta(days=1)

_SPAN_SEPARATOR = "--"
"""Separator between the ends of a span (ISO 8601-1, 5.5.2). A slash would separate folders."""


@dataclass(frozen=True)
class Period:
    """A period of consecutive calendar days, named by a text.

    Raises OdError if the text has none of these forms, or the date does not exist.

    Attributes:
        text: ``2001``, ``2001-Q2``, ``2001-06``, ``2001-W23`` (weeks begin on Monday), ``2001-06-30``, or a span from
            one of these to a later one of the same length: ``2018-01--2020-12``.
        length: length of the period; None for a span.
        first: first day.
        end: day after the last day.
    """

    text: str
    length: Length | None = field(init=False)
    first: datetime.date = field(init=False)
    end: datetime.date = field(init=False)

    def __post_init__(self) -> None:
        try:
            ends = [_parse_text(end) for end in str(self.text).split(_SPAN_SEPARATOR)]
        except (ValueError, OverflowError):
            ends = []
        is_span = False
        if len(ends) == 2:
            (length, first, _), (last_length, first_of_last, _) = ends
            is_span = length == last_length and first < first_of_last
        if len(ends) != 1 and not is_span:
            raise OdError(
                "OD-PERIOD-TEXT",
                f"{self.text!r} is not a period: write 2001, 2001-Q2, 2001-06, 2001-W23 or 2001-06-30, or a span of"
                " periods of the same length, such as 2018-01--2020-12",
                next_step="correct the period",
            )
        length, first, _ = ends[0]
        _, _, end = ends[-1]
        object.__setattr__(self, "length", None if is_span else length)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "end", end)

    def __str__(self) -> str:
        return self.text

    @property
    def days(self) -> int:
        """Number of days."""
        return (self.end - self.first).days

    @property
    def in_words(self) -> str:
        """The period as a reader would say it, such as ``June 2001`` or ``2nd quarter of 2001``."""
        if get_language() != ENGLISH and self.length in _SKELETONS:
            return localise_date(self.first, _SKELETONS[self.length])
        year, number = self.text[:4], self.text[6:]
        match self.length:
            case "day":
                return f"{self.first.day} {_MONTHS[self.first.month - 1]} {year}"

            case "week":
                return translate("week {number} of {year}").format(number=int(number), year=year)
            case "month":
                return f"{_MONTHS[self.first.month - 1]} {year}"
            case "quarter":
                return f"{('1st', '2nd', '3rd', '4th')[int(number) - 1]} quarter of {year}"
            case "year":
                return year
        first, last = (Period(end).in_words for end in self.text.split(_SPAN_SEPARATOR))
        return translate("{lower} to {upper}").format(lower=first, upper=last)

    @classmethod
    def from_day(cls, day: datetime.date, length: Length) -> Period:
        """Return the period of the given length that contains a day."""
        year, week, _ = day.isocalendar()
        text = {
            "day": day.isoformat(),
            "week": f"{year:04d}-W{week:02d}",
            "month": f"{day.year:04d}-{day.month:02d}",
            "quarter": f"{day.year:04d}-Q{(day.month + 2) // 3}",
            "year": f"{day.year:04d}",
        }
        return cls(text[length])

    def split_into(self, length: Length) -> tuple[Period, ...]:
        """Return the consecutive periods of a length that fill this period exactly; () if there are none."""
        first_number = compute_period_number(self.first, length)
        last_number = compute_period_number(self.end - _ONE_DAY, length)
        parts = make_periods(range(first_number, last_number + 1), length)
        return parts if parts[0].first == self.first and parts[-1].end == self.end else ()


def check_time_zone(name: str) -> None:
    """Raise OdError if there is no time zone with this name. ``localtime`` is refused: each machine has its own."""
    try:
        ZoneInfo("" if name == "localtime" else name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        suggestion = suggest_similar_name(name, tuple(available_timezones() - {"localtime"}))
        message = f"there is no time zone {name!r}{suggestion}"
        raise OdError("OD-TIME-ZONE", message, next_step="use a name such as Europe/Rome or America/New_York") from None


def _parse_text(text: str) -> tuple[Length, datetime.date, datetime.date]:
    """Return a period's length, its first day and the day after its last day; the text is no span.

    Raises ValueError or OverflowError if the text is no period.
    """
    length = next((length for length, form in _PATTERNS.items() if form.fullmatch(text)), None)
    match length:
        case None:
            raise ValueError(text)
        case "day" | "week":
            first = datetime.date.fromisoformat(text)
        case "month":
            first = datetime.date.fromisoformat(f"{text}-01")
        case "quarter":  # such as 2001-Q2
            year, quarter = int(text[:4]), int(text[6:])
            first = datetime.date(year, 3 * quarter - 2, 1)
        case "year":
            first = datetime.date(int(text), 1, 1)
    return length, first, _compute_first_day(compute_period_number(first, length) + 1, length)


_DAYS_OF_LENGTH = {"day": 1, "week": 7}
_MONTHS_OF_LENGTH = {"month": 1, "quarter": 3, "year": 12}


def compute_period_number(day: datetime.date, length: Length) -> int:
    """Return the number of the period of a length that contains a day. Consecutive periods have consecutive numbers."""
    if length in _DAYS_OF_LENGTH:
        return (day.toordinal() - 1) // _DAYS_OF_LENGTH[length]  # the day with ordinal 1 is a Monday
    return (12 * day.year + day.month - 1) // _MONTHS_OF_LENGTH[length]


def _compute_first_day(number: int, length: Length) -> datetime.date:
    """Return the first day of the period with a number of :func:`compute_period_number`."""
    if length in _DAYS_OF_LENGTH:
        return datetime.date.fromordinal(number * _DAYS_OF_LENGTH[length] + 1)
    year, month = divmod(number * _MONTHS_OF_LENGTH[length], 12)
    return datetime.date(year, month + 1, 1)


@lru_cache(maxsize=256)
def make_periods(numbers: range, length: Length) -> tuple[Period, ...]:
    """Return the periods of a length with these numbers of :func:`compute_period_number`. The result is cached."""
    return tuple(Period.from_day(_compute_first_day(number, length), length) for number in numbers)


def iterate_periods(day: datetime.date, length: Length) -> Iterator[Period]:
    """Yield the period of a length that contains a day, and then all later ones. The iterator does not end."""
    for number in count(compute_period_number(day, length)):
        yield Period.from_day(_compute_first_day(number, length), length)
