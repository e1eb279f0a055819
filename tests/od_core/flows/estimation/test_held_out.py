"""Measurements with Laplace noise in two parts: exact laws, errors without bias, and the rule that they choose."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from od_core import Budget, InfTDARefined, PrivacyUnit, plan_release
from od_core.evaluation.forecast import arrange_counts_for_plan
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.estimation import rule_choice
from od_core.flows.estimation.held_out import GaussianHalves, LaplaceHalves, Shown, compute_decay, iterate_halves
from od_core.flows.estimation.least_squares import build_measured_levels
from od_core.flows.estimation.levels import combine_totals, select_area_totals
from od_core.flows.estimation.rule_choice import (
    LEAST_SQUARES,
    RULES,
    choose_rule_given_earlier_flows,
    choose_rule_with_evidence,
    read_earlier_evidence,
)
from od_core.flows.estimation.shrinkage import Rule, estimate_trips_by_rule, shrink
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements, NoisyVector
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.stability import bound_laplace_variance
from tests.od_core.doubles import SeededLaplace, SeededNoise
from tests.od_core.flows.estimation.test_empirical_bayes import counts_of, dense
from tests.od_core.flows.estimation.test_rule_choice import EVEN, SPARSE, assert_is_evidence, best
from tests.od_core.strategies import World, geography_of

SCALES = [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(20), Fraction(100)]


def law(decay, z):
    return (1 - decay) / (1 + decay) * decay ** np.abs(z)


def second(f, y):
    """The second difference of a function."""
    return f(y + 1) - 2 * f(y) + f(y - 1)


class Exact:
    """All outputs of a measurement that matter, with their probabilities by the definitions."""

    def __init__(self, scale):
        self.a = math.exp(-1 / scale)
        self.halves = LaplaceHalves(float(bound_laplace_variance(scale)))
        self.c = self.a / (1 - self.a) ** 2
        self.b = 1 + 1 / (4 * self.c) - math.sqrt((1 + 1 / (4 * self.c)) ** 2 - 1)  # b / (1 - b)^2 = 2 c
        self.reach = int(50 * scale) + 5

    def law_of_w(self, w):
        """D L, in floats that are exact enough where L does not vanish."""
        return np.where(w == 0, 1 / (1 + self.b), law(self.b, w) / 2)

    def outputs(self, n, x):
        """y and its probability given x."""
        y = np.arange(n - self.reach, n + self.reach + 1).astype(float)
        chances = law(self.a, y - n) * self.law_of_w(x - y)
        return y, chances / chances.sum(), chances.sum()


def functions(halves):
    """Functions of n whose means are estimated."""
    return [
        lambda n: np.abs(5 - n),
        lambda n: (5 - n) ** 2,
        lambda n: (n == 0) * 1.0,
        lambda n: halves.compute_error(5 - n),
        halves.compute_absence,
    ]


# The laws


@pytest.mark.parametrize("scale", SCALES)
def test_x_has_exactly_the_law_of_a_measurement_of_twice_the_variance(scale):
    """The law of W is D L by the definition, a probability; and the convolution with it is L."""
    exact = Exact(scale)
    assert compute_decay(float(bound_laplace_variance(scale))) == pytest.approx(exact.a, rel=1e-12)
    assert exact.halves.decay == pytest.approx(exact.b, rel=1e-9)
    w = np.arange(-40, 41)
    by_definition = law(exact.b, w) - exact.c * second(lambda z: law(exact.b, z), w)
    np.testing.assert_allclose(exact.law_of_w(w), by_definition, rtol=1e-9)
    for n, x in product((0, 1, 7), (-3, 0, 1, 9)):
        _, _, whole = exact.outputs(n, x)
        assert whole == pytest.approx(law(exact.b, x - n), rel=1e-12)


@given(scale=st.sampled_from(SCALES), words=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_w_is_the_quantile_of_its_law_that_a_word_says(scale, words):
    """Its distance is k if the part of a word is between the chances of distances beyond k and of at least k."""
    exact = Exact(scale)
    drawn = exact.halves.draw(np.array(words, dtype=np.uint64))
    for word, w in zip(words, drawn.tolist(), strict=True):
        part, k = ((word >> 12) + 1) / 2**52, abs(w)
        at_least = [exact.b**one / (1 + exact.b) if one else 1.0 for one in (k, k + 1)]
        assert at_least[1] * (1 - 1e-9) <= part <= at_least[0] * (1 + 1e-9)
        assert w <= 0 if word % 2 else w >= 0


def test_w_has_its_law():
    """Counts of 200,000 numbers against the law; failure probability 1e-6."""
    exact = Exact(Fraction(7, 2))
    drawn = exact.halves.draw(np.random.Philox(3).random_raw(200_000))
    reach = 25
    found = np.bincount(np.clip(drawn, -reach, reach).astype(int) + reach, minlength=2 * reach + 1)
    chances = exact.law_of_w(np.arange(-reach, reach + 1))
    chances[[0, -1]] = (1 - chances[1:-1].sum()) / 2
    assert stats.chisquare(found, 200_000 * chances).pvalue > 1e-6


# What is estimated


@pytest.mark.parametrize("scale", SCALES)
def test_estimates_have_the_expectation_of_the_definition_for_every_function(scale):
    """By exact sums over all outputs, for each x; and k is D[h L] / K by its definition."""
    exact = Exact(scale)
    for n, x, h in product((0, 1, 7), (-3, 0, 1, 9), functions(exact.halves)):
        y, chances, _ = exact.outputs(n, x)
        k = exact.halves.estimate(h, y, np.full_like(y, x))
        spread = math.sqrt(chances @ np.square(k))
        assert abs(chances @ k - h(np.array([float(n)]))[0]) < 1e-12 * max(1, spread)
        near = np.abs(y - x) < 30

        def product_with_law(z, h=h, x=x):
            return h(z) * law(exact.b, x - z)

        by_definition = product_with_law(y[near]) - exact.c * second(product_with_law, y[near])
        np.testing.assert_allclose(k[near], by_definition / exact.law_of_w(x - y[near]), rtol=1e-7, atol=1e-7 * spread)


@pytest.mark.parametrize("scale", SCALES[:-1])
def test_trips_are_shown_without_bias_and_with_their_variances(scale):
    """For each x by exact sums, and on average over all x."""
    exact = Exact(scale)
    mean = 0.0
    for x in range(-exact.reach, exact.reach + 1):
        y, chances, whole = exact.outputs(0, x)
        shown = exact.halves.show_trips(y, np.full_like(y, x))
        mean += whole * (chances @ shown.variances)
        if x % 7 == 0 and abs(x) <= min(21, exact.reach // 3):
            centre = chances @ shown.trips
            assert abs(centre) < 1e-10 * math.sqrt(shown.variance)
            assert chances @ shown.variances == pytest.approx(chances @ (shown.trips - centre) ** 2, rel=1e-9)
    assert shown.variance == pytest.approx(mean, rel=1e-9)


def test_little_noise_counts_exactly_and_large_noise_smoothly():
    little, large = LaplaceHalves(18.0), LaplaceHalves(5_000.0)
    n = np.arange(-5.0, 200)
    assert np.array_equal(little.compute_error(n), np.abs(n))
    assert np.array_equal(little.compute_absence(n), n <= 0)
    near = large.half_width
    assert near == 6
    means = [np.abs(k + np.arange(-near, near + 1)).mean() for k in range(20)]
    np.testing.assert_allclose(large.compute_error(np.arange(20.0)), means)
    assert large.few == 50
    np.testing.assert_allclose(large.compute_absence(np.array([-3.0, 0, 25, 50, 99])), [1, 1, 0.5, 0, 0])


@pytest.mark.parametrize("halves", [GaussianHalves(9.0), LaplaceHalves(9.0)])
def test_the_increase_of_the_squared_error_of_areas_is_that_of_their_sums(halves):
    """Of all cells, of the most different ones, and of the sums by area."""
    random = np.random.default_rng(1)
    y, x = random.integers(0, 30, (2, 40)).astype(float)
    shown, area = halves.show_trips(y, x), random.integers(0, 5, 40).astype(np.int32)
    base, table = random.integers(0, 30, (2, 40))
    d, variances = table - base, shown.variances
    each = np.full(40, shown.variance) if variances is None else variances
    value = ((table - shown.trips) ** 2 - (base - shown.trips) ** 2).sum()
    least = 4 * shown.variance * (d**2).sum()
    expected = value, max(least, 4 * (d**2 * each).sum())
    assert shown.estimate_error_increase((base, table)) == pytest.approx(expected)
    most = np.abs(d) >= np.sort(np.abs(d))[-10]
    of_most = Shown(shown.trips[most], shown.variance, None if variances is None else variances[most])
    few = of_most.estimate_error_increase((base[most], table[most]))
    assert shown.estimate_error_increase((base, table), 10) == pytest.approx(few)
    by_area = np.arange(5)[:, None] == area
    sums = shown.sum_by_area(area, 5)
    np.testing.assert_allclose(sums.trips, by_area @ shown.trips)
    np.testing.assert_allclose(sums.variances, by_area @ each)


# The choice


def plan_of(world, *, area_totals="1/5", estimate="auto", epsilon="1", distribution="laplace", **options):
    segments = {name: options.pop(name, None) for name in ("segments", "segment_share")}
    mechanism = InfTDARefined(estimate=estimate, noise_distribution=distribution, **options)
    budget = Budget(epsilon, 0 if distribution == "laplace" else "1e-8")
    given_ = {"unit": PrivacyUnit("trip", "unbounded"), "budget": budget, "mechanism": mechanism, "tree": "both"}
    return plan_release(
        world.origin,
        **given_,
        destination_geography=world.destination,
        acceptance=NO_FAULTS,
        area_totals=area_totals,
        **segments,
    )


def released(world, seed, **options):
    plan = plan_of(world, **options)
    noise = SeededLaplace(seed) if plan.mechanism.has_laplace_noise else SeededNoise(seed)
    release = run_plan(plan, counts_of(plan, world), noise, MemoryMeasurements())
    trees = [m for m in release.measured if m.step in plan.steps]
    return release, build_measured_levels(plan, release.exact_trips, trees)


def losses_by_definition(level, x, tables):
    """Total errors and shares of false discoveries by D[h L] / K, with the sharp functions that little noise has."""
    b, c = compute_decay(2 * level.noise), level.noise / 2
    w = x - level.noisy
    law_of_w = np.where(w == 0, 1 / (1 + b), law(b, w) / 2)

    def total(h):
        def f(y):
            return h(y) * law(b, x - y)

        return (f(level.noisy) - c * second(f, level.noisy)) / law_of_w

    errors = [total(lambda y, s=table: np.abs(s - y)).sum() for table in tables]
    absent = total(lambda y: (y <= 0) * 1.0)
    return np.array(errors), np.array([absent[table > 0].sum() / max((table > 0).sum(), 1) for table in tables])


def shown_by_definition(variance, y, x):
    halves = LaplaceHalves(variance)
    return halves.estimate(lambda n: n, y, x), halves.show_trips(y, x)


def increase_of(shown, base, table, most=None):
    trips, of_trips = shown
    sizes = np.abs(table - base)
    chosen = sizes >= max(1, np.sort(sizes)[-(most or len(sizes)) :].min())
    d = (table - base)[chosen] ** 2.0
    value = ((table - trips) ** 2 - (base - trips) ** 2)[chosen].sum()
    return value, 4 * max((d * of_trips.variances[chosen]).sum(), of_trips.variance * d.sum())


def evidence_of(release, levels, combine=lambda half: half):
    """What whole tables show: estimated as a release would be with twice the variance, and judged by definitions.

    The measurements of ``levels`` are divided, and tables are made from what ``combine`` returns.
    """
    plan, tree = release.plan, release.plan.tree
    errors, false, increases = np.zeros((len(RULES), 2)), np.zeros((len(RULES), 2)), []
    totals = select_area_totals(release.measured)
    for half, of_totals in iterate_halves(levels, totals, "laplace"):
        areas = [
            replace(m, noisy=NoisyVector(of_totals[m.step.side][0].astype(np.int64)), step=twice(m.step))
            for m in release.measured
            if m.step in plan.area_total_steps
        ]
        shown = [
            shown_by_definition(own.noise, own.noisy, x.noisy) if 0 < own.noise < math.inf else None
            for own, x in zip(levels, half, strict=True)
        ]
        base, columns = shrink(plan, combine(half), LEAST_SQUARES, areas=areas), []
        for k, rule in enumerate(RULES):
            tables = shrink(plan, combine(half), rule, areas=areas)
            found = losses_by_definition(levels[-1], half[-1].noisy, (base[-1], tables[-1]))
            errors[k] += found[0]
            false[k] += found[1]
            of_levels = list(zip(shown, base, tables, strict=True))
            row = [(0, math.inf) if own is None else increase_of(own, *of, 100) for own, *of in of_levels]
            row += [(0, math.inf) if own is None else increase_of(own, *of) for own, *of in of_levels]
            for side, ends in enumerate((levels[-1].nodes.origin, levels[-1].nodes.destination)):
                zones = len((tree.origin, tree.destination)[side].zones)
                sums = [np.bincount(ends, table, minlength=zones) for table in (base[-1], tables[-1])]
                if side in totals:
                    own = shown_by_definition(totals[side][1], totals[side][0], of_totals[side][0])
                else:
                    trips, of_trips = shown[-1]
                    of_zones = (np.bincount(ends, each, minlength=zones) for each in (trips, of_trips.variances))
                    own = next(of_zones), Shown(trips, 0.0, next(of_zones))
                row.append(increase_of(own, *sums))
            columns.append(row)
        increases.append(columns)
    return errors, false, np.moveaxis(np.sum(increases, axis=0), -1, 0)


def twice(step):
    return replace(step, variance=2 * step.variance)


@pytest.mark.representatives("1/5-sparse")
@pytest.mark.parametrize("world", [SPARSE, EVEN], ids=["sparse", "even"])
@pytest.mark.parametrize("area_totals", ["1/5", None])
def test_the_evidence_and_the_choice_are_those_of_whole_tables_and_the_definition(world, area_totals):
    """With the area totals, whose measurements are held out, too."""
    release, levels = released(world, 2, area_totals=area_totals)
    choice = choose_rule_with_evidence(release.plan, levels, release.measured)
    errors, false, increases = evidence_of(release, levels)
    assert_is_evidence(choice.evidence.sums, errors, false, increases)
    assert choice.rule == best(errors, false, increases)
    assert release.choice.facts() == choice.facts()


@pytest.mark.parametrize("share", [None, "1/5"])
def test_with_segments_measured_totals_alone_are_divided(share):
    """Tables are made from the means of divided totals and sums of segments, weighted by the planned precision."""
    segments = {"mode": ["car", "bus", "walk"]}
    plan = plan_of(SPARSE, area_totals=None, epsilon="2", segments=segments, segment_share=share)
    release = run_plan(plan, arrange_counts_for_plan(known(SPARSE), plan), SeededLaplace(5), MemoryMeasurements())
    combined = build_measured_levels(plan, release.exact_trips, combine_totals(plan, release.measured))
    of_totals = [m for m in release.measured if not m.step.by_segment]
    levels = build_measured_levels(plan, release.exact_trips, of_totals)

    def combine(half):
        made = []
        for level, part in zip(combined, half, strict=True):
            total, segments = plan.steps_at(level.nodes.level)
            weight = 1 / (1 + total.variance / (3 * segments.variance))
            [by_mode] = [m for m in release.measured if m.step == segments]
            sums = by_mode.noisy.read_values().reshape(-1, 3).sum(axis=1)
            noise = weight**2 * 2 * total.variance + (1 - weight) ** 2 * 3 * segments.variance
            noisy = float(weight) * part.noisy + float(1 - weight) * sums
            made.append(replace(level, noisy=noisy, noise=float(noise)))
        return made

    choice = choose_rule_with_evidence(plan, combined, release.measured)
    errors, false, increases = evidence_of(release, levels, combine)
    assert_is_evidence(choice.evidence.sums, errors, false, increases)
    assert choice.rule == best(errors, false, increases)
    assert choice.rule.learns
    assert release.choice.facts() == choice.facts()


def known(world):
    """The flows of a world, without categories."""
    frame = pd.DataFrame(
        [(o[-1], d[-1], trips) for (o, d), trips in world.flows.items()], columns=["origin", "destination", "trips"]
    )
    return KnownFlows.from_frame("world", "public", frame, world.origin)


def test_a_table_made_of_one_part_is_judged_without_bias_by_the_other():
    """The estimated error of a table, over 40 releases, differs from the true one by less than 5 standard errors.

    So do the estimated number of its false discoveries, and the increase of its squared error.
    """
    differences = []
    for seed in range(40):
        release, levels = released(SPARSE, seed, area_totals=None, estimate="least_squares")
        truth = dense_truth(SPARSE, release.plan)[levels[-1].nodes.origin, levels[-1].nodes.destination]
        half, _ = next(iterate_halves(levels, {}, "laplace"))
        tables = shrink(release.plan, half, LEAST_SQUARES)[-1], shrink(release.plan, half, Rule(u=Fraction(1)))[-1]
        halves, y, x = LaplaceHalves(levels[-1].noise), levels[-1].noisy, half[-1].noisy
        assert halves.half_width == 0
        errors, false = halves.estimate_losses(y, x, tables)
        value, variance = halves.show_trips(y, x).estimate_error_increase(tables, 100)
        base, table = tables
        d = np.abs(table - base)
        most = d >= max(1, np.sort(d)[-100])
        expected = ((table - truth) ** 2 - (base - truth) ** 2)[most].sum()
        differences.append(
            [
                *(error - np.abs(own - truth).sum() for error, own in zip(errors, tables, strict=True)),
                *(share - (truth[own > 0] == 0).mean() for share, own in zip(false, tables, strict=True)),
                (value - expected) / math.sqrt(variance),
            ]
        )
    found = np.array(differences)
    score = found.mean(axis=0) / (found.std(axis=0, ddof=1) / math.sqrt(len(found)))
    assert np.abs(score).max() < 6  # of Student's law with 39 degrees: with a probability of 6e-7 each
    assert found[:, -1].var() < 2.5  # at most 1 is stated: a chi-square of 39 degrees, with a probability of 1e-6


def dense_truth(world, plan):
    full = np.zeros((len(plan.tree.origin.zones), len(plan.tree.destination.zones)), dtype=np.int64)
    origin, destination = world.numbered(plan.tree.origin.depth, plan.tree.destination.depth)
    for (o, d), trips in world.flows.items():
        full[origin[o], destination[d]] = trips
    return full


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("distribution", ["laplace", "gaussian"])
def test_a_rule_that_makes_totals_of_zones_worse_is_not_chosen(side, distribution, monkeypatch):
    """By rules that move two trips in every fifth flow between even and odd zones. Nothing else shows it."""
    release, levels = released(EVEN, 8, area_totals="1/3", distribution=distribution)
    plan, measured = release.plan, release.measured
    assert choose_rule_given_earlier_flows(plan, levels, measured=measured) in RULES
    ends = (levels[-1].nodes.origin, levels[-1].nodes.destination)[side]

    def moved(plan, given, rule):
        tables = estimate_trips_by_rule(plan, given, rule)
        if rule.learns:
            change = np.where(ends % 2, 2, -np.minimum(tables[-1], 2))
            tables[-1] = tables[-1] + change * (np.arange(len(ends)) % 5 == 0)
        return tables

    monkeypatch.setattr(rule_choice, "estimate_trips_by_rule", moved)
    losses = rule_choice._compare_rules(plan, levels, LEAST_SQUARES, None, measured)
    value, variance = losses.increase[:, :, -2 + side]
    assert (value > 2 * np.sqrt(variance)).all()
    without = losses._replace(increase=losses.increase[:, :, :-2])
    assert without.choose_best_rule(LEAST_SQUARES) in RULES
    assert choose_rule_given_earlier_flows(plan, levels, measured=measured) == LEAST_SQUARES


@pytest.mark.parametrize("distribution", ["laplace", "gaussian"])
def test_where_a_flow_has_an_error_below_one_trip_the_choice_is_least_squares(distribution):
    for epsilon, asked in (("1", True), ("30", False)):
        release, _ = released(SPARSE, 1, epsilon=epsilon, distribution=distribution)
        assert (release.plan.expected_errors[-1] >= 1) == asked
        assert bool(release.choice.evidence.sums.any()) == asked
        if not asked:
            assert release.choice.rule == LEAST_SQUARES
            least = released(SPARSE, 1, epsilon=epsilon, distribution=distribution, estimate="least_squares")[0]
            assert np.array_equal(dense(release.plan, release), dense(least.plan, least))


@pytest.mark.parametrize("distribution", ["laplace", "gaussian"])
def test_a_table_too_small_to_learn_from_is_left_to_least_squares(distribution):
    """Although rules would also gather other small flows towards area totals."""
    zones = [(f"s{k // 5}", f"z{k:02}") for k in range(25)]
    world = World(zones, zones, {(one, two): 1 for one in zones for two in zones if one <= two})
    for seed in range(3):
        release, _ = released(world, seed, area_totals="1/2", distribution=distribution)
        assert release.choice.rule == LEAST_SQUARES
        assert not release.choice.evidence.sums.any()


def test_evidence_adds_up_if_the_choice_is_asked_in_one_period_alone():
    """Nodes that are dropped decide whether a level has enough cells to learn from: here in one of two periods."""
    zones = [(f"r{k // 16}", f"s{k // 4}", f"z{k:02}") for k in range(64)]
    few = World(zones, zones, {(one, two): 200 for one in zones[:4] for two in zones[:4]})
    many = World(zones, zones, {(one, two): 3 for one in zones for two in zones})
    found = []
    for world in (few, many):
        mechanism = InfTDARefined(estimate="auto", keep_all_cap=100)
        unit, budget = PrivacyUnit("trip", "bounded"), Budget("2", "1e-8")
        geography = geography_of(world.origins)
        plan = plan_release(geography, unit=unit, budget=budget, mechanism=mechanism, tree="both", acceptance=NO_FAULTS)
        found.append(run_plan(plan, counts_of(plan, world), SeededNoise(3), MemoryMeasurements()).choice.evidence)
    asked = [bool(evidence.sums.any()) for evidence in found]
    assert asked == [False, True]
    assert (found[0] + found[1]).sums.tolist() == (found[1] + found[0]).sums.tolist() == found[1].sums.tolist()


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
def test_of_very_many_leaves_one_half_shows_what_both_show_on_average(distribution, monkeypatch):
    release, levels = released(SPARSE, 7, area_totals="1/5", distribution=distribution)

    def show_false_discoveries():
        return choose_rule_with_evidence(release.plan, levels, release.measured).evidence.sums[:, 1:3]

    both = show_false_discoveries()
    monkeypatch.setattr(rule_choice, "_MAX_COMPARED_LEAVES", 1)
    first = show_false_discoveries()
    monkeypatch.setattr(rule_choice, "iterate_halves", lambda *of: reversed(list(iterate_halves(*of))))
    second = show_false_discoveries()
    assert not np.array_equal(first, second)
    assert np.abs(2 * both - first - second).max() <= 2  # each is rounded to millionths


@pytest.mark.parametrize("area_totals", ["1/5", None])
def test_a_release_with_laplace_noise_is_estimated_by_the_chosen_rule(area_totals):
    chosen = set()
    for world in (SPARSE, EVEN):
        release, levels = released(world, 7, area_totals=area_totals)
        rule = release.choice.rule
        chosen.add(rule.learns)
        trips = shrink(release.plan, levels, rule, areas=release.measured)[-1]
        expected = np.zeros_like(dense(release.plan, release))
        expected[levels[-1].nodes.origin, levels[-1].nodes.destination] = trips
        if rule.learns or area_totals is not None:
            assert np.array_equal(dense(release.plan, release), expected)
    assert True in chosen


def test_shrunk_estimates_of_laplace_noise_are_those_of_the_rule():
    release, levels = released(SPARSE, 7, estimate="shrunk")
    expected = np.zeros_like(dense(release.plan, release))
    trips = shrink(release.plan, levels, Rule(), areas=release.measured)[-1]
    expected[levels[-1].nodes.origin, levels[-1].nodes.destination] = trips
    assert np.array_equal(dense(release.plan, release), expected)


def test_a_series_with_laplace_noise_adds_its_evidence_and_replays():
    """The second release has a W of its own, and states the sum of both, from which its rule follows."""
    first, _ = released(EVEN, 2)
    stated = {"release": "s/2001-01/r1", "plan": first.plan.stored_facts, **first.choice.facts()}
    plan = replace(first.plan, earlier=read_earlier_evidence(first.plan, stated))
    second = run_plan(plan, counts_of(plan, EVEN), SeededLaplace(3), MemoryMeasurements())
    alone, levels = released(EVEN, 3)
    assert second.choice.evidence.releases == 2
    own = second.choice.evidence.sums - first.choice.evidence.sums
    assert not np.array_equal(own, alone.choice.evidence.sums)
    assert np.array_equal(own[:, 3:] == 0, alone.choice.evidence.sums[:, 3:] == 0)
    assert second.choice.rule == second.choice.evidence.choose_next_rule(first.choice.rule)
    assert choose_rule_with_evidence(plan, levels, second.measured).facts() == second.choice.facts()
    assert [half.noisy.tolist() for half in next(iterate_halves(levels, {}, "laplace", 1))[0]] != [
        half.noisy.tolist() for half in next(iterate_halves(levels, {}, "laplace"))[0]
    ]
