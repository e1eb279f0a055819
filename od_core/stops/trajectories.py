"""Validate trips with stops, and store each as a point of a grid. No error message contains a value of a trip.

The places of records are on a public list, with their cells on the map.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from od_core.errors import OdError
from od_core.files.data_frame import (
    Table,
    TableOrFile,
    convert_to_data_frame,
    convert_to_exact_numbers,
    find_unexpected_type,
    holds_numbers,
)
from od_core.geography.codes import check_case, format_pandas_advice, read_text_codes
from od_core.notebook import Confidential
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records.callers_table import make_double_sql, read_table
from od_core.records.counting import query_loaded_records
from od_core.records.load import make_count_sql, refuse_unused_columns
from od_core.stops.geometry import Counts, Grid, MapGrid, Points, compute_cell_numbers, compute_cells

MAX_TRIPS = (1 << 31) - 1
"""Largest number of trips. Trips per cell are counted in 32 bits, and products of two such counts in 64 bits."""


@dataclass(frozen=True, eq=False, repr=False)
class Trajectories(Confidential):
    """The confidential trips, each stored as one cell of a public grid.

    Attributes:
        points: cell of each trip in each dimension; shape (trips, dimensions).
        grid: the public grid.

    Raises:
        OdError: the points do not have one 32-bit integer per dimension, a cell is not on the grid, or there are more
            than 2^31 - 1 trips.

    Examples:
        >>> Trajectories.from_cells([[1, 1], [6, 7]], Grid((8, 8))).total
        2
    """

    points: Points
    grid: Grid

    def __post_init__(self) -> None:
        if self.points.dtype != np.int32 or self.points.ndim != 2 or self.points.shape[1] != self.grid.dimensions:
            raise _make_dimensions_error(self.grid)
        if len(self.points) > MAX_TRIPS:
            raise _make_trips_error("OD-STOPS-TRIPS", f"there are more than {MAX_TRIPS} trips")
        _refuse_off_grid(self.points, self.grid)

    @property
    def total(self) -> int:
        """Number of trips, which is confidential."""
        return len(self.points)

    def iterate_column_pieces(self) -> Iterator[Sequence[Counts]]:
        """Yield the sorted cell numbers of all trips, for the fingerprint, which must not depend on the order of trips.

        There is one piece: a list of the one or more arrays that a cell number takes, shape (trips,) each; see
        :func:`od_core.stops.geometry.compute_cell_numbers`.
        """
        words = compute_cell_numbers(self.points, self.grid)
        if len(words) == 1:
            yield [np.sort(words[0])]
        else:
            order = np.lexsort(words[::-1])
            yield [word[order] for word in words]

    @classmethod
    def from_cells(
        cls,
        points: ArrayLike | TableOrFile,
        grid: Grid,
        *,
        columns: Sequence[str] | None = None,
        one_row_a_trip: bool = False,
    ) -> Trajectories:
        """Create the trips from cell numbers.

        Args:
            points: one row per trip and one column per dimension, as an array, as a table of pandas, Arrow, Polars or
                DuckDB, or as the path of a Parquet or CSV file.
            grid: the public grid.
            columns: names of the columns of a table, in the order of the dimensions. Needed for a file; by default, all
                columns of a table.
            one_row_a_trip: True to state that a row is one trip. If False, a table with further columns is refused,
                because one of them might be the number of trips of a row.

        Raises:
            OdError: the number of columns is wrong, a value is missing or not an integer, or a cell is not on the grid;
                or nothing states what a row is.
        """
        values = _read_columns(points, columns, one_row_a_trip=one_row_a_trip)
        table = _make_trip_array(values, grid)
        if isinstance(values, pd.DataFrame) and table.dtype == np.float64 and np.isfinite(table).all():
            rounded = np.rint(table)
            table = rounded.astype(np.int64) if (rounded == table).all() else table  # numbers of a CSV file are floats
        if not np.issubdtype(table.dtype, np.integer):
            raise _make_trips_error("OD-STOPS-CELL", "a cell is missing or is not a whole number")
        _refuse_off_grid(table, grid)
        return cls(np.ascontiguousarray(table, dtype=np.int32), grid)

    @classmethod
    def from_coordinates(
        cls,
        coordinates: ArrayLike | TableOrFile,
        grid: Grid | MapGrid,
        bounds: Sequence[tuple[float, float]] | None = None,
        *,
        columns: Sequence[str] | None = None,
        one_row_a_trip: bool = False,
    ) -> Trajectories:
        """Create the trips from coordinates within public bounds. The cells of a dimension have equal width.

        Args:
            coordinates, columns, one_row_a_trip: as for :meth:`from_cells`.
            grid: the public grid, or the map, on which each point of a trip has a longitude and then a latitude.
            bounds: public least and greatest coordinate of each dimension. The greatest one lies in the last cell. None
                for a map, which has edges.

        Raises:
            OdError: a coordinate or the bounds are invalid, or as for :meth:`from_cells`.
        """
        advice = ""
        if isinstance(grid, MapGrid) and bounds is None:
            bounds = [(grid.west, grid.east), (grid.south, grid.north)] * len(grid.places)
            grid, advice = grid.grid, "; on a map, the longitude of a point comes before the latitude"
        elif isinstance(grid, MapGrid) or bounds is None:
            raise _make_trips_error("OD-STOPS-BOUNDS", "a grid needs bounds, and a map has edges in their place")
        limits = np.array(bounds, dtype=np.float64)
        if limits.shape != (grid.dimensions, 2) or not (np.isfinite(limits).all() and (np.diff(limits) > 0).all()):
            raise _make_trips_error("OD-STOPS-BOUNDS", "the bounds must be one ascending pair for each dimension")
        table = _make_trip_array(
            _read_columns(coordinates, columns, as_number=make_double_sql, one_row_a_trip=one_row_a_trip), grid
        )
        if not (np.issubdtype(table.dtype, np.floating) or np.issubdtype(table.dtype, np.integer)):
            raise _make_trips_error("OD-STOPS-COORDINATE", "a coordinate is not a number")
        values = table.astype(np.float64)
        if not np.isfinite(values).all():
            raise _make_trips_error("OD-STOPS-COORDINATE", "a coordinate is missing or infinite")
        if (values < limits[:, 0]).any() or (values > limits[:, 1]).any():
            raise _make_trips_error("OD-STOPS-OFF-GRID", "a coordinate lies beyond the bounds", advice)
        return cls(compute_cells(values, limits[:, 0], limits[:, 1], grid.sizes), grid)

    @classmethod
    def from_zones(
        cls,
        trips: TableOrFile,
        zones: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        one_row_a_trip: bool = False,
    ) -> Trajectories:
        """Create the trips from zone codes, with one row per trip and one column per place.

        The columns are the origin, the stops in order and the destination. The grid has one dimension per column. In
        every dimension, the cell number of a zone is its position in the list. Range queries are about consecutive cell
        numbers, so list nearby zones at nearby positions.

        Args:
            trips, columns, one_row_a_trip: as for :meth:`from_cells`, but with zone codes, as text.
            zones: public list of the codes of all zones, each once.

        Raises:
            OdError: the list of zones is invalid, a code is missing or not listed, or as for :meth:`from_cells`.
        """
        number_of_zone = {zone: number for number, zone in enumerate(zones) if isinstance(zone, str)}
        if not number_of_zone or len(number_of_zone) < len(zones):
            message = "the list of zones is empty, lists a zone twice, or has a zone that is not text"
            raise _make_trips_error("OD-STOPS-ZONES", message)
        places = _read_columns(trips, columns, as_number=None, one_row_a_trip=one_row_a_trip)
        if not isinstance(places, pd.DataFrame) or not len(places.columns):
            raise _make_trips_error("OD-STOPS-DIMENSIONS", "trips need one column per place")
        for name, column in places.items():
            kind = find_unexpected_type(column)
            if kind is not None:
                raise _make_trips_error("OD-STOPS-ZONE", f"column {name!r} holds {kind}; zone codes must be text")
        numbers = places.astype(object).map(lambda code: number_of_zone.get(code, -1) if isinstance(code, str) else -1)
        cells = numbers.to_numpy(dtype=np.int64)
        if (cells < 0).any():
            advice = format_pandas_advice(list(number_of_zone))
            raise _make_trips_error("OD-STOPS-ZONE", "a place is missing or is not in the list of zones", advice)
        return cls(cells.astype(np.int32), Grid((len(number_of_zone),) * len(places.columns)))


def _read_columns(
    values: ArrayLike | TableOrFile,
    columns: Sequence[str] | None,
    *,
    as_number: Callable[[str], str] | None = make_count_sql,
    one_row_a_trip: bool,
) -> ArrayLike | pd.DataFrame:
    """Return the named columns of a table or a file as a data frame; an array is returned unchanged.

    ``as_number`` makes the SQL by which the text of a file becomes numbers; None for codes. See :func:`read_table`.
    Raises OdError if the columns cannot be read, or if a row might be several trips.
    """
    if isinstance(columns, str):
        raise _make_trips_error("OD-STOPS-DIMENSIONS", f"columns is the single text {columns!r}, not a list of names")
    is_file = isinstance(values, (str, Path))
    if not (is_file or isinstance(values, pd.DataFrame) or hasattr(values, "__arrow_c_stream__")):
        if columns is not None:
            raise _make_trips_error("OD-STOPS-DIMENSIONS", "columns names columns, but the trips are not a table")
        return cast("ArrayLike", values)
    if columns is None:
        if is_file:
            raise _make_trips_error(
                "OD-STOPS-DIMENSIONS", "a file of trips needs columns=[...], one name for each dimension"
            )
        return convert_to_data_frame(cast("Table", values))
    if len(set(columns)) < len(columns):
        raise _make_trips_error("OD-STOPS-DIMENSIONS", "columns names a column twice")
    read = partial(read_table, cast("TableOrFile", values), columns, named="the trips", code="OD-STOPS-DIMENSIONS")
    table = read() if as_number is None else read(numbers=columns, as_number=as_number)
    if not one_row_a_trip:
        unused = [name for name in table.columns if name not in columns]
        step = "give one_row_a_trip=True if each row is one trip; else repeat the rows"
        refuse_unused_columns(unused, table.named, step)
    return table.frame[list(columns)]


def _make_trip_array(values: ArrayLike | pd.DataFrame, grid: Grid) -> NDArray[np.generic]:
    """Return the values as an array of shape (trips, dimensions). Raises OdError if they are missing or misshapen."""
    try:
        table = np.asarray(_convert_without_rounding(values) if isinstance(values, pd.DataFrame) else values)
    except ValueError:  # rows of unequal length
        raise _make_dimensions_error(grid) from None
    no_trips = np.empty((0, grid.dimensions), dtype=np.int64)
    if table.size == 0 and table.ndim < 2:
        return no_trips
    if table.ndim != 2 or table.shape[1] != grid.dimensions:
        raise _make_dimensions_error(grid)
    return table if len(table) else no_trips


def _convert_without_rounding(frame: pd.DataFrame) -> pd.DataFrame | NDArray[np.generic]:
    """Return the values of a data frame as one array of exact numbers; shape (rows, columns).

    If a column has values that are no numbers, the data frame is returned unchanged. Raises OdError if a value is
    missing.
    """
    if frame.isna().any(axis=None):
        raise _make_trips_error("OD-STOPS-MISSING", "a value is missing")
    columns = [column for _, column in frame.items()]
    if not columns or not all(map(holds_numbers, columns)):
        return frame
    numbers = [convert_to_exact_numbers(column) for column in columns]
    is_whole = all(np.issubdtype(number.dtype, np.integer) for number in numbers)
    return np.column_stack([number.astype(np.int64 if is_whole else np.float64) for number in numbers])


def _refuse_off_grid(points: NDArray[np.generic], grid: Grid) -> None:
    """Raise OdError if a cell of a trip is not on the grid."""
    if not len(points):
        return
    for column, size in zip(points.T, grid.sizes, strict=True):
        if column.min() < 0 or column.max() >= size:
            raise _make_trips_error("OD-STOPS-OFF-GRID", "a trip has a cell that is not on the grid")


def _make_dimensions_error(grid: Grid) -> OdError:
    """Return the OdError for trips that do not have the dimensions of a grid."""
    return _make_trips_error(
        "OD-STOPS-DIMENSIONS", f"trips must be rows of {grid.dimensions} whole numbers, one per dimension"
    )


def _make_trips_error(code: str, message: str, advice: str = "") -> OdError:
    """Return the OdError for trips that are not valid; ``advice`` ends the next step."""
    return OdError(code, message, next_step=f"correct the trips or the grid{advice}")


MAX_LISTED_CELLS = 1 << 20
"""Largest number of cells along a side of a map for records with coordinates, which
:meth:`PlaceList.from_map_cells` lists one by one."""


class PlaceColumns(NamedTuple):
    """The names of the columns of a list of places: the code, as text, and the coordinates, in degrees."""

    code: str = "zone"
    longitude: str = "longitude"
    latitude: str = "latitude"


@dataclass(frozen=True, eq=False)
class PlaceList:
    """The public list of places, such as zones or stations, and the map that contains them.

    Attributes:
        table: code, longitude and latitude of each place; one row per place.
        columns: names of the columns of ``table``.
        map: the map that contains all places.
        cells: cell of each place in longitude and latitude, in the order of the list; shape (places, 2). In a list of
            cells (:meth:`from_map_cells`), the number itself, which serves for both; shape (side, 1).
    """

    table: pd.DataFrame
    columns: PlaceColumns
    map: MapGrid
    cells: Points

    @classmethod
    def from_frame(
        cls,
        places: pd.DataFrame,
        columns: PlaceColumns,
        *,
        side: int,
        stages: Sequence[str],
        edges: tuple[float, float, float, float] | None = None,
    ) -> PlaceList:
        """Create the list from a table with one row per place.

        ``side``, ``edges`` and ``stages`` are those of :class:`MapGrid`, where stages are the names of the places of a
        trip, such as ``origin``, ``stop``, ``destination``. By default, the map is the smallest one that contains all
        places. Raises OdError if a column is missing, a code is listed twice or is not text, a place has no coordinates
        or is not on the map, or the map is invalid.
        """
        for name in columns:
            if name not in places.columns:
                raise _make_list_error(f"the list of places has no column {name!r}")
        codes = pd.Series(read_text_codes(places[columns.code], columns.code), dtype=object)
        if codes.duplicated().any():
            raise _make_list_error("a place is listed twice", f"place {codes[codes.duplicated()].iloc[0]!r}")
        check_case(list(codes), columns.code)
        longitude, latitude = places[columns.longitude], places[columns.latitude]
        if edges is None:
            on_map = MapGrid.around(longitude, latitude, side, stages)
        else:
            on_map = MapGrid(*edges, side, tuple(stages))
        table = places[list(columns)].reset_index(drop=True)
        return cls(table, columns, on_map, on_map.find_cells(longitude, latitude))

    @classmethod
    def from_map_cells(cls, on_map: MapGrid, columns: PlaceColumns) -> PlaceList:
        """Create the list of the numbers of the cells along a side of a map, for records with coordinates.

        The coordinates of a record are converted to these numbers. For each number, the list has the western and the
        southern edge of the cells with this number. Raises OdError if there are more than ``MAX_LISTED_CELLS``.
        """
        if on_map.side > MAX_LISTED_CELLS:
            raise _make_list_error(f"a map of points has at most {MAX_LISTED_CELLS:,} cells along a side")
        number = np.arange(on_map.side, dtype=np.int32)
        longitude = on_map.west + number * ((on_map.east - on_map.west) / on_map.side)
        latitude = on_map.south + number * ((on_map.north - on_map.south) / on_map.side)
        codes = number.astype(str).astype(object)
        table = {columns.code: codes, columns.longitude: longitude, columns.latitude: latitude}
        return cls(pd.DataFrame(table), columns, on_map, number[:, np.newaxis])

    @property
    def codes(self) -> list[str]:
        """Codes of the places, in the order of the list."""
        return list(self.table[self.columns.code])

    @property
    def digest(self) -> str:
        """SHA-256 of the table of places and the map, as hexadecimal text."""
        text = self.table.to_csv(index=False, lineterminator="\n") + repr(self.map)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def area_counts(self) -> dict[str, int]:
        """A dictionary with the number of places under the key ``places``."""
        return {"places": len(self.table)}

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the table with the code, longitude and latitude of each place."""
        return self.table.copy()


def _make_list_error(message: str, detail: str | None = None) -> OdError:
    """Return the OdError for a wrong list of places.

    ``detail`` quotes a value of the list. It is confidential, because with a wrong path, the file may be the records.
    """
    step = "correct the list of places or the configuration"
    return OdError("OD-STOPS-PLACES", message, next_step=step, confidential_detail=detail)


def place_records(records: Path, places: PlaceList, fault_threshold: Fraction = FAULT_THRESHOLD) -> Trajectories:
    """Return the records of a Parquet file as trips between the places of a list. The result is confidential.

    A record is faulty if one of its places is not listed, or if its date is outside the period of the file. Faulty
    records are dropped. Whether a record is faulty does not depend on other records.

    :func:`od_core.records.load.load_records` wrote the file. Its records have an origin, a destination, and one stop
    for each further place of a trip; if there is one place, it is the origin. With a list of cells, they have the
    numbers of the longitude and the latitude of each place in turn. Raises OdError if the share of faulty records
    exceeds ``fault_threshold``, or the records cannot be read.
    """
    codes_per_trip = places.map.grid.dimensions // places.cells.shape[1]
    stops = [f"stop_{number}" for number in range(1, codes_per_trip - 1)]
    stages = ["origin", *stops, "destination"][:codes_per_trip]  # one place has no destination
    numbers = ", ".join(f"place_{position}.number AS {stage}" for position, stage in enumerate(stages))
    joins = " ".join(
        f"LEFT JOIN places AS place_{position} ON records.{stage} = place_{position}.code"
        for position, stage in enumerate(stages)
    )
    sound = " AND ".join(["in_period IS TRUE", *(f"{stage} IS NOT NULL" for stage in stages)])
    listed = pa.table({"code": pa.array(places.codes, pa.string()), "number": np.arange(len(places.cells))})
    placed = f"SELECT in_period, {numbers} FROM records {joins}"  # noqa: S608  # checked names
    query = f"SELECT {', '.join(stages)} FROM placed WHERE {sound}"  # noqa: S608  # our own SQL
    table = query_loaded_records(records, {"places": listed}, placed, f"NOT ({sound})", query, fault_threshold)
    cells = [places.cells[table[stage].to_numpy()] for stage in stages]
    return Trajectories(np.ascontiguousarray(np.concatenate(cells, axis=1)), places.map.grid)
