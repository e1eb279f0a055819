"""Compile the loops over the children of each parent that :mod:`od_core.flows.estimation.refinement` runs."""

from __future__ import annotations

import numpy as np

from od_core.kernels import kernel

WEIGHT_BITS = 20
"""Number of fractional bits of a weight, which is a whole multiple of 2^-20."""

MOST_WEIGHT = 1 << (62 - WEIGHT_BITS)
"""Smallest sum of weights that is too large for 64-bit products."""

LIMIT = 1 << 61
"""Smallest sum of noisy values that is too large for 64-bit arithmetic."""


@kernel
def read_expansion(noisy, offsets, first_child, divided, runs, sums, kept):  # type: ignore[no-untyped-def]  # compiled
    """Write the sums of each parent's noisy children into ``sums``, and the kept children's noisy values into ``kept``.

    Kept children are those that the top-down pass did not drop: of parent ``p``, numbers ``runs[p]:runs[p + 1]``, with
    the areas ``divided`` on the refined side. For ``offsets`` and ``first_child``, see
    :class:`od_core.geography.flow_tree.Expansion`. Return False if a sum may overflow.
    """
    small = True
    for parent in range(len(sums)):
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        total, low, high = np.int64(0), noisy[first], noisy[first]
        for i in range(first, last):
            total += noisy[i]
            low, high = min(low, noisy[i]), max(high, noisy[i])
        small = small and max(high, -low) < LIMIT // np.int64(last - first)
        sums[parent] = total
        for child in range(runs[parent], runs[parent + 1]):
            kept[child - runs[0]] = noisy[offsets[parent] + divided[child] - first_child[parent]]
    return small


@kernel
def shift_expansion(noisy, offsets, lacking, shifted):  # type: ignore[no-untyped-def]  # compiled
    """Write the noisy value of each child, plus an equal part of its parent's ``lacking``, into ``shifted``.

    The part is rounded to the nearest whole number. ``lacking`` is the parent's trips minus the sum of its noisy
    children.
    """
    for parent in range(len(lacking)):
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        size = offsets[parent + 1] - offsets[parent]
        shift = (2 * lacking[parent] + size) // (2 * size)
        for i in range(first, last):
            shifted[i] = noisy[i] + shift


@kernel
def share_out(over, variance, runs, noisy, difference, half, bits, rounded):  # type: ignore[no-untyped-def]  # compiled
    """Write round(z + over * v / sum v) for the children of every parent into ``rounded``, as whole numbers.

    For each child, z = ``noisy`` + ``difference`` is its estimate and v the variance of z; ``over`` is the parent's
    trips minus the sum of z. ``over`` and ``difference`` are in fixed point with ``bits`` fractional bits, and ``half``
    is 1/2. ``variance`` has whole weights in proportion to v. Return False if the weights of a parent's children sum to
    ``MOST_WEIGHT`` or more.
    """
    for parent in range(len(over)):
        whole = np.int64(0)
        for i in range(runs[parent], runs[parent + 1]):
            whole += variance[i]
        if whole >= MOST_WEIGHT:
            return False
        if whole > 0:
            part, rest = over[parent] // whole, over[parent] % whole  # no product exceeds 63 bits
            for i in range(runs[parent], runs[parent + 1]):
                shift = part * variance[i] + rest * variance[i] // whole
                rounded[i] = noisy[i] + ((difference[i] + shift + half) >> bits)
    return True
