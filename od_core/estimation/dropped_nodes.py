"""How many trips the nodes have that the top-down pass dropped, all of them together.

A node is dropped since its noisy value x is small: at most a threshold that its family has. So the noisy values of
dropped nodes are too small on the whole, and a sum of them must not be taken for their trips. With normal noise of
variance s2 and a threshold m,

    E[N 1(x <= m)] = -s2 p(m),   p the density of x

(Stein's identity), so that x 1(x <= m) + s2 p(m) is the node's trips where it is dropped and 0 where it is kept, on
average, whatever these trips are. The values themselves show the density around the threshold: with W(h) the share of
1(m - h < x <= m + h) / 2h, it is (4 W(h) - W(2h)) / 3. That leaves out the bend of p, and, since noise is in whole
numbers, what the sum over these differs from the integral by: each is p'' times a square of h or 1/24. Of many nodes
the trips are far less than the sum of what each of them may have at most.
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
    weight = np.zeros(len(level.nodes))
    _near_threshold(level.offsets, level.noisy, kept, around, weight)
    near = weight * (level.noise / (2 * around))
    return np.where(kept, 0.0, level.noisy) + near, np.where(kept, 0.0, level.noise) + near**2


@kernel
def _near_threshold(offsets, noisy, kept, around, weight):  # type: ignore[no-untyped-def]  # compiled
    """Weight of each value in the density around the largest one of its family that was dropped.

    Where none was dropped, around what is below the least.
    """
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
            for widths, part in ((1, 4 / 3), (2, -1 / 6)):
                if threshold - widths * around < noisy[i] <= threshold + widths * around:
                    weight[i] += part
