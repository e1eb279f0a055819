"""Disjoint boxes in an order that keeps neighbours together, so that a query looks at few of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.kernels import kernel
from od_core.parallel import in_order
from od_core.stops.geometry.boxes import Bounds
from od_core.stops.geometry.grid import Counts

Reals = NDArray[np.float64]
Ranges = NDArray[np.int64]
"""First and last cell, inclusive, of every query in every dimension; shape (queries, dimensions, 2)."""

_BLOCK = 64
"""Boxes of a block. Larger ones are seldom wholly inside or outside a query, smaller ones are many."""

_PIECE = 32
"""Queries that a thread answers at a time."""

_KEY_BITS = 63


@dataclass(frozen=True, eq=False)
class BoxIndex:
    """Boxes sorted along a Z-order curve, in blocks of neighbours with the least box around each.

    Attributes:
        order: where each sorted box stands among those given; shape (boxes,).
        lower, upper: first and last cells of the sorted boxes; shape (boxes, dimensions).
        block_lower, block_upper: of the box around each block; shape (blocks, dimensions).
    """

    order: NDArray[np.int64]
    lower: Bounds
    upper: Bounds
    block_lower: Bounds
    block_upper: Bounds

    @classmethod
    def of(cls, lower: Bounds, upper: Bounds) -> BoxIndex:
        """Of at least one box. Points are boxes with one cell: give them as both bounds."""
        bits = np.array([int(last).bit_length() for last in upper.max(axis=0)], dtype=np.int64)
        keys = np.empty(len(lower), dtype=np.int64)
        _interleave(lower, upper, bits, _KEY_BITS // min(lower.shape[1], _KEY_BITS), keys)
        order = np.argsort(keys, kind="stable")
        sorted_lower = np.ascontiguousarray(lower[order], dtype=np.int32)
        sorted_upper = sorted_lower if upper is lower else np.ascontiguousarray(upper[order], dtype=np.int32)
        starts = np.arange(0, len(order), _BLOCK)
        around = np.minimum.reduceat(sorted_lower, starts), np.maximum.reduceat(sorted_upper, starts)
        return cls(order, sorted_lower, sorted_upper, *around)

    def answers(self, counts: Counts | Reals, ranges: Ranges) -> Reals:
        """Sum over the boxes of count x share of the box's cells that lie in the query; shape (queries,).

        The sum is taken in the same order by any number of threads.

        Args:
            counts: of the boxes as they were given; shape (boxes,).
            ranges: inside the space.
        """
        ordered = counts[self.order].astype(np.float64)
        sums = np.add.reduceat(ordered, np.arange(0, len(ordered), _BLOCK))
        boxes = self.lower, self.upper, ordered, self.block_lower, self.block_upper, sums

        def answered(first: int) -> Reals:
            some = ranges[first : first + _PIECE]
            totals = np.empty(len(some))
            _answer(*boxes, some, totals)
            return totals

        return np.concatenate([np.empty(0), *in_order(answered, range(0, len(ranges), _PIECE))])


@kernel
def _interleave(lower, upper, bits, key_bits, keys):  # type: ignore[no-untyped-def]  # compiled
    """Place of each box's middle on the Z-order curve: leading bits of all dimensions, then the next, and so on.

    Every dimension is stretched to ``key_bits``. Dimensions beyond the bits of a key are left out: the order decides
    about speed alone.
    """
    for box in range(len(keys)):
        key = 0
        for bit in range(1, key_bits + 1):
            for i in range(min(len(bits), 63)):
                at = bits[i] - bit
                middle = (np.int64(lower[box, i]) + upper[box, i]) >> 1
                key = key << 1 | ((middle >> at) & 1 if at >= 0 else 0)
        keys[box] = key


@kernel
def _answer(lower, upper, counts, block_lower, block_upper, block_sums, ranges, answers):  # type: ignore[no-untyped-def]  # compiled
    """Answer every query: blocks outside are passed over, blocks inside give their sum, others are looked into."""
    for query in range(len(ranges)):
        total = 0.0
        for block in range(len(block_sums)):
            if _are_apart(block_lower, block_upper, block, ranges, query):
                continue
            if _lies_in(block_lower, block_upper, block, ranges, query):
                total += block_sums[block]
                continue
            for box in range(block * _BLOCK, min((block + 1) * _BLOCK, len(counts))):
                if not _are_apart(lower, upper, box, ranges, query):
                    total += _share(lower, upper, box, ranges, query) * counts[box]
        answers[query] = total


@kernel
def _are_apart(lower, upper, box, ranges, query):  # type: ignore[no-untyped-def]  # compiled
    """Whether no cell of the box lies in the query: known in the first dimension that says so."""
    for i in range(lower.shape[1]):
        if lower[box, i] > ranges[query, i, 1] or upper[box, i] < ranges[query, i, 0]:
            return True
    return False


@kernel
def _lies_in(lower, upper, box, ranges, query):  # type: ignore[no-untyped-def]  # compiled
    """Whether all cells of the box lie in the query."""
    for i in range(lower.shape[1]):
        if lower[box, i] < ranges[query, i, 0] or upper[box, i] > ranges[query, i, 1]:
            return False
    return True


@kernel
def _share(lower, upper, box, ranges, query):  # type: ignore[no-untyped-def]  # compiled
    """Share of the box's cells that lie in the query, which some do."""
    share = 1.0
    for i in range(lower.shape[1]):
        low, high = np.int64(lower[box, i]), np.int64(upper[box, i])
        share *= (min(high, ranges[query, i, 1]) - max(low, ranges[query, i, 0]) + 1) / (high - low + 1)
    return share
