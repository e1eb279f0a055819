"""Store the nodes of one depth of a tree of boxes, and divide them into children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.kernels import kernel
from od_core.stops.geometry.boxes import MAX_BOXES, Bounds, Boxes
from od_core.stops.geometry.grid import Counts, Grid, Rows


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes of one depth of a tree of boxes. Everything except the bounds ``lower`` and ``upper`` is confidential.

    A node is a box with its filled cells, which contain trips. The boxes are disjoint.

    Attributes:
        lower, upper: first and last cell of each box in each dimension; shape (nodes, dimensions).
        first, last: the rows ``first[n]:last[n]`` of the array of filled cells lie in node n; shape (nodes,).
        trips: number of trips in each node; shape (nodes,).
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
        """Create the root node, which covers the whole grid and contains ``rows``, all cells with trips."""
        upper = np.array([grid.sizes], dtype=np.int64) - 1
        return cls(
            np.zeros((1, grid.dimensions), dtype=np.int32),
            upper.astype(np.int32),
            np.array([0]),
            np.array([len(rows)]),
            np.array([rows[:, -1].sum(dtype=np.int64)]),
        )

    def chosen(self, which: NDArray[np.bool_]) -> Nodes:
        """Return the nodes that a mask of shape (nodes,) selects."""
        return Nodes(self.lower[which], self.upper[which], self.first[which], self.last[which], self.trips[which])

    def divided(self, rows: Rows, dimensions: Counts, parts: Counts, begins: NDArray[np.int32]) -> Nodes:
        """Cut each node into parts along one dimension, and return the parts as nodes, those of the first node first.

        Args:
            rows: filled cells, as in :data:`od_core.stops.geometry.grid.Rows`. They are sorted in place, so that the
                rows of each part are contiguous.
            dimensions: dimension in which each node is cut; shape (nodes,).
            parts: number of parts of each node, at least 1; shape (nodes,).
            begins: first cell of every part in the cut dimension, ascending within a node; shape (sum of parts,). The
                first part of a node begins at the first cell of the node.
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
    """Raise OdError if a tree would have more than ``MAX_BOXES`` boxes, before these boxes are created."""
    if boxes > MAX_BOXES:
        raise OdError(
            "OD-STOPS-TOO-MANY-BOXES",
            f"the tree would have at least {boxes} boxes, but at most {MAX_BOXES} are allowed",
            next_step="lower epsilon, use a coarser grid, or choose another mechanism",
            spent=STAYS_CHARGED,
        )


def joined(nodes: Sequence[Nodes], noisy: Sequence[Counts]) -> Boxes:
    """Concatenate several sets of nodes and their noisy counts, and return them as boxes."""
    lower, upper = np.concatenate([each.lower for each in nodes]), np.concatenate([each.upper for each in nodes])
    return Boxes(lower, upper, np.concatenate(noisy))


@kernel
def _divide(rows, firsts, lasts, dimensions, starts, begins, child_first, child_last, child_trips):  # type: ignore[no-untyped-def]  # compiled
    """Sort the rows of every node by child, in place, and write ``child_first``, ``child_last`` and ``child_trips``.

    The caller passes these three arrays filled with zeros. Each row is moved to the next free position of its child,
    and the row at that position is moved next. No row is moved twice. This is American flag sort [mcilroy1993radix].
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
            child_last[child] = child_first[child]  # for now, the next free position
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
    """Return the last of the part numbers ``start:end`` whose part begins at or before the cell, by bisection."""
    size = end - start
    while size > 1:
        half = size >> 1
        start += half * (begins[start + half] <= cell)
        size -= half
    return start
