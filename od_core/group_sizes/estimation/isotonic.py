"""Isotonic regression: the non-decreasing values nearest to noisy ones, for many rows at once, in whole numbers.

Bounds cost nothing: the best values within bounds are the best ones without them, clipped. For every cut, the places
whose value lies above it are found by themselves, whatever the other cuts, and a bound only removes the cuts beyond
it. The same argument shows that the least and the greatest of all optimal answers are clipped one by one.

Source: Barlow & Brunk (1972) for pooling; Kuo et al., sections 4.2 and 4.3, for its use.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from od_core.group_sizes.groups import Counts
from od_core.kernels import kernel


@dataclass(frozen=True, eq=False)
class Steps:
    """Ascending rows of values as steps: neighbours of one row are equal exactly where they share a step.

    Attributes:
        first: steps ``first[r]:first[r + 1]`` are those of row r; shape (rows + 1,).
        lengths: how many values a step holds, at least 1; shape (steps,).
        totals: their sum, so that each is ``totals / lengths``; shape (steps,).
    """

    first: Counts
    lengths: Counts
    totals: Counts


def least_squares(noisy: Counts, offsets: Counts, lower: Counts, upper: Counts) -> Steps:
    """The ascending values within bounds with the least sum of squared distances, as exact fractions.

    Pool adjacent violators, linear in the number of values.

    Args:
        noisy: whole numbers, one row after the other; the absolute values of a row sum to less than 2^63.
        offsets: values ``offsets[r]:offsets[r + 1]`` are row r, which may be empty and is shorter than 2^31.
        lower, upper: one of each a row, lower <= upper; times the length of the row they fit 64 bits.

    >>> least_squares(np.array([3, 1, 1, 9]), np.array([0, 4]), np.array([0]), np.array([8])).totals
    array([5, 8])
    """
    lengths, totals = np.empty_like(noisy), np.empty_like(noisy)
    first = np.zeros(len(offsets), dtype=np.int64)
    _pool_all(noisy, offsets, lower, upper, first, lengths, totals)
    return Steps(first, lengths[: first[-1]].copy(), totals[: first[-1]].copy())


def least_absolute(noisy: Counts, offsets: Counts, lower: Counts, upper: Counts) -> tuple[Counts, Counts]:
    """The ascending values within bounds with the least sum of distances: the least and the greatest such answer.

    Every optimal answer lies between the two, and their midpoint is one. O(n log n) a row, with a heap.

    Args:
        noisy: whole numbers, one row after the other.
        offsets: values ``offsets[r]:offsets[r + 1]`` are row r, which may be empty.
        lower, upper: one of each a row, lower <= upper.

    Returns:
        Two arrays of whole numbers, of the shape of ``noisy``.

    >>> least_absolute(np.array([3, 1, 9]), np.array([0, 3]), np.array([0]), np.array([8]))
    (array([1, 1, 8]), array([3, 3, 8]))
    """
    least, greatest = np.empty_like(noisy), np.empty_like(noisy)
    longest = int(np.diff(offsets).max(initial=0))
    _extremes_of_all(noisy, offsets, lower, upper, np.empty(longest, dtype=np.int64), least, greatest)
    return least, greatest


@kernel
def _pool_all(noisy, offsets, lower, upper, first, lengths, totals):  # type: ignore[no-untyped-def]  # compiled
    """Steps of every row: a value joins the step before it, and that one the next, until the means ascend."""
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
        end = _clip(begin, end, lower[row], upper[row], lengths, totals)
        first[row + 1] = end


@kernel
def _below(total, length, other_total, other_length):  # type: ignore[no-untyped-def]  # compiled
    """Whether a mean is below another, exactly: by whole parts, then by remainders, whose products fit 64 bits."""
    if length == 1 and other_length == 1:
        return total < other_total
    whole, other_whole = total // length, other_total // other_length
    if whole != other_whole:
        return whole < other_whole
    return (total - whole * length) * other_length < (other_total - other_whole * other_length) * length


@kernel
def _clip(begin, end, lower, upper, lengths, totals):  # type: ignore[no-untyped-def]  # compiled
    """Clip the steps of a row in place, those at one bound together; the new end."""
    kept = begin
    for k in range(begin, end):
        length, total = lengths[k], totals[k]
        total = min(max(total, lower * length), upper * length)
        for bound in (lower, upper):
            if kept > begin and total == bound * length and totals[kept - 1] == bound * lengths[kept - 1]:
                kept -= 1
                length += lengths[kept]
                total += totals[kept]
        lengths[kept], totals[kept] = length, total
        kept += 1
    return kept


@kernel
def _extremes_of_all(noisy, offsets, lower, upper, heap, least, greatest):  # type: ignore[no-untyped-def]  # compiled
    """Both extremes of every row. The greatest is the least of the row read backwards with its signs turned."""
    for row in range(len(offsets) - 1):
        first, last = offsets[row], offsets[row + 1]
        _least(noisy, first, 1, last - first, 1, lower[row], upper[row], heap, least)
        _least(noisy, last - 1, -1, last - first, -1, -upper[row], -lower[row], heap, greatest)


@kernel
def _least(noisy, start, stride, size, sign, lower, upper, heap, least):  # type: ignore[no-untyped-def]  # compiled
    """The least answer for ``sign * noisy[start + k * stride]``, k below ``size``.

    Let f_k(z) be the least cost of the first k values with all answers at most z: convex, falling, and flat in the
    end. The heap holds the z at which its slope changes by 1, the largest on top, where f_k becomes flat. From the
    last value backwards the answer is the top as it was then, or the answer that follows it, whichever is less.
    """
    for k in range(size):
        at = start + k * stride
        value = min(max(sign * noisy[at], lower), upper)  # the cost within the bounds changes by a constant
        if k > 0 and heap[0] > value:
            _replace_top(heap, k, value)
        _push(heap, k, value)
        least[at] = heap[0]
    answer = upper
    for k in range(size - 1, -1, -1):
        at = start + k * stride
        answer = min(answer, least[at])
        least[at] = sign * answer


@kernel
def _push(heap, size, value):  # type: ignore[no-untyped-def]  # compiled
    """Add a value to a heap of so many, the largest on top."""
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
    """Put a smaller value in the place of the largest."""
    at, below = 0, 1
    while below < size:
        if below + 1 < size and heap[below + 1] > heap[below]:
            below += 1
        if heap[below] <= value:
            break
        heap[at] = heap[below]
        at, below = below, 2 * below + 1
    heap[at] = value
