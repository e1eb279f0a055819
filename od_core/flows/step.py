"""Define the steps of a plan of flows. A step measures one level, its segments, or the leaf pairs that have trips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from od_core.errors import OdError
from od_core.noise.opendp import MAX_VARIANCE
from od_core.privacy.budget import Charge
from od_core.privacy.plan import Step, plan_defect


@dataclass(frozen=True)
class GaussianStep(Step):
    """The planned query of one level, measured with discrete Gaussian noise [boninsegna2025inftda, Algorithm 1].

    Attributes:
        level: level of the flow tree; 0 is the root.
        sensitivity_squared: the squared L2 sensitivity of the counts of the whole level.
        variance: variance of the noise, exact.
        rho: the charge, ``sensitivity_squared / (2 * variance)``, exact.
    """

    sensitivity_squared: int
    variance: Fraction
    rho: Fraction

    def __post_init__(self) -> None:
        if self.level < 0 or self.sensitivity_squared < 1 or self.variance <= 0:
            raise plan_defect("a step needs a level, a sensitivity and a variance")
        if self.variance > MAX_VARIANCE:
            raise OdError(
                "OD-BUDGET-RHO", "the budget is too small for noise of 64 bits", next_step="raise epsilon or rho"
            )
        self._check_rho()

    def _check_rho(self) -> None:
        if self.rho != Fraction(self.sensitivity_squared) / (2 * self.variance):
            raise plan_defect("the rho of a step differs from its squared sensitivity divided by twice its variance")

    @property
    def charge(self) -> Charge:
        """Charge of one draw of the noise, in rho."""
        return Charge(rho=self.rho)

    @property
    def largest_variance(self) -> Fraction:
        """Variance of the noise."""
        return self.variance

    @property
    def noise_facts(self) -> dict[str, int | str]:
        """Squared L2 sensitivity and noise variance, ready for JSON; the variance is exact text."""
        return {"sensitivity_squared": self.sensitivity_squared, "variance": str(self.variance)}


@dataclass(frozen=True)
class SegmentStep(GaussianStep):
    """The planned query of one level by a breakdown: the trips of each node in each category, as one vector.

    The vector has the trips of the first node in each category, then those of the second node, in tree order.

    Attributes:
        breakdown: name of the breakdown.
        first_number: number of the step that counts the root by this breakdown. Later levels have the numbers after it.
    """

    breakdown: str
    first_number: int

    @property
    def number(self) -> int:
        """Number of the step within the release; see :attr:`od_core.privacy.plan.Step.number`."""
        return self.first_number + self.level

    by_segment = True

    @property
    def noise_facts(self) -> dict[str, int | str]:
        """Facts of a Gaussian step, and the name of the breakdown."""
        return {"breakdown": self.breakdown, **super().noise_facts}


@dataclass(frozen=True)
class CombinedTotals:
    """The best combination of the measured totals of a level and of the sums of its segments, weighted by precision.

    A total is measured with the variance 1 / w, and each of the K categories of breakdown j with 1 / w_j. Both the
    total and the sum of the categories estimate the trips of a node. Their combination has the variance
    1 / (w + sum of w_j / K_j).

    Attributes:
        level: level of the flow tree.
        weights: whole weights of the measured total and of the sum of the categories of each breakdown. The combination
            is the weighted mean.
        variance: variance of the combination, exact.
    """

    level: int
    weights: tuple[int, ...]
    variance: Fraction

    @classmethod
    def of(cls, total: GaussianStep, segments: Sequence[tuple[SegmentStep, int]]) -> CombinedTotals:
        """Return the combination of the queries of one level; those by segment are with their number of categories."""
        precisions = [1 / total.variance, *(1 / (categories * step.variance) for step, categories in segments)]
        unit = math.lcm(*(precision.denominator for precision in precisions))
        whole = [int(precision * unit) for precision in precisions]
        largest = math.gcd(*whole)
        variance = 1 / sum(precisions, start=Fraction(0))
        return cls(total.level, tuple(weight // largest for weight in whole), variance)


TotalStep = GaussianStep | CombinedTotals
"""The query, or the combination of queries, from which the totals of a level are estimated."""


@dataclass(frozen=True)
class ThresholdStep(GaussianStep):
    """The planned query of the leaf pairs with trips, measured with discrete Laplace noise and a threshold.

    Noisy counts below the threshold are dropped; see ``docs/explanation/noise.md``.

    Attributes:
        rho: epsilon^2 / 2, with which the step enters sums of rho; delta is charged in addition.
        sensitivity: L1 sensitivity of the counts of the leaf pairs.
        epsilon, delta: the charge; epsilon is sensitivity / scale.
        scale: scale of the noise, exact: P(k) is proportional to exp(-|k| / scale).
        threshold: smallest noisy count that is released.
    """

    sensitivity: int
    epsilon: Fraction
    delta: Fraction
    scale: Fraction
    threshold: int

    def _check_rho(self) -> None:
        if self.rho != self.charge.as_rho:
            raise plan_defect("the rho of a step differs from half of its squared epsilon")
        if self.epsilon * self.scale != self.sensitivity:
            raise plan_defect("the epsilon of a step differs from its sensitivity divided by its scale")

    @property
    def charge(self) -> Charge:
        """Charge of one draw of the noise, in epsilon and delta."""
        return Charge(epsilon=self.epsilon, delta=self.delta)

    @property
    def largest_variance(self) -> Fraction:
        """Twice the squared scale, an upper bound of the variance of discrete Laplace noise."""
        return 2 * self.scale**2

    @property
    def noise_facts(self) -> dict[str, int | str]:
        """L1 sensitivity, noise scale and threshold, ready for JSON; the scale is exact text."""
        return {"sensitivity": self.sensitivity, "scale": str(self.scale), "threshold": self.threshold}
