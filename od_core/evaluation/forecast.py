"""Forecast the errors of a plan by simulating it on a public table; no budget is spent and no records are read.

Every run draws noise from a backend of this library and discards its release. A forecast returns only errors, so none
of its noise can be used in a release.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.evaluation.known_flows import SEED, KnownFlows
from od_core.evaluation.metrics import Level, SegmentTruth, segment_sums_by_level, sums_by_level
from od_core.evaluation.simulation import on_plan, simulated_releases
from od_core.evaluation.synthetic import gravity, pareto
from od_core.flows.arrays import Integers
from od_core.flows.estimation.fitted_tree import find_pairs
from od_core.flows.plan import ReleasePlan
from od_core.flows.release import Release
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.geography.geography import Geography, Numbers

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
    *("mean_abs_error", "root_mean_square_error", "relative_error", "share_released"),
)

PAIRS_OF_A_ZONE = 10
TRIPS_OF_A_ZONE = 1000


def forecast(plan: ReleasePlan, table: KnownFlows, runs: int = RUNS) -> pd.DataFrame:
    """Return the expected errors of a plan, by level and true size of the cells (pairs of areas).

    Releases are simulated on a public or synthetic table, with which they are compared.

    Args:
        plan: plan of the intended release.
        table: known flows, public or synthetic, over the geographies of the plan.
        runs: number of simulated releases.

    Returns:
        One row per level 0 to T and size class. The first class of each level is ``all``, and classes without cells are
        left out. The columns are:

        - level (number), origin_level and destination_level (names);
        - size_class: class of the cells by their trips in the table;
        - cells: number of cells, including cells with 0 trips;
        - mean_abs_error and root_mean_square_error: in trips, over cells and runs;
        - relative_error: sum of the absolute errors divided by the trips of the class; NaN if the class has no trips;
        - share_released: share of the cells with a released number above 0.

        If the plan has segments, there is also a column ``breakdown`` after ``destination_level``. It is empty for
        totals. For the flows by category, it has the name of the breakdown, and a category of a pair of areas is a
        cell. The trips of the table are divided among the categories at random, with equal chances.

    Raises:
        OdError: the table is over another geography, ``runs`` is below 1, or the variance of the noise is too large for
            the backend ``table``.
    """
    if runs < 1:
        raise OdError("OD-FORECAST-RUNS", "a forecast needs at least one run", next_step="request at least one run")
    tree, (truth, trips) = plan.tree, on_plan(table, plan)
    segments = {one.name: SegmentTruth.of_counts(tree, trips, one.name) for one in plan.breakdowns}
    sums = {name: np.zeros((tree.depth + 1, 5, len(SIZE_CLASSES))) for name in (TOTALS, *segments)}
    for release in simulated_releases(plan, trips, runs, 0):
        for level, pair in enumerate(zip(truth.levels, sums_by_level(tree, release.leaves), strict=True)):
            sums[TOTALS][level] += _sums(*pair, tree.cells(level))
        for name, true in segments.items():
            released = segment_sums_by_level(tree, release.leaves, release.segments[name])
            for level, pair in enumerate(zip(true.levels, released, strict=True)):
                sums[name][level] += _sums(*pair, tree.cells(level) * true.categories)
    errors = [
        _errors(own[level] / runs).assign(
            level=level, origin_level=origin, destination_level=destination, breakdown=name
        )
        for name, own in sums.items()
        for level, (origin, destination) in enumerate(tree.level_names)
    ]
    columns = [*COLUMNS[:3], *(["breakdown"] if segments else []), *COLUMNS[3:]]
    return pd.concat(errors, ignore_index=True)[columns]


def synthetic_table(geography: Geography, destination_geography: Geography | None = None) -> KnownFlows:
    """Return synthetic flows over public geographies, on which to forecast if there is no public table.

    The same geographies always give the same flows. Within one geography, the flows follow a gravity model. Between two
    geographies, the flows depend on random sizes of the zones alone.

    Raises:
        OdError: a single geography has fewer than 3 zones, or two geographies have different numbers of levels.
    """
    zones = len(geography.zones)
    if destination_geography is not None and destination_geography.digest != geography.digest:
        tree = FlowTree(geography, destination_geography)
        most = max(zones, len(destination_geography.zones))
        pairs = min(PAIRS_OF_A_ZONE * most, (tree.cells(tree.depth) + 1) // 2)
        return flows_between(tree, SEED, pairs=pairs, trips=TRIPS_OF_A_ZONE * most)
    pairs = min(PAIRS_OF_A_ZONE * zones, zones**2 // 2)
    return KnownFlows.synthetic(gravity(SEED, geography, pairs=pairs, trips=TRIPS_OF_A_ZONE * zones))


def _sums(true: Level, released: Level, cells: int) -> NDArray[np.float64]:
    """Return five sums for each size class of one level; shape (5, classes).

    They are the number of cells, the absolute errors, the squared errors, the trips, and the number of cells with a
    released number above 0. ``cells`` is the number of all cells of the level.
    """
    rank = np.union1d(true[0], released[0])
    trips, found = np.zeros((2, len(rank)), dtype=np.int64)
    trips[np.searchsorted(rank, true[0])] = true[1]
    found[np.searchsorted(rank, released[0])] = released[1]
    size = np.searchsorted(SIZE_CLASSES, trips, side="right") - 1
    error = np.abs(found - trips).astype(np.float64)
    values = (np.ones(len(rank)), error, error**2, trips, found > 0)
    sums = np.array([np.bincount(size, each, minlength=len(SIZE_CLASSES)) for each in values])
    sums[0, 0] += cells - len(rank)  # cells that have trips in neither table
    return sums


def _errors(sums: NDArray[np.float64]) -> pd.DataFrame:
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


MOST_ZEROS = 5_000_000
"""Largest number of pairs of areas at a pair of levels for which :func:`coverage` includes pairs without trips."""


def coverage(releases: Iterable[Release], truth: Nodes) -> pd.DataFrame:
    """Return the share of cells whose interval contains the true count, by pair of levels and class of TRUE size.

    NOT private: the result depends on the true counts. A cell is a pair of areas. Its interval is extended to the
    released number if necessary.

    Args:
        releases: releases of one plan, each with its own noise.
        truth: the true leaf nodes with their trips.

    Returns:
        One row per pair of levels and size class, with these columns:

        - origin_level and destination_level;
        - least_trips: smallest number of true trips of the class;
        - cells: number of cells of one release;
        - covered: share of the cells whose interval contains the true count, over all releases;
        - width: mean width of the intervals, upper minus lower end, over all releases, in trips.

        A pair of levels with more than ``MOST_ZEROS`` pairs of areas includes only cells with true trips.
    """
    rows = [row for release in releases for row in _rows(release, truth)]
    names = ["origin_level", "destination_level", "least_trips"]
    sums = (
        pd.DataFrame(rows).groupby(names, sort=False).agg({"cells": ["sum", "mean"], "covered": "sum", "width": "sum"})
    )
    table = pd.DataFrame(
        {
            "cells": sums["cells", "mean"].astype("int64"),
            "covered": sums["covered", "sum"] / sums["cells", "sum"],
            "width": sums["width", "sum"] / sums["cells", "sum"],
        }
    )
    return table.reset_index()


def _rows(release: Release, truth: Nodes) -> Iterable[dict[str, object]]:
    """Yield one row per pair of levels and size class: numbers of all and of covered cells, and sum of the widths."""
    tree = release.plan.tree
    for o_level, d_level in product(range(tree.origin.depth + 1), range(tree.destination.depth + 1)):
        origin, destination, true = tree.sums_at(truth, o_level, d_level)
        width, pairs = tree.destination.size(d_level), tree.origin.size(o_level) * tree.destination.size(d_level)
        if pairs <= MOST_ZEROS:
            every, counts = np.arange(pairs), np.zeros(pairs, dtype=np.int64)
            counts[origin.astype(np.int64) * width + destination] = true
            origin, destination, true = (every // width).astype(np.int32), (every % width).astype(np.int32), counts
        lower, upper = release.intervals.of_cells(o_level, d_level, origin, destination)
        released = _looked_up(tree.sums_at(release.leaves, o_level, d_level), origin, destination, width)
        lower, upper = np.minimum(lower, released), np.maximum(upper, released)
        size_class = np.searchsorted(SIZE_CLASSES, true, side="right") - 1
        for number, least in enumerate(SIZE_CLASSES):
            mine = size_class == number
            if mine.any():
                yield {
                    "origin_level": tree.origin.level_names[o_level],
                    "destination_level": tree.destination.level_names[d_level],
                    "least_trips": least,
                    "cells": int(mine.sum()),
                    "covered": int(((lower <= true) & (true <= upper))[mine].sum()),
                    "width": int((upper - lower)[mine].sum()),
                }


def _looked_up(cells: tuple[Numbers, Numbers, Integers], origin: Numbers, destination: Numbers, width: int) -> Integers:
    """Return the trips of each pair (origin, destination), or 0 if the pair is not among the cells.

    Args:
        cells: origins, destinations and trips of the cells; shape (cells,) each.
        origin, destination: areas of the pairs; shape (pairs,) each.
        width: number of destination areas.
    """
    place = find_pairs(cells[0], cells[1], origin, destination, width)
    return np.where(place >= 0, np.append(cells[2], 0)[place], 0)


def flows_between(tree: FlowTree, seed: int, *, pairs: int, trips: int) -> KnownFlows:
    """Return synthetic flows between two geographies. The pairs and their trips depend on random zone sizes alone.

    No distances are used, because it is not known how the two geographies are related.

    Args:
        tree: flow tree over the geographies.
        seed: seed of the generator; the same seed gives the same flows.
        pairs: largest number of pairs with trips; at least 1.
        trips: total number of trips, at least the number of pairs.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    zones = (len(tree.origin.zones), len(tree.destination.zones))
    sizes = [pareto(generator, count, 1.2) for count in zones]
    ends = [generator.choice(len(size), 4 * pairs, p=size / size.sum()) for size in sizes]
    cells = np.unique(ends[0].astype(np.int64) * zones[1] + ends[1])
    chosen = np.sort(generator.choice(cells, min(pairs, len(cells)), replace=False))
    origin, destination = (chosen // zones[1]).astype(np.int32), (chosen % zones[1]).astype(np.int32)
    weight = sizes[0][origin] * sizes[1][destination]
    counts = 1 + generator.multinomial(trips - len(chosen), weight / weight.sum())
    return KnownFlows.of_pairs("sizes", "synthetic", tree, origin, destination, counts)
