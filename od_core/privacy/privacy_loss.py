"""Compute the privacy loss of a whole release of discrete Gaussians, and the rho that an (epsilon, delta) allows.

A release whose neighbours differ by unit shifts of independent discrete Gaussians N_Z(0, v_1), ..., N_Z(0, v_n) has
the privacy loss L = R + Y_1 + ... + Y_n. R is the sum of 1 / (2 v_i), and Y_i = -X_i / v_i with X_i ~ N_Z(0, v_i). The
release is (epsilon, delta)-differentially private for delta = E max(0, 1 - exp(epsilon - L)).
``docs/explanation/noise.md`` proves that this covers a release level by level. This module bounds delta from above:

* Each Y_i is spread over the dots of a grid such that E exp(-Y_i) is unchanged ("connect the dots"
  [doroshenko2022dots]). The integrand is convex in exp(-Y_i), so by Jensen's inequality the expectation can only grow.
  If all variances are equal and the values of Y_i are further apart than the dots would be, the values are the dots,
  and the expectation does not grow.
* The n distributions are convolved as plain sums of products. All numbers are non-negative, so no rounding error is
  amplified. The factor 1 + ``_GUARD`` covers 2^28 consecutive roundings, and the longest chain has some 2^20.
* The tails that are cut off count as an infinite loss.
* A loss is rounded by less than 2^-48 of the largest loss. Lowering epsilon by ``_GUARD`` times the largest loss covers
  this.
* Delta is not monotone in the variances, and a backend may draw noise that is wider than planned by a rounding. The
  bound holds for every variance from v_i to (1 + ``VARIANCE_SLACK``) v_i. In this range no loss grows by more than
  ``VARIANCE_SLACK`` times the largest loss, and the probability of an outcome within reach grows by at most a factor
  exp(``VARIANCE_SLACK`` x^2 / 2 v).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise.opendp import VARIANCE_SLACK
from od_core.privacy import accounting

LEAST_DELTA = Fraction(1, 10**12)
"""Smallest delta. Below it, the tails that are cut off (three per variance, each 2^-64) would matter."""


_REACH = 9.5
"""Reach in sigmas. The mass beyond is at most 2 exp(-9.5^2 / 2) < 2^-64, also for any variance within the slack.

A discrete Gaussian is sub-Gaussian [canonne2020discrete].
"""

_TAIL = 2.0**-64

_GUARD = 2.0**-24

_BLOCKS = 2**12
"""Noise with a sigma above this is taken in blocks of about 2 sigma / _BLOCKS integers: its width costs no time."""

_NARROWEST, _WIDEST = Fraction(1, 10**30), Fraction(10**60)
"""Smallest and largest variance. One beyond them is a mistake; between them nothing overflows or becomes zero."""

_BITS_OF_RHO = 13
"""Bits of the candidates for rho: so few that the last bits of a machine's arithmetic do not matter."""


class _Distribution(NamedTuple):
    """A distribution on the grid: P(Y = (first + i) step) = masses[i]. With probability ``lost``, Y is arbitrary."""

    first: int
    masses: NDArray[np.float64]
    lost: float


def is_defined(delta: Fraction) -> bool:
    """Return whether floating point supports a promise at this delta."""
    return LEAST_DELTA <= delta < 1


def delta_exact(variances: Sequence[Fraction], epsilon: Fraction) -> float:
    """Return an upper bound of delta at an epsilon for unit-shift discrete Gaussians, one for each variance.

    The bound holds for all variances from the planned ones to 1 + ``VARIANCE_SLACK`` times these, each independently.

    Args:
        variances: planned variances, at least one. A variance that counts twice is given twice: a substitution changes
            two cells.
        epsilon: at least 0.

    Raises:
        OdError: there is no variance, a variance is not between 1e-30 and 1e60, or epsilon is below 0.
    """
    if epsilon < 0:
        raise OdError("OD-BUDGET-EPSILON", "epsilon must be at least 0", next_step="correct the budget")
    return _delta_of(variances)(float(epsilon))


@lru_cache(maxsize=256)
def epsilon_exact(variances: tuple[Fraction, ...], delta: Fraction) -> Fraction:
    """Return the least epsilon of unit-shift discrete Gaussians, rounded up by at most 2^-24 of the ``tight`` epsilon.

    This is so coarse that another machine finds the same number, except for one release in a million.

    Args:
        variances: as for :func:`delta_exact`.
        delta: from 1e-12 to below 1.

    Raises:
        OdError: as for :func:`delta_exact`; delta is out of range.
    """
    _check_delta(delta)
    delta_of = _delta_of(variances)
    tight = accounting.epsilon_tight(sum((1 / (2 * v) for v in variances), start=Fraction(0)), delta)
    unit = tight / 2**24
    low, high = -1, 2**24  # tight is itself a valid promise
    while high - low > 1:
        middle = (low + high) // 2
        if delta_of(float(middle * unit)) <= delta:
            high = middle
        else:
            low = middle
    return high * unit


@lru_cache(maxsize=256)
def rho_for_epsilon_exact(
    epsilon: Fraction, delta: Fraction, shares: tuple[Fraction, ...], cells: tuple[int, ...]
) -> Fraction:
    """Return the largest rho found whose release is (epsilon, delta)-differentially private; a multiple of 2^-64.

    The release measures a level of share s with variance c / (2 rho s), and neighbours differ by one in at most c of
    its cells. The returned rho has been checked: :func:`delta_exact` is at most delta for these variances, and for all
    variances up to 1 + ``VARIANCE_SLACK`` times these.

    Args:
        epsilon, delta: the promise.
        shares: shares of rho, one per measured level; above 0, sum 1.
        cells: c of each measured level: 2 for bounded neighbours, 1 for unbounded neighbours and for the root.

    Raises:
        OdError: as ``accounting.rho_for_epsilon``; delta is below 1e-12.
    """
    _check_delta(delta)
    tight = accounting.rho_for_epsilon(epsilon, delta, "tight")
    unit = max(accounting.RHO_UNIT, Fraction(2) ** (_floor_log2(tight) - _BITS_OF_RHO + 1))

    less = epsilon * (1 - Fraction(1, 2**20))  # so that epsilon_exact, rounded up, does not exceed epsilon

    def delta_at(steps: int) -> float:
        levels = zip(shares, cells, strict=True)
        return delta_exact(
            [shifted / (2 * steps * unit * share) for share, shifted in levels for _ in range(shifted)], less
        )

    slope = max(float((epsilon**2 - tight**2) / (4 * tight)), 1.0)  # d ln delta / d ln rho in a Gaussian's tail
    return _last_within(delta_at, delta, slope, int(tight / unit)) * unit


def _delta_of(variances: Sequence[Fraction]) -> Callable[[float], float]:
    """Return delta as a function of epsilon for the composition of unit-shift discrete Gaussians of these variances."""
    if not variances or not _NARROWEST <= min(variances) <= max(variances) <= _WIDEST:
        raise OdError(
            "OD-BUDGET-RHO",
            "every variance must lie between 1e-30 and 1e60",
            next_step="correct the budget or the shares",
        )
    counts = Counter(float(variance) for variance in variances)
    step = _step(counts)
    first, masses, lost = reduce(
        _sum, (_times(_distribution(variance, step), counts[variance]) for variance in sorted(counts))
    )
    offset = sum(times / (2 * variance) for variance, times in counts.items())
    losses = offset + step * (first + np.arange(len(masses)))
    size = offset + sum(times * _REACH / math.sqrt(variance) for variance, times in counts.items())
    slack = float(VARIANCE_SLACK)
    likelier = math.exp(slack * counts.total() * _REACH**2 / 2)  # bounds the growth of any probability within reach

    def delta(epsilon: float) -> float:
        excess = losses - (epsilon - _GUARD * (epsilon + size) - slack * size)
        above = excess > 0
        total = float(np.sum(masses[above] * -np.expm1(-excess[above])))
        return min(1.0, likelier * ((1 + _GUARD) * total + lost))

    return delta


def _step(counts: Counter[float]) -> float:
    """Return the distance of the grid's dots.

    Dots that are 1/64 of the root-mean-square deviation of the Y_i apart add less than 2^-14 of the variance of the
    loss (2^-12 / 6 of it if the losses lie at random between the dots). The second bound keeps the work small for a
    huge or tiny variance, whose distribution needs only few dots.
    """
    mean_square = sum(times / variance for variance, times in counts.items()) / counts.total()
    widest = max((_REACH * math.sqrt(variance) + 1) / variance for variance in counts)
    step = max(math.sqrt(mean_square) / 64, widest / 2**13)
    return max(step, 1 / next(iter(counts))) if len(counts) == 1 else step


def _distribution(variance: float, step: float) -> _Distribution:
    """Return the distribution of Y = -X / v, X ~ N_Z(0, v), spread over the grid.

    From sigma = 2^12 on, the integers are taken in blocks of 2 m + 1, from c - m to c + m, with m / sigma at most
    2^-12. The mass of a block is bounded from above; it is P(c) times the sum of cosh(c i / v) exp(-i^2 / 2v) over
    |i| <= m. The block's mean of exp(-Y) is bounded from below; it is exp(c / v) times a mean of
    cosh((c - 1) i / v) / cosh(c i / v). This mean is at least 1 for c <= 0, and at least exp(-c m^2 / v^2) for c >= 1,
    because the derivative of ln cosh(x) is at most x. With m = 0 both bounds are exact.
    """
    sigma = math.sqrt(variance)
    m = int(sigma / _BLOCKS)
    reach = math.ceil(_REACH * sigma / (2 * m + 1))
    centre = (2 * m + 1) * np.arange(-reach, reach + 1, dtype=np.float64)
    masses = (2 * m + 1) * np.exp(-(centre**2) / (2 * variance)) * np.cosh(m * centre / variance)
    normaliser = math.sqrt(2 * math.pi * variance) if m else masses.sum()  # neither exceeds the true one
    mean = (np.maximum(centre, 0) * (m / variance) ** 2) - centre / variance
    lower = np.floor(-(centre + m) / variance / step)
    upper = np.maximum(lower + 1, np.ceil(-(centre - m) / variance / step))
    upwards = np.clip(np.expm1(lower * step - mean) / np.expm1((lower - upper) * step), 0, 1)
    first = int(lower[-1])
    dots = np.concatenate([lower, upper]).astype(np.int64) - first
    spread = np.concatenate([masses * (1 - upwards), masses * upwards]) / normaliser
    return _Distribution(first, np.asarray(np.bincount(dots, spread), dtype=np.float64), _TAIL)


def _sum(one: _Distribution, other: _Distribution) -> _Distribution:
    """Return the distribution of the sum of two independent variables, without tails of 2^-64 on either side."""
    masses = np.convolve(one.masses, other.masses)
    left = int(np.searchsorted(np.cumsum(masses), _TAIL))
    right = int(np.searchsorted(np.cumsum(masses[::-1]), _TAIL))
    kept = masses[left : len(masses) - right]
    return _Distribution(one.first + other.first + left, kept, one.lost + other.lost + 2 * _TAIL)


def _times(distribution: _Distribution, times: int) -> _Distribution:
    """Return the distribution of the sum of ``times`` independent copies, by doubling."""
    if times == 1:
        return distribution
    half = _times(distribution, times // 2)
    double = _sum(half, half)
    return _sum(double, distribution) if times % 2 else double


def _last_within(delta_at: Callable[[int], float], delta: Fraction, slope: float, start: int) -> int:
    """Return an integer n above 0 such that delta is kept at n and exceeded at n + 1.

    The search follows a secant in the logarithms, from a first guess of the slope. If it does not end soon, it
    continues by doubling and halving. Raises OdError if delta is exceeded at 1.
    """
    low, high = 0, 0  # high: none yet
    guess, tries = start, 0
    before: tuple[float, float] | None = None
    while high != low + 1:
        found = delta_at(guess)
        if found <= delta:
            low = guess
        else:
            high = guess
        here = math.log(guess), math.log(found / delta)
        if before is not None:
            slope = max((here[1] - before[1]) / (here[0] - before[0]), 1.0)
        before, tries = here, tries + 1
        wanted = int(guess * math.exp(min(max(-here[1] / slope, -1.0), 1.0)))
        if tries > 8:
            wanted = (low + high) // 2 if high else 2 * low
        guess = max(low + 1, min(wanted, high - 1) if high else wanted)
    if low == 0:
        raise OdError("OD-BUDGET-EPSILON", "epsilon is too small for any noise", next_step="raise epsilon or delta")
    return low


def _floor_log2(value: Fraction) -> int:
    power = value.numerator.bit_length() - value.denominator.bit_length()
    return power if Fraction(2) ** power <= value else power - 1


def _check_delta(delta: Fraction) -> None:
    if not is_defined(delta):
        raise OdError(
            "OD-BUDGET-DELTA",
            "the exact privacy loss is available only for a delta of at least 1e-12 and below 1",
            next_step="set the conversion to tight",
        )
