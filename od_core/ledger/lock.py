"""Lock a folder for one run at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from od_core.errors import OdError
from od_core.files.durable import make_folder
from od_core.files.lock import locked

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
    held = OdError(
        "OD-RELEASE-LOCKED",
        f"another release has been running for more than {seconds:.0f} seconds",
        next_step="wait until it ends, then run this one again",
    )
    with locked(folder / LOCK_NAME, held, seconds=seconds):
        yield
