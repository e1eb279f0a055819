"""Replicates: their errors by dense linear algebra, their spread, and that they are the same everywhere."""

import hashlib
from functools import cached_property
from random import Random

import numpy as np
import pytest
from hypothesis import event, given

from od_core import OdError, Release
from od_core.flows.estimation import replicates
from od_core.flows.estimation.fitted_tree import FittedTree
from od_core.flows.estimation.replicates import Replicates
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import ListedNoise, SeededNoise
from tests.od_core.flows.estimation.test_empirical_bayes import counts_of
from tests.od_core.flows.estimation.test_shrinkage import GRAVITY, plan_of
from tests.od_core.flows.test_assisted_flows import small
from tests.od_core.flows.test_flow_sum import RANDOMS, cases_of
from tests.od_core.oracles.intervals import DROPPING, KEEPING
from tests.od_core.oracles.segments import segment_case


def release_of(seed: int = 1, **options: object) -> Release:
    plan = plan_of(GRAVITY, **({"estimate": "least_squares", "epsilon": "0.5"} | options))
    return run_plan(plan, counts_of(plan, GRAVITY), SeededNoise(seed), MemoryMeasurements())


def digest(tables: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(table.astype("<f8").tobytes() for table in tables)).hexdigest()


# The errors are the least-squares fit of the noise


class OfOne(Replicates):
    """Replicate r has noise of one standard deviation in one measured node, and none elsewhere."""

    def __init__(self, fitted: FittedTree) -> None:
        super().__init__(fitted)
        self.tree = fitted.tree

    @cached_property
    def measured(self) -> list[tuple[int, int]]:
        levels = enumerate(self._levels)
        return [(at, k) for at, each in levels if 0 < each.noise < np.inf for k in range(len(each.nodes))]

    def _draw_level_noise(self, r: int, at: int, first: int, last: int) -> np.ndarray:
        level, node = self.measured[r]
        noise = np.zeros(last - first)
        if level == at and first <= node < last:
            noise[node - first] = np.sqrt(self._levels[at].noise)
        return noise


def dense_errors(found: OfOne) -> np.ndarray:
    """The fit of one standard deviation of noise in each measured node, by the normal equations of the leaves.

    An exact total is a Lagrange multiplier. Shape (measured nodes, leaves).
    """
    levels, tree = found._levels, found.tree
    ends, rows = found.ends, []
    for at, node in found.measured:
        nodes = levels[at].nodes
        sides = zip((tree.origin, tree.destination), tree.level_pair(nodes.level), ends, strict=True)
        of_leaf = [geography.ancestors(level)[zones] for geography, level, zones in sides]
        rows.append((of_leaf[0] == nodes.origin[node]) & (of_leaf[1] == nodes.destination[node]))
    design = np.array(rows, dtype=float)
    deviation = np.array([levels[at].noise ** 0.5 for at, _ in found.measured])
    precision = 1 / deviation**2
    normal, right = design.T * precision @ design, design.T * precision @ np.diag(deviation)
    if levels[0].noise == 0:
        one = np.ones((1, normal.shape[1]))
        normal = np.block([[normal, one.T], [one, np.zeros((1, 1))]])
        right = np.vstack([right, np.zeros((1, right.shape[1]))])
    solved: np.ndarray = np.linalg.solve(normal, right)
    return solved[: len(ends[0])].T


@given(random=RANDOMS)
def test_errors_are_the_dense_least_squares_fit_of_the_noise(random: Random) -> None:
    """The same map from noise to leaves, so the same mean and covariance; in tables and in blocks."""
    release = cases_of(random, KEEPING, rho=random.choice(["0.05", 1, 10]))[0].release
    found = OfOne(release.fitted)
    event(f"exact root: {release.plan.publishes_total}, {release.plan.mechanism.name}")
    number = len(found.measured)
    if not number:
        return
    expected = dense_errors(found)
    errors = found.estimate - np.array(list(found.tables(number)))
    scale = max(level.noise for level in found._levels if np.isfinite(level.noise)) ** 0.5
    rounding = 1e-9 * (1 + np.abs(found.estimate).max()) + 1e-9 * scale
    np.testing.assert_allclose(errors, expected, atol=rounding)
    np.testing.assert_allclose(errors.T @ errors, expected.T @ expected, atol=rounding * scale * number)
    variance = found._levels[-1].variance
    np.testing.assert_allclose(np.square(errors).sum(axis=0), variance, rtol=1e-7, atol=rounding * scale * number)
    blocks = np.concatenate([rows for _, rows in found.blocks(number)], axis=1)
    assert np.array_equal(found.estimate - blocks, errors)


@given(random=RANDOMS)
def test_where_nodes_were_dropped_they_are_the_noise_of_the_leaves(random: Random) -> None:
    release = cases_of(random, DROPPING)[0].release
    found = OfOne(release.fitted)
    if release.fitted.nothing_dropped:
        assert found.unseen == 0
        return
    measured, leaves = found.measured, len(found.estimate)
    assert np.array_equal(found.estimate, found._levels[-1].noisy)
    assert found.unseen >= 0
    errors = found.estimate - np.array(list(found.tables(len(measured)))).reshape(len(measured), leaves)
    for (at, node), error in zip(measured, errors, strict=True):
        expected = np.zeros(leaves)
        if at == len(found._levels) - 1:
            expected[node] = found._levels[at].noise ** 0.5
        np.testing.assert_allclose(error, expected, atol=1e-9 * (1 + np.abs(found.estimate).max(initial=0)))


# The noise


@pytest.mark.slow
def test_sampled_variances_are_those_of_the_fit() -> None:
    """2,000 replicates: a row, a column, the flows within zones, a leaf, and the mean over all leaves.

    The sampled variance over the expected one is chi-squared with 2,000 degrees of freedom, divided by 2,000. One of
    the four is outside .83 to 1.18 with probability 2e-7. The mean over the leaves, which are nearly independent, has a
    standard deviation of about .001. So it also rejects a scale that is wrong by 2 %.
    """
    release = release_of()
    found = release.replicated
    origin, destination = found.ends
    sample = np.array(list(found.tables(2000))) - found.estimate
    masks = [origin == 0, destination == 1, origin == destination, np.arange(len(origin)) == 7]
    expected = dense_errors(OfOne(release.fitted))
    for mask in masks:
        variance = np.square(expected[:, mask].sum(axis=1)).sum()
        sums = sample[:, mask].sum(axis=1)
        assert 0.83 < np.square(sums).mean() / variance < 1.18
        assert abs(sums.mean()) < 5 * (variance / 2000) ** 0.5
    leaf = np.array([np.square(sample).mean(axis=0), np.square(expected).sum(axis=0)])
    assert leaf.shape[1] > 500
    assert 0.98 < (leaf[0] / leaf[1]).mean() < 1.02


def test_the_noise_of_nodes_has_variance_1_and_no_correlation() -> None:
    """Between neighbours, levels and replicates: each sum of n products is 0 within 5 / sqrt(n)."""
    found = release_of().replicated
    last = len(found._levels) - 1
    n = 40_000
    places = ((0, last), (0, 1), (1, last))
    noise = [found._draw_level_noise(r, at, 0, n) / found._levels[at].noise ** 0.5 for r, at in places]
    assert abs(np.square(noise[0]).mean() - 1) < 5 * (2 / n) ** 0.5
    assert found._quantiles.var() == pytest.approx(1, abs=1e-14)
    assert abs(np.mean(noise[0][1:] * noise[0][:-1])) < 5 / n**0.5
    for other in noise[1:]:
        assert abs(np.mean(noise[0] * other)) < 5 / n**0.5
    for first, end in ((0, 1), (3, 18), (16, 32), (31, 33), (5, 5)):
        every = found._draw_level_noise(0, last, 0, n)
        assert np.array_equal(found._draw_level_noise(0, last, first, end), every[first:end])


def test_replicates_are_the_same_for_any_number_of_them_of_threads_and_of_leaves_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for release in (release_of(), release_of(cap=0)):
        expected = list(release.replicated.tables(5))
        assert digest(list(release.replicated.tables(2))) == digest(expected[:2])
        assert len({digest([table]) for table in expected}) == 5
        for threads, block in (("1", 1), ("2", 1), ("2", 1000), ("1", 10**9)):
            monkeypatch.setenv("OD_THREADS", threads)
            monkeypatch.setattr(replicates, "_BLOCK", block)
            again = Replicates(release.fitted)
            assert digest(list(again.tables(5))) == digest(expected)
            for number in (1, 5):
                rows = np.concatenate([rows for _, rows in again.blocks(number)], axis=1)
                assert digest(list(rows)) == digest(expected[:number])
    one, other = (release_of(seed).replicated for seed in (1, 2))
    assert not np.array_equal(one._draw_level_noise(0, 1, 0, 10), other._draw_level_noise(0, 1, 0, 10))


def test_replicates_are_these_bytes_on_every_machine() -> None:
    """Of measurements that are written here, so that no generator of a test decides them."""
    zones = [("a", "a1"), ("a", "a2"), ("b", "b1")]
    release = small(zones, noise=ListedNoise([3, -1, 0, 4, -2, 5, -7]))
    expected = "006b4a8ba0cc246a599f38f377f142f0e982b60a909e0a99a51b5f038192b65e"
    assert digest(list(release.replicated.tables(3))) == expected


# Frames and refusals


def test_tables_have_the_codes_of_all_measured_pairs() -> None:
    release = segment_case(Random(5)).release  # noqa: S311  # no secret
    (table,), (trips,) = release.replicates(1), release.replicated.tables(1)
    assert table.columns.tolist() == release.flows.columns.tolist() == ["origin", "destination", "trips"]
    assert table["trips"].dtype == np.float64
    assert table["trips"].tolist() == trips.tolist()
    pairs = [(o, d) for o in release.tree.origin.zones for d in release.tree.destination.zones]
    assert [*zip(table["origin"], table["destination"], strict=True)] == pairs or not release.fitted.nothing_dropped
    assert len(table) == len(release.fitted.levels[-1].nodes)


def test_what_has_no_replicates_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    release = release_of()
    for number in (0, -3):
        with pytest.raises(OdError, match=f"OD-REPLICATES-NUMBER: {number} replicates cannot be made"):
            next(release.replicates(number))
    parents = len(release.fitted.levels[-1].siblings)
    monkeypatch.setattr(replicates, "read_memory_limit", lambda: 8 * 100 * parents - 1)
    assert len(list(release.replicated.blocks(99))) > 0
    with pytest.raises(OdError, match="OD-LEVEL-MEMORY: 100 replicates"):
        release.replicated.blocks(100)
