"""Noise on the histograms themselves (Kuo et al., section 4.1): a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.mechanism import Query
from od_core.group_sizes.merging import MergedLevels, merge
from od_core.group_sizes.noisy_values import check_noisy
from od_core.group_sizes.runs import Runs, tables
from od_core.projection.euclidean import project_children_euclidean


@dataclass(frozen=True)
class Naive(MergedLevels):
    """The noisy histogram of every area, projected on those that sum to its number of groups; then merged.

    The paper has no hierarchical form; the merging takes 16 / (eps^2 n) for the variance of a size with n groups. Half
    of the many empty cells come out with groups, so the sizes are spread over 0 to K.
    """

    name: ClassVar[str] = "naive"
    query: ClassVar[Query] = "histogram"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Histograms of levels 1 to L; see :class:`GroupSizeMechanism`. The scale, common to all, cancels.

        Raises:
            OdError: noisy values of another shape, or too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        return tables(
            frame,
            merge(frame, [_projected(frame, level, values) for level, values in zip(frame.levels, noisy, strict=True)]),
        )


def _projected(frame: Frame, level: int, noisy: Counts) -> Runs:
    """The nearest histograms of whole numbers with the areas' totals, in Euclidean distance."""
    offsets = np.arange(len(noisy) + 1) * noisy.shape[1]
    nearest = project_children_euclidean(noisy.reshape(-1), frame.totals(level), offsets)
    return Runs.of_histograms(nearest.reshape(noisy.shape))
