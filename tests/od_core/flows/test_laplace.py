"""Laplace noise at few levels: charges that sum to epsilon, what a unit can change, and how numbers are rounded."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from od_core import (
    Acceptance,
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
from od_core.geography.flow_tree import equalise_depths
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.plan import check_charges
from od_core.privacy.stability import bound_laplace_variance
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from tests.od_core.doubles import ListedLaplace
from tests.od_core.flows.neighbours import changes, counted, of_one_unit
from tests.od_core.oracles.inftda import Area
from tests.od_core.oracles.intervals import deepened, random_zones
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
    rule=st.sampled_from([None, None, "uniform", ("geometric", 3)]),
)
def test_the_charges_are_shares_of_epsilon_and_sum_to_it_exactly(zones, others, unit, epsilon, share, rule):
    """The weights are w^(2/3) in thousandths, where w is 1 - 1/k for k children, or 3/2 at the leaves.

    A root that is not exact has a tenth of the mean share of the other levels. Sides may differ in depth, or one has no
    levels; and the shares may be declared.
    """
    destinations = others.draw(st.none() | zone_lists())
    destination = Geography.whole() if destinations is None else geography_of(destinations)
    order = "destination" if destinations is None else "both"
    tree = FlowTree(*equalise_depths(geography_of(zones), destination), order)
    share = share if list_area_total_sides(tree) else None  # otherwise, the tree measures them
    budget = Budget(epsilon, shares=rule)
    plan = planned(zones, destination, unit, budget=budget, tree=order, area_totals=share)
    check_charges(plan)
    assert sum(step.charge.epsilon for step in plan.charged_steps) == Fraction(epsilon) == plan.spent.epsilon
    assert plan.spent.delta == 0
    has_root = unit != UNITS[0] and (plan.tree.largest_fan_out(0) > 1 or rule is not None)
    largest = [plan.tree.largest_fan_out(level) for level in range(1, plan.tree.depth)]
    weights = dict(enumerate([*(1 - Fraction(1, k) for k in largest), Fraction(3, 2)], start=1))
    rounded = {level: Fraction(int((float(w**2) * 1e9) ** (1 / 3) + 1e-9), 1000) for level, w in weights.items() if w}
    if has_root:
        rounded = {0: sum(rounded.values()) / len(rounded) / 10} | rounded
    if rule is not None:
        first = 0 if has_root else 1
        rounded = {k: Fraction(1 if rule == "uniform" else 3 ** (k - first)) for k in range(first, tree.depth + 1)}
    of_levels = Fraction(epsilon) * (1 - Fraction(share or 0)) / sum(rounded.values())
    assert {step.level: step.charge.epsilon for step in plan.steps} == {k: w * of_levels for k, w in rounded.items()}
    of_sides = {step.charge.epsilon * len(plan.area_total_steps) for step in plan.area_total_steps}
    assert of_sides == ({Fraction(epsilon) * Fraction(share)} if share else set())
    most = unit.contribution_bound * (2 if unit.neighbours == "bounded" else 1)
    for step in plan.charged_steps:
        changed = most if step.level else unit.contribution_bound
        assert step.noise_facts["sensitivity"] == changed == step.charge.epsilon * Fraction(step.noise_facts["scale"])


class AskedForScales(ListedLaplace):
    """No noise; notes the scale of each draw."""

    def __init__(self) -> None:
        super().__init__([0])
        self.scales: list[Fraction] = []

    def draw_laplace(self, scale, size):
        self.scales.append(scale)
        return super().draw_laplace(scale, size)

    def draw(self, variance, level, first, size):
        raise AssertionError("noise of another distribution was drawn")


def answers(plan: ReleasePlan, counts: TripCounts) -> dict[tuple[int, Fraction], np.ndarray]:
    """What is measured of some counts, by step and by the scale of the noise that is asked for."""
    noise = AskedForScales()
    release = run_plan(plan, counts, noise, MemoryMeasurements())
    assert [one.step for one in release.measured] == list(plan.charged_steps)
    asked = zip(release.measured, noise.scales, strict=True)
    return {(one.step.number, scale): one.noisy.read_values() for one, scale in asked}


UNITS_OF_RECORDS = [
    PrivacyUnit("trip"),
    PrivacyUnit("trip", max_weight=2),
    PrivacyUnit("user", column="id", max_trips=2),
    PrivacyUnit("user", column="id", max_trips=2, max_trips_pair=1),
    PrivacyUnit("user_period", column="id", max_trips=2),
]


def random_records(random: Random) -> tuple[dict[str, Any], list[list[Area]], list[Any], list[Any]]:
    """The unit and the rules of a plan, zones of both sides, records of one unit, and those of others.

    The records of the unit begin and end in the first zones or in the last zones, or have faults.
    """
    one_side = random.random() < 0.2
    sides = [random_zones(random, random.randint(1, 3), side=side) for side in "od"]
    while min(map(len, sides)) == 1 or len(sides[0]) * len(sides[1]) > 40:
        sides = [random_zones(random, random.randint(1, 3), side=side) for side in "od"]
    sides = [sides[0], [("all",)]] if one_side else sides
    unit = replace(random.choice(UNITS_OF_RECORDS), neighbours=random.choice(["bounded", "unbounded"]))
    given_ = {"unit": unit, "acceptance": random.choice([NO_FAULTS, Acceptance(1)])}
    others = [[random.choice(zones)[-1] for zones in sides] for _ in range(4)]
    near, far = ([zones[k][-1] for zones in sides] for k in (0, -1))
    own = [(*ends, 99.0, "u") for ends in (near, far)]
    if unit.kind == "trip":
        weights = [0.2] if unit.max_weight else []
        faults = [("nowhere", near[1], 1.0, "u")] if given_["acceptance"] is not NO_FAULTS and not one_side else []
        own += [(*near, weight, "u") for weight in weights] + faults
    return given_, sides, own, [(*ends, 1.0, f"other {k}") for k, ends in enumerate(others)]


def separates(plan: ReleasePlan, step: Any, sides: list[list[Area]]) -> bool:
    """Whether the first pair of zones and the last one are in different cells of a step."""
    pair = plan.level_pair(step)
    deep = (deepened(zones, plan.tree.origin.depth) for zones in sides)
    return any(zones[0][:level] != zones[-1][:level] for zones, level in zip(deep, pair, strict=True))


FEW = (0, 7, 10, 11, 14)
"""Users and trips, bounded and not, an exact root, one side, area totals, faults and weights."""


@pytest.mark.exhaustive
@pytest.mark.representatives("few")
@pytest.mark.parametrize("seeds", [FEW, sorted({*range(34)} - {*FEW})], ids=["few", "many"])
def test_no_neighbours_have_a_larger_privacy_loss_than_the_charge_and_some_have_it(seeds):
    """Of three plans of each seed: the change of all measured numbers, counted from records, each by its scale.

    That is the largest logarithm of a ratio of probabilities, over all outputs. Where a record or a user is replaced,
    n changes only if fewer trips are counted, and other counts change less then.
    """
    seen = Counter[tuple[str, bool]]()
    for seed in seeds:
        random = Random(seed)  # noqa: S311
        given_, sides, own, others = random_records(random)
        unit, one_side = given_["unit"], sides[1] == [("all",)]
        destination = Geography.whole() if one_side else geography_of(sides[1])
        inputs: dict[Any, TripCounts] = {}
        for _ in range(3):
            epsilon = Fraction(random.randint(1, 30), random.randint(1, 9))
            shares = random.choice([None, "uniform", ("geometric", 3), ("geometric", Fraction(1, 3))])
            options: dict[str, Any] = {"budget": Budget(epsilon, shares=shares)}
            plan = planned(sides[0], destination, **given_, **options, tree="destination" if one_side else "both")
            if list_area_total_sides(plan.tree) and random.random() < 0.7:
                options |= {"area_totals": Fraction(1, random.randint(2, 9))}
                plan = planned(sides[0], destination, **given_, **options)
            inputs = inputs or {some: counted(plan, [*others, *some]) for some in of_one_unit(unit, own)}
            answered = {some: answers(plan, counts) for some, counts in inputs.items()}
            losses = [
                sum(
                    (Fraction(int(np.abs(change).sum())) / scale for (_, scale), change in changed.items()), Fraction(0)
                )
                for changed in changes(plan, answered)
            ]
            assert plan.spent.epsilon == epsilon
            of_root = sum((step.charge.epsilon for step in plan.steps if step.level == 0), Fraction(0))
            below = [step for step in plan.charged_steps if step.level > 0]
            if unit.neighbours == "unbounded":
                assert max(losses) == epsilon
            elif unit.max_trips_pair is None and all(separates(plan, step, sides) for step in below):
                assert max(losses) == max(epsilon - of_root, of_root and (epsilon + of_root) / 2)
            assert max(losses) <= epsilon
            seen[unit.neighbours, max(losses) == epsilon] += 1
    assert seeds == FEW or min(seen[one] for one in product(["bounded", "unbounded"], [True])) > 4


class Listed(ListedLaplace):
    """The listed noise, value after value, in as many draws as there are; notes the scale of each value."""

    def __init__(self, values: Sequence[int]) -> None:
        super().__init__(values)
        self.scales: list[Fraction] = []

    def draw_laplace(self, scale, size):
        first = len(self.scales)
        self.scales += [scale] * size
        if len(self.scales) > len(self.values):
            raise LookupError
        return self.values[first : first + size]


Output = tuple[tuple[int, ...], ...]


def outputs_of(plan: ReleasePlan, counts: TripCounts, reach: int) -> dict[Output, tuple[list[Fraction], Fraction]]:
    """All that is measured of some counts with noise of up to ``reach``, and the probability of each output.

    It is the product of (1 - a) / (1 + a) a^|k| over all draws k, where a is exp(-1 / scale): the scales, and the sum
    of |k| / scale. How many numbers are drawn may depend on those that were drawn before.
    """
    found, beginnings = {}, [()]
    while beginnings:
        begun = beginnings.pop()
        noise = Listed(np.array(begun, dtype=np.int64))
        try:
            release = run_plan(plan, counts, noise, MemoryMeasurements())
        except LookupError:
            lacking = len(noise.scales) - len(begun)
            beginnings += [(*begun, *more) for more in product(range(-reach, reach + 1), repeat=lacking)]
            continue
        output = tuple(tuple(one.noisy.read_values().tolist()) for one in release.measured)
        assert output not in found
        exponent = sum((abs(k) / scale for k, scale in zip(begun, noise.scales, strict=True)), Fraction(0))
        found[output] = (noise.scales, exponent)
    return found


@pytest.mark.parametrize(
    ("relation", "zones", "drops"),
    [
        ("unbounded", [("a",), ("b",)], True),
        ("unbounded", [("a",), ("b",)], False),
        ("bounded", [("a", "aa"), ("a", "ab"), ("b", "ba")], True),
    ],
)
def test_no_output_is_more_probable_by_more_than_the_charge(relation, zones, drops):
    """Of all outputs that neighbours have in common, with noise of up to one trip, and exactly.

    Also where nodes that seem to be empty are dropped, so that the noise of one level decides what is measured below.
    """
    unit, mechanism = PrivacyUnit("trip", relation), replace(LAPLACE, keep_all_cap=0 if drops else 100)
    plan = planned(zones, Geography.whole(), unit, "5/7", mechanism=mechanism, tree="destination")
    assert plan.keeps_all is not drops
    own = [(zone[-1], "all", 1.0, "u") for zone in zones]
    inputs = {
        some: outputs_of(plan, counted(plan, [(zones[0][-1], "all", 1.0, "v"), *some]), reach=1)
        for some in of_one_unit(unit, own)
        if some or relation == "unbounded"
    }
    losses, measured = set(), set()
    neighbours = combinations(inputs, 2) if relation == "bounded" else [((), some) for some in inputs]
    for one, other in ((inputs[one], inputs[other]) for one, other in neighbours):
        for output in one.keys() & other.keys():
            scales, exponent = one[output]
            assert scales == other[output][0]
            losses.add(abs(other[output][1] - exponent))
            measured.add(sum(map(len, output)))
    assert max(losses) == Fraction("5/7")
    assert (len(measured) > 1) is drops


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
    plan.__dict__["_table_steps"] = half.steps
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


SEGMENTS = {"mode": ["car", "bus"], "hour": ["7", "8", "9"]}


@given(
    zones=zone_lists(),
    unit=st.sampled_from(UNITS),
    names=st.sampled_from([["mode"], ["mode", "hour"]]),
    segment_share=st.sampled_from([None, "1/3"]),
    area_totals=st.sampled_from([None, "1/5"]),
)
def test_the_charges_of_segments_and_totals_sum_to_epsilon_exactly(zones, unit, names, segment_share, area_totals):
    """Each level's share is divided by the shares of totals and breakdowns. A query by segment has all of a unit's
    trips in its cells, at the root, too, where the total of a bounded unit is exact or changes by m alone.
    """
    tree = FlowTree(geography_of(zones), geography_of(zones), "both")
    area_totals = area_totals if list_area_total_sides(tree) else None
    given_ = {"segments": {name: SEGMENTS[name] for name in names}, "segment_share": segment_share}
    plan = planned(zones, unit=unit, area_totals=area_totals, **given_)
    check_charges(plan)
    assert sum(step.charge.epsilon for step in plan.charged_steps) == 1 == plan.spent.epsilon
    of_all = Fraction(segment_share) if segment_share else Fraction(len(names), len(names) + 1)
    most = unit.contribution_bound * (2 if unit.neighbours == "bounded" else 1)
    numbers = [step.number for step in plan.charged_steps]
    assert len(set(numbers)) == len(numbers)
    for level in {step.level for step in plan.steps}:
        total = next((step for step in plan.steps_at(level) if not step.by_segment), None)
        queries = [step for step in plan.steps_at(level) if step.by_segment]
        assert [step.breakdown for step in queries] == names
        assert len({step.charge.epsilon for step in queries}) == 1
        assert (total is None) == (level == 0 and unit == UNITS[0])
        for step in queries:
            assert step.noise_facts["sensitivity"] == most == step.charge.epsilon * step.scale
            assert step.sensitivity_squared == plan.neighbours.sensitivity_squared(level, by_segment=True)
        if total is not None:
            assert total.sensitivity == (most if level else unit.contribution_bound)
            assert queries[0].charge.epsilon * len(names) * (1 - of_all) == total.charge.epsilon * of_all


@pytest.mark.exhaustive
@pytest.mark.representatives("unit0", "unit2")
@pytest.mark.parametrize("unit", [UNITS[0], UNITS[2], UNITS[3]])
def test_the_largest_privacy_loss_of_a_unit_is_the_charge_also_by_segment(unit):
    """Of all trips that a unit may count between two zones, each with a category, as they are counted and measured."""
    plan = planned(unit=unit, segments={"mode": ["car", "bus"]}, area_totals="1/5")
    trips_of_a_unit = [*product(["aa", "ba"], ["aa", "ba"], ["car", "bus"])]
    sizes = range(unit.max_trips + 1) if unit.is_of_users else [1]
    cap = unit.max_trips_pair or unit.contribution_bound
    answered = []
    for size in sizes:
        for trips in combinations_with_replacement(trips_of_a_unit, size):
            if max(Counter(trip[:2] for trip in trips).values(), default=0) <= cap:
                table = pd.DataFrame(trips, columns=["origin", "destination", "mode"], dtype="str")
                counts = count_trips(table, plan.tree, breakdowns=plan.breakdowns, one_row_a_trip=True)
                answered.append(answers(plan, counts))
    nothing = {query: np.zeros_like(values) for query, values in answered[0].items()}
    losses = {
        sum((Fraction(int(np.abs(one[query] - other[query]).sum())) / query[1] for query in one), start=Fraction(0))
        for one in (answered if unit.neighbours == "bounded" else [nothing])
        for other in answered
    }
    of_root = sum(step.charge.epsilon for step in plan.steps_at(0) if not step.by_segment)
    assert (of_root > 0) == unit.is_of_users
    assert max(losses) == 1 - (of_root if unit.neighbours == "bounded" else 0)


@pytest.mark.parametrize("share", ["1/1000", "1/7", "999/1000"])
@pytest.mark.parametrize("epsilon", ["1/100", "1", "40"])
def test_combined_totals_have_the_variance_of_their_weights_near_the_least(share, epsilon):
    """Of the weighted mean of a total and of the sum of each breakdown; the weights leave room for 10^10 trips."""
    plan = planned(unit=UNITS[3], epsilon=epsilon, segments=SEGMENTS, segment_share=share)
    for combined in plan.totals:
        steps = plan.steps_at(combined.level)
        numbers = [1, 2, 3]
        variances = [k * step.variance for k, step in zip(numbers, steps, strict=True)]
        weights = [Fraction(weight, sum(combined.weights)) for weight in combined.weights]
        assert combined.variance == sum(w**2 * v for w, v in zip(weights, variances, strict=True))
        least = 1 / sum(1 / v for v in variances)
        assert least <= combined.variance <= least * (1 + Fraction(1, 10**7))
        assert 0 <= min(combined.weights) <= max(combined.weights) <= 2**25
    equal = planned(unit=UNITS[3], segments={"mode": ["car", "bus"]})
    assert {total.weights for total in equal.totals if total.level} == {(2, 1)}


def test_segments_without_noise_are_the_truth():
    geography, modes = geography_of(ZONES), ["car", "bus", "walk"]
    trips = [*product(["aa", "ab", "ba"], ["aa", "ba"], modes[:2])]
    flows = pd.DataFrame(trips, columns=["origin", "destination", "mode"]).assign(trips=range(1, len(trips) + 1))
    given_ = {"unit": UNITS[0], "budget": Budget(10**5), "mechanism": LAPLACE, "fault_threshold": 0}
    release = release_flows(flows, geography, **given_, tree="both", segments={"mode": modes}, noise=ListedLaplace([0]))
    names = geography.levels
    found = release.flows_at(names[-1], names[-1], segment="mode")
    assert {tuple(row) for row in found.to_numpy()} == {tuple(row) for row in flows.to_numpy()}
    bounds = release.flows_at(names[-1], names[-1], segment="mode", interval=True)
    assert (bounds["lower"] == bounds["trips"]).all()
    assert (bounds["upper"] == bounds["trips"]).all()
