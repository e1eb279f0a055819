"""The refinement against a second one written as dictionaries, against linear algebra, and what must always hold."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from od_core import Budget, Geography, OdError, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows.estimation.levels import Measurement, make_published_root
from od_core.flows.estimation.refinement import refine
from od_core.flows.mechanisms import KEEP_ALL_CAP, InfTDARefined
from od_core.flows.projection.onto_parents import ORDERS
from od_core.flows.release import Release, run_plan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.ledger.measurements import MemoryMeasurements, NoisyVector
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.doubles import ListedNoise, SeededNoise, no_noise
from tests.od_core.oracles.inftda import Area, Node, Tree, trips_below
from tests.od_core.oracles.refinement import ROOT, Query, first_pass, least_squares, refined
from tests.od_core.strategies import TREES, World, geography_of

UNITS = [
    PrivacyUnit("trip", "bounded"),
    PrivacyUnit("trip", "unbounded"),
    PrivacyUnit("user", "bounded", column="user", max_trips=1),
    PrivacyUnit("user", "unbounded", column="user", max_trips=4),
]
SHARES = ["uniform", "geography", "geography", ("geometric", Fraction(1, 3)), ("geometric", 100)]
PROMISES = [{"epsilon": e} for e in ("1e-6", "0.1", 1, 10, 100)] + [{"rho": "1e-15"}]
BUDGETS = [Budget(**promise, delta=1e-8, shares=shares) for promise in PROMISES for shares in SHARES]
BUDGETS += [Budget(epsilon=1, delta=1e-8, shares=("geometric", 1000))] * 4  # parts of what is missing below 2^-20
RANDOMS = st.randoms(use_true_random=True)
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
        counts = TripCounts.from_ranks(places, trips)
        release = run_plan(self.plan, counts, self.noise, MemoryMeasurements())
        levels = refine(self.plan, make_published_root(self.plan, counts.total), release.measured)[0]
        assert rows(levels[-1]) == rows(release.leaves)
        return release, levels

    @property
    def reference(self) -> Tree:
        return Tree(self.world.origins, self.world.destinations, self.plan.tree.order)

    @property
    def rounds_by_squares(self) -> bool:
        """Whether a tree that refines both sides has noise below one trip at its leaves."""
        return self.plan.tree.order == "both" and self.plan.steps[-1].variance < 1

    @property
    def total(self) -> int | None:
        """n where it is an invariant."""
        return sum(self.world.flows.values()) if self.plan.publishes_total else None

    def queries(self) -> list[Query]:
        """The same measurements by the reference."""
        return first_pass(
            self.reference,
            self.world.flows,
            lambda variance, level, position: int(self.noise.draw(variance, level, position, 1)[0]),
            {step.level: step.variance for step in self.plan.steps},
            total_is_public=self.plan.publishes_total,
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
    generator = np.random.default_rng(seed)
    tree: list[Area] = [()]
    for _ in range(depth):
        most = generator.integers(1, 4)
        children = [(area, child) for area in tree for child in range(generator.integers(1, most + 1))]
        tree = [(*area, f"{'/'.join(area)}/{child}") for area, child in children]
    return tuple(tree), geography_of(tree)


def case_of(random: Random, noise: str = "any", most_trips: int = 12) -> Case:
    """A plan of any kind over two different small geographies; no flows, one, or some, of 0 trips too."""
    depth = random.randint(1, 3)
    (origins, origin), (destinations, destination) = (zones(random.randrange(30), depth) for _ in range(2))
    pairs = [(random.choice(origins), random.choice(destinations)) for _ in range(random.choice([0, 1, 6, 12]))]
    given = {"destination_geography": destination, "unit": random.choice(UNITS), "budget": random.choice(BUDGETS)}
    mechanism = InfTDARefined(random.choice(ORDERS), keep_all_cap=random.choice([0, 0, 12, KEEP_ALL_CAP]))
    plan = plan_release(origin, **given, mechanism=mechanism, tree=random.choice(TREES), acceptance=NO_FAULTS)
    world = World(list(origins), list(destinations), {pair: random.randint(0, most_trips) for pair in pairs})
    return Case(world, plan, NOISES[random.choice(list(NOISES)) if noise == "any" else noise](random))


def assert_consistent(case: Case, levels: list[dict[Node, int]]) -> None:
    """Whole numbers of at least 1 in tree order, that sum to the level above and, at the root, to n."""
    public = case.reference.levels()
    depths = [0] + [step.level for step in case.plan.steps if step.level > 0]
    assert [case.reference.level(node) for nodes in levels for node in list(nodes)[:1]] == depths[
        : sum(map(bool, levels))
    ]
    for depth, nodes in zip(depths, levels, strict=True):
        assert all(type(trips) is int and trips >= 1 for trips in nodes.values())
        assert list(nodes) == [node for node in public[depth] if node in nodes]
        assert sum(nodes.values()) == sum(levels[0].values())
    for above, nodes in pairwise(levels):
        assert {node: trips_below(node, nodes) for node in above} == above
    if case.total is not None:
        assert sum(levels[0].values()) == case.total


@given(random=RANDOMS)
def test_the_same_noise_gives_the_refinement_of_the_reference(random):
    """What is measured, and the integers of every level, are identical; and they are a table that may be released."""
    case = case_of(random)
    release, nodes = case.released()
    queries, levels = case.queries(), case.areas_of(nodes)
    event(f"unmeasured levels: {len(case.plan.unmeasured_levels)}, keeps all: {case.plan.keeps_all}")
    assert [m.step.level for m in release.measured] == [query.level for query in queries]
    for measurement, query in zip(release.measured, queries, strict=True):
        assert measurement.noisy.read_values().tolist() == list(query.noisy.values())
    assert levels == refined(queries, case.total, case.plan.mechanism.order, least_squares=case.rounds_by_squares)
    assert_consistent(case, levels)


@given(random=RANDOMS, power=st.integers(33, 60))
def test_values_near_the_limits_are_refined_rightly_or_refused(random, power):
    """The reference has no limits: where the release is not refused, it is the right one."""
    case = case_of(random)
    case.noise = values(random, 0, 2**power, -(2**power), *random.choice([[], [2**61 - 10, 10 - 2**61]]))
    try:
        _, nodes = case.released()
    except OdError as error:
        if error.code not in ("OD-REFINEMENT-OVERFLOW", "OD-INTOPT-OVERFLOW"):
            raise
        event("refused")
        return
    event("refined")
    assert case.areas_of(nodes) == refined(
        case.queries(), case.total, case.plan.mechanism.order, least_squares=case.rounds_by_squares
    )
    assert_consistent(case, case.areas_of(nodes))


@given(random=RANDOMS)
def test_where_nothing_is_cut_it_is_the_least_squares_solution(random):
    """Against linear algebra, at every level.

    IntOpt of values that are whole but for their sum moves none by more than 1, and rounding none by more than 1/2; so
    a node is off by its parent's error (of which it takes a part) and 3/2. The fixed-point weights add less than 1.
    """
    case = case_of(random)
    leaves = case.reference.leaves_below(ROOT)
    assume(len(leaves) <= 100)
    case.world.flows = {leaf: 10**6 + random.randrange(10**6) for leaf in leaves}
    case.noise = ListedNoise([random.randint(-3000, 3000) for _ in range(101)])
    shares = random.choice(["uniform", "geography", ("geometric", Fraction(1, 3)), ("geometric", 3)])
    plan, budget = case.plan, Budget(epsilon=random.choice([1, 10]), delta=1e-8, shares=shares)
    given = {"unit": plan.unit, "mechanism": plan.mechanism, "tree": plan.tree.order, "acceptance": NO_FAULTS}
    case.plan = plan_release(plan.tree.origin, destination_geography=plan.tree.destination, budget=budget, **given)
    queries = case.queries()
    fitted = least_squares(case.reference, queries, case.total)
    found = {nodes.level: case.areas_of([nodes])[0] for nodes in case.released()[1]}
    for number, (query, values) in enumerate(zip(queries, fitted, strict=True)):
        trips = found[query.level]
        assert trips.keys() == values.keys()
        assert max(abs(trips[node] - values[node]) for node in values) <= 1.5 * (number + 1) + 1


def refined_by_hand(plan: ReleasePlan, root: Nodes | None, kept: list[list[int]], noisy: list[list[int]]):
    """Trips of every level; ``kept`` are the destinations of the nodes of the first level that were kept."""
    parents = [None if root is None else root, *(Pairs(1, np.zeros(len(k), np.int32), np.int32(k)) for k in kept)]
    if root is None:
        parents.insert(1, Pairs(0, np.zeros(1, np.int32), np.zeros(1, np.int32)))
    vectors = [NoisyVector.from_arrays([np.array(values, dtype=np.int64)]) for values in noisy]
    measured = [Measurement(*parts) for parts in zip(plan.steps, parents, vectors, strict=True)]
    return [nodes.trips.tolist() for nodes in refine(plan, root, measured)[0]]


def one_level(unit: PrivacyUnit, origins: str, destinations: str) -> ReleasePlan:
    """A plan over so many zones, of equal variances."""
    homes, works = (geography_of([(zone,) for zone in zones]) for zones in (origins, destinations))
    given = {"budget": Budget(rho=1, delta=1e-8, shares="uniform"), "mechanism": InfTDARefined(keep_all_cap=0)}
    return plan_release(homes, destination_geography=works, unit=unit, **given, acceptance=NO_FAULTS)


def test_a_dropped_node_speaks_about_its_parent_but_gets_no_trips():
    """By hand. e is dropped; d is 60 + (66 - 60)/3 = 62 and f 30 + (18 - 30)/3 = 26, of variance 2/3 each.

    So the root is 103 + 3/10 (62 - 8 + 26 - 103) = 96.1; d and f lack 96 - 88 = 8 and get 4 each, then d's leaves 0
    and f's leaves 12, of which the negative one gets its half.
    """
    levels = refined_by_hand(one_level(UNITS[1], "ab", "def"), None, [[0, 2]], [[103], [60, -8, 30], [40, 26, 21, -3]])
    assert levels == [[96], [66, 30], [40, 26, 27, 3]]


@pytest.mark.parametrize(
    ("root", "kept", "noisy"),
    [
        pytest.param(100, 16, [[2**44] * 16, [2**44] * 16], id="what 16 nodes lack"),
        pytest.param(None, 16, [[0], [0] * 16, [2**45 - 2**20] * 16], id="differences of 16 nodes"),
        pytest.param(None, 1, [[100], [100] + [-(2**60)] * 16, [100]], id="values of 16 dropped nodes"),
        pytest.param(None, 1, [[2**46], [0] * 16, [0]], id="gap between two levels"),
        pytest.param(None, 1, [[-(2**46)], [0] * 16, [0]], id="gap between two levels below 0"),
    ],
)
def test_sums_that_would_leave_64_bits_are_refused(root, kept, noisy):
    """Each of them comes out near 0 where it wraps round at 2^64, or within the bits behind the point."""
    plan = one_level(UNITS[0 if root else 1], "o", "abcdefghijklmnopq"[: len(noisy[-2])])
    exact = None if root is None else Nodes(0, np.zeros(1, np.int32), np.zeros(1, np.int32), np.array([root]))
    with pytest.raises(OdError, match="OD-REFINEMENT-OVERFLOW"):
        refined_by_hand(plan, exact, [list(range(kept))], noisy)


@pytest.mark.parametrize(("level", "change"), [(1, -1), (2, 1)])
def test_measurements_of_the_wrong_length_are_refused(level, change):
    noisy = [[103], [60, -8, 30], [40, 26, 21, -3]]
    noisy[level] = (noisy[level] + [1])[: len(noisy[level]) + change]
    with pytest.raises(OdError, match=r"OD-MEASUREMENT-LENGTH.*the level stays charged"):
        refined_by_hand(one_level(UNITS[1], "ab", "def"), None, [[0, 2]], noisy)


@pytest.mark.parametrize(
    "options", [{}, {"mechanism": InfTDARefined(estimate="shrunk")}, {"area_totals": "1/5"}], ids=str
)
def test_an_unmeasured_root_above_one_area_is_refined_under_every_estimator(options) -> None:
    """The total is noisy, and that of the only country: the pipeline checks the root, so it must be there."""
    zones = [("c", region, region + zone) for region in "ab" for zone in "xyz"]
    plan = plan_release(geography_of(zones), unit=UNITS[1], budget=Budget(2, delta="1e-8"), **options)
    assert plan.totals[0].level == 2
    trips = TripCounts.from_ranks(np.arange(36), np.full(36, 50))
    release = run_plan(plan, trips, SeededNoise(1), MemoryMeasurements())
    levels, _ = refine(plan, None, release.measured)
    assert [level.level for level in levels] == [0, 2, 3, 4, 5, 6]
    assert {int(level.trips.sum()) for level in levels} == {int(release.leaves.trips.sum())}
    assert len(levels[0].origin) == 1
