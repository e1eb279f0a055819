"""Measure the errors of range queries on released boxes by comparison with the true trips."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from od_core.errors import OdError
from od_core.stops.geometry import BoxIndex, Counts, Points, Ranges, Reals, checked_ranges
from od_core.stops.release import StopsRelease

HEADLINE_SHARE = 1000
"""Divisor of the number of trips that gives the first default floor (lower limit of the divisor of an error) of
:func:`evaluate_stops`. With lower floors, the mean error mostly reflects queries of empty space."""


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
        OdError: the points are not cells of the release's grid, there is no query, a floor is not above 0, or a query
            is invalid.
    """
    boxes, sizes = release.measured, release.plan.grid.sizes
    queries, cells = checked_ranges(ranges, sizes), _checked_points(points, sizes)
    if not len(queries):
        raise _fault("the mean error needs at least one query")
    floors = headline_floors(len(cells)) if floors is None else floors
    true, index = true_answers(cells, queries), BoxIndex.of(boxes.lower, boxes.upper)
    answered = {
        "noisy": index.answers(boxes.noisy, queries),
        "count": index.answers(release.counts, queries),
        "zero": np.zeros(len(queries)),
    }
    return pd.DataFrame(
        [
            {"answered_by": name, "floor": floor, "mean_relative_error": mean_relative_error(true, values, floor)}
            for floor in floors
            for name, values in answered.items()
        ]
    )


def headline_floors(trips: int) -> tuple[float, float]:
    """Return the default floors of :func:`evaluate_stops`: a thousandth of the number of trips (at least 1), and 1."""
    return max(trips, 1) / HEADLINE_SHARE, 1.0


def mean_relative_error(true: Counts, answered: Reals, floor: float) -> float:
    """Return the mean of |answered - true| / max(true, floor) over queries; ``floor`` is above 0."""
    if not floor > 0:
        raise _fault("the floor must be above 0")
    return float(np.mean(np.abs(answered - true) / np.maximum(true, floor)))


def true_answers(points: Points, ranges: Ranges) -> Counts:
    """Return the number of trips, given as points, in each range; shape (queries,). The result is confidential."""
    if not len(points):
        return np.zeros(len(ranges), dtype=np.int64)
    inside: Counts = BoxIndex.of(points, points).answers(np.ones(len(points)), ranges).astype(np.int64)
    return inside


def _checked_points(points: ArrayLike, sizes: Sequence[int]) -> Points:
    cells = np.asarray(points)
    is_shaped = cells.ndim == 2 and cells.shape[1] == len(sizes) and np.issubdtype(cells.dtype, np.integer)
    if not is_shaped or (cells < 0).any() or (cells >= np.array(sizes)).any():
        raise OdError(
            "OD-STOPS-POINTS",
            f"the trips are not cells of the space of the release, {' x '.join(map(str, sizes))}",
            next_step="give the trips that were released",
        )
    return np.ascontiguousarray(cells, dtype=np.int32)


def _fault(message: str) -> OdError:
    return OdError("OD-STOPS-EVALUATION", message, next_step="correct the evaluation")
