"""Lock a folder for one run at a time. The operating system releases the lock when its process ends or is killed."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from od_core.errors import OdError
from od_core.files.durable import CONFIDENTIAL_FILE_MODE, make_folder

LOCK_NAME = "release.lock"
LOCK_SECONDS = 600.0


@contextmanager
def exclusive(folder: Path, *, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Lock a folder while this context lasts. Create the folder if it is missing.

    Args:
        folder: the folder.
        seconds: longest time to wait for another run.

    Raises:
        OdError: another run did not release the lock in this time.
    """
    make_folder(folder)
    deadline = time.monotonic() + seconds
    lock = os.open(folder / LOCK_NAME, os.O_CREAT | os.O_WRONLY, CONFIDENTIAL_FILE_MODE)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OdError(
                        "OD-RELEASE-LOCKED",
                        f"another release has been running for more than {seconds:.0f} seconds",
                        next_step="wait until it ends, then run this one again",
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(lock)
