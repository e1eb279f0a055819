"""Noisy histograms, then the nearest consistent ones over the reals, each rounded (Fioretto et al., section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from od_core.group_sizes.cost_tables import refuse_too_large
from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.mechanism import Query
from od_core.group_sizes.relaxation import reals, relaxed_prices


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
