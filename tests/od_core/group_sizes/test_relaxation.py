import cvxpy as cp
import numpy as np
import pytest

from od_core.group_sizes.area_totals import compute_real_solution, compute_relaxed_prices
from tests.od_core.group_sizes.trees import by_clarabel, random_case


def relaxed(frame, noisy) -> list[np.ndarray]:
    prices = compute_relaxed_prices(frame, noisy)
    levels = range(len(noisy))
    real = [compute_real_solution(frame, noisy, prices, k, slice(0, len(noisy[k]))) for k in levels]
    return [np.maximum(each, 0) for each in real]


def test_is_what_a_solver_finds_on_60_trees():
    """The optimum is the only one, since the objective is strictly convex; both stop near it."""
    rng = np.random.default_rng(60)
    for _ in range(60):
        frame, noisy, _ = random_case(rng, most_groups=30, most_sizes=10, max_fan_out=4)
        x = [cp.Variable(values.shape, nonneg=True) for values in noisy]
        totals = [cp.sum(one, axis=1) == frame.count_groups(level) for one, level in zip(x, frame.levels, strict=True)]
        for ours, theirs in zip(relaxed(frame, noisy), by_clarabel(frame, noisy, x, totals), strict=True):
            assert ours == pytest.approx(theirs, abs=0.05)
