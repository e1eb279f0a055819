"""Fit non-decreasing values to noisy values (isotonic regression), for many rows at once, in integer arithmetic.

The values of a row lie between 0 and an upper bound of the row. The best values within bounds are the best values
without bounds, clipped to the bounds. The reason is that the positions with a value above a threshold can be found for
each threshold independently, and a bound only removes the thresholds beyond it. By the same argument, the least and the
greatest optimal solution can be clipped separately.

References:
    [barlow1972isotonic] for pooling; [kuo2018countofcounts, sections 4.2 and 4.3] for its use.
"""

from __future__ import annotations

import numpy as np

from od_core.group_sizes.groups import Counts
from od_core.kernels import kernel


def least_squares(noisy: Counts, offsets: Counts, upper: Counts) -> tuple[Counts, Counts, Counts]:
    """Return the non-decreasing values within bounds with the least sum of squared distances from the noisy values.

    The values are exact fractions. The method is pool adjacent violators. Its time is linear in the number of values.

    Args:
        noisy: integers, one row after the other. The absolute values of a row sum to less than 2^63.
        offsets: values ``offsets[r]:offsets[r + 1]`` are row r. A row may be empty, and is shorter than 2^31.
        upper: upper bound of each row, at least 0. A bound times the length of its row fits 64 bits.

    Returns:
        Steps, which are maximal sequences of equal values in a row: ``first``, of which steps ``first[r]:first[r + 1]``
        belong to row r; shape (rows + 1,); and the number and the sum of the values in each step; shape (steps,) each.

    >>> least_squares(np.array([3, 1, 1, 9]), np.array([0, 4]), np.array([8]))
    (array([0, 2]), array([3, 1]), array([5, 8]))
    """
    lengths, totals = np.empty_like(noisy), np.empty_like(noisy)
    first = np.zeros(len(offsets), dtype=np.int64)
    _pool_all(noisy, offsets, upper, first, lengths, totals)
    return first, lengths[: first[-1]].copy(), totals[: first[-1]].copy()


def least_absolute(noisy: Counts, offsets: Counts, upper: Counts) -> tuple[Counts, Counts]:
    """Return non-decreasing values within bounds with the least sum of absolute distances from the noisy values.

    Several solutions may be optimal. All of them lie between the least and the greatest one, and the midpoint of these
    two is optimal too. A row of n values takes O(n log n) time, with a heap.

    Args:
        noisy: integers, one row after the other.
        offsets: values ``offsets[r]:offsets[r + 1]`` are row r, which may be empty.
        upper: upper bound of each row, at least 0.

    Returns:
        The least and the greatest optimal solution, as integers in the shape of ``noisy``.

    >>> least_absolute(np.array([3, 1, 9]), np.array([0, 3]), np.array([8]))
    (array([1, 1, 8]), array([3, 3, 8]))
    """
    least, greatest = np.empty_like(noisy), np.empty_like(noisy)
    heap = np.empty(int(np.diff(offsets).max(initial=0)), dtype=np.int64)
    _extremes_of_all(noisy, offsets, upper, heap, least, greatest)
    return least, greatest


@kernel
def _pool_all(noisy, offsets, upper, first, lengths, totals):  # type: ignore[no-untyped-def]  # compiled
    """Write the steps of every row into ``first``, ``lengths`` and ``totals``.

    Each value is merged with the steps before it until their means ascend. Then the steps are clipped to the bounds of
    the row.
    """
    end = 0
    for row in range(len(offsets) - 1):
        begin = end
        for i in range(offsets[row], offsets[row + 1]):
            length, total = np.int64(1), noisy[i]
            while end > begin and not _below(totals[end - 1], lengths[end - 1], total, length):
                end -= 1
                length += lengths[end]
                total += totals[end]
            lengths[end], totals[end] = length, total
            end += 1
        end = _clip(begin, end, upper[row], lengths, totals)
        first[row + 1] = end


@kernel
def _below(total, length, other_total, other_length):  # type: ignore[no-untyped-def]  # compiled
    """Return whether total / length is below other_total / other_length.

    The comparison is exact. If the integer parts are equal, the remainders are compared by cross products, which fit 64
    bits.
    """
    if length == 1 and other_length == 1:
        return total < other_total
    whole, other_whole = total // length, other_total // other_length
    if whole != other_whole:
        return whole < other_whole
    return (total - whole * length) * other_length < (other_total - other_whole * other_length) * length


@kernel
def _clip(begin, end, upper, lengths, totals):  # type: ignore[no-untyped-def]  # compiled
    """Clip the steps ``begin:end`` of a row in place, merge the steps at the same bound, and return the new end."""
    kept = begin
    for k in range(begin, end):
        length, total = lengths[k], totals[k]
        total = min(max(total, 0), upper * length)
        for bound in (0, upper):
            if kept > begin and total == bound * length and totals[kept - 1] == bound * lengths[kept - 1]:
                kept -= 1
                length += lengths[kept]
                total += totals[kept]
        lengths[kept], totals[kept] = length, total
        kept += 1
    return kept


@kernel
def _extremes_of_all(noisy, offsets, upper, heap, least, greatest):  # type: ignore[no-untyped-def]  # compiled
    """Write the least and the greatest optimal solution of every row into ``least`` and ``greatest``.

    The greatest solution is found as the least solution of the reversed row with opposite signs.
    """
    for row in range(len(offsets) - 1):
        first, last = offsets[row], offsets[row + 1]
        _least(noisy[first:last], 0, upper[row], heap, least[first:last])
        mirrored = -noisy[first:last][::-1]
        _least(mirrored, -upper[row], 0, heap, mirrored)
        greatest[first:last] = -mirrored[::-1]


@kernel
def _least(row, lower, upper, heap, least):  # type: ignore[no-untyped-def]  # compiled
    """Write the least optimal solution of one row into ``least``, which may be the row itself.

    Let f_k(z) be the least cost of the first k values if the solution is at most z. This function is convex,
    non-increasing and finally constant. The heap contains the points z at which its slope changes by 1. The largest of
    them, at which f_k becomes constant, is on top. The solution is computed from the last value backwards: each value
    is the minimum of the next value and the top of the heap at that step.
    """
    for k in range(len(row)):
        value = min(max(row[k], lower), upper)  # the cost within the bounds changes by a constant
        if k > 0 and heap[0] > value:
            _replace_top(heap, k, value)
        _push(heap, k, value)
        least[k] = heap[0]
    answer = upper
    for k in range(len(row) - 1, -1, -1):
        answer = min(answer, least[k])
        least[k] = answer


@kernel
def _push(heap, size, value):  # type: ignore[no-untyped-def]  # compiled
    """Add a value to a heap of ``size`` values with the largest on top."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if heap[above] >= value:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = value


@kernel
def _replace_top(heap, size, value):  # type: ignore[no-untyped-def]  # compiled
    """Replace the largest value of a heap of ``size`` values by a smaller value."""
    at, below = 0, 1
    while below < size:
        if below + 1 < size and heap[below + 1] > heap[below]:
            below += 1
        if heap[below] <= value:
            break
        heap[at] = heap[below]
        at, below = below, 2 * below + 1
    heap[at] = value
