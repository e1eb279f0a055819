"""Describe grids, their cells and disjoint boxes of cells, and answer range queries on boxes.

A grid has the dimensions of a trip with stops: the place of each point, or its two coordinates on a map. A range query
asks for the trips in a box. It is answered as if the trips of a released box were spread evenly over its cells.

References:
    [shaham2022stops, section 2.2]
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from od_core.errors import OdError
from od_core.kernels import kernel
from od_core.parallel import map_in_order

Counts = NDArray[np.int64]
Points = NDArray[np.int32]
"""Cell of each trip in each dimension; shape (trips, dimensions)."""

MAX_SIDE = 1 << 31
"""Largest number of cells in a dimension. Cell numbers are signed 32-bit integers."""


@dataclass(frozen=True)
class Grid:
    """A public grid of cells. A trip is one cell of the grid.

    For trips with k places on a map of w x w cells, the grid has 2k dimensions of w cells each.

    Attributes:
        sizes: number of cells in each dimension.

    Raises:
        OdError: the sizes are not a tuple of one or more integers from 1 to 2^31.

    Examples:
        >>> Grid((8, 8)).dimensions
        2
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        is_tuple = isinstance(self.sizes, tuple) and len(self.sizes) > 0
        are_whole = is_tuple and all(isinstance(size, int) and not isinstance(size, bool) for size in self.sizes)
        if not are_whole or not all(1 <= size <= MAX_SIDE for size in self.sizes):
            message = "a grid must be a tuple with one whole number of cells, from 1 to 2^31, for each dimension"
            raise OdError("OD-STOPS-GRID", message, next_step="correct the grid")

    @property
    def dimensions(self) -> int:
        """Number of dimensions, d."""
        return len(self.sizes)

    @property
    def values_per_box(self) -> int:
        """Number of stored values of a box: a lower and an upper bound in each dimension, and the noisy count."""
        return 2 * self.dimensions + 1

    @property
    def cells(self) -> int:
        """Number of cells of the whole grid. It may be too large for an array of all cells."""
        return math.prod(self.sizes)


def compute_cells(
    coordinates: NDArray[np.float64], least: NDArray[np.float64], most: NDArray[np.float64], sizes: Sequence[int]
) -> Points:
    """Return the cell of each point in each dimension; shape (points, dimensions).

    The cells of a dimension have equal width. The greatest coordinate, ``most``, lies in the last cell. The coordinates
    are within the bounds ``least`` and ``most``, which have the shape (dimensions,).
    """
    cells_across = np.array(sizes)
    positions = np.floor((coordinates - least) / (most - least) * cells_across)
    cells: Points = np.minimum(positions, cells_across - 1).astype(np.int32)
    return cells


Rows = NDArray[np.int32]
"""Cells with trips. A row has the cell number in each dimension, then the trips; shape (cells, dimensions + 1)."""

_WORD = 1 << 63
"""Number of different cell numbers that fit one non-negative 64-bit word."""


def count_trips_by_cell(points: Points, grid: Grid) -> Rows:
    """Return the cells with trips, in lexicographic order, as :data:`Rows`. The result is confidential.

    The caller ensures that there are fewer than 2^31 trips, and that all are on the grid.
    """
    words = compute_cell_numbers(points, grid)
    if len(words) == 1:
        cells, trips = np.unique(words[0], return_counts=True)
        rows = np.empty((len(trips), grid.dimensions + 1), dtype=np.int32)
        for dimension in reversed(range(grid.dimensions)):
            cells, rows[:, dimension] = np.divmod(cells, grid.sizes[dimension])
    else:
        order = np.lexsort(words[::-1])
        begins_cell = np.ones(len(points), dtype=np.bool_)
        begins_cell[1:] = np.any([np.diff(word[order]) != 0 for word in words], axis=0)
        trips = np.diff(np.flatnonzero(begins_cell), append=len(points))
        rows = np.empty((len(trips), grid.dimensions + 1), dtype=np.int32)
        rows[:, :-1] = points[order[begins_cell]]
    rows[:, -1] = trips
    return rows


def compute_cell_numbers(points: Points, grid: Grid) -> list[Counts]:
    """Return the number of each trip's cell in the lexicographic order of all cells. The result is confidential.

    The result is a list of int64 arrays of shape (trips,). On a small grid, the list has one array. On a large grid,
    the numbers exceed 64 bits, and are divided into several arrays (words), the most significant first.
    """
    words: list[Counts] = []
    room = 0  # largest factor by which the last word may still be multiplied
    for dimension, size in enumerate(grid.sizes):
        cell = points[:, dimension]
        if size > room:
            words.append(cell.astype(np.int64))
            room = _WORD // size
        else:
            words[-1] *= size
            words[-1] += cell
            room //= size
    return words


@dataclass(frozen=True)
class MapGrid:
    """A map of side x side cells. Each place of a trip lies in one of them.

    Attributes:
        west, east, south, north: public edges of the map, in degrees.
        side: number of cells on each side.
        places: names of the places of a trip in order, from the origin to the destination.

    Raises:
        OdError: the edges are not degrees in ascending order, the side is not an integer from 1 to 2^31, there are
            no places, or a name occurs twice.

    Examples:
        >>> MapGrid(west=-10, east=30, south=40, north=60, side=8, places=("home", "work")).grid.dimensions
        4
    """

    west: float
    east: float
    south: float
    north: float
    side: int
    places: tuple[str, ...]

    def __post_init__(self) -> None:
        are_numbers = all(isinstance(edge, int | float) and not isinstance(edge, bool) for edge in self.edges)
        if not are_numbers or not (-180 <= self.west < self.east <= 180 and -90 <= self.south < self.north <= 90):
            raise _make_map_error("in a map, west must be below east, and south below north")
        is_whole = isinstance(self.side, int) and not isinstance(self.side, bool)
        if not is_whole or not 1 <= self.side <= MAX_SIDE:
            raise _make_map_error("each side of the map must have a whole number of cells from 1 to 2^31")
        if not self.places or len(set(self.places)) < len(self.places):
            raise _make_map_error("a trip needs at least one place, and places need different names")

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """West, east, south and north edge, in degrees."""
        return self.west, self.east, self.south, self.north

    @property
    def grid(self) -> Grid:
        """Grid with two dimensions per place, in the order of the places: longitude, then latitude."""
        return Grid((self.side,) * (2 * len(self.places)))

    @classmethod
    def around(cls, longitude: pd.Series, latitude: pd.Series, side: int, places: Sequence[str]) -> MapGrid:
        """Create the smallest map that contains public places with the given coordinates in degrees.

        ``side`` and ``places`` are the attributes of the map. Raises OdError if a coordinate is missing or no number.
        """
        longitudes, latitudes = _parse_degrees(longitude), _parse_degrees(latitude)
        return cls(
            west=float(longitudes.min()),
            east=float(longitudes.max()),
            south=float(latitudes.min()),
            north=float(latitudes.max()),
            side=side,
            places=tuple(places),
        )

    def find_cells(self, longitude: pd.Series, latitude: pd.Series) -> Points:
        """Return the cell of each public place, given in degrees, along longitude and latitude; shape (places, 2).

        A place on the east or north edge of the map lies in the last cell. Raises OdError if a coordinate is missing or
        not a number, or if a place is not on the map.
        """
        degrees = np.column_stack([_parse_degrees(longitude), _parse_degrees(latitude)])
        least, most = np.array([self.west, self.south]), np.array([self.east, self.north])
        if (degrees < least).any() or (degrees > most).any():
            raise _make_map_error("a listed place is not on the map")
        return compute_cells(degrees, least, most, (self.side, self.side))

    def convert_to_degrees(self, lower: Bounds, upper: Bounds) -> list[tuple[float, ...]]:
        """Return the west, south, east and north edge of a box, in degrees, for each of the k places of a trip.

        ``lower`` and ``upper`` are the first and last cell of the box in each dimension; shape (2k,).
        """
        map_corner = np.array([self.west, self.south])
        cell_width = (np.array([self.east, self.north]) - map_corner) / self.side
        west_south = map_corner + lower.reshape(-1, 2) * cell_width
        east_north = map_corner + (upper + 1.0).reshape(-1, 2) * cell_width
        return list(map(tuple, np.hstack([west_south, east_north]).tolist()))

    def facts(self) -> dict[str, object]:
        """Return the public facts of the map, ready for JSON. :meth:`from_facts` is the inverse."""
        return asdict(self) | {"places": list(self.places)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> MapGrid:
        """Create the map from the public facts that :meth:`facts` returns."""
        return cls(**{**facts, "places": tuple(facts["places"])})


def _parse_degrees(column: pd.Series) -> NDArray[np.float64]:
    """Return a column of coordinates as numbers; shape (places,).

    Raises OdError if the column is empty, or a coordinate is missing or not a finite number.
    """
    degrees = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    if not len(degrees) or not np.isfinite(degrees).all():
        raise _make_map_error("a listed place has no coordinates")
    return degrees


def _make_map_error(message: str) -> OdError:
    """Return the OdError for a map or a list of places that is not valid."""
    return OdError("OD-STOPS-MAP", message, next_step="correct the map or the list of places")


Bounds = NDArray[np.int32]
"""First or last cell of each box in each dimension; shape (boxes, dimensions)."""


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
        is_shaped = self.lower.ndim == 2 and self.lower.shape == self.upper.shape and len(self.noisy) == len(self.lower)
        if not is_shaped or (self.lower < 0).any() or (self.lower > self.upper).any():
            raise OdError("OD-STOPS-BOXES", "a box ends before it begins", next_step="report this defect")

    def __len__(self) -> int:
        return len(self.noisy)


PRIME = (1 << 31) - 1
"""Number of elements of the field in which :func:`is_grid_partition` computes. Products of two elements fit 64 bits."""

ROUNDS = 3
"""Number of random points at which :func:`is_grid_partition` compares polynomials."""


def is_grid_partition(lower: Bounds, upper: Bounds, grid: Grid) -> bool:
    """Return whether every cell of the grid lies in exactly one box.

    This is a random test of a polynomial identity [schwartz1980polynomial, zippel1979sparse]. If every cell lies in
    exactly one box, the result is always True. Otherwise, it is True with a probability of at most 1e-25 in 8
    dimensions.

    The variables of the polynomials are the weights of the cell numbers of each dimension. The weight of a cell of the
    grid is the product of the weights of its d cell numbers. As polynomials, the weights of the cells of all boxes sum
    to that of the grid if and only if every cell lies in exactly one box. Both sides are evaluated at ``ROUNDS`` random
    points of the field of p = ``PRIME`` elements, where two different polynomials of degree d agree with probability at
    most d / p. The weight of a box is a product of d sums, one per dimension, into which adjacent cell numbers that no
    box separates enter as one number. So time and memory depend on the number of boxes alone.
    """
    if len(lower) == 0 or (upper >= np.array(grid.sizes)).any():
        return False
    generator = np.random.default_rng(secrets.randbits(128))
    return all(_has_equal_weights(lower, upper, grid, generator) for _ in range(ROUNDS))


def _has_equal_weights(lower: Bounds, upper: Bounds, grid: Grid, generator: np.random.Generator) -> bool:
    """Return whether random weights of cells modulo ``PRIME`` have the same sum over all boxes and over the grid.

    See :func:`is_grid_partition`. In each dimension, a cut is a cell number at which a box begins or another could
    begin after its end. For each cut, the sum of the weights of all cells before it is drawn. The weights between two
    cuts are differences of these sums, and so independent and uniform. All factors are below 2^31, so products fit 64
    bits.
    """
    weights_of_boxes, weight_of_grid = np.ones(len(lower), dtype=np.int64), 1
    for dimension, size in enumerate(grid.sizes):
        begins, ends = lower[:, dimension].astype(np.int64), upper[:, dimension].astype(np.int64) + 1
        cuts = np.unique(np.concatenate([[0, size], begins, ends]))
        before = np.concatenate([[0], generator.integers(0, PRIME, len(cuts) - 1)])  # weight of all cells before a cut
        weights = (before[np.searchsorted(cuts, ends)] - before[np.searchsorted(cuts, begins)]) % PRIME
        weights_of_boxes = weights_of_boxes * weights % PRIME
        weight_of_grid = weight_of_grid * int(before[-1]) % PRIME
    return int(weights_of_boxes.sum()) % PRIME == weight_of_grid


@dataclass(frozen=True, eq=False, repr=False)
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
    def make_root(cls, rows: Rows, grid: Grid) -> Nodes:
        """Create the root node, which covers the whole grid and contains ``rows``, all cells with trips."""
        upper = (np.array([grid.sizes], dtype=np.int64) - 1).astype(np.int32)
        trips = rows[:, -1].sum(dtype=np.int64)
        return cls(np.zeros_like(upper), upper, np.array([0]), np.array([len(rows)]), np.array([trips]))

    def select(self, mask: NDArray[np.bool_]) -> Nodes:
        """Return the nodes for which a mask of shape (nodes,) is True."""
        return Nodes(self.lower[mask], self.upper[mask], self.first[mask], self.last[mask], self.trips[mask])

    def divide(self, rows: Rows, dimensions: Counts, parts: Counts, begins: NDArray[np.int32]) -> Nodes:
        """Cut each node into parts along one dimension, and return the parts as nodes, those of the first node first.

        The ``rows`` are sorted in place, so that those of each part are contiguous. ``dimensions`` and ``parts`` have
        the dimension in which each node is cut, and its number of parts, at least 1. ``begins`` has the first cell of
        every part in the cut dimension, ascending within a node; shape (sum of parts,). The first part of a node begins
        at the first cell of the node.
        """
        starts = np.concatenate(([0], np.cumsum(parts)))  # the children of node n are starts[n]:starts[n + 1]
        ends = np.append(begins[1:], 0) - 1  # a part ends before the next one of its node
        ends[starts[1:] - 1] = self.upper[np.arange(len(self)), dimensions]
        lower, upper = np.repeat(self.lower, parts, axis=0), np.repeat(self.upper, parts, axis=0)
        children, cut_dimensions = np.arange(len(lower)), np.repeat(dimensions, parts)
        lower[children, cut_dimensions], upper[children, cut_dimensions] = begins, ends
        first, last, trips = np.zeros((3, len(children)), dtype=np.int64)
        _assign_rows_to_children(rows, self.first, self.last, dimensions, starts, begins, first, last, trips)
        return Nodes(lower, upper, first, last, trips)


def make_boxes(nodes: Sequence[Nodes], noisy: Sequence[Counts]) -> Boxes:
    """Return several sets of nodes with their noisy counts as one set of boxes, which is public.

    ``noisy`` has the noisy counts of each set; shape (nodes,) each.
    """
    lower, upper = np.concatenate([node.lower for node in nodes]), np.concatenate([node.upper for node in nodes])
    return Boxes(lower, upper, np.concatenate(noisy))


@kernel
def _assign_rows_to_children(rows, firsts, lasts, dimensions, starts, begins, child_first, child_last, child_trips):  # type: ignore[no-untyped-def]  # compiled
    """Sort the rows of every node by child, in place, and write ``child_first``, ``child_last`` and ``child_trips``.

    These three arrays, shape (children,) each, are :attr:`Nodes.first`, ``last`` and ``trips`` of the children, and
    filled with zeros before. For the other arguments, see :meth:`Nodes.divide`.
    """
    free = np.empty_like(child_first)  # next position for a row of each child
    for node in range(len(firsts)):
        next_row, dimension = firsts[node], dimensions[node]
        start, end = starts[node], starts[node + 1]
        for i in range(firsts[node], lasts[node]):
            child = find_part(rows[i, dimension], begins, start, end)
            child_last[child] += 1  # for now, the number of rows
            child_trips[child] += rows[i, -1]
        for child in range(start, end):
            child_first[child] = free[child] = next_row
            next_row += child_last[child]
            child_last[child] = next_row
        _sort_rows_by_child(rows, dimension, start, end, begins, child_last, free)


@kernel
def _sort_rows_by_child(rows, dimension, start, end, begins, child_last, free):  # type: ignore[no-untyped-def]  # compiled
    """Swap rows of a node until every row is in the range of positions of its child. American flag sort.

    Each swap moves a row to the next free position of its child, where it stays [mcilroy1993radix]. ``free`` has the
    first position of every child before, and the position after its last row afterwards.
    """
    for child in range(start, end):
        while free[child] < child_last[child]:
            row = free[child]
            home = find_part(rows[row, dimension], begins, start, end)  # the child to which the row belongs
            home_row = free[home]
            if home != child:
                for column in range(rows.shape[1]):
                    rows[row, column], rows[home_row, column] = rows[home_row, column], rows[row, column]
            free[home] += 1


@kernel
def find_part(cell: int, begins: Points, start: int, end: int) -> int:
    """Return the last of the part numbers ``start:end`` whose part begins at or before the cell.

    The search is a bisection without branches. Part ``start`` begins at or before the cell.
    """
    size = end - start
    while size > 1:
        half = size >> 1
        start += half * (begins[start + half] <= cell)
        size -= half
    return start


Range = tuple[int, int]
"""First and last cell in a dimension, both inclusive."""


def validate_ranges(ranges: ArrayLike, sizes: Sequence[int]) -> Ranges:
    """Return range queries as validated 64-bit integers; shape (queries, dimensions, 2).

    ``ranges`` has the first and the last cell, both inclusive, of each query in each dimension, in the same shape.
    ``sizes`` are the numbers of cells of the space in each dimension.

    Raises:
        OdError: a query is not made of integers, does not have the dimensions of the space, ends before it begins, or
            leaves the space.
    """
    try:
        array = np.asarray(ranges)
    except ValueError:  # rows of different lengths
        raise _make_shape_error(sizes) from None
    if array.shape[:1] == (0,):
        return np.empty((0, len(sizes), 2), dtype=np.int64)
    if array.shape[1:] != (len(sizes), 2):
        raise _make_shape_error(sizes)
    if not np.issubdtype(array.dtype, np.integer):
        raise make_query_error("the cells of a query must be whole numbers")
    first, last = array[:, :, 0], array[:, :, 1]
    if (first > last).any():
        raise make_query_error("a query ends before it begins")
    if (first < 0).any() or (last >= np.array(sizes)).any():
        message = f"a query extends beyond the space, whose cells are numbered from 0 to {[size - 1 for size in sizes]}"
        raise make_query_error(message)
    return np.ascontiguousarray(array, dtype=np.int64)


def _make_shape_error(sizes: Sequence[int]) -> OdError:
    """Return the OdError for a query whose shape does not fit a space with ``sizes`` cells."""
    return make_query_error(f"a query needs a first and a last cell for each of the {len(sizes)} dimensions")


def make_query_error(message: str) -> OdError:
    """Return the OdError for a query that cannot be answered."""
    return OdError("OD-STOPS-QUERY", message, next_step="correct the query")


Reals = NDArray[np.float64]
Ranges = NDArray[np.int64]
"""First and last cell, inclusive, of every query in every dimension; shape (queries, dimensions, 2)."""

_BLOCK_BOXES = 64
"""Number of boxes in a block of :class:`BoxIndex`. Larger blocks rarely lie entirely inside or outside a query, and
smaller blocks are too numerous."""

_PIECE_QUERIES = 32
"""Number of queries that a thread answers at a time."""

_KEY_BITS = 63
"""Number of bits of a position on the Z-order curve, a non-negative 64-bit integer."""


@dataclass(frozen=True, eq=False)
class BoxIndex:
    """An index of boxes that makes range queries fast.

    The boxes are sorted along a Z-order curve and divided into blocks of nearby boxes. A query examines single boxes
    only in blocks that lie partly inside it.

    Attributes:
        order: position of each sorted box among the given boxes; shape (boxes,).
        lower, upper, block_lower, block_upper: first and last cells of the sorted boxes and of the smallest box around
            each block.
    """

    order: NDArray[np.int64]
    lower: Bounds
    upper: Bounds
    block_lower: Bounds
    block_upper: Bounds

    @classmethod
    def from_boxes(cls, lower: Bounds, upper: Bounds) -> BoxIndex:
        """Create the index from the first and last cells of one or more boxes; shape (boxes, dimensions) each.

        To index points, which are boxes of one cell, pass the same array twice.
        """
        bits = np.array([int(last).bit_length() for last in upper.max(axis=0)], dtype=np.int64)
        keys = np.empty(len(lower), dtype=np.int64)
        bits_per_dimension = _KEY_BITS // min(lower.shape[1], _KEY_BITS)
        _write_curve_positions(lower, upper, bits, bits_per_dimension, keys)
        order = np.argsort(keys, kind="stable")
        sorted_lower = np.ascontiguousarray(lower[order], dtype=np.int32)
        sorted_upper = sorted_lower if upper is lower else np.ascontiguousarray(upper[order], dtype=np.int32)
        starts = np.arange(0, len(order), _BLOCK_BOXES)
        block_lower, block_upper = np.minimum.reduceat(sorted_lower, starts), np.maximum.reduceat(sorted_upper, starts)
        return cls(order, sorted_lower, sorted_upper, block_lower, block_upper)

    def answer_queries(self, counts: Counts | Reals, ranges: Ranges) -> Reals:
        """Return the estimated number of trips in each query; shape (queries,).

        An answer is a sum over all boxes: the count of a box times the share of its cells that lie in the query. The
        order of summation does not depend on the number of threads. ``counts`` are those of the boxes in the order in
        which they were passed to :meth:`from_boxes`.

        >>> index = BoxIndex.from_boxes(np.array([[0], [4]]), np.array([[3], [5]]))
        >>> index.answer_queries(np.array([8, 3]), np.array([[(2, 4)], [(0, 5)]]))
        array([ 5.5, 11. ])
        """
        ordered = counts[self.order].astype(np.float64)
        sums = np.add.reduceat(ordered, np.arange(0, len(ordered), _BLOCK_BOXES))
        boxes = self.lower, self.upper, ordered, self.block_lower, self.block_upper, sums

        def answer_piece(first: int) -> Reals:
            """Return the answers to the queries of a piece, which begins at query ``first``."""
            ranges_of_piece = ranges[first : first + _PIECE_QUERIES]
            totals = np.empty(len(ranges_of_piece))
            _answer_queries(*boxes, ranges_of_piece, totals)
            return totals

        return np.concatenate([np.empty(0), *map_in_order(answer_piece, range(0, len(ranges), _PIECE_QUERIES))])


@kernel
def _write_curve_positions(lower: Bounds, upper: Bounds, bits: Counts, bits_per_dimension: int, keys: Counts) -> None:
    """Write the position of each box's centre on the Z-order curve into ``keys``.

    A position interleaves the leading bits of the centre in every dimension. ``bits`` has the number of bits of the
    largest cell number in each dimension. Dimensions after the 63rd are ignored, because a key has 63 bits. The order
    affects only the speed of queries.
    """
    for box in range(len(keys)):
        key = 0
        for bit in range(1, bits_per_dimension + 1):
            for dimension in range(min(len(bits), _KEY_BITS)):
                shift = bits[dimension] - bit
                middle = (np.int64(lower[box, dimension]) + upper[box, dimension]) >> 1
                key = key << 1 | ((middle >> shift) & 1 if shift >= 0 else 0)
        keys[box] = key


@kernel
def _answer_queries(lower, upper, counts, block_lower, block_upper, block_sums, ranges, answers):  # type: ignore[no-untyped-def]  # compiled
    """Write the answer to each query, a sum over boxes as in :meth:`BoxIndex.answer_queries`, into ``answers``.

    The boxes of a block are not examined if the block lies entirely inside or outside the query.
    """
    for query in range(len(ranges)):
        total = 0.0
        for block in range(len(block_sums)):
            block_share = _compute_overlap_share(block_lower, block_upper, block, ranges, query)
            if block_share == 1:
                total += block_sums[block]
            elif block_share >= 0:
                for box in range(block * _BLOCK_BOXES, min((block + 1) * _BLOCK_BOXES, len(counts))):
                    total += max(_compute_overlap_share(lower, upper, box, ranges, query), 0.0) * counts[box]
        answers[query] = total


@kernel
def _compute_overlap_share(lower: Bounds, upper: Bounds, box: int, ranges: Ranges, query: int) -> float:
    """Return the share of the box's cells that lie in the query: 1 only if all do, and -1 if none does."""
    share = 1.0
    for dimension in range(lower.shape[1]):
        low, high = np.int64(lower[box, dimension]), np.int64(upper[box, dimension])
        inside = min(high, ranges[query, dimension, 1]) - max(low, ranges[query, dimension, 0]) + 1
        if inside <= 0:
            return -1.0
        share *= inside / (high - low + 1)
    return share
