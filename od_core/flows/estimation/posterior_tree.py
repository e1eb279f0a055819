"""Draw whole flow trees from their distribution given all noisy measurements, under a model of how trips divide.

Before anything is measured, the trips of the children of a node with n trips are independent, with the distributions of
:mod:`od_core.flows.estimation.size_distribution`, given that their sum is n. The noise of all measurements is
independent. So the probability of what was measured at and below a node, given its n trips, is

    U(n) = L(n) * (A_1 * ... * A_k)(n) / (g_1 * ... * g_k)(n),   A_i(n) = g_i(n) U_i(n),

where L(n) is the probability of its own noisy value, g_i is the distribution of child i, and the stars between
distributions are convolutions. For a node without measured children, U = L. The upward pass computes A of all nodes,
and the downward pass draws the root, and then divides the trips of each node among its children
[pearl1988reasoning, section 4.3]. Draws are integers of at least 0, and the children of each node sum to its trips.

The draws have exactly the distribution of the model, but for the rounding of real numbers and two approximations.
Noise beyond 9.2 standard deviations is not considered, nor is what is 1e-18 as probable as the most probable. And where
a node has so many trips that g_1 * ... * g_k would have more than 640 values, it is computed on a grid.

A node that the release dropped has no measurements below it. Its trips are given to pairs of zones below it one by one,
in proportion to the released trips of the origin and of the destination, plus 1.

Where the noise of every level has a standard deviation of 32 trips or more, all this is computed in units of about a
sixteenth of it: numbers of trips are multiples of a unit, so that the time does not grow with the noise. What an exact
total has beyond such a multiple is added to the largest flow.

Draws are a function of published values. All real numbers come from single operations of IEEE 754, one after the other,
and random numbers from a counter, so the draws are the same on every machine and for any number of threads, and draw
number k does not depend on how many are made.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.families import families_of, gravity_shares, trips_of_nodes
from od_core.flows.estimation.least_squares import FittedLevel
from od_core.flows.estimation.node_posteriors import (
    Known,
    above_children,
    draw_children,
    draw_one,
    known_of,
    normal_density,
    rise,
    with_trips,
    without_children,
)
from od_core.flows.estimation.random_counter import Counter, write_random
from od_core.flows.estimation.shrinkage import blended
from od_core.flows.estimation.size_distribution import SizeDistribution, size_distribution, unknown_sizes
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.geography.geography import Geography, Numbers
from od_core.parallel import in_order

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]
_Result = TypeVar("_Result")

DRAWING_BYTES = 1_000
"""Bytes of memory that draws need for each measured leaf. Measured: 899, 684 and 434, for 52,000, 189,000 and 3.7
million leaves."""

_MOST_VALUES = 50_000_000
"""Largest number of nodes with trips that are drawn at once, over all draws: 12 bytes each."""

_UNITS = 16
"""Smallest number of units in a standard deviation of the noise, unless a unit is one trip."""

_LEAST_TOTAL = 1_000
"""Smallest number of units of an exact total, unless a unit is one trip."""

_PIECES = 64
"""Number of pieces in which the families of a level are processed."""


class _Drawn(NamedTuple):
    """Some consecutive nodes of a level in several draws, in units.

    Attributes:
        totals: Trips of those with measured children; shape (draws, divided nodes).
        ends: The values ``ends[k]:ends[k + 1]`` of the next arrays are those of draw ``k``; shape (draws + 1,).
        node: The nodes without measured children that have trips, in order.
        trips: Their trips.
    """

    totals: _Values
    ends: _Values
    node: Numbers
    trips: _Values


@dataclass(frozen=True, eq=False)
class PosteriorTree:
    """The distribution of a flow tree given its measurements.

    Attributes:
        plan: The plan of the release.
        levels: All levels with their least-squares estimates, top level first.
        leaves: The released leaves, in tree order.
    """

    plan: ReleasePlan
    levels: Sequence[FittedLevel]
    leaves: Nodes

    def draws(self, number: int) -> Iterator[Nodes]:
        """Yield the leaves of each draw, in tree order.

        Raises:
            OdError: If the measurements contradict an exact total.
        """
        for begin in range(0, number, self._at_once):
            end = min(begin + self._at_once, number)
            yield from in_order(partial(self._leaves, begin, self._drawn(begin, end)), range(end - begin))

    @cached_property
    def _at_once(self) -> int:
        """How many tables are drawn at once, so that neither they nor a piece of a level needs much memory."""
        expected = math.ceil(sum(with_trips(known) for known in self._known))
        pieces = [level.offsets[_edges(len(level.offsets) - 1)] for level in self.levels[1:]]
        return max(1, _MOST_VALUES // max([1, expected, *(int(np.diff(each).max()) for each in pieces)]))

    @cached_property
    def unit(self) -> int:
        """Number of trips of a unit, of which all drawn numbers of trips are multiples."""
        root = self.levels[0]
        narrowest = min((level.noise for level in self.levels if 0 < level.noise < math.inf), default=0.0)
        unit = max(1, int(math.sqrt(narrowest)) // _UNITS)
        return min(unit, max(1, int(root.noisy[0]) // _LEAST_TOTAL)) if root.noise == 0 else unit

    @cached_property
    def _nodes(self) -> int:
        """Number of nodes of all levels."""
        return sum(len(level.nodes) for level in self.levels)

    @cached_property
    def _key(self) -> np.uint64:
        """Number from which all random numbers are computed. It depends on the measurements."""
        return _key_of(*(level.noisy.astype("<f8").tobytes() for level in self.levels))

    @cached_property
    def _known(self) -> list[Known]:
        """What is known of each level below the root, top level first, with A of all nodes."""
        known: list[Known] = []
        for at, distribution in reversed(list(enumerate(self._distributions(), start=1))):
            level = self.levels[at]
            own = known_of(level, distribution, self.unit, is_leaf=not known)
            if known:
                families = self.levels[at + 1].offsets
                _in_pieces(len(level.divided), partial(rise, own, level.divided, families, known[0]))
            known.insert(0, own)
        return known

    def _distributions(self) -> list[SizeDistribution]:
        """Return the distributions g of the nodes of each level below the root."""
        families = list(families_of(self.plan, self.levels))
        shares, tree = [gravity_shares(each) for each in families], self.plan.tree
        if tree.origin.digest == tree.destination.digest and len(self.leaves):
            shares = blended(families, shares, trips_of_nodes(self.plan, self.levels, self.leaves, opposite=True))
        return [size_distribution(*each) for each in zip(self.levels[1:], families, shares, strict=True)]

    def _drawn(self, begin: int, end: int) -> list[list[_Drawn]]:
        """Return the pieces of each level in the draws ``begin:end``."""
        root = self.levels[0]
        levels, counter = [[_drawn(self._root(begin, end), root.divided)]], Counter(self._key, begin, self._nodes, 1)
        for (above, level), known in zip(pairwise(self.levels), self._known, strict=True):
            totals = np.concatenate([piece.totals for piece in levels[-1]], axis=1)
            parent = above.noisy[above.divided].astype(np.int64), normal_density(above.noise)
            pieces = _in_pieces(len(above.divided), partial(_draw, level, known, parent, totals, counter))
            levels.append(pieces)
            counter = counter._replace(offset=counter.offset + len(level.nodes))
        return levels

    def _root(self, begin: int, end: int) -> _Values:
        """Return the units of the root in the draws ``begin:end``; shape (draws, 1)."""
        root = self.levels[0]
        noisy = int(root.noisy[0])
        if root.noise == 0:
            return np.full((end - begin, 1), (max(noisy, 0) + self.unit // 2) // self.unit)
        if not len(root.divided):
            low, values = without_children(known_of(root, unknown_sizes(1), self.unit, is_leaf=True), 0)
        else:
            noise = normal_density(root.noise)
            low, values = above_children(noisy, noise, self._known[0], 0, len(self.levels[1].nodes))
        trips = np.empty((end - begin, 1), dtype=np.int64)
        draw_one(low, values, Counter(self._key, begin, self._nodes, 0), trips)
        return trips

    def _leaves(self, begin: int, drawn: Sequence[Sequence[_Drawn]], k: int) -> Nodes:
        """Return the leaves of draw ``begin + k``, number ``k`` of the drawn ones."""
        tree, measured = self.plan.tree, self.levels[-1].nodes
        *above, (leaf, trips) = [_of_draw(pieces, k) for pieces in drawn]
        dropped = [self._below(begin + k, level, *own) for level, own in zip(self.levels[:-1], above, strict=True)]
        origin = np.concatenate([measured.origin[leaf], *(pairs.origin for pairs in dropped)])
        destination = np.concatenate([measured.destination[leaf], *(pairs.destination for pairs in dropped)])
        number = np.concatenate([trips * self.unit, *(np.ones(len(pairs), dtype=np.int64) for pairs in dropped)])
        leaves = tree.summed_leaves(origin, destination, number)
        if self.levels[0].noise == 0 and len(leaves):
            leaves.trips[np.argmax(leaves.trips)] += int(self.levels[0].noisy[0]) - leaves.trips.sum()
        return leaves

    def _below(self, draw: int, level: FittedLevel, node: Numbers, trips: _Values) -> Pairs:
        """Return a pair of zones for each trip of some nodes of a level, which have no measured children."""
        tree, nodes = self.plan.tree, np.repeat(node, trips * self.unit)
        ends = []
        sides = (tree.origin, level.nodes.origin), (tree.destination, level.nodes.destination)
        for side, ((geography, areas), at) in enumerate(zip(sides, tree.level_pair(level.nodes.level), strict=True)):
            counter = Counter(_key_of(f"{self._key} {draw} {level.nodes.level} {side}".encode()), 0, 1, 0)
            ends.append(_zones(geography, at, areas[nodes], self._weights[side], counter))
        return Pairs(tree.depth, *ends)

    @cached_property
    def _weights(self) -> tuple[_Values, _Values]:
        """Released trips from and to each zone, plus 1; shape (zones,) each."""
        sides = (self.plan.tree.origin, self.leaves.origin), (self.plan.tree.destination, self.leaves.destination)
        each = [np.ones(len(geography.zones), dtype=np.int64) for geography, _ in sides]
        for (_, zones), weights in zip(sides, each, strict=True):
            np.add.at(weights, zones, np.maximum(self.leaves.trips, 0))
        return each[0], each[1]


def _key_of(*parts: bytes) -> np.uint64:
    """Return a number that depends on all bytes."""
    return np.uint64(int.from_bytes(hashlib.sha256(b"".join(parts)).digest()[:8], "little"))


def _edges(families: int) -> _Values:
    """Return where the pieces of a level begin and end; shape (pieces + 1,)."""
    return np.linspace(0, families, max(1, min(families, _PIECES)) + 1).astype(np.int64)


def _in_pieces(families: int, work: Callable[[int, int], _Result]) -> list[_Result]:
    """Call ``work`` for consecutive runs of families, given their first and last number, and return the results."""
    return list(in_order(lambda run: work(*run), pairwise(_edges(families))))


def _draw(
    level: FittedLevel,
    known: Known,
    parent: tuple[_Values, _Reals],
    totals: _Values,
    counter: Counter,
    begin: int,
    end: int,
) -> _Drawn:
    """Return the drawn children of the families ``begin:end``, given the units of all parents in each draw."""
    first, last = level.offsets[begin], level.offsets[end]
    trips = np.empty((len(totals), last - first), dtype=np.int64)
    if not draw_children(*parent, known, level.offsets, totals, counter, trips, begin, end):
        raise OdError(
            "OD-DRAWS-IMPOSSIBLE",
            "the measurements contradict the exact total of the release",
            next_step="verify the release",
        )
    divided = level.divided[slice(*np.searchsorted(level.divided, [first, last]))]
    return _drawn(trips, divided - first, first)


def _drawn(trips: _Values, divided: _Values, first: int = 0) -> _Drawn:
    """Return a piece of a level, given the units of its nodes in each draw, which are changed; shape (draws, nodes)."""
    totals = trips[:, divided]
    trips[:, divided] = 0
    draw, node = np.nonzero(trips)
    ends = np.append(0, np.cumsum(np.bincount(draw, minlength=len(trips))))
    return _Drawn(totals, ends, (node + first).astype(np.int32), trips[draw, node])


def _of_draw(pieces: Sequence[_Drawn], k: int) -> tuple[Numbers, _Values]:
    """Return the nodes without measured children that have trips in a draw, and their units; shape (nodes,) each."""
    runs = [(piece, slice(piece.ends[k], piece.ends[k + 1])) for piece in pieces]
    nodes = [np.empty(0, dtype=np.int32), *(piece.node[run] for piece, run in runs)]
    return np.concatenate(nodes), np.concatenate([np.empty(0, dtype=np.int64), *(p.trips[run] for p, run in runs)])


def _zones(geography: Geography, level: int, areas: Numbers, weights: _Values, counter: Counter) -> Numbers:
    """Return a random zone of each area of a level, with probabilities in proportion to weights; shape (areas,)."""
    below, of_zone = np.append(0, np.cumsum(weights)), geography.ancestors(level)
    first, last = (below[np.searchsorted(of_zone, areas, side=side)] for side in ("left", "right"))
    random = np.empty(len(areas))
    write_random(counter, random)
    goal = first + np.minimum((random * (last - first)).astype(np.int64), last - first - 1)
    zones: Numbers = (np.searchsorted(below, goal, side="right") - 1).astype(np.int32)
    return zones
