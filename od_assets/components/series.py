"""Define the base of all components, and those that declare a series: flows, group sizes and trips with stops."""

import datetime
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import dagster as dg
from dagster_shared.check import CheckError
from pydantic import BaseModel

from od_assets.assets.inputs import input_assets
from od_assets.assets.levels import level_assets
from od_assets.assets.publication import assisted_assets, publication_assets
from od_assets.assets.tables import group_size_assets, stops_assets, table_assets
from od_assets.checks.daily import daily_check, daily_schedule
from od_assets.checks.release_checks import (
    AssetChecks,
    check_definitions,
    group_size_checks,
    release_checks,
    stops_checks,
)
from od_assets.compatibility import owned_job
from od_assets.declared.flows import DeclaredFlows
from od_assets.declared.group_sizes import DeclaredGroupSizes
from od_assets.declared.section import Section, by_kind, hide_variables
from od_assets.declared.series import DeclaredSeries, Freshness
from od_assets.declared.stops import DeclaredStops
from od_assets.metadata import with_sources
from od_assets.project import DOMAINS, Project, project_at
from od_assets.resources.dead_runs import release_tags
from od_assets.sensors.automation import arrival_sensor, release_schedule
from od_assets.series.names import DECLARATION
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


class Declared(dg.Component, dg.Resolvable, Section):  # type: ignore[misc]  # Dagster's bases are untyped
    """Base of all components: a declaration whose JSON schema, for ``dg check yaml``, tells sections apart.

    Attributes:
        labels: tags that ``dg list components`` shows.
    """

    labels: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=list(cls.labels))

    @classmethod
    def get_model_cls(cls) -> type[BaseModel] | None:
        """Return the model of the declaration, whose JSON schema has the same change as that of every section."""
        model: type[BaseModel] | None = super().get_model_cls()
        extra = None if model is None else model.model_config.get("json_schema_extra")
        if model is not None and not callable(extra):
            model.model_config["json_schema_extra"] = partial(by_kind, dict(extra or {}))
        return model

    @classmethod
    def resolve_from_model(cls, context: Any, model: BaseModel) -> Self:
        """Return the component of a declaration. No error of this process shows what its templates stand for."""
        hide_variables(model.model_dump())
        made: Self = super().resolve_from_model(context, model)
        return made


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


class SeriesScaffolder(dg.Scaffolder):  # type: ignore[misc]  # Dagster's base is untyped
    """Base of scaffolders that write a complete example. With an empty declaration, the project would not load.

    Attributes:
        columns: columns of the records.
        public: key, file and further fields of the public list.
        settings: fields after the domain.
    """

    columns: ClassVar[Mapping[str, Any]]
    public: ClassVar[tuple[str, str, Mapping[str, Any]]]
    settings: ClassVar[Mapping[str, Any]]

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write ``defs.yaml`` with values for all required fields, and the data set's domain if there is none."""
        name, (key, file, fields) = Path(request.target_path).name, self.public
        example_domain(request, name)
        dg.scaffold_component(
            request,
            {
                "name": name,
                "owners": ["team:statistics"],
                "trips": {"files": f"data/{name}/{{period}}.parquet", "columns": self.columns},
                key: {"file": f"data/{name}/{file}", **fields},
                "periods": {"first": "2026-01"},
                "domain": name,
                **self.settings,
            },
        )


class ReleaseScaffolder(SeriesScaffolder):
    """A scaffolder of a series of flows."""

    columns: ClassVar[Mapping[str, Any]] = {"date": "date"}
    public: ClassVar[tuple[str, str, Mapping[str, Any]]] = ("geography", "zones.csv", {"levels": ["region", "zone"]})
    settings: ClassVar[Mapping[str, Any]] = {"privacy": {"epsilon": "1", "delta": "1e-8"}}


@dg.scaffold_with(ReleaseScaffolder)
class OdRelease(Series, DeclaredFlows):
    """Origin-destination tables, period after period, with a differential privacy guarantee."""

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "origin-destination")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, checks, jobs and schedules, whose names begin with the name of the series."""
        self.refuse_other_folder(None if context is None else context.path)
        settings = self.settings(Project.of(context))
        partitions = settings.periods.definition()
        traits = self.traits(settings, settings.mechanism.name)
        assets = [
            asset
            for make in (input_assets, level_assets, publication_assets, assisted_assets)
            for asset in make(settings, partitions, traits)
        ]
        return self.definitions(settings, assets, release_checks(settings))


class GroupSizeScaffolder(SeriesScaffolder):
    """A scaffolder of a series of group sizes."""

    columns: ClassVar[Mapping[str, Any]] = {"area": "origin", "date": "date"}
    public: ClassVar[tuple[str, str, Mapping[str, Any]]] = ("geography", "zones.csv", {"levels": ["region", "zone"]})
    settings: ClassVar[Mapping[str, Any]] = {"privacy": {"epsilon": "0.1"}, "top_code": 1000}


@dg.scaffold_with(GroupSizeScaffolder)
class OdGroupSizes(Series, DeclaredGroupSizes):
    """Group sizes (how many groups have j members), period after period, with a differential privacy guarantee."""

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "group-sizes")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, checks, jobs and schedules, whose names begin with the name of the series."""
        self.refuse_other_folder(None if context is None else context.path)
        settings = self.settings(Project.of(context))
        mechanism = "by_rule" if settings.mechanism is None else settings.mechanism.name
        traits, checks = self.traits(settings, mechanism), group_size_checks(settings)
        assets = table_assets(settings, settings.periods.definition(), traits, group_size_assets(settings), checks)
        return self.definitions(settings, assets, checks)


class StopsScaffolder(SeriesScaffolder):
    """A scaffolder of a series of trips with stops."""

    columns: ClassVar[Mapping[str, Any]] = {"places": ["origin", "stop", "destination"], "date": "date"}
    public: ClassVar[tuple[str, str, Mapping[str, Any]]] = ("map", "places.csv", {})
    settings: ClassVar[Mapping[str, Any]] = {"privacy": {"epsilon": "0.1"}}


@dg.scaffold_with(StopsScaffolder)
class OdStops(Series, DeclaredStops):
    """Trips with their stops, as boxes of a map, period after period, with a differential privacy guarantee."""

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "trips-with-stops")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, checks, jobs and schedules, whose names begin with the name of the series."""
        self.refuse_other_folder(None if context is None else context.path)
        settings = self.settings(Project.of(context))
        traits, checks = self.traits(settings, settings.mechanism.name), stops_checks(settings)
        assets = table_assets(settings, settings.periods.definition(), traits, stops_assets(settings), checks)
        return self.definitions(settings, assets, checks)
