"""Draw range queries to evaluate boxes, with a seed; for their shapes see [shaham2022stops, section 6.1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.stops.geometry import Grid, Points, Ranges

LEAST_SIDE, MOST_SIDE = 0.1, 0.5
"""Shares of a side that a query covers. A query that covers 1 % of each side is nearly always empty in four or more
dimensions."""


def random_ranges(grid: Grid, queries: int, seed: int) -> Ranges:
    """Draw queries of any shape and size: two cells in every dimension, uniformly, and all cells between them.

    The shape is (queries, d, 2).
    """
    ends = np.random.default_rng(seed).integers(0, np.array(grid.sizes)[:, None], (queries, grid.dimensions, 2))
    return np.sort(ends, axis=2)


def sized_ranges(grid: Grid, queries: int, seed: int) -> Ranges:
    """Draw queries of ``LEAST_SIDE`` to ``MOST_SIDE`` of every side, anywhere; shape (queries, d, 2)."""
    generator = np.random.default_rng(seed)
    lengths = _lengths(generator, grid, queries)
    first = generator.integers(0, np.array(grid.sizes) - lengths + 1)
    return np.stack([first, first + lengths - 1], axis=2)


def ranges_about(points: Points, grid: Grid, queries: int, seed: int) -> Ranges:
    """Draw queries around random records, as large as :func:`sized_ranges`, cut off at the ends of the space.

    Args:
        points: at least one point.
        grid: grid of the points.
        queries: number of queries.
        seed: seed of the generator.
    """
    generator = np.random.default_rng(seed)
    centres = points[generator.integers(0, len(points), queries)].astype(np.int64)
    lengths = _lengths(generator, grid, queries)
    first = centres - (lengths - 1) // 2
    last = first + lengths - 1
    return np.stack([np.maximum(first, 0), np.minimum(last, np.array(grid.sizes) - 1)], axis=2)


def _lengths(generator: np.random.Generator, grid: Grid, queries: int) -> NDArray[np.int64]:
    """Draw the number of cells of each query in every dimension, rounded, at least 1; shape (queries, d)."""
    shares = generator.uniform(LEAST_SIDE, MOST_SIDE, (queries, grid.dimensions))
    lengths: NDArray[np.int64] = np.maximum(np.rint(shares * np.array(grid.sizes)), 1).astype(np.int64)
    return lengths
