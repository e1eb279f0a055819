"""Intervals of indicators: how often they hold the truth, at least 88 times in a hundred.

The areas of one run share their noise, the runs do not: so a run's share of covered areas is one observation, and the
runs are compared with 88 % by Student's t, one-sided. All tests of a data set together fail with probability 1e-6,
shared evenly. Wrong intervals must be rejected by the same test.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks.indicators import NUMBERS, RATIOS, true_bands, true_indicators
from od_core.evaluation.known_flows import SEED, KnownFlows, make_italy_flows, make_random_tree_flows
from od_core.flows import indicators as module
from od_core.flows import interval_ends
from od_core.flows.estimation import intervals
from od_core.flows.indicators import distance_bands
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from tests.statistical.laws import too_rarely_covered
from tests.statistical.test_interval_coverage import plan_of

CASES = {
    "random": (lambda: make_random_tree_flows(SEED, levels=3, zones=60, trips=60_000), "1", 5_000_000),
    "italy, nodes dropped": (lambda: make_italy_flows(SEED, scale=0.01), "1", 0),
}
RUNS, LEAST = 40, 0.88


def covered(name: str) -> pd.DataFrame:
    """The share of areas whose interval holds the truth, by run (rows) and indicator. Shares of 0 are left out."""
    make, epsilon, cap = CASES[name]
    data = KnownFlows.from_synthetic_flows(make())
    degrees = np.random.default_rng(SEED).uniform(-20, 20, (len(data.geography.zones), 2))
    plan = plan_of(replace(data.geography, coordinates=degrees), epsilon, cap)
    true = true_indicators(plan.tree, data.trips)
    begun = true["within"] + true["outflow"]
    true["self_containment"] = (true["within"] / begun).where(true["within"] > 0).round(6)
    true["mean_distance"] = (true["far"] / true["known"]).where(true["far"] > 0).round(3)
    bands = true_bands(plan.tree, data.trips)[0]
    rows = []
    for _ in range(RUNS):
        release = run_plan(plan, data.trips, resolve_noise_source("table"), MemoryMeasurements())
        found = module.indicators(release)
        inside = {
            column: ((found[f"{column}_lower"] <= true[column]) & (true[column] <= found[f"{column}_upper"]))[
                true[column].notna()
            ].mean()
            for column in (*NUMBERS, *RATIOS)
        }
        far = distance_bands(release)
        inside["bands"] = ((far["lower"] <= bands) & (bands <= far["upper"])).mean()
        rows.append(inside)
    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", CASES)
def test_indicators_are_covered(name):
    """Failure probability 1e-6 for each data set."""
    assert not too_rarely_covered(covered(name), LEAST)


def test_narrower_intervals_are_rejected(monkeypatch):
    """By a third."""
    for place in (interval_ends, intervals):
        monkeypatch.setattr(place, "DEVIATIONS", 0.66 * interval_ends.DEVIATIONS)
    assert too_rarely_covered(covered("random"), LEAST)
