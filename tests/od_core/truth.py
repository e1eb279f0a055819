"""True counts of any nodes, by binary search in the sorted leaf counts: the same for each node, whatever its size."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from od_core.geography.flow_tree import FlowTree, Pairs
from od_core.records.counts import TripCounts


def trips_of(counts: TripCounts, tree: FlowTree, nodes: Pairs) -> NDArray[np.int64]:
    """True trips of each node; shape (nodes,)."""
    first = tree.compute_first_ranks(nodes)
    start = np.searchsorted(counts.rank, first)
    stop = np.searchsorted(counts.rank, first + leaf_pairs(tree, nodes))
    return counts.before[stop] - counts.before[start]


def pairs_of(tree: FlowTree, counts: TripCounts) -> Counter[tuple[str, str]]:
    """True trips of each pair of zones that has any, by the codes of the zones."""
    shape = (len(tree.origin.zones), len(tree.destination.zones))
    origin, destination = (axis.ravel().astype(np.int32) for axis in np.indices(shape))
    trips = trips_of(counts, tree, Pairs(tree.depth, origin, destination)).tolist()
    pairs = [(tree.origin.zones[o], tree.destination.zones[d]) for o, d in zip(origin, destination, strict=True)]
    assert sum(trips) == counts.total
    return +Counter(dict(zip(pairs, trips, strict=True)))


def leaf_pairs(tree: FlowTree, nodes: Pairs) -> NDArray[np.int64]:
    """Number of leaf pairs below each node; shape (nodes,)."""
    origin_level, destination_level = tree.level_pair(nodes.level)
    origin_zones = tree.origin.count_zones_below(origin_level).astype(np.int64)[nodes.origin]
    return origin_zones * tree.destination.count_zones_below(destination_level)[nodes.destination]
