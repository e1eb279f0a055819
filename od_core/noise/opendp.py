"""Exact discrete Gaussian noise by OpenDP, the reference backend (spec 3, backend 1)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise.opendp_processes import drawn
from od_core.noise.opendp_worker import GAUSSIAN, LAPLACE, next_scale, rounded_up

MAX_VARIANCE = 1 << 100
"""Above this, values could come near the 64-bit limits, where OpenDP saturates silently."""

VARIANCE_SLACK = Fraction(1, 1 << 30)
"""A backend may draw noise whose variance is above the planned one by at most this part of it."""

SCALE_SLACK = Fraction(1, 1 << 30)
"""A backend may draw from a scale above the planned one by this part of it (OpenDP's is rounded up by less)."""

_MIN_VARIANCE = Fraction(1, 1 << 200)
"""Below this there is no noise at all, and floating point comes to its end."""


class OpenDPNoise:
    """Noise drawn by OpenDP on integers, every call in new processes, on all processors.

    OpenDP's generator is seeded from the kernel in each process (``docs/exact-noise.md``).
    """

    __slots__ = ()  # nothing of an instance can be replaced
    largest_variance: ClassVar[int] = MAX_VARIANCE

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return draws of N_Z(0, v), v at least ``variance`` and above it by at most ``VARIANCE_SLACK`` of it.

        Raises:
            OdError: the variance is too small or too large; OpenDP's own privacy map says that the noise would cost
                more than planned; a process that draws has ended, and the draw is lost.
        """
        if not _MIN_VARIANCE <= variance <= MAX_VARIANCE:
            raise _refused("the variance is too small or too large")
        scale = rounded_up(math.sqrt(variance))
        while Fraction(scale) ** 2 < variance:
            scale = next_scale(scale)
        used, noise = drawn(GAUSSIAN, scale, _float_below(1 / (2 * variance)), size)
        return _held(noise, math.isfinite(used) and variance <= Fraction(used) ** 2 <= variance * (1 + VARIANCE_SLACK))

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return draws k of probability proportional to exp(-|k| / s), s above ``scale`` by ``SCALE_SLACK`` at most.

        At L1 sensitivity 1 the loss is epsilon = 1 / ``scale``, pure. Shape (size,).

        Raises:
            OdError: as :meth:`draw`.
        """
        if scale <= 0 or not _MIN_VARIANCE <= 2 * scale**2 <= MAX_VARIANCE:  # it varies by less than 2 s^2
            raise _refused("the scale is too small or too large")
        least = rounded_up(float(scale))
        while Fraction(least) < scale:
            least = next_scale(least)
        used, noise = drawn(LAPLACE, least, _float_below(1 / scale), size)
        return _held(noise, math.isfinite(used) and scale <= Fraction(used) <= scale * (1 + SCALE_SLACK))


def _held(noise: NDArray[np.int64], is_planned: bool) -> NDArray[np.int64]:
    """Return the noise, drawn at a scale that OpenDP's map allows and that the accounting covers. Raises OdError.

    At sensitivity 1 the planned loss is a fraction exactly, and no rounding of sqrt(2) enters (spec 3, the traps).
    """
    if not is_planned:
        raise _refused("OpenDP's privacy map exceeds the planned loss")
    return noise


def _float_below(value: Fraction) -> float:
    """Return the largest float that is not above an exact value."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0)


def _refused(why: str) -> OdError:
    return OdError(
        "OD-NOISE-MAP",
        f"OpenDP noise refused: {why}",
        next_step="correct the budget",
        spent="the level's charge stands",
    )
