"""Provide maps and trips of real cities: pupils at home and at school, and rides of real taxis.

They stand for the cities of [shaham2022stops, section 6.1], whose locations of telephones are not public. The data sets
are read from a folder beside the project.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

from benchmarks.synthetic_stops import KnownPoints
from od_core.records.zone_lists import read_zones
from od_core.stops.geometry import Grid, MapGrid, compute_cells

CENTRES = {"Auckland": (-36.85, 174.76), "Christchurch": (-43.53, 172.64), "Dunedin": (-45.88, 170.50)}
"""Latitude and longitude of a city with a high, a moderate and a low density."""

KILOMETRES, SIDE = 70, 1000
"""Side of the map of a city, and its number of cells on each side [shaham2022stops, section 6.1]."""

_KILOMETRES_OF_A_DEGREE = 111.32


def map_of(city: str, places: tuple[str, ...]) -> MapGrid:
    """Return the map of 70 km x 70 km around the centre of a city."""
    latitude, longitude = CENTRES[city]
    high = KILOMETRES / 2 / _KILOMETRES_OF_A_DEGREE
    wide = high / math.cos(math.radians(latitude))
    return MapGrid(longitude - wide, longitude + wide, latitude - high, latitude + high, SIDE, places)


def pupils(folder: Path, city: str, seed: int, *, to_school: bool) -> KnownPoints:
    """Place the pupils of a city on its map: their homes, or their homes and schools, in four dimensions.

    How many pupils of an area go to school in which area is public (New Zealand census of 2018). Where in its area each
    home and school lies is SYNTHETIC: it is drawn evenly from the polygon of the area, for every pupil alone. A pupil
    is left out if a place lies off the map.

    Args:
        folder: folder with ``nz_education_2018``.
        city: one of ``CENTRES``.
        seed: seed of the generator.
        to_school: whether a pupil has a school as well as a home.
    """
    generator = np.random.default_rng(seed)
    flows = pd.read_csv(folder / "nz_education_2018" / "flows.csv.gz", dtype={"origin": str, "destination": str})
    text = (folder / "nz_education_2018" / "boundaries.geojson").read_text(encoding="utf-8")
    areas = {area["properties"]["sa3"]: _outlines(area["geometry"]) for area in json.loads(text)["features"]}
    on_map = map_of(city, ("home", "school") if to_school else ("home",))
    least, most = np.array([on_map.west, on_map.south]), np.array([on_map.east, on_map.north])
    near = {code for code, rings in areas.items() if _near(rings, least, most)}
    ends = ["origin", "destination"] if to_school else ["origin"]
    flows = flows[flows[ends].isin(near).all(axis=1)]
    columns = []
    for end in ends:
        codes = np.repeat(flows[end].to_numpy(), flows["trips"].to_numpy())
        degrees = np.empty((len(codes), 2))
        for code in np.unique(codes):
            here = np.flatnonzero(codes == code)
            degrees[here] = _drawn_within(areas[code], len(here), generator)
        columns.append(degrees)
    there = np.logical_and.reduce([((degrees >= least) & (degrees <= most)).all(axis=1) for degrees in columns])
    cells = [compute_cells(degrees[there], least, most, (SIDE, SIDE)) for degrees in columns]
    name = f"{city}, {'homes and schools' if to_school else 'homes'}"
    return KnownPoints(name, "synthetic", on_map.grid, np.ascontiguousarray(np.concatenate(cells, axis=1)))


def _outlines(geometry: dict) -> list[NDArray[np.float64]]:  # type: ignore[type-arg]  # GeoJSON
    """Return the outer rings of the polygons of an area, as degrees; holes are filled."""
    polygons = [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]
    return [np.array(polygon[0], dtype=np.float64)[:, :2] for polygon in polygons]


def _near(rings: list[NDArray[np.float64]], least: NDArray[np.float64], most: NDArray[np.float64]) -> bool:
    """Return whether the rectangle around an area overlaps the map."""
    corners = np.concatenate(rings)
    return bool((corners.max(axis=0) >= least).all() and (corners.min(axis=0) <= most).all())


def _drawn_within(rings: list[NDArray[np.float64]], number: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw points evenly from an area: those of the rectangle around it that lie in one of its rings."""
    corners, outlines = np.concatenate(rings), [Outline(ring) for ring in rings]
    kept: list[NDArray[np.float64]] = []
    while (missing := number - sum(map(len, kept))) > 0:
        drawn = generator.uniform(corners.min(axis=0), corners.max(axis=0), (4 * missing, 2))
        inside = np.logical_or.reduce([outline.contains_points(drawn) for outline in outlines])
        kept.append(drawn[inside])
    return np.concatenate([*kept, np.empty((0, 2))])[:number]


def rides(folder: Path, seed: int, *, in_turn: bool) -> KnownPoints:
    """Read rides of yellow taxis in New York between zones, or make up journeys of two rides.

    A zone is one dimension, its position in the list sorted by borough, service area and name, because the public list
    has no coordinates. Rides are real, a sample of 10,000 a month. Journeys are SYNTHETIC, because the records have no
    number of a taxi: for every ride, one of the rides is drawn that begin in the zone where it ends, in the clock hour
    after the one in which it began. If there is none, there is no journey.

    Args:
        folder: folder with ``nyc_yellow_taxi``.
        seed: seed of the generator.
        in_turn: whether to make up journeys.
    """
    zones = read_zones(folder / "nyc_yellow_taxi" / "zones.csv").sort_values(["borough", "service_area", "zone_name"])
    records = pd.read_csv(folder / "nyc_yellow_taxi" / "trips.csv.gz", dtype=str)
    ends = [pd.Index(zones["zone"]).get_indexer(records[column]) for column in ("PULocationID", "DOLocationID")]
    grid = Grid((len(zones),) * (3 if in_turn else 2))
    if not in_turn:
        return KnownPoints("taxi rides", "public", grid, np.column_stack(ends).astype(np.int32))
    hour = pd.to_datetime(records["pickup_datetime"]).to_numpy().astype("datetime64[h]").astype(np.int64)
    order = np.lexsort([ends[0], hour])
    begins, later = (hour * len(zones) + ends[0])[order], (hour + 1) * len(zones) + ends[1]
    first = np.searchsorted(begins, later, side="left")
    choices = np.searchsorted(begins, later, side="right") - first
    drawn = (np.random.default_rng(seed).random(len(hour)) * choices).astype(np.int64)
    onward = np.minimum(first + drawn, len(hour) - 1)
    points = np.column_stack([*ends, ends[1][order[onward]]])[choices > 0].astype(np.int32)
    return KnownPoints("taxi rides in turn (synthetic)", "synthetic", grid, np.ascontiguousarray(points))


CITIES: Mapping[str, Callable[..., KnownPoints]] = {
    **{f"{city}, 2 dimensions": partial(pupils, city=city, to_school=False) for city in CENTRES},
    **{f"{city}, 4 dimensions": partial(pupils, city=city, to_school=True) for city in CENTRES},
    "taxi rides, 2 dimensions": partial(rides, in_turn=False),
    "taxi rides in turn (synthetic), 3 dimensions": partial(rides, in_turn=True),
}
"""Makers of data sets, from the folder of the data and a seed, by name."""
