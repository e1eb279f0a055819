"""Describe the assets of a series of group-size tables."""

import dagster as dg

from od_assets.assets.tables import AssetText, TableAssets
from od_assets.column_schema import GROUP_SIZES, columns_of, record_columns, same_columns
from od_assets.metadata import group_size_metadata
from od_assets.series.group_size_settings import GroupSizeSettings
from od_core.group_sizes.release import GroupSizeRelease
from od_core.publication.columns import AREA, AREA_LEVEL
from od_core.publication.group_columns import GROUP_MEASUREMENTS, HISTOGRAM


def group_size_assets(settings: GroupSizeSettings) -> TableAssets[GroupSizeRelease]:
    """Return the descriptions of a series' assets."""
    zones = columns_of([settings.name, "geography"], settings.placing_columns)
    records = columns_of([settings.name, "raw_trips"], record_columns(settings.columns))
    measured = dg.AssetKey([settings.name, "noisy_measurements"])
    return TableAssets(
        counted=AssetText(
            "group_sizes",
            GROUP_SIZES,
            {"area": [*records, *zones], "size": records},
            "Confidential: the size of every group. The sizes stay in the confidential folder, and a run shows none"
            " of them.",
        ),
        measured=AssetText(
            "noisy_measurements",
            GROUP_MEASUREMENTS.columns,
            {"area": zones, "noisy": columns_of([settings.name, "group_sizes"], ["area", "size"])},
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
