"""Sum estimates of nodes below each node of a level, and compute the variances of the sums, level by level up the tree.

Consider a sum of estimates of nodes below a node with the estimate h. The sum equals c h plus a part that is
uncorrelated with h. Here c is the factor of the sum, and the variance r of that part is its residual. If the sums below
the children i of the node have the factors c_i and the residuals r_i, the sum of all of them has

    r = sum (r_i + c_i^2 v_i) - (sum c_i v_i)^2 / S,   c = sum c_i v_i / S,

where v_i is the variance of the estimate of child i from itself and the levels below it, and S is the sum of all v_i
(:mod:`od_core.flows.estimation.least_squares`). The variance of the sum is r + c^2 V, where V is the variance of h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.least_squares import FittedLevel, Positions, Reals
from od_core.kernels import kernel

NodeWeights = NDArray[np.bool_] | Reals
"""Weights of nodes; a mask selects some."""

_FACTOR, _RESIDUAL, _ESTIMATE, _MOST_UNSEEN, _UNSEEN, _DOUBT = range(6)

MEASURED_ROWS, ALL_ROWS = 3, 6
"""Number of values of each sum without and with those of dropped nodes."""


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Sums of estimates below each node of a list; a node has one sum for each of several areas on one side.

    For example, the node from region A to state B may have one sum for each zone of B: the flow from A to that zone.

    Attributes:
        offsets: The sums of node ``i`` are ``offsets[i]:offsets[i + 1]``, in the order of the areas; shape (nodes +
            1,).
        values: One row for each of these values: factor, residual (module docstring) and estimate of the sum; then, for
            the dropped nodes that the sum overlaps, the sum of their upper bounds, the estimate of their trips
            together, and the variance of this estimate. Shape (6, sums); (3, sums) if no node was dropped.
    """

    offsets: Positions
    values: NDArray[np.float64]

    @classmethod
    def of_fitted(cls, level: FittedLevel, weights: NodeWeights | None = None, rows: int = ALL_ROWS) -> NodeSums:
        """Return one sum per node: the node's estimate times its weight; shape of ``weights``: (nodes,)."""
        return cls._single(level, weights, {_FACTOR: 1.0, _ESTIMATE: level.estimate}, rows)

    @classmethod
    def of_noisy(cls, level: FittedLevel, weights: NodeWeights | None = None, rows: int = ALL_ROWS) -> NodeSums:
        """Return one sum per node: the node's noisy value times its weight; shape of ``weights``: (nodes,).

        A noisy value is drawn after the nodes above have been selected, so it is unbiased, however they were selected.
        """
        return cls._single(level, weights, {_RESIDUAL: level.noise, _ESTIMATE: level.noisy}, rows)

    @classmethod
    def _single(
        cls, level: FittedLevel, weights: NodeWeights | None, values: dict[int, Reals | float], rows: int
    ) -> NodeSums:
        sums = cls.nothing(np.ones(len(level.nodes), dtype=np.int64), rows)
        for row, value in values.items():
            if weights is None:
                sums.values[row] = value
            else:
                sums.values[row] = value * (np.square(weights) if row == _RESIDUAL else weights)
        return sums

    @classmethod
    def nothing(cls, areas: Positions, rows: int = ALL_ROWS) -> NodeSums:
        """Return sums that are all 0, for nodes with the given numbers of sums; ``areas`` has shape (nodes,)."""
        offsets = np.concatenate([[0], np.cumsum(areas)])
        return cls(offsets, np.zeros((rows, offsets[-1])))

    def in_groups(self, group: Positions, groups: int) -> NodeSums:
        """Return sums of each node by group, given nodes with one sum and the number of its group; shape (nodes,)."""
        sums = self.nothing(np.full(len(group), groups), len(self.values))
        sums.values[:, sums.offsets[:-1] + group] = self.values
        return sums

    @property
    def factors(self) -> NodeSums:
        """The same sums without estimates and dropped nodes; :meth:`carried` computes their factors and residuals."""
        return NodeSums(self.offsets, self.values[: _RESIDUAL + 1])

    def factor_at(self, node: Positions, area: Positions) -> Reals:
        """Return the factors of some sums, given their nodes and their places among the sums of the node."""
        found: Reals = self.values[_FACTOR, self.offsets[node] + area]
        return found

    @classmethod
    def joined(cls, pieces: Iterable[NodeSums], rows: int = ALL_ROWS) -> NodeSums:
        """Return one object with the sums of all pieces, whose nodes are consecutive."""
        parts = list(pieces)
        areas = np.concatenate([np.empty(0, dtype=np.int64), *(np.diff(part.offsets) for part in parts)])
        values = np.concatenate([np.zeros((rows, 0)), *(part.values for part in parts)], axis=1)
        return cls(np.concatenate([[0], np.cumsum(areas)]), values)

    def with_unseen(self, most: Reals, unseen: Reals, doubt: Reals) -> NodeSums:
        """Add the trips of dropped nodes, below which nothing was measured, to all sums of each node in place.

        Args:
            most: Upper bound of the trips of the dropped node; 0 if the node was not dropped. Shape (nodes,).
            unseen, doubt: Results of :func:`dropped_trips`; shape (nodes,) each.

        Returns:
            This object.
        """
        areas = np.diff(self.offsets)
        for row, values in ((_MOST_UNSEEN, most), (_UNSEEN, unseen), (_DOUBT, doubt)):
            self.values[row] += np.repeat(values, areas)
        return self

    def carried(
        self,
        level: FittedLevel,
        first: Positions,
        count: Positions | None = None,
        group: Positions | None = None,
    ) -> NodeSums:
        """Return sums over the children of each node of the level above that has measured children, one per area.

        Args:
            level: The level of the children, which are the nodes of this object.
            first: Number of the first area that each child overlaps; shape (children,).
            count: How many areas each child overlaps; by default, as many as it has sums. Shape (children,).
            group: For children with one sum, number of the area of this sum, from the first; shape (children,).
        """
        top, bottom = level.offsets[:-1], level.offsets[1:] - 1
        begin, end = first[top], first[bottom] + (np.diff(self.offsets) if count is None else count)[bottom]
        above = NodeSums.nothing(end - begin, len(self.values))
        start = (first if group is None else first + group) - np.repeat(begin, np.diff(level.offsets))
        _carry(level.offsets, level.own, level.siblings, self.offsets, start, self.values, above.offsets, above.values)
        return above

    def over_divided(
        self, level: FittedLevel, first: Positions, count: Positions, unseen: NDArray[np.float64] | None
    ) -> NodeSums:
        """Return sums over the children of each node of the level above that has measured children, one per area.

        They are the sums below the divided children (nodes with measured nodes below them), which are the nodes of this
        object, and the trips of the dropped children, below which nothing was measured.

        Args:
            level: The level of the children.
            first: Number of the first area that each child overlaps; shape (children,).
            count: How many areas each child overlaps; shape (children,).
            unseen: Upper bound of the trips of each dropped child, or 0 if the child was not dropped, and the results
                of :func:`dropped_trips`; shape (3, children). None if no node was dropped.
        """
        top, bottom = level.offsets[:-1], level.offsets[1:] - 1
        above = NodeSums.nothing(first[bottom] + count[bottom] - first[top], len(self.values))
        _carry_divided(
            *(level.offsets, level.own, level.siblings, level.divided),
            *(self.offsets, self.values, first, count),
            np.zeros((0, len(first))) if unseen is None else unseen,
            *(above.offsets, above.values),
        )
        return above

    def variance(self, of_nodes: Reals) -> Reals:
        """Return the variance of each sum; shape (sums,).

        ``of_nodes`` has the variance V of the estimate of each node of this object; shape (nodes,).
        """
        spread: Reals = self.values[_RESIDUAL] + self.values[_FACTOR] ** 2 * np.repeat(of_nodes, np.diff(self.offsets))
        return spread

    @property
    def estimate(self) -> Reals:
        """Estimate of each sum, without the trips of dropped nodes; shape (sums,)."""
        total: Reals = self.values[_ESTIMATE]
        return total

    @property
    def unseen(self) -> tuple[Reals, Reals, Reals]:
        """For the dropped nodes that each sum overlaps: sum of upper bounds, estimate of their trips, and its variance.

        The shape of each array is (sums,).
        """
        if len(self.values) == MEASURED_ROWS:
            none = np.zeros(self.values.shape[1])
            return none, none, none
        return self.values[_MOST_UNSEEN], self.values[_UNSEEN], self.values[_DOUBT]


@kernel
def _carry(offsets, below, siblings, cells, start, values, own, above):  # type: ignore[no-untyped-def]  # compiled
    """Write the sums over the children of every node into ``above``, whose values must be 0; see the module docstring.

    The sums of child ``i`` are the columns ``cells[i]:cells[i + 1]`` of ``values``. Those of parent ``p`` are the
    columns ``own[p]:own[p + 1]`` of ``above``. The first sum of child ``i`` is added to number ``start[i]`` of these.
    """
    for parent in range(len(siblings)):
        for child in range(offsets[parent], offsets[parent + 1]):
            v, to = below[child], own[parent] + start[child]
            for cell in range(cells[child], cells[child + 1]):
                above[0, to] += values[0, cell] * v
                above[1, to] += values[1, cell] + values[0, cell] * values[0, cell] * v
                for row in range(2, len(values)):
                    above[row, to] += values[row, cell]
                to += 1
        for to in range(own[parent], own[parent + 1]):
            follows = above[0, to]
            above[0, to] = follows / siblings[parent]
            above[1, to] = max(0.0, above[1, to] - follows * above[0, to])


@kernel
def _carry_divided(  # type: ignore[no-untyped-def]  # compiled
    offsets, below, siblings, divided, cells, values, first, count, unseen, own, above
):
    """Do what :func:`_carry` does, given the sums of the divided children and the values of ``unseen`` of all.

    The sums of the child at ``divided[d]`` are the columns ``cells[d]:cells[d + 1]`` of ``values``. Child ``i``
    overlaps the areas ``first[i]:first[i] + count[i]``. Sums of dropped children are never stored, since there can be
    far more of them than of divided children.
    """
    d = 0
    for parent in range(len(siblings)):
        begin = own[parent] - first[offsets[parent]]
        for child in range(offsets[parent], offsets[parent + 1]):
            v, to = below[child], begin + first[child]
            if d < len(divided) and divided[d] == child:
                at, width = cells[d], cells[d + 1] - cells[d]
                for cell in range(width):
                    above[0, to + cell] += values[0, at + cell] * v
                for cell in range(width):
                    above[1, to + cell] += values[1, at + cell] + values[0, at + cell] * values[0, at + cell] * v
                for cell in range(width):
                    above[2, to + cell] += values[2, at + cell]
                for row in range(len(unseen)):
                    for cell in range(width):
                        above[3 + row, to + cell] += values[3 + row, at + cell] + unseen[row, child]
                d += 1
            else:
                for row in range(len(unseen)):
                    for cell in range(count[child]):
                        above[3 + row, to + cell] += unseen[row, child]
        for to in range(own[parent], own[parent + 1]):
            follows = above[0, to]
            above[0, to] = follows / siblings[parent]
            above[1, to] = max(0.0, above[1, to] - follows * above[0, to])


def dropped_trips(level: FittedLevel) -> tuple[Reals, Reals]:
    """Return each node's contributions to an estimate of the trips of dropped nodes, and to its variance.

    The shape of both arrays is (nodes,). The sum of the contributions over many nodes, dropped or not, estimates the
    trips of the dropped nodes among them. For many nodes, it is far below the sum of their upper bounds.

    A node is dropped because its noisy value x is small: at most a threshold m that its siblings determine. So the
    noisy values of dropped nodes are too small on average, and their sum is not an estimate of their trips. If the
    noise N is normal with the variance s2, and p is the density of x, Stein's identity [stein1981mean, Lemma 1] states
    that

        E[N 1(x <= m)] = -s2 p(m).

    So the expectation of x 1(x <= m) + s2 p(m) is that of the node's trips if it is dropped, and of 0 if it is not,
    whatever these trips are. The noisy values give an estimate of p(m). If W(h) is the mean of 1(m - h < x <= m + h) /
    2h, the estimate is (4 W(h) - W(2h)) / 3. This combination cancels the error from the curvature of p, which is a
    multiple of p'' h^2. The term that remains, -p'' / 24, is the correction that the identity needs for noise in whole
    numbers.

    The root has no siblings. If it is dropped, it contributes its noisy value and the variance of that value.
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
    """Add to ``weight`` the weight of each node's noisy value in the estimated density of noisy values at a threshold.

    The threshold of siblings is the largest noisy value of those that were dropped. If none was dropped, it is the
    smallest noisy value minus 1. ``around`` is the width h of :func:`dropped_trips`.
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
