"""Estimated totals of zones from measured area totals: no bias, and the variance of the dense formula."""

from fractions import Fraction

import numpy as np

from od_core import Budget, PrivacyUnit, plan_release
from od_core.flows.estimation.area_totals import include_area_totals
from od_core.flows.estimation.least_squares import build_measured_levels
from od_core.flows.estimation.levels import select_area_totals
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.strategies import geography_of
from tests.statistical.laws import ALPHA, mean_p_value, variance_p_value

RUNS = 1500
TRUE = np.array([[40, 0, 3], [0, 900, 0], [7, 1, 0]])


def test_totals_have_no_bias_and_the_variance_that_is_stated():
    """Of one zone, over independent releases; failure probability 2e-6, and a variance wrong by 4/3 is rejected."""
    zones = geography_of([("x",), ("y",), ("z",)])
    budget = Budget(rho=Fraction(1, 100), delta="1e-8")
    given = {"unit": PrivacyUnit("trip"), "budget": budget, "acceptance": NO_FAULTS, "area_totals": "1/3"}
    plan, noise = plan_release(zones, **given), resolve_noise_source("table")
    origin, destination = (side.ravel().astype(np.int32) for side in np.indices(TRUE.shape))
    trips = TripCounts.from_pairs(plan.tree, origin, destination, TRUE.ravel())
    found = []
    for _ in range(RUNS):
        release = run_plan(plan, trips, noise, MemoryMeasurements())
        _, totals = include_area_totals(
            plan,
            build_measured_levels(plan, trips.total, release.measured[:2]),
            select_area_totals(release.measured),
        )
        found.append(totals[1].trips[0])

    by_destination, by_origin = np.tile(np.eye(3), 3), np.repeat(np.eye(3), 3, axis=1)
    rows = np.concatenate([by_destination, np.eye(9), by_origin])
    variances = np.repeat([float(step.variance) for step in plan.charged_steps], [3, 9, 3])
    free = np.linalg.svd(np.ones((1, 9)))[2][1:].T  # changes of the flows that keep their exact sum
    covariance = free @ np.linalg.inv(free.T @ rows.T @ np.diag(1 / variances) @ rows @ free) @ free.T
    variance = float(by_origin[0] @ covariance @ by_origin[0])
    error = np.array(found) - TRUE[0].sum()
    assert mean_p_value(error / variance**0.5) > ALPHA
    assert variance_p_value(error / variance**0.5) > ALPHA
    for wrong in (Fraction(3, 4), Fraction(4, 3)):
        assert variance_p_value(error / (variance * float(wrong)) ** 0.5) < ALPHA
