"""Draw exact discrete Gaussian and discrete Laplace noise with OpenDP, the reference backend."""

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
"""Largest variance. Values of wider noise could reach the 64-bit limits, to which OpenDP clips them silently."""

VARIANCE_SLACK = Fraction(1, 1 << 30)
"""Largest relative amount by which the variance of drawn noise may exceed the planned variance."""

SCALE_SLACK = Fraction(1, 1 << 30)
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
        not used.

        Raises:
            OdError: the variance is too small or too large; the loss by OpenDP's own privacy map exceeds the planned
                loss; or a process ended before it had finished, and the draw is lost.
        """
        if not _MIN_VARIANCE <= variance <= MAX_VARIANCE:
            raise _refused("the variance is too small or too large")
        scale = rounded_up(math.sqrt(variance))
        while Fraction(scale) ** 2 < variance:
            scale = next_scale(scale)
        used, noise = drawn(GAUSSIAN, scale, _float_below(1 / (2 * variance)), size)
        return _held(noise, math.isfinite(used) and variance <= Fraction(used) ** 2 <= variance * (1 + VARIANCE_SLACK))

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws from the discrete Laplace distribution; shape (size,).

        The probability of k is proportional to exp(-|k| / s), with a scale s from ``scale`` to (1 + ``SCALE_SLACK``)
        ``scale``. At L1 sensitivity 1, the privacy loss is a pure epsilon of at most 1 / ``scale``.

        Raises:
            OdError: the scale is too small or too large, or as in :meth:`draw`.
        """
        if scale <= 0 or not _MIN_VARIANCE <= 2 * scale**2 <= MAX_VARIANCE:  # the variance is below 2 scale^2
            raise _refused("the scale is too small or too large")
        least = rounded_up(float(scale))
        while Fraction(least) < scale:
            least = next_scale(least)
        used, noise = drawn(LAPLACE, least, _float_below(1 / scale), size)
        return _held(noise, math.isfinite(used) and scale <= Fraction(used) <= scale * (1 + SCALE_SLACK))


def _held(noise: NDArray[np.int64], is_planned: bool) -> NDArray[np.int64]:
    """Return ``noise`` if ``is_planned``, and raise OdError if not.

    ``is_planned`` states whether OpenDP's privacy map allowed the scale, and whether the scale is within the slack of
    the planned scale.
    """
    if not is_planned:
        raise _refused("OpenDP's privacy map exceeds the planned loss")
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
