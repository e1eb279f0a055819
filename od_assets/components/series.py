"""What every scheduled release series has in common, whatever it releases: declaration, checks, jobs, schedules."""

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import dagster as dg
from pydantic import Field

from od_assets.checks.asset_checks import AssetChecks, check_definitions
from od_assets.checks.daily import daily_check, daily_schedule
from od_assets.code_references import with_sources
from od_assets.components.domain import DOMAINS, read_domain
from od_assets.components.periods import Periods, check_files, monthly_schedule
from od_assets.components.section import Number, Section
from od_assets.resources.run_tags import release_tags
from od_assets.settings import SeriesSettings
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.privacy.budget import exact_fraction
from od_core.privacy.domain import PrivacyDomain, charged_periods
from od_core.privacy.noise import noise_named
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

    files: str = Field(..., description="Path of a period's Parquet or CSV file, with {period} in it.")
    fault_threshold: Number = Field(
        str(FAULT_THRESHOLD), description="Share of faulty trips above which the input is refused."
    )


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
        self,
        files: str,
        *,
        has_dates: bool,
        trips_alone: bool = False,
        max_trips: int | None = None,
        max_weight: int | None = None,
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
        domain = declared.domain(max_trips, max_weight)
        charged_periods(first.period, domain.elementary_period, domain.unit.kind)
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
        verify_job, verify_daily = daily_schedule(self.name, self.owners, verification)
        job = dg.define_asset_job(
            f"{self.name}_release",
            selection=dg.AssetSelection.key_prefixes([self.name]) - dg.AssetSelection.checks(verification),
            description=f"Release one month of {self.name}, or read it back where it is released.",
            tags=release_tags(self.name, self.revision),
            owners=self.owners,
        )
        schedules = [] if self.schedule is None else [monthly_schedule(self.name, self.schedule, job, partitions)]
        return dg.Definitions(
            assets=with_sources(assets),
            asset_checks=[*check_definitions(checks, partitions), verification],
            jobs=[job, verify_job],
            schedules=[*schedules, verify_daily],
        )


def share(value: Number) -> Fraction:
    """A fault threshold, exact. Raises OdError for what is no share."""
    exact = exact_fraction("the fault threshold", value)
    check_fault_threshold(exact)
    return exact
