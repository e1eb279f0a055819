"""Estimate sums of nodes of a measured flow tree, with their variances, level by level up the tree.

The cells of any pair of levels are such sums, and so are the flows between two sets of areas. The estimates are the
unbiased ones of :mod:`od_core.flows.estimation.least_squares`.

Consider a sum of estimates of nodes below a node with the estimate h. The sum equals c h plus a part that is
uncorrelated with h. Here c is the factor of the sum, and the variance r of that part is its residual. If the sums below
the children i of the node have the factors c_i and the residuals r_i, the sum of all of them has

    r = sum (r_i + c_i^2 v_i) - (sum c_i v_i)^2 / S,   c = sum c_i v_i / S,

where v_i is the variance of the estimate of child i from itself and the levels below it, and S is the sum of all v_i.
The variance of the sum is r + c^2 V, where V is the variance of h.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import add
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.area_totals import TotalsSystem
from od_core.flows.estimation.least_squares import FittedLevel, has_no_dropped_nodes
from od_core.flows.estimation.levels import SideTotals, sum_variances
from od_core.geography.flow_tree import FlowTree, sum_runs
from od_core.geography.geography import Geography, Numbers
from od_core.kernels import kernel
from od_core.parallel import map_in_order

NodeWeights = NDArray[np.number] | NDArray[np.bool_]
"""Weights of nodes; a mask selects some."""

ZoneFunction = Callable[[Numbers, Numbers], NodeWeights]
"""A function that returns a value for each pair of areas, given their numbers as origins and destinations."""

GroupFunction = Callable[[Numbers, Numbers], Integers]
"""Such a function whose values are numbers of groups."""

Value = TypeVar("Value")

FACTOR, _RESIDUAL, _ESTIMATE, _DROPPED_BOUND, _DROPPED_ESTIMATE, _DROPPED_VARIANCE = range(6)
"""Positions of the rows of :attr:`NodeSums.values`."""

MEASURED_ROWS, ALL_ROWS = 3, 6
"""Number of these rows without and with those of dropped nodes."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Unbiased estimates of sums, without the trips of dropped nodes; shape (sums,) each.

    Attributes:
        estimate, variance: Estimate of each sum in trips, and the variance of the estimate.
        dropped_bound: Sum of the upper bounds of the dropped nodes that the sum overlaps.
        dropped_estimate, dropped_variance: Estimate of the trips of these dropped nodes together, and its variance.
        unmeasured: Upper bound of the trips of a cell below a dropped node, of which nothing else is known; else 0.
    """

    estimate: Reals
    variance: Reals
    dropped_bound: Reals
    dropped_estimate: Reals
    dropped_variance: Reals
    unmeasured: Reals

    @classmethod
    def from_nodes(cls, estimate: Reals, variance: Reals) -> Estimates:
        """Return the estimates of single nodes, which overlap no dropped node."""
        return cls(estimate, variance, *np.zeros((4, len(estimate))))

    def take(self, positions: Integers) -> Estimates:
        """Return the estimates at some positions; all values are 0 where the position is -1."""
        is_present = positions >= 0
        columns = [values if len(values) else np.zeros(1) for values in vars(self).values()]  # -1 needs a last value
        return Estimates(*[np.where(is_present, values[positions], 0.0) for values in columns])

    def choose_where(self, chosen: NDArray[np.bool_], other: Estimates) -> Estimates:
        """Return these estimates where the mask ``chosen`` is true, and those of ``other`` elsewhere; shape (sums,)."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Estimates(*(np.where(chosen, values, other_values) for values, other_values in pairs))

    def __add__(self, other: Estimates) -> Estimates:
        """Return the estimates of sums over two releases: these, plus those of another with independent noise."""
        return Estimates(*map(add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Sums of estimates below each node of a list; a node has one sum for each of several areas on one side.

    For example, the node from region A to state B may have one sum for each zone of B: the flow from A to that zone.

    Attributes:
        offsets: The sums of node ``i`` are ``offsets[i]:offsets[i + 1]``, in the order of the areas; shape (nodes +
            1,).
        values: One row for each of these values: factor, residual (module docstring) and estimate of the sum; then, for
            the dropped nodes that the sum overlaps, the three values of :class:`Estimates` on them. Shape (6, sums);
            (3, sums) if no node was dropped.
        first: Number of the first area of each node; shape (nodes,).
    """

    offsets: Integers
    values: Reals
    first: Integers

    @classmethod
    def from_level(
        cls,
        level: FittedLevel,
        weights: NodeWeights | None = None,
        rows: int = ALL_ROWS,
        *,
        noisy: bool = False,
        first: Integers | None = None,
    ) -> NodeSums:
        """Return one sum per node: its estimate or, if ``noisy``, its noisy value, times its weight.

        A noisy value is independent of all others, so it has the factor 0, and its variance is its residual.

        Args:
            weights: Weight of each node; shape (nodes,). By default, 1.
            rows: Number of rows of :attr:`values`.
            noisy: Whether the noisy values are used.
            first: Number of the area of each sum; shape (nodes,). By default, 0.
        """
        sums = cls.make_zeros(np.ones(len(level.nodes), dtype=np.int64), rows, first)
        weight = 1.0 if weights is None else weights
        if noisy:
            sums.values[_RESIDUAL] = level.noise * np.square(weight)
        else:
            sums.values[FACTOR] = weight
        np.multiply(level.noisy if noisy else level.estimate, weight, out=sums.values[_ESTIMATE])
        return sums

    @classmethod
    def make_zeros(cls, areas: Integers, rows: int = ALL_ROWS, first: Integers | None = None) -> NodeSums:
        """Return sums that are all 0, with ``rows`` rows.

        Node ``i`` has ``areas[i]`` sums, one for each area from number ``first[i]`` on, by default from 0 on.
        """
        offsets = np.concatenate([[0], np.cumsum(areas)])
        return cls(offsets, np.zeros((rows, offsets[-1])), np.zeros_like(areas) if first is None else first)

    @classmethod
    def concatenate(cls, pieces: Iterable[NodeSums], rows: int = ALL_ROWS) -> NodeSums:
        """Return one object with the sums of all pieces, in their order; each piece has ``rows`` rows of values."""
        parts = list(pieces)
        areas = np.concatenate([np.empty(0, dtype=np.int64), *(np.diff(part.offsets) for part in parts)])
        values = np.concatenate([np.zeros((rows, 0)), *(part.values for part in parts)], axis=1)
        first = np.concatenate([np.empty(0, dtype=np.int64), *(part.first for part in parts)])
        return cls(np.concatenate([[0], np.cumsum(areas)]), values, first)

    def sum_to_parents(
        self,
        level: FittedLevel,
        first: Integers | None = None,
        count: Integers | None = None,
        group: Integers | None = None,
        dropped: Reals | None = None,
    ) -> NodeSums:
        """Return the sums over the children of each divided node of the level above, one sum for each area.

        This object has the sums of all children or, if nodes were dropped, maybe of the divided children alone. A node
        has a sum for every area from the first to the last one of its children, also for areas without possible trips.

        Args:
            level: The level of the children.
            first: Number of the first area that each child overlaps; by default, that of its sums. Shape (children,).
            count: Number of areas that each child overlaps; by default, that of its sums. Shape (children,).
            group: For children with one sum, number of the area of this sum, from the first; shape (children,).
            dropped: The result of :func:`_bound_and_estimate_dropped` for the children, shape (3, children), which is
                added to their sums. None to add nothing, as where no node was dropped.
        """
        first = self.first if first is None else first
        count = np.diff(self.offsets) if count is None else count
        begin, end = first[:0], first[:0]  # of the areas of each parent: the first one, and the one after the last
        if len(level.offsets) > 1:  # otherwise, the level is the root, which has no parent
            begin = np.minimum.reduceat(first, level.offsets[:-1])
            end = np.maximum.reduceat(first + count, level.offsets[:-1])
        above = NodeSums.make_zeros(end - begin, len(self.values), begin)
        children = _Children(
            offsets=level.offsets,
            own=level.own,
            divided=level.divided,
            begins=above.offsets[:-1] - begin,
            area=first if group is None else first + group,
            cells=self.offsets,
        )
        _add_rows(children, self.values if dropped is None else self.values[:MEASURED_ROWS], above.values)
        _remove_covariances(above.offsets, level.siblings, above.values)
        if dropped is not None:
            _add_dropped_rows(children, self.values, count, dropped, above.values)
        return above

    def compute_estimates(self, node_variances: Reals) -> Estimates:
        """Return the estimate of each sum, given ``node_variances``, V of each node's estimate; shape (nodes,)."""
        factor, residual, estimate = self.values[:MEASURED_ROWS]
        variance = residual + factor**2 * np.repeat(node_variances, np.diff(self.offsets))
        nothing = np.zeros(len(estimate))
        bound, dropped_estimate, dropped_variance = nothing, nothing, nothing
        if len(self.values) == ALL_ROWS:
            bound, dropped_estimate, dropped_variance = self.values[MEASURED_ROWS:]
        return Estimates(estimate, variance, bound, dropped_estimate, dropped_variance, unmeasured=nothing)


class _Children(NamedTuple):
    """The children of the divided nodes above, and where their sums are added; for 1 to 3, see :class:`FittedLevel`."""

    offsets: Integers
    own: Reals
    divided: Integers
    begins: Integers  # column of the area number 0 among the sums of each parent, maybe below 0; shape (parents,)
    area: Integers  # number of the area of the first sum of each child; shape (children,)
    cells: Integers  # the sums of child d, of all or of the divided ones alone, are cells[d]:cells[d + 1]


@kernel
def _add_rows(children: _Children, values: Reals, above: Reals) -> None:
    """Add the sums of every child, the columns of ``values``, to the sums of its parent, the columns of ``above``.

    A child with the variance v adds c v to the row of factors, r + c^2 v to the row of residuals, and its own values to
    all other rows. :func:`_remove_covariances` then completes the formula of the module docstring.
    """
    offsets, own, divided, begins, area, cells = children
    have_all_sums, parent = len(cells) > len(own), 0
    if len(begins) == 0:
        return  # the root has no parent
    for d in range(len(cells) - 1):
        child = d if have_all_sums else divided[d]
        while child >= offsets[parent + 1]:
            parent += 1
        source, width, target, v = cells[d], cells[d + 1] - cells[d], begins[parent] + area[child], own[child]
        for cell in range(width):
            above[FACTOR, target + cell] += values[FACTOR, source + cell] * v
        for cell in range(width):
            factor = values[FACTOR, source + cell]
            above[_RESIDUAL, target + cell] += values[_RESIDUAL, source + cell] + factor * factor * v
        for row in range(_ESTIMATE, len(values)):
            for cell in range(width):
                above[row, target + cell] += values[row, source + cell]


@kernel
def _remove_covariances(columns: Integers, siblings: Reals, above: Reals) -> None:
    """Turn what :func:`_add_rows` added into the factors c and residuals r of each parent.

    The sums of parent p are the columns ``columns[p]:columns[p + 1]`` of ``above``, and ``siblings`` has its S.
    """
    for parent in range(len(siblings)):
        for column in range(columns[parent], columns[parent + 1]):
            covariance = above[FACTOR, column]  # sum c_i v_i, the covariance with the sum of all children
            factor = covariance / siblings[parent]
            above[FACTOR, column] = factor
            above[_RESIDUAL, column] = max(0.0, above[_RESIDUAL, column] - covariance * factor)


@kernel
def _add_dropped_rows(children: _Children, values: Reals, count: Integers, dropped: Reals, above: Reals) -> None:
    """Add what is known of dropped nodes to the last rows of the sums of every parent, the columns of ``above``.

    A child with sums adds the last rows of its ``values``, and its column of ``dropped``, to as many sums of its
    parent. A child without sums, which was dropped, adds its column of ``dropped`` to ``count`` sums.
    """
    offsets, own, divided, begins, area, cells = children
    have_all_sums, d = len(cells) > len(own), 0  # d counts the children with sums
    for parent in range(len(begins)):
        for child in range(offsets[parent], offsets[parent + 1]):
            target = begins[parent] + area[child]
            if have_all_sums or (d < len(divided) and divided[d] == child):
                source, width = cells[d], cells[d + 1] - cells[d]
                for row in range(len(dropped)):
                    for cell in range(width):
                        added = values[MEASURED_ROWS + row, source + cell] + dropped[row, child]
                        above[MEASURED_ROWS + row, target + cell] += added
                d += 1
            else:
                for row in range(len(dropped)):
                    for cell in range(count[child]):
                        above[MEASURED_ROWS + row, target + cell] += dropped[row, child]


def estimate_dropped_trips(level: FittedLevel) -> tuple[Reals, Reals]:
    """Return each node's contribution to an estimate of the trips of dropped nodes, and to the estimate's variance.

    Both have the shape (nodes,). Their sums over many nodes, dropped or not, are the estimate of the trips of the
    dropped nodes among them, and its variance.

    A node is dropped because its noisy value x is small: at most a threshold m that its siblings determine. Here, m is
    the largest x of those that were dropped or, if none was, the smallest one minus 1. So the noisy values of dropped
    nodes are too small on average, and their sum is not an estimate of their trips. If the noise N is normal with the
    variance s2, and p is the density of x, Stein's identity [stein1981mean, Lemma 1] states that

        E[N 1(x <= m)] = -s2 p(m).

    So the expectation of x 1(x <= m) + s2 p(m) is that of the node's trips if it is dropped, and of 0 if it is not,
    whatever these trips are. The noisy values give an estimate of p(m). If W(h) is the mean of 1(m - h < x <= m + h) /
    2h, the estimate is (4 W(h) - W(2h)) / 3. This combination cancels the error from the curvature of p, which is a
    multiple of p'' h^2. The term that remains, -p'' / 24, is the correction that noise in whole numbers needs.

    The root has no siblings. If it is dropped, it contributes its noisy value and the variance of that value.
    """
    is_kept = np.zeros(len(level.nodes), dtype=np.bool_)
    is_kept[level.divided] = True
    correction = np.zeros(len(level.nodes))  # each node's contribution to the estimate of s2 p(m)
    if len(level.offsets) > 1:
        first, siblings = level.offsets[:-1], np.diff(level.offsets)
        largest_dropped = np.maximum.reduceat(np.where(is_kept, -np.inf, level.noisy), first)
        below_all = np.minimum.reduceat(level.noisy, first) - 1
        m = np.repeat(np.where(np.isinf(largest_dropped), below_all, largest_dropped), siblings)
        h = max(1.0, np.ceil(level.noise**0.5 / 2))
        # (4 W(h) - W(2h)) / 3 is 1 / 2h times 4/3 of the number within h, minus 1/6 of that within 2h.
        for width, weight in ((h, 4 / 3), (2 * h, -1 / 6)):
            correction += weight * ((m - width < level.noisy) & (level.noisy <= m + width))
        correction *= level.noise / (2 * h)
    return np.where(is_kept, 0.0, level.noisy) + correction, np.where(is_kept, 0.0, level.noise) + correction**2


@dataclass(frozen=True)
class Weights:
    """Weights of the pairs of areas that are summed, and their division into groups with a sum each.

    Attributes:
        weight: Returns the weights of pairs; by default, all are 1.
        group: Returns the number of the group of each pair, from 0; by default, there is one group.
        groups: Number of groups, and so of sums of each cell.
    """

    weight: ZoneFunction | None = None
    group: GroupFunction | None = None
    groups: int = 1


_EVERY, OTHERS = Weights(), Weights(np.not_equal)
"""Weights 1 of all pairs; and 1 of pairs of two different areas, 0 of others. For these, both sides have one level."""

_BLOCK = 1 << 20
"""Approximate number of nodes that one thread sums at a time."""


class FittedTree:
    """A measured flow tree with the estimates of all nodes.

    Attributes:
        levels: The fitted levels, top level first, from
            :func:`od_core.flows.estimation.least_squares.fit_least_squares`.
        by_noise: Whether the noise of these measurements determined which nodes were dropped, which biases estimates.
        area_totals: Measured or known area totals by side.
        nothing_dropped: True if no node was dropped.
    """

    def __init__(
        self,
        tree: FlowTree,
        levels: Sequence[FittedLevel],
        *,
        by_noise: bool = True,
        area_totals: SideTotals = MappingProxyType({}),
    ) -> None:
        self.tree, self.levels, self.by_noise, self.area_totals = tree, levels, by_noise, area_totals
        self.nothing_dropped = has_no_dropped_nodes(levels)
        self._rows = MEASURED_ROWS if self.nothing_dropped else ALL_ROWS

    @cached_property
    def totals_system(self) -> TotalsSystem | None:
        """The linear system by which area totals improve estimates of weighted sums and replicates.

        None without area totals, if nodes were dropped, or if only one level was measured.
        """
        is_used = self.area_totals and self.nothing_dropped and len(self.levels) > 1
        return TotalsSystem(self.tree, self.levels, self.area_totals) if is_used else None

    def estimate_cells(
        self, origin_level: int, destination_level: int, weights: Weights = _EVERY, level: int | None = None
    ) -> tuple[Numbers, Numbers, Estimates]:
        """Return the origins, destinations and estimates of all cells of a pair of levels.

        Origins and destinations are area numbers, shape (cells,); the estimates have the shape (cells * groups,). A
        cell below a node that the top-down pass dropped is left out. The trips of dropped nodes are not weighted.

        Args:
            origin_level, destination_level: Numbers of the levels.
            weights: Weights of the pairs of areas that are summed. If they have groups, the estimates of a cell in all
                groups follow each other.
            level: Number of the level of both geographies to whose areas the weights apply; by default, the coarsest
                level of the tree of whose nodes all cells are sums.
        """
        coarse, fine = self.find_enclosing_levels(origin_level, destination_level)
        if level is not None:
            fine = self.find_enclosing_levels(level, min(level, self.tree.destination.depth))[1]
        containing = self.levels[coarse]
        if coarse == fine:  # the cells are nodes
            nodes = containing.nodes
            return nodes.origin, nodes.destination, self._estimate_nodes(containing, weights)
        finer_side = 1 if origin_level < destination_level else 0  # the side on which cells are finer than the nodes
        finer_level = (origin_level, destination_level)[finer_side]
        sums = self._sum_nodes_below(coarse, fine, finer_side, finer_level, weights)
        offsets = sums.offsets // weights.groups  # the cells of divided node d are offsets[d]:offsets[d + 1]
        cells_of_node = np.diff(offsets)
        divided = containing.divided
        node_area = np.repeat(_select_side_areas(containing, 1 - finer_side)[divided], cells_of_node)
        # The areas of the cells of a node are consecutive, from ``sums.first`` on.
        first_area = np.repeat(sums.first // weights.groups, cells_of_node)
        first_cell = np.repeat(offsets[:-1], cells_of_node)
        finer_area = (first_area + np.arange(len(node_area)) - first_cell).astype(np.int32)
        origin, destination = (finer_area, node_area) if finer_side == 0 else (node_area, finer_area)
        return origin, destination, sums.compute_estimates(containing.variance[divided])

    def _estimate_nodes(self, level: FittedLevel, weights: Weights) -> Estimates:
        """Return the weighted estimates of all nodes of a level; those of a node in all groups follow each other.

        The shape is (nodes * groups,). In a group that a node does not belong to, its estimate is 0.
        """
        if weights is _EVERY:
            return Estimates.from_nodes(level.estimate, level.variance)
        sums = self._make_node_sums(level, _evaluate_at_nodes(weights.weight, level))
        group = _evaluate_at_nodes(weights.group, level)
        if group is not None:
            node_sums = sums
            sums = NodeSums.make_zeros(np.full(len(level.nodes), weights.groups), self._rows)
            sums.values[:, sums.offsets[:-1] + group] = node_sums.values
        return sums.compute_estimates(level.variance)

    def estimate_cells_with_totals(
        self, origin_level: int, destination_level: int
    ) -> tuple[Numbers, Numbers, Estimates]:
        """Return the origins, destinations and estimates of :meth:`estimate_cells`, improved by area totals.

        They improve only cells with the whole space on one side, and a level of a side with area totals on the other.
        Then all areas of that level have a cell. Area totals contain the trips of dropped nodes. So if there are
        dropped nodes, the estimate of an area is that of the tree or the measured one, whichever has the smaller
        variance, and not their mean.
        """
        origin, destination, estimates = self.estimate_cells(origin_level, destination_level)
        levels = origin_level, destination_level
        for side in (0, 1):
            is_whole_space = levels[1 - side] == 0
            measured = self.sum_measured_totals(side, levels[side]) if is_whole_space else None
            if measured is not None:
                areas = np.arange(len(measured.estimate), dtype=np.int32)
                ends = (np.zeros_like(areas), areas) if side else (areas, np.zeros_like(areas))
                position = find_pairs(origin, destination, *ends, len(areas) if side else 1)
                estimates = self._combine_with_measurement(estimates.take(position), measured, known=position >= 0)
                origin, destination = ends
        return origin, destination, estimates

    def estimate_sum_with_totals(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> Estimates:
        """Return the estimate of :meth:`sum_between`, improved by area totals if one of the sets has all zones."""
        estimate = self.sum_between(origins, destinations)
        for side, (chosen, other) in enumerate(((origins, destinations), (destinations, origins))):
            if side in self.area_totals and other.all() and chosen.any():
                noisy, noise = self.area_totals[side]
                zones = int(chosen.sum())
                noise_of_chosen = noise if isinstance(noise, float) else noise[chosen]
                variance = sum_variances(noise_of_chosen, np.zeros(zones, dtype=np.int64), areas=1)
                measured = Estimates.from_nodes(sum_runs(noisy[chosen], np.array([0, zones])), variance)
                estimate = self._combine_with_measurement(estimate, measured, known=np.ones(1, dtype=np.bool_))
        return estimate

    def _combine_with_measurement(self, of_tree: Estimates, measured: Estimates, known: NDArray[np.bool_]) -> Estimates:
        """Return the estimates ``of_tree`` combined with independent measurements of the same sums; shape (sums,).

        They are means weighted by precision. But if nodes were dropped, the tree's estimate lacks their trips, so the
        estimate with the smaller variance is returned; where the mask ``known`` is false, the measured one.
        """
        if self.nothing_dropped:  # a sum that the tree does not know cannot have trips: it is 0 with the variance 0
            total = of_tree.variance + measured.variance
            weight = np.divide(of_tree.variance, total, out=np.zeros_like(total), where=total > 0)
            estimate = of_tree.estimate + weight * (measured.estimate - of_tree.estimate)
            return Estimates.from_nodes(estimate, weight * measured.variance)
        return of_tree.choose_where(known & (of_tree.variance < measured.variance), measured)

    def sum_measured_totals(self, side: int, level: int) -> Estimates | None:
        """Return the measured or known totals of the areas of a level of one side, as estimates; shape (areas,).

        Return None if the side has no area totals. Return None also for the number of all trips (level 0) if the totals
        were measured: their sum has far more noise than the estimate by the tree.
        """
        noisy, noise = self.area_totals.get(side, (np.empty(0), 0.0))
        if not len(noisy) or (level == 0 and isinstance(noise, float)):
            return None
        geography = (self.tree.origin, self.tree.destination)[side]
        areas = geography.ancestors_at(geography.depth, level)
        spread = sum_variances(noise, areas, geography.size(level))
        return Estimates.from_nodes(sum_runs(noisy, geography.first_zone[level].astype(np.int64)), spread)

    def sum_between(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> Estimates:
        """Return the estimate of the trips between two sets of zones, as one sum; shape (1,).

        The sets are masks of the zones of each side; shape (zones,) each.

        If all zone pairs below a node are selected, their sum is the value of the node itself. If nodes were dropped,
        this is its noisy value (see :meth:`_make_node_sums`), with a wider interval than the estimate of
        :meth:`estimate_cells`.
        """
        selected_before = [np.concatenate([[0], np.cumsum(zones)]) for zones in (origins, destinations)]
        below: NodeSums | None = None  # one sum for each divided node of the level at hand
        for level in reversed(self.levels):
            wholly, touched = self._find_selected_nodes(level, selected_before)
            sums = self._make_node_sums(level, wholly)
            if below is not None:
                is_split = touched & ~wholly
                to_add = is_split[level.divided]
                sums.values[:, level.divided[to_add]] += below.values[:, to_add]
                if not self.nothing_dropped:
                    sums.values[_DROPPED_BOUND:] += np.where(is_split, _bound_and_estimate_dropped(level), 0.0)
            below = sums.sum_to_parents(level)
        return sums.compute_estimates(self.levels[0].variance)

    def find_largest_dropped_bound(self, origin_level: int, destination_level: int) -> int | None:
        """Return the largest upper bound of the dropped nodes whose cells of a pair of levels were not measured.

        Return None if there is no such node.
        """
        coarse, fine = self.find_enclosing_levels(origin_level, destination_level)
        above = range(coarse if coarse == fine else coarse + 1)  # if the levels are equal, the cells are its nodes
        dropped = (np.delete(self.levels[k].bound, self.levels[k].divided) for k in above)
        return max((int(bounds.max()) for bounds in dropped if len(bounds)), default=None)

    def find_enclosing_levels(self, origin_level: int, destination_level: int) -> tuple[int, int]:
        """Return the positions in :attr:`levels` of two levels of the flow tree that enclose a pair of levels.

        The first is the finest level whose nodes contain whole cells of the pair. The second is the coarsest level
        whose nodes are contained in such cells. If one of them was not measured, the next measured level below replaces
        it, because its nodes have the same trips.
        """
        above, below = 0, self.tree.depth
        for level in range(self.tree.depth + 1):
            origins, destinations = self.tree.level_pair(level)
            if origins <= origin_level and destinations <= destination_level:
                above = level
            if origins >= origin_level and destinations >= destination_level:
                below = min(below, level)
        measured = [level.nodes.level for level in self.levels]
        return bisect_left(measured, above), bisect_left(measured, below)

    def _sum_nodes_below(self, coarse: int, fine: int, finer_side: int, finer_level: int, weights: Weights) -> NodeSums:
        """Return, for each divided node of a coarse level, the weighted sums of the nodes of a fine level below it.

        A divided node has one sum for each area of ``finer_level`` on ``finer_side``, and each group. The last two
        levels are summed in blocks of nodes on all threads, since they have many nodes and give few sums.

        Args:
            coarse, fine: Positions of the two levels in :attr:`levels`; ``coarse`` must be the smaller one.
            finer_side: The side on which the cells are finer than the coarse nodes: 0 for origins, 1 for destinations.
            finer_level: Number of the level of the cells' areas on this side.
            weights: Weights and groups of the fine nodes.
        """
        middle = max(coarse, fine - 2)
        lowest_levels, groups = self.levels[middle + 1 : fine + 1], weights.groups

        def sum_up_levels(sums: NodeSums, levels: Sequence[FittedLevel]) -> NodeSums:
            """Return the sums above ``levels``, given those of the divided nodes of the last of them."""
            for level in reversed(levels):
                if self.nothing_dropped:
                    sums = sums.sum_to_parents(level)
                else:
                    first, count = self.find_overlapped_areas(level, finer_side, finer_level)
                    dropped = _bound_and_estimate_dropped(level)
                    sums = sums.sum_to_parents(level, groups * first, groups * count, dropped=dropped)
            return sums

        def sum_block(block: tuple[int, int]) -> NodeSums:
            """Return the sums of a range of divided nodes of the level above ``lowest_levels``."""
            *above, lowest = _select_block(lowest_levels, *block)
            first_area, count = self.find_overlapped_areas(lowest, finer_side, finer_level)
            sums = self._make_node_sums(lowest, _evaluate_at_nodes(weights.weight, lowest))
            group = _evaluate_at_nodes(weights.group, lowest)
            sums = sums.sum_to_parents(lowest, first=groups * first_area, count=groups * count, group=group)
            return sum_up_levels(sums, above)

        sums = NodeSums.concatenate(map_in_order(sum_block, _iterate_blocks(lowest_levels)), self._rows)
        return sum_up_levels(sums, self.levels[coarse + 1 : middle + 1])

    def _make_node_sums(self, level: FittedLevel, weights: NodeWeights | None) -> NodeSums:
        """Return one sum per node of a level: an unbiased value of the node times its weight, by default 1.

        The value is the least-squares estimate of the node. But if nodes were dropped, the kept nodes were selected by
        their noise, which biases their estimates. Then the value is the noisy one, which is unbiased because it was
        drawn after the nodes above had been selected. ``weights`` has the shape (nodes,).
        """
        is_unbiased = self.nothing_dropped or level.noise == 0 or not self.by_noise
        return NodeSums.from_level(level, weights, self._rows, noisy=not is_unbiased)

    def find_overlapped_areas(self, level: FittedLevel, side: int, finer_level: int) -> tuple[Integers, Integers]:
        """Return the first area of ``finer_level`` that each node overlaps on a side, and the number of such areas.

        The areas that a node overlaps are consecutive. Both arrays have the shape (nodes,).
        """
        geography = (self.tree.origin, self.tree.destination)[side]
        nodes = _select_side_areas(level, side)
        own_level = self.tree.level_pair(level.nodes.level)[side]
        if own_level >= finer_level:
            ancestors = geography.ancestors_at(own_level, finer_level)[nodes]
            return ancestors.astype(np.int64), np.ones(len(nodes), dtype=np.int64)
        first = np.searchsorted(geography.first_zone[finer_level], geography.first_zone[own_level])
        return first[nodes], np.diff(first)[nodes]

    def _find_selected_nodes(
        self, level: FittedLevel, selected_before: Sequence[Integers]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return masks of the nodes with only selected zone pairs, and of those with any; shape (nodes,) each.

        ``selected_before`` has, for each side, the number of selected zones before each zone and, last, of all zones;
        shape (zones + 1,).
        """
        wholly, touched = np.ones((2, len(level.nodes)), dtype=np.bool_)
        for side, geography in enumerate((self.tree.origin, self.tree.destination)):
            first = geography.first_zone[self.tree.level_pair(level.nodes.level)[side]]
            selected = np.diff(selected_before[side][first])[_select_side_areas(level, side)]
            zones = np.diff(first)[_select_side_areas(level, side)]
            wholly, touched = wholly & (selected == zones), touched & (selected > 0)
        return wholly, touched

    def take_estimates(
        self, levels: tuple[int, int], origin: Numbers, destination: Numbers, position: Integers, estimates: Estimates
    ) -> Estimates:
        """Return the estimates of some cells of a pair of levels; shape (cells,).

        Args:
            origin, destination: Area numbers of the cells; shape (cells,) each.
            position: Position of each cell among ``estimates``; -1 for a cell below a dropped node, or one that cannot
                have trips. Such a cell gets the estimate 0. Its ``unmeasured`` is the upper bound of its nearest
                measured ancestor or, if it cannot have trips, 0.
            estimates: The result of :meth:`estimate_cells`.
        """
        is_absent, unmeasured = position < 0, np.zeros(len(position))
        if is_absent.any() and not self.nothing_dropped:  # otherwise, absent cells cannot have trips
            bounds = self._find_bound_of_nearest_ancestor(levels, origin[is_absent], destination[is_absent])
            unmeasured[is_absent] = bounds
        return replace(estimates.take(position), unmeasured=unmeasured)

    def _find_bound_of_nearest_ancestor(
        self, levels: tuple[int, int], origin: Numbers, destination: Numbers
    ) -> Integers:
        """Return the upper bound of the nearest measured ancestor of each cell below a dropped node; shape (cells,).

        Levels are searched from the root down, so the bound that is found last is that of the nearest ancestor.
        """
        bounds = np.zeros(len(origin), dtype=np.int64)
        coarse, _ = self.find_enclosing_levels(*levels)
        for measured in self.levels[: coarse + 1]:
            nodes, above = measured.nodes, self.tree.level_pair(measured.nodes.level)
            origin_above = _find_ancestors(self.tree.origin, origin, levels[0], above[0])
            destination_above = _find_ancestors(self.tree.destination, destination, levels[1], above[1])
            width = self.tree.destination.size(above[1])
            position = find_pairs(nodes.origin, nodes.destination, origin_above, destination_above, width)
            is_measured = position >= 0
            bounds[is_measured] = measured.bound[position[is_measured]]
        return bounds


def _find_ancestors(geography: Geography, areas: Numbers, level: int, above: int) -> Numbers:
    """Return the area that contains each area of a level, at the level ``above``; the area itself if this is finer."""
    return geography.ancestors_at(level, above)[areas] if above < level else areas


def _evaluate_at_nodes(function: Callable[[Numbers, Numbers], Value] | None, level: FittedLevel) -> Value | None:
    """Return the values of a function of pairs of areas at each node of a level; None without a function."""
    return None if function is None else function(level.nodes.origin, level.nodes.destination)


def _bound_and_estimate_dropped(level: FittedLevel) -> Reals:
    """Return what a level says of its dropped nodes, in the order of the last rows of sums; shape (3, nodes).

    The rows are each node's upper bound, or 0 if it was kept, and the two results of :func:`estimate_dropped_trips`.
    """
    bound_if_dropped = level.bound.astype(np.float64)
    bound_if_dropped[level.divided] = 0
    return np.array([bound_if_dropped, *estimate_dropped_trips(level)])


def _select_block(levels: Sequence[FittedLevel], first: int, last: int) -> list[FittedLevel]:
    """Return consecutive levels with only the nodes below the divided nodes ``first:last`` of the level above them."""
    selected = []
    for level in levels:
        selected.append(level.select_children(first, last))
        # The next level has the children of the divided ones among these children.
        first, last = np.searchsorted(level.divided, level.offsets[[first, last]]).tolist()
    return selected


def _iterate_blocks(levels: Sequence[FittedLevel]) -> Iterator[tuple[int, int]]:
    """Return an iterator of consecutive ranges of divided nodes of the level above some consecutive levels.

    A range has about ``_BLOCK`` nodes of the last of these levels below it, and is its first number and its end.
    """
    ends = levels[0].offsets  # the nodes of the level at hand below divided node d are ends[d]:ends[d + 1]
    for above, level in pairwise(levels):
        ends = level.offsets[np.searchsorted(above.divided, ends)]
    starts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1], _BLOCK), side="right")) - 1
    return pairwise([*starts.tolist(), len(ends) - 1])


def find_pairs(origins: Numbers, destinations: Numbers, origin: Numbers, destination: Numbers, width: int) -> Integers:
    """Return the position of each pair (``origin``, ``destination``) in a list of pairs, or -1 if it is absent.

    The list is ``origins`` and ``destinations``, in any order. All are area numbers, below ``width`` for destinations.
    """
    if origin is origins and destination is destinations:  # each pair is found where it is
        return np.arange(len(origin))
    codes = origins.astype(np.int64) * width + destinations
    wanted_codes = origin.astype(np.int64) * width + destination
    order = np.argsort(codes, kind="stable")
    codes = np.append(codes[order], -1)  # a pair after the last one is compared with -1
    found = np.searchsorted(codes[:-1], wanted_codes)
    return np.where(codes[found] == wanted_codes, np.append(order, -1)[found], -1)


def _select_side_areas(level: FittedLevel, side: int) -> Numbers:
    """Return the areas of the nodes of a level on one side: 0 for origins, 1 for destinations."""
    return level.nodes.destination if side else level.nodes.origin
