"""Define the interface of mechanisms for trips with stops, and functions that several mechanisms share."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from od_core.registry import refuse_unknown
from od_core.stops.geometry.boxes import Boxes
from od_core.stops.geometry.grid import Counts, Grid, Points
from od_core.stops.mechanisms.path import Path


@runtime_checkable
class StopsMechanism(Protocol):
    """The interface of a mechanism, which cuts the grid into boxes and draws a noisy count of each box."""

    @property
    def name(self) -> str:
        """Name of the mechanism in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options of the mechanism by name, as public text."""
        ...

    def refuse(self, grid: Grid) -> None:
        """Raise OdError if the grid is too large for this mechanism. Plans are tested before anything is charged."""
        ...

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales that do not depend on a draw, by purpose. The plan publishes them.

        Args:
            epsilon: the whole budget.
            sensitivity: see :class:`od_core.stops.mechanisms.path.Path`.

        Raises:
            OdError: the noise would cost more than its charge.
        """
        ...

    def count_scale(self, boxes: Boxes, grid: Grid, epsilon: Fraction, sensitivity: int) -> Fraction:
        """Return the largest scale of the noise on the published counts of drawn boxes, from public facts alone.

        The noise on the published count of a box is drawn after the box is fixed, and only for this count. So, given
        the boxes, a published count is the true count plus discrete Laplace noise of at most this scale.

        Args:
            boxes: the boxes, as drawn.
            grid: the public grid.
            epsilon, sensitivity: as in :meth:`scales`.
        """
        ...

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """Draw the boxes, each with a noisy count, from confidential points. The result is public.

        Args:
            points: confidential points, which the mechanism may sort in place.
            grid: the public grid.
            path: budget account at the root, with the whole budget. On the paths of the result, no budget remains.

        Raises:
            OdError: there would be more than ``MAX_BOXES`` boxes, or the noise source fails.
        """
        ...


def whole_number(option: object) -> int | None:
    """Return an option as an integer, or None if it is neither an integer nor an integer in text."""
    if isinstance(option, str) and re.fullmatch(r"-?[0-9]{1,18}", option):
        return int(option)
    return option if isinstance(option, int) and not isinstance(option, bool) else None


@dataclass(frozen=True, eq=False)
class Drawn:
    """The result of a mechanism: the boxes, and the budget spent on the path from the root to each box.

    Attributes:
        boxes: the leaves of a tree, or the boxes of a grid.
        paths: the paths from the root to the boxes, after all charges. Boxes with the same charges share a path.
        path_of: index of each box's path in ``paths``; shape (boxes,).
    """

    boxes: Boxes
    paths: tuple[Path, ...]
    path_of: NDArray[np.int32]


Rounding = Literal["nearest", "up", "down", "times_1.5"]
"""Rounding of the computed number of parts m of a box to an integer. ``times_1.5`` gives the integer nearest 1.5 m."""


def fan_out(noisy: Counts, epsilon: Fraction, dimensions: int, length: int, rounding: Rounding) -> Counts:
    """Return m, the number of parts into which each box is cut in a dimension; shape (boxes,).

    Before rounding, m = (N epsilon / sqrt 2)^(2 / (3 d)) for a noisy count N [shaham2022stops, equation 19]. At this m,
    the entropy of the noise on m^d parts equals the information that the cut into m^d parts loses (equation 18). m is
    rounded and clipped to the range from 1 to ``length``. If N <= 1, m is 1.

    Args:
        noisy: N; shape (boxes,).
        epsilon: inverse of the scale of the noise that the parts will have.
        dimensions: d, the number of dimensions still to be cut.
        length: number of cells of the dimension.
        rounding: rounding of m.
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
    """Return m, the unrounded number of parts in a dimension; for the formula and arguments, see :func:`fan_out`."""
    exact: NDArray[Any] = (noisy * (epsilon / math.sqrt(2))) ** (2 / (3 * dimensions))
    return exact


def check_rounding(rounding: str) -> None:
    """Raise OdError if the rounding is unknown. The message suggests the nearest known name."""
    step = "correct the mechanism's options"
    refuse_unknown("rounding", rounding, get_args(Rounding), code="OD-STOPS-ROUNDING", next_step=step)
