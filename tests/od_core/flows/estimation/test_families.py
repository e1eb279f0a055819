"""Predicted shares: of a level that refines both sides, and blended with another table."""

from collections import Counter
from itertools import pairwise

import numpy as np

from od_core.flows.estimation.families import Families, blend_shares, compute_gravity_shares, iterate_families
from od_core.flows.estimation.least_squares import build_measured_levels
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import SeededNoise
from tests.od_core.flows.estimation.test_empirical_bayes import counts_of, plan_of_world
from tests.od_core.flows.estimation.test_shrinkage import GRAVITY

FAMILIES, CHILDREN = 60, 40


def level(true: np.ndarray, noise: np.ndarray) -> Families:
    """A level of families of 40 children whose trips are measured with noise; shape of both: (families, children)."""
    number = len(true)
    estimates = true + noise
    return Families(
        offsets=np.arange(0, true.size + 1, CHILDREN),
        parents=np.arange(number),
        kept=None,
        sides=(0,),
        area=np.tile(np.arange(CHILDREN, dtype=np.int32), number)[np.newaxis],
        areas=(CHILDREN,),
        total=estimates.sum(axis=1),
        siblings=np.full(number, float(CHILDREN)),
        noisy=estimates.ravel(),
        noise=float(noise.var()),
        z=np.empty(0),
        v=np.empty(0),
        parent_h=true.sum(axis=1).astype(float),
        parent_variance=np.zeros(number),
    )


def drawn(random: np.random.Generator) -> tuple[Families, np.ndarray, np.ndarray]:
    """A level, its shares without another table, and its true trips, around the shares in a gamma law.

    Noise is larger in some cells, and sums to 0 in each family.
    """
    shares = random.dirichlet(np.ones(CHILDREN), FAMILIES)
    true = random.uniform(100, 5_000, (FAMILIES, 1)) * shares
    true = true * random.gamma(2, 1 / 2, true.shape)
    noise = random.normal(0, random.uniform(5, 50, true.shape))
    own = level(true, noise - noise.mean(axis=1, keepdims=True))
    return own, shares.ravel(), true.ravel()


def test_a_level_learns_from_a_table_of_the_same_trips() -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        own, p, true = drawn(random)
        shares = blend_shares(own, p, true, 1.0, least=2.0)
        of_truth = true / np.repeat(own.parent_h, CHILDREN)
        assert np.abs(shares - of_truth).sum() < 0.5 * np.abs(p - of_truth).sum()


def test_a_level_learns_from_a_table_that_says_nothing_only_by_chance() -> None:
    """400 levels, each with a table of its own around the same shares, which explains nothing of what they leave.

    A score above 2 has a probability of 2.3 %; more than 26 of 400 then have one below 1e-6. Scores that take all cells
    for equally noisy, or that add up products instead of fits by size, would be too large or too small.
    """
    random, learnt = np.random.default_rng(2), np.zeros(3, dtype=np.int64)
    for _ in range(400):
        own, p, _ = drawn(random)
        other = 1_000 * p * random.gamma(2, 1 / 2, p.shape)
        for place, least in enumerate((2.0, 1.0, -np.inf)):
            learnt[place] += not np.array_equal(blend_shares(own, p, other, 1.0, least), p)
    assert learnt[0] <= 26
    assert 20 < learnt[1] < 110
    assert learnt[2] == 400


def test_where_both_sides_are_refined_shares_are_products_of_the_sums_of_both():
    """Of the other cells of the level with the same origin, and with the same destination; by loops."""
    plan = plan_of_world(GRAVITY, "both", epsilon="0.5")
    release = run_plan(plan, counts_of(plan, GRAVITY), SeededNoise(3), MemoryMeasurements())
    levels = build_measured_levels(plan, None, release.measured)
    for own, level in zip(iterate_families(plan, levels), levels[1:], strict=True):
        h, ends = own.fitted[0], list(zip(level.nodes.origin.tolist(), level.nodes.destination.tolist(), strict=True))
        sums, cells = [Counter[int](), Counter[int]()], [Counter[int](), Counter[int]()]
        for pair, value in zip(ends, h.tolist(), strict=True):
            for side in (0, 1):
                sums[side][pair[side]] += value
                cells[side][pair[side]] += 1
        found = compute_gravity_shares(own)
        for first, last in pairwise(own.offsets.tolist()):
            weights = []
            for i in range(first, last):
                of_sides = [
                    max(sums[side][ends[i][side]] - h[i], 0) + own.sigma / 2 * (cells[side][ends[i][side]] - 1) ** 0.5
                    for side in (0, 1)
                ]
                weights.append(of_sides[0] * of_sides[1])
            expected = np.array(weights) / sum(weights) if sum(weights) else np.full(len(weights), 1 / len(weights))
            np.testing.assert_allclose(found[first:last], expected, rtol=1e-9, atol=1e-12)
