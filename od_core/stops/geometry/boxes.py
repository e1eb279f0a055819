"""Store the disjoint boxes of a grid with their noisy counts, and check that the boxes fill the grid."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.stops.geometry.grid import Counts, Grid

Bounds = NDArray[np.int32]
"""First or last cell of each box in each dimension; shape (boxes, dimensions)."""

MAX_BOXES = 1 << 23
"""Largest number of boxes in a release. It limits memory: in six dimensions, a box takes 56 bytes, and more while a
tree grows."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Disjoint boxes that together fill the grid, each with its noisy count. All of this is public.

    Attributes:
        lower: first cell of each box in each dimension; shape (boxes, dimensions).
        upper: last cell of each box in each dimension, inclusive; shape (boxes, dimensions).
        noisy: noisy count of each box, as drawn; shape (boxes,).

    Raises:
        OdError: the shapes do not match, or a box begins below 0 or ends before it begins.
    """

    lower: Bounds
    upper: Bounds
    noisy: Counts

    def __post_init__(self) -> None:
        same = self.lower.ndim == 2 and self.lower.shape == self.upper.shape and len(self.noisy) == len(self.lower)
        if not same or (self.lower < 0).any() or (self.lower > self.upper).any():
            raise OdError("OD-STOPS-BOXES", "a box ends before it begins", next_step="report this defect")

    def __len__(self) -> int:
        return len(self.noisy)


PRIME = (1 << 31) - 1
ROUNDS = 3


def fill_the_grid(lower: Bounds, upper: Bounds, grid: Grid) -> bool:
    """Return whether every cell of the grid lies in exactly one box.

    This is a random test of a polynomial identity. If every cell lies in exactly one box, the result is always True.
    Otherwise it is True with a tiny probability, at most 1e-25 in 8 dimensions.

    The variables of the polynomials are the weights of the cell numbers of each dimension. The weight of a cell of the
    grid is the product of the weights of its d cell numbers. The weight of a box, and of the grid, is the sum of the
    weights of its cells. As polynomials, the weights of the boxes sum to the weight of the grid if and only if every
    cell lies in exactly one box. Both sides are evaluated at ``ROUNDS`` random points of the field of p = ``PRIME``
    elements. Two different polynomials of degree d agree at a random point with probability at most d / p
    [schwartz1980polynomial, zippel1979sparse].

    Time and memory depend on the number of boxes, not on the number of cells. The weight of a box is a product of d
    sums, one per dimension, and adjacent cell numbers that no box separates enter these sums as one number.

    Args:
        lower, upper: first and last cell of each box; shape (boxes, dimensions).
        grid: the grid that the boxes should fill.
    """
    if len(lower) == 0 or (upper >= np.array(grid.sizes)).any():
        return False
    generator = np.random.default_rng(secrets.randbits(128))
    return all(_agree(lower, upper, grid, generator) for _ in range(ROUNDS))


def _agree(lower: Bounds, upper: Bounds, grid: Grid, generator: np.random.Generator) -> bool:
    products, whole = np.ones(len(lower), dtype=np.int64), 1
    for dimension, size in enumerate(grid.sizes):
        begins, ends = lower[:, dimension].astype(np.int64), upper[:, dimension].astype(np.int64) + 1
        cuts = np.unique(np.concatenate([[0, size], begins, ends]))
        below = np.concatenate([[0], generator.integers(0, PRIME, len(cuts) - 1)])  # weight of all cells before a cut
        weights = (below[np.searchsorted(cuts, ends)] - below[np.searchsorted(cuts, begins)]) % PRIME
        products = products * weights % PRIME
        whole = whole * int(below[-1]) % PRIME
    return int(products.sum()) % PRIME == whole
