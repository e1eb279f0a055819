"""Describe the assets of a series of trips with stops."""

from od_assets.assets.tables import AssetText, TableAssets
from od_assets.column_schema import cell_columns
from od_assets.metadata import stops_metadata
from od_assets.series.stops_settings import StopsSettings
from od_core.publication.columns import boxes_table
from od_core.stops.release import StopsRelease


def stops_assets(settings: StopsSettings) -> TableAssets[StopsRelease]:
    """Return the descriptions of the assets of a series; their columns depend on the places of a trip."""
    columns = boxes_table(settings.dimensions, settings.stages).columns
    return TableAssets(
        counted=AssetText(
            "trip_cells",
            cell_columns(settings.dimensions),
            "Confidential: every trip's cells on the map. They stay in the confidential folder, and a run shows"
            " none of them.",
        ),
        measured=AssetText(
            "noisy_boxes",
            [column for column in columns if column.name != "count"],
            "The map cut into boxes, each with a noisy count. The noise is drawn once, charged to the ledger, and read"
            " back at every later run. From here on, nothing is confidential.",
        ),
        table=AssetText(
            "boxes",
            columns,
            "The boxes with whole counts of at least 0 that keep the noisy total. Nothing is drawn, and nothing is"
            " charged. Public once the bundle is published.",
        ),
        table_kinds=frozenset({"parquet"}),
        cells=lambda plan, values: values // (2 * plan.grid.dimensions + 1),
        metadata=stops_metadata,
        rows=lambda release: len(release.measured),
    )
