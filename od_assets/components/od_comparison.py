"""Define the component of a comparison of mechanisms: its declaration, data sets, assets and jobs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
from pydantic import Field

from od_assets.assets.evaluation import ComparisonSettings, evaluation_assets
from od_assets.compatibility import owned_job
from od_assets.components.series import Declared
from od_assets.declared.section import Number, Section
from od_assets.metadata import with_sources
from od_assets.project import Project, current_project
from od_assets.resources.dead_runs import COMPARISON_TAG
from od_core import Budget
from od_core.errors import OdError
from od_core.evaluation.comparison import DELTA, EPSILONS, NUMBER_OF_RUNS
from od_core.evaluation.known_flows import KnownFlows, KnownTable, synthetic_data_sets
from od_core.flows.mechanisms import MECHANISMS
from od_core.records.formats import RecordColumns
from od_core.registry import choose


class TableColumns(Section):
    """Columns of a file of flows that are not confidential."""

    origin: str = "origin"
    destination: str = "destination"
    trips: str | None = Field(
        None, description="Column of the number of trips, for flows; leave out for one row per trip."
    )


class KnownTableSection(Section):
    """A table whose true flows are not confidential."""

    name: str
    marked: str | None = Field(
        None, description="public or synthetic; without it, the table cannot be used for a comparison."
    )
    flows: str = Field(..., description="Parquet or CSV file.")
    columns: TableColumns = TableColumns()  # type: ignore[call-arg]  # every column has a default
    one_row_a_trip: bool = Field(
        False, description="Whether each row is one trip, even if unnamed columns may hold numbers of trips."
    )
    zones: str = Field(..., description="CSV or Parquet file with one row per zone; codes are text.")
    levels: list[str] = Field(
        ..., description="Level columns of the list, coarse to fine; the last one holds the zone codes."
    )

    def table(self, project: Project) -> KnownTable:
        """Return the table in the terms of od_core. Raises OdError if it is not marked as public or synthetic."""
        return KnownTable(
            self.name,
            self.marked,  # type: ignore[arg-type]  # checked by the table
            project.root / self.flows,
            project.root / self.zones,
            tuple(self.levels),
            RecordColumns(**self.columns.model_dump()),
            self.one_row_a_trip,
        )


class ComparisonScaffolder(dg.Scaffolder):  # type: ignore[misc]  # Dagster's base is untyped
    """A scaffolder that writes a complete example. With an empty declaration, the project would not load."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write ``defs.yaml`` with values for all required fields."""
        name = Path(request.target_path).name
        example = {"name": name, "owners": ["team:statistics"], "synthetic": ["binary sparse", "random sparse"]}
        dg.scaffold_component(request, example)


@dg.scaffold_with(ComparisonScaffolder)
class OdComparison(Declared):
    """Comparison of mechanisms on synthetic and public data; its results are not private, since they use the truth."""

    name: str = Field(
        ..., description="Name of the comparison and prefix of its assets: lower-case letters, digits, underscores."
    )
    owners: list[str] = Field(..., description="Owners: team:name or e-mail addresses.")
    synthetic: list[str] = Field(default=[], description="Names of the synthetic data sets of the paper.")
    tables: list[KnownTableSection] = Field(default=[])
    mechanisms: list[str] | None = Field(None, description="Mechanisms to compare; all if left out.")
    epsilons: list[Number] = Field(list[Number](EPSILONS))
    runs: int = NUMBER_OF_RUNS

    labels: ClassVar[tuple[str, ...]] = ("evaluation", "origin-destination")

    def data_sets(self, project: Project) -> dict[str, Callable[[], KnownFlows]]:
        """Return functions that make the data sets, by name.

        Raises:
            OdError: a synthetic data set is unknown, or a table is not marked as public or synthetic.
        """
        made, code, step = synthetic_data_sets(), "OD-EVALUATION-UNKNOWN", "correct the declaration of the comparison"
        chosen = {name: choose("synthetic data set", name, made, code=code, next_step=step) for name in self.synthetic}
        return chosen | {table.name: table.table(project).read for table in self.tables}

    def settings(self, project: Project | None = None) -> ComparisonSettings:
        """Return the declaration as settings of a project, by default of the current one.

        Raises:
            OdError: as in :meth:`data_sets`; or a value is unknown or out of range.
        """
        for name in self.mechanisms or []:
            MECHANISMS.make(name)
        for epsilon in self.epsilons:
            Budget(epsilon, DELTA)
        if self.runs < 1:
            raise OdError(
                "OD-EVALUATION-RUNS", "a comparison needs at least one run", next_step="set runs to at least 1"
            )
        project = project or current_project()
        return ComparisonSettings(
            self.name,
            project,
            self.data_sets(project),
            mechanisms=None if self.mechanisms is None else tuple(self.mechanisms),
            epsilons=tuple(map(str, self.epsilons)),
            runs=self.runs,
        )

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Build the assets and their jobs."""
        assets = evaluation_assets(self.settings(Project.of(context)), {"owners": self.owners, "code_version": "1"})
        job = owned_job(
            f"{self.name}_runs",
            self.owners,
            selection=dg.AssetSelection.assets([self.name, "runs"]),
            description="Release one data set repeatedly with every mechanism; existing runs are kept.",
            tags={COMPARISON_TAG: self.name},
        )
        report = owned_job(
            f"{self.name}_report",
            self.owners,
            selection=dg.AssetSelection.assets([self.name, "tables"], [self.name, "figures"]),
            description="Tables and figures of all existing runs.",
            tags={COMPARISON_TAG: self.name},
        )
        return dg.Definitions(assets=with_sources(assets), jobs=[job, report])
