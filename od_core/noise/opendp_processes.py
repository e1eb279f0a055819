"""Draw noise with OpenDP, each call in new processes that draw nothing else (``opendp_worker``).

OpenDP takes its bits from a generator in the memory of its process. So nothing is ever drawn in this process, which may
be forked, restored or cloned. Every call executes new processes, several at once for large draws, and ends them when it
has its noise. They are plain child processes: ``multiprocessing`` would run the caller's main module again, or fork.
"""

from __future__ import annotations

import importlib.util
import math
import os
import selectors
import socket
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise import opendp_worker
from od_core.noise.opendp_worker import ANSWER, REQUEST
from od_core.parallel import threads

WORTH = 8_192
"""Draws that are worth a process: they take about 0.1 s, four times as long as its start."""

_LINES: set[socket.socket] = set()
"""The sockets in use, which a forked child must not hold open."""


def drawn(distribution: bytes, scale: float, largest_loss: float, size: int) -> tuple[float, NDArray[np.int64]]:
    """Draw independent noise at the first scale, from the given one upwards, whose loss is allowed.

    Args:
        distribution: GAUSSIAN or LAPLACE.
        scale: smallest scale to draw with.
        largest_loss: largest loss allowed at sensitivity 1 by OpenDP's own privacy map: rho for Gaussian noise, epsilon
            for Laplace noise.
        size: number of draws.

    Returns:
        The scale that was drawn with, and the draws, shape (size,). The scale is NaN if OpenDP's map allows none of the
        scales tried; then nothing was drawn.

    Raises:
        OdError: a process could not be started or ended too early, or OpenDP's library is not installed.
    """
    noise = np.empty(size, dtype=np.int64)
    with ExitStack() as running:
        waiting = selectors.DefaultSelector()
        running.callback(waiting.close)
        workers, first = [], 0
        for count in shares(size, threads()):
            worker = running.enter_context(_Worker(noise[first : first + count]))
            worker.ask(distribution, scale, largest_loss)
            waiting.register(worker.line, selectors.EVENT_READ, worker)
            workers.append(worker)
            first += count
        while waiting.get_map():
            for key, _ in waiting.select():
                if key.data.receive():
                    waiting.unregister(key.fileobj)
        used = {worker.scale for worker in workers}
    # All processes check the same scales against the same loss, so they agree. NaN does not equal itself.
    return (used.pop() if len(used) == 1 else math.nan), noise


def shares(size: int, processors: int) -> list[int]:
    """Return the number of draws of each process: almost equal, and enough to be worth its start."""
    count = max(1, min(processors, size // WORTH))
    return [(size + rest) // count for rest in range(count)]


class _Worker:
    """A process that draws once, into a given array."""

    def __init__(self, room: NDArray[np.int64]) -> None:
        self._head, self._count = bytearray(ANSWER.size), len(room)
        self._missing = [memoryview(self._head), room.view(np.uint8).data]

    def __enter__(self) -> _Worker:
        command = [sys.executable, "-I", "-S", str(Path(opendp_worker.__file__).resolve()), library()]
        nothing = subprocess.DEVNULL
        self.line, theirs = socket.socketpair()
        _LINES.update((self.line, theirs))
        with theirs:
            line = theirs.fileno()
            try:  # in its own process group, because this process handles interrupts from the keyboard
                self._process = subprocess.Popen(  # noqa: S603  # our own module
                    [*command, str(line)], stdin=nothing, stdout=nothing, pass_fds=(line,), process_group=0
                )
            except OSError as error:
                _LINES.discard(self.line)
                self.line.close()
                raise _lost(f"a process that draws noise could not start ({error.strerror})") from None
            finally:
                _LINES.discard(theirs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: it has drawn, or its draws are no longer wanted."""
        _LINES.discard(self.line)
        self.line.close()
        self._process.kill()
        self._process.wait()

    def ask(self, distribution: bytes, scale: float, largest_loss: float) -> None:
        """Send the request. Raises OdError if the process has ended."""
        try:
            self.line.sendall(REQUEST.pack(distribution, scale, largest_loss, self._count))
        except OSError:
            raise self._ended() from None

    def receive(self) -> bool:
        """Take the bytes that have arrived; return whether they are all. Raises OdError if the process has ended."""
        try:
            received = self.line.recv_into(self._missing[0])
        except OSError:
            received = 0
        if not received:
            raise self._ended()
        self._missing[0] = self._missing[0][received:]
        while self._missing and not self._missing[0]:
            del self._missing[0]
        return not self._missing or math.isnan(self.scale)

    @property
    def scale(self) -> float:
        """Scale that the process has drawn with, once its answer has begun."""
        return float(ANSWER.unpack(self._head)[0])

    def _ended(self) -> OdError:
        return _lost("a process that drew noise ended before it had finished")


@cache
def library() -> str:
    """Return the path of OpenDP's shared library without loading it. Raises OdError if it is not installed."""
    found = importlib.util.find_spec("opendp")
    if found is not None and found.origin is not None:
        for path in sorted((Path(found.origin).parent / "lib").glob("*opendp*")):
            return str(path)
    raise _lost("OpenDP's shared library is not installed")


def _lost(why: str) -> OdError:
    return OdError(
        "OD-NOISE-LOST",
        f"{why}: the draw is lost",
        next_step="run the release again; it draws the level again, at a separate charge",
        spent="the level stays charged",
    )


def _forget() -> None:
    """Close the sockets in a forked child: the parent's processes end with it if nobody else holds them open."""
    for line in _LINES:
        line.close()
    _LINES.clear()


os.register_at_fork(after_in_child=_forget)
