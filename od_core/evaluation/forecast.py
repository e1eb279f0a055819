"""Forecast the errors of a plan on a public table, also of other bounds of a user's trips, from simulated releases.

No records are read, and no budget is spent. Simulated releases are discarded: only their errors are returned, so none
of their noise can be used in a release.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.evaluation.comparison import NOISE, STYLE_SHEET
from od_core.evaluation.known_flows import SEED, KnownFlows, draw_pareto_numbers, make_generator, make_gravity_flows
from od_core.evaluation.metrics import (
    Level,
    Truth,
    align_trips,
    compute_area_total_errors,
    make_leaf_nodes,
    sum_trips_by_level,
    sum_trips_by_zone,
)
from od_core.flows.arrays import Integers
from od_core.flows.plan import ReleasePlan
from od_core.flows.release import Release, run_plan
from od_core.flows.step import Segments
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import BACKENDS, resolve_noise_source
from od_core.noise.table_sampler import MAX_TABLE_VARIANCE, DiscreteGaussian, DiscreteLaplace, simulate_draws
from od_core.privacy.accounting import Number
from od_core.privacy.budget import Budget
from od_core.privacy.unit import PrivacyUnit
from od_core.records.counts import TripCounts

RUNS = 5
EPSILONS = ("0.1", "0.3", "1", "3", "10")

TOTALS = ""
"""Name in the column ``breakdown`` of the errors of totals."""

SIZE_CLASSES = (0, 1, 10, 100, 1000)
"""Smallest number of true trips of each size class of cells."""

ALL_SIZES = "all"
CLASS_NAMES = ("0", "1 to 9", "10 to 99", "100 to 999", "1000 and more")

COLUMNS = (
    *("level", "origin_level", "destination_level", "size_class", "cells"),
    *("mean_abs_error", "root_mean_square_error", "relative_error", "share_released", "largest_bias"),
)

PAIRS_OF_A_ZONE = 10
TRIPS_OF_A_ZONE = 1000


def forecast(plan: ReleasePlan, table: KnownFlows, runs: int = RUNS) -> pd.DataFrame:
    """Return the expected errors of a plan, by level and true size of the cells (pairs of areas).

    ``runs`` releases are simulated on a public or synthetic table over the plan's geographies, and compared with it.

    Returns:
        One row per level 0 to T and size class. Two further levels follow: the trips from each zone, and those to each
        zone. The first class of each level is ``all``, and classes without cells are left out. The columns are:

        - level (number), origin_level and destination_level (names);
        - size_class: class of the cells by their trips in the table;
        - cells: number of cells, including cells with 0 trips;
        - mean_abs_error and root_mean_square_error: in trips, over cells and runs;
        - relative_error: sum of the absolute errors divided by the trips of the class; NaN if the class has no trips;
        - share_released: share of the cells with a released number above 0;
        - largest_bias: in the class ``all`` of the trips from and to each zone, the bias of the largest zones, as in
          :func:`od_core.evaluate_area_totals`; mean over the runs, and NaN in all other rows.

        If the plan has segments, there is also a column ``breakdown`` after ``destination_level``. It is empty for
        totals. For the flows by category, it has the name of the breakdown, and a category of a pair of areas is a
        cell. The trips of the table are divided among the categories at random, with equal chances.

    Raises:
        OdError: the table is over another geography, ``runs`` is below 1, or the variance of the noise is too large for
            the backend ``table``.
    """
    if runs < 1:
        raise OdError("OD-FORECAST-RUNS", "a forecast needs at least one run", next_step="request at least one run")
    tree, trips = plan.tree, arrange_counts_for_plan(table, plan)
    truths = {
        name: Truth.from_counts(tree, trips, name or None) for name in (TOTALS, *(b.name for b in plan.breakdowns))
    }
    true_totals = sum_trips_by_zone(tree, make_leaf_nodes(tree, trips))
    origin = tree.origin
    destination = tree.destination
    totals = [(origin.level_names[-1], WHOLE_SPACE), (WHOLE_SPACE, destination.level_names[-1])]
    names, biases = [*tree.level_names, *totals[: len(true_totals)]], []
    sums = {name: np.zeros((len(names), 5, len(SIZE_CLASSES))) for name in truths}
    for release in simulate_releases(plan, trips, runs, 0):
        for name, true in truths.items():
            released = sum_trips_by_level(tree, release.leaves, release.segments.get(name))
            for level, pair in enumerate(zip(true.levels, released, strict=True)):
                sums[name][level] += _sum_by_size_class(*pair, tree.cells(level) * true.categories)
        own_totals = sum_trips_by_zone(tree, release.leaves)
        for level, side in enumerate(true_totals, tree.depth + 1):
            zones = np.arange(len(true_totals[side]))
            sums[TOTALS][level] += _sum_by_size_class((zones, true_totals[side]), (zones, own_totals[side]), len(zones))
        biases.append([row["largest_bias"] for row in compute_area_total_errors(true_totals, own_totals)])
    errors = [
        _compute_class_errors(own[level] / runs).assign(
            level=level, origin_level=origin_level, destination_level=destination_level, breakdown=name
        )
        for name, own in sums.items()
        for level, (origin_level, destination_level) in enumerate(names)
    ]
    found = pd.concat(errors, ignore_index=True)
    of_totals = (found["level"] > tree.depth) & (found["size_class"] == ALL_SIZES)
    found.loc[of_totals, "largest_bias"] = np.mean(biases, axis=0)
    columns = [*COLUMNS[:3], *(["breakdown"] if plan.breakdowns else []), *COLUMNS[3:]]
    return found[columns]


def draw_forecast(errors: pd.DataFrame, path: Path) -> None:
    """Write an SVG figure of the forecast mean absolute error of each level against epsilon, on logarithmic axes.

    The same errors give the same bytes. They have the columns epsilon, declared (true for the declared epsilon, marked
    by a dotted line), and those of :func:`forecast`.
    """
    from matplotlib import colormaps, style
    from matplotlib.figure import Figure

    shown = errors[(errors["size_class"] == ALL_SIZES) & (errors["mean_abs_error"] > 0)]
    with style.context(STYLE_SHEET):
        figure = Figure(figsize=(6.5, 4.0), layout="constrained")
        axes = figure.subplots()
        colours = colormaps["viridis"]
        levels = shown["level"].drop_duplicates().to_list()
        for number, level in enumerate(levels):
            rows = shown[shown["level"] == level]
            label = f"{level}: {rows['origin_level'].iloc[0]} to {rows['destination_level'].iloc[0]}"
            colour = colours(0.9 * number / max(len(levels) - 1, 1))
            axes.plot(rows["epsilon"], rows["mean_abs_error"], marker="o", markersize=3.5, color=colour, label=label)
        for epsilon in errors.loc[errors["declared"], "epsilon"].unique():
            axes.axvline(epsilon, color="#222222", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", xlabel="epsilon (dotted: declared)", ylabel="mean absolute error (trips)")
        if levels:
            figure.legend(loc="outside right upper", title="level")
        figure.savefig(path, metadata={"Date": None})


def make_synthetic_table(geography: Geography, destination_geography: Geography | None = None) -> KnownFlows:
    """Return synthetic flows over public geographies, on which to forecast if there is no public table.

    The same geographies always give the same flows. Within one geography, the flows follow a gravity model. Between two
    geographies, they depend on random sizes of the zones alone, because it is not known how the two are related. Raises
    OdError if a single geography has fewer than 3 zones, or two geographies have different numbers of levels.
    """
    zones = len(geography.zones)
    if destination_geography is None or destination_geography.digest == geography.digest:
        pairs = min(PAIRS_OF_A_ZONE * zones, zones**2 // 2)
        return KnownFlows.from_synthetic_flows(
            make_gravity_flows(SEED, geography, pairs=pairs, trips=TRIPS_OF_A_ZONE * zones)
        )
    tree, width = FlowTree(geography, destination_geography), len(destination_geography.zones)
    most = max(zones, width)
    pairs = min(PAIRS_OF_A_ZONE * most, (tree.cells(tree.depth) + 1) // 2)
    generator = make_generator(SEED)
    sizes = [draw_pareto_numbers(generator, count, 1.2) for count in (zones, width)]
    ends = [generator.choice(len(size), 4 * pairs, p=size / size.sum()) for size in sizes]
    cells = np.unique(ends[0].astype(np.int64) * width + ends[1])
    chosen = np.sort(generator.choice(cells, min(pairs, len(cells)), replace=False))
    origin, destination = (zone.astype(np.int32) for zone in np.divmod(chosen, width))
    weight = sizes[0][origin] * sizes[1][destination]
    counts = 1 + generator.multinomial(TRIPS_OF_A_ZONE * most - len(chosen), weight / weight.sum())
    return KnownFlows("sizes", "synthetic", tree, TripCounts.from_pairs(tree, origin, destination, counts))


def _sum_by_size_class(true: Level, released: Level, cells: int) -> NDArray[np.float64]:
    """Return five sums for each size class of one level; shape (5, classes).

    They are the number of cells, the absolute errors, the squared errors, the trips, and the number of cells with a
    released number above 0. ``cells`` is the number of all cells of the level.
    """
    trips, found = align_trips(true, released)
    size = np.searchsorted(SIZE_CLASSES, trips, side="right") - 1
    error = np.abs(found - trips).astype(np.float64)
    values = (np.ones(len(trips)), error, error**2, trips, found > 0)
    sums = np.array([np.bincount(size, each, minlength=len(SIZE_CLASSES)) for each in values])
    sums[0, 0] += cells - len(trips)  # cells that have trips in neither table
    return sums


def _compute_class_errors(sums: NDArray[np.float64]) -> pd.DataFrame:
    """Return the errors of one level from its sums, first for all cells and then for each size class that has cells."""
    cells, absolute, squared, trips, positive = np.hstack([sums.sum(axis=1, keepdims=True), sums])
    with np.errstate(divide="ignore", invalid="ignore"):
        every = pd.DataFrame(
            {
                "size_class": [ALL_SIZES, *CLASS_NAMES],
                "cells": np.rint(cells).astype(np.int64),
                "mean_abs_error": absolute / cells,
                "root_mean_square_error": np.sqrt(squared / cells),
                "relative_error": np.where(trips > 0, absolute / trips, np.nan),
                "share_released": positive / cells,
            }
        )
    return every[every["cells"] > 0]


TOO_WIDE = "OD-FORECAST-NOISE"
"""Error code for noise whose variance is too large for the backend of simulations."""


def arrange_counts_for_plan(table: KnownFlows, plan: ReleasePlan) -> TripCounts:
    """Return the trip counts of a table, in the order of the plan's flow tree.

    The trips are divided among the categories of the plan's breakdowns at random, with equal chances. The same table
    always gives the same categories. Raises OdError if the table is over another geography.
    """
    tree, over = plan.tree, table.tree
    if (tree.origin.digest, tree.destination.digest) != (over.origin.digest, over.destination.digest):
        message = f"the table {table.name!r} does not have the areas of the plan"
        step = "give a table with the same zone lists, or a synthetic table"
        raise OdError("OD-FORECAST-GEOGRAPHY", message, next_step=step)
    trips = table.trips
    if tree.order != over.order:
        leaves = make_leaf_nodes(over, trips)
        trips = TripCounts.from_pairs(tree, leaves.origin, leaves.destination, leaves.trips)
    generator = make_generator(SEED)
    counts, by_segment = np.diff(trips.before), {}
    for breakdown in plan.breakdowns:
        categories = len(breakdown.categories)
        divided = generator.multinomial(counts, [1 / categories] * categories)
        by_segment[breakdown.name] = tuple(TripCounts.from_ranks(trips.rank, divided[:, k]) for k in range(categories))
    return TripCounts(trips.rank, trips.before, by_segment)


class RepeatableNoise:
    """Noise of the exact distributions that follows from some numbers and from the position of cells.

    It protects nothing, so it is no backend, and no declaration can name it. Dry runs of declarations use it.
    """

    largest_variance: ClassVar[int] = MAX_TABLE_VARIANCE

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return draws from the discrete Gaussian distribution; shape (size,)."""
        return simulate_draws(DiscreteGaussian(variance), _Words(*self._numbers, level, first), size)

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return draws from the discrete Laplace distribution; shape (size,)."""
        return simulate_draws(DiscreteLaplace(scale), _Words(*self._numbers), size)


class _Words:
    """Pseudo-random words that follow from numbers; see :class:`od_core.noise.table_sampler.Words`."""

    def __init__(self, *numbers: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(numbers))

    def draw_words(self, bits: int, size: int) -> NDArray[Any]:
        return self._generator.integers(0, 1 << bits, size, dtype=f"u{bits // 8}")


def simulate_releases(plan: ReleasePlan, trips: TripCounts, runs: int, number: int | None = None) -> Iterator[Release]:
    """Yield ``runs`` releases of a plan, each with its own noise.

    The trip counts are those of :func:`arrange_counts_for_plan`. Simulations with the same ``number`` have the same
    noise. If it is None, the noise is new at every call. Raises OdError if the variance of the noise is too large for
    the backend ``table``.
    """
    noise = resolve_noise_source(NOISE)
    if max(step.variance_bound for step in plan.charged_steps) > BACKENDS[NOISE].largest_variance:
        raise OdError(
            TOO_WIDE,
            f"the plan's noise has a standard deviation above {math.isqrt(BACKENDS[NOISE].largest_variance):,}, the"
            " largest that a forecast draws",
            next_step="request a larger epsilon",
        )
    for run in range(runs):
        yield run_plan(plan, trips, noise if number is None else RepeatableNoise(number, run), MemoryMeasurements())


def with_epsilon(plan: ReleasePlan, epsilon: Number) -> ReleasePlan:
    """Return a plan with another epsilon and without bands. Raises OdError if :class:`Budget` refuses it."""
    stated = plan.budget
    return with_budget(plan, Budget(epsilon, stated.delta, conversion=stated.conversion, shares=stated.shares))


def with_budget(plan: ReleasePlan, budget: Budget, segments: Segments | None = None) -> ReleasePlan:
    """Return a plan with another budget, with other segments if they are given, and without bands."""
    return replace(plan, budget=budget, bands=None, segments=segments or plan.segments)


Mask = NDArray[np.bool_]

Users = tuple[float, Sequence[tuple[int, int]]]
"""The share of users who travel alike, of any sum, and numbers of pairs of zones with a user's trips of each pair."""


def parse_users(text: str) -> Users:
    """Return the users that a text describes.

    ``60: 2x9 4x1`` are a share of 60 with 9 trips for each of 2 pairs of zones, such as to and from work, and 1 for
    each of 4 others. Raises OdError if the text has another form.
    """
    share, _, pairs = text.partition(":")
    parts = [re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,2})", part) for part in pairs.split()]
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", share) or float(share) == 0 or not parts or None in parts:
        step = "give a share of the users, and their pairs of zones x trips, such as '60: 2x9 4x1'"
        raise OdError("OD-BOUNDS-USERS", f"{text!r} does not describe users", next_step=step)
    return float(share), [(int(part[1]), int(part[2])) for part in parts if part]


@dataclass(frozen=True, eq=False, repr=False)
class UserTrips:
    """Public or synthetic trips of a period: the ranks of their leaf pairs, and the numbers of their users, from 0.

    ``rank`` and ``user`` have the shape (trips,). Errors computed from the trips are NOT private.
    """

    tree: FlowTree
    rank: Integers
    user: Integers

    @classmethod
    def simulate(cls, known: KnownFlows, plan: ReleasePlan, users: Sequence[Users]) -> UserTrips:
        """Make up users with about as many trips in all as known flows, always the same.

        The pairs of a user are drawn with the chances of the flows, each by itself, so a few are drawn twice. Raises
        OdError if there are no flows, or they are over another geography.
        """
        trips, generator = arrange_counts_for_plan(known, plan), make_generator(SEED)
        if not trips.total:
            raise OdError("OD-BOUNDS-USERS", f"{known.name} has no trips", next_step="give a table with trips")
        shares = np.cumsum([share for share, _ in users])
        mean = sum(share * pairs * of_pair for share, travel in users for pairs, of_pair in travel) / shares[-1]
        ends = np.rint(shares / shares[-1] * max(round(trips.total / mean), 1)).astype(np.int64)
        rank, user = list[Integers](), list[Integers]()
        for (_, travel), first, end in zip(users, [0, *ends], ends, strict=False):
            for pairs, of_pair in travel:
                one = generator.integers(0, trips.total, (end - first) * pairs)
                rank.append(np.repeat(trips.rank[np.searchsorted(trips.before, one, side="right") - 1], of_pair))
                user.append(np.repeat(np.arange(first, end), pairs * of_pair))
        return cls(plan.tree, np.concatenate(rank), np.concatenate(user))

    def mark_counted_trips(
        self, max_trips: int, max_trips_pair: int | None = None, left: Integers | None = None
    ) -> Mask:
        """Return which trips a release counts, in a random order in place of the keyed one; shape (trips,).

        ``left`` is the largest number of trips that the year allows each user; shape (users,).
        """
        counted = np.ones(len(self.rank), dtype=np.bool_)
        if max_trips_pair is not None:
            counted = self._count_trips_before(counted, "pair") < max_trips_pair
        allowed = max_trips if left is None else np.minimum(left, max_trips)[self.user]
        return counted & (self._count_trips_before(counted, "user") < allowed)

    def mark_trips_within_bounds(self, unit: PrivacyUnit, periods: int = 1) -> Mask:
        """Return which trips the bounds of a unit leave; shape (trips,).

        Under a unit of a year, a user makes these trips in each of ``periods`` periods of a year, and the trips are
        those of an average one: as many users are in their first period as in any other one.
        """
        counted = self.mark_counted_trips(*unit.bounds)
        if unit.max_trips_year is None:
            return counted
        of_user = np.bincount(self.user[counted], minlength=int(self.user.max()) + 1)
        before = make_generator(SEED).permutation(len(of_user)) % periods
        return self.mark_counted_trips(*unit.bounds, np.maximum(unit.max_trips_year - of_user * before, 0))

    def count_flows(self, chosen: Mask) -> KnownFlows:
        """Return the flows of chosen trips; shape (trips,)."""
        trips = TripCounts.from_ranks(self.rank[chosen], np.ones(int(chosen.sum()), dtype=np.int64))
        return KnownFlows("trips of users", "synthetic", self.tree, trips)

    def make_flows_within(self, max_trips_pair: int | None) -> KnownFlows:
        """Return the flows of the trips that a pair cap alone leaves; of all trips without one."""
        if max_trips_pair not in self._flows_within:
            self._flows_within[max_trips_pair] = self.count_flows(
                self.mark_counted_trips(len(self.rank), max_trips_pair)
            )
        return self._flows_within[max_trips_pair]

    @cached_property
    def _flows_within(self) -> dict[int | None, KnownFlows]:
        """Flows that :meth:`make_flows_within` returned, since many bounds have the same pair cap."""
        return {}

    @cached_property
    def _sorted(self) -> dict[str, tuple[Integers, Integers]]:
        """Trips in a random order, by user and by user and pair, and the first of each group; shape (trips,) each."""
        found, random = {}, make_generator(SEED).permutation(len(self.rank))
        for name, groups in {"user": (self.user,), "pair": (self.user, self.rank)}.items():
            order, is_first = np.lexsort((random, *groups)), np.zeros(len(random), dtype=np.bool_)
            for group in groups:
                is_first[1:] |= group[order[1:]] != group[order[:-1]]
            found[name] = order, np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
        return found

    def _count_trips_before(self, among: Mask, group: str) -> Integers:
        """Return how many of the trips ``among`` some come before each trip in its group; shape (trips,)."""
        order, first = self._sorted[group]
        place, before = np.empty(len(order), dtype=np.int64), np.cumsum(among[order], dtype=np.int64) - among[order]
        place[order] = before - before[first]
        return place


def iterate_candidate_bounds(unit: PrivacyUnit, periods: int = 1) -> Iterator[PrivacyUnit]:
    """Yield a unit with half, once and twice its m, some c and, if there is one, its M and one that never binds."""
    declared, most = unit.contribution_bound, unit.max_trips_year
    for m in sorted({max(declared // 2, 1), declared, 2 * declared}):
        for of_year in (None,) if most is None else sorted({max(m, most), m * periods}):
            for c in (None, *(c for c in (1, 2, 5) if c < m)):
                yield replace(unit, max_trips=m, max_trips_pair=c, max_trips_year=of_year)


def with_bounds(plan: ReleasePlan, unit: PrivacyUnit, periods: int = 1) -> ReleasePlan:
    """Return a plan with other bounds that costs a user the same rho: a release, or ``periods`` releases of a year."""
    bounded = replace(plan, unit=unit, bands=None)
    rho = bounded.spent.rho
    if unit.max_trips_year is not None:
        rho *= plan.rho_of_year(plan.spent, periods) / bounded.rho_of_year(bounded.spent, periods)
    return replace(bounded, budget=Budget(rho=rho, delta=plan.budget.delta, shares=plan.budget.shares))


def simulate_errors_with_bounds(plan: ReleasePlan, trips: UserTrips, counted: Mask, runs: int = RUNS) -> dict[str, Any]:
    """Return the mean errors of ``runs`` simulated releases of the trips that are ``counted``; shape (trips,).

    Returns:
        The bounds m, c and M (None without); cut, the share of the trips that is not counted; within_c, the share that
        c alone leaves; and by level, root first: noise (its standard deviation; at an unmeasured level, that of the
        next), error (total absolute error against all trips, by their number) and error_of_counted (the same of the
        trips within c, which the table says that it counts).
    """
    tree, true = trips.tree, [trips.make_flows_within(cap) for cap in (None, plan.unit.max_trips_pair)]
    cells, sums = np.array([tree.cells(level) for level in range(tree.depth + 1)]), np.zeros((2, tree.depth + 1))
    for release in simulate_releases(plan, arrange_counts_for_plan(trips.count_flows(counted), plan), runs, 0):
        sums += [
            [row["mean_abs_error"] for row in flows.truth.compute_errors(release.leaves)] * cells for flows in true
        ]
    steps = (next(step for step in plan.totals if step.level >= level) for level in range(tree.depth + 1))
    return {
        **dict(zip("mcM", (*plan.unit.bounds, plan.unit.max_trips_year), strict=True)),
        "cut": 1 - float(counted.mean()),
        "within_c": true[1].trips.total / true[0].trips.total,
        "noise": [float(step.variance) ** 0.5 for step in steps],
        "error": (sums[0] / runs / true[0].trips.total).tolist(),
        "error_of_counted": (sums[1] / runs / true[1].trips.total).tolist(),
    }
