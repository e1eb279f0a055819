"""Epsilon at a delta by Google's dp-accounting, and by ours: two upper bounds of one number, and one lower bound."""

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

from od_core.privacy.accounting import find_rho_for_epsilon
from od_core.privacy.budget import Spent
from od_core.privacy.domain import compute_largest_rho
from od_core.privacy.posterior import Guarantee
from od_core.privacy.privacy_loss import compute_exact_epsilon

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
        rho = find_rho_for_epsilon(epsilon, delta, "tight")
        cells = [rng.choice((1, 2)) for _ in range(levels)]
        spent = [rho * weight / sum(weights) for weight in weights]
        yield delta, [(count / (2 * share), count) for share, count in zip(spent, cells, strict=True)]


def loss_of_dp_accounting(levels: list[tuple[Fraction, int]], *, pessimistic: bool, most: int = 1, times: int = 1):
    """The privacy loss of the composition, so many times, if cells change by ``most``.

    It is computed from distributions on a grid; above the true one, or below it.

    "Connect the dots" raises the variance of the loss by at most a grid step squared a cell: a hundredth of the
    standard deviation suffices. The lower bound rounds every loss down, so it takes a finer one.
    """
    sizes = Counter()
    for variance, count in levels:
        sizes[variance] += count
    deviation = most * math.sqrt(sum(count / variance for variance, count in sizes.items()))
    grid = {"value_discretization_interval": deviation / (100 if pessimistic else 500)}
    given = grid | {"sensitivity": most, "pessimistic_estimate": pessimistic, "use_connect_dots": pessimistic}
    loss_of = privacy_loss_distribution.from_discrete_gaussian_mechanism
    parts = [loss_of(math.sqrt(variance), **given).self_compose(count * times) for variance, count in sizes.items()]
    return reduce(lambda one, other: one.compose(other), parts)


def epsilon_of_dp_accounting(levels: list[tuple[Fraction, int]], delta: Fraction, *, pessimistic: bool) -> float:
    return float(loss_of_dp_accounting(levels, pessimistic=pessimistic).get_epsilon_for_delta(float(delta)))


@pytest.fixture(scope="module")
def computed() -> list[tuple[float, float, float]]:
    """By plan: ours, and theirs from above and from below."""
    found = []
    for delta, levels in plans():
        ours = compute_exact_epsilon(tuple(variance for variance, count in levels for _ in range(count)), delta)
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
            assert float(compute_exact_epsilon(tuple(variance for variance, _ in levels), delta)) < 0.99 * below


def of_plan(number: int, plan: tuple[Fraction, list[tuple[Fraction, int]]]) -> tuple[Guarantee, float]:
    """What a release promises, or a year of them, and the bound of dp-accounting for the best guess.

    Of four plans, one is of single trips, one of a person with k trips under this unit, one of users with at most m
    trips, and one of a year of such users, who have 2 m trips in all. A user changes one cell of a level by m.
    """
    delta, levels = plan
    kind, most = number % 4, 2 + number % 3
    times = 2 if kind == 3 else 1
    if kind > 1:
        levels = [(variance, 1) for variance, _ in levels]
    rho = sum((Fraction(count) / (2 * variance) for variance, count in levels), Fraction(0))
    trip = Guarantee.from_spent(
        Spent(tuple(count / (2 * v) for v, count in levels), delta, tuple(count for _, count in levels))
    )
    users = Guarantee.from_spent(
        Spent(tuple(most**2 / (2 * v) for v, _ in levels), delta, (1,) * len(levels), shift=most)
    )
    ours = {0: trip, 1: trip.scale_to_units(most), 2: users}.get(kind)
    if ours is None:
        ours = Guarantee.from_rho(compute_largest_rho([most**2 * rho] * 12, most, 2 * most), delta)
    loss = loss_of_dp_accounting(levels, pessimistic=True, most=most if kind else 1, times=times)
    return ours, 0.5 + loss.get_delta_for_epsilon(0) / 2


def test_best_guesses_of_fifty_plans_are_those_of_dp_accounting():
    """Equal for single trips and users, up to the grids; never below for persons and years, which follow from rho."""
    for number, plan in zip(range(50), plans(), strict=False):
        ours, theirs = of_plan(number, plan)
        guess = float(ours.bound_guess_probability())
        assert guess > theirs - 0.001
        if number % 4 in (0, 2):
            assert guess < theirs + 0.001
