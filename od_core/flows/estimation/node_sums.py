"""Sums of fitted nodes below each node of a level, and their variance, carried up the tree level by level.

A sum follows the estimate h of the node that it lies below by a factor c, and has a residual variance r of its own.
From the children of a node, of factors c_i and residuals r_i, the node's are

    r = sum r_i + c_i^2 v_i - (sum c_i v_i)^2 / S,   c = sum c_i v_i / S

with v and S of :mod:`od_core.flows.estimation.least_squares`; the variance of the sum is r + c^2 V.
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
    """Sums of nodes below each of some nodes, apart for every area of the side that is not summed over.

    Attributes:
        offsets: those of node ``i`` are ``offsets[i]:offsets[i + 1]``, in the order of the areas.
        values: factor, residual and estimate of each sum, and of the dropped nodes that it has a part in: what these
            may have at most, taken by themselves; what they have together, on average; and the variance of that. Shape
            (6, sums).
    """

    offsets: Positions
    values: NDArray[np.float64]

    @classmethod
    def of_fitted(cls, level: FittedLevel, meant: NDArray[np.bool_] | None = None) -> NodeSums:
        """Each node by itself, or those that are meant: its estimate."""
        return cls._single(level, meant, {_FACTOR: 1.0, _ESTIMATE: level.estimate})

    @classmethod
    def of_noisy(cls, level: FittedLevel, meant: NDArray[np.bool_] | None = None) -> NodeSums:
        """Likewise its noisy value alone: drawn after the nodes above were chosen, and so no matter how."""
        return cls._single(level, meant, {_RESIDUAL: level.noise, _ESTIMATE: level.noisy})

    @classmethod
    def _single(cls, level: FittedLevel, meant: NDArray[np.bool_] | None, rows: dict[int, Reals | float]) -> NodeSums:
        sums = cls.nothing(np.ones(len(level.nodes), dtype=np.int64))
        for row, value in rows.items():
            sums.values[row] = value if meant is None else np.where(meant, value, 0.0)
        return sums

    @classmethod
    def nothing(cls, areas: Positions) -> NodeSums:
        """No node, for so many areas below each."""
        offsets = np.concatenate([[0], np.cumsum(areas)])
        return cls(offsets, np.zeros((6, offsets[-1])))

    @classmethod
    def joined(cls, pieces: Iterable[NodeSums]) -> NodeSums:
        """Those of consecutive nodes."""
        parts = list(pieces)
        areas = np.concatenate([np.empty(0, dtype=np.int64), *(np.diff(part.offsets) for part in parts)])
        values = np.concatenate([np.zeros((6, 0)), *(part.values for part in parts)], axis=1)
        return cls(np.concatenate([[0], np.cumsum(areas)]), values)

    def with_unseen(self, most: Reals, unseen: Reals, doubt: Reals) -> NodeSums:
        """With a part in dropped nodes: of each node what it may have at most, has on average, and the variance."""
        areas = np.diff(self.offsets)
        for row, values in ((_MOST_UNSEEN, most), (_UNSEEN, unseen), (_DOUBT, doubt)):
            self.values[row] += np.repeat(values, areas)
        return self

    def with_divided(self, divided: Positions, theirs: NodeSums) -> NodeSums:
        """With the sums of what lies below the nodes that were divided."""
        steps = np.zeros(self.values.shape[1] + 1, dtype=np.int64)
        steps[self.offsets[divided]] += 1
        steps[self.offsets[divided + 1]] -= 1
        self.values[:, np.cumsum(steps[:-1]) > 0] += theirs.values
        return self

    def carried(self, level: FittedLevel, area: Positions) -> NodeSums:
        """Sums over the children of each divided node of the level above.

        Args:
            level: of these nodes.
            area: number of the first area of each node's sums.
        """
        first, last = level.offsets[:-1], level.offsets[1:] - 1
        begin, end = area[first], area[last] + np.diff(self.offsets)[last]
        above = NodeSums.nothing(end - begin)
        start = area - np.repeat(begin, np.diff(level.offsets))
        _carry(level.offsets, level.own, level.siblings, self.offsets, start, self.values, above.offsets, above.values)
        return above

    def variance(self, of_nodes: Reals) -> Reals:
        """Variance of each sum below nodes whose estimates have these variances."""
        spread: Reals = self.values[_RESIDUAL] + self.values[_FACTOR] ** 2 * np.repeat(of_nodes, np.diff(self.offsets))
        return spread

    @property
    def estimate(self) -> Reals:
        """The sum of the measured nodes."""
        total: Reals = self.values[_ESTIMATE]
        return total

    @property
    def unseen(self) -> tuple[Reals, Reals, Reals]:
        """Of the dropped nodes that a sum has a part in: the sum of the most that each may have, mean, variance."""
        return self.values[_MOST_UNSEEN], self.values[_UNSEEN], self.values[_DOUBT]


@kernel
def _carry(offsets, below, siblings, cells, start, values, own, above):  # type: ignore[no-untyped-def]  # compiled
    """Sums of the children of every node, area by area.

    The sums of child ``i`` are ``cells[i]:cells[i + 1]``, of which the first is number ``start[i]`` among those of its
    parent ``p``, which are ``own[p]:own[p + 1]``.
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


# How many trips the nodes have that the top-down pass dropped, all of them together.
#
# A node is dropped since its noisy value x is small: at most a threshold that its family has. So the noisy values of
# dropped nodes are too small on the whole, and a sum of them must not be taken for their trips. With normal noise of
# variance s2 and a threshold m,
#
#     E[N 1(x <= m)] = -s2 p(m),   p the density of x
#
# (Stein's identity), so that x 1(x <= m) + s2 p(m) is the node's trips where it is dropped and 0 where it is kept, on
# average, whatever these trips are. The values themselves show the density around the threshold: with W(h) the share of
# 1(m - h < x <= m + h) / 2h, it is (4 W(h) - W(2h)) / 3. That leaves out the bend of p, and, since noise is in whole
# numbers, what the sum over these differs from the integral by: each is p'' times a square of h or 1/24. Of many nodes
# the trips are far less than the sum of what each of them may have at most.


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
