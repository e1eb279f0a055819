"""Run the jobs of releases and of comparisons of mechanisms in this process, and report their progress."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterEventType, EventLogEntry
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from od_assets.assets.steps import parse_progress_message
from od_assets.code_location import load_definitions, make_unloadable_error
from od_assets.compatibility import MAX_RETRIES_TAG, execute_with_origin
from od_assets.components.project import build_comparison_definitions, refuse_unloadable
from od_assets.failures import describe_failures, name_asset_of_step, open_dagster_instance
from od_assets.interrupts import refuse_if_interrupted
from od_assets.project import find_current_project
from od_assets.resources.warehouse import Warehouse
from od_assets.series.comparison import Comparison
from od_assets.series.series import G, P, Series
from od_assets.terminal import PlainConsole, escape_unprintable
from od_core import Ledger, OdError, Plan, ReleaseKey
from od_core.ledger.chain import MEASURED
from od_core.periods import Period
from od_core.privacy.accounting import round_up_to_float
from od_core.privacy.domain import is_of_uncounted
from od_core.privacy.plan import Step
from od_core.publication.bundle_files import CERTIFICATE
from od_core.publication.certificate import read_certificate
from od_core.publication.kind import Kind

UpdateBar = Callable[[Progress, TaskID, EventLogEntry], None]
"""Function that updates the progress bar for an entry of the run's log."""


@contextmanager
def show_progress(
    instance: dg.DagsterInstance, run_id: str, title: str, update_bar: UpdateBar, total: int, *, transient: bool
) -> Iterator[None]:
    """Show a progress bar on standard error during this context, in which a run is executed.

    Args:
        run_id: id of the run, which need not have started.
        title: text beside the bar before the run starts and after it ends.
        update_bar: function that is called for each entry of the run's log.
        total: number of steps or parts of the run.
        transient: whether the bar is removed afterwards, and nothing is written unless standard error is a terminal.
    """
    console = PlainConsole(stderr=True)
    description = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
    columns = (SpinnerColumn(), description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    if transient and not console.is_terminal:  # following the log takes a tenth of a small run's time
        yield
        return
    with Progress(*columns, console=console, transient=transient) as progress:
        task = progress.add_task(escape_unprintable(title), total=total)

        def advance(entry: EventLogEntry, _cursor: str) -> None:
            update_bar(progress, task, entry)

        instance.watch_event_logs(run_id, None, advance)
        try:
            yield
        finally:
            instance.end_watch_event_logs(run_id, advance)
            progress.update(task, description=escape_unprintable(title))


def make_step_updater(title: str, series: str) -> UpdateBar:
    """Return a function that updates a progress bar with the current step and the number of completed steps.

    A step that reports its progress is completed in part. The text beside the bar is ``title`` and the name of the
    step; ``series`` is the series or comparison, as in :func:`od_assets.failures.name_asset_of_step`.
    """
    completed = 0

    def update_bar(progress: Progress, task: TaskID, entry: EventLogEntry) -> None:
        nonlocal completed
        event, step_progress = entry.dagster_event, parse_progress_message(entry)
        if step_progress is not None:
            number, parts, name = step_progress
            progress.update(
                task, completed=completed + number / parts, description=escape_unprintable(f"{title}: {name}")
            )
        if event is None:
            return
        if event.event_type == DagsterEventType.STEP_START:
            progress.update(
                task, description=escape_unprintable(f"{title}: {name_asset_of_step(event.step_key, series)}")
            )
        elif event.event_type == DagsterEventType.STEP_SUCCESS:
            completed += 1
            progress.update(task, completed=completed)

    return update_bar


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run for one period."""

    facts: dict[str, Any]
    """Public and JSON-ready facts: the certificate and the balance, or the failures."""
    release: Any = None
    """The published release; None if the run failed."""
    kind: Kind[Any] | None = None
    """Kind of the published release; None if the run failed."""


def find_release_job(series: Series[P, G]) -> dg.JobDefinition:
    """Return the release job of a series, from the definitions of the project.

    Raises OdError if there is no warehouse, or the definitions cannot be loaded or have jobs that Dagster refuses. If
    the series has a fault of its own, for which it was left out, the error names that fault.
    """
    definitions = load_definitions()
    if "od_warehouse" not in (definitions.resources or {}):
        message = "the project declares no warehouse, which all of its releases share"
        step = "declare one: dg scaffold defs od_assets.components.OdWarehouse warehouse"
        raise OdError("OD-WAREHOUSE-ABSENT", message, next_step=step)
    try:
        return definitions.resolve_job_def(f"{series.graph}_release")
    except Exception as error:  # noqa: BLE001  # any exception of the project's code; no record is involved
        refuse_unloadable(series)
        raise make_unloadable_error(error) from None


def execute_job(
    job: dg.JobDefinition, instance: dg.DagsterInstance, run_id: str, partition: str | None
) -> dg.ExecuteInProcessResult:
    """Execute a job in this process, and return Dagster's result.

    Between steps, Dagster itself handles interrupts, as it does in its own commands: a run that is interrupted is
    reported as failed. The UI shows the run as one of the code location of the project. Raises Interrupted if the run
    was interrupted before it succeeded.
    """
    silent = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    result = execute_with_origin(
        job,
        instance,
        find_current_project().location,
        partition_key=partition,
        run_id=run_id,
        run_config=silent if "console" in job.loggers else {},  # a project may have other loggers
        tags={"od/launched_by": "od-release", MAX_RETRIES_TAG: "0"},  # only its caller repeats it
    )
    if not result.success:
        refuse_if_interrupted()
    return result


def run_period(series: Series[P, G], job: dg.JobDefinition, period: str, *, quiet: bool) -> Outcome:
    """Run the release job for one period, and return the outcome. Show progress on standard error unless ``quiet``.

    A failed run is an outcome, too. Raises Interrupted if the run was interrupted.
    """
    key = series.key(period)
    warehouse = Warehouse()
    ledger = warehouse.ledger
    measured_before = ledger.list_level_kinds(key).count(MEASURED)
    with open_dagster_instance() as instance:
        run_id = str(uuid.uuid4())
        update_bar = make_step_updater(str(key), series.graph)
        bar = show_progress(instance, run_id, str(key), update_bar, len(job.nodes), transient=True)
        with nullcontext() if quiet else bar:
            result = execute_job(job, instance, run_id, series.format_partition(Period(period)))
        failures = [] if result.success else describe_failures(result.all_events, series.graph)
    if not result.success:
        is_public = ledger.is_published(key)
        lines = failures or ["the run did not start"]
        return Outcome({"release": str(key), "published": False, "was_public": is_public, "failures": lines})
    bundle = warehouse.locate_bundle(key)
    kind = series.kind
    release = kind.open(bundle)
    facts = dict(read_certificate(bundle / CERTIFICATE)) | {
        "published": True,
        "settings_changed": any(event.is_step_skipped for event in result.all_events),
        **_describe_spending(ledger, series.domain.name, key, release.plan, measured_before),
        f"{kind.contents.replace(' ', '_')}_by_level": kind.make_summary(release).to_dict("records"),
        "bundle": str(bundle),
        "database": str(warehouse.database),
    }
    return Outcome(facts, release, kind)


def _describe_spending(
    ledger: Ledger, data_set: str, key: ReleaseKey, plan: Plan, measured_before: int
) -> dict[str, object]:
    """Return JSON-ready facts: what a run has drawn, what its data set has left, and what was spent without a result.

    The latter are lost draws of the release, and releases of its period that are not published. Amounts have the name
    of their measure, rho or epsilon. ``measured_before`` is the number of steps that were measured before the run.
    """
    with ledger.one_look():
        balance = ledger.balance(data_set, key.period)
        measure = balance.measure
        published = set(map(str, ledger.list_published_releases()))
        steps = {step.number: step for step in plan.charged_steps}
        return {
            "drawn": ledger.list_level_kinds(key).count(MEASURED) - measured_before,
            "measurements": len(plan.charged_steps),
            f"cap_{measure}": round_up_to_float(balance.cap),
            f"left_{measure}": float(balance.left),
            "lost_draws": [
                {"measured": _describe_step(steps[number]), measure: round_up_to_float(charge.select_amount(measure))}
                for number, charge in ledger.list_lost_draws(key)
            ],
            "unpublished": [
                {"release": name, measure: round_up_to_float(amount)}
                for name, amount in sorted(balance.charged.items())
                if name not in published
            ],
        }


def _describe_step(step: Step) -> str:
    """Return what a step measures in words, such as ``level 3 by mode``."""
    if is_of_uncounted(step.noise_facts):
        return "uncounted trips"
    side = step.noise_facts.get("area_totals")
    if side:
        return f"area totals ({side})"
    breakdown = step.noise_facts.get("breakdown")
    return f"level {step.level}" + (f" by {breakdown}" if breakdown else "")


def run_comparison(comparison: Comparison, to: Path | None = None) -> list[str]:
    """Make the missing runs of a comparison, then its tables and figures, and return one line for each failed step.

    Progress is shown on standard error. If all steps succeed, tables and figures are copied to the folder ``to``, if
    given. Raises OdError if the declaration is wrong, and Interrupted if a run was interrupted.
    """
    definitions = build_comparison_definitions(comparison)
    failures: list[str] = []
    with open_dagster_instance() as instance:
        jobs = [(f"{comparison.name}_runs", data_set) for data_set in comparison.data_sets]
        for name, data_set in [*jobs, (f"{comparison.name}_report", None)]:
            run_id, job = str(uuid.uuid4()), definitions.resolve_job_def(name)
            title = data_set or "tables and figures"
            update_bar = _update_run_progress if data_set else make_step_updater(title, comparison.name)
            total = len(comparison.list_runs(data_set)) if data_set else len(job.nodes)
            with show_progress(instance, run_id, title, update_bar, total, transient=False):
                result = execute_job(job, instance, run_id, data_set)
            failures += describe_failures(result.all_events, comparison.name)
    if to is not None and not failures:
        to.mkdir(parents=True, exist_ok=True)
        for pattern in ("tables.md", "comparison.parquet", "*.png", "*.svg"):
            for file in comparison.folder.glob(pattern):
                shutil.copyfile(file, to / file.name)
    return failures


def _update_run_progress(progress: Progress, task: TaskID, entry: EventLogEntry) -> None:
    """Update the bar with the last run and the number of completed runs, from a message in the run's log."""
    run_progress = parse_progress_message(entry)
    if run_progress is not None:
        done, _, case = run_progress
        progress.update(task, completed=done, description=escape_unprintable(case))
