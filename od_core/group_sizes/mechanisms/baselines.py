"""Noise on the histograms themselves (Kuo et al., section 4.1): a baseline."""

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
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.mechanisms.mechanism import Query


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


# Noisy histograms, then the nearest consistent ones (Fioretto et al., sections 5 to 7).


@dataclass(frozen=True)
class Histogram(WithAreaTotals):
    """M_H of Fioretto, Van Hentenryck and Zhu: least squares in whole numbers over the whole forest."""

    name: ClassVar[str] = "histogram"
    query: ClassVar[Query] = "histogram"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Histograms of all levels, see GroupSizeMechanism; raises OdError for values beyond 2^40."""
        return self.nearest(frame, noisy, scale)


# Noisy histograms, then the nearest consistent ones over the reals, each rounded (Fioretto et al., section 5).


@dataclass(frozen=True)
class HistogramRelaxed:
    """M_H^r of Fioretto, Van Hentenryck and Zhu, a baseline: after the rounding neither totals nor children add up."""

    name: ClassVar[str] = "histogram_relaxed"
    query: ClassVar[Query] = "histogram"
    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False
    keeps_totals: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, str]:
        """None."""
        return {}

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Histograms of all levels, see GroupSizeMechanism: each value the nearest whole number, halves up.

        Raises:
            OdError: values beyond 2^40.
        """
        refuse_too_large(frame, noisy)
        prices = relaxed_prices(frame, noisy)
        everywhere = (reals(frame, noisy, prices, k, slice(0, len(values))) for k, values in enumerate(noisy))
        return [np.maximum(np.floor(y + 0.5), 0).astype(np.int64) for y in everywhere]


# Cumulative counts, made monotone area by area, then the nearest consistent histograms (Fioretto et al., section 9.1).
#
# The paper's M_c^dp (Algorithm 2). Cumulative counts change by 1 where histograms change by 2, so they need half the
# noise; the regression is one area's alone, so the answer is not the nearest to the noisy cumulative counts. The paper
# does not fix the last entry; here it is G_r, which is public.


_PIECE = 1 << 20
"""Cells that are regressed at a time."""


@dataclass(frozen=True)
class CumulativeDP(WithAreaTotals):
    """M_c^dp of Fioretto, Van Hentenryck and Zhu."""

    name: ClassVar[str] = "cumulative_dp"
    query: ClassVar[Query] = "cumulative"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Histograms of all levels, see GroupSizeMechanism; raises OdError for values beyond 2^40."""
        histograms = [
            histograms_of(values, frame.totals(level)) for level, values in zip(frame.levels, noisy, strict=True)
        ]
        return self.nearest(frame, histograms, scale)


def histograms_of(cumulative: Counts, totals: Counts) -> Counts:
    """Histograms of noisy cumulative counts, shape (areas, K), whose last, G_r, is exact; shape (areas, K + 1)."""
    areas, sizes = cumulative.shape
    histograms = np.empty((areas, sizes + 1), dtype=np.int64)
    together = max(1, _PIECE // sizes)
    for start in range(0, areas, together):
        part = slice(start, start + together)
        histograms[part] = _regressed(cumulative[part], totals[part])
    return histograms


def _regressed(cumulative: Counts, totals: Counts) -> Counts:
    """Least squares among rows that never fall, within [0, G_r], rounded half up, and the differences."""
    areas, sizes = cumulative.shape
    steps = least_squares(cumulative.ravel(), np.arange(areas + 1) * sizes, np.zeros_like(totals), totals)
    means = (2 * steps.totals + steps.lengths) // (2 * steps.lengths)
    ascending = np.repeat(means, steps.lengths).reshape(areas, sizes)
    return np.diff(ascending, axis=1, prepend=0, append=totals[:, None])
