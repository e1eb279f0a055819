"""The mechanisms for group sizes on 1,000 random trees each, and what the better estimators gain."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from od_core.group_sizes.mechanisms import BottomUpPosterior, SizesPosterior
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
