"""The distribution of true counts behind the noisy values of many cells, and what it says of each (spec 1, the end).

Expectation-maximisation (Dempster, Laird and Rubin 1977; Laird 1978) on a grid of counts. Real numbers come from single
operations of IEEE 754, one after the other, and from correctly rounded decimal exponentials: the same on every machine.
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
"""Points of the grid of counts in a standard deviation; more where even whole counts are further apart."""

_LOWEST, HIGHEST, _MOST = -8, 10, 12
"""In standard deviations: smaller x are taken for the lowest, of larger ones m = x; n is at most ``_MOST``."""

_LEAST_CELLS = 400
"""Of a bin: neighbouring octaves with fewer are one."""

_POOLED_ITERATIONS, _BIN_ITERATIONS = 300, 150
"""On all cells, to start from; and then in each bin."""

_NO_MASS = 2.0**-60
"""Less is put at 0: arithmetic on the smallest real numbers is slow."""


@dataclass(frozen=True, eq=False)
class GridNoise:
    """The noise of the leaves, and the grid on which counts are told apart.

    Attributes:
        sigma: standard deviation.
        step: distance of the grid's points, a whole number.
        low: the smallest x over ``step``; n begins at 0.
        likelihood: of x given n, up to a factor; shape (points of n, points of x).
    """

    sigma: float
    step: int
    low: int
    likelihood: _Reals

    @classmethod
    def of(cls, variance: Fraction) -> GridNoise:
        """Discrete Gaussian noise of that variance."""
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
        """Points of x on the grid."""
        return int(self.likelihood.shape[1])


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the distribution of each bin says of its cells.

    Attributes:
        bin_of: number of the bin of each octave of prior means; shape (octaves,).
        mean: posterior mean at each x of the grid; shape (bins, points of x).
        deviation: square root of the posterior variance, likewise.
    """

    bin_of: _Values
    mean: _Reals
    deviation: _Reals


def posterior_of(noise: GridNoise, counts: _Values) -> Posterior:
    """The distributions of all bins; each starts from that of all cells, and this with half its mass at 0."""
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
    """Number of each octave's bin, of at least ``_LEAST_CELLS`` cells where there are so many."""
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
    """Distribution of n under which the counted x are likely, from a first one; shape (points of n,).

    The inner loops run along rows, so that they become vector instructions without changing the order of any sum.
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
    """Posterior mean and standard deviation at every x, in steps."""
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
        else:  # an x that the distribution rules out: no cell of the bin has it
            mean = max(low + float(x), 0.0)
        means[x], deviations[x] = mean, math.sqrt(variance)
