"""Estimate the distribution of the true trips of nodes that are predicted to have similar numbers of trips.

The distribution is a mixture: a node has 0 trips, or its trips are uniform in one of the intervals

    1 to 2s - 1,   2s to 4s - 1,   4s to 8s - 1,   ...,

where s is about an eighth of the standard deviation of the noise, at least 1. The weights are estimated by
expectation-maximisation from the noisy values of the nodes [dempster1977em]. The intervals double in length, so that
few weights describe both many small flows and a few large ones. A finer distribution would fit the noise.

Nodes are grouped by the trips that their parent and their share predict. The distribution of a group is estimated from
its own nodes and those of the groups before and after it, because chance would decide a smaller sample. The prediction
of a node must not use its own noisy value: of nodes with similar predictions, those whose noise is positive would be
over-represented, and small flows would seem larger than they are. So the estimate of the parent is computed without the
node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.count_distribution import GridNoise, bins, mixture_weights
from od_core.flows.estimation.families import SIZES, Families, sizes_of
from od_core.flows.estimation.least_squares import FittedLevel
from od_core.kernels import kernel

_Reals = NDArray[np.float64]
_Positions = NDArray[np.int64]

_LEAST_LEARNED = 100
"""Smallest number of nodes of a level whose distribution is estimated. At a smaller level, all numbers of trips are
equally probable."""

_FEWEST_CELLS, _MOST_CELLS, _MOST_BINS = 200, 2_000, 8
"""The nodes of a group are at least an eighth of the level, but at least 200, and no more than 2,000 are required."""

_ITERATIONS = 500

_LEAST_WEIGHT = 1e-6
"""Weight that is divided equally among all components, so that no number of trips is impossible."""


@dataclass(frozen=True, eq=False)
class SizeDistribution:
    """The distributions of the true trips of the nodes of a level.

    Attributes:
        group_of: Group of each node; shape (nodes,).
        first: The smallest number of trips of each component; shape (components,). The last one has no end.
        density: Probability of each number of trips of a component; shape (groups, components).
    """

    group_of: _Positions
    first: _Positions
    density: _Reals


def size_distribution(level: FittedLevel, families: Families, p: _Reals) -> SizeDistribution:
    """Return the distributions of the true trips of the nodes of a level, given the share ``p`` of each node."""
    nodes = len(level.nodes)
    if nodes < _LEAST_LEARNED or not 0 < level.noise < math.inf:
        return unknown_sizes(nodes)
    sizes = sizes_of(p * np.maximum(_parents_without(level, families), 0.0), families.sigma)
    least = min(_MOST_CELLS, max(_FEWEST_CELLS, nodes // _MOST_BINS))
    group_of = bins(np.bincount(sizes, minlength=SIZES), least)[sizes]
    noise = GridNoise.of(Fraction(level.noise))
    last = max(float(level.noisy.max()) + 10 * noise.sigma, 4.0 * noise.step)
    doublings = math.ceil(math.log2(last / noise.step))
    on_grid = np.append(0, 1 << np.arange(doublings + 1))
    first = np.append([0, 1], on_grid[2:] * noise.step)
    likelihood = _of_components(noise, on_grid)
    points = np.maximum(np.floor((level.noisy + noise.step // 2) / noise.step).astype(np.int64) - noise.low, 0)
    beyond = noise.points + np.searchsorted(first, level.noisy, side="right") - 1
    seen = np.where(points < noise.points, points, beyond)
    start = np.append(0.5, np.full(len(first) - 1, 0.5 / (len(first) - 1)))
    lengths = np.append(np.diff(first), first[-1])
    rows = []
    for group in range(int(group_of.max()) + 1):
        counts = np.bincount(seen[abs(group_of - group) <= 1], minlength=likelihood.shape[1])
        weights = mixture_weights(likelihood, counts, start, _ITERATIONS)
        weights = (1 - _LEAST_WEIGHT) * (weights / _sum(weights)) + _LEAST_WEIGHT / len(first)
        rows.append(weights / lengths)
    return SizeDistribution(group_of, first, np.array(rows))


def unknown_sizes(nodes: int) -> SizeDistribution:
    """Return the distributions of nodes of which nothing is known: all numbers of trips are equally probable."""
    return SizeDistribution(np.zeros(nodes, dtype=np.int64), np.zeros(1, dtype=np.int64), np.ones((1, 1)))


def _parents_without(level: FittedLevel, families: Families) -> _Reals:
    """Return the estimate of the parent of each node from all measurements except that of the node; shape (nodes,).

    The best estimate of a node without its own noisy value y is h' = (h - (V / s2) y) / (1 - V / s2), where h is its
    best estimate, V the variance of h, and s2 the variance of the noise. The best estimate of the parent changes by
    (v / S) W / s2 for each trip of y, where W is its variance, v / S as in
    :mod:`od_core.flows.estimation.least_squares`. So y is replaced by h'.
    """
    fan_out = np.diff(families.offsets)
    part = np.minimum(level.variance / level.noise, 1 - 1e-6)
    without = (level.estimate - part * level.noisy) / (1 - part)
    gain = level.own / np.repeat(families.siblings, fan_out) * np.repeat(families.parent_variance, fan_out)
    replaced: _Reals = np.repeat(families.parent_h, fan_out) - gain / level.noise * (level.noisy - without)
    return replaced


def _of_components(noise: GridNoise, first: _Positions) -> _Reals:
    """Return the probability of each noisy value given each component; shape (components, points + components).

    ``first`` is the smallest point of n of each component. The last columns are noisy values above the grid, by the
    component whose trips they equal.
    """
    mass, whole = len(noise.likelihood), _sum(noise.likelihood[0])
    likelihood = np.zeros((len(first), noise.points + len(first)))
    for component, (begin, end) in enumerate(pairwise([*first.tolist(), 2 * int(first[-1])])):
        own = likelihood[component, : noise.points]
        for n in range(begin, min(end, mass)):
            own += noise.likelihood[n]
        own /= whole * (end - begin)
        likelihood[component, noise.points + component] = max(1 - _sum(own), 0.0)
    return likelihood


@kernel
def _sum(values):  # type: ignore[no-untyped-def]  # compiled
    """Return a sum in the order of the values, which NumPy does not promise."""
    total = 0.0
    for value in values:
        total += value
    return total


@kernel
def component_of(trips, first):  # type: ignore[no-untyped-def]  # compiled
    """Return the component that a number of trips belongs to."""
    component = len(first) - 1
    while first[component] > trips:
        component -= 1
    return component
