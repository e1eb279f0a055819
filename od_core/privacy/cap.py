"""What a data set may spend in one elementary period, and what an event spends of it (spec 6, "Ledger").

The filter stays valid when later budgets are chosen after earlier outputs are seen: rho adds up whatever was seen
(Feldman & Zrnic 2021), and an (epsilon, delta) cap is held by converting the sum once, at the delta that is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from od_core.errors import OdError
from od_core.privacy.accounting import LARGEST, SMALLEST, rho_for_epsilon

_NONE = Fraction(0)


@dataclass(frozen=True)
class Charge:
    """What one event costs: rho of zero-concentrated differential privacy, pure epsilon, or (epsilon, delta).

    Raises:
        OdError: not exactly one of rho and epsilon above 0; a delta without epsilon, or outside [0, 1).
    """

    rho: Fraction = _NONE
    epsilon: Fraction = _NONE
    delta: Fraction = _NONE

    def __post_init__(self) -> None:
        one = (self.rho > 0) != (self.epsilon > 0) and min(self.rho, self.epsilon) == 0
        if not one or not 0 <= self.delta < 1 or (self.delta > 0 and self.epsilon == 0):
            raise OdError("OD-CHARGE", "a charge is rho, epsilon, or epsilon and delta", next_step="correct the charge")

    @property
    def as_rho(self) -> Fraction:
        """Rho that the event costs beside its delta: pure epsilon is epsilon^2 / 2 (Bun & Steinke 2016, Prop. 1.4)."""
        return self.rho or self.epsilon**2 / 2


def refuse_other_charge(noise: Mapping[str, int | str], stated: Charge) -> None:
    """Refuse a charge that is not what its noise costs: whoever adds charges up does not take them on trust.

    A Gaussian costs sensitivity^2 / (2 variance) of rho, a Laplace sensitivity / scale of epsilon. A mechanism that
    chooses its later noise by its earlier noise states the scales that it surely draws with, ``scale_of_...``, which
    cost a part of the whole. A delta is the plan's, which holds it to a threshold.

    Args:
        noise: sensitivity and variance or scales as exact text, as :attr:`od_core.ledger.protocols.PlannedStep.law`.
        stated: the charge.

    Raises:
        OdError: the charge is another one; what the noise was is not stated.
    """
    sensitivity = Fraction(noise.get("sensitivity_squared", noise.get("sensitivity", 0)))
    if "variance" in noise:
        agrees = stated == Charge(rho=sensitivity / (2 * Fraction(noise["variance"])))
    elif "scale" in noise:
        agrees = stated.rho == 0 and stated.epsilon == sensitivity / Fraction(noise["scale"])
    else:
        parts = [sensitivity / Fraction(scale) for name, scale in noise.items() if name.startswith("scale_of_")]
        agrees = stated.rho == 0 and 0 < sum(parts) <= stated.epsilon
    if not agrees or sensitivity <= 0:
        raise OdError(
            "OD-CHARGE",
            f"a charge is not what its noise costs: {', '.join(f'{name} {fact}' for name, fact in noise.items())}",
            next_step="make plans by the functions of this library; if you did, report this defect",
        )


@dataclass(frozen=True)
class Cap:
    """Most that all releases of a data set may spend on one elementary period: rho, or (epsilon, delta).

    Raises:
        OdError: not exactly one of rho and epsilon, one that is out of range, or epsilon without a delta in (0, 1).
    """

    rho: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction = _NONE

    def __post_init__(self) -> None:
        promise = self.rho if self.epsilon is None else self.epsilon
        if (self.rho is None) == (self.epsilon is None) or promise is None:
            raise _fault("a cap is either rho, or epsilon and delta")
        if not SMALLEST <= promise <= LARGEST:
            raise _fault("the cap must be above 0, neither below 1e-30 nor above 1e9")
        if self.rho is None and not 0 < self.delta < 1:
            raise _fault("a cap of epsilon needs a delta between 0 and 1")
        if self.rho is not None and self.delta != 0:
            raise _fault("a cap of rho has no delta")

    def allowed_rho(self, delta_spent: Fraction = _NONE) -> Fraction:
        """Largest sum of rho that keeps the cap, once events with deltas of their own have spent so much of delta.

        Raises:
            OdError: the cap is in rho and events have deltas: it makes no promise about those.
        """
        if self.rho is not None:
            if delta_spent > 0:
                raise OdError(
                    "OD-LEDGER-CAP-KIND",
                    "a cap in rho cannot hold an (epsilon, delta) release",
                    next_step="use a mechanism that is charged in rho, or declare the cap in epsilon and delta",
                )
            return self.rho
        left = self.delta - delta_spent
        if self.epsilon is None or left <= 0:
            return _NONE
        return rho_for_epsilon(self.epsilon, left, "tight")

    def facts(self) -> dict[str, str]:
        """The cap as JSON-ready exact text; see :meth:`from_facts`."""
        if self.rho is not None:
            return {"rho": str(self.rho)}
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, str]) -> Cap:
        """The cap behind its facts."""
        return cls(**{name: Fraction(facts[name]) for name in ("rho", "epsilon", "delta") if name in facts})


def _fault(message: str) -> OdError:
    return OdError("OD-DOMAIN-CAP", message, next_step="correct the privacy domain")
