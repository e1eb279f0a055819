"""EBP, the entropy-based grid (paper, section 3.2, equation 19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from od_core.stops.equal_grid import EqualGrid
from od_core.stops.fan_out import parts_of


@dataclass(frozen=True)
class EBP(EqualGrid):
    """m where the entropy of the noise is the information that the boxes lose: sqrt(2) m^(d/2) / eps = N / m^d."""

    name: ClassVar[str] = "ebp"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """The m of equation 19; see :class:`EqualGrid`."""
        return float(parts_of(np.array(total), rate, dimensions))
