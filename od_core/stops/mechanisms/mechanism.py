"""What a mechanism for trips with stops says of itself, and does with the points of a grid."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from od_core.stops.geometry.boxes import Boxes
from od_core.stops.geometry.grid import Grid, Points
from od_core.stops.mechanisms.path import Path


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
            sensitivity: see :class:`od_core.stops.mechanisms.path.Path`.

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


# Options of mechanisms as people give them and as they are written down.


def whole_number(option: object) -> int | None:
    """The whole number behind an option or its text; None where it is none."""
    if isinstance(option, str) and re.fullmatch(r"-?[0-9]{1,18}", option):
        return int(option)
    return option if isinstance(option, int) and not isinstance(option, bool) else None


@dataclass(frozen=True, eq=False)
class Drawn:
    """What a mechanism has drawn: its boxes, and where the budget of every path to them went.

    Attributes:
        boxes: the leaves of its tree, or the cells of its grid.
        paths: the different ways in which a path from the root to a box was charged.
        path_of: which of them is each box's; shape (boxes,).
    """

    boxes: Boxes
    paths: tuple[Path, ...]
    path_of: NDArray[np.int32]
