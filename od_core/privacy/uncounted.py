"""Measure how many trips the contribution bounds of unit ``user_year`` leave out, as one noisy number of a release.

The number is the sum, over all users, of the trips that are not counted. Of each user, at most K trips are considered,
counted or not. So a user changes the number by at most K. A user may do so in every period, even where none of the
user's trips is counted. Therefore the charges of these numbers add up over a year in full, beside the charges that the
bound M limits; see ``docs/explanation/person-year.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from od_core.errors import OdError
from od_core.privacy.budget import Number, exact_fraction
from od_core.privacy.cap import Charge
from od_core.privacy.plan import Step, plan_defect
from od_core.privacy.unit import PrivacyUnit

_MOST_TRIPS = 10**6


@dataclass(frozen=True)
class Uncounted:
    """The declared measurement of the trips that are not counted.

    Attributes:
        share: its share of the budget of the release, above 0 and at most 1/2.
        max_trips: K, the largest number of trips of a user that are considered in a release.

    Raises:
        OdError: a number is out of its range.
    """

    share: Fraction
    max_trips: int

    def __init__(self, share: Number, max_trips: int) -> None:
        exact = exact_fraction("the share of the budget for uncounted trips", share)
        if not 0 < exact <= Fraction(1, 2):
            raise _fault(f"their share of the budget is {exact}; it must be above 0 and at most 1/2")
        if isinstance(max_trips, bool) or not isinstance(max_trips, int) or not 1 <= max_trips <= _MOST_TRIPS:
            raise _fault(f"max_trips must be a whole number from 1 to {_MOST_TRIPS:,}")
        object.__setattr__(self, "share", exact)
        object.__setattr__(self, "max_trips", max_trips)

    def check(self, unit: PrivacyUnit) -> None:
        """Raise OdError unless the unit is ``user_year`` and counts no more than :attr:`max_trips` in a period."""
        if unit.kind != "user_year":
            raise _fault(f"unit {unit.kind!r} keeps no counters of users; only unit 'user_year' does")
        if self.max_trips < unit.contribution_bound:
            raise _fault(f"max_trips is {self.max_trips}, below the bound of {unit.contribution_bound} trips a period")

    def step(self, number: int, rho: Fraction) -> UncountedStep:
        """Return the step that measures the trips, with a charge of ``rho``."""
        return UncountedStep(0, self.max_trips, Fraction(self.max_trips**2) / (2 * rho), number)

    @property
    def sentence(self) -> str:
        """Sentences for the certificate on what is published and what it costs."""
        return (
            "The number of trips that are not counted because of the contribution bounds is published with noise. Of"
            f" each user, at most {self.max_trips} trips of the release are considered. The promise includes this"
            " number. In a year, its charges add up over all releases."
        )

    def facts(self) -> dict[str, Any]:
        """Return the declaration as JSON-ready public facts, which :meth:`from_facts` reads."""
        return {"share": str(self.share), "max_trips": self.max_trips}

    @classmethod
    def from_facts(cls, facts: dict[str, Any] | None) -> Uncounted | None:
        """Return the declaration whose :meth:`facts` are given; None for None."""
        return None if facts is None else cls(facts["share"], facts["max_trips"])


@dataclass(frozen=True)
class UncountedStep(Step):
    """The planned query of the number of trips that are not counted, measured with discrete Gaussian noise.

    Attributes:
        level: 0, because the number is of all trips.
        max_trips: K, the sensitivity.
        variance: variance of the noise, exact.
        own_number: number of the step within the release.
    """

    max_trips: int
    variance: Fraction
    own_number: int

    def __post_init__(self) -> None:
        if self.variance <= 0:
            raise plan_defect("a step needs a variance")

    @property
    def number(self) -> int:
        """Number of the step within the release; see :attr:`od_core.privacy.plan.Step.number`."""
        return self.own_number

    @property
    def sensitivity_squared(self) -> int:
        """Squared sensitivity, for both neighbour relations: a user who is replaced changes one number by at most K."""
        return self.max_trips**2

    @property
    def charge(self) -> Charge:
        """Charge of one draw of the noise, in rho."""
        return Charge(rho=Fraction(self.sensitivity_squared) / (2 * self.variance))

    @property
    def largest_variance(self) -> Fraction:
        """Variance of the noise."""
        return self.variance

    @property
    def noise_facts(self) -> dict[str, int | str]:
        """K, the squared sensitivity and the noise variance, ready for JSON; the variance is exact text."""
        return {
            "max_uncounted": self.max_trips,
            "sensitivity_squared": self.sensitivity_squared,
            "variance": str(self.variance),
        }


def share_of_table(uncounted: Uncounted | None) -> Fraction:
    """Return the share of a release's budget that its table has; the number of uncounted trips has the rest."""
    return Fraction(1) if uncounted is None else 1 - uncounted.share


def is_of_uncounted(facts: dict[str, Any]) -> bool:
    """Return whether the facts of a step, or the content of its RESERVED entry, are those of uncounted trips."""
    return "max_uncounted" in facts


def _fault(message: str) -> OdError:
    return OdError(
        "OD-UNCOUNTED", f"uncounted trips cannot be measured: {message}", next_step="correct or leave out `uncounted`"
    )
