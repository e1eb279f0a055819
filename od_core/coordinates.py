"""Coordinates of zones, in degrees: for maps alone."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError

Degrees = NDArray[np.float64]

COORDINATES = ("latitude", "longitude")
"""Names of the columns of coordinates in published tables."""

_MOST_DEGREES = (90, 180)


def degrees(column: pd.Series, name: str) -> Degrees:
    """Degrees of a column of numbers or of text; blanks and missing values are not a number. Raises OdError."""
    try:
        return np.array([math.nan if pd.isna(value) or value == "" else float(value) for value in column])
    except (TypeError, ValueError):
        raise _fault(f"column {name!r} has a value that is no number of degrees") from None


def check_coordinates(coordinates: Degrees, zones: tuple[str, ...]) -> None:
    """Degrees of latitude and longitude, both or none of them, for every zone. Raises OdError."""
    if coordinates.shape != (len(zones), 2):
        raise OdError(
            "OD-GEOGRAPHY-SHAPE",
            "there is not one latitude and one longitude for each zone",
            next_step="correct the public geography",
        )
    absent = np.isnan(coordinates).all(axis=1)
    wrong = ~(absent | (np.abs(coordinates) <= _MOST_DEGREES).all(axis=1))
    if wrong.any():
        zone = zones[int(np.flatnonzero(wrong)[0])]
        raise _fault("a zone has no such place: its degrees are half or out of range", f"zone {zone!r}")


def _fault(message: str, detail: str | None = None) -> OdError:
    next_step = "correct the public geography"
    return OdError("OD-GEOGRAPHY-COORDINATES", message, next_step=next_step, confidential_detail=detail)
