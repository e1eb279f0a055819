"""Represent the flow tree over two geographies, which refines the destination and the origin in turn, or both at once.

In the tree order ``destination``, its levels are (0,0), (0,1), (1,1), (1,2), ..., (g,g) as (origin level, destination
level), where g is the number of levels of each geography. In the tree order ``origin``, the origin is refined first
[boninsegna2025inftda, section 3]. In the tree order ``both``, each step refines both sides: (0,0), (1,1), ..., (g,g).
It leaves every other level of the tree ``origin`` out, and its leaf pairs have the same order. A table of counts by one
hierarchy has destinations without levels, so its tree is the hierarchy: (0,0), (1,0), ..., (g,0) [boninsegna2025inftda,
section 2.2]. The nodes of a level are sorted so that the children of a node are consecutive nodes of the next level,
and the leaf pairs below a node have consecutive *ranks* (positions among all): this is *tree order*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.geography import Geography, Numbers
from od_core.kernels import kernel
from od_core.registry import refuse_unknown

if TYPE_CHECKING:
    from od_core.geography.found_levels import FoundLevels
    from od_core.geography.possible_pairs import PossiblePairs

Number = TypeVar("Number", np.int64, np.float64)


@kernel
def write_scalar_products(
    left: Numbers, right: Numbers, rows_left: Numbers, rows_right: Numbers, out: NDArray[np.int64]
) -> None:
    """Write, for each i, the scalar product of row ``rows_left[i]`` of ``left`` and ``rows_right[i]`` of ``right``.

    ``left`` and ``right`` have the same number of columns; ``rows_left``, ``rows_right`` and ``out`` the same length.
    """
    for i in range(len(out)):
        total = np.int64(0)
        for column in range(left.shape[1]):
            total += np.int64(left[rows_left[i], column]) * np.int64(right[rows_right[i], column])
        out[i] = total


@kernel
def write_children_with_trips(trips, offsets, first_child, whole, divided_out, whole_out, trips_out):  # type: ignore[no-untyped-def]
    """Write the two areas and the trips of each child that has trips to three arrays.

    Args:
        trips: trips of each child of an :class:`Expansion`; shape (children,).
        offsets, first_child: its ``row_offsets`` and ``first_child``.
        whole: area of each row on the side that is not split; shape (rows,).
        divided_out, whole_out, trips_out: outputs, each of the length of the number of children with trips: the area on
            the side that is split, the area on the other side, and the trips.
    """
    number = 0
    for row in range(len(offsets) - 1):
        for child in range(offsets[row], offsets[row + 1]):
            if trips[child] != 0:
                divided_out[number] = first_child[row] + (child - offsets[row])
                whole_out[number] = whole[row]
                trips_out[number] = trips[child]
                number += 1


@kernel
def find_runs_of_children(
    parent_split: Numbers,
    parent_other: Numbers,
    parent_area_of: Numbers,
    child_split: Numbers,
    child_other: Numbers,
    runs: NDArray[np.int64],
) -> None:
    """Write the position of each parent's first child, then the number of children, to ``runs``.

    Parents and children are in tree order. If a child is below none of the parents, all later values are the position
    of this child.

    Args:
        parent_split, parent_other: area of each parent on the side that the step splits, and on the other side.
        parent_area_of: parent of each area of the split side, at the level of the children.
        child_split, child_other: area of each child on the two sides.
        runs: output, shape (parents + 1,).
    """
    child = 0
    for parent in range(len(parent_split)):
        split, other = parent_split[parent], parent_other[parent]
        runs[parent] = child
        while child < len(child_split) and parent_area_of[child_split[child]] == split and child_other[child] == other:
            child += 1
    runs[len(parent_split)] = child


@kernel
def find_child_positions(
    row_split: Numbers,
    row_other: Numbers,
    first_child: Numbers,
    row_offsets: NDArray[np.int64],
    parent_area_of: Numbers,
    child_split: Numbers,
    child_other: Numbers,
    positions: NDArray[np.int64],
) -> None:
    """Write the position of each child among all children of an :class:`Expansion` to ``positions``.

    Rows and children must be in tree order, and each child must belong to a row.

    Args:
        row_split, row_other: area of each row on the side that is split, before the split, and on the other side.
        first_child, row_offsets: attributes of the expansion.
        parent_area_of: parent of each area of the split side, at the level of the children.
        child_split, child_other: area of each child on the two sides.
        positions: output, shape (children,).
    """
    row = 0
    for child in range(len(child_split)):
        divided, other = child_split[child], child_other[child]
        while (
            row_split[row] != parent_area_of[divided]
            or row_other[row] != other
            or divided - first_child[row] >= row_offsets[row + 1] - row_offsets[row]
        ):
            row += 1
        positions[child] = row_offsets[row] + divided - first_child[row]


@kernel
def sum_runs(values: NDArray[Number], runs: NDArray[np.int64]) -> NDArray[Number]:
    """Return the sum of ``values[runs[p]:runs[p + 1]]`` for each p, added in order; shape (len(runs) - 1,)."""
    sums = np.zeros(len(runs) - 1, dtype=values.dtype)
    for run in range(len(sums)):
        for i in range(runs[run], runs[run + 1]):
            sums[run] += values[i]
    return sums


CHILDREN_AT_ONCE = 1 << 18
"""Number of children processed at a time: few enough for the cache, and so many that a call costs little per child."""


def sort_distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return distinct numbers of at least 0 in ascending order, in a tenth of the time of ``np.unique``."""
    ascending = np.sort(numbers)
    distinct: NDArray[np.int64] = ascending[np.diff(ascending, prepend=-1) != 0]
    return distinct


def iterate_family_blocks(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive parents that together have about ``CHILDREN_AT_ONCE`` children.

    Parent p has the children ``offsets[p]:offsets[p + 1]``. A range is a pair: its first parent, and its last plus 1.
    """
    ends = np.searchsorted(offsets, np.arange(CHILDREN_AT_ONCE, offsets[-1], CHILDREN_AT_ONCE))
    return pairwise(np.unique([0, *ends.tolist(), len(offsets) - 1]).tolist())


@kernel
def find_rank_position(rank: NDArray[np.int64], start: int, wanted: int) -> int:
    """Return the first position, from ``start`` on, with a rank of at least ``wanted``; the length if there is none.

    ``rank`` must ascend. The search is exponential, so it is fast for a position near ``start``.
    """
    low, high, step = start, start, 1
    while high < len(rank) and rank[high] < wanted:
        low = high + 1
        high += step
        step *= 2
    high = min(high, len(rank))
    while low < high:
        middle = (low + high) // 2
        if rank[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


TreeOrder = Literal["destination", "origin", "both"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """A set of nodes of one level in tree order: pairs of an origin area and a destination area.

    Attributes:
        level: level of the flow tree.
        origin, destination: area numbers in the two geographies; shape (nodes,).
    """

    level: int
    origin: Numbers
    destination: Numbers

    def __len__(self) -> int:
        return len(self.origin)


@dataclass(frozen=True, eq=False)
class Nodes(Pairs):
    """A set of nodes of one level with their estimated trips, which are public.

    Attributes:
        trips: trips of each node; shape (nodes,). They are at least 1 if nodes without trips are dropped, with all
            nodes below them, and at least 0 if not. If noisy leaves are released unchanged, they may be negative.
    """

    trips: NDArray[np.int64]

    def __post_init__(self) -> None:
        if not len(self.origin) == len(self.destination) == len(self.trips):
            message = "origins, destinations and trips differ in length"
            raise OdError("OD-NODES-SHAPE", message, next_step="report this defect")

    @classmethod
    def concatenate(cls, level: int, pieces: Iterable[Nodes]) -> Nodes:
        """Return one set with the nodes of ``pieces``, which are consecutive sets of nodes of ``level``."""
        parts = [(piece.origin, piece.destination, piece.trips) for piece in pieces]
        if not parts:
            none = np.empty(0, dtype=np.int32)
            return cls(level, none, none, np.empty(0, dtype=np.int64))
        return cls(level, *map(np.concatenate, zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Expansion:
    """Consecutive nodes, called parents, with all their public children, which are computed on request.

    Children that differ on one side alone, and are consecutive areas there, are a row. If a step refines one side, each
    parent has one row. If it refines both, each child of the parent's origin area has a row. There are more rows where
    some children cannot have trips, and so are left out.

    Attributes:
        level: level of the children.
        splits_origin: True if the children of a row differ in the origin area, False for the destination area.
        origin, destination: area numbers of the rows, before the split; shape (rows,).
        first_child: area number of each row's first child on the side that is split; shape (rows,).
        row_offsets: row ``r`` has the children ``row_offsets[r]:row_offsets[r + 1]``; shape (rows + 1,).
        offsets: parent ``p`` has the children ``offsets[p]:offsets[p + 1]`` of this object; shape (parents + 1,).
        parents: positions of the parents among the nodes that were given to :meth:`FlowTree.expand`.
        first: position of the first child in the measured vector of the level.
    """

    level: int
    splits_origin: bool
    origin: Numbers
    destination: Numbers
    first_child: Numbers
    row_offsets: NDArray[np.int64]
    offsets: NDArray[np.int64]
    parents: slice
    first: int

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def divided(self) -> Numbers:
        """Area number of each child on the side that is split; shape (children,)."""
        fan_out = np.diff(self.row_offsets)
        return (np.arange(len(self)) + np.repeat(self.first_child - self.row_offsets[:-1], fan_out)).astype(np.int32)

    @property
    def children(self) -> Pairs:
        """The children of all parents, in tree order."""
        fan_out, divided = np.diff(self.row_offsets), self.divided
        if self.splits_origin:
            return Pairs(self.level, divided, np.repeat(self.destination, fan_out))
        return Pairs(self.level, np.repeat(self.origin, fan_out), divided)

    def with_trips(self, trips: NDArray[np.int64], *, keep_all: bool = False) -> Nodes:
        """Return the children as nodes with ``trips``, shape (children,); only those with trips unless ``keep_all``."""
        if keep_all:
            children = self.children
            return Nodes(self.level, children.origin, children.destination, trips)
        kept = int(np.count_nonzero(trips))
        origin, destination, kept_trips = np.empty(kept, np.int32), np.empty(kept, np.int32), np.empty(kept, np.int64)
        divided, other = (origin, destination) if self.splits_origin else (destination, origin)
        others_of_rows = self.destination if self.splits_origin else self.origin
        write_children_with_trips(trips, self.row_offsets, self.first_child, others_of_rows, divided, other, kept_trips)
        return Nodes(self.level, origin, destination, kept_trips)


@dataclass(frozen=True, eq=False)
class FlowTree:
    """A public flow tree over an origin geography and a destination geography.

    Attributes:
        origin, destination: the two geographies, as :func:`equalise_depths` returns them: of the one with fewer levels,
            the first level is repeated. Of two with the same areas, those of the origins are used for both, because
            names and places are not in the digest.
        order: the side that is refined first; or both at once.
        possible: the leaf pairs that can have trips, which is public; None if all can. The public nodes are those above
            one of them; the others have no trips, and are not measured.
        found: the last levels of both geographies, if their areas are found in the records; None if all are public.

    Examples:
        >>> tree = FlowTree(geography, geography)
        >>> tree.depth, len(tree.origin.zones)
        (4, 3)
    """

    origin: Geography
    destination: Geography
    order: TreeOrder = "destination"
    possible: PossiblePairs | None = None
    found: FoundLevels | None = None
    _terms: dict[int, tuple[Numbers, Numbers]] = field(init=False, repr=False, default_factory=dict)
    _possible_nodes: dict[int, tuple[Pairs, NDArray[np.int64]]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        step = "choose 'destination', 'origin' or 'both'"
        refuse_unknown("tree", self.order, get_args(TreeOrder), code="OD-TREE-UNKNOWN", next_step=step)
        for side, geography in zip(
            ("origin", "destination"), equalise_depths(self.origin, self.destination), strict=True
        ):
            object.__setattr__(self, side, geography)
        if self.same_geography:
            object.__setattr__(self, "destination", self.origin)
        if not self.origin.levels:
            advice = "give the hierarchy as the geography of the origins"
            raise OdError("OD-GEOGRAPHY-LEVELS", "the geography of the origins has no levels", next_step=advice)
        if self.order == "both" and self.has_one_side:
            message = "tree 'both' needs two sides, and there is one hierarchy"
            raise OdError("OD-TREE-UNKNOWN", message, next_step="leave the tree out")
        if len(self.origin.zones) * len(self.destination.zones) >= 1 << 62:
            message = "there are too many leaf pairs: their numbers do not fit in 62 bits"
            raise OdError("OD-TREE-SIZE", message, next_step="use coarser zones")

    @property
    def depth(self) -> int:
        """Number of levels below the root: the steps that refine a side, or both at once."""
        return self.origin.depth if self.refines_both else self.origin.depth + self.destination.depth

    @property
    def refines_both(self) -> bool:
        """Whether each step refines both sides."""
        return self.order == "both"

    @cached_property
    def in_turn(self) -> FlowTree:
        """The tree that refines one side at a time, in which the leaf pairs have the same order."""
        return FlowTree(self.origin, self.destination, "origin") if self.refines_both else self

    @cached_property
    def public(self) -> FlowTree:
        """The tree without the areas that were found in records: of found levels, it has the remainders alone."""
        return self if self.found is None else self.with_found((), ())

    def with_found(self, origins: Iterable[str], destinations: Iterable[str]) -> FlowTree:
        """Return the tree with the found areas of the codes ``origins`` and ``destinations``, instead of its own.

        If both sides have the same public areas, each side gets the found areas of both. A tree without found levels is
        returned unchanged.
        """
        if self.found is None:
            return self
        if self.has_one_side:
            return replace(self, origin=self.found.extend(self.found.select_public(self.origin), origins))
        public_origin, public_destination = map(self.found.select_public, self.listed_sides)
        origin_codes, destination_codes = {*origins}, {*destinations}
        if public_origin.digest == public_destination.digest:
            origin_codes = destination_codes = origin_codes | destination_codes
        return replace(
            self,
            origin=self.found.extend(public_origin, origin_codes),
            destination=self.found.extend(public_destination, destination_codes),
        )

    def finds_areas(self, level: int) -> bool:
        """Return whether the step to a level refines areas into found ones."""
        return self.found is not None and max(self.level_pair(level)) > self.origin.depth - len(self.found.levels)

    @cached_property
    def has_one_side(self) -> bool:
        """Whether the destinations have no levels, so that the tree is the hierarchy of a table of counts."""
        return not self.destination.levels

    @property
    def listed_sides(self) -> tuple[Geography, ...]:
        """The geographies with areas below the whole space: of origins and, unless there is one side, destinations."""
        return (self.origin,) if self.has_one_side else (self.origin, self.destination)

    @property
    def same_geography(self) -> bool:
        """Whether origins and destinations have the same areas, so that trips have an opposite direction."""
        return self.origin.digest == self.destination.digest

    def find_level_in_turn(self, level: int) -> int:
        """Return the level of :attr:`in_turn` with the same pair of levels."""
        return 2 * level if self.refines_both else level

    def level_pair(self, level: int) -> tuple[int, int]:
        """Return the levels of the two geographies, (origin level, destination level), at a level of the tree."""
        if self.has_one_side:
            return level, 0
        return compute_level_pair(level, self.order)

    @property
    def repeated_levels(self) -> dict[str, list[str]]:
        """Names of the levels of each side, ``origin`` and ``destination``, that repeat the level above."""
        return {"origin": list_repeated_levels(self.origin), "destination": list_repeated_levels(self.destination)}

    @property
    def level_names(self) -> list[tuple[str, str]]:
        """Names of the origin level and the destination level of every level, root first."""
        origin_names, destination_names = self.origin.level_names, self.destination.level_names
        level_pairs = map(self.level_pair, range(self.depth + 1))
        return [(origin_names[origin], destination_names[destination]) for origin, destination in level_pairs]

    def refines_origin(self, level: int) -> bool:
        """Return True if the step to a level refines the origin, False if it refines the destination alone."""
        return self.level_pair(level)[0] != self.level_pair(level - 1)[0]

    def list_divided_sides(self, level: int) -> tuple[int, ...]:
        """Return the sides that the step to a level refines: 0 for origins, 1 for destinations."""
        above, below = self.level_pair(level - 1), self.level_pair(level)
        return tuple(side for side in (0, 1) if above[side] != below[side])

    def cells(self, level: int) -> int:
        """Return the number of public nodes of a level."""
        if self.possible is not None:
            return len(self._list_possible_nodes(level)[0])
        origin_level, destination_level = self.level_pair(level)
        return self.origin.size(origin_level) * self.destination.size(destination_level)

    def count_nodes_by_size(self, level: int) -> list[tuple[int, int]]:
        """Return the sizes of the nodes of a level, largest first, each with the number of nodes that have it.

        The size of a node is the number of leaf pairs below it: the product of the numbers of zones in its two areas.
        """
        (origin, origin_level), (destination, destination_level) = self._list_sides(level)
        # The different numbers of zones of the areas of a side, each with the number of areas that have it.
        origin_zones, origin_areas = np.unique(origin.count_zones_below(origin_level), return_counts=True)
        destination_zones, destination_areas = np.unique(
            destination.count_zones_below(destination_level), return_counts=True
        )
        products = np.multiply.outer(origin_zones.astype(np.int64), destination_zones.astype(np.int64)).ravel()
        nodes_of_product = np.multiply.outer(origin_areas, destination_areas).ravel()
        sizes, position_of_product = np.unique(products, return_inverse=True)
        nodes_of_size = np.zeros(len(sizes), dtype=np.int64)
        np.add.at(nodes_of_size, position_of_product, nodes_of_product)
        return list(zip(sizes[::-1].tolist(), nodes_of_size[::-1].tolist(), strict=True))

    def largest_fan_out(self, level: int) -> int:
        """Return the largest number of children of a node of a level; 0 at the leaves."""
        if level == self.depth:
            return 0
        sides = self._list_sides(level)
        divided_sides = [sides[side] for side in self.list_divided_sides(level + 1)]
        return math.prod(
            int(np.diff(geography.first_child[side_level]).max()) for geography, side_level in divided_sides
        )

    def compute_rank_terms(self, level: int) -> tuple[Numbers, Numbers]:
        """Return two tables of factors, of the level's origin areas and of its destination areas; shape (areas, steps).

        The rank of a node's first leaf pair is the scalar product of the rows of its origin and its destination. Each
        column is for one step of the path from the root. The product of the two factors of a step is the number of leaf
        pairs below the preceding siblings. If the step refines the destination of (o, d) to d', the factors are
        zones(o), the number of zones in o, and first(d') - first(d), where first is the first zone of an area. If the
        step refines the origin, the two sides are exchanged.
        """
        if self.refines_both:
            return self.in_turn.compute_rank_terms(2 * level)
        if level not in self._terms:
            tables = []
            for side, (geography, side_level) in enumerate(self._list_sides(level)):
                table = np.empty((geography.size(side_level), level), dtype=np.int32)
                for step in range(1, level + 1):
                    step_level = self.level_pair(step)[side]
                    is_split = side in self.list_divided_sides(step)
                    count_zones = geography.count_earlier_zones if is_split else geography.count_zones_below
                    table[:, step - 1] = count_zones(step_level)[geography.ancestors_at(side_level, step_level)]
                tables.append(table)
            origin_terms, destination_terms = tables
            self._terms[level] = origin_terms, destination_terms
        return self._terms[level]

    def compute_first_ranks(self, nodes: Pairs) -> NDArray[np.int64]:
        """Return the rank (position among all leaf pairs) of the first leaf pair below each node; shape (nodes,)."""
        rank = np.empty(len(nodes), dtype=np.int64)
        write_scalar_products(*self.compute_rank_terms(nodes.level), nodes.origin, nodes.destination, rank)
        return rank

    def find_rank_range(self, nodes: Pairs) -> tuple[int, int]:
        """Return the first rank below the first node, and one more than the last rank below the last node.

        There must be at least one node, and they must be in tree order.
        """
        ends = Pairs(nodes.level, nodes.origin[[0, -1]], nodes.destination[[0, -1]])
        first, last = self.compute_first_ranks(ends).tolist()
        return first, last + int(self.count_pairs_below(ends)[-1])

    def count_pairs_below(self, nodes: Pairs) -> NDArray[np.int64]:
        """Return the number of leaf pairs below each node; shape (nodes,)."""
        (origin, origin_level), (destination, destination_level) = self._list_sides(nodes.level)
        origin_zones = origin.count_zones_below(origin_level)[nodes.origin].astype(np.int64)
        return origin_zones * destination.count_zones_below(destination_level)[nodes.destination]

    def find_leaf_pairs(self, rank: NDArray[np.int64]) -> Pairs:
        """Return the leaf pairs of the given ranks (positions among all leaf pairs); shape (ranks,).

        The method inverts :meth:`compute_first_ranks`. Each step finds the child whose leaf pairs include the rank, and
        goes on with the rank among these leaf pairs.
        """
        if self.refines_both:
            return replace(self.in_turn.find_leaf_pairs(rank), level=self.depth)
        origin, destination = np.zeros((2, len(rank)), dtype=np.int32)
        rank_within = rank
        for level in range(1, self.depth + 1):
            side, geography, area_level = self._find_split_side(level)
            other, other_level = self._list_sides(level)[1 - side]
            divided, undivided = (origin, destination)[side], (origin, destination)[1 - side]
            width = other.count_zones_below(other_level)[undivided].astype(np.int64)  # leaf pairs per divided zone
            first_zone = geography.first_zone[area_level - 1][divided]
            child = geography.ancestors(area_level)[first_zone + rank_within // width]
            rank_within = rank_within - width * (geography.first_zone[area_level][child] - first_zone)
            origin, destination = (undivided, child) if side else (child, undivided)
        return Pairs(self.depth, origin, destination)

    def count_area_pairs(self, origin_level: int, destination_level: int) -> int:
        """Return the number of pairs of areas of two levels that can have trips."""
        if self.possible is None:
            return self.origin.size(origin_level) * self.destination.size(destination_level)
        return len(self.list_area_pairs(origin_level, destination_level)[0])

    def list_area_pairs(self, origin_level: int, destination_level: int) -> tuple[Numbers, Numbers]:
        """Return the pairs of areas of two levels that can have trips, sorted by origin and then destination.

        The results are the numbers of the origin areas and those of the destination areas; shape (pairs,) each.
        """
        width = self.destination.size(destination_level)
        if self.possible is None:
            pairs = np.arange(self.origin.size(origin_level) * width)
        else:
            origin = self.origin.ancestors(origin_level)[self.possible.origin].astype(np.int64)
            destination = self.destination.ancestors(destination_level)[self.possible.destination]
            pairs = sort_distinct(origin * width + destination)
        return (pairs // width).astype(np.int32), (pairs % width).astype(np.int32)

    def list_public_nodes(self, level: int) -> Pairs:
        """Return all public nodes of a level, in tree order."""
        nodes = Pairs(0, np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32))
        while nodes.level < level:
            nodes, _ = self.list_children(nodes)
        return nodes

    def list_children(self, parents: Pairs) -> tuple[Pairs, NDArray[np.int64]]:
        """Return all public children of nodes, in tree order, and ``offsets``, where those of each node begin and end.

        Parent ``p`` has the children ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).
        """
        pieces = list(self.expand(parents))
        children, none = [piece.children for piece in pieces], np.empty(0, dtype=np.int32)
        origin = np.concatenate([none, *(piece.origin for piece in children)])
        destination = np.concatenate([none, *(piece.destination for piece in children)])
        fan_out = [np.diff(piece.offsets) for piece in pieces]
        return Pairs(parents.level + 1, origin, destination), np.cumsum(np.concatenate([[0], *fan_out]))

    def expand(self, parents: Pairs) -> Iterator[Expansion]:
        """Yield the given nodes with all their public children, in consecutive pieces.

        A piece has about ``CHILDREN_AT_ONCE`` children. All children of a node are in the same piece.
        """
        if self.possible is not None:
            yield from self._expand_to_possible(parents)
            return
        level = parents.level + 1
        rows, rows_of_parents, side, first_child = self._list_rows(parents)
        split = (rows.origin, rows.destination)[side]
        row_offsets = np.concatenate([[0], np.cumsum(np.diff(first_child)[split], dtype=np.int64)])
        offsets = row_offsets if rows_of_parents is None else row_offsets[rows_of_parents]
        for start, stop in iterate_family_blocks(offsets):
            first, last = (start, stop) if rows_of_parents is None else rows_of_parents[[start, stop]].tolist()
            yield Expansion(
                level=level,
                splits_origin=side == 0,
                origin=rows.origin[first:last],
                destination=rows.destination[first:last],
                first_child=first_child[split[first:last]],
                row_offsets=row_offsets[first : last + 1] - row_offsets[first],
                offsets=offsets[start : stop + 1] - offsets[start],
                parents=slice(start, stop),
                first=int(offsets[start]),
            )

    def _expand_to_possible(self, parents: Pairs) -> Iterator[Expansion]:
        """Yield the pieces of :meth:`expand` for a tree in which some pairs cannot have trips.

        The children of a node are those public nodes of the next level whose first rank lies in the node's range of
        ranks. A new row begins where the next child is not the next area on the side that is split, or where the area
        on the other side, or the parent, changes.
        """
        level = parents.level + 1
        nodes, first_ranks = self._list_possible_nodes(level)
        side, geography, area_level = (
            (1, self.destination, level) if self.refines_both else self._find_split_side(level)
        )
        ranks = self.compute_first_ranks(parents)
        begin = np.searchsorted(first_ranks, ranks)
        end = np.searchsorted(first_ranks, ranks + self.count_pairs_below(parents))
        offsets = np.concatenate([[0], np.cumsum(end - begin)])
        for start, stop in iterate_family_blocks(offsets):
            own_offsets = offsets[start : stop + 1] - offsets[start]  # in this piece
            shift = np.repeat(begin[start:stop] - own_offsets[:-1], np.diff(own_offsets))
            position = np.arange(own_offsets[-1]) + shift  # of each child among the nodes of the level
            origin, destination = nodes.origin[position], nodes.destination[position]
            divided, whole = (destination, origin) if side else (origin, destination)
            above = geography.parents[area_level][divided]
            is_first = (np.diff(divided, prepend=-2) != 1) | (np.diff(whole, prepend=-1) != 0)
            is_first |= np.diff(above, prepend=-1) != 0
            is_first[own_offsets[:-1][np.diff(own_offsets) > 0]] = True
            rows = np.flatnonzero(is_first)
            yield Expansion(
                level=level,
                splits_origin=side == 0,
                origin=(whole if side else above)[rows],
                destination=(above if side else whole)[rows],
                first_child=divided[rows],
                row_offsets=np.append(rows, len(position)),
                offsets=own_offsets,
                parents=slice(start, stop),
                first=int(offsets[start]),
            )

    @property
    def possible_ranks(self) -> NDArray[np.int64]:
        """The ranks of the leaf pairs that can have trips, if some cannot, in ascending order; shape (pairs,)."""
        return self._list_possible_nodes(self.depth)[1]

    def are_possible(self, ranks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether leaf pairs can have trips, given their ranks; shape (ranks,).

        Some pairs of the tree must be impossible: :attr:`possible` is not None.
        """
        position = np.minimum(np.searchsorted(self.possible_ranks, ranks), len(self.possible_ranks) - 1)
        is_possible: NDArray[np.bool_] = self.possible_ranks[position] == ranks
        return is_possible

    def _list_possible_nodes(self, level: int) -> tuple[Pairs, NDArray[np.int64]]:
        """Return the public nodes of a level, in tree order, and their first ranks; :attr:`possible` is not None."""
        if level not in self._possible_nodes:
            if self.possible is not None and level == self.depth:
                ranks = np.sort(self.compute_first_ranks(Pairs(level, self.possible.origin, self.possible.destination)))
                nodes = self.find_leaf_pairs(ranks)
            else:
                nodes = self.find_ancestors(self._list_possible_nodes(level + 1)[0], level)
                ranks = self.compute_first_ranks(nodes)
            self._possible_nodes[level] = nodes, ranks
        return self._possible_nodes[level]

    def _list_rows(self, parents: Pairs) -> tuple[Pairs, NDArray[np.int64] | None, int, Numbers]:
        """Return the rows of children of all parents (see :class:`Expansion`), and what splits them.

        Returns:
            One node for each row, whose split gives the row's children; where the rows of each parent begin and end,
            shape (parents + 1,), or None if each parent has one row; the side that is split, 0 for origins; and the
            first child of each area on this side.
        """
        if not self.refines_both:
            side, geography, area_level = self._find_split_side(parents.level + 1)
            return parents, None, side, geography.first_child[area_level - 1]
        rows, offsets = self.in_turn.list_children(replace(parents, level=2 * parents.level))  # with refined origins
        return rows, offsets, 1, self.destination.first_child[parents.level]

    def find_child_runs(self, parents: Pairs, children: Pairs) -> NDArray[np.int64]:
        """Return where each parent's children begin and end in ``children``, which has nodes of the next level.

        Both sets are in tree order. Parent ``p`` has the children ``runs[p]:runs[p + 1]``, where ``runs`` is the result
        of shape (parents + 1,). If a child is below none of the parents, the last value is smaller than the number of
        children.
        """
        if self.refines_both:  # two steps of the tree that refines one side at a time
            level_in_turn = 2 * children.level
            children_in_turn = Pairs(level_in_turn, children.origin, children.destination)
            rows = self.in_turn.find_ancestors(children_in_turn, level_in_turn - 1)
            first_rows = self.in_turn.find_child_runs(replace(parents, level=level_in_turn - 2), rows)
            return self.in_turn.find_child_runs(rows, children_in_turn)[first_rows]
        side, geography, level = self._find_split_side(children.level)
        parent_split, parent_other = _list_split_side_first(parents, side)
        child_split, child_other = _list_split_side_first(children, side)
        runs = np.empty(len(parents) + 1, dtype=np.int64)
        find_runs_of_children(parent_split, parent_other, geography.parents[level], child_split, child_other, runs)
        return runs

    def find_positions(self, expansion: Expansion, children: Pairs) -> NDArray[np.int64]:
        """Return the positions of ``children``, some of the children of an expansion, among all of its children.

        The children are in tree order; shape (children,).
        """
        side = 0 if expansion.splits_origin else 1
        row_split, row_other = _list_split_side_first(expansion, side)
        child_split, child_other = _list_split_side_first(children, side)
        geography, level = self._list_sides(children.level)[side]
        positions = np.empty(len(children), dtype=np.int64)
        rows = row_split, row_other, expansion.first_child, expansion.row_offsets
        find_child_positions(*rows, geography.parents[level], child_split, child_other, positions)
        return positions

    def has_consistent_sums(self, parents: Nodes, children: Nodes) -> bool:
        """Return whether each parent has children whose trips sum to its own, and each child is below a parent.

        The level of ``children`` may be several levels below that of ``parents`` if each node of the levels between has
        exactly one child, with the same area numbers.
        """
        next_level = Pairs(parents.level + 1, children.origin, children.destination)
        runs = self.find_child_runs(parents, next_level)
        is_whole = runs[-1] == len(children) and bool(np.all(np.diff(runs) > 0))
        return is_whole and np.array_equal(sum_runs(children.trips, runs), parents.trips)

    def sum_trips(
        self, leaves: Nodes, origin_level: int, destination_level: int
    ) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        """Return the result of :meth:`sum_values` for the trips of leaf nodes, without pairs that have no trips."""
        origin, destination, trips = self.sum_values(leaves, leaves.trips, origin_level, destination_level)
        has_trips = trips != 0
        return origin[has_trips], destination[has_trips], trips[has_trips]

    def sum_values(
        self, leaves: Pairs, values: NDArray[np.int64], origin_level: int, destination_level: int
    ) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        """Return the sums of values of leaf nodes by pair of areas of two levels.

        Args:
            leaves: leaf nodes.
            values: values of each leaf; shape (leaves, ...).
            origin_level, destination_level: level of the origin areas, and that of the destination areas.

        Returns:
            The origin areas and the destination areas of the pairs that contain a leaf, sorted by origin and then
            destination, shape (pairs,) each; and the sums, shape (pairs, ...).
        """
        width = self.destination.size(destination_level)
        pair_of_leaf = self.origin.ancestors(origin_level)[leaves.origin].astype(np.int64) * width
        pair_of_leaf += self.destination.ancestors(destination_level)[leaves.destination]
        order = np.argsort(pair_of_leaf, kind="stable")
        sorted_pairs = pair_of_leaf[order]
        starts = np.flatnonzero(np.diff(sorted_pairs, prepend=-1))
        sums = np.add.reduceat(values[order], starts) if len(sorted_pairs) else values
        pairs = sorted_pairs[starts]
        return (pairs // width).astype(np.int32), (pairs % width).astype(np.int32), sums

    def find_ancestors(self, cells: Pairs, level: int) -> Pairs:
        """Return the nodes of the coarser ``level`` that contain the cells, each once, in tree order.

        The cells, nodes of a finer level, must be in tree order.
        """
        (origins, origin_level), (destinations, destination_level) = self._list_sides(cells.level)
        origin_level_above, destination_level_above = self.level_pair(level)
        origin = origins.ancestors_at(origin_level, origin_level_above)[cells.origin]
        destination = destinations.ancestors_at(destination_level, destination_level_above)[cells.destination]
        is_first = (np.diff(origin, prepend=-1) != 0) | (np.diff(destination, prepend=-1) != 0)
        return Pairs(level, origin[is_first], destination[is_first])

    def _find_split_side(self, level: int) -> tuple[int, Geography, int]:
        """Return the side that the step to a level refines (0 for origins), its geography, and the geography's level.

        If the step refines both sides, the side is 0.
        """
        side = 0 if self.refines_origin(level) else 1
        return side, *self._list_sides(level)[side]

    def _list_sides(self, level: int) -> tuple[tuple[Geography, int], tuple[Geography, int]]:
        """Return (geography, geography level) of the origin and of the destination, for a level of the flow tree."""
        origin_level, destination_level = self.level_pair(level)
        return (self.origin, origin_level), (self.destination, destination_level)


def _list_split_side_first(nodes: Pairs | Expansion, side: int) -> tuple[Numbers, Numbers]:
    """Return the areas of nodes or rows on the side that is split (0 for origins), then those on the other side."""
    return (nodes.destination, nodes.origin) if side else (nodes.origin, nodes.destination)


@lru_cache(maxsize=8)  # a large geography takes time to be made
def equalise_depths(origin: Geography, destination: Geography) -> tuple[Geography, Geography]:
    """Return both geographies with as many levels as the deeper of the two; unchanged if one has none.

    Copies of the first level are inserted below it, as ``<level>_2``, ``<level>_3`` and so on; each area of a copy is
    the only child of the same area in the level above. Copies cost no budget under the rule of shares ``geography``.
    The coarsest level is copied, because a copied fine level would cause small cells high in the flow tree. Raises
    OdError if a level with the name of a copy exists already.
    """
    if not (origin.levels and destination.levels):
        return origin, destination
    depth = max(origin.depth, destination.depth)
    return _repeat_first_level(origin, depth - origin.depth), _repeat_first_level(
        destination, depth - destination.depth
    )


def compute_level_pair(level: int, order: str) -> tuple[int, int]:
    """Return the origin level and the destination level at a level of a tree with two sides and this tree order."""
    if order == "both":
        return level, level
    first, second = (level + 1) // 2, level // 2
    return (second, first) if order == "destination" else (first, second)


def repeat_level_names(levels: Sequence[str], times: int) -> tuple[str, ...]:
    """Return the names of levels, with the names of ``times`` copies of the first level inserted after it."""
    return (levels[0], *(f"{levels[0]}_{copy}" for copy in range(2, times + 2)), *levels[1:])


def list_repeated_levels(geography: Geography) -> list[str]:
    """Return the names of the levels whose codes are exactly those of the level above."""
    pairs = zip(geography.levels[1:], pairwise(geography.codes[1:]), strict=True)
    return [name for name, (above, codes) in pairs if codes == above]


def _repeat_first_level(geography: Geography, times: int) -> Geography:
    """Return the geography with ``times`` copies of its first level inserted below the first level."""
    if times == 0:
        return geography
    codes, names, aliases = geography.codes[1], geography.names, geography.aliases
    itself = np.arange(len(codes), dtype=np.int32)
    return replace(
        geography,
        levels=repeat_level_names(geography.levels, times),
        codes=(*geography.codes[:2], *[codes] * times, *geography.codes[2:]),
        parents=(*geography.parents[:2], *[itself] * times, *geography.parents[2:]),
        names=None if names is None else (*names[:2], *[names[1]] * times, *names[2:]),
        aliases=None if aliases is None else (*aliases[:2], *[aliases[1]] * times, *aliases[2:]),
    )
