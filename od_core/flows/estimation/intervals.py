"""Compute a 90 % interval for every published cell from the published measurements, at no privacy cost.

The least-squares estimate of a cell is unbiased and nearly normal. So its interval holds the true number of counted
trips with the stated probability whatever that number is, also where it is small and released as 0. Cells at pairs of
levels that are not in the flow tree are sums of its nodes, as are the sums over areas that a user chooses.

Nothing was measured below a node that the top-down pass dropped. The upper bound of a cell there is that of its nearest
measured ancestor. A sum that overlaps such nodes may contain none of their trips, or all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.least_squares import FittedLevel, Positions, Reals, least_squares
from od_core.flows.estimation.node_sums import NodeSums, dropped_trips
from od_core.flows.estimation.top_down import Measurement
from od_core.flows.plan import ReleasePlan
from od_core.geography.geography import Numbers
from od_core.parallel import in_order
from od_core.publication.columns import MOST_LISTED

Counts = NDArray[np.int64]


MOST_MEASURED = 50_000_000
"""Largest number of cells of a measured level for which intervals are made: all levels are held in memory."""

_DEVIATIONS = 1.6448536269514722
"""Standard deviations on either side that hold nine tenths of a normal variable."""

_BLOCK = 1 << 20
"""Nodes that one thread sums at a time."""

_TOLERANCE = 1e-9
"""Fraction of an estimate by which floating-point rounding may change it; intervals are that much wider."""

_MOST_TOLERANCE = 0.25
"""Largest tolerance, in trips, so that the interval of a number that is known exactly holds that number alone."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Intervals of some cells of a pair of levels; shape (cells,) each.

    Attributes:
        origin, destination: Area numbers.
        lower, upper: Whole numbers of at least 0.
    """

    origin: Numbers
    destination: Numbers
    lower: Counts
    upper: Counts


class Intervals:
    """The intervals of one release, each computed on request.

    Args:
        plan: The plan of the release.
        total: The sum of the leaves; n, where that is an invariant.
        measured: The measurements of the release, top first.

    Raises:
        OdError: As :func:`refuse_without_intervals`.
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
        """Return released cells with their bounds: origin, destination, trips, lower, upper; lower <= trips <= upper.

        If the two levels have at most ``MOST_LISTED`` public pairs, the result also has all others, released as 0.

        Args:
            origin_level, destination_level: Numbers of the levels.
            origin, destination, trips: All pairs that are not 0, by origin and then destination; shape (pairs,) each.
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
        """Return the largest upper bound of the cells of a pair of levels that are released as 0: all but the given."""
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
        """Return the lower and upper bounds of any cells of a pair of levels; shape (cells,) each."""
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
        """Return the intervals of the cells of a pair of levels, except cells below nodes dropped further up."""
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
        """Return the lower and upper bound of the trips from some zones to some zones.

        Args:
            origins, destinations: Masks of the zones to sum over; shape (zones,) each.
        """
        inside = [np.concatenate([[0], np.cumsum(zones)]) for zones in (origins, destinations)]
        sums = self._selected(len(self._levels) - 1, inside)
        for k in range(len(self._levels) - 1, 0, -1):
            below = sums.carried(self._levels[k], np.zeros(len(self._levels[k].nodes), dtype=np.int64))
            sums = self._selected(k - 1, inside, below)
        lower, upper = _bounds_of(sums, self._levels[0].variance)
        return int(lower[0]), int(upper[0])

    def _selected(self, k: int, inside: Sequence[Positions], below: NodeSums | None = None) -> NodeSums:
        """Return the sums over the selected zones below each node of a level.

        A node whose zones are all selected stands for its branch.

        Args:
            k: Position of the level.
            inside: See :meth:`_overlap`.
            below: The sums below the level's divided nodes.
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
        """Return the positions of the finest measured level above a pair of levels, and of the level it sums over."""
        pairs = [self._tree.level_pair(level) for level in range(self._tree.depth + 1)]
        above = max(k for k, (o, d) in enumerate(pairs) if o <= origin_level and d <= destination_level)
        below = min(k for k, (o, d) in enumerate(pairs) if o >= origin_level and d >= destination_level)
        numbers = [level.nodes.level for level in self._levels]
        return bisect_left(numbers, above), bisect_left(numbers, below)

    def _sums(self, hub: int, finest: int, apart: int, apart_level: int) -> NodeSums:
        """Return sums of the nodes of a level below each divided node of a level above.

        The last two levels are summed in blocks of nodes, since they have the most cells and give few sums.

        Args:
            hub, finest: Positions of the level above and of the level of the nodes.
            apart: The side that is not summed over: 0 for origins, 1 for destinations.
            apart_level: Level of that side.
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
        """Return sums carried up through some levels.

        Args:
            sums: Sums of the nodes of the last level or, if ``summed``, of those below its divided nodes.
            levels: The levels, top first.
            apart, apart_level: See :meth:`_sums`.
            summed: See ``sums``.
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
        """Return the nodes of a level, as sums of one node each.

        Where nodes were dropped, the kept ones were selected by their noise. Only what was drawn below them afterwards
        is unbiased.
        """
        fitted = self._nothing_dropped or level.noise == 0
        return NodeSums.of_fitted(level, meant) if fitted else NodeSums.of_noisy(level, meant)

    def _first_areas(self, level: FittedLevel, side: int, apart_level: int) -> Positions:
        """Return the number of the first area of ``apart_level`` below each area of a measured level, on one side.

        One entry more than areas.
        """
        geography = (self._tree.origin, self._tree.destination)[side]
        above = min(apart_level, self._tree.level_pair(level.nodes.level)[side])
        return np.searchsorted(geography.first_zone[apart_level], geography.first_zone[above])

    def _overlap(self, k: int, inside: Sequence[Positions]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return masks of the nodes of a level of which all pairs of zones are selected, and of which some are.

        Args:
            k: Position of the level.
            inside: Number of selected zones before each zone, for origins and destinations; shape (zones + 1,) each.
        """
        level = self._levels[k]
        whole, some = np.ones((2, len(level.nodes)), dtype=np.bool_)
        for side, geography in enumerate((self._tree.origin, self._tree.destination)):
            first = geography.first_zone[self._tree.level_pair(level.nodes.level)[side]]
            meant, zones = np.diff(inside[side][first])[_side(level, side)], np.diff(first)[_side(level, side)]
            whole, some = whole & (meant == zones), some & (meant > 0)
        return whole, some

    def _nearest_bound(self, levels: tuple[int, int], origin: Numbers, destination: Numbers) -> Counts:
        """Return the upper bound of the nearest measured ancestor of cells below which nothing was measured.

        Args:
            levels: Origin level and destination level of the cells.
            origin, destination: Area numbers of the cells; shape (cells,) each.
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
    """Refuse a release that cannot have intervals: one with a threshold, or with a level that does not fit the memory.

    Raises:
        OdError: If the mechanism has a threshold, or the largest measured level has more than ``MOST_MEASURED`` cells.
    """
    if plan.has_threshold:
        raise OdError(
            "OD-INTERVAL-MECHANISM",
            f"mechanism {plan.mechanism.name!r} has no intervals, because it does not measure the pairs below its"
            " threshold",
            next_step="request flows without intervals, or release with another mechanism",
        )
    if largest > MOST_MEASURED:
        raise OdError(
            "OD-INTERVAL-SIZE",
            f"a level has {largest:,} measured cells, but intervals are computed for at most {MOST_MEASURED:,}",
            next_step="request flows without intervals, or release coarser zones",
        )


def lower_bound(estimate: Reals, variance: Reals) -> Counts:
    """Return the lower ends of the intervals of unbiased estimates of counts with these variances; at least 0."""
    return np.maximum(np.ceil(estimate - _half_width(estimate, variance)), 0).astype(np.int64)


def upper_bound(estimate: Reals, variance: Reals) -> Counts:
    """Return the upper ends of the same intervals; at least 0."""
    return np.maximum(np.floor(estimate + _half_width(estimate, variance)), 0).astype(np.int64)


def _unseen(level: FittedLevel) -> tuple[Reals, Reals, Reals]:
    """Return, for every node of a level, the most trips that it adds if it was dropped, the mean, and its variance."""
    most = upper_bound(level.estimate, level.variance).astype(np.float64)
    most[level.divided] = 0
    return most, *dropped_trips(level)


def _blocks(levels: Sequence[FittedLevel]) -> Iterator[tuple[int, int]]:
    """Yield runs of parents of the first level, with about ``_BLOCK`` nodes of the last level below each run."""
    ends = levels[0].offsets
    for above, level in pairwise(levels):
        ends = level.offsets[np.searchsorted(above.divided, ends)]
    starts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1], _BLOCK), side="right")) - 1
    return pairwise([*starts.tolist(), len(ends) - 1])


def _bounds_of(sums: NodeSums, variance: Reals) -> tuple[Counts, Counts]:
    """Return the lower and upper bounds of sums below nodes of these variances.

    A sum may contain none or all of the trips of the dropped nodes that it overlaps. The lower bound omits them. The
    upper bound is the smaller of two: the upper bound without them plus the upper bound of each of them, or the upper
    bound of the sum that includes their mean trips together.
    """
    estimate, spread = sums.estimate, sums.variance(variance)
    most, unseen, doubt = sums.unseen
    alone = upper_bound(estimate, spread) + most.astype(np.int64)
    together = upper_bound(estimate + np.maximum(unseen, 0), spread + doubt)
    return lower_bound(estimate, spread), np.where(most > 0, np.minimum(alone, together), alone)


def _half_width(estimate: Reals, variance: Reals) -> Reals:
    """Return the half-width of the interval, wide enough for noise in steps of 1 or of 1/2.

    Steps of 1/2 occur for two areas that share a public total; a quarter more puts the end between two steps. The
    interval is at least 1 wide, so that it holds a whole number.
    """
    width = _DEVIATIONS * np.sqrt(variance)
    rounding = np.minimum(_TOLERANCE * (1 + np.abs(estimate)), _MOST_TOLERANCE)
    return np.maximum(np.maximum(width + 0.25, 0.5), np.ceil(width - 0.5)) + rounding


def find_pairs(
    origins: Numbers, destinations: Numbers, origin: Numbers, destination: Numbers, width: int
) -> NDArray[np.int64]:
    """Return the position of each pair among some pairs, or -1 if it is not among them.

    Args:
        origins, destinations: The pairs to search.
        origin, destination: The pairs to find.
        width: Number of destinations.
    """
    known, asked = (o.astype(np.int64) * width + d for o, d in ((origins, destinations), (origin, destination)))
    order = np.argsort(known, kind="stable")
    known = np.append(known[order], -1)  # a pair beyond the last one matches nothing
    place = np.searchsorted(known[:-1], asked)
    return np.where(known[place] == asked, np.append(order, -1)[place], -1)


def _side(level: FittedLevel, side: int) -> Numbers:
    return level.nodes.destination if side else level.nodes.origin
