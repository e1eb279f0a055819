"""Define the base of all components, and those that declare a series: flows, group sizes and trips with stops."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import dagster as dg
import yaml
from pydantic import BaseModel

from od_assets.assets.flows import make_flow_assets
from od_assets.assets.release import merge_measurement_assets
from od_assets.assets.tables import make_group_size_assets, make_stops_assets
from od_assets.checks.release_checks import make_release_checks
from od_assets.checks.verification import make_publication_check
from od_assets.compatibility import define_owned_job
from od_assets.metadata import with_code_references
from od_assets.project import DOMAINS, Project, read_project
from od_assets.resources.dead_runs import make_run_tags
from od_assets.sensors.automation import make_arrival_sensor, make_release_schedule
from od_assets.sensors.broken_declarations import BROKEN_ROWS, make_faults_sensor
from od_assets.series.flows import CountSeries, TripSeries
from od_assets.series.reading import (
    ROWS,
    draft_missing_warehouse,
    list_declared,
    read_row,
    refuse_doubles,
    refuse_other_folder,
)
from od_assets.series.section import DECLARATION, Declaration
from od_assets.series.series import Series
from od_assets.series.series_table import SeriesTable
from od_assets.series.tables import GroupSizeSeries, StopsSeries
from od_core.errors import OdError


def _read_example(file: str, name: str) -> str:
    """Return the text of an example file beside this module, in which ``name`` replaces the word ``NAME``."""
    return Path(__file__).with_name(file).read_text(encoding="utf-8").replace("NAME", name)


class ExampleScaffolder(dg.Scaffolder):  # type: ignore[misc]  # Dagster's base is untyped
    """A scaffolder that writes the example of a component: with an empty declaration, the project would not load."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write ``defs.yaml`` with example attributes, into the folder that Dagster requests.

        For a release, also write a privacy domain, which its owner must change, and a warehouse if the project has
        none. These two never replace a file.
        """
        name = Path(request.target_path).name
        component = request.type_name.rpartition(".")[2]
        attributes = yaml.safe_load(_read_example("examples.yaml", name))[component]
        project = None if request.project_root is None else read_project(request.project_root)
        domains = Path(request.target_path).parent / DOMAINS if project is None else project.domains
        domain = domains / f"{name}.yaml"
        if "domain" in attributes and not domain.exists():
            domains.mkdir(exist_ok=True)
            domain.write_text(_read_example("example_domain.yaml", name), encoding="utf-8")
        dg.scaffold_component(request, attributes)
        warehouse_files = draft_missing_warehouse(project) if project and "domain" in attributes else {}
        for path, text in warehouse_files.items():
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")


@dg.scaffold_with(ExampleScaffolder)
class Declared(dg.Component, Declaration):  # type: ignore[misc]  # Dagster's base is untyped
    """Base of all components: a declaration, which commands read with the same model and without Dagster."""

    labels: ClassVar[tuple[str, ...]] = ()
    """Tags that ``dg list components`` shows."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=list(cls.labels))

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the model of the attributes in YAML, which is the class of the component itself."""
        return cls

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:  # noqa: ARG003 - Dagster passes it
        """Return the component with the attributes that Dagster has read; with default values if there are none."""
        return cls() if attributes is None else attributes  # type: ignore[return-value]  # get_model_cls is the class


def build_series_definitions(series: Series[Any, Any]) -> dg.Definitions:
    """Return the assets, checks, jobs, schedules and sensors of a series. Raises OdError if a value is wrong."""
    assets = _ASSETS[series.require_valid().checked_table](series)
    if series.detail == "publication":
        assets = merge_measurement_assets(assets)
    keys = [key for asset in assets for key in asset.keys]
    job = define_owned_job(
        f"{series.name}_release",
        series.owners,
        selection=dg.AssetSelection.assets(*keys),
        description=f"Release one period of {series.name}, or read it back if it is already released.",
        tags=make_run_tags(series),
    )
    schedules = [] if series.schedule is None else [make_release_schedule(series, job)]
    sensors = [] if series.arrivals is None else [make_arrival_sensor(series, job)]
    return dg.Definitions(
        assets=with_code_references(assets),
        asset_checks=[
            *(checks.make_definition() for checks in make_release_checks(series)),
            make_publication_check(series),
        ],
        jobs=[job],
        schedules=schedules,
        sensors=sensors,
    )


def build_sound_definitions(series: Series[Any, Any]) -> dg.Definitions:
    """Return the definitions of a series. Raises OdError if a value is wrong, or if Dagster refuses it.

    Unlike :func:`build_series_definitions`, it converts the errors of Dagster, as on owners, cron lines and deadlines.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about beta and preview parts of Dagster
        try:
            return build_series_definitions(series)
        except (dg.DagsterError, ValueError) as error:
            message = f"{series.stated_name}/{DECLARATION}: {error}"
            raise OdError("OD-CONFIG", message, next_step="correct the declaration") from None


_ASSETS: dict[str, Callable[[Any], list[dg.AssetsDefinition]]] = {
    "flows": make_flow_assets,
    "histograms": make_group_size_assets,
    "boxes": make_stops_assets,
}
"""Functions that return all assets of a series, by :attr:`Series.checked_table`."""


class DeclaredSeries(Declared):
    """Base of the components that declare a series, which all are one of a kind."""

    def build_defs(self: Any, context: dg.ComponentLoadContext | None) -> dg.Definitions:
        """Return the assets, checks, jobs, schedules and sensors, whose names begin with the name of the series.

        Raises OdError if a value is wrong, or the folder of the declaration has another name than the series.
        """
        refuse_other_folder(self, None if context is None else context.path)
        return build_series_definitions(self.with_project(Project.from_context(context)))


class OdRelease(DeclaredSeries, TripSeries):
    """Origin-destination tables, period after period, with a differential privacy guarantee."""

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "origin-destination")


class OdCounts(DeclaredSeries, CountSeries):
    """Counts by the levels of one hierarchy, period after period, with a differential privacy guarantee."""

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "hierarchical-counts")


class OdGroupSizes(DeclaredSeries, GroupSizeSeries):
    """Group sizes (how many groups have j members), period after period, with a differential privacy guarantee."""

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "group-sizes")


class OdStops(DeclaredSeries, StopsSeries):
    """Trips with their stops, as boxes of a map, period after period, with a differential privacy guarantee."""

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "trips-with-stops")


class OdReleases(Declared, SeriesTable):
    """A release series for each row of a public table, with own assets or as a partition. A broken row is left out."""

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "origin-destination")

    def build_defs(self, context: dg.ComponentLoadContext | None) -> dg.Definitions:
        """Return the definitions of all series, and a sensor that fails with the faults of broken rows, if any.

        Raises OdError if the table cannot be read.
        """
        table = self.with_project(Project.from_context(context)).require_valid()
        path = None if context is None else context.path / DECLARATION
        rows, faults = _read_rows(table, path)
        # Names of the rows that each series makes releases of: one of its own, or all with shared assets.
        series_by_names: dict[tuple[str, ...], Series[Any, Any]] = {(name,): row for name, row in rows.items()}
        if rows and table.shares_assets:
            first, *_ = rows.values()
            series_by_names = {tuple(rows): first.with_rows([*rows.values()])}
        definitions: list[dg.Definitions] = []
        for names, series in series_by_names.items():
            try:
                definitions.append(build_sound_definitions(series))
            except OdError as error:
                faults |= dict.fromkeys(names, error)
        for name, fault in faults.items():
            logging.getLogger(__name__).error("%s is left out, because its row is broken: %s", name, fault)
        if faults:
            folder = ROWS if path is None else path.parent.name
            definitions.append(dg.Definitions(sensors=[make_faults_sensor(f"{BROKEN_ROWS}{folder}", faults)]))
        return dg.Definitions.merge(*definitions)


def _read_rows(table: SeriesTable, path: Path | None) -> tuple[dict[str, Series[Any, Any]], dict[str, OdError]]:
    """Return the series of the valid rows of a table, and the faults of the others, both by name of the series.

    ``path`` is that of the declaration; None if it is in no file. Raises OdError if the table cannot be read.
    """
    declared = list_declared(table.project)
    rows: dict[str, Series[Any, Any]] = {}
    faults: dict[str, OdError] = {}
    for number, name in enumerate(table.list_names(), 1):
        try:
            refuse_doubles(name, declared, table.project)
            rows[name] = read_row(table, number, path)
        except OdError as error:
            faults[name] = error
    return rows, faults
