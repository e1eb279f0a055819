"""Compute indicators of the areas of a release, and the trips that begin in them by distance, with intervals.

The indicators are outflow, inflow, trips within, balance, self-containment, and mean distance.

The balance is the inflow I minus the outflow O. Its estimate has the variance V_I + V_O - 2 C, where C is the
covariance of both (:mod:`od_core.flows.estimation.intervals`).

Self-containment is the share N / B of the trips that begin in an area and stay in it. The mean distance is D / B,
where D is the sum of the distances of the trips. For shares, the covariance of N and B follows from the variance of
B - N, which is the outflow. For intervals of ratios, see
:func:`od_core.flows.estimation.intervals.compute_fieller_ends`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.fitted_tree import Estimates, ZoneFunction
from od_core.flows.estimation.intervals import (
    AreaEstimates,
    bound_ratio,
    compute_bounds,
    compute_dropped_bounds,
    compute_sum_upper_bounds,
)
from od_core.flows.interval_ends import compute_half_width, compute_lower_bound, compute_uncut_upper_bound
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.geography import Numbers
from od_core.geography.places import ZoneDistances, has_distances

_SHARE_DECIMALS = 6
"""Number of decimal places of a share."""

_DISTANCE_DECIMALS = 3
"""Number of decimal places of a distance in kilometres."""


def indicators(
    flows: ReleasedFlows,
    levels: Sequence[str] | None = None,
    *,
    interval: bool = True,
    selected: bool | None = None,
    by_totals: bool = False,
) -> pd.DataFrame:
    """Return the indicators of all areas of some levels.

    Args:
        flows: released flows.
        levels: names of the levels; by default, all levels below the whole space.
        interval: whether to add the 90 % interval of each indicator.
        selected: whether the intervals of trips within are those of flows that are read because they were released, as
            in :meth:`od_core.flows.released_flows.ReleasedFlows.flows_at`. Nearly all outflows and inflows are.
        by_totals: whether the trips within have the intervals of bundles before format 10, which measured area totals
            made wider; otherwise, those of the flow from an area to itself.

    Returns:
        One row for each area: level and area (text); outflow, inflow, within and balance (trips, int64; balance is the
        inflow minus the outflow); self_containment (a share from 0 to 1; NaN for an area from which no trips were
        released). If zones have coordinates, also mean_distance (kilometres; of the trips that begin in the area and
        whose distance is known, NaN without any).

        With ``interval``, each of these is followed by the ends of its 90 % interval, such as outflow_lower and
        outflow_upper. A released number may lie outside of the interval that the measurements give; then the nearer end
        becomes that number. Four more columns come last. outflow_unbiased and inflow_unbiased are the estimates from
        the measurements alone (whole trips, int64; they may be negative, and lack the trips of dropped nodes).
        outflow_likely and inflow_likely say on which side of the released number the truth is likely: ``higher`` or
        ``lower`` where the released number is an end of its interval and is at least the half-width; empty elsewhere,
        and where the totals of that side were measured.

    Raises:
        OdError: if origins and destinations have different areas, a level is unknown, or ``interval`` is true and the
            flows have no intervals.
    """
    if not flows.tree.same_geography:
        raise OdError(
            "OD-INDICATORS-AREAS",
            "origins and destinations have different areas, so there are no trips within an area",
            next_step="read the flows at the levels of both sides",
        )
    geography = flows.tree.origin
    distances = ZoneDistances.from_tree(flows.tree) if has_distances(flows.tree) else None
    tables = []
    for name in geography.levels if levels is None else levels:
        level = geography.find_level_number(name)
        codes = geography.codes_of(level, np.arange(geography.size(level), dtype=np.int32))
        columns = _compute_level_indicators(
            flows, level, distances, interval=interval, selected=selected, by_totals=by_totals
        )
        tables.append(pd.DataFrame({"level": geography.level_names[level], "area": codes, **columns}))
    return pd.concat(tables, ignore_index=True)


def _compute_level_indicators(
    flows: ReleasedFlows,
    level: int,
    distances: ZoneDistances | None,
    *,
    interval: bool,
    selected: bool | None,
    by_totals: bool,
) -> Mapping[str, NDArray[np.generic]]:
    """Return the columns of :func:`indicators` but level and area, for the areas of one level; shape (areas,) each."""
    within, begun, ended = _sum_released_trips(flows, level)
    share = np.full(len(begun), np.nan)
    np.divide(within, begun, out=share, where=begun > 0)
    columns: dict[str, Integers | Reals] = {
        "outflow": begun - within,
        "inflow": ended - within,
        "within": within,
        "balance": ended - begun,
        "self_containment": np.round(np.clip(share, 0, 1), _SHARE_DECIMALS),
    }
    if distances is not None:
        columns["mean_distance"] = _compute_mean_distances(flows, level, distances)
    if not interval:
        return columns
    areas = flows.intervals.estimate_areas(level)
    ends_within = flows.make_selection((level, level), selected=selected).make_lower_ends(within)
    if by_totals:
        bounds_within = compute_bounds(areas.within, ends_within)
    else:
        every_area = np.arange(len(within), dtype=np.int32)
        bounds_within = flows.intervals.compute_cell_bounds(level, level, every_area, every_area, ends_within)
    bounds: dict[str, tuple[Integers, Integers] | tuple[Reals, Reals]] = {
        "outflow": compute_bounds(areas.outflow),
        "inflow": compute_bounds(areas.inflow),
        "within": bounds_within,
        "balance": _compute_balance_bounds(areas),
        "self_containment": _compute_self_containment_bounds(areas, nothing_dropped=flows.intervals.nothing_dropped),
    }
    if distances is not None:
        bounds["mean_distance"] = _compute_distance_bounds(flows, level, distances)
    with_intervals: dict[str, NDArray[np.generic]] = {}
    for name, numbers in columns.items():
        lower, upper = bounds[name]
        with_intervals[name] = numbers
        with_intervals[f"{name}_lower"] = np.fmin(lower, numbers)  # widened to the released number, if there is one
        with_intervals[f"{name}_upper"] = np.fmax(upper, numbers)
    for side, (name, sums) in enumerate((("outflow", areas.outflow), ("inflow", areas.inflow))):
        unbiased = np.rint(sums.estimate).astype(np.int64)
        is_measured = flows.intervals.has_measured_totals(side)
        likely = np.full(len(unbiased), "") if is_measured else _find_likely_sides(columns[name], unbiased, sums)
        with_intervals |= {f"{name}_unbiased": unbiased, f"{name}_likely": likely}
    return with_intervals


def _sum_released_trips(flows: ReleasedFlows, level: int) -> tuple[Integers, Integers, Integers]:
    """Return the released trips within, from and to each area of a level; shape (areas,) each."""
    tree, size = flows.tree, flows.tree.origin.size(level)
    origin, destination, trips = tree.sum_trips(flows.leaves, level, level)
    within, begun, ended = np.zeros((3, size), dtype=np.int64)
    is_within = origin == destination
    within[origin[is_within]] = trips[is_within]
    np.add.at(begun, origin, trips)
    np.add.at(ended, destination, trips)
    return within, begun, ended


def _find_likely_sides(released: Integers | Reals, unbiased: Integers, sums: Estimates) -> NDArray[np.str_]:
    """Return on which side of released totals the true totals probably are: ``higher``, ``lower``, or empty; (areas,).

    Whole numbers of at least 0 with given sums take trips from large areas and give them to small ones. A side is named
    where the released number is at an end of its interval or beyond, before the interval is cut at 0 and widened. No
    side is named if the number is below the half-width of the interval: the unbiased number is then mostly noise.
    """
    low = -compute_uncut_upper_bound(-sums.estimate, sums.variance)
    high = compute_sum_upper_bounds(sums, compute_uncut_upper_bound)
    is_known = released >= compute_half_width(sums.estimate, sums.variance)
    is_low = (released <= low) & (released < unbiased)
    is_high = (released >= high) & (released > unbiased)
    return np.select([is_known & is_low, is_known & is_high], ["higher", "lower"], "")


def _compute_balance_bounds(areas: AreaEstimates) -> tuple[Integers, Integers]:
    """Return the lower and upper bounds of the inflow minus the outflow of each area; shape (areas,) each.

    Trips of dropped nodes may be part of the inflow, which raises the balance, or of the outflow, which lowers it. So
    the upper end has the dropped trips of the inflow, and the lower end those of the outflow.
    """
    variance = np.maximum(areas.inflow.variance + areas.outflow.variance - 2 * areas.exchange, 0)
    balance = areas.inflow.estimate - areas.outflow.estimate
    raised = replace(areas.inflow, estimate=balance, variance=variance)
    lowered = replace(areas.outflow, estimate=-balance, variance=variance)
    lower = -compute_sum_upper_bounds(lowered, compute_uncut_upper_bound)
    return lower, compute_sum_upper_bounds(raised, compute_uncut_upper_bound)


def _compute_mean_distances(flows: ReleasedFlows, level: int, distances: ZoneDistances) -> Reals:
    """Return the mean distance of the released trips from each area of a level, in kilometres; shape (areas,)."""
    distance = distances.compute_distances(flows.leaves.origin, flows.leaves.destination)
    area, size = flows.tree.origin.ancestors(level)[flows.leaves.origin], flows.tree.origin.size(level)
    has_distance = ~np.isnan(distance)
    trips = np.where(has_distance, flows.leaves.trips, 0)
    metres = np.where(has_distance, np.round(1000 * distance), 0)
    total_metres, total_trips = np.zeros((2, size))  # real numbers, which are exact for whole sums below 2^53
    np.add.at(total_metres, area, metres * trips)
    np.add.at(total_trips, area, trips)
    mean = np.full(size, np.nan)
    np.divide(total_metres / 1000, total_trips, out=mean, where=total_trips > 0)
    rounded: Reals = np.round(np.maximum(mean, 0), _DISTANCE_DECIMALS)
    return rounded


def _compute_self_containment_bounds(areas: AreaEstimates, *, nothing_dropped: bool) -> tuple[Reals, Reals]:
    """Return the lower and upper bounds of the self-containment of each area, rounded outwards; shape (areas,) each.

    If nodes were dropped, nothing was measured below them, and the estimates of the trips within and of the outflow do
    not sum to those that begin in the area. Then the ends follow from the bounds of both, which is wider.
    """
    if nothing_dropped:
        covariance = (areas.begun.variance + areas.within.variance - areas.outflow.variance) / 2
        low, high = bound_ratio(areas.within, areas.begun, covariance, 1.0)
    else:
        (stay_low, stay_high), (leave_low, leave_high) = compute_bounds(areas.within), compute_bounds(areas.outflow)
        with np.errstate(invalid="ignore", divide="ignore"):
            low = np.nan_to_num(stay_low / (stay_low + leave_high), nan=0.0)
            high = np.nan_to_num(stay_high / (stay_high + leave_low), nan=1.0)
    return _round_outwards(low, high, _SHARE_DECIMALS)


def _compute_distance_bounds(flows: ReleasedFlows, level: int, distances: ZoneDistances) -> tuple[Reals, Reals]:
    """Return the lower and upper bounds of the mean distance from each area, in kilometres; shape (areas,) each.

    Trips of dropped nodes may have any distance between two zones. With at most u such trips, and at least b others
    whose mean is at least m, the mean of all is at least m b / (b + u).
    """
    intervals, distance, farthest = flows.intervals, distances.compute_distances, distances.farthest
    # The covariance of the trips B and their distances D follows from the variance of D + s B. With s near a mean
    # distance, both terms weigh about the same, and few digits are lost.
    scale = max(farthest / 10, 1.0)

    def is_distance_known(origin: Numbers, destination: Numbers) -> NDArray[np.bool_]:
        return ~np.isnan(distance(origin, destination))

    def distance_or_zero(origin: Numbers, destination: Numbers) -> Reals:
        return np.nan_to_num(distance(origin, destination))

    weights: tuple[ZoneFunction, ...] = (
        is_distance_known,
        distance_or_zero,
        lambda *pairs: distance_or_zero(*pairs) + scale * is_distance_known(*pairs),
    )
    (trips,), (total,), (mixed,) = (intervals.estimate_begun_trips(level, weight) for weight in weights)
    covariance = (mixed.variance - total.variance - scale**2 * trips.variance) / (2 * scale)
    low, high = bound_ratio(total, trips, covariance, farthest)
    unseen = compute_dropped_bounds(trips)  # u
    lower = np.maximum(compute_lower_bound(trips.estimate, trips.variance), 0)  # b
    part = np.divide(lower, lower + unseen, out=np.ones(len(low)), where=unseen > 0)
    return _round_outwards(low * part, high * part + farthest * (1 - part), _DISTANCE_DECIMALS)


def _round_outwards(low: Reals, high: Reals, digits: int) -> tuple[Reals, Reals]:
    """Return the ends of intervals, rounded outwards to some decimal places."""
    step = 10**digits
    return np.floor(low * step) / step, np.ceil(high * step) / step


def distance_bands(
    flows: ReleasedFlows,
    levels: Sequence[str] | None = None,
    *,
    edges: Sequence[float] | None = None,
    interval: bool = True,
) -> pd.DataFrame:
    """Return the trips that begin in each area, by bands of distance.

    Args:
        flows: released flows.
        levels: names of the levels of the areas; by default, all levels with the whole space.
        edges: ends of the bands in kilometres, in ascending order; by default, those of :attr:`ZoneDistances.edges`.
        interval: whether to add the 90 % interval of each number.

    Returns:
        One row for each area and band: level, area (text), band (its number from 1; 0 for trips whose distance is
        unknown), from_km and to_km (kilometres; the lower end belongs to the band, the upper end does not, and NaN
        is no end), and trips (int64). With ``interval``, also lower and upper (int64), widened to contain the trips.
        The bands of an area sum to the trips that begin in it. Band 0 is left out if all distances are known.

    Raises:
        OdError: If a side has no zone with coordinates, if a level is unknown, if the edges are not positive and
            ascending, or, with ``interval``, if the flows have no intervals.
    """
    tree = flows.tree
    distances = ZoneDistances.from_tree(tree)
    bands = _Bands(distances, _read_edges(distances.edges if edges is None else edges))
    names = tree.origin.level_names if levels is None else levels
    tables = [_make_band_table(flows, tree.origin.find_level_number(name), bands, interval) for name in names]
    return pd.concat(tables, ignore_index=True)


def _read_edges(edges: Sequence[float]) -> Reals:
    """Return the ends of bands in kilometres, as an array. Raises OdError if they are not positive and ascending."""
    ends = np.array(edges, dtype=np.float64)
    if not np.isfinite(ends).all() or np.any(np.diff(ends, prepend=0.0) <= 0):
        raise OdError(
            "OD-DISTANCES-EDGES",
            "the ends of bands of distance are not positive numbers in ascending order",
            next_step="give kilometres such as 5, 10, 20",
        )
    return ends


@dataclass(frozen=True, eq=False)
class _Bands:
    """The bands of distance that are listed for each area, of which the first is band 0 if a distance is unknown.

    Attributes:
        distances: distances between zones.
        ends: upper ends of the bands from the first to the last but one, in kilometres; shape (bands - 1,).
    """

    distances: ZoneDistances
    ends: Reals

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the listed bands; shape (listed bands,)."""
        return np.arange(1 if self.distances.all_known else 0, len(self.ends) + 2)

    @property
    def from_km(self) -> Reals:
        """Lower end of each listed band in kilometres; NaN for band 0; shape (listed bands,)."""
        return np.concatenate([[np.nan, 0.0], self.ends])[self.numbers]

    @property
    def to_km(self) -> Reals:
        """Upper end of each listed band in kilometres; NaN for band 0 and the last one; shape (listed bands,)."""
        return np.concatenate([[np.nan], self.ends, [np.nan]])[self.numbers]

    def find_positions(self, origin: Numbers, destination: Numbers) -> NDArray[np.int64]:
        """Return the position among the listed bands of each pair of zones; shape (pairs,)."""
        distance = self.distances.compute_distances(origin, destination)
        band = np.where(np.isnan(distance), 0, np.searchsorted(self.ends, distance, side="right") + 1)
        return np.asarray(band - self.numbers[0], dtype=np.int64)


def _make_band_table(flows: ReleasedFlows, level: int, bands: _Bands, interval: bool) -> pd.DataFrame:
    """Return the rows of :func:`distance_bands` for the areas of one level, given by its number."""
    geography, leaves, listed = flows.tree.origin, flows.leaves, len(bands.numbers)
    size = geography.size(level)
    begun = np.zeros((size, listed), dtype=np.int64)
    position = bands.find_positions(leaves.origin, leaves.destination)
    np.add.at(begun, (geography.ancestors(level)[leaves.origin], position), leaves.trips)
    trips = begun.ravel()
    columns: dict[str, object] = {
        "level": geography.level_names[level],
        "area": np.repeat(geography.codes_of(level, np.arange(size, dtype=np.int32)), listed),
        "band": np.tile(bands.numbers, size),
        "from_km": np.tile(bands.from_km, size),
        "to_km": np.tile(bands.to_km, size),
        "trips": trips,
    }
    if interval:
        estimates = flows.intervals.estimate_begun_trips(level, None, bands.find_positions, listed)
        bounds = [compute_bounds(of_band) for of_band in estimates]
        lower = np.column_stack([low for low, _ in bounds]).ravel()
        upper = np.column_stack([high for _, high in bounds]).ravel()
        columns |= {"lower": np.minimum(lower, trips), "upper": np.maximum(upper, trips)}
    return pd.DataFrame(columns)
