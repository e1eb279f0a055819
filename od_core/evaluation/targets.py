"""State targets of accuracy, and find the least budget that meets them, from public facts and a public table alone.

A release meets a target if at least the stated share of the flows of its class are within the tolerance. The class has
the flows of at least the stated size in the table. The errors of these flows are taken as independent normal variables
with the variances of :class:`od_core.flows.optimal_shares.VarianceModel`, so the number of flows within the tolerance
follows a Poisson binomial distribution. For a target, this gives the largest common factor of the variances for which a
release meets the target with a required probability. The smallest rho for all targets is then a convex problem in the
shares of the levels (:mod:`od_core.flows.optimal_shares`). Simulations correct rho for what the model leaves out: cuts
at zero, rounding, and correlations between errors. With Laplace noise, the same is done for epsilon, and simulations
also correct it for errors that are not normal.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np
import pandas as pd
import scipy  # its solvers take a second to import, and load at their first use
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.evaluation.forecast import TOO_WIDE, arrange_counts_for_plan, simulate_releases, with_budget
from od_core.evaluation.known_flows import SEED, KnownFlows
from od_core.evaluation.metrics import make_leaf_nodes, tabulate_trips_by_category
from od_core.flows.arrays import Integers, Reals
from od_core.flows.optimal_shares import Cells, OptimalShares, Quantity, VarianceModel, find_optimal_shares
from od_core.flows.plan import ReleasePlan
from od_core.flows.release import Release
from od_core.flows.step import Segments
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.geography.geography import Numbers
from od_core.privacy.budget import Budget, Measure
from od_core.privacy.plan import compute_table_share
from od_core.records.counts import TripCounts
from od_core.records.segments import Breakdown

FORM = "state x state: flows >= 1000 within 5 % in 90 %"
"""An example of the text of a target."""

_TEXT = re.compile(
    r"(?P<quantity>[^:]+?)\s*:\s*(flows|trips)?\s*>=\s*(?P<least>[\d,]+)\s+within\s+(?P<within>[\d.]+)\s*"
    r"(?P<unit>%|trips?)\s+in\s+(?P<share>[\d.]+)\s*%"
)


@dataclass(frozen=True)
class Target:
    """A share of the flows of at least some size that must be within a tolerance of the truth.

    Attributes:
        quantity: published numbers to which the target applies.
        least: smallest size of the flows, in trips; at least 1.
        within: tolerance as a share of the size, or in trips; above 0.
        is_relative: whether the tolerance is a share of the size.
        share: share of the flows that must be within the tolerance; above 0 and below 1.

    Raises:
        OdError: a number is out of range.
    """

    quantity: Quantity
    least: int
    within: Fraction
    is_relative: bool
    share: Fraction

    def __post_init__(self) -> None:
        if self.least < 1:
            raise _make_target_error(
                "the flows of a target have at least 1 trip; no share of a flow of 0 is a tolerance"
            )
        if self.within <= 0 or (self.is_relative and self.within > 1):
            raise _make_target_error("the tolerance of a target is above 0, and at most 100 % of a flow")
        if not 0 < self.share < 1:
            raise _make_target_error(
                "the share of flows of a target is above 0 % and below 100 %: no noise meets a target always"
            )

    @classmethod
    def parse(cls, text: str, tree: FlowTree, breakdowns: Sequence[Breakdown] = ()) -> Target:
        """Return the target that a text states.

        ``text`` is as :data:`FORM`; the tolerance may also be in ``trips``. For the part before the colon and the other
        arguments, see :meth:`Quantity.parse`. Raises OdError if the text is not a target, a number is out of range, or
        the quantity is unknown.
        """
        match = _TEXT.fullmatch(text.strip())
        try:
            if match is None:
                raise ValueError
            least = int(match["least"].replace(",", ""))
            within, share = Fraction(match["within"]), Fraction(match["share"]) / 100
        except ValueError:
            raise _make_target_error(f"{text[:80]!r} is not a target") from None
        quantity = Quantity.parse(match["quantity"], tree, breakdowns)
        is_relative = match["unit"] == "%"
        return cls(quantity, least, within / 100 if is_relative else within, is_relative, share)

    @property
    def breakdown(self) -> str:
        """Name of the breakdown; empty if the target is about all trips."""
        return "" if self.quantity.breakdown is None else self.quantity.breakdown.name

    def __str__(self) -> str:
        tolerance = f"{_format_decimal(self.within)} trips"
        if self.is_relative:
            tolerance = f"{_format_decimal(100 * self.within)} %"
        share = f"{_format_decimal(100 * self.share)} %"
        return f"{self.quantity.name}: flows >= {self.least} within {tolerance} in {share}"

    def with_scaled_tolerance(self, factor: float) -> Target:
        """Return the target with a tolerance that is ``factor`` times as large, rounded up to three significant digits.

        Raises OdError if it would be above 100 % of a flow.
        """
        scaled = float(self.within) * factor
        digits = 2 - math.floor(math.log10(scaled))  # decimal places of three significant digits
        return replace(self, within=Fraction(math.ceil(scaled * 10**digits - 1e-9), 1) / Fraction(10) ** digits)


@dataclass(frozen=True, eq=False, repr=False)
class TargetClass:
    """The flows of a table to which a target applies.

    Attributes:
        keys: number of each flow among all flows of the quantity, ascending; shape (flows,).
        sizes: trips of each flow in the table; shape (flows,).
        cells: areas of each flow; see :meth:`VarianceModel.make_cell_variance_function`.

    Raises:
        OdError: no flow of the table has the size.
    """

    target: Target
    keys: Integers
    sizes: Integers
    cells: Cells

    @classmethod
    def select_flows(cls, target: Target, tree: FlowTree, leaves: Nodes, segments: Integers | None) -> TargetClass:
        """Select the flows of a table that have the size of a target. Arguments: :func:`sum_positive_trips`."""
        keys, trips = sum_positive_trips(target.quantity, tree, leaves, segments)
        chosen = trips >= target.least
        if not chosen.any():
            raise OdError(
                "OD-TARGET-EMPTY",
                f"no flow of the table has {target.least:,} trips at {target.quantity.name}; the largest has"
                f" {int(trips.max(initial=0)):,}",
                next_step="choose a smaller size, or a table of the size of the release",
            )
        keys, breakdown = keys[chosen], target.quantity.breakdown
        pairs = keys // (1 if breakdown is None else len(breakdown.categories))
        cells: Cells = pairs, pairs
        if target.quantity.part == "all":
            cells = np.divmod(pairs, tree.destination.size(target.quantity.destination_level))
        return cls(target, keys, trips[chosen], cells)

    @cached_property
    def limits(self) -> Reals:
        """Limit of the error of each flow before it is rounded, in trips; shape (flows,).

        Published flows are whole, so a tolerance of 2.7 trips allows errors of at most 2, and so at most 2.5 before
        rounding.
        """
        within = self.target.within
        bases = self.sizes.tolist() if self.target.is_relative else [1] * len(self.sizes)
        whole = [base * within.numerator // within.denominator for base in bases]
        return np.array(whole, dtype=np.float64) + 0.5

    @property
    def needed(self) -> int:
        """Number of flows that must be within the tolerance."""
        return math.ceil(self.target.share * len(self.sizes))

    def compute_ratio(
        self, tree: FlowTree, leaves: Nodes, segments: Integers | None, generator: np.random.Generator | None = None
    ) -> float:
        """Return the smallest factor of the limits for which a release meets the target. Up to 1, it does meet it.

        A ``generator`` adds uniform numbers between -1/2 and 1/2 to the whole errors, for what rounding removed. So the
        factor has no steps, and it is at most 1 for the same releases. For the others, see
        :func:`sum_positive_trips`.
        """
        keys, trips = sum_positive_trips(self.target.quantity, tree, leaves, segments)
        errors = (pd.Series(trips, keys).reindex(self.keys, fill_value=0).to_numpy() - self.sizes).astype(np.float64)
        if generator is not None:
            errors += generator.uniform(-0.5, 0.5, len(errors))
        ratios = np.abs(errors) / self.limits
        return float(np.partition(ratios, self.needed - 1)[self.needed - 1])


def sum_positive_trips(
    quantity: Quantity, tree: FlowTree, leaves: Nodes, segments: Integers | None
) -> tuple[Integers, Integers]:
    """Return the sums of trips of a quantity that are above 0 in a table or release, after their keys, which ascend.

    ``leaves`` are in tree order, and ``segments`` are their trips by category, if the quantity has a breakdown; shape
    (leaves, categories). The key of a pair of areas is its position among all pairs, and that of an area is its number.
    For categories, it is multiplied by their number, and the position of the category is added.
    """
    by_category = leaves.trips[:, np.newaxis] if segments is None or quantity.breakdown is None else segments
    origin_level, destination_level = quantity.origin_level, quantity.destination_level
    origin, destination, trips = tree.sum_values(leaves, by_category, origin_level, destination_level)
    if quantity.part == "all":
        positions = origin.astype(np.int64) * tree.destination.size(destination_level) + destination
    else:
        positions = np.arange(tree.origin.size(origin_level))
        trips = _sum_by_area(quantity.part, origin, destination, trips, len(positions))
    categories = by_category.shape[1]
    keys = (positions[:, np.newaxis] * categories + np.arange(categories)).ravel()
    is_positive = trips.ravel() > 0
    return keys[is_positive], trips.ravel()[is_positive]


def _sum_by_area(part: str, origin: Numbers, destination: Numbers, trips: Integers, areas: int) -> Integers:
    """Return the trips within each area, from it (``outflow``) or to it (``inflow``); shape (areas, categories).

    ``trips`` are those of pairs of areas of one level; shape (pairs, categories).
    """
    is_counted = (origin == destination) == (part == "within")
    area = destination if part == "inflow" else origin
    sums = np.zeros((areas, trips.shape[1]), dtype=np.int64)
    np.add.at(sums, area[is_counted].astype(np.int64), trips[is_counted])
    return sums


def _format_decimal(number: Fraction) -> str:
    """Return a number as decimal text with at most 12 significant digits."""
    return f"{float(number):.12g}"


def _make_target_error(message: str) -> OdError:
    """Return the OdError for a target that is not valid."""
    return OdError("OD-TARGET", message, next_step=f"write targets as in '{FORM}'")


CHANCE = 0.935
"""Probability with which a release meets all its targets."""

LEAST_RHO = 1e-12
"""Smallest rho, or squared epsilon. With less, the noise would be wider than any published flow."""

BINDING = 0.97
"""A target binds if it needs at least this share of the budget of the solution."""

_ROUNDS = 3
"""Number of times that the shares are found, each with the relative variances at the shares before."""


@dataclass(frozen=True)
class TargetCost:
    """The cost of one target: rho or, with Laplace noise, epsilon.

    Attributes:
        flows: number of flows of the table to which it applies.
        amount: budget of a release that meets this target with the shares of the solution.
        alone: budget that it would need if it were the only target.
        without: budget that the other targets would need together without it; 0 if there are no others.
        binds: whether it determines the budget of the solution.
    """

    target: Target
    flows: int
    amount: float
    alone: float
    without: float
    binds: bool


@dataclass(frozen=True)
class TargetBudget:
    """The smallest budget that meets some targets.

    Attributes:
        measure: what the budget is in: rho or, with Laplace noise, epsilon.
        amount: the budget of the release, with that of the number of uncounted trips.
        shares: share of each level that shares the budget, top first; exact, they sum to 1.
        gap: proven upper bound of the share of the budget that better shares could save; see
            :class:`od_core.flows.optimal_shares.OptimalShares`.
        costs: cost of each target; the largest amount of them is that of the release.
        chance: probability with which each of the targets is met, so that all of them are met with ``CHANCE``.
        segment_share: share of the budget that all breakdowns have together; None if there are none.
        factor: last correction of the budget by simulation; 1 without a simulation.
        runs: number of releases that were simulated at a time; 0 without a simulation.
    """

    measure: Measure
    amount: float
    shares: tuple[Fraction, ...]
    gap: float
    costs: tuple[TargetCost, ...]
    chance: float
    segment_share: Fraction | None = None
    factor: float = 1.0
    runs: int = 0


@dataclass(frozen=True, eq=False)
class _Solution:
    """The best shares for some targets, what each target needs with them, shape (targets,), and each one's chance."""

    optimum: OptimalShares
    needed: Reals
    chance: float

    @property
    def amount(self) -> float:
        return self.optimum.largest

    @property
    def binds(self) -> NDArray[np.bool_]:
        """Whether each target binds; shape (targets,)."""
        return self.needed >= BINDING * self.amount


@dataclass(frozen=True, eq=False)
class _Problem:
    """The flows to which targets apply, with factors of the budget that each needs by the model; shape (targets,)."""

    model: VarianceModel
    classes: tuple[TargetClass, ...]
    corrections: Reals

    @classmethod
    def from_plan(cls, plan: ReleasePlan, segments: Segments | None, classes: tuple[TargetClass, ...]) -> _Problem:
        """Return the problem of a plan with some breakdowns, without corrections."""
        model = VarianceModel(plan.tree, plan.neighbours, plan.mechanism, segments)
        return cls(model, classes, np.ones(len(classes)))

    @cached_property
    def variances(self) -> list[Callable[[Reals], Reals]]:
        """For each target, the function from the shares to the variances of its flows for a budget of 1."""
        return [self.model.make_cell_variance_function(flows.target.quantity, flows.cells) for flows in self.classes]

    def solve(self, chosen: Sequence[int]) -> _Solution:
        """Return the best shares for some of the targets.

        The probability of failure, 1 - CHANCE, is divided equally among the targets that bind.
        """
        for binding in range(1, len(chosen) + 1):
            chance = 1 - (1 - CHANCE) / binding
            shares, *others = self.model.starts
            for _ in range(_ROUNDS):
                weights = {}  # of the variances, whose weighted sum is the rho, or squared epsilon, of a target
                for j in chosen:
                    weights_of_model = compute_variance_weights(self.classes[j], self.variances[j](shares), chance)
                    weights[j] = self.corrections[j] ** self.model.power * weights_of_model

                def compute_needed(shares: Reals, weights: Mapping[int, Reals] = weights) -> Reals:
                    needed = np.array([self.variances[j](shares) @ own for j, own in weights.items()])
                    return needed ** (1 / self.model.power)

                optimum = find_optimal_shares(compute_needed, [shares, *others], 1)
                shares = np.array(optimum.shares, dtype=np.float64)
            found = _Solution(optimum, compute_needed(shares), chance)
            if found.binds.sum() <= binding:
                break
        return found

    def solve_all(self) -> _Solution:
        """Return the best shares for all targets."""
        return self.solve(range(len(self.classes)))

    def with_corrections(self, found: _Solution, ratios: Reals) -> _Problem:
        """Return the problem with corrections such that simulated releases meet each target as often as required.

        ``ratios`` are those of releases with a solution for all targets; shape (runs, targets).
        """
        real = found.amount * np.quantile(ratios, found.chance, axis=0) ** (2 / self.model.power)
        return replace(self, corrections=self.corrections * real / found.needed)


_SEGMENT_GRAIN = 20
"""The share of the breakdowns is a multiple of 1 / 20."""

_CORRECTIONS = 2
"""Number of times that the targets are corrected by simulation, before the last simulation corrects the budget."""

_CLEARLY_LESS = 0.95
"""Largest ratio of a simulated budget to that of the last correction for which the correction is taken back."""


def compute_variance_weights(flows: TargetClass, variances: Reals, chance: float) -> Reals:
    """Return the weights of the variances of a class whose weighted sum is the rho that its target needs.

    This is exact for the given variances, which are those for a rho of 1, and for their multiples. For other variances,
    it is the first-order approximation of the rho for which the release meets the target with the probability
    ``chance``. With Laplace noise, it is the squared epsilon in place of rho. Weights and variances have the shape
    (flows,).

    Let P(rho, v) be the probability that at least ``needed`` errors are within their limits l, each with the
    probability erf(s), where s = l sqrt(rho / (2 v)). The weights are d rho / d v where P = ``chance``: they are
    proportional to (s exp(-s^2) / v) dP / d erf(s). A common factor of all v multiplies rho, too, so their weighted sum
    is rho itself (Euler's theorem on homogeneous functions), which fixes their scale.
    """
    limits_at_rho_1 = flows.limits / np.sqrt(2 * variances)

    def compute_excess(log_rho: float) -> float:
        """Return by how much the probability that the release meets the target exceeds ``chance``."""
        within_limits = scipy.special.erf(limits_at_rho_1 * math.exp(log_rho / 2))
        return compute_tail_probability(within_limits, flows.needed) - chance

    low = high = -2 * math.log(float(np.median(limits_at_rho_1)))  # where the median limit is s = 1
    while compute_excess(low) > 0:
        low -= 2
    while compute_excess(high) < 0:
        high += 2
    rho = math.exp(float(scipy.optimize.brentq(compute_excess, low, high, xtol=1e-9)))
    scaled = limits_at_rho_1 * math.sqrt(rho)
    pivotal = _compute_pivotal_weights(scipy.special.erf(scaled), flows.needed)
    effects = scaled * np.exp(-(scaled**2)) / variances * pivotal  # of each v on P, without constant factors
    return effects * rho / (effects @ variances)


def _compute_pivotal_weights(probabilities: Reals, least: int) -> Reals:
    """Return, for each of some independent events, the relative probability that it decides whether ``least`` happen.

    It decides if ``least - 1`` of the others happen. Above ``_MOST_PIVOTAL`` events, the normal distribution is used.
    """
    if len(probabilities) <= _MOST_PIVOTAL:
        others = [np.delete(probabilities, k) for k in range(len(probabilities))]
        return np.array([_compute_event_distribution(chances)[least - 1] for chances in others])
    spread = np.sqrt((probabilities * (1 - probabilities)).sum())
    distance = (least - 1 - (probabilities.sum() - probabilities)) / spread
    density: Reals = np.exp(-(distance**2) / 2)
    return density


def compute_tail_probability(probabilities: Reals, least: int) -> float:
    """Return the probability that at least ``least`` of some independent events happen.

    Above ``_MOST_EVENTS`` events, the normal distribution of the same mean and variance is used.
    """
    if len(probabilities) > _MOST_EVENTS:
        spread = math.sqrt(float((probabilities * (1 - probabilities)).sum()))
        return NormalDist().cdf((float(probabilities.sum()) - (least - 0.5)) / max(spread, 1e-12))
    return float(_compute_event_distribution(probabilities)[least:].sum())


def _compute_event_distribution(probabilities: Reals) -> Reals:
    """Return the probabilities that 0, 1, ... of some independent events happen; shape (events + 1,)."""
    distribution = np.zeros(len(probabilities) + 1)
    distribution[0] = 1.0
    for probability in probabilities.tolist():
        distribution[1:] = distribution[1:] * (1 - probability) + distribution[:-1] * probability
        distribution[0] *= 1 - probability
    return distribution


_MOST_EVENTS = 1000
"""Largest number of events whose exact distribution is computed."""

_MOST_PIVOTAL = 60
"""Largest number of events for each of which the exact distribution of the others is computed."""


def find_target_budget(plan: ReleasePlan, targets: Sequence[Target], table: KnownFlows, runs: int = 0) -> TargetBudget:
    """Return the smallest budget with which releases meet targets with a probability of ``CHANCE``.

    The same input gives the same budget. ``table`` must be public or synthetic; see :class:`KnownFlows`.

    Args:
        plan: plan of the release with any budget.
        targets: at least one target.
        table: flows that stand for the true flows. Breakdowns divide their trips at random, with equal chances.
        runs: number of releases to simulate for the correction of the budget; 0 for none.

    Raises:
        OdError: there is no target, a target is stated twice, is for numbers that are published exactly, or needs next
            to no budget; no flow of the table has the size of a target; the mechanism measures one level; no optimum is
            found; or the noise is too wide to simulate.
    """
    _refuse_useless_targets(plan, targets)
    trips = arrange_counts_for_plan(table, plan)
    classes = select_target_classes(plan, targets, trips)
    segments = None if plan.segments is None else _find_best_segments(plan, plan.segments, classes)
    problem = _Problem.from_plan(plan, segments, classes)
    model = problem.model
    generator = np.random.Generator(np.random.PCG64(SEED))  # of what rounding removed, not of noise
    share_of_levels = float(compute_table_share(plan.uncounted) * (1 - (plan.area_totals or 0)))  # of the budget

    def simulate_ratios(found: _Solution, number: int) -> Reals:
        shares = model.fill_level_shares(found.optimum.shares)
        tried = with_amount(plan, found.amount / share_of_levels, shares, segments)
        releases = simulate_releases(tried, trips, runs, number)
        try:
            return np.array([compute_target_ratios(classes, release, generator) for release in releases])
        except OdError as error:
            if error.code != TOO_WIDE:
                raise
            message = "the tolerances allow noise that is too wide to simulate"
            raise OdError("OD-TARGET", message, next_step="state smaller tolerances, or request 0 runs") from None

    found, factor = problem.solve_all(), 1.0
    measure: Measure = "epsilon" if plan.mechanism.has_laplace_noise else "rho"
    least = LEAST_RHO ** (1 / model.power)
    if found.amount < least:
        message = f"the tolerances are so wide that the targets need less than {measure} {least:g}"
        raise OdError("OD-TARGET", message, next_step="state smaller tolerances")
    if runs:
        problem, found, factor = _correct_by_simulation(problem, found, simulate_ratios)
    return TargetBudget(
        measure=measure,
        amount=found.amount * factor / share_of_levels,
        shares=model.fill_level_shares(found.optimum.shares),
        gap=found.optimum.gap,
        costs=_compute_target_costs(problem, found, factor / share_of_levels),
        chance=found.chance,
        segment_share=None if segments is None else segments.share,
        factor=factor,
        runs=runs,
    )


def _correct_by_simulation(
    problem: _Problem, found: _Solution, simulate_ratios: Callable[[_Solution, int], Reals]
) -> tuple[_Problem, _Solution, float]:
    """Return a problem with corrections, its solution, and the factor of the budget that simulations of it show.

    A correction can make things worse: if flows that are cut at zero cause the errors of a target, another share for
    its level does not help. So the solution is that of the last correction, unless one before needs clearly less.
    ``simulate_ratios`` returns the ratios of releases with a solution, and with noise that follows from a number.
    """

    def simulate(number: int) -> tuple[Reals, float]:
        ratios = simulate_ratios(found, number)
        return ratios, float(np.quantile(ratios.max(axis=1), CHANCE)) ** (2 / problem.model.power)

    tried = []
    for number in range(_CORRECTIONS):  # each with noise of its own, so that none fits the noise of the one before
        ratios, factor = simulate(number)
        tried.append((found.amount * factor, problem, found))
        problem = problem.with_corrections(found, ratios)
        found = problem.solve_all()
    _, factor = simulate(_CORRECTIONS)
    least = min(tried, key=lambda each: each[0])
    if least[0] < _CLEARLY_LESS * found.amount * factor:
        _, problem, found = least
        _, factor = simulate(_CORRECTIONS + 1)
    return problem, found, factor


def with_amount(
    plan: ReleasePlan, amount: float, shares: tuple[Fraction, ...], segments: Segments | None = None
) -> ReleasePlan:
    """Return a plan with a rho or, with Laplace noise, an epsilon; see :func:`with_budget`."""
    if plan.mechanism.has_laplace_noise:
        return with_budget(plan, Budget(amount, shares=shares), segments)
    return with_budget(plan, Budget(rho=amount, delta=plan.budget.delta, shares=shares), segments)


def _refuse_useless_targets(plan: ReleasePlan, targets: Sequence[Target]) -> None:
    """Raise OdError if there is no target, if a target is stated twice, or if all of its numbers are exact."""
    if not targets:
        raise OdError("OD-TARGET", "there is no target", next_step="state at least one target")
    for number, target in enumerate(targets):
        if target in targets[:number]:
            raise OdError("OD-TARGET", f"the target '{target}' is stated twice", next_step="state it once")
        quantity, tree = target.quantity, plan.tree
        pairs = tree.origin.size(quantity.origin_level) * tree.destination.size(quantity.destination_level)
        if plan.publishes_total and pairs == 1 and quantity.breakdown is None:
            message = f"{quantity.name} is published exactly, with any budget"
            raise OdError("OD-TARGET", message, next_step="leave this target out")


def _find_best_segments(plan: ReleasePlan, segments: Segments, classes: tuple[TargetClass, ...]) -> Segments:
    """Return the breakdowns with the share, in twentieths, of the least budget, taken as having one minimum."""

    @cache
    def compute_amount(twentieths: int) -> float:
        tried = replace(segments, share=Fraction(twentieths, _SEGMENT_GRAIN))
        return _Problem.from_plan(plan, tried, classes).solve_all().amount

    def is_least_before_next(twentieths: int) -> bool:
        return compute_amount(twentieths) <= compute_amount(twentieths + 1)

    best = 1 + bisect_left(range(1, _SEGMENT_GRAIN - 1), True, key=is_least_before_next)
    return replace(segments, share=Fraction(best, _SEGMENT_GRAIN))


def _compute_target_costs(problem: _Problem, found: _Solution, scale: float) -> tuple[TargetCost, ...]:
    """Return the cost of each target, whose amounts are multiplied by ``scale`` as that of the release is."""
    costs = []
    for number, flows in enumerate(problem.classes):
        others = [other for other in range(len(problem.classes)) if other != number]
        alone = problem.solve([number]).amount if others else found.amount
        without = problem.solve(others).amount if others else 0.0
        costs.append(
            TargetCost(
                flows.target,
                flows=len(flows.sizes),
                amount=scale * float(found.needed[number]),
                alone=scale * alone,
                without=scale * without,
                binds=bool(found.binds[number]),
            )
        )
    return tuple(costs)


def select_target_classes(plan: ReleasePlan, targets: Sequence[Target], trips: TripCounts) -> tuple[TargetClass, ...]:
    """Return the flows of a table to which each target applies."""
    leaves = make_leaf_nodes(plan.tree, trips)
    by_category = {breakdown.name: tabulate_trips_by_category(trips, breakdown.name) for breakdown in plan.breakdowns}
    return tuple(
        TargetClass.select_flows(target, plan.tree, leaves, by_category.get(target.breakdown)) for target in targets
    )


def compute_target_ratios(
    classes: Sequence[TargetClass], release: Release, generator: np.random.Generator | None = None
) -> list[float]:
    """Return, for each target, the smallest factor of its limits with which a release meets it.

    See :meth:`TargetClass.compute_ratio`.
    """
    ratios = []
    for flows in classes:
        segments = release.segments.get(flows.target.breakdown)
        ratios.append(flows.compute_ratio(release.plan.tree, release.leaves, segments, generator))
    return ratios
