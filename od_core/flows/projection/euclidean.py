"""Project children onto integers y >= 0 with a given sum that minimise sum (x - y)^2.

This is the projection of the mechanism ``tda_l2`` [boninsegna2025inftda, section 5]. In the following, x are the noisy
counts of the children of one parent, and c is the parent's total, the sum that y must have.

Over the reals, the optimum is the projection onto the simplex, y_i = max(x_i - theta, 0), where theta is the rational
number for which the y_i sum to c. Since x is whole, all positive y_i have the same fractional part. Let k be theta
rounded up: the smallest whole number with sum max(x_i - k, 0) <= c. Rounding every y_i down gives max(x_i - k, 0). The
sum is then less than c by fewer units than there are positive y_i, or equal to c if theta is whole. The missing units
are added, one per entry, to the largest x first, with ties by position. So the entries that become 0 are those with
small x.

The result is also optimal among whole numbers. The last unit of an entry y_i adds 2 (y_i - x_i) - 1 to the sum of
squares, and one more unit would add 2 (y_i - x_i) + 1. For an entry that received no missing unit, y_i is x_i - k, or
0 >= x_i - k, so one more unit would add at least 1 - 2k. For an entry that received one, y_i is x_i - k + 1, so its
last unit added 1 - 2k. The last unit of any other entry added less. So moving a unit from one entry to another cannot
reduce the sum of squares. Since that sum is a sum of convex functions of the entries, this is sufficient.

The code computes neither theta nor any fraction. Newton's method on whole numbers finds k, and bisection finds the
smallest x that receives a missing unit. So nothing is sorted, and no array except x is read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.flows.projection.parents import check_parents
from od_core.kernels import kernel


def project_children_euclidean(
    noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return, for the children of every parent, the nearest non-negative integers that sum to the parent's total.

    "Nearest" means the smallest Euclidean distance.

    Args:
        noisy: Integers of any sign: the children of all parents, one parent after the other; shape (children,).
        totals: The sum that the children of each parent must have, at least 0; shape (parents,).
        offsets: The children of parent ``p`` are ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).

    Returns:
        Integers of at least 0; shape (children,). The children of parent ``p`` sum to ``totals[p]``.

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
    """Write the projected counts of the children of every parent into ``projected``."""
    for parent in range(len(totals)):
        children, total = offsets[parent + 1] - offsets[parent], totals[parent]
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        high = noisy[first]
        noisy_sum = np.int64(0)
        for i in range(first, last):
            noisy_sum += noisy[i]
            high = max(high, noisy[i])
        mean_excess = -((total - noisy_sum) // children)  # ceil((sum x - c) / b), a lower bound of k
        threshold = least_threshold(noisy, first, last, high, total, mean_excess)
        left = total
        for i in range(first, last):
            projected[i] = max(noisy[i] - threshold, 0)
            left -= projected[i]
        if left > 0:
            _give(noisy, first, last, threshold, high, left, projected)


@kernel
def _give(noisy, first, last, threshold, high, left, projected):  # type: ignore[no-untyped-def]  # compiled
    """Add the ``left`` units that are missing from the parent's total to the children with the largest x, one each.

    At least ``left`` children have x >= ``threshold``. During the bisection, at least ``left`` children have x >=
    ``least``, and fewer than ``left`` have x >= ``beyond``.
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
    """Return the smallest whole number t >= ``at_least`` with sum max(x - t, 0) <= ``total``.

    The sum is over x = ``noisy[first:last]``, whose maximum is ``high``. Newton's method starts below t. Since the sum
    is convex in t, no step overshoots, even when the step is rounded up to a whole number.
    """
    t = max(at_least, high - total)  # the largest x alone requires high - t <= total
    while True:
        over, larger = -total, np.int64(0)
        for i in range(first, last):
            over += max(noisy[i] - t, 0)
            larger += noisy[i] > t
        if over <= 0:
            return t
        t -= -over // larger
