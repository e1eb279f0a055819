"""Define the interface of mechanisms for trips with stops, and what they share, such as charges along a path."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.noise.sources import LaplaceSource, checked_noise
from od_core.registry import refuse_unknown
from od_core.stops.geometry import Boxes, Counts, Grid, Points

_BITS_OF_WEIGHT = 20
"""Number of bits after the binary point of the weights by which :func:`shares_below` splits the budget among depths.
Weights are rounded down to these bits, so that the shares are exact fractions."""


@dataclass(frozen=True, eq=False)
class Path:
    """An immutable account of the budget that is spent on a path from the root of a tree of boxes towards a leaf.

    The boxes of one depth are disjoint, so each trip is on one path only, and a release costs as much as one path.

    Attributes:
        source: source of the noise.
        sensitivity: largest total change of the counts of one depth if one trip is added or removed (1) or replaced
            (2).
        left: remaining epsilon.
        spent: spent epsilon.
    """

    source: LaplaceSource
    sensitivity: int
    left: Fraction
    spent: Fraction = Fraction(0)

    def measured(self, counts: Counts, epsilon: Fraction) -> tuple[Counts, Path]:
        """Return the counts of disjoint boxes plus discrete Laplace noise, and the path after it is charged.

        Args:
            counts: confidential counts; shape (boxes,).
            epsilon: the charge; the noise has scale sensitivity / epsilon.

        Raises:
            OdError: the charge is not above 0 or exceeds the remaining budget, or the noise source fails.
        """
        paid = self.charged(epsilon)
        noisy = self.noise(self.sensitivity / epsilon, len(counts))
        noisy += counts
        return noisy, paid

    def noise(self, scale: Fraction, size: int) -> Counts:
        """Return ``size`` draws of discrete Laplace noise. The caller charges them first, with :meth:`charged`.

        Raises:
            OdError: the noise source fails: it does not return ``size`` integers, or an integer is too large.
        """
        drawn = self.source.draw_laplace(scale, size) if size else np.zeros(0, dtype=np.int64)
        return checked_noise(self.source, drawn, size)

    def charged(self, epsilon: Fraction) -> Path:
        """Return a copy of the path with ``epsilon`` moved from the remaining to the spent budget.

        This method draws nothing. The caller draws the noise with :meth:`noise`.

        Raises:
            OdError: the charge is not above 0 or exceeds the remaining budget.
        """
        if not 0 < epsilon <= self.left:
            raise OdError(
                "OD-STOPS-CHARGE",
                f"a path needs epsilon {epsilon}, but {self.left} remains",
                next_step="report this defect",
                spent=STAYS_CHARGED,
            )
        return replace(self, left=self.left - epsilon, spent=self.spent + epsilon)


def shares_below(left: Fraction, root_parts: int, dimensions: int) -> list[Fraction]:
    """Split the budget below the root among the depths i = 1 to d in proportion to m0^(i / 3), and return the shares.

    Args:
        left: budget that remains below the root.
        root_parts: m0, the number of parts of the root.
        dimensions: d, the number of dimensions.

    References:
        [shaham2022stops, equation 32]
    """
    weights = [_cube_root(root_parts**depth << 3 * _BITS_OF_WEIGHT) for depth in range(1, dimensions + 1)]
    return [left * Fraction(weight, sum(weights)) for weight in weights]


def _cube_root(number: int) -> int:
    """Return the largest integer whose cube is at most this number."""
    root = 1 << -(-number.bit_length() // 3)  # at least the root; Newton's steps decrease from there
    while (lower := (2 * root + number // root**2) // 3) < root:
        root = lower
    return root


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
            sensitivity: see :class:`od_core.stops.mechanisms.mechanism.Path`.

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
