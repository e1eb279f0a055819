"""Define the budget of a release, its shares over the measured levels, and what a release has spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

from od_core.errors import OdError
from od_core.privacy import accounting, privacy_loss
from od_core.registry import refuse_unknown

Number = int | float | str | Fraction

LEAF_WEIGHT = Fraction(3, 2)
"""Weight of the leaves under ``geography`` shares (``docs/reference/tables/estimator.md``, section 1).

On a homogeneous tree, 1 would be the minimax rule.
"""

RULES = ("uniform", "geography", "geometric")

_MOST_DIGITS = 1000


@dataclass(frozen=True)
class Budget:
    """A budget as (epsilon, delta), or as rho with the delta at which epsilon is stated.

    Numbers are read as decimals: ``0.1`` is one tenth. ``conversion`` and ``shares`` default to those of the mechanism.

    Attributes:
        epsilon, delta: promise in (epsilon, delta), as exact fractions.
        rho: promise in zero-concentrated differential privacy, instead of epsilon; exact.
        conversion: method to find rho from epsilon: ``exact``, ``tight`` or ``bun_steinke``.
        shares: shares of the measured levels, top first: ``uniform``, ``geography`` (see :func:`geography_weights`),
            ``("geometric", ratio)``, or positive fractions that sum to 1.

    Raises:
        OdError: not exactly one of epsilon and rho is given; a number is not finite or is out of range; the conversion
            or the rule of shares is unknown; shares are not above 0 or do not sum to 1.
    """

    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None
    conversion: str | None = None
    shares: str | tuple[Any, ...] | None = None

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        *,
        rho: Number | None = None,
        conversion: str | None = None,
        shares: str | Sequence[Any] | None = None,
    ) -> None:
        if (epsilon is None) == (rho is None):
            raise _fault("OD-BUDGET-KIND", "a budget must be either epsilon or rho")
        promise = exact_fraction("epsilon" if rho is None else "rho", epsilon if rho is None else rho)
        if not accounting.SMALLEST <= promise <= accounting.LARGEST:
            code = "OD-BUDGET-EPSILON" if rho is None else "OD-BUDGET-RHO"
            raise _fault(code, "epsilon and rho must lie between 1e-30 and 1e9")
        exact_delta = exact_fraction("delta", delta)
        if not 0 <= exact_delta < 1:
            raise _fault("OD-BUDGET-DELTA", "delta must be at least 0 and below 1")
        if conversion is not None:
            check_conversion(conversion)
        object.__setattr__(self, "epsilon", promise if rho is None else None)
        object.__setattr__(self, "rho", promise if rho is not None else None)
        object.__setattr__(self, "delta", exact_delta)
        object.__setattr__(self, "conversion", conversion)
        object.__setattr__(self, "shares", None if shares is None else _checked_shares(shares))

    def conversion_for(self, default: str, shifted_cells: Sequence[int] | None) -> str:
        """Return the conversion to use: the budget's own, or else the default; ``tight`` if ``exact`` is not defined.

        Args:
            default: default of the mechanism.
            shifted_cells: for every measured level, the number of cells that neighbours change, each by one; None if
                they change a cell by more.
        """
        name = self.conversion or default
        is_exact = shifted_cells is not None and privacy_loss.is_defined(self.delta)
        return "tight" if name == "exact" and not is_exact else name

    def total_rho(
        self,
        conversion: str,
        shares: tuple[Fraction, ...] = (Fraction(1),),
        shifted_cells: tuple[int, ...] | None = None,
    ) -> Fraction:
        """Return rho of the whole release, converted from epsilon if the budget states epsilon.

        Args:
            conversion: default conversion, as for :meth:`conversion_for`.
            shares: shares of the measured levels, used by ``exact``.
            shifted_cells: as for :meth:`conversion_for`.

        Raises:
            OdError: delta is 0, but Gaussian noise needs a positive delta; epsilon is too small for any noise.
        """
        if self.delta == 0:
            raise _fault("OD-BUDGET-DELTA", "delta is 0, but Gaussian noise needs a positive delta")
        if self.rho is not None:
            return self.rho
        if self.epsilon is None:
            raise _fault("OD-BUDGET-KIND", "a budget must be either epsilon or rho")
        name = self.conversion_for(conversion, shifted_cells)
        if name == "exact" and shifted_cells is not None:
            return privacy_loss.rho_for_epsilon_exact(self.epsilon, self.delta, shares, shifted_cells)
        return accounting.rho_for_epsilon(self.epsilon, self.delta, name)

    def pure_epsilon(self, released: str) -> Fraction:
        """Return epsilon if the budget is a pure epsilon. Raises OdError, which names what is ``released``, if not."""
        if self.epsilon is None or self.delta != 0:
            raise OdError(
                "OD-BUDGET-KIND",
                f"{released} need a pure epsilon, without rho and delta",
                next_step="give the budget as epsilon alone",
            )
        return self.epsilon

    def shares_text(self, default: str) -> str | list[str]:
        """Return the rule of shares as JSON-ready text, which :class:`Budget` reads."""
        rule = self.shares if self.shares is not None else default
        return rule if isinstance(rule, str) else [str(part) for part in rule]

    def level_shares(self, fan_outs: Sequence[int], default: str) -> tuple[Fraction, ...]:
        """Return the exact shares of the levels, top first; they sum to 1; shape of ``fan_outs``.

        Args:
            fan_outs: largest number of children of a node of each level, 0 at the leaves.
            default: rule of shares if the budget names none.

        Raises:
            OdError: the budget's shares do not match the number of levels.
        """
        rule, levels = self.shares if self.shares is not None else default, len(fan_outs)
        if rule == "uniform":
            return (Fraction(1, levels),) * levels
        if rule == "geography":
            return _proportional(geography_weights(fan_outs))
        if isinstance(rule, tuple) and rule[0] == "geometric":
            return _proportional([rule[1] ** level for level in range(levels)])
        if len(rule) != levels:
            raise _fault("OD-BUDGET-SHARES", f"{len(rule)} shares for {levels} measured levels")
        return tuple(rule)


@dataclass(frozen=True)
class Spent:
    """The budget that a release has spent: rho exactly, and the (epsilon, delta) promises that follow from it.

    Every epsilon bounds the same mechanism, so the smallest is the promise. All are rounded up.

    Attributes:
        levels: rho of every measured level.
        delta: delta at which epsilon is stated.
        shifted_cells: number of cells of each level that neighbours change, if every level was drawn once and they
            change each of these cells by one; else None, and there is no exact epsilon.
    """

    levels: tuple[Fraction, ...]
    delta: Fraction
    shifted_cells: tuple[int, ...] | None = None

    @property
    def rho(self) -> Fraction:
        """Exact rho of all levels."""
        return sum(self.levels, start=Fraction(0))

    @property
    def epsilon_tight(self) -> float:
        """Epsilon by the ``tight`` conversion of Canonne et al."""
        return accounting.float_above(accounting.epsilon_tight(self.rho, self.delta))

    @property
    def epsilon_bun_steinke(self) -> float:
        """Epsilon by the conversion of Bun and Steinke."""
        return accounting.float_above(accounting.epsilon_bun_steinke(self.rho, self.delta))

    @property
    def epsilon_exact(self) -> float | None:
        """Epsilon of the exact privacy loss; None if it is not defined."""
        exact = self._exact()
        return None if exact is None else accounting.float_above(exact)

    @property
    def epsilon(self) -> Fraction:
        """Promised epsilon, the smallest of all that apply."""
        tight = accounting.epsilon_tight(self.rho, self.delta)
        return min(tight, accounting.epsilon_bun_steinke(self.rho, self.delta), self._exact() or tight)

    def _exact(self) -> Fraction | None:
        if self.shifted_cells is None or not privacy_loss.is_defined(self.delta):
            return None
        levels = zip(self.levels, self.shifted_cells, strict=True)
        variances = tuple(cells / (2 * rho) for rho, cells in levels for _ in range(cells))
        return privacy_loss.epsilon_exact(variances, self.delta)


@dataclass(frozen=True)
class SpentDirectly(Spent):
    """The budget spent by a mechanism that promises (epsilon, delta) directly, not through rho.

    Attributes:
        levels: epsilon^2 / 2, the rho that the ledger adds up besides delta; so ``rho`` is their sum.
        delta: delta of all draws.
        promise: epsilon of all draws.
    """

    promise: Fraction = Fraction(0)

    @property
    def epsilon(self) -> Fraction:
        """Promised epsilon."""
        return self.promise

    @property
    def epsilon_tight(self) -> float:
        """Promised epsilon: there is no rho to convert."""
        return accounting.float_above(self.promise)

    @property
    def epsilon_bun_steinke(self) -> float:
        """Promised epsilon: there is no rho to convert."""
        return accounting.float_above(self.promise)

    def _exact(self) -> Fraction | None:
        return None


def geography_weights(fan_outs: Sequence[int]) -> list[Fraction]:
    """Return the weights of the levels, from the public geography alone.

    The weight of a level is 1 - 1/k, where k is the largest number of children of its nodes, so that levels whose nodes
    have more children are measured more accurately. The leaves, below which nothing is measured, have 3/2. If every
    node of a level has only one child the weight is 0, because the level below measures the same counts.
    """
    return [1 - Fraction(1, fan_out) if fan_out else LEAF_WEIGHT for fan_out in fan_outs]


def _proportional(weights: Sequence[Fraction]) -> tuple[Fraction, ...]:
    return tuple(weight / sum(weights) for weight in weights)


def exact_fraction(name: str, value: object) -> Fraction:
    """Return a number as an exact fraction, read as people write it: ``0.1`` is one tenth, not the nearest float.

    Raises:
        OdError: the value is not a finite number, or has more than a thousand digits.
    """
    if isinstance(value, Rational) and not isinstance(value, bool):
        return Fraction(int(value.numerator), int(value.denominator))
    text = str(value)
    try:
        if isinstance(value, bool) or len(text) > _MOST_DIGITS:
            raise ValueError
        if "/" not in text and abs(Decimal(text).adjusted()) > _MOST_DIGITS:
            raise ValueError  # expanding 1e999999999 would never end
        return Fraction(text)
    except (ValueError, ArithmeticError):
        raise _fault("OD-BUDGET-NUMBER", f"{name} is {text[:40]!r}, which is not a finite number") from None


def check_conversion(name: str) -> None:
    """Check that a conversion exists. Raises OdError with the nearest known one if it does not."""
    known = ("exact", *accounting.CONVERSIONS)
    refuse_unknown("conversion", name, known, code="OD-BUDGET-CONVERSION", next_step="correct the budget")


def _checked_shares(shares: str | Sequence[Any]) -> str | tuple[Any, ...]:
    if isinstance(shares, str):
        if shares == "geometric":
            raise _fault("OD-BUDGET-SHARES", "geometric shares need a ratio: ('geometric', 6/5)")
        refuse_unknown("rule of shares", shares, RULES, code="OD-BUDGET-SHARES", next_step="correct the budget")
        return shares
    if not hasattr(shares, "__len__"):
        raise _fault("OD-BUDGET-SHARES", "shares must be the name of a rule, or one number for each level")
    if len(shares) == 2 and shares[0] == "geometric":
        ratio = exact_fraction("the ratio of the shares", shares[1])
        if not Fraction(1, 1000) <= ratio <= 1000:
            raise _fault("OD-BUDGET-SHARES", "the ratio of geometric shares must lie between 1/1000 and 1000")
        return ("geometric", ratio)
    exact = tuple(exact_fraction("a share", share) for share in shares)
    if any(share <= 0 for share in exact):
        raise _fault("OD-BUDGET-SHARES", "every share must be above 0")
    if sum(exact) != 1:
        raise _fault("OD-BUDGET-SHARES", f"the shares sum to {sum(exact)}, not to 1")
    return exact


def _fault(code: str, message: str) -> OdError:
    return OdError(code, message, next_step="correct the budget")
