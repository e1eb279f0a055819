"""Held-out noise: two independent measurements of one, the errors they estimate, and the rule that they choose."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from od_core.flows.estimation import families, held_out, rule_choice
from od_core.flows.estimation.empirical_bayes import GridNoise
from od_core.flows.estimation.families import assign_bins
from od_core.flows.estimation.least_squares import MeasuredLevel, fit_least_squares, fit_measured_levels
from od_core.flows.estimation.rule_choice import (
    LEAST_SQUARES,
    RULES,
    choose_rule_given_earlier_flows,
    choose_rule_with_evidence,
)
from od_core.flows.estimation.shrinkage import Rule, estimate_trips_by_rule, shrink
from od_core.flows.release import run_plan
from od_core.geography import flow_tree
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import SeededNoise, no_noise
from tests.od_core.flows.estimation.test_empirical_bayes import counts_of, dense, most_likely
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
    return plan, fit_least_squares(plan, counts.total, release.measured)


def truth_of(world, plan, levels):
    """True trips of the measured leaves."""
    exact = run_plan(plan_of(world, epsilon="10000"), counts_of(plan, world), no_noise(), MemoryMeasurements())
    return dense(plan, exact)[levels[-1].nodes.origin, levels[-1].nodes.destination]


# What the halves show, once more


def halves(levels, turn=0):
    """The levels as measured with new public noise of their variance added, and with it taken off."""
    words, made = np.random.Philox(20010101).jumped(turn), ([], [])
    for level in levels:
        noise = np.zeros(len(level.noisy))
        if 0 < level.noise < math.inf:
            quantiles = held_out.compute_normal_quantiles()[words.random_raw(len(noise)) >> np.uint64(48)]
            noise = np.rint(quantiles * math.sqrt(level.noise))
        for half, sign in zip(made, (1, -1), strict=True):
            given = level.nodes, level.offsets, level.divided, level.noisy + sign * noise, 2 * level.noise
            half.append(MeasuredLevel(*given))
    return made


def losses(variance, y, tables):
    """Estimated total error of each of two tables, and its share of false discoveries: by Bayes' rule, in groups."""
    noise = GridNoise.from_variance(Fraction(variance))
    base, other = (np.searchsorted([0, 0.25, 1, 4], table / noise.sigma) for table in tables)
    group = assign_bins(np.bincount(5 * base + other, minlength=25), 300)[5 * base + other]
    point = np.maximum((y + noise.step // 2) // noise.step - noise.low, 0).astype(int)
    grid, sizes, known = np.arange(len(noise.likelihood)), np.arange(3 * noise.points), point < noise.points
    counts = np.array([np.bincount(point[known & (group == one)], minlength=noise.points) for one in set(group)])
    start = most_likely(noise, counts.sum(axis=0), np.append(0.5, np.full(len(grid) - 1, 0.5 / (len(grid) - 1))), 150)
    errors, false = np.abs(np.array(tables) - y), np.zeros((2, len(y)))
    for one, own in enumerate(counts):
        weight = most_likely(noise, own, start, 150)[:, None] * noise.likelihood
        for x in np.flatnonzero(own):
            chances = weight[:, x] / weight[:, x].sum()
            cells = np.flatnonzero((group == one) & (point == x))
            of_size = np.abs(sizes[:, None] - grid) @ chances
            for k, table in enumerate(tables):
                errors[k, cells] = np.interp(table[cells] / noise.step, sizes, of_size) * noise.step
                false[k, cells] = chances[0] * (table[cells] > 0)
    return errors.sum(axis=1), false.sum(axis=1) / [max(np.count_nonzero(table), 1) for table in tables]


def increase(measured, base, table):
    """Of the squared error in the 100 cells that differ most, and those that differ as much; and its variance."""
    y, sizes = measured.noisy, np.abs(table - base)
    most = sizes >= max(1, np.sort(sizes)[-100:].min())
    return ((table - y) ** 2 - (base - y) ** 2)[most].sum(), 4 * measured.noise * (sizes[most] ** 2.0).sum()


def shown(plan, levels, base=LEAST_SQUARES, earlier=None, turn=0, leaves=slice(None)):
    """Errors, shares of false discoveries and increases of each rule, by whole tables; of the leaves, only of some."""
    errors, false = np.zeros((2, len(RULES), 2))
    increases, both = np.zeros((2, len(RULES), len(levels))), halves(levels, turn)
    for half, (*above, last) in (both, both[::-1]):
        others = [*above, replace(last, noisy=last.noisy[leaves])]
        *by_base, of_leaves = shrink(plan, fit_measured_levels(half), base, earlier)
        by_base.append(of_leaves[leaves])
        for k, rule in enumerate(RULES):
            *tables, of_leaves = shrink(plan, fit_measured_levels(half), rule, earlier)
            tables.append(of_leaves[leaves])
            found = losses(last.noise, others[-1].noisy, (by_base[-1], tables[-1]))
            errors[k] += found[0]
            false[k] += found[1]
            increases[:, k] += np.transpose(list(map(increase, others, by_base, tables)))
    return errors, false, increases


def best(errors, false, increases, base=LEAST_SQUARES):
    """The rule that saves most and at least 3 %, without false discoveries or harm in the largest cells."""
    fine = (increases[0] <= 2 * np.sqrt(increases[1])).all(axis=1) & (false[:, 1] <= 1.1 * false[:, 0])
    saved = np.where(fine, 1 - errors[:, 1] / errors[:, 0], 0)
    return RULES[saved.argmax()] if saved.max() > 0.03 else base


def assert_is_evidence(sums, errors, false, increases):
    """Parts of the error that are saved, false discoveries, and increases in deviations, in millionths."""
    spread = np.sqrt(increases[1])
    scores = np.divide(increases[0], spread, out=np.zeros_like(spread), where=spread > 0)
    expected = np.column_stack([1 - errors[:, 1] / errors[:, 0], false / 2, scores])
    np.testing.assert_allclose(sums / 1e6, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.representatives("world0-1")
@pytest.mark.parametrize(("world", "epsilon"), [(SPARSE, "1"), (SPARSE, "0.2"), (EVEN, "1"), (ROUGH, "1")])
def test_the_evidence_and_the_choice_are_those_of_whole_tables_and_bayes_rule(world, epsilon):
    """On grids of 2 and of 10 trips, between which errors are interpolated."""
    for seed in (2, 3):
        plan, levels = fitted_of(world, epsilon, seed)
        choice, found = choose_rule_with_evidence(plan, levels), shown(plan, levels)
        assert_is_evidence(choice.evidence.sums, *found)
        assert choice.rule == best(*found)


def test_rules_are_compared_in_some_families_of_leaves_if_there_are_many(monkeypatch):
    """All other leaves have no part in the evidence."""
    plan, levels = fitted_of(SPARSE, "1", 2)
    monkeypatch.setattr(rule_choice, "_MAX_COMPARED_LEAVES", 1200)
    words = np.random.Philox(20010102).random_raw(len(levels[-1].offsets) - 1) >> np.uint64(32)
    sizes = np.diff(levels[-1].offsets)
    leaves = np.repeat(words < (1200 << 31) // sizes.sum(), sizes)
    assert 300 < leaves.sum() < 1000
    assert_is_evidence(choose_rule_with_evidence(plan, levels).evidence.sums, *shown(plan, levels, leaves=leaves))


def test_the_halves_are_independent():
    """Correlation of 40,000 pairs of deviations: beyond 0.025 in absolute value with a probability below 1e-6."""
    plan, levels = fitted_of(SPARSE, "1", 1)
    truth, each = truth_of(SPARSE, plan, levels), []
    for seed in range(25):
        _, levels = fitted_of(SPARSE, "1", seed)
        each.append([half[-1].noisy - truth for half in halves(levels)])
    first, second = (np.concatenate(part) / math.sqrt(2 * levels[-1].noise) for part in zip(*each, strict=True))
    assert len(first) == 40_000
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.025
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 0.025
    assert first.var() == pytest.approx(1, abs=0.04)


@pytest.mark.parametrize("world", [EVEN, SMOOTH], ids=["even", "smooth"])
def test_estimated_errors_are_near_the_true_ones(world):
    """Of least squares and of a rule, both made from one half and scored with the other: within a fifth of the truth.

    No flow is so large that its error is not estimated but taken from the measurement.
    """
    plan, levels = fitted_of(world, "0.5", 4)
    truth = truth_of(world, plan, levels)
    to_fit, others = halves(levels)
    half, other = fit_measured_levels(to_fit), others[-1]
    tables = shrink(plan, half, LEAST_SQUARES)[-1], shrink(plan, half, Rule(u=Fraction(1)))[-1]
    errors, false = losses(other.noise, other.noisy, tables)
    for table, error in zip(tables, errors, strict=True):
        assert error == pytest.approx(np.abs(table - truth).sum(), rel=0.2)
    assert all(0 <= share <= 1 for share in false)


# The choice


@pytest.mark.parametrize("place", [-1, -3])
def test_a_rule_that_makes_the_largest_departures_worse_at_any_level_is_not_chosen(place, monkeypatch):
    """By rules that move 20 cells of one level by three standard deviations, and are otherwise as good as before."""
    plan, levels = fitted_of(SPARSE, "1", 2)
    assert choose_rule_given_earlier_flows(plan, levels) in RULES

    def worse(plan, given, rule):
        tables = estimate_trips_by_rule(plan, given, rule)
        if rule.learns:
            tables[place] = tables[place].copy()
            tables[place][:20] += round(3 * math.sqrt(2 * levels[place].noise))
        return tables

    monkeypatch.setattr("od_core.flows.estimation.rule_choice.estimate_trips_by_rule", worse)
    assert choose_rule_given_earlier_flows(plan, levels) == LEAST_SQUARES


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
        earlier, alone = leaves_before(world, "0.5", seed + 9), choose_rule_given_earlier_flows(plan, levels)
        rule = choose_rule_given_earlier_flows(plan, levels, earlier)
        assert rule == best(*shown(plan, levels, alone, earlier), alone)
        assert rule.learns
        chosen.add(alone.learns)
    assert chosen == {world is SPARSE}


@pytest.mark.representatives("1500")
@pytest.mark.parametrize("most", [1 << 21, 1500])
def test_the_choice_is_the_same_for_the_same_measurements(most, monkeypatch):
    """With one thread and large pieces, and with three and small ones."""
    plan, levels = fitted_of(SPARSE, "1", 2)
    monkeypatch.setattr(rule_choice, "_MAX_COMPARED_LEAVES", most)
    monkeypatch.setenv("OD_THREADS", "1")
    first = choose_rule_given_earlier_flows(plan, levels)
    for module in (flow_tree, families):
        monkeypatch.setattr(module, "CHILDREN_AT_ONCE", 41)
    monkeypatch.setenv("OD_THREADS", "3")
    assert choose_rule_given_earlier_flows(plan, fitted_of(SPARSE, "1", 2)[1]) == first in RULES


def test_a_table_too_small_to_learn_from_is_left_to_least_squares():
    zones = [("a", "a1"), ("a", "a2"), ("b", "b1")]
    world = World(zones, zones, {(one, two): 9 for one in zones for two in zones})
    assert choose_rule_given_earlier_flows(*fitted_of(world, "1", 1)) == LEAST_SQUARES


def test_a_release_with_estimate_auto_is_estimated_by_the_chosen_rule():
    for world, epsilon in ((SPARSE, "1"), (EVEN, "0.5")):
        auto = plan_of(world, estimate="auto", epsilon=epsilon)
        release = run_plan(auto, counts_of(auto, world), SeededNoise(7), MemoryMeasurements())
        plan, levels = fitted_of(world, epsilon, 7)
        rule = choose_rule_given_earlier_flows(plan, levels)
        options = {"leaves": "empirical_bayes", "u": str(rule.u)} if rule.u is not None else {}
        same = plan_of(world, estimate="shrunk" if rule.learns else "least_squares", epsilon=epsilon, **options)
        again = run_plan(same, counts_of(same, world), SeededNoise(7), MemoryMeasurements())
        assert np.array_equal(dense(auto, release), dense(same, again))
