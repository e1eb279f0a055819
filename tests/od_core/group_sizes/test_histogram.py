"""The optima of histograms and of cumulative counts by dynamic programming, against a linear program."""

from fractions import Fraction

import numpy as np
import pytest

from od_core.group_sizes.mechanisms import CumulativeDP, GroupSizeMechanism, Histogram, fit_histograms
from tests.od_core.group_sizes.trees import assert_consistent, cost, least_cost, random_case


@pytest.mark.exhaustive
@pytest.mark.representatives("True-*")
@pytest.mark.parametrize("kind", [Histogram, CumulativeDP])
@pytest.mark.parametrize("area_totals", [True, False])
def test_keeps_its_promise_and_is_optimal_on_60_trees(area_totals, kind):
    """Of cumulative counts, the nearest to the histograms of their regression."""
    mechanism, rng = kind(area_totals=area_totals), np.random.default_rng(15)
    assert isinstance(mechanism, GroupSizeMechanism)
    for _ in range(60):
        frame, noisy, scale = random_case(rng)
        if kind is CumulativeDP:
            measured = [np.cumsum(values, axis=1)[:, :-1] for values in noisy]
            levels = zip(frame.levels, measured, strict=True)
            noisy = [fit_histograms(frame.count_groups(level), values, "least_squares") for level, values in levels]
        else:
            measured = noisy
        histograms = mechanism.estimate(frame, measured, Fraction(scale))
        assert_consistent(frame, histograms, all_totals=area_totals)
        assert cost(noisy, histograms) == least_cost(frame, noisy, area_totals=area_totals)
