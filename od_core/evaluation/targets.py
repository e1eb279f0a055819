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
from operator import itemgetter
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
        decimal_places = 2 - math.floor(math.log10(scaled))  # for three significant digits
        units = math.ceil(scaled * 10**decimal_places - 1e-9)  # a rounding error alone does not add a unit
        return replace(self, within=units / Fraction(10) ** decimal_places)


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
        """Select the flows of a table that have at least the size of a target.

        ``leaves`` and ``segments`` are the table's, as for :func:`sum_positive_trips`.
        """
        keys, trips = sum_positive_trips(target.quantity, tree, leaves, segments)
        chosen = trips >= target.least
        if not chosen.any():
            raise OdError(
                "OD-TARGET-EMPTY",
                f"no flow of the table has {target.least:,} trips at {target.quantity.name}; the largest has"
                f" {int(trips.max(initial=0)):,}",
                next_step="choose a smaller size, or a table of the size of the release",
            )
        breakdown = target.quantity.breakdown
        categories = 1 if breakdown is None else len(breakdown.categories)
        positions = keys[chosen] // categories  # of pairs of areas, or of areas
        cells: Cells = positions, positions
        if target.quantity.part == "all":
            cells = np.divmod(positions, tree.destination.size(target.quantity.destination_level))
        return cls(target, keys[chosen], trips[chosen], cells)

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
        """Return the smallest factor of the limits for which a release meets the target.

        The release meets the target if the factor is at most 1. ``leaves`` and ``segments`` are the release's, as for
        :func:`sum_positive_trips`. If there is a ``generator``, its uniform numbers between -1/2 and 1/2 are added to
        the whole errors, in place of what rounding removed. This makes the factor continuous, and does not change which
        releases have a factor of at most 1, because the limits are whole numbers and a half.
        """
        keys, trips = sum_positive_trips(self.target.quantity, tree, leaves, segments)
        released = pd.Series(trips, keys).reindex(self.keys, fill_value=0).to_numpy()
        errors = (released - self.sizes).astype(np.float64)
        if generator is not None:
            errors += generator.uniform(-0.5, 0.5, len(errors))
        ratios = np.abs(errors) / self.limits
        last_needed = self.needed - 1
        return float(np.partition(ratios, last_needed)[last_needed])


def sum_positive_trips(
    quantity: Quantity, tree: FlowTree, leaves: Nodes, segments: Integers | None
) -> tuple[Integers, Integers]:
    """Return the keys and the trips of all flows of a quantity that are above 0 in a table or release; shape (flows,).

    The keys ascend. The position of a flow is that of its pair of areas among all pairs, or the number of its area if
    the quantity is of areas. The key is position * K + k for category k of K; without a breakdown, it is the position.

    ``leaves`` are those of the table or release, in tree order. ``segments`` are their trips by the categories of the
    quantity's breakdown, shape (leaves, categories), and are not read if it has none.
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
    """Return the trips of one part of each area's flows; shape (areas, categories).

    A trip from an area to itself is part ``within`` of this area. Any other trip is part ``outflow`` of its origin and
    part ``inflow`` of its destination. ``trips`` are those of pairs of areas of one level; shape (pairs, categories).
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
"""Number of times that the shares are found, each with the relative variances at the shares of the round before."""


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
    """The best shares for some targets.

    Attributes:
        optimum: the shares, with the budget that they need.
        needed: budget that each target needs with these shares; shape (targets,).
        chance: probability with which each target is met with its budget.
    """

    optimum: OptimalShares
    needed: Reals
    chance: float

    @property
    def amount(self) -> float:
        """Budget that all these targets need: rho or, with Laplace noise, epsilon."""
        return self.optimum.largest

    @property
    def binds(self) -> NDArray[np.bool_]:
        """Whether each target binds; shape (targets,)."""
        return self.needed >= BINDING * self.amount


@dataclass(frozen=True, eq=False)
class _Problem:
    """The targets for which the best shares are to be found.

    Attributes:
        model: variances of the released numbers.
        classes: the flows to which each target applies.
        corrections: factor of the budget that each target needs by the model, found by simulation; shape (targets,).
    """

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
        """Return the best shares for some of the targets, given by their numbers; at least one.

        The probability of failure, 1 - CHANCE, is divided equally among the targets that bind. How many bind depends on
        the solution, so their number is increased until the solution has at most that many.
        """
        for binding in range(1, len(chosen) + 1):
            solution = self._solve_with_chance(chosen, 1 - (1 - CHANCE) / binding)
            if solution.binds.sum() <= binding:
                break
        return solution

    def _solve_with_chance(self, chosen: Sequence[int], chance: float) -> _Solution:
        """Return the best shares with which each of the chosen targets is met with the probability ``chance``.

        ``chosen`` has the numbers of the targets. Raises OdError if no optimum is found.
        """
        shares, *further_starts = self.model.starts
        for _ in range(_ROUNDS):
            weights = {}  # of the variances, whose weighted sum is the rho, or squared epsilon, of a target
            for target in chosen:
                variances = self.variances[target](shares)
                weights_of_model = compute_variance_weights(self.classes[target], variances, chance)
                weights[target] = self.corrections[target] ** self.model.power * weights_of_model

            def compute_needed(shares: Reals, weights: Mapping[int, Reals] = weights) -> Reals:
                needed = [self.variances[target](shares) @ of_target for target, of_target in weights.items()]
                return np.array(needed) ** (1 / self.model.power)

            optimum = find_optimal_shares(compute_needed, [shares, *further_starts], power=1)
            shares = np.array(optimum.shares, dtype=np.float64)
        return _Solution(optimum, compute_needed(shares), chance)

    def solve_all(self) -> _Solution:
        """Return the best shares for all targets."""
        return self.solve(range(len(self.classes)))

    def with_corrections(self, found: _Solution, ratios: Reals) -> _Problem:
        """Return the problem with corrections such that simulated releases meet each target as often as required.

        ``ratios`` are those of :func:`compute_target_ratios` for releases with ``found``, the solution for all targets;
        shape (runs, targets). An error is proportional to rho^(-1/2), or to 1 / epsilon with Laplace noise, and so the
        budget to ratio^2, or to the ratio.
        """
        needed_by_simulation = found.amount * np.quantile(ratios, found.chance, axis=0) ** (2 / self.model.power)
        return replace(self, corrections=self.corrections * needed_by_simulation / found.needed)


_SEGMENT_SHARE_STEPS = 20
"""The share of the breakdowns is a multiple of 1 / 20."""

_CORRECTIONS = 2
"""Number of times that the targets are corrected by simulation, before the last simulation corrects the budget."""

_MAX_RATIO_TO_TAKE_BACK = 0.95
"""Largest ratio of an earlier simulated budget to that of the last correction for which the correction is undone."""


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
    step = 2  # a factor of e^2 of rho, and so of e of each s
    while compute_excess(low) > 0:
        low -= step
    while compute_excess(high) < 0:
        high += step
    rho = math.exp(float(scipy.optimize.brentq(compute_excess, low, high, xtol=1e-9)))
    scaled = limits_at_rho_1 * math.sqrt(rho)
    pivotal = _compute_pivotal_weights(scipy.special.erf(scaled), flows.needed)
    effects = scaled * np.exp(-(scaled**2)) / variances * pivotal  # of each v on P, without constant factors
    return effects * rho / (effects @ variances)


def _compute_pivotal_weights(probabilities: Reals, least: int) -> Reals:
    """Return, for each of some independent events, a weight: the chance that it decides whether ``least`` happen.

    An event decides if exactly ``least - 1`` of the other events happen. ``probabilities`` and the result have the
    shape (events,). The result is exact for up to ``_MAX_EXACT_WEIGHTS`` events. For more, it is from the
    normal distribution, without its constant factor, and with the variance of all events instead of the others.
    """
    if len(probabilities) <= _MAX_EXACT_WEIGHTS:
        other_events = [np.delete(probabilities, event) for event in range(len(probabilities))]
        return np.array([_compute_event_distribution(others)[least - 1] for others in other_events])
    spread = np.sqrt((probabilities * (1 - probabilities)).sum())
    mean_of_others = probabilities.sum() - probabilities
    distance = (least - 1 - mean_of_others) / spread
    density: Reals = np.exp(-(distance**2) / 2)
    return density


def compute_tail_probability(probabilities: Reals, least: int) -> float:
    """Return the probability that at least ``least`` of some independent events happen.

    Above ``_MAX_EXACT_EVENTS`` events, the normal distribution of the same mean and variance is used.
    """
    if len(probabilities) > _MAX_EXACT_EVENTS:
        spread = math.sqrt(float((probabilities * (1 - probabilities)).sum()))
        halfway_below_least = least - 0.5  # numbers of events are whole
        least_spread = 1e-12  # where all events are certain
        return NormalDist().cdf((float(probabilities.sum()) - halfway_below_least) / max(spread, least_spread))
    return float(_compute_event_distribution(probabilities)[least:].sum())


def _compute_event_distribution(probabilities: Reals) -> Reals:
    """Return the probabilities that 0, 1, ... of some independent events happen; shape (events + 1,).

    ``probabilities`` are those of the events; shape (events,). The result is their Poisson binomial distribution.
    """
    distribution = np.zeros(len(probabilities) + 1)
    distribution[0] = 1.0
    for probability in probabilities.tolist():  # each event shifts by one the number that happen, or leaves it
        distribution[1:] = distribution[1:] * (1 - probability) + distribution[:-1] * probability
        distribution[0] *= 1 - probability
    return distribution


_MAX_EXACT_EVENTS = 1000
"""Largest number of events whose exact distribution is computed."""

_MAX_EXACT_WEIGHTS = 60
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

    def simulate_ratios(solution: _Solution, number: int) -> Reals:
        """Return the ratios of the targets in releases with a solution; shape (runs, targets)."""
        shares = model.fill_level_shares(solution.optimum.shares)
        plan_of_solution = with_amount(plan, solution.amount / share_of_levels, shares, segments)
        releases = simulate_releases(plan_of_solution, trips, runs, number)
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
    """Return a problem with corrections, its solution, and the factor by which simulations correct its budget.

    A correction can make things worse: if flows that are cut at zero cause the errors of a target, another share for
    its level does not help. So the solution is that of the last correction, unless an earlier one needs clearly less.

    Args:
        found: solution of ``problem``.
        simulate_ratios: function of a solution and a number, from which the noise follows; it returns the ratios of the
            targets in simulated releases, shape (runs, targets).
    """

    def simulate(number: int) -> tuple[Reals, float]:
        """Return the ratios in releases with ``found``, and the factor with which all targets are met often enough."""
        ratios = simulate_ratios(found, number)
        return ratios, float(np.quantile(ratios.max(axis=1), CHANCE)) ** (2 / problem.model.power)

    earlier = []  # simulated budget, problem and solution before each correction
    for number in range(_CORRECTIONS):  # each with noise of its own, so that none fits the noise of the one before
        ratios, factor = simulate(number)
        earlier.append((found.amount * factor, problem, found))
        problem = problem.with_corrections(found, ratios)
        found = problem.solve_all()
    _, factor = simulate(_CORRECTIONS)
    least_amount, problem_of_least, found_of_least = min(earlier, key=itemgetter(0))
    if least_amount < _MAX_RATIO_TO_TAKE_BACK * found.amount * factor:
        problem, found = problem_of_least, found_of_least
        _, factor = simulate(_CORRECTIONS + 1)
    return problem, found, factor


def with_amount(
    plan: ReleasePlan, amount: float, shares: tuple[Fraction, ...], segments: Segments | None = None
) -> ReleasePlan:
    """Return a plan with the budget ``amount`` (rho or, with Laplace noise, epsilon); see :func:`with_budget`."""
    if plan.mechanism.has_laplace_noise:
        return with_budget(plan, Budget(amount, shares=shares), segments)
    return with_budget(plan, Budget(rho=amount, delta=plan.budget.delta, shares=shares), segments)


def _refuse_useless_targets(plan: ReleasePlan, targets: Sequence[Target]) -> None:
    """Raise OdError if there is no target, a target is stated twice, or its numbers are published exactly anyway."""
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
    """Return the breakdowns with the share of the budget for which the targets need least.

    The share is a multiple of 1 / ``_SEGMENT_SHARE_STEPS`` between 0 and 1. It is found by bisection, as if the
    needed budget fell up to the best share, and then rose.
    """

    @cache
    def compute_amount(parts: int) -> float:
        segments_with_share = replace(segments, share=Fraction(parts, _SEGMENT_SHARE_STEPS))
        return _Problem.from_plan(plan, segments_with_share, classes).solve_all().amount

    def does_next_need_no_less(parts: int) -> bool:
        return compute_amount(parts) <= compute_amount(parts + 1)

    candidates = range(1, _SEGMENT_SHARE_STEPS)
    index = bisect_left(candidates[:-1], True, key=does_next_need_no_less)
    return replace(segments, share=Fraction(candidates[index], _SEGMENT_SHARE_STEPS))


def _compute_target_costs(problem: _Problem, found: _Solution, scale: float) -> tuple[TargetCost, ...]:
    """Return the cost of each target, given the solution ``found`` for all targets.

    ``scale`` turns the budget of a solution into that of a release, which also pays for other measurements.
    """
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
    """Return the flows of a table to which each target applies; ``trips`` are the table's in the plan's tree order."""
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
