"""OpenDP's draws, each call's in processes of its own that draw nothing else (``opendp_worker``).

OpenDP takes its bits from a generator in the memory of its process. So nothing is ever drawn in this process, which may
be forked, restored or cloned: every call executes new processes, several at once where there is much to draw, and ends
them when it has its noise. They are plain child processes and not ``multiprocessing``, which would run the caller's
main module again, or fork.
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
"""Draws that are worth a process: about 0.1 s, four times what its start takes."""

_LINES: set[socket.socket] = set()
"""The sockets in use, which a forked child is not to hold open."""


def drawn(law: bytes, scale: float, largest_loss: float, size: int) -> tuple[float, NDArray[np.int64]]:
    """Return independent draws at the first scale from the given one on whose loss is allowed.

    Args:
        law: GAUSSIAN or LAPLACE.
        scale: the least scale that may be drawn with.
        largest_loss: the most that the noise may cost at sensitivity 1 by OpenDP's own privacy map: rho of the
            Gaussian, epsilon of the Laplace distribution.
        size: how many.

    Returns:
        The scale that was drawn with, and the draws, shape (size,). The scale is not a number where OpenDP's map allows
        none; then nothing was drawn.

    Raises:
        OdError: a process could not be started, or has ended too early.
    """
    noise = np.empty(size, dtype=np.int64)
    with ExitStack() as running:
        waiting = selectors.DefaultSelector()
        running.callback(waiting.close)
        workers, first = [], 0
        for count in shares(size, threads()):
            worker = running.enter_context(_Worker(noise[first : first + count]))
            worker.ask(law, scale, largest_loss)
            waiting.register(worker.line, selectors.EVENT_READ, worker)
            workers.append(worker)
            first += count
        while waiting.get_map():
            for key, _ in waiting.select():
                if key.data.receive():
                    waiting.unregister(key.fileobj)
        used = {worker.scale for worker in workers}
    # All processes hold one scale to one loss, so they agree; NaN is unlike itself.
    return (used.pop() if len(used) == 1 else math.nan), noise


def shares(size: int, processors: int) -> list[int]:
    """Return how many draws each process has: almost equal, and enough to be worth its start."""
    count = max(1, min(processors, size // WORTH))
    return [(size + rest) // count for rest in range(count)]


class _Worker:
    """A process that draws into some room, once."""

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
            try:  # in a group of its own, since an interrupt from the keyboard is for this process to act on
                self._process = subprocess.Popen(  # noqa: S603  # ourselves
                    [*command, str(line)], stdin=nothing, stdout=nothing, pass_fds=(line,), process_group=0
                )
            except OSError as error:
                _LINES.discard(self.line)
                self.line.close()
                raise _lost(f"a process that draws noise could not be started ({error.strerror})") from None
            finally:
                _LINES.discard(theirs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: it has drawn, or what it is drawing is not wanted any more."""
        _LINES.discard(self.line)
        self.line.close()
        self._process.kill()
        self._process.wait()

    def ask(self, law: bytes, scale: float, largest_loss: float) -> None:
        """Say what to draw. Raises OdError where the process has ended."""
        try:
            self.line.sendall(REQUEST.pack(law, scale, largest_loss, self._count))
        except OSError:
            raise self._ended() from None

    def receive(self) -> bool:
        """Take what has arrived; return whether that is all. Raises OdError where the process has ended."""
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
        """The scale that the process has drawn with, once its answer has begun."""
        return float(ANSWER.unpack(self._head)[0])

    def _ended(self) -> OdError:
        return _lost("a process that drew noise has ended before it was done")


@cache
def library() -> str:
    """Path of OpenDP's shared library, found without loading it. Raises OdError where it is not installed."""
    found = importlib.util.find_spec("opendp")
    if found is not None and found.origin is not None:
        for path in sorted((Path(found.origin).parent / "lib").glob("*opendp*")):
            return str(path)
    raise _lost("OpenDP's shared library is not installed")


def _lost(why: str) -> OdError:
    return OdError(
        "OD-NOISE-LOST",
        f"{why}: the draw is lost",
        next_step="run the release again; the level is drawn anew, at a charge of its own",
        spent="the level's charge stands",
    )


def _forget() -> None:
    """In a forked child: the processes are the parent's. They end with it if nobody else holds their lines open."""
    for line in _LINES:
        line.close()
    _LINES.clear()


os.register_at_fork(after_in_child=_forget)
