"""Refine a release: least squares over all measured levels, then integers down the tree.

The refinement depends on public values alone and costs no privacy. On the way up, every inner node is combined with the
levels below it: with x its own noisy value of variance s2, and (s, sv) the sums of its measured children's values and
variances,

    z = x + w (s - x),   w = s2 / (s2 + sv),   v = 1 / (1/s2 + 1/sv)

([hay2010boosting], for trees of any shape). On the way down, the children of a node with c trips become
``IntOpt(round(z + (c - sum z) v / sum v), c)``.

The difference of z from the integer x is stored in fixed point. All operations on it are on integers, rounded down. The
variances and weights come from single operations of IEEE 754, which round alike on every machine, with sums in tree
order and the dropped nodes last. So the result is the same everywhere, for any number of threads and any size of
pieces.

A node that the top-down pass dropped has no measured leaf below it. It stays at 0, but its noisy value contributes to
its parent. Every node that was kept has measured leaves, so no trips are lost on the way down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.empirical_bayes import leaves_by_empirical_bayes
from od_core.flows.estimation.top_down import Measurement, at_step, estimate
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Expansion, Nodes, Pairs, run_sums
from od_core.geography.geography import Numbers
from od_core.kernels import kernel
from od_core.parallel import in_order

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]

_WEIGHT_BITS = 20
"""Weights are whole multiples of 2^-20."""

_MOST_FRACTION_BITS = 16
_SCALE_BITS = 24
"""Differences of z from x are multiples of 2^-16, or of 2^-24 of the largest standard deviation if that is more."""

_WEIGHT_MASK = (1 << _WEIGHT_BITS) - 1
_MOST_WEIGHT = 1 << (62 - _WEIGHT_BITS)

_LIMIT = 1 << 61


@dataclass(frozen=True, eq=False)
class ChildSums:
    """Sums over the measured children of some nodes; shape (nodes,) each.

    Attributes:
        noisy: Sum of their noisy values.
        difference: Sum of z - x over them, in fixed point.
        variance: Sum of their variances, sv.
    """

    noisy: _Values
    difference: _Values
    variance: _Reals


@dataclass(frozen=True, eq=False)
class RisenLevel:
    """The kept nodes of a measured level that has measurements below it; shape (nodes,) each, except ``runs``.

    Attributes:
        nodes: The nodes.
        runs: The nodes below parent ``p`` are ``runs[p]:runs[p + 1]``; None if the level is the root.
        noisy: Their noisy values, x.
        difference: z - x, in fixed point.
        variance: v.
    """

    nodes: Pairs
    runs: _Values | None
    noisy: _Values
    difference: _Values
    variance: _Reals

    @property
    def largest_variance(self) -> float:
        """Largest variance of its nodes; 0 if there are none."""
        return float(self.variance.max(initial=0))


def refine(plan: ReleasePlan, root: Nodes | None, measured: Sequence[Measurement]) -> list[Nodes]:
    """Return integers at every measured level from all measurements; children sum to parents, nodes of 0 are left out.

    Args:
        plan: The plan of the release.
        root: The root with its exact trips, where n is an invariant; otherwise None.
        measured: The measurements of all steps, top first.

    Returns:
        The root and the nodes of every measured level, top first, the leaves last.

    Raises:
        OdError: If the measured values are too large, or not as many as there are cells.
    """
    *inner, leaf = measured
    if leaf.parents is None:  # every level has one node, and only the leaves are measured
        leaves = estimate(plan, leaf.step, None, leaf.noisy)
        return [with_trips(nodes, leaves.trips) for nodes in (_as_root(leaves), leaves)]
    sums = leaf_sums(plan, leaf)
    levels, _ = rise(plan, inner, leaf.parents, sums)
    refined, trips = refined_levels(plan, root, levels)
    if plan.mechanism.leaf_dial is not None:
        pieces = leaves_by_empirical_bayes(plan, leaf, trips, plan.mechanism.leaf_dial)
    else:
        pieces = projected_leaves(plan, leaf, sums.noisy, trips)
    return [*refined, Nodes.joined(leaf.step.level, pieces)]


def refined_levels(plan: ReleasePlan, root: Nodes | None, levels: Sequence[RisenLevel]) -> tuple[list[Nodes], _Values]:
    """Compute the way down from the root, over whole levels.

    Args:
        plan, root: See :func:`refine`.
        levels: The kept nodes of consecutive levels; the first level is the root or is below it.

    Returns:
        The root and the nodes of each level, and the trips of all kept nodes of the last level, including those of 0.
    """
    trips = np.empty(0, dtype=np.int64) if root is None else root.trips
    refined = [] if root is None else [with_trips(root, trips)]
    for level in levels:
        trips = descend(plan, level, trips, level.largest_variance)
        if not refined and level.nodes.level > 0:
            refined.append(with_trips(_as_root(level.nodes), trips))
        refined.append(with_trips(level.nodes, trips))
    return refined, trips


def leaf_sums(plan: ReleasePlan, leaf: Measurement) -> ChildSums:
    """Return the sums of the leaves below each node: z of a leaf is its noisy value, with the variance of its noise."""
    none = np.empty(0, dtype=np.int32)
    noisy, _, fan_out = _read(plan, leaf, none, np.zeros(len(_nodes_above(leaf)) + 1, dtype=np.int64))
    variance = fan_out.astype(np.float64) * float(leaf.step.variance)
    return ChildSums(noisy, np.zeros_like(noisy), variance)


def rise(
    plan: ReleasePlan, measured: Sequence[Measurement], kept: Pairs, sums: ChildSums
) -> tuple[list[RisenLevel], ChildSums]:
    """Compute the way up, which combines every inner node with the levels below it.

    Args:
        plan: The plan of the release.
        measured: The measurements of consecutive levels, top first.
        kept: The kept nodes of the last of these levels.
        sums: Sums over their measured children.

    Returns:
        The kept nodes of each level, top first, and the sums of the first level for the nodes above it.

    Raises:
        OdError: As :func:`refine`.
    """
    levels: list[RisenLevel] = []
    for measurement in reversed(measured):
        level, sums = _level(plan, measurement, kept, sums)
        levels.insert(0, level)
        if measurement.parents is not None:
            kept = measurement.parents
    return levels, sums


def _level(plan: ReleasePlan, measurement: Measurement, nodes: Pairs, sums: ChildSums) -> tuple[RisenLevel, ChildSums]:
    """Return the kept nodes of a level, and the sums of the level for the level above it.

    Args:
        plan: The plan of the release.
        measurement: Measurement of the level.
        nodes: Kept nodes of the level.
        sums: Sums over their measured children.
    """
    own_variance = float(measurement.step.variance)
    if measurement.parents is None:
        runs, noisy = None, measurement.noisy.values()[: len(nodes)]  # no value if the root was estimated as 0
        total = fan_out = np.empty(0, dtype=np.int64)
    else:
        at = Pairs(measurement.parents.level + 1, nodes.origin, nodes.destination)  # same areas, even if not that level
        runs = plan.tree.child_runs(measurement.parents, at)
        if runs[-1] != len(nodes):
            raise _disorder()
        divided = at.origin if plan.tree.refines_origin(at.level) else at.destination
        total, noisy, fan_out = _read(plan, measurement, divided, runs)
    gap = sums.noisy - noisy
    _refuse_large(gap, _LIMIT >> _fraction_bits(plan))
    gap = (gap << _fraction_bits(plan)) + sums.difference
    share = np.floor(own_variance / (own_variance + sums.variance) * (1 << _WEIGHT_BITS)).astype(np.int64)
    difference = (gap >> _WEIGHT_BITS) * share + ((gap & _WEIGHT_MASK) * share >> _WEIGHT_BITS)
    _refuse_large(difference, _LIMIT // max(1, len(difference)))
    variance = 1 / (1 / own_variance + 1 / sums.variance)
    level = RisenLevel(nodes, runs, noisy, difference, variance)
    if runs is None:
        return level, sums
    dropped = (fan_out - np.diff(runs)) * own_variance
    return level, ChildSums(total, run_sums(difference, runs), run_sums(variance, runs) + dropped)


def _read(
    plan: ReleasePlan, measurement: Measurement, divided: Numbers, runs: _Values
) -> tuple[_Values, _Values, _Values]:
    """Return the sum of every parent's noisy children, the noisy values of the kept ones, and the numbers of children.

    Args:
        plan: The plan of the release.
        measurement: Measurement of the children.
        divided: Area numbers of the kept children, on the side that is divided.
        runs: The kept children of parent ``p`` are ``runs[p]:runs[p + 1]``.
    """

    def read(piece: tuple[Expansion, _Values]) -> tuple[_Values, _Values, _Values, bool]:
        expansion, noisy = piece
        own_runs = runs[expansion.parents.start : expansion.parents.stop + 1]
        kept = np.empty(own_runs[-1] - own_runs[0], dtype=np.int64)
        sums = np.empty(len(expansion.offsets) - 1, dtype=np.int64)
        small = _read_expansion(noisy, expansion.offsets, expansion.first_child, divided, own_runs, sums, kept)
        return sums, kept, np.diff(expansion.offsets), small

    parts = list(in_order(read, measurement.expanded(plan)))
    if not all(small for *_, small in parts):
        raise _overflow()
    none = np.empty(0, dtype=np.int64)
    sums, kept, fan_out = (np.concatenate([none, *(part[k] for part in parts)]) for k in range(3))
    return sums, kept, fan_out


def descend(plan: ReleasePlan, level: RisenLevel, totals: _Values, largest_variance: float) -> _Values:
    """Return the refined trips of the kept nodes of a level, below parents with the given trips.

    Args:
        plan: The plan of the release.
        level: The nodes.
        totals: Trips of their parents, in tree order; not used at the root.
        largest_variance: Largest variance of all nodes of that level of the tree, the unit of their weights.

    Returns:
        Whole numbers of at least 0; shape (nodes,).

    Raises:
        OdError: As :func:`refine`.
    """
    bits = _fraction_bits(plan)
    half = (1 << bits) >> 1
    if level.runs is None:
        return np.maximum(level.noisy + (level.difference + half >> bits), 0)
    over = totals - run_sums(level.noisy, level.runs)
    _refuse_large(over, _LIMIT >> bits)
    over = (over << bits) - run_sums(level.difference, level.runs)
    weights = np.maximum(np.floor(level.variance / largest_variance * (1 << _WEIGHT_BITS)).astype(np.int64), 1)
    rounded = np.empty_like(level.noisy)
    if not _share_out(over, weights, level.runs, level.noisy, level.difference, half, bits, rounded):
        raise _overflow()
    return plan.mechanism.project(rounded, totals, level.runs)


def projected_leaves(plan: ReleasePlan, leaf: Measurement, sums: _Values, totals: _Values) -> Iterator[Nodes]:
    """Return the leaves, piece by piece.

    All leaves have the same variance, so each takes an equal part of the difference between its parent's trips and the
    sum of its siblings.

    Args:
        plan: The plan of the release.
        leaf: The measurement of the leaves.
        sums: Sum of the noisy leaves below each parent.
        totals: Trips of these parents.
    """

    def leaves(piece: tuple[Expansion, _Values]) -> Nodes:
        expansion, noisy = piece
        parents, shifted = expansion.parents, np.empty_like(noisy)
        _shift_expansion(noisy, expansion.offsets, totals[parents] - sums[parents], shifted)
        projected = plan.mechanism.project(shifted, totals[parents], expansion.offsets)
        return at_step(leaf.step, expansion.with_trips(projected))

    return in_order(leaves, leaf.expanded(plan))


def _nodes_above(measurement: Measurement) -> Pairs:
    """Return the nodes below which a level other than the root was measured."""
    if measurement.parents is None:
        raise _disorder()
    return measurement.parents


def _disorder() -> OdError:
    return OdError(
        "OD-MEASUREMENT-ORDER",
        "a measurement does not follow the measurement of the level above",
        next_step="report this defect",
    )


def _refuse_large(values: _Values, limit: int) -> None:
    """Raise OdError if a value is not within plus and minus the limit, which 64-bit sums need."""
    if len(values) and (values.max() >= limit or values.min() <= -limit):
        raise _overflow()


def _overflow() -> OdError:
    return OdError(
        "OD-REFINEMENT-OVERFLOW",
        "the noisy values are too large for 64-bit sums",
        next_step="use mechanism inftda, or less noise",
        spent="draws already made stay charged",
    )


def _as_root(only: Pairs) -> Pairs:
    """Return the root, from a level that has one node: nothing above it is divided, so its areas have number 0."""
    return Pairs(0, only.origin, only.destination)


def with_trips(nodes: Pairs, trips: _Values) -> Nodes:
    """Return the nodes that have trips."""
    kept = trips > 0
    return Nodes(nodes.level, nodes.origin[kept], nodes.destination[kept], trips[kept])


def _fraction_bits(plan: ReleasePlan) -> int:
    """Return the number of fractional bits of the differences of z from x."""
    widest = math.ceil(max(step.variance for step in plan.steps))
    return max(0, min(_MOST_FRACTION_BITS, _SCALE_BITS - widest.bit_length() // 2))


@kernel
def _read_expansion(noisy, offsets, first_child, divided, runs, sums, kept):  # type: ignore[no-untyped-def]  # compiled
    """Write the sum of every parent's children and the values of the kept ones; return False if a sum may overflow."""
    small = True
    for parent in range(len(sums)):
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        total, low, high = np.int64(0), noisy[first], noisy[first]
        for i in range(first, last):
            total += noisy[i]
            low, high = min(low, noisy[i]), max(high, noisy[i])
        small = small and max(high, -low) < _LIMIT // np.int64(last - first)
        sums[parent] = total
        for child in range(runs[parent], runs[parent + 1]):
            kept[child - runs[0]] = noisy[offsets[parent] + divided[child] - first_child[parent]]
    return small


@kernel
def _shift_expansion(noisy, offsets, lacking, shifted):  # type: ignore[no-untyped-def]  # compiled
    """Add to each child of a parent an equal part of their deficit, rounded to the nearest whole number."""
    for parent in range(len(lacking)):
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        size = offsets[parent + 1] - offsets[parent]
        shift = (2 * lacking[parent] + size) // (2 * size)
        for i in range(first, last):
            shifted[i] = noisy[i] + shift


@kernel
def _share_out(over, variance, runs, noisy, difference, half, bits, rounded):  # type: ignore[no-untyped-def]  # compiled
    """Write round(z + over * v / sum v) for the children of every parent, in fixed point but for x.

    Return False if the weights of a parent's children sum to ``_MOST_WEIGHT`` or more.
    """
    for parent in range(len(over)):
        whole = np.int64(0)
        for i in range(runs[parent], runs[parent + 1]):
            whole += variance[i]
        if whole >= _MOST_WEIGHT:
            return False
        if whole > 0:
            part, rest = over[parent] // whole, over[parent] % whole  # no product exceeds 63 bits
            for i in range(runs[parent], runs[parent + 1]):
                shift = part * variance[i] + rest * variance[i] // whole
                rounded[i] = noisy[i] + ((difference[i] + shift + half) >> bits)
    return True
