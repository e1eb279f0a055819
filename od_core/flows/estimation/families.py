"""Predict how the trips of a node divide among its children: by gravity, from the level, or as another table does.

A *family* is a node of the flow tree with its measured children. At a level that refines the destination, the children
of a family are flows from one origin to several destinations. A destination that attracts many trips from other origins
is likely to attract many from this one, too. So the *gravity share* p of a child is in proportion to the sum of its
row: all other cells of the level with the same refined area. Where origins are refined, origin and destination are
exchanged. Where both are, it is in proportion to the product of the sums of both.

Another table may say more about the shares: the trips in the opposite direction, if origins and destinations have the
same geography, or an earlier release. Let m be that table, and tau the shares of the children in it. The *blended
share* of a child is p + b (tau - p), where b is the regression coefficient of what p leaves unexplained, fitted over
cells of similar size. So a table that says nothing about this one moves the shares little; those of an earlier release
move none at a level where all that it explains may be chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.least_squares import MeasuredLevel, combine_bottom_up, estimate_children
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.onto_area_totals import EstimatedTotals
from od_core.geography.flow_tree import CHILDREN_AT_ONCE, Nodes, Pairs, iterate_family_blocks, sum_runs
from od_core.kernels import kernel
from od_core.parallel import map_in_order, process_all

Result = TypeVar("Result")

SIZES, _SIZE_OF_SIGMA = 96, 48
"""Number of sizes of cells, and the size that starts at sigma / 2. A cell that is predicted to have root(2) times as
many trips as another has the next size."""

_ROOT_OF_HALF = 0.7071067811865476
"""The middle of an octave from 1/2 to 1, where its second half begins."""

_MIN_CELLS_PER_FIT = 200
"""Smallest number of cells of a fit. Neighbouring sizes with fewer cells are fitted together."""

_MIN_CELLS_TO_LEARN = 1_000
"""Smallest number of cells of a level from which something is learned."""

_FAMILY_ARRAYS = ("parents", "total", "siblings", "parent_h", "parent_variance")
"""Names of the arrays of :class:`Families` with a number for each family."""

_MIN_NOISE_PART = 0.05
"""Smallest w of a cell, as a part of its v. Otherwise, where the noise cancels, w would be a rounding error."""


@dataclass(frozen=True, eq=False)
class Families:
    """The families of a measured level, with the least-squares estimates of their nodes.

    Attributes:
        offsets: The children of family ``f`` are ``offsets[f]:offsets[f + 1]``; shape (families + 1,).
        parents: Positions of the parents in the level above; shape (families,).
        kept: Positions of the children that were not dropped, which have measured nodes below them; None if all are
            kept, as leaves are.
        sides: The sides that the level refines: 0 for origins, 1 for destinations.
        area: Area number of each child on these sides; shape (sides, children).
        areas: Number of areas of each of these sides.
        total, siblings: Sums of z and v over the children of each family; shape (families,).
        noisy: Noisy value of each child; shape (children,).
        noise: Variance of the noisy values.
        z, v: Estimate of each kept child from itself and the levels below it, and its variance; shape (kept,). A child
            that was dropped has its noisy value, as leaves have, for which these are empty.
        parent_h, parent_variance: Estimate of each parent from all levels, and its variance; shape (families,).
        of_areas: Estimated totals of the areas from their measurements, if there are some.
        has_laplace_noise: True for leaves with Laplace noise. What other levels combine is nearly normal.
    """

    offsets: Integers
    parents: Integers
    kept: Integers | None
    sides: tuple[int, ...]
    area: NDArray[np.int32]
    areas: tuple[int, ...]
    total: Reals
    siblings: Reals
    noisy: Reals
    noise: float
    z: Reals
    v: Reals
    parent_h: Reals
    parent_variance: Reals
    of_areas: EstimatedTotals | None = None
    has_laplace_noise: bool = False

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise of the level."""
        return math.sqrt(self.noise)

    @property
    def learns(self) -> bool:
        """Whether the level has enough cells to learn from."""
        return len(self.noisy) >= _MIN_CELLS_TO_LEARN

    def list_child_positions(self, chosen: Integers) -> Integers:
        """Return the positions of the children of the families with the numbers ``chosen``, in their order."""
        first, size = self.offsets[chosen], np.diff(self.offsets)[chosen]
        chosen_before = np.cumsum(size) - size  # number of children of the chosen families before each
        children: Integers = np.arange(size.sum()) + np.repeat(first - chosen_before, size)
        return children

    def select_leaf_families(self, chosen: Integers) -> Families:
        """Return the families of leaves with the numbers ``chosen``.

        They have no :attr:`learns` of their own: whether leaves learn is decided by all families together.
        """
        children = self.list_child_positions(chosen)  # leaves have no ``kept``, ``z`` and ``v`` to select
        offsets = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[chosen])])
        return self._select_families(chosen, children, offsets=offsets)

    def _select_families(self, families: slice | Integers, children: slice | Integers, **changed: Any) -> Families:
        """Return some of the families, given their numbers and the positions of their children, or slices of both.

        ``changed`` has the new ``offsets`` and, above the leaves, the new ``kept``, ``z`` and ``v``.
        """
        of_families = {name: getattr(self, name)[families] for name in _FAMILY_ARRAYS}
        return replace(self, area=self.area[:, children], noisy=self.noisy[children], **of_families, **changed)

    def complete_child_estimates(self, z: Reals, v: Reals) -> tuple[Reals, Reals]:
        """Return estimates and variances of all children, given those of the kept ones; shape (children,) each.

        Leaves, and children that were dropped, have their noisy value and its variance.
        """
        estimates, variances = self.noisy, np.full(len(self.noisy), self.noise)
        if self.kept is not None:
            estimates = estimates.copy()
            estimates[self.kept] = z
            variances[self.kept] = v
        return estimates, variances

    @property
    def fitted(self) -> tuple[Reals, Reals]:
        """The least-squares estimate h of each child from all levels, and the variance v of its z; shape (children,).

        Both are computed at each use: there are too many children to keep them.
        """
        z, v = self.complete_child_estimates(self.z, self.v)
        h, no_variances = np.empty(len(self.noisy)), np.empty(0)
        parents = (self.parent_h, self.parent_variance, self.total, self.siblings)
        estimate_children(self.offsets, *parents, z, v, h, no_variances)
        return h, v

    @property
    def kept_children(self) -> tuple[Integers, Integers]:
        """Positions of the kept children, and offsets: ``[offsets[f]:offsets[f + 1]]`` of them are of family ``f``.

        The shapes are (kept,) and (families + 1,).
        """
        if self.kept is None:
            return np.arange(len(self.noisy)), self.offsets
        return self.kept, np.searchsorted(self.kept, self.offsets)

    def with_shares(self, p: Reals) -> PredictedFamilies:
        """Return the families with the predicted share of each child; shape (children,)."""
        h, v = self.fitted
        return PredictedFamilies(self.offsets, h, v, self.siblings, p, self.parent_h, self.parent_variance, self.sigma)

    def map_blocks(self, work: Callable[[Families, Places], Result]) -> Iterator[Result]:
        """Return an iterator of ``work(families, places)`` for consecutive blocks of families, processed in threads.

        A block has about 2^18 children, and ``places`` their positions. Threads share arrays, so ``work`` may write
        only the numbers of its own families and children.
        """
        return map_in_order(lambda block: work(*self._select_block(*block)), iterate_family_blocks(self.offsets))

    def process_blocks(self, work: Callable[[Families, Places], object]) -> None:
        """Call ``work(families, places)`` for all blocks of :meth:`map_blocks`; ``work`` stores its results itself."""
        for _ in self.map_blocks(work):
            pass

    def _select_block(self, first: int, last: int) -> tuple[Families, Places]:
        """Return the families ``first:last``, and the positions of their children."""
        begin, end = self.offsets[[first, last]].tolist()
        children = kept = slice(begin, end)
        if self.kept is not None:
            kept = slice(*np.searchsorted(self.kept, [begin, end]).tolist())
        block = self._select_families(
            slice(first, last),
            children,
            offsets=self.offsets[first : last + 1] - begin,
            kept=None if self.kept is None else self.kept[kept] - begin,
            z=self.z[kept],  # leaves have none
            v=self.v[kept],
        )
        return block, Places(children, kept)


class PredictedFamilies(NamedTuple):
    """What kernels need of families, with the predicted share p of each child; h and v are :attr:`Families.fitted`."""

    offsets: Integers
    h: Reals
    v: Reals
    siblings: Reals
    p: Reals
    parent_h: Reals
    parent_variance: Reals
    sigma: float


class Places(NamedTuple):
    """Positions of a block in its level: of its children among all, and of its kept children among all kept ones."""

    children: slice
    kept: slice


def iterate_families(plan: ReleasePlan, levels: Sequence[MeasuredLevel]) -> Iterator[Families]:
    """Yield the families of each level below the root, top level first; h, z and v are those of least squares."""
    tree = plan.tree
    # Of each level, last level first: z and v of the kept nodes, and the sums of z and v of all nodes by family. Each
    # pop() below returns those of the next level from the top.
    from_below = [
        (z[level.divided], v[level.divided], sums)
        for level, (z, v, sums) in zip(levels[::-1], combine_bottom_up(levels), strict=True)
    ]
    h, variance, _ = from_below.pop()  # of the root, if it has measured nodes below: nothing above says more of it
    for above, level in pairwise(levels):
        refined_level = above.nodes.level + 1  # at unmeasured levels in between, each node has one child like itself
        sides = tree.list_divided_sides(refined_level)
        areas_of_sides = (level.nodes.origin, level.nodes.destination)
        area_levels = tree.level_pair(refined_level)
        z, v, (total, siblings) = from_below.pop()
        parent_h, parent_variance = h, np.maximum(variance, 0)
        h, variance = np.empty_like(z), np.empty_like(z)
        kept_offsets = np.searchsorted(level.divided, level.offsets)  # where the kept children of each family begin
        estimate_children(kept_offsets, parent_h, parent_variance, total, siblings, z, v, h, variance)
        yield Families(
            offsets=level.offsets,
            parents=above.divided,
            kept=level.divided if level is not levels[-1] else None,
            sides=sides,
            area=areas_of_sides[sides[0]][np.newaxis] if len(sides) == 1 else np.array(areas_of_sides),
            areas=tuple((tree.origin, tree.destination)[side].size(area_levels[side]) for side in sides),
            total=total,
            siblings=siblings,
            noisy=level.noisy,
            noise=level.noise,
            z=z,
            v=v,
            parent_h=parent_h,
            parent_variance=parent_variance,
            has_laplace_noise=plan.mechanism.has_laplace_noise and level is levels[-1],
        )


def compute_gravity_shares(families: Families) -> Reals:
    """Return the gravity share p of each child; shape (children,). The shares of a family sum to 1.

    On a side that the level refines, the row of a child is all cells of the level with the same area. The share of a
    child is in proportion to the sum of its row without itself or, with two such sides, to the product of both sums.
    """
    row_sums = [np.zeros(areas) for areas in families.areas]
    row_cells = [np.bincount(area, minlength=areas) for area, areas in zip(families.area, families.areas, strict=True)]
    shares = np.empty(len(families.noisy))

    def select_areas_and_estimates(block: Families, _places: Places) -> tuple[NDArray[np.int32], Reals]:
        return block.area, block.fitted[0]

    for area, h in families.map_blocks(select_areas_and_estimates):
        for sums, area_of_child in zip(row_sums, area, strict=True):
            np.add.at(sums, area_of_child, h)

    def divide_block(block: Families, places: Places) -> None:
        h, product = block.fitted[0], np.ones(len(block.noisy))
        for sums, cells, area in zip(row_sums, row_cells, block.area, strict=True):
            # Half the standard deviation of the row is added, so that a row of 0 does not imply a share of 0.
            product *= np.maximum(sums[area] - h, 0.0) + block.sigma / 2 * np.sqrt(cells[area] - 1.0)
        sizes = np.diff(block.offsets)
        total = np.repeat(sum_runs(product, block.offsets), sizes)
        equal_shares = np.repeat(1.0 / sizes, sizes)
        shares[places.children] = np.divide(product, total, out=equal_shares, where=total > 0.0)

    families.process_blocks(divide_block)
    return shares


def sum_trips_by_node(plan: ReleasePlan, levels: Sequence[MeasuredLevel], table: Nodes) -> list[Reals]:
    """Return the trips of a table at each node of each level below the root, top level first; shape (nodes,) each.

    ``table`` has leaves of the same tree with their trips, at least one leaf, in tree order.
    """
    return sum_leaves_by_node(levels, take_trips(_find_leaf_positions(plan, levels[-1].nodes, table), table.trips))


def find_return_positions(plan: ReleasePlan, levels: Sequence[MeasuredLevel]) -> Integers:
    """Return the position of the leaf in the opposite direction of each leaf, or -1 if it is not measured.

    The shape is (leaves,). Origins and destinations must have the same geography.
    """
    leaves = levels[-1].nodes
    return _find_leaf_positions(plan, Pairs(plan.tree.depth, leaves.destination, leaves.origin), leaves)


def _find_leaf_positions(plan: ReleasePlan, wanted: Pairs, table: Pairs) -> Integers:
    """Return the position of each wanted leaf in a table, or -1 if it is absent; shape (wanted,).

    ``table`` must be in tree order and have at least one leaf.
    """
    ranks = plan.tree.compute_first_ranks(Pairs(plan.tree.depth, table.origin, table.destination))  # ascending
    positions: Integers = np.empty(len(wanted), dtype=np.int32 if len(ranks) < 1 << 31 else np.int64)

    def find_block(first: int) -> None:
        block = slice(first, first + CHILDREN_AT_ONCE)
        wanted_pairs = Pairs(wanted.level, wanted.origin[block], wanted.destination[block])
        wanted_ranks = plan.tree.compute_first_ranks(wanted_pairs)
        found = np.searchsorted(ranks[:-1], wanted_ranks)  # a rank after the last one is compared with the last
        positions[block] = np.where(ranks[found] == wanted_ranks, found, -1)

    process_all(find_block, range(0, len(positions), CHILDREN_AT_ONCE))
    return positions


def sum_leaves_by_node(levels: Sequence[MeasuredLevel], leaves: Reals) -> list[Reals]:
    """Return the sums of numbers of the leaves over each node of each level below the root, top level first.

    The shape is (nodes,) each. A node that was dropped has the sum 0.
    """
    sums_of_levels = [leaves]
    for position in range(len(levels) - 1, 1, -1):
        level, above = levels[position], levels[position - 1]
        sums = np.zeros(len(above.nodes))
        sums[above.divided] = sum_runs(sums_of_levels[0], level.offsets)
        sums_of_levels.insert(0, sums)
    return sums_of_levels


def blend_shares(families: Families, p: Reals, other: Reals, weight: float, least: float = -math.inf) -> Reals:
    """Return the blended share of each child; shape (children,). The shares of a family sum to 1.

    If the level does not learn from the other table, its shares are ``p``.

    Args:
        p: Share of each child without the other table; shape (children,).
        other: Trips of each child in the other table; shape (children,).
        weight: Number of trips with the shares p that are added to the trips of a family in the other table.
        least: Smallest score of a level that learns from the other table. If that table says nothing, the score has
            about the standard normal distribution: it is the sum over the fits by size of what the table explains, each
            in its standard deviations [white1980heteroskedasticity], divided by the square root of their number.
    """
    (explained, total, squares), cells = np.zeros((3, SIZES)), np.zeros(SIZES, dtype=np.int64)

    def select_block_inputs(block: Families, places: Places) -> tuple[PredictedFamilies, Reals]:
        return block.with_shares(p[places.children]), other[places.children]

    for predicted, other_of_block in families.map_blocks(select_block_inputs):
        _add_regression_sums(predicted, other_of_block, weight, explained, total, squares, cells)
    bin_of = assign_bins(cells, _MIN_CELLS_PER_FIT)
    explained, total, squares = (np.bincount(bin_of, sums).astype(np.float64) for sums in (explained, total, squares))
    scores = np.divide(explained, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    if math.fsum(scores) < least * math.sqrt(len(scores)):
        return p
    slope_of_bin = np.clip(np.divide(explained, total, out=np.zeros_like(total), where=total > 0), 0, 1)
    slope = slope_of_bin[bin_of]
    shares = np.empty_like(p)

    def blend_block(block: Families, places: Places) -> None:
        inputs = p[places.children], block.parent_h, block.sigma, other[places.children], weight, slope
        _blend(block.offsets, *inputs, shares[places.children])

    families.process_blocks(blend_block)
    return shares


def assign_bins(cells: Integers, least: int) -> Integers:
    """Return the bin, numbered from 0, to which each size belongs, given the number of its cells; shape (sizes,).

    Consecutive sizes share a bin until it has at least ``least`` cells and the remaining sizes have that many, too.
    """
    bin_of = np.zeros(len(cells), dtype=np.int64)
    in_bin, remaining = 0, int(cells.sum())
    for size, number in enumerate(cells[:-1].tolist(), start=1):
        in_bin, remaining = in_bin + number, remaining - number
        begins_bin = in_bin >= least and remaining >= least
        bin_of[size] = bin_of[size - 1] + begins_bin
        in_bin = 0 if begins_bin else in_bin
    return bin_of


def pool_sums_by_bin(cells: Integers, *sums: Reals) -> list[Reals]:
    """Return sums by size, shape (sizes,) each, in which each size has the sum over its bin (:func:`assign_bins`).

    A bin has at least ``_MIN_CELLS_PER_FIT`` cells; ``cells`` is the number of cells by size.
    """
    bin_of = assign_bins(cells, _MIN_CELLS_PER_FIT)
    return [np.bincount(bin_of, array).astype(np.float64)[bin_of] for array in sums]


@kernel
def take_trips(positions: Integers, trips: Integers) -> Reals:
    """Return the trips at each position, as real numbers, and 0 where it is -1; shape (positions,)."""
    values = np.zeros(len(positions))
    for i in range(len(positions)):
        if positions[i] >= 0:
            values[i] = trips[positions[i]]
    return values


@kernel
def compute_cell_size(trips: float, sigma: float) -> int:
    """Return the size (:data:`SIZES`) of a cell that is predicted to have ``trips``; ``sigma`` is that of the noise."""
    if not trips > 0.0:
        return 0
    mantissa, exponent = math.frexp(trips / sigma)  # the mantissa is at least 1/2 and below 1: one octave
    is_upper_half = mantissa >= _ROOT_OF_HALF
    return min(max(2 * exponent + (1 if is_upper_half else 0) + _SIZE_OF_SIGMA, 0), SIZES - 1)


@kernel
def compute_deviation(
    h: float, v: float, p: float, parent_h: float, siblings: float, parent_variance: float
) -> tuple[float, float]:
    """Return r = h_i - p_i h of a child i, and w, the variance that the noise alone gives to r.

    ``siblings`` is the sum of v over the family. The part of h_i that does not depend on h has the variance
    v - v^2 / sum v, and h_i - p_i h has the part (v / sum v - p) of h.
    """
    part = v / siblings
    w = v - v * part + (part - p) * (part - p) * parent_variance
    return h - p * parent_h, max(w, _MIN_NOISE_PART * v)


@kernel
def _add_regression_sums(families, other, weight, explained, total, squares, cells):  # type: ignore[no-untyped-def]  # compiled
    """Add each child that has siblings to the sums of its size, from which :func:`blend_shares` computes the slope.

    Let H be ``parent_h``, and tau the share of the child in ``other``, which has the trips of the children in the other
    table, after ``weight`` trips with the shares p are added to a family. A child adds (h - p H)(tau - p) H to
    ``explained``, the square of this to ``squares``, ((tau - p) H)^2 to ``total``, and 1 to ``cells``.
    """
    h, p = families.h, families.p
    for family in range(len(families.offsets) - 1):
        first, last, parent = families.offsets[family], families.offsets[family + 1], families.parent_h[family]
        if last - first < 2 or not parent > 0.0:
            continue
        other_total = weight
        for i in range(first, last):
            other_total += other[i]
        for i in range(first, last):
            tau = (other[i] + weight * p[i]) / other_total
            gap = (tau - p[i]) * parent
            size = compute_cell_size(p[i] * parent, families.sigma)
            product = (h[i] - p[i] * parent) * gap
            explained[size] += product
            total[size] += gap * gap
            squares[size] += product * product
            cells[size] += 1


@kernel
def _blend(
    offsets: Integers, p: Reals, parent_h: Reals, sigma: float, other: Reals, weight: float, slope: Reals, shares: Reals
) -> None:
    """Write the blended shares of the children of every family into ``shares``; see :func:`blend_shares`.

    They are p + b (tau - p) or, if this is less, 0, scaled to sum to 1. The slope b is that of the size of the child.
    """
    for family in range(len(offsets) - 1):
        first, last, parent = offsets[family], offsets[family + 1], parent_h[family]
        other_total = weight
        for i in range(first, last):
            other_total += other[i]
        total = 0.0
        for i in range(first, last):
            tau = (other[i] + weight * p[i]) / other_total
            shares[i] = max(p[i] + slope[compute_cell_size(p[i] * parent, sigma)] * (tau - p[i]), 0.0)
            total += shares[i]
        for i in range(first, last):
            shares[i] = shares[i] / total if total > 0.0 else p[i]
