"""Noise on the sorted sizes of the groups, each area's sizes by the posterior mean of its curve; then merged.

Not from a paper: measurement and merging are those of ``sizes`` (Kuo et al., sections 4.2 and 5), the estimate of an
area alone is that of :mod:`od_core.group_sizes.posterior`, with a chain for every level.
"""

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
from od_core.group_sizes.posterior import NoisyAreas
from od_core.group_sizes.runs import Runs, tables


@dataclass(frozen=True)
class SizesPosterior(MergedLevels):
    """All levels by posterior means of noisy sizes; mostly better than ``sizes`` with the same noise (docs).

    A run of groups of one size weighs as many as it has, as in ``cumulative``.
    """

    name: ClassVar[str] = "sizes_posterior"
    query: ClassVar[Query] = "sizes"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Histograms of levels 1 to L; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: noisy values of another shape, or too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        levels = []
        for level, values in zip(frame.levels, noisy, strict=True):
            totals = frame.totals(level)
            offsets = np.concatenate([[0], np.cumsum(totals)])
            areas = NoisyAreas(values, offsets, totals, frame.top_code, True, scale)
            levels.append(Runs.of_histograms(areas.histograms()))
        return tables(frame, merge(frame, levels))
