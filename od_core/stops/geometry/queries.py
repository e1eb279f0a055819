"""Range queries on disjoint boxes with counts, each spread evenly over the cells of its box (paper, section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from od_core.errors import OdError
from od_core.stops.geometry.box_index import BoxIndex, Ranges, Reals
from od_core.stops.geometry.boxes import Bounds
from od_core.stops.geometry.grid import Counts

Range = tuple[int, int]
"""First and last cell of a dimension, both included."""


def answers(boxes_lower: Bounds, boxes_upper: Bounds, counts: Counts | Reals, ranges: ArrayLike) -> Reals:
    """How many trips lie in each range, by the counts of the boxes.

    Args:
        boxes_lower: first cell of each box in each dimension; shape (boxes, dimensions). The boxes fill the space.
        boxes_upper: last cell, inclusive.
        counts: noisy or whole; shape (boxes,).
        ranges: one query a row, for each dimension its first and last cell; shape (queries, dimensions, 2).

    Returns:
        Shape (queries,). A count of a box that lies partly in a query is taken in proportion to its cells there.

    Raises:
        OdError: a query is not whole numbers, has other dimensions than the boxes, ends before it begins, or is not
            within the space.

    >>> answers(np.array([[0], [4]]), np.array([[3], [5]]), np.array([8, 3]), [[(2, 4)], [(0, 5)]])
    array([ 5.5, 11. ])
    """
    checked = checked_ranges(ranges, _space(boxes_upper))
    return BoxIndex.of(boxes_lower, boxes_upper).answers(counts, checked)


def origin_destination(
    boxes_lower: Bounds,
    boxes_upper: Bounds,
    counts: Counts | Reals,
    origin: Sequence[Range],
    destination: Sequence[Range],
    places: int,
) -> float:
    """Trips from one area of the map to another, wherever they stopped in between.

    Args:
        boxes_lower, boxes_upper, counts: as for :func:`answers`.
        origin: the range of each dimension of the first place: two on a map, one in a zone list.
        destination: the same of the last place.
        places: of a trip, origin and destination counted.

    Raises:
        OdError: fewer than two places, dimensions that do not belong to so many places; as :func:`answers`.
    """
    space = _space(boxes_upper)
    if not isinstance(places, int) or places < 2 or len(space) % places:
        raise _fault(f"{len(space)} dimensions are not those of {places} places, two at least")
    of_a_place = len(space) // places
    if not len(origin) == len(destination) == of_a_place:
        raise _fault(f"origin and destination have a range for each of a place's {of_a_place} dimensions")
    between = [(0, size - 1) for size in space[of_a_place:-of_a_place]]
    return float(answers(boxes_lower, boxes_upper, counts, [[*origin, *between, *destination]])[0])


def checked_ranges(ranges: ArrayLike, sizes: Sequence[int]) -> Ranges:
    """The queries as an array; see :func:`answers`.

    Args:
        ranges: shape (queries, dimensions, 2).
        sizes: cells of each dimension.

    Raises:
        OdError: as :func:`answers`.
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
        raise _fault("a query's cells must be whole numbers")
    first, last = given[:, :, 0], given[:, :, 1]
    if (first > last).any():
        raise _fault("a query ends before it begins")
    if (first < 0).any() or (last >= np.array(sizes)).any():
        raise _fault(f"a query leaves the space, whose cells are numbered from 0 to {[size - 1 for size in sizes]}")
    return np.ascontiguousarray(given, dtype=np.int64)


def _space(boxes_upper: Bounds) -> list[int]:
    """Cells of each dimension, of boxes that fill the space."""
    return [int(last) + 1 for last in boxes_upper.max(axis=0)]


def _misshapen(sizes: Sequence[int]) -> OdError:
    return _fault(f"a query is a first and a last cell for each of the {len(sizes)} dimensions")


def _fault(message: str) -> OdError:
    return OdError("OD-STOPS-QUERY", message, next_step="correct the query")
