"""The refinement against a second one written as dictionaries, against linear algebra, and what must always hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from od_core import Budget, Geography, OdError, PrivacyUnit, flow_tree, plan_release
from od_core.archive.measurements import MemoryMeasurements
from od_core.archive.noisy_vector import NoisyVector
from od_core.estimation.refinement import refine
from od_core.estimation.top_down import Measurement, published_root
from od_core.flow_tree import Nodes
from od_core.mechanisms.inftda_refined import KEEP_ALL_CAP, InfTDARefined
from od_core.plan import ReleasePlan
from od_core.projection.chebyshev import ORDERS
from od_core.release import Release, run_plan
from od_core.trips import TripCounts
from tests.od_core.doubles import ListedNoise, SeededNoise, no_noise
from tests.od_core.oracles.inftda import Area, Node, Tree, trips_below
from tests.od_core.oracles.refinement import ROOT, Query, first_pass, least_squares, refined
from tests.od_core.strategies import TREES, World, geography_of, worlds

UNITS = [
    PrivacyUnit("trip", "bounded"),
    PrivacyUnit("trip", "unbounded"),
    PrivacyUnit("user", "bounded", column="user", max_trips=1),
    PrivacyUnit("user", "unbounded", column="user", max_trips=4),
]
SHARES = ["uniform", "geography", "geography", ("geometric", Fraction(1, 3)), ("geometric", 100)]
PROMISES = [{"epsilon": e} for e in ("1e-6", "0.1", 1, 10, 100)] + [{"rho": "1e-15"}]
SEEDS = st.integers(0, 2**32)
FAR = 2**32
"""Values that the refinement of a small tree must bear, whatever the budget."""


@dataclass
class Case:
    """A plan over a generated world, and its noise."""

    world: World
    plan: ReleasePlan
    noise: ListedNoise | SeededNoise

    def released(self) -> tuple[Release, list[Nodes]]:
        """The release, and all levels of the refinement."""
        ranks = {leaf: rank for rank, leaf in enumerate(self.reference.levels()[-1])}
        places = np.array([ranks[leaf] for leaf in self.world.flows], dtype=np.int64)
        trips = np.array(list(self.world.flows.values()), dtype=np.int64)
        counts = TripCounts.from_ranks(self.plan.tree, places, trips)
        release = run_plan(self.plan, counts, self.noise, MemoryMeasurements())
        levels = refine(self.plan, published_root(self.plan, counts), release.measured)
        assert rows(levels[-1]) == rows(release.leaves)
        return release, levels

    @property
    def reference(self) -> Tree:
        return Tree(self.world.origins, self.world.destinations, self.plan.tree.order)

    @property
    def total(self) -> int | None:
        """n where it is an invariant."""
        return None if self.plan.noises_root else sum(self.world.flows.values())

    def queries(self) -> list[Query]:
        """The same measurements by the reference."""
        return first_pass(
            self.reference,
            self.world.flows,
            lambda variance, level, position: int(self.noise.draw(variance, level, position, 1)[0]),
            {step.level: step.variance for step in self.plan.steps},
            total_is_public=not self.plan.noises_root,
            keeps_all=self.plan.keeps_all,
            order=self.plan.mechanism.order,
        )

    def areas_of(self, levels: list[Nodes]) -> list[dict[Node, int]]:
        return [self.world.areas_of(self.plan.tree, nodes) for nodes in levels]


def rows(nodes: Nodes) -> list[tuple[int, int, int]]:
    return list(zip(nodes.origin.tolist(), nodes.destination.tolist(), nodes.trips.tolist(), strict=True))


def values(random: Random, *edges: int) -> ListedNoise:
    """Noise of values near some numbers."""
    return ListedNoise([random.choice(edges) + random.randint(-9, 9) for _ in range(random.randint(1, 12))])


NOISES: dict[str, Callable[[Random], ListedNoise | SeededNoise]] = {
    "none": lambda random: no_noise(),
    "planned": lambda random: SeededNoise(random.randrange(2**32)),
    "small": lambda random: values(random, 0),
    "outliers": lambda random: values(random, 0, 0, 0, 0, FAR, -FAR, 1000, -1000),
    "negative": lambda random: values(random, -15, -40, -FAR),
}


@cache
def zones(seed: int, depth: int) -> tuple[tuple[Area, ...], Geography]:
    """Zones as areas, up to three below each; often one below each area of a whole level."""
    random = Random(seed)
    tree: list[Area] = [()]
    for _ in range(depth):
        most = random.choice([1, 2, 3])
        tree = [(*area, f"{'/'.join(area)}/{child}") for area in tree for child in range(random.randint(1, most))]
    return tuple(tree), geography_of(tree)


def case_of(random: Random, noise: str = "any", most_trips: int = 12) -> Case:
    """A plan of any kind over two different small geographies; no flows, one, or some, of 0 trips too."""
    depth = random.randint(1, 3)
    (origins, origin), (destinations, destination) = (zones(random.randrange(30), depth) for _ in range(2))
    pairs = [(random.choice(origins), random.choice(destinations)) for _ in range(random.choice([0, 1, 6, 12]))]
    plan = plan_release(
        origin,
        destination_geography=destination,
        unit=random.choice(UNITS),
        budget=Budget(**random.choice(PROMISES), delta=1e-8, shares=random.choice(SHARES)),
        mechanism=InfTDARefined(random.choice(ORDERS), keep_all_cap=random.choice([0, 0, 12, KEEP_ALL_CAP])),
        tree=random.choice(TREES),
    )
    world = World(list(origins), list(destinations), {pair: random.randint(0, most_trips) for pair in pairs})
    return Case(world, plan, NOISES[random.choice(list(NOISES)) if noise == "any" else noise](random))


def assert_consistent(case: Case, levels: list[dict[Node, int]]) -> None:
    """Whole numbers of at least 1 in tree order, that sum to the level above and, at the root, to n."""
    public = case.reference.levels()
    depths = [0] + [step.level for step in case.plan.steps if step.level > 0]
    assert [len(o) + len(d) for nodes in levels for o, d in list(nodes)[:1]] == depths[: sum(map(bool, levels))]
    for depth, nodes in zip(depths, levels, strict=True):
        assert all(type(trips) is int and trips >= 1 for trips in nodes.values())
        assert list(nodes) == [node for node in public[depth] if node in nodes]
        assert sum(nodes.values()) == sum(levels[0].values())
    for above, nodes in zip(levels, levels[1:], strict=False):
        assert {node: trips_below(node, nodes) for node in above} == above
    if case.total is not None:
        assert sum(levels[0].values()) == case.total


@settings(max_examples=500)
@given(seed=SEEDS)
def test_the_same_noise_gives_the_refinement_of_the_reference(seed):
    """What is measured, and the integers of every level, are identical; and they are a table that may be released."""
    case = case_of(Random(seed))
    release, nodes = case.released()
    queries, levels = case.queries(), case.areas_of(nodes)
    event(f"unmeasured levels: {len(case.plan.unmeasured_levels)}, keeps all: {case.plan.keeps_all}")
    assert [m.step.level for m in release.measured] == [query.level for query in queries]
    for measurement, query in zip(release.measured, queries, strict=True):
        assert measurement.noisy.values().tolist() == list(query.noisy.values())
    assert levels == refined(queries, case.total, case.plan.mechanism.order)
    assert_consistent(case, levels)


@given(seed=SEEDS)
def test_without_noise_the_truth_comes_back(seed):
    case = case_of(Random(seed), "none")
    _, nodes = case.released()
    public = case.reference.levels()
    for level, found in zip(nodes, case.areas_of(nodes), strict=True):
        truth = {node: trips_below(node, case.world.flows) for node in public[level.level]}
        assert found == {node: trips for node, trips in truth.items() if trips > 0}


@settings(max_examples=150)
@given(seed=SEEDS, power=st.integers(33, 60))
def test_values_near_the_limits_are_refined_rightly_or_refused(seed, power):
    """The reference has no limits: where the release is not refused, it is the right one."""
    case = case_of(random := Random(seed))
    case.noise = values(random, 0, 2**power, -(2**power), *random.choice([[], [2**61 - 10, 10 - 2**61]]))
    try:
        release, nodes = case.released()
    except OdError as error:
        event("refused")
        assert error.code in ("OD-REFINEMENT-OVERFLOW", "OD-INTOPT-OVERFLOW")
        return
    event("refined")
    assert case.areas_of(nodes) == refined(case.queries(), case.total, case.plan.mechanism.order)
    assert_consistent(case, case.areas_of(nodes))
