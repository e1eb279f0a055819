"""How often intervals contain the truth where some pairs cannot have trips."""

import numpy as np
from scipy import stats

from od_core import Budget, PossiblePairs, plan_release
from od_core.evaluation.known_flows import make_generator
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.doubles import SeededNoise
from tests.od_core.flows.test_possible_pairs import TRIP
from tests.od_core.strategies import geography_of
from tests.statistical.laws import ALPHA, mean_p_value, variance_p_value


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


RELEASES = 1200


def test_intervals_of_area_totals_contain_the_truth_nine_times_in_ten():
    """Of four areas in independent releases; failure probability 1.2e-5, and a variance wrong by 4/3 is rejected.

    No trip can begin in the last zone of each region. So the total of a region has the noise of three zones.
    """
    geography = geography_of([(f"r{k // 4}", f"z{k:02}") for k in range(12)])
    every = PossiblePairs.from_rule(geography, geography, within_zone=False)
    some = (every.origin % 4 != 3) & ((every.origin + every.destination) % 3 != 0)
    possible = PossiblePairs(every.origin[some], every.destination[some])
    plan = plan_release(
        geography, unit=TRIP, budget=Budget("1", "1e-6"), acceptance=NO_FAULTS, possible=possible, area_totals="1/5"
    )
    trips = make_generator(5).integers(40, 90, len(possible))
    counts = TripCounts.from_pairs(plan.tree, possible.origin, possible.destination, trips)
    wanted = {"zone x all": (2, 0, 1), "all x zone": (0, 2, 1), "region x all": (1, 0, 1), "all x region": (0, 1, 1)}
    apart: dict[str, list[float]] = {name: [] for name in wanted}
    for seed in range(RELEASES):
        release = run_plan(plan, counts, SeededNoise(seed), MemoryMeasurements())
        for name, (*levels, area) in wanted.items():
            own = geography.ancestors(max(levels))[possible.origin if levels[0] else possible.destination]
            _, _, found = release.fitted.estimate_cells_with_totals(*levels)
            apart[name].append((found.estimate[area] - trips[own == area].sum()) / float(np.sqrt(found.variance[area])))
    for of_area in map(np.array, apart.values()):
        assert mean_p_value(of_area) > ALPHA
        assert variance_p_value(of_area) > ALPHA
        assert stats.binomtest(np.count_nonzero(np.abs(of_area) <= 1.6449), RELEASES, 0.9).pvalue > ALPHA
        for wrong in (3 / 4, 4 / 3):
            assert variance_p_value(of_area / wrong**0.5) < ALPHA
