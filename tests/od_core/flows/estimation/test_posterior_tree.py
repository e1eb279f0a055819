"""Draws of flow trees: their law against enumeration, and what must always hold of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from od_core import Budget, OdError, PrivacyUnit, Release
from od_core.flows.estimation import node_posteriors, posterior_tree
from od_core.flows.estimation.least_squares import FittedLevel
from od_core.flows.estimation.node_posteriors import above_children, unmeasured_sum
from od_core.flows.estimation.posterior_tree import PosteriorTree
from od_core.flows.estimation.size_distribution import SizeDistribution
from od_core.flows.mechanisms import MECHANISMS
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import SeededLaplace, SeededNoise, no_noise
from tests.od_core.flows.estimation.test_empirical_bayes import UNITS, counts_of, dense
from tests.od_core.flows.estimation.test_shrinkage import GRAVITY, plan_of
from tests.od_core.flows.test_assisted_flows import small
from tests.od_core.flows.test_flow_sum import RANDOMS, cases_of
from tests.od_core.oracles.intervals import DROPPING, KEEPING
from tests.od_core.oracles.segments import segment_case
from tests.od_core.strategies import World, worlds

MOST = 1e-6
"""Probability with which each statistical test fails by chance."""

# The law of the draws

FIRST = np.array([0, 1, 2, 4, 8, 16])
N = 26
"""Every node of the tree below has fewer trips than this, except with a negligible probability."""


@dataclass(frozen=True, eq=False)
class Given(PosteriorTree):
    """A tree whose nodes have given distributions before they are measured."""

    given: tuple[SizeDistribution, ...] = ()

    def _distributions(self) -> list[SizeDistribution]:
        return list(self.given)


def level_of(number: int, noisy: list[int], noise: float, divided: list[int], offsets: list[int]) -> FittedLevel:
    ends, none = np.arange(len(noisy), dtype=np.int32), np.empty(0)
    places = np.array(offsets, dtype=np.int64), np.array(divided, dtype=np.int64)
    nodes = Pairs(number, ends, ends)
    return FittedLevel(nodes, *places, np.array(noisy, dtype=float), noise, none, none, none, none, none)


def distribution(random: np.random.Generator, nodes: int) -> SizeDistribution:
    density = random.dirichlet(np.full(len(FIRST), 0.7), nodes) / np.append(np.diff(FIRST), 16)
    return SizeDistribution(np.arange(nodes), FIRST, density + 1e-9)


def on_grid(own: SizeDistribution, node: int, most: int = N) -> np.ndarray:
    return own.density[own.group_of[node], np.searchsorted(own.first, np.arange(most), side="right") - 1]


def likelihood(level: FittedLevel, node: int, most: int = N) -> np.ndarray:
    if np.isinf(level.noise):
        return np.ones(most)
    if level.noise == 0:
        return (np.arange(most) == level.noisy[node]).astype(float)
    return np.exp(-((np.arange(most) - level.noisy[node]) ** 2) / (2 * level.noise))


def law(tree: Given, *, sums: bool = True) -> np.ndarray:
    """The probability of each (a1, a2, b): node a has the children a1 and a2, node b was dropped. By its definition.

    Without ``sums``, children are not independent given their sum: they are independent.
    """
    root, above, below = tree.levels
    g_a, g_b = (on_grid(tree.given[0], node) for node in range(2))
    g_1, g_2 = (on_grid(tree.given[1], node) for node in range(2))
    a1, a2, b = np.meshgrid(*[np.arange(N)] * 3, indexing="ij")
    inside = (a1 + a2 < N) & (a1 + a2 + b < N)
    a, n = np.where(inside, a1 + a2, 0), np.where(inside, a1 + a2 + b, 0)
    found = likelihood(root, 0)[n] * (likelihood(above, 0) * g_a)[a] * (likelihood(above, 1) * g_b)[b]
    found = found * (likelihood(below, 0) * g_1)[a1] * (likelihood(below, 1) * g_2)[a2]
    if sums:
        found = found / np.convolve(g_1, g_2)[a] / np.convolve(g_a, g_b)[n]
    return np.where(inside, found, 0) / found[inside].sum()


def trips_of(tree: PosteriorTree, draws: int) -> list[np.ndarray]:
    """The units of all nodes of each level; shape (draws, nodes) each."""
    levels = []
    for level, pieces in zip(tree.levels, tree._drawn(0, draws), strict=True):
        trips = np.zeros((draws, len(level.nodes)), dtype=np.int64)
        trips[:, level.divided] = np.concatenate([piece.totals for piece in pieces], axis=1)
        for piece in pieces:
            trips[np.repeat(np.arange(draws), np.diff(piece.ends)), piece.node] = piece.trips
        levels.append(trips)
    return levels


def surprise(found: np.ndarray, expected: np.ndarray) -> float:
    """The p-value of Pearson's test, with rare outcomes taken together."""
    order = np.argsort(expected, axis=None)
    expected, found = expected.ravel()[order], found.ravel()[order]
    rare = max(1, int(np.searchsorted(np.cumsum(expected), 10.0)) + 1)
    pooled = [np.concatenate([[each[:rare].sum()], each[rare:]]) for each in (expected, found)]
    keep = pooled[0] >= 5
    expected, found = (np.append(each[keep], each[~keep].sum()) for each in pooled)
    statistic = ((found - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return float(chi2.sf(statistic, len(expected) - 1))


@pytest.mark.parametrize("noise", [(2.0, 1.5, 1.0), (np.inf, 3.0, 0.7), (0.0, 1.0, 2.0)])
def test_draws_have_the_law_of_the_model(noise: tuple[float, float, float]) -> None:
    """60,000 draws of 4 trees each, and two wrong laws that the test refuses."""
    wrong = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        y = random.integers(-1, 5, 5).tolist()
        levels = (
            level_of(0, [max(0, y[0] + y[1])], noise[0], [0], [0]),
            level_of(1, y[:2], noise[1], [0], [0, 2]),
            level_of(2, y[3:], noise[2], [], [0, 2]),
        )
        given = distribution(random, 2), distribution(random, 2)
        empty = np.empty(0, dtype=np.int32)
        tree = Given(None, levels, Nodes(2, empty, empty, np.empty(0, dtype=np.int64)), given)  # type: ignore[arg-type]
        root, above, below = trips_of(tree, 60_000)
        assert (above.sum(axis=1) == root[:, 0]).all()
        assert (below.sum(axis=1) == above[:, 0]).all()
        places = tuple(np.minimum(each, N - 1) for each in (below[:, 0], below[:, 1], above[:, 1]))
        found = np.zeros((N, N, N))
        np.add.at(found, places, 1)
        assert surprise(found, 60_000 * law(tree)) > MOST / 12
        wrong.append(surprise(found, 60_000 * law(tree, sums=False)))
        other = replace(tree, levels=(levels[0], replace(levels[1], noise=2 * noise[1]), levels[2]))
        wrong.append(surprise(found, 60_000 * law(other)))
    assert np.median(wrong) < MOST


def test_a_total_below_which_nothing_was_measured_is_drawn_around_its_noisy_value() -> None:
    """The children of a noisy total were dropped: 2,000 draws of it have its mean and deviation."""
    empty = np.empty(0, dtype=np.int32)
    levels = level_of(0, [90], 25.0, [], [0]), level_of(1, [], 25.0, [], [0])
    tree = Given(None, levels, Nodes(1, empty, empty, np.empty(0, dtype=np.int64)), (unknown(0),))  # type: ignore[arg-type]
    root, below = trips_of(tree, 2_000)
    assert below.shape == (2_000, 0)
    assert abs(root.mean() - 90) < 5 * 5 / math.sqrt(2_000)
    assert abs(root.std() - 5) < 5 * 5 / math.sqrt(4_000)


def steep(random: np.random.Generator) -> SizeDistribution:
    """Four nodes, large ones of which are much less probable."""
    first = np.array([0, 1, *(4 << np.arange(12))])
    weight = random.dirichlet(np.full(len(first), 2.0), 4) * 0.1 ** np.arange(len(first))
    return SizeDistribution(np.arange(4), first, weight / np.append(np.diff(first), first[-1]))


def unknown(children: int) -> SizeDistribution:
    """Nodes of a level that is too small to learn from."""
    return SizeDistribution(np.zeros(children, dtype=np.int64), np.zeros(1, dtype=np.int64), np.ones((1, 1)))


@pytest.mark.parametrize(
    ("own", "children", "noise"),
    [
        (steep(np.random.default_rng(1)), [450, 300, 112, 0], 400.0),
        (steep(np.random.default_rng(2)), [2500, 1666, 625, 0], 2500.0),
        (unknown(60), [20] * 60, 100.0),
    ],
    ids=["hundreds", "thousands", "many children"],
)
def test_large_sums_are_computed_on_a_grid(own: SizeDistribution, children: list[int], noise: float) -> None:
    """Near the noisy value, U is a convolution over single trips, with a mean that is less than 0.05 deviations off."""
    level, noisy = level_of(1, children, noise, [], [0, len(children)]), sum(children)
    known = node_posteriors.known_of(level, own, 1, is_leaf=True)
    low, values = above_children(noisy, node_posteriors.normal_density(4 * noise), known, 0, len(children))
    most = 2 * noisy + 1000
    before, after = np.ones(1), np.ones(1)
    for node in range(len(children)):
        before = np.convolve(before, on_grid(own, node, most))[:most]
        after = np.convolve(after, on_grid(own, node, most) * likelihood(level, node, most))[:most]
    exact = after / before * np.exp(-((np.arange(most) - noisy) ** 2) / (8 * noise))
    exact = exact[low : low + len(values)]
    near = exact > 1e-4 * exact.max()
    assert near.sum() > 20
    trips, own_law, law_of_all = np.arange(len(values)), values / values.sum(), exact / exact.sum()
    mean = (trips * law_of_all).sum()
    deviation = math.sqrt(((trips - mean) ** 2 * law_of_all).sum())
    assert abs((trips * own_law).sum() - mean) < 0.05 * deviation
    assert np.abs(np.diff(np.log(own_law[near] / law_of_all[near]))).max() < 0.05  # without a step from point to point
    assert np.allclose(own_law[~near], 0, atol=2e-4 * own_law.max())


def test_the_sum_before_measurement_is_a_convolution() -> None:
    own = distribution(np.random.default_rng(1), 3)
    known = node_posteriors.known_of(level_of(1, [0, 0, 0], 1.0, [], [0, 3]), own, 1, is_leaf=True)
    exact = np.convolve(np.convolve(on_grid(own, 0, 40), on_grid(own, 1, 40)), on_grid(own, 2, 40))[:40]
    found = unmeasured_sum(known, 0, 3, 1, 40)
    assert np.allclose(found / found.sum(), exact / exact.sum())


# Draws given a release


def release_of(world: World = GRAVITY, seed: int = 1, **options: object) -> Release:
    plan = plan_of(world, **({"estimate": "least_squares", "epsilon": "0.5"} | options))
    return run_plan(plan, counts_of(plan, world), SeededNoise(seed), MemoryMeasurements())


def listed(draws: object) -> list[tuple[list[int], ...]]:
    return [(one.origin.tolist(), one.destination.tolist(), one.trips.tolist()) for one in draws]  # type: ignore[attr-defined]


@settings(max_examples=25)
@given(random=RANDOMS)
def test_a_draw_is_a_table_of_whole_trips_with_the_drawn_sums(random: Random) -> None:
    """Of any mechanism that measures every level; where nodes were dropped, their trips are at zones below them."""
    (case,) = cases_of(random, [random.choice([*KEEPING[:2], *DROPPING])])[:1]
    release = case.release
    tree = PosteriorTree(release.plan, release.fitted_levels(), release.leaves)
    drawn = trips_of(tree, 3)
    for k, leaves in enumerate(tree.draws(3)):
        assert (leaves.trips >= 1).all()
        assert (np.diff(release.tree.first_rank(leaves)) > 0).all()
        if release.plan.publishes_total:
            assert leaves.trips.sum() == release.leaves.trips.sum()
        for level, trips in zip(tree.levels, drawn, strict=True):
            at = release.tree.level_pair(level.nodes.level)
            sides = zip((release.tree.origin, release.tree.destination), at, strict=True)
            of_zone = [geography.ancestors(number) for geography, number in sides]
            sums = np.zeros((of_zone[0].max() + 1, of_zone[1].max() + 1), dtype=np.int64)
            np.add.at(sums, (of_zone[0][leaves.origin], of_zone[1][leaves.destination]), leaves.trips)
            found = sums[level.nodes.origin, level.nodes.destination]
            rest = found - tree.unit * trips[k]  # of an exact total that is no multiple of the unit
            assert (rest == 0).sum() >= len(rest) - 1
            assert (np.abs(rest) <= tree.unit // 2).all()


@settings(max_examples=20)
@given(world=worlds(), unit=st.sampled_from(UNITS), cap=st.sampled_from([0, 12, 10**6]))
def test_without_noise_every_draw_is_the_truth(world: World, unit: object, cap: int) -> None:
    plan = plan_of(world, estimate="least_squares", epsilon="1e9", unit=unit, cap=cap)
    release = run_plan(plan, counts_of(plan, world), no_noise(), MemoryMeasurements())
    truth = dense(plan, release)
    for leaves in release.drawn_leaves(2):
        found = np.zeros_like(truth)
        found[leaves.origin, leaves.destination] = leaves.trips
        assert np.array_equal(found, truth)


def test_a_draw_depends_on_neither_the_number_of_draws_nor_threads_nor_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    release = release_of()
    expected = listed(release.drawn_leaves(5))
    assert expected[0] != expected[1]
    assert listed(release.drawn_leaves(2)) == expected[:2]
    for threads, values, pieces in (("1", 10**9, 1), ("2", 1, 500), ("3", 20_000, 7)):
        monkeypatch.setenv("OD_THREADS", threads)
        monkeypatch.setattr(posterior_tree, "_MOST_VALUES", values)
        monkeypatch.setattr(posterior_tree, "_PIECES", pieces)
        assert listed(release.drawn_leaves(5)) == expected
    assert listed(release_of(seed=2).drawn_leaves(1)) != expected[:1]


def test_where_noise_is_large_units_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean and the spread of 300 draws, at every node that has several units, and the exact total."""
    release = release_of(epsilon="0.1")
    tree = PosteriorTree(release.plan, release.fitted_levels(), release.leaves)
    assert tree.unit > 2
    coarse = [tree.unit * trips for trips in trips_of(tree, 300)]
    assert {leaves.trips.sum() for leaves in tree.draws(3)} == {release.leaves.trips.sum()}
    monkeypatch.setattr(posterior_tree, "_UNITS", 10**6)
    fine = PosteriorTree(release.plan, release.fitted_levels(), release.leaves)
    assert fine.unit == 1
    compared = 0
    for one, other in zip(coarse[1:], trips_of(fine, 300)[1:], strict=True):
        spread, mean = other.std(axis=0), other.mean(axis=0)
        several = mean > 10 * tree.unit
        assert (np.abs(one.mean(axis=0) - mean)[several] < 0.7 * spread[several]).all()
        assert (np.abs(np.log(one.std(axis=0)[several] / spread[several])) < 0.5).all()
        compared += several.sum()
    assert compared > 50


def test_half_the_draws_are_above_the_truth_and_few_are_far_from_it() -> None:
    """Flows that 10 draws make large, in the next 20, over 10 releases with fixed noise."""
    inside, cells, below = 0, 0, 0.0
    exact = release_of(epsilon="10000")
    truth = dense(exact.plan, exact)
    for seed in range(10):
        draws = np.zeros((30, *truth.shape), dtype=np.int64)
        for k, leaves in enumerate(release_of(seed=seed).drawn_leaves(30)):
            draws[k, leaves.origin, leaves.destination] = leaves.trips
        large = draws[:10].mean(axis=0) > 20
        own, true = np.sort(draws[10:, large], axis=0), truth[large]
        inside += ((own[0] <= true) & (true <= own[-1])).sum()
        below += ((own < true).mean(axis=0) + (own == true).mean(axis=0) / 2).sum()
        cells += large.sum()
    assert cells > 500
    assert 0.84 < inside / cells < 0.95  # 19 of 21 equally probable ranks, 90.5 %
    assert 0.45 < below / cells < 0.55


def test_tables_have_codes_and_breakdowns_are_summed() -> None:
    release = segment_case(Random(5)).release  # noqa: S311  # no secret
    (table,), (leaves,) = release.draws(1), release.drawn_leaves(1)
    assert table.columns.tolist() == release.flows.columns.tolist() == ["origin", "destination", "trips"]
    assert table["trips"].tolist() == leaves.trips.tolist()
    zones = (
        [release.tree.origin.zones[k] for k in leaves.origin],
        [release.tree.destination.zones[k] for k in leaves.destination],
    )
    assert (table["origin"].tolist(), table["destination"].tolist()) == zones


def test_what_cannot_be_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    release = release_of()
    with pytest.raises(OdError, match="OD-DRAWS-NUMBER"):
        next(release.draws(0))
    for name, noise in (("vanilla_gauss", SeededNoise(1)), ("stability_histogram", SeededLaplace(1))):
        unit = PrivacyUnit("trip", "unbounded")
        other = small(mechanism=MECHANISMS[name](), unit=unit, noise=noise, budget=Budget(epsilon=1, delta="1e-8"))
        with pytest.raises(OdError, match="OD-LEVEL-UNMEASURED"):
            next(other.draws(1))
    total = release.leaves.trips.sum() + 10**6
    levels = [
        replace(release.fitted_levels()[0], noise=0.0, noisy=np.array([float(total)])),
        *release.fitted_levels()[1:],
    ]
    with pytest.raises(OdError, match="OD-DRAWS-IMPOSSIBLE"):
        next(PosteriorTree(release.plan, levels, release.leaves).draws(1))
    leaves = len(release.measured[-1].noisy)
    monkeypatch.setattr("od_core.flows.release.memory", lambda: posterior_tree.DRAWING_BYTES * leaves - 1)
    with pytest.raises(OdError, match="OD-LEVEL-MEMORY"):
        next(release.draws(1))
