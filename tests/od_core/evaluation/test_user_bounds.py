"""Bounds of users' trips on public trips: what they cut, the noise and the errors, and what is refused."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from od_core import Budget, Geography, InfTDARefined, OdError, PrivacyUnit, ReleasePlan, plan_release
from od_core.evaluation.forecast import (
    UserTrips,
    arrange_counts_for_plan,
    iterate_candidate_contribution_bounds,
    make_synthetic_table,
    parse_users,
    simulate_errors_of_contribution_bounds,
    simulate_releases,
    with_contribution_bounds,
)
from od_core.evaluation.known_flows import SEED, make_generator
from od_core.geography.flow_tree import Pairs
from od_core.records.counting import count_trips

ZONES = pd.DataFrame({"region": ["a", "a", "b"], "zone": ["a1", "a2", "b1"]})
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"])
USER = PrivacyUnit("user_period", "unbounded", "person", 4)
YEAR = PrivacyUnit("user_year", "unbounded", "person", 4, None, 6, ".+")


def planned(unit: PrivacyUnit = USER, rho: str = "1") -> ReleasePlan:
    return plan_release(GEOGRAPHY, unit=unit, budget=Budget(rho=rho, delta="1e-8"))


def trips_of(user: Sequence[int], rank: Sequence[int]) -> UserTrips:
    return UserTrips(planned().tree, np.array(rank), np.array(user))


USERS_AND_PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), min_size=1, max_size=25)


@given(
    rows=USERS_AND_PAIRS,
    m=st.integers(1, 6),
    c=st.integers(1, 6),
    left=st.lists(st.integers(0, 6), min_size=4, max_size=4),
)
@example(rows=[(0, 0)] * 8 + [(0, 1)], m=2, c=1, left=[6] * 4)  # trips above the cap take no place of their user
def test_what_is_counted_is_what_a_walk_over_the_trips_counts(rows, m, c, left):
    """Each trip in turn: fewer than c counted ones of its user have its pair, and fewer than m are counted at all."""
    trips = trips_of(*zip(*rows, strict=True))
    for of_pair, allowed in ((None, None), (c, None), (c, left)):
        found = trips.mark_counted_trips(m, of_pair, None if allowed is None else np.array(allowed))
        of_users, of_pairs, expected = Counter[int](), Counter[tuple[int, int]](), np.zeros(len(rows), dtype=bool)
        for at in np.argsort(make_generator(SEED).permutation(len(rows))):
            user, pair = rows[at]
            in_pair = of_pair is None or of_pairs[rows[at]] < of_pair
            if in_pair and of_users[user] < (m if allowed is None else min(m, allowed[user])):
                expected[at] = True
                of_users[user] += 1
                of_pairs[user, pair] += 1
        assert found.tolist() == expected.tolist()


def test_as_many_trips_are_counted_as_by_a_release():
    """The order of a user's trips has a key there, but the number that is counted does not depend on it."""
    generator, zones = np.random.default_rng(1), np.array(GEOGRAPHY.zones)
    user, origin, destination = generator.integers(0, (20, 3, 3), (300, 3)).T
    tree = planned().tree
    pairs = Pairs(4, origin.astype(np.int32), destination.astype(np.int32))
    trips = UserTrips(tree, tree.compute_first_ranks(pairs), user)
    frame = pd.DataFrame({"person": user.astype(str), "origin": zones[origin], "destination": zones[destination]})
    for m, c in ((3, None), (12, 1), (12, 2), (3, 2)):
        unit = replace(USER, max_trips=m, max_trips_pair=c)
        counted = count_trips(frame, tree, one_row_a_trip=True, unit=unit, key=bytes(range(32)), period="2001-01")
        assert counted.total == trips.mark_trips_within_bounds(unit).sum() < 300


def test_under_user_year_as_many_users_are_in_each_period_of_the_year():
    """Four users with 3 trips a period and M = 6 have 3, 3, 0 and 0 left in four periods: one is in each of these."""
    trips = trips_of(np.repeat(range(4), 3), [0] * 12)
    counted = trips.mark_trips_within_bounds(YEAR, periods=4)
    assert sorted(Counter(trips.user[counted].tolist()).values()) == [3, 3]
    assert trips.mark_trips_within_bounds(replace(YEAR, max_trips_year=16), periods=4).all()  # it never binds


def test_made_up_users_travel_as_described():
    users = [parse_users("3: 2x9 4x1"), parse_users("1: 1x2")]
    assert users == [(3, [(2, 9), (4, 1)]), (1, [(1, 2)])]
    table = make_synthetic_table(GEOGRAPHY)
    trips = UserTrips.simulate(table, planned(), users)
    by_user = Counter(trips.user.tolist())
    assert Counter(by_user.values()) == {22: round(0.75 * len(by_user)), 2: round(0.25 * len(by_user))}
    assert abs(len(trips.rank) - table.trips.total) <= 22
    flows = arrange_counts_for_plan(table, planned())
    drawn = np.array([np.count_nonzero(trips.rank == rank) for rank in flows.rank])
    assert drawn.sum() == len(trips.rank)
    # A user's 9 trips of a pair are one draw: some 300 draws, so 0.15 is 5 standard deviations or more.
    assert np.abs(drawn / len(trips.rank) - np.diff(flows.before) / flows.total).max() < 0.15


def test_errors_are_those_of_the_simulated_releases_and_the_cut_alone_where_there_is_no_noise():
    trips = trips_of([0, 0, 0, 1, 1], [0, 0, 5, 5, 8])
    unit = replace(USER, max_trips_pair=1)
    exact = simulate_errors_of_contribution_bounds(
        planned(unit, rho="1e9"), trips, trips.mark_trips_within_bounds(unit), runs=1
    )
    assert [exact[bound] for bound in "mcM"] == [4, 1, None]
    assert [exact["cut"], *exact["error"]] == pytest.approx([0.2] * 6)  # one trip is missing on every level
    assert (exact["error_of_counted"], exact["within_c"]) == ([0] * 5, 0.8)
    plan = planned(unit)
    counts = arrange_counts_for_plan(trips.count_flows(trips.mark_trips_within_bounds(unit)), plan)
    (release,) = simulate_releases(plan, counts, 1, 0)
    true, got = np.zeros((2, 9))
    np.add.at(true, trips.rank, 1)
    leaves = release.leaves
    got[plan.tree.compute_first_ranks(leaves)] = leaves.trips
    found = simulate_errors_of_contribution_bounds(plan, trips, trips.mark_trips_within_bounds(unit), runs=1)
    assert found["error"][-1] == pytest.approx(np.abs(got - true).sum() / 5)
    true[0] = 1  # of two trips of user 0
    assert found["error_of_counted"][-1] == pytest.approx(np.abs(got - true).sum() / 4)


@pytest.mark.parametrize("relation", ["unbounded", "bounded"])
def test_the_noise_is_that_of_the_sensitivity_and_all_rows_cost_the_same(relation):
    """With m = 4 and c = 1, four leaf pairs have one trip each: a squared sensitivity of 4 in place of 16."""
    plan = planned(replace(USER, neighbours=relation))
    units, tried = (
        list(iterate_candidate_contribution_bounds(plan.unit)),
        [(2, None), (2, 1), (4, None), (4, 1), (4, 2)],
    )
    assert [unit.bounds for unit in units] == [*tried, *((8, c) for c in (None, 1, 2, 5))]
    trips = trips_of([0], [0])
    for unit in units:
        bounded, (m, c) = with_contribution_bounds(plan, unit), unit.bounds
        found = simulate_errors_of_contribution_bounds(bounded, trips, trips.mark_trips_within_bounds(unit), runs=1)
        squares = m**2 if c is None else (m // c) * c**2 + (m % c) ** 2
        squares *= 2 if relation == "bounded" else 1
        assert bounded.spent.rho == plan.spent.rho
        assert found["noise"][-1] == pytest.approx(math.sqrt(squares / (2 * bounded.step(4).rho)))


def test_with_laplace_noise_all_rows_cost_the_same_epsilon_and_a_pair_cap_changes_no_noise():
    laplace = InfTDARefined(noise_distribution="laplace")
    plan = plan_release(GEOGRAPHY, unit=USER, budget=Budget(1), mechanism=laplace, tree="both")
    trips = UserTrips(plan.tree, np.array([0]), np.array([0]))
    for unit in iterate_candidate_contribution_bounds(plan.unit):
        bounded = with_contribution_bounds(plan, unit)
        found = simulate_errors_of_contribution_bounds(bounded, trips, trips.mark_trips_within_bounds(unit), runs=1)
        assert bounded.charges == plan.charges
        step = plan.steps[-1]
        scale = float(unit.contribution_bound / step.charge.epsilon)
        assert found["noise"][-1] == pytest.approx(1 / (math.sqrt(2) * math.sinh(1 / (2 * scale))))


def test_a_year_costs_a_user_the_same_with_every_bound():
    plan = planned(YEAR)
    of_year = plan.rho_of_year(plan.spent, 12)
    units = list(iterate_candidate_contribution_bounds(YEAR, 12))
    assert {unit.max_trips_year for unit in units} == {6, 8, 24, 48, 96}
    for unit in units:
        bounded = with_contribution_bounds(plan, unit, 12)
        assert bounded.rho_of_year(bounded.spent, 12) == of_year


@pytest.mark.parametrize("text", ["", "60: 2", "60: 0x3", "60: 2x0", "0: 1x1", "nan: 1x1"])
def test_other_descriptions_of_users_are_refused(text):
    with pytest.raises(OdError, match="OD-BOUNDS-USERS"):
        parse_users(text)
