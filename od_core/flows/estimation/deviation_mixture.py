"""Estimate the distribution of the deviations of a level from its predicted shares, and posterior means of its nodes.

Let q be the trips that the shares predict for a node, z the estimate of its trips from itself and the levels below it,
and v the variance of z. In units of the standard deviation of z, the deviation of the true trips from q has a
distribution that is a mixture of normal distributions with mean 0,

    (n - q) / sqrt v  ~  sum_j pi_j N(0, lambda_j),   so   t = (z - q) / sqrt v  ~  sum_j pi_j N(0, 1 + lambda_j).

The weights pi are estimated for nodes of similar size, by expectation-maximisation [dempster1977em]. The posterior mean
of n is then

    q + (z - q) g(t),   g(t) = sum_j omega_j lambda_j / (1 + lambda_j),   omega_j ~ pi_j N(t; 0, 1 + lambda_j).

Where most nodes are as predicted, g is small for small t: what is near q is noise. A node far from q keeps its
measurement, because only a wide component explains it. The densities are correctly rounded decimal exponentials, so g
is the same on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.count_distribution import bins
from od_core.flows.estimation.families import SIZES, Families, deviation, size_of
from od_core.kernels import kernel

_Reals = NDArray[np.float64]
_Positions = NDArray[np.int64]

_VARIANCES = ("0.001", "0.02", "0.06", "0.15", "0.4", "1", "2.5", "6", "16", "50", "200", "1000", "10000")
_LAMBDAS = tuple(map(Decimal, _VARIANCES))
"""Variances of the components, in variances of z."""

LOWEST, STEPS, _HIGHEST = -7, 10, 14
"""Smallest and largest t of the grid, and the number of its cells per unit of t."""

_LEAST_CELLS = 100
"""Smallest number of nodes by which weights are estimated. Neighbouring sizes with fewer nodes share a bin."""

_ITERATIONS = 100

_PSEUDO_COUNT, _WIDE = 3.0, 3
"""Number of nodes that every iteration adds to each of the widest components, and the number of these components. So a
bin without a large deviation does not overrule one."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """The distribution of the deviations of a level, by the size of its nodes.

    Attributes:
        bin_of: Number of the bin to which each size (:data:`od_core.flows.estimation.families.SIZES`) belongs; shape
            (sizes,).
        kept: g at each point of the grid; shape (bins, points).
    """

    bin_of: _Positions
    kept: _Reals


def deviation_mixture(families: Families, p: _Reals) -> Mixture:
    """Return the distribution of the deviations of a level from the shares ``p``; shape of ``p``: (children,)."""
    cells = np.zeros((SIZES, (_HIGHEST - LOWEST) * STEPS), dtype=np.int64)
    _tabulate(*families.deviations(p), cells)
    bin_of = bins(cells.sum(axis=1), _LEAST_CELLS)
    at_centres, at_points = _densities(1), _densities(0)
    kept = np.empty((int(bin_of[-1]) + 1, len(at_points)))
    part = np.array([float(one / (1 + one)) for one in _LAMBDAS])
    for number in range(len(kept)):
        own = cells[bin_of == number].sum(axis=0)
        _average(at_points, _weights(at_centres, own), part, kept[number])
    return Mixture(bin_of, kept)


@cache
def _densities(half: int) -> _Reals:
    """Return the density of each component at the points of the grid, or at the centres between them if ``half`` is 1.

    The result has the shape (points, components), and lacks a constant factor.
    """
    exact = Context(prec=40)
    rows = []
    for k in range((_HIGHEST - LOWEST) * STEPS + 1 - half):
        t = LOWEST + (Decimal(k) + Decimal(half) / 2) / STEPS
        spreads = [1 + one for one in _LAMBDAS]
        rows.append([float(exact.exp(-t * t / (2 * spread)) / exact.sqrt(spread)) for spread in spreads])
    return np.array(rows)


@kernel
def _tabulate(offsets, h, v, siblings, p, parent_h, parent_variance, sigma, cells):  # type: ignore[no-untyped-def]
    """Count the children of every family of several by their size and t, where t is on the grid."""
    points = cells.shape[1]
    for family in range(len(offsets) - 1):
        first, last = offsets[family], offsets[family + 1]
        if last - first < 2:
            continue
        for i in range(first, last):
            r, noise = deviation(h[i], v[i], p[i], parent_h[family], siblings[family], parent_variance[family])
            point = math.floor((r / math.sqrt(noise) - LOWEST) * STEPS)
            if 0 <= point < points:
                cells[size_of(p[i] * parent_h[family], sigma), int(point)] += 1


@kernel
def _weights(densities, cells):  # type: ignore[no-untyped-def]  # compiled
    """Return the weights of the components after expectation-maximisation; shape (components,)."""
    points, components = densities.shape
    weights, sums = np.full(components, 1.0 / components), np.empty(components)
    for _ in range(_ITERATIONS):
        for j in range(components):
            sums[j] = _PSEUDO_COUNT if j >= components - _WIDE else 0.0
        for k in range(points):
            if cells[k] == 0:
                continue
            whole = 0.0
            for j in range(components):
                whole += densities[k, j] * weights[j]
            for j in range(components):
                sums[j] += cells[k] * (densities[k, j] * weights[j] / whole)
        whole = 0.0
        for j in range(components):
            whole += sums[j]
        for j in range(components):
            weights[j] = sums[j] / whole
    return weights


@kernel
def _average(densities, weights, part, kept):  # type: ignore[no-untyped-def]  # compiled
    """Write g at every point, the mean of ``part`` over the components given t, into ``kept``."""
    points, components = densities.shape
    for k in range(points):
        top, whole = 0.0, 0.0
        for j in range(components):
            top += densities[k, j] * weights[j] * part[j]
            whole += densities[k, j] * weights[j]
        kept[k] = top / whole


@kernel
def kept_part(t, kept):  # type: ignore[no-untyped-def]  # compiled
    """Return g(t) by linear interpolation between the points of one bin; 1 where t is outside the grid."""
    place = (t - LOWEST) * STEPS
    if not (place >= 0.0 and place < len(kept) - 1):
        return 1.0
    point = int(place)
    return kept[point] + (place - point) * (kept[point + 1] - kept[point])
