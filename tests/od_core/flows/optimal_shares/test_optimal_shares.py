"""Optimal shares against closed forms, another solver and neighbouring shares."""

from fractions import Fraction
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, Geography, InfTDARefined, OdError, PrivacyUnit, plan_release
from od_core.flows import optimal_shares as module
from od_core.flows.optimal_shares import (
    COARSE_SHARE_DENOMINATOR,
    MIN_SHARE,
    Quantity,
    VarianceModel,
    find_optimal_shares,
    minimise_expected_error,
)
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.shares import MinimiseRule
from tests.od_core.strategies import geography_of

ZONES = geography_of([(f"r{z // 6}", f"t{z // 2}", f"z{z}") for z in range(18)])


def equal(count: int) -> np.ndarray:
    return np.full(count, 1 / count)


@given(weights=st.lists(st.floats(1, 50), min_size=1, max_size=7))
def test_variances_of_single_levels_have_a_closed_form(weights):
    """The minimum of the sum of a / x is at x proportional to the root of a."""
    a = np.array(weights)
    found = find_optimal_shares(lambda x: np.array([(a / x).sum()]), [equal(len(a))], 1, COARSE_SHARE_DENOMINATOR)
    expected = np.sqrt(a) / np.sqrt(a).sum()
    assert sum(found.shares) == 1
    assert np.array(found.shares, dtype=float) == pytest.approx(expected, abs=1.5 / COARSE_SHARE_DENOMINATOR)
    assert np.sqrt(a).sum() ** 2 <= found.largest * (1 + 1e-9) <= np.sqrt(a).sum() ** 2 * (1 + 1e-5)
    assert found.largest * (1 - found.gap) <= np.sqrt(a).sum() ** 2 * (1 + 1e-6)


@given(
    levels=st.integers(2, 6),
    coefficients=st.lists(st.lists(st.integers(0, 20), min_size=6, max_size=6), min_size=1, max_size=4),
)
def test_another_solver_finds_no_smaller_largest_loss(levels, coefficients):
    a = np.array(coefficients)[:, :levels] + np.eye(len(coefficients), levels) + 0.1
    x = cp.Variable(levels)
    problem = cp.Problem(cp.Minimize(cp.max(a @ cp.inv_pos(x))), [cp.sum(x) == 1, x >= MIN_SHARE])
    problem.solve(solver=cp.CLARABEL)
    found = find_optimal_shares(lambda shares: a @ (1 / shares), [equal(levels)], 1)
    assert found.largest == pytest.approx(problem.value, rel=2e-4)
    assert found.largest * (1 - found.gap) <= problem.value * (1 + 1e-6)


def test_a_level_that_adds_nothing_has_the_smallest_share():
    found = find_optimal_shares(lambda x: np.array([1 / x[0] + 1e-9 / x[1]]), [equal(2)], 1, COARSE_SHARE_DENOMINATOR)
    assert found.shares == (1 - Fraction(str(MIN_SHARE)), Fraction(str(MIN_SHARE)))
    assert found.gap < 1e-4


def test_shares_far_from_the_optimum_are_refused(monkeypatch):
    monkeypatch.setattr(module, "_solve_real_shares", lambda losses, start: np.array([0.9, 0.1]))
    monkeypatch.setattr(module, "_improve_shares", lambda parts, grain, losses: parts)
    with pytest.raises(OdError, match="OD-SHARES-OPTIMUM"):
        find_optimal_shares(lambda x: np.array([(1 / x).sum()]), [equal(2)], 1)


def test_the_result_does_not_depend_on_the_last_digits_of_the_solver(monkeypatch):
    a = np.array([3.0, 1.0, 7.0, 2.0])
    exact = module._solve_real_shares

    def nearby(losses, start):
        found = exact(losses, start) * (1 + 2e-4 * np.array([1, -1, 0.5, -1]))
        return found / found.sum()

    expected = find_optimal_shares(lambda x: np.array([(a / x).sum()]), [equal(4)], 1, COARSE_SHARE_DENOMINATOR).shares
    monkeypatch.setattr(module, "_solve_real_shares", nearby)
    assert (
        find_optimal_shares(lambda x: np.array([(a / x).sum()]), [equal(4)], 1, COARSE_SHARE_DENOMINATOR).shares
        == expected
    )


def planned(mechanism="inftda_refined", **shares):
    budget = Budget(1, "1e-8", **shares)
    return plan_release(ZONES, unit=PrivacyUnit("trip"), budget=budget, mechanism=mechanism)


@pytest.mark.representatives("inftda_refined")
@pytest.mark.parametrize("mechanism", ["inftda_refined", "inftda"])
def test_no_other_rule_has_a_smaller_expected_error(mechanism):
    names = [" x ".join(pair) for pair in planned().tree.level_names[1:]]
    weights = dict(zip(names, ("1", "1/2", "2", "1", "3", "1/4"), strict=True))
    best = planned(mechanism, shares={"minimise": weights})
    rule = best.budget.shares
    model = VarianceModel(best.tree, best.neighbours, best.mechanism)

    def error(plan):
        errors = zip(names, plan.expected_errors[1:], strict=True)
        return sum(float(Fraction(weights[name])) * error for name, error in errors)

    assert sum(rule) == 1
    assert rule == minimise_expected_error(model, MinimiseRule.from_mapping({"minimise": weights})).shares
    for other in ("uniform", "geography", ("geometric", 2), ("geometric", "1/2")):
        assert error(best) < error(planned(mechanism, shares=other))
    generator = np.random.default_rng(5)
    for _ in range(20):
        moved = [int(part * COARSE_SHARE_DENOMINATOR) for part in rule]
        one, two = generator.choice(len(moved), 2, replace=False)
        moved[one] += 300
        moved[two] -= 300
        if moved[two] > 0:
            other = planned(mechanism, shares=[Fraction(part, COARSE_SHARE_DENOMINATOR) for part in moved])
            assert error(best) < error(other) + 1e-3  # the errors of plans include rounding to whole trips


def test_a_list_of_quantities_has_equal_weights():
    names = [" x ".join(pair) for pair in planned().tree.level_names[-2:]]
    listed = planned(shares={"minimise": names})
    assert listed.budget == planned(shares={"minimise": dict.fromkeys(names, 5)}).budget


def test_the_plan_states_exact_shares():
    name = " x ".join(planned().tree.level_names[-1])
    plan = planned(shares={"minimise": [name]})
    assert plan.facts()["shares"] == [str(share) for share in plan.budget.shares]
    assert tuple(step.rho / plan.spent.rho for step in plan.steps) == plan.budget.shares


LAPLACE = InfTDARefined(noise_distribution="laplace")


@given(weights=st.lists(st.floats(1, 50), min_size=1, max_size=7), power=st.sampled_from([1, 2]))
def test_variances_of_single_levels_with_laplace_noise_have_a_closed_form(weights, power):
    """By Hoelder's inequality, the minimum of the sum of a / x^2 is at x proportional to a^(1/3), also of its root."""
    a = np.array(weights)
    found = find_optimal_shares(
        lambda x: (a / x**2).sum(keepdims=True) ** (power / 2), [equal(len(a))], power, COARSE_SHARE_DENOMINATOR
    )
    cubes = np.cbrt(a)
    assert np.array(found.shares, dtype=float) == pytest.approx(cubes / cubes.sum(), abs=1.5 / COARSE_SHARE_DENOMINATOR)
    least = cubes.sum() ** (3 * power / 2)
    assert least <= found.largest * (1 + 1e-9) <= least * (1 + 1e-5)
    assert found.largest * (1 - found.gap) <= least * (1 + 1e-6)


def every_share(levels: int, grain: int) -> np.ndarray:
    """All shares that are multiples of 1 / grain and at least the smallest; shape (choices, levels)."""
    cuts = np.array([(0, *inner, grain) for inner in combinations(range(1, grain), levels - 1)])
    shares = np.diff(cuts, axis=1) / grain
    return shares[(shares >= MIN_SHARE).all(axis=1)]


def test_a_number_that_two_levels_measure_takes_one_of_them():
    """The root has the variance 1 / (x^2 / 2 + y^2 / (2 k)) from itself, and from k areas: best from itself alone.

    A search from the areas alone stops there.
    """
    zones = geography_of([(f"z{z}",) for z in range(5)])
    plan = plan_release(
        zones,
        unit=PrivacyUnit("trip", "unbounded"),
        budget=Budget(1, shares={"minimise": ["all x all"]}),
        mechanism=LAPLACE,
        destination_geography=Geography.whole(),
    )
    assert plan.budget.shares == (1 - Fraction(str(MIN_SHARE)), Fraction(str(MIN_SHARE)))
    model = VarianceModel(plan.tree, plan.neighbours, plan.mechanism)
    shares = every_share(2, 50)
    of_root = model.make_cell_variance_function(Quantity.parse("all x all", plan.tree))
    expected = 1 / (shares[:, 0] ** 2 / 2 + shares[:, 1] ** 2 / 10)
    assert [of_root(one)[0] for one in shares] == pytest.approx(expected)
    alone = find_optimal_shares(of_root, [np.array([0.04, 0.96])], 2, COARSE_SHARE_DENOMINATOR)
    assert alone.shares == plan.budget.shares[::-1]  # with these weights of the measurements, nothing is better


@pytest.mark.exhaustive
@pytest.mark.representatives("0-unbounded")
@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
@pytest.mark.parametrize("seed", range(2))
def test_no_shares_on_a_grid_have_less_error_with_laplace_noise(seed, neighbours):
    """Also where equal shares are the start of a search that ends elsewhere."""
    generator = np.random.default_rng(seed)
    towns = [(f"r{r}", f"r{r}t{t}") for r in range(3) for t in range(generator.integers(1, 4))]
    rows = [(*town, f"{town[1]}z{z}") for town in towns for z in range(generator.integers(1, 4))]
    zones = geography_of(rows if neighbours == "bounded" else [(town, zone) for _, town, zone in rows])
    given = {"unit": PrivacyUnit("trip", neighbours), "mechanism": LAPLACE, "tree": "both", "acceptance": NO_FAULTS}
    base = plan_release(zones, budget=Budget(1), **given)
    model = VarianceModel(base.tree, base.neighbours, base.mechanism)
    names = [f"{o} x {d}" for o in zones.level_names for d in zones.level_names][1:]
    shares = every_share(len(model.free_levels), 50)
    assert 2 <= shares.shape[1] <= 3
    of_names = {}
    for name in names:
        quantity = Quantity.parse(name, model.tree)
        of_names[name] = np.array([model.compute_mean_variance(quantity, one) for one in shares]) ** 0.5
    for chosen in [names, [names[0]], *(generator.choice(names, 2, replace=False).tolist() for _ in range(3))]:
        weights = dict(zip(chosen, map(int, generator.integers(1, 6, len(chosen))), strict=True))
        found = minimise_expected_error(model, MinimiseRule.from_mapping({"minimise": weights}))
        assert sum(found.shares) == 1
        assert found.largest <= (1 + 1e-6) * sum(weight * of_names[name] for name, weight in weights.items()).min()
        plan = plan_release(zones, budget=Budget(1, shares={"minimise": weights}), **given)
        assert plan.budget.shares == model.fill_level_shares(found.shares)
        assert sum(step.charge.epsilon for step in plan.steps) == 1


@pytest.mark.parametrize(
    "rule",
    [
        {"minimise": []},
        {"minimise": {}},
        {"minimise": "zone x zone"},
        {"minimise": {"all x all": 0}},
        {"minimise": {"all x all": "-1"}},
        {"minimise": {"all x all": "much"}},
        {"maximise": ["all x all"]},
        {"minimise": ["all x all"], "also": 1},
    ],
)
def test_a_rule_that_is_not_valid_is_refused(rule):
    with pytest.raises(OdError, match="OD-BUDGET"):
        Budget(1, "1e-8", shares=rule)
