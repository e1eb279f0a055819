"""Let an interrupt wait until a piece of work is finished that would be lost without its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask a process to end: from the keyboard, and from another program."""


@contextmanager
def finished_first() -> Iterator[None]:
    """Let a signal of :data:`INTERRUPTS` wait until this context ends. A second one does not wait.

    A draw that ends before its result is stored stays charged and is drawn again. Signals that are ignored stay so.
    Python handles signals in the main thread, so in any other thread this context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in INTERRUPTS}
    asked: list[int] = []

    def restore() -> None:
        for number, handler in before.items():
            if handler is not None:  # not set by Python
                signal.signal(number, handler)

    def wait(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        restore()

    for number, handler in before.items():
        if handler not in (None, signal.SIG_IGN):
            signal.signal(number, wait)
    try:
        yield
    finally:
        restore()
        if asked:
            signal.raise_signal(asked[0])
