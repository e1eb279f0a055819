"""What Python is about to do, as it says so itself: every file that it opens, makes, moves or changes the mode of."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Listener = Callable[[str, tuple[Any, ...]], None]
"""Hears the name of an audit event and its arguments, before the event takes place."""

_LISTENERS: list[Listener] = []
_BUSY = threading.local()


_OF_FILES = ("open", "sqlite3.", "os.", "shutil.", "pathlib.")
"""Beginnings of the names of events that have to do with files; there are many others."""


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _LISTENERS or not event.startswith(_OF_FILES) or getattr(_BUSY, "yes", False):
        return
    _BUSY.yes = True  # what a listener does itself is not heard
    try:
        for listener in tuple(_LISTENERS):
            listener(event, arguments)
    finally:
        _BUSY.yes = False


sys.addaudithook(_hear)  # there is one for the life of the process: a hook cannot be taken away


def listen(listener: Listener) -> None:
    """Let a listener hear all events of files in this process from now on."""
    _LISTENERS.append(listener)


@contextmanager
def audited(listener: Listener) -> Iterator[None]:
    """Let a listener hear them while the body runs."""
    listen(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)
