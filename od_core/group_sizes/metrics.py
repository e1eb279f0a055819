"""Measure the errors of a group-size table by comparison with the true groups, area by area.

The main measure is the earth mover's distance [kuo2018countofcounts, section 3.1].
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.files.data_frame import TableOrFile
from od_core.group_sizes.groups import Counts, Frame, GroupSizes
from od_core.group_sizes.release import GroupSizeRelease


def evaluate_group_sizes(
    release: GroupSizeRelease, groups: TableOrFile | GroupSizes, *, columns: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return the errors of every area of every level. The result is NOT private: it depends on the true sizes.

    True sizes above the top code K count as K.

    Args:
        release: release whose table is evaluated.
        groups: the true groups, in the form that :func:`od_core.release_group_sizes` takes, or as
            :class:`GroupSizes`.
        columns: your names of the columns in a table of groups, as for that function.

    Returns:
        One row per area with these columns:

        - level, area: name of the level, and code of the area.
        - groups: public number of groups.
        - earth_movers_distance: smallest number of members that must be added or removed to turn the true histogram
          into the released one. It equals the L1 distance of the cumulative histograms. It is missing if the two
          histograms have different numbers of groups.
        - l1_error: L1 distance between the true and the released histogram.
        - total_error: absolute difference between the numbers of groups in the two histograms.
        - child_error: L1 distance of the released histogram from the sum of the children's; 0 for leaf areas.

    Raises:
        OdError: the groups are invalid, or an area does not have its number of groups in the release.
    """
    frame, true = release.frame, groups
    if not isinstance(true, GroupSizes):
        true = GroupSizes.from_frame(true, frame.geography, columns=columns)
    if not np.array_equal(true.per_area(frame.geography), frame.groups):
        raise OdError(
            "OD-GROUPS-OTHER",
            "the groups differ from those of the release",
            next_step="give the list that was released",
        )
    leaves = true_histograms(frame, true)
    tables = []
    for level, released in zip(frame.levels, release.histograms, strict=True):
        expected, below = frame.sums(leaves, level), release.below(level)
        difference = released - expected
        total_error = np.abs(difference.sum(axis=1))
        distance = np.abs(np.cumsum(difference, axis=1)).sum(axis=1).astype(np.float64)
        tables.append(
            pd.DataFrame(
                {
                    "level": frame.geography.levels[level - 1],
                    "area": list(frame.geography.codes[level]),
                    "groups": frame.totals(level),
                    "earth_movers_distance": np.where(total_error == 0, distance, np.nan),
                    "l1_error": np.abs(difference).sum(axis=1),
                    "total_error": total_error,
                    "child_error": 0 if below is None else np.abs(released - below).sum(axis=1),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def true_histograms(frame: Frame, groups: GroupSizes) -> Counts:
    """Return the confidential true histogram of every leaf area, up to the top code K; shape (leaf areas, K + 1)."""
    cells = groups.area.astype(np.int64) * (frame.top_code + 1) + np.minimum(groups.size, frame.top_code)
    width = len(frame.geography.zones) * (frame.top_code + 1)
    return np.bincount(cells, minlength=width).astype(np.int64).reshape(-1, frame.top_code + 1)
