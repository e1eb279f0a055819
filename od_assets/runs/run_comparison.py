"""Run a comparison of mechanisms with its Dagster jobs, in this process."""

from __future__ import annotations

import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from dagster import EventLogEntry
from rich.progress import Progress, TaskID

from od_assets.components.od_comparison import comparison_definitions
from od_assets.engines.step_messages import one_of_all
from od_assets.failures import step_failures
from od_assets.instance import dagster_instance
from od_assets.project import current_project
from od_assets.runs.run_period import by_step, execute, followed, number_of_steps
from od_assets.series.comparison import Comparison, KnownTableSection, TableColumns
from od_assets.series.reading import comparison
from od_core.errors import OdError
from od_core.evaluation.comparison import EPSILONS

REPORT_FILES = ("tables.md", "comparison.parquet", "*.png", "*.svg")
"""Patterns of the files that are copied from the folder of a comparison."""


@dataclass(frozen=True)
class Compared:
    """The outcome of a comparison.

    Attributes:
        folder: folder of its tables and figures.
        failures: lines, one for each failed step; empty if all steps succeeded.
    """

    folder: Path
    failures: tuple[str, ...]


def given_table(
    flows: Path, zones: Path, levels: list[str], trips: str | None, marked: str | None, *, one_row_a_trip: bool = False
) -> Comparison:
    """Return the comparison on one table, named after its file. Raises OdError if the table is not marked.

    The arguments are fields of :class:`od_assets.series.comparison.KnownTableSection`.
    """
    name = re.sub(r"\W+", "_", flows.stem).strip("_").lower() or "table"
    section = KnownTableSection(
        name=name,
        marked=marked,
        flows=str(flows.resolve()),
        zones=str(zones.resolve()),
        levels=levels,
        columns=TableColumns(trips=trips),
        one_row_a_trip=one_row_a_trip,
    )
    section.reader(current_project())
    return Comparison(
        name=f"table_{name}", owners=["team:statistics"], tables=[section], mechanisms=None, epsilons=[*EPSILONS]
    )


def declared_or_given(
    name: str | None,
    flows: Path | None,
    zones: Path | None,
    levels: str,
    trips: str | None,
    marked: str | None,
    *,
    one_row_a_trip: bool = False,
) -> Comparison:
    """Return the declared comparison with a name, or a comparison on the given files; see :func:`given_table`.

    Raises:
        OdError: a name and files are given, or only some of the files and levels.
    """
    if flows is None and zones is None:
        return comparison(name or "comparison")
    if name is not None or flows is None or zones is None or not levels:
        raise OdError(
            "OD-EVALUATION-TABLE",
            "your own table needs --flows, --zones and --levels, without the name of a declared comparison",
            next_step="give all three options, or none of them",
        )
    names = [level.strip() for level in levels.split(",")]
    return given_table(flows, zones, names, trips, marked, one_row_a_trip=one_row_a_trip)


def run_comparison(settings: Comparison, to: Path | None = None) -> Compared:
    """Make the missing runs of a comparison, then its tables and figures, and return the outcome.

    Progress is shown on standard error.

    Args:
        settings: the comparison.
        to: folder to which tables and figures are copied if all steps succeed.
    """
    definitions = comparison_definitions(settings)
    failures: list[str] = []
    with dagster_instance() as instance:
        jobs = [(f"{settings.name}_runs", data_set) for data_set in settings.data_sets]
        for name, data_set in [*jobs, (f"{settings.name}_report", None)]:
            run_id, job = str(uuid.uuid4()), definitions.resolve_job_def(name)
            if data_set is None:
                title = "tables and figures"
                bar = followed(instance, run_id, title, by_step(title), number_of_steps(job), transient=False)
            else:
                runs = len(settings.planned(data_set))
                bar = followed(instance, run_id, data_set, _by_run, runs, transient=False)
            with bar:
                result = execute(job, instance, run_id, data_set)
            failures += step_failures(result.all_events)
    if to is not None and not failures:
        to.mkdir(parents=True, exist_ok=True)
        for file in (file for kind in REPORT_FILES for file in settings.folder.glob(kind)):
            shutil.copyfile(file, to / file.name)
    return Compared(settings.folder if to is None else to, tuple(failures))


def _by_run(progress: Progress, task: TaskID, entry: EventLogEntry) -> None:
    """Update the bar with the last run and the number of completed runs, from a message in the run's log."""
    said = one_of_all(entry)
    if said is not None:
        done, _, what = said
        progress.update(task, completed=done, description=what)
