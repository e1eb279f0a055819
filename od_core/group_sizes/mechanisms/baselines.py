"""Estimate group sizes from noisy histograms or by the programs of [fioretto2019hierarchical]: baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from od_core.flows.projection.euclidean import project_children_euclidean
from od_core.group_sizes.estimation.area_totals import WithAreaTotals
from od_core.group_sizes.estimation.cost_tables import refuse_too_large
from od_core.group_sizes.estimation.isotonic import least_squares
from od_core.group_sizes.estimation.merging import MergedLevels, check_noisy, merge
from od_core.group_sizes.estimation.relaxation import reals, relaxed_prices
from od_core.group_sizes.estimation.runs import Runs, tables
from od_core.group_sizes.groups import Counts, Frame, Query


@dataclass(frozen=True)
class Naive(MergedLevels):
    """The baseline of noisy histograms, each projected onto those with the area's number of groups, then merged.

    The source [kuo2018countofcounts, section 4.1] has no hierarchical form. The merging uses 16 / (eps^2 n) as the
    variance of a size with n groups. About half of the many empty cells come out with groups, so the sizes spread over
    0 to K.
    """

    name: ClassVar[str] = "naive"
    query: ClassVar[Query] = "histogram"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Estimate the histograms of levels 1 to L; see :class:`GroupSizeMechanism`. The common scale cancels.

        Raises:
            OdError: The noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        return tables(
            frame,
            merge(frame, [_projected(frame, level, values) for level, values in zip(frame.levels, noisy, strict=True)]),
        )


def _projected(frame: Frame, level: int, noisy: Counts) -> Runs:
    """Find the integer histograms with the areas' totals that are nearest in Euclidean distance."""
    offsets = np.arange(len(noisy) + 1) * noisy.shape[1]
    nearest = project_children_euclidean(noisy.reshape(-1), frame.totals(level), offsets)
    return Runs.of_histograms(nearest.reshape(noisy.shape))


@dataclass(frozen=True)
class Histogram(WithAreaTotals):
    """The mechanism M_H: noisy histograms, then integer least squares over the whole forest.

    References:
        [fioretto2019hierarchical, sections 5 to 7]
    """

    name: ClassVar[str] = "histogram"
    query: ClassVar[Query] = "histogram"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Estimate the histograms of all levels; see GroupSizeMechanism. Raises OdError for values beyond 2^40."""
        return self.nearest(frame, noisy, scale)


@dataclass(frozen=True)
class HistogramRelaxed:
    """The baseline M_H^r: noisy histograms, then least squares over the reals, with each value rounded.

    After the rounding the totals are not met, and the children do not sum to their parent.

    References:
        [fioretto2019hierarchical, section 5]
    """

    name: ClassVar[str] = "histogram_relaxed"
    query: ClassVar[Query] = "histogram"
    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False
    keeps_totals: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, str]:
        """No options."""
        return {}

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Estimate the histograms of all levels, each value rounded half up; see GroupSizeMechanism.

        Raises:
            OdError: Values are beyond 2^40.
        """
        refuse_too_large(frame, noisy)
        prices = relaxed_prices(frame, noisy)
        everywhere = (reals(frame, noisy, prices, k, slice(0, len(values))) for k, values in enumerate(noisy))
        return [np.maximum(np.floor(y + 0.5), 0).astype(np.int64) for y in everywhere]


_PIECE = 1 << 20
"""Number of cells that are regressed at a time."""


@dataclass(frozen=True)
class CumulativeDP(WithAreaTotals):
    """The mechanism M_c^dp: cumulative counts, made monotone area by area, then the nearest consistent histograms.

    One record changes cumulative counts by 1 and histograms by 2, so cumulative counts need half the noise. The
    regression sees one area at a time, so the answer is not the nearest to the noisy cumulative counts. The source does
    not fix the last entry; here it is the public G_r.

    References:
        [fioretto2019hierarchical, section 9.1, Algorithm 2]
    """

    name: ClassVar[str] = "cumulative_dp"
    query: ClassVar[Query] = "cumulative"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Estimate the histograms of all levels; see GroupSizeMechanism. Raises OdError for values beyond 2^40."""
        histograms = [
            histograms_of(values, frame.totals(level)) for level, values in zip(frame.levels, noisy, strict=True)
        ]
        return self.nearest(frame, histograms, scale)


def histograms_of(cumulative: Counts, totals: Counts) -> Counts:
    """Convert noisy cumulative counts, shape (areas, K), to histograms with totals G_r, shape (areas, K + 1)."""
    areas, sizes = cumulative.shape
    histograms = np.empty((areas, sizes + 1), dtype=np.int64)
    together = max(1, _PIECE // sizes)
    for start in range(0, areas, together):
        part = slice(start, start + together)
        histograms[part] = _regressed(cumulative[part], totals[part])
    return histograms


def _regressed(cumulative: Counts, totals: Counts) -> Counts:
    """Fit non-decreasing rows in [0, G_r] by least squares, round them half up and return their differences."""
    areas, sizes = cumulative.shape
    steps = least_squares(cumulative.ravel(), np.arange(areas + 1) * sizes, np.zeros_like(totals), totals)
    means = (2 * steps.totals + steps.lengths) // (2 * steps.lengths)
    ascending = np.repeat(means, steps.lengths).reshape(areas, sizes)
    return np.diff(ascending, axis=1, prepend=0, append=totals[:, None])
