"""Define the component of a series of trips with stops: its assets, checks, jobs and schedules."""

from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.assets.stops import stops_assets
from od_assets.assets.tables import table_assets
from od_assets.checks.release_checks import stops_checks
from od_assets.components.series import Series, example_domain
from od_assets.declared.stops import DeclaredStops
from od_assets.project import Project


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
class OdStops(Series, DeclaredStops):
    """Trips with their stops, as boxes of a map, period after period, with a differential privacy guarantee."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["differential-privacy", "trips-with-stops"])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, checks, jobs and schedules, whose names begin with the name of the series."""
        self.refuse_other_folder(None if context is None else context.path)
        settings = self.settings(Project.of(context))
        traits, checks = self.traits(settings, settings.mechanism.name), stops_checks(settings)
        assets = table_assets(settings, settings.periods.definition(), traits, stops_assets(settings), checks)
        return self.definitions(settings, assets, checks)
