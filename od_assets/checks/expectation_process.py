"""Check expectations in a process of its own, which imports Great Expectations while this process does other work.

The import takes two seconds of processor time, nearly as long as the draws and estimates of a small release. So
``od-release run`` starts the process before it imports Dagster. Where none was started, as in a run from Dagster's UI,
the expectations are checked in the calling process.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection

_CONNECTIONS: list[Connection] = []
"""The connection to the process of :func:`run_expectation_process` while it runs; otherwise empty."""


@contextmanager
def run_expectation_process() -> Iterator[None]:
    """Run the process while the context lasts; nothing is started if Great Expectations is imported here already.

    The process also ends if this process is killed, because the connection then closes.
    """
    if "great_expectations" in sys.modules:  # a second import in another process would gain nothing
        yield
        return
    connection, other_end = Pipe()
    with other_end:
        process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-m", __name__, str(other_end.fileno())],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # a traceback could quote records
            pass_fds=(other_end.fileno(),),
            process_group=0,  # this process handles interrupts from the keyboard
        )
    _CONNECTIONS.append(connection)
    try:
        yield
    finally:
        _CONNECTIONS.clear()
        connection.close()
        process.kill()
        process.wait()


def run_check(check: Callable[..., dict[str, bool]], *arguments: object, **options: object) -> dict[str, bool]:
    """Return the result of a check, such as ``check_record_expectations``, with the given arguments.

    It runs in the process of :func:`run_expectation_process` if there is one. If that process fails, the check runs
    again in this one, which raises its errors with all their details. Only one thread at a time may call this function,
    because answers do not name their questions.

    Args:
        check: function of a module, which can be pickled as its arguments can.
    """
    if _CONNECTIONS:
        try:
            _CONNECTIONS[0].send((check, arguments, options))
            met: dict[str, bool] = _CONNECTIONS[0].recv()
        except (OSError, EOFError):
            _CONNECTIONS.clear()
        else:
            return met
    return check(*arguments, **options)


def main() -> None:
    """Import Great Expectations, and answer checks until the other end of the connection is closed."""
    connection = Connection(int(sys.argv[1]))  # the number of the inherited file descriptor
    from od_assets.checks.expectations import import_expectations

    import_expectations()
    while True:
        try:
            check, arguments, options = connection.recv()
        except EOFError:
            return
        connection.send(check(*arguments, **options))


if __name__ == "__main__":
    main()
