"""The errors of flows by category, against a count of the cells one by one."""

import itertools

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, PrivacyUnit, evaluate, release_flows
from tests.od_core.doubles import no_noise, usual_release

ZONES = pd.DataFrame({"state": ["a", "a", "b", "b", "b"], "zone": ["a1", "a2", "b1", "b2", "b3"]})
MODES = ("car", "bus", "walk")


@pytest.fixture(scope="module")
def trips() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    places = [ZONES["zone"].to_numpy()[rng.integers(0, 5, 400) * rng.integers(0, 2, 400)] for _ in range(2)]
    flows = pd.DataFrame(dict(zip(("origin", "destination"), places, strict=True)))
    return flows.assign(mode=np.array(MODES)[rng.integers(0, 3, 400)])


@pytest.fixture(scope="module")
def release(trips):
    geography, budget = Geography.from_frame(ZONES, ("state", "zone")), Budget(rho="1/10", delta="1e-8")
    return usual_release(trips, geography, budget=budget, segments={"mode": MODES})


def test_errors_are_those_of_all_cells_and_categories(release, trips):
    errors = evaluate(release, trips, segment="mode").set_index("level")
    parents = dict(zip(ZONES["zone"], ZONES["state"], strict=True))
    areas = {"all": (["all"], lambda _: "all"), "state": (["a", "b"], parents.get)}
    areas["zone"] = list(parents), lambda zone: zone
    for level, (origin, destination) in enumerate(release.levels):
        (origins, of_origin), (destinations, of_destination) = areas[origin], areas[destination]
        released = release.flows_at(origin, destination, segment="mode")
        true = trips.assign(origin=trips["origin"].map(of_origin), destination=trips["destination"].map(of_destination))
        names = ["origin", "destination", "mode"]
        found = {tuple(row[:3]): row[3] for row in released[[*names, "trips"]].itertuples(index=False)}
        counted = true.groupby(names).size().to_dict()
        cells = list(itertools.product(origins, destinations, MODES))
        errors_of = [abs(found.get(cell, 0) - counted.get(cell, 0)) for cell in cells]
        assert errors.loc[level, "max_abs_error"] == max(errors_of)
        assert errors.loc[level, "mean_abs_error"] == pytest.approx(sum(errors_of) / len(cells))
        invented = [cell for cell in found if cell not in counted]
        missed = [cell for cell in counted if cell not in found]
        assert errors.loc[level, "false_discovery_rate"] == pytest.approx(len(invented) / len(found))
        assert errors.loc[level, "false_negative_rate"] == pytest.approx(len(missed) / len(counted))


def test_categories_and_user_ids_of_the_released_table_do_not_hold_the_trips_of_a_row(release, trips):
    errors = evaluate(release, trips[["origin", "destination"]])
    pd.testing.assert_frame_equal(evaluate(release, trips), errors)
    renamed = trips.rename(columns={"mode": "by"})
    pd.testing.assert_frame_equal(evaluate(release, renamed, columns={"mode": "by"}), errors)

    of_users = trips[["origin", "destination"]].assign(person="one")
    unit = PrivacyUnit("user", column="person", max_trips=150)
    budget, geography = Budget(rho=1, delta="1e-8"), Geography.from_frame(ZONES, ("state", "zone"))
    bounded = release_flows(of_users, geography, unit=unit, budget=budget, noise=no_noise())
    assert evaluate(bounded, of_users)["max_abs_error"][0] == 250  # all 400 trips count, of which 150 were released
