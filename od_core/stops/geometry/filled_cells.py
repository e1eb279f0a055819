"""The cells of a grid that have trips, each once: what trees of boxes are grown over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.stops.geometry.grid import Counts, Grid, Points

Rows = NDArray[np.int32]
"""Filled cells: the cell in each dimension and, last, its number of trips; shape (cells, dimensions + 1)."""

_WORD = 1 << 63
"""Cells that one word can number."""


def filled_cells(points: Points, grid: Grid) -> Rows:
    """Confidential: every cell with trips, in lexicographic order; fewer than 2^31 trips, each on the grid."""
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
    """Confidential: the cell of each trip as a number of one word or, on large grids, several; first word first."""
    words: list[Counts] = []
    room = 0  # cells that the last word may still be multiplied by
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
