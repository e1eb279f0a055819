"""Define the assets of a series measured by a single asset: counted input, noisy measurements, table and bundle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import dagster as dg

from od_assets.assets.inputs import source_assets
from od_assets.assets.publication import bundle_asset
from od_assets.checks.asset_checks import AssetChecks
from od_assets.column_schema import Sources, same_columns, with_columns
from od_assets.compatibility import group_name
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed, confidential_tag, table
from od_assets.resources.release_work import TableWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.settings import TableSettings
from od_core.files.durable import file_digest
from od_core.ledger.balance import Balance
from od_core.publication.columns import Column
from od_core.publication.kind import R


@dataclass(frozen=True)
class AssetText:
    """The name, the columns with their upstream columns, and the description of an asset."""

    name: str
    columns: Sequence[Column]
    sources: Sources
    description: str


@dataclass(frozen=True)
class TableAssets(Generic[R]):
    """The properties of assets that differ between group sizes and trips with stops.

    Attributes:
        counted: asset of the confidential counted input.
        measured: asset of the noisy measurements.
        table: asset of the table that will be published.
        table_kinds: kinds that Dagster shows on the table.
        cells: function that returns the number of measured cells, given the plan and the number of noisy values.
        metadata: function that returns the metadata of a release, given the release and the balance of the ledger.
        rows: function that returns the number of rows of a release.
    """

    counted: AssetText
    measured: AssetText
    table: AssetText
    table_kinds: frozenset[str]
    cells: Callable[[Any, int], int]
    metadata: Callable[[R, Balance], dict[str, Any]]
    rows: Callable[[R], int]


def table_assets(
    settings: TableSettings[Any, Any],
    partitions: dg.PartitionsDefinition,
    traits: dict[str, Any],
    assets: TableAssets[R],
    checks: Sequence[AssetChecks],
) -> list[dg.AssetsDefinition]:
    """Return all assets of a series that is measured by a single asset.

    Args:
        settings, partitions, traits: settings, partitions and common arguments of the series' assets.
        assets: names, columns and descriptions of the assets.
        checks: all blocking checks of the series.
    """
    name = settings.name

    def described(asset: AssetText, group: str) -> dict[str, Any]:
        return {
            **traits,
            "key": [name, asset.name],
            "group_name": group_name(name, group),
            "partitions_def": partitions,
            "metadata": with_columns(*asset.columns, sources=asset.sources),
            "description": asset.description,
        }

    def work_on(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> TableWork[Any, Any]:
        return TableWork.of(od_warehouse, settings, settings.release_of(context.partition_key))

    @dg.asset(
        **described(assets.counted, "inputs") | confidential_tag(traits),
        deps=[[name, "geography"], [name, "raw_trips"]],
        kinds={"parquet", "duckdb"},
    )
    def counted(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        work = work_on(context, od_warehouse)
        with failures_without_values(od_warehouse.confidential):
            work.count_records()
        return dg.MaterializeResult(data_version=dg.DataVersion(str(work.key)))

    @dg.asset(
        **described(assets.measured, "measurements"),
        deps=[counted.key],
        kinds={"opendp", "parquet"} if settings.noise == "opendp" else {"parquet"},
    )
    def measured(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        work = work_on(context, od_warehouse)
        with failures_without_values(od_warehouse.confidential):
            values = sum(len(noisy) for _, noisy in work.measure())
            plan, ledger = work.plan, od_warehouse.ledger
            digests = [ledger.measured_digest(work.key, step.number) for step in plan.steps]
        return dg.MaterializeResult(
            data_version=dg.DataVersion(".".join(digests)),
            metadata=allowed(measured_cells=assets.cells(plan, values), plan=table(plan.to_frame())),
        )

    @dg.asset(**described(assets.table, "publication"), deps=[measured.key], kinds=set(assets.table_kinds))
    def published_table(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        work = work_on(context, od_warehouse)
        with failures_without_values(od_warehouse.confidential):
            release = work.estimated()
            path = work.staged.save_table(release)
            balance = od_warehouse.ledger.balance(settings.domain.name, work.key.period)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(file_digest(path)),
            metadata=assets.metadata(release, balance) | allowed(dagster__row_count=assets.rows(release)),
        )

    bundle = bundle_asset(
        settings,
        partitions,
        traits,
        table=published_table.key,
        columns=assets.table.columns,
        sources=same_columns(published_table.key, assets.table.columns),
        checks=checks,
        work=TableWork,
        metadata=assets.metadata,
    )
    return [*source_assets(settings, partitions, traits), counted, measured, published_table, bundle]
