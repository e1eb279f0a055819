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
        "Confidential: the size of every group. In the confidential folder; a run shows nothing of them.",
    ),
    measured=AssetText(
        "noisy_measurements",
        GROUP_MEASUREMENTS.columns,
        "What the mechanism asks of every area, plus exact discrete Laplace noise. Drawn once, charged to the ledger,"
        " read back at every later run. From here on nothing is confidential.",
    ),
    table=AssetText(
        "histograms",
        HISTOGRAM.columns,
        "How many groups of each size every area has. Whole numbers of at least 0 that sum to its groups, children to"
        " parents; nothing is drawn, and nothing is charged. Public once its bundle is.",
    ),
    table_kinds=frozenset({"numba", "parquet"}),
    cells=lambda _plan, values: values,
    metadata=group_size_metadata,
    rows=lambda release: len(release.histogram),
)
