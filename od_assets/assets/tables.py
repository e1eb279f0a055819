"""Make the assets of group sizes and of trips with stops, which are measured and estimated as one table each."""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from od_assets.assets.inputs import shared, source_assets
from od_assets.assets.publication import bundle_asset
from od_assets.metadata import (
    GROUP_SIZE_COLUMNS,
    Sources,
    cell_columns,
    columns_of,
    made,
    record_columns,
    release_metadata,
    same_columns,
    table,
    with_columns,
)
from od_assets.resources.release_work import TableWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.group_sizes import GroupSizeSeries
from od_assets.series.series import TableSeries
from od_assets.series.stops import StopsSeries
from od_core.files.durable import file_digest
from od_core.publication.columns import AREA, AREA_LEVEL, COUNT_ENDS, GROUP_MEASUREMENTS, HISTOGRAM, Column, boxes_table


def _asset(
    series: TableSeries[Any, Any], name: str, columns: Sequence[Column], sources: Sources, description: str
) -> dict[str, Any]:
    """Return the key of an asset, its columns with their upstream columns, and its description."""
    metadata = with_columns(*columns, sources=sources)
    return {"key": dg.AssetKey([series.name, name]), "metadata": metadata, "description": description}


def _table_assets(
    series: TableSeries[Any, Any],
    *,
    counted_input: dict[str, Any],
    measurements: dict[str, Any],
    table_of_release: dict[str, Any],
    columns: Sequence[Column],
    kinds: set[str],
    cells: Callable[[Any, int], int],
    rows: Callable[[Any], int],
) -> list[dg.AssetsDefinition]:
    """Return all assets of a series that is measured by a single asset.

    Args:
        counted_input: asset of the confidential counted input; see :func:`_asset`.
        measurements: asset of the noisy measurements.
        table_of_release: asset of the table that will be published.
        columns, kinds: its columns, and the kinds that Dagster shows on it.
        cells: function that returns the number of measured cells, given the plan and the number of noisy values.
        rows: function that returns the number of rows of a release.
    """

    @dg.asset(
        **counted_input,
        **shared(series, "inputs", is_confidential=True),
        deps=[[series.name, "geography"], [series.name, "raw_trips"]],
        kinds={"parquet", "duckdb"},
    )
    def counted(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork[Any, Any].step(context, od_warehouse, series) as work:
            work.count_records()
        return made(str(work.key))

    @dg.asset(
        **measurements,
        **shared(series, "measurements"),
        deps=[counted.key],
        kinds={"opendp", "parquet"} if series.noise == "opendp" else {"parquet"},
    )
    def measured(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork[Any, Any].step(context, od_warehouse, series) as work:
            values = sum(len(noisy) for _, noisy in work.measure())
            plan, version = work.plan, work.measured_version(work.plan.steps)
        return made(version, measured_cells=cells(plan, values), plan=table(plan.to_frame()))

    @dg.asset(**table_of_release, **shared(series, "publication"), deps=[measured.key], kinds=kinds)
    def published_table(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork[Any, Any].step(context, od_warehouse, series) as work:
            release = work.estimated()
            path = work.staged.save_table(release)
            balance = od_warehouse.ledger.balance(series.domain.name, work.key.period)
        return made(
            file_digest(path), **release_metadata(series.kind, release, balance), dagster__row_count=rows(release)
        )

    bundle = bundle_asset(
        series,
        table=published_table.key,
        columns=columns,
        sources=same_columns(published_table.key, columns),
    )
    return [*source_assets(series), counted, measured, published_table, bundle]


def group_size_assets(series: GroupSizeSeries) -> list[dg.AssetsDefinition]:
    """Return all assets of a series of group sizes."""
    zones = columns_of([series.name, "geography"], series.placing_columns)
    records = columns_of([series.name, "raw_trips"], record_columns(series.columns))
    measured = dg.AssetKey([series.name, "noisy_measurements"])
    return _table_assets(
        series,
        counted_input=_asset(
            series,
            "group_sizes",
            GROUP_SIZE_COLUMNS,
            {"area": [*records, *zones], "size": records},
            "Confidential: the size of every group. The sizes stay in the confidential folder, and a run shows none"
            " of them.",
        ),
        measurements=_asset(
            series,
            "noisy_measurements",
            GROUP_MEASUREMENTS.columns,
            {"area": zones, "noisy": columns_of([series.name, "group_sizes"], ["area", "size"])},
            "The query of every area plus exact discrete Laplace noise. The noise is drawn once, charged to the"
            " ledger, and read back at every later run. From here on, nothing is confidential.",
        ),
        table_of_release=_asset(
            series,
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
        columns=HISTOGRAM.columns,
        kinds={"numba", "parquet"},
        cells=lambda _plan, values: values,
        rows=lambda release: len(release.histogram),
    )


def stops_assets(series: StopsSeries) -> list[dg.AssetsDefinition]:
    """Return all assets of a series of trips with stops. Their columns depend on the places of a trip."""
    columns = boxes_table(series.dimensions, series.stages).columns
    counted_only = {"count", *(end.name for end in COUNT_ENDS)}
    ends = [column for column in columns if column.name not in counted_only | {"noisy"}]
    cells = cell_columns(series.dimensions)
    counted, measured = dg.AssetKey([series.name, "trip_cells"]), dg.AssetKey([series.name, "noisy_boxes"])
    every_cell = columns_of(counted, [cell.name for cell in cells])
    return _table_assets(
        series,
        counted_input=_asset(
            series,
            "trip_cells",
            cells,
            {cell.name: _places(series, dimension) for dimension, cell in enumerate(cells)},
            "Confidential: every trip's cells on the map. They stay in the confidential folder, and a run shows"
            " none of them.",
        ),
        measurements=_asset(
            series,
            "noisy_boxes",
            [column for column in columns if column.name not in counted_only],
            {**{end.name: every_cell for end in ends}, "noisy": every_cell},
            "The map cut into boxes, each with a noisy count. The noise is drawn once, charged to the ledger, and read"
            " back at every later run. From here on, nothing is confidential.",
        ),
        table_of_release=_asset(
            series,
            "boxes",
            columns,
            {**same_columns(measured, columns), **dict.fromkeys(counted_only, columns_of(measured, ["noisy"]))},
            "The boxes with whole counts of at least 0 that keep the noisy total, and with intervals. Nothing is drawn,"
            " and nothing is charged. Public once the bundle is published.",
        ),
        columns=columns,
        kinds={"parquet"},
        cells=lambda plan, values: values // (2 * plan.grid.dimensions + 1),
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
