"""Describe a budget, what is spent, and the cap of a data set.

The cap limits what all events of one elementary period cost. An event is one draw of noise, or all draws of a release.
The cap also holds if the budget of a release is chosen after the results of earlier releases were seen, because the rho
of all releases still adds up [feldman2021individual]. For a cap in (epsilon, delta), the sum of rho is converted once,
at the delta that remains after all events. If earlier results decide which deltas are charged, such a cap promises
(epsilon, 2 delta): what the sum of rho promises is (epsilon, delta), and all deltas sum to at most delta.

A cap in epsilon also holds for events that are all charged a pure epsilon, as long as their epsilons sum to at most
that of the cap, whatever their rho. This does not weaken the cap, even if earlier results decide whether an event of
another kind follows: outcomes after which rho exceeds the cap have a privacy loss of at most epsilon, so they add
nothing to delta (``docs/explanation/privacy.md``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, cast

from od_core.errors import OdError
from od_core.notebook import Shown
from od_core.privacy import accounting, privacy_loss
from od_core.privacy.accounting import (
    MAX_BUDGET,
    MIN_BUDGET,
    Number,
    find_rho_for_epsilon,
    make_budget_error,
    parse_exact_fraction,
)
from od_core.privacy.shares import MinimiseRule, ShareRule, compute_shares_by_rule, parse_shares
from od_core.registry import refuse_unknown

_ZERO = Fraction(0)


@dataclass(frozen=True)
class Budget(Shown):
    """A budget, given as (epsilon, delta), or as rho together with the delta for which epsilon is reported.

    Numbers are read as decimals: ``0.1`` is one tenth. Without ``conversion`` or ``shares``, the mechanism's apply.

    Attributes:
        epsilon: promised epsilon as an exact fraction; None if rho is given.
        delta: promised delta, or delta for which epsilon is reported; an exact fraction.
        rho: promised rho of zero-concentrated differential privacy as an exact fraction; None if epsilon is given.
        conversion: method to compute rho from epsilon: ``exact``, ``tight`` or ``bun_steinke``.
        shares: how the budget is shared between the measured levels, top first: ``uniform``, ``geography`` (see
            :func:`od_core.privacy.shares.compute_shares_by_rule`), ``("geometric", ratio)``, fractions that sum to 1,
            or ``{"minimise": quantities}``: the shares that minimise the expected errors of the quantities, which are a
            list or have weights; see :mod:`od_core.flows.optimal_shares`.

    Raises:
        OdError: not exactly one of epsilon and rho is given; a number is not finite or is out of range; the conversion
            or the rule of shares is unknown; a share is below 0, or the shares do not sum to 1; or the rule
            ``minimise`` has no quantity, or a weight that is not above 0.

    Examples:
        >>> Budget(epsilon=1, delta="1e-8").epsilon, Budget(rho="1/50").rho
        (Fraction(1, 1), Fraction(1, 50))
    """

    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None
    conversion: str | None = None
    shares: ShareRule | None = None

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        *,
        rho: Number | None = None,
        conversion: str | None = None,
        shares: str | Sequence[Any] | Mapping[str, Any] | MinimiseRule | None = None,
    ) -> None:
        if (epsilon is None) == (rho is None):
            raise make_budget_error("OD-BUDGET-KIND", "a budget must be either epsilon or rho")
        kind, stated = ("epsilon", epsilon) if rho is None else ("rho", rho)
        promise = parse_exact_fraction(kind, stated)
        if not MIN_BUDGET <= promise <= MAX_BUDGET:
            code = "OD-BUDGET-EPSILON" if rho is None else "OD-BUDGET-RHO"
            raise make_budget_error(code, "epsilon and rho must lie between 1e-30 and 1e9")
        exact_delta = parse_exact_fraction("delta", delta)
        if not 0 <= exact_delta < 1:
            raise make_budget_error("OD-BUDGET-DELTA", "delta must be at least 0 and below 1")
        if conversion is not None:
            known, step = ("exact", *accounting.CONVERSIONS), "correct the budget"
            refuse_unknown("conversion", conversion, known, code="OD-BUDGET-CONVERSION", next_step=step)
        object.__setattr__(self, "epsilon", promise if rho is None else None)
        object.__setattr__(self, "rho", promise if rho is not None else None)
        object.__setattr__(self, "delta", exact_delta)
        object.__setattr__(self, "conversion", conversion)
        object.__setattr__(self, "shares", None if shares is None else parse_shares(shares))

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Budget:
        """Return the budget that the facts of a plan state. Raises KeyError if a fact is missing."""
        rho = facts["rho"] if facts["epsilon"] is None else None
        options = {name: facts.get(name) for name in ("conversion", "shares")}
        return cls(facts["epsilon"], facts["delta"], rho=rho, **options)

    def choose_conversion(self, default: str, shifted_cells: Sequence[int] | None) -> str:
        """Return the name of the conversion to use: that of the budget, or the mechanism's ``default`` if it has none.

        ``exact`` is replaced by ``tight`` if the exact loss is not defined at this delta, or if ``shifted_cells`` (see
        :class:`Spent`) is None.
        """
        name = self.conversion or default
        is_exact = shifted_cells is not None and privacy_loss.is_defined(self.delta)
        return "tight" if name == "exact" and not is_exact else name

    def compute_total_rho(
        self,
        conversion: str,
        shares: tuple[Fraction, ...] = (Fraction(1),),
        shifted_cells: tuple[int, ...] | None = None,
        shift: int = 1,
    ) -> Fraction:
        """Return the rho of the whole release. It is converted from epsilon if the budget has an epsilon.

        Args:
            conversion: the mechanism's conversion, which is used if the budget names none.
            shares: share of rho of each measured level. It and the next two are only used by the conversion ``exact``.
            shifted_cells, shift: see :class:`Spent`.

        Raises:
            OdError: delta is 0, because Gaussian noise needs a positive delta; or epsilon is too small for any noise.
        """
        if self.delta == 0:
            raise make_budget_error("OD-BUDGET-DELTA", "delta is 0, but Gaussian noise needs a positive delta")
        if self.epsilon is None:
            return cast("Fraction", self.rho)  # one of the two is given
        name = self.choose_conversion(conversion, shifted_cells)
        if name == "exact" and shifted_cells is not None:
            return privacy_loss.find_rho_by_loss(self.epsilon, self.delta, shares, shifted_cells, shift)
        return accounting.find_rho_for_epsilon(self.epsilon, self.delta, name)

    @property
    def features(self) -> frozenset[str]:
        """Names of what this budget has, as ``od_core/meaning/support.yaml`` lists them."""
        is_present = {
            "epsilon": self.epsilon is not None,
            "rho": self.rho is not None,
            "delta": self.delta > 0,
            "no_delta": self.delta == 0,
            "minimise": isinstance(self.shares, MinimiseRule),
            "conversion": self.conversion is not None,
        }
        return frozenset(name for name, present in is_present.items() if present)

    def format_shares(self, default: str) -> str | list[str]:
        """Return the rule or the list of shares as text that :class:`Budget` accepts, ``default`` if none are declared.

        Raises OdError for the rule ``minimise``.
        """
        rule = self._resolve_share_rule(default)
        return rule if isinstance(rule, str) else [str(part) for part in rule]

    def compute_level_shares(
        self, fan_outs: Sequence[int], default: str, *, of_epsilon: bool = False
    ) -> tuple[Fraction, ...]:
        """Return the shares of the levels by the rule of the budget, or by ``default`` if it has none.

        The shares are of rho, or of epsilon if ``of_epsilon``. For arguments and errors, see
        :func:`compute_shares_by_rule`; the rule ``minimise`` is refused, too.
        """
        return compute_shares_by_rule(self._resolve_share_rule(default), fan_outs, of_epsilon=of_epsilon)

    def _resolve_share_rule(self, default: str) -> str | tuple[Any, ...]:
        """Return the declared shares or their rule, or ``default``. Raises OdError for the rule ``minimise``."""
        rule = default if self.shares is None else self.shares
        if isinstance(rule, MinimiseRule):
            raise make_budget_error("OD-BUDGET-SHARES", "the shares of the rule minimise follow from a plan")
        return rule


@dataclass(frozen=True)
class Spent:
    """The budget that a release has spent: the exact rho, and the epsilons that follow from it at a delta.

    Each conversion gives a valid epsilon for the same release, so the smallest one is promised. All are rounded up.

    Attributes:
        levels: rho of each measured level; with a promise, epsilon^2 / 2 of each, which the ledger adds up as rho.
        delta: delta for which epsilon is reported; with a promise, the sum of the deltas of all draws.
        shifted_cells: for each measured level, the number of cells that differ by ``shift`` between those neighbours
            that are easiest to distinguish, if every level was drawn once. Otherwise None, and there is no exact
            epsilon.
        every_period: under a unit of a year, the part of rho that a user costs in every period, even where none of
            the user's trips is counted.
        promise: sum of the epsilons of all draws, if a mechanism promises (epsilon, delta) directly; else None.
        shift: largest change of a cell, the contribution bound. Only the exact epsilon depends on it.

    Examples:
        >>> release.spent.epsilon <= 1, release.spent.delta
        (True, Fraction(1, 100000000))
    """

    levels: tuple[Fraction, ...]
    delta: Fraction
    shifted_cells: tuple[int, ...] | None = None
    every_period: Fraction = Fraction(0)
    promise: Fraction | None = None
    shift: int = 1

    @property
    def rho(self) -> Fraction:
        """Exact sum of the rho of all levels."""
        return sum(self.levels, start=_ZERO)

    @property
    def epsilon_tight(self) -> float:
        """Epsilon by the ``tight`` conversion of Canonne et al., or the promise if there is no rho to convert."""
        return accounting.round_up_to_float(self._compute_epsilon("tight"))

    @property
    def epsilon_bun_steinke(self) -> float:
        """Epsilon by the conversion of Bun and Steinke, or the promise if there is no rho to convert."""
        return accounting.round_up_to_float(self._compute_epsilon("bun_steinke"))

    @property
    def epsilon_exact(self) -> float | None:
        """Epsilon by the exact privacy loss; None if that is not defined for this release or this delta."""
        exact = self._compute_exact_epsilon()
        return None if exact is None else accounting.round_up_to_float(exact)

    @property
    def epsilon(self) -> Fraction:
        """Promised epsilon: the smallest of those by all conversions that are defined."""
        candidates = [self._compute_epsilon("tight"), self._compute_epsilon("bun_steinke")]
        exact = self._compute_exact_epsilon()
        return min(candidates if exact is None else [*candidates, exact])

    @property
    def variances(self) -> tuple[Fraction, ...] | None:
        """Variance of the noise of each cell that differs between neighbours; None if there is no exact epsilon."""
        if self.shifted_cells is None or not privacy_loss.is_defined(self.delta):
            return None
        variances: list[Fraction] = []
        for rho, cells in zip(self.levels, self.shifted_cells, strict=True):
            variances += cells * [cells * self.shift**2 / (2 * rho)]
        return tuple(variances)

    def _compute_epsilon(self, conversion: str) -> Fraction:
        """Return the epsilon of all levels by a conversion of rho, or the promise if a mechanism made one directly."""
        if self.promise is not None:
            return self.promise
        return accounting.CONVERSIONS[conversion](self.rho, self.delta)

    def _compute_exact_epsilon(self) -> Fraction | None:
        """Return the epsilon of all levels by the exact privacy loss; None if that is not defined."""
        variances = self.variances
        return None if variances is None else privacy_loss.compute_exact_epsilon(variances, self.delta, self.shift)


Measure = Literal["rho", "epsilon"]
"""What is added up under a cap: the rho of all charges or, if all are pure, their epsilons."""


@dataclass(frozen=True)
class Charge:
    """The cost of one event: rho of zero-concentrated differential privacy, pure epsilon, or (epsilon, delta).

    Raises:
        OdError: not exactly one of rho and epsilon is above 0, or one is below 0. Or delta is above 0 without an
            epsilon, or is not in [0, 1).

    Examples:
        >>> plan.charge.rho == plan.spent.rho, Charge(epsilon=Fraction(1, 5)).as_rho
        (True, Fraction(1, 50))
    """

    rho: Fraction = _ZERO
    epsilon: Fraction = _ZERO
    delta: Fraction = _ZERO

    def __post_init__(self) -> None:
        is_one_kind = (self.rho > 0) != (self.epsilon > 0) and min(self.rho, self.epsilon) == 0
        if not is_one_kind or not 0 <= self.delta < 1 or (self.delta > 0 and self.epsilon == 0):
            message = "a charge must be rho, epsilon, or epsilon and delta"
            raise OdError("OD-CHARGE", message, next_step="correct the charge")

    @property
    def as_rho(self) -> Fraction:
        """Rho that the charge adds to the sum over all events; its delta is added up separately.

        An epsilon counts as epsilon^2 / 2 [bun2016concentrated, Proposition 1.4].
        """
        return self.rho or self.epsilon**2 / 2

    @property
    def is_pure(self) -> bool:
        """True if the charge is an epsilon without a delta."""
        return self.epsilon > 0 and self.delta == 0

    def select_amount(self, measure: Measure) -> Fraction:
        """Return what the charge adds to a sum in a measure: :attr:`as_rho`, or its epsilon.

        Epsilons may only be summed if all charges are pure.
        """
        return self.as_rho if measure == "rho" else self.epsilon

    def facts(self) -> dict[str, str]:
        """Return the numbers of the charge that are not 0, by name, as JSON-ready exact text."""
        numbers = {"rho": self.rho, "epsilon": self.epsilon, "delta": self.delta}
        return {name: str(number) for name, number in numbers.items() if number}


def refuse_wrong_charge(noise: Mapping[str, int | str], stated: Charge) -> None:
    """Raise OdError unless the charge ``stated`` is the cost of its ``noise``.

    Gaussian noise costs a rho of sensitivity^2 / (2 variance), and Laplace noise an epsilon of sensitivity / scale.
    Some mechanisms choose later scales by earlier noisy results. They state only the scales that are used in any case,
    as facts ``scale_of_...``, and the sum of their costs must be at most the charge. The delta of a charge is checked
    by :func:`od_core.privacy.plan.check_charges` instead.

    ``noise`` has the facts of :attr:`od_core.privacy.plan.Step.noise_facts`. If it has no variance and no scale, it is
    refused, too.
    """
    sensitivity = Fraction(noise.get("sensitivity_squared", noise.get("sensitivity", 0)))
    if "variance" in noise:
        agrees = stated == Charge(rho=sensitivity / (2 * Fraction(noise["variance"])))
    elif "scale" in noise:
        agrees = stated.rho == 0 and stated.epsilon == sensitivity / Fraction(noise["scale"])
    else:
        epsilons = [sensitivity / Fraction(scale) for name, scale in noise.items() if name.startswith("scale_of_")]
        agrees = stated.rho == 0 and 0 < sum(epsilons) <= stated.epsilon
    if not agrees or sensitivity <= 0:
        described = ", ".join(f"{name} {fact}" for name, fact in noise.items())
        raise make_charge_error(f"a charge does not equal the cost of its noise: {described}")


def make_charge_error(message: str) -> OdError:
    """Return the OdError for a charge that does not follow from the plan."""
    step = "make plans with the functions of this library; if you did, report this defect"
    return OdError("OD-CHARGE", message, next_step=step)


class ChargeSum(NamedTuple):
    """The sums of the rho, of the deltas and of the epsilons of some charges; epsilon is None unless all are pure."""

    rho: Fraction
    delta: Fraction
    epsilon: Fraction | None

    @classmethod
    def from_charges(cls, charges: Iterable[tuple[Charge, int]], rho: Fraction | None = None) -> ChargeSum:
        """Return the sums of ``charges``, pairs of a charge and how often it is made.

        If ``rho``, a bound of the sum of their rho, is given, it replaces this sum.
        """
        stated = [*charges]
        if rho is None:
            rho = sum((number * charge.as_rho for charge, number in stated), start=_ZERO)
        delta = sum((number * charge.delta for charge, number in stated), start=_ZERO)
        epsilon = None
        if all(charge.is_pure for charge, _number in stated):
            epsilon = sum((number * charge.epsilon for charge, number in stated), start=_ZERO)
        return cls(rho, delta, epsilon)

    def select_amount(self, measure: Measure) -> Fraction:
        """Return the sum in a measure. Raises OdError for epsilons if some of the charges are not pure."""
        amount = self.rho if measure == "rho" else self.epsilon
        if amount is None:
            raise make_charge_error("charges that are not pure have no sum of epsilons")
        return amount


class Usage(NamedTuple):
    """How much some charges use of a cap.

    Attributes:
        measure: what is added up.
        cap: largest sum that the cap allows in this measure.
        used: sum of the charges in this measure.
    """

    measure: Measure
    cap: Fraction
    used: Fraction

    @property
    def fits(self) -> bool:
        """True if the cap allows the charges."""
        return self.used <= self.cap

    @property
    def percent(self) -> Fraction:
        """How much is used, in percent of the cap; 0 if the cap allows nothing."""
        return 100 * self.used / self.cap if self.cap else _ZERO


_MAX_RELEASES = 10**6
"""Largest number of releases that is counted."""


@dataclass(frozen=True, init=False)
class Cap:
    """The largest budget that all releases of a data set together may spend in one elementary period.

    It is either rho, or epsilon with a delta. With a delta of 0, it allows only charges that are a pure epsilon.
    Numbers are stored as exact fractions of their decimal text.

    Raises:
        OdError: a number is not a number; not exactly one of rho and epsilon is given; it is out of range; epsilon is
            given and delta is not in [0, 1); or rho is given and delta is not 0.

    Examples:
        >>> Cap(rho="1/2").allowed_rho()
        Fraction(1, 2)
        >>> round(float(Cap(epsilon=1, delta="1e-6").allowed_rho()), 4)
        0.0244
    """

    rho: Fraction | None
    epsilon: Fraction | None
    delta: Fraction

    def __init__(self, rho: Number | None = None, epsilon: Number | None = None, delta: Number = 0) -> None:
        for name, number in (("rho", rho), ("epsilon", epsilon), ("delta", delta)):
            exact = None if number is None else parse_exact_fraction(f"{name} of the cap", number)
            object.__setattr__(self, name, exact)
        promise = self.rho if self.epsilon is None else self.epsilon
        if (self.rho is None) == (self.epsilon is None) or promise is None:
            raise _make_cap_error("a cap must be either rho, or epsilon and delta")
        if not MIN_BUDGET <= promise <= MAX_BUDGET:
            raise _make_cap_error("the cap must be from 1e-30 to 1e9")
        if self.rho is None and not 0 <= self.delta < 1:
            raise _make_cap_error("the delta of a cap must be at least 0 and below 1")
        if self.rho is not None and self.delta != 0:
            raise _make_cap_error("a cap in rho cannot have a delta")

    def allowed_rho(self, delta_spent: Fraction = _ZERO) -> Fraction:
        """Return the largest sum of rho that the cap allows; 0 if the events have used up the delta of the cap.

        ``delta_spent`` is the sum of the deltas of all events. Raises OdError if it is above 0 and the cap is in rho.
        """
        if self.rho is not None:
            if delta_spent > 0:
                message = "a cap in rho does not cover an (epsilon, delta) release"
                step = "use a mechanism that is charged in rho, or declare the cap in epsilon and delta"
                raise OdError("OD-LEDGER-CAP-KIND", message, next_step=step)
            return self.rho
        delta_left = self.delta - delta_spent
        if self.epsilon is None or delta_left <= 0:
            return _ZERO
        return find_rho_for_epsilon(self.epsilon, delta_left, "tight")

    def choose_measure(self, charged: ChargeSum) -> Measure:
        """Return the measure in which the cap counts some charges, given their sums.

        Usually, it is rho. If the cap is in epsilon and all charges are pure, it is the measure of which they use the
        smaller part of what the cap allows.
        """
        if self.epsilon is None or charged.epsilon is None:
            return "rho"
        uses_less_epsilon = charged.rho * self.epsilon > charged.epsilon * self.allowed_rho()
        return "epsilon" if uses_less_epsilon or self.delta == 0 else "rho"  # without a delta, no rho is allowed

    def compute_allowed(self, measure: Measure, delta_spent: Fraction = _ZERO) -> Fraction:
        """Return the largest sum that the cap allows in a measure; see :meth:`allowed_rho`.

        The measure epsilon is only asked of a cap in epsilon.
        """
        return self.allowed_rho(delta_spent) if measure == "rho" else cast("Fraction", self.epsilon)

    def compute_usage(self, charges: Iterable[Charge]) -> Usage:
        """Return how much of the cap the charges use together. Raises OdError as :meth:`allowed_rho` does."""
        total = ChargeSum.from_charges((charge, 1) for charge in charges)
        measure = self.choose_measure(total)
        return Usage(measure, self.compute_allowed(measure, total.delta), total.select_amount(measure))

    def count_releases(self, charges: Sequence[Charge]) -> dict[Measure, int]:
        """Return how many releases with these charges each the cap allows, by each measure that applies.

        The number is at most ``_MAX_RELEASES``. Raises OdError as :meth:`allowed_rho` does.
        """
        release_sum = ChargeSum.from_charges((charge, 1) for charge in charges)
        measures: list[Measure] = ["rho"]
        if self.epsilon is not None and release_sum.epsilon is not None:
            measures.append("epsilon")

        def exceeds_cap(number: int, measure: Measure) -> bool:
            """Return whether so many releases exceed the cap."""
            allowed = self.compute_allowed(measure, number * release_sum.delta)
            return number * release_sum.select_amount(measure) > allowed

        numbers = range(1, _MAX_RELEASES + 1)
        # The position of the first number that exceeds the cap equals the largest number that does not.
        return {measure: bisect_left(numbers, True, key=lambda n: exceeds_cap(n, measure)) for measure in measures}

    def require_rho(self) -> Fraction:
        """Return the largest sum of rho that the cap allows. Raises OdError if it allows only pure epsilons."""
        allowed = self.allowed_rho()
        if allowed == 0:
            message = "a cap in epsilon without a delta covers only releases that are charged a pure epsilon"
            step = "declare the cap with a delta, or use Laplace noise"
            raise OdError("OD-LEDGER-CAP-KIND", message, next_step=step)
        return allowed

    def facts(self) -> dict[str, str]:
        """Return the cap as JSON-ready exact text, which :meth:`from_facts` reads."""
        if self.rho is not None:
            return {"rho": str(self.rho)}
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, str]) -> Cap:
        """Return the cap whose :meth:`facts` are given."""
        return cls(**{name: Fraction(facts[name]) for name in ("rho", "epsilon", "delta") if name in facts})


def _make_cap_error(message: str) -> OdError:
    """Return the OdError for a cap that is not valid."""
    return OdError("OD-DOMAIN-CAP", message, next_step="correct the privacy domain")
