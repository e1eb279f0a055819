"""Compute a 90 % interval for every published cell from the published measurements, at no privacy cost.

The least-squares estimate of a cell is unbiased and nearly normal. So its interval contains the true number of counted
trips with the stated probability, whatever that number is, even if it is small and released as 0. Cells at pairs of
levels that are not in the flow tree are sums of nodes of the tree. So are the flows between sets of areas that a user
chooses.

Nothing was measured below a node that the top-down pass dropped. A cell below such a node has the upper bound of its
nearest measured ancestor. A sum that overlaps dropped nodes may contain any number of their trips, from none to all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.confidence import lower_bound, upper_bound
from od_core.flows.estimation.least_squares import FittedLevel, Positions, Reals, least_squares
from od_core.flows.estimation.node_sums import NodeSums, dropped_trips
from od_core.flows.estimation.top_down import Measurement
from od_core.flows.plan import ReleasePlan
from od_core.geography.geography import Numbers
from od_core.parallel import in_order
from od_core.publication.columns import MOST_LISTED

Counts = NDArray[np.int64]


MOST_MEASURED = 50_000_000
"""Largest number of measured cells of a level for which intervals are computed, since all levels must fit in memory."""

_BLOCK = 1 << 20
"""Approximate number of nodes that one thread sums at a time."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Intervals of some cells of a pair of levels; shape (cells,) each.

    Attributes:
        origin, destination: Area numbers of the cells.
        lower, upper: Ends of the intervals, whole numbers of at least 0.
    """

    origin: Numbers
    destination: Numbers
    lower: Counts
    upper: Counts


class Intervals:
    """The 90 % intervals of the flows of one release, computed on request.

    Args:
        total: The sum of the released leaves. Used only if the total is an invariant.
        measured: The measurements of the release, top level first.

    Raises:
        OdError: As in :func:`refuse_without_intervals`.
    """

    def __init__(self, plan: ReleasePlan, total: int, measured: Sequence[Measurement]) -> None:
        refuse_without_intervals(plan, max(len(m.noisy) for m in measured))
        self._tree = plan.tree
        self._levels = least_squares(plan, total, measured)
        self._nothing_dropped = all(len(level.divided) == len(level.nodes) for level in self._levels[:-1])
        self._bounds = [upper_bound(level.estimate, level.variance) for level in self._levels]

    def around(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers, trips: Counts
    ) -> tuple[Numbers, Numbers, Counts, Counts, Counts]:
        """Return the released cells of a pair of levels with their intervals.

        If the two levels have at most ``MOST_LISTED`` public pairs, the result has all of these pairs. Otherwise, it
        has the given cells only.

        Args:
            origin_level, destination_level: Numbers of the levels.
            origin, destination, trips: All released cells that are not 0, sorted by origin and then destination; shape
                (cells,) each.

        Returns:
            Origin, destination (area numbers), trips, lower bound and upper bound; shape (listed cells,) each. The
            interval always contains the released trips.
        """
        width = self._tree.destination.size(destination_level)
        pairs = self._tree.origin.size(origin_level) * width
        if pairs <= MOST_LISTED:
            every, listed = np.arange(pairs), np.zeros(pairs, dtype=np.int64)
            listed[origin.astype(np.int64) * width + destination] = trips
            origin, destination, trips = (every // width).astype(np.int32), (every % width).astype(np.int32), listed
        lower, upper = self.of_cells(origin_level, destination_level, origin, destination)
        return origin, destination, trips, np.minimum(lower, trips), np.maximum(upper, trips)

    def of_zeros(self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers) -> int:
        """Return the largest upper bound of the cells of a pair of levels that are released as 0.

        Args:
            origin_level, destination_level: Numbers of the levels.
            origin, destination: Area numbers of all released cells that are not 0; shape (cells,) each.
        """
        cells = self.at(origin_level, destination_level)
        width = self._tree.destination.size(destination_level)
        released = find_pairs(origin, destination, cells.origin, cells.destination, width) >= 0
        hub, finest = self._span(origin_level, destination_level)
        above = range(hub if hub == finest else hub + 1)
        dropped = [np.delete(self._bounds[k], self._levels[k].divided).max(initial=0) for k in above]
        return int(max([cells.upper[~released].max(initial=0), *dropped]))

    def of_cells(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers
    ) -> tuple[Counts, Counts]:
        """Return the lower and upper bounds of the given cells of a pair of levels; shape (cells,) each.

        Args:
            origin_level, destination_level: Numbers of the levels.
            origin, destination: Area numbers of the cells; shape (cells,) each.
        """
        cells = self.at(origin_level, destination_level)
        width = self._tree.destination.size(destination_level)
        place = find_pairs(cells.origin, cells.destination, origin, destination, width)
        found = place >= 0
        lower, upper = np.zeros(len(place), dtype=np.int64), np.zeros(len(place), dtype=np.int64)
        lower[found], upper[found] = cells.lower[place[found]], cells.upper[place[found]]
        if not found.all():
            below = origin[~found], destination[~found]
            upper[~found] = self._nearest_bound((origin_level, destination_level), *below)
        return lower, upper

    def at(self, origin_level: int, destination_level: int) -> Bounds:
        """Return the intervals of all cells of a pair of levels, which are given by their numbers.

        A cell below a node that the top-down pass dropped is left out.
        """
        hub, finest = self._span(origin_level, destination_level)
        level = self._levels[hub]
        if hub == finest:
            lower, upper = lower_bound(level.estimate, level.variance), self._bounds[hub]
            return Bounds(level.nodes.origin, level.nodes.destination, lower, upper)
        apart = 1 if origin_level < destination_level else 0
        apart_level = (origin_level, destination_level)[apart]
        sums = self._sums(hub, finest, apart, apart_level)
        count = np.diff(sums.offsets)
        same = np.repeat(_side(level, 1 - apart)[level.divided], count)
        first = self._first_areas(level, apart, apart_level)[_side(level, apart)[level.divided]]
        each = (np.arange(len(same)) + np.repeat(first - sums.offsets[:-1], count)).astype(np.int32)
        origin, destination = (each, same) if apart == 0 else (same, each)
        return Bounds(origin, destination, *_bounds_of(sums, level.variance[level.divided]))

    def of_sum(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> tuple[int, int]:
        """Return the lower and upper bound of the trips from one set of zones to another.

        Args:
            origins, destinations: Masks of the zones in each set; shape (zones,) each.
        """
        inside = [np.concatenate([[0], np.cumsum(zones)]) for zones in (origins, destinations)]
        sums = self._selected(len(self._levels) - 1, inside)
        for k in range(len(self._levels) - 1, 0, -1):
            below = sums.carried(self._levels[k], np.zeros(len(self._levels[k].nodes), dtype=np.int64))
            sums = self._selected(k - 1, inside, below)
        lower, upper = _bounds_of(sums, self._levels[0].variance)
        return int(lower[0]), int(upper[0])

    def _selected(self, k: int, inside: Sequence[Positions], below: NodeSums | None = None) -> NodeSums:
        """Return, for each node of a level, the sum over the selected zone pairs below it.

        If all zone pairs below a node are selected, the sum is the value of the node itself.

        Args:
            k: Position of the level in ``_levels``.
            inside: See :meth:`_overlap`.
            below: The sums over the children of each node of the level that has measured children; None at the last
                level.
        """
        level = self._levels[k]
        whole, some = self._overlap(k, inside)
        sums = self._single(level, whole)
        if below is None:
            return sums
        split = some & ~whole
        taken = split[level.divided]
        sums.values[:, level.divided[taken]] += below.values[:, taken]
        if self._nothing_dropped:
            return sums
        return sums.with_unseen(*(np.where(split, values, 0.0) for values in _unseen(level)))

    def _span(self, origin_level: int, destination_level: int) -> tuple[int, int]:
        """Return the positions in ``_levels`` of two levels of the flow tree that enclose a pair of levels.

        The first is the finest level whose nodes contain whole cells of the pair. The second is the coarsest level
        whose nodes are contained in such cells. If one of them was not measured, the next measured level below replaces
        it, because its nodes have the same trips.
        """
        pairs = [self._tree.level_pair(level) for level in range(self._tree.depth + 1)]
        above = max(k for k, (o, d) in enumerate(pairs) if o <= origin_level and d <= destination_level)
        below = min(k for k, (o, d) in enumerate(pairs) if o >= origin_level and d >= destination_level)
        numbers = [level.nodes.level for level in self._levels]
        return bisect_left(numbers, above), bisect_left(numbers, below)

    def _sums(self, hub: int, finest: int, apart: int, apart_level: int) -> NodeSums:
        """Return sums of the nodes of level ``finest`` below each divided node of level ``hub``.

        A divided node (a node with measured nodes below it) has one sum per area of ``apart_level`` on the side
        ``apart``. The last two levels are summed in blocks of nodes, since they have many cells and give few sums.

        Args:
            hub, finest: Positions of the two levels in ``_levels``.
            apart: The side that is not summed over: 0 for origins, 1 for destinations.
            apart_level: Number of the level of the areas on that side.
        """
        middle = max(hub, finest - 2)
        levels = self._levels[middle + 1 : finest + 1]

        def below(block: tuple[int, int]) -> NodeSums:
            first, last = block
            parts = []
            for level in levels:
                parts.append(level.below(first, last))
                first, last = np.searchsorted(level.divided, level.offsets[[first, last]]).tolist()
            return self._carried(self._single(parts[-1]), parts, apart, apart_level)

        sums = NodeSums.joined(in_order(below, _blocks(levels)))
        return self._carried(sums, self._levels[hub + 1 : middle + 1], apart, apart_level, summed=True)

    def _carried(
        self, sums: NodeSums, levels: Sequence[FittedLevel], apart: int, apart_level: int, *, summed: bool = False
    ) -> NodeSums:
        """Return the sums below each divided node of the level above ``levels``.

        Args:
            sums: One sum per node of the last of the levels or, if ``summed``, sums below each of its divided nodes.
            levels: Consecutive levels, top first. If there are none, ``sums`` is returned.
            apart, apart_level: See :meth:`_sums`.
            summed: Whether ``sums`` are sums below the divided nodes.
        """
        for level in reversed(levels):
            first = self._first_areas(level, apart, apart_level)
            if summed:
                sums = NodeSums.nothing(np.diff(first)[_side(level, apart)]).with_divided(level.divided, sums)
                if not self._nothing_dropped:
                    sums = sums.with_unseen(*_unseen(level))
            sums, summed = sums.carried(level, first[_side(level, apart)]), True
        return sums

    def _single(self, level: FittedLevel, meant: NDArray[np.bool_] | None = None) -> NodeSums:
        """Return one sum per node of a level; 0 for nodes that are not in the mask ``meant``.

        A sum is the least-squares estimate of its node if no node was dropped. If nodes were dropped, the others were
        selected by their noise, which biases their estimates. Then a sum is the noisy value of its node, which is
        unbiased because it was drawn after the nodes above had been selected.
        """
        fitted = self._nothing_dropped or level.noise == 0
        return NodeSums.of_fitted(level, meant) if fitted else NodeSums.of_noisy(level, meant)

    def _first_areas(self, level: FittedLevel, side: int, apart_level: int) -> Positions:
        """Return, for each area of a measured level on one side, the number of its first area of ``apart_level``.

        The last entry is the number of areas of ``apart_level``; shape (areas + 1,).
        """
        geography = (self._tree.origin, self._tree.destination)[side]
        above = min(apart_level, self._tree.level_pair(level.nodes.level)[side])
        return np.searchsorted(geography.first_zone[apart_level], geography.first_zone[above])

    def _overlap(self, k: int, inside: Sequence[Positions]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return two masks of a level's nodes: nodes with all zone pairs selected, and nodes with at least one.

        Args:
            k: Position of the level in ``_levels``.
            inside: For origins and for destinations, the number of selected zones before each zone, and of all selected
                zones at the end; shape (zones + 1,) each.
        """
        level = self._levels[k]
        whole, some = np.ones((2, len(level.nodes)), dtype=np.bool_)
        for side, geography in enumerate((self._tree.origin, self._tree.destination)):
            first = geography.first_zone[self._tree.level_pair(level.nodes.level)[side]]
            meant, zones = np.diff(inside[side][first])[_side(level, side)], np.diff(first)[_side(level, side)]
            whole, some = whole & (meant == zones), some & (meant > 0)
        return whole, some

    def _nearest_bound(self, levels: tuple[int, int], origin: Numbers, destination: Numbers) -> Counts:
        """Return the upper bound of the nearest measured ancestor of each cell; shape (cells,).

        Args:
            levels: Origin level and destination level of the cells.
            origin, destination: Area numbers of cells below dropped nodes; shape (cells,) each.
        """
        nearest = np.zeros(len(origin), dtype=np.int64)
        for k in range(self._span(*levels)[0] + 1):
            nodes, pair = self._levels[k].nodes, self._tree.level_pair(self._levels[k].nodes.level)
            o, d = (
                geography.ancestors_at(level, at)[areas] if at < level else areas
                for geography, level, at, areas in zip(
                    (self._tree.origin, self._tree.destination), levels, pair, (origin, destination), strict=True
                )
            )
            place = find_pairs(nodes.origin, nodes.destination, o, d, self._tree.destination.size(pair[1]))
            nearest[place >= 0] = self._bounds[k][place[place >= 0]]
        return nearest


def refuse_without_intervals(plan: ReleasePlan, largest: int) -> None:
    """Refuse a release that cannot have intervals.

    Args:
        largest: Largest number of measured cells of a level.

    Raises:
        OdError: If the mechanism has a threshold, or the largest measured level has more than ``MOST_MEASURED`` cells.
    """
    if plan.has_threshold:
        raise OdError(
            "OD-INTERVAL-MECHANISM",
            f"mechanism {plan.mechanism.name!r} has no intervals, because it releases nothing about the pairs below"
            " its threshold",
            next_step="request flows without intervals, or release with another mechanism",
        )
    if largest > MOST_MEASURED:
        raise OdError(
            "OD-INTERVAL-SIZE",
            f"a level has {largest:,} measured cells, but intervals are computed for at most {MOST_MEASURED:,}",
            next_step="request flows without intervals, or release coarser zones",
        )


def _unseen(level: FittedLevel) -> tuple[Reals, Reals, Reals]:
    """Return three values of each node that concern the trips of dropped nodes; shape (nodes,) each.

    They are the upper bound of the node's trips, or 0 if the node was not dropped; and the contributions to the
    estimate and to its variance from :func:`od_core.flows.estimation.node_sums.dropped_trips`.
    """
    most = upper_bound(level.estimate, level.variance).astype(np.float64)
    most[level.divided] = 0
    return most, *dropped_trips(level)


def _blocks(levels: Sequence[FittedLevel]) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges (first, last) of the nodes whose children are the nodes of the first level.

    Each range has about ``_BLOCK`` nodes of the last level below it. ``last`` is not included.
    """
    ends = levels[0].offsets
    for above, level in pairwise(levels):
        ends = level.offsets[np.searchsorted(above.divided, ends)]
    starts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1], _BLOCK), side="right")) - 1
    return pairwise([*starts.tolist(), len(ends) - 1])


def _bounds_of(sums: NodeSums, variance: Reals) -> tuple[Counts, Counts]:
    """Return the lower and upper bounds of sums; shape (sums,) each.

    A sum may contain any number of the trips of the dropped nodes that it overlaps. The lower bound assumes none. The
    upper bound is the smaller of two bounds: the upper bound of the sum without dropped nodes, plus the upper bound of
    each dropped node; and the upper bound of the sum plus the estimated trips of all dropped nodes together.

    ``variance`` has the variance of the estimate of each node that has sums; shape (nodes,).
    """
    estimate, spread = sums.estimate, sums.variance(variance)
    most, unseen, doubt = sums.unseen
    alone = upper_bound(estimate, spread) + most.astype(np.int64)
    together = upper_bound(estimate + np.maximum(unseen, 0), spread + doubt)
    return lower_bound(estimate, spread), np.where(most > 0, np.minimum(alone, together), alone)


def find_pairs(
    origins: Numbers, destinations: Numbers, origin: Numbers, destination: Numbers, width: int
) -> NDArray[np.int64]:
    """Return the position of each wanted pair in a list of pairs, or -1 if it is absent; shape (wanted pairs,).

    Args:
        origins, destinations: Area numbers of the pairs in the list, in any order.
        origin, destination: Area numbers of the wanted pairs.
        width: Number of destination areas of the level.
    """
    known, asked = (o.astype(np.int64) * width + d for o, d in ((origins, destinations), (origin, destination)))
    order = np.argsort(known, kind="stable")
    known = np.append(known[order], -1)  # a pair after the last one is compared with -1
    place = np.searchsorted(known[:-1], asked)
    return np.where(known[place] == asked, np.append(order, -1)[place], -1)


def _side(level: FittedLevel, side: int) -> Numbers:
    return level.nodes.destination if side else level.nodes.origin
