"""Draw noise with OpenDP, each call in new processes that draw nothing else.

OpenDP takes its random bits from a generator in the memory of its process. The calling process may be forked, restored
or cloned, so nothing is ever drawn in it. Each call starts one new process (:mod:`od_core.noise.opendp_worker`), or
several for large draws, and reads the noise that they have written. They are started with ``subprocess``, because
``multiprocessing`` would run the caller's main module again or fork.
"""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from io import BufferedRandom
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise import opendp_worker
from od_core.noise.opendp_worker import ANSWER, GAUSSIAN, LAPLACE, REQUEST, compute_next_scale, round_up_scale
from od_core.parallel import choose_thread_count

_ENDED_EARLY = "a process that drew noise ended before it had finished"

MIN_DRAWS = 8_192
"""Smallest number of draws per process if there are several. They take 0.1 s, four times the start of a process."""


def draw_noise(distribution: bytes, scale: float, largest_loss: float, size: int) -> tuple[float, NDArray[np.int64]]:
    """Return independent noise, and the scale with which it was drawn.

    The scale is the smallest one tried, from ``scale`` upwards, whose privacy loss is at most ``largest_loss``. The
    loss is that at sensitivity 1 by OpenDP's own privacy map: rho for Gaussian noise, epsilon for Laplace noise.

    Args:
        distribution: ``GAUSSIAN`` or ``LAPLACE``.
        scale: smallest scale: the square root of the Gaussian's variance parameter, or the scale of Laplace noise.
        largest_loss: largest allowed privacy loss.
        size: number of draws.

    Returns:
        The scale, and the draws, shape (size,). If none of the scales tried has an allowed loss, nothing was drawn, the
        scale is NaN, and the array has no meaning.

    Raises:
        OdError: a process could not be started or ended too early, or OpenDP's library is not installed.
    """
    noise = np.empty(size, dtype=np.int64)
    scales = []
    first = 0
    counts = divide_draws(size, choose_thread_count())
    with ExitStack() as running:
        requests = [REQUEST.pack(distribution, scale, largest_loss, count) for count in counts]
        workers = [running.enter_context(_run_worker(request)) for request in requests]
        for count, (process, answer) in zip(counts, workers, strict=True):
            scales.append(_receive_noise(process, answer, noise[first : first + count]))
            first += count
    # All processes check the same scales against the same loss, so they agree, unless they found none, which is NaN.
    return (scales[0] if len(set(scales)) == 1 else math.nan), noise


def divide_draws(size: int, processors: int) -> list[int]:
    """Divide ``size`` draws among at most ``processors`` processes, and return the number of draws of each.

    The numbers differ by at most 1. If there are several processes, each makes at least ``MIN_DRAWS`` draws.
    """
    processes = max(1, min(processors, size // MIN_DRAWS))
    return [(size + process) // processes for process in range(processes)]


@contextmanager
def _run_worker(request: bytes) -> Iterator[tuple[subprocess.Popen[bytes], BufferedRandom]]:
    """Start a process that draws noise into a file in memory, and yield the process and the file.

    If the process still runs at the end of the context, it is killed. The number of draws may be confidential, so the
    request (``REQUEST``) is sent by a pipe: other users can list the arguments of a command. Raises OdError if the
    process cannot start, or ends before it has read the request.
    """
    command = [
        sys.executable,
        "-I",
        "-S",
        str(Path(opendp_worker.__file__).resolve()),
        locate_library(),
        str(os.getpid()),
    ]
    with open(os.memfd_create("noise"), "w+b") as answer:  # noqa: PTH123  # no path
        try:  # in its own process group, because this process handles interrupts from the keyboard
            process = subprocess.Popen(  # noqa: S603  # our own module
                command, bufsize=0, stdin=subprocess.PIPE, stdout=answer, process_group=0
            )
        except OSError as error:
            raise _make_lost_draw_error(f"a process that draws noise could not start ({error.strerror})") from None
        with process:
            try:
                process.stdin.write(request)  # type: ignore[union-attr]  # a pipe
                yield process, answer
            except BrokenPipeError:
                raise _make_lost_draw_error(_ENDED_EARLY) from None
            finally:
                process.kill()


def _receive_noise(process: subprocess.Popen[bytes], answer: BufferedRandom, noise: NDArray[np.int64]) -> float:
    """Wait until a process has ended, copy its draws into ``noise``, and return its scale.

    ``answer`` is the file that the process has written, and ``noise`` has the shape (draws,). If the scale is NaN,
    nothing was drawn, and ``noise`` stays unchanged. Raises OdError if the process failed or wrote too little.
    """
    status = process.wait()
    head = bytearray(ANSWER.size)
    answer.seek(0)
    if status != 0 or answer.readinto(head) != len(head):
        raise _make_lost_draw_error(_ENDED_EARLY)
    (scale,) = ANSWER.unpack(head)
    if not math.isnan(scale) and answer.readinto(noise.view(np.uint8).data) != noise.nbytes:
        raise _make_lost_draw_error(_ENDED_EARLY)
    answer.close()
    return float(scale)


@cache
def locate_library() -> str:
    """Return the path of OpenDP's shared library without loading it. Raises OdError if it is not installed."""
    spec = importlib.util.find_spec("opendp")
    if spec is not None and spec.origin is not None:
        for path in sorted((Path(spec.origin).parent / "lib").glob("*opendp*")):
            return str(path)
    raise _make_lost_draw_error("OpenDP's shared library is not installed")


WRONG_VERSIONS = ("0.14.0", "0.14.1")
"""Versions of OpenDP that draw single values of Gaussian noise up to 17 % too often; see docs/explanation/noise.md."""


def refuse_wrong_version() -> None:
    """Raise OdError if the installed OpenDP draws Gaussian noise of another distribution than the planned one."""
    with suppress(PackageNotFoundError):  # a draw is then refused
        installed = version("opendp")
        if installed in WRONG_VERSIONS:
            message = f"OpenDP {installed} draws Gaussian noise with a wrong distribution"
            step = "install OpenDP 0.14.2 or later, or choose the noise backend table"
            raise OdError("OD-NOISE-VERSION", message, next_step=step)


def _make_lost_draw_error(why: str) -> OdError:
    """Return the OdError for a draw that is charged but lost; ``why`` begins its message."""
    step = "run the release again; it draws the level again, at a separate charge"
    return OdError("OD-NOISE-LOST", f"{why}: the draw is lost", next_step=step, spent="the level stays charged")


MAX_VARIANCE = 1 << 100
"""Largest variance. Values of wider noise could reach the 64-bit limits, to which OpenDP clips them silently."""

VARIANCE_SLACK = Fraction(1, 1 << 30)
"""Largest relative amount by which the variance of drawn noise may exceed the planned variance."""

SCALE_SLACK = VARIANCE_SLACK
"""Largest relative amount by which the scale of drawn Laplace noise may exceed the planned scale."""

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
            raise _make_unsupported_noise_error("the variance is too small or too large")
        return _draw_planned_noise(
            GAUSSIAN, math.sqrt(variance), power=2, planned=variance, largest_loss=1 / (2 * variance), size=size
        )

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws from the discrete Laplace distribution; shape (size,).

        The probability of k is proportional to exp(-|k| / s), with a scale s from ``scale`` to (1 + ``SCALE_SLACK``)
        ``scale``. At L1 sensitivity 1, the privacy loss is a pure epsilon of at most 1 / ``scale``. Raises OdError if
        the scale is too small or too large, or as in :meth:`draw`.
        """
        if scale <= 0 or not _MIN_VARIANCE <= 2 * scale**2 <= MAX_VARIANCE:  # the variance is below 2 scale^2
            raise _make_unsupported_noise_error("the scale is too small or too large")
        return _draw_planned_noise(LAPLACE, float(scale), power=1, planned=scale, largest_loss=1 / scale, size=size)


def _draw_planned_noise(
    distribution: bytes, scale: float, power: int, planned: Fraction, largest_loss: Fraction, size: int
) -> NDArray[np.int64]:
    """Return ``size`` draws of noise whose parameter is from ``planned`` to (1 + ``VARIANCE_SLACK``) ``planned``.

    Args:
        distribution: ``GAUSSIAN`` or ``LAPLACE``.
        scale: planned scale as a float, rounded in any direction.
        power: power of the scale that is the parameter: 2 for Gaussian noise (the variance), 1 for Laplace noise.
        planned: planned parameter.
        largest_loss: largest allowed privacy loss at sensitivity 1, as in :func:`draw_noise`.
        size: number of draws.

    Raises:
        OdError: OpenDP's privacy map allows no such scale, or as in :func:`draw_noise`.
    """
    scale = round_up_scale(scale)
    while Fraction(scale) ** power < planned:
        scale = compute_next_scale(scale)
    used, noise = draw_noise(distribution, scale, round_down_to_float(largest_loss), size)
    if not (math.isfinite(used) and planned <= Fraction(used) ** power <= planned * (1 + VARIANCE_SLACK)):
        raise _make_unsupported_noise_error("OpenDP's privacy map exceeds the planned loss")
    return noise


def round_down_to_float(value: Fraction) -> float:
    """Return the largest float that is at most ``value``, which is at least 0."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0)


def _make_unsupported_noise_error(why: str) -> OdError:
    """Return the OdError for noise that OpenDP does not draw with the planned parameters."""
    message = f"OpenDP cannot draw this noise: {why}"
    return OdError("OD-NOISE-MAP", message, next_step="correct the budget", spent="the level stays charged")
