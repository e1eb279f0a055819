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
from typing import Any, ClassVar, TypedDict

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
"""Default number of simulated releases."""

EPSILONS = ("0.1", "0.3", "1", "3", "10")
"""Values of epsilon at which errors are forecast by default."""

TOTALS = ""
"""Name in the column ``breakdown`` of the errors of totals."""

SIZE_CLASSES = (0, 1, 10, 100, 1000)
"""Smallest number of true trips of each size class of cells."""

ALL_SIZES = "all"
"""Name of the class of all cells in the column ``size_class``."""

CLASS_NAMES = ("0", "1 to 9", "10 to 99", "100 to 999", "1000 and more")

COLUMNS = (
    *("level", "origin_level", "destination_level", "size_class", "cells"),
    *("mean_abs_error", "root_mean_square_error", "relative_error", "share_released", "largest_bias"),
)

SUMS = ("cells", "absolute errors", "squared errors", "trips", "cells with a released number above 0")
"""What is summed over the cells of a size class."""

PAIRS_OF_A_ZONE = 10
TRIPS_OF_A_ZONE = 1000
"""Numbers of pairs and trips of synthetic flows, for each zone."""


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
    truths = {TOTALS: Truth.from_counts(tree, trips)}
    truths |= {breakdown.name: Truth.from_counts(tree, trips, breakdown.name) for breakdown in plan.breakdowns}
    true_totals = sum_trips_by_zone(tree, make_leaf_nodes(tree, trips))
    names_of_totals = [(tree.origin.level_names[-1], WHOLE_SPACE), (WHOLE_SPACE, tree.destination.level_names[-1])]
    level_names = [*tree.level_names, *names_of_totals[: len(true_totals)]]
    biases = []
    sums = {name: np.zeros((len(level_names), len(SUMS), len(SIZE_CLASSES))) for name in truths}
    for release in simulate_releases(plan, trips, runs, 0):
        for name, truth in truths.items():
            for level, released in enumerate(sum_trips_by_level(tree, release.leaves, release.segments.get(name))):
                cells = tree.cells(level) * truth.categories
                sums[name][level] += _sum_by_size_class(truth.levels[level], released, cells)
        released_totals = sum_trips_by_zone(tree, release.leaves)
        for level, (side, true) in enumerate(true_totals.items(), tree.depth + 1):
            zones = np.arange(len(true))
            sums[TOTALS][level] += _sum_by_size_class((zones, true), (zones, released_totals[side]), len(zones))
        biases.append([row["largest_bias"] for row in compute_area_total_errors(true_totals, released_totals)])
    errors = []
    for name, sums_of_levels in sums.items():
        for level, (origin_level, destination_level) in enumerate(level_names):
            rows = _compute_class_errors(sums_of_levels[level] / runs)
            errors.append(
                rows.assign(level=level, origin_level=origin_level, destination_level=destination_level, breakdown=name)
            )
    errors_of_all = pd.concat(errors, ignore_index=True)
    is_total = (errors_of_all["level"] > tree.depth) & (errors_of_all["size_class"] == ALL_SIZES)
    errors_of_all.loc[is_total, "largest_bias"] = np.mean(biases, axis=0)  # of both sides, in the order of the levels
    columns = [*COLUMNS]
    if plan.breakdowns:
        columns.insert(columns.index("size_class"), "breakdown")
    return errors_of_all[columns]


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
    if destination_geography is not None and destination_geography.digest != geography.digest:
        return _draw_flows_by_size(FlowTree(geography, destination_geography))
    zones = len(geography.zones)
    pairs = min(PAIRS_OF_A_ZONE * zones, zones**2 // 2)
    return KnownFlows.from_synthetic_flows(
        make_gravity_flows(SEED, geography, pairs=pairs, trips=TRIPS_OF_A_ZONE * zones)
    )


def _draw_flows_by_size(tree: FlowTree) -> KnownFlows:
    """Return synthetic flows in proportion to random sizes of their origin and of their destination.

    There are ``PAIRS_OF_A_ZONE`` pairs per zone of the larger side, or fewer if too few distinct pairs are drawn or
    exist, and ``TRIPS_OF_A_ZONE`` trips per zone of the larger side.
    """
    origins, destinations = len(tree.origin.zones), len(tree.destination.zones)
    larger_side = max(origins, destinations)
    pairs = min(PAIRS_OF_A_ZONE * larger_side, (tree.cells(tree.depth) + 1) // 2)
    draws = 4 * pairs  # some pairs are drawn several times
    generator = make_generator(SEED)
    origin_sizes = draw_pareto_numbers(generator, origins, 1.2)
    destination_sizes = draw_pareto_numbers(generator, destinations, 1.2)
    drawn_origins = generator.choice(origins, draws, p=origin_sizes / origin_sizes.sum())
    drawn_destinations = generator.choice(destinations, draws, p=destination_sizes / destination_sizes.sum())
    cells = np.unique(drawn_origins.astype(np.int64) * destinations + drawn_destinations)
    chosen = np.sort(generator.choice(cells, min(pairs, len(cells)), replace=False))
    origin, destination = (zone.astype(np.int32) for zone in np.divmod(chosen, destinations))
    weight = origin_sizes[origin] * destination_sizes[destination]
    counts = 1 + generator.multinomial(TRIPS_OF_A_ZONE * larger_side - len(chosen), weight / weight.sum())
    return KnownFlows("sizes", "synthetic", tree, TripCounts.from_pairs(tree, origin, destination, counts))


def _sum_by_size_class(true: Level, released: Level, cells: int) -> NDArray[np.float64]:
    """Return the ``SUMS`` of each size class of one level; shape (sums, classes).

    The class of a cell follows from its true trips. ``cells`` is the number of all cells of the level, also of those in
    neither ``true`` nor ``released``.
    """
    trips, released_trips = align_trips(true, released)
    size_class = np.searchsorted(SIZE_CLASSES, trips, side="right") - 1
    error = np.abs(released_trips - trips).astype(np.float64)
    values_of_cells = (np.ones(len(trips)), error, error**2, trips, released_trips > 0)
    sums = np.array([np.bincount(size_class, values, minlength=len(SIZE_CLASSES)) for values in values_of_cells])
    cells_of_classes = sums[0]
    cells_of_classes[0] += cells - len(trips)  # the class of 0 trips also has the cells with no trips in either table
    return sums


def _compute_class_errors(sums: NDArray[np.float64]) -> pd.DataFrame:
    """Return the errors of one level from its ``SUMS``, first for all cells and then for each size class with cells.

    ``sums`` has the shape (sums, classes), and may be means over several runs.
    """
    cells, absolute, squared, trips, positive = np.hstack([sums.sum(axis=1, keepdims=True), sums])
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = pd.DataFrame(
            {
                "size_class": [ALL_SIZES, *CLASS_NAMES],
                "cells": np.rint(cells).astype(np.int64),
                "mean_abs_error": absolute / cells,
                "root_mean_square_error": np.sqrt(squared / cells),
                "relative_error": np.where(trips > 0, absolute / trips, np.nan),
                "share_released": positive / cells,
            }
        )
    return errors[errors["cells"] > 0]


TOO_WIDE = "OD-FORECAST-NOISE"
"""Error code for noise whose variance is too large for the backend of simulations."""


def arrange_counts_for_plan(table: KnownFlows, plan: ReleasePlan) -> TripCounts:
    """Return the trip counts of a table, in the order of the plan's flow tree.

    The trips are divided among the categories of the plan's breakdowns at random, with equal chances. The same table
    always gives the same categories. Trips of pairs that cannot have trips according to the plan are left out. Raises
    OdError if the table is over another geography.
    """
    tree, table_tree = plan.tree, table.tree
    if (tree.origin.digest, tree.destination.digest) != (table_tree.origin.digest, table_tree.destination.digest):
        message = f"the table {table.name!r} does not have the areas of the plan"
        step = "give a table with the same zone lists, or a synthetic table"
        raise OdError("OD-FORECAST-GEOGRAPHY", message, next_step=step)
    trips = table.trips
    if tree.order != table_tree.order:
        leaves = make_leaf_nodes(table_tree, trips)
        trips = TripCounts.from_pairs(tree, leaves.origin, leaves.destination, leaves.trips)
    if tree.possible is not None:
        is_possible = tree.are_possible(trips.rank)
        trips = TripCounts.from_ranks(trips.rank[is_possible], np.diff(trips.before)[is_possible])
    generator = make_generator(SEED)
    counts = np.diff(trips.before)
    by_segment = {}
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
        """Return discrete Gaussian draws for ``size`` cells of a level from the cell ``first``; shape (size,)."""
        return simulate_draws(DiscreteGaussian(variance), _Words(*self._numbers, level, first), size)

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return discrete Laplace draws, the same at every call; shape (size,)."""
        return simulate_draws(DiscreteLaplace(scale), _Words(*self._numbers), size)

    def draw_laplace_at(self, scale: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return discrete Laplace draws for ``size`` cells of a level from the cell ``first``; shape (size,).

        With :meth:`draw_laplace`, all levels, and all pieces of a level, would have the same noise.
        """
        return simulate_draws(DiscreteLaplace(scale), _Words(*self._numbers, level, first), size)


class _Words:
    """Pseudo-random words that follow from numbers; see :class:`od_core.noise.table_sampler.Words`."""

    def __init__(self, *numbers: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(numbers))

    def draw_words(self, bits: int, size: int) -> NDArray[Any]:
        """Return ``size`` unsigned integers of ``bits`` bits (8, 16, 32 or 64), uniform; shape (size,)."""
        return self._generator.integers(0, 1 << bits, size, dtype=f"u{bits // 8}")


def simulate_releases(plan: ReleasePlan, trips: TripCounts, runs: int, number: int | None = None) -> Iterator[Release]:
    """Yield ``runs`` releases of a plan, each with its own noise.

    ``trips`` are those of :func:`arrange_counts_for_plan`. The plan's known totals are of other trips, and are left
    out. The same ``number`` gives the same noise; None gives new noise at every call. Raises OdError if the variance of
    the noise is too large for the backend ``table``.
    """
    noise = resolve_noise_source(NOISE)
    if max(step.variance_bound for step in plan.charged_steps) > BACKENDS[NOISE].largest_variance:
        raise OdError(
            TOO_WIDE,
            f"the plan's noise has a standard deviation above {math.isqrt(BACKENDS[NOISE].largest_variance):,}, the"
            " largest that a forecast draws",
            next_step="request a larger epsilon",
        )
    without_known = replace(plan, known=())
    for run in range(runs):
        noise_of_run = noise if number is None else RepeatableNoise(number, run)
        yield run_plan(without_known, trips, noise_of_run, MemoryMeasurements())


def with_epsilon(plan: ReleasePlan, epsilon: Number) -> ReleasePlan:
    """Return a plan with another epsilon and without bands. Raises OdError if :class:`Budget` refuses it."""
    budget = plan.budget
    return with_budget(plan, Budget(epsilon, budget.delta, conversion=budget.conversion, shares=budget.shares))


def with_budget(plan: ReleasePlan, budget: Budget, segments: Segments | None = None) -> ReleasePlan:
    """Return a plan with another budget, with other segments if they are given, and without bands."""
    return replace(plan, budget=budget, bands=None, segments=segments or plan.segments)


Mask = NDArray[np.bool_]

Users = tuple[float, Sequence[tuple[int, int]]]
"""Users who travel alike: their share, and tuples (pairs, trips) of a number of pairs of zones and the trips of each.

The shares of all users may have any sum."""


def parse_users(text: str) -> Users:
    """Return the users that a text describes.

    ``60: 2x9 4x1`` are users with a share of 60, each with 9 trips of each of 2 pairs of zones, such as to and from
    work, and 1 trip of each of 4 other pairs. Raises OdError if the text has another form.
    """
    share, _, travel = text.partition(":")
    matches = [re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,2})", part) for part in travel.split()]
    travel_of_user = [(int(match[1]), int(match[2])) for match in matches if match]
    is_share = re.fullmatch(r"\d{1,9}(\.\d{1,9})?", share) and float(share) != 0
    if not is_share or not travel_of_user or len(travel_of_user) < len(matches):
        step = "give a share of the users, and their pairs of zones x trips, such as '60: 2x9 4x1'"
        raise OdError("OD-BOUNDS-USERS", f"{text!r} does not describe users", next_step=step)
    return float(share), travel_of_user


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
        """Make up users who have about as many trips in all as known flows. The same arguments give the same users.

        Each pair of a user is drawn independently, with a chance in proportion to its flow, so a few pairs of a user
        are equal. Raises OdError if there are no flows, or they are over another geography.
        """
        trips, generator = arrange_counts_for_plan(known, plan), make_generator(SEED)
        if not trips.total:
            raise OdError("OD-BOUNDS-USERS", f"{known.name} has no trips", next_step="give a table with trips")
        cumulative_shares = np.cumsum([share for share, _ in users])
        sum_of_shares = cumulative_shares[-1]
        weighted = (share * pairs * trips_of_pair for share, travel in users for pairs, trips_of_pair in travel)
        mean_trips = sum(weighted) / sum_of_shares  # of a user
        number_of_users = max(round(trips.total / mean_trips), 1)
        # Users who travel alike have consecutive numbers, below these ends.
        ends = np.rint(cumulative_shares / sum_of_shares * number_of_users).astype(np.int64)
        rank, user = list[Integers](), list[Integers]()
        first = 0
        for (_, travel), end in zip(users, ends, strict=True):
            for pairs, trips_of_pair in travel:
                drawn_trips = generator.integers(0, trips.total, (end - first) * pairs)
                leaf = np.searchsorted(trips.before, drawn_trips, side="right") - 1
                rank.append(np.repeat(trips.rank[leaf], trips_of_pair))
                user.append(np.repeat(np.arange(first, end), pairs * trips_of_pair))
            first = end
        return cls(plan.tree, np.concatenate(rank), np.concatenate(user))

    def mark_counted_trips(
        self, max_trips: int, max_trips_pair: int | None = None, left: Integers | None = None
    ) -> Mask:
        """Return which trips a release counts; shape (trips,).

        They are the first trips of each user in a random order, which stands for the keyed order of a release.

        Args:
            max_trips: largest number of counted trips of a user.
            max_trips_pair: largest number of counted trips of a user between a pair of zones; None for no bound.
            left: number of trips that the year's bound still allows each user, shape (users,); None for no bound.
        """
        counted = np.ones(len(self.rank), dtype=np.bool_)
        if max_trips_pair is not None:
            counted = self._count_trips_before(counted, "pair") < max_trips_pair
        allowed = max_trips if left is None else np.minimum(left, max_trips)[self.user]
        return counted & (self._count_trips_before(counted, "user") < allowed)

    def mark_trips_within_bounds(self, unit: PrivacyUnit, periods: int = 1) -> Mask:
        """Return which trips the bounds of a unit leave; shape (trips,).

        If the unit is of a year, each user is taken to make these trips in each of ``periods`` periods of the year. The
        result is that of an average period: each user is in a random one of the periods, with equal numbers of users in
        each, and has used the year's bound in the periods before.
        """
        max_trips, max_trips_pair = unit.bounds
        counted = self.mark_counted_trips(max_trips, max_trips_pair)
        if unit.max_trips_year is None:
            return counted
        trips_of_user = np.bincount(self.user[counted], minlength=int(self.user.max()) + 1)
        periods_before = make_generator(SEED).permutation(len(trips_of_user)) % periods
        left = np.maximum(unit.max_trips_year - trips_of_user * periods_before, 0)
        return self.mark_counted_trips(max_trips, max_trips_pair, left)

    def count_flows(self, chosen: Mask) -> KnownFlows:
        """Return the flows of the trips that the mask ``chosen`` marks; shape (trips,)."""
        trips = TripCounts.from_ranks(self.rank[chosen], np.ones(int(chosen.sum()), dtype=np.int64))
        return KnownFlows("trips of users", "synthetic", self.tree, trips)

    def make_flows_within(self, max_trips_pair: int | None) -> KnownFlows:
        """Return the flows of the trips that a bound of the trips of each pair alone leaves; of all trips if None."""
        if max_trips_pair not in self._flows_within:
            without_bound = len(self.rank)  # no user has more trips
            counted = self.mark_counted_trips(without_bound, max_trips_pair)
            self._flows_within[max_trips_pair] = self.count_flows(counted)
        return self._flows_within[max_trips_pair]

    @cached_property
    def _flows_within(self) -> dict[int | None, KnownFlows]:
        """Flows that :meth:`make_flows_within` returned, by its argument, which many candidate bounds share."""
        return {}

    @cached_property
    def _grouped(self) -> dict[str, tuple[Integers, Integers]]:
        """Orders of the trips by group, where a group is a user (``user``) or a pair of a user (``pair``).

        Each value has two arrays of shape (trips,): the trips in the order of their groups, at random within a group;
        and, for each position in this order, that of the first trip of the same group.
        """
        random = make_generator(SEED).permutation(len(self.rank))
        grouped = {}
        for name, keys in {"user": (self.user,), "pair": (self.user, self.rank)}.items():
            order = np.lexsort((random, *keys))
            is_first = np.zeros(len(order), dtype=np.bool_)  # the first of all trips has the position 0 below anyway
            for key in keys:
                is_first[1:] |= key[order[1:]] != key[order[:-1]]
            grouped[name] = order, np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
        return grouped

    def _count_trips_before(self, marked: Mask, group: str) -> Integers:
        """Return, for each trip, the number of marked trips before it in its group; shape (trips,).

        ``group`` is a name of :attr:`_grouped`, whose order this is.
        """
        order, first = self._grouped[group]
        before = np.cumsum(marked[order], dtype=np.int64) - marked[order]  # in the order of the groups
        before_in_group = np.empty(len(order), dtype=np.int64)
        before_in_group[order] = before - before[first]
        return before_in_group


def iterate_candidate_contribution_bounds(unit: PrivacyUnit, periods: int = 1) -> Iterator[PrivacyUnit]:
    """Yield the unit of a user with other contribution bounds.

    The bound m of a user's trips is half of the declared one, the declared one or twice it. The bound c of the trips of
    a pair is absent, 1, 2 or 5. The bound M of a year, if the unit has one, is the declared one or m * ``periods``,
    which never binds.
    """
    declared, declared_yearly = unit.contribution_bound, unit.max_trips_year
    for m in sorted({max(declared // 2, 1), declared, 2 * declared}):
        yearly_bounds: list[int | None] = [None]
        if declared_yearly is not None:
            yearly_bounds = [*sorted({max(m, declared_yearly), m * periods})]
        pair_bounds = [None, *(c for c in (1, 2, 5) if c < m)]
        for yearly in yearly_bounds:
            for c in pair_bounds:
                yield replace(unit, max_trips=m, max_trips_pair=c, max_trips_year=yearly)


def with_contribution_bounds(plan: ReleasePlan, unit: PrivacyUnit, periods: int = 1) -> ReleasePlan:
    """Return a plan with the contribution bounds of ``unit`` and the same cost for a user.

    The cost is that of a release or, if the unit is of a year, that of the ``periods`` releases of a year. With Laplace
    noise, the plan keeps the epsilon of each level; otherwise, it keeps rho.
    """
    bounded = replace(plan, unit=unit, bands=None)
    if plan.mechanism.has_laplace_noise:
        return bounded
    rho = bounded.spent.rho
    if unit.max_trips_year is not None:
        rho *= plan.rho_of_year(plan.spent, periods) / bounded.rho_of_year(bounded.spent, periods)
    return replace(bounded, budget=Budget(rho=rho, delta=plan.budget.delta, shares=plan.budget.shares))


class ErrorsOfBounds(TypedDict):
    """The errors of simulated releases under some contribution bounds. Lists have one number per level, root first."""

    m: int
    c: int | None
    M: int | None
    cut: float  # share of the trips that the bounds leave out
    within_c: float  # share of the trips that c alone leaves
    noise: list[float]  # standard deviation of the noise; at an unmeasured level, that of the next measured one
    error: list[float]  # total absolute error against all trips, by their number
    error_of_counted: list[float]  # the same against the trips within c, which the table says that it counts


def simulate_errors_of_contribution_bounds(
    plan: ReleasePlan, trips: UserTrips, within_bounds: Mask, runs: int = RUNS
) -> ErrorsOfBounds:
    """Return the mean errors of simulated releases that count only the trips within the contribution bounds of a plan.

    Args:
        plan: plan whose unit has the bounds: m trips of a user in a period, c of a pair and M in a year.
        trips: all trips of the users.
        within_bounds: which of them are within the bounds; shape (trips,).
        runs: number of simulated releases.

    Returns:
        The bounds; the share of the trips that they cut, and that c alone leaves; the standard deviation of the noise
        of each level; and the mean absolute errors of each level, added over its cells, as a share of all trips:
        against all trips (``error``) and against those that c alone leaves (``error_of_counted``).
    """
    all_flows, flows_within_c = trips.make_flows_within(None), trips.make_flows_within(plan.unit.max_trips_pair)
    released_trips = arrange_counts_for_plan(trips.count_flows(within_bounds), plan)
    levels = range(trips.tree.depth + 1)
    cells = np.array([trips.tree.cells(level) for level in levels])
    error_of_all, error_within_c = np.zeros(len(levels)), np.zeros(len(levels))  # absolute, over all cells and runs
    for release in simulate_releases(plan, released_trips, runs, 0):
        for sums, flows in ((error_of_all, all_flows), (error_within_c, flows_within_c)):
            sums += cells * [row["mean_abs_error"] for row in flows.truth.compute_errors(release.leaves)]
    # The nodes of an unmeasured level have one child each, and the noise of the next measured level.
    steps = [next(step for step in plan.totals if step.level >= level) for level in levels]
    m, c = plan.unit.bounds
    return {
        "m": m,
        "c": c,
        "M": plan.unit.max_trips_year,
        "cut": 1 - float(within_bounds.mean()),
        "within_c": flows_within_c.trips.total / all_flows.trips.total,
        "noise": [float(step.variance) ** 0.5 for step in steps],
        "error": (error_of_all / runs / all_flows.trips.total).tolist(),
        "error_of_counted": (error_within_c / runs / flows_within_c.trips.total).tolist(),
    }
