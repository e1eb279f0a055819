"""Define the component of a comparison of mechanisms: its assets and jobs."""

from typing import ClassVar

import dagster as dg

from od_assets.assets.evaluation import evaluation_assets
from od_assets.compatibility import owned_job
from od_assets.components.series import Declared
from od_assets.metadata import with_sources
from od_assets.project import Project
from od_assets.resources.dead_runs import COMPARISON_TAG
from od_assets.series.comparison import Comparison


class OdComparison(Declared, Comparison):
    """Comparison of mechanisms on synthetic and public data; its results are not private, since they use the truth."""

    labels: ClassVar[tuple[str, ...]] = ("evaluation", "origin-destination")

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Build the assets and their jobs."""
        return comparison_definitions(self.within(Project.of(context)))


def comparison_definitions(comparison: Comparison) -> dg.Definitions:
    """Return the assets of a comparison and their jobs. Raises OdError if a value is wrong."""
    assets = evaluation_assets(comparison.checked(), {"owners": comparison.owners, "code_version": "1"})
    job = owned_job(
        f"{comparison.name}_runs",
        comparison.owners,
        selection=dg.AssetSelection.assets([comparison.name, "runs"]),
        description="Release one data set repeatedly with every mechanism; existing runs are kept.",
        tags={COMPARISON_TAG: comparison.name},
    )
    report = owned_job(
        f"{comparison.name}_report",
        comparison.owners,
        selection=dg.AssetSelection.assets([comparison.name, "tables"], [comparison.name, "figures"]),
        description="Tables and figures of all existing runs.",
        tags={COMPARISON_TAG: comparison.name},
    )
    return dg.Definitions(assets=with_sources(assets), jobs=[job, report])
