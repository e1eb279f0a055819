"""Noise on the sorted sizes of the groups (Kuo et al., section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from od_core.group_sizes.estimation.isotonic import least_squares
from od_core.group_sizes.estimation.merging import MergedLevels, check_noisy, merge
from od_core.group_sizes.estimation.posterior import NoisyAreas
from od_core.group_sizes.estimation.runs import Runs, tables
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.mechanisms.mechanism import Query


@dataclass(frozen=True)
class Sizes(MergedLevels):
    """The ascending sizes from 0 to K nearest to the noisy ones, in least squares, area by area; then merged.

    Good for large groups, which are few and far apart.
    """

    name: ClassVar[str] = "sizes"
    query: ClassVar[Query] = "sizes"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Histograms of levels 1 to L; see :class:`GroupSizeMechanism`. The scale, common to all, cancels.

        Raises:
            OdError: noisy values of another shape, or too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        levels = [
            runs_of_sizes(frame.totals(level), values, frame.top_code)
            for level, values in zip(frame.levels, noisy, strict=True)
        ]
        return tables(frame, merge(frame, levels))


def runs_of_sizes(totals: Counts, noisy: Counts, top_code: int) -> Runs:
    """The sizes of a level's groups from their noisy sizes, sorted, the areas behind one another.

    A size is the mean of the noisy values in its run, hence of variance 2 / (S eps^2) for S of them.
    """
    offsets = np.concatenate([[0], np.cumsum(totals)])
    steps = least_squares(noisy, offsets, np.zeros_like(totals), np.full_like(totals, top_code))
    return Runs(steps.first, steps.lengths, steps.totals, steps.lengths)


# Noise on the sorted sizes of the groups, each area's sizes by the posterior mean of its curve; then merged.
#
# Not from a paper: measurement and merging are those of ``sizes`` (Kuo et al., sections 4.2 and 5), the estimate of an
# area alone is that of :mod:`od_core.group_sizes.estimation.posterior`, with a chain for every level.


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
