"""Grids of nearly equal boxes: every dimension cut into as many parts as a formula says of the noisy total (spec 5)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.kernels import kernel
from od_core.stops.geometry.boxes import MAX_BOXES, Bounds, Boxes
from od_core.stops.geometry.grid import Counts, Grid, Points
from od_core.stops.mechanisms.mechanism import Drawn, parts_of
from od_core.stops.mechanisms.path import Path

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


# UNIFORM: one box, the whole space (the paper's baseline).


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


# IDENTITY: noise on every cell (the paper's baseline).


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


# EUG, the extended uniform grid (paper, section 3.1, equation 13).


BORDER_CONSTANT = 10 / math.sqrt(2)
"""The paper's c_0, set by trial: the points on a query's border over those that it is wrong by."""


@dataclass(frozen=True)
class EUG(EqualGrid):
    """m where noise and non-uniformity together are least, averaged over the sizes of queries.

    The paper counts a query's border by its edges: right in two dimensions, while in more the border is made of faces.
    The formula is kept as it is printed. In one dimension it is 0: the border does not shrink with the boxes.
    """

    name: ClassVar[str] = "eug"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """The m of equation 13; see :class:`EqualGrid`."""
        d = dimensions
        base = 2 * (d - 1) / d * total * rate / (math.sqrt(2) * BORDER_CONSTANT)
        alpha: float = base ** (2 / (3 * d - 2))
        return alpha * (d * (3 * d - 2)) / (3 * d**2 - 3 * d + 2)


# EBP, the entropy-based grid (paper, section 3.2, equation 19).


@dataclass(frozen=True)
class EBP(EqualGrid):
    """m where the entropy of the noise is the information that the boxes lose: sqrt(2) m^(d/2) / eps = N / m^d."""

    name: ClassVar[str] = "ebp"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """The m of equation 19; see :class:`EqualGrid`."""
        return float(parts_of(np.array(total), rate, dimensions))


# MKM, the perturbed histogram of Lei 2011 (the paper's reference 11).


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
