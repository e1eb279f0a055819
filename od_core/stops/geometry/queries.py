"""Answer range queries on disjoint boxes, as if the trips of a box were spread evenly over its cells.

References:
    [shaham2022stops, section 2.2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from od_core.errors import OdError
from od_core.kernels import kernel
from od_core.parallel import in_order
from od_core.stops.geometry.boxes import Bounds
from od_core.stops.geometry.grid import Counts

Range = tuple[int, int]
"""First and last cell in a dimension, both inclusive."""


def answers(boxes_lower: Bounds, boxes_upper: Bounds, counts: Counts | Reals, ranges: ArrayLike) -> Reals:
    """Estimate the number of trips in each range from the counts of the boxes.

    Args:
        boxes_lower: first cell of each box in each dimension; shape (boxes, dimensions). The boxes fill the space.
        boxes_upper: last cell of each box in each dimension, inclusive; shape (boxes, dimensions).
        counts: noisy or post-processed count of each box; shape (boxes,).
        ranges: first and last cell of each query in each dimension; shape (queries, dimensions, 2).

    Returns:
        Estimated number of trips in each range; shape (queries,). The count of a box that lies partly in a range is
        multiplied by the share of the box's cells that lie in the range.

    Raises:
        OdError: a query is not made of integers, does not have the dimensions of the boxes, ends before it begins, or
            extends beyond the space.

    >>> answers(np.array([[0], [4]]), np.array([[3], [5]]), np.array([8, 3]), [[(2, 4)], [(0, 5)]])
    array([ 5.5, 11. ])
    """
    checked = checked_ranges(ranges, space_of(boxes_upper))
    return BoxIndex.of(boxes_lower, boxes_upper).answers(counts, checked)


def origin_destination(
    boxes_lower: Bounds,
    boxes_upper: Bounds,
    counts: Counts | Reals,
    origin: Sequence[Range],
    destination: Sequence[Range],
    places: int,
) -> float:
    """Estimate the number of trips from one area to another, with any stops in between.

    Args:
        boxes_lower, boxes_upper, counts: see :func:`answers`.
        origin: one range per dimension of the first place. A place on a map has two dimensions, and a place that is
            numbered by its position in a list of zones has one.
        destination: one range per dimension of the last place.
        places: number of places of a trip, including origin and destination.

    Raises:
        OdError: there are fewer than two places, the number of dimensions is not a multiple of the number of places,
            origin or destination does not have one range per dimension of a place, or a range is invalid (see
            :func:`answers`).
    """
    space = space_of(boxes_upper)
    if not isinstance(places, int) or places < 2 or len(space) % places:
        raise _fault(f"the space has {len(space)} dimensions, which does not fit {places} places (at least two)")
    of_a_place = len(space) // places
    if not len(origin) == len(destination) == of_a_place:
        raise _fault(f"origin and destination need a range for each of the {of_a_place} dimensions of a place")
    between = [(0, size - 1) for size in space[of_a_place:-of_a_place]]
    return float(answers(boxes_lower, boxes_upper, counts, [[*origin, *between, *destination]])[0])


def checked_ranges(ranges: ArrayLike, sizes: Sequence[int]) -> Ranges:
    """Validate the queries, and return them as an int64 array of shape (queries, dimensions, 2).

    Args:
        ranges: the queries; shape (queries, dimensions, 2).
        sizes: number of cells of each dimension.

    Raises:
        OdError: a query is invalid, as in :func:`answers`.
    """
    try:
        given = np.asarray(ranges)
    except ValueError:  # rows of different lengths
        raise _misshapen(sizes) from None
    if given.shape[:1] == (0,):
        return np.empty((0, len(sizes), 2), dtype=np.int64)
    if given.shape[1:] != (len(sizes), 2):
        raise _misshapen(sizes)
    if not np.issubdtype(given.dtype, np.integer):
        raise _fault("the cells of a query must be whole numbers")
    first, last = given[:, :, 0], given[:, :, 1]
    if (first > last).any():
        raise _fault("a query ends before it begins")
    if (first < 0).any() or (last >= np.array(sizes)).any():
        raise _fault(
            f"a query extends beyond the space, whose cells are numbered from 0 to {[size - 1 for size in sizes]}"
        )
    return np.ascontiguousarray(given, dtype=np.int64)


def space_of(boxes_upper: Bounds) -> list[int]:
    """Return the number of cells of each dimension, given boxes that fill the space."""
    return [int(last) + 1 for last in boxes_upper.max(axis=0)]


def _misshapen(sizes: Sequence[int]) -> OdError:
    return _fault(f"a query needs a first and a last cell for each of the {len(sizes)} dimensions")


def _fault(message: str) -> OdError:
    return OdError("OD-STOPS-QUERY", message, next_step="correct the query")


Reals = NDArray[np.float64]
Ranges = NDArray[np.int64]
"""First and last cell, inclusive, of every query in every dimension; shape (queries, dimensions, 2)."""

_BLOCK = 64
"""Number of boxes in a block of :class:`BoxIndex`. Larger blocks rarely lie entirely inside or outside a query, and
smaller blocks are too numerous."""

_PIECE = 32
"""Number of queries that a thread answers at a time."""

_KEY_BITS = 63


@dataclass(frozen=True, eq=False)
class BoxIndex:
    """An index of boxes that makes range queries fast.

    The boxes are sorted along a Z-order curve and divided into blocks of nearby boxes. A query examines single boxes
    only in blocks that lie partly inside it.

    Attributes:
        order: position of each sorted box among the given boxes; shape (boxes,).
        lower, upper: first and last cells of the sorted boxes; shape (boxes, dimensions).
        block_lower, block_upper: first and last cells of the smallest box around each block; shape (blocks,
            dimensions).
    """

    order: NDArray[np.int64]
    lower: Bounds
    upper: Bounds
    block_lower: Bounds
    block_upper: Bounds

    @classmethod
    def of(cls, lower: Bounds, upper: Bounds) -> BoxIndex:
        """Create the index from the first and last cells of one or more boxes; shape (boxes, dimensions) each.

        To index points, which are boxes of one cell, pass the same array twice.
        """
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
        """Return the answer to each query; shape (queries,).

        An answer is a sum over all boxes: the count of a box times the share of its cells that lie in the query. The
        order of summation does not depend on the number of threads.

        Args:
            counts: counts of the boxes, in the order in which the boxes were passed to :meth:`of`; shape (boxes,).
            ranges: queries within the space; shape (queries, dimensions, 2).
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
    """Write the position of each box's centre on the Z-order curve into ``keys``.

    A position interleaves the ``key_bits`` leading bits of the centre in every dimension. Dimensions after the 63rd are
    ignored, because a key has 63 bits. The order affects only the speed of queries.
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
    """Write the answer to every query into ``answers``.

    A block outside the query is skipped, and the sum of a block inside the query is added. In all other blocks, every
    box is examined.
    """
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
    """Return whether no cell of the box lies in the query."""
    for i in range(lower.shape[1]):
        if lower[box, i] > ranges[query, i, 1] or upper[box, i] < ranges[query, i, 0]:
            return True
    return False


@kernel
def _lies_in(lower, upper, box, ranges, query):  # type: ignore[no-untyped-def]  # compiled
    """Return whether all cells of the box lie in the query."""
    for i in range(lower.shape[1]):
        if lower[box, i] < ranges[query, i, 0] or upper[box, i] > ranges[query, i, 1]:
            return False
    return True


@kernel
def _share(lower, upper, box, ranges, query):  # type: ignore[no-untyped-def]  # compiled
    """Return the share of the box's cells that lie in the query, which must overlap the box."""
    share = 1.0
    for i in range(lower.shape[1]):
        low, high = np.int64(lower[box, i]), np.int64(upper[box, i])
        share *= (min(high, ranges[query, i, 1]) - max(low, ranges[query, i, 0]) + 1) / (high - low + 1)
    return share
