"""Declare and check the periods of a series, the paths of their files, and the conditions for a release."""

import string

from pydantic import Field

from od_assets.declared.section import Section
from od_assets.series.partitions import SeriesPeriods
from od_core.errors import OdError
from od_core.periods import Period


class Periods(Section):
    """The first and the last period of a series, and the length of its periods."""

    first: str = Field(..., description="First period: 2001, 2001-Q2, 2001-06, 2001-W23 or 2001-06-30.")
    last: str | None = Field(None, description="Last period; leave out for a series without an end.")
    every: str = Field("month", description="day, week, month, quarter or year; single for one release of any period.")

    def checked(self, time_zone: str | None) -> SeriesPeriods:
        """Return the checked periods, whose days begin in the given time zone. Raises OdError if they are invalid."""
        last = None if self.last is None else _period("last", self.last)
        return SeriesPeriods(self.every, _period("first", self.first), last, time_zone)


def _period(field: str, text: str) -> Period:
    try:
        return Period(text)
    except OdError as error:
        raise error.changed(message=f"periods.{field}: {error.message}") from None


class Arrivals(Section):
    """Conditions under which a period is released automatically once its file has arrived."""

    settled_seconds: int = Field(
        60, description="Seconds for which a file must be unchanged before it counts as complete."
    )
    complete: str | None = Field(
        None,
        description=(
            "Path of a marker that a period's file is complete, with {period}; a SHA-256 in it is checked against the"
            " file."
        ),
    )

    def check(self, *, one_file: bool) -> None:
        """Check the path of the marker and the number of seconds. Raises OdError if one of them is invalid.

        Args:
            one_file: whether one file contains all periods; the path of the marker then need not name the period.
        """
        if self.complete is not None:
            _check_path(self.complete, "the marker", needs_period=not one_file)
        if self.settled_seconds < 0:
            raise OdError("OD-ARRIVALS", "settled_seconds must be at least 0", next_step="correct settled_seconds")


class Freshness(Section):
    """Deadlines for publication. Dagster reports a missed deadline."""

    deadline: str = Field(..., description="Cron line of the deadlines, in the series' time zone.")
    within_days: int = Field(
        ..., description="Largest age in days, at the deadline, of a release that meets the deadline."
    )


def check_files(files: str, *, one_file: bool) -> None:
    """Check that the path of the records contains ``{period}``, unless one file may contain all periods.

    If one file without dates served for all periods, the same records would be released once per period, and charged to
    the caps of different periods.

    Args:
        files: path of the records.
        one_file: whether one file may contain all periods: its records have dates, or there is only one period.

    Raises:
        OdError: the path lacks ``{period}``, or has other fields in braces.
    """
    _check_path(files, "the records", needs_period=not one_file)


def _check_path(path: str, what: str, *, needs_period: bool) -> None:
    try:
        parts = list(string.Formatter().parse(path))
        # A format after the name could map all periods to one file.
        fields = {f"{field}{form}{how or ''}" for _, field, form, how in parts if field is not None}
    except ValueError:
        fields = {"unbalanced braces"}
    if fields - {"period"} or (not fields and needs_period):
        raise OdError(
            "OD-TRIPS-FILES",
            f"the path of {what} needs {{period}} and nothing else in braces, or the records need a date column",
            next_step="correct the path, or name the date column",
        )
