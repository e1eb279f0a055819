"""Made-up flows from the zones of one geography to those of another, of which nothing says where they are."""

from __future__ import annotations

import numpy as np

from od_core.evaluation.known_flows import KnownFlows
from od_core.geography.flow_tree import FlowTree

_EXPONENT = 1.2
"""Of the sizes of zones, heavy-tailed as in the other made-up flows."""


def flows_between(tree: FlowTree, seed: int, *, pairs: int, trips: int) -> KnownFlows:
    """Flows over any two geographies: a pair of zones has trips, and how many, by the sizes of its two zones alone.

    Args:
        tree: over the geographies.
        seed: of the generator; the same seed gives the same flows.
        pairs: with trips, at most; at least 1.
        trips: of all pairs, at least so many as there are pairs.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    zones = (len(tree.origin.zones), len(tree.destination.zones))
    sizes = [(1 - generator.random(count) * (count / (count + 1))) ** (-1 / _EXPONENT) for count in zones]
    ends = [generator.choice(len(size), 4 * pairs, p=size / size.sum()) for size in sizes]
    cells = np.unique(ends[0].astype(np.int64) * zones[1] + ends[1])
    chosen = np.sort(generator.choice(cells, min(pairs, len(cells)), replace=False))
    origin, destination = (chosen // zones[1]).astype(np.int32), (chosen % zones[1]).astype(np.int32)
    weight = sizes[0][origin] * sizes[1][destination]
    counts = 1 + generator.multinomial(trips - len(chosen), weight / weight.sum())
    return KnownFlows.of_pairs("sizes", "synthetic", tree, origin, destination, counts)
