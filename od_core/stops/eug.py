"""EUG, the extended uniform grid (paper, section 3.1, equation 13)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from od_core.stops.equal_grid import EqualGrid

BORDER_CONSTANT = 10 / math.sqrt(2)
"""The paper's c_0, set by trial: the points on a query's border over those that it is wrong by."""


@dataclass(frozen=True)
class EUG(EqualGrid):
    """m where noise and non-uniformity together are least, averaged over the sizes of queries.

    The paper counts a query's border by its edges: right in two dimensions, while in more the border is made of faces.
    The formula is kept as it is printed. In one dimension it is 0: the border does not shrink with the boxes.
    """

    name: ClassVar[str] = "eug"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """The m of equation 13; see :class:`EqualGrid`."""
        d = dimensions
        base = 2 * (d - 1) / d * total * rate / (math.sqrt(2) * BORDER_CONSTANT)
        alpha: float = base ** (2 / (3 * d - 2))
        return alpha * (d * (3 * d - 2)) / (3 * d**2 - 3 * d + 2)
