"""How often intervals hold the truth, by TRUE size, at every pair of levels: at least 88 times in a hundred.

The cells of one run share their noise, the runs do not: so a run's share of covered cells is one observation, and the
runs are compared with 88 % by Student's t, one-sided. A data set has a few hundred classes; all of its tests together
fail with probability 1e-6, shared evenly. Shares of at least ten cells over dozens of runs are near enough to normal.
Wrong intervals must be rejected by the same test.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage import coverage
from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.evaluation.known_flows import SEED, KnownFlows, make_binary_flows, make_italy_flows, make_random_tree_flows
from od_core.flows import interval_ends
from od_core.flows.interval_ends import compute_half_width
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from tests.statistical.laws import coverage_p_values, too_rarely_covered

LEAST_COVERED = 0.88
LEAST_CELLS = 10

SPARSE = {"levels": 7, "filled": Fraction(1, 60), "trips": 30_000}

CASES: dict[str, tuple[Callable[[], Any], str, int, int]] = {
    "binary": (lambda: make_binary_flows(SEED, levels=4, trips=3_000), "10", 5_000_000, 80),
    "random": (lambda: make_random_tree_flows(SEED, levels=3, zones=50, trips=15_000), "1", 5_000_000, 60),
    "italy, nodes dropped": (lambda: make_italy_flows(SEED, scale=0.01), "1", 0, 40),
    "italy, nodes dropped, little noise": (lambda: make_italy_flows(SEED, scale=0.01), "10", 0, 40),
    "binary, nodes dropped": (lambda: make_binary_flows(SEED, **SPARSE), "1", 0, 60),
    "flights": (lambda: None, "1", 5_000_000, 16),
}
"""Data, epsilon, cap of the leaf pairs up to which all nodes are kept, runs."""


@cache
def _synthetic(name: str) -> KnownFlows:
    return KnownFlows.from_synthetic_flows(CASES[name][0]())


def known(name: str, flights, geography) -> KnownFlows:
    if name != "flights":
        return _synthetic(name)
    records = flights["2001-06"].assign(trips=1).groupby(["origin", "destination"], as_index=False)["trips"].sum()
    return KnownFlows.from_frame("flights", "public", records, geography)


def plan_of(geography: Geography, epsilon: str, cap: int) -> ReleasePlan:
    budget, mechanism = Budget(epsilon=epsilon, delta="1e-8"), InfTDARefined(keep_all_cap=cap)
    return plan_release(geography, unit=PrivacyUnit("trip"), budget=budget, mechanism=mechanism, acceptance=NO_FAULTS)


def runs_of(name: str, data: KnownFlows) -> pd.DataFrame:
    """Shares of covered cells by pair of levels and class, one row a run."""
    _, epsilon, cap, runs = CASES[name]
    plan = plan_of(data.geography, epsilon, cap)
    pairs = data.tree.find_leaf_pairs(data.trips.rank)
    truth = Nodes(pairs.level, pairs.origin, pairs.destination, np.diff(data.trips.before))
    tables = []
    for run in range(runs):
        release = run_plan(plan, data.trips, resolve_noise_source("table"), MemoryMeasurements())
        tables.append(coverage([release], truth).assign(run=run))
    table = pd.concat(tables)
    classes = ["origin_level", "destination_level", "least_trips"]
    return table[table["cells"] >= LEAST_CELLS].pivot(index="run", columns=classes, values="covered")


@pytest.mark.parametrize("name", CASES)
def test_every_class_of_true_size_is_covered(name, flights, airport_geography):
    """Failure probability 1e-6 for each data set."""
    shares = runs_of(name, known(name, flights, airport_geography))
    assert shares.shape[1] >= 15
    assert {least for *_, least in shares.columns} >= {1, 10}
    worst = coverage_p_values(shares, LEAST_COVERED).argmin()
    assert not too_rarely_covered(shares, LEAST_COVERED), (shares.columns[worst], shares.mean().iloc[worst])


@pytest.mark.parametrize("name", ["random", "italy, nodes dropped"])
def test_narrower_intervals_are_rejected(monkeypatch, name):
    """By a fifth."""
    usual = interval_ends.DEVIATIONS
    monkeypatch.setattr(
        interval_ends, "compute_half_width", lambda e, v, deviations=usual: compute_half_width(e, v, 0.8 * deviations)
    )
    assert too_rarely_covered(runs_of(name, _synthetic(name)), LEAST_COVERED)
