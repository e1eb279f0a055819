"""The cost tables against HiGHS on 500 random trees."""

from fractions import Fraction

import numpy as np

from od_core.group_sizes.cost_tables import first_cut, nearest_histograms
from tests.od_core.group_sizes.trees import assert_consistent, cost, least_cost, random_case


def test_is_optimal_on_500_trees_whatever_the_cut():
    rng = np.random.default_rng(500)
    for _ in range(500):
        frame, noisy, scale = random_case(rng)
        least = least_cost(frame, noisy, area_totals=False)
        for cut in (1, 2, 8, first_cut(Fraction(scale))):
            histograms = nearest_histograms(frame, noisy, cut)
            assert_consistent(frame, histograms, all_totals=False)
            assert cost(noisy, histograms) == least, cut
