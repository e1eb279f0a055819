"""Refine a release: combine all measured levels by least squares, and then make consistent integers down the tree.

The upward pass computes z and v of :mod:`od_core.flows.estimation.least_squares` in whole numbers. The downward pass
computes integers: the children of a node with c trips have the refined trips ``IntOpt(round(z + (c - sum z) v / sum v),
c)``, where the sums are over these children (``docs/explanation/how-it-works.md``).

The difference of z from the noisy value x is stored in fixed point. All operations on it are on integers, rounded down.
The variances and weights come from single operations of IEEE 754. Variances are summed in tree order, with those of
dropped nodes last. So the refinement is the same on every machine, for any number of threads and any size of pieces.

A node that the top-down pass dropped has no measured leaf below it. Its refined estimate is 0, but its noisy value
contributes to the estimate of its parent. Every other node, called a kept node, has measured leaves below it, so no
trips are lost in the downward pass.

**Segments.** Every category has measurements of its own on the same tree, and the same upward pass
(``docs/explanation/segments.md``). The totals come first, by least squares or shrunk. The children of a node then form
a table of children and categories, of which both margins are known: the total of each child, and the trips of the node
in each category. The estimates of the categories are projected onto such tables
(:mod:`od_core.flows.projection.categories_onto_margins`).

**Profiles.** A mechanism may first move the estimates of whole levels towards the profile of their parent
(:func:`move_to_profile`). Let r_i be the released trips of the children of a node, c_s the node's trips in each
category, and n the sum of both. The *profile* of child i has p_is = r_i c_s / n trips of category s. How far true
counts deviate from it is estimated from all cells of a level with profiles of similar size: with E the estimate that
fits both margins, and w the variance of its noise,

    tau^2 = max(0, mean of (E - p)^2 - w).

Then E moves towards p by the part w / (w + tau^2) of their distance, but by at most u standard deviations of its noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.empirical_bayes import estimate_empirical_bayes_leaves
from od_core.flows.estimation.families import SIZES, compute_cell_size, pool_sums_by_bin
from od_core.flows.estimation.least_squares import MeasuredLevel, build_measured_levels
from od_core.flows.estimation.levels import (
    LIMIT,
    Measurement,
    NoisyCounts,
    Tables,
    estimate,
    make_measurement_order_error,
    make_noisy_tables,
    make_overflow_error,
    refuse_large,
)
from od_core.flows.estimation.rule_choice import choose_rule_with_evidence
from od_core.flows.estimation.shrinkage import LEAST_SQUARES, Rule, shrink
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.categories_onto_margins import fit_to_margins, fits_in_64_bits, project_to_margins
from od_core.geography.flow_tree import Expansion, Nodes, Pairs, iterate_family_blocks, sum_runs
from od_core.kernels import kernel
from od_core.parallel import map_in_order, process_all

WEIGHT_BITS = 20
"""Number of fractional bits of a weight, which is a whole multiple of 2^-20."""

WEIGHT_SUM_LIMIT = 1 << (62 - WEIGHT_BITS)
"""Smallest sum of a family's weights that is too large for 64-bit products."""

_MAX_FRACTION_BITS, _DEVIATION_BITS = 16, 24
"""Resolution of the difference between best estimate and noisy value: a multiple of 2^-16 or, if that is larger, of
about 2^-24 of the largest standard deviation."""

_WEIGHT_MASK = (1 << WEIGHT_BITS) - 1


@dataclass(frozen=True, eq=False)
class ChildSums:
    """Sums over the measured children of each node of a level; shape (nodes,) each.

    Attributes:
        noisy: Sum of the children's noisy values x.
        difference: Sum of z - x over the children, in fixed point; z is the best estimate of a child from itself and
            the levels below it.
        variance: Sum of the variances of these estimates z.
    """

    noisy: Integers
    difference: Integers
    variance: Reals


@dataclass(frozen=True, eq=False)
class RisenLevel:
    """The nodes of a measured level above the leaves that the top-down pass kept, with their estimates.

    Attributes:
        nodes: The kept nodes.
        runs: The kept nodes below parent ``p`` are ``runs[p]:runs[p + 1]``; shape (parents + 1,). None if the level is
            the root.
        noisy, difference, variance: x, z - x in fixed point, and v of each node; shape (nodes,) each.
        largest: Largest v of all kept nodes of the level, also of those in other parts; 0 if there are none. Weights
            are fractions of it.
    """

    nodes: Pairs
    runs: Integers | None
    noisy: Integers
    difference: Integers
    variance: Reals
    largest: float


Trips = dict[str, Integers]
"""Trips of nodes by breakdown, shape (nodes, categories) each; and, by the empty name, their totals, shape (nodes,)."""


def refine(plan: ReleasePlan, root: Nodes | None, measured: Sequence[Measurement]) -> tuple[list[Nodes], Trips]:
    """Return the refined nodes of the root and of every measured level, top first, and the leaves' trips by breakdown.

    Trips are integers of at least 0, and the children of each node sum to its trips. Nodes with 0 trips are left out.

    Args:
        root: The root of :func:`od_core.flows.estimation.levels.make_published_root`; None if it is measured.
        measured: The measurements of all steps, in the order of the plan.

    Returns:
        The nodes; and by the name of each breakdown, the trips of the refined leaves in each category, which sum to the
        trips of the leaf; shape (leaves, categories).

    Raises:
        OdError: If the noisy values are too large, or if their number differs from the number of cells.
    """
    counts = make_noisy_tables(plan, measured)
    (totals,) = counts[""]
    leaf = totals[-1]
    if leaf.parents is None:  # every level has one node, and only the leaves are measured
        return _refine_single_leaf(plan, counts)
    shrunk = shrink_levels_if_needed(plan, root, totals, measured)
    if shrunk is not None and plan.segments is None:
        return _add_root([select_nodes_with_trips(level.nodes, trips) for level, trips in shrunk]), {}
    sums = sum_measured_leaves(plan, leaf)

    def sum_leaves_of_table(name: str, category: int) -> ChildSums:
        return sum_measured_leaves(plan, counts[name][category][-1]) if name else sums

    counts_above = {name: [levels[:-1] for levels in tables] for name, tables in counts.items()}
    nodes, above = refine_above(plan, root, counts_above, leaf.parents, sum_leaves_of_table, shrunk)
    if shrunk is None and plan.mechanism.leaf_dial is not None:
        pieces = estimate_empirical_bayes_leaves(plan, leaf, above[""], plan.mechanism.leaf_dial)
        return [*nodes, Nodes.concatenate(leaf.step.level, pieces)], {}
    leaf_trips = None if shrunk is None else shrunk[-1][1]
    leaves, segments = refine_leaves_with_segments(plan, counts, sums.noisy, above, leaf_trips)
    return [*nodes, leaves], segments


def _refine_single_leaf(plan: ReleasePlan, counts: Tables) -> tuple[list[Nodes], Trips]:
    """Return the result of :func:`refine` for a tree whose levels have one node each, of which the last is measured."""
    leaf = counts[""][0][-1]
    leaves = estimate(plan, leaf.step, None, leaf.noisy)
    segments = {}
    for name, values in _read_leaf_values(counts).items():
        estimates = _convert_to_fixed_point(plan, np.concatenate(values))
        segments[name] = _project_top_segments(plan, estimates, leaves.trips[leaves.trips > 0])
    return _add_root([select_nodes_with_trips(leaves, leaves.trips)]), segments


def refine_above(
    plan: ReleasePlan,
    root: Nodes | None,
    counts: Tables,
    kept: Pairs,
    sums: Callable[[str, int], ChildSums],
    shrunk: Sequence[tuple[MeasuredLevel, Integers]] | None = None,
) -> tuple[list[Nodes], Trips]:
    """Return the refined root and levels above some nodes, top first, and the trips of all kept nodes of the last one.

    The trips are by table: the totals, with the empty name, and the trips in each category of each breakdown.

    Args:
        root: See :func:`refine`.
        counts: The noisy counts that every table is estimated from at these levels, top level first.
        kept: The nodes of the last of these levels that the top-down pass did not drop.
        sums: Returns the sums of a table, by breakdown and category, over the measured children of ``kept``.
        shrunk: The result of :func:`shrink_levels_if_needed`; None if the totals are estimated here by least squares.

    Raises:
        OdError: If the noisy values are too large, or if measurements do not follow each other.
    """
    top = np.empty(0, dtype=np.int64) if root is None else root.trips
    (totals,) = counts[""]
    if shrunk is None:
        levels, _ = combine_levels_upwards(plan, totals, kept, sums("", 0))
        trips = descend_levels(plan, top, levels)
        nodes = [] if root is None else [select_nodes_with_trips(root, top)]
        for level, of_level in zip(levels, trips[1:], strict=True):
            nodes.append(select_nodes_with_trips(level.nodes, of_level))
    else:
        above_leaves = shrunk[:-1]
        nodes = [select_nodes_with_trips(level.nodes, of_level) for level, of_level in above_leaves]
        measured = above_leaves[len(above_leaves) - len(totals) :]  # without a root that is exact or not measured
        trips = [top, *(of_level[level.divided] for level, of_level in measured)]
    refined = {"": trips[-1]}
    for name, tables in counts.items():
        if name:
            risen = [combine_levels_upwards(plan, table, kept, sums(name, k)) for k, table in enumerate(tables)]
            refined[name] = _descend_segments_from_root(plan, risen, trips)
    return _add_root(nodes), refined


def _add_root(nodes: list[Nodes]) -> list[Nodes]:
    """Return refined levels with the root as the first one.

    If the root was not measured, it is added: the only node of the first measured level has its areas and trips.
    """
    return [replace(nodes[0], level=0), *nodes] if nodes and nodes[0].level > 0 else nodes


def shrink_levels_if_needed(
    plan: ReleasePlan, root: Nodes | None, totals: Sequence[NoisyCounts], areas: Sequence[Measurement] = ()
) -> list[tuple[MeasuredLevel, Integers]] | None:
    """Return all levels, top first, with the refined trips of their nodes, if the estimator needs whole levels.

    It needs them for all rules but least squares, and for least squares with measured or known area totals. Otherwise,
    return None. Raises OdError if a noisy value is too large.

    Args:
        totals: The noisy totals of each measured level, top first.
        areas: Measurements, of which those of area totals are used.
    """
    if not plan.mechanism.shrinks and not plan.uses_area_totals:
        return None
    total = None if root is None else int(root.trips.sum())
    levels = build_measured_levels(plan, total, totals)
    refuse_large_levels(levels)
    rule = LEAST_SQUARES
    if plan.mechanism.estimator.key == "auto":
        rule = choose_rule_with_evidence(plan, levels, areas).rule
    elif plan.mechanism.shrinks:
        rule = Rule(u=plan.mechanism.leaf_dial)
    if not rule.learns and not plan.uses_area_totals:
        return None
    return list(zip(levels, shrink(plan, levels, rule, areas=areas), strict=True))


def refuse_large_levels(levels: Sequence[MeasuredLevel]) -> None:
    """Raise OdError if a noisy value is so large that the sum of its level may not fit 64 bits."""
    for level in levels:
        refuse_large(level.noisy, LIMIT // max(1, len(level.noisy)))


def descend_levels(plan: ReleasePlan, above: Integers, levels: Sequence[RisenLevel]) -> list[Integers]:
    """Return the refined trips of the kept nodes of consecutive levels, after ``above``, those of the level above them.

    ``above`` is empty if the first level is the root. The shapes are (nodes,), with nodes of 0 trips.
    """
    trips = [above]
    for level in levels:
        trips.append(refine_level(plan, level, trips[-1]))
    return trips


def sum_measured_leaves(plan: ReleasePlan, leaf: NoisyCounts) -> ChildSums:
    """Return the sums over the measured leaves below each node of the level above; for leaves, z is the noisy value.

    Raises OdError if the leaves were measured without parents, or if a sum may overflow.
    """
    if leaf.parents is None:
        raise make_measurement_order_error()
    none = Pairs(leaf.parents.level + 1, *np.empty((2, 0), dtype=np.int32))
    noisy, _, fan_out = _read_children(plan, leaf, none, np.zeros(len(leaf.parents) + 1, dtype=np.int64))
    variance = fan_out.astype(np.float64) * float(leaf.step.variance)
    return ChildSums(noisy, np.zeros_like(noisy), variance)


def combine_levels_upwards(
    plan: ReleasePlan, measured: Sequence[NoisyCounts], kept: Pairs, sums: ChildSums
) -> tuple[list[RisenLevel], ChildSums]:
    """Combine consecutive levels above the leaves by least squares, from the bottom up.

    Raises OdError if noisy values are too large, or if a measurement does not follow the one of the level above.

    Args:
        measured: The measurements of these levels, top level first.
        kept: The nodes of the last of these levels that the top-down pass did not drop.
        sums: Sums over the measured children of ``kept``.

    Returns:
        The kept nodes of each level with their estimates, top level first; and the sums over the nodes of the first
        level for each node of the level above it.
    """
    levels: list[RisenLevel] = []
    for measurement in reversed(measured):
        level, sums = _combine_level(plan, measurement, kept, sums)
        levels.insert(0, level)
        if measurement.parents is not None:
            kept = measurement.parents
    return levels, sums


def _combine_level(
    plan: ReleasePlan, measurement: NoisyCounts, nodes: Pairs, sums: ChildSums
) -> tuple[RisenLevel, ChildSums]:
    """Return a level with the estimates of its kept ``nodes``, and the sums over the level for each node above it.

    ``sums`` are the sums over the measured children of ``nodes``. For the root, they are returned as they are.
    """
    own_variance = float(measurement.step.variance)
    if measurement.parents is None:
        runs, noisy = None, measurement.noisy.read_values()[: len(nodes)]  # no node if the root was estimated as 0
        total = fan_out = np.empty(0, dtype=np.int64)
    else:
        kept_pairs = Pairs(measurement.parents.level + 1, nodes.origin, nodes.destination)  # also if unmeasured
        runs = plan.tree.find_child_runs(measurement.parents, kept_pairs)
        if runs[-1] != len(nodes):
            raise make_measurement_order_error()
        total, noisy, fan_out = _read_children(plan, measurement, kept_pairs, runs)
    # z - x = w (s - x) with w = s2 / (s2 + S), in fixed point; s is the sum of the children's z.
    gap = sums.noisy - noisy
    refuse_large(gap, LIMIT >> compute_fraction_bits(plan))
    gap = (gap << compute_fraction_bits(plan)) + sums.difference
    weight = np.floor(own_variance / (own_variance + sums.variance) * (1 << WEIGHT_BITS)).astype(np.int64)
    # The products of the upper and of the lower bits are computed apart, so that neither exceeds 64 bits.
    difference = (gap >> WEIGHT_BITS) * weight + ((gap & _WEIGHT_MASK) * weight >> WEIGHT_BITS)
    refuse_large(difference, LIMIT // max(1, len(difference)))
    variance = 1 / (1 / own_variance + 1 / sums.variance)
    level = RisenLevel(nodes, runs, noisy, difference, variance, float(variance.max(initial=0)))
    if runs is None:
        return level, sums
    variance_of_dropped = (fan_out - np.diff(runs)) * own_variance
    return level, ChildSums(total, sum_runs(difference, runs), sum_runs(variance, runs) + variance_of_dropped)


def _read_children(
    plan: ReleasePlan, measurement: NoisyCounts, nodes: Pairs, runs: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return each parent's sum of noisy children, the noisy values of the kept children, and each parent's fan-out.

    The shapes are (parents,), (kept,) and (parents,). The sum and the fan-out are of all measured children, kept or
    not. Raises OdError if a sum may overflow.

    Args:
        nodes: The kept children.
        runs: The kept children of parent ``p`` are ``runs[p]:runs[p + 1]``; shape (parents + 1,).
    """

    def read_piece(piece: tuple[Expansion, Integers]) -> tuple[Integers, Integers, Integers, bool]:
        """Return the three results for a piece, and whether no sum can overflow."""
        expansion, noisy = piece
        first, last = runs[[expansion.parents.start, expansion.parents.stop]].tolist()
        kept = Pairs(nodes.level, nodes.origin[first:last], nodes.destination[first:last])
        sums = np.empty(len(expansion.offsets) - 1, dtype=np.int64)
        cannot_overflow = sum_families(noisy, expansion.offsets, sums)
        return sums, noisy[plan.tree.find_positions(expansion, kept)], np.diff(expansion.offsets), cannot_overflow

    pieces = list(map_in_order(read_piece, measurement.expand_parents(plan)))
    if not all(cannot_overflow for *_, cannot_overflow in pieces):
        raise make_overflow_error()
    nothing = np.empty(0, dtype=np.int64)  # there are no pieces without parents
    sums = np.concatenate([nothing, *(sums for sums, *_ in pieces)])
    noisy_of_kept = np.concatenate([nothing, *(noisy for _, noisy, *_ in pieces)])
    return sums, noisy_of_kept, np.concatenate([nothing, *(fan_out for _, _, fan_out, _ in pieces)])


def refine_level(plan: ReleasePlan, level: RisenLevel, totals: Integers) -> Integers:
    """Return the refined trips of the kept nodes of a level, shape (nodes,), given ``totals``, those of their parents.

    The root has no parent: its trips are its rounded estimate or, if this is below 0, 0, and ``totals`` is not used.
    Raises OdError if values are too large for 64 bits.
    """
    bits = compute_fraction_bits(plan)
    half = (1 << bits) >> 1
    if level.runs is None:
        return np.maximum(level.noisy + (level.difference + half >> bits), 0)
    excess = totals - sum_runs(level.noisy, level.runs)
    refuse_large(excess, LIMIT >> bits)
    excess = (excess << bits) - sum_runs(level.difference, level.runs)
    weights = compute_integer_weights(level.variance, level.largest)
    rounded = np.empty_like(level.noisy)
    if not share_out(excess, weights, level.runs, level.noisy, level.difference, half, bits, rounded):
        raise make_overflow_error()
    return plan.project(rounded, totals, level.runs)


def compute_integer_weights(variance: Reals, largest_variance: float) -> Integers:
    """Return whole weights from 1 to 2^20 in proportion to the variances of nodes; shape (nodes,).

    A node with ``largest_variance`` has the weight 2^20.
    """
    return np.maximum(np.floor(variance / largest_variance * (1 << WEIGHT_BITS)).astype(np.int64), 1)


def select_nodes_with_trips(nodes: Pairs, trips: Integers) -> Nodes:
    """Return ``nodes`` of one level with their trips, without the nodes of 0 trips."""
    has_trips = trips > 0
    return Nodes(nodes.level, nodes.origin[has_trips], nodes.destination[has_trips], trips[has_trips])


def compute_fraction_bits(plan: ReleasePlan) -> int:
    """Return the number of fractional bits of differences z - x, from 0 to 16.

    They are 24 minus about the number of bits of the largest standard deviation of the plan's noise, cut to this range.
    """
    largest_variance = max(math.ceil(step.variance) for step in plan.steps)
    bits_of_deviation = largest_variance.bit_length() // 2
    return max(0, min(_MAX_FRACTION_BITS, _DEVIATION_BITS - bits_of_deviation))


@kernel
def sum_families(noisy: Integers, offsets: Integers, sums: Integers) -> bool:
    """Write the sums of each parent's noisy children into ``sums``. Return False if a sum may overflow.

    Each parent must have a child.
    """
    cannot_overflow = True
    for parent in range(len(sums)):
        first, last = np.uint64(offsets[parent]), np.uint64(offsets[parent + 1])
        total, low, high = np.int64(0), noisy[first], noisy[first]
        for i in range(first, last):
            total += noisy[i]
            low, high = min(low, noisy[i]), max(high, noisy[i])
        cannot_overflow = cannot_overflow and max(high, -low) < LIMIT // np.int64(last - first)
        sums[parent] = total
    return cannot_overflow


@kernel
def share_out(excess, weights, runs, noisy, difference, half, bits, rounded):  # type: ignore[no-untyped-def]  # compiled
    """Write round(z + excess * v / sum v) for the children of every parent into ``rounded``, as whole numbers.

    Return False if the weights of a parent's children sum to ``WEIGHT_SUM_LIMIT`` or more, and True otherwise. For each
    child, z = ``noisy`` + ``difference`` is its estimate and v the variance of z; ``excess`` is the parent's trips
    minus the sum of z. ``excess`` and ``difference`` are in fixed point with ``bits`` fractional bits; ``half`` is 1/2.
    ``weights`` are whole numbers in proportion to v. The children of parent ``p`` are ``runs[p]:runs[p + 1]``.
    """
    for parent in range(len(excess)):
        total = np.int64(0)
        for i in range(runs[parent], runs[parent + 1]):
            total += weights[i]
        if total >= WEIGHT_SUM_LIMIT:
            return False
        if total > 0:
            # excess * weight / total, rounded down, from parts of which no product exceeds 63 bits.
            quotient, rest = excess[parent] // total, excess[parent] % total
            for i in range(runs[parent], runs[parent + 1]):
                shift = quotient * weights[i] + rest * weights[i] // total
                rounded[i] = noisy[i] + ((difference[i] + shift + half) >> bits)
    return True


def _read_leaf_values(counts: Tables) -> dict[str, list[Integers]]:
    """Return the noisy values of the last level by breakdown and category; shape (leaves,) each."""
    values = {}
    for name, tables in counts.items():
        if name:  # the totals have no name
            values[name] = [levels[-1].noisy.read_values() for levels in tables]
    return values


def _descend_segments_from_root(
    plan: ReleasePlan, risen: Sequence[tuple[Sequence[RisenLevel], ChildSums]], trips: Sequence[Integers]
) -> Integers:
    """Return the trips by category of the kept nodes of the last level; shape (nodes, categories).

    Args:
        risen: The result of :func:`combine_levels_upwards` for each category.
        trips: Refined totals, shape (nodes,) each: first of an exact root, or empty if the root is not exact; then of
            the kept nodes of each level.
    """
    # Without an exact root, the first level is the root. An exact root of no trips is empty, and has no levels below.
    has_exact_root = len(trips[0]) > 0 or len(trips) == 1
    total = trips[0] if has_exact_root else trips[1]
    # A root that is measured by category is the first level; otherwise, the sums over the first level estimate it.
    tops = [levels[0] if levels and levels[0].runs is None else sums for levels, sums in risen]
    estimates = [_convert_to_fixed_point(plan, top.noisy) + top.difference for top in tops]
    root = np.array([estimate[0] if len(estimate) else 0 for estimate in estimates], dtype=np.int64)
    levels_with_trips = len(trips) - 1
    last_levels = [levels[len(levels) - levels_with_trips :] for levels, _ in risen]
    return descend_segments(plan, last_levels, trips[1:], _project_top_segments(plan, root, total))


def descend_segments(
    plan: ReleasePlan, risen: Sequence[Sequence[RisenLevel]], trips: Sequence[Integers], above: Integers
) -> Integers:
    """Return the trips by category of the kept nodes of the last of consecutive levels; shape (nodes, categories).

    Each level is projected onto the totals of its nodes, and onto the trips by category of the level above.

    Args:
        risen: The estimates of the kept nodes of these levels, for each category.
        trips: Refined totals of the kept nodes of each of these levels; shape (nodes,) each.
        above: Trips by category of the nodes above the first level; or of the root, if that is the first level; shape
            (nodes, categories).
    """
    trips_above = above
    for k, totals in enumerate(trips):
        of_category = [levels[k] for levels in risen]
        runs = of_category[0].runs
        if runs is not None:
            of_categories = [
                _convert_to_fixed_point(plan, category.noisy) + category.difference for category in of_category
            ]
            estimates = np.stack(of_categories, axis=1)
            variances, largest = of_category[0].variance, of_category[0].largest  # those of all categories
            trips_above = _project_segments(plan, estimates, variances, largest, totals, trips_above, runs)
    return trips_above


def _project_segments(
    plan: ReleasePlan,
    estimates: Integers,
    variances: Reals,
    largest_variance: float,
    totals: Integers,
    parents: Integers,
    offsets: Integers,
) -> Integers:
    """Return whole trips by category of the children of a level, which add up to the totals and to the parents.

    The shape is (children, categories). If the plan has a segment profile, the estimates are first moved towards it.

    Args:
        estimates: trips by category before they add up, in fixed point; shape (children, categories).
        variances: variance of the estimates of each child, v of :class:`RisenLevel`; shape (children,).
        largest_variance: the largest v of the level; see :class:`RisenLevel`.
        totals: trips of each child, over all categories; shape (children,).
        parents: trips by category of each parent; shape (parents, categories).
        offsets: The children of parent ``p`` are ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).
    """
    weights, bits = compute_integer_weights(variances, largest_variance), compute_fraction_bits(plan)
    if plan.mechanism.segment_profile is not None:
        max_deviations = float(plan.mechanism.segment_profile)
        estimates = move_to_profile(estimates, weights, variances, totals, parents, offsets, bits, max_deviations)

    projected = np.empty_like(estimates)

    def project_block(block: tuple[int, int]) -> None:
        first, last = block
        children = slice(offsets[first], offsets[last])
        of_children = (estimates[children], weights[children], totals[children])
        offsets_in_block = offsets[first : last + 1] - children.start
        projected[children] = project_to_margins(*of_children, parents[first:last], offsets_in_block, bits)

    process_all(project_block, iterate_family_blocks(offsets))
    return projected


def _convert_to_fixed_point(plan: ReleasePlan, noisy: Integers) -> Integers:
    """Return noisy values in fixed point, with the bits of :func:`compute_fraction_bits`; OdError if too large."""
    bits = compute_fraction_bits(plan)
    refuse_large(noisy, LIMIT >> bits)
    return noisy << bits


def _project_top_segments(plan: ReleasePlan, estimates: Integers, trips: Integers) -> Integers:
    """Return the whole trips of the top node by category; shape (1, categories), or (0, categories) if it was dropped.

    What the estimates lack of the node's trips is added in equal parts before they are projected.

    Args:
        estimates: estimate of the node in each category, in fixed point; shape (categories,).
        trips: trips of the node; shape (1,), or (0,) if it was dropped.
    """
    bits, categories = compute_fraction_bits(plan), len(estimates)
    half = (1 << bits) >> 1
    lacking = (trips << bits) - estimates.sum()
    rounded = (estimates + (lacking // categories)[:, np.newaxis] + half) >> bits
    offsets = np.arange(len(trips) + 1) * categories
    return plan.project(rounded.ravel(), trips, offsets).reshape(-1, categories)


def refine_leaves_with_segments(
    plan: ReleasePlan, counts: Tables, sums: Integers, above: Trips, leaf_trips: Integers | None = None
) -> tuple[Nodes, Trips]:
    """Return the refined leaves in tree order, without those of 0 trips, and their trips by breakdown.

    Args:
        counts: The noisy counts that every table is estimated from. The last level of each is the leaves.
        sums: Sum of the noisy values of the leaves below each parent; shape (parents,).
        above: Refined trips of the parents by table, as :func:`refine_above` returns them.
        leaf_trips: Trips of all leaves if they are already estimated, shape (leaves,); otherwise None.
    """
    leaf = counts[""][0][-1]

    def project_piece(piece: tuple[Expansion, Integers]) -> tuple[Nodes, Integers, Integers]:
        """Return the leaves with trips of a piece; with breakdowns, also their positions and numbers by parent.

        Positions are among all leaves. Without breakdowns, these arrays are not needed, and say that there are none.
        """
        expansion, noisy = piece
        totals = above[""][expansion.parents]
        if leaf_trips is None:
            siblings = np.diff(expansion.offsets)
            lacking = totals - sums[expansion.parents]
            # It is added in equal parts, rounded to whole trips: all leaves have the same variance.
            shift = (2 * lacking + siblings) // (2 * siblings)
            trips = plan.project(noisy + np.repeat(shift, siblings), totals, expansion.offsets)
        else:
            trips = leaf_trips[expansion.first : expansion.first + len(noisy)]
        leaves, kept = replace(expansion.with_trips(trips), level=leaf.step.level), np.empty(0, dtype=np.int64)
        if plan.breakdowns:
            kept = np.flatnonzero(trips)
        return leaves, kept + expansion.first, np.diff(np.searchsorted(kept, expansion.offsets))

    pieces = list(map_in_order(project_piece, leaf.expand_parents(plan)))
    leaves, segments = Nodes.concatenate(leaf.step.level, [nodes for nodes, _, _ in pieces]), Trips()
    nothing = np.empty(0, dtype=np.int64)
    kept = np.concatenate([nothing, *(positions for _, positions, _ in pieces)])
    fan_out = np.concatenate([nothing, *(numbers for _, _, numbers in pieces)])
    variance, offsets = float(leaf.step.variance), np.append(0, np.cumsum(fan_out))
    for name, noisy in _read_leaf_values(counts).items():
        estimates = np.stack([_convert_to_fixed_point(plan, values[kept]) for values in noisy], axis=1)
        variances = np.full(len(leaves), variance)
        segments[name] = _project_segments(plan, estimates, variances, variance, leaves.trips, above[name], offsets)
    return leaves, segments


def move_to_profile(
    estimates: Integers,
    weights: Integers,
    variances: Reals,
    totals: Integers,
    parents: Integers,
    offsets: Integers,
    bits: int,
    max_deviations: float,
) -> Integers:
    """Return estimates of all children of a level, moved towards the profiles of their parents.

    The result is in fixed point; shape (children, categories). Families of one row or one column, whose margins leave
    no choice, and those too large for the projection are unchanged.

    Args:
        estimates, weights, totals, parents, offsets, bits: as for
            :func:`od_core.flows.projection.categories_onto_margins.project_to_margins`, for a whole level.
        variances: variance of the estimates of each child; shape (children,).
        max_deviations: largest move of an estimate, in standard deviations of its noise.
    """
    moved = estimates.copy()
    squares, cells = np.zeros(SIZES), np.zeros(SIZES, dtype=np.int64)
    is_fitted = np.zeros(len(parents), dtype=np.bool_)
    sigma = math.sqrt(variances.max(initial=1.0))
    families = _Families(weights, variances, totals, parents, offsets, bits, sigma)
    _fit_families_to_margins(families, moved, is_fitted, squares, cells)
    square_sums, number = pool_sums_by_bin(cells, squares, cells.astype(np.float64))
    mean_squares = np.divide(square_sums, number, out=np.zeros(SIZES), where=number > 0)
    _move_fitted_families(families, is_fitted, np.maximum(mean_squares, 0), max_deviations, moved)
    return moved


class _Families(NamedTuple):
    """What kernels need of the children of a level; for the first six, see :func:`move_to_profile`."""

    weights: Integers
    variances: Reals
    totals: Integers
    parents: Integers
    offsets: Integers
    bits: int
    sigma: float  # largest standard deviation of the noise, at least 1, which sizes of cells are relative to


@kernel
def _fit_families_to_margins(
    families: _Families, moved: Integers, is_fitted: NDArray[np.bool_], squares: Reals, cells: Integers
) -> None:
    """Fit the estimates to both margins, and add up how far they are from the profiles.

    A family is left out if it has one row or one column with trips, or is too large. For every other family, write
    true into ``is_fitted``, and E of the module docstring over its estimates in ``moved``. For each of its cells, add
    (E - p)^2 - w to ``squares``, and 1 to ``cells``, by the size of the profile p; shape (sizes,) each.
    """
    weights, variances, totals, parents, offsets, bits, sigma = families
    for parent in range(len(parents)):
        rows, columns = _find_positions_with_trips(totals, parents[parent], offsets[parent], offsets[parent + 1])
        trips = parents[parent].sum()
        if len(rows) < 2 or len(columns) < 2 or not fits_in_64_bits(moved, weights, rows, columns, trips, bits):
            continue
        is_fitted[parent] = True
        row_sums, column_sums = totals[rows], parents[parent][columns]
        values = fit_to_margins(moved, weights[rows], rows, columns, row_sums, column_sums, bits)  # (columns, rows)
        siblings = variances[rows].sum()
        for i in range(len(rows)):
            noise = _compute_noise_variance(variances[rows[i]], siblings, len(columns))
            for s in range(len(columns)):
                profile = np.float64(row_sums[i]) * column_sums[s] / trips
                gap = values[s, i] / np.float64(1 << bits) - profile
                size = compute_cell_size(profile, sigma)
                squares[size] += gap * gap - noise
                cells[size] += 1
                moved[rows[i], columns[s]] = values[s, i]


@kernel
def _move_fitted_families(
    families: _Families, is_fitted: NDArray[np.bool_], tau_squared: Reals, max_deviations: float, moved: Integers
) -> None:
    """Move the fitted estimates in ``moved`` towards the profiles by the part w / (w + tau^2) of their distance.

    They move by at most ``max_deviations`` standard deviations of their noise. ``tau_squared`` is the tau^2 of each
    size; shape (sizes,).
    """
    _, variances, totals, parents, offsets, bits, sigma = families
    for parent in np.flatnonzero(is_fitted):
        rows, columns = _find_positions_with_trips(totals, parents[parent], offsets[parent], offsets[parent + 1])
        trips = parents[parent].sum()
        siblings = variances[rows].sum()
        for i in range(len(rows)):
            noise = _compute_noise_variance(variances[rows[i]], siblings, len(columns))
            limit = max_deviations * math.sqrt(noise)
            for s in range(len(columns)):
                profile = np.float64(totals[rows[i]]) * parents[parent][columns[s]] / trips
                value = moved[rows[i], columns[s]] / np.float64(1 << bits)
                step = (profile - value) * noise / (noise + tau_squared[compute_cell_size(profile, sigma)])
                moved[rows[i], columns[s]] += np.int64(np.rint(min(max(step, -limit), limit) * (1 << bits)))


@kernel
def _find_positions_with_trips(
    totals: Integers, by_category: Integers, first: int, last: int
) -> tuple[Integers, Integers]:
    """Return the positions of the children ``first:last`` with trips, and of the categories with trips."""
    return np.flatnonzero(totals[first:last]) + first, np.flatnonzero(by_category)


@kernel
def _compute_noise_variance(variance: float, siblings: float, columns: int) -> float:
    """Return w, the variance of the noise of a child's E: v (1 - v / S) (1 - 1 / columns).

    ``variance`` is v, and ``siblings`` is S, the sum of v over the family.
    """
    return variance * (1.0 - variance / siblings) * (1.0 - 1.0 / columns)
