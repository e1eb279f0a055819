"""The explicit bounds: what follows from bounded noise in any case, and how often the noise is not bounded so."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, FlowTree, InfTDA, PrivacyUnit, evaluate, plan_release
from od_core.evaluation import metrics
from od_core.evaluation.known_flows import make_binary_flows
from od_core.evaluation.metrics import Truth, accumulate_error_bounds, compute_stability_bounds, compute_top_down_bounds
from od_core.geography.flow_tree import Nodes
from od_core.noise.table_sampler import TableNoise
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.doubles import ListedNoise, released, usual_release
from tests.od_core.strategies import TREES, frame_of, geography_of, noises, worlds

HALF = Fraction(1, 2)
RUNS = 2_000
MOST = RUNS // 2 + 110
"""Of RUNS events of probability 1/2 at most, more than so many happen with probability 4e-7, the binomial tail."""

TRIP = PrivacyUnit("trip")


def planned(geography, **budget):
    given = {"delta": "1e-8", **budget}
    return plan_release(geography, unit=TRIP, budget=Budget(**given), mechanism="inftda", acceptance=NO_FAULTS)


@given(
    world=worlds(),
    order=st.sampled_from(TREES),
    neighbours=st.sampled_from(("bounded", "unbounded")),
    mechanism=st.sampled_from([InfTDA("ascending"), InfTDA("descending"), "tda_l2", "tda_linf"]),
    shares=st.sampled_from(("uniform", "geography")),
    values=noises(),
)
def test_theorem_4_follows_from_the_largest_noise(world, order, neighbours, mechanism, shares, values):
    """Whatever the noise is: the errors are at most what its largest value of each level adds up to."""
    noise = ListedNoise(values)
    budget = Budget(rho=1, delta="1e-8", shares=shares)
    release = released(world, order, neighbours, noise, mechanism, budget=budget)
    tree, steps = release.plan.tree, release.plan.steps
    maxima = [np.abs(noise.draw(step.variance, step.level, 0, tree.cells(step.level))).max() for step in steps]
    bounds = accumulate_error_bounds(release.plan, maxima)
    assert len(bounds) == tree.depth + 1
    assert (evaluate(release, world.frame)["max_abs_error"] <= bounds).all()


def test_theorem_4_needs_its_factor_of_two():
    """Of 40 children with noise m all but one with -m, the last comes out nearly 2 m too small."""
    zones = [(f"z{number:02d}",) for number in range(40)]
    flows = frame_of({(zones[0], zone): 1_000 for zone in zones})
    noise = ListedNoise([-100, *[100] * 39])
    release = usual_release(flows, geography_of(zones), mechanism="inftda", noise=noise)
    first = evaluate(release, flows)["max_abs_error"][1]
    assert 190 <= first <= accumulate_error_bounds(release.plan, [100, 100])[1] == 200


def test_levels_that_are_not_measured_have_the_bound_of_those_below():
    geography = geography_of([("a", "a1"), ("b", "b1")])
    bounds = compute_top_down_bounds(
        planned(geography, epsilon=1, shares="geography")
    )  # levels 1, 2 and 4 are not divided further
    steps = [step.level for step in planned(geography, epsilon=1, shares="geography").steps]
    assert steps == [1, 4]
    assert bounds[2] == bounds[3] == bounds[4] > bounds[1] > bounds[0] == 0


def test_runs_whose_noise_exceeds_its_bound():
    """Of one level: at most half, and more than a two-hundredth. Both fail by chance with probability below 1e-6.

    The probability that one of 100 normal values is beyond sqrt(2 ln 800) standard deviations is 0.025.
    """
    geography = geography_of([(f"z{number}",) for number in range(10)])
    plan = planned(geography, rho=1)
    (_, _, leaves), sigma = compute_top_down_bounds(plan, HALF), Fraction(400)
    bound = (leaves - compute_top_down_bounds(plan, HALF)[1]) / 2 * math.sqrt(sigma / plan.steps[-1].variance)
    assert bound == pytest.approx(20 * math.sqrt(2 * math.log(2 * 100 * 2 / 0.5)))
    largest = np.abs(TableNoise().draw(sigma, 2, 0, RUNS * 100).reshape(RUNS, 100)).max(axis=1)
    assert RUNS // 200 < (largest > bound).sum() <= MOST


@pytest.mark.representatives("destination")
@pytest.mark.parametrize("order", TREES)
def test_runs_that_exceed_the_first_part_of_proposition_1(order):
    """At most half, and more than a two-hundredth: the root exceeds its part 0.1 of beta in 1.4 % of the runs, and the
    leaves, nearly independent of it, in 1.1 %. Both fail by chance with probability below 1e-6.
    """
    geography = make_binary_flows(1, levels=2, trips=20).geography
    tree = FlowTree(geography, geography, order)
    zero, none = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    truth = Truth.from_counts(tree, TripCounts.from_pairs(tree, zero, zero, none))
    leaves = tree.list_public_nodes(tree.depth)
    bounds, exceeded = np.array(metrics.compute_gauss_bounds(tree, Fraction(25), HALF)), 0
    noise = TableNoise().draw(Fraction(25), 4, 0, RUNS * 16).reshape(RUNS, 16)
    for values in noise:
        errors = truth.compute_errors(Nodes(tree.depth, leaves.origin, leaves.destination, values))
        exceeded += any(level["max_abs_error"] > bound for level, bound in zip(errors, bounds, strict=True))
    assert RUNS // 200 < exceeded <= MOST


@given(
    world=worlds(max_trips=9),
    order=st.sampled_from(TREES),
    threshold=st.integers(1, 8),
    values=noises(reach=5),
    known_total=st.booleans(),
)
def test_the_second_part_of_proposition_1_follows_from_the_largest_noise(world, order, threshold, values, known_total):
    """A stability histogram by hand: no error is above what the largest noise of a positive leaf adds up to."""
    tree, _ = world.trees(order)
    positive = {pair: trips for pair, trips in world.flows.items() if trips > 0}
    noise = {pair: values[number % len(values)] for number, pair in enumerate(positive)}
    kept = {pair: trips + noise[pair] for pair, trips in positive.items() if trips + noise[pair] >= threshold}
    trips = sum(positive.values())
    largest = max((abs(value) for value in noise.values()), default=0)
    true = world.nodes(tree, tree.depth, list(world.flows), list(world.flows.values()))
    truth = Truth.from_counts(tree, TripCounts.from_pairs(tree, true.origin, true.destination, true.trips))
    in_order = [leaf for leaf in world.trees(order)[1].levels()[-1] if leaf in kept]
    leaves = world.nodes(tree, tree.depth, in_order, [kept[leaf] for leaf in in_order])
    scale, beta = scale_whose_bound_is(tree, largest, trips if known_total else None)
    bounds = compute_stability_bounds(tree, scale, threshold, beta, trips=trips if known_total else None)
    errors = [level["max_abs_error"] for level in truth.compute_errors(leaves)]
    assert all(error <= bound for error, bound in zip(errors, bounds, strict=True))


def scale_whose_bound_is(tree: FlowTree, largest: int, trips: int | None) -> tuple[Fraction, Fraction]:
    """A scale and a beta for which 2 P a^t / (1 + a) crosses beta between t = largest and largest + 1."""
    positive = max(1, tree.cells(tree.depth) if trips is None else min(trips, tree.cells(tree.depth)))
    scale, ratio = Fraction(2), math.exp(-1 / 2)
    at = 2 * positive * ratio ** (largest + 0.5) / (1 + ratio)
    while at >= 1:  # a smaller scale, and the same place
        scale /= 2
        ratio = math.exp(-1 / float(scale))
        at = 2 * positive * ratio ** (largest + 0.5) / (1 + ratio)
    return scale, Fraction(max(at, 1e-300))


def test_the_second_part_of_proposition_1_by_hand():
    """Scale 2, 16 leaves: 32 a^t / (1 + a) is at most 1/20 from t = 12 on, since a^12 = 0.0025; m is 11."""
    geography = make_binary_flows(1, levels=2, trips=20).geography
    tree, ratio = FlowTree(geography, geography), math.exp(-1 / 2)
    assert 32 * ratio**12 / (1 + ratio) <= 0.05 < 32 * ratio**11 / (1 + ratio)
    bounds = compute_stability_bounds(tree, Fraction(2), 30)
    assert bounds == [leaves * (11 + 29) for leaves in (16, 8, 4, 2, 1)]
    few = compute_stability_bounds(tree, Fraction(2), 30, trips=3)  # 6 a^t / (1 + a): from t = 9 on
    assert 6 * ratio**9 / (1 + ratio) <= 0.05 < 6 * ratio**8 / (1 + ratio)
    assert few == [leaves * (8 + 29) for leaves in (3, 3, 3, 2, 1)]
