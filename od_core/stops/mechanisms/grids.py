"""Cut every dimension of the grid into nearly equal parts. A formula gives their number from a noisy total."""

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
from od_core.stops.geometry import MAX_BOXES, Bounds, Boxes, Counts, Grid, Points
from od_core.stops.mechanisms.mechanism import Drawn, Path, parts_of

TOTAL_SHARE = Fraction(1, 100)
"""Share of the budget for the noisy total number of trips, eps_0 in [shaham2022stops]."""

TOTAL_SPENT = "budget reserved earlier stays charged, because the noisy total was drawn"

Parts = tuple[int, ...]
"""Number of parts of each dimension."""


class _WithoutOptions(ABC):
    """The common base of the mechanisms of this module: they have no options, and all boxes have the same noise."""

    name: ClassVar[str]
    options: ClassVar[dict[str, str]] = {}

    @abstractmethod
    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales, that of the boxes as ``boxes``; see :class:`StopsMechanism`."""

    def count_scale(self, boxes: Boxes, grid: Grid, epsilon: Fraction, sensitivity: int) -> Fraction:
        """Return the noise scale of the boxes; see :class:`StopsMechanism`."""
        return self.scales(epsilon, sensitivity)["boxes"]


class EqualGrid(_WithoutOptions):
    """A mechanism that cuts every dimension into m parts, where m depends on N, the noisy total number of trips.

    Measuring N costs ``TOTAL_SHARE`` of the budget, and measuring the boxes costs the rest. m is rounded half up and
    clipped to the range from 1 to the number of cells of the dimension. If N is at most 1, m is 1.
    """

    def refuse(self, grid: Grid) -> None:
        """Accept every grid, because the number of boxes depends on the noisy total."""

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales of the total and of the boxes; see :class:`StopsMechanism`."""
        total = TOTAL_SHARE * epsilon
        return {"total": sensitivity / total, "boxes": sensitivity / (epsilon - total)}

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """Draw the noisy total, then the boxes, each with a noisy count; see :class:`StopsMechanism`.

        Raises:
            OdError: the noisy total leads to more than ``MAX_BOXES`` boxes, or the noise source fails.
        """
        total, path = path.measured(np.array([len(points)], dtype=np.int64), path.left * TOTAL_SHARE)
        parts = self.parts(int(total[0]), path.left / path.sensitivity, grid)
        refuse_boxes(self.name, parts, spent=TOTAL_SPENT)
        return draw_equal_boxes(points, grid, parts, path)

    def parts(self, total: int, rate: Fraction, grid: Grid) -> Parts:
        """Return the number of parts of each dimension for a noisy total.

        Args:
            total: N, the noisy total number of trips.
            rate: epsilon of the boxes divided by the sensitivity, the inverse of their noise scale.
            grid: the public grid.
        """
        if total <= 1:
            return (1,) * grid.dimensions
        m = self.fan_out(float(total), float(rate), grid.dimensions)
        return tuple(max(1, math.floor(min(m, size) + 0.5)) for size in grid.sizes)

    @abstractmethod
    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """Return the unrounded number of parts m, which is the same for all dimensions.

        Args:
            total: N, the noisy total number of trips, above 1.
            rate: inverse of the noise scale of the boxes.
            dimensions: number of dimensions of the grid.
        """


def refuse_boxes(name: str, parts: Parts, *, spent: str) -> None:
    """Raise OdError if a mechanism would make more than ``MAX_BOXES`` boxes. The message states how many.

    Args:
        name: name of the mechanism.
        parts: number of parts of each dimension.
        spent: text that tells the user which part of the budget is spent.
    """
    boxes = math.prod(parts)
    if boxes > MAX_BOXES:
        raise OdError(
            "OD-STOPS-TOO-MANY-BOXES",
            f"mechanism {name!r} would cut the space into {boxes:,} boxes, but at most {MAX_BOXES:,} are allowed",
            next_step="choose a coarser grid, or a mechanism whose boxes follow the trips",
            spent=spent,
        )


def draw_equal_boxes(points: Points, grid: Grid, parts: Parts, path: Path) -> Drawn:
    """Measure one box for each combination of parts with the whole remaining budget. The result is public.

    Args:
        points: confidential cells of the trips.
        grid: the public grid.
        parts: number of parts of each dimension, from 1 to its number of cells. The product is at most ``MAX_BOXES``.
        path: path to the boxes before they are measured.
    """
    noisy, paid = path.measured(_counted(points, grid, parts), path.left)
    lower, upper = _bounds(grid, parts)
    return Drawn(Boxes(lower, upper, noisy), (paid,), np.zeros(len(noisy), dtype=np.int32))


def _counted(points: Points, grid: Grid, parts: Parts) -> Counts:
    """Return the confidential number of points in each box; shape (boxes,). The last dimension varies fastest."""
    counts = np.zeros(math.prod(parts), dtype=np.int64)
    _count(points, np.array(grid.sizes, dtype=np.int64), np.array(parts, dtype=np.int64), counts)
    return counts


def _bounds(grid: Grid, parts: Parts) -> tuple[Bounds, Bounds]:
    """Return the first and last cell of each box in the order of :func:`_counted`; shape (boxes, dimensions) each."""
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
    """Return the first cell of each part of a dimension, then ``size``; shape (parts + 1,).

    The entries are floor(k size / parts) for k = 0, ..., ``parts``.
    """
    return np.arange(parts + 1, dtype=np.int64) * size // parts


@kernel
def _count(points, sizes, parts, counts):  # type: ignore[no-untyped-def]  # compiled
    """Add the number of points in each box to ``counts``.

    In each dimension, cell x lies in the last part k with floor(k size / parts) <= x.
    """
    for point in range(len(points)):
        box = 0
        for i in range(len(sizes)):
            box = box * parts[i] + ((points[point, i] + 1) * parts[i] - 1) // sizes[i]
        counts[box] += 1


class FixedGrid(_WithoutOptions):
    """A mechanism whose boxes are fixed before any draw. They are measured with the whole budget."""

    @abstractmethod
    def parts(self, grid: Grid) -> Parts:
        """Return the number of parts of each dimension."""

    def refuse(self, grid: Grid) -> None:
        """Raise OdError if there would be more than ``MAX_BOXES`` boxes. The message states how many."""
        refuse_boxes(self.name, self.parts(grid), spent="nothing was spent")

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scale of the boxes; see :class:`StopsMechanism`."""
        return {"boxes": sensitivity / epsilon}

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """Draw a noisy count of every box; see :class:`StopsMechanism`.

        Raises:
            OdError: there are more than ``MAX_BOXES`` boxes, or the noise source fails.
        """
        self.refuse(grid)
        return draw_equal_boxes(points, grid, self.parts(grid), path)


@dataclass(frozen=True)
class Uniform(FixedGrid):
    """The baseline UNIFORM of [shaham2022stops]: one box, the whole space."""

    name: ClassVar[str] = "uniform"

    def parts(self, grid: Grid) -> Parts:
        """Return one part of each dimension."""
        return (1,) * grid.dimensions


@dataclass(frozen=True)
class Identity(FixedGrid):
    """The baseline IDENTITY of [shaham2022stops]: every cell is a box."""

    name: ClassVar[str] = "identity"

    def parts(self, grid: Grid) -> Parts:
        """Return the number of cells of each dimension."""
        return grid.sizes


BORDER_CONSTANT = 10 / math.sqrt(2)
"""Constant c_0 of [shaham2022stops], set there by trial. The non-uniformity error of a query is estimated as the number
of points on its border divided by c_0."""


@dataclass(frozen=True)
class EUG(EqualGrid):
    """The extended uniform grid: m minimises the sum of the noise error and the non-uniformity error of a query.

    m is the number of parts per dimension. The errors are averaged over the sizes of queries. The source measures the
    border of a query by its edges, although the border consists of faces in more than two dimensions. The formula is
    used as printed. In one dimension it gives 0, because the border does not shrink with the boxes; m is then 1.

    References:
        [shaham2022stops, section 3.1, equation 13]
    """

    name: ClassVar[str] = "eug"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """Return m, the unrounded number of parts per dimension [shaham2022stops, equation 13]."""
        d = dimensions
        base = 2 * (d - 1) / d * total * rate / (math.sqrt(2) * BORDER_CONSTANT)
        alpha: float = base ** (2 / (3 * d - 2))
        return alpha * (d * (3 * d - 2)) / (3 * d**2 - 3 * d + 2)


@dataclass(frozen=True)
class EBP(EqualGrid):
    """The entropy-based grid: the entropy of the noise equals the information that m parts per dimension lose.

    m is the solution of sqrt(2) m^(d/2) / eps = N / m^d, where d is the number of dimensions, N the noisy total and
    1 / eps the scale of the noise on the boxes.

    References:
        [shaham2022stops, section 3.2, equation 19]
    """

    name: ClassVar[str] = "ebp"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """Return m, the unrounded number of parts per dimension [shaham2022stops, equation 19]."""
        return float(parts_of(np.array(total), rate, dimensions))


@dataclass(frozen=True)
class MKM(EqualGrid):
    """The perturbed histogram of [lei2011mestimators], with m = (N / sqrt(ln N))^(2/(d + 2)) parts per dimension.

    N is the noisy total, d the number of dimensions, and m the inverse of the bin width of the source, to which
    [shaham2022stops] refers without a formula. m does not depend on epsilon, so a smaller budget does not make the grid
    coarser.
    """

    name: ClassVar[str] = "mkm"

    def fan_out(self, total: float, rate: float, dimensions: int) -> float:
        """Return the unrounded number of parts per dimension, m = (``total`` / sqrt(ln ``total``))^(2 / (d + 2))."""
        m: float = (total / math.sqrt(math.log(total))) ** (2 / (dimensions + 2))
        return m
