"""Exact discrete Gaussian noise by OpenDP, the reference backend (spec 3, backend 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.privacy.opendp_pool import POOL
from od_core.privacy.opendp_worker import GAUSSIAN, LAPLACE, mechanism

MAX_VARIANCE = 1 << 100
"""Above this, values could come near the 64-bit limits, where OpenDP saturates silently."""


class OpenDPNoise:
    """Noise drawn by OpenDP's laws on integers, from the operating system's generator, on all processors."""

    __slots__ = ()  # nothing of an instance can be replaced
    largest_variance: ClassVar[int] = MAX_VARIANCE

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Draws of N_Z(0, sigma^2), sigma^2 at least ``variance`` and above it by rounding alone (1 part in 2^30).

        Raises:
            OdError: the variance is not above 0 or too large, or OpenDP's own privacy map says that the
                noise would cost more than planned.
        """
        if not 0 < variance <= MAX_VARIANCE:
            raise _refused("the variance is not above 0 or too large")
        scale = _scale(GAUSSIAN, math.sqrt(variance), lambda scale: scale**2 >= variance, 1 / (2 * variance))
        return POOL.draw(GAUSSIAN, scale, size)

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Draws k of probability proportional to exp(-|k| / s), s at least ``scale`` and above it by rounding alone.

        At L1 sensitivity 1 the loss is epsilon = 1 / ``scale``, pure. Shape (size,).

        Raises:
            OdError: as ``draw``.
        """
        if scale <= 0 or 2 * scale**2 > MAX_VARIANCE:  # a discrete Laplace varies by less than 2 s^2
            raise _refused("the scale is not above 0 or too large")
        return POOL.draw(LAPLACE, _scale(LAPLACE, float(scale), lambda given: given >= scale, 1 / scale), size)


def _scale(law: bytes, nearest: float, suffices: Callable[[Fraction], bool], planned_loss: Fraction) -> float:
    """The scale, rounded up until it suffices and OpenDP's own map at sensitivity 1 is within the plan.

    At sensitivity 1 the planned loss is a fraction exactly, and no rounding of sqrt(2) enters; a scale of 0 has an
    infinite loss and is refused here (spec 3, the traps). Nothing is drawn before this.
    """
    sensitivity = 1.0 if law == GAUSSIAN else 1
    scale = _rounded_up(nearest)
    for _ in range(4):
        if suffices(Fraction(scale)):
            loss = float(mechanism(law, scale).map(sensitivity))  # type: ignore[no-untyped-call]
            if math.isfinite(loss) and Fraction(loss) <= planned_loss:
                return scale
        scale = _rounded_up(math.nextafter(scale, math.inf))
    raise _refused("OpenDP's privacy map exceeds the planned loss")


def _rounded_up(scale: float) -> float:
    """The next number of 32 significant bits: OpenDP computes with it as a fraction, and long ones cost a twelfth."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(math.ceil(math.ldexp(mantissa, 32)), exponent - 32)


def _refused(why: str) -> OdError:
    return OdError(
        "OD-NOISE-MAP",
        f"OpenDP noise refused: {why}",
        next_step="correct the budget",
        spent="the level's charge stands",
    )
