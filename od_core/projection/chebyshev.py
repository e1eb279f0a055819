"""IntOpt: integers y >= 0 with a given sum that minimise max |x - y| (spec 1, "IntOpt"; paper, section 4.2).

With z = y - x the walk of the paper starts at z_i = max(a, -x_i), a = ceil((c - sum x) / b), at distance
t = max |z_i|, with an excess E = sum z - (c - sum x) >= 0, and takes the excess from the smallest x first, each
down to max(-x_i, -t). Where that does not suffice, t grows to t*, the least distance with
sum max(x_i - t*, 0) <= c; then everything stands at max(x_i - (t* - 1), 0) and the first E of the positive
entries lose one unit more. Either way the walk is "take in order of x until E is gone", so it needs no sort:
the x at which E runs out is found by bisection (spec 7, recipe 5).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from od_core.compiled import kernel
from od_core.errors import OdError, nearest_known

Order = Literal["ascending", "descending"]
ORDERS = ("ascending", "descending")

_LIMIT = 3.0 * 2**60
"""Bound of sum |x| + c + b, checked in the kernel: every sum below it, twice over, fits 64 bits."""


def intopt(noisy: ArrayLike, total: int, order: Order = "ascending") -> NDArray[np.int64]:
    """Nearest non-negative integers with the given sum, in Chebyshev distance.

    Args:
        noisy: x, integers of any sign; shape (b,), b >= 1. Ties of x are broken by position.
        total: c >= 0.
        order: take the excess from the smallest x first (``ascending``: noise on empty pairs dies) or from
            the largest (``descending``: small true flows survive).

    Returns:
        y, shape (b,), y >= 0, sum y = c.

    Raises:
        OdError: c < 0, no children, values that are not whole numbers or too large for 64-bit arithmetic.

    >>> intopt([3, -1, 10], 9)
    array([1, 0, 8])
    """
    x = np.asarray(noisy)
    if x.ndim != 1 or len(x) == 0:
        raise _fault("OD-INTOPT-EMPTY", "there are no children to share the total among")
    if not np.issubdtype(x.dtype, np.integer) or isinstance(total, bool) or not isinstance(total, int | np.integer):
        raise _fault("OD-INTOPT-INTEGER", "noisy values and total must be whole numbers")
    if total < 0:
        raise _fault("OD-INTOPT-TOTAL", "the total is negative")
    if total >= 1 << 62 or x.max() >= 1 << 62 or x.min() <= -(1 << 62):
        raise _overflow()
    return project_children(x.astype(np.int64), np.array([int(total)]), np.array([0, len(x)]), order)


def project_children(
    noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64], order: Order = "ascending"
) -> NDArray[np.int64]:
    """IntOpt for every parent: children ``offsets[p]:offsets[p + 1]`` share ``totals[p]``; shape of ``noisy``.

    Raises:
        OdError: a parent without children or with a negative total, or sums beyond 64-bit arithmetic.
    """
    if order not in ORDERS:
        raise _fault("OD-INTOPT-ORDER", f"there is no order {order!r} ({nearest_known(str(order), ORDERS)})")
    if np.any(np.diff(offsets) <= 0):
        raise _fault("OD-INTOPT-EMPTY", "there are no children to share the total among")
    if np.any(totals < 0):
        raise _fault("OD-INTOPT-TOTAL", "the total is negative")
    projected = np.empty_like(noisy)
    if not _project_all(noisy, totals, offsets, order == "descending", projected):
        raise _overflow()
    return projected


@kernel
def _project_all(noisy, totals, offsets, descending, projected):  # type: ignore[no-untyped-def]  # compiled
    """Project every parent; False where a sum would not fit 64 bits."""
    for parent in range(len(totals)):
        first, last = offsets[parent], offsets[parent + 1]
        x, y = noisy[first:last], projected[first:last]
        size = 0.0
        for value in x:
            size += abs(np.float64(value))
        if size + totals[parent] + len(x) >= _LIMIT:
            return False
        if len(x) == 1:
            y[0] = totals[parent]
        else:
            _project(x, totals[parent], descending, y)
    return True


@kernel
def _project(x, total, descending, y):  # type: ignore[no-untyped-def]  # compiled
    """IntOpt for one parent of at least two children; see the module's head for the names."""
    a = -((np.sum(x) - total) // len(x))  # ceil((c - sum x) / b): floor division of the negative
    excess = -total
    distance = np.int64(0)
    for value in x:
        z = max(a, -value)
        excess += value + z
        distance = max(distance, abs(z))
    capacity = np.int64(0)
    for value in x:
        capacity += max(a + min(value, distance), 0)

    if capacity >= excess:
        # z falls from max(a, -x) to max(-x, -t) at the most: by max(a + min(x, t), 0).
        for i in range(len(x)):
            y[i] = max(x[i] + a, 0)
        _take(x, y, a, distance, excess, descending)
    else:
        lift = 1 - _least_distance(x, total, distance)  # everything stands at max(x - (t* - 1), 0)
        excess = -total
        for i in range(len(x)):
            y[i] = max(x[i] + lift, 0)
            excess += y[i]
        _take(x, y, lift, 1 - lift, excess, descending)


@kernel
def _least_distance(x, total, too_small):  # type: ignore[no-untyped-def]  # compiled
    """t*: the least t with sum max(x - t, 0) <= c, known to be above ``too_small``."""
    low, high = too_small, max(np.max(x), too_small + 1)
    while high - low > 1:
        middle = low + (high - low) // 2
        kept = np.int64(0)
        for value in x:
            kept += max(value - middle, 0)
        if kept <= total:
            high = middle
        else:
            low = middle
    return high


@kernel
def _take(x, y, a, distance, excess, descending):  # type: ignore[no-untyped-def]  # compiled
    """Take ``excess`` out of y in order of x, ties in order of position, each by max(a + min(x, t), 0)."""
    # The largest threshold such that all entries strictly before it, in the order, lose no more than the excess.
    sign = -1 if descending else 1
    low, high = np.min(sign * x), np.max(sign * x) + 1
    while high - low > 1:
        middle = low + (high - low) // 2
        before = np.int64(0)
        for value in x:
            if sign * value < middle:
                before += max(a + min(value, distance), 0)
        if before <= excess:
            low = middle
        else:
            high = middle
    for i in range(len(x)):
        if sign * x[i] < low:
            loss = max(a + min(x[i], distance), 0)
            y[i] -= loss
            excess -= loss
    for i in range(len(x)):
        if sign * x[i] == low:
            loss = min(max(a + min(x[i], distance), 0), excess)
            y[i] -= loss
            excess -= loss


def _fault(code: str, message: str) -> OdError:
    return OdError(code, message, next_step="correct the call")


def _overflow() -> OdError:
    return OdError(
        "OD-INTOPT-OVERFLOW",
        "the values are too large for 64-bit sums",
        next_step="use smaller counts or less noise",
        spent="what was drawn stays charged",
    )
