"""Convert rho (zero-concentrated differential privacy) to (epsilon, delta), with epsilon rounded up.

``bun_steinke``: epsilon = rho + 2 sqrt(rho ln(1/delta)) [bun2016concentrated, Proposition 1.3].
``tight``: the least epsilon over all orders alpha > 1 of the Renyi divergence,

    rho alpha + (ln(1/delta) + (alpha - 1) ln(1 - 1/alpha) - ln(alpha)) / (alpha - 1)

[canonne2020discrete, Proposition 12]. Every alpha gives a valid epsilon, so the best alpha need only be approximated in
floating point. The epsilon at this alpha is computed with 60 digits and rounded up.

The numbers of budgets are read exactly, and are shown rounded towards the weaker promise.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Rational

from od_core.errors import OdError
from od_core.languages import localise_number, translate

Number = int | float | str | Fraction
"""A number that a caller gives, which is read exactly; see :func:`parse_exact_fraction`."""

RHO_UNIT = Fraction(1, 1 << 64)
"""Unit of rho: every rho to which a conversion converts an epsilon is a multiple of this number."""

_BITS_OF_RHO = 100
"""Bits of the largest rho in this unit, 2^36. No allowed epsilon is that of a larger rho."""

MIN_BUDGET, MAX_BUDGET = Fraction(1, 10**30), Fraction(10**9)
"""Smallest and largest epsilon or rho of a budget. Between them, no computation overflows or loses its precision."""

_DIGITS = 60
_GUARD = Decimal(10) ** -40
"""Relative and absolute margin by which results are rounded up.

It is far larger than the error of a dozen correctly rounded operations with 60 digits.
"""


_MAX_BISECTIONS = 200
"""Largest number of bisections for alpha. They normally end before, when no float lies between the two bounds."""


def compute_bun_steinke_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Return epsilon by the conversion of Bun and Steinke, rounded up; see the module.

    Raises OdError if rho is not in (0, 1e18], or delta is not in (0, 1).
    """
    _check_rho_and_delta(rho, delta)
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        exact_rho = as_decimal(rho)
        log_inverse_delta = -as_decimal(delta).ln()
        return _compute_upper_bound(exact_rho + 2 * (exact_rho * log_inverse_delta).sqrt())


def compute_tight_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Return epsilon by the conversion of Canonne et al. (``tight``), rounded up; see the module.

    Raises OdError if rho is not in (0, 1e18], or delta is not in (0, 1).
    """
    _check_rho_and_delta(rho, delta)
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        log_inverse_delta = -as_decimal(delta).ln()
        u = Decimal(_solve_alpha_minus_one(float(rho), float(log_inverse_delta)))  # alpha - 1
        # The numerator of the formula in the module, with alpha = 1 + u
        numerator = log_inverse_delta + u * u.ln() - (1 + u) * (1 + u).ln()
        return max(Fraction(0), _compute_upper_bound(as_decimal(rho) * (1 + u) + numerator / u))


def _solve_alpha_minus_one(rho: float, log_inverse_delta: float) -> float:
    """Return u = alpha - 1, approximately, for the order alpha at which the ``tight`` epsilon is least.

    u solves rho u^2 + ln(1 + u) = ln(1/delta), where the derivative of epsilon with respect to alpha is 0.
    """
    low, high = 0.0, math.sqrt(log_inverse_delta / rho)
    for _ in range(_MAX_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if rho * middle * middle + math.log1p(middle) < log_inverse_delta:
            low = middle
        else:
            high = middle
    return high


CONVERSIONS = {"tight": compute_tight_epsilon, "bun_steinke": compute_bun_steinke_epsilon}
"""Functions that convert rho and delta to epsilon, by the name of the conversion."""


@lru_cache(maxsize=256)
def find_rho_for_epsilon(epsilon: Fraction, delta: Fraction, conversion: str) -> Fraction:
    """Return the largest rho that is a multiple of 2^-64 and whose epsilon, rounded up, is at most ``epsilon``.

    ``conversion`` is a name in ``CONVERSIONS``.

    Raises:
        OdError: epsilon is not between 1e-30 and 1e9, delta is not in (0, 1), or no such rho is above 0.
    """
    check_epsilon(epsilon)
    units = 0  # rho as a multiple of RHO_UNIT
    for bit in reversed(range(_BITS_OF_RHO)):  # epsilon grows with rho, so the bits are found from the highest
        candidate = units + (1 << bit)
        if CONVERSIONS[conversion](candidate * RHO_UNIT, delta) <= epsilon:
            units = candidate
    if units == 0:
        raise OdError("OD-BUDGET-EPSILON", "epsilon is too small for any noise", next_step="raise epsilon or delta")
    return units * RHO_UNIT


def check_epsilon(epsilon: Fraction) -> None:
    """Raise OdError if epsilon is outside the range of a budget."""
    if not MIN_BUDGET <= epsilon <= MAX_BUDGET:
        raise make_budget_error("OD-BUDGET-EPSILON", "epsilon must lie between 1e-30 and 1e9")


def parse_exact_fraction(name: str, value: object) -> Fraction:
    """Return an integer, fraction, float or text as the exact fraction of its decimal text: ``0.1`` is one tenth.

    Raises OdError, whose message begins with ``name``, if the value is no finite number, its text has more than 1,000
    characters, or its order of magnitude is beyond 10^1000 or 10^-1000.
    """
    if isinstance(value, Rational) and not isinstance(value, bool):
        return Fraction(int(value.numerator), int(value.denominator))
    text = str(value)
    try:
        if isinstance(value, bool) or len(text) > 1000:
            raise ValueError
        if "/" not in text and abs(Decimal(text).adjusted()) > 1000:
            raise ValueError  # expanding 1e999999999 would never end
        return Fraction(text)
    except (ValueError, ArithmeticError):
        raise make_budget_error("OD-BUDGET-NUMBER", f"{name} is {text[:40]!r}, which is not a finite number") from None


_FLOAT_ERROR = Fraction(1, 10**12)
"""Relative distance of a float from the decimal number that it stands for; larger than that of any float."""


def round_up_to_float(value: Fraction) -> float:
    """Return the smallest float that is at least ``value``, to display ``value`` as an upper bound."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def bound_exp_from_above(exponent: Fraction) -> Fraction:
    """Return an upper bound of e^exponent, for an exponent of at most 10^4. Its relative error is below 10^-25."""
    context = decimal.Context(prec=30, rounding=decimal.ROUND_CEILING)
    rounded_exponent = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    nearest = context.exp(rounded_exponent)  # decimal rounds exp to the nearest number, whatever the context says
    return Fraction(context.next_plus(nearest))


def format_rounded_up(value: Fraction | float, digits: int = 6) -> str:
    """Return ``value``, rounded up to ``digits`` significant digits, as text. Use it to show an epsilon or a charge.

    A float that is above a short decimal number only by its rounding error becomes that number.
    """
    return _format_rounded(value, digits, decimal.ROUND_CEILING)


def format_rounded_down(value: Fraction | float, digits: int = 6) -> str:
    """Return ``value``, rounded down to ``digits`` significant digits, as text. Use it for what remains of a cap."""
    return _format_rounded(value, digits, decimal.ROUND_FLOOR)


def format_promise(epsilon: Fraction | float, delta: Fraction | float) -> str:
    """Return the text of a promise, such as ``epsilon 1 at delta 1e-8``; a delta of 0 is left out."""
    stated = [localise_number(format_rounded_up(number)) for number in (epsilon, delta)]
    text = translate("epsilon {epsilon} at delta {delta}") if delta else translate("epsilon {epsilon}")
    return text.format(epsilon=stated[0], delta=stated[1])


def _format_rounded(value: Fraction | float, digits: int, rounding: str) -> str:
    """Return a number, rounded to ``digits`` significant digits, as text; ``rounding`` is a constant of ``decimal``.

    A float may have a rounding error, so it is first moved by ``_FLOAT_ERROR`` against the direction of ``rounding``.
    Numbers of at least 0.0001 are written without an exponent.
    """
    exact = Fraction(value)
    if isinstance(value, float):
        exact *= 1 - _FLOAT_ERROR if rounding == decimal.ROUND_CEILING else 1 + _FLOAT_ERROR
    context = decimal.Context(prec=digits, rounding=rounding)
    rounded = context.divide(Decimal(exact.numerator), Decimal(exact.denominator)).normalize()
    return f"{rounded:f}" if abs(rounded) >= Decimal("0.0001") or rounded == 0 else f"{rounded:e}"


def _check_rho_and_delta(rho: Fraction, delta: Fraction) -> None:
    """Raise OdError unless rho is in (0, 1e18] and delta in (0, 1), so that they can be converted to an epsilon."""
    if rho <= 0 or rho > MAX_BUDGET**2:
        raise make_budget_error("OD-BUDGET-RHO", "rho must be above 0 and at most 1e18")
    if not 0 < delta < 1:
        raise make_budget_error("OD-BUDGET-DELTA", "delta must lie between 0 and 1")


def make_budget_error(code: str, message: str) -> OdError:
    """Return the OdError for a number, a rule or a kind of budget that is not valid."""
    return OdError(code, message, next_step="correct the budget")


def as_decimal(value: Fraction) -> Decimal:
    """Return a fraction as a decimal number, rounded to the precision of the current context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def _compute_upper_bound(value: Decimal) -> Fraction:
    """Return an upper bound of the exact number that ``value`` approximates: value + (abs(value) + 1) ``_GUARD``."""
    return Fraction(value + (abs(value) + 1) * _GUARD)
