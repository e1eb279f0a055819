"""The cost tables against HiGHS on 500 random trees, and against every answer on small ones."""

import itertools
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


def test_is_optimal_by_brute_force():
    """Every way to share up to four groups among the cells of up to two leaf areas."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        frame, noisy, _ = random_case(rng, most_groups=2, most_sizes=3, max_fan_out=2)
        leaves, sizes = len(frame.groups), frame.top_code + 1
        if leaves * sizes > 6:
            continue
        most = int(frame.groups.sum())
        best = None
        for values in itertools.product(range(most + 1), repeat=leaves * sizes):
            table = np.array(values).reshape(leaves, sizes)
            if (frame.sums(table, 1).sum(axis=1) == frame.totals(1)).all():
                found = cost(noisy, [frame.sums(table, level) for level in frame.levels])
                best = found if best is None else min(best, found)
        assert cost(noisy, nearest_histograms(frame, noisy, 1)) == best
