"""The periods of a series, their files, and when a file is taken for whole."""

import datetime
import string

import dagster as dg
from dagster_shared.check import CheckError
from pydantic import Field

from od_assets.components.section import Section
from od_assets.series.partitions import SeriesPeriods
from od_core.errors import OdError
from od_core.periods import Period


class Periods(Section):
    """The periods of a series."""

    first: str = Field(..., description="First period: 2001, 2001-Q2, 2001-06, 2001-W23 or 2001-06-30.")
    last: str | None = Field(None, description="Last period; leave out for a series that goes on.")
    every: str = Field("month", description="day, week, month, quarter or year; single for one release of any period.")

    def checked(self, time_zone: str | None) -> SeriesPeriods:
        """The periods, where they are such; days begin in the data set's time zone. Raises OdError."""
        last = None if self.last is None else Period(self.last)
        return SeriesPeriods(self.every, Period(self.first), last, time_zone)


class Arrivals(Section):
    """A period is released by itself once its file is there."""

    settled_seconds: int = Field(60, description="So long a file must not have changed before it is taken for whole.")
    complete: str | None = Field(
        None,
        description="Marker that a period's file is whole, with {period}; held to its SHA-256 if that stands in it.",
    )

    def check(self, *, one_file: bool) -> None:
        """Raises OdError where the path or the time is none; ``one_file`` says that all periods have one file."""
        if self.complete is not None:
            _check_path(self.complete, "the marker", needs_period=not one_file)
        if self.settled_seconds < 0:
            raise OdError(
                "OD-ARRIVALS", "no file is unchanged for less than 0 seconds", next_step="correct settled_seconds"
            )


class Freshness(Section):
    """By when a release must have been published; Dagster says where none was."""

    deadline: str = Field(..., description="Cron line of the deadlines, in the series' time zone.")
    within_days: int = Field(..., description="A release counts for a deadline if it is at most so many days older.")

    def policy(self, time_zone: str) -> dg.FreshnessPolicy:
        """As Dagster has it. Raises OdError where it is none."""
        try:
            return dg.FreshnessPolicy.cron(
                deadline_cron=self.deadline,
                lower_bound_delta=datetime.timedelta(days=self.within_days),
                timezone=time_zone,
            )
        except CheckError as error:
            raise OdError(
                "OD-FRESHNESS",
                str(error).removeprefix("Invariant failed. Description: "),
                next_step="correct deadline and within_days",
            ) from None


def check_files(files: str, *, one_file: bool) -> None:
    """One file for all periods, without dates, would release the same records under the cap of each.

    Args:
        files: path of the records.
        one_file: whether one file may hold all periods: its records have dates, or there is one period alone.

    Raises:
        OdError: the path does not name the period.
    """
    _check_path(files, "the records", needs_period=not one_file)


def _check_path(path: str, what: str, *, needs_period: bool) -> None:
    try:
        parts = list(string.Formatter().parse(path))
        # A format behind the name could make one file of all periods.
        fields = {f"{field}{form}{how or ''}" for _, field, form, how in parts if field is not None}
    except ValueError:
        fields = {"unbalanced braces"}
    if fields - {"period"} or (not fields and needs_period):
        raise OdError(
            "OD-TRIPS-FILES",
            f"the path of {what} needs {{period}} in it and nothing else in braces, or the records a date column",
            next_step="correct the path, or name the date column",
        )
