"""Define the assets of a series of group-size tables: group sizes, noisy measurements, histograms and bundle."""

from functools import partial
from typing import Any

import dagster as dg

from od_assets.assets.inputs import source_assets
from od_assets.assets.publication import bundle_asset
from od_assets.checks.release_checks import group_size_checks
from od_assets.column_schema import GROUP_SIZES, with_columns
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed, group_size_metadata, table
from od_assets.resources.warehouse import Warehouse
from od_assets.series.group_size_settings import GroupSizeSettings
from od_core.files.durable import file_digest
from od_core.group_sizes.release import measure_plan
from od_core.noise.sources import noise_named
from od_core.publication.columns import GROUP_MEASUREMENTS, HISTOGRAM


def group_size_assets(
    settings: GroupSizeSettings, partitions: dg.PartitionsDefinition, traits: dict[str, Any]
) -> list[dg.AssetsDefinition]:
    """Return all assets of a series of group-size tables."""
    name = settings.name
    common = {**traits, "partitions_def": partitions}

    @dg.asset(
        key=[name, "group_sizes"],
        deps=[[name, "geography"], [name, "raw_trips"]],
        kinds={"parquet", "duckdb"},
        group_name=f"{name}/inputs",
        metadata=with_columns(*GROUP_SIZES),
        description="Confidential: the size of every group. In the confidential folder; a run shows nothing of them.",
        **common,
    )
    def group_sizes(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(warehouse.confidential):
            plan, geography = warehouse.plan(settings, key), warehouse.geography(settings)
            staged = warehouse.staged_group_sizes(key)
            count = partial(settings.grouping.count, staged.records, geography, key.period, settings.fault_threshold)
            warehouse.count(settings, plan, key, staged, count, staged.save_groups)
        return dg.MaterializeResult(data_version=dg.DataVersion(str(key)))

    @dg.asset(
        key=[name, "noisy_measurements"],
        deps=[group_sizes.key],
        kinds={"opendp", "parquet"} if settings.noise == "opendp" else {"parquet"},
        group_name=f"{name}/measurements",
        metadata=with_columns(*GROUP_MEASUREMENTS.columns),
        description=(
            "What the mechanism asks of every area, plus exact discrete Laplace noise. Drawn once, charged to the"
            " ledger, read back at every later run. From here on nothing is confidential."
        ),
        **common,
    )
    def noisy_measurements(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(warehouse.confidential):
            plan, staged = warehouse.plan(settings, key), warehouse.staged_group_sizes(key)
            staged.refuse_other_plan(plan)
            groups = staged.groups()
            measurements = warehouse.begin(settings, plan, key, groups)
            measured = measure_plan(plan, groups, noise_named(settings.noise), measurements)
            ledger = warehouse.ledger
            digests = [ledger.measured_digest(key, step.level) for step in plan.steps]
        return dg.MaterializeResult(
            data_version=dg.DataVersion(".".join(digests)),
            metadata=allowed(measured_cells=sum(len(noisy) for _, noisy in measured), plan=table(plan.to_frame())),
        )

    @dg.asset(
        key=[name, "histograms"],
        deps=[noisy_measurements.key],
        kinds={"numba", "parquet"},
        group_name=f"{name}/publication",
        metadata=with_columns(*HISTOGRAM.columns),
        description=(
            "How many groups of each size every area has. Whole numbers of at least 0 that sum to its groups, children"
            " to parents; nothing is drawn, and nothing is charged. Public once its bundle is."
        ),
        **common,
    )
    def histograms(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(warehouse.confidential):
            release = warehouse.estimated_group_sizes(settings, key)
            path = warehouse.staged_group_sizes(key).save_histograms(release.frame, release.histograms)
            balance = warehouse.ledger.balance(settings.domain.name, key.period)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(file_digest(path)),
            metadata=group_size_metadata(release, balance) | allowed(dagster__row_count=len(release.histogram)),
        )

    bundle = bundle_asset(
        settings,
        partitions,
        traits,
        table=histograms.key,
        columns=HISTOGRAM.columns,
        checks=group_size_checks(settings),
        released=lambda warehouse, key: warehouse.group_sizes(settings, key),
        metadata=group_size_metadata,
    )
    return [*source_assets(settings, partitions, traits), group_sizes, noisy_measurements, histograms, bundle]
