"""Compute the ends of the 90 % intervals of unbiased estimates from their variances."""

from __future__ import annotations

import numpy as np

from od_core.flows.arrays import Integers, Reals

DEVIATIONS = 1.6448536269514722
"""Half-width, in standard deviations, of the interval that contains a normal variable with probability 0.9."""

ROUNDING = 1e-9
"""Largest relative error of an estimate from floating-point rounding, by which intervals are widened."""

_MOST_TOLERANCE = 0.25
"""Largest widening, in trips, so that the interval of a number that is known exactly contains only that number."""


def lower_bound(estimate: Reals, variance: Reals) -> Integers:
    """Return the lower ends of the 90 % intervals of unbiased estimates with the given variances.

    The ends are whole numbers of at least 0. All three arrays have the same shape.
    """
    return np.maximum(np.ceil(estimate - half_width(estimate, variance)), 0).astype(np.int64)


def upper_bound(estimate: Reals, variance: Reals) -> Integers:
    """Return the upper ends of the same intervals as :func:`lower_bound`."""
    return np.maximum(highest(estimate, variance), 0)


def highest(estimate: Reals, variance: Reals) -> Integers:
    """Return the upper ends of the 90 % intervals of numbers that may be negative; whole numbers of the same shape."""
    return np.floor(estimate + half_width(estimate, variance)).astype(np.int64)


def half_width(estimate: Reals, variance: Reals) -> Reals:
    """Return the half-widths of the intervals of estimates with the given variances; shape of ``estimate``.

    An estimate is a multiple of 1 or, if the sum of two areas is known exactly, of 1/2. A quarter is added to the
    half-width, so that the ends lie between two multiples. The interval is at least 1 wide.
    """
    width = DEVIATIONS * np.sqrt(variance)
    rounding = np.minimum(ROUNDING * (1 + np.abs(estimate)), _MOST_TOLERANCE)
    return np.maximum(np.maximum(width + 0.25, 0.5), np.ceil(width - 0.5)) + rounding
