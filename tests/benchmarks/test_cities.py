"""Maps and trips of real cities, where their data are at hand: what is public is kept, and what is drawn is marked."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.cities import rides
from od_core import Budget, PrivacyUnit, Trajectories, evaluate_stops_entropy, release_stops
from od_core.stops.geometry import count_trips_by_cell
from od_core.stops.release import compute_entropy, count_trips_in_ranges
from tests.real_data import real_data


def test_journeys_of_real_taxis_are_released_with_intervals_that_hold():
    """Each box is a draw of its own, so 0.9 of them less six standard deviations is missed with probability 1e-9."""
    folder = real_data("nyc_yellow_taxi").parent
    zones = pd.read_csv(folder / "nyc_yellow_taxi" / "zones.csv", dtype=str)
    listed = zones.sort_values(["borough", "service_area", "zone_name"])["zone"].tolist()
    known = rides(folder, 1, in_turn=True)
    codes = pd.DataFrame(np.array(listed, dtype=object)[known.points], columns=["origin", "stop", "destination"])
    trips = Trajectories.from_zones(codes, listed)
    assert np.array_equal(trips.points, known.points)
    budget = Budget(epsilon="0.5")
    release = release_stops(trips, trips.grid, unit=PrivacyUnit("trip"), budget=budget, noise="table")
    rows = count_trips_by_cell(known.points, known.grid)
    drawn, boxes = release.measured, release.boxes
    true = count_trips_in_ranges(rows, np.stack([drawn.lower, drawn.upper], axis=2).astype(np.int64))
    assert true.sum() == len(known.points)
    held = ((boxes["count_lower"] <= true) & (true <= boxes["count_upper"])).mean()
    assert len(boxes) > 500
    assert held > 0.9 - 6 * (0.09 / len(boxes)) ** 0.5
    bits = evaluate_stops_entropy(release, known.points)
    assert 0 < bits["boxes"] < bits["cells"] == pytest.approx(compute_entropy(rows[:, -1].astype(np.int64)))
