"""Cumulative counts, made monotone area by area, then the nearest consistent histograms (Fioretto et al., section 9.1).

The paper's M_c^dp (Algorithm 2). Cumulative counts change by 1 where histograms change by 2, so they need half the
noise; the regression is one area's alone, so the answer is not the nearest to the noisy cumulative counts. The paper
does not fix the last entry; here it is G_r, which is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from od_core.group_sizes.area_totals import WithAreaTotals
from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.isotonic import least_squares
from od_core.group_sizes.mechanism import Query

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
