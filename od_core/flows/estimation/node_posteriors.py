"""Compute the distributions of nodes given the measurements at and below them, and draw from these distributions.

The functions are the steps of :mod:`od_core.flows.estimation.posterior_tree`, which defines L, g, A and U. Trips are in
units, except for noisy values. A distribution is an array of probabilities up to a constant factor, with the number of
trips of its first value.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.least_squares import FittedLevel
from od_core.flows.estimation.size_distribution import SizeDistribution, component_of
from od_core.kernels import kernel

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

_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


class Counter(NamedTuple):
    """A place in the sequence of random numbers: node ``offset + i`` of draw ``draw + d`` has its own number."""

    key: np.uint64
    draw: int
    nodes: int
    offset: int


class Known(NamedTuple):
    """What is known of the nodes of a level, for compiled loops.

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


def known_of(level: FittedLevel, distribution: SizeDistribution, unit: int, *, is_leaf: bool) -> Known:
    """Return what is known of a level, with room for A of the nodes with measured children."""
    reach = math.ceil(_REACH * math.sqrt(level.noise) / unit)
    place, divided = np.full(len(level.nodes), -1, dtype=np.int64), 0 if is_leaf else len(level.divided)
    if not is_leaf:
        place[level.divided] = np.arange(divided)
    own = level.noisy.astype(np.int64), normal_density(level.noise), reach
    prior = distribution.group_of, distribution.first, distribution.density
    numbers = np.zeros(divided, dtype=np.int64), np.zeros(divided, dtype=np.int64)
    return Known(unit, *own, *prior, place, *numbers, np.zeros((divided, 2 * reach + 1)))


def normal_density(variance: float) -> _Reals:
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


@kernel
def _random(counter, draw, node):  # type: ignore[no-untyped-def]  # compiled
    """Return the random number from 0 to 1 of a node in a draw: SplitMix64 [steele2014splittable] of its position."""
    position = (counter.draw + draw) * counter.nodes + counter.offset + node + 1
    z = counter.key + np.uint64(position) * _GOLDEN
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return float((z ^ (z >> _31)) >> _11) * 2.0**-53


@kernel
def write_random(counter, numbers):  # type: ignore[no-untyped-def]  # compiled
    """Write consecutive random numbers from 0 to 1."""
    for k in range(len(numbers)):
        numbers[k] = _random(counter, k, 0)


@kernel
def _chosen(values, random):  # type: ignore[no-untyped-def]  # compiled
    """Return the position that a random number chooses in a distribution; -1 if all values are 0."""
    whole = 0.0
    for value in values:
        whole += value
    goal, sum_so_far, chosen = random * whole, 0.0, -1
    for k in range(len(values)):
        if values[k] > 0.0:
            chosen = k
            sum_so_far += values[k]
            if sum_so_far > goal:
                break
    return chosen


@kernel
def draw_one(low, values, counter, trips):  # type: ignore[no-untyped-def]  # compiled
    """Write random trips of a node in each draw, given its distribution."""
    for draw in range(len(trips)):
        trips[draw, 0] = low + _chosen(values, _random(counter, draw, 0))


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
def unmeasured_sum(known, begin, end, step, points):  # type: ignore[no-untyped-def]  # compiled
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
def without_children(known, i):  # type: ignore[no-untyped-def]  # compiled
    """Return A of node ``i``, which has no measured children."""
    low, length, values = _children(known, i, i + 1)
    return low[0], values[0, : length[0]]


@kernel
def above_children(y, noise, known, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Return U of a node with the noisy value ``y`` and the children ``begin:end``."""
    low, length, at, flat = _rests(*_children(known, begin, end))
    size, least = length[0], low[0]
    values = flat[at[0] : at[0] + size].copy()
    step = (least + size) // _POINTS + 1
    sums = unmeasured_sum(known, begin, end, step * known.unit, (least + size) // step + 2)
    for k in range(size):
        n = least + k
        distance = abs(n * known.unit - y)
        if len(noise) > 0:
            values[k] *= noise[distance] if distance < len(noise) else 0.0
        point = n // step
        part = (n - point * step) / step
        sums_here = sums[point] + part * (sums[point + 1] - sums[point])
        values[k] = values[k] / sums_here if sums_here > 0.0 else 0.0
    least, size = _trimmed(least, values, size)
    return least, values[:size]


@kernel
def rise(own, divided, offsets, known, first, last):  # type: ignore[no-untyped-def]  # compiled
    """Write A of the nodes with measured children, numbers ``first:last``, into ``own``."""
    for family in range(first, last):
        node = divided[family]
        low, values = above_children(own.noisy[node], own.noise, known, offsets[family], offsets[family + 1])
        for k in range(len(values)):
            values[k] *= _mass(low + k, own.unit, own.first, own.density[own.group_of[node]])
        low, size = _trimmed(low, values, len(values))
        size = min(size, own.values.shape[1])  # more have a probability only if the children contradict the node
        own.low[family], own.length[family] = low, size
        own.values[family, :size] = values[:size]


@kernel
def draw_children(known, divided, offsets, totals, counter, trips, begin, end):  # type: ignore[no-untyped-def]
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
        own = np.empty(values.shape[1])
        for draw in range(len(totals)):
            left = totals[draw, divided[family]]
            for k in range(len(low)):
                most = left - low[k] - rest_low[k + 1]  # what child k may have above its smallest number
                least = max(0, most - rest_length[k + 1] + 1)
                possible = min(most, length[k] - 1) - least + 1
                for a in range(possible):
                    own[a] = values[k, least + a] * flat[at[k + 1] + most - least - a]
                chosen = _chosen(own[: max(possible, 0)], _random(counter, draw, start + k))
                if chosen < 0:
                    return False
                trips[draw, start + k] = low[k] + least + chosen
                left -= trips[draw, start + k]
    return True
