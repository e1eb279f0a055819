"""EBP, the entropy-based grid (paper, section 3.2, equation 19)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from od_core.stops.equal_grid import EqualGrid


@dataclass(frozen=True)
class EBP(EqualGrid):
    """m where the entropy of the noise is the information that the boxes lose: sqrt(2) m^(d/2) / eps = N / m^d."""

    name: ClassVar[str] = "ebp"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """The m of equation 19; see :class:`EqualGrid`."""
        m: float = (total * rate / math.sqrt(2)) ** (2 / (3 * dimensions))
        return m
