"""What a release will measure and what it costs: made from public facts alone, before any data is read."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import pandas as pd

from od_core.errors import OdError
from od_core.flows.bands import Bands
from od_core.flows.expected_error import expected_errors, summed_errors
from od_core.flows.mechanisms import Mechanism, mechanism_named
from od_core.geography.flow_tree import FlowTree, TreeOrder
from od_core.geography.geography import Geography
from od_core.noise.opendp import MAX_VARIANCE
from od_core.privacy.accounting import float_above
from od_core.privacy.budget import Budget, Spent, SpentDirectly
from od_core.privacy.cap import Charge
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, Acceptance, Neighbours
from od_core.privacy.stability import laplace_scale, sensitivity_of_leaves, stability_threshold
from od_core.privacy.unit import PrivacyUnit

_NO_NOISE = 300
"""Halves of epsilon for which a float holds no variance: it is below 10^-259."""


@dataclass(frozen=True)
class Step:
    """One vector query: the noisy counts of one level, charged once (spec 1, "Algorithm").

    Attributes:
        level: level of the flow tree; 0 is the root.
        sensitivity_squared: Delta_l^2, the squared L2 sensitivity of the whole level.
        variance: sigma_l^2 of the noise, exact.
        rho: the charge, Delta_l^2 / (2 sigma_l^2), exact.
    """

    level: int
    sensitivity_squared: int
    variance: Fraction
    rho: Fraction

    def __post_init__(self) -> None:
        if self.level < 0 or self.sensitivity_squared < 1 or self.variance <= 0:
            raise _defect("a step needs a level, a sensitivity and a variance")
        if self.variance > MAX_VARIANCE:
            raise OdError(
                "OD-BUDGET-RHO", "the budget is too small for noise of 64 bits", next_step="raise epsilon or rho"
            )
        self._check_rho()

    def _check_rho(self) -> None:
        if self.rho != Fraction(self.sensitivity_squared) / (2 * self.variance):
            raise _defect("a step's rho is not its squared sensitivity over twice its variance")

    @property
    def charge(self) -> Charge:
        """What the ledger sets aside for one draw."""
        return Charge(rho=self.rho)

    @property
    def widest(self) -> Fraction:
        """What the noise's variance is at most; a backend refuses noise that it cannot draw by this."""
        return self.variance

    @property
    def law(self) -> dict[str, int | str]:
        """What was drawn, as JSON-ready public facts; fractions as exact text."""
        return {"sensitivity_squared": self.sensitivity_squared, "variance": str(self.variance)}

    @property
    def cost(self) -> dict[str, str]:
        """The charge, as exact text."""
        return {"rho": str(self.rho)}


@dataclass(frozen=True)
class ThresholdStep(Step):
    """Discrete Laplace noise on the counts of the leaf pairs with trips; those below a threshold are dropped (spec 2).

    Attributes:
        rho: what the draw counts as beside its delta, epsilon^2 / 2.
        sensitivity: L1 sensitivity of the counts of the leaf pairs.
        epsilon, delta: the charge; epsilon is sensitivity / scale.
        scale: of the noise, exact: P(k) is proportional to exp(-|k| / scale).
        threshold: least noisy count that is released.
    """

    sensitivity: int
    epsilon: Fraction
    delta: Fraction
    scale: Fraction
    threshold: int

    def _check_rho(self) -> None:
        if self.rho != self.charge.as_rho:
            raise _defect("a step's rho is not half of its squared epsilon")
        if self.epsilon * self.scale != self.sensitivity:
            raise _defect("a step's epsilon is not its sensitivity over its scale")

    @property
    def charge(self) -> Charge:
        """As :attr:`Step.charge`."""
        return Charge(epsilon=self.epsilon, delta=self.delta)

    @property
    def widest(self) -> Fraction:
        """As :attr:`Step.widest`: a discrete Laplace varies by less than twice its squared scale."""
        return 2 * self.scale**2

    @property
    def law(self) -> dict[str, int | str]:
        """As :attr:`Step.law`."""
        return {"sensitivity": self.sensitivity, "scale": str(self.scale), "threshold": self.threshold}

    @property
    def cost(self) -> dict[str, str]:
        """As :attr:`Step.cost`."""
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}


@dataclass(frozen=True, eq=False)
class ReleasePlan:
    """The frozen list of steps of one release, and the public facts that it follows from.

    ``od-release plan``, the ledger's reservation, the certificate and the check "spend = plan" all read this.

    Attributes:
        tree, unit, budget, mechanism, bands, acceptance: see :func:`plan_release`.
        steps: the measured levels, top first.

    Raises:
        OdError: the steps are not those of the unit, its neighbours, the budget and the mechanism.
    """

    tree: FlowTree
    unit: PrivacyUnit
    budget: Budget
    mechanism: Mechanism
    steps: tuple[Step, ...]
    bands: Bands | None = None
    acceptance: Acceptance = DEFAULT_ACCEPTANCE

    def __post_init__(self) -> None:
        if self.bands is not None:
            self.bands.check_depth(self.tree.depth)
            if self.mechanism.measures != "every_level":
                raise _defect("a mechanism that does not measure every level has no bands")
        levels = [step.level for step in self.steps]
        if levels != [level for level in self._shared_levels if level in levels]:
            raise _defect("the steps are not measured levels, top first")
        if any(self.tree.largest_fan_out(level) != 1 for level in self.unmeasured_levels):
            raise _defect("a level whose nodes have several children, or the leaves, are not measured")
        if self.has_threshold:
            if self.steps != (_threshold_step(self.unit, self.budget, self.tree.depth),):
                raise _defect("the step is not that of the unit and the budget")
            return
        if any(step.sensitivity_squared != self.neighbours.sensitivity_squared(step.level) for step in self.steps):
            raise _defect("the sensitivities of the steps are not those of the unit and its neighbours")
        shares = tuple(step.rho / self.spent.rho for step in self.steps)
        if self.spent.rho != self.budget.total_rho(self.mechanism.default_conversion, shares, self._cells):
            raise _defect("the steps do not sum to the budget")

    @property
    def neighbours(self) -> Neighbours:
        """The relation between inputs that the release does not tell apart."""
        return Neighbours(self.unit, self.acceptance, _has_unknown_areas(self.tree))

    @property
    def publishes_total(self) -> bool:
        """Whether n is an invariant, published exactly: the root of the top-down pass."""
        return self.neighbours.publishes_total and self.mechanism.measures == "every_level"

    @property
    def has_threshold(self) -> bool:
        """Whether pairs without trips are left out, and rare ones by a threshold: the promise then has no rho."""
        return self.mechanism.measures == "present_leaves"

    @property
    def charge(self) -> Charge:
        """What the ledger sets aside for the whole release, each step drawn once."""
        return self.steps[0].charge if self.has_threshold else Charge(rho=self.spent.rho)

    @property
    def keeps_all(self) -> bool:
        """Whether every public node is measured, whatever the levels above say; else children of positive nodes."""
        return self.tree.cells(self.tree.depth) <= self.mechanism.keep_all_cap

    @cached_property
    def expected_errors(self) -> list[float]:
        """Root-mean-square error to expect at levels 0 to T, where no node is cut at zero; in trips.

        See :func:`od_core.flows.expected_error.expected_errors` for what it leaves out. Not a number where a
        threshold decides: what falls below it depends on the trips.
        """
        if self.has_threshold:
            return [math.nan] * (self.tree.depth + 1)
        variances = {step.level: step.variance for step in self.steps}
        if self.mechanism.measures == "all_leaves":
            return summed_errors(self.tree, variances[self.tree.depth])
        return expected_errors(self.tree, variances, refined=self.mechanism.refines)

    @property
    def spent(self) -> Spent:
        """What the plan costs when every level is drawn once."""
        return self.spent_on(tuple(step.rho for step in self.steps))

    @property
    def conversion(self) -> str:
        """How rho is found from epsilon: as asked for, but ``tight`` where ``exact`` is not defined."""
        return self.budget.conversion_for(self.mechanism.default_conversion, self._cells)

    def spent_on(self, levels: tuple[Fraction, ...]) -> Spent:
        """What was spent where the measured levels were charged so much in all, lost draws included."""
        if self.has_threshold:
            draws, once = sum(levels) / self.steps[0].rho, self.charge
            return SpentDirectly(levels, draws * once.delta, promise=draws * once.epsilon)
        drawn_once = levels == tuple(step.rho for step in self.steps)
        return Spent(levels, self.budget.delta, self._cells if drawn_once else None)

    @property
    def unmeasured_levels(self) -> list[int]:
        """Levels without a share: each of their nodes has one child, so that the level below measures the same."""
        measured = {step.level for step in self.steps}
        return [level for level in self._shared_levels if level not in measured]

    @property
    def step_bands(self) -> list[tuple[Step, ...]]:
        """The steps of each band, top first; one band where the tree is not cut."""
        if self.bands is None:
            return [self.steps]
        return [self.steps[band] for band in self.bands.split([step.level for step in self.steps])]

    @property
    def _shared_levels(self) -> list[int]:
        return measured_levels(self.neighbours, self.mechanism, self.tree.depth)

    @property
    def _cells(self) -> tuple[int, ...] | None:
        return _shifted_cells(self.neighbours, [step.level for step in self.steps])

    def level_above(self, step: Step) -> int | None:
        """Level of the nodes below which a step measures: the one measured before it, or the root.

        None where there is none: at the root, and where leaves are measured by themselves.
        """
        before = self.steps.index(step) - 1
        if before >= 0:
            return self.steps[before].level
        return 0 if self.publishes_total else None

    def step(self, level: int) -> Step:
        """The step that measures a level. Raises OdError where there is none."""
        for step in self.steps:
            if step.level == level:
                return step
        raise OdError(
            "OD-LEVEL-UNMEASURED", f"level {level} is not measured", next_step="see plan.steps for the measured levels"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a step: level, its origin and destination level, public cells, noise, charge, error to expect."""
        names = self.tree.level_names
        return pd.DataFrame(
            [
                {
                    "level": step.level,
                    "origin_level": names[step.level][0],
                    "destination_level": names[step.level][1],
                    "public_cells": self.tree.cells(step.level),
                    "sensitivity_squared": step.sensitivity_squared,
                    "variance": float_above(step.variance),
                    "standard_deviation": float_above(step.variance) ** 0.5,
                    "rho": float_above(step.rho),
                    "expected_error": self.expected_errors[step.level],
                }
                for step in self.steps
            ]
        )

    def facts(self) -> dict[str, Any]:
        """The whole plan as JSON-ready public facts; fractions as exact text."""
        return {
            "unit": self.unit.kind,
            "neighbours": self.unit.neighbours,
            "acceptance": self.acceptance.facts(),
            "contribution_bound": self.unit.contribution_bound,
            **({} if self.unit.max_weight is None else {"max_weight": self.unit.max_weight}),
            "user_column": self.unit.column,
            "mechanism": self.mechanism.name,
            "mechanism_options": self.mechanism.options,
            "tree": self.tree.order,
            "epsilon": None if self.budget.epsilon is None else str(self.budget.epsilon),
            "rho": str(self.spent.rho),
            "delta": str(self.budget.delta),
            "conversion": self.conversion,
            "shares": self.budget.shares_text(self.mechanism.default_shares),
            "origin_geography": self.tree.origin.digest,
            "destination_geography": self.tree.destination.digest,
            "origin_unknown_zone": self.tree.origin.unknown,
            "destination_unknown_zone": self.tree.destination.unknown,
            **({} if self.bands is None else {"bands": self.bands.facts()}),
            "steps": [{"level": step.level, **step.law, **step.cost} for step in self.steps],
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the facts: two plans with the same digest make the same release from the same draws."""
        return hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()


def plan_release(
    geography: Geography,
    *,
    unit: PrivacyUnit,
    budget: Budget,
    mechanism: str | Mechanism = "inftda_refined",
    tree: TreeOrder = "destination",
    destination_geography: Geography | None = None,
    bands: Bands | None = None,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
) -> ReleasePlan:
    """The plan of a release, from public facts alone.

    Args:
        geography: of the origins, and of the destinations where ``destination_geography`` is not given.
        unit: what is protected; its sensitivities scale the noise.
        budget: what may be spent, and its shares over the levels.
        mechanism: name or object; its defaults fill what the budget leaves open.
        tree: which side is refined first.
        bands: where the tree is cut, for releases that are worked on part by part.
        acceptance: which records are counted, and which inputs are refused. Where a record may leave the release by
            these rules, the total number of trips is measured with noise; see :mod:`od_core.privacy.neighbours`.

    Raises:
        OdError: geographies of unequal depth, unknown names, delta of 0, shares of the wrong number; more pairs of
            zones than the mechanism is meant for; weights, for a mechanism with a threshold.
    """
    flow_tree = FlowTree(geography, destination_geography or geography, tree)
    chosen = mechanism_named(mechanism)
    _refuse_too_large(chosen, flow_tree)
    if chosen.measures == "present_leaves":
        unit.refuse_weights("stability histograms")
        step = _threshold_step(unit, budget, flow_tree.depth)
        return ReleasePlan(flow_tree, unit, budget, chosen, (step,), bands, acceptance)
    neighbours = Neighbours(unit, acceptance, _has_unknown_areas(flow_tree))
    levels = measured_levels(neighbours, chosen, flow_tree.depth)
    shares = budget.level_shares([flow_tree.largest_fan_out(level) for level in levels], chosen.default_shares)
    measured = {level: share for level, share in zip(levels, shares, strict=True) if share > 0}
    cells = _shifted_cells(neighbours, list(measured))
    rho = budget.total_rho(chosen.default_conversion, tuple(measured.values()), cells)
    steps = []
    for level, share in measured.items():
        sensitivity = neighbours.sensitivity_squared(level)
        steps.append(Step(level, sensitivity, Fraction(sensitivity) / (2 * rho * share), rho * share))
    return ReleasePlan(flow_tree, unit, budget, chosen, tuple(steps), bands, acceptance)


def measured_levels(neighbours: Neighbours, mechanism: Mechanism, depth: int) -> list[int]:
    """Levels of a flow tree that a budget is shared over, top first.

    All, but the root where n is public; the leaves alone where nothing else is measured.
    """
    if mechanism.measures != "every_level":
        return [depth]
    return list(range(1 if neighbours.publishes_total else 0, depth + 1))


def _has_unknown_areas(tree: FlowTree) -> bool:
    """Whether records from and to places that are not listed have an area."""
    return tree.origin.unknown is not None and tree.destination.unknown is not None


def _shifted_cells(neighbours: Neighbours, levels: list[int]) -> tuple[int, ...] | None:
    """Cells of every measured level that may change, each by one; None where they change by more."""
    cells = [neighbours.shifted_cells(level) for level in levels]
    return None if None in cells else tuple(number for number in cells if number is not None)


def _threshold_step(unit: PrivacyUnit, budget: Budget, depth: int) -> ThresholdStep:
    """The one step of a mechanism that is charged as (epsilon, delta)."""
    if budget.epsilon is None:
        raise OdError(
            "OD-BUDGET-KIND",
            "a mechanism with a threshold promises (epsilon, delta), and has no rho",
            next_step="give the budget as epsilon and delta",
        )
    charge = Charge(epsilon=budget.epsilon, delta=budget.delta)
    scale = laplace_scale(unit, budget.epsilon)
    return ThresholdStep(
        depth,
        unit.sensitivity_squared,
        _laplace_variance(scale),
        charge.as_rho,
        sensitivity=sensitivity_of_leaves(unit),
        epsilon=charge.epsilon,
        delta=charge.delta,
        scale=scale,
        threshold=max(1, stability_threshold(unit, budget.epsilon, budget.delta)),  # below 1 for a delta near 1 alone
    )


def _laplace_variance(scale: Fraction) -> Fraction:
    """Variance of the discrete Laplace law, 1 / (2 sinh(1 / (2 scale))^2), as near as floats are."""
    half = 1 / (2 * float(scale))
    return Fraction(1 / (2 * math.sinh(half) ** 2)) if half < _NO_NOISE else Fraction(1, 1 << 1000)


def _refuse_too_large(mechanism: Mechanism, tree: FlowTree) -> None:
    pairs = tree.cells(tree.depth)
    if mechanism.most_pairs is not None and pairs > mechanism.most_pairs:
        raise OdError(
            "OD-MECHANISM-TOO-LARGE",
            f"mechanism {mechanism.name!r} is for at most {mechanism.most_pairs:,} pairs of zones, and there are"
            f" {pairs:,}",
            next_step="choose coarser zones, or a mechanism that leaves out the branches without trips",
        )


def _defect(message: str) -> OdError:
    return OdError("OD-PLAN-INVALID", message, next_step="make plans with plan_release; if you did, report this defect")
