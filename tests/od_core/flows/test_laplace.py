"""Laplace noise at few levels: charges that sum to epsilon, what a unit can change, and how numbers are rounded."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from od_core import (
    Budget,
    FlowTree,
    Geography,
    InfTDARefined,
    OdError,
    PrivacyUnit,
    ReleasePlan,
    plan_release,
    release_flows,
)
from od_core.flows.estimation import replicates
from od_core.flows.interval_ends import Selection, compute_deviations, compute_lower_bound
from od_core.flows.projection.onto_parents import project_children, project_children_euclidean
from od_core.flows.release import run_plan
from od_core.flows.step import list_area_total_sides
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.plan import check_charges
from od_core.privacy.stability import bound_laplace_variance
from od_core.records.counts import TripCounts
from tests.od_core.doubles import ListedLaplace
from tests.od_core.strategies import geography_of, worlds, zone_lists

LAPLACE = InfTDARefined(noise_distribution="laplace")
ZONES = [("a", "aa"), ("a", "ab"), ("b", "ba")]
UNITS = [
    PrivacyUnit("trip", "bounded"),
    PrivacyUnit("trip", "unbounded", max_weight=4),
    PrivacyUnit("user", "bounded", column="id", max_trips=3),
    PrivacyUnit("user", "unbounded", column="id", max_trips=2, max_trips_pair=1),
    PrivacyUnit("user_period", "unbounded", column="id", max_trips=2),
]


def planned(origins=ZONES, destinations=None, unit=UNITS[0], epsilon="1", **changes) -> ReleasePlan:
    given_ = {"unit": unit, "budget": Budget(epsilon), "mechanism": LAPLACE, "tree": "both", "acceptance": NO_FAULTS}
    sides = {} if destinations is None else {"destination_geography": destinations}
    return plan_release(geography_of(origins), **given_ | sides | changes)


@given(
    zones=zone_lists(),
    others=st.data(),
    unit=st.sampled_from(UNITS),
    epsilon=st.sampled_from(["1/7", "1", "10"]),
    share=st.sampled_from([None, "1/5"]),
)
def test_the_charges_are_shares_of_epsilon_and_sum_to_it_exactly(zones, others, unit, epsilon, share):
    """The weights are w^(2/3) in thousandths, where w is 1 - 1/k for k children, or 3/2 at the leaves.

    A root that is not exact has a tenth of the mean share of the other levels.
    """
    destinations = others.draw(zone_lists(depth=len(zones[0])))
    tree = FlowTree(geography_of(zones), geography_of(destinations), "both")
    share = share if list_area_total_sides(tree) else None  # otherwise, the tree measures them
    plan = planned(zones, geography_of(destinations), unit, epsilon, area_totals=share)
    check_charges(plan)
    assert sum(step.charge.epsilon for step in plan.charged_steps) == Fraction(epsilon) == plan.spent.epsilon
    assert plan.spent.delta == 0
    has_root = unit != UNITS[0] and plan.tree.largest_fan_out(0) > 1
    largest = [plan.tree.largest_fan_out(level) for level in range(1, plan.tree.depth)]
    weights = dict(enumerate([*(1 - Fraction(1, k) for k in largest), Fraction(3, 2)], start=1))
    rounded = {level: Fraction(int((float(w**2) * 1e9) ** (1 / 3) + 1e-9), 1000) for level, w in weights.items() if w}
    if has_root:
        rounded = {0: sum(rounded.values()) / len(rounded) / 10} | rounded
    of_levels = Fraction(epsilon) * (1 - Fraction(share or 0)) / sum(rounded.values())
    assert {step.level: step.charge.epsilon for step in plan.steps} == {k: w * of_levels for k, w in rounded.items()}
    of_sides = {step.charge.epsilon * len(plan.area_total_steps) for step in plan.area_total_steps}
    assert of_sides == ({Fraction(epsilon) * Fraction(share)} if share else set())
    most = unit.contribution_bound * (2 if unit.neighbours == "bounded" else 1)
    for step in plan.charged_steps:
        changed = most if step.level else unit.contribution_bound
        assert step.noise_facts["sensitivity"] == changed == step.charge.epsilon * Fraction(step.noise_facts["scale"])


@pytest.mark.parametrize("unit", UNITS[2:4])
@pytest.mark.parametrize("one_side", [False, True])
def test_the_largest_privacy_loss_of_a_unit_is_the_charge(unit, one_side):
    """Of all that one unit may count, added or replaced: the sum over measured cells of what changes, by scale."""
    changes = (
        {"tree": "destination", "destination_geography": Geography.whole()} if one_side else {"area_totals": "1/5"}
    )
    plan = planned(unit=unit, **changes)
    paths = {zone: ("all", area, zone) for area, zone in ZONES}
    pairs = [(zone, None if one_side else other) for zone, other in product(paths, [None] if one_side else paths)]

    def cells(trips) -> Counter:
        found: Counter = Counter()
        for step in plan.charged_steps:
            o, d = plan.level_pair(step)
            for origin, destination in trips:
                end = "all" if one_side else paths[destination][d]
                found[step.number, paths[origin][o], end] += 1
        return found

    cap = unit.max_trips_pair or unit.max_trips
    counted = [
        cells(trips)
        for size in range(unit.max_trips + 1)
        for trips in combinations_with_replacement(pairs, size)
        if max(Counter(trips).values(), default=0) <= cap
    ]
    scales = {step.number: Fraction(step.noise_facts["scale"]) for step in plan.charged_steps}
    before = counted if unit.neighbours == "bounded" else [Counter()]
    losses = set()
    for one, other in product(before, counted):
        changed = {cell: abs(one[cell] - other[cell]) for cell in one | other}
        losses.add(sum((Fraction(number) / scales[cell[0]] for cell, number in changed.items()), start=Fraction(0)))
    # What is charged for the root of bounded neighbours is not lost: where twice all trips change, n does not.
    of_root = sum(step.charge.epsilon for step in plan.steps if step.level == 0)
    assert plan.spent.epsilon == 1 > of_root > 0
    assert max(losses) == 1 - (of_root if unit.neighbours == "bounded" else 0)


@pytest.mark.parametrize("mechanism", [LAPLACE, InfTDARefined()])
def test_a_listed_share_of_the_root_is_taken_as_it_is(mechanism):
    listed = [Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)]
    delta = 0 if mechanism is LAPLACE else "1e-8"
    plan = planned(unit=UNITS[1], budget=Budget(epsilon=1, delta=delta, shares=listed), mechanism=mechanism)
    charges = [step.charge.epsilon or step.charge.rho for step in plan.steps]
    assert charges == [share * sum(charges) for share in listed]
    with pytest.raises(OdError, match="OD-BUDGET-SHARES"):
        planned(unit=UNITS[1], budget=Budget(epsilon=1, delta=delta, shares=["1/3", "2/3"]), mechanism=mechanism)


@given(world=worlds(), unit=st.sampled_from(UNITS[:2]), cap=st.sampled_from([0, 5_000_000]))
def test_without_noise_the_truth_comes_back(world, unit, cap):
    mechanism = InfTDARefined(noise_distribution="laplace", keep_all_cap=cap)
    plan = planned(world.origins, world.destination, unit, "100000", mechanism=mechanism)
    origin, destination = world.numbered(plan.tree.origin.depth, plan.tree.destination.depth)
    pairs = np.array([(origin[o], destination[d]) for o, d in world.flows], dtype=np.int32).reshape(-1, 2)
    counts = TripCounts.from_pairs(plan.tree, *pairs.T, np.array(list(world.flows.values()), dtype=np.int64))
    release = run_plan(plan, counts, ListedLaplace([0]), MemoryMeasurements())
    assert world.areas_of(plan.tree, release.leaves) == {pair: trips for pair, trips in world.flows.items() if trips}


@pytest.mark.parametrize("epsilon", ["1", "30"])
def test_noise_below_one_trip_is_projected_by_least_squares(epsilon):
    plan = planned(epsilon=epsilon)
    noisy, totals, offsets = np.array([5, 5, 0, 1, 1]), np.array([13, 1]), np.array([0, 3, 5])
    expected = project_children_euclidean if plan.steps[-1].variance < 1 else project_children
    assert (plan.steps[-1].variance < 1) == (epsilon == "30")
    assert plan.project(noisy, totals, offsets).tolist() == expected(noisy, totals, offsets).tolist()
    in_turn = plan_release(geography_of(ZONES), unit=UNITS[0], budget=Budget(rho=9, delta="1e-8"))
    assert in_turn.steps[-1].variance < 1
    assert in_turn.project(noisy, totals, offsets).tolist() == project_children(noisy, totals, offsets).tolist()


@pytest.mark.parametrize("scale", [Fraction(1, 9), Fraction(1), Fraction(31, 7), Fraction(10_000)])
def test_the_stated_variance_is_an_upper_bound_of_that_of_the_noise(scale):
    a = np.exp(-1 / np.longdouble(float(scale)))
    exact = float(2 * a / (1 - a) ** 2)
    assert exact * (1 - 1e-12) <= float(bound_laplace_variance(scale)) <= exact * (1 + 1e-9)


def test_lower_ends_of_selected_numbers_know_the_tails():
    """Of m numbers without trips and with Laplace noise, the R largest are published: at most 5 % of R, in expectation,
    have a lower end above 0. Fails with probability below 1e-6: their number is at most R / 20 + 6 sqrt(R / 20).
    """
    scale, public = Fraction(3), 2_000_000
    noisy = resolve_noise_source("table").draw_laplace(scale, public)  # type: ignore[attr-defined]
    published, variance = noisy[noisy > 15], float(bound_laplace_variance(scale))
    selection = Selection.from_numbers(published, public, has_laplace_noise=True)
    assert selection.deviations == pytest.approx(math.log(10 * public / len(published)) / 2**0.5)
    for ends, holds in ((selection, True), (Selection.from_numbers(published, public), False)):
        lower = compute_lower_bound(
            published.astype(float), np.full(len(published), variance), ends.make_lower_ends(published)
        )
        most = len(published) / 20
        assert (np.sum(lower > 0) <= most + 6 * most**0.5) == holds
    assert compute_deviations(0.99, has_laplace_noise=True) == pytest.approx(math.log(100) / 2**0.5)
    assert compute_deviations(0.9, has_laplace_noise=True) == compute_deviations(0.9, has_laplace_noise=False)


def test_replicates_have_noise_of_the_laplace_distribution():
    quantiles = replicates.compute_laplace_quantiles()
    expected = stats.laplace.ppf((np.arange(65536) + 0.5) / 65536)
    np.testing.assert_allclose(quantiles, expected, atol=1 / 1024)


def test_a_plan_whose_steps_have_another_sensitivity_is_not_charged():
    """Also where the charge is that of the wrong sensitivity."""
    plan, half = planned(), planned(unit=PrivacyUnit("trip", "unbounded"))
    plan.__dict__["_of_table"] = half.steps
    with pytest.raises(OdError, match=r"OD-CHARGE: .* does not match the unit"):
        check_charges(plan)


def test_replicates_spread_as_laplace_noise():
    """Of a table of one pair, the fourth moment of a replicate's errors is 6 times the squared variance, not 3."""
    flows = pd.DataFrame({"origin": ["a"], "destination": ["a"], "trips": [900]})
    release = release_flows(
        flows, geography_of([("a",)]), unit=UNITS[0], budget=Budget(1), mechanism=LAPLACE, tree="both", noise="table"
    )
    errors = np.array([float(table["trips"].iloc[0]) for table in release.replicates(4_000)])
    errors -= errors.mean()
    assert np.mean(errors**4) / np.mean(errors**2) ** 2 > 4


def test_a_budget_with_a_delta_or_another_tree_is_refused_before_anything_is_drawn():
    flows = pd.DataFrame({"origin": ["aa"], "destination": ["ab"], "trips": [9]})
    wrong = (Budget(1, "1e-8"), "both", "OD-BUDGET-KIND"), (Budget(1), "origin", "OD-NOISE-DISTRIBUTION")
    for budget, tree, code in wrong:
        with pytest.raises(OdError, match=code) as refused:
            release_flows(flows, geography_of(ZONES), unit=UNITS[0], budget=budget, mechanism=LAPLACE, tree=tree)
        assert refused.value.spent == "nothing was spent"
