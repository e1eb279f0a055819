"""Sum fitted nodes below each node of a level, with variances, level by level up the tree.

A sum depends on the estimate h of the node above it through a factor c, and has a residual variance r of its own. From
factors c_i and residuals r_i of its children, a node gets

    r = sum r_i + c_i^2 v_i - (sum c_i v_i)^2 / S,   c = sum c_i v_i / S

with v and S of :mod:`od_core.flows.estimation.least_squares`. The variance of the sum is r + c^2 V.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.least_squares import FittedLevel, Positions, Reals
from od_core.kernels import kernel

_FACTOR, _RESIDUAL, _ESTIMATE, _MOST_UNSEEN, _UNSEEN, _DOUBT = range(6)


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Sums of nodes below each of some nodes, one for every area of the side that is not summed over.

    Attributes:
        offsets: The sums of node ``i`` are ``offsets[i]:offsets[i + 1]``, in the order of the areas.
        values: For each sum, its factor, residual and estimate; and, for the dropped nodes that it overlaps, the sum of
            their upper bounds, the mean of their trips together, and the variance of that mean. Shape (6, sums).
    """

    offsets: Positions
    values: NDArray[np.float64]

    @classmethod
    def of_fitted(cls, level: FittedLevel, meant: NDArray[np.bool_] | None = None) -> NodeSums:
        """Return the estimate of each node, or only of those in the mask ``meant``."""
        return cls._single(level, meant, {_FACTOR: 1.0, _ESTIMATE: level.estimate})

    @classmethod
    def of_noisy(cls, level: FittedLevel, meant: NDArray[np.bool_] | None = None) -> NodeSums:
        """Return the noisy value of each node, or only of those in the mask ``meant``.

        It is drawn after the nodes above were chosen, so it is unbiased however they were chosen.
        """
        return cls._single(level, meant, {_RESIDUAL: level.noise, _ESTIMATE: level.noisy})

    @classmethod
    def _single(cls, level: FittedLevel, meant: NDArray[np.bool_] | None, rows: dict[int, Reals | float]) -> NodeSums:
        sums = cls.nothing(np.ones(len(level.nodes), dtype=np.int64))
        for row, value in rows.items():
            sums.values[row] = value if meant is None else np.where(meant, value, 0.0)
        return sums

    @classmethod
    def nothing(cls, areas: Positions) -> NodeSums:
        """Return empty sums, for so many areas below each node."""
        offsets = np.concatenate([[0], np.cumsum(areas)])
        return cls(offsets, np.zeros((6, offsets[-1])))

    @classmethod
    def joined(cls, pieces: Iterable[NodeSums]) -> NodeSums:
        """Return the sums of consecutive nodes as one."""
        parts = list(pieces)
        areas = np.concatenate([np.empty(0, dtype=np.int64), *(np.diff(part.offsets) for part in parts)])
        values = np.concatenate([np.zeros((6, 0)), *(part.values for part in parts)], axis=1)
        return cls(np.concatenate([[0], np.cumsum(areas)]), values)

    def with_unseen(self, most: Reals, unseen: Reals, doubt: Reals) -> NodeSums:
        """Add dropped nodes: for each node, their upper bound, the mean of their trips, and its variance."""
        areas = np.diff(self.offsets)
        for row, values in ((_MOST_UNSEEN, most), (_UNSEEN, unseen), (_DOUBT, doubt)):
            self.values[row] += np.repeat(values, areas)
        return self

    def with_divided(self, divided: Positions, theirs: NodeSums) -> NodeSums:
        """Add the sums of what lies below the divided nodes."""
        steps = np.zeros(self.values.shape[1] + 1, dtype=np.int64)
        steps[self.offsets[divided]] += 1
        steps[self.offsets[divided + 1]] -= 1
        self.values[:, np.cumsum(steps[:-1]) > 0] += theirs.values
        return self

    def carried(self, level: FittedLevel, area: Positions) -> NodeSums:
        """Return sums over the children of each divided node of the level above.

        Args:
            level: Level of these nodes.
            area: Number of the first area of each node's sums.
        """
        first, last = level.offsets[:-1], level.offsets[1:] - 1
        begin, end = area[first], area[last] + np.diff(self.offsets)[last]
        above = NodeSums.nothing(end - begin)
        start = area - np.repeat(begin, np.diff(level.offsets))
        _carry(level.offsets, level.own, level.siblings, self.offsets, start, self.values, above.offsets, above.values)
        return above

    def variance(self, of_nodes: Reals) -> Reals:
        """Return the variance of each sum below nodes whose estimates have these variances."""
        spread: Reals = self.values[_RESIDUAL] + self.values[_FACTOR] ** 2 * np.repeat(of_nodes, np.diff(self.offsets))
        return spread

    @property
    def estimate(self) -> Reals:
        """Sum of the measured nodes."""
        total: Reals = self.values[_ESTIMATE]
        return total

    @property
    def unseen(self) -> tuple[Reals, Reals, Reals]:
        """Dropped nodes that each sum overlaps: sum of their upper bounds, mean of their trips, and its variance."""
        return self.values[_MOST_UNSEEN], self.values[_UNSEEN], self.values[_DOUBT]


@kernel
def _carry(offsets, below, siblings, cells, start, values, own, above):  # type: ignore[no-untyped-def]  # compiled
    """Sum the children of every node, area by area.

    The sums of child ``i`` are ``cells[i]:cells[i + 1]``. The first of them is number ``start[i]`` among the sums of
    its parent ``p``, which are ``own[p]:own[p + 1]``.
    """
    for parent in range(len(siblings)):
        for child in range(offsets[parent], offsets[parent + 1]):
            v, to = below[child], own[parent] + start[child]
            for cell in range(cells[child], cells[child + 1]):
                above[0, to] += values[0, cell] * v
                above[1, to] += values[1, cell] + values[0, cell] * values[0, cell] * v
                for row in range(2, 6):
                    above[row, to] += values[row, cell]
                to += 1
        for to in range(own[parent], own[parent + 1]):
            follows = above[0, to]
            above[0, to] = follows / siblings[parent]
            above[1, to] = max(0.0, above[1, to] - follows * above[0, to])


def dropped_trips(level: FittedLevel) -> tuple[Reals, Reals]:
    """Return what each node adds to the mean of the trips of dropped nodes, and to its variance; shape (nodes,) each.

    A node is dropped because its noisy value x is small: at most a threshold of its siblings. So the noisy values of
    dropped nodes are too small on average, and their sum must not be taken for their trips. With noise N of variance
    s2, normal, and a threshold m,

        E[N 1(x <= m)] = -s2 p(m),   p the density of x

    (Stein's identity). So x 1(x <= m) + s2 p(m) is, on average, the node's trips if it is dropped and 0 if it is kept,
    whatever these trips are. The values themselves give the density at the threshold: with W(h) the mean of
    1(m - h < x <= m + h) / 2h, it is (4 W(h) - W(2h)) / 3. This combination cancels the error from the curvature of p,
    a multiple of p'' h^2. The term that remains, -p'' / 24, is the correction that the identity needs for noise in
    whole numbers. For many nodes, the estimate is far below the sum of their upper bounds.

    The root has no siblings; if it is dropped, it adds its noisy value and the variance of that.

    References:
        C. M. Stein, "Estimation of the Mean of a Multivariate Normal Distribution", The Annals of Statistics 9 (1981).
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
    """Add the weight of each value in the density at the largest value among its siblings that was dropped.

    If no sibling was dropped, the threshold is one below the least value.
    """
    for parent in range(len(offsets) - 1):
        threshold, least = -np.inf, np.inf
        for i in range(offsets[parent], offsets[parent + 1]):
            if kept[i]:
                least = min(least, noisy[i])
            else:
                threshold = max(threshold, noisy[i])
        if threshold == -np.inf:
            threshold = least - 1
        for i in range(offsets[parent], offsets[parent + 1]):
            for widths, part in ((1, 4 / 3), (2, -1 / 6)):
                if threshold - widths * around < noisy[i] <= threshold + widths * around:
                    weight[i] += part
