"""Releases of small random trees, and what their measurements say by dense linear algebra, without any tree.

One column a node below which nothing was measured, one row a measured cell: 1 where the column's node lies in the cell.
Where n is public, the columns sum to it (a Lagrange multiplier). The inverse of that system holds the covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from od_core import Budget, Geography, InfTDA, NoiseSource, PrivacyUnit, Release, plan_release
from od_core.flows.mechanisms import MECHANISMS, InfTDARefined
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.doubles import SeededLaplace
from tests.od_core.oracles.inftda import Area, Node
from tests.od_core.strategies import geography_of, trees_for

UNITS = [
    PrivacyUnit("trip", "bounded"),
    PrivacyUnit("trip", "bounded"),
    PrivacyUnit("trip", "unbounded"),
    PrivacyUnit("user", "bounded", column="user", max_trips=2),
    PrivacyUnit("user", "unbounded", column="user", max_trips=3),
]
SHARES = ["uniform", "geography", "geography", ("geometric", Fraction(1, 3)), ("geometric", 3)]
LAPLACE = InfTDARefined(noise_distribution="laplace")
KEEPING: list[Any] = [InfTDARefined(), InfTDARefined(leaves="empirical_bayes"), MECHANISMS["vanilla_gauss"]()]
DROPPING: list[Any] = [InfTDARefined(keep_all_cap=0), InfTDA(), InfTDA("descending"), MECHANISMS["tda_l2"]()]


def random_zones(random: Random, depth: int, most: int = 3, side: str = "") -> list[Area]:
    """Zones of unequal fan-outs; often every area of a level has one child."""
    tree: list[Area] = [()]
    for _ in range(depth):
        widest = random.randint(1, most)
        tree = [(*area, f"{side}{'/'.join(area)}/{k}") for area in tree for k in range(random.randint(1, widest))]
    return tree


def zones_of_both_sides(random: Random, most_pairs: int) -> list[list[Area]]:
    """Zones of origins and of destinations, of so many pairs at most."""
    while True:
        depth = random.randint(1, 3)
        sides = [random_zones(random, depth, side=side) for side in "od"]
        if len(sides[0]) * len(sides[1]) <= most_pairs:
            return sides


@dataclass
class Released:
    """A release over zones by their areas."""

    origins: list[Area]
    destinations: list[Area]
    release: Release

    @property
    def tree(self) -> Any:
        return self.release.plan.tree

    def areas(self, side: int, level: int) -> list[Area]:
        """Areas of a level in tree order, by their codes."""
        zones, geography = ((self.origins, self.tree.origin), (self.destinations, self.tree.destination))[side]
        by_code = {zone[:level][-1] if level else "all": zone[:level] for zone in zones}
        return [by_code[code] for code in geography.codes[level]]

    def is_leaf(self, node: Node) -> bool:
        """Whether both areas are zones."""
        return [*map(len, node)] == [len(self.origins[0]), len(self.destinations[0])]

    def level_pairs(self) -> list[tuple[int, int]]:
        return list(product(range(self.tree.origin.depth + 1), range(self.tree.destination.depth + 1)))


@dataclass
class Case(Released):
    """A release with its true flows by pairs of zones."""

    truth: NDArray[np.int64]

    @property
    def trips(self) -> int:
        return int(self.truth.sum())

    def true(self, origin: Area, destination: Area) -> int:
        """True trips of a pair of areas."""
        return int(self.truth[np.ix_(inside(origin, self.origins), inside(destination, self.destinations))].sum())

    @cached_property
    def dense(self) -> Dense:
        return Dense.of(self)

    @property
    def drops(self) -> bool:
        """Whether nodes were dropped: some measured cells above the leaves have nothing measured below."""
        return not all(map(self.is_leaf, self.dense.columns))


def inside(area: Area, zones: Sequence[Area]) -> list[int]:
    """Numbers of the zones of an area."""
    return [k for k, zone in enumerate(zones) if zone[: len(area)] == area]


def within(node: Node, other: Node) -> bool:
    """Whether a node lies in another, or is it."""
    return all(mine[: len(theirs)] == theirs for mine, theirs in zip(node, other, strict=True))


def around(node: Node) -> frozenset[Node]:
    """All nodes that a node lies in, itself among them: one for each way to shorten its two areas."""
    origins, destinations = ([area[:length] for length in range(len(area) + 1)] for area in node)
    return frozenset(product(origins, destinations))


def meets(node: Node, other: Node) -> bool:
    """Whether two nodes have a pair of zones in common."""
    return all(a[: len(b)] == b or b[: len(a)] == a for a, b in zip(node, other, strict=True))


@dataclass
class Dense:
    """Generalised least squares.

    Attributes:
        columns: nodes below which nothing was measured.
        cells: by the number of the measured level, noisy value and variance of each measured cell.
        estimate: of each column.
        covariance: of these.
    """

    columns: list[Node]
    cells: dict[int, dict[Node, tuple[float, float]]]
    estimate: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @classmethod
    def of(cls, case: Case) -> Dense:
        plan = case.release.plan
        cells: dict[int, dict[Node, tuple[float, float]]] = {}
        for step in plan.steps:
            o_level, d_level = plan.tree.level_pair(step.level)
            sides = (case.areas(0, o_level), case.areas(1, d_level))
            o_area, d_area = ({area[-1] if area else "all": area for area in areas} for areas in sides)
            table = case.release.measurements_at(step.level)
            cells[step.level] = {
                (o_area[o], d_area[d]): (float(noisy), float(step.variance))
                for o, d, noisy in zip(table["origin"], table["destination"], table["noisy"], strict=True)
            }
        every = [node for level in cells.values() for node in level]
        above = {area for node in every for area in around(node) if area != node}
        columns = [node for node in every if node not in above]
        around_columns = [around(column) for column in columns]
        rows = np.array([[node in areas for areas in around_columns] for node in every], dtype=float)
        values = [measured for level in cells.values() for measured in level.values()]
        x, s2 = (np.array(column, dtype=float) for column in zip(*values, strict=True)) if values else np.zeros((2, 0))
        if not columns:
            return cls([], cells, np.zeros(0), np.zeros((0, 0)))
        unit = s2.min()
        normal, right = rows.T * (unit / s2) @ rows, rows.T * (unit / s2) @ x
        if plan.publishes_total:
            one = np.ones((len(columns), 1))
            normal = np.block([[normal, one], [one.T, np.zeros((1, 1))]])
            right = np.append(right, case.trips)
        inverse = np.linalg.inv(normal)
        size = len(columns)
        return cls(columns, cells, (inverse @ right)[:size], inverse[:size, :size] * unit)

    def sum_of(self, taken: NDArray[np.bool_]) -> tuple[float, float]:
        """Estimate and variance of a sum of columns."""
        a = taken.astype(float)
        return float(a @ self.estimate), max(0.0, float(a @ self.covariance @ a))

    def of_node(self, node: Node) -> tuple[float, float]:
        """Of the columns that lie in a node."""
        return self.sum_of(np.array([within(column, node) for column in self.columns], dtype=bool))


def case_of(
    random: Random,
    mechanisms: Sequence[Any],
    *,
    budget: dict[str, Any] | None = None,
    most_trips: int = 12,
    least_trips: int = 0,
    noise: NoiseSource | None = None,
    most_pairs: int = 60,
    area_totals: Fraction | None = None,
) -> Case:
    """A release over two different geographies."""
    origins, destinations = zones_of_both_sides(random, most_pairs)
    filled = random.choice([0.1, 0.5, 1.0])
    truth = np.array(
        [
            [
                random.randint(least_trips, most_trips) if random.random() < filled or least_trips else 0
                for _ in destinations
            ]
            for _ in origins
        ],
        dtype=np.int64,
    )
    return made(
        origins,
        destinations,
        truth,
        mechanism=(mechanism := random.choice(list(mechanisms))),
        unit=random.choice(UNITS),
        budget=Budget(
            **(budget or random.choice([{"epsilon": e} for e in ("0.1", 1, 10, 30)])),
            delta=0 if mechanism.noise_distribution == "laplace" else 1e-8,
            shares=random.choice(SHARES),
        ),
        order=random.choice(trees_for(mechanism)),
        noise=noise or SeededLaplace(random.randrange(2**32)),
        area_totals=area_totals,
    )


def made(
    origins: list[Area],
    destinations: list[Area],
    truth: NDArray[np.int64],
    *,
    mechanism: Any,
    unit: PrivacyUnit = UNITS[0],
    budget: Budget,
    order: str = "destination",
    noise: NoiseSource,
    area_totals: Fraction | None = None,
) -> Case:
    """A release of some true flows, one row an origin, in the order of the zone lists, which may differ in depth."""
    given = {"unit": unit, "budget": _with_levels(budget, mechanism), "mechanism": mechanism, "tree": order}
    given |= {"destination_geography": geography_of(destinations), "acceptance": NO_FAULTS}
    plan = plan_release(geography_of(origins), **given, area_totals=area_totals)
    o, d = (_numbers(g, z) for g, z in ((plan.tree.origin, origins), (plan.tree.destination, destinations)))
    pairs = np.array(list(product(o, d)), dtype=np.int32)
    there = truth.ravel() > 0
    counts = TripCounts.from_pairs(plan.tree, pairs[there, 0], pairs[there, 1], truth.ravel()[there])
    sides = (deepened(zones, max(len(origins[0]), len(destinations[0]))) for zones in (origins, destinations))
    return Case(*sides, run_plan(plan, counts, noise, MemoryMeasurements()), truth)


def deepened(zones: list[Area], depth: int) -> list[Area]:
    """Zones with their first area repeated, as a tree of this depth has them."""
    return [zone[:1] * (depth - len(zone)) + zone for zone in zones]


def _with_levels(budget: Budget, mechanism: Any) -> Budget:
    """Leaves alone have no shares."""
    return budget if mechanism.measures == "every_level" else Budget(budget.epsilon, budget.delta, rho=budget.rho)


def _numbers(geography: Geography, zones: Sequence[Area]) -> list[int]:
    place = {code: k for k, code in enumerate(geography.zones)}
    return [place[zone[-1]] for zone in zones]
