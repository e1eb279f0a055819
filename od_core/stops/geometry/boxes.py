"""Disjoint boxes of a grid with noisy counts: what a mechanism measures, and public once it is drawn."""

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
"""Most boxes of a release: 56 bytes each in six dimensions, and the nodes of a tree more while they are cut."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes that partition the space, each with its noisy count.

    Attributes:
        lower: first cell of each box in each dimension; shape (boxes, dimensions).
        upper: last cell, inclusive.
        noisy: noisy count of each box, as it was drawn; shape (boxes,).
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


# Whether boxes fill a grid without gap or overlap: an identity of polynomials, looked at in random points.


PRIME = (1 << 31) - 1
ROUNDS = 3


def fill_the_grid(lower: Bounds, upper: Bounds, grid: Grid) -> bool:
    """Whether every cell of the grid lies in exactly one box; in time and memory of the boxes, not of the cells.

    Give every cell of every dimension an unknown weight, and a cell of the grid the product of its weights. The boxes'
    sum of weights equals the grid's, as polynomials, if and only if every cell lies in one box. A product over the
    dimensions of sums over their cells is all that it takes, and cells that no box divides need one weight together.
    Two different polynomials of degree d agree in a random point of a field of p elements with probability d / p at
    most (Schwartz 1980, Zippel 1979): in 8 dimensions, in three points, 1e-25.

    Args:
        lower, upper: first and last cell of each box; shape (boxes, dimensions).
        grid: the whole space.
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
        below = np.concatenate([[0], generator.integers(0, PRIME, len(cuts) - 1)])  # of all cells before a cut
        weights = (below[np.searchsorted(cuts, ends)] - below[np.searchsorted(cuts, begins)]) % PRIME
        products = products * weights % PRIME
        whole = whole * int(below[-1]) % PRIME
    return int(products.sum()) % PRIME == whole
