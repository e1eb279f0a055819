"""Make the assets of group sizes and of trips with stops, which are measured and estimated as one table each."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import dagster as dg
import pyarrow.parquet as pq

from od_assets.assets.release import make_asset_options, make_publication_assets, make_source_assets
from od_assets.metadata import (
    GROUP_SIZE_COLUMNS,
    Sources,
    make_column_dependencies,
    make_release_metadata,
    make_result,
    make_table_metadata,
    make_table_value,
    map_record_sources,
    map_to_same_columns,
)
from od_assets.resources.release_work import TableWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.series import G, P, TableSeries
from od_assets.series.tables import GroupSizeSeries, StopsSeries
from od_core.files.durable import compute_file_digest
from od_core.publication.columns import (
    AREA,
    AREA_LEVEL,
    COUNT_ENDS,
    GROUP_MEASUREMENTS,
    HISTOGRAM,
    Column,
    make_boxes_table,
)


def _make_table_assets(
    series: TableSeries[P, G],
    tables: Mapping[str, tuple[Sequence[Column], Sources]],
    *,
    cells: Callable[[P, int], int],
) -> list[dg.AssetsDefinition]:
    """Return all assets of a series that is measured by a single asset.

    Args:
        tables: columns, each with its upstream columns, of three assets by their names: the confidential counted input,
            the noisy measurements, and the table that will be published.
        cells: function that returns the number of measured cells, given the plan and the number of noisy values.
    """
    counts_options, measurements_options, table_options = (
        make_asset_options(series, name, make_table_metadata(*columns, sources=sources))
        for name, (columns, sources) in tables.items()
    )
    inputs = make_source_assets(series)

    @dg.asset(**counts_options, deps=inputs)
    def counts_asset(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork.enter_step(context, od_warehouse, series) as work:
            count = partial(work.series.count, work.staged.records, work.geography, work.key.period)
            work.count(count, work.staged.save_counted)
        return make_result(str(work.key))

    @dg.asset(**measurements_options, deps=[counts_asset.key])
    def measurements_asset(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork.enter_step(context, od_warehouse, series) as work:
            values = sum(len(noisy) for _, noisy in work.measure())
            plan, version = work.plan, work.digest_measurements(work.plan.steps)
        return make_result(version, measured_cells=cells(plan, values), plan=make_table_value(plan.to_frame()))

    @dg.asset(**table_options, deps=[measurements_asset.key])
    def published_table(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with TableWork.enter_step(context, od_warehouse, series) as work:
            release = work.estimate_release()
            path = work.staged.save_table(release)
            balance = od_warehouse.ledger.balance(work.series.domain.name, work.key.period)
        metadata = make_release_metadata(series.kind, release, balance)
        rows = pq.ParquetFile(path).metadata.num_rows
        return make_result(compute_file_digest(path), **metadata, dagster__row_count=rows)

    columns, _ = list(tables.values())[-1]
    published = make_publication_assets(
        series, published_table.key, columns, map_to_same_columns(published_table.key, columns)
    )
    return [*inputs, counts_asset, measurements_asset, published_table, *published]


def make_group_size_assets(series: GroupSizeSeries) -> list[dg.AssetsDefinition]:
    """Return all assets of a series of group sizes, from the geography to the main table of the bundle."""
    zones = make_column_dependencies([*series.path, "geography"], series.placing_columns)
    records = make_column_dependencies([*series.path, "raw_trips"], map_record_sources(series.columns))
    measured = dg.AssetKey([*series.path, "noisy_measurements"])
    noisy = make_column_dependencies([*series.path, "group_sizes"], ["area", "size", "groups"])
    histogram = {
        **map_to_same_columns(measured, [AREA, AREA_LEVEL]),
        "size": make_column_dependencies(measured, ["position"]),
        "groups": make_column_dependencies(measured, ["noisy"]),
    }
    return _make_table_assets(
        series,
        {
            "group_sizes": (GROUP_SIZE_COLUMNS, {"area": [*records, *zones], "size": records, "groups": records}),
            "noisy_measurements": (GROUP_MEASUREMENTS.columns, {"area": zones, "noisy": noisy}),
            "histograms": (HISTOGRAM.columns, histogram),
        },
        cells=lambda _plan, values: values,
    )


def make_stops_assets(series: StopsSeries) -> list[dg.AssetsDefinition]:
    """Return all assets of a series of trips with stops, whose columns depend on the number of places of a trip."""
    columns = make_boxes_table(series.dimensions, series.stages).columns
    count_columns = {"count", *(end.name for end in COUNT_ENDS)}
    drawn_columns = [column for column in columns if column.name not in count_columns]
    cells = []
    for number in range(1, series.dimensions + 1):
        text = f"Confidential: the trip's cell along dimension {number}."
        cells.append(Column(f"cell_{number}", "integer", "Cell", text))
    every_cell = make_column_dependencies([*series.path, "trip_cells"], [cell.name for cell in cells])
    measured = dg.AssetKey([*series.path, "noisy_boxes"])
    counts = dict.fromkeys(count_columns, make_column_dependencies(measured, ["noisy"]))
    return _make_table_assets(
        series,
        {
            "trip_cells": (
                cells,
                {cell.name: _list_place_columns(series, number) for number, cell in enumerate(cells)},
            ),
            "noisy_boxes": (drawn_columns, {column.name: every_cell for column in drawn_columns}),
            "boxes": (columns, {**map_to_same_columns(measured, columns), **counts}),
        },
        cells=lambda plan, values: values // plan.grid.values_per_box,
    )


def _list_place_columns(series: StopsSeries, dimension: int) -> list[dg.TableColumnDep]:
    """Return the columns from which a trip's cell along a dimension of the grid follows.

    Each place of a trip has two dimensions: its longitude, and then its latitude.
    """
    origin, destination, *stops = series.columns.codes
    place_code = [origin, *stops, destination][dimension if series.columns.axes else dimension // 2]
    zone_code, *degrees = series.placing_columns
    return [
        *make_column_dependencies([*series.path, "raw_trips"], [place_code, "in_period"]),
        *make_column_dependencies([*series.path, "geography"], [zone_code, degrees[dimension % 2]]),
    ]
