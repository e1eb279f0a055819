"""What a mechanism for trips with stops says of itself, and does with the points of a grid."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol, runtime_checkable

from od_core.stops.boxes import Drawn
from od_core.stops.grid import Grid, Points
from od_core.stops.path import Path


@runtime_checkable
class StopsMechanism(Protocol):
    """A mechanism: it cuts the space into boxes and counts in each, with noise."""

    @property
    def name(self) -> str:
        """Its name in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        ...

    def refuse(self, grid: Grid) -> None:
        """Refuse a grid that is too large, from public facts alone, before anything is charged. Raises OdError."""
        ...

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Scales of the noise that is drawn whatever the trips are, by what they are for; public text of the plan.

        Args:
            epsilon: the whole budget.
            sensitivity: see :class:`od_core.stops.path.Path`.

        Raises:
            OdError: the noise would cost more than it is charged for.
        """
        ...

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """Confidential in, public out: the boxes, each with a noisy count.

        Args:
            points: confidential; the mechanism may sort them in place.
            grid: public.
            path: of the root, with the whole budget left; every path of the result has none left.

        Raises:
            OdError: more boxes than the mechanism may have, with the number; the noise source fails.
        """
        ...
