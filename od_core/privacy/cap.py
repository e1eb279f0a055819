"""Define the cap of a data set in one elementary period, and the charge of an event against it.

An event is one draw of noise, or all draws of a release. The cap also holds if the budget of a release is chosen after
the results of earlier releases were seen, because the rho of all releases still adds up [feldman2021individual]. For a
cap in (epsilon, delta), the sum of rho is converted once, at the delta that remains after all events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from od_core.errors import OdError
from od_core.privacy.accounting import LARGEST, SMALLEST, rho_for_epsilon
from od_core.privacy.budget import Number, exact_fraction

_NONE = Fraction(0)


@dataclass(frozen=True)
class Charge:
    """The cost of one event: rho of zero-concentrated differential privacy, pure epsilon, or (epsilon, delta).

    Raises:
        OdError: not exactly one of rho and epsilon is above 0, or the other one is not 0. Or delta is above 0 without
            an epsilon, or is not in [0, 1).
    """

    rho: Fraction = _NONE
    epsilon: Fraction = _NONE
    delta: Fraction = _NONE

    def __post_init__(self) -> None:
        one = (self.rho > 0) != (self.epsilon > 0) and min(self.rho, self.epsilon) == 0
        if not one or not 0 <= self.delta < 1 or (self.delta > 0 and self.epsilon == 0):
            raise OdError(
                "OD-CHARGE", "a charge must be rho, epsilon, or epsilon and delta", next_step="correct the charge"
            )

    @property
    def as_rho(self) -> Fraction:
        """Rho that the charge adds to the sum over all events; its delta is added up separately.

        An epsilon counts as epsilon^2 / 2 [bun2016concentrated, Proposition 1.4].
        """
        return self.rho or self.epsilon**2 / 2

    def facts(self) -> dict[str, str]:
        """Return the numbers of the charge that are not 0, by name, as JSON-ready exact text."""
        numbers = {"rho": self.rho, "epsilon": self.epsilon, "delta": self.delta}
        return {name: str(number) for name, number in numbers.items() if number}


def refuse_other_charge(noise: Mapping[str, int | str], stated: Charge) -> None:
    """Check that a charge is the cost of its noise.

    Gaussian noise costs a rho of sensitivity^2 / (2 variance), and Laplace noise an epsilon of sensitivity / scale.
    Some mechanisms choose later scales by earlier noisy results. They state only the scales that are used in any case,
    as facts ``scale_of_...``, and the cost of these must be at most the charge. The delta of a charge is not checked
    here, because the plan derives a threshold from it.

    Args:
        noise: sensitivity, and variance or scales, as in :attr:`od_core.privacy.plan.Step.noise_facts`.
        stated: the charge.

    Raises:
        OdError: the charge is not the cost of the noise, or the noise is not stated.
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
        described = ", ".join(f"{name} {fact}" for name, fact in noise.items())
        raise wrong_charge(f"a charge does not equal the cost of its noise: {described}")


def wrong_charge(message: str) -> OdError:
    """Return the OdError for a charge that does not follow from the plan."""
    step = "make plans with the functions of this library; if you did, report this defect"
    return OdError("OD-CHARGE", message, next_step=step)


@dataclass(frozen=True, init=False)
class Cap:
    """The largest budget that all releases of a data set together may spend in one elementary period.

    It is either rho, or epsilon with a delta. Numbers are stored as exact fractions of their decimal text.

    Raises:
        OdError: a number is not a number; not exactly one of rho and epsilon is given; it is out of range; epsilon is
            given and delta is not in (0, 1); or rho is given and delta is not 0.
    """

    rho: Fraction | None
    epsilon: Fraction | None
    delta: Fraction

    def __init__(self, rho: Number | None = None, epsilon: Number | None = None, delta: Number = 0) -> None:
        for name, number in (("rho", rho), ("epsilon", epsilon), ("delta", delta)):
            object.__setattr__(self, name, None if number is None else exact_fraction(f"{name} of the cap", number))
        promise = self.rho if self.epsilon is None else self.epsilon
        if (self.rho is None) == (self.epsilon is None) or promise is None:
            raise _fault("a cap must be either rho, or epsilon and delta")
        if not SMALLEST <= promise <= LARGEST:
            raise _fault("the cap must be from 1e-30 to 1e9")
        if self.rho is None and not 0 < self.delta < 1:
            raise _fault("a cap in epsilon needs a delta between 0 and 1")
        if self.rho is not None and self.delta != 0:
            raise _fault("a cap in rho cannot have a delta")

    def allowed_rho(self, delta_spent: Fraction = _NONE) -> Fraction:
        """Return the largest sum of rho that the cap allows; 0 if the events have used up the delta of the cap.

        Args:
            delta_spent: sum of the deltas of all events. It is subtracted from the delta of the cap.

        Raises:
            OdError: the cap is in rho, and an event has a delta, which such a cap cannot cover.
        """
        if self.rho is not None:
            if delta_spent > 0:
                raise OdError(
                    "OD-LEDGER-CAP-KIND",
                    "a cap in rho does not cover an (epsilon, delta) release",
                    next_step="use a mechanism that is charged in rho, or declare the cap in epsilon and delta",
                )
            return self.rho
        left = self.delta - delta_spent
        if self.epsilon is None or left <= 0:
            return _NONE
        return rho_for_epsilon(self.epsilon, left, "tight")

    def facts(self) -> dict[str, str]:
        """Return the cap as JSON-ready exact text, which :meth:`from_facts` reads."""
        if self.rho is not None:
            return {"rho": str(self.rho)}
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, str]) -> Cap:
        """Return the cap whose :meth:`facts` are given."""
        return cls(**{name: Fraction(facts[name]) for name in ("rho", "epsilon", "delta") if name in facts})


def _fault(message: str) -> OdError:
    return OdError("OD-DOMAIN-CAP", message, next_step="correct the privacy domain")
