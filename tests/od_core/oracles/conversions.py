"""rho-zCDP to (epsilon, delta)-DP by other means: plain minimisation in floats, and 100 digits.

Tight: Canonne, Kamath & Steinke 2020, Corollary 13. For every alpha > 1, rho-zCDP implies (eps, delta)-DP with
    delta = exp((alpha - 1)(alpha rho - eps)) / (alpha - 1) * (1 - 1/alpha)^alpha.
ln delta is convex in alpha (its derivative (2 alpha - 1) rho - eps + ln(1 - 1/alpha) increases), so both minimised
functions have one valley in alpha: a grid over ln(alpha - 1) brackets it, a golden section closes in.
Everything is written in a = alpha - 1 and logarithms, to avoid cancellation.
"""

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction


def _log_delta(a: float, rho: float, eps: float) -> float:
    """ln delta of Corollary 13 at alpha = 1 + a."""
    return a * ((1 + a) * rho - eps) - math.log(a) - (1 + a) * math.log1p(1 / a)


def _epsilon_at(a: float, rho: float, delta: float) -> float:
    """The eps that solves Corollary 13 for a given delta at alpha = 1 + a."""
    return (1 + a) * rho - math.log1p(1 / a) - (math.log(delta) + math.log1p(a)) / a


def _minimum(f: Callable[[float], float]) -> float:
    """Minimum of f(a) over a > 0 for an f with one valley, in u = ln a."""

    def g(u: float) -> float:
        return f(math.exp(u))

    grid = [k / 4 for k in range(-160, 321)]  # alpha - 1 from e^-40 to e^80
    best = min(grid, key=g)
    low, high = best - 0.25, best + 0.25
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if g(left) <= g(right):
            high = right
        else:
            low = left
    return min(g(low), g((low + high) / 2), g(high))


def epsilon_tight(rho: float, delta: float) -> float:
    """Smallest eps >= 0 such that Corollary 13 gives (eps, delta)-DP for every rho-zCDP mechanism."""
    return max(0.0, _minimum(lambda a: _epsilon_at(a, rho, delta)))


def delta_tight(rho: float, eps: float) -> float:
    """Corollary 13 read the other way: the smallest delta at a given eps >= 0."""
    return min(1.0, math.exp(_minimum(lambda a: _log_delta(a, rho, eps))))


def epsilon_bun_steinke(rho: float, delta: float) -> float:
    """eps = rho + 2 sqrt(rho ln(1/delta)) (Bun & Steinke 2016; Lemma 3 of the InfTDA paper)."""
    return rho + 2 * math.sqrt(rho * -math.log(delta))


def digits_bun_steinke(rho: Fraction, delta: Fraction) -> Fraction:
    """As epsilon_bun_steinke, to about 95 digits."""
    with decimal.localcontext(decimal.Context(prec=100, Emin=-(10**6), Emax=10**6)):
        r = _decimal(rho)
        return Fraction(r + 2 * (r * -_decimal(delta).ln()).sqrt())


def digits_tight(rho: Fraction, delta: Fraction) -> Fraction:
    """As epsilon_tight, to about 80 digits: the valley is closed in on by the sign of its slope.

    a^2 times the slope of _epsilon_at is rho a^2 + ln(1 + a) + ln(delta), which increases with a.
    """
    with decimal.localcontext(decimal.Context(prec=100, Emin=-(10**6), Emax=10**6)):
        r, log_delta = _decimal(rho), _decimal(delta).ln()
        low, high = Decimal(0), Decimal(1)
        while r * high * high + (1 + high).ln() + log_delta < 0:
            high *= 2
        for _ in range(170):  # 50 digits of a are 100 digits of the minimum
            middle = (low + high) / 2
            if r * middle * middle + (1 + middle).ln() + log_delta < 0:
                low = middle
            else:
                high = middle
        a = high
        return max(Fraction(0), Fraction((1 + a) * r - (1 + 1 / a).ln() - (log_delta + (1 + a).ln()) / a))


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
