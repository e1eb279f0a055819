"""Refine a release: combine all measured levels by least squares, and then make consistent integers down the tree.

The refinement depends on public values alone and costs no privacy. The upward pass, from the leaves to the root,
computes, for each node, the best estimate z from the node and the levels below it, and the variance v of z. Let x be
the noisy value of the node and s2 the variance of its noise. A node without measured children has z = x and v = s2. For
any other node, let s and sv be the sums of z and v over its measured children. Then

    z = x + w (s - x),   w = s2 / (s2 + sv),   v = 1 / (1/s2 + 1/sv)

([hay2010boosting, section 4], for trees of any shape). The downward pass computes integers. The children of a node with
c trips have the refined trips ``IntOpt(round(z + (c - sum z) v / sum v), c)``, where the sums are over these children.

The difference z - x is stored in fixed point. All operations on it are on integers, rounded down. The variances and
weights come from single operations of IEEE 754, which give the same result on every machine. Variances are summed in
tree order, with those of dropped nodes last. So the refinement is the same on every machine, for any number of threads
and any size of pieces.

A node that the top-down pass dropped has no measured leaf below it. Its refined estimate is 0, but its noisy value
contributes to the estimate of its parent. Every other node, called a kept node, has measured leaves below it, so no
trips are lost in the downward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.empirical_bayes import leaves_by_empirical_bayes
from od_core.flows.estimation.held_out import choice_of
from od_core.flows.estimation.least_squares import MeasuredLevel, fit, measured_levels
from od_core.flows.estimation.shrinkage import Rule, shrink
from od_core.flows.estimation.top_down import NoisyCounts, at_step, estimate
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Expansion, Nodes, Pairs, run_sums
from od_core.geography.geography import Numbers
from od_core.kernels import kernel
from od_core.parallel import in_order

WEIGHT_BITS = 20
"""Number of fractional bits of a weight, which is a whole multiple of 2^-20."""

MOST_WEIGHT = 1 << (62 - WEIGHT_BITS)
"""Smallest sum of weights that is too large for 64-bit products."""

LIMIT = 1 << 61
"""Smallest sum of noisy values that is too large for 64-bit arithmetic."""


@kernel
def read_expansion(noisy, offsets, first_child, divided, runs, sums, kept):  # type: ignore[no-untyped-def]  # compiled
    """Write the sums of each parent's noisy children into ``sums``, and the kept children's noisy values into ``kept``.

    Kept children are those that the top-down pass did not drop: of parent ``p``, numbers ``runs[p]:runs[p + 1]``, with
    the areas ``divided`` on the refined side. For ``offsets`` and ``first_child``, see
    :class:`od_core.geography.flow_tree.Expansion`. Return False if a sum may overflow.
    """
    small = True
    for parent in range(len(sums)):
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        total, low, high = np.int64(0), noisy[first], noisy[first]
        for i in range(first, last):
            total += noisy[i]
            low, high = min(low, noisy[i]), max(high, noisy[i])
        small = small and max(high, -low) < LIMIT // np.int64(last - first)
        sums[parent] = total
        for child in range(runs[parent], runs[parent + 1]):
            kept[child - runs[0]] = noisy[offsets[parent] + divided[child] - first_child[parent]]
    return small


@kernel
def shift_expansion(noisy, offsets, lacking, shifted):  # type: ignore[no-untyped-def]  # compiled
    """Write the noisy value of each child, plus an equal part of its parent's ``lacking``, into ``shifted``.

    The part is rounded to the nearest whole number. ``lacking`` is the parent's trips minus the sum of its noisy
    children.
    """
    for parent in range(len(lacking)):
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        size = offsets[parent + 1] - offsets[parent]
        shift = (2 * lacking[parent] + size) // (2 * size)
        for i in range(first, last):
            shifted[i] = noisy[i] + shift


@kernel
def share_out(over, variance, runs, noisy, difference, half, bits, rounded):  # type: ignore[no-untyped-def]  # compiled
    """Write round(z + over * v / sum v) for the children of every parent into ``rounded``, as whole numbers.

    For each child, z = ``noisy`` + ``difference`` is its estimate and v the variance of z; ``over`` is the parent's
    trips minus the sum of z. ``over`` and ``difference`` are in fixed point with ``bits`` fractional bits, and ``half``
    is 1/2. ``variance`` has whole weights in proportion to v. Return False if the weights of a parent's children sum to
    ``MOST_WEIGHT`` or more.
    """
    for parent in range(len(over)):
        whole = np.int64(0)
        for i in range(runs[parent], runs[parent + 1]):
            whole += variance[i]
        if whole >= MOST_WEIGHT:
            return False
        if whole > 0:
            part, rest = over[parent] // whole, over[parent] % whole  # no product exceeds 63 bits
            for i in range(runs[parent], runs[parent + 1]):
                shift = part * variance[i] + rest * variance[i] // whole
                rounded[i] = noisy[i] + ((difference[i] + shift + half) >> bits)
    return True


def refuse_large_levels(levels: Sequence[MeasuredLevel]) -> None:
    """Raise OdError if a noisy value is so large that the sum of its level may not fit 64 bits."""
    for level in levels:
        refuse_large(level.noisy, LIMIT // max(1, len(level.noisy)))


def refuse_large(values: NDArray[np.int64] | NDArray[np.float64], limit: int) -> None:
    """Raise OdError if the magnitude of a value is ``limit`` or larger, so that sums may not fit 64 bits."""
    if values.size and (values.max() >= limit or values.min() <= -limit):
        raise overflow()


def overflow() -> OdError:
    """Return the error for sums that may not fit 64 bits."""
    return OdError(
        "OD-REFINEMENT-OVERFLOW",
        "the noisy values are too large for 64-bit sums",
        next_step="use mechanism inftda, or less noise",
        spent="draws already made stay charged",
    )


_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]

_MOST_FRACTION_BITS = 16
_SCALE_BITS = 24
"""Resolution of the difference between best estimate and noisy value: a multiple of 2^-16 or, if that is larger, of
about 2^-24 of the largest standard deviation."""

_WEIGHT_MASK = (1 << WEIGHT_BITS) - 1


@dataclass(frozen=True, eq=False)
class ChildSums:
    """Sums over the measured children of each node of a level; each array has the shape (nodes,).

    Attributes:
        noisy: Sum of the children's noisy values x.
        difference: Sum of z - x over the children, in fixed point; z is the best estimate of a child from itself and
            the levels below it.
        variance: Sum of the variances of these estimates z.
    """

    noisy: _Values
    difference: _Values
    variance: _Reals


@dataclass(frozen=True, eq=False)
class RisenLevel:
    """The nodes of a measured level above the leaves that the top-down pass kept, with their estimates.

    Attributes:
        nodes: The kept nodes.
        runs: The kept nodes below parent ``p`` are ``runs[p]:runs[p + 1]``; shape (parents + 1,). None if the level is
            the root.
        noisy: Noisy value x of each node; shape (nodes,).
        difference: z - x of each node, in fixed point, where z is its best estimate from itself and the levels below;
            shape (nodes,).
        variance: Variance v of each node's z; shape (nodes,).
    """

    nodes: Pairs
    runs: _Values | None
    noisy: _Values
    difference: _Values
    variance: _Reals

    @property
    def largest_variance(self) -> float:
        """Largest variance of the nodes' estimates; 0 if there are no nodes."""
        return float(self.variance.max(initial=0))


def refine(plan: ReleasePlan, root: Nodes | None, measured: Sequence[NoisyCounts]) -> list[Nodes]:
    """Return the refined nodes of the root and of every measured level, top first, from all measurements.

    Trips are integers, and the children of each node sum to its trips. Nodes with 0 trips are left out.

    Args:
        root: The root with its exact trips if the total is an invariant; otherwise None.
        measured: The measurements of all steps, top level first.

    Raises:
        OdError: If the noisy values are too large, or if their number differs from the number of cells.
    """
    *inner, leaf = measured
    if leaf.parents is None:  # every level has one node, and only the leaves are measured
        leaves = estimate(plan, leaf.step, None, leaf.noisy)
        return [with_trips(nodes, leaves.trips) for nodes in (as_root(leaves), leaves)]
    if (shrunk := shrunk_levels(plan, root, measured)) is not None:
        return [with_trips(level.nodes, trips) for level, trips in shrunk]
    sums = leaf_sums(plan, leaf)
    levels, _ = rise(plan, inner, leaf.parents, sums)
    trips = trips_by_level(plan, root, levels)
    refined = nodes_with_trips(root, levels, trips)
    if plan.mechanism.leaf_dial is not None:
        pieces = leaves_by_empirical_bayes(plan, leaf, trips[-1], plan.mechanism.leaf_dial)
    else:
        pieces = projected_leaves(plan, leaf, sums.noisy, trips[-1])
    return [*refined, Nodes.joined(leaf.step.level, pieces)]


def shrunk_levels(
    plan: ReleasePlan, root: Nodes | None, measured: Sequence[NoisyCounts]
) -> list[tuple[MeasuredLevel, _Values]] | None:
    """Return all levels with the shrunk trips of their nodes, top level first, or None if they are not shrunk.

    They are not if the plan estimates by least squares, or if ``estimate: auto`` chooses these.

    Args:
        root, measured: As for :func:`refine`, with parents of the leaves.
    """
    if not plan.mechanism.shrinks:
        return None
    levels = measured_levels(plan, None if root is None else int(root.trips.sum()), measured)
    rule = rule_of(plan, levels)
    return list(zip(levels, shrink(plan, fit(levels, for_intervals=False), rule), strict=True)) if rule.learns else None


def rule_of(plan: ReleasePlan, levels: Sequence[MeasuredLevel]) -> Rule:
    """Return the rule by which a plan that shrinks estimates some levels. If it is ``auto``, they choose the rule.

    Raises:
        OdError: If a noisy value is too large.
    """
    refuse_large_levels(levels)
    return choice_of(plan, levels).rule if plan.mechanism.estimate == "auto" else Rule(u=plan.mechanism.leaf_dial)


def nodes_with_trips(root: Nodes | None, levels: Sequence[RisenLevel], trips: Sequence[_Values]) -> list[Nodes]:
    """Return the nodes of the root and of each level that have trips.

    Args:
        root, levels: As for :func:`trips_by_level`.
        trips: The trips of the root and of each level, from :func:`trips_by_level`.
    """
    refined = [] if root is None else [with_trips(root, root.trips)]
    for level, own in zip(levels, trips[1:], strict=True):
        if not refined and level.nodes.level > 0:
            refined.append(with_trips(as_root(level.nodes), own))
        refined.append(with_trips(level.nodes, own))
    return refined


def trips_by_level(plan: ReleasePlan, root: Nodes | None, levels: Sequence[RisenLevel]) -> list[_Values]:
    """Return the refined trips of the root, and of all kept nodes of each level, including those of 0.

    The first array is empty if the root is not given.

    Args:
        plan, root: See :func:`refine`.
        levels: The nodes of consecutive levels that the top-down pass kept; the first level is the root or the first
            measured level below it.
    """
    trips = [np.empty(0, dtype=np.int64) if root is None else root.trips]
    for level in levels:
        trips.append(descend(plan, level, trips[-1], level.largest_variance))
    return trips


def leaf_sums(plan: ReleasePlan, leaf: NoisyCounts) -> ChildSums:
    """Return the sums over the measured leaves below each node of the level above.

    The estimate of a leaf is its noisy value, so its difference from the noisy value is 0.
    """
    none = np.empty(0, dtype=np.int32)
    noisy, _, fan_out = _read(plan, leaf, none, np.zeros(len(nodes_above(leaf)) + 1, dtype=np.int64))
    variance = fan_out.astype(np.float64) * float(leaf.step.variance)
    return ChildSums(noisy, np.zeros_like(noisy), variance)


def rise(
    plan: ReleasePlan, measured: Sequence[NoisyCounts], kept: Pairs, sums: ChildSums
) -> tuple[list[RisenLevel], ChildSums]:
    """Combine consecutive levels above the leaves by least squares, from the bottom up.

    Args:
        measured: The measurements of these levels, top level first.
        kept: The nodes of the last of these levels that the top-down pass did not drop.
        sums: Sums over the measured children of ``kept``.

    Returns:
        The kept nodes of each level with their estimates, top level first; and the sums over the nodes of the first
        level for each node of the level above it.

    Raises:
        OdError: As in :func:`refine`.
    """
    levels: list[RisenLevel] = []
    for measurement in reversed(measured):
        level, sums = _level(plan, measurement, kept, sums)
        levels.insert(0, level)
        if measurement.parents is not None:
            kept = measurement.parents
    return levels, sums


def _level(plan: ReleasePlan, measurement: NoisyCounts, nodes: Pairs, sums: ChildSums) -> tuple[RisenLevel, ChildSums]:
    """Return the kept nodes of a level with their estimates, and sums over the level for each node above it.

    Args:
        measurement: Noisy counts of the level.
        nodes: Nodes of the level that the top-down pass kept.
        sums: Sums over the measured children of ``nodes``.
    """
    own_variance = float(measurement.step.variance)
    if measurement.parents is None:
        runs, noisy = None, measurement.noisy.values()[: len(nodes)]  # no node if the root was estimated as 0
        total = fan_out = np.empty(0, dtype=np.int64)
    else:
        at = Pairs(measurement.parents.level + 1, nodes.origin, nodes.destination)  # valid for an unmeasured level
        runs = plan.tree.child_runs(measurement.parents, at)
        if runs[-1] != len(nodes):
            raise _disorder()
        divided = at.origin if plan.tree.refines_origin(at.level) else at.destination
        total, noisy, fan_out = _read(plan, measurement, divided, runs)
    gap = sums.noisy - noisy
    refuse_large(gap, LIMIT >> fraction_bits(plan))
    gap = (gap << fraction_bits(plan)) + sums.difference
    share = np.floor(own_variance / (own_variance + sums.variance) * (1 << WEIGHT_BITS)).astype(np.int64)
    difference = (gap >> WEIGHT_BITS) * share + ((gap & _WEIGHT_MASK) * share >> WEIGHT_BITS)
    refuse_large(difference, LIMIT // max(1, len(difference)))
    variance = 1 / (1 / own_variance + 1 / sums.variance)
    level = RisenLevel(nodes, runs, noisy, difference, variance)
    if runs is None:
        return level, sums
    dropped = (fan_out - np.diff(runs)) * own_variance
    return level, ChildSums(total, run_sums(difference, runs), run_sums(variance, runs) + dropped)


def _read(
    plan: ReleasePlan, measurement: NoisyCounts, divided: Numbers, runs: _Values
) -> tuple[_Values, _Values, _Values]:
    """Return the noisy values of a level, summed and selected.

    Args:
        measurement: Noisy counts of the children.
        divided: Area numbers of the kept children, on the side that the step to the level refines; shape (kept
            children,).
        runs: The kept children of parent ``p`` are ``runs[p]:runs[p + 1]``; shape (parents + 1,).

    Returns:
        Sum of the noisy values of all children of each parent, shape (parents,); noisy values of the kept children,
        shape (kept children,); and number of children of each parent, shape (parents,).

    Raises:
        OdError: If the noisy values are too large.
    """

    def read(piece: tuple[Expansion, _Values]) -> tuple[_Values, _Values, _Values, bool]:
        expansion, noisy = piece
        own_runs = runs[expansion.parents.start : expansion.parents.stop + 1]
        kept = np.empty(own_runs[-1] - own_runs[0], dtype=np.int64)
        sums = np.empty(len(expansion.offsets) - 1, dtype=np.int64)
        small = read_expansion(noisy, expansion.offsets, expansion.first_child, divided, own_runs, sums, kept)
        return sums, kept, np.diff(expansion.offsets), small

    parts = list(in_order(read, measurement.expanded(plan)))
    if not all(small for *_, small in parts):
        raise overflow()
    none = np.empty(0, dtype=np.int64)
    sums, kept, fan_out = (np.concatenate([none, *(part[k] for part in parts)]) for k in range(3))
    return sums, kept, fan_out


def descend(plan: ReleasePlan, level: RisenLevel, totals: _Values, largest_variance: float) -> _Values:
    """Return the refined trips of the kept nodes of a level, from the refined trips of their parents.

    Args:
        level: The nodes that the top-down pass did not drop, all or in part, with their estimates.
        totals: Refined trips of the parents, in tree order; shape (parents,). Not used at the root.
        largest_variance: Largest variance v of all kept nodes of the level. Weights are fractions of it.

    Returns:
        Whole numbers of at least 0; shape (nodes,).

    Raises:
        OdError: As in :func:`refine`.
    """
    bits = fraction_bits(plan)
    half = (1 << bits) >> 1
    if level.runs is None:
        return np.maximum(level.noisy + (level.difference + half >> bits), 0)
    over = totals - run_sums(level.noisy, level.runs)
    refuse_large(over, LIMIT >> bits)
    over = (over << bits) - run_sums(level.difference, level.runs)
    weights = whole_weights(level.variance, largest_variance)
    rounded = np.empty_like(level.noisy)
    if not share_out(over, weights, level.runs, level.noisy, level.difference, half, bits, rounded):
        raise overflow()
    return plan.mechanism.project(rounded, totals, level.runs)


def whole_weights(variance: _Reals, largest_variance: float) -> _Values:
    """Return whole numbers from 1 to 2^20 in proportion to the variances of nodes; shape (nodes,)."""
    return np.maximum(np.floor(variance / largest_variance * (1 << WEIGHT_BITS)).astype(np.int64), 1)


def projected_leaves(plan: ReleasePlan, leaf: NoisyCounts, sums: _Values, totals: _Values) -> Iterator[Nodes]:
    """Return an iterator of the refined leaves in tree order, in consecutive pieces. Leaves of 0 are left out.

    All leaves have the same variance. So an equal part of the difference between the parent's trips and the sum of its
    noisy leaves is added to each leaf before the projection.

    Args:
        leaf: The measurement of the leaves.
        sums: Sum of the noisy values of the leaves below each parent; shape (parents,).
        totals: Refined trips of these parents; shape (parents,).
    """

    def leaves(piece: tuple[Expansion, _Values]) -> Nodes:
        return at_step(leaf.step, piece[0].with_trips(projected_piece(plan, *piece, sums, totals)))

    return in_order(leaves, leaf.expanded(plan))


def projected_piece(plan: ReleasePlan, expansion: Expansion, noisy: _Values, sums: _Values, totals: _Values) -> _Values:
    """Return the refined trips of the leaves of one piece, including those of 0; shape (leaves,).

    Args:
        noisy: Noisy values of these leaves.
        sums, totals: As for :func:`projected_leaves`.
    """
    parents, shifted = expansion.parents, np.empty_like(noisy)
    shift_expansion(noisy, expansion.offsets, totals[parents] - sums[parents], shifted)
    return plan.mechanism.project(shifted, totals[parents], expansion.offsets)


def nodes_above(measurement: NoisyCounts) -> Pairs:
    """Return the parents of a measurement. Raises OdError if it has none."""
    if measurement.parents is None:
        raise _disorder()
    return measurement.parents


def _disorder() -> OdError:
    return OdError(
        "OD-MEASUREMENT-ORDER",
        "a measurement does not follow the measurement of the level above",
        next_step="report this defect",
    )


def as_root(only: Pairs) -> Pairs:
    """Return the root as a pair of areas, given the only node of a level.

    If a level has a single node, both of its areas have the number 0, as the areas of the root do.
    """
    return Pairs(0, only.origin, only.destination)


def with_trips(nodes: Pairs, trips: _Values) -> Nodes:
    """Return ``nodes`` of one level with their trips, shape (nodes,), without the nodes of 0 trips."""
    kept = trips > 0
    return Nodes(nodes.level, nodes.origin[kept], nodes.destination[kept], trips[kept])


def fraction_bits(plan: ReleasePlan) -> int:
    """Return the number of fractional bits of the difference between best estimate and noisy value."""
    widest = math.ceil(max(step.variance for step in plan.steps))
    return max(0, min(_MOST_FRACTION_BITS, _SCALE_BITS - widest.bit_length() // 2))
