from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.group_sizes.mechanisms import CumulativeDP, GroupSizeMechanism, fitted_histograms
from tests.od_core.group_sizes.trees import assert_consistent, cost, least_cost, random_case


def by_hand(noisy: list[int], total: int) -> list[int]:
    """The regression by its minimax formula, over fractions; clipped, rounded half up, and the differences."""
    entries = range(len(noisy))
    means = {(a, b): Fraction(sum(noisy[a : b + 1]), b + 1 - a) for a in entries for b in range(a, len(noisy))}
    regressed = [max(min(means[a, b] for b in range(i, len(noisy))) for a in range(i + 1)) for i in entries]
    whole = [floor(min(max(value, Fraction(0)), Fraction(total)) + Fraction(1, 2)) for value in regressed]
    return [b - a for a, b in zip([0, *whole], [*whole, total], strict=True)]


@given(st.data())
def test_the_regression_is_that_of_the_minimax_formula(data):
    sizes = data.draw(st.integers(1, 8))
    row = st.tuples(st.lists(st.integers(-9, 20), min_size=sizes, max_size=sizes), st.integers(0, 12))
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    noisy, totals = np.array([one for one, _ in rows]), np.array([total for _, total in rows])
    assert fitted_histograms(totals, noisy, "least_squares").tolist() == [by_hand(one, total) for one, total in rows]


def cumulative_case(rng: np.random.Generator, **limits: int):
    frame, noisy, scale = random_case(rng, **limits)
    return frame, [np.cumsum(values, axis=1)[:, :-1] for values in noisy], Fraction(scale)


@pytest.mark.representatives("True")
@pytest.mark.parametrize("area_totals", [True, False])
def test_keeps_its_promise_and_solves_the_program_on_100_trees(area_totals):
    mechanism, rng = CumulativeDP(area_totals=area_totals), np.random.default_rng(150)
    assert isinstance(mechanism, GroupSizeMechanism)
    for _ in range(100):
        frame, noisy, scale = cumulative_case(rng)
        histograms = mechanism.estimate(frame, noisy, scale)
        assert_consistent(frame, histograms, all_totals=area_totals)
        levels = zip(frame.levels, noisy, strict=True)
        target = [fitted_histograms(frame.totals(level), values, "least_squares") for level, values in levels]
        assert cost(target, histograms) == least_cost(frame, target, area_totals=area_totals)


def test_without_noise_it_is_the_truth():
    rng = np.random.default_rng(5)
    for area_totals in (True, False):
        frame, _, scale = cumulative_case(rng, most_groups=40, most_sizes=12)
        truth = np.array(
            [rng.multinomial(count, np.full(frame.top_code + 1, 1 / (frame.top_code + 1))) for count in frame.groups]
        )
        noisy = [np.cumsum(frame.sums(truth, level), axis=1)[:, :-1] for level in frame.levels]
        histograms = CumulativeDP(area_totals=area_totals).estimate(frame, noisy, scale)
        assert histograms[-1].tolist() == truth.tolist()
