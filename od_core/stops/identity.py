"""IDENTITY: noise on every cell (the paper's baseline)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from od_core.stops.boxes import Drawn
from od_core.stops.equal_grid import NOTHING_SPENT, draw_equal_boxes, refuse_boxes
from od_core.stops.grid import Grid, Points
from od_core.stops.path import Path


@dataclass(frozen=True)
class Identity:
    """Every cell is a box, measured with the whole budget."""

    name: ClassVar[str] = "identity"

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {}

    def refuse(self, grid: Grid) -> None:
        """Refuse more cells than a grid may have boxes. Raises OdError with their number."""
        refuse_boxes(self.name, grid.sizes, spent=NOTHING_SPENT)

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Scale of the noise on the boxes; see :class:`StopsMechanism`."""
        return {"boxes": sensitivity / epsilon}

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """The cells, each with a noisy count; see :class:`StopsMechanism`. Raises OdError as :meth:`refuse`."""
        self.refuse(grid)
        return draw_equal_boxes(points, grid, grid.sizes, path)
