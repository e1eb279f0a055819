"""Measurements, fits and intervals of segments against dense linear algebra: one fit of all queries at once.

The oracle knows nothing of the two fits into which it falls apart.
"""

from fractions import Fraction
from itertools import groupby
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.flows.estimation import intervals
from od_core.flows.estimation.least_squares import fit_least_squares
from od_core.flows.estimation.levels import combine_totals, list_segment_counts
from od_core.flows.interval_ends import compute_lower_bound, compute_upper_bound
from tests.od_core.doubles import SeededNoise
from tests.od_core.flows.estimation.test_intervals import assert_is_interval
from tests.od_core.oracles.inftda import Tree, inftda
from tests.od_core.oracles.intervals import meets, within
from tests.od_core.oracles.segments import DROPPING, KEEPING, LAPLACE, ROOT, cells_of, segment_case

RANDOMS = st.randoms(use_true_random=True)
MECHANISMS = pytest.mark.parametrize("mechanism", [KEEPING, DROPPING], ids=["all kept", "some dropped"])
WITH_LAPLACE = pytest.mark.parametrize(
    "mechanism", [KEEPING, DROPPING, LAPLACE], ids=["all kept", "some dropped", "Laplace noise"]
)


def assert_close(found, expected, scale=0.0) -> None:
    """To 1e-9 of the largest of them: estimates are differences of large sums."""
    expected = np.asarray(expected, dtype=float)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * max(np.abs(expected).max(initial=1), scale))


def rounding_of(case) -> float:
    """As a scale of :func:`assert_close`, what rounded weights of combined totals with Laplace noise may change.

    Weights are exact to 2^-25, of sums of up to five noisy values of two or three breakdowns.
    """
    most = max((np.abs(values).max(initial=0) for *_, values, _ in case.measured()), default=0.0)
    return 1e9 * 2.0**-25 * 10 * float(most) if case.plan.mechanism.has_laplace_noise else 0.0


# -- one fit of all queries --------------------------------------------------------------------------------------------


@pytest.mark.representatives("some dropped", "Laplace noise")
@WITH_LAPLACE
@given(random=RANDOMS)
def test_every_node_has_the_totals_and_segments_of_linear_algebra(mechanism, random: Random):
    """Totals of every measured node, and each category of every breakdown: estimates and variances."""
    case = segment_case(random, mechanism)
    dense, plan, measured = case.dense, case.plan, case.release.measured
    n = case.trips if plan.publishes_total else None
    combined = case.combined()
    for counts in combine_totals(plan, measured):
        expected = combined[counts.step.level]
        assert_close(counts.read_reals(), [value for value, _ in expected.values()], rounding_of(case))
        both = zip(expected.values(), counts.noisy.read_values(), strict=True)
        rounded = [value - noisy for (value, _), noisy in both]
        assert np.abs(rounded).max(initial=0) <= 0.5 + 1e-9 * max(1.0, rounding_of(case))
        assert_close([float(counts.step.variance)] * len(expected), [variance for _, variance in expected.values()])
    totals = fit_least_squares(plan, n, combine_totals(plan, measured))
    if not dense.columns:
        assert case.trips == 0 or mechanism is DROPPING
        return
    largest, widest = np.abs(dense.estimate).sum() + rounding_of(case), dense.covariance.diagonal().max()
    fits = {}
    for level in totals:
        nodes = case.named(level.nodes.level, level.nodes)
        expected = [dense.total(dense.inside(node)) for node in nodes]
        assert_close(level.estimate, [h for h, _ in expected], largest)
        assert_close(level.variance, [v for _, v in expected], widest)
        fits |= dict(zip(nodes, zip(level.estimate, level.variance, strict=True), strict=True))
    assert set(fits) >= {node for _, _, _, _, nodes in case.measured() for node in nodes}
    for name, listed in case.segments.items():
        own = [fit_least_squares(plan, None, counts) for counts in list_segment_counts(plan, measured, name)]
        assert len(own) == len(listed)
        for levels in zip(*own, strict=True):
            nodes, k = case.named(levels[0].nodes.level, levels[0].nodes), len(listed)
            fitted = np.array([level.estimate for level in levels])
            for s, category in enumerate(listed):
                expected = [dense.segment(dense.inside(node), name, category) for node in nodes]
                total, doubt = np.array([fits[node] for node in nodes]).reshape(-1, 2).T
                assert_close(fitted[s] + (total - fitted.sum(axis=0)) / k, [h for h, _ in expected], largest)
                variance = doubt / k**2 + levels[s].variance * (1 - 1 / k)
                assert_close(variance, [v for _, v in expected], widest)


@pytest.mark.representatives("Laplace noise")
@pytest.mark.parametrize("mechanism", [KEEPING, LAPLACE], ids=["normal noise", "Laplace noise"])
@given(random=RANDOMS)
def test_every_cell_and_every_sum_has_the_segments_of_linear_algebra(mechanism, random: Random):
    """Every cell at every pair of levels, and sums over sets of zones, where all nodes were kept."""
    case = segment_case(random, mechanism, most_pairs=16)
    dense, release = case.dense, case.release
    if not dense.columns:
        return
    largest, widest = np.abs(dense.estimate).sum() + rounding_of(case), dense.covariance.diagonal().max()
    for name, listed in case.segments.items():
        found, fit = release.segment_intervals(name), release.fit_segment(name)
        for levels in case.level_pairs():
            origin, destination, total = fit._totals.estimate_cells(*levels)
            places = dict.fromkeys(zip(origin.tolist(), destination.tolist(), strict=True))
            areas, numbers = cells_of(case, levels)
            assert sorted(places) == [tuple(pair) for pair in numbers.tolist()]
            nodes = [(case.areas(0, levels[0])[o], case.areas(1, levels[1])[d]) for o, d in places]
            own = [category.estimate_cells(*levels)[2] for category in fit.categories]
            bounds = [np.array(ends) for ends in found.compute_cell_bounds(*levels, numbers[:, 0], numbers[:, 1])]
            adjusted = intervals._adjust_categories_to_total(total, own)
            for s, (category, estimates) in enumerate(zip(listed, adjusted, strict=True)):
                expected = [dense.segment(dense.inside(node), name, category) for node in nodes]
                assert_close(estimates.estimate, [h for h, _ in expected], largest)
                assert_close(estimates.variance, [v for _, v in expected], widest)
                for area, lower, upper in zip(areas, bounds[0][:, s], bounds[1][:, s], strict=True):
                    assert_is_interval((lower, upper), *dense.segment(dense.inside(area), name, category))
        for _ in range(3):
            chosen = [[zone for zone in zones if random.random() < 0.5] for zones in (case.origins, case.destinations)]
            zones = [case.areas(side, case.tree.origin.depth) for side in (0, 1)]
            masks = [np.array([zone in mine for zone in own]) for own, mine in zip(zones, chosen, strict=True)]
            taken = [o in chosen[0] and d in chosen[1] for o, d in dense.columns]
            own_estimates = fit.sum_between(*masks)
            lower, upper = found.compute_sum_bounds(*masks)
            for s, (category, estimates) in enumerate(zip(listed, own_estimates, strict=True)):
                expected = dense.segment(taken, name, category)
                assert_close(estimates.estimate, [expected[0]], largest)
                assert_close(estimates.variance, [expected[1]], widest)
                assert_is_interval((lower[s], upper[s]), *expected)


@given(random=RANDOMS)
def test_where_nodes_were_dropped_contrasts_are_those_of_linear_algebra(random: Random):
    """Sums without the trips of dropped nodes: contrasts of all measurements, totals of the finest measured nodes.

    Totals of kept nodes were selected by their noise, so their fit is not used. A cell below a dropped node is at most
    the trips of that node, or those of the node in its category.
    """
    case = segment_case(random, DROPPING, most_trips=random.choice([2, 9]), budget={"rho": random.choice([1, 5])})
    dense, combined, plan = case.dense, case.combined(), case.plan
    dropped = {node for node in dense.columns if not case.is_leaf(node)}
    if not dropped:
        return
    known = {0: [ROOT]} if plan.publishes_total else {}
    known |= {level: list(nodes) for level, nodes in combined.items()}
    for name, listed in case.segments.items():
        found, k = case.release.segment_intervals(name), len(listed)
        for levels in case.level_pairs():
            areas, numbers = cells_of(case, levels)
            deep = [(case.tree.level_pair(level), nodes) for level, nodes in known.items()]
            finest = next(nodes for pair, nodes in deep if pair[0] >= levels[0] and pair[1] >= levels[1])
            lower, upper = found.compute_cell_bounds(*levels, numbers[:, 0], numbers[:, 1])
            for cell, low, high in zip(areas, lower, upper, strict=True):
                mine = [node for node in finest if within(node, cell)]
                above = [node for node in dropped if within(cell, node) and node not in mine]
                for s, category in enumerate(listed):
                    if not mine:
                        tops = [top_of(dense, node, name, category) for node in above or dropped if meets(node, cell)]
                        assert low[s] == 0
                        assert high[s] == tops[0] if above else high[s] <= sum(tops)
                        continue
                    taken = [any(within(column, node) for node in mine) for column in dense.columns]
                    if len(mine) == 1:  # a measured node, by this name or another
                        if within(cell, mine[0]):
                            assert_is_interval((low[s], high[s]), *dense.segment(taken, name, category))
                        continue
                    contrast, doubt = dense.contrast(taken, name, category)
                    total = sum(combined_at(combined, node)[0] for node in mine)
                    noise = sum(combined_at(combined, node)[1] for node in mine)
                    about = (np.array([contrast + total / k + error]) for error in (-1e-6, 1e-6))
                    ends, spread = (compute_lower_bound, compute_upper_bound), np.array([doubt + noise / k**2])
                    below, above_it = ([int(bound(end, spread)[0]) for bound in ends] for end in about)
                    assert below[0] <= low[s] <= above_it[0]
                    unseen = [node for node in dropped if meets(node, cell) and node not in mine]
                    most = sum(top_of(dense, node, name, category) for node in unseen)
                    assert below[1] <= high[s] <= above_it[1] + most


def top_of(dense, node, name: str, category: str) -> int:
    """Most trips of a dropped node in a category: those of the category, or all."""
    fits = dense.total(dense.inside(node)), dense.segment(dense.inside(node), name, category)
    return min(int(compute_upper_bound(*(np.array([value]) for value in fit))[0]) for fit in fits)


def combined_at(combined, node):
    return next(nodes[node] for nodes in combined.values() if node in nodes)


@given(random=RANDOMS)
def test_one_tree_is_measured_selected_by_the_combined_totals(random: Random):
    """The same nodes for the totals and every segment: those that InfTDA keeps, given the rounded combination."""
    case = segment_case(random, DROPPING, shares="uniform", budget={"rho": random.choice([Fraction(1, 50), 1, 5])})
    tree = Tree(case.origins, case.destinations, case.tree.order)
    flows = {}
    for (origin, destination, *_), trips in case.truth.items():
        flows[origin, destination] = flows.get((origin, destination), 0) + trips
    steps = [counts.step.level for counts in combine_totals(case.plan, case.release.measured)]
    totals = combine_totals(case.plan, case.release.measured)
    noisy = dict(zip(steps, (counts.noisy.read_values() for counts in totals), strict=True))
    for _, same in groupby(case.release.measured, lambda m: m.step.level):
        assert len({tuple(case.cells(m.step)) for m in same}) == 1
    nodes = {step.level: case.cells(step) for step in case.plan.steps}
    reference = inftda(
        tree,
        flows,
        lambda level, k: int(noisy[level][k]) - case.true(nodes[level][k]) if k < len(noisy[level]) else 0,
        total_is_public=case.plan.publishes_total,
    )
    for level in steps:
        assert list(reference.noisy[level]) == nodes[level]


@MECHANISMS
@given(random=RANDOMS)
def test_each_query_is_one_vector_of_true_counts_and_noise(mechanism, random: Random):
    """The first node in all categories, then the second: each cell has noise of its own position."""
    noise = SeededNoise(random.randrange(2**32))
    case = segment_case(random, mechanism, noise=noise)
    for m in case.release.measured:
        name, nodes = getattr(m.step, "breakdown", None), case.cells(m.step)
        categories = [None] if name is None else case.segments[name]
        true = [case.true(node, category and name, category) for node in nodes for category in categories]
        drawn = noise.draw(m.step.variance, m.step.number, 0, len(true))
        assert (m.noisy.read_values() - drawn).tolist() == true
