"""A server of our own for as long as a test needs it; it ends with all of its children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


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
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
