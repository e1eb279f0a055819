"""Runs whose process is gone: Dagster keeps them for ever as starting or started, and they fill the queue of one."""

from __future__ import annotations

import datetime
import os
import socket
from pathlib import Path

import dagster as dg

from od_assets.series.declared_names import declared_releases
from od_assets.series.partitions import period_of

PROCESS_TAG = "od/process"
HOST_TAG = "od/host"

PATIENCE = datetime.timedelta(minutes=5)
"""For a run to start in, and to say which process it is. That takes seconds; the machine may be busy."""


def mark_process(instance: dg.DagsterInstance, run_id: str) -> None:
    """Write into a run's tags which process of which host it is."""
    instance.add_run_tags(run_id, {HOST_TAG: socket.gethostname(), PROCESS_TAG: _process_name(os.getpid())})


def dead_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return every run that fills the queue and that no process is behind.

    A run says which process it is as soon as it has started; it is dead once that process, of this host, is gone. One
    that never said so is dead when nothing was heard of it for :data:`PATIENCE`: it was killed while it started. If it
    comes after all, it finds itself reported as failed, and does nothing.
    """
    status = dg.DagsterRunStatus
    heard_before = datetime.datetime.now(datetime.UTC) - PATIENCE
    begun = instance.get_runs(dg.RunsFilter(statuses=[status.STARTED, status.CANCELING]))
    silent = dg.RunsFilter(statuses=[status.STARTING, status.STARTED, status.CANCELING], updated_before=heard_before)
    unmarked = [run for run in instance.get_runs(silent) if PROCESS_TAG not in run.tags]
    return [run for run in begun if _is_gone(run)] + [
        run for run in unmarked if run.status == status.STARTING or _marks_itself(run)
    ]


def starting_runs(instance: dg.DagsterInstance) -> int:
    """Return how many runs are starting, dead or not."""
    return instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING]))


def sweep_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Report every dead run as failed, and free what it held; returns run ids."""
    dead = dead_runs(instance)
    for run in dead:
        instance.report_run_failed(run, message="The process of this run is gone; run the release again.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in dead]


def _is_gone(run: dg.DagsterRun) -> bool:
    """Whether the process that a run said it is, on this host, is gone."""
    process = run.tags.get(PROCESS_TAG)
    if run.tags.get(HOST_TAG) != socket.gethostname() or process is None:
        return False
    return process != _process_name(int(process.split("-")[0]))


def _marks_itself(run: dg.DagsterRun) -> bool:
    """Whether a run is of a release, and so says which process it is; others may be silent for as long as they like."""
    chosen = chosen_series(run)
    return RELEASE_TAG in run.tags or (bool(chosen) and chosen <= set(declared_releases()))


def _process_name(pid: int) -> str:
    """A name that no later process takes: number and start time (Linux), or the number alone where it lives."""
    try:
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19]
    except FileNotFoundError:
        start = "gone" if Path("/proc/self/stat").exists() else _alive(pid)
    return f"{pid}-{start}"


def _alive(pid: int) -> str:
    """Without a process file system a number that lives is taken for the same process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "alive"
    return "alive"


# Run tags that say which release, period and revision a run is of.


RELEASE_TAG = "od/release"
PERIOD_TAG = "od/period"
REVISION_TAG = "od/revision"
EVERY_TAG = "od/every"
_PARTITION_TAG = "dagster/partition"


def release_tags(name: str, revision: int, every: str) -> dict[str, str]:
    """What every run of a release job carries from its definition."""
    return {RELEASE_TAG: name, REVISION_TAG: str(revision), EVERY_TAG: every}


def mark_release(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Write into a run's tags which period it is of, and of chosen assets, which have no job of ours, which series."""
    marks = {}
    series = chosen_series(run)
    if RELEASE_TAG not in run.tags and len(series) == 1:
        marks[RELEASE_TAG] = series.pop()
    if _PARTITION_TAG in run.tags:
        partition, every = run.tags[_PARTITION_TAG], run.tags.get(EVERY_TAG)
        marks[PERIOD_TAG] = partition if every is None else period_of(partition, every).text
    if marks:
        instance.add_run_tags(run.run_id, marks)


def chosen_series(run: dg.DagsterRun) -> set[str]:
    """Return the series, or prefixes of others' keys, that a run of chosen assets has; none for a whole job."""
    return {key.path[0] for key in run.asset_selection or ()}
