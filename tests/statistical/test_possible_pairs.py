"""How often intervals contain the truth where some pairs cannot have trips."""

import numpy as np

from od_core import Budget, PossiblePairs, plan_release
from od_core.evaluation.known_flows import make_generator
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.doubles import SeededNoise
from tests.od_core.flows.test_possible_pairs import TRIP
from tests.od_core.strategies import geography_of


def test_intervals_contain_the_truth_nine_times_in_ten():
    """Of 400 cells in 300 releases each, with a failure probability below 1e-6 at these limits."""
    zones = [(f"r{k // 4}", f"z{k:02}") for k in range(12)]
    geography = geography_of(zones)
    possible = PossiblePairs.from_rule(geography, geography, within_zone=False)
    plan = plan_release(geography, unit=TRIP, budget=Budget("1", "1e-6"), acceptance=NO_FAULTS, possible=possible)
    trips = make_generator(5).integers(40, 90, len(possible))
    counts = TripCounts.from_pairs(plan.tree, possible.origin, possible.destination, trips)
    hits = 0
    for seed in range(300):
        release = run_plan(plan, counts, SeededNoise(seed), MemoryMeasurements())
        origin, destination, estimates = release.fitted.estimate_cells(2, 2)
        order = np.lexsort((destination, origin))
        errors = np.abs(estimates.estimate[order] - trips)
        hits += np.count_nonzero(errors <= 1.6449 * np.sqrt(estimates.variance[order]))
    assert 0.88 < hits / (300 * len(possible)) < 0.92
