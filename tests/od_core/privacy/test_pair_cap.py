"""A pair cap: at most c of a user's trips between the same two zones, and what a user costs at each level then."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement, product

import numpy as np
import pytest

from od_core import Budget, FlowTree, Geography, OdError, PrivacyUnit, plan_release
from od_core.privacy.domain import bound_rho_by_trips, compute_costs_by_trips
from od_core.privacy.neighbours import compute_largest_square_sum, select_node_sizes
from tests.od_core.published.test_verify_spending import verify_spending
from tests.od_core.strategies import TREES, geography_of

ZONES = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")]
OTHER_ZONES = [("a", "a1"), ("b", "b1"), ("c", "c1"), ("c", "c2"), ("c", "c3")]
AREAS, OTHERS = geography_of(ZONES), geography_of(OTHER_ZONES)
BUDGET = Budget("1", "1e-6")


def capped(m: int, c: int | None, relation: str = "unbounded") -> PrivacyUnit:
    return PrivacyUnit("user", relation, "person", m, max_trips_pair=c)


def enumerated(m: int, c: int, pairs: list[int]) -> int:
    """The largest sum of squares of whole numbers that are at most c for each leaf pair, and sum to at most m."""
    numbers = product(*(range(min(m, c * k) + 1) for k in pairs))
    return max(sum(x**2 for x in each) for each in numbers if sum(each) <= m)


@pytest.mark.parametrize("pairs", [[1] * 5, [1, 1, 1, 4], [2, 2, 1], [3, 1, 1], [4], [2, 3]], ids=str)
@pytest.mark.parametrize(("m", "c"), [*product(range(1, 6), repeat=2)])
def test_the_largest_squares_are_those_of_an_enumeration(m, c, pairs):
    """Also of the nodes that hold all trips alone, which are what a plan states."""
    nodes = sorted(Counter(pairs).items(), reverse=True)
    expected = enumerated(m, c, pairs)
    assert compute_largest_square_sum(m, c, nodes) == expected
    assert compute_largest_square_sum(m, c, select_node_sizes(m, c, nodes)) == expected


def two_users_attain(m: int, c: int, nodes: list[tuple[int, int]]) -> bool:
    """Whether two users find nodes of their own for the numbers with the largest squares (decision 101)."""
    bounds = [min(m, c * pairs) for pairs, number in nodes for _ in range(min(number, 2 * m))]
    held = zip(bounds, accumulate(bounds, initial=0), strict=False)
    filled = [min(bound, m - before) for bound, before in held if before < m]
    return all(2 * j + 1 < len(bounds) and trips <= bounds[2 * j + 1] for j, trips in enumerate(filled))


@pytest.mark.parametrize("pairs", [[1] * 5, [1, 1, 1, 4], [2, 2, 1], [3, 1, 1], [4], [2, 3], [3, 2, 2]], ids=str)
@pytest.mark.parametrize(("m", "c"), [*product(range(1, 5), repeat=2)])
def test_two_users_change_no_more_than_twice_the_squares_of_one_and_attain_it_where_they_have_nodes(m, c, pairs):
    numbers = product(*(range(min(m, c * k) + 1) for k in pairs))
    users = np.array([each for each in numbers if sum(each) <= m])
    largest = max(int(((users - one) ** 2).sum(axis=1).max()) for one in users)
    nodes = sorted(Counter(pairs).items(), reverse=True)
    twice = 2 * compute_largest_square_sum(m, c, nodes)
    assert largest <= twice
    assert (largest == twice) == two_users_attain(m, c, nodes)


@pytest.mark.parametrize("order", TREES)
def test_no_lower_sensitivity_is_enough_for_flights(order, airport_geography):
    """Of two users, at every level and for the totals of zones; but not of counts of one side, by state."""
    tree, zones = FlowTree(airport_geography, airport_geography, order), airport_geography.size(4)
    levels = [tree.count_nodes_by_size(level) for level in range(1, tree.depth + 1)] + [[(zones, zones)]]
    bounds = [(m, c) for c in range(1, 6) for m in range(c, 41)]
    assert all(two_users_attain(m, c, nodes) for nodes in levels for m, c in bounds)
    states = FlowTree(airport_geography, Geography.whole()).count_nodes_by_size(3)
    assert not two_users_attain(24, 1, states)


@pytest.mark.parametrize("order", TREES)
def test_sizes_of_nodes_are_numbers_of_leaf_pairs(order):
    tree = FlowTree(AREAS, OTHERS, order)
    for level in range(tree.depth + 1):
        origin, destination = tree.level_pair(level)
        ends = ((("all", *o)[origin], ("all", *d)[destination]) for o, d in product(ZONES, OTHER_ZONES))
        assert tree.count_nodes_by_size(level) == sorted(Counter(Counter(ends).values()).items(), reverse=True)


@pytest.mark.parametrize("order", TREES)
@pytest.mark.parametrize(("m", "c"), [(2, 1), (3, 1), (3, 2), (4, 3)])
def test_a_user_attains_the_sensitivity_of_every_level_and_no_user_exceeds_it(m, c, order):
    """All that one user may count, on a small tree and in the totals of its zones."""
    zones = geography_of([("a", "a1"), ("a", "a2"), ("b", "b1")])
    plan = plan_release(zones, unit=capped(m, c), budget=BUDGET, tree=order, area_totals="1/10")
    tree, largest = plan.tree, Counter[int]()
    parents = {"a1": "a", "a2": "a", "b1": "b"}
    paths = [{zone: ("all", parents[zone], zone)[at] for zone in parents} for at in range(3)]
    levels = [tree.level_pair(level) for level in range(tree.depth + 1)]
    levels += [(2, 0), (0, 2)][: len(plan.area_total_steps)] if order == "destination" else [(2, 0), (0, 2)]
    for trips in combinations_with_replacement([*product(parents, parents)], m):
        if max(Counter(trips).values()) <= c:
            for level, (o, d) in enumerate(levels):
                cells = Counter((paths[o][one], paths[d][other]) for one, other in trips)
                largest[level] = max(largest[level], sum(n**2 for n in cells.values()))
    stated = {step.level: step.sensitivity_squared for step in plan.charged_steps}
    assert stated == {level: largest[level] for level in stated}
    measured = range(tree.depth + 1)
    assert len(stated) == len(measured) + 2
    both = plan_release(plan.tree.origin, unit=capped(m, c, "bounded"), budget=BUDGET, tree=order)
    assert [step.sensitivity_squared for step in both.steps] == [(1 if k == 0 else 2) * largest[k] for k in measured]


@pytest.mark.parametrize("cap", [0, -1, 5, True, 1.0, "1"])
def test_a_cap_is_a_whole_number_from_one_to_max_trips(cap):
    with pytest.raises(OdError, match="OD-UNIT-MAX-TRIPS-PAIR"):
        capped(4, cap)


@dataclass(frozen=True)
class Period:
    """A period whose releases have these levels: the rho of each at m trips, and the sizes of its nodes."""

    levels: list[tuple[Fraction, list[tuple[int, int]]]]

    def cost(self, trips: int, m: int, c: int) -> Fraction:
        """What a user with so many counted trips costs at most, level by level."""
        pairs = [[size for size, number in nodes for _ in range(number)] for _, nodes in self.levels]
        squares = [(enumerated(trips, c, each), enumerated(m, c, each)) for each in pairs]
        return sum((rho * Fraction(*of) for (rho, _), of in zip(self.levels, squares, strict=True)), Fraction(0))

    def costs(self, m: int, c: int) -> list[Fraction]:
        charges = [({"node_sizes": [list(node) for node in nodes]}, rho) for rho, nodes in self.levels]
        return compute_costs_by_trips(charges, m, c)


SHAPES = [[(9, 1)], [(1, 4)], [(2, 1), (1, 2)], [(3, 1), (1, 1)]]
YEARS = [
    (
        m,
        c,
        most,
        [Period([(Fraction(k + t + 1), SHAPES[(k + t) % 4]) for k in range(1 + t % 3)]) for t in range(periods)],
    )
    for m, c in ((2, 1), (3, 1), (3, 2), (4, 3))
    for periods in (1, 2, 3)
    for most in range(m, 3 * m)
]


@pytest.mark.parametrize(("m", "c", "most", "periods"), YEARS)
def test_no_user_of_a_year_costs_more_than_is_stated(m, c, most, periods):
    """By all numbers of trips in all periods; and what one period costs is what its own trips cost."""
    stated = [period.costs(m, c) for period in periods]
    assert stated == [[period.cost(k, m, c) for k in range(1, m + 1)] for period in periods]
    chosen = (each for each in product(range(m + 1), repeat=len(periods)) if sum(each) <= most)
    worst = max(sum((costs[k - 1] for costs, k in zip(stated, each, strict=True) if k), Fraction(0)) for each in chosen)
    bound = bound_rho_by_trips(stated, most)
    assert worst <= bound
    assert bound <= sum(costs[-1] for costs in stated)
    if most >= m * len(periods):
        assert worst == bound == sum(costs[-1] for costs in stated)


def test_the_second_verifier_adds_up_a_year_in_the_same_way():
    generator = np.random.default_rng(5)
    for _ in range(50):
        m = int(generator.integers(1, 7))
        years = [np.cumsum(generator.integers(0, 9, m)).tolist() for _ in range(generator.integers(1, 5))]
        costs, most = [[Fraction(one, 7) for one in each] for each in years], int(generator.integers(m, 4 * m + 1))
        slopes = sorted((slope for each in costs for slope in verify_spending.slopes_of(each)), reverse=True)
        assert sum(slopes[:most]) == bound_rho_by_trips(costs, most)
