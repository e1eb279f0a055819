"""True counts of any nodes, by binary search in the sorted leaf counts: the same for each node, whatever its size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.geography.flow_tree import FlowTree, Pairs
from od_core.records.trip_counts import TripCounts


def trips_of(counts: TripCounts, tree: FlowTree, nodes: Pairs) -> NDArray[np.int64]:
    """True trips of each node; shape (nodes,)."""
    first = tree.first_rank(nodes)
    start = np.searchsorted(counts.rank, first)
    stop = np.searchsorted(counts.rank, first + leaf_pairs(tree, nodes))
    return counts.before[stop] - counts.before[start]


def leaf_pairs(tree: FlowTree, nodes: Pairs) -> NDArray[np.int64]:
    """Number of leaf pairs below each node; shape (nodes,)."""
    origin_level, destination_level = tree.level_pair(nodes.level)
    origin_zones = tree.origin.zones_below(origin_level).astype(np.int64)[nodes.origin]
    return origin_zones * tree.destination.zones_below(destination_level)[nodes.destination]
