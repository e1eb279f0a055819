"""Compute the noise scale and the threshold of the stability histogram (proof: ``docs/explanation/noise.md``).

Discrete Laplace noise is added to the positive counts alone, and only noisy counts from the threshold are published.

References:
    [boninsegna2025inftda, section 2.1.2] and [bun2019simultaneous].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from od_core.errors import OdError
from od_core.noise.opendp import SCALE_SLACK
from od_core.noise.table_sampler import convert_to_rational, set_precision
from od_core.privacy.accounting import check_epsilon, make_budget_error
from od_core.privacy.neighbours import compute_leaf_sensitivity
from od_core.privacy.unit import PrivacyUnit

_MAX_HALF_RATE = 300
"""Value of 1 / (2 scale) from which the variance is not computed, because floats could overflow.

The variance is then below 10^-259.
"""

_MIN_VARIANCE_BOUND = Fraction(1, 1 << 200)
"""Smallest result of :func:`bound_laplace_variance`."""

_BITS = 128
"""Precision of the first attempt, in bits. If it does not suffice, the computation is repeated with twice as many."""


def compute_laplace_scale(unit: PrivacyUnit, epsilon: Fraction) -> Fraction:
    """Return the noise scale of the stability histogram: :func:`compute_leaf_sensitivity` over epsilon.

    Raises OdError if epsilon is out of range.
    """
    check_epsilon(epsilon)
    return compute_leaf_sensitivity(unit) / epsilon


def compute_laplace_variance(scale: Fraction) -> Fraction:
    """Return the variance of discrete Laplace noise, 1 / (2 sinh(1 / (2 scale))^2), computed with floats.

    For a scale below 1 / 600, the variance is not computed, and 2^-1000 is returned.
    """
    half = 1 / (2 * float(scale))
    return Fraction(1 / (2 * math.sinh(half) ** 2)) if half < _MAX_HALF_RATE else Fraction(1, 1 << 1000)


def bound_laplace_variance(scale: Fraction) -> Fraction:
    """Return an upper bound of the variance of discrete Laplace noise, 2 a / (1 - a)^2 with a = exp(-1 / scale).

    The bound is proven with ball arithmetic. It is above the variance by less than 1 part in 10^12, or it is 2^-200, so
    that floats can be divided by the bound.
    """
    with set_precision(_BITS):
        a = (-1 / arb(convert_to_rational(scale))).exp()
        variance = 2 * a / (1 - a) ** 2
        return max(Fraction(math.nextafter(float(variance.upper()), math.inf)), _MIN_VARIANCE_BOUND)


def compute_laplace_reach(scale: Fraction, beyond: Fraction = Fraction(1, 20)) -> int:
    """Return the least h such that discrete Laplace noise is above h with probability at most ``beyond``.

    So the noise lies in [-h, h] with probability at least 1 - 2 ``beyond``, by default 0.9. This holds for every scale
    with which a backend may draw; see :func:`compute_least_reach`.
    """
    return max(compute_least_reach(scale, 1, beyond) - 1, 0)


def compute_stability_threshold(unit: PrivacyUnit, epsilon: Fraction, delta: Fraction, rule: str = "least") -> int:
    """Return the threshold t of the stability histogram: a pair is published if its noisy count is at least t.

    By the rule ``least``, t is the least integer for which no pair with trips of only one unit is published, with
    probability at least 1 - delta. By the rule ``bun_nissim_stemmer``, t is 1 + scale ln(2 / delta), rounded up.

    The probability holds for any division of the unit's trips, at most the contribution bound m, among such pairs, and
    for every scale up to 1 + ``SCALE_SLACK`` times the planned one. It suffices to check two cases: all m trips on one
    pair, and each trip on a separate pair. The result is proven with ball arithmetic.

    Raises OdError if epsilon is outside the range of a budget, delta is not in (0, 1), or the threshold of the rule is
    below the least one.
    """
    if not 0 < delta < 1:
        message = "delta must be above 0 and below 1, because a pair that only one unit uses can appear in the list"
        raise make_budget_error("OD-BUDGET-DELTA", message)
    m, scale = unit.contribution_bound, compute_laplace_scale(unit, epsilon)
    all_on_one_pair = m + compute_least_reach(scale, 1, delta)
    each_on_its_own_pair = 1 + compute_least_reach(scale, m, delta)
    least = max(all_on_one_pair, each_on_its_own_pair)
    if rule == "least":
        return least
    published = _compute_ceiling(
        lambda: 1 + arb(convert_to_rational(scale)) * (2 / arb(convert_to_rational(delta))).log()
    )
    if published < least:
        raise OdError(
            "OD-MECHANISM-OPTION",
            f"the threshold {published} of {rule} does not keep delta for {m} trips per unit; the least one is {least}",
            next_step="leave out the option threshold",
        )
    return published


def _compute_ceiling(compute_number: Callable[[], arb]) -> int:
    """Return the least integer above a number, which must not be an integer.

    ``compute_number`` returns a ball that contains the number, at flint's current precision. The precision is doubled
    until all numbers in the ball have the same ceiling, which never happens for an integer.
    """
    precision = _BITS
    while True:
        with set_precision(precision):
            ceiling = compute_number().ceil().unique_fmpz()
        if ceiling is not None:
            return int(ceiling)
        precision *= 2


def compute_least_reach(scale: Fraction, pairs: int, delta: Fraction) -> int:
    """Return the least integer k with 1 - P(Z < k)^pairs <= delta for every scale with which a backend may draw.

    Z is discrete Laplace noise with a scale between ``scale`` and (1 + ``SCALE_SLACK``) ``scale``. For a fixed k, P(Z <
    k) is monotone in the scale (it falls for k >= 1 and rises for other k), so the two ends cover all scales between
    them. ``pairs`` is the number of independent draws.
    """
    widest = scale * (1 + SCALE_SLACK)
    return max(_compute_reach_at_scale(scale, pairs, delta), _compute_reach_at_scale(widest, pairs, delta))


def _compute_reach_at_scale(scale: Fraction, pairs: int, delta: Fraction) -> int:
    """Return the least integer k with 1 - P(Z < k)^pairs <= delta, where Z is discrete Laplace noise with this scale.

    With q = 1 - (1 - delta)^(1/pairs) the condition is P(Z >= k) <= q. With a = exp(-1 / scale), the tail P(Z >= k) is
    a^k / (1 + a) for k >= 1 and 1 - a^(1 - k) / (1 + a) for k <= 0. The equation of the tail and q is solved for k, by
    the first formula if q < 1 / (1 + a), else by the second, and the solution is rounded up. It is no integer, because
    a is transcendental and q algebraic.
    """

    def solve_for_k() -> arb:
        """Return a ball that contains the real solution k, at flint's current precision."""
        exact_scale = arb(convert_to_rational(scale))
        a = (-1 / exact_scale).exp()
        log_below = arb(convert_to_rational(1 - delta)).log() / pairs  # ln(1 - q)
        k = -exact_scale * ((1 + a) * -log_below.expm1()).log()
        if k < 0:  # the second case; at q = 1 / (1 + a), both formulas give 0
            k = 1 + exact_scale * (1 + a).log() + exact_scale * log_below
        return k

    return _compute_ceiling(solve_for_k)
