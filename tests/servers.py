"""A server of our own for as long as a test needs it; it ends with all of its children."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

UI = [
    sys.executable,
    "-c",
    "import sys; from od_assets.cli.app import main; sys.argv = ['od-release', 'ui', '--port', '0']; main()",
]
"""The Dagster UI of a project, at any port that is free."""

PATIENCE = 240
"""Seconds, at most, for what takes a tenth of them on a machine that does nothing else."""


def wait_until(is_so: Callable[[], bool], log: Path) -> None:
    """Look again and again; what the server has said is the failure."""
    for _ in range(PATIENCE * 10):
        if is_so():
            return
        time.sleep(0.1)
    pytest.fail(log.read_text(encoding="utf-8")[-3000:])


def printed_address(log: Path) -> tuple[str, str]:
    """The address that ``od-release ui`` has printed, and the token in it, once it is there."""
    found: list[re.Match[str] | None] = []

    def is_printed():
        found.append(re.search(r"(http://localhost:\d+)/\?token=(\S+)", log.read_text(encoding="utf-8")))
        return found[-1] is not None

    wait_until(is_printed, log)
    assert found[-1] is not None
    return found[-1][1], found[-1][2]


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def processes_with(entry: str) -> list[int]:
    """Every process of this machine whose environment, as it began, has such an entry."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended, or is of somebody else
            if entry.encode() in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


@contextmanager
def serving(
    command: Sequence[str | Path], folder: Path, environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The running command, a session of its own; what it says goes to the log."""
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield server
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
