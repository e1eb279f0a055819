"""Make the assets of group sizes and of trips with stops, which are measured and estimated as one table each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import dagster as dg

from od_assets.assets.inputs import source_assets
from od_assets.assets.publication import bundle_asset
from od_assets.checks.release_checks import AssetChecks
from od_assets.compatibility import group_name
from od_assets.metadata import (
    GROUP_SIZE_COLUMNS,
    Sources,
    cell_columns,
    columns_of,
    confidential_tag,
    group_size_metadata,
    made,
    record_columns,
    same_columns,
    stops_metadata,
    table,
    with_columns,
)
from od_assets.resources.release_work import TableWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.group_sizes import GroupSizeSeries
from od_assets.series.series import TableSeries
from od_assets.series.stops import StopsSeries
from od_core import Balance, GroupSizeRelease, StopsRelease
from od_core.files.durable import file_digest
from od_core.publication.columns import AREA, AREA_LEVEL, COUNT_ENDS, GROUP_MEASUREMENTS, HISTOGRAM, Column, boxes_table
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
    series: TableSeries[Any, Any],
    partitions: dg.PartitionsDefinition,
    traits: dict[str, Any],
    assets: TableAssets[R],
    checks: Sequence[AssetChecks],
) -> list[dg.AssetsDefinition]:
    """Return all assets of a series that is measured by a single asset.

    Args:
        assets: names, columns and descriptions of the assets.
        checks: all blocking checks of the series.
    """
    name = series.name

    def described(asset: AssetText, group: str) -> dict[str, Any]:
        return {
            **traits,
            "key": [name, asset.name],
            "group_name": group_name(name, group),
            "partitions_def": partitions,
            "metadata": with_columns(*asset.columns, sources=asset.sources),
            "description": asset.description,
        }

    @dg.asset(
        **described(assets.counted, "inputs") | confidential_tag(traits),
        deps=[[name, "geography"], [name, "raw_trips"]],
        kinds={"parquet", "duckdb"},
    )
    def counted(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork[Any, Any].step(context, od_warehouse, series) as work:
            work.count_records()
        return made(str(work.key))

    @dg.asset(
        **described(assets.measured, "measurements"),
        deps=[counted.key],
        kinds={"opendp", "parquet"} if series.noise == "opendp" else {"parquet"},
    )
    def measured(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork[Any, Any].step(context, od_warehouse, series) as work:
            values = sum(len(noisy) for _, noisy in work.measure())
            plan, version = work.plan, work.measured_version(work.plan.steps)
        return made(version, measured_cells=assets.cells(plan, values), plan=table(plan.to_frame()))

    @dg.asset(**described(assets.table, "publication"), deps=[measured.key], kinds=set(assets.table_kinds))
    def published_table(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork[Any, Any].step(context, od_warehouse, series) as work:
            release = work.estimated()
            path = work.staged.save_table(release)
            balance = od_warehouse.ledger.balance(series.domain.name, work.key.period)
        rows = assets.rows(release)
        return made(file_digest(path), **assets.metadata(release, balance), dagster__row_count=rows)

    bundle = bundle_asset(
        series,
        partitions,
        traits,
        table=published_table.key,
        columns=assets.table.columns,
        sources=same_columns(published_table.key, assets.table.columns),
        checks=checks,
        work=TableWork,
        metadata=assets.metadata,
    )
    return [*source_assets(series, partitions, traits), counted, measured, published_table, bundle]


def group_size_assets(series: GroupSizeSeries) -> TableAssets[GroupSizeRelease]:
    """Return the descriptions of a series' assets."""
    zones = columns_of([series.name, "geography"], series.placing_columns)
    records = columns_of([series.name, "raw_trips"], record_columns(series.columns))
    measured = dg.AssetKey([series.name, "noisy_measurements"])
    return TableAssets(
        counted=AssetText(
            "group_sizes",
            GROUP_SIZE_COLUMNS,
            {"area": [*records, *zones], "size": records},
            "Confidential: the size of every group. The sizes stay in the confidential folder, and a run shows none"
            " of them.",
        ),
        measured=AssetText(
            "noisy_measurements",
            GROUP_MEASUREMENTS.columns,
            {"area": zones, "noisy": columns_of([series.name, "group_sizes"], ["area", "size"])},
            "The query of every area plus exact discrete Laplace noise. The noise is drawn once, charged to the"
            " ledger, and read back at every later run. From here on, nothing is confidential.",
        ),
        table=AssetText(
            "histograms",
            HISTOGRAM.columns,
            {
                **same_columns(measured, [AREA, AREA_LEVEL]),
                "size": columns_of(measured, ["position"]),
                "groups": columns_of(measured, ["noisy"]),
            },
            "The number of groups of each size in every area. Whole numbers of at least 0 that sum to its groups,"
            " and children to parents. Nothing is drawn and nothing is charged. Public once the bundle is published.",
        ),
        table_kinds=frozenset({"numba", "parquet"}),
        cells=lambda _plan, values: values,
        metadata=group_size_metadata,
        rows=lambda release: len(release.histogram),
    )


def stops_assets(series: StopsSeries) -> TableAssets[StopsRelease]:
    """Return the descriptions of a series' assets. Their columns depend on the places of a trip."""
    columns = boxes_table(series.dimensions, series.stages).columns
    counted_only = {"count", *(end.name for end in COUNT_ENDS)}
    ends = [column for column in columns if column.name not in counted_only | {"noisy"}]
    cells = cell_columns(series.dimensions)
    counted, measured = dg.AssetKey([series.name, "trip_cells"]), dg.AssetKey([series.name, "noisy_boxes"])
    every_cell = columns_of(counted, [cell.name for cell in cells])
    return TableAssets(
        counted=AssetText(
            "trip_cells",
            cells,
            {cell.name: _places(series, dimension) for dimension, cell in enumerate(cells)},
            "Confidential: every trip's cells on the map. They stay in the confidential folder, and a run shows"
            " none of them.",
        ),
        measured=AssetText(
            "noisy_boxes",
            [column for column in columns if column.name not in counted_only],
            {**{end.name: every_cell for end in ends}, "noisy": every_cell},
            "The map cut into boxes, each with a noisy count. The noise is drawn once, charged to the ledger, and read"
            " back at every later run. From here on, nothing is confidential.",
        ),
        table=AssetText(
            "boxes",
            columns,
            {**same_columns(measured, columns), **dict.fromkeys(counted_only, columns_of(measured, ["noisy"]))},
            "The boxes with whole counts of at least 0 that keep the noisy total, and with intervals. Nothing is drawn,"
            " and nothing is charged. Public once the bundle is published.",
        ),
        table_kinds=frozenset({"parquet"}),
        cells=lambda plan, values: values // (2 * plan.grid.dimensions + 1),
        metadata=stops_metadata,
        rows=lambda release: len(release.measured),
    )


def _places(series: StopsSeries, dimension: int) -> list[dg.TableColumnDep]:
    """Return the columns that place a trip along a dimension of the grid: longitude, then latitude, of each place."""
    origin, destination, *stops = series.columns.codes
    place = [origin, *stops, destination][dimension // 2]
    code, *degrees = series.placing_columns
    return [
        *columns_of([series.name, "raw_trips"], [place, "in_period"]),
        *columns_of([series.name, "geography"], [code, degrees[dimension % 2]]),
    ]
