"""Simulated releases: public noise of the exact distributions, the same whenever it is asked for."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from od_core import Budget, InfTDARefined, PrivacyUnit, plan_release
from od_core.evaluation.forecast import (
    RepeatableNoise,
    arrange_counts_for_plan,
    forecast,
    make_synthetic_table,
    simulate_releases,
)
from od_core.evaluation.targets import find_target_budget
from od_core.geography import flow_tree
from od_core.noise.backends import BACKENDS, LaplaceSource, NodeNoiseSource, find_backend_name
from od_core.parallel import use_one_thread
from od_core.records.counts import TripCounts
from tests.od_core.evaluation.test_target_budget import problem
from tests.od_core.strategies import geography_of


def test_the_noise_is_no_backend_that_a_declaration_can_name():
    noise = RepeatableNoise(0, 0)
    assert find_backend_name(noise) is None
    assert RepeatableNoise not in BACKENDS.values()
    assert isinstance(noise, LaplaceSource)
    assert not isinstance(noise, NodeNoiseSource)


def test_it_has_the_distribution_of_the_backend():
    """Chi-squared of 200,000 draws of one seed: the same at every call, so it fails for another reason than chance."""
    size, reach = 200_000, 5
    for drawn, mass in (
        (RepeatableNoise(1).draw(Fraction(2), 3, 0, size), lambda k: np.exp(-(k**2) / 4.0)),
        (RepeatableNoise(1).draw_laplace(Fraction(3, 2), size), lambda k: np.exp(-np.abs(k) / 1.5)),
    ):
        every = np.arange(-60, 61)
        weights = mass(every)
        chances = weights[np.abs(every) <= reach] / weights.sum()
        seen = np.array([(drawn == k).sum() for k in range(-reach, reach + 1)])
        expected = size * np.append(chances, 1 - chances.sum())
        assert stats.chisquare(np.append(seen, size - seen.sum()), expected).pvalue > 1e-6


def test_cells_of_several_levels_and_pieces_have_noise_of_their_own(monkeypatch: pytest.MonkeyPatch):
    """Without trips, measurements are noise, here of one scale, so large that few numbers are equal by chance."""
    monkeypatch.setattr(flow_tree, "CHILDREN_AT_ONCE", 3)
    zones = geography_of([(f"r{r}", f"r{r}z{z}") for r in range(3) for z in range(3)])
    given = {"unit": PrivacyUnit("trip", "unbounded"), "tree": "both", "area_totals": "2/5"}
    mechanism = InfTDARefined(noise_distribution="laplace")
    budget = Budget("0.0005", shares=["1/3", "1/3", "1/3"])
    plan = plan_release(zones, budget=budget, mechanism=mechanism, **given)
    [release] = simulate_releases(plan, TripCounts.from_ranks(*np.zeros((2, 0), dtype=np.int64)), 1, 0)
    noisy = np.concatenate([release.measurements_at(step.level)["noisy"] for step in plan.charged_steps])
    assert len(noisy) == 1 + 9 + 81 + 9 + 9
    assert len(np.unique(noisy)) > 0.9 * len(noisy)


def test_the_same_input_gives_the_same_result(monkeypatch: pytest.MonkeyPatch):
    """Releases, budgets for a target and forecasts, in pieces of one node on any number of threads."""
    monkeypatch.setattr(flow_tree, "CHILDREN_AT_ONCE", 3)
    plan, table, targets = problem(6, depth=2)
    trips = arrange_counts_for_plan(table, plan)

    def leaves(number: int | None) -> list[list[int]]:
        return [release.leaves.trips.tolist() for release in simulate_releases(plan, trips, 3, number)]

    def all_of_them() -> list[object]:
        frame = forecast(plan, make_synthetic_table(plan.tree.origin), runs=2)
        return [leaves(0), find_target_budget(plan, targets[:1], table, runs=3), frame.to_dict("list")]

    first = all_of_them()
    np.testing.assert_equal(all_of_them(), first)
    with use_one_thread():
        np.testing.assert_equal(all_of_them(), first)
    assert leaves(1) != leaves(0)
    assert leaves(None) != leaves(None)
    assert len({tuple(run) for run in leaves(0)}) == 3
