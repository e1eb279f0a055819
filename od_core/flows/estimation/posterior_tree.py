"""Draw whole flow trees from their distribution given all noisy measurements, under a model of how trips divide.

Before anything is measured, the trips of the children of a node with n trips are independent, with the distributions of
:mod:`od_core.flows.estimation.size_distribution`, given that their sum is n. The noise of all measurements is
independent. So the probability of what was measured at and below a node, given its n trips, is

    U(n) = L(n) * (A_1 * ... * A_k)(n) / (g_1 * ... * g_k)(n),   A_i(n) = g_i(n) U_i(n),

where L(n) is the probability of its own noisy value, g_i is the distribution of child i, and the stars between
distributions are convolutions. For a node without measured children, U = L. The upward pass computes A of all nodes,
and the downward pass draws the root, and then the children of each node, one after the other, given what is left of
its trips [pearl1988reasoning, section 4.3]. The draws have exactly the distribution of the model. They are integers of
at least 0, and the children of each node sum to its trips.

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

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.families import families_of, gravity_shares, trips_of_nodes
from od_core.flows.estimation.least_squares import FittedLevel
from od_core.flows.estimation.node_posteriors import (
    Counter,
    Known,
    above_children,
    draw_children,
    draw_one,
    known_of,
    normal_density,
    rise,
    without_children,
    write_random,
)
from od_core.flows.estimation.shrinkage import blended
from od_core.flows.estimation.size_distribution import SizeDistribution, size_distribution, unknown_sizes
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.geography.geography import Geography, Numbers
from od_core.parallel import in_order

_Values = NDArray[np.int64]

DRAWING_BYTES = 1_000
"""Bytes of memory that draws need for each measured leaf. Measured: 684 and 899, for 189,000 and 52,000 leaves."""

_MOST_VALUES = 50_000_000
"""Largest number of nodes that are drawn at once, over all draws."""

_UNITS = 16
"""Smallest number of units in a standard deviation of the noise, unless a unit is one trip."""

_LEAST_TOTAL = 1_000
"""Smallest number of units of an exact total, unless a unit is one trip."""

_PIECES = 64
"""Number of pieces in which the families of a level are processed."""


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
        at_once = max(1, _MOST_VALUES // self._nodes)
        for begin in range(0, number, at_once):
            trips = self._trips(begin, min(begin + at_once, number))
            for k in range(len(trips[0])):
                yield self._leaves(begin + k, [own[k] for own in trips])

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

    def _trips(self, begin: int, end: int) -> list[_Values]:
        """Return the units of all nodes of each level in the draws ``begin:end``; shape (draws, nodes) each."""
        trips = [self._root(begin, end)]
        counter = Counter(self._key, begin, self._nodes, 1)
        for (above, level), known in zip(pairwise(self.levels), self._known, strict=True):
            own = np.zeros((end - begin, len(level.nodes)), dtype=np.int64)
            draw = partial(draw_children, known, above.divided, level.offsets, trips[-1], counter, own)
            if not all(_in_pieces(len(above.divided), draw)):
                raise OdError(
                    "OD-DRAWS-IMPOSSIBLE",
                    "the measurements contradict the exact total of the release",
                    next_step="verify the release",
                )
            trips.append(own)
            counter = counter._replace(offset=counter.offset + len(level.nodes))
        return trips

    def _root(self, begin: int, end: int) -> _Values:
        """Return the units of the root in the draws ``begin:end``; shape (draws, 1)."""
        root = self.levels[0]
        noisy = int(root.noisy[0])
        if root.noise == 0:
            return np.full((end - begin, 1), (max(noisy, 0) + self.unit // 2) // self.unit)
        if len(self.levels) == 1:
            low, values = without_children(known_of(root, unknown_sizes(1), self.unit, is_leaf=True), 0)
        else:
            noise = normal_density(root.noise)
            low, values = above_children(noisy, noise, self._known[0], 0, len(self.levels[1].nodes))
        trips = np.empty((end - begin, 1), dtype=np.int64)
        draw_one(low, values, Counter(self._key, begin, self._nodes, 0), trips)
        return trips

    def _leaves(self, draw: int, trips: Sequence[_Values]) -> Nodes:
        """Return the leaves of one draw, given the units of all nodes of each level."""
        tree, measured = self.plan.tree, self.levels[-1].nodes
        dropped = [self._below(draw, level, own) for level, own in zip(self.levels[:-1], trips[:-1], strict=True)]
        origin = np.concatenate([measured.origin, *(pairs.origin for pairs in dropped)])
        destination = np.concatenate([measured.destination, *(pairs.destination for pairs in dropped)])
        number = np.concatenate([trips[-1] * self.unit, *(np.ones(len(pairs), dtype=np.int64) for pairs in dropped)])
        leaves = tree.summed_leaves(origin, destination, number)
        if self.levels[0].noise == 0 and len(leaves):
            leaves.trips[np.argmax(leaves.trips)] += int(self.levels[0].noisy[0]) - leaves.trips.sum()
        return leaves

    def _below(self, draw: int, level: FittedLevel, trips: _Values) -> Pairs:
        """Return a pair of zones for each trip of the nodes of a level that have no measured children."""
        tree, left = self.plan.tree, trips * self.unit
        left[level.divided] = 0
        nodes = np.repeat(np.arange(len(left)), left)
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


def _in_pieces(families: int, work: Callable[[int, int], bool]) -> list[bool]:
    """Call ``work`` for consecutive runs of families, given their first and last number, and return the results."""
    edges = np.linspace(0, families, min(families, _PIECES) + 1).astype(np.int64)
    return list(in_order(lambda run: work(*run), pairwise(edges)))


def _zones(geography: Geography, level: int, areas: Numbers, weights: _Values, counter: Counter) -> Numbers:
    """Return a random zone of each area of a level, with probabilities in proportion to weights; shape (areas,)."""
    below, of_zone = np.append(0, np.cumsum(weights)), geography.ancestors(level)
    first, last = (below[np.searchsorted(of_zone, areas, side=side)] for side in ("left", "right"))
    random = np.empty(len(areas))
    write_random(counter, random)
    goal = first + np.minimum((random * (last - first)).astype(np.int64), last - first - 1)
    zones: Numbers = (np.searchsorted(below, goal, side="right") - 1).astype(np.int32)
    return zones
