"""Grids of nearly equal boxes: every dimension cut into as many parts as a formula says of the noisy total (spec 5)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.compiled import kernel
from od_core.errors import OdError
from od_core.stops.boxes import MAX_BOXES, Bounds, Boxes, Drawn
from od_core.stops.grid import Counts, Grid, Points
from od_core.stops.path import Path

TOTAL_SHARE = Fraction(1, 100)
"""Share of the budget that the noisy total has (the paper's eps_0)."""

NOTHING_SPENT = "nothing was spent"
TOTAL_SPENT = "what was set aside stays charged: the noisy total was drawn"

Parts = tuple[int, ...]
"""How many parts each dimension is cut into."""


class EqualGrid(ABC):
    """A mechanism that cuts every dimension into m parts, m by its formula from the noisy total N.

    N has ``TOTAL_SHARE`` of the budget, all boxes have the rest. m is rounded to the nearest whole number, halves up,
    and kept between 1 and the number of cells of the dimension; N of at most 1 gives m = 1.
    """

    name: ClassVar[str]

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {}

    def refuse(self, grid: Grid) -> None:  # noqa: B027  # of the protocol
        """Nothing to refuse in public: how many boxes there are depends on the noisy total."""

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Scales of the noise on the total and on the boxes; see :class:`StopsMechanism`."""
        total = TOTAL_SHARE * epsilon
        return {"total": sensitivity / total, "boxes": sensitivity / (epsilon - total)}

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """The boxes, each with a noisy count; see :class:`StopsMechanism`.

        Raises:
            OdError: more than ``MAX_BOXES`` boxes, once the noisy total is drawn; the noise source fails.
        """
        total, path = path.measured(np.array([len(points)], dtype=np.int64), path.left * TOTAL_SHARE)
        parts = self.parts(int(total[0]), path.left / path.sensitivity, grid)
        refuse_boxes(self.name, parts, spent=TOTAL_SPENT)
        return draw_equal_boxes(points, grid, parts, path)

    def parts(self, total: int, rate: Fraction, grid: Grid) -> Parts:
        """How many parts each dimension is cut into, at a noisy total.

        Args:
            total: N, noisy.
            rate: epsilon of the boxes over the sensitivity: one over the scale of their noise.
            grid: public.
        """
        if total <= 1:
            return (1,) * grid.dimensions
        m = self.fan_out(float(total), float(rate), grid.dimensions)
        return tuple(max(1, math.floor(min(m, size) + 0.5)) for size in grid.sizes)

    @abstractmethod
    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """The m of every dimension before it is rounded, for N above 1; ``rate`` as in :meth:`parts`."""


def refuse_boxes(name: str, parts: Parts, *, spent: str) -> None:
    """Refuse a grid of more than ``MAX_BOXES`` boxes. Raises OdError with their number."""
    boxes = math.prod(parts)
    if boxes > MAX_BOXES:
        raise OdError(
            "OD-STOPS-TOO-MANY-BOXES",
            f"mechanism {name!r} would cut the space into {boxes:,} boxes, and {MAX_BOXES:,} is the most",
            next_step="choose a coarser grid, or a mechanism whose boxes follow the trips",
            spent=spent,
        )


def draw_equal_boxes(points: Points, grid: Grid, parts: Parts, path: Path) -> Drawn:
    """Confidential in, public out: a box for each combination of parts, measured with all that the path has left.

    Args:
        points: cells of the grid.
        grid: public.
        parts: at least 1, and at most the cells of the dimension; ``MAX_BOXES`` boxes at most.
        path: of the root.
    """
    noisy, paid = path.measured(_counted(points, grid, parts), path.left)
    lower, upper = _bounds(grid, parts)
    return Drawn(Boxes(lower, upper, noisy), (paid,), np.zeros(len(noisy), dtype=np.int32))


def _counted(points: Points, grid: Grid, parts: Parts) -> Counts:
    """Confidential: points in each box, the last dimension running fastest; shape (boxes,)."""
    counts = np.zeros(math.prod(parts), dtype=np.int64)
    _count(points, np.array(grid.sizes, dtype=np.int64), np.array(parts, dtype=np.int64), counts)
    return counts


def _bounds(grid: Grid, parts: Parts) -> tuple[Bounds, Bounds]:
    """First and last cell of each box, in the order of :func:`_counted`."""
    boxes = math.prod(parts)
    lower, upper = (np.empty((boxes, grid.dimensions), dtype=np.int32) for _ in range(2))
    inner = boxes
    for dimension, (size, count) in enumerate(zip(grid.sizes, parts, strict=True)):
        inner //= count
        ends = _ends(size, count)
        lower[:, dimension] = np.tile(np.repeat(ends[:-1], inner), boxes // (count * inner))
        upper[:, dimension] = np.tile(np.repeat(ends[1:] - 1, inner), boxes // (count * inner))
    return lower, upper


def _ends(size: int, parts: int) -> NDArray[np.int64]:
    """Where the parts of a dimension begin, and its end: floor(k size / parts); shape (parts + 1,)."""
    return np.arange(parts + 1, dtype=np.int64) * size // parts


@kernel
def _count(points, sizes, parts, counts):  # type: ignore[no-untyped-def]  # compiled
    """Count points by box. Cell x lies in the last part k with floor(k size / parts) <= x."""
    for point in range(len(points)):
        box = 0
        for i in range(len(sizes)):
            box = box * parts[i] + ((points[point, i] + 1) * parts[i] - 1) // sizes[i]
        counts[box] += 1
