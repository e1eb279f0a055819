"""Trips by distance: their numbers by hand, and what the bounds must hold."""

from random import Random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, Geography, OdError, Release
from od_core.flows.indicators import distance_bands, indicators
from od_core.flows.interval_ends import DEVIATIONS
from tests.od_core.doubles import SeededNoise, no_noise, usual_release
from tests.od_core.oracles.intervals import DROPPING, KEEPING
from tests.od_core.publication import examples

KILOMETRES = 6371.0088 * np.pi / 180
"""Length of a degree along the equator."""


def made(random: Random | None = None, *, noise=None, unknown=False, mechanism=None) -> tuple[Release, pd.DataFrame]:
    """A release over zones on the equator, and its true trips with their distance in degrees."""
    random = random or Random(5)  # noqa: S311  # of the trips
    degrees = [0, 1, 3, 4, 9, 11, 12]
    zones = pd.DataFrame({"zone": [f"z{d:02}" for d in degrees], "longitude": degrees, "latitude": 0})
    zones["region"] = np.where(zones["longitude"] < 8, "west", "east")
    if unknown:
        zones.loc[1, ["longitude", "latitude"]] = np.nan
    geography = Geography.from_frame(zones, ["region", "zone"], coordinates=("latitude", "longitude"))
    pairs = [(f"z{o:02}", f"z{d:02}", random.randint(0, 40)) for o in degrees for d in degrees]
    trips = pd.DataFrame(pairs, columns=["origin", "destination", "trips"])
    noise, mechanism = noise or SeededNoise(random.randrange(2**32)), mechanism or random.choice(KEEPING)
    budget = Budget(rho="1/100", delta=1e-8)
    released = usual_release(trips, geography, budget=budget, mechanism=mechanism, noise=noise)
    apart = abs(trips["origin"].str[1:].astype(int) - trips["destination"].str[1:].astype(int)).astype(float)
    if unknown:
        apart[(trips["origin"] == "z01") | (trips["destination"] == "z01")] = np.nan
    region = np.where(trips["origin"].str[1:].astype(int) < 8, "west", "east")
    return released, trips.assign(degrees=apart, region=region)


@pytest.mark.parametrize("unknown", [False, True])
def test_without_noise_bands_and_means_are_the_truth(unknown):
    released, trips = made(noise=no_noise(), unknown=unknown, mechanism=KEEPING[0])
    edges = [KILOMETRES * 1.5, KILOMETRES * 3.5]
    table = distance_bands(released, edges=edges)
    assert table["level"].unique().tolist() == ["all", "region", "zone"]
    band = np.where(trips["degrees"].isna(), 0, np.digitize(trips["degrees"], [1.5, 3.5]) + 1)
    for level, area in (("all", pd.Series("all", trips.index)), ("region", trips["region"]), ("zone", trips["origin"])):
        own = table[table["level"] == level].set_index(["area", "band"])["trips"]
        true = trips["trips"].groupby([area, band]).sum()
        assert own[own > 0].to_dict() == true[true > 0].to_dict()
    one = table[table["area"] == "z00"]
    starts = [0, *edges]
    assert one["from_km"].dropna().tolist() == starts
    assert one["to_km"].dropna().tolist() == edges
    assert one["band"].tolist() == ([0] if unknown else []) + [1, 2, 3]
    means = indicators(released).set_index(["level", "area"])["mean_distance"]
    known = trips.dropna()
    for (level, area), mean in means.items():
        inside = known[known["region" if level == "region" else "origin"] == area]
        if inside["trips"].sum():
            expected = (inside["trips"] * inside["degrees"]).sum() / inside["trips"].sum() * KILOMETRES
            assert mean == pytest.approx(expected, abs=0.002)
        else:
            assert np.isnan(mean)


@given(random=st.randoms(use_true_random=True), unknown=st.booleans())
def test_bands_sum_to_all_trips_and_bounds_hold_them(random: Random, unknown: bool):
    released, _ = made(random, unknown=unknown, mechanism=random.choice([*KEEPING, *DROPPING]))
    table = distance_bands(released)
    assert (table["lower"] <= table["trips"]).all()
    assert (table["trips"] <= table["upper"]).all()
    for level in ("region", "zone"):
        begun = released.flows_at(level, "all").set_index("origin")["trips"]
        summed = table[table["level"] == level].groupby("area")["trips"].sum()
        assert summed[summed != 0].to_dict() == begun[begun != 0].to_dict()
    columns = ["level", "area", "band", "from_km", "to_km", "trips"]
    zones = table.loc[table["level"] == "zone", columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(distance_bands(released, ["zone"], interval=False), zones)
    rows = indicators(released)
    there = rows["mean_distance"].notna()
    assert (rows["mean_distance_lower"] <= rows["mean_distance"])[there].all()
    assert (rows["mean_distance"] <= rows["mean_distance_upper"])[there].all()
    assert rows["mean_distance_lower"].between(0, rows["mean_distance_upper"]).all()
    farthest = np.fmax(rows["mean_distance"], 12 * KILOMETRES)  # flows below 0 may have a mean beyond all distances
    assert (rows["mean_distance_upper"] <= farthest + 0.01).all()


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_the_sum_of_distances_less_an_end_of_the_mean_is_as_far_from_0_as_its_interval_reaches(end):
    """Which is how the interval of a ratio is defined."""
    released, _ = made(mechanism=KEEPING[0])
    rows = indicators(released)
    rows = rows[rows["level"] == "zone"]
    ends, places = rows[f"mean_distance_{end}"].to_numpy(), rows["area"].str[1:].astype(int).to_numpy() * KILOMETRES
    (sums,) = released.intervals.estimate_begun_trips(2, lambda o, d: abs(places[o] - places[d]) - ends[o])
    inside = (ends > 0) & (ends < 12 * KILOMETRES) & (ends != rows["mean_distance"])
    assert inside.sum() > 4
    deviations = abs(sums.estimate) / np.sqrt(sums.variance)
    assert deviations[inside] == pytest.approx(DEVIATIONS, rel=1e-3)


def test_bands_follow_the_places_of_zones():
    """From the distance of neighbours, here a degree in the middle, to the largest, here 12 degrees."""
    released, _ = made(noise=no_noise())
    table = distance_bands(released, ["zone"])
    assert sorted(set(table["to_km"].dropna())) == [200, 500, 1000]


@pytest.mark.parametrize("edges", [[0, 5], [5, 5], [7, 5], [-1], [float("nan")], [float("inf")]])
def test_edges_that_make_no_bands(edges):
    released, _ = made(noise=no_noise())
    with pytest.raises(OdError, match="OD-DISTANCES-EDGES"):
        distance_bands(released, edges=edges)


def test_without_coordinates_there_are_no_distances():
    released = examples.release()
    with pytest.raises(OdError, match="OD-DISTANCES-PLACES"):
        distance_bands(released)
    assert not [name for name in indicators(released) if name.startswith("mean_distance")]
