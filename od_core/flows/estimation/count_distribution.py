"""Estimate the distribution of the true counts of many cells from their noisy values, and posteriors of the counts.

In this module, n is the true count of a cell, x is its noisy value, and sigma is the standard deviation of the noise.
Cells are grouped into bins, and each bin has its own distribution of n. The method is expectation-maximisation on a
grid of counts [dempster1977em; laird1978mixing]. Real numbers come from single operations of IEEE 754, one after the
other, and from correctly rounded decimal exponentials. So they are the same on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.kernels import kernel
from od_core.parallel import in_order

_STEPS = 8
"""Smallest number of grid points per standard deviation of the noise, unless the points are already 1 trip apart."""

_LOWEST, HIGHEST, _MOST = -8, 10, 12
"""Limits of the grid, in standard deviations of the noise: smallest and largest noisy value x, and largest true count
n. A smaller x is treated as the smallest x of the grid. For a larger x, the posterior mean is x itself."""

_LEAST_CELLS = 400
"""Smallest number of cells of a bin. Neighbouring octaves (doublings) of prior means with fewer cells share a bin."""

_POOLED_ITERATIONS, _BIN_ITERATIONS = 300, 150
"""Numbers of iterations of expectation-maximisation: first on all cells together, then on each bin, from that
result."""

_NO_MASS = 2.0**-60
"""Smaller probabilities are set to 0, because arithmetic on the smallest real numbers is slow."""


@dataclass(frozen=True, eq=False)
class GridNoise:
    """The noise of the leaves, and the grid of true counts n and noisy values x.

    Attributes:
        sigma: Standard deviation of the noise.
        step: Distance between the points of the grid, a whole number of trips.
        low: The smallest x on the grid, in steps. The smallest n is 0.
        likelihood: Probability of x given n, up to a constant factor; shape (points of n, points of x).
    """

    sigma: float
    step: int
    low: int
    likelihood: Reals

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, variance: Fraction) -> GridNoise:
        """Return the grid for discrete Gaussian noise. It is kept, because every part of a release asks for it."""
        sigma = math.sqrt(float(variance))
        step = max(1, int(sigma) // _STEPS)
        low = min(-1, math.floor(_LOWEST * sigma / step))
        high, most = (max(1, math.ceil(edge * sigma / step)) for edge in (HIGHEST, _MOST))
        exact = Context(prec=40)
        rate = -Fraction(step * step) / (2 * variance)
        decay = exact.divide(Decimal(rate.numerator), Decimal(rate.denominator))
        weight = np.array([float(exact.exp(exact.multiply(decay, Decimal(k * k)))) for k in range(most - low + 1)])
        distance = np.abs(np.arange(low, high + 1) - np.arange(most + 1)[:, None])
        return cls(sigma, step, low, weight[distance])

    @property
    def points(self) -> int:
        """Number of points of x on the grid."""
        return int(self.likelihood.shape[1])


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior means and standard deviations, in trips, of a true count, given its noisy value x and its bin.

    Attributes:
        bin_of: Number of the bin to which each octave (doubling) of prior means belongs; shape (octaves,).
        mean, deviation: Posterior mean and standard deviation at each x of the grid; shape (bins, points of x) each.
    """

    bin_of: Integers
    mean: Reals
    deviation: Reals


def posterior_of(noise: GridNoise, counts: Integers) -> Posterior:
    """Return the posterior means and standard deviations of the true counts, for all bins.

    The distribution of true counts is first estimated for all cells together. The result is the start for each bin.

    Args:
        noise: The noise and its grid.
        counts: Number of cells with a prior mean in each octave and a noisy value x at each point; shape (octaves,
            points of x).
    """
    bin_of = bins(counts.sum(axis=1), _LEAST_CELLS)
    by_x = np.ascontiguousarray(noise.likelihood.T)
    pooled = maximised(noise, counts.sum(axis=0), None, _POOLED_ITERATIONS)

    def moments(number: int) -> tuple[Reals, Reals]:
        own = counts[bin_of == number].sum(axis=0)
        prior = maximised(noise, own, pooled, _BIN_ITERATIONS)
        mean, deviation = np.empty(noise.points), np.empty(noise.points)
        _moments(by_x, prior, noise.low, mean, deviation)
        return mean * noise.step, deviation * noise.step

    means, deviations = zip(*in_order(moments, range(int(bin_of[-1]) + 1)), strict=True)
    return Posterior(bin_of, np.array(means), np.array(deviations))


def maximised(noise: GridNoise, counts: Integers, start: Reals | None, iterations: int) -> Reals:
    """Return the distribution of true counts n after iterations of expectation-maximisation; shape (points of n,).

    Args:
        noise: The noise and its grid.
        counts: Number of cells with a noisy value x at each point; shape (points of x,).
        start: Distribution to start from; None for 1/2 at 0 and uniform on the other points.
        iterations: Number of iterations.
    """
    most = len(noise.likelihood) - 1
    first = np.append(0.5, np.full(most, 0.5 / most)) if start is None else start
    by_x = np.ascontiguousarray(noise.likelihood.T)
    return _maximised(noise.likelihood, by_x, counts, first, iterations)  # type: ignore[no-any-return]


def bins(cells: Integers, least: int) -> Integers:
    """Return the bin, numbered from 0, to which each size belongs, given the number of its cells; shape (sizes,).

    Consecutive sizes share a bin until it has at least ``least`` cells. A new bin begins only if the remaining sizes
    also have that many.
    """
    bin_of = np.zeros(len(cells), dtype=np.int64)
    own, rest = 0, int(cells.sum())
    for size, number in enumerate(cells[:-1].tolist(), start=1):
        own, rest = own + number, rest - number
        begins = own >= least and rest >= least
        bin_of[size] = bin_of[size - 1] + begins
        own = 0 if begins else own
    return bin_of


@kernel
def _maximised(likelihood, by_x, counts, start, iterations):  # type: ignore[no-untyped-def]  # compiled
    """Do what :func:`maximised` says. ``by_x`` is the transposed ``likelihood``.

    The inner loops run along rows, so that they compile to vector instructions without changing the order of any sum.
    """
    prior = start.copy()
    mass, points = likelihood.shape
    cells = 0.0
    for x in range(points):
        cells += counts[x]
    if cells == 0.0:
        return prior
    of_x, of_n = np.empty(points), np.empty(mass)
    for _ in range(iterations):
        of_x[:] = 0.0
        for n in range(mass):
            if prior[n] > 0.0:
                for x in range(points):
                    of_x[x] += prior[n] * likelihood[n, x]
        of_n[:] = 0.0
        for x in range(points):
            if counts[x] > 0 and of_x[x] > 0.0:
                ratio = counts[x] / of_x[x] / cells
                for n in range(mass):
                    of_n[n] += ratio * by_x[x, n]
        for n in range(mass):
            prior[n] *= of_n[n]
            if prior[n] < _NO_MASS:
                prior[n] = 0.0
    return prior


@kernel
def _moments(by_x, prior, low, means, deviations):  # type: ignore[no-untyped-def]  # compiled
    """Write the mean and the standard deviation of n, given each x, to two arrays, in steps; ``prior`` is that of n."""
    points, mass = by_x.shape
    for x in range(points):
        whole, mean, variance = 0.0, 0.0, 0.0
        for n in range(mass):
            weight = prior[n] * by_x[x, n]
            whole += weight
            mean += n * weight
        if whole > 0.0:
            mean /= whole
            for n in range(mass):
                variance += (n - mean) * (n - mean) * (prior[n] * by_x[x, n])
            variance /= whole
        else:  # x is impossible under this distribution: no cell of the bin has it
            mean = max(low + float(x), 0.0)
        means[x], deviations[x] = mean, math.sqrt(variance)
