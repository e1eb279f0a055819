"""Held-out noise: two independent measurements of one, the errors they estimate, and the rule that they choose."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.flows.estimation import families, held_out
from od_core.flows.estimation.empirical_bayes import GridNoise
from od_core.flows.estimation.families import families_of
from od_core.flows.estimation.held_out import (
    LEAST_SQUARES,
    RULES,
    _expect,
    _expected,
    _halves,
    _held_out,
    _increase,
    _losses,
    _places,
    chosen_rule,
)
from od_core.flows.estimation.least_squares import fit, least_squares
from od_core.flows.estimation.shrinkage import Prediction, Rule, predicted, shrink, trips_by_rule
from od_core.flows.release import run_plan
from od_core.geography import flow_tree
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import SeededNoise, no_noise
from tests.od_core.flows.estimation.test_empirical_bayes import counts_of, dense
from tests.od_core.flows.estimation.test_shrinkage import plan_of
from tests.od_core.strategies import World


def world_of(near, per_pair, seed=3):
    """Trips between 40 zones of different size; ``near`` is the shape of the gamma law of how near two zones are."""
    zones = [(f"s{k // 5}", f"s{k // 5}z{k:02}") for k in range(40)]
    random = np.random.default_rng(seed)
    size = random.pareto(1.5, 40) + 0.2 if near else np.ones(40)
    factor = random.gamma(near, 1 / near, (40, 40)) if near else random.uniform(0.7, 1.3, (40, 40))
    factor = np.triu(factor) + np.triu(factor, 1).T
    flows = {(zones[i], zones[j]): int(random.poisson(per_pair * size[i] * size[j] * factor[i, j])) for i, j in PAIRS}
    return World(zones, zones, {pair: trips for pair, trips in flows.items() if trips})


PAIRS = list(product(range(40), repeat=2))
SPARSE, EVEN = world_of(0.05, 30), world_of(0, 30)


def without_structure(shape, mean, seed=3):
    """Trips between 40 zones that say nothing about each other: of a gamma law for each pair by itself."""
    zones, random = EVEN.origins, np.random.default_rng(seed)
    flows = {(zones[i], zones[j]): int(random.gamma(shape, mean / shape)) for i, j in PAIRS}
    return World(zones, zones, {pair: trips for pair, trips in flows.items() if trips})


SMOOTH, ROUGH = without_structure(1, 10), without_structure(0.3, 60)


def fitted_of(world, epsilon, seed):
    plan = plan_of(world, estimate="least_squares", epsilon=epsilon)
    counts = counts_of(plan, world)
    release = run_plan(plan, counts, SeededNoise(seed), MemoryMeasurements())
    return plan, least_squares(plan, counts.total, release.measured)


def truth_of(world, plan, levels):
    """True trips of the measured leaves."""
    exact = run_plan(plan_of(world, epsilon="10000"), counts_of(plan, world), no_noise(), MemoryMeasurements())
    return dense(plan, exact)[levels[-1].nodes.origin, levels[-1].nodes.destination]


# The halves


def test_the_halves_are_independent_measurements_of_twice_the_variance_whose_mean_is_the_measurement():
    """Correlation of 40,000 pairs of deviations: beyond 0.025 in absolute value with a probability below 1e-6."""
    plan, levels = fitted_of(SPARSE, "1", 1)
    truth, each = truth_of(SPARSE, plan, levels), []
    for seed in range(25):
        _, levels = fitted_of(SPARSE, "1", seed)
        one, other = _halves(levels)
        for own, theirs, level in zip(one, other, levels, strict=True):
            assert np.array_equal(own.noisy + theirs.noisy, 2 * level.noisy)
            assert own.noise == theirs.noise == 2 * level.noise
        some = np.arange(0, len(levels[-1].nodes), 3)
        for half, others in ((one, other), (other, one)):
            *above, last = _held_out(levels, half, some)
            for own, theirs in zip(above, others, strict=False):
                assert np.array_equal(own.noisy, theirs.noisy)
                assert own.noise == theirs.noise
            assert np.array_equal(last.noisy, others[-1].noisy[some])
        assert np.array_equal(one[0].noisy, levels[0].noisy)  # the exact total
        each.append((one[-1].noisy - truth, other[-1].noisy - truth))
    first, second = (np.concatenate(part) / math.sqrt(2 * levels[-1].noise) for part in zip(*each, strict=True))
    assert len(first) == 40_000
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.025
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 0.025
    assert first.var() == pytest.approx(1, abs=0.04)


# The errors


@given(
    law=st.lists(st.integers(0, 5), min_size=3, max_size=12).filter(any),
    x=st.integers(-8, 20),
)
def test_the_expected_error_and_the_probability_of_none_are_those_of_bayes_rule(law, x):
    noise = GridNoise.of(Fraction(9))
    prior = np.zeros(len(noise.likelihood))
    prior[: len(law)] = np.array(law) / sum(law)
    loss, zero = _expect(np.ascontiguousarray(noise.likelihood.T), prior, np.ones(noise.points, np.int64))
    weight = np.array([prior[n] * math.exp(-((x - n) ** 2) / 18) for n in range(len(prior))])
    expected = [(weight * abs(s - np.arange(len(prior)))).sum() / weight.sum() for s in range(len(prior))]
    assert np.allclose(loss[x - noise.low], expected, rtol=1e-9, atol=1e-12)
    assert zero[x - noise.low] == pytest.approx(weight[0] / weight.sum())


def test_errors_are_interpolated_between_points_and_taken_from_the_measurement_beyond_them():
    """For two tables. There are 2 points on the grid of measurements, 2 trips apart."""
    loss, zero = np.zeros((1, 2, 3)), np.array([[0.5, 0.25]])
    loss[0] = [[0, 1, 2], [5, 3, 4]]
    table, y = np.array([0, 3, 5, 100]), np.array([0.0, 2.0, 2.9, 90.0])
    better = np.array([2, 3, 5, 99])
    noise = SimpleNamespace(sigma=1.0, step=2, low=0)
    _, point = _places(noise, y, table, better)
    group = np.zeros(4, dtype=np.int64)
    errors, false = zip(*(_expected(2, y, trips, group, point, loss, zero) for trips in (table, better)), strict=True)
    assert errors == pytest.approx([2 * 0 + 2 * 3.5 + 2 * 4.5 + 10, 2 * 1 + 2 * 3.5 + 2 * 4.5 + 9])
    assert false == pytest.approx([(0.25 + 0.25) / 3, (0.5 + 0.25 + 0.25) / 4])


@pytest.mark.parametrize("world", [EVEN, SMOOTH], ids=["even", "smooth"])
def test_estimated_errors_are_near_the_true_ones(world):
    """Of least squares and of a rule, both made from one half and scored with the other: within a fifth of the truth.

    No flow is so large that its error is not estimated but taken from the measurement.
    """
    plan, levels = fitted_of(world, "0.5", 4)
    truth = truth_of(world, plan, levels)
    to_fit, others = _halves(levels)
    half, other = fit(to_fit), others[-1]
    tables = shrink(plan, half, LEAST_SQUARES)[-1], shrink(plan, half, Rule(u=Fraction(1)))[-1]
    errors, false = _losses(GridNoise.of(Fraction(other.noise)), other.noisy, tables)
    for table, error in zip(tables, errors, strict=True):
        assert error == pytest.approx(np.abs(table - truth).sum(), rel=0.2)
    assert all(0 <= share <= 1 for share in false)


# The choice


@pytest.mark.parametrize("place", [-1, -3])
def test_a_rule_that_makes_the_largest_departures_worse_at_any_level_is_not_chosen(place, monkeypatch):
    """By rules that move 20 cells of one level by three standard deviations, and are otherwise as good as before."""
    plan, levels = fitted_of(SPARSE, "1", 2)
    assert chosen_rule(plan, levels) in RULES

    def worse(plan, given, rule):
        tables = trips_by_rule(plan, given, rule)
        if rule.learns:
            tables[place] = tables[place].copy()
            tables[place][:20] += round(3 * math.sqrt(2 * levels[place].noise))
        return tables

    monkeypatch.setattr("od_core.flows.estimation.held_out.trips_by_rule", worse)
    assert chosen_rule(plan, levels) == LEAST_SQUARES


@given(
    cells=st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40),
    number=st.integers(1, 12),
)
def test_the_increase_is_that_of_the_cells_with_the_largest_differences_and_those_with_equal_ones(cells, number):
    noisy, base, table = np.array(cells).T
    sizes = sorted((abs(r - b) for _, b, r in cells), reverse=True)
    least = max(1, sizes[number - 1] if number <= len(sizes) else 0)
    most = [(y, b, r) for y, b, r in cells if abs(r - b) >= least]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "_LARGEST", number)
        found, spread = _increase(SimpleNamespace(noisy=noisy.astype(float), noise=2.0), base, table)
    assert found == sum((r - y) ** 2 - (b - y) ** 2 for y, b, r in most)
    assert spread == 8 * sum((r - b) ** 2 for _, b, r in most)


def reference_choice(plan, levels, base=LEAST_SQUARES, earlier=None):
    """The choice by whole tables of :func:`shrink`, with nothing shared between rules."""
    errors, false = np.zeros((2, len(RULES), 2))
    increase = np.zeros((2, len(RULES), len(levels)))
    halves = list(_halves(levels))
    for half, other in (halves, halves[::-1]):
        by_base = shrink(plan, fit(half), base, earlier)
        for k, rule in enumerate(RULES):
            tables = shrink(plan, fit(half), rule, earlier)
            of_leaves = _losses(GridNoise.of(Fraction(other[-1].noise)), other[-1].noisy, (by_base[-1], tables[-1]))
            errors[k] += of_leaves[0]
            false[k] += of_leaves[1]
            increase[:, k] += np.transpose(list(map(_increase, other, by_base, tables)))
    fine = (increase[0] <= 2 * np.sqrt(increase[1])).all(axis=1) & (false[:, 1] <= 1.1 * false[:, 0])
    saved = np.where(fine, 1 - errors[:, 1] / errors[:, 0], 0)
    return RULES[saved.argmax()] if saved.max() > 0.03 else base


@pytest.mark.representatives("world0-1")
@pytest.mark.parametrize(("world", "epsilon"), [(SPARSE, "1"), (SPARSE, "0.2"), (EVEN, "1"), (ROUGH, "1")])
def test_what_rules_share_does_not_change_the_choice(world, epsilon):
    for seed in (2, 3):
        plan, levels = fitted_of(world, epsilon, seed)
        assert chosen_rule(plan, levels) == reference_choice(plan, levels)


def leaves_before(world, epsilon, seed):
    """Released leaves of the same trips, by other noise."""
    plan = plan_of(world, estimate="least_squares", epsilon=epsilon)
    return run_plan(plan, counts_of(plan, world), SeededNoise(seed), MemoryMeasurements()).leaves


@pytest.mark.slow
@pytest.mark.parametrize(("world", "seeds"), [(SPARSE, (2, 3)), (ROUGH, (0, 1))])
def test_with_an_earlier_table_rules_are_compared_with_the_one_that_is_best_without(world, seeds):
    """With the same rule, learning from that table; with least squares if no rule is better without it."""
    chosen = set()
    for seed in seeds:
        plan, levels = fitted_of(world, "0.5", seed)
        earlier, alone = leaves_before(world, "0.5", seed + 9), chosen_rule(plan, levels)
        rule = chosen_rule(plan, levels, earlier)
        assert rule == reference_choice(plan, levels, alone, earlier)
        assert rule.learns
        chosen.add(alone.learns)
    assert chosen == {world is SPARSE}


@pytest.mark.representatives("1500")
@pytest.mark.parametrize("most", [1 << 21, 1500])
def test_the_choice_is_the_same_for_the_same_measurements(most, monkeypatch):
    """With one thread and large pieces, and with three and small ones."""
    plan, levels = fitted_of(SPARSE, "1", 2)
    monkeypatch.setattr(held_out, "_MOST_COMPARED", most)
    monkeypatch.setenv("OD_THREADS", "1")
    first = chosen_rule(plan, levels)
    for module in (flow_tree, families):
        monkeypatch.setattr(module, "CHILDREN_AT_ONCE", 41)
    monkeypatch.setenv("OD_THREADS", "3")
    assert chosen_rule(plan, fitted_of(SPARSE, "1", 2)[1]) == first in RULES


def test_rules_are_compared_in_some_families_of_leaves_if_there_are_many(monkeypatch):
    """In those leaves, they have the trips of the whole table; other leaves do not count."""
    plan, levels = fitted_of(SPARSE, "1", 2)
    monkeypatch.setattr(held_out, "_MOST_COMPARED", 1200)
    sample = held_out._sampled_families(levels)
    each = list(families_of(plan, levels))
    leaves = each[-1].children_of(sample)
    ends = zip(levels[-1].offsets[sample], levels[-1].offsets[sample + 1], strict=True)
    assert leaves.tolist() == [i for first, last in ends for i in range(first, last)]
    assert 300 < len(leaves) < 1000
    for rule in (Rule(), Rule(u=Fraction(1)), LEAST_SQUARES):
        whole = predicted(levels, each, None) if rule.learns else Prediction.of(levels, each, ())
        some = whole.of_some_leaves(sample)
        *above, last = trips_by_rule(plan, some, rule)
        *same, every = trips_by_rule(plan, whole, rule)
        assert np.array_equal(last, every[leaves])
        assert all(map(np.array_equal, above, same))


def test_a_table_too_small_to_learn_from_is_left_to_least_squares():
    zones = [("a", "a1"), ("a", "a2"), ("b", "b1")]
    world = World(zones, zones, {(one, two): 9 for one in zones for two in zones})
    assert chosen_rule(*fitted_of(world, "1", 1)) == LEAST_SQUARES


def test_a_release_with_estimate_auto_is_estimated_by_the_chosen_rule():
    for world, epsilon in ((SPARSE, "1"), (EVEN, "0.5")):
        auto = plan_of(world, estimate="auto", epsilon=epsilon)
        release = run_plan(auto, counts_of(auto, world), SeededNoise(7), MemoryMeasurements())
        plan, levels = fitted_of(world, epsilon, 7)
        rule = chosen_rule(plan, levels)
        options = {"leaves": "empirical_bayes", "u": str(rule.u)} if rule.u is not None else {}
        same = plan_of(world, estimate="shrunk" if rule.learns else "least_squares", epsilon=epsilon, **options)
        again = run_plan(same, counts_of(same, world), SeededNoise(7), MemoryMeasurements())
        assert np.array_equal(dense(auto, release), dense(same, again))
