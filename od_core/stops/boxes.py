"""Disjoint boxes of a grid with noisy counts: what a mechanism measures, and public once it is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.stops.grid import Counts
from od_core.stops.path import Path

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


@dataclass(frozen=True, eq=False)
class Drawn:
    """What a mechanism has drawn: its boxes, and where the budget of every path to them went.

    Attributes:
        boxes: the leaves of its tree, or the cells of its grid.
        paths: the different ways in which a path from the root to a box was charged.
        path_of: which of them is each box's; shape (boxes,).
    """

    boxes: Boxes
    paths: tuple[Path, ...]
    path_of: NDArray[np.int32]
