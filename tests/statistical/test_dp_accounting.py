"""Epsilon at a delta by Google's dp-accounting, and by ours: two upper bounds of one number, and one lower bound."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import reduce

import absl.logging
import pytest
from dp_accounting.pld import privacy_loss_distribution

from od_core.privacy.accounting import rho_for_epsilon
from od_core.privacy.privacy_loss import epsilon_exact

# Its handler has taken the file that pytest captures standard error in, and would close it with the next configuration
# of logging, under all tests after it.
absl.logging.get_absl_handler().python_handler.stream = sys.__stderr__

PLANS = 100


def plans() -> Iterator[tuple[Fraction, list[tuple[Fraction, int]]]]:
    """Delta, and variance and cells that a trip changes of every level."""
    rng = random.Random("plans")  # noqa: S311
    for number in range(PLANS):
        epsilon, delta = Fraction(10 ** rng.uniform(-1, 1)), Fraction(10 ** rng.uniform(-9, -5))
        levels = rng.randint(2, 16)
        weights = [Fraction(1) if number % 2 else Fraction(rng.randint(1, 20)) for _ in range(levels)]
        rho = rho_for_epsilon(epsilon, delta, "tight")
        cells = [rng.choice((1, 2)) for _ in range(levels)]
        spent = [rho * weight / sum(weights) for weight in weights]
        yield delta, [(count / (2 * share), count) for share, count in zip(spent, cells, strict=True)]


def epsilon_of_dp_accounting(levels: list[tuple[Fraction, int]], delta: Fraction, *, pessimistic: bool) -> float:
    """Epsilon at delta of the composition, from distributions on a grid; above the true one, or below it.

    "Connect the dots" raises the variance of the loss by at most a grid step squared a cell: a hundredth of the
    standard deviation suffices. The lower bound rounds every loss down, so it takes a finer one.
    """
    sizes = Counter()
    for variance, count in levels:
        sizes[variance] += count
    deviation = math.sqrt(sum(count / variance for variance, count in sizes.items()))
    parts = [
        privacy_loss_distribution.from_discrete_gaussian_mechanism(
            math.sqrt(variance),
            value_discretization_interval=deviation / (100 if pessimistic else 500),
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
        ).self_compose(count)
        for variance, count in sizes.items()
    ]
    return float(reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(float(delta)))


@pytest.fixture(scope="module")
def computed() -> list[tuple[float, float, float]]:
    """By plan: ours, and theirs from above and from below."""
    found = []
    for delta, levels in plans():
        ours = epsilon_exact(tuple(variance for variance, count in levels for _ in range(count)), delta)
        theirs = [epsilon_of_dp_accounting(levels, delta, pessimistic=each) for each in (True, False)]
        found.append((float(ours), *theirs))
    return found


def test_two_upper_bounds_agree_to_a_percent(computed):
    for ours, above, _ in computed:
        assert 0.99 < ours / above < 1.01


def test_ours_is_never_below_their_lower_bound(computed):
    """Which is sharp enough to see two percent."""
    for ours, _, below in computed:
        assert 0.98 * ours < below <= ours


def test_an_epsilon_of_half_the_cells_would_be_seen(computed):
    """As if a substitution moved one cell a level: far below the lower bound."""
    for (delta, levels), (_, _, below) in zip(plans(), computed, strict=True):
        if any(count == 2 for _, count in levels):
            assert float(epsilon_exact(tuple(variance for variance, _ in levels), delta)) < 0.99 * below
