"""Release trips with stops: draw the boxes and noisy counts of a plan, and compute the released counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.data_frame import TableOrFile
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Measured, Measurements, draw_laplace_release
from od_core.noise.backends import NoiseSource, find_backend_name, require_laplace_source
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.plan import PlannedRelease
from od_core.privacy.stability import compute_laplace_reach
from od_core.privacy.unit import PrivacyUnit
from od_core.stops.geometry import (
    Boxes,
    BoxIndex,
    Counts,
    Grid,
    MapGrid,
    Range,
    Ranges,
    Reals,
    Rows,
    count_trips_by_cell,
    make_query_error,
    validate_ranges,
)
from od_core.stops.mechanisms import BudgetPath, StopsMechanism
from od_core.stops.plan import StopsPlan, plan_stops
from od_core.stops.trajectories import Trajectories


@dataclass(frozen=True, eq=False, repr=False)
class StopsRelease(PlannedRelease):
    """Released boxes that together cover the grid without overlap, with their counts.

    Attributes:
        plan, spent, noise: see :class:`od_core.privacy.plan.PlannedRelease`.
        measured: the boxes and their noisy counts, as drawn.
        selected: whether the intervals of counts above 0 allow for selection, so that they also hold for counts that
            are read because they are above 0. False for bundles of earlier versions.

    Examples:
        >>> int(boxes.counts.sum() - boxes.boxes["count"].sum())
        0
    """

    plan: StopsPlan
    measured: Boxes
    selected: bool = True

    def _describe_contents(self) -> tuple[str, str, str]:
        """Return three texts for a notebook: what the release is, its levels, and the calls that read it."""
        boxes = f"{self.counts.sum():,} trips in {len(self.counts):,} boxes"
        return (
            f"trips with stops by {self.plan.mechanism.name}: {boxes}",
            f"none; a grid of {' x '.join(f'{size:,}' for size in self.plan.grid.sizes)} cells",
            ".boxes; .query(ranges); .od(origin, destination)",
        )

    @cached_property
    def counts(self) -> Counts:
        """Released count of each box, an integer of at least 0; shape (boxes,).

        The counts sum to the total of the noisy counts, or to 0 if that total is negative.
        """
        return make_counts_nonnegative(self.measured.noisy)

    @property
    def boxes(self) -> pd.DataFrame:
        """Table with one row per box.

        Its columns are lower_1, ..., lower_d, upper_1, ..., upper_d (first and last cell in each of the d dimensions,
        both inclusive), count (the released count), count_lower and count_upper (the ends of its 90 % interval) and
        noisy (the count as drawn).
        """
        dimensions = range(self.plan.grid.dimensions)
        lower, upper = self.intervals
        return pd.DataFrame(
            {
                **{f"lower_{dimension + 1}": self.measured.lower[:, dimension] for dimension in dimensions},
                **{f"upper_{dimension + 1}": self.measured.upper[:, dimension] for dimension in dimensions},
                "count": self.counts,
                "count_lower": lower,
                "count_upper": upper,
                "noisy": self.measured.noisy,
            }
        )

    @property
    def reach(self) -> int:
        """Number of trips that the absolute noise on a box's count exceeds with probability at most 1 in 10."""
        return compute_laplace_reach(self.scale)

    @property
    def scale(self) -> Fraction:
        """Scale of the noise on a box's count; the largest scale if boxes have different ones."""
        plan = self.plan
        return plan.mechanism.compute_count_scale(self.measured, plan.grid, plan.step.epsilon, plan.step.sensitivity)

    @cached_property
    def intervals(self) -> tuple[Counts, Counts]:
        """Lower and upper ends of the 90 % intervals of the true number of trips in each box; shape (boxes,) each.

        An interval is the noisy count plus and minus the 90 % quantile of the absolute noise, which is drawn after the
        boxes are fixed. It is cut at 0 and widened to the released count. If R of m boxes have counts above 0, the
        lower ends of their intervals are further away: the noise exceeds the distance with probability at most 0.05 R /
        m. So nine tenths of these intervals are expected to contain the true number [benjamini2005false, Theorem 1].
        """
        noisy, reach = self.measured.noisy, self.reach
        lower_reach_of_selected = reach
        boxes_with_trips = int(np.count_nonzero(self.counts))
        if boxes_with_trips and self.selected:
            tail = Fraction(boxes_with_trips, 20 * len(noisy))
            lower_reach_of_selected = compute_laplace_reach(self.scale, tail)
        lower = np.where(self.counts > 0, noisy - lower_reach_of_selected, noisy - reach)
        upper = np.maximum(noisy + reach, 0)
        return np.clip(lower, 0, self.counts), upper  # a released count is at most its noisy count, or 0

    def query(self, ranges: ArrayLike) -> float | NDArray[np.float64]:
        """Return the estimated number of trips in one range or in each of several ranges.

        The estimate assumes that the trips of a box are spread evenly over its cells.

        Args:
            ranges: first and last cell in each dimension, both inclusive; shape (dimensions, 2) for one range, or
                (queries, dimensions, 2) for several.

        Returns:
            A float for one range; an array of shape (queries,) for several.

        Raises:
            OdError: a range is invalid, as in :func:`od_core.stops.geometry.validate_ranges`.
        """
        is_single = np.ndim(ranges) == 2
        several = [ranges] if is_single else ranges
        answered = self._index.answer_queries(self.counts, validate_ranges(several, self.plan.grid.sizes))  # type: ignore[arg-type]
        return float(answered[0]) if is_single else answered

    def od(self, origin: Sequence[Range], destination: Sequence[Range]) -> float:
        """Return the estimated number of trips from one area to another, with any stops in between.

        Args:
            origin: first and last cell, both inclusive, in each dimension of the first place. A place on a map has two
                dimensions: longitude and latitude.
            destination: first and last cell, both inclusive, in each dimension of the last place.

        Raises:
            OdError: there are fewer than two places, the dimensions of the grid are not a multiple of those of a
                place, the ranges do not match the dimensions of a place, or a range is invalid.
        """
        space = self.plan.grid.sizes
        on_map = self.plan.map
        places = len(space) // max(1, len(origin)) if on_map is None else len(on_map.places)
        if places < 2 or len(space) % places:
            message = f"the space has {len(space)} dimensions, which does not fit {places} places (at least two)"
            raise make_query_error(message)
        dimensions = len(space) // places  # of a place
        if not len(origin) == len(destination) == dimensions:
            message = f"origin and destination need a range for each of the {dimensions} dimensions of a place"
            raise make_query_error(message)
        between = [(0, size - 1) for size in space[dimensions:-dimensions]]
        return float(self.query([*origin, *between, *destination]))

    @property
    def entropy(self) -> float:
        """Entropy (:func:`compute_entropy`) of the released counts, in bits; at most log2 of the number of boxes."""
        return compute_entropy(self.counts)

    @cached_property
    def _index(self) -> BoxIndex:
        """Index with which the boxes answer queries."""
        return BoxIndex.from_boxes(self.measured.lower, self.measured.upper)


def release_stops(
    points: ArrayLike | TableOrFile | Trajectories,
    grid: Grid | MapGrid | tuple[int, ...],
    *,
    unit: PrivacyUnit,
    budget: Budget,
    mechanism: str | StopsMechanism = "privtree",
    ledger: Ledger | None = None,
    release_id: str | None = None,
    noise: str | NoiseSource = "opendp",
    columns: Sequence[str] | None = None,
    one_row_a_trip: bool = False,
) -> StopsRelease:
    """Divide a grid into boxes, and release the number of trips in each box with differential privacy.

    Without a ledger, the guarantee covers this one call only; see :func:`od_core.release_flows`.

    Args:
        points: cell of each trip in each dimension, as integers of shape (trips, dimensions); as a table of pandas,
            Arrow, Polars or DuckDB of that shape; as the path of a Parquet or CSV file; or as :class:`Trajectories`.
        grid: the public grid, or its number of cells in each dimension, or the map that contains the places.
        unit: ``PrivacyUnit("trip")``. One trip is added or removed (unbounded neighbours) or replaced (bounded
            neighbours).
        budget: ``Budget(epsilon=...)``.
        mechanism: name of a mechanism, or a mechanism with its options.
        ledger, release_id, noise: see :func:`od_core.release_flows`.
        columns: names of the columns of a table or file, in the order of the dimensions. Needed for a file.
        one_row_a_trip: True to state that a row is one trip, for a table with further columns.

    Raises:
        OdError: the plan or the trips are invalid (see :func:`plan_stops` and :class:`Trajectories`), the ledger
            refuses the release, or the mechanism or the noise source fails. Plan and trips are checked before any draw.

    Examples:
        >>> release_stops([[1, 1], [6, 7]], (8, 8), unit=PrivacyUnit("trip"), budget=Budget(epsilon=1))
        StopsRelease(privtree, epsilon 1)
    """
    plan = plan_stops(grid, unit=unit, budget=budget, mechanism=mechanism)
    if isinstance(points, Trajectories):
        trips = points
    else:
        trips = Trajectories.from_cells(points, plan.grid, columns=columns, one_row_a_trip=one_row_a_trip)
    if trips.grid != plan.grid:
        raise OdError("OD-STOPS-GRID", "the trips belong to another grid", next_step="give the grid of the trips")
    return draw_laplace_release(run_plan, plan, trips, noise, ledger, release_id)


def run_plan(plan: StopsPlan, trips: Trajectories, noise: NoiseSource, measurements: Measurements) -> StopsRelease:
    """Draw the boxes of a plan, unless ``measurements`` already contains them, and return the release.

    ``trips`` are confidential. Raises OdError if the mechanism or the noise source fails.
    """
    measured = measure_plan(plan, trips, noise, measurements)
    return estimate_release(plan, measured, spent=plan.spent, noise=find_backend_name(noise))


def measure_plan(plan: StopsPlan, counted: Trajectories, noise: NoiseSource, measurements: Measurements) -> Measured:
    """Return the step of a plan with its noisy values, in the layout of :func:`measure_boxes`. The result is public.

    The values are drawn from the confidential trips, unless ``measurements`` already contains them.
    """
    return [(plan.step, measurements.draw_once(plan.step, partial(measure_boxes, plan, counted, noise)))]


def measure_boxes(plan: StopsPlan, trips: Trajectories, noise: NoiseSource) -> Iterator[Counts]:
    """Measure the boxes, and yield one flat array that describes all of them.

    For each box in turn, the array has its lower bounds, its upper bounds and its noisy count; shape
    (boxes * values_per_box,), public. The trips are confidential. Raises OdError if a path spent another epsilon.
    """
    path = BudgetPath(require_laplace_source(noise), plan.step.sensitivity, plan.step.epsilon)
    drawn = plan.mechanism.draw_boxes(trips.points, plan.grid, path)
    if not all(path.spent == plan.step.epsilon and path.left == 0 for path in drawn.paths):
        message = f"a path of {plan.mechanism.name} did not spend exactly epsilon {plan.step.epsilon}"
        raise OdError("OD-STOPS-CHARGE", message, next_step="report this defect", spent=STAYS_CHARGED)
    yield flatten_boxes(drawn.boxes)


def flatten_boxes(boxes: Boxes) -> Counts:
    """Return the boxes as they are stored: one flat vector in the layout of :func:`measure_boxes`."""
    flat = np.hstack([boxes.lower, boxes.upper, boxes.noisy[:, np.newaxis]], dtype=np.int64).ravel()
    flat.flags.writeable = False  # measured values do not change
    return flat


def estimate_release(plan: StopsPlan, measured: Measured, *, spent: Spent, noise: str | None) -> StopsRelease:
    """Return the release of a plan from the noisy values of its step. All inputs are public.

    Raises OdError if the noisy values do not describe boxes of the grid in the layout of :func:`measure_boxes`.
    """
    ((_, noisy),) = measured  # the plan has one step
    flat, width, dimensions = noisy.read_values(), plan.grid.values_per_box, plan.grid.dimensions
    has_whole_boxes = len(flat) > 0 and len(flat) % width == 0
    if not has_whole_boxes or (flat.reshape(-1, width)[:, dimensions:-1] >= plan.grid.sizes).any():
        message = "the measurement is not a list of boxes of this grid"
        raise OdError("OD-STOPS-BOXES", message, next_step="read it with the plan of its release", spent=STAYS_CHARGED)
    values = flat.reshape(-1, width)
    lower = np.ascontiguousarray(values[:, :dimensions], dtype=np.int32)
    upper = np.ascontiguousarray(values[:, dimensions:-1], dtype=np.int32)
    return StopsRelease(plan, spent, noise, Boxes(lower, upper, values[:, -1].copy()))


_SUM_LIMIT = 1 << 62
"""Exclusive bound on the sum of the absolute values of the noisy counts."""


def make_counts_nonnegative(noisy: Counts) -> Counts:
    """Return counts of at least 0 that sum to the total of the noisy counts, or to 0 if that total is negative.

    Negative counts are set to 0, so that the sum of the counts may exceed the noisy total. The excess is then
    subtracted from the smallest counts first, each down to 0, because most small counts are nothing but noise. Equal
    counts are reduced in the order of their positions. Raises OdError if the sums do not fit into 64-bit arithmetic.

    >>> make_counts_nonnegative(np.array([7, -4, 2, 3]))
    array([7, 0, 0, 1])
    """
    if len(noisy) and np.abs(noisy.astype(np.float64)).sum() >= _SUM_LIMIT:
        message = "the sum of the noisy counts exceeds 64-bit arithmetic"
        raise OdError("OD-STOPS-OVERFLOW", message, next_step="raise epsilon", spent=STAYS_CHARGED)
    counts = np.maximum(noisy, 0)
    excess = int(counts.sum()) - int(noisy.sum())  # more than the sum of the counts if the total is negative
    order = np.argsort(counts, kind="stable")
    taken = np.minimum(np.cumsum(counts[order]), excess)  # cumulative over the sorted counts
    counts[order] -= np.diff(taken, prepend=0)
    return counts


def evaluate_stops(
    release: StopsRelease, points: ArrayLike, ranges: ArrayLike, *, floors: Sequence[float] | None = None
) -> pd.DataFrame:
    """Return the mean relative errors of range queries. The result is NOT private: it depends on the true trips.

    Args:
        release: release whose boxes answer the queries.
        points: true cell of each released trip in each dimension; shape (trips, dimensions).
        ranges: the queries, in the form that :meth:`StopsRelease.query` takes for several.
        floors: lower limits of the divisor, above 0. The error of a query is divided by the true answer or by the
            floor, whichever is larger. The default floors are a thousandth of the number of trips, and 1.

    Returns:
        One row for each floor and each of three ways to answer, with these columns: answered_by (``noisy`` for the
        drawn counts, ``count`` for the counts after post-processing, ``zero`` for the answer 0 to every query); floor;
        mean_relative_error (a ratio; [shaham2022stops, equation 3] states it in percent).

    Raises:
        OdError: the points are not cells of the grid, there is no query, a floor is not above 0, or a query is invalid.

    Examples:
        >>> evaluate_stops(boxes, points, ranges=[[(0, 3), (0, 3)]])["answered_by"].unique().tolist()
        ['noisy', 'count', 'zero']
    """
    boxes, grid = release.measured, release.plan.grid
    queries, cells = validate_ranges(ranges, grid.sizes), Trajectories.from_cells(points, grid).points
    if not len(queries):
        raise _make_evaluation_error("the mean error needs at least one query")
    floors = choose_default_error_floors(len(cells)) if floors is None else floors
    true = count_trips_in_ranges(count_trips_by_cell(cells, grid), queries)
    index = BoxIndex.from_boxes(boxes.lower, boxes.upper)
    answered = {
        "noisy": index.answer_queries(boxes.noisy, queries),
        "count": index.answer_queries(release.counts, queries),
        "zero": np.zeros(len(queries)),
    }
    return pd.DataFrame(
        [
            {
                "answered_by": name,
                "floor": floor,
                "mean_relative_error": compute_mean_relative_error(true, values, floor),
            }
            for floor in floors
            for name, values in answered.items()
        ]
    )


def evaluate_stops_entropy(release: StopsRelease, points: ArrayLike) -> dict[str, float]:
    """Return what the boxes tell of the trips, in bits. The result is NOT private: it depends on the true trips.

    The boxes lose the entropy of the cells minus that of the boxes [shaham2022stops, equations 4 and 15].

    Args:
        release: release whose boxes are evaluated.
        points: true cell of each released trip in each dimension; shape (trips, dimensions).

    Returns:
        The entropy of the true counts of the ``cells``, that of the true counts of the ``boxes``, their difference
        (``lost``), and the entropy of the ``released`` counts of the boxes, which noise makes larger or smaller.

    Raises:
        OdError: the points are not cells of the grid.

    Examples:
        >>> [*evaluate_stops_entropy(boxes, points)]
        ['cells', 'boxes', 'lost', 'released']
    """
    grid, boxes = release.plan.grid, release.measured
    rows = count_trips_by_cell(Trajectories.from_cells(points, grid).points, grid)
    ranges = np.stack([boxes.lower, boxes.upper], axis=2).astype(np.int64)
    cells = compute_entropy(rows[:, -1].astype(np.int64))
    true = compute_entropy(count_trips_in_ranges(rows, ranges))
    return {"cells": cells, "boxes": true, "lost": cells - true, "released": release.entropy}


def compute_entropy(counts: Counts) -> float:
    """Return the entropy, in bits, of a partition with these counts, which are at least 0; 0 if there are no trips.

    The entropy is the sum of -p log2 p over the parts, where p is the share of a part in all trips [shaham2022stops,
    equation 4].

    >>> compute_entropy(np.array([2, 0, 1, 1]))
    1.5
    """
    shares = counts[counts > 0] / max(1, int(counts.sum()))
    return float(-(shares * np.log2(shares)).sum()) + 0.0  # one part has 0, not -0


def choose_default_error_floors(trips: int) -> tuple[float, float]:
    """Return the default floors of :func:`evaluate_stops`: a thousandth of the number of trips (at least 1), and 1.

    A floor is the lower limit of the divisor of an error. With lower floors, empty space dominates the mean error.
    """
    return max(trips, 1) / 1000, 1.0


def compute_mean_relative_error(true: Counts, answered: Reals, floor: float) -> float:
    """Return the mean over queries of |answered - true| / max(true, floor).

    Raises OdError unless the floor is above 0.
    """
    if not floor > 0:
        raise _make_evaluation_error("the floor must be above 0")
    return float(np.mean(np.abs(answered - true) / np.maximum(true, floor)))


def count_trips_in_ranges(rows: Rows, ranges: Ranges) -> Counts:
    """Return the number of trips in each range, from the cells with trips; shape (queries,). It is confidential."""
    if not len(rows):
        return np.zeros(len(ranges), dtype=np.int64)
    cells, trips = np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64)
    return BoxIndex.from_boxes(cells, cells).answer_queries(trips, ranges).astype(np.int64)


def _make_evaluation_error(message: str) -> OdError:
    """Return the OdError for an evaluation that cannot be made."""
    return OdError("OD-STOPS-EVALUATION", message, next_step="correct the evaluation")
