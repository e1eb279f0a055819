"""Fit a measured flow tree by least squares: compute the best linear unbiased estimate of every node, and its variance.

The upward pass (:func:`combine_bottom_up`) computes, for each node, the best estimate z from the node and the levels
below it, and the variance v of z. Let x be the noisy value of the node and s2 the variance of its noise. A node without
measured children has z = x and v = s2. For any other node, let s and S be the estimate that its children give of it and
the variance of that estimate: by least squares, the sums of their z and v. Then

    z = x + w (s - x),   w = s2 / (s2 + S),   v = 1 / (1/s2 + 1/S).

The downward pass computes, for each node, the best estimate h from all levels, and the variance V of h. For child i of
a node with the estimate h and the variance V,

    h_i = z_i + (h - s) v_i / S,   V_i = v_i - v_i^2 / S + (v_i / S)^2 V.

This is [hay2010boosting, section 4], extended to trees of any shape and to any variances. The part of h_i that does not
depend on h is uncorrelated with h, with the estimates of all nodes above, and with the children of any other node. The
variances of sums follow from this.

:mod:`od_core.flows.estimation.refinement` computes the same z in whole numbers to make the released table. This module
computes unrounded values, which may be negative, because the variances refer to them. It uses single operations of IEEE
754 and sums in tree order, so the result is the same, bit for bit, on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.levels import NoisyCounts
from od_core.flows.interval_ends import compute_upper_bound
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import FlowTree, Pairs, sum_runs
from od_core.kernels import kernel

_BLOCK = 1 << 18
"""Number of nodes whose bounds are computed at once, which limits the memory."""


@dataclass(frozen=True, eq=False)
class MeasuredLevel:
    """The nodes of a level of the flow tree, with their noisy values.

    Attributes:
        nodes: The children of all divided nodes of the level above, in tree order; or the root.
        offsets: The children of the divided node number ``p`` of the level above are ``offsets[p]:offsets[p + 1]``;
            shape (divided nodes above + 1,).
        divided: Positions in ``nodes`` of the *divided* nodes, those with measured nodes below them.
        noisy: Noisy value x of each node; shape (nodes,).
        noise: Variance s2 of the noisy values. It is 0 for an exact root, and infinite for an unmeasured level.
    """

    nodes: Pairs
    offsets: Integers
    divided: Integers
    noisy: Reals
    noise: float


@dataclass(frozen=True, eq=False)
class FittedLevel(MeasuredLevel):
    """A level with the estimates of its nodes from all measurements.

    Attributes:
        own: v, the variance of the estimate from the node and the levels below it; shape (nodes,).
        siblings: S, the sum of v over the children of each divided node of the level above.
        estimate, variance: h, the estimate from all levels, and V, its variance; shape (nodes,) each.
        bound: Upper bound of the trips of the node, the end of the interval of its estimate; shape (nodes,).
    """

    own: Reals
    siblings: Reals
    estimate: Reals
    variance: Reals
    bound: Integers

    def select_children(self, first: int, last: int) -> FittedLevel:
        """Return a level that has only the children of the divided nodes ``first:last`` of the level above.

        Its positions are relative to the first of these children.
        """
        nodes = slice(self.offsets[first], self.offsets[last])
        divided = slice(*np.searchsorted(self.divided, [nodes.start, nodes.stop]))
        of_nodes = {name: getattr(self, name)[nodes] for name in ("noisy", "own", "estimate", "variance", "bound")}
        return replace(
            self,
            nodes=Pairs(self.nodes.level, self.nodes.origin[nodes], self.nodes.destination[nodes]),
            offsets=self.offsets[first : last + 1] - nodes.start,
            divided=self.divided[divided] - nodes.start,
            siblings=self.siblings[first:last],
            **of_nodes,
        )


def has_no_dropped_nodes(levels: Sequence[MeasuredLevel]) -> bool:
    """Return True if no node was dropped, so that every node above the leaves has measured nodes below it."""
    return all(len(level.divided) == len(level.nodes) for level in levels[:-1])


def fit_least_squares(plan: ReleasePlan, total: int | None, measured: Sequence[NoisyCounts]) -> list[FittedLevel]:
    """Return the levels of :func:`build_measured_levels` with their least-squares estimates, top level first."""
    return fit_measured_levels(build_measured_levels(plan, total, measured))


def fit_measured_levels(levels: Sequence[MeasuredLevel]) -> list[FittedLevel]:
    """Return measured levels with the least-squares estimates of their nodes, top level first."""
    from_below = list(combine_bottom_up(levels))
    fitted: list[FittedLevel] = []
    for level in levels:
        z, v, sums = from_below.pop()
        own = np.ascontiguousarray(v)
        if not fitted:  # nothing above the root says more of it
            estimate, variance = z, np.maximum(v, 0)
        else:
            above, estimate, variance = fitted[-1], np.empty_like(z), np.empty_like(z)
            parent_h, parent_variance = above.estimate[above.divided], above.variance[above.divided]
            estimate_children(level.offsets, parent_h, parent_variance, *sums, z, own, estimate, variance)
        bound = np.empty(len(z), dtype=np.int64)
        for first in range(0, len(bound), _BLOCK):
            block = slice(first, first + _BLOCK)
            bound[block] = compute_upper_bound(estimate[block], variance[block])
        fitted.append(
            FittedLevel(**vars(level), own=own, siblings=sums[1], estimate=estimate, variance=variance, bound=bound)
        )
    return fitted


@kernel
def estimate_children(offsets, parent_h, parent_variance, total, siblings, z, v, estimate, variance):  # type: ignore[no-untyped-def]
    """Write h of the children of every divided node to ``estimate`` and, unless it is empty, V to ``variance``.

    ``parent_h``, ``parent_variance``, ``total`` and ``siblings`` are h, V, s and S of the parents, shape (parents,);
    ``z`` and ``v`` are those of the children, shape (children,).
    """
    for parent in range(len(offsets) - 1):
        lacking = parent_h[parent] - total[parent]
        for i in range(offsets[parent], offsets[parent + 1]):
            part = v[i] / siblings[parent]
            estimate[i] = z[i] + part * lacking
            if len(variance) > 0:
                variance[i] = max(v[i] - v[i] * part + part * part * parent_variance[parent], 0.0)


NodeRule = Callable[[Reals, Reals], tuple[Reals, Reals]]
"""Function from z and v of the nodes of a level to estimates of the divided nodes above, and their variances."""


def combine_bottom_up(
    levels: Sequence[MeasuredLevel], rules: Mapping[int, NodeRule] = MappingProxyType({})
) -> Iterator[tuple[Reals, Reals, tuple[Reals, Reals]]]:
    """Yield the results of combining the levels from the bottom up, last level first.

    Args:
        levels: All levels, top level first.
        rules: Node rules by the position of the level; those of other levels are the sums of z and v.

    Yields:
        z and v of the nodes of the level, shape (nodes,) each; and the estimates that they give of the divided nodes
        above, with their variances, shape (divided nodes above,) each: without a rule, s and S.
    """
    z, v = levels[-1].noisy, np.broadcast_to(levels[-1].noise, len(levels[-1].nodes))  # all equal: no memory
    for k in reversed(range(len(levels))):
        offsets = levels[k].offsets
        sums = rules[k](z, v) if k in rules else (sum_runs(z, offsets), sum_runs(np.ascontiguousarray(v), offsets))
        yield z, v, sums
        if k > 0:
            z, v = combine_with_level_below(levels[k - 1], *sums)


def combine_with_level_below(level: MeasuredLevel, sums: Reals, spread: Reals) -> tuple[Reals, Reals]:
    """Return the best estimate z of each node from itself and the levels below, and its variance v; shape (nodes,).

    ``sums`` and ``spread`` are s and S: the estimate that the level below gives of each divided node, and its variance;
    shape (divided,) each.
    """
    z, v, divided = level.noisy.copy(), np.full(len(level.nodes), level.noise), level.divided
    if np.isinf(level.noise):  # the level was not measured, so only the level below says anything of it
        z[divided], v[divided] = sums, spread
    else:
        x, weight = level.noisy[divided], level.noise / (level.noise + spread)
        z[divided] = x + weight * (sums - x)
        v[divided] = level.noise * spread / (level.noise + spread)
    return z, v


class _Inner(NamedTuple):
    """Numbers of the divided nodes of a level above the leaves that a fit uses, and that noisy values do not change."""

    level: MeasuredLevel
    runs: Integers  # divided nodes below divided node p of the level above are runs[p]:runs[p + 1]
    weight: Reals  # w; shape (divided,)
    part: Reals  # v_i / S; shape (divided,), empty for the first level


class FamilyFit:
    """The fit of the *families* of a measured tree, the nodes whose children are leaves, for any noisy values.

    What depends on variances alone is computed once, from ``levels``.
    """

    def __init__(self, levels: Sequence[MeasuredLevel]) -> None:
        self._inner: list[_Inner] = []
        sizes = np.diff(levels[-1].offsets)
        # The variance of the sum of a family's leaves depends on its size alone. It is added up as by sum_runs.
        variance_by_size = np.append(0.0, np.cumsum(np.full(sizes.max(initial=0), levels[-1].noise)))
        variance_of_families = variance_by_size[sizes]

        def combine_leaves(_z: Reals, _v: Reals) -> tuple[Reals, Reals]:
            return variance_of_families, variance_of_families  # estimates are not used here

        from_below = combine_bottom_up(levels, {len(levels) - 1: combine_leaves})
        next(from_below)  # the leaves
        children_variance = variance_of_families  # S of the children of each divided node of the level at hand
        for level, (_, v, (_, siblings)) in zip(reversed(levels[:-1]), from_below, strict=True):
            runs = np.searchsorted(level.divided, level.offsets)
            part = v[level.divided[runs[0] : runs[-1]]] / np.repeat(siblings, np.diff(runs))
            weight = np.ones(len(children_variance))
            if not np.isinf(level.noise):
                weight = level.noise / (level.noise + children_variance)
            self._inner.insert(0, _Inner(level, runs, weight, part))
            children_variance = siblings

    def estimate_families(self, sums: Reals, noisy: Callable[[int], Reals] | None = None) -> Reals:
        """Return the estimate h of each family; shape (families,).

        Args:
            sums: Sum of the noisy values of the leaves of each family; shape (families,).
            noisy: Returns the noisy values of the nodes of a level, given its position; by default, all are 0.
        """
        # Of each level: z of its divided nodes, and the sum of z over all its nodes for each divided node above.
        estimates: list[tuple[Reals, Reals]] = []
        for position in reversed(range(len(self._inner))):
            level, runs, weight, _ = self._inner[position]
            if noisy is None:
                z = weight * sums
                sums = sum_runs(z, runs)
            else:
                z_of_nodes = noisy(position).copy()  # of a dropped node, z is its noisy value
                x = z_of_nodes[level.divided]
                z = x + weight * (sums - x)
                z_of_nodes[level.divided] = z
                sums = sum_runs(z_of_nodes, level.offsets)
            estimates.insert(0, (z, sums))
        h, _ = estimates[0]
        for (z, total), (_, runs, _, part) in zip(estimates[1:], self._inner[1:], strict=True):
            h = z + part * np.repeat(h - total, np.diff(runs))
        return h


def build_measured_levels(plan: ReleasePlan, total: int | None, measured: Sequence[NoisyCounts]) -> list[MeasuredLevel]:
    """Return the exact root, if there is one, and the level of every step, top first.

    If only the leaves were measured, return every level, with infinite noise above the leaves. Other unmeasured levels
    are left out: their nodes have one child with the same area numbers, so the next level has the same estimates.

    Args:
        plan: The plan of the release. It must not have a threshold, since then no tree is measured.
        total: The total number of trips; used only if it is an invariant. None for the trips of a category, whose
            total is not public.
        measured: The noisy counts of all measured levels, top level first.
    """
    listed = _list_measurements(plan, total, measured)
    divided_nodes = [*(below.parents for below in listed[1:]), None]
    return [_make_level(plan.tree, of_level, nodes) for of_level, nodes in zip(listed, divided_nodes, strict=True)]


class _Measurement(NamedTuple):
    """The noisy values of a level: of all children of ``parents`` or, if there are none, of the root.

    ``number`` is that of the level, and ``noise`` the variance of the values.
    """

    number: int
    parents: Pairs | None
    noisy: Reals
    noise: float


def _list_measurements(plan: ReleasePlan, total: int | None, measured: Sequence[NoisyCounts]) -> list[_Measurement]:
    """Return the measurements of all levels of :func:`build_measured_levels`, top first.

    Before ``measured``, there are the levels that are exact (variance 0) or not measured (infinite variance).
    """
    listed = [_Measurement(m.step.level, m.parents, m.read_reals(), float(m.step.variance)) for m in measured]
    if plan.mechanism.measures == "all_leaves":
        parents: Pairs | None = None
        levels = []
        for number in range(plan.tree.depth):
            levels.append(_Measurement(number, parents, np.zeros(plan.tree.cells(number)), math.inf))
            parents = plan.tree.list_public_nodes(number)
        return [*levels, listed[-1]._replace(parents=parents)]
    top = listed[0].parents
    if total is None and top is not None:  # the root was not measured: its only child was
        no_trips = len(top) == 0  # an exact root of no trips, whose child was dropped
        return [_Measurement(0, None, np.zeros(1), 0.0 if no_trips else math.inf), *listed]
    if total is not None and plan.publishes_total:
        return [_Measurement(0, None, np.array([float(total)]), 0.0), *listed]
    return listed


def _make_level(tree: FlowTree, measured: _Measurement, divided_nodes: Pairs | None) -> MeasuredLevel:
    """Return a level from its measurement and its divided nodes; these are None for the last level, which has none."""
    if measured.parents is None:
        nodes, offsets = tree.list_public_nodes(0), np.zeros(1, dtype=np.int64)
    else:
        nodes, offsets = tree.list_children(measured.parents)
    nodes = replace(nodes, level=measured.number)  # below unmeasured levels, nodes have the areas of their parents
    divided = np.empty(0, dtype=np.int64)
    if divided_nodes is not None:
        # First ranks ascend, and every divided node is among the nodes, so this finds the position of each.
        divided = np.searchsorted(tree.compute_first_ranks(nodes), tree.compute_first_ranks(divided_nodes))
    return MeasuredLevel(nodes, offsets, divided, measured.noisy, measured.noise)
