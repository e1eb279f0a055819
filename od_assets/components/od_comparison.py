"""Define the component of a comparison of mechanisms on public or synthetic data: runs, tables and figures."""

from typing import Any, ClassVar

import dagster as dg
import pandas as pd

from od_assets.compatibility import owned_job
from od_assets.components.series import Declared
from od_assets.metadata import allowed, made, with_sources
from od_assets.project import Project
from od_assets.resources.dead_runs import COMPARISON_TAG, public_step
from od_assets.series.comparison import Comparison
from od_core.evaluation.comparison import TABLE_COLUMNS, Run, compare, draw_figures, refusals, table, tables_markdown
from od_core.files.durable import PUBLIC_FILE_MODE, file_digest, write_durably

_DESCRIBED = {
    "data_set": ("string", "Synthetic or public data set."),
    "contender": ("string", "Mechanism, and how its budget is said."),
    "epsilon": ("string", "Epsilon asked for, at delta 1e-8."),
    "level": ("int64", "Level of the flow tree; 0 is the root."),
    "runs": ("int64", "How many runs there are."),
    "rho": ("string", "Rho that a run spent, exact; empty where none was spent."),
    "bound": ("double", "Bound of the largest absolute error with probability 0.95, where one is known."),
}
_OTHER = ("double", "Over the runs; seconds and gigabytes are the same at every level.")


def evaluation_assets(comparison: Comparison) -> list[dg.AssetsDefinition]:
    """Return the assets of a comparison."""
    common: dict[str, Any] = {"owners": comparison.owners, "code_version": "1", "group_name": "evaluation"}
    partitions = dg.StaticPartitionsDefinition(list(comparison.data_sets))
    columns = [dg.TableColumn(name, *_DESCRIBED.get(name, _OTHER)) for name in TABLE_COLUMNS]

    @dg.asset(
        key=[comparison.name, "runs"],
        kinds={"json"},
        partitions_def=partitions,
        description=(
            "Errors of one data set, released again and again by every mechanism. One file a run; runs that are there"
            " are not made again. NOT private: it reads the truth, of synthetic or public data."
        ),
        **common,
    )
    def runs(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        planned = comparison.planned(context.partition_key)
        done = [0]

        def tell(run: Run, made: bool) -> None:
            done[0] += 1
            how = "made" if made else "was there"
            case = f"{run.data_set}, {run.contender.label}, epsilon {run.epsilon}, run {run.number}"
            context.log.info(f"{done[0]} of {len(planned)}: {case} ({how})")

        with public_step(context):
            compare(planned, comparison.folder / "runs", comparison.data_sets, progress=tell)
        return dg.MaterializeResult(metadata=allowed(dagster__row_count=len(planned)))

    @dg.asset(
        key=[comparison.name, "tables"],
        deps=[[comparison.name, "runs"]],
        kinds={"parquet", "markdown"},
        metadata={"dagster/column_schema": dg.TableSchema(columns)},
        description="Errors by level, times and memory of all runs that are there. With least and largest values.",
        **common,
    )
    def tables(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        path = comparison.folder / "comparison.parquet"
        with public_step(context):
            results = table(comparison.folder / "runs")
            write_durably(path, lambda file: results.to_parquet(file), mode=PUBLIC_FILE_MODE)
            known = (make() for make in comparison.data_sets.values())
            text = tables_markdown(known, results, refusals(comparison.folder / "runs"))
            write_durably(path.with_name("tables.md"), lambda file: file.write_text(text, encoding="utf-8"))
        return made(file_digest(path), dagster__row_count=len(results))

    @dg.asset(
        key=[comparison.name, "figures"],
        deps=[[comparison.name, "tables"]],
        kinds={"matplotlib"},
        description="The figures of Boninsegna & Silvestri, section 5, made of the runs that are there.",
        **common,
    )
    def figures(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        with public_step(context):
            written = draw_figures(pd.read_parquet(comparison.folder / "comparison.parquet"), comparison.folder)
        return dg.MaterializeResult(metadata=allowed(dagster__row_count=len(written)))

    return [runs, tables, figures]


class OdComparison(Declared, Comparison):
    """Comparison of mechanisms on synthetic and public data; its results are not private, since they use the truth."""

    labels: ClassVar[tuple[str, ...]] = ("evaluation", "origin-destination")

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Build the assets and their jobs."""
        return comparison_definitions(self.within(Project.of(context)))


def comparison_definitions(comparison: Comparison) -> dg.Definitions:
    """Return the assets of a comparison and their jobs. Raises OdError if a value is wrong."""
    assets = evaluation_assets(comparison.checked())
    jobs = {
        "runs": (["runs"], "Release one data set repeatedly with every mechanism; existing runs are kept."),
        "report": (["tables", "figures"], "Tables and figures of all existing runs."),
    }
    return dg.Definitions(
        assets=with_sources(assets),
        jobs=[
            owned_job(
                f"{comparison.name}_{job}",
                comparison.owners,
                selection=dg.AssetSelection.assets(*([comparison.name, asset] for asset in own)),
                description=description,
                tags={COMPARISON_TAG: comparison.name},
            )
            for job, (own, description) in jobs.items()
        ],
    )
