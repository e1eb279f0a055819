from fractions import Fraction

import numpy as np
import pytest

from od_core.group_sizes.mechanisms import GroupSizeMechanism, Histogram
from tests.od_core.group_sizes.trees import assert_consistent, cost, least_cost, random_case


@pytest.mark.representatives("True")
@pytest.mark.parametrize("area_totals", [True, False])
def test_keeps_its_promise_and_is_optimal_on_100_trees(area_totals):
    mechanism, rng = Histogram(area_totals=area_totals), np.random.default_rng(15)
    assert isinstance(mechanism, GroupSizeMechanism)
    for _ in range(100):
        frame, noisy, scale = random_case(rng)
        histograms = mechanism.estimate(frame, noisy, Fraction(scale))
        assert_consistent(frame, histograms, all_totals=area_totals)
        assert cost(noisy, histograms) == least_cost(frame, noisy, area_totals=area_totals)
