"""Generated geographies, flows and noise for Hypothesis."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from od_core import FlowTree, Geography
from od_core.geography.codes import TEXT
from od_core.geography.flow_tree import Nodes, Pairs
from tests.od_core.oracles.inftda import Area, Node, Tree, areas

TREES_IN_TURN = ("destination", "origin")
TREES = (*TREES_IN_TURN, "both")


def trees_for(mechanism: Any) -> tuple[str, ...]:
    """The orders of the tree that a mechanism can have."""
    if mechanism.noise_distribution == "laplace":
        return ("both",)
    return TREES_IN_TURN if mechanism.leaf_dial else TREES


@dataclass
class World:
    """Two public geographies, as areas and as the library's objects, and flows between zones."""

    origins: list[Area]
    destinations: list[Area]
    flows: dict[Node, int]

    @cached_property
    def origin(self) -> Geography:
        return geography_of(self.origins)

    @cached_property
    def destination(self) -> Geography:
        return geography_of(self.destinations)

    def trees(self, order: str) -> tuple[FlowTree, Tree]:
        return FlowTree(self.origin, self.destination, order), Tree(self.origins, self.destinations, order)

    def numbered(self, origin_level: int, destination_level: int) -> tuple[dict[Area, int], dict[Area, int]]:
        """Number of each area, in tree order, for one origin and one destination level."""
        origins, destinations = areas(self.origins, origin_level), areas(self.destinations, destination_level)
        return {area: k for k, area in enumerate(origins)}, {area: k for k, area in enumerate(destinations)}

    def nodes(self, tree: FlowTree, level: int, nodes: Sequence[Node], trips: Sequence[int] | None = None) -> Nodes:
        """The library's nodes for nodes given as areas; of one trip each if not said otherwise."""
        origin_number, destination_number = self.numbered(*tree.level_pair(level))
        origins = np.array([origin_number[o] for o, _ in nodes], dtype=np.int32)
        destinations = np.array([destination_number[d] for _, d in nodes], dtype=np.int32)
        counts = np.array([1] * len(nodes) if trips is None else trips, dtype=np.int64)
        return Nodes(level, origins, destinations, counts)

    def areas_of(self, tree: FlowTree, nodes: Nodes) -> dict[Node, int]:
        """Trips of the library's nodes by their areas, in the order of the nodes; int as they come from int64."""
        origins, destinations = (list(numbers) for numbers in self.numbered(*tree.level_pair(nodes.level)))
        pairs = [(origins[o], destinations[d]) for o, d in zip(nodes.origin, nodes.destination, strict=True)]
        assert len(set(pairs)) == len(pairs)
        assert nodes.trips.dtype == np.int64
        return dict(zip(pairs, nodes.trips.tolist(), strict=True))

    @property
    def frame(self) -> pd.DataFrame:
        return frame_of(self.flows)


def level_names(zones: Sequence[Area]) -> list[str]:
    return [f"level_{k + 1}" for k in range(len(zones[0]))]


def geography_of(zones: Sequence[Area]) -> Geography:
    columns = {name: text(codes) for name, codes in zip(level_names(zones), zip(*zones, strict=True), strict=True)}
    return Geography.from_frame(pd.DataFrame(columns), list(columns))


def text(values: Iterable[str]) -> pd.api.extensions.ExtensionArray:
    """A column of text; to let pandas find out that it is text takes several times as long."""
    return pd.array(list(values), dtype=TEXT)


def frame_of(flows: dict[Node, int]) -> pd.DataFrame:
    """Flows as release_flows takes them: zone codes and trips."""
    origins, destinations = (text(pair[side][-1] for pair in flows) for side in (0, 1))
    trips = np.array(list(flows.values()), dtype=np.int64)
    return pd.DataFrame({"origin": origins, "destination": destinations, "trips": trips})


@st.composite
def zone_lists(draw: st.DrawFn, depth: int | None = None, max_fan_out: int = 3) -> list[Area]:
    """Zones as areas in any order; codes are unique over all levels and say nothing about the tree."""
    depth = draw(st.integers(1, 3)) if depth is None else depth
    tree: list[tuple[int, ...]] = [()]
    areas: list[tuple[int, ...]] = []
    for _ in range(depth):
        tree = [(*area, child) for area in tree for child in range(draw(st.integers(1, max_fan_out)))]
        areas += tree
    random = draw(st.randoms(use_true_random=False))
    numbers = random.sample(range(len(areas)), len(areas))
    code = {area: f"{'QZAM'[n % 4]}{n}" for area, n in zip(areas, numbers, strict=True)}
    zones = [tuple(code[area[:level]] for level in range(1, depth + 1)) for area in tree]
    random.shuffle(zones)
    return zones


@st.composite
def worlds(draw: st.DrawFn, max_trips: int = 12) -> World:
    """Two different geographies of equal depth and a few flows between their zones."""
    origins = draw(zone_lists())
    destinations = draw(zone_lists(depth=len(origins[0])))
    pairs = st.tuples(st.sampled_from(origins), st.sampled_from(destinations))
    flows = draw(st.dictionaries(pairs, st.integers(0, max_trips), max_size=12))
    return World(origins, destinations, flows)


def noises(reach: int = 15) -> st.SearchStrategy[list[int]]:
    """Values for ListedNoise."""
    return st.lists(st.integers(-reach, reach), min_size=1, max_size=12)


def leaves_of(tree: FlowTree, origin: np.ndarray, destination: np.ndarray, trips: np.ndarray) -> Nodes:
    """Leaves in tree order from different pairs of zones in any order, without those of no trips."""
    pairs = Pairs(tree.depth, *(np.asarray(side, dtype=np.int32)[trips > 0] for side in (origin, destination)))
    order = np.argsort(tree.compute_first_ranks(pairs))
    return Nodes(tree.depth, pairs.origin[order], pairs.destination[order], trips[trips > 0][order])
