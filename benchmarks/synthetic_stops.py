"""Provide trips with stops that may be known: synthetic clouds, and public flights.

The clouds follow [shaham2022stops, section 6.1]. Synthetic trips are drawn with a seed on purpose: the same seed gives
the same points with the same NumPy. They must never serve as noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.evaluation.known_flows import Marking, refuse_unmarked
from od_core.records.zone_lists import read_zones
from od_core.stops.geometry import Grid, MapGrid, Points

TRIPS = 1_000_000
"""Number of points of a cloud in [shaham2022stops]."""

MAP_SIDE = 256
"""Number of cells on each side of the map of the flights."""


@dataclass(frozen=True, eq=False, repr=False)
class KnownPoints:
    """Trips as cells of a grid, which may be known. Errors against them are NOT private.

    Attributes:
        name: name of the data set, for tables and figures.
        marking: why the trips may be known: they are synthetic, or their owner has published them.
        grid: public.
        points: cell of each trip; shape (trips, dimensions).

    Raises:
        OdError: The marking is neither ``synthetic`` nor ``public``.
    """

    name: str
    marking: Marking
    grid: Grid
    points: Points

    def __post_init__(self) -> None:
        refuse_unmarked(self.name, self.marking)

    def __repr__(self) -> str:
        return f"KnownPoints({self.name!r}, {self.marking})"


def gaussian(seed: int, dimensions: int, spread: float, *, trips: int = TRIPS, side: int | None = None) -> KnownPoints:
    """Draw a cloud around a uniformly drawn cell: each coordinate is normal around it, rounded to the nearest cell.

    The source writes N(c, var) without the unit of var, and does not say what becomes of a point outside the space.
    Here the standard deviation is a share of the side, and a coordinate outside is drawn again.

    Args:
        seed: seed of the generator.
        dimensions: d.
        spread: standard deviation divided by the side.
        trips: N.
        side: number of cells of every dimension; by default N^(1/d) rounded, as in [shaham2022stops].
    """
    generator = np.random.default_rng(seed)
    side = _side(trips, dimensions) if side is None else side
    points = np.empty((trips, dimensions), dtype=np.int32)
    for i, centre in enumerate(generator.integers(0, side, dimensions)):
        points[:, i] = _normal(generator, centre, spread * side, side, trips)
    return KnownPoints(f"gaussian {spread:g}, {dimensions} dimensions", "synthetic", _cube(side, dimensions), points)


def zipf(seed: int, dimensions: int, a: float, *, trips: int = TRIPS, side: int | None = None) -> KnownPoints:
    """Draw coordinates with the Zipf distribution P(x) ~ x^-a, truncated to the side.

    Args:
        seed: seed of the generator.
        dimensions: d.
        a: exponent above 0; the larger it is, the more trips are in the first cell.
        trips: N.
        side: see :func:`gaussian`.
    """
    generator = np.random.default_rng(seed)
    side = _side(trips, dimensions) if side is None else side
    below = np.cumsum(np.arange(1, side + 1) ** -float(a))
    drawn = generator.random((trips, dimensions)) * below[-1]
    points = np.minimum(np.searchsorted(below, drawn, side="right"), side - 1).astype(np.int32)
    return KnownPoints(f"zipf {a:g}, {dimensions} dimensions", "synthetic", _cube(side, dimensions), points)


def flights(folder: Path, month: str) -> KnownPoints:
    """Read US domestic flights as cells of a map.

    A trip has the cells of origin longitude, origin latitude, destination longitude and destination latitude. The data
    are public data of the Bureau of Transportation Statistics. The map is the smallest rectangle of degrees around all
    airports of the public list.

    Args:
        folder: folder such as ``data/us_flights``.
        month: month such as ``2001-06``.

    Raises:
        OdError: The airport list cannot be read.
    """
    cells = _airport_cells(folder)
    legs = _legs(folder, month)
    points = np.concatenate([cells[legs["origin"]], cells[legs["destination"]]], axis=1)
    return KnownPoints(f"flights {month}", "public", _cube(MAP_SIDE, 4), points)


def connections(folder: Path, month: str, seed: int) -> KnownPoints:
    """Make up journeys of two flights: origin, stop, destination, with two coordinates each.

    The journeys are SYNTHETIC, because the records have no passengers. For every flight, one of the flights that leave
    its destination on the same day is drawn, each with the same chance. If there is none, or it flies back, there is no
    journey.

    Args:
        folder: folder such as ``data/us_flights``.
        month: month of the flights.
        seed: seed of the generator.

    Raises:
        OdError: The airport list cannot be read.
    """
    generator = np.random.default_rng(seed)
    cells = _airport_cells(folder)
    legs = _legs(folder, month).sort_values(["date", "origin"], kind="stable")
    origin, destination = legs["origin"].to_numpy(), legs["destination"].to_numpy()
    day = pd.factorize(legs["date"])[0] * len(cells)  # sorted by day, so the numbers of days ascend
    leaves, arrives = day + origin, day + destination
    first = np.searchsorted(leaves, arrives, side="left")
    choices = np.searchsorted(leaves, arrives, side="right") - first
    onward = np.minimum(first + (generator.random(len(legs)) * choices).astype(np.int64), len(legs) - 1)
    is_journey = (choices > 0) & (destination[onward] != origin)
    stops = origin, destination, destination[onward]
    points = np.concatenate([cells[stop[is_journey]] for stop in stops], axis=1)
    return KnownPoints(f"two-leg flights {month} (synthetic)", "synthetic", _cube(MAP_SIDE, 6), points)


def _normal(generator: np.random.Generator, centre: int, deviation: float, side: int, trips: int) -> NDArray[np.int32]:
    """Draw normal coordinates, rounded to the nearest cell, and draw again those outside; shape (trips,)."""
    cells = np.full(trips, -1, dtype=np.int64)
    while len(outside := np.flatnonzero((cells < 0) | (cells >= side))):
        cells[outside] = np.rint(generator.normal(centre, deviation, len(outside)))
    return cells.astype(np.int32)


def _airport_cells(folder: Path) -> Points:
    """Return the cell of each airport on the map, in the order of the public list; shape (airports, 2)."""
    airports = read_zones(folder / "airports.csv")
    degrees = airports["longitude"], airports["latitude"]
    return MapGrid.around(*degrees, MAP_SIDE, ("origin", "destination")).find_cells(*degrees)


def _legs(folder: Path, month: str) -> pd.DataFrame:
    """Return the flights of a month between listed airports: date, and the positions of both airports in the list."""
    airports = pd.Index(read_zones(folder / "airports.csv")["airport"])
    records = pd.read_parquet(folder / f"{month}.parquet")
    ends = {column: airports.get_indexer(records[column]) for column in ("origin", "destination")}
    legs = pd.DataFrame({"date": records["date"], **ends})
    listed: pd.DataFrame = legs.loc[(legs["origin"] >= 0) & (legs["destination"] >= 0)]
    return listed


def _cube(side: int, dimensions: int) -> Grid:
    return Grid((side,) * dimensions)


def _side(trips: int, dimensions: int) -> int:
    return max(1, round(float(trips ** (1 / dimensions))))
