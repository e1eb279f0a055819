"""The threshold that IntOpt and the Euclidean projection share: where sum max(x - t, 0) falls to the total."""

from __future__ import annotations

import numpy as np

from od_core.compiled import kernel


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
