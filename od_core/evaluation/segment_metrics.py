"""Compute the errors of the flows of a release by category, at every level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.evaluation.metrics import Level, level_errors, ranks_by_level
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.records.trip_counts import TripCounts


@dataclass(frozen=True, eq=False, repr=False)
class SegmentTruth:
    """The true flows by category at every level of a flow tree, with which releases are compared. NOT private.

    Attributes:
        tree: the flow tree of the releases.
        categories: number of categories K.
        levels: true flows at levels 0 (root) to T (leaves). A node and a category have the rank K r + k, where r is the
            rank of the node and k the position of the category.
    """

    tree: FlowTree
    categories: int
    levels: tuple[Level, ...]

    def __repr__(self) -> str:
        return "SegmentTruth(confidential)"

    @classmethod
    def of_counts(cls, tree: FlowTree, counts: TripCounts, breakdown: str) -> SegmentTruth:
        """Create the true flows from counts of the trips in the categories of a breakdown."""
        trips = category_trips(counts, breakdown)
        pairs = tree.pairs_at(counts.rank)
        leaves = Nodes(tree.depth, pairs.origin, pairs.destination, np.diff(counts.before))
        return cls(tree, trips.shape[1], tuple(segment_sums_by_level(tree, leaves, trips)))

    def errors(self, leaves: Nodes, segments: NDArray[np.int64]) -> list[dict[str, float]]:
        """Return the errors of released leaves by category, as in :func:`od_core.evaluate`.

        A category of a pair of areas takes the place of the pair.

        Args:
            leaves: released leaves in tree order.
            segments: released trips of each leaf by category; shape (leaves, categories).
        """
        pairs = zip(self.levels, segment_sums_by_level(self.tree, leaves, segments), strict=True)
        return [
            {"level": level, **level_errors(*pair, self.tree.cells(level) * self.categories)}
            for level, pair in enumerate(pairs)
        ]


def category_trips(counts: TripCounts, breakdown: str) -> NDArray[np.int64]:
    """Return the trips of each leaf with trips by the categories of a breakdown; shape (leaves, categories)."""
    categories = counts.by_segment[breakdown]
    trips = np.zeros((len(counts.rank), len(categories)), dtype=np.int64)
    for k, category in enumerate(categories):
        trips[np.searchsorted(counts.rank, category.rank), k] = np.diff(category.before)
    return trips


def segment_sums_by_level(tree: FlowTree, leaves: Nodes, segments: NDArray[np.int64]) -> Iterator[Level]:
    """Yield the sums of the leaves' trips by category at each level, 0 (root) to T. Leaves must be in tree order."""
    categories = segments.shape[1]
    for rank, first in ranks_by_level(tree, leaves):
        sums = np.add.reduceat(segments, first, axis=0) if len(first) else segments
        both = (rank[:, np.newaxis] * categories + np.arange(categories)).ravel()
        kept = sums.ravel() > 0
        yield both[kept], sums.ravel()[kept]
