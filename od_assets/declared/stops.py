"""Declare a series of trips with stops: its records, map, budget and mechanism. Imports no Dagster."""

from dataclasses import replace

from pydantic import Field

from od_assets.declared.section import Section
from od_assets.declared.series import DeclaredSeries, PureEpsilon, Records
from od_assets.project import Project, current_project
from od_assets.series.stops_settings import StopsSettings
from od_core import Budget
from od_core.errors import OdError
from od_core.stops.mechanisms import MECHANISMS
from od_core.stops.place_list import PlaceColumns


class PlacesOfTrips(Section):
    """Columns of the files of records."""

    places: list[str] | None = Field(
        None,
        description=(
            "Columns of the codes of a trip's places, in order; the reader's origin and destination if left out."
        ),
    )
    date: str | None = Field(
        None, description="Column of the date or local time of a trip; leave out if each file is one period."
    )


class StopTrips(Records):
    """Location and format of the confidential records, with one trip per row."""

    columns: PlacesOfTrips = PlacesOfTrips()  # type: ignore[call-arg]  # every column has a default


class PlaceMap(Section):
    """Location of the public list of places, and the map that contains them."""

    file: str = Field(..., description="CSV or Parquet file with one row per place; codes are text.")
    code: str = "zone"
    longitude: str = "longitude"
    latitude: str = "latitude"
    side: int = Field(256, description="Number of cells along each side of the map.")
    edges: list[float] | None = Field(
        None, description="West, east, south and north in degrees; the smallest map around the places if left out."
    )


class DeclaredStops(DeclaredSeries):
    """The declaration of a series of trips with their stops."""

    trips: StopTrips
    map: PlaceMap
    privacy: PureEpsilon
    mechanism: str = "privtree"
    mechanism_options: dict[str, bool | str | int | float] = Field({})

    def settings(self, project: Project | None = None) -> StopsSettings:
        """Return the declaration as settings; see :meth:`DeclaredSeries.settings`."""
        project = project or current_project()
        form, named, places = self.trips.one_trip_a_row(), self.trips.columns.places, self.map
        columns = form.columns_with(date=self.trips.columns.date)
        domain = self.checked_domain(project, self.trips.files, has_dates=columns.date is not None, trips_alone=True)
        if named is not None and len(named) < 2:
            raise OdError("OD-CONFIG", "a trip needs at least two places", next_step="name the columns of its places")
        if places.edges is not None and len(places.edges) != 4:
            raise OdError("OD-CONFIG", "a map needs four edges", next_step="name west, east, south and north")
        west, east, south, north = places.edges or [0.0] * 4
        return StopsSettings(
            columns=(
                columns
                if named is None
                else replace(columns, origin=named[0], destination=named[-1], stops=tuple(named[1:-1]))
            ),
            record_format=form,
            budget=Budget(self.privacy.epsilon),
            place_list=places.file,
            places=PlaceColumns(places.code, places.longitude, places.latitude),
            side=places.side,
            edges=None if places.edges is None else (west, east, south, north),
            stages=("origin", "destination") if named is None else tuple(named),
            mechanism=MECHANISMS.make(self.mechanism, **self.mechanism_options),
            **self.shared_settings(project, domain, self.trips),
        )
