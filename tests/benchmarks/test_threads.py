"""The busy processes beside a benchmark: ended whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.threads import busy_processes

ROOT = Path(__file__).parents[2]
HOLDER = (
    "import time\n"
    "from benchmarks.threads import busy_processes\n"
    "with busy_processes(2) as processes:\n"
    "    print(*[process.pid for process in processes], flush=True)\n"
    "    time.sleep(60)\n"
)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def waited_for(wanted, seconds: float = 300) -> bool:
    end = time.monotonic() + seconds
    while not wanted():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_busy_until_the_end():
    with busy_processes(2) as processes:
        assert len(processes) == 2
        assert all(waited_for(lambda p=process: processor_seconds(p.pid) > 0.3) for process in processes)
    assert all(process.poll() is not None for process in processes)


def test_ended_on_an_error():
    started = []

    def fail() -> None:
        with busy_processes(2) as processes:
            started.extend(processes)
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert [process.poll() is not None for process in started] == [True, True]


def test_ended_when_the_benchmark_is_killed():
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in holder.stdout.readline().split()]
    try:
        assert len(pids) == 2
        assert all(map(running, pids))
    finally:
        holder.kill()
        holder.communicate()
    ended = waited_for(lambda: not any(map(running, pids)))
    for pid in filter(running, pids):
        os.kill(pid, signal.SIGKILL)
    assert ended
