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
from od_core.flows.estimation.partial_sums import convolve, divide, partial_sums, trimmed
from od_core.flows.estimation.random_counter import random_number
from od_core.flows.estimation.size_distribution import SizeDistribution, component_of
from od_core.kernels import kernel

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]

_LEAST_NOISE = 4.2e-19
"""Noise is considered where its density exceeds this part of the largest one: up to 9.2 standard deviations."""

_FURTHEST = 38
"""Distance in standard deviations from which a normal density is 0 in floating-point numbers."""

_POINTS = 640
"""Largest number of grid points of the distribution of a sum before anything is measured.

A unit is at most a 16th of a standard deviation of the noise, or one trip if that is below 32. So where no trips are
probable, and the distribution has a peak, there is a point for each unit."""


class Known(NamedTuple):
    """What is known of the nodes of a level, for compiled loops.

    Attributes:
        unit: Number of trips of a unit.
        noisy: Noisy value of each node; shape (nodes,).
        noise: L at each distance between trips and noisy value, up to a constant factor; shape (distances,). Empty if
            the level was not measured.
        reach: Largest distance between trips and noisy value that is considered.
        group_of, first, density: As in :class:`od_core.flows.estimation.size_distribution.SizeDistribution`.
        place: Position of each node in the next three arrays if it has measured children, otherwise -1; shape (nodes,).
        low: The smallest number of trips of each such node; shape (divided,).
        length: Number of values of its A; shape (divided,).
        values: A, from the smallest number of trips on; shape (divided, width).
        powers: Distribution of the sum of g over 2^b nodes of a group, at multiples of 2^e units, up to a factor; shape
            (e, groups, b, points).
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
    powers: _Reals


def known_of(level: FittedLevel, distribution: SizeDistribution, unit: int, *, is_leaf: bool) -> Known:
    """Return what is known of a level, with room for A of the nodes with measured children."""
    noise = normal_density(level.noise)
    reach = reach_of(noise)
    place, divided = np.full(len(level.nodes), -1, dtype=np.int64), 0 if is_leaf else len(level.divided)
    if not is_leaf:
        place[level.divided] = np.arange(divided)
    noisy = level.noisy.astype(np.int64)
    most = np.add.reduceat((np.maximum(noisy, 0) + reach) // unit + 2, level.offsets[:-1]).max(initial=0)
    steps = 1 + (int(most) // (_POINTS - 2)).bit_length()
    in_powers = int(np.diff(level.offsets).max(initial=1)).bit_length()
    powers = np.zeros((steps, len(distribution.density), in_powers, _POINTS))
    write_powers(unit, distribution.first, distribution.density, powers)
    prior = distribution.group_of, distribution.first, distribution.density
    numbers = np.zeros(divided, dtype=np.int64), np.zeros(divided, dtype=np.int64)
    values = np.zeros((divided, 2 * reach // unit + 3))
    return Known(unit, noisy, noise, reach, *prior, place, *numbers, values, powers)


def with_trips(known: Known) -> float:
    """Return the number of nodes of a level that are expected to have trips before they are measured."""
    none = known.density[:, 0] if len(known.first) > 1 else np.zeros(1)
    return float((1 - none)[known.group_of].sum())


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
        trips[draw, 0] = low + _chosen(values, random_number(counter, draw, 0))


@kernel
def _multiply(density, ratio, change):  # type: ignore[no-untyped-def]  # compiled
    """Write the products of ratio, ratio * change, ratio * change^2, ... from the second value on."""
    for k in range(1, len(density)):
        density[k] = density[k - 1] * ratio
        ratio *= change


@kernel
def reach_of(noise):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest distance between trips and a noisy value that is considered, given the density of noise."""
    reach = 0
    while reach + 1 < len(noise) and noise[reach + 1] > _LEAST_NOISE:
        reach += 1
    return reach


@kernel
def window(y, reach, unit):  # type: ignore[no-untyped-def]  # compiled
    """Return the smallest and the largest number of units that are considered for a node with the noisy value ``y``."""
    return max(y - reach, 0) // unit, (max(y, 0) + reach) // unit + 1


@kernel
def _children(known, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Return A of the nodes ``begin:end``: the smallest trips, the number of values, and the values of each one."""
    width = known.values.shape[1]
    low, length = np.empty(end - begin, dtype=np.int64), np.empty(end - begin, dtype=np.int64)
    values = np.empty((end - begin, width))
    for i in range(begin, end):
        own, place = values[i - begin], known.place[i]
        if place >= 0:
            low[i - begin], length[i - begin] = known.low[place], known.length[place]
            own[: length[i - begin]] = known.values[place, : length[i - begin]]
            continue
        least, most = window(known.noisy[i], known.reach, known.unit)
        size = most - least + 1
        _write_masses(least, known.unit, known.first, known.density[known.group_of[i]], own[:size])
        _weight(own[:size], least, known.unit, known.noisy[i], known.noise)
        low[i - begin], length[i - begin], _ = trimmed(least, own, size)
    return low, length, values


@kernel
def _weight(values, low, unit, y, noise):  # type: ignore[no-untyped-def]  # compiled
    """Multiply the values of a distribution by the density of the noise between its trips and a noisy value."""
    for k in range(len(values)):
        distance = abs((low + k) * unit - y)
        values[k] *= noise[distance] if distance < len(noise) else 0.0


@kernel
def _write_masses(least, step, first, density, masses):  # type: ignore[no-untyped-def]  # compiled
    """Write the probability of the numbers of trips that are nearest to n * step, for n = least, least + 1, ..."""
    begin = max(least * step - (step - 1) // 2, 0)
    component = component_of(begin, first)
    for k in range(len(masses)):
        most, mass = (least + k) * step + step // 2, 0.0
        while begin <= most:
            last = most if component + 1 == len(first) else min(first[component + 1] - 1, most)
            mass += (last - begin + 1) * density[component]
            begin = last + 1
            if component + 1 < len(first) and first[component + 1] == begin:
                component += 1
        masses[k] = mass


@kernel
def write_powers(unit, first, density, powers):  # type: ignore[no-untyped-def]  # compiled
    """Write the distributions of sums over 1, 2, 4, ... nodes of each group, at multiples of 1, 2, 4, ... units."""
    for e in range(powers.shape[0]):
        for group in range(powers.shape[1]):
            own = powers[e, group]
            _write_masses(0, unit << e, first, density[group], own[0])
            for b in range(1, len(own)):
                convolve(own[b - 1], own[b - 1], 0, own[b])
                _scale(own[b])


@kernel
def _scale(values):  # type: ignore[no-untyped-def]  # compiled
    """Divide the values by the largest one."""
    top = 0.0
    for k in range(len(values)):
        top = max(top, values[k])
    for k in range(len(values)):
        values[k] /= top


@kernel
def unmeasured_sum(known, begin, end, step, points):  # type: ignore[no-untyped-def]  # compiled
    """Return the distribution of the sum of g over the nodes ``begin:end``, up to a factor; shape (points,).

    Point j stands for the trips that are nearest to j * step units, where ``step`` is a power of 2.
    """
    e = 0
    while 1 << e < step:
        e += 1
    count = np.zeros(len(known.density), dtype=np.int64)
    for i in range(begin, end):
        count[known.group_of[i]] += 1
    total, longer = np.zeros(points), np.empty(points)
    total[0] = 1.0
    for group in range(len(count)):
        for b in range(known.powers.shape[2]):
            if count[group] >> b & 1:
                convolve(known.powers[e, group, b, :points], total, 0, longer)
                _scale(longer)
                total, longer = longer, total
    return total


@kernel
def without_children(known, i):  # type: ignore[no-untyped-def]  # compiled
    """Return A of node ``i``, which has no measured children."""
    low, length, values = _children(known, i, i + 1)
    return low[0], values[0, : length[0]]


@kernel
def above_children(y, noise, known, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Return U of a node with the noisy value ``y`` and the children ``begin:end``."""
    sums = sums_below(y, noise, known, begin, end)
    least, size = sums.low[-1], sums.length[-1]
    values = sums.values[sums.at[-1] : sums.at[-1] + size].copy()
    if len(noise) > 0:
        _weight(values, least, known.unit, y, noise)
    step = 1
    while (least + size) // step + 2 > _POINTS:
        step *= 2
    before = unmeasured_sum(known, begin, end, step, (least + size) // step + 2)
    for k in range(size):
        point = (least + k) // step
        part = (least + k - point * step) / step
        before_here = before[point] + part * (before[point + 1] - before[point])
        values[k] = values[k] / before_here if before_here > 0.0 else 0.0
    least, size, _ = trimmed(least, values, size)
    return least, values[:size]


@kernel
def sums_below(y, noise, known, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Return the partial sums of A over the children ``begin:end`` of a node with the noisy value ``y``."""
    low, length, values = _children(known, begin, end)
    least, most = 0, (low + length).sum()
    if len(noise) > 0:
        least, most = window(y, reach_of(noise), known.unit)
    return partial_sums(low, length, values, least, most)


@kernel
def rise(own, divided, offsets, known, first, last):  # type: ignore[no-untyped-def]  # compiled
    """Write A of the nodes with measured children, numbers ``first:last``, into ``own``."""
    masses = np.empty(own.values.shape[1])
    for family in range(first, last):
        node = divided[family]
        low, values = above_children(own.noisy[node], own.noise, known, offsets[family], offsets[family + 1])
        _write_masses(low, own.unit, own.first, own.density[own.group_of[node]], masses[: len(values)])
        for k in range(len(values)):
            values[k] *= masses[k]
        own.low[family], own.length[family], _ = trimmed(low, values, len(values))
        own.values[family, : own.length[family]] = values[: own.length[family]]


@kernel
def draw_children(above, noise, known, offsets, totals, counter, trips, begin, end):  # type: ignore[no-untyped-def]
    """Write the trips of the children of the families ``begin:end`` in all draws. Return whether they are possible.

    Args:
        above: Noisy value of the parent of each family; shape (families,).
        noise: The density of its noise.
        known: What is known of the children.
        offsets: The children of family f are ``offsets[f]:offsets[f + 1]``.
        totals: Trips of the parents; shape (draws, families).
        counter: Where the random numbers of the level begin.
        trips: Where the trips are written; shape (draws, children of these families).
    """
    for family in range(begin, end):
        start, children = offsets[family], offsets[family + 1] - offsets[family]
        sums = sums_below(above[family], noise, known, start, offsets[family + 1])
        given = np.empty(len(sums.low), dtype=np.int64)
        for draw in range(len(totals)):
            if not divide(sums, totals[draw, family], counter, draw, start, given):
                return False
            trips[draw, start - offsets[begin] : offsets[family + 1] - offsets[begin]] = given[:children]
    return True
