"""MKM, the perturbed histogram of Lei 2011 (the paper's reference 11)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from od_core.stops.equal_grid import EqualGrid


@dataclass(frozen=True)
class MKM(EqualGrid):
    """m = (N / sqrt(ln N))^(2/(d + 2)), one over Lei's width of a bin.

    The paper prints no formula and refers to Lei. There is no epsilon in it: with less budget the grid stays as fine.
    """

    name: ClassVar[str] = "mkm"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """The m above; see :class:`EqualGrid`."""
        m: float = (total / math.sqrt(math.log(total))) ** (2 / (dimensions + 2))
        return m
