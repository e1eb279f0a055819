"""UNIFORM: one box, the whole space (the paper's baseline)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from od_core.stops.boxes import Drawn
from od_core.stops.equal_grid import draw_equal_boxes
from od_core.stops.grid import Grid, Points
from od_core.stops.path import Path


@dataclass(frozen=True)
class Uniform:
    """The total, measured with the whole budget and spread evenly over all cells."""

    name: ClassVar[str] = "uniform"

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {}

    def refuse(self, grid: Grid) -> None:
        """Nothing to refuse: one box fits any grid."""

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Scale of the noise on the boxes; see :class:`StopsMechanism`."""
        return {"boxes": sensitivity / epsilon}

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """The one box with its noisy count; see :class:`StopsMechanism`."""
        return draw_equal_boxes(points, grid, (1,) * grid.dimensions, path)
