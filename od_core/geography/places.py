"""Compute the mean places of areas on the sphere, and great-circle distances between them.

A place is a unit vector from the centre of the Earth. If c is the length of the chord between two places, the distance
along the great circle is 2 R arcsin(c / 2), where R is the mean radius of the Earth. The distance of a trip is that
between the places of its two zones. So a trip within a zone has the distance 0. Distances are public, because the
places of zones are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, Numbers
from od_core.kernels import kernel

Reals = NDArray[np.float64]
"""Places as unit vectors, shape (places, 3); or distances, shape (pairs,)."""

_EARTH_RADIUS_METRES = 6_371_008.8
"""Mean radius of the Earth in metres [moritz2000geodetic]."""

_PAIRS_PER_BLOCK = 1 << 22
"""Largest number of pairs of places that are compared at a time."""

_SAME_PLACE_COSINE = 1 - 1e-14
"""Cosine of an angle above which two places are one: that of less than a metre."""


def compute_mean_places(geography: Geography, level: int) -> Reals:
    """Return the mean place of the zones with coordinates in each area of a level.

    Places are unit vectors; shape (areas, 3). They are NaN for an area in which no zone has coordinates.
    """
    size = geography.size(level)
    if geography.coordinates is None:
        return np.full((size, 3), np.nan)
    has_place = ~np.isnan(geography.coordinates).any(axis=1)
    areas = geography.ancestors(level)[has_place]
    vectors = compute_unit_vectors(geography.coordinates[has_place])
    sums = np.column_stack([np.bincount(areas, component, minlength=size) for component in vectors.T])
    with np.errstate(invalid="ignore"):
        places: Reals = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return places


def compute_unit_vectors(degrees: Reals) -> Reals:
    """Return the unit vectors of places, given their latitudes and longitudes in degrees; shape (places, 3)."""
    latitude, longitude = np.radians(degrees).T
    return np.column_stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    )


def to_degrees(places: Reals) -> Reals:
    """Return the latitudes and longitudes of places in degrees, shape (places, 2), given their unit vectors."""
    x, y, z = places.T
    degrees: Reals = np.degrees(np.column_stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)]))
    return degrees


def compute_kilometres(origins: Reals, destinations: Reals, origin: Numbers, destination: Numbers) -> Reals:
    """Return the great-circle distances of pairs of areas, in kilometres with three decimal places; shape (pairs,).

    A distance is NaN where a place is unknown, and 0 from an area to itself.

    Args:
        origins, destinations: places of all areas of each side, as unit vectors or NaN; shape (areas, 3) each.
        origin, destination: numbers of the two areas of each pair; shape (pairs,) each.
    """
    distances = np.empty(len(origin))
    _compute_arcs(origins, destinations, origin, destination, distances)
    return np.round(distances * _EARTH_RADIUS_METRES) / 1000


@kernel
def _compute_arcs(origins: Reals, destinations: Reals, origin: Numbers, destination: Numbers, arcs: Reals) -> None:
    """Write the angle between the places of each pair, in radians, into ``arcs``, shape (pairs,).

    The other arguments are those of :func:`compute_kilometres`.
    """
    for pair in range(len(origin)):
        squared_chord = 0.0
        for axis in range(3):
            difference = origins[origin[pair], axis] - destinations[destination[pair], axis]
            squared_chord += difference * difference
        arcs[pair] = _compute_arc(squared_chord)


@kernel
def _compute_arc(squared_chord: float) -> float:
    """Return the angle, in radians, between two places on the unit sphere, given their squared chord; NaN for NaN."""
    return np.nan if np.isnan(squared_chord) else 2 * np.arcsin(min(1.0, np.sqrt(squared_chord) / 2))


def compute_least_squared_chord(distance: float) -> float:
    """Return the smallest squared chord of places on the unit sphere that are at least ``distance`` kilometres apart.

    The result is exact: :func:`compute_kilometres` returns a smaller distance for every smaller square. So other
    programs can compare distances without trigonometric functions, whose last digits differ from machine to machine.
    ``distance`` must not exceed half the circumference of the Earth.

    All floats from 0 to 4, the square of the longest chord, are searched by bisection. Positive floats have the order
    of their bits, read as integers.
    """
    low, high = 0, int(np.float64(4).view(np.int64))
    while low < high:
        middle = (low + high) // 2
        square = np.int64(middle).view(np.float64)
        if np.round(_compute_arc(square) * _EARTH_RADIUS_METRES) / 1000 >= distance:
            high = middle
        else:
            low = middle + 1
    return float(np.int64(low).view(np.float64))


def compute_nearest_and_farthest(origins: Reals, destinations: Reals) -> tuple[float, float]:
    """Return the median distance from an origin to the nearest other place, and the largest distance, in kilometres.

    Distances are between the places of two lists, unit vectors, or NaN if unknown; shape (places, 3) each. Places less
    than a metre apart are one place. Without another place, the median is 0.
    """
    starts = origins[~np.isnan(origins[:, 0])]
    ends = destinations[~np.isnan(destinations[:, 0])]
    rows_at_a_time = max(1, _PAIRS_PER_BLOCK // max(1, len(ends)))
    angles_to_nearest, largest_angle = [np.empty(0)], 0.0
    for row in range(0, len(starts), rows_at_a_time):
        cosines = starts[row : row + rows_at_a_time] @ ends.T
        largest_angle = max(largest_angle, float(np.arccos(np.clip(cosines.min(initial=1.0), -1, 1))))
        cosines_to_others = np.where(cosines < _SAME_PLACE_COSINE, cosines, -2.0)  # -2: no other place
        cosine_to_nearest = cosines_to_others.max(axis=1, initial=-2.0)
        has_other_place = cosine_to_nearest >= -1
        angles_to_nearest.append(np.arccos(cosine_to_nearest[has_other_place]))
    all_angles = np.concatenate(angles_to_nearest)
    median_angle = float(np.median(all_angles)) if len(all_angles) else 0.0
    return round(median_angle * _EARTH_RADIUS_METRES) / 1000, round(largest_angle * _EARTH_RADIUS_METRES) / 1000


def has_distances(tree: FlowTree) -> bool:
    """Return whether both sides of a flow tree have zones with coordinates."""
    return tree.origin.coordinates is not None and tree.destination.coordinates is not None


def compute_level_distances(tree: FlowTree, levels: tuple[int, int], origin: Numbers, destination: Numbers) -> Reals:
    """Return the distances of pairs of areas of two levels, in kilometres, or NaN if unknown; shape (pairs,).

    The place of an area is the mean place of its zones with coordinates. The whole space has no distances.

    Args:
        tree: the flow tree.
        levels: level of the origin areas, and that of the destination areas.
        origin, destination: numbers of the two areas of each pair; shape (pairs,) each.
    """
    origin_level, destination_level = levels
    if 0 in levels:
        return np.full(len(origin), np.nan)
    origins = compute_mean_places(tree.origin, origin_level)
    destinations = compute_mean_places(tree.destination, destination_level)
    return compute_kilometres(origins, destinations, origin, destination)


@dataclass(frozen=True, eq=False)
class ZoneDistances:
    """Distances between the zones of a flow tree.

    Attributes:
        origins, destinations: places of the zones of each side.
        nearest, farthest: how far apart these places are; see :func:`compute_nearest_and_farthest`.
    """

    origins: Reals
    destinations: Reals
    nearest: float
    farthest: float

    @classmethod
    def from_tree(cls, tree: FlowTree) -> ZoneDistances:
        """Return the distances between the zones of a tree. Raises OdError if a side has no zone with coordinates."""
        if not has_distances(tree):
            message = "the zones of origins or of destinations have no coordinates, so distances are unknown"
            raise OdError("OD-DISTANCES-PLACES", message, next_step="add latitudes and longitudes to the zone list")
        origins, destinations = (compute_mean_places(side, side.depth) for side in (tree.origin, tree.destination))
        return cls(origins, destinations, *compute_nearest_and_farthest(origins, destinations))

    @property
    def all_known(self) -> bool:
        """Whether every zone has a place."""
        return not any(np.isnan(places).any() for places in (self.origins, self.destinations))

    @property
    def edges(self) -> list[float]:
        """Ends of bands of distance that suit the zones, in kilometres.

        The ends are the numbers of the series 0.1, 0.2, 0.5, 1, 2, 5, ..., 50,000 from :attr:`nearest` to below
        :attr:`farthest`. They depend on the places of the zones alone, not on trips.
        """
        series = [digit * 10.0**power for power in range(-1, 5) for digit in (1, 2, 5)]
        return [edge for edge in series if self.nearest <= edge < self.farthest]

    def compute_distances(self, origin: Numbers, destination: Numbers) -> Reals:
        """Return the distances of pairs of zones, given by their numbers, in kilometres; NaN if unknown."""
        return compute_kilometres(self.origins, self.destinations, origin, destination)
