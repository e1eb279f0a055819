"""Replace the coordinates of records by the codes of the zones in which they lie, batch by batch.

A query of records gives the coordinates of a place as two columns of degrees, or one column of points. Here, they
become one column with codes. DuckDB and Spark give Arrow batches, so both place points alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import lazy_loader
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.geography import Geography, find_points_within
from od_core.geography.point_location import OUTSIDE, make_locator
from od_core.records.formats import PointColumns, RecordColumns

shapely: Any = lazy_loader.load("shapely")  # slow to import, and of an extra

LONGITUDE, LATITUDE, POINT = "longitude", "latitude", "point"
"""Endings of the names of columns with the coordinates of a place, such as ``origin_longitude``."""


_MIN_JUDGED_RECORDS = 100
"""Smallest number of records whose points are judged together."""


class PointPlacer:
    """The zones of the two sides, in which the points of records are found.

    Args:
        columns: columns of the records, of which some are of points.
        nowhere: codes that name no place. Only "" matters here, for a point that is missing.
        geography, destinations: zones of origins and of destinations, with boundaries or a grid.

    Attributes:
        locators: boundaries of the zones, by side; one for both sides if their zones are one list.

    Raises:
        OdError: the boundaries are no partition; see :class:`od_core.geography.point_location.PointLocator`.
    """

    def __init__(
        self, columns: RecordColumns, nowhere: tuple[str, ...], geography: Geography, destinations: Geography
    ) -> None:
        sides = {"origin": geography, "destination": destinations}
        self._sides = {side: sides[side] for side, column in columns.codes.items() if isinstance(column, PointColumns)}
        locators = {id(side): make_locator(side) for side in self._sides.values()}
        self.locators = {name: locators[id(side)] for name, side in self._sides.items()}
        self._replaces_missing = "" in nowhere

    @property
    def sides(self) -> tuple[str, ...]:
        """Names of the columns of codes that come from coordinates."""
        return tuple(self._sides)

    def rename(self, name: str) -> str:
        """Return ``origin`` for a column ``origin_longitude`` if origins are points; otherwise the name itself."""
        side, _, ending = name.partition("_")
        return side if ending and side in self._sides else name

    def place_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch with one column of zone codes in place of the coordinates of each side.

        Other columns and the order of the columns stay. A code is null where the point is missing or cannot be read,
        and ``OUTSIDE`` where it is in no zone and there is no ``unknown`` zone.
        """
        return map(self.place, batches)

    def place_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the batches that :meth:`place_all` yields for batches of a schema."""
        return self.place(pa.RecordBatch.from_pylist([], schema)).schema

    def place(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with codes in place of coordinates; see :meth:`place_all`."""
        columns = {
            self.rename(name): column for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }  # the codes of a side have the place of its first column
        return pa.RecordBatch.from_pydict(columns | {side: self._find_codes(batch, side) for side in self.sides})

    def refuse_other_degrees(self, batch: pa.RecordBatch) -> None:
        """Raise OdError if no point of a side can be read, or if most lie in no zone for a recognizable reason.

        The reasons are that they are no degrees, that they are 0, or that they would lie in zones if longitude and
        latitude were exchanged. Nothing is refused for fewer than ``_MIN_JUDGED_RECORDS`` records, since single faults
        may be most of a small file.
        """
        if len(batch) < _MIN_JUDGED_RECORDS:
            return
        for side, locator in self.locators.items():
            longitude, latitude = _read_degrees(batch, side)
            if not self._replaces_missing and (np.isnan(longitude) | np.isnan(latitude)).all():
                step = "name columns with decimal degrees, or one with points as WKT or WKB"
                raise OdError(
                    "OD-TRIPS-COORDINATE", f"no record has a point of {side} that can be read", next_step=step
                )
            is_outside = locator.find_codes(longitude, latitude) == OUTSIDE
            if 2 * is_outside.sum() <= len(batch):
                continue
            are_zero = is_outside & (longitude == 0) & (latitude == 0)
            are_no_degrees = (np.abs(longitude) > 180) | (np.abs(latitude) > 90)
            lie_exchanged = locator.find_codes(latitude, longitude)[is_outside] != OUTSIDE
            if 2 * lie_exchanged.sum() > len(batch):
                why, step = "latitudes seem to stand in place of longitudes", "name the column of longitude first"
            elif 2 * are_no_degrees.sum() > len(batch):
                why, step = "the coordinates are not degrees", "convert them to WGS 84 (EPSG:4326)"
            elif 2 * are_zero.sum() > len(batch):
                why, step = (
                    "the coordinates are 0, as of a device without a position",
                    "leave missing coordinates blank",
                )
            else:
                continue
            raise OdError("OD-TRIPS-COORDINATE", f"most points of {side} lie in no zone, and {why}", next_step=step)

    def _find_codes(self, batch: pa.RecordBatch, side: str) -> pa.Array:
        """Return the zone code of each record on a side; see :meth:`place_all`.

        A missing point becomes the ``unknown`` zone, if there is one and the format's ``nowhere`` has "".
        """
        codes = pa.array(self.locators[side].find_codes(*_read_degrees(batch, side)), pa.string())
        unknown = self._sides[side].unknown
        return codes.fill_null(unknown) if self._replaces_missing and unknown is not None else codes


def _read_degrees(batch: pa.RecordBatch, side: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return longitudes and latitudes of the points of a side, shape (records,) each; NaN where a point is missing."""
    if f"{side}_{POINT}" in batch.schema.names:
        return parse_points(batch[f"{side}_{POINT}"])
    longitude, latitude = (batch[f"{side}_{ending}"].cast(pa.float64()) for ending in (LONGITUDE, LATITUDE))
    return longitude.to_numpy(zero_copy_only=False), latitude.to_numpy(zero_copy_only=False)


def make_points(columns: PointColumns, codes: NDArray[np.object_], geography: Geography) -> dict[str, object]:
    """Return the columns of a place, by name, with a point within the zone of each code.

    ``codes`` are listed zone codes. For a zone without a boundary, the point is in the first zone that has one.
    """
    degrees = find_points_within(geography.boundaries or (None,) * len(geography.zones))  # latitude and longitude
    is_missing = np.isnan(degrees[:, 0])
    degrees[is_missing] = degrees[np.argmin(is_missing)]
    latitude, longitude = degrees[geography.find_zone_numbers(pd.Series(codes, dtype=str))].T
    if len(columns.names) == 1:
        return {columns.names[0]: shapely.to_wkb(shapely.points(longitude, latitude))}
    return dict(zip(columns.names, (longitude, latitude), strict=True))


def parse_points(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return longitudes and latitudes of points, given as well-known text (WKT) or binary (WKB).

    Both have the shape (rows,), and are NaN for a value that is no point.
    """
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    parse = shapely.from_wkt if is_text else shapely.from_wkb
    points = parse(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
    points[shapely.is_empty(points)] = None
    return shapely.get_x(points), shapely.get_y(points)
