"""Make whole numbers of trips from the estimates of the children of one parent, without many small fractions.

The estimates, which may be negative, are first changed as little as possible to sum to the parent's trips. Let sigma be
the standard deviation of the noise of the leaves, and u the option of the mechanism. Every estimate of at least u sigma
is rounded. The remaining trips are divided into lumps of floor(u sigma), which are assigned to the children below u
sigma, largest estimate first. A remainder of less than a lump is added to the children that were rounded. So many small
fractions become a few children, each of which probably has trips.
"""

from __future__ import annotations

import math

import numpy as np

from od_core.kernels import kernel


@kernel
def project_to_total(w, deviation, total):  # type: ignore[no-untyped-def]  # compiled
    """Replace w in place by the w' >= 0 with the sum ``total`` that minimises the sum of (w' - w)^2 / deviation.

    ``w`` are the estimates of the children of one parent, and ``total``, the parent's trips, is above 0. The solution
    is w' = max(w + shift * deviation, 0). Each iteration computes the shift from the children that are still above 0.
    The shift decreases until no further child becomes 0 [michelot1986simplex].
    """
    positive, shift = len(w) + 1, np.inf
    while True:
        own, whole, left = 0.0, 0.0, 0
        for i in range(len(w)):
            if w[i] + shift * deviation[i] > 0.0:
                own += w[i]
                whole += deviation[i]
                left += 1
        if left >= positive or left == 0:
            break
        positive = left
        shift = (total - own) / whole
    for i in range(len(w)):
        w[i] = max(w[i] + shift * deviation[i], 0.0)


@kernel
def round_in_lumps(w, total, least, lump, trips):  # type: ignore[no-untyped-def]  # compiled
    """Round ``w`` to whole numbers of at least 0 with the sum ``total``, and write them into ``trips``.

    ``least`` is u sigma, and ``lump`` is floor(u sigma), at least 1. The sum of ``w`` is about ``total``. The remainder
    from rounding one cell is added to the next, so rounding changes the sum by at most half a trip.
    """
    left, large, carry = total, 0, 0.0
    for i in range(len(w)):
        trips[i] = 0
        if w[i] >= least:
            trips[i] = np.int64(math.floor(w[i] + carry + 0.5))
            carry += w[i] - trips[i]
            left -= trips[i]
            large += 1
    small = len(w) - large
    if small > 0 and (left >= lump or large == 0):
        order = np.argsort(np.where(w >= least, 1.0, -w), kind="mergesort")  # small cells first, ties by position
        at = 0
        while left >= lump or (large == 0 and left > 0):
            given = min(lump, left)
            trips[order[at % small]] += given
            left -= given
            at += 1
    largest = np.argmax(trips)
    for i in range(len(w)):
        if left > 0 and w[i] >= least:
            given = left // large
            trips[i] += given
            left -= given
            large -= 1
    trips[largest] += left  # floating-point error of totals near the limit
