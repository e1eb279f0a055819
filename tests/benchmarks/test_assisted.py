"""Model-assisted flows after altered tables: what each way keeps, and what the costs are relative to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.assisted import WAYS, compared, estimates
from od_core import FlowTree, assist_release
from od_core.evaluation.known_flows import make_binary_flows
from od_core.flows.derived_flows import choose_release_rule
from tests.od_core.flows.estimation.test_shrinkage import GRAVITY
from tests.od_core.flows.test_assisted_flows import releases_of

SEEDS = st.integers(0, 2**32 - 1)


def test_estimates_are_those_of_model_assisted_flows():
    """Alone and with the releases before. Those with altered ones differ from them."""
    *before, own = releases_of(GRAVITY, range(3))
    found = estimates(own, before, 5)
    for name, expected in (("alone", assist_release([own])), ("assisted", assist_release([*before, own]))):
        assert np.array_equal(found[name].trips, expected.leaves.trips)
    assert choose_release_rule(own, before[-1].leaves).learns
    assert {tuple(found[way].trips) for way in WAYS}.isdisjoint({tuple(found["assisted"].trips)})


@settings(max_examples=20)
@given(seed=SEEDS)
def test_costs_are_changes_from_the_estimates_alone(seed):
    """Of three runs. A level of 36 cells has errors, but no cost of its own."""
    tree = FlowTree(*2 * [make_binary_flows(1, levels=6, trips=5_000).geography])
    random, levels = np.random.default_rng(seed), tree.depth
    alone, other = random.uniform(1, 9, (2, 3, levels, 4))
    found = [{"paper": np.ones((levels, 4)), "alone": a, "misled": o} for a, o in zip(alone, other, strict=True)]
    base, row = compared("c", "1", tree, found)
    assert base["cost"] == {"largest_errors": [0, 0], "total_error": [0, 0]} | dict.fromkeys(
        ("largest_error_of_a_level", "total_error_of_a_level"), 0
    )
    large = [k for k in range(levels) if tree.cells(k + 1) >= 1000]
    assert 0 < len(large) < levels
    by_level = other.mean(axis=0) / alone.mean(axis=0) - 1
    assert row["cost"]["largest_error_of_a_level"] == pytest.approx(by_level[large, 0].max())
    assert row["cost"]["total_error_of_a_level"] == pytest.approx(by_level[large, 1].max())
    assert row["cost"]["largest_errors"][0] == pytest.approx(by_level[:, 0].mean())
    mean, spread = row["cost"]["total_error"]
    changes = (other - alone)[:, -1, 1] / alone[:, -1, 1].mean()
    assert mean == pytest.approx(by_level[-1, 1])
    assert spread == pytest.approx(2 * np.std(changes, ddof=1) / 3**0.5)
