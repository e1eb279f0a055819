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

from od_core.compiled import kernel
from od_core.group_sizes.area_totals import WithAreaTotals
from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.mechanism import Query


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
    histograms = np.empty((len(cumulative), cumulative.shape[1] + 1), dtype=np.int64)
    _regress(np.ascontiguousarray(cumulative), totals, histograms)
    return histograms


@kernel
def _regress(noisy, totals, histograms):  # type: ignore[no-untyped-def]  # compiled
    """Least squares among sequences that never fall, then into [0, G_r], rounded half up, and the differences.

    Pool adjacent violators: a block is a sum and a length; the last two are pooled while the first has the larger mean.
    """
    sizes = noisy.shape[1]
    sums, lengths = np.empty(sizes, dtype=np.int64), np.empty(sizes, dtype=np.int64)
    for area in range(len(noisy)):
        blocks = 0
        for size in range(sizes):
            sums[blocks], lengths[blocks] = noisy[area, size], 1
            blocks += 1
            while blocks > 1 and sums[blocks - 2] * lengths[blocks - 1] >= sums[blocks - 1] * lengths[blocks - 2]:
                blocks -= 1
                sums[blocks - 1] += sums[blocks]
                lengths[blocks - 1] += lengths[blocks]
        histograms[area] = 0
        before, size = np.int64(0), 0
        for block in range(blocks):
            mean = (2 * sums[block] + lengths[block]) // (2 * lengths[block])
            mean = min(max(mean, 0), totals[area])
            histograms[area, size] = mean - before
            before, size = mean, size + lengths[block]
        histograms[area, sizes] = totals[area] - before
