"""Store the public list of places with their cells on the map, and convert records to trips on this map."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.errors import OdError, raise_alone
from od_core.files.duckdb_session import parquet_rows, scratch_database
from od_core.geography.codes import check_case, text_codes
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records.faults import not_counted, reading_errors, refuse_too_many_faults
from od_core.stops.geometry import MapGrid, Points
from od_core.stops.trajectories import Trajectories


@dataclass(frozen=True)
class PlaceColumns:
    """The names of the columns of a list of places.

    Attributes:
        code: column with the code of each place, as text.
        longitude, latitude: columns with the coordinates of each place, in degrees.
    """

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
        cells: cell of each place in longitude and latitude, in the order of the list; shape (places, 2).
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

        Args:
            places: the public table.
            columns: names of the columns of ``places``.
            side: number of cells on each side of the map.
            stages: names of the places of a trip in order, such as ``origin``, ``stop``, ``destination``.
            edges: west, east, south and north edge of the map, in degrees. By default, the map is the smallest one that
                contains all places.

        Raises:
            OdError: a column is missing, a code is listed twice or is not text, a place has no coordinates or is not on
                the map, or the map is invalid (see :class:`MapGrid`).
        """
        for name in (columns.code, columns.longitude, columns.latitude):
            if name not in places.columns:
                raise _fault("OD-STOPS-PLACES", f"the list of places has no column {name!r}")
        codes = pd.Series(text_codes(places[columns.code], columns.code), dtype=object)
        if codes.duplicated().any():
            raise _fault("OD-STOPS-PLACES", "a place is listed twice", f"place {codes[codes.duplicated()].iloc[0]!r}")
        check_case(list(codes), columns.code)
        longitude, latitude = places[columns.longitude], places[columns.latitude]
        on_map = MapGrid.around(longitude, latitude, side, stages)
        if edges is not None:
            on_map = MapGrid(*edges, side, tuple(stages))
        cells = on_map.cells(longitude, latitude)
        listed = places[[columns.code, columns.longitude, columns.latitude]].reset_index(drop=True)
        return cls(listed, columns, on_map, cells)

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


def _fault(code: str, message: str, detail: str | None = None) -> OdError:
    """Create an error whose detail is confidential: it quotes a file that may, if its path is wrong, be the records."""
    next_step = "correct the list of places or the configuration"
    return OdError(code, message, next_step=next_step, confidential_detail=detail)


def place_records(records: Path, places: PlaceList, fault_threshold: Fraction = FAULT_THRESHOLD) -> Trajectories:
    """Return the records of a Parquet file as trips between the places of a list. The result is confidential.

    A record is faulty if one of its places is not listed, or if its date is outside the period of the file. Faulty
    records are dropped. Whether a record is faulty does not depend on other records.

    Args:
        records: Parquet file written by :func:`od_core.records.load.load_records`. Its records have an origin, a
            destination, and one stop for each further place of a trip.
        places: the public list of places.
        fault_threshold: largest accepted share of faulty records.

    Raises:
        OdError: too many records are faulty, or the records cannot be read.
    """
    stops = [f"stop_{number}" for number in range(1, len(places.map.places) - 1)]
    stages = ["origin", *stops, "destination"]
    numbers = ", ".join(f"place_{k}.number AS {stage}" for k, stage in enumerate(stages))
    joins = " ".join(
        f"LEFT JOIN places AS place_{k} ON records.{stage} = place_{k}.code" for k, stage in enumerate(stages)
    )
    sound = " AND ".join(["in_period IS TRUE", *(f"{stage} IS NOT NULL" for stage in stages)])
    try:
        with scratch_database(records.parent, records) as connection:
            codes = pa.array(places.codes, pa.string())
            connection.register("places", pa.table({"code": codes, "number": np.arange(len(codes), dtype=np.int32)}))
            placed = f"SELECT in_period, {numbers} FROM {parquet_rows(records)} AS records {joins}"  # noqa: S608  # checked names
            counted, faulty = connection.execute(
                f"SELECT count(*), count(*) FILTER (WHERE NOT ({sound})) FROM ({placed})"  # noqa: S608  # our own SQL
            ).fetchall()[0]
            refuse_too_many_faults(faulty, counted, fault_threshold)
            table = connection.sql(
                f"SELECT {', '.join(stages)} FROM ({placed}) WHERE {sound}"  # noqa: S608  # our own SQL
            ).to_arrow_table()
    except reading_errors() as error:
        raise_alone(not_counted(error))
    cells = [places.cells[table[stage].to_numpy()] for stage in stages]
    return Trajectories(np.ascontiguousarray(np.concatenate(cells, axis=1)), places.map.grid)
