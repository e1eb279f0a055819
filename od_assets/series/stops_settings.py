"""Define the settings of a series of trips with stops, in the terms of od_core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from od_assets.series.settings import TableSettings
from od_core.errors import OdError
from od_core.publication.columns import Column
from od_core.records.zone_lists import read_zones
from od_core.stops.mechanisms.mechanism import StopsMechanism
from od_core.stops.place_list import PlaceColumns, PlaceList, place_records
from od_core.stops.plan import StopsPlan, plan_stops
from od_core.stops.publishing import STOPS
from od_core.stops.trajectories import Trajectories


@dataclass(frozen=True)
class StopsSettings(TableSettings[StopsPlan, PlaceList]):
    """The checked settings of a series of trips with stops.

    Attributes:
        place_list: path of the list of places, relative to the project.
        places: columns of that list.
        side: number of cells along each side of the map.
        edges: west, east, south and north of the map in degrees; None for the smallest map around the places.
        stages: names of a trip's places, in order.
        mechanism: mechanism of the releases.
    """

    place_list: str
    places: PlaceColumns
    side: int
    edges: tuple[float, float, float, float] | None
    stages: tuple[str, ...]
    mechanism: StopsMechanism

    kind = STOPS

    def count(self, records: Path, geography: PlaceList, _period: str) -> Trajectories:
        """Place every trip on the map; see :meth:`TableSettings.count`."""
        return place_records(records, geography, self.fault_threshold)

    def listed_codes(self, geography: PlaceList) -> tuple[Sequence[str], Sequence[str]]:
        """Return the codes of the places, as both origins and destinations; see :meth:`SeriesSettings.listed_codes`."""
        return geography.codes, geography.codes

    def read_geography(self) -> PlaceList:
        """Read the places from the declared list; see :meth:`SeriesSettings.read_geography`."""
        return self._places(self.project.root / self.place_list)

    def kept_lists(self, geography: PlaceList) -> dict[str, pd.DataFrame]:
        """Return the list of places as one table, by the name of its file; see :meth:`SeriesSettings.kept_lists`."""
        return {f"{self.name}.csv": geography.to_frame()}

    def kept_geography(self, folder: Path) -> PlaceList:
        """Read the places from the stored list; see :meth:`SeriesSettings.kept_geography`."""
        return self._places(folder / f"{self.name}.csv")

    def _places(self, path: Path) -> PlaceList:
        table = read_zones(path)
        try:
            return PlaceList.from_frame(table, self.places, side=self.side, stages=self.stages, edges=self.edges)
        except OdError as error:
            raise error.in_file(path.name) from None

    @property
    def listed_columns(self) -> tuple[Column, ...]:
        """See :attr:`SeriesSettings.listed_columns`."""
        code = Column(self.places.code, "string", "Place", "Code of the place.")
        degrees = (Column(name, "number", name, "Degrees.") for name in (self.places.longitude, self.places.latitude))
        return (code, *degrees)

    @property
    def listed_sources(self) -> list[str]:
        """See :attr:`SeriesSettings.listed_sources`."""
        return [str(self.project.root / self.place_list)]

    @property
    def dimensions(self) -> int:
        """Number of dimensions of the grid: two per place of a trip."""
        return 2 * len(self.stages)

    def _plan(self, geography: PlaceList, days: int) -> StopsPlan:  # all periods have the same plan
        return plan_stops(
            geography.map, unit=self.unit, budget=self.budget, mechanism=self.mechanism, acceptance=self.acceptance
        )
