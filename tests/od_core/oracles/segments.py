"""Releases by segment of small random trees, and what their measurements say by dense linear algebra.

The unknowns of a node below which nothing was measured are its total and, for each breakdown, all categories but the
last, which is what is left of the total. So nothing is assumed of the precisions, and no total is told apart from the
differences between categories. An exact n is put in for the total of one node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core import Budget, InfTDARefined, NoiseSource, PrivacyUnit, plan_release
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from tests.od_core.doubles import SeededLaplace
from tests.od_core.oracles.inftda import Area, Node, Tree
from tests.od_core.oracles.intervals import UNITS, Released, within, zones_of_both_sides
from tests.od_core.strategies import geography_of, text, trees_for

KEEPING, DROPPING = InfTDARefined(), InfTDARefined(keep_all_cap=0)
LAPLACE = InfTDARefined(noise_distribution="laplace")
ROOT: Node = ((), ())
SHARES = [None, "uniform", "geography", ("geometric", Fraction(1, 3)), ("geometric", 3)]

Values = NDArray[np.float64]
Cell = tuple[Any, ...]
"""Origin zone, destination zone, and a category of each breakdown."""


@dataclass
class SegmentCase(Released):
    """A release by segment, with its true trips, and as they were counted."""

    segments: dict[str, list[str]]
    truth: Counter[Cell]
    counts: TripCounts

    @property
    def plan(self) -> Any:
        return self.release.plan

    @property
    def trips(self) -> int:
        return self.truth.total()

    @cached_property
    def nodes(self) -> list[list[Node]]:
        """All public nodes of levels 0 to T, in tree order."""
        return Tree(self.origins, self.destinations, self.tree.order).levels()

    def named(self, level: int, nodes: Any) -> list[Node]:
        """Nodes of the library by their areas."""
        origins, destinations = (self.areas(side, n) for side, n in enumerate(self.tree.level_pair(level)))
        return [(origins[o], destinations[d]) for o, d in zip(nodes.origin, nodes.destination, strict=True)]

    def true(self, node: Node, name: str | None = None, category: str | None = None) -> int:
        """True trips of a node, or those in a category."""
        place = None if name is None else 2 + list(self.segments).index(name)
        of_category = [(cell, n) for cell, n in self.truth.items() if place is None or cell[place] == category]
        return sum(trips for cell, trips in of_category if within(cell[:2], node))

    def cells(self, step: Any) -> list[Node]:
        """The measured nodes of a step: all public nodes of its level below the kept ones."""
        [measured] = [m for m in self.release.measured if m.step == step]
        if measured.parents is None or step.level == 0:
            return self.nodes[step.level] if len(measured.noisy) else []
        kept = set(self.named(measured.parents.level, measured.parents))
        return [node for node in self.nodes[step.level] if any(within(node, parent) for parent in kept)]

    def measured(self) -> Iterator[tuple[int, str | None, float, Values, list[Node]]]:
        """Level, breakdown or None, variance, noisy values of shape (nodes, categories or 1), and the nodes."""
        for m in self.release.measured:
            name = getattr(m.step, "breakdown", None)
            columns = 1 if name is None else len(self.segments[name])
            nodes = self.cells(m.step)
            values = m.noisy.read_values().reshape(len(nodes), columns).astype(float)
            yield m.step.level, name, float(m.step.variance), values, nodes

    @cached_property
    def dense(self) -> DenseSegments:
        return DenseSegments.of(self)

    def combined(self) -> dict[int, dict[Node, tuple[float, float]]]:
        """By level: the mean of total and sums of segments, weighted by precision, and its variance."""
        found: dict[int, dict[Node, tuple[float, float]]] = {}
        levels = {level for level, name, *_ in self.measured() if name is None}
        for level in sorted(levels):
            of_level = [(v, x, nodes) for at, _, v, x, nodes in self.measured() if at == level]
            own = [(1 / (v * x.shape[1]), x.sum(axis=1), nodes) for v, x, nodes in of_level]
            precision = sum(w for w, _, _ in own)
            mean = sum(w * x for w, x, _ in own) / precision
            found[level] = {node: (value, 1 / precision) for node, value in zip(own[0][2], mean, strict=True)}
        return found


@dataclass
class DenseSegments:
    """Generalised least squares over all measured queries.

    Attributes:
        columns: nodes below which nothing was measured.
        segments: categories of each breakdown.
        estimate, covariance: of the unknowns of each column.
    """

    columns: list[Node]
    segments: dict[str, list[str]]
    estimate: Values
    covariance: Values

    @classmethod
    def of(cls, case: SegmentCase) -> DenseSegments:
        queries = list(case.measured())
        every = {node for *_, nodes in queries for node in nodes}
        columns = sorted(node for node in every if not any(other != node and within(other, node) for other in every))
        dense = cls(columns, case.segments, np.zeros(0), np.zeros((0, 0)))
        if not columns:
            return dense
        rows, values = [], []
        for _, name, variance, noisy, nodes in queries:
            categories = [None] if name is None else case.segments[name]
            for node, row in zip(nodes, noisy, strict=True):
                for category, value in zip(categories, row, strict=True):
                    rows.append(dense.sum_of([within(c, node) for c in columns], name, category) / variance**0.5)
                    values.append(value / variance**0.5)
        free, first = np.eye(len(rows[0])), np.zeros(len(rows[0]))
        if case.plan.publishes_total:  # the total of the first column is n less the others
            free = np.delete(free, 0, axis=1)
            free[0] = np.delete(-dense.sum_of([True] * len(columns), None, None), 0)
            first[0] = case.trips
        matrix = np.array(rows)
        q, r = np.linalg.qr(matrix @ free)
        back = free @ np.linalg.inv(r) if r.size else free
        dense.estimate = first + back @ (q.T @ (np.array(values) - matrix @ first))
        dense.covariance = back @ back.T
        return dense

    def sum_of(self, taken: Sequence[bool], name: str | None, category: str | None) -> Values:
        """Coefficients, in the unknowns, of the trips of some columns, or of those in a category."""
        places: dict[tuple[str | None, str | None], int] = {(None, None): 0}
        for each, listed in self.segments.items():
            places |= {(each, one): len(places) + k for k, one in enumerate(listed[:-1])}
        one = np.zeros(len(places))
        if (name, category) in places:
            one[places[name, category]] = 1
        else:
            one[0] = 1
            one[[place for (each, _), place in places.items() if each == name]] = -1
        return np.kron(np.array(taken, dtype=float), one)

    def fit(self, coefficients: Values) -> tuple[float, float]:
        """Estimate and variance of a linear function of the unknowns."""
        variance = float(coefficients @ self.covariance @ coefficients)
        return float(coefficients @ self.estimate), max(0.0, variance)

    def total(self, taken: Sequence[bool]) -> tuple[float, float]:
        return self.fit(self.sum_of(taken, None, None))

    def segment(self, taken: Sequence[bool], name: str, category: str) -> tuple[float, float]:
        return self.fit(self.sum_of(taken, name, category))

    def contrast(self, taken: Sequence[bool], name: str, category: str) -> tuple[float, float]:
        """Of a category less the mean of all categories."""
        mean = self.sum_of(taken, None, None) / len(self.segments[name])
        return self.fit(self.sum_of(taken, name, category) - mean)

    def inside(self, node: Node) -> list[bool]:
        return [within(column, node) for column in self.columns]


def segment_case(
    random: Random,
    mechanism: InfTDARefined = KEEPING,
    *,
    least_trips: int = 0,
    most_trips: int = 9,
    most_pairs: int = 20,
    noise: NoiseSource | None = None,
    **changes: Any,
) -> SegmentCase:
    """A release over two different geographies, with up to three breakdowns."""
    origins, destinations = zones_of_both_sides(random, most_pairs)
    sizes = random.choice([[2], [3], [5], [3, 2], [2, 4], [2, 3, 2]])
    segments = {f"k{j}": [f"{j}:{s}" for s in range(size)] for j, size in enumerate(sizes)}
    filled = random.choice([0.05, 0.4, 1.0])
    truth: Counter[Cell] = Counter()
    for cell in product(origins, destinations, *segments.values()):
        if least_trips or random.random() < filled:
            truth[cell] = random.randint(least_trips, most_trips)
    budget: dict[str, Any] = {"rho": random.choice([Fraction(1, 10**6), Fraction(1, 50), 1, 5])}
    extreme = [Fraction(1, 1000)]
    if mechanism.has_laplace_noise:  # rounded weights are as good as exact ones where none is very small
        extreme = []
        budget = {"epsilon": random.choice([Fraction(1, 1000), Fraction(1, 4), 3, 20]), "delta": 0}
    given = {
        "unit": random.choice(UNITS),
        "budget": budget,
        "shares": random.choice(SHARES),
        "segment_share": random.choice([None, None, "1/3", "0.9", *extreme]),
        "order": random.choice(trees_for(mechanism)),
    }
    given = {"mechanism": mechanism, "noise": noise or SeededLaplace(random.randrange(2**32))} | given
    return made(origins, destinations, segments, truth, **given | changes)


def made(
    origins: list[Area],
    destinations: list[Area],
    segments: dict[str, list[str]],
    truth: Counter[Cell],
    *,
    noise: NoiseSource,
    mechanism: InfTDARefined = KEEPING,
    unit: PrivacyUnit = UNITS[0],
    budget: dict[str, Any],
    shares: Any = None,
    segment_share: Any = None,
    order: str = "destination",
) -> SegmentCase:
    """A release of some true trips."""
    given = {"unit": unit, "mechanism": mechanism, "tree": order, "acceptance": NO_FAULTS, "segments": segments}
    given |= {"budget": Budget(**{"delta": 1e-8} | budget, shares=shares), "segment_share": segment_share}
    plan = plan_release(geography_of(origins), destination_geography=geography_of(destinations), **given)
    counts = count_trips(frame_of(truth, segments), plan.tree, breakdowns=plan.segments.breakdowns)
    release = run_plan(plan, counts, noise, MemoryMeasurements())
    return SegmentCase(origins, destinations, release, segments, +truth, counts)


def frame_of(truth: Counter[Cell], segments: dict[str, list[str]]) -> pd.DataFrame:
    """Trips as release_flows takes them: zone codes, a column of each breakdown, and trips."""
    zones = {side: text(cell[k][-1] for cell in truth) for k, side in enumerate(["origin", "destination"])}
    columns = zones | {name: text(cell[k] for cell in truth) for k, name in enumerate(segments, start=2)}
    trips = np.array(list(truth.values()), dtype=np.int64)
    return pd.DataFrame({**columns, "trips": trips})


def cells_of(case: SegmentCase, levels: tuple[int, int]) -> tuple[list, np.ndarray]:
    """All public pairs of two levels by their areas, and by their numbers."""
    origins, destinations = case.areas(0, levels[0]), case.areas(1, levels[1])
    numbers = np.array(list(product(range(len(origins)), range(len(destinations)))), dtype=np.int32)
    return [(origins[o], destinations[d]) for o, d in numbers], numbers
