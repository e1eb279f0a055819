"""Define baseline mechanisms: ``naive``, and the integer and relaxed programs of [fioretto2019hierarchical]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from od_core.flows.projection.euclidean import project_children_euclidean
from od_core.group_sizes.estimation.area_totals import WithAreaTotals
from od_core.group_sizes.estimation.cost_tables import refuse_too_large
from od_core.group_sizes.estimation.merging import MergedLevels, check_noisy, merge
from od_core.group_sizes.estimation.relaxation import reals, relaxed_prices
from od_core.group_sizes.estimation.runs import Runs, tables
from od_core.group_sizes.groups import Counts, Frame, Query
from od_core.group_sizes.mechanisms.cumulative import fitted_histograms


@dataclass(frozen=True)
class Naive(MergedLevels):
    """A baseline that measures the histogram of every area of every level.

    Each noisy histogram is replaced by the nearest histogram with the area's number of groups. The levels are then
    merged (:mod:`od_core.group_sizes.estimation.merging`). The source [kuo2018countofcounts, section 4.1] describes a
    single area only. The merging uses 16 / (eps^2 n) as the variance of a size with n groups, at the epsilon eps of a
    level. Most entries of a true histogram are 0. About half of them get groups by the noise, so the estimated sizes
    spread over 0 to the top code.
    """

    name: ClassVar[str] = "naive"
    query: ClassVar[Query] = "histogram"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of levels 1 to L; see :class:`GroupSizeMechanism`.

        ``scale`` is not used, because all levels have the same scale and only ratios of variances matter.

        Raises:
            OdError: the noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        return tables(
            frame,
            merge(frame, [_projected(frame, level, values) for level, values in zip(frame.levels, noisy, strict=True)]),
        )


def _projected(frame: Frame, level: int, noisy: Counts) -> Runs:
    """Project noisy histograms onto integer histograms with the public numbers of groups, and return these as runs."""
    offsets = np.arange(len(noisy) + 1) * noisy.shape[1]
    nearest = project_children_euclidean(noisy.reshape(-1), frame.totals(level), offsets)
    return Runs.of_histograms(nearest.reshape(noisy.shape))


@dataclass(frozen=True)
class Histogram(WithAreaTotals):
    """The mechanism M_H: noisy histograms of all areas, then integer least squares over the areas of all levels.

    References:
        [fioretto2019hierarchical, sections 5 to 7]
    """

    name: ClassVar[str] = "histogram"
    query: ClassVar[Query] = "histogram"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of all levels; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: a value is 2^40 or more, or the exact solver fails.
        """
        return self.nearest(frame, noisy, scale)


@dataclass(frozen=True)
class HistogramRelaxed:
    """The baseline M_H^r: noisy histograms of all areas, then least squares over the reals. Each value is rounded.

    After the rounding, an area need not have its number of groups, and children need not sum to their parent.

    References:
        [fioretto2019hierarchical, section 5]
    """

    name: ClassVar[str] = "histogram_relaxed"
    query: ClassVar[Query] = "histogram"
    options: ClassVar[dict[str, str]] = {}
    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False
    keeps_totals: ClassVar[bool] = False

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of all levels, rounded half up; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: a value is 2^40 or more.
        """
        refuse_too_large(frame, noisy)
        prices = relaxed_prices(frame, noisy)
        everywhere = (reals(frame, noisy, prices, k, slice(0, len(values))) for k, values in enumerate(noisy))
        return [np.maximum(np.floor(y + 0.5), 0).astype(np.int64) for y in everywhere]


_PIECE = 1 << 20
"""Number of cumulative counts that are fitted at a time."""


@dataclass(frozen=True)
class CumulativeDP(WithAreaTotals):
    """The mechanism M_c^dp: noisy cumulative counts, made monotone, then the nearest histograms that add up.

    Histograms add up if those of children sum to their parent's. One record changes cumulative counts by 1 and
    histograms by 2, so cumulative counts need half the noise. Each area is made monotone on its own, so the result is
    not nearest to the noisy cumulative counts of all areas together. The source does not fix the last cumulative count.
    Here it is G_r, the public number of groups of area r.

    References:
        [fioretto2019hierarchical, section 9.1, Algorithm 2]
    """

    name: ClassVar[str] = "cumulative_dp"
    query: ClassVar[Query] = "cumulative"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of all levels; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: a value is 2^40 or more, or the exact solver fails.
        """
        histograms = [
            histograms_of(values, frame.totals(level)) for level, values in zip(frame.levels, noisy, strict=True)
        ]
        return self.nearest(frame, histograms, scale)


def histograms_of(cumulative: Counts, totals: Counts) -> Counts:
    """Return integer histograms with the areas' numbers of groups, from noisy cumulative counts; shape (areas, K + 1).

    Args:
        cumulative: noisy cumulative counts; shape (areas, K).
        totals: number of groups of each area; shape (areas,).
    """
    areas, sizes = cumulative.shape
    histograms = np.empty((areas, sizes + 1), dtype=np.int64)
    together = max(1, _PIECE // sizes)
    for start in range(0, areas, together):
        part = slice(start, start + together)
        histograms[part] = fitted_histograms(totals[part], cumulative[part], "least_squares")
    return histograms
