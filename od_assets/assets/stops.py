"""Describe the assets of a series of trips with stops."""

import dagster as dg

from od_assets.assets.tables import AssetText, TableAssets
from od_assets.column_schema import cell_columns, columns_of, same_columns
from od_assets.metadata import stops_metadata
from od_assets.series.stops_settings import StopsSettings
from od_core.publication.columns import COUNT_ENDS, boxes_table
from od_core.stops.release import StopsRelease


def stops_assets(settings: StopsSettings) -> TableAssets[StopsRelease]:
    """Return the descriptions of a series' assets. Their columns depend on the places of a trip."""
    columns = boxes_table(settings.dimensions, settings.stages).columns
    counted_only = {"count", *(end.name for end in COUNT_ENDS)}
    ends = [column for column in columns if column.name not in counted_only | {"noisy"}]
    cells = cell_columns(settings.dimensions)
    counted, measured = dg.AssetKey([settings.name, "trip_cells"]), dg.AssetKey([settings.name, "noisy_boxes"])
    every_cell = columns_of(counted, [cell.name for cell in cells])
    return TableAssets(
        counted=AssetText(
            "trip_cells",
            cells,
            {cell.name: _places(settings, dimension) for dimension, cell in enumerate(cells)},
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


def _places(settings: StopsSettings, dimension: int) -> list[dg.TableColumnDep]:
    """Return the columns that place a trip along a dimension of the grid: longitude, then latitude, of each place."""
    origin, destination, *stops = settings.columns.codes
    place = [origin, *stops, destination][dimension // 2]
    code, *degrees = settings.placing_columns
    return [
        *columns_of([settings.name, "raw_trips"], [place, "in_period"]),
        *columns_of([settings.name, "geography"], [code, degrees[dimension % 2]]),
    ]
