"""Define the asset that publishes model-assisted flows, which learn from the releases of earlier periods."""

from typing import Any

import dagster as dg

from od_assets.column_schema import same_columns, with_columns
from od_assets.compatibility import group_name
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed, published_metadata
from od_assets.resources.warehouse import Warehouse
from od_assets.series.settings import ReleaseSettings
from od_core.files.durable import file_digest
from od_core.flows.assisted_flows import MOST
from od_core.publication.bundle_integrity import CERTIFICATE
from od_core.publication.columns import FLOWS, FLOWS_WITH_INTERVALS
from od_core.published.assisted import publish_assisted


def assisted_assets(
    settings: ReleaseSettings, partitions: dg.PartitionsDefinition, traits: dict[str, Any]
) -> list[dg.AssetsDefinition]:
    """Return the asset of the model-assisted flows of a series; none if the series does not declare them.

    The asset depends on the bundles of its period and of the periods before, so a backfill publishes those first.
    """
    if not settings.assisted:
        return []
    bundle = dg.AssetKey([settings.name, "bundle"])
    columns = (FLOWS_WITH_INTERVALS if settings.intervals else FLOWS).columns
    before = (
        dg.TimeWindowPartitionMapping(start_offset=1 - MOST, allow_nonexistent_upstream_partitions=True)
        if isinstance(partitions, dg.TimeWindowPartitionsDefinition)
        else None
    )

    @dg.asset(
        key=[settings.name, "assisted"],
        deps=[dg.AssetDep(bundle, partition_mapping=before)],
        kinds={"parquet", "csv"},
        metadata=with_columns(*columns, sources=same_columns(bundle, columns)),
        description=(
            "Model-assisted flows of the release, which also learn from the published releases before it. They are"
            " computed from public bundles alone and are charged nothing. The release stays as it is."
        ),
        group_name=group_name(settings.name, "publication"),
        partitions_def=partitions,
        **traits,
    )
    def assisted(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with failures_without_values(od_warehouse.confidential):
            found = publish_assisted(od_warehouse.releases, settings.release_of(context.partition_key))
        sources = [source["release"] for source in found.certificate["sources"]]
        context.log.info(f"Published {found.key} in {found.folder}, from {', '.join(sources)}. Nothing was charged.")
        return dg.MaterializeResult(
            data_version=dg.DataVersion(file_digest(found.folder / CERTIFICATE)),
            metadata=published_metadata(found.certificate, found.folder)
            | allowed(trips=int(found.flows.leaves.trips.sum()), releases=len(sources)),
        )

    return [assisted]
