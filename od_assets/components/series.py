"""Define the base component of release series: their checks, jobs and schedules."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_shared.check import CheckError

from od_assets.checks.asset_checks import AssetChecks, check_definitions
from od_assets.checks.daily import daily_check, daily_schedule
from od_assets.code_references import with_sources
from od_assets.compatibility import owned_job
from od_assets.components.declared_component import Declared
from od_assets.declared.periods import Freshness
from od_assets.declared.series import DeclaredSeries
from od_assets.project import DOMAINS, Project, project_at
from od_assets.resources.dead_runs import release_tags
from od_assets.sensors.automation import arrival_sensor, release_schedule
from od_assets.series.declared_names import DECLARATION
from od_assets.series.settings import SeriesSettings
from od_core.errors import OdError

_DOMAIN_EXAMPLE = """\
# The privacy domain of this data set: declared once, charged by all its releases.
name: {name}
unit: trip
neighbours: bounded
elementary_period: month
cap: {{rho: "0.1", reason: "five releases a month at epsilon 1"}}
"""


def example_domain(request: dg.ScaffoldRequest[Any], name: str) -> None:
    """Write an example of a privacy domain if the data set has none; the owner of the data set must change it."""
    project = None if request.project_root is None else project_at(request.project_root)
    domains = Path(request.target_path).parent / DOMAINS if project is None else project.domains
    domain = domains / f"{name}.yaml"
    if not domain.exists():
        domains.mkdir(exist_ok=True)
        domain.write_text(_DOMAIN_EXAMPLE.format(name=name), encoding="utf-8")


class Series(Declared, DeclaredSeries):
    """A release series of any kind, with one release per period."""

    def refuse_other_folder(self, folder: Path | None) -> None:
        """Check the folder of a declaration in YAML. No command would find the series in a folder of another name.

        Args:
            folder: folder in which the series is declared; None if it is not known.

        Raises:
            OdError: the folder has a declaration, and another name than the series.
        """
        if folder is not None and folder.name != self.name and (folder / DECLARATION).is_file():
            raise OdError(
                "OD-CONFIG",
                f"{folder.name}/{DECLARATION}: name: {self.name!r} differs from the name of its folder",
                next_step="correct the declaration",
            )

    def partitions(self, project: Project | None = None) -> dg.PartitionsDefinition:
        """Return the periods as Dagster partitions. Raises OdError as :meth:`checked_periods` does."""
        return self.checked_periods(project).definition()

    def traits(self, settings: SeriesSettings[Any, Any], mechanism: str) -> dict[str, Any]:
        """Return the arguments that all assets of the series share: owners, code version and tags."""
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
        """Return the assets, checks, jobs, schedules and sensors, whose names begin with the name of the series."""
        verification = daily_check(settings)
        verify_job, verify_daily = daily_schedule(self.name, self.owners, verification)
        own = [key for asset in assets for key in asset.keys]
        job = owned_job(
            f"{self.name}_release",
            self.owners,
            selection=dg.AssetSelection.assets(*own) - dg.AssetSelection.checks(verification),
            description=f"Release one period of {self.name}, or read it back if it is already released.",
            tags=release_tags(self.name, self.revision, settings.periods.every),
        )
        schedules = [] if self.schedule is None else [release_schedule(settings, self.owners, self.schedule, job)]
        sensors = [] if self.arrivals is None else [arrival_sensor(settings, self.owners, job)]
        return dg.Definitions(
            assets=with_sources(self._with_freshness(assets, settings.periods.clock)),
            asset_checks=[*check_definitions(checks, settings.periods), verification],
            jobs=[job, verify_job],
            schedules=[*schedules, verify_daily],
            sensors=sensors,
        )

    def _with_freshness(self, assets: Sequence[dg.AssetsDefinition], clock: str) -> list[dg.AssetsDefinition]:
        """Return the assets, with any deadlines attached to the bundle. Raises OdError if the deadlines are invalid."""
        if self.freshness is None:
            return list(assets)
        policy, bundle = _policy(self.freshness, clock), dg.AssetKey([self.name, "bundle"])

        def due(spec: dg.AssetSpec) -> dg.AssetSpec:
            return dg.apply_freshness_policy(spec, policy) if spec.key == bundle else spec

        return [asset.map_asset_specs(due) for asset in assets]


def _policy(freshness: Freshness, time_zone: str) -> dg.FreshnessPolicy:
    """Return Dagster's freshness policy. Raises OdError if the deadline is invalid."""
    try:
        return dg.FreshnessPolicy.cron(
            deadline_cron=freshness.deadline,
            lower_bound_delta=datetime.timedelta(days=freshness.within_days),
            timezone=time_zone,
        )
    except (CheckError, OverflowError) as error:
        reason = (
            "is too large"
            if isinstance(error, OverflowError)
            else "does not fit the deadlines, or they are no cron line"
        )
        raise OdError(
            "OD-FRESHNESS",
            f"freshness: within_days {reason}",
            next_step="correct deadline and within_days",
        ) from None
