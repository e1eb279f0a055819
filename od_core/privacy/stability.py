"""Noise scale and threshold of the stability histogram. The proof stands in docs/stability-histogram.md.

Discrete Laplace noise is added to the positive counts alone, and only what reaches the threshold is published (Theorem
"SH" of the InfTDA paper, after Bun, Nissim & Stemmer; spec 2, row ``stability_histogram``).
"""

from __future__ import annotations

from fractions import Fraction

from flint import arb

from od_core.errors import OdError
from od_core.noise.opendp import SCALE_SLACK
from od_core.noise.table import at_precision, rational
from od_core.privacy.accounting import LARGEST, SMALLEST
from od_core.privacy.unit import PrivacyUnit

_BITS = 128
"""Of the first attempt. Too few cost time, never exactness."""


def laplace_scale(unit: PrivacyUnit, epsilon: Fraction) -> Fraction:
    """The noise scale: L1 sensitivity of the leaf counts over epsilon, 2m / epsilon bounded and m / epsilon unbounded.

    Raises:
        OdError: epsilon is outside what a budget takes.
    """
    if not SMALLEST <= epsilon <= LARGEST:
        raise OdError("OD-BUDGET-EPSILON", "epsilon must lie between 1e-30 and 1e9", next_step="correct the budget")
    return sensitivity_of_leaves(unit) / epsilon


def sensitivity_of_leaves(unit: PrivacyUnit) -> int:
    """Return the L1 sensitivity of the counts of the leaf pairs: the trips that neighbours have more and fewer."""
    return (2 if unit.neighbours == "bounded" else 1) * unit.contribution_bound


def stability_threshold(unit: PrivacyUnit, epsilon: Fraction, delta: Fraction) -> int:
    """The least integer t such that pairs which only one unit uses show up with probability at most delta in all.

    Noisy counts below t are dropped, those of t and more are kept. A unit that has c_1, c_2, ... trips (at most m in
    all) on pairs of its own is seen on one of them with probability 1 - prod P(Z < t - c_i), Z the noise at
    :func:`laplace_scale`. t holds for every way to spread the trips, and for every scale up to 1 + 2^-30 times the
    planned one. Where delta is below 1/2, t is above m.

    Which spread is the worst: P(Z < k) is log-concave in k, like the law of Z, so f(c) = -ln P(Z < t - c) is convex;
    and it is positive and grows with c, so all m trips are spread. Over k pairs the sum of a convex f is largest with 1
    trip on each but one of them: f(m - k + 1) + (k - 1) f(1), which is convex in k and so largest at k = 1 or k = m.
    Hence two spreads decide: all trips on one pair, or each on its own.

    Proven by ball arithmetic, in a time that does not depend on m.

    Raises:
        OdError: epsilon as for :func:`laplace_scale`; delta is not above 0 and below 1.
    """
    if not 0 < delta < 1:
        raise OdError(
            "OD-BUDGET-DELTA",
            "delta must be above 0 and below 1: a pair that one unit alone uses is listed at times",
            next_step="correct the budget",
        )
    m, scale = unit.contribution_bound, laplace_scale(unit, epsilon)
    return max(trips + least_reach(scale, m // trips, delta) for trips in (1, m))


def least_reach(scale: Fraction, pairs: int, delta: Fraction) -> int:
    """The least integer k with 1 - P(Z < k)^pairs <= delta, Z discrete Laplace of any scale from this one to its slack.

    For a fixed k, P(Z < k) goes one way in the scale (down for k >= 1, else up): the ends cover all between them.

    Args:
        scale: planned; a backend may draw from one that is above it by ``SCALE_SLACK``.
        pairs: independent draws.
        delta: above 0 and below 1.
    """
    return max(_least_reach_at(each, pairs, delta) for each in (scale, scale * (1 + SCALE_SLACK)))


def _least_reach_at(scale: Fraction, pairs: int, delta: Fraction) -> int:
    """The least integer k with 1 - P(Z < k)^pairs <= delta, Z discrete Laplace of this scale.

    With q = 1 - (1 - delta)^(1/pairs) that is P(Z >= k) <= q. The tail is a^k / (1 + a) for k >= 1 and
    1 - a^(1 - k) / (1 + a) for k <= 0, where a = exp(-1 / scale), and each is solved for k: the first where
    q < P(Z >= 0) = 1 / (1 + a), the second elsewhere. There is no equality to decide: a is transcendental, q algebraic.
    """
    precision = _BITS
    while True:
        with at_precision(precision):
            ball = arb(rational(scale))
            a = (-1 / ball).exp()
            log_dropped = arb(rational(1 - delta)).log() / pairs
            reach = -ball * ((1 + a) * -log_dropped.expm1()).log()
            if reach < 0:
                reach = 1 + ball * (1 + a).log() + ball * log_dropped
            least = reach.ceil().unique_fmpz() if reach < 0 or reach > 0 else None
        if least is not None:
            return int(least)
        precision *= 2
