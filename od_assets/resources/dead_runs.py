"""Find runs whose process no longer exists and which would block the queue for ever, and report them as failed."""

import datetime
import multiprocessing
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import dagster as dg

from od_assets.compatibility import CHILD_PROCESS
from od_assets.failures import convert_errors_to_failures
from od_assets.project import find_current_project
from od_assets.series.partitions import parse_partition_key, split_partition_key
from od_assets.series.reading import list_declared
from od_assets.series.section import read_key_prefix
from od_assets.series.series import MAIN_TABLES, G, P, Series
from od_core.errors import OdError
from od_core.privacy.accounting import format_rounded_up

PROCESS_TAG, HOST_TAG, RUN_TAG = "od/process", "od/host", "od/run"
RELEASE_TAG, COMPARISON_TAG, SITE_TAG = "od/release", "od/comparison", "od/site"
PERIOD_TAG, REVISION_TAG, EVERY_TAG, RHO_TAG = "od/period", "od/revision", "od/every", "od/rho"
PARTITION_TAG = "dagster/partition"

TABLE_TAG = "od/table"
"""Tag with the name of a table whose rows share their assets, which its job states as the release of all its runs."""

UNATTENDED = {"dagster/schedule_name", "dagster/sensor_name", "dagster/from_automation_condition"}
"""Tags of runs that a schedule, a sensor or an automation condition requested, of which each has one at least."""

PATIENCE = datetime.timedelta(minutes=5)
"""Time for a run to start and to write its process into its tags, which takes longer on a busy machine."""

_ELSEWHERE = "elsewhere"
"""Process tag of a run whose steps an executor starts on other hosts."""


def mark_process(instance: dg.DagsterInstance, run_id: str) -> None:
    """Tag a run with its process, its host and its id, so that :func:`find_dead_runs` can find it.

    A run that executes another one again inherits that run's tags, also its id and its charges, which are reset to 0.
    If the executor starts a process for each step, the process of the run is the parent of the step's process. An
    executor that starts steps on other hosts monitors them itself, so the tag has no process.
    """
    if "execute_step" in sys.argv:
        process = _ELSEWHERE
    else:
        target = getattr(multiprocessing.current_process(), "_target", None)  # the parent of a run may be a code server
        is_of_a_step = getattr(target, "__module__", "") == CHILD_PROCESS
        process = _name_process(os.getppid() if is_of_a_step else os.getpid())
    marks = {HOST_TAG: socket.gethostname(), PROCESS_TAG: process, RUN_TAG: run_id}
    run = instance.get_run_by_id(run_id)
    if run is not None and RHO_TAG in run.tags and not _is_marked(run):
        marks[RHO_TAG] = "0"
    instance.add_run_tags(run_id, marks)


@contextmanager
def run_public_step(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Mark the run's process, and convert errors to failures, in a step that reads no confidential data.

    Such a step does not use the warehouse, which would mark the process otherwise.
    """
    mark_process(context.instance, context.run.run_id)
    with convert_errors_to_failures():
        yield


def find_dead_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return every run of a release that occupies the queue without a process.

    A run writes its process into its tags as soon as it has started. It is dead if that process was on this host and no
    longer exists. Without these tags, a run of a release that Dagster starts on this host is dead if it was not updated
    for :data:`PATIENCE`: it was killed while it started. If such a run starts later nevertheless, it is already
    reported as failed and does nothing. Runs that Dagster starts elsewhere, and runs of other jobs, are never dead.
    """
    status = dg.DagsterRunStatus
    begun = instance.get_runs(dg.RunsFilter(statuses=[status.STARTED, status.CANCELING]))
    dead = [run for run in begun if _is_gone(run)]
    are_started_here = type(instance.run_launcher).__module__.startswith("dagster.")  # others are of other packages
    if are_started_here:
        heard_before = datetime.datetime.now(datetime.UTC) - PATIENCE
        statuses = [status.STARTING, status.STARTED, status.CANCELING]
        silent = instance.get_runs(dg.RunsFilter(statuses=statuses, updated_before=heard_before))
        dead += [run for run in silent if not _is_marked(run) and _is_self_marking(run)]
    return dead


def sweep_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Report every run of :func:`find_dead_runs` as failed, free its concurrency slots, and return the run ids."""
    dead = find_dead_runs(instance)
    for run in dead:
        instance.report_run_failed(run, message="The process of this run no longer exists; run the release again.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in dead]


def _is_marked(run: dg.DagsterRun) -> bool:
    """Return whether a run has written its process into its tags, rather than inherited the tags of another run."""
    return PROCESS_TAG in run.tags and run.tags.get(RUN_TAG, run.run_id) == run.run_id


def _is_gone(run: dg.DagsterRun) -> bool:
    """Return whether the process that a run has written into its tags was on this host and no longer exists."""
    if not _is_marked(run) or run.tags.get(HOST_TAG) != socket.gethostname():
        return False
    process = run.tags[PROCESS_TAG]
    return process != _ELSEWHERE and process != _name_process(int(process.split("-")[0]))


def _is_self_marking(run: dg.DagsterRun) -> bool:
    """Return whether a run must have written its process into its tags by now: of a release, comparison or the site.

    A run of chosen assets counts if they are of declared series. If other assets were chosen, too, it counts only until
    it has started, because those of the team may run first, and take long.
    """
    if {RELEASE_TAG, COMPARISON_TAG, SITE_TAG} & run.tags.keys():
        return True
    try:
        prefix = "".join(read_key_prefix(find_current_project()))
        chosen = {name.removeprefix(f"{prefix}_") for name in list_selected_series(run, prefix)}
        declared = {source.graph for source in list_declared()}
        has_begun = run.status == dg.DagsterRunStatus.STARTED
        return not chosen.isdisjoint(declared) and (chosen <= declared or not has_begun)
    except OdError:  # this process has no current project, so it does not know the names
        return False


def _name_process(pid: int) -> str:
    """Return a text that identifies a process: its id and its start time, which no later process has."""
    try:
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        start = "gone"
    return f"{pid}-{start}"


def mark_release(instance: dg.DagsterInstance, run: dg.DagsterRun, prefix: str = "") -> None:
    """Add the series, table and period of a release to the tags of its run, as far as they are known before its steps.

    The series is known if the assets of only one are chosen; the table, if its rows share their assets; the period, if
    the tags state the length of periods. ``prefix`` is that of the project's asset keys; empty if it has none.
    """
    marks = {}
    selected_series = list_selected_series(run, prefix)
    if RELEASE_TAG not in run.tags and len(selected_series) == 1:
        marks[RELEASE_TAG] = selected_series.pop()
    name = marks.get(RELEASE_TAG) or run.tags.get(RELEASE_TAG)
    _, row = split_partition_key(run.tags.get(PARTITION_TAG, ""))
    if row and name is not None and TABLE_TAG not in run.tags:
        marks |= {TABLE_TAG: name, RELEASE_TAG: f"{prefix}_{row}" if prefix else row}
    period = find_run_period(run.tags)
    if EVERY_TAG in run.tags and period is not None:
        marks[PERIOD_TAG] = period
    if marks:
        instance.add_run_tags(run.run_id, marks)


def make_run_tags(series: Series[P, G]) -> dict[str, str]:
    """Return the tags of all runs of a release of a series."""
    tags = {RELEASE_TAG: series.name, REVISION_TAG: str(series.revision), EVERY_TAG: series.periods.every}
    return tags if series.graph == series.name else tags | {TABLE_TAG: series.graph}


def find_run_graph(tags: Mapping[str, str]) -> str:
    """Return the graph of a run of a release, given its tags; see :attr:`od_assets.series.series.Series.graph`."""
    return tags.get(TABLE_TAG, tags[RELEASE_TAG])


def find_run_period(tags: Mapping[str, str]) -> str | None:
    """Return the period of a run with these tags; its partition if they do not state the length of its periods.

    Return None if the run has no partition.
    """
    partition, length = tags.get(PARTITION_TAG), tags.get(EVERY_TAG)
    if partition is None or length is None:
        return None if partition is None else split_partition_key(partition)[0]
    return parse_partition_key(partition, length).text


def mark_charge(instance: dg.DagsterInstance, run_id: str, charged: Sequence[Fraction]) -> None:
    """Add charges, as rho, to the total in the tag of a run. Without charges, the tags of the run stay as they are."""
    run = instance.get_run_by_id(run_id) if charged else None
    if run is not None:
        total = sum(charged, start=Fraction(run.tags.get(RHO_TAG, "0")))
        instance.add_run_tags(run_id, {RHO_TAG: format_rounded_up(total)})


def list_selected_series(run: dg.DagsterRun, prefix: str = "") -> set[str]:
    """Return the names of the series whose assets a run selects; empty if the run executes a whole job.

    Of assets of the team, the beginnings of the keys are among the names, since nothing tells them apart here.

    The key of a published table is the name of its series with that of the table, such as ``us_flights_flows``.
    """
    length = 2 if prefix else 1  # parts of the path of a series
    ending_of_table = f"_({'|'.join(name for name, _ in MAIN_TABLES.values())})$"
    names = set()
    for key in run.asset_selection or ():
        is_table = len(key.path) <= length
        names.add(re.sub(ending_of_table, "", "_".join(key.path)) if is_table else "_".join(key.path[:length]))
    return names
