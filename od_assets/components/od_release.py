"""Define the component of a series of flows: its assets, checks, jobs and schedules."""

from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.assets.assisted import assisted_assets
from od_assets.assets.inputs import input_assets
from od_assets.assets.levels import level_assets
from od_assets.assets.publication import publication_assets
from od_assets.checks.release_checks import release_checks
from od_assets.components.series import Series, example_domain
from od_assets.declared.flows import DeclaredFlows
from od_assets.project import Project


class ReleaseScaffolder(dg.Scaffolder):  # type: ignore[misc]  # Dagster's base is untyped
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
                "trips": {"files": f"data/{name}/{{period}}.parquet", "columns": {"date": "date"}},
                "geography": {"file": f"data/{name}/zones.csv", "levels": ["region", "zone"]},
                "periods": {"first": "2026-01"},
                "domain": name,
                "privacy": {"epsilon": "1", "delta": "1e-8"},
            },
        )


@dg.scaffold_with(ReleaseScaffolder)
class OdRelease(Series, DeclaredFlows):
    """Origin-destination tables, period after period, with a differential privacy guarantee."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["differential-privacy", "origin-destination"])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, checks, jobs and schedules, whose names begin with the name of the series."""
        self.refuse_other_folder(None if context is None else context.path)
        settings = self.settings(Project.of(context))
        partitions = settings.periods.definition()
        traits = self.traits(settings, settings.mechanism.name)
        assets = [
            asset
            for make in (input_assets, level_assets, publication_assets, assisted_assets)
            for asset in make(settings, partitions, traits)
        ]
        return self.definitions(settings, assets, release_checks(settings))
