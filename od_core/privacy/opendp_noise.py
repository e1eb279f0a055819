"""Exact discrete Gaussian noise by OpenDP, the reference backend (spec 3, backend 1)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

from od_core.errors import OdError

dp.enable_features("contrib")  # OpenDP asks that users of unvetted parts say so; the discrete Gaussian is one

MAX_VARIANCE = 1 << 100
"""Above this, values could come near the 64-bit limits, where OpenDP saturates silently."""


class OpenDPNoise:
    """Noise drawn by OpenDP's discrete Gaussian on integers, from the operating system's generator."""

    __slots__ = ()  # nothing of an instance can be replaced

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Draws of N_Z(0, sigma^2), sigma^2 at least ``variance`` and above it by rounding alone.

        Raises:
            OdError: the variance is not above 0 or too large, or OpenDP's own privacy map says that the
                noise would cost more than planned.
        """
        measurement = _measurement(variance)
        if size == 0:
            return np.empty(0, dtype=np.int64)
        return np.asarray(measurement(np.zeros(size, dtype=np.int64)), dtype=np.int64)


def _measurement(variance: Fraction) -> dp.Measurement:
    """OpenDP's mechanism, its float scale rounded up until its own map is within the plan.

    The map is read at sensitivity 1, where the loss planned for is 1 / (2 sigma^2) exactly: a scale of 0 has
    an infinite loss and is refused here, and no rounding of sqrt(2) enters (spec 3, the traps).
    """
    if not 0 < variance <= MAX_VARIANCE:
        raise _refused("the variance is not above 0 or too large")
    scale = math.sqrt(variance)
    for _ in range(4):
        if Fraction(scale) ** 2 >= variance:
            space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
            measurement = dp.m.make_gaussian(*space, scale=scale)
            loss = float(measurement.map(1.0))  # type: ignore[no-untyped-call]
            if math.isfinite(loss) and Fraction(loss) <= 1 / (2 * variance):
                return measurement
        scale = math.nextafter(scale, math.inf)
    raise _refused("OpenDP's privacy map exceeds the planned loss")


def _refused(why: str) -> OdError:
    return OdError(
        "OD-NOISE-MAP",
        f"OpenDP noise refused: {why}",
        next_step="correct the budget",
        spent="the level's charge stands",
    )
