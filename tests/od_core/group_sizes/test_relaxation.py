import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse

from od_core.group_sizes.area_totals import reals, relaxed_prices
from tests.od_core.group_sizes.trees import random_case


def by_clarabel(frame, noisy) -> list[np.ndarray]:
    """The same program, told to a solver as it is written."""
    levels = list(frame.levels)
    x = [cp.Variable(values.shape, nonneg=True) for values in noisy]
    conditions = []
    for k, level in enumerate(levels):
        conditions.append(cp.sum(x[k], axis=1) == frame.totals(level))
        if k + 1 < len(levels):
            parents = frame.geography.parents[level + 1]
            sums = sparse.csr_array((np.ones(len(parents)), (parents, np.arange(len(parents)))))
            conditions.append(x[k] == sums @ x[k + 1])
    objective = sum(cp.sum_squares(one - values) for one, values in zip(x, noisy, strict=True))
    cp.Problem(cp.Minimize(objective), conditions).solve(cp.CLARABEL)
    return [one.value for one in x]


def relaxed(frame, noisy) -> list[np.ndarray]:
    prices = relaxed_prices(frame, noisy)
    return [np.maximum(reals(frame, noisy, prices, k, slice(0, len(noisy[k]))), 0) for k in range(len(noisy))]


def test_is_what_a_solver_finds_on_60_trees():
    """The optimum is the only one, since the objective is strictly convex; both stop near it."""
    rng = np.random.default_rng(60)
    for _ in range(60):
        frame, noisy, _ = random_case(rng, most_groups=30, most_sizes=10, max_fan_out=4)
        for ours, theirs in zip(relaxed(frame, noisy), by_clarabel(frame, noisy), strict=True):
            assert ours == pytest.approx(theirs, abs=0.05)
