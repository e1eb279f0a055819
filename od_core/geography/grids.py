"""Make zones of the cells of a grid: hexagons of H3, or squares of the European grid.

A grid has cells of several sizes, coarse to fine, which are the levels of a geography. Its zones are the finest cells
that overlap a public outline. A point lies in the cell that the grid's own rule names, not in the boundary that is
drawn: boundaries are for maps, and have straight edges in degrees.

References:
    Commission Implementing Regulation (EU) 2018/1799, article 3: the codes of the cells of the European grid.
    Sahr, White and Kimerling (2003), Geodesic Discrete Global Grid Systems: what H3 is one of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from math import ceil, log2, pi
from typing import Any

import lazy_loader
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography import laea
from od_core.geography.codes import make_geography_error

shapely: Any = lazy_loader.load("shapely")  # slow to import, and of an extra
h3: Any = lazy_loader.load("h3")

MAX_CELLS = 1_000_000
"""Largest number of cells in an outline, by an estimate before they are made."""

Cells = NDArray[np.uint64]
"""Numbers of cells of one size; shape (cells,)."""

Degrees = NDArray[np.float64]
"""Longitudes or latitudes of points in degrees; shape (points,)."""

Shapes = NDArray[np.object_]
"""Shapely geometries; shape (cells,)."""

_EARTH_RADIUS_METRES = 6_371_007.2
"""Radius in metres of the sphere with the area of the Earth."""


@dataclass(frozen=True)
class Hexagons:
    """The cells of H3 of some resolutions, coarse to fine, from 0 to 15. Twelve cells of each are pentagons.

    Hexagons do not nest exactly. The parent of a cell is the one that H3 defines: the cell of the next coarser
    resolution that contains its centre, and so on.

    Raises OdError if a resolution is not between 0 and 15, or they do not ascend.
    """

    resolutions: tuple[int, ...]

    def __post_init__(self) -> None:
        if not all(0 <= resolution <= 15 for resolution in self.resolutions):
            raise _make_grid_error("a resolution of hexagons is not between 0 and 15")
        for coarse, fine in pairwise(self.resolutions):
            if coarse >= fine:
                raise _make_grid_error(f"resolution {coarse} is not coarser than resolution {fine}")

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, such as ``hexagon_8``."""
        return tuple(f"hexagon_{resolution}" for resolution in self.resolutions)

    def cover(self, outline: Any) -> Cells:
        """Return the finest cells that overlap a Shapely geometry in degrees. Raises OdError if they are too many."""
        h3, finest = _import_h3(), self.resolutions[-1]
        _refuse_many(outline, h3.average_hexagon_area(finest, "m^2"))
        shape = h3.geo_to_h3shape(shapely.segmentize(outline, 90))  # H3 takes edges of over 180 degrees for short ones
        return np.unique(np.fromiter(h3.h3shape_to_cells_experimental(shape, finest, "overlap"), np.uint64))

    def find_cells(self, longitude: Degrees, latitude: Degrees) -> Cells:
        """Return the finest cell in which each point lies; shape (points,)."""
        finest = repeat(self.resolutions[-1])
        return np.fromiter(map(_import_h3().latlng_to_cell, latitude.tolist(), longitude.tolist(), finest), np.uint64)

    def find_parents(self, cells: Cells, level: int) -> Cells:
        """Return the cell of a level to which each of the finest cells belongs; level 0 is the coarsest."""
        return np.fromiter(map(_import_h3().cell_to_parent, cells.tolist(), repeat(self.resolutions[level])), np.uint64)

    def name_cells(self, cells: Cells, _level: int) -> list[str]:
        """Return the numbers of cells as H3 writes them, in hexadecimal digits."""
        return list(map(_import_h3().int_to_str, cells.tolist()))

    def draw_cells(self, cells: Cells, _level: int) -> Shapes:
        """Return cells as Shapely polygons in degrees."""
        corners = [np.transpose(corners) for corners in map(_import_h3().cell_to_boundary, cells.tolist())]
        return np.array([_draw_ring(longitude, latitude) for latitude, longitude in corners], dtype=object)


def _import_h3() -> Any:
    """Return H3's functions for cells as numbers, which are faster than those for cells as texts."""
    return h3.api.basic_int


def _draw_ring(longitude: Degrees, latitude: Degrees) -> object:
    """Return the polygon with these corners, in degrees, cut at the date line.

    A polygon around a pole reaches to the line that a map of the world shows for the pole.
    """
    if np.ptp(longitude) <= 180:
        return shapely.Polygon(np.column_stack([longitude, latitude]))
    unwrapped = np.unwrap([*longitude, longitude[0]], period=360)  # without steps at the date line
    points = [*zip(unwrapped, latitude, strict=False)]
    if abs(unwrapped[-1] - unwrapped[0]) > 180:  # once around the Earth
        pole = float(np.copysign(90, latitude[0]))
        points += [(unwrapped[-1], latitude[0]), (unwrapped[-1], pole), (unwrapped[0], pole)]
    copies = [shapely.Polygon([(east + shift, north) for east, north in points]) for shift in (-360, 0, 360)]
    return shapely.union_all(shapely.intersection(copies, shapely.box(-180, -90, 180, 90)))


_CORNERS = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
"""Corners of the square of size 1 whose south-western corner is the origin, as (east, north)."""


@dataclass(frozen=True)
class Squares:
    """The cells of the European grid (ETRS89-LAEA, EPSG:3035) of some sizes in metres, coarse to fine.

    A square contains its southern and western edges, not the others. Squares nest exactly. Raises OdError if a size is
    not a multiple of the next finer one.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        for coarse, fine in pairwise(self.sizes):
            if coarse <= fine or coarse % fine:
                raise _make_grid_error(f"squares of {coarse} m do not consist of squares of {fine} m")

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, such as ``square_1km`` and ``square_250m``."""
        return tuple(f"square_{size}m" if size % 1000 else f"square_{size // 1000}km" for size in self.sizes)

    def cover(self, outline: Any) -> Cells:
        """Return the finest squares that overlap a Shapely geometry in degrees.

        A large square around the outline is divided into quarters again and again; squares that do not overlap the
        outline are dropped. Raises OdError if the squares are too many, or the outline reaches beyond Europe.
        """
        size = self.sizes[-1]
        if not shapely.within(outline, shapely.box(laea.WEST, laea.SOUTH, laea.EAST, laea.NORTH)):
            raise _make_grid_error("the outline reaches beyond Europe, where the grid of squares is used")
        _refuse_many(outline, size**2)
        # Straight edges in degrees are curves in metres, which short pieces follow to a few centimetres.
        short = shapely.segmentize(outline, 0.01)
        area = shapely.transform(short, lambda points: np.column_stack(laea.to_metres(*points.T)))
        shapely.prepare(area)
        ends = shapely.bounds(area) // size
        if (ends < 0).any():
            raise _make_grid_error("the outline reaches beyond the origin of the grid of squares")
        halvings = max(1, ceil(log2(max(ends[2:] - ends[:2]) + 1)))
        corners = ends[None, :2]  # south-western corners, in units of the finest squares
        for side in 2.0 ** np.arange(halvings - 1, -1, -1):
            corners = (corners[:, None] + side * _CORNERS).reshape(-1, 2)
            squares = shapely.box(*(corners * size).T, *((corners + side) * size).T)
            corners = corners[shapely.intersects(area, squares)]
        return np.unique(_encode_cells(*corners.T))

    def find_cells(self, longitude: Degrees, latitude: Degrees) -> Cells:
        """Return the finest square of each point; that of the origin, in the ocean, for points beyond Europe."""
        is_near = (longitude >= laea.WEST) & (longitude <= laea.EAST)
        is_near &= (latitude >= laea.SOUTH) & (latitude <= laea.NORTH)
        metres = np.zeros((2, len(longitude)))
        metres[:, is_near] = laea.to_metres(longitude[is_near], latitude[is_near])
        return self.place_metres(*np.maximum(metres, 0))

    def place_metres(self, easting: NDArray[np.float64], northing: NDArray[np.float64]) -> Cells:
        """Return the finest square of each point, given its metres in EPSG:3035, which must be at least 0."""
        return _encode_cells(easting // self.sizes[-1], northing // self.sizes[-1])

    def find_parents(self, cells: Cells, level: int) -> Cells:
        """Return the square of a level that contains each of the finest squares; level 0 is the coarsest."""
        ratio = self.sizes[level] // self.sizes[-1]
        east, north = _decode_cells(cells)
        return _encode_cells(east // ratio, north // ratio)

    def name_cells(self, cells: Cells, level: int) -> list[str]:
        """Return the codes of squares of a level, such as ``CRS3035RES1000mN2734000E4334000``."""
        size = self.sizes[level]
        east, north = (number * size for number in _decode_cells(cells))
        return [f"CRS3035RES{size}mN{y}E{x}" for x, y in zip(east.tolist(), north.tolist(), strict=True)]

    def draw_cells(self, cells: Cells, level: int) -> Shapes:
        """Return squares of a level as Shapely polygons in degrees."""
        east, north = _decode_cells(cells)
        corners = [
            laea.to_degrees((east + x) * self.sizes[level], (north + y) * self.sizes[level]) for x, y in _CORNERS
        ]
        drawn: Shapes = shapely.polygons(np.array(corners).transpose(2, 0, 1))
        return drawn


Grid = Hexagons | Squares


def _encode_cells(east: NDArray[Any], north: NDArray[Any]) -> Cells:
    """Return the number of each square: the row, counted from the south, times 2^32, plus the column from the west."""
    return north.astype(np.uint64) * np.uint64(2**32) + east.astype(np.uint64)


def _decode_cells(cells: Cells) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the column, counted from the west, and the row, from the south, of each square."""
    north, east = np.divmod(cells.astype(np.int64), 2**32)
    return east, north


def list_cells(grid: Grid, outline: Any) -> tuple[pd.DataFrame, dict[str, dict[str, bytes]]]:
    """Return the zone list of a grid's cells that overlap an outline, and their boundaries by level and code.

    The list has a row for each of the finest cells, and a column of codes for each level. Boundaries are WKB. Raises
    OdError if the cells are too many, or lie outside of the grid.
    """
    cells = grid.cover(outline)
    zones: dict[str, Any] = {}
    boundaries: dict[str, dict[str, bytes]] = {}
    for number, level in enumerate(grid.levels):
        level_cells, position = np.unique(grid.find_parents(cells, number), return_inverse=True)
        codes = grid.name_cells(level_cells, number)
        zones[level] = np.array(codes, dtype=object)[position]
        boundaries[level] = dict(zip(codes, shapely.to_wkb(grid.draw_cells(level_cells, number)), strict=True))
    return pd.DataFrame(zones), boundaries


def estimate_cells(outline: Any, square_metres: float) -> float:
    """Return about how many cells of ``square_metres`` each overlap an outline, a Shapely geometry in degrees.

    For squares with the area s^2, and an outline with the area A and the border length L, it is A / s^2 + 2 L / (pi s)
    + 1: the mean number over all positions and directions of a convex outline, by Steiner's formula. An outline with a
    rough border overlaps fewer. The sinusoidal map of the outline keeps areas, and nearly keeps lengths in a country.
    """
    west, _, east, _ = shapely.bounds(outline)

    def map_points(degrees: Degrees) -> NDArray[np.float64]:
        """Return points in metres of the sinusoidal map, given longitudes and latitudes; shape (points, 2) each."""
        longitude, latitude = np.radians(degrees).T
        return (
            np.column_stack([(longitude - np.radians(west + east) / 2) * np.cos(latitude), latitude])
            * _EARTH_RADIUS_METRES
        )

    mapped = shapely.transform(shapely.segmentize(outline, 1), map_points)
    inside, border = shapely.area(mapped) / square_metres, shapely.length(mapped) / square_metres**0.5
    return float(inside + border * 2 / pi + 1)


def _refuse_many(outline: Any, square_metres: float) -> None:
    """Raise OdError if more than :data:`MAX_CELLS` cells overlap an outline, by an estimate."""
    number = estimate_cells(outline, square_metres)
    if number > MAX_CELLS:
        raise make_geography_error(
            "OD-GEOGRAPHY-CELLS",
            f"about {number:,.0f} cells overlap the outline, and at most {MAX_CELLS:,} are listed",
            next_step="declare a lower resolution of hexagons or a larger size of squares, or a smaller outline",
        )


def _make_grid_error(message: str) -> OdError:
    """Return the OdError for a grid that is not valid, or that does not cover its outline."""
    return make_geography_error(
        "OD-GEOGRAPHY-CELLS", message, next_step="correct geography.hexagons or geography.squares, or its outline"
    )


class CellLocator:
    """The cells of a grid that are zones, to find the zone of each of many points.

    Args:
        grid: the grid.
        codes: codes of the zones. One that no cell has, such as that of unknown places, has no points.
        outside: code of a point in no zone.
    """

    def __init__(self, grid: Grid, codes: Sequence[str], outside: str) -> None:
        self._grid, self._codes, self._outside = grid, frozenset(codes), outside

    def find_codes(self, longitude: Degrees, latitude: Degrees) -> NDArray[np.object_]:
        """Return the code of the zone of each point, as :meth:`od_core.geography.point_location.PointLocator` does."""
        is_degree = (np.abs(longitude) <= 180) & (np.abs(latitude) <= 90)
        row, cells = pd.factorize(self._grid.find_cells(longitude[is_degree], latitude[is_degree]))
        codes = self._grid.name_cells(cells, len(self._grid.levels) - 1)
        listed = np.array([code if code in self._codes else self._outside for code in codes], dtype=object)
        found = np.full(len(longitude), self._outside, dtype=object)
        found[is_degree] = listed[row]
        found[np.isnan(longitude) | np.isnan(latitude)] = None
        return found
