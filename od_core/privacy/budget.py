"""What a release may spend, and how it is shared out over the measured levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

from od_core.errors import OdError, nearest_known
from od_core.privacy import accounting, privacy_loss

Number = int | float | str | Fraction

LEAF_WEIGHT = Fraction(3, 2)
"""Weight of the leaves under ``geography`` shares; 1 would be the minimax rule of a homogeneous tree (spec 1)."""

RULES = ("uniform", "geography", "geometric")

_MOST_DIGITS = 1000


@dataclass(frozen=True)
class Budget:
    """A budget as (epsilon, delta), or as rho with the delta at which epsilon is stated.

    Numbers are read as decimal: ``0.1`` is one tenth. ``conversion`` and ``shares`` default to the mechanism's.

    Attributes:
        epsilon, delta: promise in (epsilon, delta); exact fractions.
        rho: promise in zero-concentrated differential privacy, exact; instead of epsilon.
        conversion: how rho is found from epsilon: ``exact``, ``tight`` or ``bun_steinke``.
        shares: over the measured levels, top first: ``uniform``, ``geography`` (see :func:`geography_weights`),
            ``("geometric", ratio)``, or fractions that sum to 1.

    Raises:
        OdError: not exactly one of epsilon and rho; a number that is not finite or out of range; an unknown
            conversion or rule of shares; shares that do not sum to 1.
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
            raise _fault("OD-BUDGET-KIND", "a budget is either epsilon or rho")
        promise = exact_fraction("epsilon" if rho is None else "rho", epsilon if rho is None else rho)
        if not accounting.SMALLEST <= promise <= accounting.LARGEST:
            code = "OD-BUDGET-EPSILON" if rho is None else "OD-BUDGET-RHO"
            raise _fault(code, "epsilon and rho must be above 0, neither below 1e-30 nor above 1e9")
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
        """The conversion that is used: the budget's own, else the default; ``tight`` where ``exact`` is not defined.

        Args:
            default: the mechanism's.
            shifted_cells: of every measured level, how many of its cells neighbours change, each by one; None where
                they change by more.
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
        """Rho of the whole release; from epsilon by :meth:`conversion_for`.

        Args:
            conversion: where the budget names none.
            shares: of the measured levels, which ``exact`` looks at.
            shifted_cells: as :meth:`conversion_for`.

        Raises:
            OdError: delta is 0 (Gaussian noise is never pure).
        """
        if self.delta == 0:
            raise _fault("OD-BUDGET-DELTA", "delta is 0, which Gaussian noise cannot promise")
        if self.rho is not None:
            return self.rho
        if self.epsilon is None:
            raise _fault("OD-BUDGET-KIND", "a budget is either epsilon or rho")
        name = self.conversion_for(conversion, shifted_cells)
        if name == "exact" and shifted_cells is not None:
            return privacy_loss.rho_for_epsilon_exact(self.epsilon, self.delta, shares, shifted_cells)
        return accounting.rho_for_epsilon(self.epsilon, self.delta, name)

    def pure_epsilon(self, released: str) -> Fraction:
        """The epsilon of a budget that is epsilon alone. Raises OdError for any other, naming what is ``released``."""
        if self.epsilon is None or self.delta != 0:
            raise OdError(
                "OD-BUDGET-KIND",
                f"{released} promise a pure epsilon, without rho and delta",
                next_step="give the budget as epsilon alone",
            )
        return self.epsilon

    def shares_text(self, default: str) -> str | list[str]:
        """The rule of shares as JSON-ready text, which :class:`Budget` reads back."""
        rule = self.shares if self.shares is not None else default
        return rule if isinstance(rule, str) else [str(part) for part in rule]

    def level_shares(self, fan_outs: Sequence[int], default: str) -> tuple[Fraction, ...]:
        """Exact shares of the levels, top first; they sum to 1; shape of ``fan_outs``.

        Args:
            fan_outs: largest number of children of a node of each level, 0 at the leaves.
            default: rule where the budget names none.
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
    """What a release has spent: rho exactly, and the (epsilon, delta) promises that follow from it.

    Every epsilon bounds the same mechanism, so the smallest is the promise. All are rounded up.

    Attributes:
        levels: rho of every measured level.
        delta: at which epsilon is stated.
        shifted_cells: where every level was drawn once, and neighbours change its cells by one: how many cells of each
            level; else None, and there is no exact epsilon.
    """

    levels: tuple[Fraction, ...]
    delta: Fraction
    shifted_cells: tuple[int, ...] | None = None

    @property
    def rho(self) -> Fraction:
        """Sum over the levels, exact."""
        return sum(self.levels, start=Fraction(0))

    @property
    def epsilon_tight(self) -> float:
        """Epsilon by Canonne, Kamath & Steinke."""
        return accounting.float_above(accounting.epsilon_tight(self.rho, self.delta))

    @property
    def epsilon_bun_steinke(self) -> float:
        """Epsilon by Bun & Steinke."""
        return accounting.float_above(accounting.epsilon_bun_steinke(self.rho, self.delta))

    @property
    def epsilon_exact(self) -> float | None:
        """Epsilon of the exact privacy loss; None where it is not defined."""
        exact = self._exact()
        return None if exact is None else accounting.float_above(exact)

    @property
    def epsilon(self) -> Fraction:
        """The promise: the smallest epsilon of all that apply."""
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
    """What a mechanism has spent that promises (epsilon, delta) by itself; no rho implies the promise.

    Attributes:
        levels: epsilon^2 / 2, as which the ledger adds it up beside its delta; so ``rho``.
        delta: of all draws.
        promise: epsilon of all draws.
    """

    promise: Fraction = Fraction(0)

    @property
    def epsilon(self) -> Fraction:
        """The promise."""
        return self.promise

    @property
    def epsilon_tight(self) -> float:
        """The promise, for there is no rho to convert."""
        return accounting.float_above(self.promise)

    @property
    def epsilon_bun_steinke(self) -> float:
        """The promise, for there is no rho to convert."""
        return accounting.float_above(self.promise)

    def _exact(self) -> Fraction | None:
        return None


def geography_weights(fan_outs: Sequence[int]) -> list[Fraction]:
    """Weights of the levels from the public geography alone (spec 1, "inftda_refined", part 2).

    A level is measured the better the more its nodes are divided: 1 - 1/k for the largest number k of children, and
    3/2 at the leaves, below which nothing is measured. Where every node has one child alone the weight is 0: the
    level below measures the same counts.
    """
    return [1 - Fraction(1, fan_out) if fan_out else LEAF_WEIGHT for fan_out in fan_outs]


def _proportional(weights: Sequence[Fraction]) -> tuple[Fraction, ...]:
    return tuple(weight / sum(weights) for weight in weights)


def exact_fraction(name: str, value: object) -> Fraction:
    """The number as people write it: ``0.1`` is one tenth, not the nearest float.

    Raises:
        OdError: not a finite number, or one of more than a thousand digits.
    """
    if isinstance(value, Rational) and not isinstance(value, bool):
        return Fraction(int(value.numerator), int(value.denominator))
    text = str(value)
    try:
        if isinstance(value, bool) or len(text) > _MOST_DIGITS:
            raise ValueError
        if "/" not in text and abs(Decimal(text).adjusted()) > _MOST_DIGITS:
            raise ValueError  # writing out 1e999999999 would take for ever
        return Fraction(text)
    except (ValueError, ArithmeticError):
        raise _fault("OD-BUDGET-NUMBER", f"{name} is {text[:40]!r}, not a finite number") from None


def check_conversion(name: str) -> None:
    """Refuse a conversion that does not exist. Raises OdError with the nearest known one."""
    if name not in (known_names := ("exact", *accounting.CONVERSIONS)):
        known = nearest_known(name, known_names)
        raise _fault("OD-BUDGET-CONVERSION", f"there is no conversion {name!r} ({known})")


def _checked_shares(shares: str | Sequence[Any]) -> str | tuple[Any, ...]:
    if isinstance(shares, str):
        if shares == "geometric":
            raise _fault("OD-BUDGET-SHARES", "geometric shares need a ratio: ('geometric', 6/5)")
        if shares not in RULES:
            raise _fault("OD-BUDGET-SHARES", f"there is no rule of shares {shares!r} ({nearest_known(shares, RULES)})")
        return shares
    if not hasattr(shares, "__len__"):
        raise _fault("OD-BUDGET-SHARES", "shares are the name of a rule, or one number a level")
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
