"""Compute the mean places of areas on the sphere, and great-circle distances between them.

A place is a unit vector from the centre of the Earth. If c is the length of the chord between two places, the distance
along the great circle is 2 R arcsin(c / 2), where R is the mean radius of the Earth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.geography.geography import Geography, Numbers
from od_core.kernels import kernel

Reals = NDArray[np.float64]

_RADIUS = 6_371_008.8
"""Mean radius of the Earth in metres [moritz2000geodetic]."""

_BLOCK = 1 << 22
"""Largest number of pairs of places that are compared at a time."""

_SAME = 1 - 1e-14
"""Cosine of an angle above which two places are one: that of less than a metre."""


def mean_places(geography: Geography, level: int) -> Reals:
    """Return the mean place of the zones with coordinates in each area of a level.

    Places are unit vectors; shape (areas, 3). They are NaN for an area in which no zone has coordinates.
    """
    size = geography.size(level)
    if geography.coordinates is None:
        return np.full((size, 3), np.nan)
    has_place = ~np.isnan(geography.coordinates).any(axis=1)
    latitude, longitude = np.radians(geography.coordinates[has_place]).T
    points = np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)
    areas = geography.ancestors(level)[has_place]
    sums = np.column_stack([np.bincount(areas, axis, minlength=size) for axis in points])
    with np.errstate(invalid="ignore"):
        places: Reals = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return places


def in_degrees(places: Reals) -> Reals:
    """Return the latitudes and longitudes of places in degrees; shape (places, 2)."""
    x, y, z = places.T
    degrees: Reals = np.degrees(np.column_stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)]))
    return degrees


def kilometres(origins: Reals, destinations: Reals, origin: Numbers, destination: Numbers) -> Reals:
    """Return the great-circle distances of pairs of areas, in kilometres with three decimal places; shape (pairs,).

    A distance is NaN where a place is unknown, and 0 from an area to itself. ``origins`` and ``destinations`` are the
    places of all areas of each side; shape (areas, 3) each.
    """
    distances = np.empty(len(origin))
    _arcs(origins, destinations, origin, destination, distances)
    return np.round(distances * _RADIUS) / 1000


@kernel
def _arcs(origins, destinations, origin, destination, arcs):  # type: ignore[no-untyped-def]  # compiled
    """Write the angle between the places of each pair, in radians, into ``arcs``."""
    for k in range(len(origin)):
        square = 0.0
        for axis in range(3):
            step = origins[origin[k], axis] - destinations[destination[k], axis]
            square += step * step
        arcs[k] = _arc(square)


@kernel
def _arc(square):  # type: ignore[no-untyped-def]  # compiled
    """Return the angle, in radians, between two places whose chord has the given square; NaN if it is NaN."""
    return 2 * np.arcsin(min(1.0, np.sqrt(square) / 2)) if square == square else np.nan


def least_squared_chord(distance: float) -> float:
    """Return the smallest square of a chord between places that are at least ``distance`` kilometres apart.

    It is exact: :func:`kilometres` returns a smaller distance for every smaller square. So other programs can compare
    distances without trigonometric functions, whose last digits differ from machine to machine. ``distance`` must not
    exceed half the circumference of the Earth.
    """
    low, high = 0, int(np.float64(4).view(np.int64))  # positive numbers have the order of their bits
    while low < high:
        middle = (low + high) // 2
        square = np.int64(middle).view(np.float64)
        if np.round(_arc(square) * _RADIUS) / 1000 >= distance:
            high = middle
        else:
            low = middle + 1
    return float(np.int64(low).view(np.float64))


class Extent(NamedTuple):
    """How far apart known places are, in kilometres.

    Attributes:
        nearest: median distance from a place to the nearest other place; 0 if there is no other place.
        farthest: largest distance between two places.
    """

    nearest: float
    farthest: float


def extent(origins: Reals, destinations: Reals) -> Extent:
    """Return how far the places of one list are from those of another; shape (places, 3) each."""
    starts, ends = (places[~np.isnan(places[:, 0])] for places in (origins, destinations))
    rows = max(1, _BLOCK // max(1, len(ends)))
    nearest, farthest = [np.empty(0)], 0.0
    for first in range(0, len(starts), rows):
        cosines = starts[first : first + rows] @ ends.T
        farthest = max(farthest, float(np.arccos(np.clip(cosines.min(initial=1.0), -1, 1))))
        others = np.where(cosines < _SAME, cosines, -2.0).max(axis=1, initial=-2.0)
        nearest.append(np.arccos(others[others >= -1]))
    between = np.concatenate(nearest)
    middle = float(np.median(between)) if len(between) else 0.0
    return Extent(*(round(angle * _RADIUS) / 1000 for angle in (middle, farthest)))
