"""Lock a file for one process at a time. The operating system releases the lock when the process ends or is killed."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from od_core.errors import OdError
from od_core.files.durable import CONFIDENTIAL_FILE_MODE


def is_locked(file: Path) -> bool:
    """Return whether a process has locked a file with :func:`locked`, or may have: the file cannot be opened."""
    try:
        lock = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


@contextmanager
def locked(file: Path, held: OdError, *, seconds: float) -> Iterator[None]:
    """Lock a file while this context lasts. Create the file if it is missing; its folder must exist.

    Args:
        file: the file, which has no content and is never removed.
        held: error to raise if another process, or another context of this one, keeps the lock for too long.
        seconds: longest time to wait.

    Raises:
        OdError: ``held``.
    """
    deadline = time.monotonic() + seconds
    lock = os.open(file, os.O_CREAT | os.O_WRONLY, CONFIDENTIAL_FILE_MODE)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise held from None
                time.sleep(0.05)
        yield
    finally:
        os.close(lock)
