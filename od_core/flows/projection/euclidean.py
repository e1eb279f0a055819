"""Project children onto integers y >= 0 with a given sum that minimise sum (x - y)^2.

This is the projection of the mechanism ``tda_l2`` [boninsegna2025inftda, section 5].

Over the reals, the optimum is the projection onto the simplex, y_i = max(x_i - theta, 0), where theta is the rational
number at which the y_i sum to c. Since x is whole, all positive y_i have the same fractional part. Let k = ceil(theta),
the least whole number with sum max(x_i - k, 0) <= c. Rounding down gives max(x_i - k, 0). Fewer units remain than there
are positive y_i, and none where theta is whole. They go one each to the largest x first, with ties by position, so that
small values are the ones that vanish.

The result is also optimal among whole numbers. The last unit of an entry y_i costs 2 (y_i - x_i) - 1, and its next unit
costs 2 (y_i - x_i) + 1. An entry that received no remaining unit is x_i - k, or 0 >= x_i - k, so its next unit costs at
least 1 - 2k. An entry that received one is x_i - k + 1, so its last unit costs 1 - 2k; the last unit of any other entry
costs less. So no unit can move to a place where it costs less, which is sufficient for a sum of convex functions.

The code computes neither theta nor any fraction. Newton's method on whole numbers finds k, and bisection finds the
least x that receives a remaining unit. So nothing is sorted, and no array but x is read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.flows.projection.parents import check_parents
from od_core.kernels import kernel


def project_children_euclidean(
    noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the non-negative integers with the given sums nearest in Euclidean distance, for every parent.

    Args:
        noisy: The integers x, of any sign: the children of all parents, one parent after the other.
        totals: The sums c >= 0, one for each parent.
        offsets: Children ``offsets[p]:offsets[p + 1]`` share ``totals[p]``; one entry more than ``totals``.

    Returns:
        y >= 0, in the shape of ``noisy``; the children of parent p sum to ``totals[p]``.

    Raises:
        OdError: If a parent has no children or a negative total, or if sums exceed 64-bit arithmetic.

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
    """Give the remaining units, one each, to the largest x; more children than units have x >= ``threshold``.

    Bisection on the value: at least ``left`` children have x >= ``least``, and fewer have x >= ``beyond``.
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


# Shared by IntOpt and the Euclidean projection.


@kernel
def least_threshold(noisy, first, last, high, total, at_least):  # type: ignore[no-untyped-def]  # compiled
    """Return the least whole t, at least ``at_least``, with sum max(x - t, 0) <= c.

    Uses Newton's method from the left. The sum is convex in t, so no step overshoots, even when rounded up to a whole
    number.
    """
    t = max(at_least, high - total)  # required by the largest x alone
    while True:
        over, larger = -total, np.int64(0)
        for i in range(first, last):
            over += max(noisy[i] - t, 0)
            larger += noisy[i] > t
        if over <= 0:
            return t
        t -= -over // larger
