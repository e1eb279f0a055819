"""The public list of the places that trips have, each with its cell on the map."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from od_core.codes import check_case, text_codes
from od_core.errors import OdError
from od_core.stops.grid import Points
from od_core.stops.map_grid import MapGrid


@dataclass(frozen=True)
class PlaceColumns:
    """Columns of a list of places: code (text), longitude and latitude (degrees)."""

    code: str = "zone"
    longitude: str = "longitude"
    latitude: str = "latitude"


@dataclass(frozen=True, eq=False)
class PlaceList:
    """Places and the map that they are on; all of it public.

    Attributes:
        table: code, longitude and latitude of each place, as they are listed.
        columns: of the table.
        map: on which they lie.
        cells: of the places, in the order of the list; shape (places, 2).
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
        """Of a table with one row a place.

        Args:
            places: public.
            columns: of that table.
            side: cells of each side of the map.
            stages: names of a trip's places in order, as ``origin``, ``stop``, ``destination``.
            edges: west, east, south and north of the map; the least map around the places where left out.

        Raises:
            OdError: a missing column; a code twice, or without text; no coordinates, or off the map.
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
        """Codes of the places."""
        return list(self.table[self.columns.code])

    @property
    def digest(self) -> str:
        """SHA-256 of the places and the map."""
        text = self.table.to_csv(index=False, lineterminator="\n") + repr(self.map)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def area_counts(self) -> dict[str, int]:
        """Number of places."""
        return {"places": len(self.table)}

    def to_frame(self) -> pd.DataFrame:
        """Code, longitude and latitude of each place."""
        return self.table.copy()


def _fault(code: str, message: str, detail: str | None = None) -> OdError:
    """A detail quotes the list, which may be the records where its path is wrong; so it is confidential."""
    next_step = "correct the list of places or the configuration"
    return OdError(code, message, next_step=next_step, confidential_detail=detail)
