"""Define the public grid whose cells contain the trips with stops, and number these cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError

Counts = NDArray[np.int64]
Points = NDArray[np.int32]
"""Cell of each trip in each dimension; shape (trips, dimensions)."""

MAX_SIDE = 1 << 31
"""Largest number of cells in a dimension. Cell numbers are signed 32-bit integers."""


@dataclass(frozen=True)
class Grid:
    """A public grid of cells. A trip is one cell of the grid.

    For trips with k places on a map of w x w cells, the grid has 2k dimensions of w cells each.

    Attributes:
        sizes: number of cells in each dimension.

    Raises:
        OdError: the sizes are not a tuple of one or more integers from 1 to 2^31.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        is_tuple = isinstance(self.sizes, tuple) and len(self.sizes) > 0
        whole = is_tuple and all(isinstance(size, int) and not isinstance(size, bool) for size in self.sizes)
        if not whole or not all(1 <= size <= MAX_SIDE for size in self.sizes):
            raise OdError(
                "OD-STOPS-GRID",
                "a grid must be a tuple with one whole number of cells, from 1 to 2^31, for each dimension",
                next_step="correct the grid",
            )

    @property
    def dimensions(self) -> int:
        """Number of dimensions, d."""
        return len(self.sizes)

    @property
    def cells(self) -> int:
        """Number of cells of the whole grid. It may be too large for an array of all cells."""
        return math.prod(self.sizes)


def cells_of(
    coordinates: NDArray[np.float64], least: NDArray[np.float64], most: NDArray[np.float64], sizes: Sequence[int]
) -> Points:
    """Return the cell of each point in each dimension; shape (points, dimensions).

    The cells of a dimension have equal width. The greatest coordinate, ``most``, lies in the last cell.

    Args:
        coordinates: coordinates within the bounds; shape (points, dimensions).
        least, most: least and greatest coordinate of each dimension, least < most; shape (dimensions,).
        sizes: number of cells in each dimension.
    """
    number = np.array(sizes)
    cells: Points = np.minimum(np.floor((coordinates - least) / (most - least) * number), number - 1).astype(np.int32)
    return cells


Rows = NDArray[np.int32]
"""Filled cells, that is, cells with trips. A row has the cell number in each dimension, then the number of trips; shape
(cells, dimensions + 1)."""

_WORD = 1 << 63
"""Number of different cell numbers that fit one non-negative 64-bit word."""


def filled_cells(points: Points, grid: Grid) -> Rows:
    """Return the cells with trips, in lexicographic order, as :data:`Rows`. The result is confidential.

    The caller ensures that there are fewer than 2^31 trips, and that all are on the grid.
    """
    words = keys(points, grid)
    if len(words) == 1:
        found, trips = np.unique(words[0], return_counts=True)
        first = None
    else:
        order = np.lexsort(words[::-1])
        new = np.ones(len(points), dtype=np.bool_)
        new[1:] = np.any([np.diff(word[order]) != 0 for word in words], axis=0)
        trips = np.diff(np.flatnonzero(new), append=len(points))
        first = order[new]
    rows = np.empty((len(trips), grid.dimensions + 1), dtype=np.int32)
    rows[:, -1] = trips
    if first is not None:
        rows[:, :-1] = points[first]
        return rows
    for dimension in reversed(range(grid.dimensions)):
        found, rows[:, dimension] = np.divmod(found, grid.sizes[dimension])
    return rows


def keys(points: Points, grid: Grid) -> list[Counts]:
    """Return the number of each trip's cell in the lexicographic order of all cells. The result is confidential.

    The result is a list of int64 arrays of shape (trips,). On a small grid, it has one array. On a large grid, the
    numbers exceed 64 bits, and are divided into several arrays (words), the most significant first.
    """
    words: list[Counts] = []
    room = 0  # largest factor by which the last word may still be multiplied
    for dimension, size in enumerate(grid.sizes):
        cell = points[:, dimension]
        if size > room:
            words.append(cell.astype(np.int64))
            room = _WORD // size
        else:
            words[-1] *= size
            words[-1] += cell
            room //= size
    return words
