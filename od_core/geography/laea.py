"""Convert degrees to metres of ETRS89-LAEA Europe (EPSG:3035), the equal-area map of the European grid, and back.

Degrees of WGS 84 stand for those of ETRS89, which differ by less than a metre. Both conversions are exact to far less
than a millimetre.

References:
    IOGP, Geomatics Guidance Note 7, part 2, method EPSG:9820 (Lambert azimuthal equal area, ellipsoidal).
    Snyder (1987), Map Projections: A Working Manual, section 24.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

WEST, SOUTH, EAST, NORTH = -35.58, 24.6, 44.83, 84.73
"""Area of use of EPSG:3035, in degrees."""

Numbers = NDArray[np.float64]

_RADIUS = 6_378_137.0
_FLATTENING = 1 / 298.257222101  # of GRS 1980
_SQUARE = _FLATTENING * (2 - _FLATTENING)  # of the eccentricity
_LATITUDE, _LONGITUDE = math.radians(52), math.radians(10)
_FALSE_EASTING, _FALSE_NORTHING = 4_321_000, 3_210_000


def _integrate_area(sine: Numbers) -> Numbers:
    """Return q of the guidance note: the area between the equator and a latitude, up to a factor, by its sine."""
    eccentricity = math.sqrt(_SQUARE)
    return (1 - _SQUARE) * (sine / (1 - _SQUARE * sine**2) + np.arctanh(eccentricity * sine) / eccentricity)


_TO_POLE = float(_integrate_area(np.array(1.0)))
_SINE = float(_integrate_area(np.array(math.sin(_LATITUDE)))) / _TO_POLE
_COSINE = math.sqrt(1 - _SINE**2)
_SPHERE = _RADIUS * math.sqrt(_TO_POLE / 2)
"""Radius of the sphere with the ellipsoid's area. The sine and the cosine are those of the centre's latitude on it."""
_STRETCH = _RADIUS * math.cos(_LATITUDE) / math.sqrt(1 - _SQUARE * math.sin(_LATITUDE) ** 2) / (_SPHERE * _COSINE)


def to_metres(longitude: Numbers, latitude: Numbers) -> tuple[Numbers, Numbers]:
    """Return easting and northing of points, in metres, given degrees within or near the area of use."""
    turn = np.radians(longitude) - _LONGITUDE
    sine = np.clip(_integrate_area(np.sin(np.radians(latitude))) / _TO_POLE, -1, 1)
    cosine = np.sqrt(1 - sine**2)
    scale = _SPHERE * np.sqrt(2 / (1 + _SINE * sine + _COSINE * cosine * np.cos(turn)))
    easting = _FALSE_EASTING + scale * _STRETCH * cosine * np.sin(turn)
    northing = _FALSE_NORTHING + scale / _STRETCH * (_COSINE * sine - _SINE * cosine * np.cos(turn))
    return easting, northing


def to_degrees(easting: Numbers, northing: Numbers) -> tuple[Numbers, Numbers]:
    """Return longitude and latitude of points in degrees, given metres."""
    east, north = (easting - _FALSE_EASTING) / _STRETCH, (northing - _FALSE_NORTHING) * _STRETCH
    half = np.arcsin(np.hypot(east, north) / (2 * _SPHERE))
    along, slope = np.cos(2 * half), np.cos(half) / _SPHERE  # the sine of the whole angle, by the distance
    sine = along * _SINE + north * slope * _COSINE
    longitude = _LONGITUDE + np.arctan2(east * slope, _COSINE * along - north * _SINE * slope)
    latitude = np.arcsin(sine)
    for _ in range(4):  # Newton's method, which doubles the digits: the first guess is wrong by 0.002
        own = np.sin(latitude)
        slope = 2 * (1 - _SQUARE) * np.cos(latitude) / (1 - _SQUARE * own**2) ** 2
        latitude = latitude + (_TO_POLE * sine - _integrate_area(own)) / slope
    return np.degrees(longitude), np.degrees(latitude)
