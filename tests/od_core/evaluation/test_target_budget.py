"""Budgets for targets against brute force over the shares, with dense linear algebra and exact distributions."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from od_core import Budget, InfTDARefined, OdError, PrivacyUnit, ReleasePlan, Segments, Uncounted, plan_release
from od_core.evaluation import targets as module
from od_core.evaluation.forecast import arrange_counts_for_plan, with_budget
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.targets import (
    BINDING,
    CHANCE,
    Target,
    TargetClass,
    compute_tail_probability,
    find_target_budget,
    select_target_classes,
)
from od_core.flows.optimal_shares import MIN_SHARE, VarianceModel
from od_core.flows.step import list_area_total_sides
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.oracles.variances import level_rows, wanted_rows
from tests.od_core.strategies import geography_of


@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
def test_a_search_that_stops_at_a_corner_goes_on(neighbours):
    geography = geography_of([("r", "a"), ("s", "b"), ("s", "c"), ("s", "d")])
    plan = plan_release(geography, unit=PrivacyUnit("trip", neighbours), budget=Budget(1, "1e-8"))
    origin, destination = (part.ravel().astype(np.int32) for part in np.indices((4, 4)))
    table = made_up(plan, origin, destination, 100 * np.arange(1, 17))
    leaves = " x ".join(plan.tree.level_names[-1])
    found = find_target_budget(plan, [Target.parse(f"{leaves}: flows >= 10 within 5 % in 90 %", plan.tree)], table, 0)
    assert found.gap < 1e-4


def made_up(plan: ReleasePlan, origin: np.ndarray, destination: np.ndarray, trips: np.ndarray) -> KnownFlows:
    counts = TripCounts.from_pairs(plan.tree, origin, destination, trips)
    return KnownFlows("made up", "synthetic", plan.tree, counts)


LAPLACE = {"mechanism": InfTDARefined(noise_distribution="laplace"), "budget": Budget(1), "tree": "both"}


def problem(seed: int, depth: int | None = None, **changes: Any) -> tuple[ReleasePlan, KnownFlows, list[Target]]:
    """A small geography, a table over it, and one to three targets. The options of the plan can be changed."""
    generator = np.random.default_rng(seed)
    depth = depth or int(generator.integers(1, 3))
    regions = [f"r{r}" for r in range(2)]
    if depth == 1:
        zones = [(f"{region}",) for region in [*regions, "s", "t"]]
    else:
        zones = [(region, f"{region}z{z}") for region in regions for z in range(generator.integers(1, 4))]
    geography = geography_of(zones)
    count = len(geography.zones)
    origin, destination = (part.ravel().astype(np.int32) for part in np.indices((count, count)))
    trips = generator.integers(1, 400, count * count)
    given = {"unit": PrivacyUnit("trip", neighbours="unbounded"), "budget": Budget(1, "1e-8")}
    given |= {"tree": ("destination", "origin")[seed % 2], "mechanism": "inftda_refined"}
    plan = plan_release(geography, **given | changes)
    table = made_up(plan, origin, destination, trips)
    levels = plan.tree.origin.level_names
    texts = [
        f"{generator.choice(levels)} x {generator.choice(levels[1:])}: flows >= {generator.integers(1, 100)} within"
        f" {generator.integers(2, 30)} % in {generator.integers(50, 99)} %"
        for _ in range(generator.integers(1, 4))
    ]
    return plan, table, [Target.parse(text, plan.tree) for text in texts]


def chosen(plan: ReleasePlan, table: KnownFlows, targets: list[Target]) -> list[TargetClass]:
    trips = arrange_counts_for_plan(table, plan)
    return list(select_target_classes(plan, targets, trips))


def at_least(probabilities: np.ndarray, least: int) -> float:
    """Probability of at least so many events, by the characteristic function of their number."""
    count = len(probabilities)
    roots = np.exp(2j * np.pi * np.arange(count + 1) / (count + 1))
    transformed = np.prod(1 - probabilities + probabilities * roots[:, np.newaxis], axis=1)
    return float(np.real(np.fft.fft(transformed))[least:].sum()) / (count + 1)


def needed_by_hand(variances: np.ndarray, one: TargetClass, chance: float) -> float:
    """Smallest rho at which the number of flows within the tolerance is large enough, often enough."""
    tolerances = np.array([math.floor(size * one.target.within) + 0.5 for size in one.sizes.tolist()])
    least = math.ceil(one.target.share * len(one.sizes))

    def excess(log_rho: float) -> float:
        within = special.erf(tolerances * math.exp(log_rho / 2) / np.sqrt(2 * variances))
        return at_least(within, least) - chance

    return math.exp(optimize.brentq(excess, -30, 30, xtol=1e-5))


def by_hand(plan: ReleasePlan, classes: list[TargetClass], chance: float, shares: tuple[Fraction, ...]):
    """The rho that some shares need, and the smallest over all shares, by a search without derivatives.

    With Laplace noise, it is epsilon, and several shares may be better than all similar ones.
    """
    is_laplace = plan.mechanism.has_laplace_noise
    levels = [level for level in range(plan.tree.depth + 1) if plan.tree.largest_fan_out(level) != 1]
    squares = [(rows := level_rows(plan.tree, level)).T @ rows for level in levels]
    wanted = []
    for one in classes:
        quantity = one.target.quantity
        width = plan.tree.destination.size(quantity.destination_level)
        wanted.append(wanted_rows(plan.tree, quantity)[one.cells[0].astype(int) * width + one.cells[1]])

    def with_shares(shares: np.ndarray) -> float:
        precisions = shares**2 / 2 if is_laplace else 2 * shares
        covariance = np.linalg.inv(sum(p * square for p, square in zip(precisions, squares, strict=True)))
        variances = [np.einsum("ij,jk,ik->i", rows, covariance, rows) for rows in wanted]
        largest = max(needed_by_hand(v, one, chance) for v, one in zip(variances, classes, strict=True))
        return largest**0.5 if is_laplace else largest

    def rho(logarithms: np.ndarray) -> float:
        weights = np.exp(logarithms - logarithms.max())
        return with_shares(MIN_SHARE + (1 - MIN_SHARE * len(levels)) * weights / weights.sum())

    own = np.log(np.array([float(shares[level]) for level in levels]))
    best = math.inf
    starts = [np.zeros(len(levels)), own + np.random.default_rng(0).normal(0, 0.3, len(levels))]
    starts += [3 * one for one in np.eye(len(levels))] if is_laplace else []
    for start in starts:
        options = {"xatol": 1e-3, "fatol": 1e-6, "maxfev": 500}
        found = optimize.minimize(rho, start, method="Nelder-Mead", options=options)
        best = min(best, found.fun)
    return with_shares(np.array([float(shares[level]) for level in levels])), best


@pytest.mark.exhaustive
@pytest.mark.representatives("1")
@pytest.mark.parametrize("seed", range(10))
def test_the_solved_rho_is_that_of_brute_force(seed):
    plan, table, targets = problem(seed)
    found = find_target_budget(plan, targets, table)
    classes = chosen(plan, table, targets)
    needed, smallest = by_hand(plan, classes, found.chance, found.shares)
    assert found.amount == pytest.approx(needed, rel=1e-3)
    assert found.amount <= 1.01 * smallest
    assert found.gap < 0.005
    assert sum(found.shares) == 1
    binding = sum(cost.binds for cost in found.costs)
    assert 1 - (1 - CHANCE) / binding <= found.chance + 1e-12
    assert [cost.binds for cost in found.costs] == [cost.amount >= BINDING * found.amount for cost in found.costs]
    assert all(cost.alone <= found.amount * (1 + 1e-4) for cost in found.costs)
    assert [cost.flows for cost in found.costs] == [len(one.sizes) for one in classes]


@pytest.mark.exhaustive
@pytest.mark.representatives("1", "2", "3")
@pytest.mark.parametrize("seed", range(6))
def test_the_solved_epsilon_of_laplace_noise_is_that_of_brute_force(seed):
    plan, table, targets = problem(seed, **LAPLACE)
    found = find_target_budget(plan, targets, table)
    needed, smallest = by_hand(plan, chosen(plan, table, targets), found.chance, found.shares)
    assert found.measure == "epsilon"
    assert found.amount == pytest.approx(needed, rel=1e-3)
    assert found.amount <= 1.01 * smallest
    assert found.gap < 0.005
    assert sum(found.shares) == 1
    assert [cost.binds for cost in found.costs] == [cost.amount >= BINDING * found.amount for cost in found.costs]
    with_totals = replace(plan, area_totals=Fraction(1, 5))
    if list_area_total_sides(plan.tree):
        assert find_target_budget(with_totals, targets, table).amount == pytest.approx(found.amount * 5 / 4)


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize(("ratios", "is_first"), [([1.2, 2, 3, 1.3], True), ([1.2, 1.0, 0.97], False)])
def test_a_correction_that_makes_things_worse_is_taken_back(laplace, ratios, is_first):
    """Simulations are made up. A ratio of errors is also that of epsilon, and its square that of rho."""
    plan, table, _ = problem(6, depth=2, **LAPLACE if laplace else {})
    zone = plan.tree.origin.levels[-1]
    targets = [Target.parse(f"{zone} x {zone}: flows >= 20 within 9 % in 80 %", plan.tree)]
    first = module._Problem.from_plan(plan, None, tuple(chosen(plan, table, targets)))
    asked = []

    def simulate(found, number):
        asked.append(number)
        return np.full((3, 1), ratios[number])

    given = first.solve_all()
    corrected, found, factor = module._correct_by_simulation(first, given, simulate)
    power = 1 if laplace else 2
    assert asked == [*range(len(ratios))]
    assert factor == pytest.approx(ratios[-1] ** power)
    assert (corrected is first, found is given) == (is_first, is_first)
    if not is_first:
        assert found.amount == pytest.approx(given.amount * 1.2**power, rel=0.05)


@given(probabilities=st.lists(st.floats(0, 1), min_size=1, max_size=9), least=st.integers(1, 9))
def test_the_number_of_events_has_the_distribution_of_all_outcomes(probabilities, least):
    outcomes = [one for one in product((0, 1), repeat=len(probabilities)) if sum(one) >= least]
    chances = [[p if happens else 1 - p for p, happens in zip(probabilities, one, strict=True)] for one in outcomes]
    expected = sum(map(math.prod, chances))
    assert compute_tail_probability(np.array(probabilities), least) == pytest.approx(expected, abs=1e-12)


def test_many_events_are_nearly_normal():
    probabilities = np.full(3000, 0.9)
    for least in (2650, 2700, 2740):
        expected = float(stats.binom.sf(least - 1, 3000, 0.9))
        assert compute_tail_probability(probabilities, least) == pytest.approx(expected, abs=5e-3)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_without_a_target_that_binds_the_others_cost_less():
    plan, table, _ = problem(2, depth=2)
    region, zone = plan.tree.origin.levels
    texts = [
        f"{region} x {region}: flows >= 1 within 2 % in 90 %",
        f"{zone} x {zone}: flows >= 1 within 50 % in 60 %",
        f"{region} x {zone}: flows >= 50 within 4 % in 90 %",
    ]
    targets = [Target.parse(text, plan.tree) for text in texts]
    found = find_target_budget(plan, targets, table)
    for number, cost in enumerate(found.costs):
        others = targets[:number] + targets[number + 1 :]
        assert cost.without == pytest.approx(find_target_budget(plan, others, table).amount, rel=1e-9)
        assert cost.alone == pytest.approx(find_target_budget(plan, [targets[number]], table).amount, rel=1e-9)
        assert (cost.without < found.amount * 0.999) == cost.binds


def test_levels_whose_nodes_have_one_child_get_no_share():
    zones = geography_of([("A", "a", "1"), ("A", "a", "2"), ("B", "b", "3"), ("B", "b", "4")])
    plan = plan_release(zones, unit=PrivacyUnit("trip"), budget=Budget(1, "1e-8"))
    table = made_up(plan, *(np.arange(4, dtype=np.int32),) * 2, np.full(4, 90))
    region = plan.tree.origin.levels[0]
    target = Target.parse(f"{region} x {region}: flows >= 9 within 9 % in 90 %", plan.tree)
    found = find_target_budget(plan, [target], table)
    assert [share == 0 for share in found.shares] == [plan.tree.largest_fan_out(k) == 1 for k in range(7)]
    assert with_budget(plan, Budget(rho=found.amount, delta="1e-8", shares=found.shares)).unmeasured_levels == [2, 3]


@pytest.mark.slow
def test_the_rho_of_targets_and_release_is_the_charge_of_a_release_with_its_uncounted_trips():
    """Half of the budget is for the number of uncounted trips, and simulations correct all numbers alike."""
    base, table, _ = problem(6, depth=2)
    unit = PrivacyUnit("user_year", "unbounded", "person", 2, max_trips_year=4, id_pattern="p[0-9]+")
    given = {"unit": unit, "budget": Budget(1, "1e-8")}
    plans = [plan_release(base.tree.origin, **given, uncounted=uncounted) for uncounted in (None, Uncounted("1/2", 10))]
    region, zone = base.tree.origin.levels
    texts = [
        f"{zone} x {zone}: flows >= 20 within 15 % in 80 %",
        f"{region} x {region}: flows >= 50 within 4 % in 90 %",
    ]
    targets = [Target.parse(text, base.tree) for text in texts]
    without, found = (find_target_budget(plan, targets, table) for plan in plans)
    assert found.amount == pytest.approx(2 * without.amount, rel=1e-9)
    for one, other in zip(without.costs, found.costs, strict=True):
        for name in ("amount", "alone", "without"):
            assert getattr(other, name) == pytest.approx(2 * getattr(one, name), rel=1e-9)
    simulated = find_target_budget(plans[1], targets, table, runs=20)
    for each in (found, simulated):
        chosen_plan = with_budget(plans[1], Budget(rho=each.amount, delta="1e-8", shares=each.shares))
        assert float(chosen_plan.charge.as_rho) == pytest.approx(each.amount, rel=1e-9)
        assert max(cost.amount for cost in each.costs) == pytest.approx(each.amount, rel=1e-6)
    assert simulated.factor != 1


@pytest.mark.representatives("* by mode*")
@pytest.mark.parametrize(("by", "best"), [("", "1/20"), (" by mode", "7/10")])
def test_the_share_of_the_breakdowns_is_the_best_of_all(by, best):
    """At an end of all shares, and between them."""
    base, table, _ = problem(6, depth=1)
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(1, "1e-8"), "segments": {"mode": ["car", "bus"]}}
    plan = plan_release(base.tree.origin, **given)
    [zone] = plan.tree.origin.levels
    texts = [f"all x {zone}{by}: flows >= 50 within 10 % in 90 %", f"{zone} x {zone}: flows >= 20 within 15 % in 80 %"]
    targets = [Target.parse(text, plan.tree, plan.breakdowns) for text in texts]
    classes = tuple(chosen(plan, table, targets))
    rho = {}
    for twentieths in range(1, 20):
        segments = Segments(plan.breakdowns, Fraction(twentieths, 20))
        model = VarianceModel(plan.tree, plan.neighbours, plan.mechanism, segments)
        rho[segments.share] = module._Problem(model, classes, np.ones(2)).solve(range(2)).amount
    found = find_target_budget(plan, targets, table)
    assert found.segment_share == min(rho, key=rho.get) == Fraction(best)
    assert found.amount == pytest.approx(min(rho.values()), rel=1e-9)


def test_a_target_that_is_stated_twice_is_refused():
    """It would divide the probability of failure twice, and cost more than once."""
    plan, table, targets = problem(1)
    with pytest.raises(OdError, match=r"OD-TARGET: .* is stated twice"):
        find_target_budget(plan, [*targets, targets[0]], table)


def test_what_is_published_exactly_needs_no_target():
    base, table, _ = problem(6, depth=1)
    budget = Budget(1, "1e-8")
    plan = plan_release(base.tree.origin, unit=PrivacyUnit("trip"), budget=budget, acceptance=NO_FAULTS)
    zone = plan.tree.origin.levels[-1]
    useful = Target.parse(f"{zone} x {zone}: flows >= 1 within 9 % in 90 %", plan.tree)
    exact = Target.parse("all x all: flows >= 1 within 1 % in 90 %", plan.tree)
    with pytest.raises(OdError, match="OD-TARGET: all x all is published exactly"):
        find_target_budget(plan, [useful, exact], table)
    assert find_target_budget(base, [Target.parse(str(exact), base.tree)], table).amount > 0  # unbounded: it has noise


@pytest.mark.parametrize("runs", [0, 2])
def test_a_tolerance_that_any_noise_meets_is_refused(runs):
    plan, table, _ = problem(6, depth=2)
    zone = plan.tree.origin.levels[-1]
    wide = Target.parse(f"{zone} x {zone}: flows >= 1 within 999999999999 trips in 90 %", plan.tree)
    with pytest.raises(OdError, match=r"OD-TARGET: .* less than"):
        find_target_budget(plan, [wide], table, runs)
