"""Read public boundaries of zones, dissolve them into larger areas, and simplify them for pages.

A boundary is a polygon or several, in degrees of longitude and latitude, as well-known binary (WKB). Boundaries are
used only for maps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import OdError, raise_alone
from od_core.extras import require
from od_core.files.durable import absence
from od_core.geography.codes import no_column

if TYPE_CHECKING:
    from od_core.geography.geography import Geography

Boundaries = tuple[bytes | None, ...]
"""Boundary of each area of a level as WKB, in tree order; None for an area without one."""

BOUNDARY = "boundary"
"""Column of boundaries in :meth:`od_core.Geography.to_frame`, as WKB in hexadecimal digits; blank for none."""

_WGS84 = ("EPSG:4326", "OGC:CRS84")
_POLYGON, _MULTIPOLYGON = 3, 6
_HALF_AROUND, _POLE = 180, 90


def read_boundaries(path: Path, column: str) -> dict[str, bytes]:
    """Return the boundaries in a file by the codes of their zones.

    Args:
        path: GeoJSON, GeoPackage, GeoParquet (``.parquet``, shapes as WKB), or another file with one layer that GDAL
            reads, in WGS 84 (EPSG:4326).
        column: name of the property that holds the code of the zone, as text.

    Raises:
        OdError: the extra ``boundaries`` is not installed; the file is missing or unreadable, is in another coordinate
            system, or lacks the property; a code is not text or occurs twice; or a boundary is not a polygon, is not in
            degrees, or crosses the date line without being cut there.
    """
    require("boundaries")
    if (absent := absence(path)) is not None:
        raise _fault(absent, code="OD-FILE-MISSING")
    system, codes, shapes = (_geoparquet if path.suffix == ".parquet" else _layer)(path, column)
    if system not in _WGS84:
        raise _fault(f"{path.name} is in {system}, not in WGS 84 (EPSG:4326)")
    boundaries: dict[str, bytes] = {}
    for code, shape in zip(codes, shapes, strict=True):
        if not isinstance(code, str):
            raise _fault(f"{path.name} has a code in property {column!r} that is not text", f"code {code!r}")
        if code in boundaries:
            raise _fault(f"{path.name} has two boundaries of one zone", f"zone {code!r}")
        if shape is not None:
            boundaries[code] = shape
    check_boundaries(tuple(boundaries.values()))
    _refuse_uncut(tuple(boundaries.values()))
    return boundaries


def _refuse_uncut(boundaries: Sequence[bytes]) -> None:
    """Raise OdError if a boundary crosses the date line without being cut there. It would be drawn around the world.

    It has two points in turn that are more than half the way around the world apart. Where a boundary contains a pole,
    it may run along the line that a map of the world shows for the pole.
    """
    import shapely

    outlines = shapely.get_rings(shapely.get_parts(shapely.from_wkb(boundaries)))
    points, ring = shapely.get_coordinates(outlines, return_index=True)
    same = ring[1:] == ring[:-1]
    far = abs(np.diff(points[:, 0])) > _HALF_AROUND
    along_pole = (abs(points[1:, 1]) == _POLE) & (points[1:, 1] == points[:-1, 1])
    if (same & far & ~along_pole).any():
        raise _fault("a boundary crosses the date line and is not cut there")


_Read = tuple[str | None, Sequence[Any], Sequence[bytes | None]]
"""Coordinate system of a file of boundaries, such as ``EPSG:4326``; codes; and shapes as WKB."""


def _layer(path: Path, column: str) -> _Read:
    """Read a file of boundaries with GDAL; see :func:`read_boundaries`."""
    import pyogrio  # slow to import, and needed only here

    try:
        found = list(map(str, pyogrio.read_info(path)["fields"]))
        if column not in found:
            raise no_column("the file of boundaries", column, found, (column,))
        facts, _, shapes, (codes,) = pyogrio.raw.read(path, columns=[column])
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, ValueError) as error:
        raise_alone(_fault(f"{path.name} cannot be read as a layer of boundaries", str(error)))
    return facts["crs"], codes, shapes


def _geoparquet(path: Path, column: str) -> _Read:
    """Read a file of boundaries in GeoParquet 1.1; see :func:`read_boundaries`."""
    try:
        table = pq.read_table(path)
        facts = json.loads(table.schema.metadata[b"geo"])
        place = facts["primary_column"]
        described, shapes = facts["columns"][place], table[place]
        encoding, system = described["encoding"], described.get("crs", {"id": {"authority": "OGC", "code": "CRS84"}})
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:  # OSError for a damaged page
        raise_alone(_fault(f"{path.name} cannot be read as GeoParquet", repr(error)))
    if encoding != "WKB":
        raise _fault(f"{path.name} has shapes in the encoding {encoding!r}, not in WKB")
    found = [name for name in table.column_names if name != place]
    if column not in found:
        raise no_column("the file of boundaries", column, found, (column,))
    identity = (system or {}).get("id", {})
    name = ":".join(str(identity.get(part)) for part in ("authority", "code")) if identity else None
    return name, table[column].to_pylist(), shapes.to_pylist()


def with_boundaries(zones: pd.DataFrame, level: str, boundaries: Mapping[str, bytes]) -> pd.DataFrame:
    """Return a zone list with the column ``BOUNDARY``: the boundary of each zone, blank for a zone without one.

    Args:
        zones: the zone list. It is returned unchanged if it lacks the column ``level``.
        level: column of the codes of the zones.
        boundaries: boundaries by codes. Those of other codes are ignored.

    Raises:
        OdError: the list has a column of this name, or no zone has a boundary.
    """
    if level not in zones.columns:
        return zones
    if BOUNDARY in zones.columns:
        raise _fault(f"the zone list has a column {BOUNDARY!r}, which is reserved for boundaries from a file")
    texts = [boundaries[code].hex() if code in boundaries else "" for code in zones[level]]
    if not any(texts):
        raise _fault("no zone of the list has a boundary in the file", f"the file has {next(iter(boundaries), '')!r}")
    return zones.assign(**{BOUNDARY: texts})


def boundaries_in(column: pd.Series) -> Boundaries:
    """Return the boundaries in a column of hexadecimal digits. Raises OdError as :func:`check_boundaries` does."""
    try:
        boundaries = tuple(bytes.fromhex(text) if isinstance(text, str) and text else None for text in column)
    except ValueError:
        raise_alone(_fault("a boundary is not well-known binary in hexadecimal digits"))
    check_boundaries(boundaries)
    return boundaries


def check_boundaries(boundaries: Boundaries) -> None:
    """Raise OdError if a boundary is not a polygon, or is not in degrees."""
    require("boundaries")
    import shapely

    known = [boundary for boundary in boundaries if boundary is not None]
    try:
        shapes = shapely.from_wkb(known)
    except shapely.errors.GEOSException as error:
        raise_alone(_fault("a boundary is not well-known binary", str(error)))
    if not np.isin(shapely.get_type_id(shapes), (_POLYGON, _MULTIPOLYGON)).all() or shapely.is_empty(shapes).any():
        raise _fault("a boundary is not a polygon")
    if known:
        west, south, east, north = shapely.total_bounds(shapes)
        if not (west >= -180 and east <= 180 and south >= -90 and north <= 90):
            raise _fault(
                "boundaries are not in degrees of longitude and latitude from -180 to 180 and from -90 to 90; those"
                " that cross the date line must be cut there"
            )


def points_within(boundaries: Boundaries) -> NDArray[np.float64]:
    """Return a point within each boundary: latitude and longitude in degrees, or NaN for both; shape (zones, 2)."""
    shapes = _valid(boundaries)
    import shapely

    points = np.full((len(boundaries), 2), np.nan)
    known = np.flatnonzero([shape is not None for shape in shapes])
    inside = shapely.point_on_surface(shapes[known])
    points[known, 0], points[known, 1] = shapely.get_y(inside), shapely.get_x(inside)
    return points


def dissolved(geography: Geography) -> list[NDArray[Any]]:
    """Return the boundaries of the areas of levels 1 to the depth as Shapely geometries; None for an area without one.

    Faulty polygons, such as those that cross themselves, are repaired. The geography must have boundaries.
    """
    import shapely

    zones = _valid(geography.boundaries or ())
    levels = []
    for first in geography.first_zone[1:-1]:
        areas = np.full(len(first) - 1, None, dtype=object)
        for area, (start, end) in enumerate(pairwise(first.tolist())):
            known = [shape for shape in zones[start:end] if shape is not None]
            if known:
                areas[area] = shapely.union_all(known)
        levels.append(areas)
    return [*levels, zones]


def as_wkb(shapes: NDArray[Any]) -> Boundaries:
    """Return Shapely geometries as WKB. The same shapes give the same bytes."""
    import shapely

    return tuple(shapely.to_wkb(shapely.normalize(shapes), byte_order=1))


def simplified(shapes: NDArray[Any], tolerance: float) -> NDArray[Any]:
    """Return shapes with fewer points, which differ from the given ones by about ``tolerance`` degrees.

    If the shapes do not overlap and share their borders exactly, they still do.
    """
    import shapely

    known = np.flatnonzero([shape is not None for shape in shapes])
    result = shapes.copy()
    if shapely.coverage_is_valid(shapes[known]):
        result[known] = shapely.coverage_simplify(shapes[known], tolerance)
    else:
        result[known] = shapely.simplify(shapes[known], tolerance, preserve_topology=True)
    return result


def square_degrees(shapes: NDArray[Any]) -> float:
    """Return the area of all shapes together, in square degrees."""
    import shapely

    return float(np.nansum(shapely.area(shapes)))


def rings(shape: Any) -> list[NDArray[np.float64]]:
    """Return longitude and latitude of the rings of a shape, outer ones and holes; shape (points, 2) each."""
    import shapely

    if shape is None:
        return []
    return [shapely.get_coordinates(ring)[:-1] for ring in shapely.get_rings(shapely.get_parts(shape))]


def _valid(boundaries: Sequence[bytes | None]) -> NDArray[Any]:
    """Return boundaries as valid Shapely geometries that consist of polygons."""
    require("boundaries")
    import shapely

    shapes = np.empty(len(boundaries), dtype=object)
    shapes[:] = shapely.from_wkb(np.array([*boundaries, None], dtype=object))[:-1]
    faulty = ~shapely.is_valid(shapes) & ~shapely.is_missing(shapes)
    shapes[faulty] = shapely.make_valid(shapes[faulty], method="structure", keep_collapsed=False)
    return shapes


def _fault(message: str, detail: str | None = None, *, code: str = "OD-GEOGRAPHY-BOUNDARIES") -> OdError:
    return OdError(code, message, next_step="correct the file of boundaries", confidential_detail=detail)
