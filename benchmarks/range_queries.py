"""Draw range queries to evaluate boxes, with a seed; for their shapes see [shaham2022stops, section 6.1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.stops.geometry import BoxIndex, Grid, Points, Ranges, count_trips_by_cell
from od_core.stops.release import choose_default_error_floors

LEAST_SIDE, MOST_SIDE = 0.1, 0.5
"""Shares of a side that a query covers. A query that covers 1 % of each side is nearly always empty in four or more
dimensions."""


def random_ranges(grid: Grid, queries: int, seed: int) -> Ranges:
    """Draw queries of any shape and size: two cells in every dimension, uniformly, and all cells between them.

    The shape is (queries, d, 2).
    """
    return _any_ranges(np.random.default_rng(seed), grid, queries)


def _any_ranges(generator: np.random.Generator, grid: Grid, queries: int) -> Ranges:
    ends = generator.integers(0, np.array(grid.sizes)[:, None], (queries, grid.dimensions, 2))
    return np.sort(ends, axis=2)


def filled_ranges(points: Points, grid: Grid, queries: int, seed: int) -> Ranges:
    """Draw queries like :func:`random_ranges`, and draw those again that hold less than a thousandth of the points.

    Their relative error is divided by the true answer alone, as in [shaham2022stops, equation 3]: the floor of
    :func:`od_core.stops.release.compute_mean_relative_error` never applies. ``points`` are at least one.
    """
    generator, rows = np.random.default_rng(seed), count_trips_by_cell(points, grid)
    cells, trips = np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64)
    index, kept = BoxIndex.from_boxes(cells, cells), np.empty((0, grid.dimensions, 2), dtype=np.int64)
    while len(kept) < queries:
        drawn = _any_ranges(generator, grid, queries)
        kept = np.concatenate(
            [kept, drawn[index.answer_queries(trips, drawn) >= choose_default_error_floors(len(points))[0]]]
        )
    return kept[:queries]


def covering_ranges(grid: Grid, queries: int, seed: int, share: float) -> Ranges:
    """Draw queries of the same share of every side, anywhere, of at least one cell; shape (queries, d, 2)."""
    lengths = np.maximum(np.rint(share * np.array(grid.sizes)), 1).astype(np.int64)
    first = np.random.default_rng(seed).integers(0, np.array(grid.sizes) - lengths + 1, (queries, grid.dimensions))
    return np.stack([first, first + lengths - 1], axis=2)


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
