"""A 90 % interval for every published cell, from the published measurements alone: it costs no privacy.

The least-squares estimate of a cell is unbiased and about normal, so that its interval holds the true number of counted
trips with the stated probability whatever that number is: also where it is small, and released as 0. Cells at pairs of
levels that the flow tree does not have are sums of its nodes. The variance of a sum of nodes is carried up the tree:
with a sum's factor c_i at the children of a node, and r_i the variance that arose below them,

    r = sum r_i + c_i^2 v_i - (sum c_i v_i)^2 / S,   c = sum c_i v_i / S

at the node itself, up to the first node that all of the sum lies below: there the variance is r + c^2 V.

What lies below a node that the top-down pass dropped was not measured. A cell there is at most what its nearest
measured ancestor is at most, and a cell that such a node has a part in may be larger by as much.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from od_core.compiled import kernel
from od_core.errors import OdError
from od_core.estimation.least_squares import FittedLevel, Positions, Reals, least_squares
from od_core.estimation.top_down import Measurement
from od_core.geography import Numbers
from od_core.plan import ReleasePlan

Counts = NDArray[np.int64]

CONFIDENCE = Fraction(9, 10)
"""Probability with which an interval holds the true number of counted trips."""

MOST_LISTED = 5_000_000
"""Public pairs of a pair of levels up to which every one is listed with its interval, those of 0 trips included."""

MOST_MEASURED = 50_000_000
"""Cells of the largest measured level up to which intervals are made: all levels are held in memory."""

_DEVIATIONS = 1.6448536269514722
"""Standard deviations of a normal variable on either side that hold nine tenths of it."""

_TOLERANCE = 1e-9
"""Part of an estimate that rounding of floats may have taken or added: intervals are that much wider."""


_NOTHING_UNSEEN = np.zeros(1)


@dataclass(frozen=True, eq=False)
class Bounds:
    """Intervals of some cells of a pair of levels; shape (cells,) each.

    Attributes:
        origin, destination: area numbers.
        lower, upper: whole numbers of at least 0.
    """

    origin: Numbers
    destination: Numbers
    lower: Counts
    upper: Counts


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of nodes below each of some nodes, apart for every area of the side that is not summed over.

    Attributes:
        offsets: those of node ``i`` are ``offsets[i]:offsets[i + 1]``, in the order of the areas.
        factor: c, how far a sum follows the estimate of the node.
        residual: r, its variance beside that.
        estimate: the sum of the estimates of its nodes.
        unseen: what nodes that were dropped may add at most.
    """

    offsets: Positions
    factor: Reals
    residual: Reals
    estimate: Reals
    unseen: Reals

    @classmethod
    def of_nodes(cls, estimate: Reals, meant: NDArray[np.bool_], unseen: Reals) -> _Sums:
        """Each node by itself, or nothing of it."""
        offsets = np.arange(len(meant) + 1)
        return cls(offsets, meant.astype(np.float64), np.zeros(len(meant)), estimate * 1.0, unseen * 1.0)

    @classmethod
    def unseen_below(cls, bounds: Counts, areas: Positions) -> _Sums:
        """Of nodes below which nothing was measured: in each of so many areas as much as the whole node may have."""
        offsets = np.concatenate([[0], np.cumsum(areas)])
        nothing = np.zeros(offsets[-1])
        return cls(offsets, nothing, nothing.copy(), nothing.copy(), np.repeat(bounds.astype(np.float64), areas))

    def with_divided(self, divided: Positions, theirs: _Sums) -> _Sums:
        """The same, but for the nodes that were divided: of those, the sums of what lies below them."""
        steps = np.zeros(len(self.factor) + 1, dtype=np.int64)
        steps[self.offsets[divided]] += 1
        steps[self.offsets[divided + 1]] -= 1
        at = np.cumsum(steps[:-1]) > 0
        for mine, other in zip(self._values, theirs._values, strict=True):
            mine[at] = other
        return self

    def carried(self, level: FittedLevel, area: Positions) -> _Sums:
        """Sums over the children of each divided node of the level above.

        Args:
            level: the nodes.
            area: number of the first area of each node's sums.
        """
        first, last = level.offsets[:-1], level.offsets[1:] - 1
        begin, end = area[first], area[last] + np.diff(self.offsets)[last]
        own = np.concatenate([[0], np.cumsum(end - begin)])
        start = area - np.repeat(begin, np.diff(level.offsets))
        above = np.zeros((4, own[-1]))
        _carry(level.offsets, level.below, level.siblings, self.offsets, start, own, *self._values, above)
        return _Sums(own, *above)

    @property
    def _values(self) -> tuple[Reals, Reals, Reals, Reals]:
        return self.factor, self.residual, self.estimate, self.unseen


class Intervals:
    """The intervals of one release, each made when it is asked for.

    Args:
        plan: the plan of the release.
        total: the sum of its leaves; n, where that is an invariant.
        measured: its measurements, top first.

    Raises:
        OdError: as :func:`refuse_without_intervals`.
    """

    def __init__(self, plan: ReleasePlan, total: int, measured: Sequence[Measurement]) -> None:
        refuse_without_intervals(plan, max(len(m.noisy) for m in measured))
        self._tree = plan.tree
        self._levels = least_squares(plan, total, measured)
        self._bounds = [upper_bound(level.estimate, level.variance) for level in self._levels]

    def around(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers, trips: Counts
    ) -> tuple[Numbers, Numbers, Counts, Counts, Counts]:
        """Released cells with their bounds: origin, destination, trips, lower, upper; lower <= trips <= upper.

        With every other public pair of the two levels, released as 0, up to ``MOST_LISTED`` of them.

        Args:
            origin_level, destination_level: numbers of the levels.
            origin, destination, trips: all pairs that are not 0, by origin and then destination; shape (pairs,) each.
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
        """The largest upper bound of a cell of a pair of levels other than those given, which are released as 0."""
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
        """Lower and upper bound of any cells of a pair of levels; shape (cells,) each."""
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
        """Intervals of the cells of a pair of levels, but for those below nodes that were dropped further up."""
        hub, finest = self._span(origin_level, destination_level)
        level = self._levels[hub]
        if hub == finest:
            nodes, estimate, variance, unseen = level.nodes, level.estimate, level.variance, _NOTHING_UNSEEN
            origin, destination = nodes.origin, nodes.destination
        else:
            apart = 1 if origin_level < destination_level else 0
            apart_level = (origin_level, destination_level)[apart]
            sums = self._sums(hub, finest, apart, apart_level)
            count = np.diff(sums.offsets)
            variance = sums.residual + sums.factor**2 * np.repeat(level.variance[level.divided], count)
            estimate, unseen = sums.estimate, sums.unseen
            same = np.repeat(_side(level, 1 - apart)[level.divided], count)
            first = self._first_areas(hub, apart, apart_level)[_side(level, apart)[level.divided]]
            each = (np.arange(len(same)) + np.repeat(first - sums.offsets[:-1], count)).astype(np.int32)
            origin, destination = (each, same) if apart == 0 else (same, each)
        return Bounds(origin, destination, lower_bound(estimate, variance), upper_bound(estimate, variance, unseen))

    def of_sum(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> tuple[int, int]:
        """Lower and upper bound of the trips from some zones to some zones.

        Args:
            origins, destinations: which zones are meant; shape (zones,) each.
        """
        inside = [np.concatenate([[0], np.cumsum(zones)]) for zones in (origins, destinations)]
        sums: _Sums | None = None
        for k in range(len(self._levels) - 1, -1, -1):
            level = self._levels[k]
            whole, some = self._overlap(k, inside)
            cells = _Sums.of_nodes(whole * level.estimate, whole, np.where(some & ~whole, self._bounds[k], 0))
            if sums is not None:
                cells = cells.with_divided(level.divided, sums)
            sums = cells if k == 0 else cells.carried(level, np.zeros(len(level.nodes), dtype=np.int64))
        if sums is None:
            raise _no_levels()
        variance = sums.residual + sums.factor**2 * self._levels[0].variance
        lower, upper = lower_bound(sums.estimate, variance), upper_bound(sums.estimate, variance, sums.unseen)
        return int(lower[0]), int(upper[0])

    def _span(self, origin_level: int, destination_level: int) -> tuple[int, int]:
        """The finest measured level that cells of a pair of levels lie below, and the one that they are sums of."""
        pairs = [self._tree.level_pair(level) for level in range(self._tree.depth + 1)]
        above = max(k for k, (o, d) in enumerate(pairs) if o <= origin_level and d <= destination_level)
        below = min(k for k, (o, d) in enumerate(pairs) if o >= origin_level and d >= destination_level)
        numbers = [level.nodes.level for level in self._levels]
        return bisect_left(numbers, above), bisect_left(numbers, below)

    def _sums(self, hub: int, finest: int, apart: int, apart_level: int) -> _Sums:
        """Sums of the nodes of a level below each divided node of a level above.

        Args:
            hub, finest: the level above, and the level of the nodes.
            apart: the side that is not summed over, 0 for origins.
            apart_level: its level.
        """
        level = self._levels[finest]
        nodes = len(level.nodes)
        sums = _Sums.of_nodes(level.estimate, np.ones(nodes, dtype=np.bool_), np.zeros(nodes))
        for k in range(finest, hub, -1):
            level, first = self._levels[k], self._first_areas(k, apart, apart_level)
            if k < finest:
                areas = np.diff(first)[_side(level, apart)]
                sums = _Sums.unseen_below(self._bounds[k], areas).with_divided(level.divided, sums)
            sums = sums.carried(level, first[_side(level, apart)])
        return sums

    def _first_areas(self, k: int, side: int, level: int) -> Positions:
        """Where the areas of a level of one side begin below each area of a measured level; one more than these."""
        geography = (self._tree.origin, self._tree.destination)[side]
        above = min(level, self._tree.level_pair(self._levels[k].nodes.level)[side])
        return np.searchsorted(geography.first_zone[level], geography.first_zone[above])

    def _overlap(self, k: int, inside: Sequence[Positions]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which nodes of a level lie between the zones that are meant: with all of their pairs, with some."""
        level = self._levels[k]
        whole, some = np.ones((2, len(level.nodes)), dtype=np.bool_)
        for side, geography in enumerate((self._tree.origin, self._tree.destination)):
            first = geography.first_zone[self._tree.level_pair(level.nodes.level)[side]]
            meant, zones = np.diff(inside[side][first])[_side(level, side)], np.diff(first)[_side(level, side)]
            whole, some = whole & (meant == zones), some & (meant > 0)
        return whole, some

    def _nearest_bound(self, levels: tuple[int, int], origin: Numbers, destination: Numbers) -> Counts:
        """Upper bound of the nearest measured node above cells of two levels below which nothing was measured."""
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
    """Intervals need levels that were measured whatever their counts, and that fit the memory. Raises OdError."""
    if plan.has_threshold:
        raise OdError(
            "OD-INTERVAL-MECHANISM",
            f"mechanism {plan.mechanism.name!r} has no intervals: it says nothing of the pairs below its threshold",
            next_step="ask for flows without intervals, or release with another mechanism",
        )
    if largest > MOST_MEASURED:
        raise OdError(
            "OD-INTERVAL-SIZE",
            f"a level has {largest:,} measured cells, and intervals are made for at most {MOST_MEASURED:,}",
            next_step="ask for flows without intervals, or release coarser zones",
        )


def lower_bound(estimate: Reals, variance: Reals) -> Counts:
    """Lower end of the interval of unbiased estimates of counts, each with its variance; at least 0."""
    return np.maximum(np.ceil(estimate - _half_width(estimate, variance)), 0).astype(np.int64)


def upper_bound(estimate: Reals, variance: Reals, unseen: Reals = _NOTHING_UNSEEN) -> Counts:
    """Upper end, at least 0; with what may come on top of it unseen."""
    return (np.maximum(np.floor(estimate + _half_width(estimate, variance)), 0) + unseen).astype(np.int64)


def _half_width(estimate: Reals, variance: Reals) -> Reals:
    """Deviations to either side; enough for whole numbers, too, that the noise reaches by steps of 1."""
    width = _DEVIATIONS * np.sqrt(variance)
    return np.maximum(width, np.ceil(width - 0.5)) + _TOLERANCE * (1 + np.abs(estimate))


def find_pairs(
    origins: Numbers, destinations: Numbers, origin: Numbers, destination: Numbers, width: int
) -> NDArray[np.int64]:
    """Position of each pair among some pairs, -1 where it is none of them; ``width`` is the number of destinations."""
    known, asked = (o.astype(np.int64) * width + d for o, d in ((origins, destinations), (origin, destination)))
    order = np.argsort(known, kind="stable")
    known = np.append(known[order], -1)  # what is asked for behind the last meets no pair
    place = np.searchsorted(known[:-1], asked)
    return np.where(known[place] == asked, np.append(order, -1)[place], -1)


def _side(level: FittedLevel, side: int) -> Numbers:
    return level.nodes.destination if side else level.nodes.origin


def _no_levels() -> OdError:
    return OdError("OD-INTERVAL-EMPTY", "nothing was measured", next_step="report this defect")


@kernel
def _carry(offsets, below, siblings, cells, start, own, factor, residual, estimate, unseen, above):  # type: ignore[no-untyped-def]  # compiled
    """Sums of the children of every node, cell by cell: its factor, residual, estimate and unseen part.

    ``above`` has a row for each of these; the cells of child ``i`` are ``cells[i]:cells[i + 1]``, of which the first
    is number ``start[i]`` among those of its parent ``p``, which are ``own[p]:own[p + 1]``.
    """
    for parent in range(len(siblings)):
        for child in range(offsets[parent], offsets[parent + 1]):
            v = below[child]
            to = own[parent] + start[child]
            for cell in range(cells[child], cells[child + 1]):
                above[0, to] += factor[cell] * v
                above[1, to] += residual[cell] + factor[cell] * factor[cell] * v
                above[2, to] += estimate[cell]
                above[3, to] += unseen[cell]
                to += 1
        for to in range(own[parent], own[parent + 1]):
            follows = above[0, to]
            above[0, to] = follows / siblings[parent]
            above[1, to] = max(0.0, above[1, to] - follows * above[0, to])
