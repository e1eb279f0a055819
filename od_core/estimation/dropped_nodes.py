"""How many trips the nodes have that the top-down pass dropped, all of them together.

A node is dropped since its noisy value x is small: at most a threshold that its family has. So the noisy values of
dropped nodes are too small on the whole, and a sum of them must not be taken for their trips. With normal noise of
variance s2 and a threshold m,

    E[N 1(x <= m)] = -s2 p(m),   p the density of x

(Stein's identity), so that x 1(x <= m) + s2 1(m - h < x <= m + h) / 2h is the node's trips where it is dropped and 0
where it is kept, on average, whatever these trips are: the second part is the density that the values themselves show
around the threshold. Of many nodes that is far less than the sum of what each of them may have at most.
"""

from __future__ import annotations

import numpy as np

from od_core.compiled import kernel
from od_core.estimation.least_squares import FittedLevel, Reals


def dropped_trips(level: FittedLevel) -> tuple[Reals, Reals]:
    """What each node adds to the trips of dropped nodes on average, and to the variance of that; shape (nodes,) each.

    The root has no family: as much as it was measured to have.
    """
    kept = np.zeros(len(level.nodes), dtype=np.bool_)
    kept[level.divided] = True
    around = max(1.0, np.ceil(level.noise**0.5 / 2))
    near = np.zeros(len(level.nodes), dtype=np.bool_)
    _near_threshold(level.offsets, level.noisy, kept, around, near)
    trips = np.where(kept, 0.0, level.noisy) + near * (level.noise / (2 * around))
    return trips, np.where(~kept | near, level.noise, 0.0)


@kernel
def _near_threshold(offsets, noisy, kept, around, near):  # type: ignore[no-untyped-def]  # compiled
    """Whether each value is near the largest one of its family that was dropped; none dropped, below the least."""
    for family in range(len(offsets) - 1):
        threshold, least = -np.inf, np.inf
        for i in range(offsets[family], offsets[family + 1]):
            if kept[i]:
                least = min(least, noisy[i])
            else:
                threshold = max(threshold, noisy[i])
        if threshold == -np.inf:
            threshold = least - 1
        for i in range(offsets[family], offsets[family + 1]):
            near[i] = threshold - around < noisy[i] <= threshold + around
