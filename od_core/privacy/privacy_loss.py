"""Compute the exact privacy loss of a release with discrete Gaussian noise, and the rho that (epsilon, delta) allows.

Suppose that n cells have independent noise N_Z(0, v_1), ..., N_Z(0, v_n), and that neighbours differ by the shift m in
each of these cells and in no other. Then the release has the privacy loss L = R + Y_1 + ... + Y_n. R is the sum of
m^2 / (2 v_i), and Y_i = -m X_i / v_i with X_i ~ N_Z(0, v_i). The release is (epsilon, delta)-differentially private
for delta = E max(0, 1 - exp(epsilon - L)). ``docs/explanation/noise.md`` proves that this covers a release level by
level, however the m trips of a unit are divided among the cells of a level. This module bounds delta from above: the
probability of each loss is moved to points of a grid such that delta can only grow ("connect the dots"
[doroshenko2022dots]), the n distributions are convolved, and margins cover every rounding, every tail that is cut off,
and every variance that a backend may draw with. The same page derives each margin.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise.opendp import VARIANCE_SLACK
from od_core.privacy import accounting

MIN_DELTA = Fraction(1, 10**12)
"""Smallest delta. Below it, the tails that are cut off (three per variance, each 2^-64) would matter."""

_CUTOFF_DEVIATIONS = 9.5
"""Number of standard deviations beyond which a distribution is cut off.

The probability beyond is at most 2 exp(-9.5^2 / 2) < 2^-64 [canonne2020discrete, Corollary 17].
"""

_TAIL = 2.0**-64
"""Upper bound of the probability of a tail that is cut off."""

_GUARD = 2.0**-24
"""Relative margin for the errors of floats, in losses and in sums of probabilities."""

_MIN_BLOCK_SIGMA = 2**12
"""Smallest standard deviation sigma for which integers are grouped into blocks (:func:`_compute_loss_distribution`).

A block has about 2 sigma / ``_MIN_BLOCK_SIGMA`` integers, so that the time does not grow with sigma.
"""

_MIN_VARIANCE, _MAX_VARIANCE = Fraction(1, 10**30), Fraction(10**60)
"""Smallest and largest variance. Between them, no computation overflows or underflows to zero."""

_BITS_OF_RHO = 13
"""Number of significant bits of a computed rho. With so few, different machines normally find the same rho."""

_UNITS_OF_EPSILON = 2**24
"""Number of parts of the ``tight`` epsilon to whose multiples :func:`compute_exact_epsilon` rounds."""


class _Distribution(NamedTuple):
    """A distribution of Y on the points k ``step`` of a grid, for integers k: P(Y = (first + i) step) = masses[i].

    ``lost`` is an upper bound of the probability of all values that were cut off.
    """

    first: int
    masses: NDArray[np.float64]
    lost: float


def is_defined(delta: Fraction) -> bool:
    """Return whether this module can compute the exact privacy loss at a delta."""
    return MIN_DELTA <= delta < 1


def compute_exact_delta(variances: Sequence[Fraction], epsilon: Fraction, shift: int = 1) -> float:
    """Return an upper bound of delta at an epsilon, if neighbours differ by ``shift`` in one cell per variance.

    The bound also holds if each variance is larger than planned by its own factor of at most 1 + ``VARIANCE_SLACK``. If
    two cells of a level differ, as under bounded neighbours, the planned variance of this level is given twice.

    Raises OdError if there is no variance, a variance is not between 1e-30 and 1e60, also as a multiple of the squared
    shift, or epsilon is below 0.
    """
    if epsilon < 0:
        raise OdError("OD-BUDGET-EPSILON", "epsilon must be at least 0", next_step="correct the budget")
    return _make_delta_function(tuple(variances), shift)(float(epsilon))


@lru_cache(maxsize=256)
def compute_exact_epsilon(variances: tuple[Fraction, ...], delta: Fraction, shift: int = 1) -> Fraction:
    """Return the least epsilon at a delta, if neighbours differ by ``shift`` in one cell per variance.

    The result is rounded up to a multiple of 2^-24 of the ``tight`` epsilon. With this rounding, another machine finds
    the same number, except for about one release in a million.

    Raises OdError if delta is not from 1e-12 to below 1, or :func:`compute_exact_delta` refuses the variances.
    """
    _check_delta(delta)
    compute_delta = _make_delta_function(variances, shift)
    rho = sum((shift**2 / (2 * variance) for variance in variances), start=Fraction(0))
    tight = accounting.compute_tight_epsilon(rho, delta)
    unit = tight / _UNITS_OF_EPSILON
    below_tight = range(_UNITS_OF_EPSILON)  # tight is itself a valid promise
    least = bisect_left(below_tight, True, key=lambda units: compute_delta(float(units * unit)) <= delta)
    return least * unit


@lru_cache(maxsize=256)
def find_rho_by_loss(
    epsilon: Fraction, delta: Fraction, shares: tuple[Fraction, ...], cells: tuple[int, ...], shift: int = 1
) -> Fraction:
    """Return the largest rho, on a grid, for which the release is (epsilon, delta)-differentially private.

    The grid has the multiples of a power of 2, at least 2^-64, with about ``_BITS_OF_RHO`` significant bits, so that
    different machines find the same rho. By :func:`compute_exact_delta`, delta is kept at this rho, and exceeded at the
    next one.

    A level with share s is measured with variance c m^2 / (2 rho s), and neighbours differ by m in at most c of its
    cells.

    Args:
        epsilon, delta: the promise.
        shares: the share s of each level, above 0. They sum to 1.
        cells: the number c of each level: 2 for bounded neighbours, and 1 for unbounded neighbours and for the root.
        shift: the change m of a cell.

    Raises:
        OdError: :func:`od_core.privacy.accounting.find_rho_for_epsilon` refuses epsilon or delta, or delta is below
            1e-12.
    """
    _check_delta(delta)
    tight = accounting.find_rho_for_epsilon(epsilon, delta, "tight")
    unit = max(accounting.RHO_UNIT, Fraction(2) ** (_compute_floor_log2(tight) - _BITS_OF_RHO + 1))

    lowered_epsilon = epsilon * (1 - Fraction(1, 2**20))  # so that epsilon_exact, rounded up, does not exceed epsilon

    def compute_delta(units: int) -> float:
        """Return an upper bound of delta if rho is a multiple of the unit of the grid."""
        variances: list[Fraction] = []
        for share, differing in zip(shares, cells, strict=True):
            variances += differing * [differing * shift**2 / (2 * units * unit * share)]
        return compute_exact_delta(variances, lowered_epsilon, shift)

    # d ln delta / d ln rho at the tight rho, with the tail of a Gaussian: delta ~ exp(-(epsilon - rho)^2 / (4 rho))
    slope = max(float((epsilon**2 - tight**2) / (4 * tight)), 1.0)
    start = int(tight / unit)
    return _find_last_within_delta(compute_delta, delta, slope, start) * unit


@lru_cache(maxsize=32)
def _make_delta_function(variances: tuple[Fraction, ...], shift: int) -> Callable[[float], float]:
    """Return the function of epsilon that :func:`compute_exact_delta` evaluates, for these variances and this shift.

    Equal variances are convolved by doubling, and then the different ones in ascending order, so that the result does
    not depend on the order of ``variances``. Raises OdError for variances that are out of range.
    """
    if not variances or not _MIN_VARIANCE * shift**2 <= min(variances) <= max(variances) <= _MAX_VARIANCE:
        message = "every variance must lie between 1e-30 and 1e60"
        raise OdError("OD-BUDGET-RHO", message, next_step="correct the budget or the shares")
    counts = Counter(float(variance) for variance in variances)
    step = _compute_grid_step(counts, shift)
    terms = [_sum_copies(_compute_loss_distribution(v, step, shift), counts[v]) for v in sorted(counts)]
    random_loss = terms[0]  # the distribution of Y_1 + ... + Y_n
    for term in terms[1:]:
        random_loss = _sum_independent(random_loss, term)
    first, masses, lost = random_loss
    offset = sum(times * shift**2 / (2 * variance) for variance, times in counts.items())  # R
    losses = offset + step * (first + np.arange(len(masses)))
    largest_loss = offset + sum(
        times * _CUTOFF_DEVIATIONS * shift / math.sqrt(variance) for variance, times in counts.items()
    )
    slack = float(VARIANCE_SLACK)
    # By at most this factor, larger variances raise probabilities.
    growth = math.exp(slack * counts.total() * _CUTOFF_DEVIATIONS**2 / 2)

    def bound_delta(epsilon: float) -> float:
        """Return an upper bound of delta at an epsilon, with all margins."""
        lowered_epsilon = epsilon - _GUARD * (epsilon + largest_loss) - slack * largest_loss
        excess = losses - lowered_epsilon
        above = excess > 0
        expectation = float(np.sum(masses[above] * -np.expm1(-excess[above])))
        return min(1.0, growth * ((1 + _GUARD) * expectation + lost))

    return bound_delta


def _compute_grid_step(counts: Counter[float], shift: int) -> float:
    """Return the distance between neighbouring points of the grid of losses.

    ``counts`` has the number of cells with each variance. The distance is 1/64 of the root mean square of the standard
    deviations of the cells' losses. It is larger if the variances differ so much that half of the widest distribution
    would have more than 2^13 points, or if all variances are equal and the values of a cell's loss are further apart.
    """
    mean_square = shift**2 * sum(cells / variance for variance, cells in counts.items()) / counts.total()
    widest = max(shift * (_CUTOFF_DEVIATIONS * math.sqrt(variance) + 1) / variance for variance in counts)
    step = max(math.sqrt(mean_square) / 64, widest / 2**13)
    if len(counts) == 1:
        (variance,) = counts
        step = max(step, shift / variance)
    return step


def _compute_loss_distribution(variance: float, step: float, shift: int) -> _Distribution:
    """Return the distribution of Y = -m X / v with X ~ N_Z(0, v) and the shift m, moved to the points of the grid.

    ``step`` is the distance of the points. From sigma = 2^12 on, the integers are grouped into blocks of 2 h + 1, from
    c - h to c + h, with h / sigma at most 2^-12. The probability of a block is bounded from above; it is P(c) times the
    sum of cosh(c i / v) exp(-i^2 / 2v) over |i| <= h. The block's mean of exp(-Y) is bounded from below; it is
    exp(m c / v) times a mean of cosh((c - m) i / v) / cosh(c i / v). This mean is at least 1 for c <= 0, and at least
    exp(-m c h^2 / v^2) for c >= 1, because the derivative of ln cosh(x) is at most x. With h = 0 both bounds are exact.
    """
    sigma = math.sqrt(variance)
    half = int(sigma / _MIN_BLOCK_SIGMA)
    reach = math.ceil(_CUTOFF_DEVIATIONS * sigma / (2 * half + 1))
    centre = (2 * half + 1) * np.arange(-reach, reach + 1, dtype=np.float64)
    masses = (2 * half + 1) * np.exp(-(centre**2) / (2 * variance)) * np.cosh(half * centre / variance)
    normaliser = math.sqrt(2 * math.pi * variance) if half else masses.sum()  # neither exceeds the true one
    slope = shift / variance
    mean = slope * (np.maximum(centre, 0) * half**2 / variance - centre)  # exp(-mean) bounds the mean of exp(-Y) below
    lower = np.floor(-(centre + half) * slope / step)
    upper = np.maximum(lower + 1, np.ceil(-(centre - half) * slope / step))
    # A block is divided between the points `lower` and `upper` of the grid so that its mean of exp(-Y) is kept.
    upwards = np.clip(np.expm1(lower * step - mean) / np.expm1((lower - upper) * step), 0, 1)  # share of `upper`
    first = int(lower[-1])
    points = np.concatenate([lower, upper]).astype(np.int64) - first
    divided_masses = np.concatenate([masses * (1 - upwards), masses * upwards]) / normaliser
    return _Distribution(first, np.asarray(np.bincount(points, divided_masses), dtype=np.float64), _TAIL)


def _sum_independent(first_term: _Distribution, second_term: _Distribution) -> _Distribution:
    """Return the distribution of the sum of two independent variables, with a tail of 2^-64 cut off on each side."""
    masses = np.convolve(first_term.masses, second_term.masses)
    cut_left = int(np.searchsorted(np.cumsum(masses), _TAIL))
    cut_right = int(np.searchsorted(np.cumsum(masses[::-1]), _TAIL))
    first = first_term.first + second_term.first + cut_left
    lost = first_term.lost + second_term.lost + 2 * _TAIL
    return _Distribution(first, masses[cut_left : len(masses) - cut_right], lost)


def _sum_copies(distribution: _Distribution, times: int) -> _Distribution:
    """Return the distribution of the sum of ``times`` independent variables with this distribution, by doubling."""
    if times == 1:
        return distribution
    half = _sum_copies(distribution, times // 2)
    double = _sum_independent(half, half)
    return _sum_independent(double, distribution) if times % 2 else double


def _find_last_within_delta(compute_delta: Callable[[int], float], delta: Fraction, slope: float, start: int) -> int:
    """Return the n above 0 for which ``compute_delta(n)`` is at most ``delta``, while that of n + 1 is above.

    Args:
        compute_delta: function of n that grows with n.
        delta: limit.
        slope: first estimate of the derivative of ln(compute_delta(n)) with respect to ln(n).
        start: first n to try. The search uses the secant method on the logarithms and, after eight steps, doubling and
            bisection.

    Raises:
        OdError: ``compute_delta(1)`` is above ``delta``.
    """
    # The largest n known to keep delta, and the least n known to exceed it, or 0 while none is known.
    low, high = 0, 0
    guess, tries = start, 0
    previous: tuple[float, float] | None = None  # logarithms of the previous guess, and of its delta relative to delta
    while high != low + 1:
        delta_of_guess = compute_delta(guess)
        if delta_of_guess <= delta:
            low = guess
        else:
            high = guess
        log_guess, log_ratio = math.log(guess), math.log(delta_of_guess / delta)
        if previous is not None:
            log_previous, previous_log_ratio = previous
            slope = max((log_ratio - previous_log_ratio) / (log_guess - log_previous), 1.0)
        previous = log_guess, log_ratio
        tries += 1
        if tries <= 8:
            log_step = min(max(-log_ratio / slope, -1.0), 1.0)
            proposal = int(guess * math.exp(log_step))
        else:
            proposal = (low + high) // 2 if high else 2 * low
        if high:
            proposal = min(proposal, high - 1)
        guess = max(low + 1, proposal)
    if low == 0:
        raise OdError("OD-BUDGET-EPSILON", "epsilon is too small for any noise", next_step="raise epsilon or delta")
    return low


def _compute_floor_log2(value: Fraction) -> int:
    """Return the largest k with 2^k <= ``value``, exactly."""
    power = value.numerator.bit_length() - value.denominator.bit_length()
    return power if Fraction(2) ** power <= value else power - 1


def _check_delta(delta: Fraction) -> None:
    """Raise OdError if the exact privacy loss is not defined at a delta."""
    if not is_defined(delta):
        message = "the exact privacy loss is available only for a delta of at least 1e-12 and below 1"
        raise OdError("OD-BUDGET-DELTA", message, next_step="set the conversion to tight")
