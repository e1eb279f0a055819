"""The mechanisms for group sizes on 1,000 random trees each, and what the better estimators gain."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np
import pytest

from od_core.group_sizes.groups import Frame
from od_core.group_sizes.mechanisms import BottomUp, BottomUpPosterior, Sizes, SizesPosterior
from tests.od_core.group_sizes.test_mechanisms import (
    assert_keeps_its_promise,
    by_oracle,
    every_mechanism,
    named,
    noisy_values,
    random_world,
)

POSTERIORS = [BottomUpPosterior(), BottomUpPosterior("sizes"), SizesPosterior()]


@every_mechanism
def test_equals_the_oracle_on_1000_random_trees(mechanism):
    rng = np.random.default_rng(1000)
    sums = 0
    for number in range(1_000):
        world = random_world(rng)
        noisy = noisy_values(world, mechanism, rng, p=rng.choice((0.02, 0.3, 0.9)))
        before = [values.copy() for values in noisy]
        released = mechanism.estimate(world.frame, noisy, Fraction(3, 2))
        assert_keeps_its_promise(world.frame, released)
        assert all((a == b).all() for a, b in zip(before, noisy, strict=True))
        sums += int(world.frame.groups.sum())
        if number % 8 == 0:
            assert released[-1].tolist() == by_oracle(world.frame, mechanism, noisy, Fraction(3, 2))
    assert sums > 15_000


@pytest.mark.parametrize("mechanism", POSTERIORS, ids=named)
def test_keeps_its_promise_on_1000_random_trees(mechanism):
    rng = np.random.default_rng(1001)
    for _ in range(1_000):
        world = random_world(rng)
        noisy = noisy_values(world, mechanism, rng, p=rng.choice((0.02, 0.3, 0.9)))
        before = [values.copy() for values in noisy]
        released = mechanism.estimate(world.frame, noisy, Fraction(3, 2))
        assert_keeps_its_promise(world.frame, released)
        assert all((a == b).all() for a, b in zip(before, noisy, strict=True))


@pytest.mark.parametrize(
    ("mechanism", "scale"),
    [
        (BottomUpPosterior(), 1),
        (BottomUpPosterior(), 10),
        (BottomUpPosterior("sizes"), 1),
        (BottomUpPosterior("sizes"), 10),
        (SizesPosterior(), 10),
    ],
)
def test_is_nearer_to_the_truth_than_the_paper_s(mechanism, scale):
    """Areas of 40 groups, half of size 0, the others near 50 to 150: at most nine tenths of the distance."""
    rng = np.random.default_rng(10)
    world = random_world(rng)
    while len(world.sizes) < 20:
        world = random_world(rng)
    number = len(world.sizes)
    frame = Frame(world.frame.geography, np.full(number, 40), 300)
    world.frame = frame
    world.sizes = [[0] * 20 + rng.poisson(rng.uniform(50, 150), 20).tolist() for _ in range(number)]
    truth = np.cumsum(world.truth()[-1], axis=1)
    other = BottomUp(mechanism.leaf) if mechanism.leaves_alone else Sizes()
    distances = {mechanism: 0, other: 0}
    for _ in range(5):
        noisy = noisy_values(world, mechanism, rng, p=1 - exp(-1 / scale))
        for one in distances:
            released = one.estimate(frame, noisy, Fraction(scale))
            distances[one] += int(np.abs(np.cumsum(released[-1], axis=1) - truth).sum())
    assert distances[mechanism] < 0.9 * distances[other]
