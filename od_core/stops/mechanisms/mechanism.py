"""What a mechanism for trips with stops says of itself, and does with the points of a grid."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_known
from od_core.stops.geometry.boxes import Boxes
from od_core.stops.geometry.grid import Counts, Grid, Points
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


# Into how many parts a dimension is cut, from a noisy count (Shaham et al., equation 19).


Rounding = Literal["nearest", "up", "down", "times_1.5"]
"""How the formula's m becomes a whole number; ``times_1.5`` is the nearest to 3/2 m."""


def fan_out(noisy: Counts, epsilon: Fraction, dimensions: int, length: int, rounding: Rounding) -> Counts:
    """M = (N epsilon / sqrt 2)^(2 / (3 d)) parts for each noisy count N, from 1 to the cells there are; 1 for N <= 1.

    At this m the entropy of the noise on m^d parts is what the cut into m^d parts loses (equation 18).

    Args:
        noisy: N; shape (boxes,).
        epsilon: one over the scale of the noise that the parts will have.
        dimensions: d, those that are still to be cut.
        length: cells of the dimension.
        rounding: of m.
    """
    exact = parts_of(np.maximum(noisy, 1), float(epsilon), dimensions)
    if rounding == "up":
        whole = np.ceil(exact)
    elif rounding == "down":
        whole = np.floor(exact)
    else:
        whole = np.floor(exact * (1.5 if rounding == "times_1.5" else 1) + 0.5)
    parts: Counts = np.where(noisy > 1, np.clip(whole, 1, length), 1).astype(np.int64)
    return parts


def parts_of(noisy: Counts, epsilon: float, dimensions: int) -> NDArray[Any]:
    """M before it is rounded; arguments as :func:`fan_out`."""
    exact: NDArray[Any] = (noisy * (epsilon / math.sqrt(2))) ** (2 / (3 * dimensions))
    return exact


def check_rounding(rounding: str) -> None:
    """Refuse a rounding that does not exist. Raises OdError with the nearest known one."""
    known = get_args(Rounding)
    if rounding not in known:
        raise OdError(
            "OD-STOPS-ROUNDING",
            f"there is no rounding {rounding!r} ({nearest_known(str(rounding), known)})",
            next_step="correct the mechanism's options",
        )
