"""Euclidean projection: y >= 0 with a given sum that minimise sum (x - y)^2 over the reals, then whole numbers.

This is the projection of the mechanism ``tda_l2`` (spec 2; paper, section 5). Over the reals the optimum is
y_i = max(x_i - theta, 0), the projection onto the simplex, where theta is the one rational number at which the y_i
sum to c. Since x is whole, all positive y_i have the same fractional part. With k = ceil(theta), the least whole
number with sum max(x_i - k, 0) <= c, rounding down gives max(x_i - k, 0). The units that are left are fewer than
the positive y_i (none is left where theta is whole); they go, one each, to the largest x first, ties by position,
so that small values are the ones that vanish.

The result is also optimal among whole numbers. The last unit of an entry y_i costs 2 (y_i - x_i) - 1 and its next one
2 (y_i - x_i) + 1. An entry without one of the left units stands at x_i - k, or at 0 >= x_i - k: its next unit costs at
least 1 - 2k. An entry with one stands at x_i - k + 1: its last unit costs 1 - 2k; the last unit of any other costs
less. So no unit can be moved to where it costs less, and for a sum of convex functions that is enough.

No theta is computed and there is no fraction: k is found by Newton's method on whole numbers, and the x from which
on the units are given by bisection, so nothing is sorted and no array but x is read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.flows.projection.parents import check_parents
from od_core.kernels import kernel


def project_children_euclidean(
    noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Nearest non-negative integers with the given sums, in Euclidean distance, for every parent.

    Args:
        noisy: x, integers of any sign; the children of all parents, one parent after the other.
        totals: c >= 0, one a parent.
        offsets: children ``offsets[p]:offsets[p + 1]`` share ``totals[p]``; one entry more than ``totals``.

    Returns:
        y >= 0, shape of ``noisy``; the children of parent p sum to ``totals[p]``.

    Raises:
        OdError: a parent without children or with a negative total, or sums beyond 64-bit arithmetic.

    >>> project_children_euclidean(np.array([3, -1, 10]), np.array([10]), np.array([0, 3]))
    array([1, 0, 9])
    """
    check_parents(noisy, totals, offsets)
    projected = np.empty_like(noisy)
    _project_all(noisy, totals, offsets, projected)
    return projected


@kernel
def _project_all(noisy, totals, offsets, projected):  # type: ignore[no-untyped-def]  # compiled
    """Project every parent."""
    for parent in range(len(totals)):
        children, total = offsets[parent + 1] - offsets[parent], totals[parent]
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        high = noisy[first]
        noisy_sum = np.int64(0)
        for i in range(first, last):
            noisy_sum += noisy[i]
            high = max(high, noisy[i])
        mean_excess = -((total - noisy_sum) // children)  # ceil((sum x - c) / b): at theta, sum (x - theta) <= c
        threshold = least_threshold(noisy, first, last, high, total, mean_excess)
        left = total
        for i in range(first, last):
            projected[i] = max(noisy[i] - threshold, 0)
            left -= projected[i]
        if left > 0:
            _give(noisy, first, last, threshold, high, left, projected)


@kernel
def _give(noisy, first, last, threshold, high, left, projected):  # type: ignore[no-untyped-def]  # compiled
    """Give the units that are left to the largest x, one each; more than that many stand at ``threshold`` or above.

    Bisection on the value: at least so many stand at ``least`` or above, fewer at ``beyond`` or above.
    """
    least, beyond = threshold, high + 1
    while beyond - least > 1:
        middle = least + (beyond - least) // 2
        reached = np.int64(0)
        for i in range(first, last):
            reached += noisy[i] >= middle
        if reached >= left:
            least = middle
        else:
            beyond = middle
    for i in range(first, last):
        larger = np.int64(noisy[i] > least)
        projected[i] += larger
        left -= larger
    for i in range(first, last):
        if left == 0:
            break
        if noisy[i] == least:
            projected[i] += 1
            left -= 1


# The threshold that IntOpt and the Euclidean projection share: where sum max(x - t, 0) falls to the total.


@kernel
def least_threshold(noisy, first, last, high, total, at_least):  # type: ignore[no-untyped-def]  # compiled
    """The least whole t, of `at_least` or more, with sum max(x - t, 0) <= c.

    Newton's method from the left: the sum is convex in t, so no step, rounded up to a whole number, goes beyond it.
    """
    t = max(at_least, high - total)  # the largest alone asks for so much
    while True:
        over, larger = -total, np.int64(0)
        for i in range(first, last):
            over += max(noisy[i] - t, 0)
            larger += noisy[i] > t
        if over <= 0:
            return t
        t -= -over // larger
