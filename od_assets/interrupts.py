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

_RECEIVED: list[int] = []
"""Numbers of the signals that this process received in :func:`handle_interrupts`."""

_PIPE: list[int] = []
"""Both ends of the pipe to which Python writes the number of each signal, even if Dagster handles the signal."""


class Interrupted(BaseException):  # as KeyboardInterrupt, it is no error
    """The end of a command that was interrupted by a signal of some number.

    ``left`` says what was not done; it is empty if the command has one piece of work.
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
    """Turn the signals of :data:`INTERRUPTS` into :class:`Interrupted`, also if the process began with them ignored.

    Dagster would otherwise copy an ignored SIGINT, which a shell sets for programs in the background, to SIGTERM.
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
        _RECEIVED.clear()


def _raise_interrupted(number: int, _frame: FrameType | None) -> None:
    """Handle a signal that interrupts a command."""
    raise Interrupted(number)


def get_received_signal() -> int | None:
    """Return the number of the first signal that asked this process to end, or None.

    Dagster's and DuckDB's own errors for an interrupt do not say which signal it was, or that it was one.
    """
    if _PIPE:
        with suppress(BlockingIOError):  # nothing was received since
            _RECEIVED.extend(number for number in os.read(_PIPE[0], 512) if number in INTERRUPTS)
    return _RECEIVED[0] if _RECEIVED else None


def refuse_if_interrupted() -> None:
    """Raise :class:`Interrupted` if this process was asked to end."""
    number = get_received_signal()
    if number is not None:
        raise Interrupted(number)


@contextmanager
def iterate_until_interrupt(items: Sequence[T], left: str) -> Iterator[Iterator[T]]:
    """Yield an iterator over items that ends at an interrupt, and say how many were not finished.

    ``left`` says what the items are and what was not done with them, such as ``periods were not released``.

    Raises:
        Interrupted: the process was asked to end, so that an item was not begun or not finished.
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
