"""Declare a series of trips with stops: its records, map, budget and mechanism."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from od_assets.series.inputs import Records
from od_assets.series.section import Section
from od_assets.series.series import OptionValue, TableSeries
from od_core import OdError, StopsPlan, Trajectories, plan_stops
from od_core.publication.columns import Column
from od_core.records.formats import RecordColumns
from od_core.records.zone_lists import ZoneList, read_zones
from od_core.stops.mechanisms import MECHANISMS, StopsMechanism
from od_core.stops.publishing import STOPS
from od_core.stops.trajectories import PlaceColumns, PlaceList, place_records


class PlacesOfTrips(Section):
    """Columns of the files of records."""

    places: list[str] | None = None
    date: str | None = None


class StopTrips(Records):
    """Location and format of the confidential records, with one trip per row."""

    columns: PlacesOfTrips = Field(default_factory=PlacesOfTrips)


class PlaceMap(Section):
    """Location of the public list of places, and the map that contains them."""

    file: str
    code: str = "zone"
    longitude: str = "longitude"
    latitude: str = "latitude"
    side: int = 256
    edges: list[float] | None = None


class StopsSeries(TableSeries[StopsPlan, PlaceList]):
    """A series of trips with their stops, as a project declares it."""

    trips: StopTrips
    map: PlaceMap
    stated_mechanism: str = Field("privtree", alias="mechanism")
    mechanism_options: dict[str, OptionValue] = Field({})

    kind = STOPS
    _checked_properties: ClassVar[tuple[str, ...]] = ("mechanism", "edges")

    @cached_property
    def mechanism(self) -> StopsMechanism:
        """Mechanism of the releases."""
        return MECHANISMS.make(self.stated_mechanism, **self.mechanism_options)

    @cached_property
    def columns(self) -> RecordColumns:
        """Columns of the files of records. Raises OdError if a trip has a single place."""
        columns, named = self.record_format.columns_with(date=self.trips.columns.date), self.trips.columns.places
        if named is None:
            return columns
        if len(named) < 2:
            raise OdError("OD-CONFIG", "a trip needs at least two places", next_step="name the columns of its places")
        return replace(columns, origin=named[0], destination=named[-1], stops=tuple(named[1:-1]))

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of a trip's places, in order."""
        return tuple(self.trips.columns.places or ("origin", "destination"))

    @property
    def places(self) -> PlaceColumns:
        """Columns of the list of places."""
        return PlaceColumns(self.map.code, self.map.longitude, self.map.latitude)

    @property
    def edges(self) -> tuple[float, float, float, float] | None:
        """West, east, south and north of the map in degrees; None for the smallest map around the places."""
        if self.map.edges is None:
            return None
        if len(self.map.edges) != 4:
            raise OdError("OD-CONFIG", "a map needs four edges", next_step="name west, east, south and north")
        west, east, south, north = self.map.edges
        return west, east, south, north

    def count(self, records: Path, geography: PlaceList, _period: str) -> Trajectories:
        """Place every trip on the map; see :meth:`TableSeries.count`."""
        return place_records(records, geography, self.fault_threshold)

    def listed_codes(self, geography: PlaceList) -> tuple[Sequence[str], Sequence[str]]:
        """Return the codes of the places, as both origins and destinations; see :meth:`Series.listed_codes`."""
        return geography.codes, geography.codes

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """See :attr:`Series.zone_lists`."""
        return {f"{self.name}.csv": ZoneList(self.map.file, (self.map.code,))}

    def _geography(self, lists: Sequence[ZoneList], folder: Path) -> PlaceList:
        path = folder / lists[0].file
        table = read_zones(path)
        try:
            return PlaceList.from_frame(table, self.places, side=self.map.side, stages=self.stages, edges=self.edges)
        except OdError as error:
            raise error.in_file(path.name) from None

    @property
    def listed_columns(self) -> tuple[Column, ...]:
        """See :attr:`Series.listed_columns`."""
        code = Column(self.places.code, "string", "Place", "Code of the place.")
        degrees = (Column(name, "number", name, "Degrees.") for name in (self.places.longitude, self.places.latitude))
        return (code, *degrees)

    @property
    def dimensions(self) -> int:
        """Number of dimensions of the grid: two per place of a trip."""
        return 2 * len(self.stages)

    def plan_without_cap(self, geography: PlaceList, _period: str) -> StopsPlan:
        """Return the plan of all periods; see :meth:`Series.plan_without_cap`."""
        return plan_stops(
            geography.map,
            unit=self.unit,
            budget=self.privacy.budget,
            mechanism=self.mechanism,
            acceptance=self.acceptance,
        )
