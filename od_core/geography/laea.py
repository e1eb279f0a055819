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

# The ellipsoid GRS 1980, and the parameters of EPSG:3035.
_EQUATOR_RADIUS = 6_378_137.0  # metres
_FLATTENING = 1 / 298.257222101
_ECCENTRICITY_SQUARED = _FLATTENING * (2 - _FLATTENING)
_CENTRE_LATITUDE, _CENTRE_LONGITUDE = math.radians(52), math.radians(10)
_FALSE_EASTING, _FALSE_NORTHING = 4_321_000, 3_210_000


def _integrate_area(sine: Numbers) -> Numbers:
    """Return q of the guidance note, given the sine of the latitude.

    It is the area between equator and latitude, in units of (equator's radius)^2 / 2 per radian of longitude.
    """
    eccentricity = math.sqrt(_ECCENTRICITY_SQUARED)
    return (1 - _ECCENTRICITY_SQUARED) * (
        sine / (1 - _ECCENTRICITY_SQUARED * sine**2) + np.arctanh(eccentricity * sine) / eccentricity
    )


# Symbols of the guidance note: q_P; the sine and the cosine of beta_O, the centre's latitude on the authalic sphere;
# R_q, the radius of this sphere, which has the ellipsoid's area; and D, the ratio of the map's scales at the centre.
_POLE_Q = float(_integrate_area(np.array(1.0)))
_CENTRE_SINE = float(_integrate_area(np.array(math.sin(_CENTRE_LATITUDE)))) / _POLE_Q
_CENTRE_COSINE = math.sqrt(1 - _CENTRE_SINE**2)
_SPHERE_RADIUS = _EQUATOR_RADIUS * math.sqrt(_POLE_Q / 2)
_STRETCH_D = (
    _EQUATOR_RADIUS
    * math.cos(_CENTRE_LATITUDE)
    / math.sqrt(1 - _ECCENTRICITY_SQUARED * math.sin(_CENTRE_LATITUDE) ** 2)
    / (_SPHERE_RADIUS * _CENTRE_COSINE)
)


def to_metres(longitude: Numbers, latitude: Numbers) -> tuple[Numbers, Numbers]:
    """Return easting and northing in metres, shape (points,) each, given degrees within or near the area of use."""
    turn = np.radians(longitude) - _CENTRE_LONGITUDE
    sine = np.clip(_integrate_area(np.sin(np.radians(latitude))) / _POLE_Q, -1, 1)  # of the authalic latitude beta
    cosine = np.sqrt(1 - sine**2)
    scale = _SPHERE_RADIUS * np.sqrt(2 / (1 + _CENTRE_SINE * sine + _CENTRE_COSINE * cosine * np.cos(turn)))
    easting = _FALSE_EASTING + scale * _STRETCH_D * cosine * np.sin(turn)
    northing = _FALSE_NORTHING + scale / _STRETCH_D * (_CENTRE_COSINE * sine - _CENTRE_SINE * cosine * np.cos(turn))
    return easting, northing


def to_degrees(easting: Numbers, northing: Numbers) -> tuple[Numbers, Numbers]:
    """Return longitude and latitude of points in degrees, given metres; shape (points,) each.

    The latitude solves q(latitude) = q_P sin(beta), where beta is the authalic latitude.
    """
    east, north = (easting - _FALSE_EASTING) / _STRETCH_D, (northing - _FALSE_NORTHING) * _STRETCH_D
    distance = np.hypot(east, north)
    half_angle = np.arcsin(distance / (2 * _SPHERE_RADIUS))  # C / 2 of the guidance note
    cosine = np.cos(2 * half_angle)  # cos C
    sine_by_distance = np.cos(half_angle) / _SPHERE_RADIUS  # sin C / distance, also for a distance of 0
    sine = cosine * _CENTRE_SINE + north * sine_by_distance * _CENTRE_COSINE  # sin beta
    longitude = _CENTRE_LONGITUDE + np.arctan2(
        east * sine_by_distance, _CENTRE_COSINE * cosine - north * _CENTRE_SINE * sine_by_distance
    )
    latitude = np.arcsin(sine)
    for _ in range(4):  # Newton's method, which doubles the digits: the first guess is wrong by 0.002
        own_sine = np.sin(latitude)
        slope = 2 * (1 - _ECCENTRICITY_SQUARED) * np.cos(latitude) / (1 - _ECCENTRICITY_SQUARED * own_sine**2) ** 2
        latitude = latitude + (_POLE_Q * sine - _integrate_area(own_sine)) / slope
    return np.degrees(longitude), np.degrees(latitude)
