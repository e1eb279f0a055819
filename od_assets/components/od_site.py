"""Define the components that a project has once: the warehouse, and the web site of all releases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
from pydantic import Field

from od_assets.components.series import Declared
from od_assets.failures import public_failures
from od_assets.metadata import made, source_of, with_sources
from od_assets.project import Project
from od_assets.resources.dead_runs import SITE_TAG, mark_process, sweep_dead_runs
from od_assets.resources.folders import Folders
from od_assets.resources.warehouse import Warehouse
from od_assets.sensors.lineage import lineage_events, lineage_is_configured
from od_assets.sensors.notices import Notices, release_failed, release_published
from od_assets.series.reading import RELEASES, declarations_of
from od_assets.series.section import yaml_documents
from od_assets.series.site import DeclaredSite
from od_core.errors import OdError
from od_core.files.durable import file_digest
from od_core.ledger.confidential import LOCK_SECONDS
from od_core.published.site_releases import SiteDescription

AFTER_PUBLICATION = (
    dg.AutomationCondition.any_deps_updated().since_last_handled() & ~dg.AutomationCondition.in_progress()
).with_label("after a publication")
"""Condition under which the site is written: a bundle was published since it was last requested."""


def site_asset(
    site: SiteDescription, folders: Folders, folder: Path, bundles: Sequence[Sequence[str]], traits: dict[str, Any]
) -> dg.AssetsDefinition:
    """Return the asset of the site.

    It is part of no release job and does not lock the warehouse, so that no publication waits for it or fails with it.
    It reads public files alone. It fails after the site is written if the bundle of a published release is missing or
    damaged.
    """

    @dg.asset(
        key=["od", "site"],
        deps=[dg.AssetKey(key) for key in bundles],
        kinds={"html"},
        automation_condition=AFTER_PUBLICATION,
        group_name="site",
        description=(
            "The web site of all published releases, written again after each publication. Copy its folder to any web"
            " server."
        ),
        **traits,
    )
    def write(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        from od_core.published.site import CATALOGUE, HOME, write_site  # all kinds take half a second to import

        mark_process(context.instance, context.run.run_id)  # done here, since this asset does not use the warehouse
        with public_failures():
            written = write_site(folders.releases, folder, site, folders.database)
            written.refuse_left_out()
        address: dict[str, Any] = {} if site.base is None else {"address": dg.MetadataValue.url(site.base)}
        return made(
            file_digest(folder / CATALOGUE),
            series=written.series,
            releases=written.releases,
            files_written=len(written.changed),
            first_page=dg.MetadataValue.path(str((folder / HOME).resolve())),
            **address,
        )

    return write


class OdSite(Declared, DeclaredSite):
    """The web site of all published releases, written again after each publication. Declare it once per project."""

    labels: ClassVar[tuple[str, ...]] = ("origin-destination", "site")

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Build the asset, and the sensor that requests it after each publication.

        Runs that it requests go after queued releases.

        Raises:
            OdError: a text or an address cannot be written on the site.
        """
        site = self.within(Project.of(context))
        asset = site_asset(
            site.described(),
            Warehouse.of(site.project),
            site.place,
            publishing_assets(site.project),
            {"owners": self.owners, "code_version": "1"},
        )
        after_publication = dg.AutomationConditionSensorDefinition(
            "od_site_after_publication",
            target=dg.AssetSelection.assets(asset.key),
            run_tags={SITE_TAG: "true", "dagster/priority": "-1"},
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=30,
            description="Requests the site after a bundle was published.",
            metadata=source_of(__file__),
        )
        return dg.Definitions(assets=with_sources([asset]), sensors=[after_publication])


def publishing_assets(project: Project) -> list[list[str]]:
    """Return the keys of the assets that publish bundles, of all declared series of a project.

    Of a declaration that cannot be read, only the bundle is known. Another check reports its fault.
    """
    keys = []
    for path in declarations_of(*RELEASES, project=project):
        name = path.parent.name
        keys.append([name, "bundle"])
        if _is_assisted(path):
            keys.append([name, "assisted"])
    return keys


def _is_assisted(path: Path) -> bool:
    try:
        [document] = yaml_documents(path, path.name)
        return document["attributes"].get("assisted") is True
    except (OdError, AttributeError, KeyError, TypeError, ValueError):
        return False


@dg.sensor(
    name="dead_runs",
    description="Reports runs of releases without a process as failed, because they would block a queue of one run.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=source_of(__file__),
)
def dead_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Report runs of releases whose process is gone as failed."""
    swept = sweep_dead_runs(context.instance)
    return dg.SkipReason(f"Dead runs reported as failed: {', '.join(swept) or 'none'}.")


class OdWarehouse(Declared):
    """The folders, the ledger and the database that all releases of a project share. Declare it once per project."""

    notices: bool = True

    lock_seconds: float = LOCK_SECONDS

    keep_records_days: int | None = Field(None, ge=1)

    labels: ClassVar[tuple[str, ...]] = ("differential-privacy", "ledger")

    def build_defs(self, context: dg.ComponentLoadContext | None) -> dg.Definitions:
        """Build the resources ``od_warehouse`` and ``od_notices``, and the sensors for runs, releases and lineage."""
        warehouse = Warehouse.of(Project.of(context), self.lock_seconds, self.keep_records_days)
        resources: dict[str, object] = {"od_warehouse": warehouse}
        if self.notices:
            resources["od_notices"] = Notices()
        sensors = [dead_runs, release_failed, release_published]
        if lineage_is_configured():
            sensors.append(lineage_events)
        return dg.Definitions(resources=resources, sensors=sensors)
