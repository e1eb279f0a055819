"""Divide the refined trips of each node among the categories of a breakdown, in whole numbers, down the tree.

If all K categories of a node are measured with the same variance, least squares over totals and segments falls apart
into two fits (``docs/explanation/segments.md``). One gives the totals. The other gives the differences between the
categories: let C_s be the fit of category s alone, and T the fitted total. Then the estimate of category s is

    C_s + (T - sum of C_s over the categories) / K.

The downward pass makes integers. The totals come first, and are those of :mod:`od_core.flows.estimation.refinement`.
The children of a node then form a table of children and categories, of which both margins are known: the total of each
child, and the trips of the node in each category. The estimates are moved to the nearest table of whole numbers of at
least 0 that has these margins, or to one that is almost as near (:mod:`od_core.flows.projection.two_margins`).

The result depends on public values alone and costs no privacy. It is the same on every machine, for any number of
threads and any size of pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.refinement import (
    RisenLevel,
    as_root,
    fraction_bits,
    leaf_sums,
    nodes_above,
    nodes_with_trips,
    projected_piece,
    refuse_large,
    rise,
    trips_by_level,
    whole_weights,
    with_trips,
)
from od_core.flows.estimation.refinement_kernels import LIMIT
from od_core.flows.estimation.segment_levels import combined_totals, decoded, segment_counts
from od_core.flows.estimation.top_down import Measurement, NoisyCounts, at_step, estimate
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.two_margins import project_to_margins
from od_core.geography.flow_tree import Expansion, Nodes
from od_core.parallel import in_order

_Values = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Breakdown:
    """The estimates of a breakdown.

    Attributes:
        root: Way-up estimate of the root in each category, in fixed point; shape (categories,).
        levels: For each level of the totals, the kept nodes in each category; shape (categories, levels).
        leaves: Noisy values of the measured leaves, for each category; shape (leaves,) each.
    """

    root: _Values
    levels: list[list[RisenLevel]]
    leaves: list[_Values]


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
    measured = decoded(plan, measured)
    totals = combined_totals(plan, measured)
    counts = {one.name: segment_counts(plan, measured, one.name) for one in plan.breakdowns}
    *inner, leaf = totals
    if leaf.parents is None:  # every level has one node, and only the leaves are measured
        leaves = estimate(plan, leaf.step, None, leaf.noisy)
        return [with_trips(nodes, leaves.trips) for nodes in (as_root(leaves), leaves)], {
            name: _top_segments(
                plan, _fixed_point(plan, np.concatenate(_leaf_values(own))), leaves.trips[leaves.trips > 0]
            )
            for name, own in counts.items()
        }
    sums = leaf_sums(plan, leaf)
    levels, _ = rise(plan, inner, leaf.parents, sums)
    trips = trips_by_level(plan, root, levels)
    risen = {name: _rise(plan, own, levels) for name, own in counts.items()}
    above = {name: _down_to_leaves(plan, one, levels, trips) for name, one in risen.items()}
    pieces = list(_leaves(plan, leaf, sums.noisy, trips[-1], risen, above))
    leaves = Nodes.joined(leaf.step.level, [nodes for nodes, _ in pieces])
    return [*nodes_with_trips(root, levels, trips), leaves], {
        name: np.concatenate([np.empty((0, len(counts[name])), dtype=np.int64), *(own[name] for _, own in pieces)])
        for name in counts
    }


def _rise(plan: ReleasePlan, counts: Sequence[Sequence[NoisyCounts]], levels: Sequence[RisenLevel]) -> _Breakdown:
    """Combine the levels of each category of a breakdown from the bottom up.

    Args:
        counts: The measurements of each category, top level first.
        levels: The kept nodes of the totals above the leaves.
    """
    roots, risen = [], []
    for own in counts:
        *inner, leaf = own
        of_category, sums = rise(plan, inner, nodes_above(leaf), leaf_sums(plan, leaf))
        top = of_category[0] if of_category and of_category[0].runs is None else sums
        roots.append(_fixed_point(plan, top.noisy) + top.difference)
        risen.append(of_category[len(of_category) - len(levels) :])
    root = np.array([one[0] if len(one) else 0 for one in roots], dtype=np.int64)
    return _Breakdown(root, risen, _leaf_values(counts))


def _leaf_values(counts: Sequence[Sequence[NoisyCounts]]) -> list[_Values]:
    """Return the noisy values of the measured leaves, for each category; shape (leaves,) each."""
    return [own[-1].noisy.values() for own in counts]


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


def _down_to_leaves(
    plan: ReleasePlan, breakdown: _Breakdown, levels: Sequence[RisenLevel], trips: Sequence[_Values]
) -> _Values:
    """Return the trips, in each category, of the kept nodes above the leaves; shape (nodes, categories).

    Args:
        levels: The kept nodes of each level of the totals above the leaves.
        trips: Refined trips of the root, and of the nodes of each level.
    """
    bits = fraction_bits(plan)
    first = trips[0] if len(trips[0]) or len(trips) == 1 else trips[1]  # alone and empty: an exact root of no trips
    own = _top_segments(plan, breakdown.root, first)
    for k, level in enumerate(levels):
        if level.runs is None:
            continue
        of_category = [category[k] for category in breakdown.levels]
        estimates = np.stack([_fixed_point(plan, one.noisy) + one.difference for one in of_category], axis=1)
        weights = whole_weights(of_category[0].variance, of_category[0].largest_variance)
        own = project_to_margins(estimates, weights, trips[k + 1], own, level.runs, bits)
    return own


def _leaves(
    plan: ReleasePlan,
    leaf: NoisyCounts,
    sums: _Values,
    totals: _Values,
    risen: dict[str, _Breakdown],
    above: dict[str, _Values],
) -> Iterator[tuple[Nodes, dict[str, _Values]]]:
    """Yield the refined leaves in tree order, in consecutive pieces, and their trips by breakdown and category.

    Args:
        leaf: The combined totals of the leaves.
        sums, totals: As for :func:`od_core.flows.estimation.refinement.projected_leaves`.
        risen: The estimates of each breakdown.
        above: Trips of the nodes above the leaves in each category, by breakdown; shape (nodes, categories).
    """
    bits = fraction_bits(plan)

    def leaves(piece: tuple[Expansion, _Values]) -> tuple[Nodes, dict[str, _Values]]:
        expansion, noisy = piece
        projected = projected_piece(plan, expansion, noisy, sums, totals)
        kept = np.flatnonzero(projected)
        offsets = np.searchsorted(kept, expansion.offsets)
        ones = np.ones(len(kept), dtype=np.int64)
        segments = {}
        for name, one in risen.items():
            estimates = _fixed_point(plan, np.stack([values[expansion.first + kept] for values in one.leaves], axis=1))
            segments[name] = project_to_margins(
                estimates, ones, projected[kept], above[name][expansion.parents], offsets, bits
            )
        return at_step(leaf.step, expansion.with_trips(projected)), segments

    return in_order(leaves, leaf.expanded(plan))
