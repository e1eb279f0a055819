"""Errors of a release against the truth, level by level (spec 2, "Metrics per level")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.flows.release import Release
from od_core.geography.flow_tree import FlowTree, Nodes, Pairs
from od_core.geography.geography import Numbers
from od_core.records.trip_counts import place_trips

Level = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rank of the first leaf pair of every node with trips, ascending, and its trips; shape (nodes,) each."""


def evaluate(release: Release, flows: pd.DataFrame) -> pd.DataFrame:
    """Errors of every level of the flow tree against the true flows. NOT private: it compares with the truth.

    All pairs count: those released, those true, and the public pairs that are neither.

    Args:
        release: the release to judge.
        flows: the true flows it was made from, as :func:`od_core.release_flows` takes them; all trips of a user count.

    Returns:
        One row a level 0 to T: level, max_abs_error (trips), mean_abs_error (trips, over all public pairs),
        false_discovery_rate (share of released positive pairs whose true count is 0), false_negative_rate
        (share of truly positive pairs that were released as 0 or below); a rate over no pairs is 0. Released numbers
        below 0 (of ``vanilla_gauss``, and sums of them) enter the errors as they are, and no rate as positive.
    """
    tree = release.plan.tree
    truth = Truth.from_pairs(tree, *place_trips(flows, tree, fault_threshold=Fraction(1)))
    return pd.DataFrame(truth.errors(release.leaves))


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """The true flows at every level of a flow tree, made once to judge any number of releases. NOT private.

    Attributes:
        tree: the public flow tree, in the order of the releases.
        levels: 0 to T.
    """

    tree: FlowTree
    levels: tuple[Level, ...]

    def __repr__(self) -> str:
        return "Truth(confidential)"

    @classmethod
    def from_pairs(cls, tree: FlowTree, origin: Numbers, destination: Numbers, trips: NDArray[np.int64]) -> Truth:
        """Of leaf pairs in any order, equal pairs summed; shape (pairs,) each."""
        rank = tree.first_rank(Pairs(tree.depth, origin, destination))
        order = np.argsort(rank, kind="stable")
        first = np.flatnonzero(np.diff(rank[order], prepend=-1))
        summed = np.add.reduceat(trips[order], first)
        first, summed = order[first][summed > 0], summed[summed > 0]
        leaves = Nodes(tree.depth, origin[first], destination[first], summed)
        return cls(tree, tuple(sums_by_level(tree, leaves)))

    def errors(self, leaves: Nodes) -> list[dict[str, float]]:
        """Errors of released leaves, in tree order; one row a level, see :func:`evaluate`."""
        pairs = zip(self.levels, sums_by_level(self.tree, leaves), strict=True)
        return [{"level": level, **_errors(*pair, self.tree.cells(level))} for level, pair in enumerate(pairs)]


def sums_by_level(tree: FlowTree, leaves: Nodes) -> Iterator[Level]:
    """The sums of leaves in tree order at levels 0 to T."""
    for level in range(tree.depth + 1):
        origin_level, destination_level = tree.level_pair(level)
        origin = tree.origin.ancestors(origin_level)[leaves.origin]
        destination = tree.destination.ancestors(destination_level)[leaves.destination]
        rank = tree.first_rank(Pairs(level, origin, destination))
        first = np.flatnonzero(np.diff(rank, prepend=-1))  # the leaves of a node stand side by side
        yield rank[first], np.add.reduceat(leaves.trips, first)


def _errors(true: Level, released: Level, cells: int) -> dict[str, float]:
    """Errors of one level over the union of both; nodes that only one of them has count 0 in the other."""
    (true_rank, true_trips), (rank, trips) = true, released
    place = np.searchsorted(true_rank, rank)
    both = np.zeros(len(rank), dtype=bool)
    inside = place < len(true_rank)
    both[inside] = true_rank[place[inside]] == rank[inside]
    error, missed = trips.copy(), true_trips.copy()
    error[both] -= true_trips[place[both]]
    missed[place[both]] = 0
    np.abs(error, out=error)
    positive = trips > 0
    discovered, found = int(positive.sum()), int((positive & both).sum())
    return {
        "max_abs_error": max(int(error.max(initial=0)), int(missed.max(initial=0))),
        "mean_abs_error": float(error.sum() + missed.sum()) / cells,
        "false_discovery_rate": (discovered - found) / discovered if discovered else 0.0,
        "false_negative_rate": (len(true_rank) - found) / len(true_rank) if len(true_rank) else 0.0,
    }
