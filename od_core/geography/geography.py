"""Describe public areas: levels, parents, order and boundaries.

Level 0 is the whole space (one area, ``all``). Each area of level ``l`` lies in exactly one area of level ``l - 1``.
The areas of the last level are the zones. The areas of a level are numbered in tree order: the children of an area have
consecutive numbers, and so do the zones below it.

Areas may have public boundaries, which are read here, dissolved into larger areas, and simplified for pages. A boundary
is a polygon or several, in degrees of longitude and latitude, as well-known binary (WKB). Boundaries are used only for
maps.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import lazy_loader
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import OdError, raise_without_context, suggest_similar_name
from od_core.extras import require
from od_core.files.data_frame import Table, convert_to_data_frame
from od_core.files.durable import find_file_fault
from od_core.geography.codes import (
    COORDINATES,
    TEXT,
    WHOLE_SPACE,
    AreaNames,
    Degrees,
    build_area_tree,
    check_codes,
    check_columns,
    check_coordinates,
    check_hierarchy,
    check_level_names,
    check_named_levels,
    find_first_conflict,
    find_first_repeated,
    find_positions,
    list_zone_paths,
    make_area_labels,
    make_geography_error,
    make_missing_column_error,
    name_column_of_aliases,
    name_column_of_names,
    parse_degrees,
    read_area_names,
    read_text_codes,
)
from od_core.geography.grids import Grid
from od_core.notebook import Shown

shapely: Any = lazy_loader.load("shapely")  # slow to import, and of an extra
pyogrio: Any = lazy_loader.load("pyogrio")

_LOADING_LOCK = Lock()

Array = TypeVar("Array", bound=NDArray[np.generic])
Boundaries = tuple[bytes | None, ...]
"""Boundary of each area of a level as WKB, in tree order; None for an area without one."""

BOUNDARY = "boundary"
"""Column of the boundaries of zones in :meth:`od_core.Geography.to_frame`, as WKB in hexadecimal digits."""

_WGS84 = re.compile(
    r'(EPSG:(4326|4979|9518|9705|9707)|OGC:CRS84h?|(COMPD_CS|COMPOUNDCRS)\["WGS 84 \+ .*'
    r'|GEOGCRS\["(WGS_1984_3D|(GCS_)?WGS[ _]84[ _]longitude-latitude-height)".*)',
    re.DOTALL,
)
"""WGS 84, without or with heights, by its code or in WKT as GDAL writes it."""
_POLYGON, _MULTIPOLYGON = 3, 6
"""Shapely's numbers of these types of geometries."""
_HALF_TURN, _POLE_LATITUDE = 180, 90  # degrees


def name_boundary_column(levels: Sequence[str], level: str) -> str:
    """Return the column of the boundaries of a level's areas in :meth:`od_core.Geography.to_frame`."""
    return BOUNDARY if level == levels[-1] else f"{level}: {BOUNDARY}"


def read_boundaries(path: Path, column: str) -> dict[str, bytes]:
    """Return the boundaries in a file by the codes of their areas, which are texts in the property ``column``.

    The file is GeoJSON, GeoPackage, GeoParquet (``.parquet``, shapes as WKB), or another file with one layer that GDAL
    reads, in WGS 84 (EPSG:4326). Heights and measures of points are dropped.

    Raises:
        OdError: the extra ``boundaries`` is not installed; the file is missing or unreadable, is in another coordinate
            system, or lacks the property; a code is not text or occurs twice; or a boundary is not a polygon, is not in
            degrees, or crosses the date line without being cut there.
    """
    codes, shapes = _read_shapes(path, column)
    boundaries: dict[str, bytes] = {}
    for code, shape in zip(codes, shapes, strict=True):
        if not isinstance(code, str):
            raise _make_boundaries_error(
                f"{path.name} has a code in property {column!r} that is not text", f"code {code!r}"
            )
        if code in boundaries:
            raise _make_boundaries_error(f"{path.name} has two boundaries of one area", f"area {code!r}")
        if shape is not None:
            boundaries[code] = shape
    boundaries = normalise_boundaries(boundaries)
    _refuse_uncut_at_date_line(tuple(boundaries.values()))
    return boundaries


def read_outline(path: Path) -> Any:
    """Return the polygons in a file together, as a Shapely geometry in degrees; see :func:`read_boundaries`.

    Raises OdError as :func:`read_boundaries` does, or if there is no polygon.
    """
    _, shapes = _read_shapes(path, None)
    given = {f"polygon {number}": shape for number, shape in enumerate(shapes, start=1) if shape is not None}
    if not given:
        raise _make_boundaries_error(f"{path.name} has no polygon")
    boundaries = tuple(normalise_boundaries(given).values())
    _refuse_uncut_at_date_line(boundaries)
    return shapely.union_all(make_valid_shapes(boundaries))


def _read_shapes(path: Path, column: str | None) -> tuple[Sequence[object], Sequence[bytes | None]]:
    """Return the codes and the shapes (WKB) in a file of boundaries, in the same order; None for a missing shape.

    ``column`` is the property with the codes; None if there are no codes. Raises OdError if the file cannot be read, is
    not in WGS 84, or lacks the property.
    """
    require("boundaries")
    fault = find_file_fault(path)
    if fault is not None:
        raise _make_boundaries_error(fault, code="OD-FILE-MISSING")
    read = _read_geoparquet if path.suffix == ".parquet" else _read_layer
    system, codes, shapes = read(path, column)
    if not _WGS84.fullmatch(str(system)):
        raise _make_boundaries_error(f"{path.name} is in {system}, not in WGS 84 (EPSG:4326)")
    return codes, shapes


def _refuse_uncut_at_date_line(boundaries: Sequence[bytes]) -> None:
    """Raise OdError if a boundary crosses the date line without being cut there. It would be drawn around the world.

    Such a boundary has two consecutive points more than 180 degrees of longitude apart. A boundary that contains a pole
    may have such points at the pole, because it runs along the line that a map of the world shows for the pole.
    """
    rings = shapely.get_rings(shapely.get_parts(shapely.from_wkb(boundaries)))
    points, ring_of_point = shapely.get_coordinates(rings, return_index=True)
    longitude, latitude = points[:, 0], points[:, 1]
    # Each of the three compares a point with the one before it.
    is_in_same_ring = ring_of_point[1:] == ring_of_point[:-1]
    is_far = abs(np.diff(longitude)) > _HALF_TURN
    is_along_pole = (abs(latitude[1:]) == _POLE_LATITUDE) & (latitude[1:] == latitude[:-1])
    if (is_in_same_ring & is_far & ~is_along_pole).any():
        raise _make_boundaries_error("a boundary crosses the date line and is not cut there")


_SystemCodesShapes = tuple[str | None, Sequence[object], Sequence[bytes | None]]
"""Coordinate system of a file of boundaries, such as ``EPSG:4326``; codes; and shapes as WKB."""


def _read_layer(path: Path, column: str | None) -> _SystemCodesShapes:
    """Read a file of boundaries with GDAL, and the codes in the property ``column``, unless it is None.

    Raises OdError if the file cannot be read or lacks the property.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Measured", UserWarning)  # the measures are dropped
            fields = list(map(str, pyogrio.read_info(path)["fields"]))
            if column is not None and column not in fields:
                raise make_missing_column_error("the file of boundaries", column, fields, (column,))
            columns = [] if column is None else [column]
            facts, _, shapes, codes = pyogrio.raw.read(path, columns=columns, force_2d=True)
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, ValueError) as error:
        raise_without_context(
            _make_boundaries_error(f"{path.name} cannot be read as a layer of boundaries", str(error))
        )
    return facts["crs"], codes[0] if columns else (), shapes


def _read_geoparquet(path: Path, column: str | None) -> _SystemCodesShapes:
    """Read a file of boundaries in GeoParquet 1.1, as :func:`_read_layer` reads others."""
    try:
        table = pq.read_table(path)
        facts = json.loads(table.schema.metadata[b"geo"])
        shape_column = facts["primary_column"]
        shapes = table[shape_column]
        encoding = facts["columns"][shape_column]["encoding"]
        system = facts["columns"][shape_column].get("crs", {"id": {"authority": "OGC", "code": "CRS84"}})
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:  # OSError for a damaged page
        raise_without_context(_make_boundaries_error(f"{path.name} cannot be read as GeoParquet", repr(error)))
    if encoding != "WKB":
        raise _make_boundaries_error(f"{path.name} has shapes in the encoding {encoding!r}, not in WKB")
    names = [name for name in table.column_names if name != shape_column]
    if column is not None and column not in names:
        raise make_missing_column_error("the file of boundaries", column, names, (column,))
    codes = () if column is None else table[column].to_pylist()
    return _name_coordinate_system(system or {}), codes, shapes.to_pylist()


def _name_coordinate_system(system: Mapping[str, Any]) -> str | None:
    """Return the code of a coordinate system in PROJJSON, such as ``EPSG:4326``; None if it has none."""
    horizontal = system["components"][0] if "components" in system else system  # the first part, if it has heights
    identity = horizontal.get("id")
    return f"{identity.get('authority')}:{identity.get('code')}" if identity else None


def add_boundary_column(
    zones: pd.DataFrame, levels: Sequence[str], level: str, boundaries: Mapping[str, bytes]
) -> pd.DataFrame:
    """Return a zone list with the boundary column of a level, blank except in the first zone of a bounded area.

    A list without the column ``level``, which has the codes of areas, is returned unchanged. Raises OdError if the list
    has the boundary column already, or none of its areas has a boundary.
    """
    if level not in zones.columns:
        return zones
    column = name_boundary_column(levels, level)
    if column in zones.columns:
        raise _make_boundaries_error(
            f"the zone list has a column {column!r}, which is reserved for boundaries from a file"
        )
    is_first_zone = ~zones[level].duplicated()
    texts = [
        boundaries[code].hex() if is_first and code in boundaries else ""
        for code, is_first in zip(zones[level], is_first_zone, strict=True)
    ]
    if not any(texts):
        what = "zone" if level == levels[-1] else f"area of level {level!r}"
        detail = f"the file has {next(iter(boundaries), '')!r}"
        raise _make_boundaries_error(f"no {what} of the list has a boundary in the file", detail)
    return zones.assign(**{column: texts})


def _parse_area_boundaries(areas: Sequence[str], codes: Sequence[str], column: pd.Series) -> Boundaries:
    """Return the boundary of each of ``areas``, codes of one level, from a column of a zone list; None without one.

    ``codes`` has the area of each row, and ``column`` a boundary in hexadecimal digits in some rows of an area. Raises
    OdError if an area has two boundaries, or a boundary is not valid.
    """
    stated = [(area, text) for area, text in zip(codes, column, strict=True) if isinstance(text, str) and text]
    if find_first_conflict(stated) is not None:
        raise _make_boundaries_error("an area has two boundaries")
    try:
        boundary_of = {area: bytes.fromhex(text) for area, text in stated}
    except ValueError:
        raise_without_context(_make_boundaries_error("a boundary is not well-known binary in hexadecimal digits"))
    return tuple(map(normalise_boundaries(boundary_of).get, areas))


def compute_extent(boundaries: Sequence[bytes]) -> tuple[float, float, float, float]:
    """Return the west, south, east and north ends of boundaries (WKB), in degrees. Raises OdError without Shapely."""
    require("boundaries")
    west, south, east, north = map(float, shapely.total_bounds(shapely.from_wkb(boundaries)))
    return west, south, east, north


def normalise_boundaries(boundaries: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return boundaries as little-endian WKB, by the codes of their areas, without heights and coordinate systems.

    Raises OdError if a boundary is not a polygon, has no inside, or is not in degrees.
    """
    require("boundaries")
    given = np.array([*boundaries.values()], dtype=object)
    try:
        shapes = shapely.from_wkb(given)
    except shapely.errors.GEOSException as error:
        raise_without_context(_make_boundaries_error("a boundary is not well-known binary", str(error)))
    is_usable = np.isin(shapely.get_type_id(shapes), (_POLYGON, _MULTIPOLYGON))
    # Of a polygon without an inside, such as a line back and forth, the repair leaves nothing.
    is_usable[is_usable] = ~shapely.is_empty(make_valid_shapes(given[is_usable].tolist()))
    if not is_usable.all():
        area = [*boundaries][int(np.argmin(is_usable))]
        raise _make_boundaries_error("a boundary is not a polygon, or has no inside", f"area {area!r}")
    if boundaries:
        west, south, east, north = shapely.total_bounds(shapes)
        if not (west >= -180 and east <= 180 and south >= -90 and north <= 90):
            raise _make_boundaries_error(
                "boundaries are not in degrees of longitude and latitude from -180 to 180 and from -90 to 90; those"
                " that cross the date line must be cut there"
            )
    return dict(zip(boundaries, shapely.to_wkb(shapely.force_2d(shapes), byte_order=1), strict=True))


def find_points_within(boundaries: Boundaries, preferred: Degrees | None = None) -> NDArray[np.float64]:
    """Return a point within each boundary: latitude and longitude in degrees, or NaN for both; shape (areas, 2).

    ``preferred`` has a point of each area, in the same form, which is taken if it is within the boundary, or if the
    area has no boundary.
    """
    shapes = make_valid_shapes(boundaries)
    points = shapely.point_on_surface(shapes)
    degrees = np.column_stack([shapely.get_y(points), shapely.get_x(points)])
    if preferred is None:
        return degrees
    is_kept = shapely.contains_xy(shapes, preferred[:, 1], preferred[:, 0]) | shapely.is_missing(shapes)
    return np.where(is_kept[:, None], preferred, degrees)


def dissolve_boundaries(geography: Geography) -> list[NDArray[np.object_]]:
    """Return the boundaries of the areas of each level from 1 to the depth, as arrays of Shapely geometries.

    An area whose boundary is not given has the union of the boundaries of the areas within it; None if these have none.
    They are the areas of the next finer level with given boundaries, or else the zones. Faulty polygons, such as those
    that cross themselves, are repaired.
    """
    shapes_below = make_valid_shapes(geography.boundaries or (None,) * geography.size(geography.depth))
    level_below = geography.depth  # the level of these shapes: the last one with given boundaries
    fine_to_coarse = [shapes_below]
    for level in range(geography.depth - 1, 0, -1):
        first_below = np.searchsorted(geography.first_zone[level_below], geography.first_zone[level]).tolist()
        unions = [shapely.union_all(shapes_below[start:end]) for start, end in pairwise(first_below)]
        shapes = np.array(unions, dtype=object)
        shapes[shapely.is_empty(shapes)] = None
        stated = geography.level_boundaries.get(geography.level_names[level])
        if stated is not None:
            given = make_valid_shapes(stated)
            shapes = np.where(shapely.is_missing(given), shapes, given)
            shapes_below, level_below = shapes, level
        fine_to_coarse.append(shapes)
    return fine_to_coarse[::-1]


def as_wkb(shapes: NDArray[np.object_]) -> Boundaries:
    """Return Shapely geometries as WKB. The same shapes give the same bytes."""
    return tuple(shapely.to_wkb(shapely.normalize(shapes), byte_order=1))


def simplify_shapes(shapes: NDArray[np.object_], tolerance: float) -> NDArray[np.object_]:
    """Return shapes with fewer points, which differ from the given ones by about ``tolerance`` degrees.

    If the shapes do not overlap and share their borders exactly, they still do.
    """
    with_shape = np.flatnonzero([shape is not None for shape in shapes])  # positions
    simplified = shapes.copy()
    if shapely.coverage_is_valid(shapes[with_shape]):
        simplified[with_shape] = shapely.coverage_simplify(shapes[with_shape], tolerance)
    else:
        simplified[with_shape] = shapely.simplify(shapes[with_shape], tolerance, preserve_topology=True)
    return simplified


def compute_square_degrees(shapes: NDArray[np.object_]) -> float:
    """Return the sum of the areas of Shapely geometries, in square degrees."""
    return float(np.nansum(shapely.area(shapes)))


def list_rings(shape: object) -> list[NDArray[np.float64]]:
    """Return longitude and latitude of each ring of a Shapely geometry, outer rings and holes; shape (points, 2) each.

    The last point of a ring, which repeats the first, is left out.
    """
    return [shapely.get_coordinates(ring)[:-1] for ring in shapely.get_rings(shapely.get_parts(shape))]


def make_valid_shapes(boundaries: Sequence[bytes | None]) -> NDArray[np.object_]:
    """Return boundaries (WKB) as valid Shapely geometries that consist of polygons; None for None."""
    with _LOADING_LOCK:  # in Python 3.11.7, threads that load a module at once may see a part of it
        require("boundaries")
        parse = shapely.from_wkb
    shapes: NDArray[np.object_] = parse(np.array([*boundaries], dtype=object))
    is_faulty = ~shapely.is_valid(shapes) & ~shapely.is_missing(shapes)
    shapes[is_faulty] = shapely.make_valid(shapes[is_faulty], method="structure", keep_collapsed=False)
    return shapes


def _make_boundaries_error(
    message: str, detail: str | None = None, *, code: str = "OD-GEOGRAPHY-BOUNDARIES"
) -> OdError:
    """Return the OdError for a faulty file of boundaries; ``detail`` is confidential."""
    return OdError(code, message, next_step="correct the file of boundaries", confidential_detail=detail)


Numbers = NDArray[np.int32]
"""Numbers of areas of one level, or other whole numbers; one-dimensional, unless another shape is stated."""


@dataclass(frozen=True, eq=False, repr=False)
class Geography(Shown):
    """A public partition of space in ``depth`` levels below the whole space.

    Use :meth:`from_frame` or :meth:`from_parents` to make a geography. Their errors name the faulty column. Codes
    appear only in the confidential detail of these errors, because a wrong path may lead to the records.

    Attributes:
        levels: names of levels 1 to ``depth``, coarse to fine.
        codes: for each level 0 to ``depth``, codes of the areas in tree order. Both constructors sort the children of a
            parent by code, so that the order does not depend on the rows of a file.
        parents: for each level 0 to ``depth``, number of each area's parent in the level above; empty for level 0.
        unknown: code of the zone to which records with unlisted zones are assigned, or None.
        coordinates: latitude and longitude of each zone in degrees, or NaN for both; shape (zones, 2). None if no zone
            has any. They are used only for maps, and the digest does not contain them.
        names: for each level 0 to ``depth``, names of the areas in tree order, empty for an area without one. None if
            no area has any. They are for people, and the digest does not contain them.
        aliases: other names by which people find the areas, in the same form; semicolons separate those of one area.
        boundaries: boundary of each zone as WKB, or None without one; None if no zone has any. They are used only for
            maps, and the digest does not contain them.
        level_boundaries: boundaries that were given of areas of coarser levels, by level name, in the same form. Those
            of other areas follow from the boundaries within them.
        version: the publisher's name of this list, such as ``2018``, or None. The digest does not contain it.
        grid: the grid whose cells the zones are, which places points of records by itself, or None. The digest does not
            contain it.
        first_child: for each level 0 to ``depth`` - 1, number of each area's first child, then the number of all
            children; shape (areas + 1,).
        first_zone: for each level, number of the first zone in each area, then that of all zones; shape (areas + 1,).

    Examples:
        >>> geography.levels, geography.zones
        (('region', 'zone'), ('N1', 'N2', 'S1'))
    """

    levels: tuple[str, ...]
    codes: tuple[tuple[str, ...], ...]
    parents: tuple[Numbers, ...]
    unknown: str | None = None
    coordinates: Degrees | None = None
    version: str | None = None
    names: AreaNames | None = None
    boundaries: Boundaries | None = None
    level_boundaries: Mapping[str, Boundaries] = field(default_factory=dict)
    grid: Grid | None = None
    aliases: AreaNames | None = None
    first_child: tuple[Numbers, ...] = field(init=False, repr=False)
    first_zone: tuple[Numbers, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_levels()
        if self.unknown is not None and self.unknown not in self.codes[-1]:
            message = f"the zone for unknown places {self.unknown!r} is not in the zone list"
            raise make_geography_error(
                "OD-GEOGRAPHY-UNKNOWN-ZONE", message, suggest_similar_name(self.unknown, self.zones) or None
            )
        if self.version is not None:
            check_codes([self.version], "version")
        self._set_coordinates()
        self._set_names()
        self._set_boundaries()
        self._set_tree()

    def _check_levels(self) -> None:
        """Raise OdError unless each level partitions the level above it, in tree order."""
        if len(self.codes) != len(self.levels) + 1 or len(self.parents) != len(self.codes):
            raise _make_shape_error("codes and parents must have one entry per level, including the whole space")
        if self.levels:
            check_level_names(self.levels)
        if self.codes[0] != (WHOLE_SPACE,) or len(self.parents[0]):
            raise _make_shape_error(f"level 0 is not the single area {WHOLE_SPACE!r}")
        for level, name in enumerate(self.levels, start=1):
            check_codes(self.codes[level], name)
            stated_parents = np.asarray(self.parents[level])
            has_parents = np.issubdtype(stated_parents.dtype, np.integer)
            if find_first_repeated(self.codes[level]) is not None or not has_parents:
                raise _make_shape_error(f"level {name!r} lists an area twice or has no parents")
            parents = stated_parents.astype(np.int32)
            every_parent = np.arange(self.size(level - 1))
            if len(parents) != self.size(level) or not np.array_equal(np.unique(parents), every_parent):
                raise _make_shape_error(f"level {name!r} does not partition the level above it")
            if np.any(np.diff(parents) < 0):
                raise _make_shape_error(f"areas of level {name!r} are not in tree order")

    def _set_coordinates(self) -> None:
        """Check the coordinates, and set them to None if no zone has any. Raises OdError if they are not valid."""
        if self.coordinates is not None:
            check_coordinates(self.coordinates, self.zones)
            coordinates = _freeze_array(np.asarray(self.coordinates, dtype=np.float64))
            object.__setattr__(self, "coordinates", None if np.isnan(coordinates).all() else coordinates)

    def _set_names(self) -> None:
        """Check names and aliases, and set them to None if no area has any. Raises OdError if they are not valid."""
        for field_name in ("names", "aliases"):
            texts: AreaNames | None = getattr(self, field_name)
            if texts is None:
                continue
            if [len(level) for level in texts] != [len(level) for level in self.codes]:
                message = f"the {field_name} do not have exactly one text for each area"
                raise make_geography_error("OD-GEOGRAPHY-NAMES", message)
            for level_name, texts_of_level in zip(self.level_names, texts, strict=True):
                check_codes([text for text in texts_of_level if text != ""], level_name, what="name")
            if not any(map(any, texts)):
                object.__setattr__(self, field_name, None)

    def _set_boundaries(self) -> None:
        """Check the shapes of all boundaries, and drop those of levels in which no area has a boundary.

        Raises OdError if they do not have one entry for each area, or a level has the name of a column of boundaries.
        """
        if self.boundaries is not None and len(self.boundaries) != self.size(self.depth):
            raise _make_shape_error("the boundaries do not have exactly one entry for each zone")
        for name, shapes in self.level_boundaries.items():
            if name not in self.levels[:-1] or len(shapes) != self.size(self.levels.index(name) + 1):
                raise _make_shape_error(
                    f"the boundaries of {name!r} do not have one entry for each area of a coarser level"
                )
            if name_boundary_column(self.levels, name) in self.levels:
                raise _make_shape_error(
                    f"a level is called {name_boundary_column(self.levels, name)!r}, as a column of boundaries"
                )
        if not any(self.boundaries or ()):
            object.__setattr__(self, "boundaries", None)
        stated = {name: shapes for name, shapes in self.level_boundaries.items() if any(shapes)}
        object.__setattr__(self, "level_boundaries", stated)

    def _set_tree(self) -> None:
        """Set the first child and the first zone of each area, which follow from the parents."""
        parents = tuple(_freeze_array(np.asarray(numbers, dtype=np.int32)) for numbers in self.parents)
        first_child: list[Numbers] = []
        for level in range(self.depth):
            areas_and_end = np.arange(self.size(level) + 1)
            first_child.append(np.searchsorted(parents[level + 1], areas_and_end).astype(np.int32))
        first_zone = [np.arange(self.size(self.depth) + 1, dtype=np.int32)]
        for level in range(self.depth - 1, -1, -1):
            first_zone.insert(0, first_zone[0][first_child[level]])
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "first_child", tuple(map(_freeze_array, first_child)))
        object.__setattr__(self, "first_zone", tuple(map(_freeze_array, first_zone)))

    @classmethod
    def from_frame(
        cls,
        zones: Table,
        levels: Sequence[str],
        *,
        unknown: str | None = None,
        coordinates: tuple[str, str] | None = None,
        version: str | None = None,
        names: Mapping[str, str] | None = None,
        boundaries: str | Mapping[str, str] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> Geography:
        """Make a geography from a table with one row per zone and one text column per level.

        Args:
            zones: the public zone list, of pandas, Arrow, Polars or DuckDB; other columns are ignored.
            levels: columns of the levels, coarse to fine; the last one contains the zone codes.
            unknown: code of a listed zone for records from unlisted places, or None.
            coordinates: columns of latitude and longitude in degrees; blank for a zone without coordinates.
            version: the publisher's name of this list.
            names: columns of the names of areas, by level; blank for an area without a name.
            boundaries: column of the boundaries of zones as WKB in hexadecimal digits; blank for a zone without one. If
                there are no coordinates, they are points within the boundaries. Or such columns by level; the boundary
                of an area of a coarser level is then stated for at least one of its zones.
            aliases: columns of other names of areas, by level; semicolons separate those of one area.

        Raises:
            OdError: a column is missing or occurs twice; there are no rows; a code is refused by
                :func:`od_core.geography.codes.check_codes`, or differs from another in case alone; a zone is listed
                twice; an area has two parents or two names; coordinates are not degrees; a name is refused by
                :func:`od_core.geography.codes.read_area_names`.
        """
        zones, levels, names, aliases = convert_to_data_frame(zones), tuple(levels), dict(names or {}), aliases or {}
        check_level_names(levels)
        boundary_columns = {levels[-1]: boundaries} if isinstance(boundaries, str) else dict(boundaries or {})
        expected = (*levels, *(coordinates or ()), *names.values(), *aliases.values(), *boundary_columns.values())
        check_columns(zones, "the zone list", expected)
        if len(zones) == 0:
            raise make_geography_error("OD-GEOGRAPHY-EMPTY", "the zone list has no rows")
        codes_of_rows = {level: read_text_codes(zones[level], level) for level in levels}
        check_hierarchy(codes_of_rows)
        codes, parents = build_area_tree([*codes_of_rows.values()])
        geography = cls(levels, codes, parents, unknown, version=version)
        if names:
            geography = replace(geography, names=read_area_names(codes, levels, zones, names))
        if aliases:
            geography = replace(geography, aliases=read_area_names(codes, levels, zones, aliases))
        level_boundaries = {
            level: _parse_area_boundaries(codes[levels.index(level) + 1], codes_of_rows[level], zones[column])
            for level, column in boundary_columns.items()
        }
        zone_boundaries = level_boundaries.pop(levels[-1], None)
        places = None if zone_boundaries is None else find_points_within(zone_boundaries)
        if coordinates is not None:
            rows = pd.Index(codes_of_rows[levels[-1]], dtype=object)
            row_of_zone = rows.get_indexer(pd.Index(geography.zones, dtype=object))
            places = np.column_stack([parse_degrees(zones[name], name) for name in coordinates])[row_of_zone]
        return replace(geography, coordinates=places, boundaries=zone_boundaries, level_boundaries=level_boundaries)

    @classmethod
    def whole(cls) -> Geography:
        """Return the geography without levels: the whole space alone, where every record lies.

        It is the other side of a table with one hierarchy; see :func:`od_core.flows.release.release_counts`.
        """
        no_parents = (np.empty(0, dtype=np.int32),)
        return cls(levels=(), codes=((WHOLE_SPACE,),), parents=no_parents, unknown=WHOLE_SPACE)

    @classmethod
    def from_parents(
        cls,
        areas: pd.DataFrame,
        *,
        levels: Sequence[str] | None = None,
        unknown: str | None = None,
        version: str | None = None,
        names: Mapping[str, str] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> Geography:
        """Make a geography from a table with one row per area, and text columns ``area`` and ``parent``.

        An area of the first level has no parent, or the parent ``all``, the whole space. Areas without children are the
        zones. Codes are unique over all levels. The names of the levels, coarse to fine, are ``level_1``, ``level_2``
        and so on if they are not given. The other arguments are as in :meth:`from_frame`.

        Raises OdError as :meth:`from_frame` does; or if a parent is not listed, an area lies within itself, the zones
        are not equally deep, or the number of level names is wrong.
        """
        names, aliases = names or {}, aliases or {}
        check_columns(areas, "the area list", ("area", "parent", *names.values(), *aliases.values()))
        zone_paths = list_zone_paths(areas)
        depth = len(zone_paths[0])
        levels = tuple(levels) if levels is not None else tuple(f"level_{k}" for k in range(1, depth + 1))
        check_level_names(levels)
        if len(levels) != depth:
            message = f"{len(levels)} level names do not match the depth of the area list"
            raise _make_shape_error(message, f"its depth is {depth}")
        check_named_levels(levels, (*names, *aliases))
        zones = pd.DataFrame(zone_paths, columns=list(levels))
        listed: list[dict[str, str]] = []
        for columns, name_column in ((names, name_column_of_names), (aliases, name_column_of_aliases)):
            for level, column in columns.items():
                name_of = dict(zip(areas["area"], areas[column], strict=True))
                zones[name_column(level)] = pd.Series([name_of[area] for area in zones[level]], dtype=object)
            listed.append({level: name_column(level) for level in columns})
        return cls.from_frame(zones, levels, unknown=unknown, version=version, names=listed[0], aliases=listed[1])

    def __repr__(self) -> str:
        areas = ", ".join(f"{self.size(level):,} {name}" for level, name in enumerate(self.levels, start=1))
        return f"Geography({areas})"

    def _list_notebook_facts(self) -> dict[str, str]:
        return {name: f"{number:,} areas" for name, number in self.area_counts.items() if name in self.levels}

    @property
    def area_counts(self) -> dict[str, int]:
        """Number of areas of each level, by level name; the whole space is first."""
        return dict(zip(self.level_names, map(len, self.codes), strict=True))

    @property
    def depth(self) -> int:
        """Number of levels below the whole space."""
        return len(self.levels)

    def size(self, level: int) -> int:
        """Return the number of areas of a level."""
        return len(self.codes[level])

    @property
    def zones(self) -> tuple[str, ...]:
        """Codes of the zones (areas of the last level), in tree order."""
        return self.codes[-1]

    @property
    def level_names(self) -> tuple[str, ...]:
        """Name ``all`` of level 0, then the names of levels 1 to ``depth``."""
        return (WHOLE_SPACE, *self.levels)

    def find_level_number(self, name: str) -> int:
        """Return the number of the level with this name. Raises OdError, with all level names, if there is none."""
        if name not in self.level_names:
            near = suggest_similar_name(name, self.level_names)
            all_names = ", ".join(self.level_names)
            message = f"there is no level {name!r}{near}; the levels are {all_names}"
            raise OdError("OD-LEVEL-UNKNOWN", message, next_step="name one of the geography's levels")
        return self.level_names.index(name)

    def ancestors(self, level: int) -> Numbers:
        """Return the number of the area of ``level`` that contains each zone; shape (zones,)."""
        return self._ancestors[level]

    @cached_property
    def _ancestors(self) -> tuple[Numbers, ...]:
        """Result of :meth:`ancestors` for each level."""
        ancestors: list[Numbers] = []
        for zones_below in self._zones_below:
            areas = np.arange(len(zones_below), dtype=np.int32)
            ancestors.append(_freeze_array(np.repeat(areas, zones_below)))
        return tuple(ancestors)

    def ancestors_at(self, level: int, above: int) -> Numbers:
        """Return the number of the area of the level ``above`` that contains each area of ``level``; shape (areas,)."""
        return self.ancestors(above)[self.first_zone[level][:-1]]

    def count_zones_below(self, level: int) -> Numbers:
        """Return the number of zones below each area of a level; shape (areas of level,)."""
        return self._zones_below[level]

    @cached_property
    def _zones_below(self) -> tuple[Numbers, ...]:
        """Number of zones below each area: for each level, an array with an entry for each area."""
        return tuple(_freeze_array(np.diff(first)) for first in self.first_zone)

    def count_earlier_zones(self, level: int) -> Numbers:
        """Return, for each area of a level, the number of earlier zones below the same parent; shape (areas,)."""
        first_zone = self.first_zone[level][:-1]
        first_zone_of_parent = self.first_zone[level - 1][self.parents[level]]
        return first_zone - first_zone_of_parent

    def find_zone_numbers(self, codes: pd.Series) -> Numbers:
        """Return the zone number of each code, or -1 for an unlisted code; shape (len(codes),)."""
        return find_positions(codes, self.zones)

    def mask_zones(self, level: int, codes: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask of the zones that lie in the given areas of a level; shape (zones,).

        Raises OdError if the level has no area with one of the codes, or ``codes`` is a text instead of a list.
        """
        if isinstance(codes, str):
            message = f"{codes[:60]!r} is a single text, not a list of areas"
            raise OdError("OD-AREA-LIST", message, next_step="give a list of codes")
        number_of_code = {code: number for number, code in enumerate(self.codes[level])}
        numbers = [number_of_code.get(code, -1) if isinstance(code, str) else -1 for code in codes]
        if -1 in numbers:
            name = self.level_names[level]
            missing = str(list(codes)[numbers.index(-1)])
            message = f"level {name!r} has no area {missing[:60]!r}{suggest_similar_name(missing, self.codes[level])}"
            step = "name areas of that level, which the table of areas lists"
            raise OdError("OD-AREA-UNKNOWN", message, next_step=step)
        return np.isin(self.ancestors(level), numbers)

    def codes_of(self, level: int, areas: Numbers) -> pd.Series:
        """Return the codes of the areas of a level with these numbers, as text; shape (areas,)."""
        return pd.Series(self.code_arrays[level].take(pa.array(areas)), dtype=TEXT)

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """A distinct text for each area of each level (:func:`make_area_labels`); without names, its code."""
        if self.names is None:
            return self.codes
        return tuple(make_area_labels(codes, names) for codes, names in zip(self.codes, self.names, strict=True))

    @cached_property
    def code_arrays(self) -> tuple[pa.Array, ...]:
        """Codes of each level as one Arrow array of text; shape (areas of the level,) each."""
        return tuple(pa.array(codes, pa.large_string()) for codes in self.codes)

    def to_frame(self) -> pd.DataFrame:
        """Return the zone list from which :meth:`from_frame` makes this geography, one row per zone in tree order.

        It has a column for each level, and columns of names, aliases, boundaries and coordinates, if there are any.
        """
        zones = self._list_paths()
        for stated, name_column in ((self.names, name_column_of_names), (self.aliases, name_column_of_aliases)):
            for level, (name, texts_of_level) in enumerate(zip(self.levels, (stated or ())[1:], strict=False), start=1):
                zones[name_column(name)] = np.array(texts_of_level, object)[self.ancestors(level)]
        for name, boundaries in self.given_boundaries.items():
            first_zone = self.first_zone[self.find_level_number(name)][:-1]  # the row with the boundary of each area
            texts = np.full(len(zones), "", dtype=object)
            texts[first_zone] = [(boundary or b"").hex() for boundary in boundaries]
            zones[name_boundary_column(self.levels, name)] = texts
        if self.coordinates is not None:
            zones[list(COORDINATES)] = self.coordinates
        return zones

    @property
    def given_boundaries(self) -> dict[str, Boundaries]:
        """Boundaries that were given, of zones and of coarser levels, by level name; empty if there are none."""
        of_zones = {} if self.boundaries is None else {self.levels[-1]: self.boundaries}
        return {**self.level_boundaries, **of_zones}

    def _list_paths(self) -> pd.DataFrame:
        """Return a row for each zone: the codes of the areas that contain it, from the top level to the zone itself."""
        return pd.DataFrame(
            {name: self.codes_of(level, self.ancestors(level)) for level, name in enumerate(self.levels, start=1)}
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the level names, the codes of all areas that contain each zone, and the unknown zone."""
        columns = [column.to_list() for _level, column in self._list_paths().items()]
        paths = list(zip(*columns, strict=True))  # of each zone
        content = [list(self.levels), paths, self.unknown]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()


def with_unknown_area(geography: Geography, code: str) -> Geography:
    """Return a geography with a further area at every level, all with the same code, for records from unlisted places.

    Raises OdError if the geography has an area with that code or a zone for unlisted places, or the code is not valid.
    """
    step = "choose another code, or name a listed zone"
    if geography.unknown is not None:
        message = f"the geography already has a zone for unknown places, {geography.unknown!r}"
        raise make_geography_error("OD-GEOGRAPHY-UNKNOWN-ZONE", message, next_step=step)
    for level, codes in zip(geography.level_names, geography.codes, strict=True):
        if code in codes:
            message = f"level {level!r} already has an area {code!r}, so it cannot be added for unknown places"
            raise make_geography_error("OD-GEOGRAPHY-UNKNOWN-ZONE", message, next_step=step)
    elsewhere = pd.DataFrame([dict.fromkeys(geography.levels, code)])
    return Geography.from_frame(
        pd.concat([geography.to_frame(), elsewhere], ignore_index=True),
        geography.levels,
        unknown=code,
        coordinates=None if geography.coordinates is None else COORDINATES,
        version=geography.version,
        names=None if geography.names is None else {level: name_column_of_names(level) for level in geography.levels},
        aliases={level: name_column_of_aliases(level) for level in geography.levels} if geography.aliases else None,
        boundaries={level: name_boundary_column(geography.levels, level) for level in geography.given_boundaries},
    )


def find_finest_level(geography: Geography, max_areas: int) -> int:
    """Return the number of the finest level with at most ``max_areas`` areas; 1 if every level has more.

    A geography without levels has only level 0.
    """
    fitting = [level for level in range(1, geography.depth + 1) if geography.size(level) <= max_areas]
    return max(fitting, default=min(1, geography.depth))


def _make_shape_error(message: str, detail: str | None = None) -> OdError:
    """Return the OdError for levels, codes, parents or boundaries that do not fit together."""
    return make_geography_error("OD-GEOGRAPHY-SHAPE", message, detail)


def _freeze_array(array: Array) -> Array:
    """Return a copy of an array that cannot be written to."""
    frozen = array.copy()
    frozen.setflags(write=False)
    return frozen
