"""Budgets for targets are met by simulated releases as often as they are planned to be."""

import math

import numpy as np
import pytest

from od_core import ReleasePlan, Segments
from od_core.evaluation.forecast import arrange_counts_for_plan, simulate_releases
from od_core.evaluation.targets import (
    CHANCE,
    Target,
    compute_target_ratios,
    find_target_budget,
    select_target_classes,
    with_amount,
)
from tests.od_core.evaluation.test_target_budget import LAPLACE, problem


@pytest.mark.parametrize("by", ["", " by mode"])
def test_simulated_releases_meet_targets_as_often_as_planned(by):
    """With Laplace noise, and with Gaussian noise and categories.

    Two binomial shares of 200 and of 300 releases differ by less than 5 of their standard deviations (6e-7).
    """
    plan, table, _ = problem(6, depth=2, **({"segments": {"mode": ["car", "bus"]}} if by else LAPLACE))
    region, zone = plan.tree.origin.levels
    texts = [
        f"{region} x {region}{by}: flows >= 50 within 4 % in 90 %",
        f"{zone} x {zone}: flows >= 20 within 15 % in 80 %",
    ]
    targets = [Target.parse(text, plan.tree, plan.breakdowns) for text in texts]
    found = find_target_budget(plan, targets, table, runs=200)
    best = Segments(plan.breakdowns, found.segment_share) if by else None
    tried, half = (with_amount(plan, found.amount / part, found.shares, best) for part in (1, 2))
    trips = arrange_counts_for_plan(table, tried)
    classes = select_target_classes(tried, targets, trips)
    if not by:
        assert found.factor == pytest.approx(1, abs=0.2)
        assert float(tried.spent.epsilon) == pytest.approx(found.amount)

    def share_that_meets(released: ReleasePlan, number: int) -> float:
        made = simulate_releases(released, trips, number)
        return float(np.mean([max(compute_target_ratios(classes, release)) <= 1 for release in made]))

    assert abs(share_that_meets(tried, 300) - CHANCE) < 5 * math.sqrt(CHANCE * (1 - CHANCE) * (1 / 200 + 1 / 300))
    assert share_that_meets(half, 100) < 0.7  # half of the budget is seen
