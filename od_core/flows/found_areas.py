"""Measure the levels whose areas are found in the records, and drop the nodes below their thresholds.

Confidential: the functions here read the areas of all records and true counts. What they return has published areas
alone. The proof is in ``docs/explanation/unknown-zones.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from od_core.notebook import Confidential
from od_core.records.callers_table import list_codes
from od_core.records.counts import TripCounts


@dataclass(frozen=True, eq=False, repr=False)
class FoundTrips(Confidential):
    """Confidential: the counted trips of a release with found levels, and the tree with the areas of all records.

    Attributes:
        tree: the tree of the plan, with the areas of all codes of the records. A code that breaks the rule of the found
            levels has none.
        counts: the trips of leaf pairs of this tree.
    """

    tree: FlowTree
    counts: TripCounts

    @property
    def total(self) -> int:
        """Number of all trips."""
        return self.counts.total

    def iterate_column_pieces(self) -> Iterator[tuple[Integers, ...]]:
        """Yield the columns of the counts, which are one piece, and the codes of all zones, for a fingerprint."""
        zones = (np.arange(len(side.zones), dtype=np.int32) for side in (self.tree.origin, self.tree.destination))
        codes = _encode_codes(self.tree, Pairs(self.tree.depth, *zones))
        for columns in self.counts.iterate_column_pieces():
            yield (*columns, codes)


def find_areas(flows: TableOrFile, tree: FlowTree, columns: Mapping[str, str] | None) -> FlowTree:
    """Return the tree with the areas that the records have below its public areas; ``tree`` if it has no found levels.

    The result is confidential. ``flows`` and ``columns`` are those of :func:`od_core.flows.release.release_flows`.
    Raises OdError as :func:`od_core.records.counting.count_trips` does for a table that cannot be read.
    """
    if tree.found is None:
        return tree
    return tree.with_found(*list_codes(flows, columns, has_one_side=tree.has_one_side))


def measure_found_levels(
    plan: ReleasePlan, nodes: Nodes, trips: TripCounts, noise: NoiseSource, measurements: Measurements
) -> tuple[ReleasePlan, list[Measurement], Nodes]:
    """Measure the found levels of a plan, top first, and estimate their nodes.

    Args:
        plan: the plan with the confidential tree of :class:`FoundTrips`.
        nodes: the estimated nodes of the last public level.
        trips: the confidential trips of the leaf pairs of this tree.
        noise: source of the noise.
        measurements: the stored measurements; a step that has one is not measured again.

    Returns:
        The plan with the tree of the published areas, the measurements of the found levels, and the estimated leaves.
        All are public.

    Raises:
        OdError: if the noise source draws no Laplace noise or returns invalid values, or a noisy count is too large.
    """
    drawn: list[tuple[ThresholdStep, Pairs, Integers]] = []
    for step in (step for step in plan.steps if isinstance(step, ThresholdStep)):
        stored = measurements.draw_once(step, partial(measure_found, plan.tree, step, nodes, trips, noise))
        published, noisy = _decode_published(plan.tree, step.level, stored.read_values())
        drawn.append((step, published, noisy))
        nodes = estimate_found(plan, nodes, published, noisy)
        trips = move_unpublished_trips(plan.tree, published, trips)
    codes = [_list_codes(plan.tree, published) for _, published, _ in drawn]
    found: tuple[set[str], set[str]] = (set(), set())  # codes of the published areas of each side
    for (step, *_), codes_of_level in zip(drawn, codes, strict=True):
        for side in plan.tree.list_divided_sides(step.level):  # the area of another side is public, or found above
            found[side].update(codes_of_level[side])
    # Nodes are found again by their codes: the numbers of areas are others in the tree of the published areas.
    tree = plan.tree.with_found(*found)
    measured = [
        Measurement(step, _find_nodes(tree, step.level, *codes_of_level), NoisyVector.from_arrays([noisy]))
        for (step, _, noisy), codes_of_level in zip(drawn, codes, strict=True)
    ]
    leaves = _find_nodes(tree, nodes.level, *_list_codes(plan.tree, nodes))
    return replace(plan, tree=tree), measured, replace(nodes, origin=leaves.origin, destination=leaves.destination)


def measure_found(
    tree: FlowTree, step: ThresholdStep, parents: Nodes, trips: TripCounts, noise: NoiseSource
) -> Iterator[Integers]:
    """Measure the children of ``parents`` that have trips, and yield those whose noisy count reaches the threshold.

    Remainders are not measured. The result is public: the number of these nodes, their noisy counts, and the codes of
    their areas as text. It does not have the numbers of areas, which depend on all records.

    Args:
        tree: the confidential tree, with the areas of all records.
        parents: the estimated nodes of the level above, which are public.
        trips: the confidential trips of the leaf pairs of ``tree``.

    Raises:
        OdError: if the noise source draws no Laplace noise or returns invalid values.
    """
    children = tree.find_ancestors(tree.find_leaf_pairs(trips.rank), step.level)  # each once, in tree order
    first_ranks = tree.compute_first_ranks(children)
    first_leaves = np.searchsorted(trips.rank, first_ranks)  # position of the first leaf with trips below each child
    counts = np.diff(trips.before[np.append(first_leaves, len(trips.rank))])
    is_measured = (_find_parents(tree, parents, first_ranks) >= 0) & ~_are_remainders(tree, children)
    origin, destination = children.origin[is_measured], children.destination[is_measured]
    size = len(origin)
    noisy = check_noise(noise, require_laplace_source(noise).draw_laplace(step.scale, size), size)
    noisy += counts[is_measured]
    is_published = noisy >= step.threshold
    yield np.array([np.count_nonzero(is_published)])
    yield noisy[is_published]
    yield _encode_codes(tree, Pairs(step.level, origin[is_published], destination[is_published]))


def _encode_codes(tree: FlowTree, nodes: Pairs) -> Integers:
    """Return the codes of the origins of nodes, and then those of their destinations, as text in 64-bit numbers.

    A line break ends each code, and fills the last number.
    """
    origins, destinations = _list_codes(tree, nodes)
    text = "".join(f"{code}\n" for code in [*origins, *destinations]).encode()  # no code has a line break
    bytes_of_numbers = math.ceil(len(text) / 8) * 8
    return np.frombuffer(text.ljust(bytes_of_numbers, b"\n"), "<i8").astype(np.int64)


def _decode_published(tree: FlowTree, level: int, stored: Integers) -> tuple[Pairs, Integers]:
    """Return the nodes of a level of a tree, and their noisy counts, from the vector of :func:`measure_found`.

    The vector has the number of nodes, their noisy counts, and then their codes as text.
    """
    size = int(stored[0])
    noisy, text = stored[1 : 1 + size], stored[1 + size :].astype("<i8").tobytes().decode()
    codes = text.split("\n")
    return _find_nodes(tree, level, codes[:size], codes[size : 2 * size]), noisy


def _list_codes(tree: FlowTree, nodes: Pairs) -> tuple[list[str], list[str]]:
    """Return the codes of the origins and of the destinations of nodes."""
    origins, destinations = (
        geography.codes[level]
        for geography, level in zip((tree.origin, tree.destination), tree.level_pair(nodes.level), strict=True)
    )
    return [origins[area] for area in nodes.origin], [destinations[area] for area in nodes.destination]


def _find_nodes(tree: FlowTree, level: int, origins: Sequence[str], destinations: Sequence[str]) -> Pairs:
    """Return the nodes of a level, given the codes of their origins and destinations, which must be in the tree."""
    origin_level, destination_level = tree.level_pair(level)
    origin = find_positions(pd.Series(origins, dtype=TEXT), tree.origin.codes[origin_level])
    destination = find_positions(pd.Series(destinations, dtype=TEXT), tree.destination.codes[destination_level])
    return Pairs(level, origin, destination)


def estimate_found(plan: ReleasePlan, parents: Nodes, published: Pairs, noisy: Integers) -> Nodes:
    """Return the estimated nodes of a found level: the published nodes, and the remainder of each parent.

    Before the projection, a remainder has the parent's trips minus the noisy counts of its published children, or 0 if
    this is negative. The mechanism then projects all children of a parent onto the parent's trips. Nodes with the
    estimate 0 are left out. Raises OdError if a noisy count is so large that sums would not fit 64 bits.

    Args:
        parents: the estimated nodes of the level above, with at least one trip each, in tree order.
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
    parent_positions = _find_parents(tree, parents, ranks)
    refuse_large(noisy, LIMIT // (len(noisy) + 1))  # so that sums fit 64 bits
    published_trips = np.zeros(len(parents), dtype=np.int64)  # below each parent
    np.add.at(published_trips, parent_positions[: len(published)], noisy)
    counts = np.concatenate([noisy, np.maximum(parents.trips - published_trips, 0)])
    order = np.argsort(ranks)  # tree order, in which the children of a parent are consecutive
    offsets = np.searchsorted(parent_positions[order], np.arange(len(parents) + 1))
    trips = plan.project(counts[order], parents.trips, offsets)
    kept = order[trips > 0]
    return Nodes(level, origin[kept], destination[kept], trips[trips > 0])


def move_unpublished_trips(tree: FlowTree, published: Pairs, trips: TripCounts) -> TripCounts:
    """Return the trips, with those below unpublished nodes of a level moved to the remainders beside these nodes.

    ``published`` are the measured nodes of the level that reached the threshold. Whether a trip moves depends on these
    public nodes and on this trip alone. ``trips`` and the result are confidential.
    """
    leaves, level = tree.find_leaf_pairs(trips.rank), published.level
    side_levels = tree.level_pair(level)
    zones = [leaves.origin, leaves.destination]
    areas = [
        geography.ancestors(side_level)[zones_of_side]
        for geography, side_level, zones_of_side in zip(
            (tree.origin, tree.destination), side_levels, zones, strict=True
        )
    ]
    is_published = np.isin(tree.compute_first_ranks(Pairs(level, *areas)), tree.compute_first_ranks(published))
    for side in tree.list_divided_sides(level):
        geography, side_level = (tree.origin, tree.destination)[side], side_levels[side]
        areas_above = geography.parents[side_level][areas[side]]
        remainders = _list_remainders(tree, level, side)[areas_above]
        zones[side] = np.where(is_published, zones[side], geography.first_zone[side_level][remainders])
    return TripCounts.from_pairs(tree, zones[0], zones[1], np.diff(trips.before))


def _find_parents(tree: FlowTree, parents: Pairs, first_ranks: Integers) -> NDArray[np.int64]:
    """Return the position of the parent of each node among ``parents``, or -1 if it is absent; shape (nodes,).

    ``first_ranks`` is the rank of the first leaf pair below each node; ``parents`` are in tree order.
    """
    if not len(parents):
        return np.full(len(first_ranks), -1)
    parent_ranks = tree.compute_first_ranks(parents)
    rank_ends = parent_ranks + tree.count_pairs_below(parents)
    position = np.searchsorted(parent_ranks, first_ranks, side="right") - 1  # the last parent that begins before
    return np.where(first_ranks < rank_ends[position], position, -1)


def _are_remainders(tree: FlowTree, children: Pairs) -> NDArray[np.bool_]:
    """Return whether each node is its parent's remainder, which is so if its area is one on all sides that are refined.

    Shape (nodes,).
    """
    are_remainders = np.ones(len(children), dtype=np.bool_)
    for side in tree.list_divided_sides(children.level):
        areas = (children.origin, children.destination)[side]
        are_remainders &= np.isin(areas, _list_remainders(tree, children.level, side))
    return are_remainders


def _list_remainders(tree: FlowTree, level: int, side: int) -> Numbers:
    """Return the numbers of the remainders of a found level on one side (0: origins, 1: destinations).

    There is one remainder for each area of the level above, in the order of these areas; shape (areas above,).
    """
    geography = (tree.origin, tree.destination)[side]
    codes = geography.codes[tree.level_pair(level)[side]]
    # Every area above has one remainder, and these are in the order of the areas above.
    return np.flatnonzero([code.endswith(REMAINDER) for code in codes]).astype(np.int32)
