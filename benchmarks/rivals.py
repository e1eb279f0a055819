"""Estimate tables from the measurements of ``inftda_refined`` by two published methods that it is compared with.

Both start from the same levels, with noisy values x and variances s2, and end in the same step to whole numbers.

``blue_down`` [ghazi2026bluedown] computes the best linear unbiased estimates of all nodes, and then goes down the tree
as the TopDown algorithm of the US census [abowd2022topdown]. The children of a node with c trips get the real numbers
y >= 0 with the sum c that are nearest to their estimates, weighted by the precision of these estimates. Controlled
rounding makes them whole: each is rounded down or up, the largest fractions up, so that the sum stays c. The estimates
are z, with the variances v, of :mod:`od_core.flows.estimation.least_squares`. If no child was dropped, the estimates h
from all levels, weighted by their whole covariance, give the same y: h - z is proportional to v among the children.

``grem_lnn`` [mullins2024rem] maximises the likelihood of all measurements under Gaussian noise, subject to trips of at
least 0: it minimises the sum of (x - y)^2 / s2 over all measured nodes of a consistent tree. Trips of 0 or more in the
leaves are sufficient, since every other node is a sum of leaves. The authors' dual ascent stops at a tolerance. Here,
the optimum is exact: least squares without the leaves that are negative, until none is negative. No leaf that was
removed is positive in the optimum. The matrix of the normal equations is a sum of w 1 1^T over the nodes of a tree, so
it is ultrametric, and its inverse is an M-matrix [martinez1994ultrametric]. For such a matrix, the set of zeros only
grows [chandrasekaran1970special]. An exact total is the limit of an infinite weight of the root.

A node that the top-down pass dropped has no measured leaf below it. Its noisy value contributes to its parent, and it
has no trips in the result, as in every refinement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.least_squares import MeasuredLevel, combine_bottom_up
from od_core.flows.projection.onto_parents import project_to_total
from od_core.geography.flow_tree import Pairs, sum_runs
from od_core.kernels import kernel

_Reals = NDArray[np.float64]
_Values = NDArray[np.int64]
_Kept = NDArray[np.bool_]

_GRAIN = 1 << 20
"""Fractions that differ by less than 1/_GRAIN are equal, so that rounding errors do not order the cells."""


def blue_down(levels: Sequence[MeasuredLevel]) -> list[_Values]:
    """Return the trips of all nodes of each level by BlueDown, top level first; shape (nodes,) each.

    Trips are whole numbers of at least 0, and the children of a node sum to its trips. Dropped nodes have 0 trips.

    Args:
        levels: All measured levels and the exact root, if there is one, top level first.
    """
    z, v, _ = zip(*combine_bottom_up(levels), strict=True)
    return _whole(levels, z[::-1], v[::-1])


def grem_lnn(levels: Sequence[MeasuredLevel]) -> list[_Values]:
    """Return the trips of all nodes of each level by GReM-LNN, rounded; see :func:`blue_down`."""
    _, v, _ = zip(*combine_bottom_up(levels), strict=True)
    return _whole(levels, non_negative_fit(levels), v[::-1])


RIVALS: dict[str, Callable[[Sequence[MeasuredLevel]], list[_Values]]] = {"blue_down": blue_down, "grem_lnn": grem_lnn}


def non_negative_fit(levels: Sequence[MeasuredLevel]) -> list[_Reals]:
    """Return the tree of trips of at least 0 with the least weighted squares of all noisy values; shape (nodes,) each.

    Dropped nodes are leaves of this tree.
    """
    left, at = list(levels), [np.arange(len(level.nodes)) for level in levels]
    while True:
        estimates = _estimates(left)
        kept = _kept(left, estimates)
        if all(own.all() for own in kept):
            break
        left, at = _without(left, kept), [places[own] for places, own in zip(at, kept, strict=True)]
    fitted = [np.zeros(len(level.nodes)) for level in levels]
    for whole, places, estimate in zip(fitted, at, estimates, strict=True):
        whole[places] = estimate
    return fitted


def _estimates(levels: Sequence[MeasuredLevel]) -> list[_Reals]:
    """Return the least-squares estimates of all nodes of each level; shape (nodes,) each."""
    passed = list(combine_bottom_up(levels))
    h = [passed.pop()[0]]
    for above, level in pairwise(levels):
        z, v, (total, siblings) = passed.pop()
        h.append(z + v * np.repeat((h[-1][above.divided] - total) / siblings, np.diff(level.offsets)))
    return h


def _kept(levels: Sequence[MeasuredLevel], estimates: Sequence[_Reals]) -> list[_Kept]:
    """Return, for the nodes of each level, whether the node, or else a leaf below it, has an estimate of at least 0."""
    kept = [estimate >= 0 for estimate in estimates]
    for k in reversed(range(len(levels) - 1)):
        kept[k][levels[k].divided] = sum_runs(kept[k + 1].astype(np.int64), levels[k + 1].offsets) > 0
    return kept


def _without(levels: Sequence[MeasuredLevel], kept: Sequence[_Kept]) -> list[MeasuredLevel]:
    """Return the levels with their kept nodes alone."""
    left, fan_out = [], np.empty(0, dtype=np.int64)
    for k, (level, own) in enumerate(zip(levels, kept, strict=True)):
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(fan_out)])
        nodes = Pairs(level.nodes.level, level.nodes.origin[own], level.nodes.destination[own])
        divided = own[level.divided]
        places = (np.cumsum(own) - 1)[level.divided[divided]]
        left.append(MeasuredLevel(nodes, offsets, places, level.noisy[own], level.noise))
        if k + 1 < len(levels):
            fan_out = sum_runs(kept[k + 1].astype(np.int64), levels[k + 1].offsets)[divided]
    return left


def _whole(levels: Sequence[MeasuredLevel], z: Sequence[_Reals], v: Sequence[_Reals]) -> list[_Values]:
    """Return whole trips of all nodes of each level, from estimates z with variances v; see the module docstring."""
    trips = [np.maximum(np.floor(z[0] + 0.5), 0).astype(np.int64)]
    for k, level in enumerate(levels[1:], start=1):
        kept = level.divided if k < len(levels) - 1 else np.arange(len(level.nodes))
        runs = np.searchsorted(kept, level.offsets)
        own, shared = np.zeros(len(level.nodes), dtype=np.int64), np.zeros(len(kept), dtype=np.int64)
        _descend(z[k][kept], v[k][kept], runs, trips[-1][levels[k - 1].divided], shared)
        own[kept] = shared
        trips.append(own)
    return trips


@kernel
def _descend(z, v, runs, totals, trips):  # type: ignore[no-untyped-def]  # compiled
    """Write the trips of the children of every parent into ``trips``, given the trips of the parents, ``totals``.

    Of equal fractions, those of larger numbers are rounded up, which makes the fewest false discoveries.
    """
    for parent in range(len(totals)):
        first, last, left = runs[parent], runs[parent + 1], totals[parent]
        if left == 0 or first == last:
            continue
        y = z[first:last].copy()
        project_to_total(y, v[first:last], float(left))
        positive = np.flatnonzero(y > 0.0)
        fraction = np.empty(len(positive))
        for k, i in enumerate(positive):
            whole = np.int64(y[i])
            fraction[k] = np.floor((y[i] - whole) * _GRAIN + 0.5)
            trips[first + i] = whole
            left -= whole
        order = np.argsort(-y[positive], kind="mergesort")
        order = order[np.argsort(-fraction[order], kind="mergesort")]
        for k in range(left):
            trips[first + positive[order[k]]] += 1
