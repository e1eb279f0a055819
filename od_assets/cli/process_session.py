"""Run a program with all of its child processes as one session, and end them together."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from od_assets.cli import ExitCode

_SECONDS_TO_END = 30
"""Time in seconds for a session to end by itself. Dagster needs up to two seconds, and a run keeps its last draw."""

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_in_process_session(command: Sequence[str]) -> int:
    """Run a program in a session of its own, and end the whole session when this process is told to end.

    A shell lets background programs ignore SIGINT, and Dagster's servers treat SIGTERM like SIGINT, so the program
    starts with default signal handlers. Its standard input is a pipe that closes when this process ends. Return the
    exit code of the program; ``DONE`` if this process was told to end.
    """
    for number in _ENDING_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # set by nohup
            signal.signal(number, _raise_ended_error)
    process = None
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603  # our own command
        return process.wait()
    except _EndedError:
        return ExitCode.DONE
    finally:
        for number in _ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if process is not None:
            _end_session(process)


class _EndedError(BaseException):
    """The exception that a signal handler raises when this process is told to end."""


def _raise_ended_error(*_: object) -> None:
    """Raise _EndedError, as the handler of the signals that tell this process to end."""
    raise _EndedError


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Tell all processes of a session to end, and kill those that still run after :data:`_SECONDS_TO_END`."""
    deadline = time.monotonic() + _SECONDS_TO_END
    with suppress(ProcessLookupError):  # as soon as the session has no process any more
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()  # an ended process stays in the session until it is waited for
            os.killpg(process.pid, 0)  # signal 0 only asks whether there is a process
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":  # a module that imports little, since it stays in memory as long as the session
    sys.exit(run_in_process_session(sys.argv[1:]))
