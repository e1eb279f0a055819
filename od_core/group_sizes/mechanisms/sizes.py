"""Estimate group sizes from noisy sorted sizes [kuo2018countofcounts, section 4.2]."""

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
from od_core.group_sizes.groups import Counts, Frame, Query


@dataclass(frozen=True)
class Sizes(MergedLevels):
    """A mechanism that measures the sorted sizes of the groups of every area of every level.

    In each area, ascending sizes from 0 to K are fitted by least squares. The levels are then merged
    (:mod:`od_core.group_sizes.estimation.merging`). The mechanism suits large groups with sizes that are far apart.
    """

    name: ClassVar[str] = "sizes"
    query: ClassVar[Query] = "sizes"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of levels 1 to L; see :class:`GroupSizeMechanism`.

        ``scale`` is not used, because all levels have the same scale and only ratios of variances matter.

        Raises:
            OdError: the noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        levels = [
            runs_of_sizes(frame.totals(level), values, frame.top_code)
            for level, values in zip(frame.levels, noisy, strict=True)
        ]
        return tables(frame, merge(frame, levels))


def runs_of_sizes(totals: Counts, noisy: Counts, top_code: int) -> Runs:
    """Return the estimated sizes of the groups of a level as runs of equal sizes.

    Isotonic regression gives the nondecreasing sizes nearest to the noisy ones. It pools neighbours, so the size of a
    run of S groups is the mean of their S noisy values. Its variance is about 2 / (S eps^2), where eps is the epsilon
    that the level is charged.

    Args:
        totals: number of groups of each area; shape (areas,).
        noisy: noisy values of the sizes in ascending order, one area after the other; shape (groups of the level,).
        top_code: K, the upper bound of the sizes.
    """
    offsets = np.concatenate([[0], np.cumsum(totals)])
    steps = least_squares(noisy, offsets, np.zeros_like(totals), np.full_like(totals, top_code))
    return Runs(steps.first, steps.lengths, steps.totals, steps.lengths)


@dataclass(frozen=True)
class SizesPosterior(MergedLevels):
    """A mechanism that estimates the sizes of every area of every level by posterior means, and merges the levels.

    The measurement and the merging are those of ``sizes`` [kuo2018countofcounts, sections 4.2 and 5]. An area is
    estimated as in :mod:`od_core.group_sizes.estimation.posterior`, with one Markov chain fitted per level. With the
    same noise, the errors are mostly smaller than those of ``sizes`` (``docs/explanation/group-sizes.md``). The weight
    of a size in the merging is the number of groups that have it, as in ``cumulative``.
    """

    name: ClassVar[str] = "sizes_posterior"
    query: ClassVar[Query] = "sizes"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of levels 1 to L; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: the noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        levels = []
        for level, values in zip(frame.levels, noisy, strict=True):
            totals = frame.totals(level)
            offsets = np.concatenate([[0], np.cumsum(totals)])
            areas = NoisyAreas(values, offsets, totals, frame.top_code, True, scale)
            levels.append(Runs.of_histograms(areas.histograms()))
        return tables(frame, merge(frame, levels))
