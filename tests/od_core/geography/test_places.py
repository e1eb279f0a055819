"""Places and distances: known ones, the haversine formula, and every pair by itself."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from od_core import Geography
from od_core.geography.places import (
    compute_kilometres,
    compute_least_squared_chord,
    compute_mean_places,
    compute_nearest_and_farthest,
    to_degrees,
)

RADIUS = 6371.0088
"""In kilometres."""

LATITUDES, LONGITUDES = st.floats(-90, 90), st.floats(-180, 180)


def haversine(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Distance in kilometres by the formula of navigators."""
    (a, b), (c, d) = (map(math.radians, place) for place in (one, other))
    h = math.sin((c - a) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((d - b) / 2) ** 2
    return 2 * RADIUS * math.asin(min(1.0, math.sqrt(h)))


def zones_at(places: list[tuple[float, float]]) -> Geography:
    """One region with a zone at each place."""
    zones = pd.DataFrame(places, columns=["latitude", "longitude"])
    zones["zone"] = [f"z{k:03}" for k in range(len(zones))]
    return Geography.from_frame(zones.assign(region="r"), ["region", "zone"], coordinates=("latitude", "longitude"))


def between(places: list[tuple[float, float]]) -> np.ndarray:
    """All distances, as a matrix."""
    points = compute_mean_places(zones_at(places), 2)
    size = np.arange(len(places), dtype=np.int32)
    numbers = np.repeat(size, len(size)), np.tile(size, len(size))
    return compute_kilometres(points, points, *numbers).reshape(len(size), -1)


@given(places=st.lists(st.tuples(LATITUDES, LONGITUDES), min_size=1, max_size=6))
def test_distances_are_those_of_the_haversine_formula(places):
    expected = np.array([[haversine(one, other) for other in places] for one in places])
    found = between(places)
    assert (np.diag(found) == 0).all()
    # Near the antipodes, the arc sine loses half of its digits.
    assert (abs(found - expected) <= np.where(expected > 20_000, 1, 0.0006)).all()


def test_the_mean_place_of_an_area_is_in_the_middle_of_its_zones():
    """Also across the 180th meridian; zones without coordinates do not count, and areas without any have no place."""
    places = [("a", "1", 10, 170), ("a", "2", 10, -170), ("a", "3", None, None), ("b", "4", None, None)]
    zones = pd.DataFrame(places, columns=["region", "zone", "latitude", "longitude"])
    geography = Geography.from_frame(zones, ["region", "zone"], coordinates=("latitude", "longitude"))
    (latitude, longitude), unknown = to_degrees(compute_mean_places(geography, 1))
    assert (abs(longitude), np.isnan(unknown).all()) == (pytest.approx(180), True)
    assert latitude > 10  # the great circle between the two bends to the pole
    places = to_degrees(compute_mean_places(geography, 2))
    assert places == pytest.approx(np.array([[10, 170], [10, -170], [np.nan] * 2, [np.nan] * 2]), nan_ok=True)
    lost = compute_kilometres(*[compute_mean_places(geography, 1)] * 2, np.array([0, 0, 1]), np.array([0, 1, 1]))
    assert np.isnan(lost).tolist() == [False, True, True]


@given(
    places=st.tuples(*[st.tuples(st.floats(-89, 89), LONGITUDES)] * 2),
    edge=st.sampled_from([0.1, 0.5, 20, 500, 20_000]),
)
def test_the_least_square_divides_the_distances(places, edge):
    """Exactly: a chord is as long, or longer, if and only if the distance is."""
    vectors = compute_mean_places(zones_at(places), 2)
    (distance,) = compute_kilometres(vectors, vectors, np.array([0]), np.array([1]))
    square = 0.0
    for step in vectors[0] - vectors[1]:
        square += step * step
    least = compute_least_squared_chord(edge)
    assert (square >= least) == (distance >= edge)
    half_angle = (edge - 0.0005) / (2 * RADIUS)
    assert least == pytest.approx((2 * math.sin(half_angle)) ** 2, rel=1e-9)


@given(places=st.lists(st.tuples(st.floats(-60, 60), LONGITUDES), min_size=1, max_size=8, unique=True))
def test_the_extent_is_that_of_all_pairs(places):
    nearest, farthest = compute_nearest_and_farthest(*[compute_mean_places(zones_at(places), 2)] * 2)
    distances = np.array([[haversine(one, other) for other in places] for one in places])
    assume(not ((distances > 0.0005) & (distances < 0.01)).any())  # two places within a metre are one
    near = [min((d for d in row if d > 0.01), default=None) for row in distances]
    known = [d for d in near if d is not None]
    assert farthest == pytest.approx(distances.max(), abs=1)
    assert nearest == pytest.approx(np.median(known) if known else 0, abs=0.01)
