"""Simulate releases of a plan on public or synthetic flows. The noise of these releases is discarded."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.evaluation.known_flows import SEED, KnownFlows
from od_core.evaluation.metrics import Truth
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.flows.queries import Segments
from od_core.flows.release import Release, run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.sources import BACKENDS, noise_named
from od_core.noise.table import DiscreteGaussian, DiscreteLaplace, simulated
from od_core.privacy.budget import Budget, Number
from od_core.records.trip_counts import TripCounts

NOISE = "table"
TOO_WIDE = "OD-FORECAST-NOISE"
"""Error code for noise whose variance is too large for the backend of simulations."""


def on_plan(table: KnownFlows, plan: ReleasePlan) -> tuple[Truth, TripCounts]:
    """Return the true flows and the trip counts of a table, in the order of the plan's flow tree.

    The trips are divided among the categories of the plan's breakdowns at random, with equal chances. The same table
    always gives the same categories.

    Raises:
        OdError: the table is over another geography.
    """
    tree, over = plan.tree, table.truth.tree
    if (tree.origin.digest, tree.destination.digest) != (over.origin.digest, over.destination.digest):
        raise OdError(
            "OD-FORECAST-GEOGRAPHY",
            f"the table {table.name!r} does not have the areas of the plan",
            next_step="give a table with the same zone lists, or a synthetic table",
        )
    truth, trips = table.truth, table.trips
    if tree.order != over.order:
        pairs, counts = over.pairs_at(trips.rank), np.diff(trips.before)
        truth = Truth.from_pairs(tree, pairs.origin, pairs.destination, counts)
        trips = TripCounts.from_pairs(tree, pairs.origin, pairs.destination, counts)
    return truth, _divided(plan, trips)


def _divided(plan: ReleasePlan, trips: TripCounts) -> TripCounts:
    """Return the trips with those of each category of the plan's breakdowns."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    counts, by_segment = np.diff(trips.before), {}
    for breakdown in plan.breakdowns:
        categories = len(breakdown.categories)
        divided = generator.multinomial(counts, [1 / categories] * categories)
        by_segment[breakdown.name] = tuple(
            TripCounts.from_ranks(plan.tree, trips.rank.copy(), divided[:, k]) for k in range(categories)
        )
    return TripCounts(trips.rank, trips.before, by_segment)


class RepeatableNoise:
    """Noise of simulated releases, of the exact distributions, that is the same at every call.

    It follows from public numbers alone, so it protects nothing. It is no backend, and no declaration can name it. It
    depends on the position of the cells, and not on threads.

    Args:
        numbers: numbers that the noise follows from.
    """

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return draws from the discrete Gaussian distribution; shape (size,)."""
        return simulated(DiscreteGaussian(variance), _Words(*self._numbers, level, first), size)

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return draws from the discrete Laplace distribution; shape (size,)."""
        return simulated(DiscreteLaplace(scale), _Words(*self._numbers), size)


class _Words:
    """Pseudo-random words that follow from numbers; see :class:`od_core.noise.table.Words`."""

    def __init__(self, *numbers: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(numbers))

    def words(self, bits: int, size: int) -> NDArray[Any]:
        return self._generator.integers(0, 1 << bits, size, dtype=f"u{bits // 8}")


def simulated_releases(plan: ReleasePlan, trips: TripCounts, runs: int, number: int | None = None) -> Iterator[Release]:
    """Yield releases of a plan, each with its own noise.

    Args:
        plan: plan of the releases.
        trips: trip counts, as :func:`on_plan` returns them.
        runs: number of releases.
        number: number of the simulation, at least 0. Simulations with the same number have the same noise, so that the
            same input gives the same result. If None, the noise is new at every call.

    Raises:
        OdError: the variance of the noise is too large for the backend ``table``.
    """
    noise = noise_named(NOISE)
    if max(step.largest_variance for step in plan.steps) > BACKENDS[NOISE].largest_variance:
        raise OdError(
            TOO_WIDE,
            f"the plan's noise has a standard deviation above {isqrt(BACKENDS[NOISE].largest_variance):,}, the"
            " largest that a forecast draws",
            next_step="request a larger epsilon",
        )
    for run in range(runs):
        yield run_plan(plan, trips, noise if number is None else RepeatableNoise(number, run), MemoryMeasurements())


def with_epsilon(plan: ReleasePlan, epsilon: Number) -> ReleasePlan:
    """Return a plan that differs from the given plan only in epsilon. Raises OdError if :class:`Budget` refuses it."""
    stated = plan.budget
    return with_budget(plan, Budget(epsilon, stated.delta, conversion=stated.conversion, shares=stated.shares))


def with_budget(plan: ReleasePlan, budget: Budget, segments: Segments | None = None) -> ReleasePlan:
    """Return a plan that differs from the given plan only in its budget, and in its segments if they are given.

    It has no bands.
    """
    return plan_release(
        plan.tree.origin,
        unit=plan.unit,
        budget=budget,
        mechanism=plan.mechanism,
        tree=plan.tree.order,
        destination_geography=plan.tree.destination,
        acceptance=plan.acceptance,
        segments=segments or plan.segments,
        uncounted=plan.uncounted,
    )
