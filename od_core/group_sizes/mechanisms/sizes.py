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
    """A mechanism that fits ascending sizes from 0 to K by least squares, area by area, and merges the levels.

    The mechanism suits large groups, which are few and far apart.
    """

    name: ClassVar[str] = "sizes"
    query: ClassVar[Query] = "sizes"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Estimate the histograms of levels 1 to L; see :class:`GroupSizeMechanism`. The common scale cancels.

        Raises:
            OdError: The noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        levels = [
            runs_of_sizes(frame.totals(level), values, frame.top_code)
            for level, values in zip(frame.levels, noisy, strict=True)
        ]
        return tables(frame, merge(frame, levels))


def runs_of_sizes(totals: Counts, noisy: Counts, top_code: int) -> Runs:
    """Estimate the sizes of a level's groups from their noisy sorted sizes, one area after the other.

    A size is the mean of the S noisy values in its run, so its variance is 2 / (S eps^2).
    """
    offsets = np.concatenate([[0], np.cumsum(totals)])
    steps = least_squares(noisy, offsets, np.zeros_like(totals), np.full_like(totals, top_code))
    return Runs(steps.first, steps.lengths, steps.totals, steps.lengths)


@dataclass(frozen=True)
class SizesPosterior(MergedLevels):
    """A mechanism that estimates every area's sizes by the posterior mean of its curve, and merges the levels.

    Measurement and merging are those of ``sizes`` [kuo2018countofcounts, sections 4.2 and 5]. The estimate of an area
    is that of :mod:`od_core.group_sizes.estimation.posterior`, with one chain per level. It is mostly better than
    ``sizes`` with the same noise (``docs/explanation/group-sizes.md``). The weight of a run is its number of groups, as
    in ``cumulative``.
    """

    name: ClassVar[str] = "sizes_posterior"
    query: ClassVar[Query] = "sizes"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Estimate the histograms of levels 1 to L; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: The noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        levels = []
        for level, values in zip(frame.levels, noisy, strict=True):
            totals = frame.totals(level)
            offsets = np.concatenate([[0], np.cumsum(totals)])
            areas = NoisyAreas(values, offsets, totals, frame.top_code, True, scale)
            levels.append(Runs.of_histograms(areas.histograms()))
        return tables(frame, merge(frame, levels))
