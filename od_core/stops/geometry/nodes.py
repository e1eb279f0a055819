"""Nodes of a tree of boxes, all of one depth, and how they are divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.kernels import kernel
from od_core.stops.geometry.boxes import MAX_BOXES, Bounds, Boxes
from od_core.stops.geometry.grid import Counts, Grid, Rows


@dataclass(frozen=True, eq=False)
class Nodes:
    """Disjoint boxes, and the filled cells that lie in each. Confidential but for the bounds.

    Attributes:
        lower, upper: first and last cell of each box in each dimension; shape (nodes, dimensions).
        first, last: range of its rows among the filled cells; shape (nodes,).
        trips: number of trips in it; shape (nodes,).
    """

    lower: Bounds
    upper: Bounds
    first: Counts
    last: Counts
    trips: Counts

    def __len__(self) -> int:
        return len(self.trips)

    @classmethod
    def root(cls, rows: Rows, grid: Grid) -> Nodes:
        """The whole space."""
        upper = np.array([grid.sizes], dtype=np.int64) - 1
        return cls(
            np.zeros((1, grid.dimensions), dtype=np.int32),
            upper.astype(np.int32),
            np.array([0]),
            np.array([len(rows)]),
            np.array([rows[:, -1].sum(dtype=np.int64)]),
        )

    def chosen(self, which: NDArray[np.bool_]) -> Nodes:
        """Those of the nodes."""
        return Nodes(self.lower[which], self.upper[which], self.first[which], self.last[which], self.trips[which])

    def divided(self, rows: Rows, dimensions: Counts, parts: Counts, begins: NDArray[np.int32]) -> Nodes:
        """Their children, those of a node behind one another; the rows are put in order of the children, in place.

        Args:
            rows: filled cells.
            dimensions: which dimension of each node is cut; shape (nodes,).
            parts: into how many parts; shape (nodes,), at least 1.
            begins: first cell of every part, ascending, a node's first where the node begins; shape (sum of parts,).
        """
        lower, upper = np.repeat(self.lower, parts, axis=0), np.repeat(self.upper, parts, axis=0)
        children, along = np.arange(len(lower)), np.repeat(dimensions, parts)
        ends = upper[children, along]
        has_next = np.ones(len(children), dtype=np.bool_)
        starts = np.concatenate(([0], np.cumsum(parts)))
        has_next[starts[1:] - 1] = False
        ends[has_next] = begins[1:][has_next[:-1]] - 1
        lower[children, along], upper[children, along] = begins, ends
        first, last, trips = (np.zeros(len(children), dtype=np.int64) for _ in range(3))
        _divide(rows, self.first, self.last, dimensions, starts, begins, first, last, trips)
        return Nodes(lower, upper, first, last, trips)


def refuse_too_many(boxes: int) -> None:
    """Refuse a tree that would have more boxes than fit, before they are made. Raises OdError."""
    if boxes > MAX_BOXES:
        raise OdError(
            "OD-STOPS-TOO-MANY-BOXES",
            f"the tree would have {boxes} boxes or more; at most {MAX_BOXES} are made",
            next_step="lower epsilon, use a coarser grid, or choose another mechanism",
            spent="what was set aside before stays charged",
        )


def joined(nodes: Sequence[Nodes], noisy: Sequence[Counts]) -> Boxes:
    """Boxes of all these nodes, with these noisy counts."""
    lower, upper = np.concatenate([each.lower for each in nodes]), np.concatenate([each.upper for each in nodes])
    return Boxes(lower, upper, np.concatenate(noisy))


@kernel
def _divide(rows, firsts, lasts, dimensions, starts, begins, child_first, child_last, child_trips):  # type: ignore[no-untyped-def]  # compiled
    """Put the rows of every node in order of its children, in place, and count.

    Each row is carried to the next free place of its child, and the one that stood there is carried on: every row
    moves at most once (American flag sort; McIlroy, Bostic & McIlroy 1993).
    """
    width = rows.shape[1]
    carried = np.empty(width, rows.dtype)
    for node in range(len(firsts)):
        first, last, dimension = firsts[node], lasts[node], dimensions[node]
        start, end = starts[node], starts[node + 1]
        for i in range(first, last):
            child = _part(rows[i, dimension], begins, start, end)
            child_last[child] += 1
            child_trips[child] += rows[i, width - 1]
        place = first
        for child in range(start, end):
            child_first[child] = place
            place += child_last[child]
            child_last[child] = child_first[child]  # next free place for now
        for child in range(start, end):
            limit = child_first[child + 1] if child + 1 < end else last
            while child_last[child] < limit:
                i = child_last[child]
                home = _part(rows[i, dimension], begins, start, end)
                if home != child:
                    for k in range(width):
                        carried[k] = rows[i, k]
                    while home != child:
                        j = child_last[home]
                        child_last[home] += 1
                        for k in range(width):
                            carried[k], rows[j, k] = rows[j, k], carried[k]
                        home = _part(carried[dimension], begins, start, end)
                    for k in range(width):
                        rows[i, k] = carried[k]
                child_last[child] += 1


@kernel
def _part(cell, begins, start, end):  # type: ignore[no-untyped-def]  # compiled
    """The last part that begins at or before the cell, by bisection without a branch."""
    size = end - start
    while size > 1:
        half = size >> 1
        start += half * (begins[start + half] <= cell)
        size -= half
    return start
