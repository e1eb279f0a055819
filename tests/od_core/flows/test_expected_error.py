"""Expected errors against dense linear algebra, exact enumeration and simulated releases."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from od_core import Budget, FlowTree, PrivacyUnit, plan_release
from od_core.flows import accuracy
from od_core.flows.accuracy import compute_expected_errors, compute_largest_variances, find_most_leaf_pairs
from od_core.flows.projection.onto_parents import project_children
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips
from tests.od_core.doubles import no_noise
from tests.od_core.oracles.variances import level_rows, top_down, with_exact_sum
from tests.od_core.strategies import TREES, World, frame_of, geography_of, zone_lists

LARGE = 10**12
"""Variances this large leave nothing of what rounding adds, which is below 1 a level."""

CHAIN = World([("A", "a"), ("B", "b")], [("C", "c"), ("D", "d"), ("E", "e")], {})
"""The lower level says nothing that the upper one does not: levels 1 and 2 follow from 3 and 4, or are measured too."""


@st.composite
def small_worlds(draw):
    depth = draw(st.integers(1, 3))
    origins, destinations = (draw(zone_lists(depth, max_fan_out=4 - depth)) for _ in range(2))
    return World(origins, destinations, {})


@st.composite
def problems(draw):
    """A small tree and large variances: the root noised or not, and levels left out that follow from those below."""
    world, order = draw(small_worlds()), draw(st.sampled_from(TREES))
    tree, _ = world.trees(order)
    assume(sum(map(tree.cells, range(tree.depth + 1))) < 300)
    variances = {level: Fraction(draw(st.integers(1, 40)) * LARGE) for level in range(tree.depth + 1)}
    implied = [level for level in range(1, tree.depth) if tree.cells(level) == tree.cells(level + 1)]
    for level in [0, *implied]:
        if draw(st.booleans()):
            event("root known" if level == 0 else "a level follows")
            del variances[level]
    return world, order, variances


def chain(*measured):
    return CHAIN, "destination", {level: Fraction((level + 1) * LARGE) for level in measured}


def root_mean_square(values) -> float:
    return float(np.mean(np.square(np.asarray(values, dtype=float))) ** 0.5)


def least_squares_variances(tree: FlowTree, variances) -> list[np.ndarray]:
    """Of all nodes of each level, given an equation for every measured one; a root without noise is known."""
    rows = [level_rows(tree, level) for level in range(tree.depth + 1)]
    covariance = np.linalg.inv(sum(rows[k].T @ rows[k] * float(LARGE / variances[k]) for k in variances))
    covariance = covariance if 0 in variances else with_exact_sum(covariance)
    return [np.einsum("ij,jk,ik->i", each, covariance, each) * LARGE for each in rows]


def top_down_variances(tree: FlowTree, variances) -> list[np.ndarray]:
    """Of estimates as coefficients of all measured values: each node's own, evenly shifted to the parent."""
    spread, estimates = top_down(tree, variances)
    return [each**2 @ spread for each in estimates]


@given(problem=problems(), refined=st.booleans())
@example(problem=chain(0, 3, 4), refined=True)
@example(problem=chain(1, 4), refined=False)
@example(problem=chain(0, 1, 2, 3, 4), refined=True)
def test_linear_estimates_have_the_errors_of_dense_linear_algebra(problem, refined):
    world, order, variances = problem
    tree, _ = world.trees(order)
    assume(1 in variances or tree.cells(1) == tree.cells(2))
    of_levels = (least_squares_variances if refined else top_down_variances)(tree, variances)
    expected = [max(float(each.mean()), 0.0) ** 0.5 for each in of_levels]  # dense algebra rounds below 0
    found, near = compute_expected_errors(tree, variances, refined=refined), LARGE**0.5 * 1e-6
    assert found == pytest.approx(expected, rel=1e-7, abs=near)


@given(problem=problems())
@example(problem=chain(0, 3, 4))
@example(problem=chain(1, 4))
def test_the_largest_variance_of_a_level_is_that_of_dense_linear_algebra(problem):
    world, order, variances = problem
    tree, _ = world.trees(order)
    assume(1 in variances or tree.cells(1) == tree.cells(2))
    expected = [each.max() for each in least_squares_variances(tree, variances)]
    assert compute_largest_variances(tree, variances) == pytest.approx(expected, rel=1e-7, abs=LARGE * 1e-9)


@given(world=small_worlds(), order=st.sampled_from(TREES))
def test_the_largest_sum_of_leaves_has_all_leaves_below_a_node(world, order):
    tree, reference = world.trees(order)
    leaves = dict.fromkeys(reference.levels()[-1], 1)
    for nodes in reversed(reference.levels()[:-1]):
        leaves |= {node: sum(leaves[child] for child in reference.children(node)) for node in nodes}
    expected = [max(leaves[node] for node in nodes) for nodes in reference.levels()]
    assert [find_most_leaf_pairs(tree, level) for level in range(tree.depth + 1)] == expected


def discrete_gaussian(variance: float, reach: int):
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * variance))
    return values, weights / weights.sum()


@pytest.mark.parametrize(("siblings", "sigma", "reach"), [(2, 0.6, 4), (2, 2, 12), (3, 0.6, 4), (3, 2, 11), (4, 1, 5)])
def test_errors_of_one_family_are_those_of_all_possible_noises(siblings, sigma, reach):
    """Every vector of noise with its probability, below a known parent; siblings far apart, and equal ones."""
    tree = FlowTree(geography_of([("all zones",)]), geography_of([(f"z{i}",) for i in range(siblings)]))
    predicted = compute_expected_errors(tree, dict.fromkeys([1, 2], Fraction(str(sigma)) ** 2), refined=False)[1]
    values, law = discrete_gaussian(sigma**2, reach)
    noise = np.array(np.meshgrid(*[values] * siblings)).reshape(siblings, -1).T
    probability = np.prod(law[noise + reach], axis=1)
    offsets = np.arange(len(noise) + 1) * siblings
    errors = {}
    for name, truth in (("apart", 1000 * np.arange(1, siblings + 1)), ("equal", np.full(siblings, 1000))):
        totals = np.full(len(noise), truth.sum())
        released = project_children((truth + noise).ravel(), totals, offsets).reshape(noise.shape)
        errors[name] = float(probability @ np.mean((released - truth) ** 2, axis=1)) ** 0.5
    assert predicted == pytest.approx(errors["apart"], rel=0.04 if sigma < 1 else 0.01)
    assert 1.1 < errors["equal"] / errors["apart"] < 1.35


@pytest.mark.parametrize("refined", [False, True])
def test_the_only_zones_are_known_with_the_total(refined):
    one = geography_of([("zone",)])
    for above, below in product(range(1, 20), repeat=2):
        variances = {1: Fraction(1, above), 2: Fraction(1, below)}
        errors = compute_expected_errors(FlowTree(one, one), variances, refined=refined)
        assert [type(error) for error in errors] == [float] * 3  # the root of a rounding error below 0 is complex
        assert errors == pytest.approx([0, 0, 0], abs=1e-6)


def test_a_refined_root_is_rounded():
    """One zone, measured at every level: the rounded mean of three values, 200,000 times with a fixed seed."""
    one = geography_of([("zone",)])
    variances = {0: Fraction(3), 1: Fraction(7), 2: Fraction(5)}
    generator, z = np.random.default_rng(4), np.zeros(200_000)
    for variance in map(float, variances.values()):
        values, law = discrete_gaussian(variance, 30)
        z += generator.choice(values, len(z), p=law) / variance
    z /= sum(1 / float(variance) for variance in variances.values())
    expected = compute_expected_errors(FlowTree(one, one), variances, refined=True)
    assert expected == pytest.approx([root_mean_square(np.rint(z))] * 3, rel=0.008)


def predicts(measured, tree, variances, *, refined, within) -> bool:
    """Whether the measured errors of the levels below the root are those expected."""
    expected = compute_expected_errors(tree, variances, refined=refined)[1:]
    return bool(np.all(np.abs(np.divide(expected, measured) - 1) < within))


@pytest.mark.representatives("1-inftda_refined")
@pytest.mark.parametrize("mechanism", ["inftda", "inftda_refined"])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "10"])
def test_releases_have_the_expected_errors(epsilon, mechanism):
    """Of 140 releases: the 4,340 free errors of level 1 tell theirs to 1.1 %, so 7 % fails with less than 1e-6."""
    regions, zones_each, releases = 32, 2, 140
    zones = [(f"r{r}", f"r{r}z{z}") for r in range(regions) for z in range(zones_each)]
    flows = {pair: 5_000 + i * 7_919 % 90_001 for i, pair in enumerate(product(zones, zones))}
    unit = PrivacyUnit("trip")
    budget = Budget(epsilon=epsilon, delta="1e-8")
    plan = plan_release(geography_of(zones), unit=unit, budget=budget, mechanism=mechanism, acceptance=NO_FAULTS)
    trips = count_trips(frame_of(flows), plan.tree, unit=unit, key=b"k" * 32)

    def levels(noise):
        leaves = run_plan(plan, trips, noise, MemoryMeasurements()).leaves
        pairs = map(plan.tree.level_pair, range(1, plan.tree.depth + 1))
        return [plan.tree.sum_trips(leaves, *pair)[2] for pair in pairs]

    truth, table = levels(no_noise()), resolve_noise_source("table")
    squares = np.zeros(plan.tree.depth)
    for _ in range(releases):
        squares += [np.mean((found - true) ** 2) for found, true in zip(levels(table), truth, strict=True)]
    measured = np.sqrt(squares / releases)

    variances = {step.level: step.variance for step in plan.steps}
    refined = plan.mechanism.refines
    assert plan.expected_errors == compute_expected_errors(plan.tree, variances, refined=refined)
    assert predicts(measured, plan.tree, variances, refined=refined, within=0.07)
    wider = {level: variance * Fraction(4, 3) for level, variance in variances.items()}
    assert not predicts(measured, plan.tree, wider, refined=refined, within=0.07)


@pytest.mark.parametrize("refined", [False, True])
def test_more_shapes_than_are_told_apart(monkeypatch, refined):
    """Areas of about as many zones count as one shape: near the exact errors, in less."""
    generator = np.random.default_rng(11)
    fan_outs = generator.geometric(0.2, 40)
    towns = [(f"r{r}", f"r{r}t{t}") for r, size in enumerate(fan_outs) for t in range(size)]
    zones = [(*town, f"{town[1]}z{z}") for town in towns for z in range(generator.geometric(0.3))]
    geography = geography_of(zones)
    tree = FlowTree(geography, geography)
    variances = {level: Fraction(100) for level in range(1, 7)}
    exact = compute_expected_errors(tree, variances, refined=refined)
    assert max(map(len, accuracy.group_areas_by_shape(geography).areas)) > 30
    monkeypatch.setattr(accuracy, "MAX_SHAPES", 12)
    merged = accuracy.group_areas_by_shape(geography)
    assert max(map(len, merged.areas)) == 12
    assert [areas.sum() for areas in merged.areas] == [geography.size(level) for level in range(4)]
    assert compute_expected_errors(tree, variances, refined=refined) == pytest.approx(exact, rel=0.03)


def test_areas_are_of_one_shape_whatever_the_order_of_their_children():
    fan_outs = {"A": (1, 2), "B": (2, 1), "C": (1, 1), "D": (3,)}
    towns = [(r, f"{r}{t}", zones) for r, sizes in fan_outs.items() for t, zones in enumerate(sizes)]
    zones = [(r, town, f"{town}{z}") for r, town, number in towns for z in range(number)]
    shapes = accuracy.group_areas_by_shape(geography_of(zones))
    assert [sorted(areas) for areas in shapes.areas] == [[1], [1, 1, 2], [1, 2, 4], [11]]
