"""The flow tree and InfTDA once more, as dictionaries: slow, short, written from the algorithm's description alone.

An area is the tuple of codes from the first level down to it, () the whole space; a node is a pair of areas.
Zones are given as their areas, in any order; nothing here uses the arrays of the library.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from tests.od_core.oracles.intopt import transcription

Area = tuple[str, ...]
Node = tuple[Area, Area]


@dataclass
class Tree:
    """All public nodes over the zones of two geographies of equal depth."""

    origins: Sequence[Area]
    destinations: Sequence[Area]
    order: str

    @property
    def depth(self) -> int:
        """Number of levels below the root."""
        return len(self.origins[0]) if self.order == "both" else 2 * len(self.origins[0])

    def level(self, node: Node) -> int:
        """The level of a node."""
        return len(node[0]) if self.order == "both" else len(node[0]) + len(node[1])

    def children(self, node: Node) -> list[Node]:
        """The split side is the coarser one; where both are equally fine, the one the tree is named after, or both."""
        origin, destination = node
        if self.order == "both":
            return list(product(below(origin, self.origins), below(destination, self.destinations)))
        gap = len(origin) - len(destination)
        split_destination = gap > 0 or (gap == 0 and self.order == "destination")
        if split_destination:
            return [(origin, child) for child in below(destination, self.destinations)]
        return [(child, destination) for child in below(origin, self.origins)]

    def levels(self) -> list[list[Node]]:
        """The public nodes of levels 0 to T in tree order."""
        levels: list[list[Node]] = [[((), ())]]
        while len(levels) <= self.depth:
            levels.append([child for node in levels[-1] for child in self.children(node)])
        return levels

    def leaves_below(self, node: Node) -> list[Node]:
        """Depth first."""
        if len(node[0]) == len(node[1]) == len(self.origins[0]):
            return [node]
        return [leaf for child in self.children(node) for leaf in self.leaves_below(child)]


def below(area: Area, zones: Sequence[Area]) -> list[Area]:
    """Child areas of an area, by code."""
    return sorted({zone[: len(area) + 1] for zone in zones if zone[: len(area)] == area})


def areas(zones: Sequence[Area], level: int) -> list[Area]:
    """Areas of a level in tree order."""
    return [()] if level == 0 else [child for area in areas(zones, level - 1) for child in below(area, zones)]


def trips_below(node: Node, flows: Mapping[Node, int]) -> int:
    """True trips of a node, from flows between zones."""
    origin, destination = node
    return sum(n for (o, d), n in flows.items() if o[: len(origin)] == origin and d[: len(destination)] == destination)


@dataclass
class ReferenceRelease:
    """Released nodes and noisy measurements, by level."""

    nodes: list[dict[Node, int]]
    noisy: dict[int, dict[Node, int]] = field(default_factory=dict)


def inftda(
    tree: Tree,
    flows: Mapping[Node, int],
    noise: Callable[[int, int], int],
    *,
    total_is_public: bool,
    order: str = "ascending",
) -> ReferenceRelease:
    """InfTDA with the noise of (level, position in the measured vector of that level)."""
    root = ((), ())
    total = trips_below(root, flows)
    released = ReferenceRelease([{root: total}])
    if not total_is_public:
        released.noisy[0] = {root: total + noise(0, 0)}
        released.nodes[0] = {root: max(0, released.noisy[0][root])}
    for level in range(1, tree.depth + 1):
        measured: dict[Node, int] = {}
        nodes: dict[Node, int] = {}
        for parent, count in released.nodes[-1].items():
            if count == 0:
                continue
            x: dict[Node, int] = {}
            for child in tree.children(parent):
                x[child] = trips_below(child, flows) + noise(level, len(measured) + len(x))
            measured |= x
            y = transcription(list(x.values()), count, order)
            nodes |= {child: n for child, n in zip(x, y, strict=True) if n > 0}
        released.noisy[level] = measured
        released.nodes.append(nodes)
    return released
