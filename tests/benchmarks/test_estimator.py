"""The comparison of mechanisms: what it adds up, and what its tables say."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.estimator import METRICS, PAPER, VARIANTS, errors_by_level, estimated, planned
from benchmarks.rivals import RIVALS
from od_core import Budget, PrivacyUnit, plan_release
from od_core.evaluation.known_flows import KnownFlows, make_binary_flows
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from tests.od_core.doubles import no_noise

TRIP = PrivacyUnit("trip")


def test_the_reference_is_the_paper():
    """Bun & Steinke's rho, spread evenly over the levels."""
    geography = make_binary_flows(1, levels=2, trips=50).geography
    assert VARIANTS[0] is PAPER
    for epsilon, rho in (("0.1", 1.3535e-4), ("1", 0.0132154), ("10", 1.07988)):
        plan = planned(PAPER, geography, epsilon)
        assert float(plan.spent.rho) == pytest.approx(rho, rel=1e-4)
        assert {step.rho / plan.spent.rho for step in plan.steps} == {Fraction(1, 4)}
        budget = Budget(epsilon, "1e-8", conversion="bun_steinke", shares="uniform")
        expected = plan_release(geography, unit=TRIP, budget=budget, mechanism="inftda", acceptance=NO_FAULTS)
        assert plan.digest == expected.digest


@pytest.mark.parametrize("name", ["refined", *RIVALS])
def test_without_noise_every_table_is_the_truth(name):
    data = KnownFlows.from_synthetic_flows(make_binary_flows(1, levels=4, trips=5_000))
    plan = planned(next(variant for variant in VARIANTS if variant.name == "refined"), data.geography, "1")
    measured = run_plan(plan, data.trips, no_noise(), MemoryMeasurements()).measured
    errors = np.array(errors_by_level(data, estimated(name, plan, data.trips.total, measured)))
    assert errors.shape == (8, len(METRICS))
    assert not errors.any()
