"""Measure the levels whose areas are found in the records, and drop the nodes below their thresholds.

Confidential: the functions here read the areas of all records and true counts. What they return has published areas
alone. The proof is in ``docs/explanation/unknown-zones.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.files.data_frame import TableOrFile
from od_core.flows.arrays import Integers
from od_core.flows.estimation.levels import LIMIT, Measurement, refuse_large
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import ThresholdStep
from od_core.geography.codes import TEXT, find_positions
from od_core.geography.flow_tree import FlowTree, Nodes, Pairs
from od_core.geography.found_levels import REMAINDER
from od_core.geography.geography import Numbers
from od_core.ledger.measurements import Measurements, NoisyVector
from od_core.noise.backends import NoiseSource, check_noise, require_laplace_source
from od_core.records.callers_table import list_codes
from od_core.records.counts import TripCounts

P = TypeVar("P", bound=Pairs)


def find_areas(flows: TableOrFile, tree: FlowTree, columns: Mapping[str, str] | None) -> FlowTree:
    """Return the tree with the areas of all records, which is confidential. It does not depend on their order.

    A code that breaks the rule of found levels has no area. Raises OdError as
    :func:`od_core.records.counting.count_trips` does for the columns of codes.
    """
    return tree.with_found(*list_codes(flows, columns, has_one_side=tree.has_one_side))


def measure_found_levels(
    plan: ReleasePlan, nodes: Nodes, trips: TripCounts, noise: NoiseSource, measurements: Measurements
) -> tuple[ReleasePlan, list[Measurement], Nodes]:
    """Measure the found levels of a plan, top first, and estimate their nodes.

    Args:
        plan: the plan with the confidential tree of :func:`find_areas`.
        nodes: the estimated nodes of the last public level.

    Returns:
        The plan with the tree of the published areas, the measurements of the found levels, and the estimated leaves.
    """
    drawn: list[tuple[ThresholdStep, Pairs, Integers]] = []
    for step in (step for step in plan.steps if isinstance(step, ThresholdStep)):
        stored = measurements.draw_once(step, partial(measure_found, plan.tree, step, nodes, trips, noise))
        origin, destination, noisy = stored.iterate_pieces([len(stored) // 3] * 3)
        published = Pairs(step.level, origin.astype(np.int32), destination.astype(np.int32))
        drawn.append((step, published, noisy))
        nodes = estimate_found(plan, nodes, published, noisy)
        trips = move_unpublished_trips(plan.tree, published, trips)
    tree = _select_published(plan.tree, [published for _, published, _ in drawn])
    measured = [
        Measurement(step, _renumber(plan.tree, tree, published), NoisyVector.from_arrays([noisy]))
        for step, published, noisy in drawn
    ]
    return replace(plan, tree=tree), measured, _renumber(plan.tree, tree, nodes)


def measure_found(
    tree: FlowTree, step: ThresholdStep, parents: Nodes, trips: TripCounts, noise: NoiseSource
) -> Iterator[Integers]:
    """Measure the children with trips of ``parents`` that are no remainders; yield those that reach the threshold.

    These are three arrays: origins, destinations and noisy counts, in tree order. The numbers of areas are those of the
    confidential tree, and stay confidential; the codes of these areas are public. Raises OdError if the noise source
    draws no Laplace noise or returns invalid values.
    """
    children = tree.find_ancestors(tree.find_leaf_pairs(trips.rank), step.level)
    first_ranks = tree.compute_first_ranks(children)
    counts = np.diff(trips.before[np.append(np.searchsorted(trips.rank, first_ranks), len(trips.rank))])
    is_measured = (_find_parents(tree, parents, first_ranks) >= 0) & ~_are_remainders(tree, children)
    origin, destination = children.origin[is_measured], children.destination[is_measured]
    size = len(origin)
    noisy = check_noise(noise, require_laplace_source(noise).draw_laplace(step.scale, size), size)
    noisy += counts[is_measured]
    is_published = noisy >= step.threshold
    yield origin[is_published].astype(np.int64)
    yield destination[is_published].astype(np.int64)
    yield noisy[is_published]


def estimate_found(plan: ReleasePlan, parents: Nodes, published: Pairs, noisy: Integers) -> Nodes:
    """Return the estimate of a found level: of the published nodes, and of the remainder of each parent.

    A remainder has what the noisy counts of the published children leave of the parent's total, or 0. The mechanism
    then projects all children of a parent onto this total. Nodes with the estimate 0 are left out.

    Args:
        parents: the estimated nodes of the level above, with at least one trip each.
        published: the measured children that reached the threshold, in tree order.
        noisy: their noisy counts; shape (published,).
    """
    tree, level = plan.tree, published.level
    if not len(parents):
        return Nodes(level, published.origin, published.destination, noisy)
    remainders = [parents.origin, parents.destination]
    for side in tree.list_divided_sides(level):
        remainders[side] = _list_remainders(tree, level, side)[remainders[side]]
    origin = np.concatenate([published.origin, remainders[0]])
    destination = np.concatenate([published.destination, remainders[1]])
    ranks = tree.compute_first_ranks(Pairs(level, origin, destination))
    parent = _find_parents(tree, parents, ranks)
    refuse_large(noisy, LIMIT // (len(noisy) + 1))  # so that sums fit 64 bits
    sums = np.zeros(len(parents), dtype=np.int64)
    np.add.at(sums, parent[: len(published)], noisy)
    values = np.concatenate([noisy, np.maximum(parents.trips - sums, 0)])
    order = np.argsort(ranks)
    offsets = np.searchsorted(parent[order], np.arange(len(parents) + 1))
    trips = plan.project(values[order], parents.trips, offsets)
    kept = order[trips > 0]
    return Nodes(level, origin[kept], destination[kept], trips[trips > 0])


def move_unpublished_trips(tree: FlowTree, published: Pairs, trips: TripCounts) -> TripCounts:
    """Return the trips in which each found area of a level that is not published has become the remainder beside it.

    ``published`` are the measured nodes of the level that reached the threshold. What becomes of a trip depends on
    these public nodes and on this trip alone. The result is confidential.
    """
    leaves, level = tree.find_leaf_pairs(trips.rank), published.level
    zones, areas = [leaves.origin, leaves.destination], []
    for geography, own, zone in zip((tree.origin, tree.destination), tree.level_pair(level), zones, strict=True):
        areas.append(geography.ancestors(own)[zone])
    is_published = np.isin(tree.compute_first_ranks(Pairs(level, *areas)), tree.compute_first_ranks(published))
    for side in tree.list_divided_sides(level):
        geography, own = (tree.origin, tree.destination)[side], tree.level_pair(level)[side]
        remainder = _list_remainders(tree, level, side)[geography.parents[own][areas[side]]]
        zones[side] = np.where(is_published, zones[side], geography.first_zone[own][remainder])
    return TripCounts.from_pairs(tree, zones[0], zones[1], np.diff(trips.before))


def _find_parents(tree: FlowTree, parents: Pairs, first_ranks: Integers) -> NDArray[np.int64]:
    """Return the position of the parent of each node among ``parents``, or -1; shape (nodes,)."""
    if not len(parents):
        return np.full(len(first_ranks), -1)
    ranks = tree.compute_first_ranks(parents)
    position = np.searchsorted(ranks, first_ranks, side="right") - 1
    return np.where(first_ranks < (ranks + tree.count_pairs_below(parents))[position], position, -1)


def _are_remainders(tree: FlowTree, children: Pairs) -> NDArray[np.bool_]:
    """Return whether each node is the remainder of its parent: on each side that the step refines; shape (nodes,)."""
    are_remainders = np.ones(len(children), dtype=np.bool_)
    for side in tree.list_divided_sides(children.level):
        areas = (children.origin, children.destination)[side]
        are_remainders &= np.isin(areas, _list_remainders(tree, children.level, side))
    return are_remainders


def _list_remainders(tree: FlowTree, level: int, side: int) -> Numbers:
    """Return the remainder of each area of a side, in the geography's level above; shape (areas above,)."""
    geography = (tree.origin, tree.destination)[side]
    codes = geography.codes[tree.level_pair(level)[side]]
    # Every area has one, and these are in the order of the areas.
    return np.flatnonzero([code.endswith(REMAINDER) for code in codes]).astype(np.int32)


def _select_published(tree: FlowTree, published: Sequence[Pairs]) -> FlowTree:
    """Return the tree with the areas of published nodes alone."""
    codes: tuple[set[str], set[str]] = (set(), set())
    for nodes in published:
        for side, areas in enumerate((nodes.origin, nodes.destination)):
            geography, level = (tree.origin, tree.destination)[side], tree.level_pair(nodes.level)[side]
            codes[side].update(geography.codes[level][area] for area in np.unique(areas))
    return tree.with_found(*codes)


def _renumber(tree: FlowTree, other: FlowTree, nodes: P) -> P:
    """Return nodes with the numbers that their areas have in another tree."""
    numbers = []
    for side, areas in enumerate((nodes.origin, nodes.destination)):
        level = tree.level_pair(nodes.level)[side]
        own, others = ((each.origin, each.destination)[side].codes[level] for each in (tree, other))
        numbers.append(find_positions(pd.Series(own, dtype=TEXT), others)[areas])
    return replace(nodes, origin=numbers[0], destination=numbers[1])
