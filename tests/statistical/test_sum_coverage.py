"""How often the intervals of sums of releases hold the truth, at every pair of levels, against wrong rules.

The cells of one run share their noise, the runs do not. So a run's share of covered cells is one observation, and the
runs are compared with nine tenths by Student's t. All pairs of levels of a case share a failure probability of 1e-6.
The true flows are so large, and every node is kept, that no estimate is cut at 0: the coverage is nine tenths, no more
and no less, but for rounding, which widens intervals by less than a hundredth of their width here.
"""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from od_core import Budget, sum_releases
from od_core.flows.estimation import intervals
from od_core.flows.mechanisms import InfTDARefined
from od_core.noise.backends import resolve_noise_source
from tests.od_core.oracles.intervals import made
from tests.statistical.laws import ALPHA

ZONES = [(f"r{k}", f"r{k}z{j}") for k in range(4) for j in range(4)]
BUDGETS = [Budget(rho=rho, delta=1e-8) for rho in ("0.00002", "0.0001", "0.00004")]
"""Budgets of three periods: very unequal noise, of hundreds of trips."""

RUNS = 60
SLACK = 0.01
"""Of the coverage: rounding, and noise that is not quite normal."""

RULES = {
    "half widths added": lambda each: sum(one.variance**0.5 for one in each) ** 2,
    "the mean variance": lambda each: sum(one.variance for one in each) / len(each),
    "the noisiest period alone": lambda each: np.max([one.variance for one in each], axis=0),
}
"""Wrong variances of a sum."""


@cache
def runs() -> list[Any]:
    """Sums of three periods with their true flows."""
    rng = np.random.default_rng(22)
    truths = [rng.integers(20_000, 60_000, (len(ZONES), len(ZONES))) for _ in BUDGETS]
    found = []
    for _ in range(RUNS):
        given = {"mechanism": InfTDARefined(), "noise": resolve_noise_source("table")}
        asked = zip(truths, BUDGETS, strict=True)
        cases = [made(ZONES, ZONES, truth, budget=budget, **given) for truth, budget in asked]
        found.append((cases, sum_releases([case.release for case in cases])))
    return found


@cache
def cells(levels: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of all pairs of areas of two levels, and their true trips in all periods."""
    cases, _ = runs()[0]
    origins, destinations = (cases[0].areas(side, level) for side, level in enumerate(levels))
    o, d = np.indices((len(origins), len(destinations)), dtype=np.int32).reshape(2, -1)
    truth = [sum(case.true(origins[i], destinations[j]) for case in cases) for i, j in zip(o, d, strict=True)]
    return o, d, np.array(truth)


def shares() -> np.ndarray:
    """Shares of covered cells, one row a run and one column a pair of levels but the exact total."""
    rows = []
    for _, total in runs():
        total.__dict__.pop("intervals", None)
        row = []
        for levels in list(product(range(3), range(3)))[1:]:
            origin, destination, truth = cells(levels)
            lower, upper = total.intervals.compute_cell_bounds(*levels, origin, destination)
            row.append(((lower <= truth) & (truth <= upper)).mean())
        rows.append(row)
    return np.array(rows)


def p_value(covered: np.ndarray) -> float:
    """That every pair of levels is covered nine times in ten, from above and from below: the least, corrected."""
    error = covered.std(axis=0, ddof=1) / len(covered) ** 0.5
    off = np.maximum(np.abs(covered.mean(axis=0) - 0.9) - SLACK, 0)
    # Intervals that are far too wide may cover every cell of a small pair of levels in every run.
    excess = np.divide(off, error, out=np.where(off > 0, np.inf, 0), where=error > 0)
    return float(2 * stats.t.sf(excess, len(covered) - 1).min() * covered.shape[1])


def test_intervals_of_sums_hold_the_truth_nine_times_in_ten():
    assert p_value(shares()) > ALPHA


@pytest.mark.parametrize("rule", RULES)
def test_other_rules_are_rejected(rule, monkeypatch):
    added = intervals.sum_estimates

    def otherwise(each):
        return replace(added(each), variance=RULES[rule](each))

    monkeypatch.setattr(intervals, "sum_estimates", otherwise)
    assert p_value(shares()) < ALPHA
