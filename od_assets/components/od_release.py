"""A scheduled release declared in YAML: its assets, checks, job and schedule."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from od_assets.assets.inputs import input_assets
from od_assets.assets.levels import level_assets
from od_assets.assets.publication import publication_assets
from od_assets.checks.daily import daily_check, daily_schedule
from od_assets.checks.release_checks import check_definitions
from od_assets.components.domain import DOMAINS, read_domain
from od_assets.components.periods import Periods, check_files, monthly_schedule
from od_assets.components.section import Number, Section
from od_assets.settings import ReleaseSettings
from od_core import Budget
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError, nearest_known
from od_core.mechanisms import MECHANISMS, Mechanism, mechanism_named
from od_core.privacy.budget import exact_fraction
from od_core.privacy.domain import charged_periods
from od_core.privacy.noise import noise_named
from od_core.readers.records import RecordColumns
from od_core.trip_faults import check_fault_threshold
from od_core.trips import FAULT_THRESHOLD


class Columns(Section):
    """Columns of the files of records."""

    origin: str = "origin"
    destination: str = "destination"
    date: str | None = Field(None, description="Date or local time of a trip; leave out where a file is one period.")
    trips: str | None = Field(None, description="Number of trips of a row, for flows; leave out for one row a trip.")


class Trips(Section):
    """Where the confidential records are."""

    files: str = Field(..., description="Path of a period's Parquet or CSV file, with {period} in it.")
    columns: Columns = Columns()  # type: ignore[call-arg]  # every column has a default
    fault_threshold: Number = Field(
        str(FAULT_THRESHOLD), description="Share of faulty trips above which the input is refused."
    )


class Zones(Section):
    """Where the public zone list is."""

    file: str = Field(..., description="CSV or Parquet with one row a zone; codes are text.")
    levels: list[str] = Field(..., description="Its level columns, coarse to fine; the last holds the zone codes.")
    unknown: str | None = Field(None, description="Listed zone that takes records from unlisted places.")


class Privacy(Section):
    """What this release may spend: (epsilon, delta), or rho with the delta at which epsilon is stated."""

    epsilon: Number | None = None
    rho: Number | None = None
    delta: Number
    conversion: str | None = Field(None, description="exact, tight or bun_steinke; the mechanism's own if left out.")
    shares: str | list[Number] | None = Field(
        None, description="uniform, geography, [geometric, ratio], or one share a level."
    )


_DOMAIN_EXAMPLE = """\
# The privacy domain of this data set: declared once, charged by all its releases.
name: {name}
unit: trip
neighbours: bounded
elementary_period: month
cap: {{rho: "0.1", reason: "five releases a month at epsilon 1"}}
"""


class ReleaseScaffolder(dg.Scaffolder):  # type: ignore[misc]  # Dagster's base is untyped
    """Writes a complete example, since an empty declaration keeps the whole project from loading."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write ``defs.yaml`` with every required field filled in, and the data set's domain where there is none."""
        name = Path(request.target_path).name
        if not (domain := DOMAINS / f"{name}.yaml").exists():
            domain.write_text(_DOMAIN_EXAMPLE.format(name=name), encoding="utf-8")
        dg.scaffold_component(
            request,
            {
                "name": name,
                "owners": ["team:statistics"],
                "trips": {"files": f"data/{name}/{{period}}.parquet", "columns": {"date": "date"}},
                "geography": {"file": f"data/{name}/zones.csv", "levels": ["region", "zone"]},
                "periods": {"first": "2026-01"},
                "domain": name,
                "privacy": {"epsilon": "1", "delta": "1e-8"},
            },
        )


@dg.scaffold_with(ReleaseScaffolder)
class OdRelease(dg.Component, dg.Resolvable, Section):  # type: ignore[misc]  # Dagster's bases are untyped
    """A monthly origin-destination release with a differential privacy guarantee."""

    name: str = Field(..., description="Name of the series: lower-case letters, digits, underscores.")
    owners: list[str] = Field(..., description="team:name or e-mail addresses.")
    trips: Trips
    geography: Zones
    periods: Periods
    domain: str = Field(..., description="Data set whose privacy domain is charged, as defs/domains declares it.")
    max_trips: int | None = Field(None, description="Most trips of a user that are counted, for the user units.")
    privacy: Privacy
    mechanism: str = "inftda_refined"
    mechanism_options: dict[str, str | int | float] = Field(default_factory=dict)
    tree: str = "destination"
    noise: str = "opendp"
    revision: int = 1
    schedule: str | None = Field(None, description="Cron line; each tick releases the month before it.")

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """What ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["differential-privacy", "origin-destination"])

    def settings(self) -> ReleaseSettings:
        """The declaration in the terms of od_core. Raises OdError for what is out of range or unknown."""
        first = ReleaseKey(self.name, self.periods.first_month, self.revision)
        check_files(self.trips.files, has_dates=self.trips.columns.date is not None)
        domain = read_domain(self.domain).domain(self.max_trips)
        charged_periods(first.period, domain.elementary_period, domain.unit.kind)
        noise_named(self.noise)
        privacy = self.privacy
        return ReleaseSettings(
            name=self.name,
            records=self.trips.files,
            columns=RecordColumns(**self.trips.columns.model_dump(), user=domain.unit.column),
            zones=self.geography.file,
            levels=tuple(self.geography.levels),
            unknown_zone=self.geography.unknown,
            unit=domain.unit,
            budget=Budget(
                privacy.epsilon,
                privacy.delta,
                rho=privacy.rho,
                conversion=privacy.conversion,
                shares=privacy.shares,
            ),
            mechanism=self._mechanism(),
            tree=self.tree,  # type: ignore[arg-type]  # checked by the plan
            noise=self.noise,
            revision=self.revision,
            domain=domain,
            fault_threshold=_share(self.trips.fault_threshold),
        )

    def _mechanism(self) -> Mechanism:
        if mechanism_named(self.mechanism).measures != "every_level":
            raise OdError(
                "OD-MECHANISM-UNPUBLISHED",
                f"mechanism {self.mechanism!r} measures the leaves alone, so that its table is not consistent with"
                " anything measured above; it is there to be compared with, and is not published on a schedule",
                next_step="choose a mechanism that measures every level, or call release_flows with a ledger",
            )
        options: dict[str, Any] = self.mechanism_options
        try:
            return MECHANISMS[self.mechanism](**options)
        except TypeError:
            known = nearest_known(", ".join(options), tuple(mechanism_named(self.mechanism).options))
            raise OdError(
                "OD-MECHANISM-OPTIONS",
                f"mechanism {self.mechanism!r} has no such options ({known})",
                next_step="correct the mechanism's options",
            ) from None

    def partitions(self) -> dg.MonthlyPartitionsDefinition:
        """The months of the series. Raises OdError as its periods."""
        return self.periods.partitions()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Assets, checks, job and schedule, all with the series' name before theirs."""
        settings, partitions = self.settings(), self.partitions()
        traits = {
            "owners": self.owners,
            "code_version": "1",
            "tags": {
                "od/mechanism": settings.mechanism.name,
                "od/neighbours": settings.unit.neighbours,
                "od/unit": settings.unit.kind,
            },
        }
        assets = [
            asset
            for make in (input_assets, level_assets, publication_assets)
            for asset in make(settings, partitions, traits)
        ]
        verification = daily_check(settings)
        verify_job, verify_daily = daily_schedule(self.name, verification)
        job = dg.define_asset_job(
            f"{self.name}_release",
            selection=dg.AssetSelection.key_prefixes([self.name]) - dg.AssetSelection.checks(verification),
            description=f"Release one month of {self.name}, or read it back where it is released.",
        )
        schedules = [] if self.schedule is None else [monthly_schedule(self.name, self.schedule, job, partitions)]
        return dg.Definitions(
            assets=assets,
            asset_checks=[*check_definitions(settings, partitions), verification],
            jobs=[job, verify_job],
            schedules=[*schedules, verify_daily],
        )


def _share(value: Number) -> Fraction:
    share = exact_fraction("the fault threshold", value)
    check_fault_threshold(share)
    return share
