"""Estimate the distribution of true counts behind the noisy values of many cells, and the posterior of each cell.

The method is expectation-maximisation on a grid of counts [dempster1977em; laird1978mixing]. Real numbers come from
single operations of IEEE 754, one after the other, and from correctly rounded decimal exponentials. They are the same
on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from od_core.kernels import kernel
from od_core.parallel import in_order

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]

_STEPS = 8
"""Least number of points of the grid in a standard deviation, unless steps of 1 give fewer."""

_LOWEST, HIGHEST, _MOST = -8, 10, 12
"""Limits of the grid, in standard deviations. Smaller x are treated as the lowest; above ``HIGHEST`` the posterior mean
is x itself. The largest n is ``_MOST``."""

_LEAST_CELLS = 400
"""Least number of cells of a bin; neighbouring octaves with fewer are merged."""

_POOLED_ITERATIONS, _BIN_ITERATIONS = 300, 150
"""Iterations on all cells, which give the start, and then in each bin."""

_NO_MASS = 2.0**-60
"""Smaller probabilities are set to 0, since arithmetic on the smallest real numbers is slow."""


@dataclass(frozen=True, eq=False)
class GridNoise:
    """The noise of the leaves, and the grid on which counts are distinguished.

    Attributes:
        sigma: Standard deviation.
        step: Distance between the points of the grid, a whole number.
        low: The smallest x on the grid, in steps; n starts at 0.
        likelihood: Likelihood of x given n, up to a factor; shape (points of n, points of x).
    """

    sigma: float
    step: int
    low: int
    likelihood: _Reals

    @classmethod
    def of(cls, variance: Fraction) -> GridNoise:
        """Return the grid for discrete Gaussian noise of that variance."""
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
    """Posterior moments of the cells, by bin.

    Attributes:
        bin_of: Number of the bin of each octave of prior means; shape (octaves,).
        mean: Posterior mean at each x of the grid; shape (bins, points of x).
        deviation: Square root of the posterior variance, in the shape of ``mean``.
    """

    bin_of: _Values
    mean: _Reals
    deviation: _Reals


def posterior_of(noise: GridNoise, counts: _Values) -> Posterior:
    """Return the posterior moments of all bins.

    The distribution of each bin starts from that of all cells, which itself starts with half its mass at 0.

    Args:
        noise: The noise and its grid.
        counts: Number of cells by octave of their prior mean and point of x; shape (octaves, points of x).
    """
    bin_of = _bins(counts.sum(axis=1))
    by_x = np.ascontiguousarray(noise.likelihood.T)
    most = len(noise.likelihood) - 1
    start = np.append(0.5, np.full(most, 0.5 / most))
    pooled = _maximised(noise.likelihood, by_x, counts.sum(axis=0), start, _POOLED_ITERATIONS)

    def moments(number: int) -> tuple[_Reals, _Reals]:
        own = counts[bin_of == number].sum(axis=0)
        prior = _maximised(noise.likelihood, by_x, own, pooled, _BIN_ITERATIONS)
        mean, deviation = np.empty(noise.points), np.empty(noise.points)
        _moments(by_x, prior, noise.low, mean, deviation)
        return mean * noise.step, deviation * noise.step

    means, deviations = zip(*in_order(moments, range(int(bin_of[-1]) + 1)), strict=True)
    return Posterior(bin_of, np.array(means), np.array(deviations))


def _bins(cells: _Values) -> _Values:
    """Return the number of each octave's bin, with at least ``_LEAST_CELLS`` cells in a bin where there are enough."""
    bin_of = np.zeros(len(cells), dtype=np.int64)
    own, rest = 0, int(cells.sum())
    for octave in range(1, len(cells)):
        own, rest = own + int(cells[octave - 1]), rest - int(cells[octave - 1])
        begins = own >= _LEAST_CELLS and rest >= _LEAST_CELLS
        bin_of[octave] = bin_of[octave - 1] + begins
        own = 0 if begins else own
    return bin_of


@kernel
def _maximised(likelihood, by_x, counts, start, iterations):  # type: ignore[no-untyped-def]  # compiled
    """Return the distribution of n that makes the counted x likely, improved from ``start``; shape (points of n,).

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
    """Write the posterior mean and standard deviation at every x, in steps."""
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
        else:  # the distribution rules out this x: no cell of the bin has it
            mean = max(low + float(x), 0.0)
        means[x], deviations[x] = mean, math.sqrt(variance)
