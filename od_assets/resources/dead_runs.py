"""Runs whose process is gone: Dagster keeps them as started for ever, and they fill the queue of one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import dagster as dg

PROCESS_TAG = "od/process"
HOST_TAG = "od/host"


def mark_process(instance: dg.DagsterInstance, run_id: str) -> None:
    """Write into a run's tags which process of which host it is."""
    instance.add_run_tags(run_id, {HOST_TAG: socket.gethostname(), PROCESS_TAG: _process_name(os.getpid())})


def dead_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Every run of this host that Dagster takes for started and whose process is gone."""
    found = []
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING])):
        process = run.tags.get(PROCESS_TAG)
        if run.tags.get(HOST_TAG) != socket.gethostname() or process is None:
            continue
        if process != _process_name(int(process.split("-")[0])):
            found.append(run)
    return found


def sweep_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Report every dead run as failed, and free what it held; returns run ids."""
    dead = dead_runs(instance)
    for run in dead:
        instance.report_run_failed(run, message="The process of this run is gone; run the release again.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in dead]


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
