"""Define the component of a series of group-size tables: its assets, checks, jobs and schedules."""

from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.assets.group_sizes import group_size_assets
from od_assets.assets.tables import table_assets
from od_assets.checks.release_checks import group_size_checks
from od_assets.components.series import Series, example_domain
from od_assets.declared.group_sizes import DeclaredGroupSizes
from od_assets.project import Project


class GroupSizeScaffolder(dg.Scaffolder):  # type: ignore[misc]  # Dagster's base is untyped
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
                "trips": {"files": f"data/{name}/{{period}}.parquet", "columns": {"area": "origin", "date": "date"}},
                "geography": {"file": f"data/{name}/zones.csv", "levels": ["region", "zone"]},
                "periods": {"first": "2026-01"},
                "domain": name,
                "privacy": {"epsilon": "0.1"},
                "top_code": 1000,
            },
        )


@dg.scaffold_with(GroupSizeScaffolder)
class OdGroupSizes(Series, DeclaredGroupSizes):
    """Group sizes (how many groups have j members), period after period, with a differential privacy guarantee."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["differential-privacy", "group-sizes"])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, checks, jobs and schedules, whose names begin with the name of the series."""
        self.refuse_other_folder(None if context is None else context.path)
        settings = self.settings(Project.of(context))
        mechanism = "by_rule" if settings.mechanism is None else settings.mechanism.name
        traits, checks = self.traits(settings, mechanism), group_size_checks(settings)
        assets = table_assets(settings, settings.periods.definition(), traits, group_size_assets(settings), checks)
        return self.definitions(settings, assets, checks)
