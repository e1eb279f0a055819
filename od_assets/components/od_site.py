"""Define the component of the web site of all published releases: its asset, and what writes it again."""

from typing import Any

import dagster as dg
from pydantic import Field

from od_assets.assets.site import site_asset
from od_assets.code_references import source_of, with_sources
from od_assets.components.declared_component import Declared
from od_assets.declared.site import DeclaredSite, publishing_assets
from od_assets.project import Project
from od_assets.resources.dead_runs import SITE_TAG
from od_assets.resources.warehouse import Warehouse


class SiteScaffolder(dg.Scaffolder):  # type: ignore[misc]  # Dagster's base is untyped
    """A scaffolder that writes an example. With an empty declaration, the project would not load."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write ``defs.yaml`` with values for the fields that most sites need."""
        example = {
            "owners": ["team:statistics"],
            "title": "Published trip statistics",
            "publisher": "Statistics office",
        }
        dg.scaffold_component(request, example)


@dg.scaffold_with(SiteScaffolder)
class OdSite(Declared, DeclaredSite):
    """The web site of all published releases, written again after each publication. Declare it once per project."""

    owners: list[str] = Field(..., description="Owners: team:name or e-mail addresses.")

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(description=cls.__doc__, tags=["origin-destination", "site"])

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Build the asset, and the sensor that requests it after each publication.

        Runs that it requests go after queued releases.

        Raises:
            OdError: a text or an address cannot be written on the site.
        """
        project = Project.of(context)
        asset = site_asset(
            self.described(),
            Warehouse.of(project),
            self.place(project),
            publishing_assets(project),
            {"owners": self.owners, "code_version": "1"},
        )
        after_publication = dg.AutomationConditionSensorDefinition(
            "od_site_after_publication",
            target=dg.AssetSelection.assets(asset.key),
            run_tags={SITE_TAG: "true", "dagster/priority": "-1"},
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=30,
            description="Requests the site after a bundle was published.",
            metadata=source_of(__file__),
        )
        return dg.Definitions(assets=with_sources([asset]), sensors=[after_publication])
