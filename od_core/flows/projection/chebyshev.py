"""Project children with IntOpt: find integers y >= 0 with a given sum that minimise max |x - y|.

This is the optimisation of [boninsegna2025inftda, section 4.2], without its sort. In the following, x are the noisy
counts of the b children of one parent, and c is the parent's total, the sum that y must have.

Let z = y - x. The search starts at z_i = max(a, -x_i) with a = ceil((c - sum x) / b). The distance is then
t = max |z_i|, and the excess is E = sum z - (c - sum x) >= 0. The search removes the excess by lowering z, for the
smallest x first, each z_i to max(-x_i, -t) at the lowest. If this does not remove the whole excess, the distance
becomes t*, the smallest t with sum max(x_i - t, 0) <= c. Every y_i is then max(x_i - (t* - 1), 0), minus 1 for the
first E positive entries, where E is the excess of these y.

Both cases lower entries in order of x until the excess is removed. Bisection finds the x at which this happens, so no
sort is needed. The search reads no array except x.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from od_core.flows.projection.euclidean import least_threshold
from od_core.flows.projection.parents import check_parents, empty, fault, negative, overflow
from od_core.kernels import kernel
from od_core.registry import refuse_unknown

Order = Literal["ascending", "descending"]
ORDERS: tuple[Order, ...] = ("ascending", "descending")


def intopt(noisy: ArrayLike, total: int, order: Order = "ascending") -> NDArray[np.int64]:
    """Return the non-negative integers with the given sum that are nearest to ``noisy`` in Chebyshev distance.

    Args:
        noisy: The integers x, of any sign; shape (b,), b >= 1. Ties are broken by position.
        total: The sum c >= 0.
        order: Several y can be nearest. ``ascending`` lowers the smallest x first, which removes noise on empty pairs.
            ``descending`` lowers the largest x first, which preserves small true flows.

    Returns:
        Integers y >= 0 with sum y = c; shape (b,).

    Raises:
        OdError: If c < 0, if there are no children, if the order is unknown, or if values are not whole numbers or are
            too large for 64-bit arithmetic.

    >>> intopt([3, -1, 10], 9)
    array([1, 0, 8])
    """
    x = np.asarray(noisy)
    if x.ndim != 1 or len(x) == 0:
        raise empty()
    if not np.issubdtype(x.dtype, np.integer) or isinstance(total, bool) or not isinstance(total, int | np.integer):
        raise fault("OD-INTOPT-INTEGER", "noisy values and total must be whole numbers")
    if total < 0:
        raise negative()
    if total >= 1 << 62 or x.max() >= 1 << 62 or x.min() <= -(1 << 62):
        raise overflow()
    return project_children(x.astype(np.int64), np.array([int(total)]), np.array([0, len(x)]), order)


def project_children(
    noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64], order: Order = "ascending"
) -> NDArray[np.int64]:
    """Apply IntOpt to the children of every parent, and return their projected counts.

    Args:
        noisy: Integers of any sign: the children of all parents, one parent after the other; shape (children,).
        totals: The sum that the children of each parent must have, at least 0; shape (parents,).
        offsets: The children of parent ``p`` are ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).
        order: See :func:`intopt`.

    Returns:
        Integers of at least 0; shape (children,).

    Raises:
        OdError: If the order is unknown, if a parent has no children or a negative total, or if sums exceed 64-bit
            arithmetic.
    """
    refuse_unknown("order", order, ORDERS, code="OD-INTOPT-ORDER", next_step="choose ascending or descending")
    check_parents(noisy, totals, offsets)
    projected = np.empty_like(noisy)
    _project_all(noisy, totals, offsets, order == "descending", projected)
    return projected


@kernel
def _project_all(noisy, totals, offsets, descending, projected):  # type: ignore[no-untyped-def]  # compiled
    """Write the projected counts of the children of every parent into ``projected``.

    Nearly all the time is spent in loops over children. These loops compile to vector instructions, which are five
    times as fast, because they contain no branch and their positions are unsigned. For signed positions, Numba would
    add a check for negative values.
    """
    for parent in range(len(totals)):
        children, total = offsets[parent + 1] - offsets[parent], totals[parent]
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        low = high = noisy[first]
        noisy_sum = np.int64(0)
        for i in range(first, last):
            noisy_sum += noisy[i]
            low, high = min(low, noisy[i]), max(high, noisy[i])
        if children == 1:
            projected[first] = total
        elif total == 0:
            for i in range(first, last):
                projected[i] = 0
        else:
            _project(noisy, first, last, children, low, high, noisy_sum, total, descending, projected)


@kernel
def _project(noisy, first, last, children, low, high, noisy_sum, total, descending, projected):  # type: ignore[no-untyped-def]  # compiled
    """Write the projected counts of the children of one parent into ``projected``. It has at least two children.

    The children are ``noisy[first:last]``, with minimum ``low``, maximum ``high`` and sum ``noisy_sum``. The module
    docstring defines a, distance (t), excess (E) and total (c).
    """
    a = -((noisy_sum - total) // children)  # ceil((c - sum x) / b): floor division of the negative
    distance = max(abs(max(a, -low)), abs(max(a, -high)))  # z falls as x rises
    excess, capacity = -total, np.int64(0)
    for i in range(first, last):
        excess += max(noisy[i] + a, 0)
        capacity += max(a + min(noisy[i], distance), 0)  # z falls from max(a, -x) to max(-x, -t) at most
    if capacity < excess:
        distance = least_threshold(noisy, first, last, high, total, distance)
        a = 1 - distance  # every y is max(x - (t* - 1), 0)
        excess, capacity = -total, np.int64(0)
        for i in range(first, last):
            excess += max(noisy[i] + a, 0)
            capacity += noisy[i] >= distance
    _take(noisy, first, last, low, high, a, distance, excess, capacity, descending, projected)


@kernel
def _take(noisy, first, last, low, high, a, distance, excess, capacity, descending, projected):  # type: ignore[no-untyped-def]  # compiled
    """Write max(x + a, 0), lowered by ``excess`` in total, into ``projected`` for the children of one parent.

    Children are lowered in order of x, with ties by position, each by at most max(a + min(x, t), 0), where t is
    ``distance``. ``capacity`` is the sum of these limits. Children with x before ``threshold`` are lowered by their
    limit. Those with x at the threshold are lowered one after the other until the excess is removed. In descending
    order, ~x = -x - 1 is compared instead of x, since it decreases as x increases.
    """
    flip = np.int64(-1) if descending else np.int64(0)
    lowest = max(low, 1 - a)  # smaller x cannot be lowered
    if (excess if descending else capacity - excess) <= max(a + min(high, distance), 0):
        threshold = high ^ flip  # a common case in sparse flows
    else:
        # Bisect on x: the limits of children before `threshold` sum to at most the excess, before `beyond` to more.
        threshold, beyond = (~high, ~lowest + 1) if descending else (lowest, high + 1)
        while beyond - threshold > 1:
            middle = threshold + (beyond - threshold) // 2
            before = np.int64(0)
            for i in range(first, last):
                before += max(a + min(noisy[i], distance), 0) if noisy[i] ^ flip < middle else 0
            if before <= excess:
                threshold = middle
            else:
                beyond = middle
    for i in range(first, last):
        gives = max(a + min(noisy[i], distance), 0) if noisy[i] ^ flip < threshold else 0
        projected[i] = max(noisy[i] + a, 0) - gives
        excess -= gives
    at = threshold ^ flip
    gives = max(a + min(at, distance), 0)
    for i in range(first, last):
        if excess == 0:
            break
        if noisy[i] == at:
            given = min(gives, excess)
            projected[i] -= given
            excess -= given
