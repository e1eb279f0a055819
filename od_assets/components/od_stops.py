"""Define the component of a series of trips with stops: its declaration, assets, checks, jobs and schedules."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from od_assets.assets.stops import stops_assets
from od_assets.assets.tables import table_assets
from od_assets.checks.release_checks import stops_checks
from od_assets.components.section import Section
from od_assets.components.series import PureEpsilon, Records, Series, example_domain
from od_assets.project import Project, current_project
from od_assets.series.stops_settings import StopsSettings
from od_core import Budget
from od_core.errors import OdError
from od_core.privacy.neighbours import fault_share
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


class StopsScaffolder(dg.Scaffolder):  # type: ignore[misc]  # Dagster's base is untyped
    """A scaffolder that writes a complete example. With an empty declaration, the project would not load."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write ``defs.yaml`` with values for all required fields, and the data set's domain if there is none."""
        name = Path(request.target_path).name
        example_domain(request, name)
        dg.scaffold_component(
            request,
            {
                "name": name,
                "owners": ["team:statistics"],
                "trips": {
                    "files": f"data/{name}/{{period}}.parquet",
                    "columns": {"places": ["origin", "stop", "destination"], "date": "date"},
                },
                "map": {"file": f"data/{name}/places.csv"},
                "periods": {"first": "2026-01"},
                "domain": name,
                "privacy": {"epsilon": "0.1"},
            },
        )


@dg.scaffold_with(StopsScaffolder)
class OdStops(Series):
    """Trips with their stops, as boxes of a map, period after period, with a differential privacy guarantee."""

    trips: StopTrips
    map: PlaceMap
    privacy: PureEpsilon
    mechanism: str = "privtree"
    mechanism_options: dict[str, bool | str | int | float] = Field({})

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["differential-privacy", "trips-with-stops"])

    def settings(self, project: Project | None = None) -> StopsSettings:
        """Return the declaration as settings; see :meth:`Series.settings`."""
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
            name=self.name,
            project=project,
            **self.timing(domain),
            records=self.trips.files,
            columns=(
                columns
                if named is None
                else replace(columns, origin=named[0], destination=named[-1], stops=tuple(named[1:-1]))
            ),
            record_format=form,
            budget=Budget(self.privacy.epsilon),
            noise=self.noise,
            revision=self.revision,
            domain=domain,
            fault_threshold=fault_share(self.trips.fault_threshold),
            accepts_empty=self.trips.accept_empty,
            place_list=places.file,
            places=PlaceColumns(places.code, places.longitude, places.latitude),
            side=places.side,
            edges=None if places.edges is None else (west, east, south, north),
            stages=("origin", "destination") if named is None else tuple(named),
            mechanism=MECHANISMS.make(self.mechanism, **self.mechanism_options),
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, checks, jobs and schedules, whose names begin with the name of the series."""
        settings = self.settings(Project.of(context))
        traits, checks = self.traits(settings, settings.mechanism.name), stops_checks(settings)
        assets = table_assets(settings, settings.periods.definition(), traits, stops_assets(settings), checks)
        return self.definitions(settings, assets, checks)
