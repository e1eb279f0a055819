"""Draw noise with OpenDP, each call in new processes that draw nothing else.

OpenDP takes its random bits from a generator in the memory of its process. The calling process may be forked, restored
or cloned, so nothing is ever drawn in it. Each call starts one new process (:mod:`od_core.noise.opendp_worker`), or
several for large draws, and ends them when it has received the noise. They are started with ``subprocess``, because
``multiprocessing`` would run the caller's main module again or fork.
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
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise import opendp_worker
from od_core.noise.opendp_worker import ANSWER, GAUSSIAN, LAPLACE, REQUEST, next_scale, rounded_up
from od_core.parallel import threads

MIN_DRAWS = 8_192
"""Smallest number of draws per process if there are several. They take 0.1 s, four times the start of a process."""

_SOCKETS: set[socket.socket] = set()
"""The open sockets of all running processes. A forked child must close its copies (:func:`_forget`)."""


def drawn(distribution: bytes, scale: float, largest_loss: float, size: int) -> tuple[float, NDArray[np.int64]]:
    """Draw independent noise at the smallest scale, from the given one upwards, at which OpenDP allows the loss.

    Args:
        distribution: GAUSSIAN or LAPLACE.
        scale: smallest scale to draw with.
        largest_loss: largest allowed loss at sensitivity 1, which is compared with the loss by OpenDP's own privacy
            map: rho for Gaussian noise, epsilon for Laplace noise.
        size: number of draws.

    Returns:
        The scale used, and the draws, shape (size,). If none of the scales tried has an allowed loss, nothing was
        drawn, the scale is NaN, and the array has no meaning.

    Raises:
        OdError: a process could not be started or ended too early, or OpenDP's library is not installed.
    """
    noise = np.empty(size, dtype=np.int64)
    with ExitStack() as running:
        waiting = selectors.DefaultSelector()
        running.callback(waiting.close)
        workers, first = [], 0
        for count in draws_by_process(size, threads()):
            worker = running.enter_context(_Worker(noise[first : first + count]))
            worker.ask(distribution, scale, largest_loss)
            waiting.register(worker.socket, selectors.EVENT_READ, worker)
            workers.append(worker)
            first += count
        while waiting.get_map():
            for key, _ in waiting.select():
                if key.data.receive():
                    waiting.unregister(key.fileobj)
        used = {worker.scale for worker in workers}
    # All processes check the same scales against the same loss, so they agree. NaN does not equal itself.
    return (used.pop() if len(used) == 1 else math.nan), noise


def draws_by_process(size: int, processors: int) -> list[int]:
    """Divide draws among at most so many processes, and return the number of draws of each.

    The numbers differ by at most 1. If there are several processes, each makes at least ``MIN_DRAWS`` draws.
    """
    count = max(1, min(processors, size // MIN_DRAWS))
    return [(size + rest) // count for rest in range(count)]


class _Worker:
    """A process that draws noise once and writes it into a given array. It runs only inside the ``with`` statement."""

    def __init__(self, room: NDArray[np.int64]) -> None:
        self._head, self._count = bytearray(ANSWER.size), len(room)
        self._missing = [memoryview(self._head), room.view(np.uint8).data]

    def __enter__(self) -> _Worker:
        command = [sys.executable, "-I", "-S", str(Path(opendp_worker.__file__).resolve()), library()]
        nothing = subprocess.DEVNULL
        self.socket, theirs = socket.socketpair()
        _SOCKETS.update((self.socket, theirs))
        with theirs:
            descriptor = theirs.fileno()
            try:  # in its own process group, because this process handles interrupts from the keyboard
                self._process = subprocess.Popen(  # noqa: S603  # our own module
                    [*command, str(descriptor)], stdin=nothing, stdout=nothing, pass_fds=(descriptor,), process_group=0
                )
            except OSError as error:
                _SOCKETS.discard(self.socket)
                self.socket.close()
                raise _lost(f"a process that draws noise could not start ({error.strerror})") from None
            finally:
                _SOCKETS.discard(theirs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the socket, and kill the process if it still runs."""
        _SOCKETS.discard(self.socket)
        self.socket.close()
        self._process.kill()
        self._process.wait()

    def ask(self, distribution: bytes, scale: float, largest_loss: float) -> None:
        """Send the request for noise to the process. Raises OdError if the process has ended."""
        try:
            self.socket.sendall(REQUEST.pack(distribution, scale, largest_loss, self._count))
        except OSError:
            raise self._ended() from None

    def receive(self) -> bool:
        """Copy the bytes that the process has sent so far into the answer, and return whether the answer is complete.

        Raises OdError if the process has ended before its answer was complete.
        """
        try:
            received = self.socket.recv_into(self._missing[0])
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
        """Scale that the process uses, or NaN if it draws nothing. It is valid only after the answer has begun."""
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
    """Close the sockets that a forked child has inherited.

    The parent's noise processes end when the parent ends, but only if no other process has these sockets open.
    """
    for opened in _SOCKETS:
        opened.close()
    _SOCKETS.clear()


os.register_at_fork(after_in_child=_forget)


MAX_VARIANCE = 1 << 100
"""Largest variance. Values of wider noise could reach the 64-bit limits, to which OpenDP clips them silently."""

VARIANCE_SLACK = Fraction(1, 1 << 30)
"""Largest relative amount by which the variance of drawn noise may exceed the planned variance."""

SCALE_SLACK = Fraction(1, 1 << 30)
"""Largest relative amount by which the scale of drawn Laplace noise may exceed the planned scale."""

_EXCEEDED = "OpenDP's privacy map exceeds the planned loss"
_MIN_VARIANCE = Fraction(1, 1 << 200)
"""Smallest variance. Below it, practically all noise is 0, and floats come close to their limits."""


class OpenDPNoise:
    """A source of integer noise from OpenDP. Every call draws in a new process or, for many draws, in several.

    In each process, the operating system's kernel seeds OpenDP's generator (``docs/explanation/noise.md``).
    """

    __slots__ = ()  # no attribute of an instance can be replaced
    largest_variance: ClassVar[int] = MAX_VARIANCE

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws from the discrete Gaussian N_Z(0, v); shape (size,).

        The variance v lies between ``variance`` and (1 + ``VARIANCE_SLACK``) ``variance``. ``level`` and ``first`` are
        not used. Raises OdError if the variance is too small or too large; the loss by OpenDP's own privacy map exceeds
        the planned loss; or a process ended before it had finished, and the draw is lost.
        """
        if not _MIN_VARIANCE <= variance <= MAX_VARIANCE:
            raise _refused("the variance is too small or too large")
        scale = rounded_up(math.sqrt(variance))
        while Fraction(scale) ** 2 < variance:
            scale = next_scale(scale)
        used, noise = drawn(GAUSSIAN, scale, _float_below(1 / (2 * variance)), size)
        if not (math.isfinite(used) and variance <= Fraction(used) ** 2 <= variance * (1 + VARIANCE_SLACK)):
            raise _refused(_EXCEEDED)
        return noise

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws from the discrete Laplace distribution; shape (size,).

        The probability of k is proportional to exp(-|k| / s), with a scale s from ``scale`` to (1 + ``SCALE_SLACK``)
        ``scale``. At L1 sensitivity 1, the privacy loss is a pure epsilon of at most 1 / ``scale``. Raises OdError if
        the scale is too small or too large, or as in :meth:`draw`.
        """
        if scale <= 0 or not _MIN_VARIANCE <= 2 * scale**2 <= MAX_VARIANCE:  # the variance is below 2 scale^2
            raise _refused("the scale is too small or too large")
        least = rounded_up(float(scale))
        while Fraction(least) < scale:
            least = next_scale(least)
        used, noise = drawn(LAPLACE, least, _float_below(1 / scale), size)
        if not (math.isfinite(used) and scale <= Fraction(used) <= scale * (1 + SCALE_SLACK)):
            raise _refused(_EXCEEDED)
        return noise


def _float_below(value: Fraction) -> float:
    """Return the largest float that is at most ``value``."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0)


def _refused(why: str) -> OdError:
    return OdError(
        "OD-NOISE-MAP",
        f"OpenDP cannot draw this noise: {why}",
        next_step="correct the budget",
        spent="the level stays charged",
    )
