"""Replace the coordinates of records by the codes of the zones in which they lie, batch by batch.

A query of records gives the coordinates of a place as two columns of degrees, or one column of points. Here, they
become one column with codes. DuckDB and Spark give Arrow batches, so both place points alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import lazy_loader
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from od_core.geography.geography import Geography
from od_core.geography.point_location import PointLocator
from od_core.records.formats import PointColumns, RecordColumns

shapely: Any = lazy_loader.load("shapely")  # slow to import, and of an extra

LONGITUDE, LATITUDE, POINT = "longitude", "latitude", "point"
"""Endings of the names of columns with the coordinates of a place, such as ``origin_longitude``."""


class PointPlacer:
    """The zones of the two sides, in which the points of records are found.

    Args:
        columns: columns of the records, of which some are of points.
        nowhere: codes that name no place. Only "" matters here, for a point that is missing.
        geography, destinations: zones of origins and of destinations, with boundaries.

    Raises:
        OdError: the boundaries are no partition; see :class:`od_core.geography.point_location.PointLocator`.
    """

    def __init__(
        self, columns: RecordColumns, nowhere: tuple[str, ...], geography: Geography, destinations: Geography
    ) -> None:
        sides = {"origin": geography, "destination": destinations}
        self._sides = {side: sides[side] for side, column in columns.codes.items() if isinstance(column, PointColumns)}
        locators = {id(side): PointLocator.from_geography(side) for side in self._sides.values()}
        self._locators = {name: locators[id(side)] for name, side in self._sides.items()}
        self._replaces_missing = "" in nowhere

    @property
    def sides(self) -> tuple[str, ...]:
        """Names of the columns of codes that come from coordinates."""
        return tuple(self._sides)

    def rename(self, name: str) -> str:
        """Return the name of the column that a column of a query becomes: of coordinates, that of their side."""
        side, _, ending = name.partition("_")
        return side if ending and side in self._sides else name

    def place_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch with codes in place of coordinates. Other columns and the order of columns stay."""
        return map(self._place, batches)

    def place_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the batches that :meth:`place_all` yields for batches of a schema."""
        return self._place(pa.RecordBatch.from_pylist([], schema)).schema

    def _place(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {
            self.rename(name): column for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }  # the codes of a side have the place of its first column
        return pa.RecordBatch.from_pydict(columns | {side: self._find_codes(batch, side) for side in self.sides})

    def _find_codes(self, batch: pa.RecordBatch, side: str) -> pa.Array:
        """Return the codes of a side's zones, null where the point is missing and no ``unknown`` zone stands for it."""
        if f"{side}_{POINT}" in batch.schema.names:
            longitude, latitude = parse_points(batch[f"{side}_{POINT}"])
        else:
            degrees = (batch[f"{side}_{ending}"].cast(pa.float64()) for ending in (LONGITUDE, LATITUDE))
            longitude, latitude = (column.to_numpy(zero_copy_only=False) for column in degrees)
        codes = pa.array(self._locators[side].find_codes(longitude, latitude), pa.string())
        unknown = self._sides[side].unknown
        return codes.fill_null(unknown) if self._replaces_missing and unknown is not None else codes


def parse_points(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return longitude and latitude of points in well-known text (text) or binary; NaN for what is no point."""
    values = column.to_numpy(zero_copy_only=False)
    read = (
        shapely.from_wkt
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else shapely.from_wkb
    )
    points = read(values, on_invalid="ignore")
    points[shapely.is_empty(points)] = None
    return shapely.get_x(points), shapely.get_y(points)
