"""Compute the privacy loss of noise, and what an attacker learns.

Suppose that n cells have independent noise N_Z(0, v_1), ..., N_Z(0, v_n), and that neighbours differ by one in each of
these cells and in no other. Then the release has the privacy loss L = R + Y_1 + ... + Y_n. R is the sum of 1 / (2 v_i),
and Y_i = -X_i / v_i with X_i ~ N_Z(0, v_i). The release is (epsilon, delta)-differentially private for delta = E max(0,
1 - exp(epsilon - L)). ``docs/explanation/noise.md`` proves that this covers a release level by level. This module
bounds delta from above:

* The probability of each value of Y_i is moved to points of a grid such that E exp(-Y_i) is unchanged ("connect the
  dots" [doroshenko2022dots]). The expectation above is one of a convex function of exp(-Y_i), so by Jensen's inequality
  it can only grow. If all variances are equal, and the values of Y_i are further apart than the points of the grid
  would be, these values are used as the points. Then the expectation does not grow.
* The n distributions are convolved as sums of products. All numbers are non-negative, so no rounding error is
  amplified. The factor 1 + ``_GUARD`` covers 2^28 consecutive roundings. The longest sequence of roundings has about
  2^20.
* The loss in a tail that is cut off is taken as infinite.
* A loss is rounded by less than 2^-48 of the largest loss. Lowering epsilon by ``_GUARD`` times the largest loss covers
  this.
* Delta is not monotone in the variances, and a backend may draw with a variance that is rounded up. So the bound holds
  for every variance from v_i to (1 + ``VARIANCE_SLACK``) v_i. In this range no loss grows by more than
  ``VARIANCE_SLACK`` times the largest loss, and the probability of an outcome x that is not cut off grows by at most a
  factor exp(``VARIANCE_SLACK`` x^2 / 2 v).

Bound what an attacker learns about one privacy unit from a release.

The attacker asks which of two hypotheses is true: that the input is D, or that it is the neighbouring input D'. Before
the release, the attacker believes in D with a probability, the prior. The attacker knows everything else about both
inputs, such as all other records; the bounds also hold for an attacker who knows fewer records, if what the attacker
believes about the unknown ones does not depend on which hypothesis is true. Then both hypotheses are mixtures of
neighbouring inputs with the same weights, and no bound here grows by mixing.

Let L be the privacy loss, the logarithm of how much likelier a published outcome is under D than under D'. Two things
are bounded, for every pair of neighbours and whichever hypothesis is true:

* :attr:`Guarantee.odds`: the factor exp(L) by which one outcome multiplies the odds. For a pure epsilon, L is at most
  epsilon always. For rho, L is at most rho + 2 sqrt(rho ln(1/delta)) but with probability delta
  [bun2016concentrated, Lemma 3.5 with its sub-Gaussian tail]. For (epsilon, delta) alone, L is at most epsilon + ln 2
  but with probability 2 delta: delta is at least E max(0, 1 - exp(epsilon - L)), which is at least P(L > epsilon +
  ln 2) / 2.
* :meth:`Guarantee.best_guess`: the probability that the attacker's best guess of the true hypothesis is right, over all
  outcomes. For a prior p of at most 1/2, it is (1 - p) + p d(ln((1 - p) / p)), where d(e) is the largest
  E max(0, 1 - exp(e - L)) over neighbours: the least delta for which the release is (e, delta)-differentially private.
  For a larger prior, exchange the hypotheses.

:meth:`Guarantee.delta_at` bounds d(e) from above by the least of all bounds that hold: the exact privacy loss of the
noise (:mod:`od_core.privacy.privacy_loss`); what follows from rho; and what follows from the promise.
"""

from __future__ import annotations

import decimal
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise.opendp import VARIANCE_SLACK
from od_core.privacy import accounting
from od_core.privacy.accounting import as_decimal, epsilon_bun_steinke, epsilon_tight, exp_above
from od_core.privacy.budget import Cap, Spent, SpentDirectly

LEAST_DELTA = Fraction(1, 10**12)
"""Smallest delta. Below it, the tails that are cut off (three per variance, each 2^-64) would matter."""

_REACH = 9.5
"""Number of standard deviations beyond which a distribution is cut off.

The probability beyond is at most 2 exp(-9.5^2 / 2) < 2^-64, because a discrete Gaussian is sub-Gaussian
[canonne2020discrete, Corollary 17]. The bound also holds for every variance within the slack.
"""

_TAIL = 2.0**-64

_GUARD = 2.0**-24

_BLOCKS = 2**12
"""Smallest standard deviation sigma for which integers are treated in blocks (:func:`_distribution`).

A block has about 2 sigma / ``_BLOCKS`` integers, so that the time does not grow with sigma.
"""

_NARROWEST, _WIDEST = Fraction(1, 10**30), Fraction(10**60)
"""Smallest and largest variance. Between them, no computation overflows or underflows to zero."""

_BITS_OF_RHO = 13
"""Number of significant bits of a computed rho. With so few, different machines normally find the same rho."""


class _Distribution(NamedTuple):
    """A distribution of Y on a grid of distance ``step``: P(Y = (first + i) step) = masses[i].

    ``lost`` is an upper bound of the probability of all values that were cut off.
    """

    first: int
    masses: NDArray[np.float64]
    lost: float


def is_defined(delta: Fraction) -> bool:
    """Return whether this module can compute the exact privacy loss at a delta."""
    return LEAST_DELTA <= delta < 1


def delta_exact(variances: Sequence[Fraction], epsilon: Fraction) -> float:
    """Return an upper bound of delta at an epsilon, if neighbours differ by one in one cell per variance.

    The bound also holds if each variance is larger than planned by its own factor of at most 1 + ``VARIANCE_SLACK``.

    Args:
        variances: planned variance of each cell that differs. If two cells of a level differ, as under bounded
            neighbours, the variance of this level is given twice.
        epsilon: at least 0.

    Raises:
        OdError: there is no variance, a variance is not between 1e-30 and 1e60, or epsilon is below 0.
    """
    if epsilon < 0:
        raise OdError("OD-BUDGET-EPSILON", "epsilon must be at least 0", next_step="correct the budget")
    return _delta_of(tuple(variances))(float(epsilon))


@lru_cache(maxsize=256)
def epsilon_exact(variances: tuple[Fraction, ...], delta: Fraction) -> Fraction:
    """Return the least epsilon at a delta, if neighbours differ by one in one cell per variance.

    It is rounded up to a multiple of 2^-24 of the ``tight`` epsilon. With this rounding, another machine finds the same
    number, except for about one release in a million.

    Args:
        variances: as for :func:`delta_exact`.
        delta: from 1e-12 to below 1.

    Raises:
        OdError: delta is out of range, or :func:`delta_exact` refuses the variances.
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
    """Return the largest rho that a search finds for which the release is (epsilon, delta)-differentially private.

    The rho is a multiple of 2^-64. A level with share s is measured with variance c / (2 rho s), and neighbours differ
    by one in at most c of its cells. The returned rho has been checked: :func:`delta_exact` is at most delta for these
    variances, and for all variances up to 1 + ``VARIANCE_SLACK`` times these.

    Args:
        epsilon, delta: the promise.
        shares: share of rho of each measured level. They are above 0 and sum to 1.
        cells: c of each measured level: 2 for bounded neighbours, 1 for unbounded neighbours and for the root.

    Raises:
        OdError: :func:`od_core.privacy.accounting.rho_for_epsilon` refuses epsilon or delta, or delta is below 1e-12.
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


@lru_cache(maxsize=32)
def _delta_of(variances: tuple[Fraction, ...]) -> Callable[[float], float]:
    """Return a function that computes :func:`delta_exact` for these variances, given epsilon."""
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
    """Return the distance between neighbouring points of the grid of losses.

    If it is 1/64 of the root mean square of the standard deviations of the cells' losses, the grid adds less than 2^-14
    to the variance of the loss, relative to this variance (2^-12 / 6 if the losses are random between the points). The
    distance is larger if the variances differ so much that there would be too many points, or if all variances are
    equal and the values of a cell's loss are further apart.

    Args:
        counts: number of cells, by variance.
    """
    mean_square = sum(times / variance for variance, times in counts.items()) / counts.total()
    widest = max((_REACH * math.sqrt(variance) + 1) / variance for variance in counts)
    step = max(math.sqrt(mean_square) / 64, widest / 2**13)
    return max(step, 1 / next(iter(counts))) if len(counts) == 1 else step


def _distribution(variance: float, step: float) -> _Distribution:
    """Return the distribution of Y = -X / v with X ~ N_Z(0, v), moved to the points of the grid.

    From sigma = 2^12 on, the integers are treated in blocks of 2 m + 1, from c - m to c + m, with m / sigma at most
    2^-12. The probability of a block is bounded from above; it is P(c) times the sum of cosh(c i / v) exp(-i^2 / 2v)
    over |i| <= m. The block's mean of exp(-Y) is bounded from below; it is exp(c / v) times a mean of
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
    """Return the distribution of the sum of two independent variables, with a tail of 2^-64 cut off on each side."""
    masses = np.convolve(one.masses, other.masses)
    left = int(np.searchsorted(np.cumsum(masses), _TAIL))
    right = int(np.searchsorted(np.cumsum(masses[::-1]), _TAIL))
    kept = masses[left : len(masses) - right]
    return _Distribution(one.first + other.first + left, kept, one.lost + other.lost + 2 * _TAIL)


def _times(distribution: _Distribution, times: int) -> _Distribution:
    """Return the distribution of the sum of ``times`` independent variables with this distribution, by doubling."""
    if times == 1:
        return distribution
    half = _times(distribution, times // 2)
    double = _sum(half, half)
    return _sum(double, distribution) if times % 2 else double


def _last_within(delta_at: Callable[[int], float], delta: Fraction, slope: float, start: int) -> int:
    """Return an integer n above 0 with delta_at(n) <= delta < delta_at(n + 1).

    The search uses the secant method on the logarithms. After eight steps, it continues by doubling and bisection.

    Args:
        delta_at: function to search.
        delta: largest allowed value of delta_at(n).
        slope: first estimate of the derivative of ln(delta_at(n)) with respect to ln(n).
        start: first n to try.

    Raises:
        OdError: delta_at(1) is above delta.
    """
    low, high = 0, 0  # high is 0 until it is found
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


DELTA_OF_CAP = Fraction(1, 10**8)
"""Delta at which a cap in rho is stated beside a release without a delta."""

LARGEST_EXPONENT = Fraction(10_000)
"""Largest epsilon for which odds are computed. The factor e^10000 is as good as no promise."""

_DIGITS = 40
_POSTERIOR_GUARD = Fraction(1, 10**30)
"""Margin by which results are rounded up; far more than the errors of the operations with ``_DIGITS`` digits."""


@dataclass(frozen=True)
class Guarantee:
    """The promise of a release for one privacy unit, with what else is known of its privacy loss.

    Attributes:
        epsilon: promised epsilon.
        delta: promised delta; 0 for a pure epsilon.
        rho: rho of zero-concentrated differential privacy; None if the release promises epsilon directly.
        variances: planned variance of the noise of each cell that differs between neighbours, if each differs by one;
            None if that is not so. See :func:`od_core.privacy.privacy_loss.delta_exact`.
        aside: probability of the outcomes for which ``rho`` promises nothing; 0 unless a cap covers charges with a
            delta.

    Raises:
        OdError: epsilon is not above 0, delta is not in [0, 1), or rho is not above 0.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None
    variances: tuple[Fraction, ...] | None = None
    aside: Fraction = Fraction(0)

    @classmethod
    def of(cls, spent: Spent) -> Guarantee:
        """Return what a release promises that has spent a budget."""
        if isinstance(spent, SpentDirectly):
            return cls(spent.epsilon, spent.delta)
        return cls(spent.epsilon, spent.delta, spent.rho, spent.variances)

    @classmethod
    def of_rho(cls, rho: Fraction, delta: Fraction) -> Guarantee:
        """Return what releases promise together whose rho add up to ``rho``, with epsilon stated at ``delta``."""
        return cls(epsilon_tight(rho, delta), delta, rho)

    @classmethod
    def of_cap(cls, cap: Cap, delta: Fraction) -> Guarantee:
        """Return what all releases promise together that a cap allows.

        A cap in epsilon and delta allows charges with deltas, whose sum d is at most its delta. All other charges have
        a rho, whose sum is at most that of the cap at the rest of its delta. So the rho of the cap bounds all outcomes
        but some of probability d.

        Args:
            cap: the cap.
            delta: for a cap in rho, the delta at which epsilon is stated; if it is 0, :data:`DELTA_OF_CAP`.
        """
        if cap.epsilon is None:
            return cls.of_rho(cap.allowed_rho(), delta or DELTA_OF_CAP)
        return cls(cap.epsilon, cap.delta, cap.allowed_rho(), aside=cap.delta)

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 <= self.delta < 1 or (self.rho is not None and self.rho <= 0):
            raise OdError(
                "OD-BUDGET-NUMBER",
                "a guarantee needs an epsilon above 0, a delta of at least 0 and below 1, and a rho above 0, if any",
                next_step="restore the certificate",
            )

    @property
    def odds(self) -> tuple[Fraction, Fraction] | None:
        """Largest factor by which the odds of a hypothesis grow, and the probability that they grow by more.

        The factor is rounded up. None if it is larger than e^``LARGEST_EXPONENT``, which is no promise.
        """
        if self.rho is not None and self.delta > 0 and not self.aside:
            largest, times, missed = epsilon_bun_steinke(self.rho, self.delta), 1, self.delta
        else:
            largest, times, missed = self.epsilon, 2 if self.delta else 1, 2 * self.delta
        if largest > LARGEST_EXPONENT or missed >= 1:
            return None
        return times * exp_above(largest), missed

    def posterior(self, prior: Fraction) -> tuple[Fraction, Fraction]:
        """Return the smallest and the largest probability of a hypothesis after the release, but for rare outcomes.

        Rare outcomes have the probability that :attr:`odds` states. The first number is rounded down, the second up.

        Raises:
            OdError: the prior is not between 0 and 1.
        """
        _check_prior(prior)
        if self.odds is None:
            return Fraction(0), Fraction(1)
        factor, before = self.odds[0], prior / (1 - prior)
        return before / (before + factor), before * factor / (1 + before * factor)

    def best_guess(self, prior: Fraction = Fraction(1, 2)) -> Fraction:
        """Return the largest probability that a guess between two hypotheses is right, rounded up.

        Without the release, the best guess is right with the larger one of ``prior`` and 1 - ``prior``.

        Raises:
            OdError: the prior is not between 0 and 1.
        """
        _check_prior(prior)
        less = min(prior, 1 - prior)
        return (1 - less) + less * self.delta_at((1 - less) / less)

    def delta_at(self, factor: Fraction) -> Fraction:
        """Return an upper bound of the delta of the release at epsilon = ln(``factor``); ``factor`` is at least 1."""
        bounds = [Fraction(1), self._by_promise(factor)]
        epsilon = _ln_below(factor)
        if self.rho is not None:
            bounds += [self.aside + bound for bound in (_by_divergence(self.rho), _by_renyi(self.rho, epsilon))]
        if self.variances is not None:
            bounds.append(Fraction(delta_exact(self.variances, epsilon)))
        return min(bounds)

    def of_units(self, units: int) -> Guarantee | None:
        """Return the guarantee for a person with this many privacy units; None if it promises nothing.

        For k units, rho becomes k^2 rho [bun2016concentrated, Proposition 1.9], and (epsilon, delta) becomes
        (k epsilon, k e^((k - 1) epsilon) delta) [dwork2014foundations, Theorem 2.2, by summing the geometric series].
        """
        if units == 1:
            return self
        if self.rho is not None and self.delta > 0 and not self.aside:
            return Guarantee.of_rho(units**2 * self.rho, self.delta)
        exponent = min((units - 1) * self.epsilon, LARGEST_EXPONENT)
        delta = units * exp_above(exponent) * self.delta
        return None if delta >= 1 else Guarantee(units * self.epsilon, delta)

    def in_periods(self, periods: int) -> Guarantee | None:
        """Return the guarantee of a release like this one in each of some periods; None if it promises nothing."""
        if self.rho is not None and self.delta > 0 and not self.aside:
            return Guarantee.of_rho(periods * self.rho, self.delta)
        delta = periods * self.delta
        return None if delta >= 1 else Guarantee(periods * self.epsilon, delta)

    def _by_promise(self, factor: Fraction) -> Fraction:
        """Return the delta at ln(``factor``) that follows from (epsilon, delta) alone.

        The trade-off function of an (e, d)-differentially private release [dong2022gaussian] lies above one with a
        corner at (1 - d) / (1 + exp(e)), which gives 1 - (1 - d)(1 + factor) / (1 + exp(e)).
        """
        if self.epsilon > LARGEST_EXPONENT:
            return Fraction(1)
        whole = exp_above(self.epsilon)
        if factor >= whole:
            return self.delta
        return max(self.delta, 1 - (1 - self.delta) * (1 + factor) / (1 + whole))


def _by_divergence(rho: Fraction) -> Fraction:
    """Return a bound of delta at any epsilon, from rho: no delta exceeds the total variation distance.

    The Kullback-Leibler divergence is at most rho, so this distance is at most sqrt(rho / 2) by Pinsker's inequality,
    and at most sqrt(1 - exp(-rho)) by that of Bretagnolle and Huber.
    """
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        exact = as_decimal(rho)
        least = min((exact / 2).sqrt(), (1 - (-exact).exp()).sqrt())
    return min(Fraction(1), Fraction(least) + _POSTERIOR_GUARD)


def _by_renyi(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return the delta at ``epsilon`` that follows from rho [canonne2020discrete, Proposition 12].

    Every order alpha > 1 gives a valid delta, exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
    Orders around the best one for a Gaussian, (epsilon + rho) / 2 rho, are tried.
    """
    middle = max(float(epsilon + rho) / (2 * float(rho)), 1.0)
    if not math.isfinite(middle):
        return Fraction(1)
    found = Fraction(1)
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        r, e = as_decimal(rho), as_decimal(epsilon)
        for times in (Decimal("0.6"), Decimal("0.8"), Decimal(1), Decimal("1.1"), Decimal("1.3"), Decimal(2)):
            u = max(Decimal(middle) * times - 1, Decimal("0.001"))  # alpha - 1
            exponent = u * ((1 + u) * r - e) + (1 + u) * (u.ln() - (1 + u).ln()) - u.ln()
            if exponent < 0:
                found = min(found, Fraction(exponent.exp()) + _POSTERIOR_GUARD)
    return found


def _ln_below(value: Fraction) -> Fraction:
    """Return a lower bound of the natural logarithm of a number of at least 1; at least 0."""
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        return max(Fraction(as_decimal(value).ln()) - _POSTERIOR_GUARD, Fraction(0))


def _check_prior(prior: Fraction) -> None:
    if not 0 < prior < 1:
        raise OdError("OD-BUDGET-NUMBER", "a prior must be above 0 and below 1", next_step="correct the prior")
