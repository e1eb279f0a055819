"""Run a comparison of mechanisms with its Dagster jobs, in this process."""

import re
import shutil
import uuid
from pathlib import Path

from dagster import EventLogEntry
from rich.progress import Progress, TaskID

from od_assets.assets.steps import one_of_all
from od_assets.components.project import comparison_definitions
from od_assets.failures import step_failures
from od_assets.instance import dagster_instance
from od_assets.project import current_project
from od_assets.runs.run_period import by_step, execute, followed
from od_assets.series.comparison import Comparison, KnownTableSection, TableColumns
from od_assets.terminal import printable
from od_core.errors import OdError
from od_core.evaluation.comparison import EPSILONS

REPORT_FILES = ("tables.md", "comparison.parquet", "*.png", "*.svg")
"""Patterns of the files that are copied from the folder of a comparison."""


def given_table(
    flows: Path | None, zones: Path | None, levels: str, trips: str | None, marked: str | None, one_row_a_trip: bool
) -> Comparison:
    """Return the comparison on one table, named after its file.

    The arguments are fields of :class:`od_assets.series.comparison.KnownTableSection`; the levels have commas between.
    Raises OdError if only some of the files and levels are given, or the table is not marked as public or synthetic.
    """
    if flows is None or zones is None or not levels:
        raise OdError(
            "OD-EVALUATION-TABLE",
            "your own table needs --flows, --zones and --levels, without the name of a declared comparison",
            next_step="give all three options, or none of them",
        )
    name = re.sub(r"\W+", "_", flows.stem).strip("_").lower() or "table"
    section = KnownTableSection(
        name=name,
        marked=marked,
        flows=str(flows.resolve()),
        zones=str(zones.resolve()),
        levels=[level.strip() for level in levels.split(",")],
        columns=TableColumns(trips=trips),
        one_row_a_trip=one_row_a_trip,
    )
    section.reader(current_project())
    return Comparison(
        name=f"table_{name}", owners=["team:statistics"], tables=[section], mechanisms=None, epsilons=[*EPSILONS]
    )


def run_comparison(comparison: Comparison, to: Path | None = None) -> list[str]:
    """Make the missing runs of a comparison, then its tables and figures, and show progress on standard error.

    If all steps succeed, copy tables and figures to a folder. Return one line for each failed step.
    """
    definitions = comparison_definitions(comparison)
    failures: list[str] = []
    with dagster_instance() as instance:
        jobs = [(f"{comparison.name}_runs", data_set) for data_set in comparison.data_sets]
        for name, data_set in [*jobs, (f"{comparison.name}_report", None)]:
            run_id, job = str(uuid.uuid4()), definitions.resolve_job_def(name)
            if data_set is None:
                title = "tables and figures"
                bar = followed(instance, run_id, title, by_step(title), len(job.nodes), transient=False)
            else:
                runs = len(comparison.planned(data_set))
                bar = followed(instance, run_id, data_set, _by_run, runs, transient=False)
            with bar:
                result = execute(job, instance, run_id, data_set)
            failures += step_failures(result.all_events)
    if to is not None and not failures:
        to.mkdir(parents=True, exist_ok=True)
        for file in (file for kind in REPORT_FILES for file in comparison.folder.glob(kind)):
            shutil.copyfile(file, to / file.name)
    return failures


def _by_run(progress: Progress, task: TaskID, entry: EventLogEntry) -> None:
    """Update the bar with the last run and the number of completed runs, from a message in the run's log."""
    said = one_of_all(entry)
    if said is not None:
        done, _, what = said
        progress.update(task, completed=done, description=printable(what))
