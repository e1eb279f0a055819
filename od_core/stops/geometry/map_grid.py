"""Define the public map that contains the places of all trips, and divide it into cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.stops.geometry.grid import MAX_SIDE, Counts, Grid, Points, cells_of


@dataclass(frozen=True)
class MapGrid:
    """A map of side x side cells. Each place of a trip lies in one of them.

    Attributes:
        west, east, south, north: public edges of the map, in degrees.
        side: number of cells on each side.
        places: names of the places of a trip in order, from the origin to the destination.

    Raises:
        OdError: the edges are not degrees in ascending order, the side is not an integer from 1 to 2^31, there are
            fewer than two places, or a name occurs twice.
    """

    west: float
    east: float
    south: float
    north: float
    side: int
    places: tuple[str, ...]

    def __post_init__(self) -> None:
        numbers = all(isinstance(edge, int | float) and not isinstance(edge, bool) for edge in self.edges)
        if not numbers or not (-180 <= self.west < self.east <= 180 and -90 <= self.south < self.north <= 90):
            raise _fault("in a map, west must be below east, and south below north")
        whole = isinstance(self.side, int) and not isinstance(self.side, bool)
        if not whole or not 1 <= self.side <= MAX_SIDE:
            raise _fault("each side of the map must have a whole number of cells from 1 to 2^31")
        if len(self.places) < 2 or len(set(self.places)) < len(self.places):
            raise _fault("a trip needs at least two places with different names")

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """West, east, south and north edge, in degrees."""
        return self.west, self.east, self.south, self.north

    @property
    def grid(self) -> Grid:
        """Grid with two dimensions per place, in the order of the places: longitude, then latitude."""
        return Grid((self.side,) * (2 * len(self.places)))

    @classmethod
    def around(cls, longitude: pd.Series, latitude: pd.Series, side: int, places: Sequence[str]) -> MapGrid:
        """Create the smallest map that contains public places with the given coordinates in degrees.

        ``side`` and ``places`` are the attributes of the map.

        Raises:
            OdError: a coordinate is missing or not a number, or the map is invalid (see :class:`MapGrid`).
        """
        degrees = [_degrees(column) for column in (longitude, latitude)]
        (west, east), (south, north) = ((float(column.min()), float(column.max())) for column in degrees)
        return cls(west, east, south, north, side, tuple(places))

    def cells(self, longitude: pd.Series, latitude: pd.Series) -> Points:
        """Return the cell of each public place, given in degrees, along longitude and latitude; shape (places, 2).

        A place on the east or north edge of the map lies in the last cell.

        Raises:
            OdError: a coordinate is missing or not a number, or a place is not on the map.
        """
        degrees = np.column_stack([_degrees(longitude), _degrees(latitude)])
        least, most = np.array([self.west, self.south]), np.array([self.east, self.north])
        if (degrees < least).any() or (degrees > most).any():
            raise _fault("a listed place is not on the map")
        return cells_of(degrees, least, most, (self.side, self.side))

    def degrees(self, lower: Counts, upper: Counts) -> list[tuple[float, float, float, float]]:
        """Return the edges of a box for each of the k places of a trip: west, south, east and north, in degrees.

        Args:
            lower, upper: first and last cell of the box in each dimension, both inclusive; shape (2k,).
        """
        width, height = (self.east - self.west) / self.side, (self.north - self.south) / self.side
        return [
            (
                self.west + int(lower[2 * place]) * width,
                self.south + int(lower[2 * place + 1]) * height,
                self.west + (int(upper[2 * place]) + 1) * width,
                self.south + (int(upper[2 * place + 1]) + 1) * height,
            )
            for place in range(len(self.places))
        ]

    def facts(self) -> dict[str, Any]:
        """Return the public facts of the map, ready for JSON. :meth:`from_facts` is the inverse."""
        names = ("west", "east", "south", "north")
        return {**dict(zip(names, self.edges, strict=True)), "side": self.side, "places": list(self.places)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> MapGrid:
        """Create the map from the public facts that :meth:`facts` returns."""
        return cls(**{**facts, "places": tuple(facts["places"])})


def _degrees(column: pd.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
    degrees = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    if not len(degrees) or not np.isfinite(degrees).all():
        raise _fault("a listed place has no coordinates")
    return degrees


def _fault(message: str) -> OdError:
    return OdError("OD-STOPS-MAP", message, next_step="correct the map or the list of places")
