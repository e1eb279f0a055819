"""Define the asset of the web site of all published releases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.failures import public_failures
from od_assets.metadata import allowed
from od_assets.resources.dead_runs import mark_process
from od_assets.resources.folders import Folders
from od_core.files.durable import file_digest
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

    Args:
        site: what the site says of itself.
        folders: folders of the project.
        folder: folder of the site.
        bundles: keys of the assets that publish bundles.
        traits: common arguments, such as owners.
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
        address = {} if site.base is None else {"address": dg.MetadataValue.url(site.base)}
        return dg.MaterializeResult(
            data_version=dg.DataVersion(file_digest(folder / CATALOGUE)),
            metadata=allowed(
                series=written.series,
                releases=written.releases,
                files_written=len(written.changed),
                first_page=dg.MetadataValue.path(str((folder / HOME).resolve())),
                **address,
            ),
        )

    return write
