"""Divide the refined trips of each node among the categories of a breakdown, in whole numbers, down the tree.

If all K categories of a node are measured with the same variance, least squares over totals and segments falls apart
into two fits (``docs/explanation/segments.md``). One gives the totals. The other gives the differences between the
categories: let C_s be the fit of category s alone, and T the fitted total. Then the estimate of category s is

    C_s + (T - sum of C_s over the categories) / K.

The downward pass makes integers. The totals come first, and are those of :mod:`od_core.flows.estimation.refinement`, by
least squares or shrunk: the estimates of the categories are fitted to any totals.
The children of a node then form a table of children and categories, of which both margins are known: the total of each
child, and the trips of the node in each category. The estimates are moved to the nearest table of whole numbers of at
least 0 that has these margins, or to one that is almost as near (:mod:`od_core.flows.projection.two_margins`).

**Profiles.** A mechanism may first move the estimates of whole levels towards the profile of their parent
(:func:`move_to_profile`). Let r_i be the released trips of the children of a node, c_s the node's trips in each
category, and n the sum of both. If every child divided its trips among the categories as the node does, child i would
have p_is = r_i c_s / n trips of category s. These are its *profile*. How far true counts deviate from it is estimated
from all cells of a level with profiles of similar size: with E the estimate that fits both margins, and w the variance
of its noise,

    tau^2 = max(0, mean of (E - p)^2 - w).

Then E moves towards p by the part w / (w + tau^2) of their distance, but by at most u standard deviations of its noise.
So a cell that differs much from its profile keeps most of the difference.

The result depends on public values alone and costs no privacy. It is the same on every machine, for any number of
threads and any size of pieces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.families import SIZES, pooled, size_of
from od_core.flows.estimation.least_squares import MeasuredLevel
from od_core.flows.estimation.refinement import (
    LIMIT,
    ChildSums,
    RisenLevel,
    as_root,
    fraction_bits,
    leaf_sums,
    nodes_above,
    nodes_with_trips,
    projected_piece,
    refine,
    refuse_large,
    rise,
    shrunk_levels,
    trips_by_level,
    whole_weights,
    with_trips,
)
from od_core.flows.estimation.segment_levels import TOTALS, Table, counts_of
from od_core.flows.estimation.top_down import Measurement, NoisyCounts, at_step, estimate
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.two_margins import fit_to_margins, fits, project_to_margins
from od_core.geography.flow_tree import Expansion, Nodes
from od_core.kernels import kernel
from od_core.parallel import in_order

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]


def move_to_profile(
    estimates: _Values,
    weights: _Values,
    variances: _Reals,
    totals: _Values,
    parents: _Values,
    offsets: _Values,
    bits: int,
    most: float,
) -> _Values:
    """Return estimates of all children of a level, moved towards the profiles of their parents.

    The result is for :func:`od_core.flows.projection.two_margins.project_to_margins`, which has most of the arguments.

    Args:
        estimates, weights, totals, parents, offsets, bits: as there, for a whole level.
        variances: variance of the estimates of each child; shape (children,).
        most: largest move of an estimate, in standard deviations of its noise.

    Returns:
        Shape (children, categories), in fixed point. The children of a family with one row or one column, which has no
        choice, and of a family that is too large for the projection, are unchanged.
    """
    moved = estimates.copy()
    squares, cells = np.zeros(SIZES), np.zeros(SIZES, dtype=np.int64)
    fitted = np.zeros(len(parents), dtype=np.bool_)
    sigma = math.sqrt(variances.max(initial=1.0))
    families = variances, totals, parents, offsets, bits, sigma
    _fit(weights, *families, moved, fitted, squares, cells)
    whole, number = pooled(cells, squares, cells.astype(np.float64))
    deviation = np.maximum(np.divide(whole, number, out=np.zeros(SIZES), where=number > 0), 0)
    _move(*families, fitted, deviation, most, moved)
    return moved


@kernel
def _fit(weights, variances, totals, parents, offsets, bits, sigma, moved, fitted, squares, cells):  # type: ignore[no-untyped-def]  # compiled
    """Replace estimates by E, mark these families, and add (E - p)^2 - w and the number of cells by size."""
    for parent in range(len(parents)):
        rows, columns = _choices(totals, parents[parent], offsets[parent], offsets[parent + 1])
        trips = parents[parent].sum()
        if len(rows) < 2 or len(columns) < 2 or not fits(moved, weights, rows, columns, trips, bits):
            continue
        fitted[parent] = True
        row_sums, column_sums = totals[rows], parents[parent][columns]
        values = fit_to_margins(moved, weights[rows], rows, columns, row_sums, column_sums, bits)
        siblings = variances[rows].sum()
        for i in range(len(rows)):
            noise = _noise(variances[rows[i]], siblings, len(columns))
            for s in range(len(columns)):
                profile = np.float64(row_sums[i]) * column_sums[s] / trips
                gap = values[s, i] / np.float64(1 << bits) - profile
                size = size_of(profile, sigma)
                squares[size] += gap * gap - noise
                cells[size] += 1
                moved[rows[i], columns[s]] = values[s, i]


@kernel
def _move(variances, totals, parents, offsets, bits, sigma, fitted, deviation, most, moved):  # type: ignore[no-untyped-def]  # compiled
    """Move E of the fitted families towards p."""
    for parent in np.flatnonzero(fitted):
        rows, columns = _choices(totals, parents[parent], offsets[parent], offsets[parent + 1])
        trips = parents[parent].sum()
        siblings = variances[rows].sum()
        for i in range(len(rows)):
            noise = _noise(variances[rows[i]], siblings, len(columns))
            limit = most * math.sqrt(noise)
            for s in range(len(columns)):
                profile = np.float64(totals[rows[i]]) * parents[parent][columns[s]] / trips
                value = moved[rows[i], columns[s]] / np.float64(1 << bits)
                step = (profile - value) * noise / (noise + deviation[size_of(profile, sigma)])
                moved[rows[i], columns[s]] += np.int64(np.rint(min(max(step, -limit), limit) * (1 << bits)))


@kernel
def _choices(totals, by_category, first, last):  # type: ignore[no-untyped-def]  # compiled
    """Return the children and the categories of a family that have trips."""
    return np.flatnonzero(totals[first:last]) + first, np.flatnonzero(by_category)


@kernel
def _noise(variance, siblings, columns):  # type: ignore[no-untyped-def]  # compiled
    """Return w, the variance that the noise gives to E of one child in a family with this sum of variances."""
    return variance * (1.0 - variance / siblings) * (1.0 - 1.0 / columns)


Risen = tuple[Sequence[RisenLevel], ChildSums]
"""The estimates of one category by :func:`od_core.flows.estimation.refinement.rise`."""


def refined_levels(
    plan: ReleasePlan, root: Nodes | None, measured: Sequence[Measurement]
) -> tuple[list[Nodes], dict[str, _Values]]:
    """Return the refined nodes of all levels, with or without segments, and the trips of the leaves by breakdown.

    Without segments, there are no trips by breakdown. See :func:`refine_with_segments` for the arguments and errors.
    """
    if plan.segments is None:
        return refine(plan, root, measured), {}
    return refine_with_segments(plan, root, measured)


def refine_with_segments(
    plan: ReleasePlan, root: Nodes | None, measured: Sequence[Measurement]
) -> tuple[list[Nodes], dict[str, _Values]]:
    """Return the refined nodes of all levels, and the trips of the leaves in the categories of each breakdown.

    The nodes are those of :func:`od_core.flows.estimation.refinement.refine`. The trips by breakdown have the shape
    (leaves, categories). The trips of a leaf in the categories of a breakdown sum to its trips.

    Args:
        root: The root with its exact trips if the total is an invariant; otherwise None.
        measured: The measurements of all steps, in the order of the plan.

    Raises:
        OdError: As in :func:`od_core.flows.estimation.refinement.refine`.
    """
    counts = counts_of(plan, measured)
    *inner, leaf = counts[TOTALS]
    if leaf.parents is None:  # every level has one node, and only the leaves are measured
        leaves = estimate(plan, leaf.step, None, leaf.noisy)
        noisy = leaf_values(plan, counts)
        return [with_trips(nodes, leaves.trips) for nodes in (as_root(leaves), leaves)], {
            name: _top_segments(plan, _fixed_point(plan, np.concatenate(own)), leaves.trips[leaves.trips > 0])
            for name, own in noisy.items()
        }
    sums = leaf_sums(plan, leaf)
    levels, _ = rise(plan, inner, leaf.parents, sums)
    shrunk = shrunk_levels(plan, root, counts[TOTALS])
    if shrunk is None:
        trips, of_leaves = trips_by_level(plan, root, levels), None
        refined = nodes_with_trips(root, levels, trips)
    else:
        trips, of_leaves = _kept_trips(root, shrunk, len(inner)), shrunk[-1][1]
        refined = [with_trips(level.nodes, own) for level, own in shrunk[:-1]]
    risen = {table: _risen(plan, own) for table, own in counts.items() if table != TOTALS}
    above = segments_from_root(plan, risen, levels, trips)
    leaves, segments = leaves_with_segments(plan, counts, sums.noisy, trips[-1], above, of_leaves)
    return [*refined, leaves], segments


def _kept_trips(root: Nodes | None, shrunk: Sequence[tuple[MeasuredLevel, _Values]], inner: int) -> list[_Values]:
    """Return the shrunk trips of the root, if it is exact, and of the kept nodes of each level above the leaves.

    Args:
        root: The root with its exact trips if the total is an invariant; otherwise None.
        shrunk: See :func:`od_core.flows.estimation.refinement.shrunk_levels`.
        inner: Number of the measured levels above the leaves.
    """
    top = np.empty(0, dtype=np.int64) if root is None else root.trips
    return [top, *(trips[level.divided] for level, trips in shrunk[len(shrunk) - 1 - inner : -1])]


def _risen(plan: ReleasePlan, counts: Sequence[NoisyCounts]) -> Risen:
    *inner, leaf = counts
    return rise(plan, inner, nodes_above(leaf), leaf_sums(plan, leaf))


def leaf_values(plan: ReleasePlan, counts: Mapping[Table, Sequence[NoisyCounts]]) -> dict[str, list[_Values]]:
    """Return the noisy values of the last level by breakdown and category; shape (leaves,) each."""
    return {
        one.name: [counts[Table(one.name, k)][-1].noisy.values() for k in range(len(one.categories))]
        for one in plan.breakdowns
    }


def segments_from_root(
    plan: ReleasePlan, risen: Mapping[Table, Risen], levels: Sequence[RisenLevel], trips: Sequence[_Values]
) -> dict[str, _Values]:
    """Return the trips, in each category, of the kept nodes of the last of these levels.

    Args:
        risen: The estimates of every category at these levels and, if the total is an invariant, at the root.
        levels: The kept nodes of the totals at consecutive levels, from the root or the first measured level below it.
        trips: Refined trips of the root, and of the nodes of each level.

    Returns:
        By breakdown; shape (nodes, categories).
    """
    first = trips[0] if len(trips[0]) or len(trips) == 1 else trips[1]  # alone and empty: an exact root of no trips
    above = {}
    for breakdown in plan.breakdowns:
        own = [risen[Table(breakdown.name, k)] for k in range(len(breakdown.categories))]
        tops = [below[0] if below and below[0].runs is None else sums for below, sums in own]
        roots = [_fixed_point(plan, top.noisy) + top.difference for top in tops]
        root = np.array([one[0] if len(one) else 0 for one in roots], dtype=np.int64)
        of_levels = [below[len(below) - len(levels) :] for below, _ in own]
        largest = [level.largest_variance for level in of_levels[0]]
        above[breakdown.name] = descend_segments(plan, of_levels, trips[1:], _top_segments(plan, root, first), largest)
    return above


def descend_segments(
    plan: ReleasePlan,
    risen: Sequence[Sequence[RisenLevel]],
    trips: Sequence[_Values],
    above: _Values,
    largest: Sequence[float],
) -> _Values:
    """Return the trips, in each category of a breakdown, of the kept nodes of the last of consecutive levels.

    Args:
        risen: The estimates of the kept nodes of these levels, for each category.
        trips: Refined trips of the nodes, for each level.
        above: Trips, in each category, of the nodes above the first level, or of the root itself; shape (nodes,
            categories).
        largest: Largest variance of a category's estimate among all kept nodes of each level.

    Returns:
        Whole numbers of at least 0 that sum to the trips of each node; shape (nodes, categories).
    """
    own = above
    for k, totals in enumerate(trips):
        of_category = [levels[k] for levels in risen]
        runs = of_category[0].runs
        if runs is not None:
            estimates = np.stack([_fixed_point(plan, one.noisy) + one.difference for one in of_category], axis=1)
            own = _projected(plan, estimates, of_category[0].variance, largest[k], totals, own, runs)
    return own


def _projected(
    plan: ReleasePlan,
    estimates: _Values,
    variances: _Reals,
    largest_variance: float,
    totals: _Values,
    parents: _Values,
    offsets: _Values,
) -> _Values:
    """Return the trips of children in each category: the projection of estimates, moved to their profile if planned.

    For the arguments, see :mod:`od_core.flows.projection.two_margins` and :mod:`.segment_profile`.

    Args:
        largest_variance: Largest variance among all kept nodes of the level.
    """
    weights, bits = whole_weights(variances, largest_variance), fraction_bits(plan)
    if plan.mechanism.segment_profile is not None:
        most = float(plan.mechanism.segment_profile)
        estimates = move_to_profile(estimates, weights, variances, totals, parents, offsets, bits, most)
    return project_to_margins(estimates, weights, totals, parents, offsets, bits)


def _fixed_point(plan: ReleasePlan, noisy: _Values) -> _Values:
    """Return noisy values in fixed point. Raises OdError if they are too large."""
    bits = fraction_bits(plan)
    refuse_large(noisy, LIMIT >> bits)
    return noisy << bits


def _top_segments(plan: ReleasePlan, estimates: _Values, trips: _Values) -> _Values:
    """Return the trips of the top node in each category, which sum to its trips; shape (nodes, categories).

    Args:
        estimates: Estimates of the node in each category, in fixed point; shape (categories,).
        trips: Refined trips of the node; shape (nodes,), where the number of nodes is 1, or 0 if the node was dropped.
    """
    bits, categories = fraction_bits(plan), len(estimates)
    half = (1 << bits) >> 1
    lacking = (trips << bits) - estimates.sum()
    rounded = estimates + (lacking // categories)[:, np.newaxis] + half >> bits
    offsets = np.arange(len(trips) + 1) * categories
    return plan.mechanism.project(rounded.ravel(), trips, offsets).reshape(-1, categories)


def leaves_with_segments(
    plan: ReleasePlan,
    counts: Mapping[Table, Sequence[NoisyCounts]],
    sums: _Values,
    totals: _Values,
    above: Mapping[str, _Values],
    of_leaves: _Values | None = None,
) -> tuple[Nodes, dict[str, _Values]]:
    """Return the refined leaves in tree order, and their trips in the categories of each breakdown.

    Args:
        counts: What every table is estimated from. The last level of each is the leaves.
        sums, totals: As for :func:`od_core.flows.estimation.refinement.projected_leaves`.
        above: Trips of the nodes above the leaves in each category, by breakdown; shape (nodes, categories).
        of_leaves: Trips of all leaves if they are already estimated; shape (leaves,).

    Returns:
        The leaves without those of 0 trips; and their trips by breakdown, shape (leaves, categories).
    """
    leaf, noisy = counts[TOTALS][-1], leaf_values(plan, counts)
    piecewise = leaf.expanded(plan)

    def projected(piece: tuple[Expansion, _Values]) -> _Leaves:
        expansion, counts = piece
        if of_leaves is None:
            trips = projected_piece(plan, expansion, counts, sums, totals)
        else:
            trips = of_leaves[expansion.first : expansion.first + len(counts)]
        kept = np.flatnonzero(trips)
        leaves = at_step(leaf.step, expansion.with_trips(trips))
        offsets = np.searchsorted(kept, expansion.offsets)
        estimates = {
            name: _fixed_point(plan, np.stack([values[expansion.first + kept] for values in own], axis=1))
            for name, own in noisy.items()
        }
        return _Leaves(leaves, offsets, estimates, {name: own[expansion.parents] for name, own in above.items()})

    def divided(leaves: _Leaves) -> tuple[Nodes, dict[str, _Values]]:
        variances = np.full(len(leaves.nodes), float(leaf.step.variance))
        margins = variances, float(leaf.step.variance), leaves.nodes.trips
        return leaves.nodes, {
            name: _projected(plan, estimates, *margins, leaves.above[name], leaves.offsets)
            for name, estimates in leaves.estimates.items()
        }

    if plan.mechanism.segment_profile is None:
        pieces = list(in_order(lambda piece: divided(projected(piece)), piecewise))
    else:  # profiles are learned from the whole level
        level = list(in_order(projected, piecewise))
        pieces = [divided(_Leaves.joined(level))] if level else []
    return Nodes.joined(leaf.step.level, [nodes for nodes, _ in pieces]), {
        name: np.concatenate([np.empty((0, len(own)), dtype=np.int64), *(segments[name] for _, segments in pieces)])
        for name, own in noisy.items()
    }


class _Leaves(NamedTuple):
    """Consecutive leaves with their trips, before these are divided among categories.

    Attributes:
        nodes: the leaves.
        offsets: the leaves of parent ``p`` are ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).
        estimates: estimates in fixed point, by breakdown; shape (leaves, categories).
        above: trips of the parents in each category, by breakdown; shape (parents, categories).
    """

    nodes: Nodes
    offsets: _Values
    estimates: dict[str, _Values]
    above: dict[str, _Values]

    @classmethod
    def joined(cls, pieces: Sequence[_Leaves]) -> _Leaves:
        """Return all leaves of consecutive pieces, at least one."""
        ends = np.cumsum([0, *(piece.offsets[-1] for piece in pieces)])
        offsets = [piece.offsets[1:] + end for piece, end in zip(pieces, ends, strict=False)]
        nodes = Nodes.joined(pieces[0].nodes.level, [piece.nodes for piece in pieces])
        estimates, above = (
            {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
            for tables in zip(*((piece.estimates, piece.above) for piece in pieces), strict=True)
        )
        return cls(nodes, np.concatenate([[0], *offsets]), estimates, above)
