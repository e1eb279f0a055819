"""Noisy counts made whole counts: none below 0, their total kept (spec 5, "Post-processing")."""

from __future__ import annotations

import numpy as np

from od_core.errors import OdError
from od_core.stops.grid import Counts

_LIMIT = 1 << 62


def whole_counts(noisy: Counts) -> Counts:
    """Counts of at least 0 with the total of the noisy ones, or of 0 if that is below it.

    What is below 0 is cut off; by so much the others exceed the total, and the excess is taken from the smallest
    first, each down to 0: nothing but noise is left of most of them. Ties go by position.

    Args:
        noisy: of disjoint boxes; shape (boxes,).

    Raises:
        OdError: sums beyond 64-bit arithmetic.

    >>> whole_counts(np.array([7, -4, 2, 3]))
    array([7, 0, 0, 1])
    """
    if len(noisy) and np.abs(noisy.astype(np.float64)).sum() >= _LIMIT:
        raise OdError(
            "OD-STOPS-OVERFLOW",
            "the noisy counts sum to more than 64-bit arithmetic holds",
            next_step="raise epsilon",
            spent="what was set aside before stays charged",
        )
    counts = np.maximum(noisy, 0)
    excess = int(counts.sum()) - int(noisy.sum())  # more than there is to take, if the total is below 0
    order = np.argsort(counts, kind="stable")
    taken = np.minimum(np.cumsum(counts[order]), excess)  # of all up to here
    counts[order] -= np.diff(taken, prepend=0)
    return counts
