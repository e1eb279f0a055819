"""The privacy loss of a whole release of discrete Gaussians, and the rho that an (epsilon, delta) allows (spec 1).

A release whose neighbours differ by unit shifts of independent discrete Gaussians N_Z(0, v_1), ..., N_Z(0, v_n) has
the privacy loss L = R + Y_1 + ... + Y_n, with R the sum of 1 / (2 v_i) and Y_i = -X_i / v_i, X_i ~ N_Z(0, v_i). It is
(epsilon, delta)-differentially private for delta = E max(0, 1 - exp(epsilon - L)); why this covers a release level by
level stands in ``docs/exact-accounting.md``. Here this delta is bounded from above:

* Each Y_i is spread over the dots of a grid such that E exp(-Y_i) stays (Doroshenko et al. 2022, "connect the dots").
  The integrand is convex in exp(-Y_i), so by Jensen the expectation can only grow. Where all variances are equal and
  the values of Y_i lie further apart than the dots would, they are the dots, and nothing grows.
* The n laws are convolved as plain sums of products. All numbers are non-negative, so no rounding is ever enlarged:
  the factor 1 + ``_GUARD`` covers 2^28 roundings one after the other, and the longest chain has some 2^20.
* The tails that are cut off count as a loss without bound.
* A loss is rounded by less than 2^-48 of the largest one; asking for an epsilon that is less by ``_GUARD`` of that one
  covers it.
* Delta is not monotone in the variances, and a backend may draw noise that is wider than planned by a rounding. What is
  computed holds for every variance from v_i to (1 + ``VARIANCE_SLACK``) v_i: there no loss is larger by more than that
  part of the largest one, and no outcome within reach likelier by more than a factor exp(``VARIANCE_SLACK`` x^2 / 2 v).
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
"""Below it the tails that are cut off (three a variance, each 2^-64) would be felt."""


_REACH = 9.5
"""In sigmas; beyond lies 2 exp(-9.5^2 / 2) < 2^-64, with any slack too (sub-Gaussian: Canonne et al. 2020)."""

_TAIL = 2.0**-64

_GUARD = 2.0**-24

_BLOCKS = 2**12
"""Noise that is wider is taken in blocks of 2 sigma / _BLOCKS integers, so that its width costs no time."""

_NARROWEST, _WIDEST = Fraction(1, 10**30), Fraction(10**60)
"""A variance beyond these is a mistake; between them floating point neither overflows nor meets a zero."""

_BITS_OF_RHO = 13
"""Rho is sought among numbers of this many bits: coarse enough that no machine's last bit matters."""


class _Law(NamedTuple):
    """P(Y = (first + i) step) = masses[i]; with probability ``lost`` Y is anything at all."""

    first: int
    masses: NDArray[np.float64]
    lost: float


def is_defined(delta: Fraction) -> bool:
    """Whether floating point carries a promise at this delta."""
    return LEAST_DELTA <= delta < 1


def delta_exact(variances: Sequence[Fraction], epsilon: Fraction) -> float:
    """Return an upper bound of the delta, at an epsilon, of unit-shift discrete Gaussians, one for each variance.

    It holds for the planned variances and for all that are above them by at most ``VARIANCE_SLACK``, each by its own.

    Args:
        variances: as planned, at least one; one that counts twice (a substitution moves two cells) is given twice.
        epsilon: at least 0.

    Raises:
        OdError: no variance, one that is not above 0, or an epsilon below 0.
    """
    if epsilon < 0:
        raise OdError("OD-BUDGET-EPSILON", "epsilon must not be below 0", next_step="correct the budget")
    return _delta_of(variances)(float(epsilon))


@lru_cache(maxsize=256)
def epsilon_exact(variances: tuple[Fraction, ...], delta: Fraction) -> Fraction:
    """Least epsilon, rounded up by at most a relative 2^-24 of ``tight``'s, that unit-shift discrete Gaussians promise.

    So coarse that the last bits of another machine say the same, but for one release in a million.

    Arguments and errors as for :func:`delta_exact`; also OdError where delta is below 1e-12.
    """
    _check_delta(delta)
    delta_of = _delta_of(variances)
    tight = accounting.epsilon_tight(sum((1 / (2 * v) for v in variances), start=Fraction(0)), delta)
    unit = tight / 2**24
    low, high = -1, 2**24  # tight is a promise by itself
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
    """Largest rho found whose release is (epsilon, delta)-differentially private; a multiple of 2^-64.

    The release measures a level of share s with variance c / (2 rho s), and neighbours differ by one in at most c of
    its cells. The release at the rho returned has been checked: :func:`delta_exact` is at most delta, for
    these variances and for all that are above them by at most ``VARIANCE_SLACK``.

    Args:
        epsilon, delta: the promise.
        shares: of rho, one a measured level; above 0, sum 1.
        cells: of each measured level: 2 for bounded neighbours, 1 for unbounded, and for the root.

    Raises:
        OdError: as ``accounting.rho_for_epsilon``; also where delta is below 1e-12.
    """
    _check_delta(delta)
    tight = accounting.rho_for_epsilon(epsilon, delta, "tight")
    unit = max(accounting.RHO_UNIT, Fraction(2) ** (_floor_log2(tight) - _BITS_OF_RHO + 1))

    less = epsilon * (1 - Fraction(1, 2**20))  # so that epsilon_exact, rounded up, does not exceed what was asked for

    def delta_at(steps: int) -> float:
        levels = zip(shares, cells, strict=True)
        return delta_exact(
            [shifted / (2 * steps * unit * share) for share, shifted in levels for _ in range(shifted)], less
        )

    slope = max(float((epsilon**2 - tight**2) / (4 * tight)), 1.0)  # of ln delta by ln rho in a Gaussian's tail
    return _last_within(delta_at, delta, slope, int(tight / unit)) * unit


def _delta_of(variances: Sequence[Fraction]) -> Callable[[float], float]:
    """Delta by epsilon, for the composition of unit-shift discrete Gaussians of these variances."""
    if not variances or not _NARROWEST <= min(variances) <= max(variances) <= _WIDEST:
        raise OdError(
            "OD-BUDGET-RHO",
            "every variance must lie between 1e-30 and 1e60",
            next_step="correct the budget or the shares",
        )
    counts = Counter(float(variance) for variance in variances)
    step = _step(counts)
    first, masses, lost = reduce(_sum, (_times(_law(variance, step), counts[variance]) for variance in sorted(counts)))
    offset = sum(times / (2 * variance) for variance, times in counts.items())
    losses = offset + step * (first + np.arange(len(masses)))
    size = offset + sum(times * _REACH / math.sqrt(variance) for variance, times in counts.items())
    slack = float(VARIANCE_SLACK)
    likelier = math.exp(slack * counts.total() * _REACH**2 / 2)  # any outcome within reach at the widest noise

    def delta(epsilon: float) -> float:
        excess = losses - (epsilon - _GUARD * (epsilon + size) - slack * size)
        above = excess > 0
        total = float(np.sum(masses[above] * -np.expm1(-excess[above])))
        return min(1.0, likelier * ((1 + _GUARD) * total + lost))

    return delta


def _step(counts: Counter[float]) -> float:
    """Distance of the grid's dots: it adds less than 2^-14 of the variance of the loss (2^-12 / 6 if dots are random).

    Few dots would carry a law of a huge or tiny variance as well; the second bound only keeps the work small.
    """
    mean_square = sum(times / variance for variance, times in counts.items()) / counts.total()
    widest = max((_REACH * math.sqrt(variance) + 1) / variance for variance in counts)
    step = max(math.sqrt(mean_square) / 64, widest / 2**13)
    return max(step, 1 / next(iter(counts))) if len(counts) == 1 else step


def _law(variance: float, step: float) -> _Law:
    """The law of Y = -X / v, X ~ N_Z(0, v), spread over the grid.

    From sigma = 2^12 on, the integers are taken in blocks of 2 m + 1, from c - m to c + m, with m / sigma below 2^-12.
    Of a block we bound from above its mass, P(c) times the sum of cosh(c i / v) exp(-i^2 / 2v) over |i| <= m, and from
    below its mean of exp(-Y), exp(c / v) times a mean of cosh((c - 1) i / v) / cosh(c i / v): at least 1 for c <= 0,
    and at least exp(-c m^2 / v^2) for c >= 1, for the derivative of ln cosh(x) is at most x. With m = 0 both are exact.
    """
    sigma = math.sqrt(variance)
    m = int(sigma / _BLOCKS)
    reach = math.ceil(_REACH * sigma / (2 * m + 1))
    centre = (2 * m + 1) * np.arange(-reach, reach + 1, dtype=np.float64)
    masses = (2 * m + 1) * np.exp(-(centre**2) / (2 * variance)) * np.cosh(m * centre / variance)
    normaliser = math.sqrt(2 * math.pi * variance) if m else masses.sum()  # neither is above the true one
    mean = (np.maximum(centre, 0) * (m / variance) ** 2) - centre / variance
    lower = np.floor(-(centre + m) / variance / step)
    upper = np.maximum(lower + 1, np.ceil(-(centre - m) / variance / step))
    upwards = np.clip(np.expm1(lower * step - mean) / np.expm1((lower - upper) * step), 0, 1)
    first = int(lower[-1])
    dots = np.concatenate([lower, upper]).astype(np.int64) - first
    spread = np.concatenate([masses * (1 - upwards), masses * upwards]) / normaliser
    return _Law(first, np.asarray(np.bincount(dots, spread), dtype=np.float64), _TAIL)


def _sum(one: _Law, other: _Law) -> _Law:
    """The law of the sum of two independent ones, without tails of 2^-64 on either side."""
    masses = np.convolve(one.masses, other.masses)
    left = int(np.searchsorted(np.cumsum(masses), _TAIL))
    right = int(np.searchsorted(np.cumsum(masses[::-1]), _TAIL))
    kept = masses[left : len(masses) - right]
    return _Law(one.first + other.first + left, kept, one.lost + other.lost + 2 * _TAIL)


def _times(law: _Law, times: int) -> _Law:
    """The law of the sum of independent copies of one, by doubling."""
    if times == 1:
        return law
    half = _times(law, times // 2)
    double = _sum(half, half)
    return _sum(double, law) if times % 2 else double


def _last_within(delta_at: Callable[[int], float], delta: Fraction, slope: float, start: int) -> int:
    """A whole number above 0 at which delta holds, and one more at which it does not hold.

    A secant in the logarithms, from a first guess of the slope; doubling and halving where that does not end soon.
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
            "the exact privacy loss is defined for a delta from 1e-12 to below 1",
            next_step="set the conversion to tight",
        )
