"""Describe the assets of a series of group-size tables."""

from od_assets.assets.tables import AssetText, TableAssets
from od_assets.column_schema import GROUP_SIZES
from od_assets.metadata import group_size_metadata
from od_core.group_sizes.release import GroupSizeRelease
from od_core.publication.columns import GROUP_MEASUREMENTS, HISTOGRAM

GROUP_SIZE_ASSETS: TableAssets[GroupSizeRelease] = TableAssets(
    counted=AssetText(
        "group_sizes",
        GROUP_SIZES,
        "Confidential: the size of every group. The sizes stay in the confidential folder, and a run shows none"
        " of them.",
    ),
    measured=AssetText(
        "noisy_measurements",
        GROUP_MEASUREMENTS.columns,
        "The query of every area plus exact discrete Laplace noise. The noise is drawn once, charged to the"
        " ledger, and read back at every later run. From here on, nothing is confidential.",
    ),
    table=AssetText(
        "histograms",
        HISTOGRAM.columns,
        "The number of groups of each size in every area. Whole numbers of at least 0 that sum to its groups,"
        " and children to parents. Nothing is drawn and nothing is charged. Public once the bundle is published.",
    ),
    table_kinds=frozenset({"numba", "parquet"}),
    cells=lambda _plan, values: values,
    metadata=group_size_metadata,
    rows=lambda release: len(release.histogram),
)
