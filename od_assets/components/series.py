"""What every scheduled release series has in common, whatever it releases: declaration, checks, jobs, schedules."""

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from od_assets.checks.asset_checks import AssetChecks, check_definitions
from od_assets.checks.daily import daily_check, daily_schedule
from od_assets.components.domain import DOMAINS, read_domain
from od_assets.components.periods import Periods, check_files, monthly_schedule
from od_assets.components.section import Number, Section
from od_assets.settings import SeriesSettings
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.periods import Period
from od_core.privacy.budget import exact_fraction
from od_core.privacy.domain import PrivacyDomain, charged_periods
from od_core.privacy.noise import noise_named
from od_core.readers.formats import format_named
from od_core.readers.record_format import RecordFormat
from od_core.trip_faults import check_fault_threshold
from od_core.trips import FAULT_THRESHOLD

_DOMAIN_EXAMPLE = """\
# The privacy domain of this data set: declared once, charged by all its releases.
name: {name}
unit: trip
neighbours: bounded
elementary_period: month
cap: {{rho: "0.1", reason: "five releases a month at epsilon 1"}}
"""


def example_domain(name: str) -> None:
    """Write the domain of a data set where there is none, for its owner to change."""
    if not (domain := DOMAINS / f"{name}.yaml").exists():
        domain.write_text(_DOMAIN_EXAMPLE.format(name=name), encoding="utf-8")


class Records(Section):
    """Where the confidential records are; a kind of release adds the columns that it reads."""

    files: str = Field(..., description="Path of a period's file, with {period} in it, or of one file with dates.")
    reader: str = Field("table", description="How records are published: table, lodes, tlc, istat or nomis.")
    delimiter: str | None = Field(None, description="Sign between the fields of a CSV file; a comma if left out.")
    encoding: str | None = Field(None, description="utf-8, latin-1 or utf-16, of a CSV file; utf-8 if left out.")
    table: str | None = Field(None, description="Name of a table, where the files are DuckDB's.")
    categories: dict[str, list[str]] = Field(
        default_factory=dict, description="Columns and their values: rows with others are no records of this release."
    )
    nowhere: list[str] = Field(
        default_factory=list,
        description="Codes of no place, beside the reader's own, for the unknown zone; an empty text for none at all.",
    )
    outside_period: str | None = Field(
        None, description="refuse or drop records of other periods; if left out, drop them where one file has several."
    )
    fault_threshold: Number = Field(
        str(FAULT_THRESHOLD), description="Share of faulty trips above which the input is refused."
    )

    def record_format(self) -> RecordFormat:
        """How the records stand in the files. Raises OdError for a reader or an option that there is not."""
        has_several_periods = "{period" not in self.files
        form = format_named(self.reader).declared(
            categories=tuple((column, tuple(values)) for column, values in self.categories.items()),
            nowhere=tuple(self.nowhere),
            delimiter=self.delimiter,
            encoding=self.encoding,
            table=self.table,
            outside_period=self.outside_period or ("drop" if has_several_periods else "refuse"),
        )
        form.refuse_options_of_text(Path(self.files))
        return form

    def one_trip_a_row(self) -> RecordFormat:
        """As :meth:`record_format`, of records alone. Raises OdError also where the reader gives flows."""
        form = self.record_format()
        if form.columns.trips is not None:
            raise OdError(
                "OD-READER-FLOWS",
                f"reader {self.reader!r} gives flows, many trips in a row; this kind of release counts rows",
                next_step="use records with one row a trip",
            )
        return form


class Zones(Section):
    """Where the public zone list is."""

    file: str = Field(..., description="CSV or Parquet with one row a zone; codes are text.")
    levels: list[str] = Field(..., description="Its level columns, coarse to fine; the last holds the zone codes.")
    unknown: str | None = Field(None, description="Listed zone that takes records from unlisted places.")
    coordinates: tuple[str, str] | None = Field(
        None, description="Its columns of latitude and longitude, in degrees: published, for the report's map."
    )


class PureEpsilon(Section):
    """What this release may spend: epsilon alone."""

    epsilon: Number


class Series(dg.Component, dg.Resolvable, Section):  # type: ignore[misc]  # Dagster's bases are untyped
    """A monthly release of any kind."""

    name: str = Field(..., description="Name of the series: lower-case letters, digits, underscores.")
    owners: list[str] = Field(..., description="team:name or e-mail addresses.")
    periods: Periods
    domain: str = Field(..., description="Data set whose privacy domain is charged, as defs/domains declares it.")
    noise: str = "opendp"
    revision: int = 1
    schedule: str | None = Field(None, description="Cron line; each tick releases the month before it.")

    @abstractmethod
    def settings(self) -> SeriesSettings[Any, Any]:
        """The declaration in the terms of od_core. Raises OdError for what is out of range or unknown."""

    def partitions(self) -> dg.MonthlyPartitionsDefinition:
        """The months of the series. Raises OdError as its periods."""
        return self.periods.partitions()

    def checked_domain(
        self, files: str, *, has_dates: bool, trips_alone: bool = False, max_trips: int | None = None
    ) -> PrivacyDomain:
        """The domain that is charged, once name, periods, files and noise are found fit for it. Raises OdError."""
        first = ReleaseKey(self.name, self.periods.first_month, self.revision)
        check_files(files, has_dates=has_dates)
        declared = read_domain(self.domain)
        if trips_alone and declared.unit != "trip":
            raise OdError(
                "OD-UNIT-UNKNOWN",
                f"data set {self.domain!r} protects unit {declared.unit!r}; {self.name} can protect single trips alone",
                next_step="release flows, which have user units",
            )
        domain = declared.domain(max_trips)
        charged_periods(Period(first.period), domain.elementary_period, domain.unit.kind)
        noise_named(self.noise)
        return domain

    def traits(self, settings: SeriesSettings[Any, Any], mechanism: str) -> dict[str, Any]:
        """What all assets of the series have in common."""
        return {
            "owners": self.owners,
            "code_version": "1",
            "tags": {
                "od/mechanism": mechanism,
                "od/neighbours": settings.unit.neighbours,
                "od/unit": settings.unit.kind,
            },
        }

    def definitions(
        self, settings: SeriesSettings[Any, Any], assets: Sequence[dg.AssetsDefinition], checks: Sequence[AssetChecks]
    ) -> dg.Definitions:
        """Assets, checks, jobs and schedules, all with the series' name before theirs."""
        partitions, verification = self.partitions(), daily_check(settings)
        verify_job, verify_daily = daily_schedule(self.name, verification)
        job = dg.define_asset_job(
            f"{self.name}_release",
            selection=dg.AssetSelection.key_prefixes([self.name]) - dg.AssetSelection.checks(verification),
            description=f"Release one month of {self.name}, or read it back where it is released.",
        )
        schedules = [] if self.schedule is None else [monthly_schedule(self.name, self.schedule, job, partitions)]
        return dg.Definitions(
            assets=assets,
            asset_checks=[*check_definitions(checks, partitions), verification],
            jobs=[job, verify_job],
            schedules=[*schedules, verify_daily],
        )


def share(value: Number) -> Fraction:
    """A fault threshold, exact. Raises OdError for what is no share."""
    exact = exact_fraction("the fault threshold", value)
    check_fault_threshold(exact)
    return exact
