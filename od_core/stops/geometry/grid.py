"""Define the public grid of trips with stops, and number its cells."""

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
"""Largest number of cells of a dimension; they are numbered in 32 bits."""


@dataclass(frozen=True)
class Grid:
    """A grid of cells; k places on a w x w map give 2k dimensions of w cells.

    Attributes:
        sizes: number of cells of each dimension.

    Raises:
        OdError: There is no dimension, or a dimension has less than 1 or more than 2^31 cells.
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
        """Number of cells of the whole space, which may be too many to list."""
        return math.prod(self.sizes)


def cells_of(
    coordinates: NDArray[np.float64], least: NDArray[np.float64], most: NDArray[np.float64], sizes: Sequence[int]
) -> Points:
    """Find the cell of each point, with cells of equal width; the greatest coordinate lies in the last cell.

    Args:
        coordinates: coordinates within the bounds; shape (points, dimensions).
        least, most: bounds of each dimension, least < most; shape (dimensions,).
        sizes: number of cells of each dimension.
    """
    number = np.array(sizes)
    cells: Points = np.minimum(np.floor((coordinates - least) / (most - least) * number), number - 1).astype(np.int32)
    return cells


Rows = NDArray[np.int32]
"""Filled cells: the cell in each dimension, then its number of trips; shape (cells, dimensions + 1)."""

_WORD = 1 << 63
"""Number of cells that one word can number."""


def filled_cells(points: Points, grid: Grid) -> Rows:
    """Return every cell with trips once, in lexicographic order. The result is confidential.

    There must be fewer than 2^31 trips, all on the grid.
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
    """Number the cell of each trip, in one word or, on large grids, in several words, most significant first.

    The result is confidential.
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
