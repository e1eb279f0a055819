"""Find and report runs whose process no longer exists.

Dagster never ends such runs, and they block the queue, which allows one run at a time.
"""

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
"""Time for a run to start and write its process into its tags; this takes seconds, or longer on a busy machine."""


def mark_process(instance: dg.DagsterInstance, run_id: str) -> None:
    """Write the process and the host of the caller into the tags of a run."""
    instance.add_run_tags(run_id, {HOST_TAG: socket.gethostname(), PROCESS_TAG: _process_name(os.getpid())})


def dead_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return every run that occupies the queue without a process.

    A run writes its process into its tags as soon as it has started. It is dead if that process was on this host and no
    longer exists. Without these tags, a starting run, or a started run of a release, is dead if it was not updated for
    :data:`PATIENCE`: it was killed while it started. If such a run starts later nevertheless, it is already reported as
    failed and does nothing.
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
    """Return the number of starting runs, dead or alive."""
    return instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING]))


def sweep_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Report every dead run as failed, free its concurrency slots, and return the run ids."""
    dead = dead_runs(instance)
    for run in dead:
        instance.report_run_failed(run, message="The process of this run no longer exists; run the release again.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in dead]


def _is_gone(run: dg.DagsterRun) -> bool:
    """Return whether the process in a run's tags was on this host and no longer exists."""
    process = run.tags.get(PROCESS_TAG)
    if run.tags.get(HOST_TAG) != socket.gethostname() or process is None:
        return False
    return process != _process_name(int(process.split("-")[0]))


def _marks_itself(run: dg.DagsterRun) -> bool:
    """Return whether a run belongs to a release series; only such runs always write their process into their tags."""
    chosen = chosen_series(run)
    return RELEASE_TAG in run.tags or (bool(chosen) and chosen <= set(declared_releases()))


def _process_name(pid: int) -> str:
    """Return a name for a process: on Linux, its id and its start time, which no later process has.

    On other systems, the name is the id and whether the id is in use.
    """
    try:
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19]
    except FileNotFoundError:
        start = "gone" if Path("/proc/self/stat").exists() else _alive(pid)
    return f"{pid}-{start}"


def _alive(pid: int) -> str:
    """Return ``alive`` if a process id is in use, else ``gone``; an id in use is assumed to be the same process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "alive"
    return "alive"


# Tags with the release, period and revision of a run.


RELEASE_TAG = "od/release"
PERIOD_TAG = "od/period"
REVISION_TAG = "od/revision"
EVERY_TAG = "od/every"
_PARTITION_TAG = "dagster/partition"


def release_tags(name: str, revision: int, every: str) -> dict[str, str]:
    """Return the tags in the definition of a release job, which all of its runs have."""
    return {RELEASE_TAG: name, REVISION_TAG: str(revision), EVERY_TAG: every}


def mark_release(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Write the period of a run into its tags.

    If the run has no tag of a series because it executes chosen assets of one series without the release job, write the
    series too.
    """
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
    """Return the names of the series to which a run's chosen assets belong; empty if the run executes a whole job."""
    return {key.path[0] for key in run.asset_selection or ()}
