"""End a command when it is interrupted: after the draw at hand, with the signal, and with what was not done."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

from od_core.errors import STAYS_CHARGED, OdError
from od_core.parallel import INTERRUPTS

T = TypeVar("T")

_RECEIVED_SIGNALS: list[int] = []
"""Numbers of the signals that this process received in :func:`handle_interrupts`, in their order."""

_PIPE: list[int] = []
"""Both ends of the pipe to which Python writes the number of each signal, even if Dagster handles the signal."""


class Interrupted(BaseException):  # as KeyboardInterrupt, it is no error
    """The exception that ends a command which a signal interrupted.

    Attributes:
        number: number of the signal.
        left: what was not done, in words; empty if the command has one piece of work.
    """

    def __init__(self, number: int, left: str = "") -> None:
        super().__init__(number, left)
        self.number, self.left = number, left

    def to_error(self) -> OdError:
        """Return the OdError that names the signal and what was left undone."""
        message = f"stopped by {signal.Signals(self.number).name}" + (f": {self.left}" if self.left else "")
        step = "run the same command again; it reads back what was measured"
        return OdError("OD-INTERRUPTED", message, next_step=step, spent=STAYS_CHARGED)


@contextmanager
def handle_interrupts() -> Iterator[None]:
    """Raise :class:`Interrupted` at the signals of :data:`INTERRUPTS` in this context, even if they were ignored.

    A shell lets programs in the background ignore SIGINT, and Dagster would then ignore SIGTERM, too. Outside the main
    thread, signals cannot be handled, and the context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers_before = {number: signal.signal(number, _raise_interrupted) for number in INTERRUPTS}
    _PIPE[:] = os.pipe()
    for end in _PIPE:
        os.set_blocking(end, False)
    signal.set_wakeup_fd(_PIPE[1], warn_on_full_buffer=False)
    previous_hook = sys.unraisablehook

    def pass_on_unless_interrupt(ignored: "sys.UnraisableHookArgs") -> None:
        if not isinstance(ignored.exc_value, Interrupted):  # the pipe has the number of a signal in a finalizer
            previous_hook(ignored)

    sys.unraisablehook = pass_on_unless_interrupt
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        signal.set_wakeup_fd(-1)
        for number, handler in handlers_before.items():
            signal.signal(number, handler)
        for end in _PIPE:
            os.close(end)
        _PIPE.clear()
        _RECEIVED_SIGNALS.clear()


def _raise_interrupted(number: int, _frame: FrameType | None) -> None:
    """Raise Interrupted, as the handler of the signals that interrupt a command."""
    raise Interrupted(number)


def get_received_signal() -> int | None:
    """Return the number of the first signal that interrupted this process in :func:`handle_interrupts`, or None.

    It is also known if Dagster or DuckDB caught the signal, whose own errors do not state it.
    """
    if _PIPE:
        with suppress(BlockingIOError):  # nothing was received since
            _RECEIVED_SIGNALS.extend(number for number in os.read(_PIPE[0], 512) if number in INTERRUPTS)
    return _RECEIVED_SIGNALS[0] if _RECEIVED_SIGNALS else None


def refuse_if_interrupted() -> None:
    """Raise :class:`Interrupted` if this process was asked to end."""
    number = get_received_signal()
    if number is not None:
        raise Interrupted(number)


@contextmanager
def iterate_until_interrupt(items: Sequence[T], left: str) -> Iterator[Iterator[T]]:
    """Yield an iterator over items, and raise Interrupted, with the number of unfinished items, after an interrupt.

    An item is finished when the next one is requested, and no item begins after an interrupt. ``left`` follows the
    number, such as ``periods were not released``.
    """
    finished = 0

    def iterate_items() -> Iterator[T]:
        nonlocal finished
        for item in items:
            refuse_if_interrupted()
            yield item
            finished += 1

    try:
        yield iterate_items()
    except BaseException:
        number = get_received_signal()
        if number is None:
            raise
        raise Interrupted(number, f"{len(items) - finished} of {len(items)} {left}") from None
