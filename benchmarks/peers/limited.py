"""Run a program with limits of time and memory, and measure what it used, its own processes included."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_SECONDS = 600.0
MOST_GIGABYTES = 8.0
WAITING = 3
"""A program that is kept waiting by others has so many times the limit of elapsed time for that of processor time."""

EVERY = 0.2
"""Seconds between two looks at the processes."""

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Used:
    """What a program used, and why it did not finish, or an empty text.

    Attributes:
        fault: ``time``, ``memory``, or the last line that the program wrote to standard error.
        seconds: elapsed time.
        processor_seconds: of all its processes, as often as they were looked at.
        gigabytes: largest resident memory of all its processes together.
    """

    fault: str
    seconds: float
    processor_seconds: float
    gigabytes: float


def run_limited(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    most_seconds: float = MOST_SECONDS,
    most_gigabytes: float = MOST_GIGABYTES,
) -> Used:
    """Run a command in a session of its own, and end the session where it exceeds a limit.

    The limit of time is exceeded by elapsed and processor seconds both, or by three times as many elapsed seconds.
    """
    start, processors, most, fault = time.perf_counter(), dict[int, float](), 0.0, ""
    with subprocess.Popen(  # noqa: S603  # a contender
        command,
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as child:
        errors = ""
        while True:
            try:
                _, errors = child.communicate(timeout=EVERY)
                break
            except subprocess.TimeoutExpired:
                looked = {pid: used for pid, *used in _of_session(child.pid)}
                processors |= {pid: seconds for pid, (seconds, _) in looked.items()}
                gigabytes = sum(each for _, each in looked.values())
                most = max(most, gigabytes)
                elapsed = time.perf_counter() - start
                late = min(elapsed, sum(processors.values())) > most_seconds or elapsed > WAITING * most_seconds
                if late or gigabytes > most_gigabytes:
                    fault = "time" if late else "memory"
                    os.killpg(child.pid, signal.SIGKILL)
    if child.returncode and not fault:
        fault = (errors.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return Used(fault, time.perf_counter() - start, sum(processors.values()), most)


def _of_session(session: int) -> Iterator[tuple[int, float, float]]:
    """Yield the number, processor seconds and resident gigabytes of each process of a session."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                fields = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session:
                yield int(process.name), (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE / 1e9
