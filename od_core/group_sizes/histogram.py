"""Noisy histograms, then the nearest consistent ones (Fioretto et al., sections 5 to 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from od_core.group_sizes.area_totals import WithAreaTotals
from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.mechanism import Query


@dataclass(frozen=True)
class Histogram(WithAreaTotals):
    """M_H of Fioretto, Van Hentenryck and Zhu: least squares in whole numbers over the whole forest."""

    name: ClassVar[str] = "histogram"
    query: ClassVar[Query] = "histogram"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Histograms of all levels, see GroupSizeMechanism; raises OdError for values beyond 2^40."""
        return self.nearest(frame, noisy, scale)
