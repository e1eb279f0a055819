"""The months of a series, their files, and the schedule that releases each when it has ended."""

import datetime
import string
from typing import Any

import dagster as dg
from pydantic import Field

from od_assets.components.section import Section
from od_core.errors import OdError


class Periods(Section):
    """The elementary periods: months."""

    first: str = Field(..., description="First month, as 2001-01.")
    last: str | None = Field(None, description="Last month; leave out for a series that goes on.")

    @property
    def first_month(self) -> str:
        """The first month, in one way to write it. Raises OdError where it is none."""
        return _month(self.first).strftime("%Y-%m")

    def partitions(self) -> dg.MonthlyPartitionsDefinition:
        """The months. Raises OdError for what is no month, or ends before it begins."""
        first = _month(self.first)
        last = None if self.last is None else _month(self.last)
        if last is not None and last < first:
            raise _no_month(f"the last month, {self.last}, is before the first, {self.first}")
        end = None if last is None else (last + datetime.timedelta(days=32)).strftime("%Y-%m")
        return dg.MonthlyPartitionsDefinition(start_date=first.strftime("%Y-%m"), end_date=end, fmt="%Y-%m")


def monthly_schedule(
    name: str, cron: str, job: Any, partitions: dg.MonthlyPartitionsDefinition
) -> dg.ScheduleDefinition:
    """Each tick releases the month before it."""

    @dg.schedule(
        name=f"{name}_monthly", cron_schedule=cron, job=job, description="Releases the month before each tick."
    )
    def monthly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        first_of_month = context.scheduled_execution_time.replace(day=1)
        month = (first_of_month - datetime.timedelta(days=1)).strftime("%Y-%m")
        if month not in partitions.get_partition_keys(current_time=context.scheduled_execution_time):
            return dg.SkipReason(f"{month} is not one of the periods of {name}.")
        return dg.RunRequest(run_key=month, partition_key=month)

    return monthly


def check_files(files: str, *, has_dates: bool) -> None:
    """One file for all periods, without dates, would release the same records under the cap of each. Raises OdError."""
    try:
        parts = list(string.Formatter().parse(files))
        # A format behind the name could make one file of all periods.
        fields = {f"{field}{form}{how or ''}" for _, field, form, how in parts if field is not None}
    except ValueError:
        fields = {"unbalanced braces"}
    if fields - {"period"} or (not fields and not has_dates):
        raise OdError(
            "OD-TRIPS-FILES",
            "the path of the records needs {period} in it and nothing else in braces, or the records a date column",
            next_step="correct the path, or name the date column",
        )


def _month(text: str) -> datetime.datetime:
    """First day of a month. Raises OdError where the text is no month of our time."""
    try:
        month = datetime.datetime.strptime(text, "%Y-%m").replace(tzinfo=datetime.UTC)
    except ValueError:
        raise _no_month(f"{text!r} is not a month as 2001-01") from None
    if not 1900 <= month.year < 2200:
        raise _no_month(f"{text!r} is not a month of our time")
    return month


def _no_month(message: str) -> OdError:
    return OdError("OD-PERIOD", message, next_step="correct the periods of the release")
