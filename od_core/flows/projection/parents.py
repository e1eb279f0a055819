"""Check the input of the projections: every parent has children, a total of at least 0, and sums that fit 64 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.kernels import kernel

_LIMIT = 3.0 * 2**60
"""Upper limit of sum |x| + c + b, for b children with noisy counts x and total c. Twice a smaller sum fits 64 bits."""

_NEAR = 1 << 40
"""Noisy counts below this magnitude need no further check: fewer than 2^20 of them, with a total below 2^60, are within
``_LIMIT``."""

_EMPTY, _NEGATIVE, _OVERFLOW = 1, 2, 3


def check_parents(noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
    """Refuse input that a projection cannot process.

    Args:
        noisy: Noisy counts of the children of all parents, one parent after the other; shape (children,).
        totals: Total of each parent; shape (parents,).
        offsets: The children of parent ``p`` are ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).

    Raises:
        OdError: If a parent has no children or a negative total, or if sums exceed 64-bit arithmetic.
    """
    found = _first_fault(noisy, totals, offsets)
    if found == _EMPTY:
        raise empty()
    if found == _NEGATIVE:
        raise negative()
    if found == _OVERFLOW:
        raise overflow()


@kernel
def _first_fault(noisy, totals, offsets):  # type: ignore[no-untyped-def]  # compiled
    """Return the fault of the first parent that has one: ``_EMPTY``, ``_NEGATIVE`` or ``_OVERFLOW``; 0 if none has."""
    low = high = np.int64(0)
    for i in range(np.uint64(len(noisy))):
        low, high = min(low, noisy[i]), max(high, noisy[i])
    far = low <= -_NEAR or high >= _NEAR
    for parent in range(len(totals)):
        children, total = offsets[parent + 1] - offsets[parent], totals[parent]
        if children <= 0:
            return _EMPTY
        if total < 0:
            return _NEGATIVE
        if far or total >= 1 << 60 or children >= 1 << 20:
            size = np.float64(total) + children
            for i in range(np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])):
                size += abs(np.float64(noisy[i]))
            if size >= _LIMIT:
                return _OVERFLOW
    return 0


def fault(code: str, message: str) -> OdError:
    """Return the error for a call with invalid arguments."""
    return OdError(code, message, next_step="correct the call")


def empty() -> OdError:
    """Return the error for a parent without children."""
    return fault("OD-INTOPT-EMPTY", "there are no children among which to divide the total")


def negative() -> OdError:
    """Return the error for a total below 0."""
    return fault("OD-INTOPT-TOTAL", "the total is negative")


def overflow() -> OdError:
    """Return the error for values that are too large for 64-bit sums."""
    return OdError(
        "OD-INTOPT-OVERFLOW",
        "the values are too large for 64-bit sums",
        next_step="use smaller counts or less noise",
        spent="draws already made stay charged",
    )
