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
from decimal import Context, Decimal
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.families import families_of, gravity_shares, trips_of_nodes
from od_core.flows.estimation.least_squares import FittedLevel
from od_core.flows.estimation.shrinkage import blended
from od_core.flows.estimation.size_distribution import SizeDistribution, component_of, size_distribution
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.geography.geography import Geography, Numbers
from od_core.kernels import kernel
from od_core.parallel import in_order

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]

_REACH = 9.2
"""Half the width of the interval in which the noise of one measurement is considered, in standard deviations."""

_LEAST_PART = 1e-18
"""Probabilities below this part of the largest one are left out at both ends of a distribution."""

_FURTHEST = 38
"""Distance in standard deviations from which a normal density is 0 in floating-point numbers."""

_POINTS = 256
"""Largest number of grid points of the distribution of a sum before anything is measured."""

_MOST_VALUES = 50_000_000
"""Largest number of nodes that are drawn at once, over all draws."""

_UNITS = 16
"""Smallest number of units in a standard deviation of the noise, unless a unit is one trip."""

_LEAST_TOTAL = 1_000
"""Smallest number of units of an exact total, unless a unit is one trip."""

_PIECES = 64
"""Number of pieces in which the families of a level are processed."""

_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


class _Known(NamedTuple):
    """What is known of the nodes of a level, for compiled loops. Trips are in units, except for noisy values.

    Attributes:
        unit: Number of trips of a unit.
        noisy: Noisy value of each node; shape (nodes,).
        noise: L at each distance between trips and noisy value, up to a constant factor; shape (distances,). Empty if
            the level was not measured.
        reach: Largest distance that is considered for a node without measured children.
        group_of, first, density: As in :class:`od_core.flows.estimation.size_distribution.SizeDistribution`.
        place: Position of each node in the next three arrays if it has measured children, otherwise -1; shape (nodes,).
        low: The smallest number of trips of each such node; shape (divided,).
        length: Number of values of its A; shape (divided,).
        values: A, from the smallest number of trips on; shape (divided, width).
    """

    unit: int
    noisy: _Values
    noise: _Reals
    reach: int
    group_of: _Values
    first: _Values
    density: _Reals
    place: _Values
    low: _Values
    length: _Values
    values: _Reals


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
        digest = hashlib.sha256()
        for level in self.levels:
            digest.update(level.noisy.astype("<f8").tobytes())
        return np.uint64(int.from_bytes(digest.digest()[:8], "little"))

    @cached_property
    def _known(self) -> list[_Known]:
        """What is known of each level below the root, top level first, with A of all nodes."""
        known: list[_Known] = []
        for at, distribution in reversed(list(enumerate(self._distributions(), start=1))):
            level = self.levels[at]
            own = _before_children(level, distribution, self.unit, is_leaf=not known)
            if known:
                families = self.levels[at + 1].offsets
                _in_pieces(len(level.divided), partial(_rise, own, level.divided, families, known[0]))
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
        counter = _Counter(self._key, begin, self._nodes, 1)
        for (above, level), known in zip(pairwise(self.levels), self._known, strict=True):
            own = np.zeros((end - begin, len(level.nodes)), dtype=np.int64)
            draw = partial(_draw, known, above.divided, level.offsets, trips[-1], counter, own)
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
            low, values = _alone(
                noisy, _normal(root.noise), math.ceil(_REACH * math.sqrt(root.noise) / self.unit), self.unit
            )
        else:
            low, values = _combined(noisy, _normal(root.noise), self._known[0], 0, len(self.levels[1].nodes))
        trips = np.empty((end - begin, 1), dtype=np.int64)
        _pick(low, values, _Counter(self._key, begin, self._nodes, 0), trips)
        return trips

    def _leaves(self, draw: int, trips: Sequence[_Values]) -> Nodes:
        """Return the leaves of one draw, given the units of all nodes of each level."""
        tree, measured = self.plan.tree, self.levels[-1].nodes
        dropped = [self._below(draw, level, own) for level, own in zip(self.levels[:-1], trips[:-1], strict=True)]
        origin = np.concatenate([measured.origin, *(pairs.origin for pairs in dropped)])
        destination = np.concatenate([measured.destination, *(pairs.destination for pairs in dropped)])
        number = np.concatenate([trips[-1] * self.unit, *(np.ones(len(pairs), dtype=np.int64) for pairs in dropped)])
        order = np.argsort(tree.first_rank(Pairs(tree.depth, origin, destination)), kind="stable")
        order = order[number[order] > 0]
        rank = tree.first_rank(Pairs(tree.depth, origin[order], destination[order]))
        first = np.flatnonzero(np.diff(rank, prepend=-1))
        summed = np.add.reduceat(number[order], first) if len(first) else number[order]
        if self.levels[0].noise == 0 and len(summed):
            summed[np.argmax(summed)] += int(self.levels[0].noisy[0]) - summed.sum()
        return Nodes(tree.depth, origin[order[first]], destination[order[first]], summed)

    def _below(self, draw: int, level: FittedLevel, trips: _Values) -> Pairs:
        """Return a pair of zones for each trip of the nodes of a level that have no measured children."""
        tree, left = self.plan.tree, trips * self.unit
        left[level.divided] = 0
        nodes = np.repeat(np.arange(len(left)), left)
        ends = []
        sides = (tree.origin, level.nodes.origin), (tree.destination, level.nodes.destination)
        for side, ((geography, areas), at) in enumerate(zip(sides, tree.level_pair(level.nodes.level), strict=True)):
            seed = hashlib.sha256(f"{self._key} {draw} {level.nodes.level} {side}".encode()).digest()
            counter = _Counter(np.uint64(int.from_bytes(seed[:8], "little")), 0, 1, 0)
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


class _Counter(NamedTuple):
    """A place in the sequence of random numbers: node ``offset + i`` of draw ``draw + d`` has its own number."""

    key: np.uint64
    draw: int
    nodes: int
    offset: int


def _in_pieces(families: int, work: Callable[[int, int], bool]) -> list[bool]:
    """Call ``work`` for consecutive runs of families, given their first and last number, and return the results."""
    edges = np.linspace(0, families, min(families, _PIECES) + 1).astype(np.int64)
    return list(in_order(lambda run: work(*run), pairwise(edges)))


def _before_children(level: FittedLevel, distribution: SizeDistribution, unit: int, *, is_leaf: bool) -> _Known:
    """Return what is known of a level, with room for A of the nodes with measured children."""
    reach = math.ceil(_REACH * math.sqrt(level.noise) / unit)
    place, divided = np.full(len(level.nodes), -1, dtype=np.int64), 0 if is_leaf else len(level.divided)
    if not is_leaf:
        place[level.divided] = np.arange(divided)
    own = level.noisy.astype(np.int64), _normal(level.noise), reach
    prior = distribution.group_of, distribution.first, distribution.density
    numbers = np.zeros(divided, dtype=np.int64), np.zeros(divided, dtype=np.int64)
    return _Known(unit, *own, *prior, place, *numbers, np.zeros((divided, 2 * reach + 1)))


def _normal(variance: float) -> _Reals:
    """Return exp(-k^2 / 2 variance) for k = 0, 1, ..., or nothing if the variance is infinite; shape (distances,)."""
    if math.isinf(variance):
        return np.empty(0)
    if variance == 0:
        return np.ones(1)
    exact = Context(prec=40)
    ratio, change = (float(exact.exp(-1 / (factor * Decimal(variance)))) for factor in (2, 1))
    density = np.ones(math.ceil(_FURTHEST * math.sqrt(variance)) + 1)
    _multiply(density, ratio, change)
    return density


def _zones(geography: Geography, level: int, areas: Numbers, weights: _Values, counter: _Counter) -> Numbers:
    """Return a random zone of each area of a level, with probabilities in proportion to weights; shape (areas,)."""
    below, of_zone = np.append(0, np.cumsum(weights)), geography.ancestors(level)
    first, last = (below[np.searchsorted(of_zone, areas, side=side)] for side in ("left", "right"))
    random = np.empty(len(areas))
    _fill(counter, random)
    goal = first + np.minimum((random * (last - first)).astype(np.int64), last - first - 1)
    zones: Numbers = (np.searchsorted(below, goal, side="right") - 1).astype(np.int32)
    return zones


@kernel
def _fill(counter, random):  # type: ignore[no-untyped-def]  # compiled
    """Write consecutive random numbers."""
    for k in range(len(random)):
        random[k] = _random(counter, k, 0)


@kernel
def _pick(low, values, counter, trips):  # type: ignore[no-untyped-def]  # compiled
    """Write random trips of a node in each draw, given their smallest number and all probabilities up to a factor."""
    whole = 0.0
    for value in values:
        whole += value
    for draw in range(len(trips)):
        goal, sum_so_far, drawn = _random(counter, draw, 0) * whole, 0.0, 0
        for k in range(len(values)):
            if values[k] > 0.0:
                drawn = k
                sum_so_far += values[k]
                if sum_so_far > goal:
                    break
        trips[draw, 0] = low + drawn


@kernel
def _random(counter, draw, node):  # type: ignore[no-untyped-def]  # compiled
    """Return the random number from 0 to 1 of a node in a draw: SplitMix64 [steele2014splittable] of its position."""
    position = (counter.draw + draw) * counter.nodes + counter.offset + node + 1
    z = counter.key + np.uint64(position) * _GOLDEN
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return float((z ^ (z >> _31)) >> _11) * 2.0**-53


@kernel
def _multiply(density, ratio, change):  # type: ignore[no-untyped-def]  # compiled
    """Write the products of ratio, ratio * change, ratio * change^2, ... from the second value on."""
    for k in range(1, len(density)):
        density[k] = density[k - 1] * ratio
        ratio *= change


@kernel
def _trimmed(low, values, size):  # type: ignore[no-untyped-def]  # compiled
    """Move the first ``size`` values to the front without those that are nearly 0 at both ends, and scale them.

    Return the number of trips of the first value, and how many values there are. If all are 0, one is left.
    """
    top = 0.0
    for k in range(size):
        top = max(top, values[k])
    if top == 0.0:
        values[0] = 1.0
        return low, 1
    first, last = 0, size
    while values[first] <= _LEAST_PART * top:
        first += 1
    while values[last - 1] <= _LEAST_PART * top:
        last -= 1
    for k in range(first, last):
        values[k - first] = values[k] / top
    return low + first, last - first


@kernel
def _children(known, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Return A of the nodes ``begin:end``: the smallest trips, the number of values, and the values of each one."""
    width = 2 * known.reach + 1
    for i in range(begin, end):
        if known.place[i] >= 0:
            width = max(width, known.length[known.place[i]])
    low, length = np.empty(end - begin, dtype=np.int64), np.empty(end - begin, dtype=np.int64)
    values = np.empty((end - begin, width))
    for i in range(begin, end):
        own, place = values[i - begin], known.place[i]
        if place >= 0:
            low[i - begin], length[i - begin] = known.low[place], known.length[place]
            own[: length[i - begin]] = known.values[place, : length[i - begin]]
            continue
        y = known.noisy[i]
        nearest = max(y, 0) // known.unit
        least, most = max(0, nearest - known.reach), nearest + known.reach
        for n in range(least, most + 1):
            distance = abs(n * known.unit - y)
            chance = known.noise[distance] if distance < len(known.noise) else 0.0
            own[n - least] = chance * _mass(n, known.unit, known.first, known.density[known.group_of[i]])
        low[i - begin], length[i - begin] = _trimmed(least, own, most - least + 1)
    return low, length, values


@kernel
def _rests(low, length, values):  # type: ignore[no-untyped-def]  # compiled
    """Return the distribution of the sum of A over the children k, k + 1, ... for each k; the last sum is 0.

    That is the smallest trips, the number of values and their position for each k, and the values of all.
    """
    children = len(low)
    rest_low, rest_length = np.zeros(children + 1, dtype=np.int64), np.ones(children + 1, dtype=np.int64)
    at, flat, used = np.zeros(children + 1, dtype=np.int64), np.zeros(1024), 1
    flat[0] = 1.0
    for k in range(children - 1, -1, -1):
        size, start = length[k] + rest_length[k + 1] - 1, at[k + 1]
        if used + size > len(flat):
            longer = np.zeros(max(2 * len(flat), used + size))
            longer[:used] = flat[:used]
            flat = longer
        own = flat[used : used + size]
        own[:] = 0.0
        for a in range(length[k]):
            if values[k, a] > 0.0:
                for b in range(rest_length[k + 1]):
                    own[a + b] += values[k, a] * flat[start + b]
        at[k] = used
        rest_low[k], rest_length[k] = _trimmed(low[k] + rest_low[k + 1], own, size)
        used += rest_length[k]
    return rest_low, rest_length, at, flat


@kernel
def _mass(n, step, first, density):  # type: ignore[no-untyped-def]  # compiled
    """Return the probability of the numbers of trips that are nearest to n * step."""
    least, most, mass = max(n * step - (step - 1) // 2, 0), n * step + step // 2, 0.0
    component = component_of(least, first)
    while least <= most:
        last = most if component + 1 == len(first) else min(first[component + 1] - 1, most)
        mass += (last - least + 1) * density[component]
        least = last + 1
        component += 1
    return mass


@kernel
def _unmeasured_sum(known, begin, end, step, points):  # type: ignore[no-untyped-def]  # compiled
    """Return the distribution of the sum of g over the nodes ``begin:end``, up to a factor; shape (points,).

    Point j stands for the trips that are nearest to j * step.
    """
    mass, is_known = np.zeros((len(known.density), points)), np.zeros(len(known.density), dtype=np.bool_)
    total, longer = np.zeros(points), np.empty(points)
    total[0] = 1.0
    for i in range(begin, end):
        own = mass[known.group_of[i]]
        if not is_known[known.group_of[i]]:
            is_known[known.group_of[i]] = True
            for j in range(points):
                own[j] = _mass(j, step, known.first, known.density[known.group_of[i]])
        longer[:] = 0.0
        for a in range(points):
            if own[a] > 0.0:
                for b in range(points - a):
                    longer[a + b] += own[a] * total[b]
        top = 0.0
        for j in range(points):
            top = max(top, longer[j])
        for j in range(points):
            total[j] = longer[j] / top
    return total


@kernel
def _combined(y, noise, known, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Return U of a node with the children ``begin:end``: its smallest number of trips, and the values."""
    low, length, at, flat = _rests(*_children(known, begin, end))
    size, least = length[0], low[0]
    values = flat[at[0] : at[0] + size].copy()
    step = (least + size) // _POINTS + 1
    sums = _unmeasured_sum(known, begin, end, step * known.unit, (least + size) // step + 2)
    nearest, distance = 0, abs(least * known.unit - y)
    for k in range(size):
        n = least + k
        away = abs(n * known.unit - y)
        if away < distance:
            nearest, distance = k, away
        if len(noise) > 0:
            values[k] *= noise[away] if away < len(noise) else 0.0
        point = n // step
        part = (n - point * step) / step
        sums_here = sums[point] + part * (sums[point + 1] - sums[point])
        values[k] = values[k] / sums_here if sums_here > 0.0 else 0.0
    low_of_all, size = _trimmed(least, values, size)
    if size == 1 and distance > len(noise) > 0:
        low_of_all = least + nearest
    return low_of_all, values[:size]


@kernel
def _alone(y, noise, reach, unit):  # type: ignore[no-untyped-def]  # compiled
    """Return U of a node without children: its smallest number of trips, and the values."""
    nearest = max(y, 0) // unit
    least, most = max(0, nearest - reach), nearest + reach
    values = np.array([noise[min(abs(n * unit - y), len(noise) - 1)] for n in range(least, most + 1)])
    low, size = _trimmed(least, values, len(values))
    return low, values[:size]


@kernel
def _rise(own, divided, offsets, known, first, last):  # type: ignore[no-untyped-def]  # compiled
    """Write A of the nodes with measured children, numbers ``first:last``, into ``own``."""
    width = own.values.shape[1]
    for family in range(first, last):
        node = divided[family]
        low, values = _combined(own.noisy[node], own.noise, known, offsets[family], offsets[family + 1])
        for k in range(len(values)):
            values[k] *= _mass(low + k, own.unit, own.first, own.density[own.group_of[node]])
        low, size = _trimmed(low, values, len(values))
        size = min(size, width)
        own.low[family], own.length[family] = low, size
        own.values[family, :size] = values[:size]


@kernel
def _draw(known, divided, offsets, totals, counter, trips, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Write the trips of the children of the families ``begin:end`` in all draws. Return whether they are possible.

    Args:
        known: What is known of the children.
        divided: Position of the parent of each family.
        offsets: The children of family f are ``offsets[f]:offsets[f + 1]``.
        totals: Trips of the parents; shape (draws, nodes of the level above).
        counter: Where the random numbers of the level begin.
        trips: Where the trips are written; shape (draws, nodes).
    """
    for family in range(begin, end):
        start = offsets[family]
        low, length, values = _children(known, start, offsets[family + 1])
        rest_low, rest_length, at, flat = _rests(low, length, values)
        for draw in range(len(totals)):
            left = totals[draw, divided[family]]
            for k in range(len(low)):
                most = left - low[k] - rest_low[k + 1]  # what child k may have above its smallest number
                least = max(0, most - rest_length[k + 1] + 1)
                most = min(most, length[k] - 1)
                whole = 0.0
                for a in range(least, most + 1):
                    whole += values[k, a] * flat[at[k + 1] + left - low[k] - a - rest_low[k + 1]]
                if not whole > 0.0:
                    return False
                goal, sum_so_far, drawn = _random(counter, draw, start + k) * whole, 0.0, -1
                for a in range(least, most + 1):
                    part = values[k, a] * flat[at[k + 1] + left - low[k] - a - rest_low[k + 1]]
                    if part > 0.0:
                        drawn = a
                        sum_so_far += part
                        if sum_so_far > goal:
                            break
                trips[draw, start + k] = low[k] + drawn
                left -= low[k] + drawn
    return True
