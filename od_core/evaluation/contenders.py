"""The mechanisms that are compared, and how each is told its budget (spec 2, "Mechanisms to compare")."""

from __future__ import annotations

from dataclasses import dataclass

from od_core.flows.mechanisms import Mechanism
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.geography.geography import Geography
from od_core.privacy.budget import Budget
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.unit import PrivacyUnit

DELTA = "1e-8"


@dataclass(frozen=True)
class Contender:
    """A mechanism as it stands in tables and figures.

    Attributes:
        label: its name there.
        mechanism: name of a mechanism, or one with its options.
        conversion: how rho is found from (epsilon, delta); None is the mechanism's own. ``tight`` is that of the
            paper's mechanisms, so that whoever names it spends the same rho as they do.
    """

    label: str
    mechanism: str | Mechanism
    conversion: str | None = None

    def plan(self, geography: Geography, epsilon: str) -> ReleasePlan:
        """The plan of its release: one trip is protected, neighbours are bounded, n is an invariant, delta is 1e-8."""
        return plan_release(
            geography,
            unit=PrivacyUnit("trip"),
            budget=Budget(epsilon, DELTA, conversion=self.conversion),
            mechanism=self.mechanism,
            acceptance=NO_FAULTS,  # as in the papers, where n is an invariant
        )


CONTENDERS = (
    Contender("inftda", "inftda"),
    Contender("tda_l2", "tda_l2"),
    Contender("tda_linf", "tda_linf"),
    Contender("vanilla_gauss", "vanilla_gauss"),
    Contender("stability_histogram", "stability_histogram"),
    Contender("inftda_refined", "inftda_refined"),
    Contender("inftda_refined, rho of the others", "inftda_refined", conversion="tight"),
)
"""At equal (epsilon, delta); without the sixth at equal rho, but for the stability histogram, which has none."""
