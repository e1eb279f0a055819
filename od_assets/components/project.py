"""Define the components beside those of series: warehouse, web site and comparison. Find broken declarations."""

from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal

import dagster as dg
import pandas as pd
from pydantic import Field, SecretStr, field_validator

from od_assets.checks.verification import make_verification
from od_assets.compatibility import define_owned_job, is_cron_line
from od_assets.components.series import Declared, build_sound_definitions
from od_assets.metadata import make_code_references, make_metadata, make_result, with_code_references
from od_assets.project import Project
from od_assets.resources.dead_runs import COMPARISON_TAG, SITE_TAG, run_public_step, sweep_dead_runs
from od_assets.resources.published_tables import TABLES_KEY, PublishedTables
from od_assets.resources.warehouse import Warehouse, fix_resource_settings
from od_assets.sensors.notices import (
    Notices,
    SentNotices,
    is_lineage_configured,
    is_notice_address,
    lineage_events,
    release_failed,
    release_published,
)
from od_assets.series.comparison import Comparison
from od_assets.series.reading import (
    COMPARISON,
    SERIES_TABLE,
    SITE,
    DeclaredSite,
    SeriesSource,
    find_series_model,
    list_declared,
    list_series,
    read_comparison,
    read_declaration,
    read_declared_series,
    read_series,
    read_series_table,
    refuse_doubles,
    refuse_wrong_type,
    select_declaration_files,
)
from od_assets.series.section import (
    WAREHOUSE,
    Prefix,
    Section,
    list_declaration_files,
    read_component_type,
    read_key_prefix,
    read_sibling_yaml,
    read_yaml_documents,
)
from od_assets.series.series import Series
from od_core.errors import OdError
from od_core.evaluation.comparison import (
    TABLE_COLUMNS,
    Run,
    compare,
    draw_figures,
    read_comparison_results,
    read_refusals,
    render_comparison_tables,
)
from od_core.files.durable import PUBLIC_FILE_MODE, compute_file_digest, write_durably
from od_core.ledger.confidential import LOCK_SECONDS

_IS = dg.AutomationCondition

AFTER_PUBLICATION = (
    (
        _IS.any_deps_match(_IS.data_version_changed()).since_last_handled()
        | (_IS.any_deps_updated().since_last_handled() & _IS.execution_failed())
        | (_IS.any_deps_match(~_IS.missing()) & _IS.missing() & _IS.initial_evaluation())
    )
    & ~_IS.in_progress()
).with_label("after a publication")
"""Condition under which the site is written: since it was last requested, a bundle was published, not only read back.

It is also written if there are bundles and no site when the condition is evaluated first, or if the site failed and a
bundle was read back, which repairs it.
"""


def make_site_asset(declared: DeclaredSite) -> dg.AssetsDefinition:
    """Return the asset of the site. Raises OdError if a text or an address cannot be written on it.

    It is part of no release job and does not lock the warehouse, so that no publication waits for it or fails with it.
    It reads public files alone. It fails, after the site is written, if a published bundle is missing or damaged.
    """
    site = declared.to_site_description()
    folder = declared.place
    warehouse = Warehouse.from_project(declared.project)

    @dg.asset(
        key=[*declared.prefix, "od", "site"],
        deps=[dg.AssetKey(key) for key in list_publishing_asset_keys(declared.project)],
        kinds={"html"},
        automation_condition=AFTER_PUBLICATION,
        group_name="site",
        description=(
            "The web site of all published releases, written again after each publication. Copy its folder to any web"
            " server."
        ),
        owners=declared.owners,
        code_version="1",
    )
    def write(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        from od_core.published.site import CATALOGUE, HOME, write_site  # all kinds take half a second to import

        with run_public_step(context):
            result = write_site(warehouse.releases, folder, site, warehouse.database)
            result.refuse_left_out()
        address: dict[str, Any] = {} if site.base is None else {"address": dg.MetadataValue.url(site.base)}
        return make_result(
            compute_file_digest(folder / CATALOGUE),
            series=result.series,
            releases=result.releases,
            files_written=len(result.changed),
            first_page=dg.MetadataValue.path(str((folder / HOME).resolve())),
            **address,
        )

    return write


class OdSite(Declared, DeclaredSite):
    """The web site of all published releases, written again after each publication. Declare it once per project."""

    labels: ClassVar[tuple[str, ...]] = ("origin-destination", "site")

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Return the asset, and the sensor that requests it after each publication, in runs after queued releases.

        Raises OdError if a text or an address cannot be written on the site.
        """
        asset = make_site_asset(self.with_project(Project.from_context(context)))
        after_publication = dg.AutomationConditionSensorDefinition(
            "od_site_after_publication",
            target=dg.AssetSelection.assets(asset.key),
            run_tags={SITE_TAG: "true", "dagster/priority": "-1"},
            default_status=dg.DefaultSensorStatus(self.automation.upper()),
            minimum_interval_seconds=30,
            description="Requests the site after a bundle was published.",
            metadata=make_code_references(__file__),
        )
        return dg.Definitions(assets=with_code_references([asset]), sensors=[after_publication])


def list_publishing_asset_keys(project: Project) -> list[list[str]]:
    """Return the keys of the assets that publish bundles, of all declared series of a project.

    A declaration that has a fault counts as one without assisted flows. Another check reports the fault.
    """
    declared = list_series(project)
    keys = [(source.graph, "bundle") for source in declared]
    keys += [(source.graph, "assisted") for source in declared if _is_assisted(source)]
    distinct_keys = dict.fromkeys(keys)  # series that share their assets have the same
    return [[*read_key_prefix(project), *key] for key in distinct_keys]


def _is_assisted(source: SeriesSource) -> bool:
    """Return whether a declaration asks for assisted flows; False if it has a fault."""
    try:
        [document] = read_yaml_documents(source.path, source.path.name)
        attributes = document["attributes"]
        series_attributes = attributes if source.row is None else attributes["series"]
        return series_attributes.get("assisted") is True
    except (OdError, AttributeError, KeyError, TypeError, ValueError):
        return False


_COMPARISON: dict[str, Any] = read_sibling_yaml(__file__, "comparison.yaml")


def _make_comparison_assets(comparison: Comparison) -> list[dg.AssetsDefinition]:
    """Return the assets of a comparison: the runs of each data set, and the tables and figures of all."""

    def make_options(asset: str) -> dict[str, Any]:
        common = {"owners": comparison.owners, "code_version": "1", "group_name": "evaluation"}
        return {"key": [*comparison.path, asset], **_COMPARISON["assets"][asset], **common}

    described = _COMPARISON["columns"]
    columns = [dg.TableColumn(name, *described.get(name, _COMPARISON["other_columns"])) for name in TABLE_COLUMNS]

    @dg.asset(**make_options("runs"), partitions_def=dg.StaticPartitionsDefinition([*comparison.data_sets]))
    def runs(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        planned = comparison.list_runs(context.partition_key)
        number = count(1)

        def tell(run: Run, made: bool) -> None:
            how = "made" if made else "was there"
            case = f"{run.data_set}, {run.contender.label}, epsilon {run.epsilon}, run {run.number}"
            context.log.info(f"{next(number)} of {len(planned)}: {case} ({how})")

        with run_public_step(context):
            compare(planned, comparison.folder / "runs", comparison.data_sets, progress=tell)
        return dg.MaterializeResult(metadata=make_metadata(dagster__row_count=len(planned)))

    @dg.asset(**make_options("tables"), deps=[runs], metadata={"dagster/column_schema": dg.TableSchema(columns)})
    def tables(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        path = comparison.folder / "comparison.parquet"
        with run_public_step(context):
            results = read_comparison_results(comparison.folder / "runs")
            write_durably(path, lambda file: results.to_parquet(file), mode=PUBLIC_FILE_MODE)
            data_sets = (make() for make in comparison.data_sets.values())
            text = render_comparison_tables(data_sets, results, read_refusals(comparison.folder / "runs"))
            write_durably(path.with_name("tables.md"), lambda file: file.write_text(text, encoding="utf-8"))
        return make_result(compute_file_digest(path), dagster__row_count=len(results))

    @dg.asset(**make_options("figures"), deps=[tables])
    def figures(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        with run_public_step(context):
            figure_files = draw_figures(pd.read_parquet(comparison.folder / "comparison.parquet"), comparison.folder)
        return dg.MaterializeResult(metadata=make_metadata(dagster__row_count=len(figure_files)))

    return [runs, tables, figures]


class OdComparison(Declared, Comparison):
    """Comparison of mechanisms on synthetic and public data; its results are not private, since they use the truth."""

    labels: ClassVar[tuple[str, ...]] = ("evaluation", "origin-destination")

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Return the assets of the comparison and their jobs. Raises OdError if a value is wrong."""
        return build_comparison_definitions(self.with_project(Project.from_context(context)))


def build_comparison_definitions(comparison: Comparison) -> dg.Definitions:
    """Return the assets of a comparison and their jobs. Raises OdError if a value is wrong."""
    assets = _make_comparison_assets(comparison.require_valid())
    jobs = [
        define_owned_job(
            f"{comparison.name}_{job}",
            comparison.owners,
            selection=dg.AssetSelection.assets(*([*comparison.path, asset] for asset in definition["assets"])),
            description=definition["description"],
            tags={COMPARISON_TAG: comparison.name},
        )
        for job, definition in _COMPARISON["jobs"].items()
    ]
    return dg.Definitions(assets=with_code_references(assets), jobs=jobs)


@dg.sensor(
    name="dead_runs",
    description="Reports runs of releases without a process as failed, because they would block a queue of one run.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=make_code_references(__file__),
)
def dead_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Report runs of releases whose process is gone as failed, and return a message that names them."""
    swept = sweep_dead_runs(context.instance)
    return dg.SkipReason(f"Dead runs reported as failed: {', '.join(swept) or 'none'}.")


class VerificationSection(Section):
    """When the published releases of a project are verified, and for how long."""

    cron: str | None = "0 3 * * *"
    minutes: int = Field(60, ge=1)

    @field_validator("cron")
    @classmethod
    def require_cron_line(cls, value: str | None) -> str | None:
        """Return the value if it is None or a cron line that Dagster accepts. Raises ValueError otherwise."""
        if value is not None and not is_cron_line(value):
            raise ValueError("write minute, hour, day, month and day of the week, such as 0 3 * * *; null for never")
        return value


class NoticesSection(Section):
    """Where notices of releases are sent, and which."""

    to: list[SecretStr] = Field(min_length=1)
    of: list[Literal["published", "failed"]] = Field(["published", "failed"])

    @field_validator("to")
    @classmethod
    def require_notice_addresses(cls, value: list[SecretStr]) -> list[SecretStr]:
        """Return the addresses if Apprise can send to all of them. Raises ValueError otherwise.

        The message has the number of the wrong address, because the address itself may contain a secret.
        """
        for number, address in enumerate(value, 1):
            if not is_notice_address(address.get_secret_value()):
                raise ValueError(f"Apprise cannot send to address {number}; see its list of services")
        return value


class OdWarehouse(Declared, Prefix):
    """The folders, the ledger and the database that all releases of a project share. Declare it once per project."""

    notices: bool | NoticesSection = True
    lock_seconds: float = LOCK_SECONDS
    keep_records_days: int | None = Field(None, ge=1)
    verification: VerificationSection = VerificationSection()

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "ledger")

    def build_defs(self, context: dg.ComponentLoadContext | None) -> dg.Definitions:
        """Return the resources, the verification, and the sensors for dead runs, releases and lineage."""
        project = Project.from_context(context)
        settings = self.model_dump(include={"lock_seconds", "keep_records_days"})
        warehouse = Warehouse.from_project(project, key_prefix=self.key_prefix or "", **settings)
        published_tables = PublishedTables(folder=str(warehouse.releases))
        tables = fix_resource_settings(published_tables, published_tables.get_resource_definition())
        resources: dict[str, object] = {"od_warehouse": warehouse, TABLES_KEY: tables}
        if self.notices is True:
            resources["od_notices"] = Notices()
        if isinstance(self.notices, NoticesSection):
            to = [address.get_secret_value() for address in self.notices.to]
            resources["od_notices"] = SentNotices(to, self.notices.of)
        sensors = [dead_runs, release_failed, release_published]
        if is_lineage_configured():
            sensors.append(lineage_events)
        name = f"{self.key_prefix or 'od'}_verification"
        verification = make_verification(project, name, self.verification.cron, self.verification.minutes)
        return dg.Definitions.merge(dg.Definitions(resources=resources, sensors=sensors), verification)


def find_broken_declarations() -> dict[Path, OdError]:
    """Return the fault of every broken declaration of the project, by its file, in the order of their paths.

    A broken declaration cannot be parsed, does not fit its component, or is refused by Dagster. Of a table of series,
    only faults of the whole table are here; :func:`find_broken_rows` returns those of its rows.
    """
    faults = {}
    for path in list_declaration_files():
        try:
            refuse_wrong_type(path)
            declared_type, name = read_component_type(path), path.parent.name
            if declared_type == SERIES_TABLE:
                read_series_table(path).list_names()
            elif find_series_model(declared_type, f"{name}/{path.name}") is not None:
                refuse_unloadable(read_declared_series(name))
            elif declared_type == COMPARISON:
                read_comparison(name)
            elif declared_type in (SITE, WAREHOUSE):
                read_declaration(path, DeclaredSite if declared_type == SITE else OdWarehouse)
        except OdError as error:
            faults[path] = error
    return faults


def find_broken_rows(path: Path) -> dict[SeriesSource, OdError]:
    """Return the fault of each broken row of a table of series, whose declaration is the file ``path``."""
    faults, declared = {}, list_declared()
    for source in declared:
        if source.path == path:
            try:
                refuse_doubles(source.name, declared)
                refuse_unloadable(read_series(source))
            except OdError as error:
                faults[source] = error
    return faults


def list_all_faults() -> list[OdError]:
    """Return the faults of all broken declarations of the project, and then those of all broken rows."""
    faults = list(find_broken_declarations().values())
    for path in select_declaration_files(SERIES_TABLE):
        faults += find_broken_rows(path).values()
    return faults


def refuse_broken_declarations() -> None:
    """Raise the OdError of the first broken declaration or row of the project, if there is one."""
    for fault in list_all_faults():
        raise fault


def refuse_unloadable(series: Series[Any, Any]) -> None:
    """Raise OdError if Dagster refuses the definitions of a series; see :func:`build_sound_definitions`."""
    build_sound_definitions(series)
