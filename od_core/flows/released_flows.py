"""Read released flows, of one release or of several, at every pair of levels and with their intervals."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from od_core.errors import OdError, suggest_known_names, suggest_similar_name
from od_core.flows.arrays import Reals
from od_core.flows.estimation.fitted_tree import ZoneFunction
from od_core.flows.estimation.intervals import (
    Intervals,
    SegmentIntervals,
    SumEstimator,
    Weighted,
    compute_covariance,
    compute_fieller_ends,
    fill_pairs_if_few,
)
from od_core.flows.interval_ends import CHOSEN_BEFORE, Selection, compute_deviations
from od_core.geography.codes import WHOLE_SPACE, find_positions
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.geography.geography import Numbers
from od_core.geography.places import ZoneDistances, compute_level_distances
from od_core.records.segments import Breakdown, find_breakdown

if TYPE_CHECKING:
    from od_core.flows.release import Release

T = TypeVar("T")

Weights = str | pd.DataFrame | Callable[[NDArray[np.object_], NDArray[np.object_]], ArrayLike]
"""Weights of pairs of zones; see :meth:`ReleasedFlows.weighted_sum`."""


class WeightedSum(NamedTuple):
    """A weighted sum of the true trips, or a ratio of two, as the measurements estimate it.

    Attributes:
        value: unbiased estimate, without the trips of dropped areas.
        deviation: standard deviation of the estimate; of a ratio, by linearisation.
        lower, upper: ends of the interval, with the trips of dropped areas.
        released: the same of the released table, which is not unbiased and may lie outside the interval.
        unmeasured: what the trips of dropped areas, below which nothing was measured, may add to the sum (of a ratio,
            to its numerator) at least and at most; (0, 0) if no area was dropped.
    """

    value: float
    deviation: float
    lower: float
    upper: float
    released: float
    unmeasured: tuple[float, float]


def _compute_ratio_ends(part: Weighted, whole: Weighted, shared: float, deviations: float) -> tuple[float, float]:
    """Return the ends of the interval of the ratio of two weighted sums, ``part`` to ``whole``.

    ``shared`` is the covariance of the two estimates, and ``deviations`` the half-width of intervals in standard
    deviations. Without dropped nodes, the interval is Fieller's; see :func:`compute_fieller_ends`.

    Let this ratio be r and the whole B. If dropped nodes add n to the part and b to the whole, the ratio is
    (r B + n) / (B + b). It is monotone in each of r, B, n and b, so its extremes are at ends of their ranges. Raises
    OdError if the whole may be 0.
    """
    low, high, is_known = compute_fieller_ends(part, whole, shared, deviations)
    half_width = deviations * math.sqrt(whole.variance)
    least_whole, largest_whole = whole.estimate - half_width, whole.estimate + half_width
    added_to_part, added_to_whole = part.bound_dropped_trips(deviations), whole.bound_dropped_trips(deviations)
    least_added, most_added = added_to_whole
    has_dropped_trips = whole.dropped or part.dropped
    may_be_zero = least_whole + least_added <= 0 <= largest_whole + most_added
    if not is_known or (has_dropped_trips and may_be_zero):
        raise OdError(
            "OD-WEIGHTS-RATIO",
            "the denominator of the ratio may be 0: its interval holds 0, so the ratio may be any number",
            next_step="choose a denominator with more trips, or ask for the two sums",
        )
    if not has_dropped_trips:
        return float(low), float(high)
    extremes = product((float(low), float(high)), (least_whole, largest_whole), added_to_part, added_to_whole)
    ratios = [(r * b + to_part) / (b + to_whole) for r, b, to_part, to_whole in extremes]
    return min(ratios), max(ratios)


def make_zone_function(tree: FlowTree, weights: Weights) -> ZoneFunction:
    """Return weights in their three forms as one: a function of the numbers of origin zones and of destination zones.

    It takes two arrays of shape (pairs,), and returns the weights of the pairs; shape (pairs,).

    Raises:
        OdError: the name is unknown; the table lacks a column, has an unknown zone or has a pair twice; or a weight is
            not a finite number. If ``weights`` is a function, the returned function raises this for its weights.
    """
    if isinstance(weights, str):
        if weights not in QUANTITIES:
            raise _make_weights_error(
                f"there is no quantity {weights[:60]!r} ({suggest_known_names(weights, QUANTITIES)})"
            )
        return _make_weights_from_name(tree, weights)
    if isinstance(weights, pd.DataFrame):
        return _make_weights_from_table(tree, weights)
    if not callable(weights):
        raise _make_weights_error(f"weights are of type {type(weights).__name__}")
    return _make_weights_from_function(tree, weights)


QUANTITIES = ("trips", "within", "distance", "has_distance")
"""Names of public weights; see :meth:`ReleasedFlows.weighted_sum`."""


def _make_weights_from_name(tree: FlowTree, name: str) -> ZoneFunction:
    """Return the weights of a quantity, one of ``QUANTITIES``, as a function of the numbers of zones."""
    if name == "trips":
        return lambda origin, _: np.ones(len(origin))
    if name == "within":
        # The destination zone with the code of each origin zone; -1 if there is none.
        same_zone = find_positions(pd.Series(tree.origin.zones), tree.destination.zones)
        return lambda origin, destination: (same_zone[origin] == destination).astype(np.float64)
    distance = ZoneDistances.from_tree(tree).compute_distances
    if name == "distance":
        return lambda origin, destination: np.nan_to_num(distance(origin, destination))
    return lambda origin, destination: (~np.isnan(distance(origin, destination))).astype(np.float64)


def _make_weights_from_table(tree: FlowTree, table: pd.DataFrame) -> ZoneFunction:
    """Return the weights of a table, as a function of the numbers of zones; pairs that are left out have the weight 0.

    Raises OdError as :func:`make_zone_function` does.
    """
    columns = ("origin", "destination", "weight")
    for name in columns:
        if name not in table.columns:
            raise _make_weights_error(f"the table of weights has no column {name!r}")
    sides = [(tree.origin, table["origin"]), (tree.destination, table["destination"])]
    for geography, codes in sides:
        unknown = codes[geography.find_zone_numbers(codes) < 0]
        if len(unknown):
            code = str(unknown.iloc[0])
            raise _make_weights_error(
                f"a weight has the unknown zone {code[:60]!r}{suggest_similar_name(code, geography.zones)}"
            )
    destination_zones = len(tree.destination.zones)

    def number_pairs(origin: Numbers, destination: Numbers) -> pd.Index[int]:
        """Return a unique number of each pair of zones."""
        numbers: pd.Index[int] = pd.Index(origin.astype(np.int64) * destination_zones + destination)
        return numbers

    pairs_of_rows = number_pairs(*(geography.find_zone_numbers(codes) for geography, codes in sides))
    if not pairs_of_rows.is_unique:
        raise _make_weights_error("a pair of zones has two weights")
    weights = pd.Series(_convert_to_finite(table["weight"].to_numpy()), pairs_of_rows)
    return lambda origin, destination: weights.reindex(number_pairs(origin, destination), fill_value=0.0).to_numpy()


def _make_weights_from_function(
    tree: FlowTree, function: Callable[[NDArray[np.object_], NDArray[np.object_]], ArrayLike]
) -> ZoneFunction:
    """Return the weights of a function of zone codes, as a function of the numbers of zones.

    The returned function raises OdError if a weight is not finite, or the weights have another shape than the pairs.
    """
    origins, destinations = (np.array(side.zones, dtype=object) for side in (tree.origin, tree.destination))

    def compute_weights(origin: Numbers, destination: Numbers) -> Reals:
        """Return the weights of pairs of zones, given by their numbers; shape (pairs,)."""
        weights = np.asarray(function(origins[origin], destinations[destination]))
        if weights.shape not in ((), origin.shape):
            raise _make_weights_error(
                f"the function of weights returned the shape {weights.shape} for {len(origin)} pairs of zones"
            )
        return np.broadcast_to(_convert_to_finite(weights), origin.shape)

    return compute_weights


def _convert_to_finite(values: ArrayLike) -> Reals:
    """Return weights as real numbers. Raises OdError if one is not a finite number."""
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise _make_weights_error("a weight is not a number") from None
    if not np.isfinite(weights).all():
        raise _make_weights_error("a weight is missing or infinite")
    return weights


_MAX_CHANCE = 1e-6
"""Largest probability that pairs of zones were released above 0 by chance at which a selection is suspected."""


def _warn_if_selected(table: pd.DataFrame, weight: ZoneFunction, leaves: Nodes, public_pairs: int) -> None:
    """Warn if the pairs with a weight were probably chosen because they were released above 0.

    For k pairs that were chosen without a look at the release, the probability that all have released trips is about
    s^k, where s is the share of all public pairs that have released trips.

    Args:
        table: the weights, with a row for each pair.
        weight: the same weights as a function of the numbers of zones.
        leaves: the released flows between zones.
        public_pairs: number of public pairs of zones.
    """
    has_trips = leaves.trips > 0
    weighted = np.count_nonzero(table["weight"])
    weighted_with_trips = np.count_nonzero(weight(leaves.origin[has_trips], leaves.destination[has_trips]))
    share_with_trips = np.count_nonzero(has_trips) / public_pairs
    if weighted_with_trips == weighted and share_with_trips**weighted < _MAX_CHANCE:
        warnings.warn(
            f"all {weighted:,} pairs of zones with a weight were released above 0: if they were chosen from this"
            " release, the interval of their sum holds less often than it says",
            stacklevel=3,  # the caller of weighted_sum
        )


def _make_weights_error(message: str, next_step: str = "") -> OdError:
    """Return the OdError for arguments of a weighted sum; by default, the next step says what weights may be."""
    step = (
        "give weights as a table with the columns origin, destination and weight (finite numbers, each pair once), as a"
        f" function of two arrays of zone codes, or as one of the names {', '.join(QUANTITIES)}"
    )
    return OdError("OD-WEIGHTS", message, next_step=next_step or step)


class TripsBetween(NamedTuple):
    """A released sum of trips, and the bounds of its 90 % interval."""

    trips: int
    lower: int
    upper: int


class ReleasedFlows(ABC):
    """Released flows between zones. Flows at every pair of levels are sums of the same leaf flows.

    The estimates of :attr:`parts` add up to their unbiased estimates, and so do their variances, because the noise of
    two releases is independent.

    Attributes:
        leaves: released leaf nodes, in tree order.
        segments: for each breakdown, by name, the trips of the leaf nodes in its categories, which sum to the trips of
            the node; shape (leaf nodes, categories).
        selected: whether the intervals of flows above 0 allow for selection, so that they also hold for flows that are
            read because they were released above 0. False for bundles of earlier versions, whose intervals did not.
    """

    leaves: Nodes
    segments: Mapping[str, NDArray[np.int64]]
    selected: bool

    @property
    @abstractmethod
    def parts(self) -> tuple[Release, ...]:
        """The releases whose measured flows add up to these flows; of a release, itself alone."""

    @property
    def tree(self) -> FlowTree:
        """The flow tree, which all parts have."""
        return self.parts[0].plan.tree

    @property
    def breakdowns(self) -> Sequence[Breakdown]:
        """The breakdowns, by whose categories the flows are released, too."""
        return self.parts[0].plan.breakdowns

    @property
    def may_be_negative(self) -> bool:
        """True if released trips may be negative, because a mechanism releases all leaves as it measured them."""
        return any(part.plan.mechanism.measures == "all_leaves" for part in self.parts)

    @property
    def exact_trips(self) -> int | None:
        """The exact total number of trips; None if it is not exact."""
        return int(self.leaves.trips.sum()) if all(part.plan.publishes_total for part in self.parts) else None

    @cached_property
    def intervals(self) -> Intervals:
        """Intervals of the flows, computed from the measurements on first use.

        Raises OdError as :func:`od_core.flows.estimation.intervals.refuse_without_intervals` does.
        """
        return Intervals([part.fitted for part in self.parts])

    def segment_intervals(self, segment: str) -> SegmentIntervals:
        """Return the intervals of the flows in each category of a breakdown, computed on the first call.

        Raises OdError as :attr:`intervals` does, or if there is no breakdown of this name.
        """
        name = find_breakdown(self.breakdowns, segment).name
        return SegmentIntervals([part.fit_segment(name) for part in self.parts])

    def compute_once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of ``compute``, which is called once for each key and shared by all views of the flows."""
        if key not in self._computed:
            self._computed[key] = compute()
        result: T = self._computed[key]
        return result

    @cached_property
    def _computed(self) -> dict[Hashable, Any]:
        """Cache of :meth:`compute_once`: its results by key."""
        return {}

    @property
    def levels(self) -> list[tuple[str, str]]:
        """Names of the origin level and the destination level of every level of the flow tree, root first."""
        return self.tree.level_names

    @property
    def flows(self) -> pd.DataFrame:
        """Flows between zones, in columns ``origin`` and ``destination`` (zone codes) and ``trips`` (int64).

        Trips are at least 1, except for ``vanilla_gauss``. Pairs of zones with 0 trips are left out.
        """
        return self.flows_at(*self.tree.level_names[-1])

    def flows_at(
        self,
        origin_level: str,
        destination_level: str,
        *,
        segment: str | None = None,
        interval: bool = False,
        distance: bool = False,
        selected: bool | None = None,
    ) -> pd.DataFrame:
        """Return the flows at any pair of levels, summed from the leaves.

        Args:
            origin_level, destination_level: names of levels.
            segment: name of a breakdown, to return the flows in each of its categories.
            interval: whether to add the 90 % interval of each flow.
            distance: whether to add the distance between the two areas, for all trips (not by ``segment``).
            selected: whether the intervals of flows above 0 allow for selection, by default as :attr:`selected` says.
                Give False for flows that were chosen before the release was read. Their lower ends are nearer.

        Returns:
            Columns: origin, destination (area codes), trips (int64); with ``interval``, also lower and upper (int64);
            with ``distance``, also distance_km (kilometres between the mean places of their zones, NaN if unknown).
            With ``segment``, also the category, in a column with the name of the breakdown. The trips of a pair in all
            categories sum to its trips. An interval that did not contain the released trips is widened to them, so
            trips may equal lower or upper. Pairs with 0 released trips are listed only with ``interval``, and only if
            the two levels have at most :data:`od_core.publication.columns.MOST_LISTED` public cells.

        Raises:
            OdError: if a level or the breakdown is unknown or, with ``interval``, there are no :attr:`intervals`.
        """
        tree, breakdown = self.tree, None if segment is None else find_breakdown(self.breakdowns, segment)
        levels = self._find_level_numbers(origin_level, destination_level)
        origin, destination, trips = self._sum_trips(levels, segment)
        if interval:
            origin, destination, trips = fill_pairs_if_few(tree, *levels, origin, destination, trips)
        columns: dict[str, pd.Series | NDArray[np.generic]] = {
            "origin": tree.origin.codes_of(levels[0], origin),
            "destination": tree.destination.codes_of(levels[1], destination),
        }
        if breakdown is not None:
            columns = {name: np.repeat(codes, len(breakdown.categories)) for name, codes in columns.items()}
            columns[breakdown.name] = np.tile(np.array(breakdown.categories, dtype=object), len(origin))
        columns["trips"] = trips.ravel()
        if interval:
            intervals = self.intervals if segment is None else self.segment_intervals(segment)
            ends = self.make_selection(levels, segment, selected=selected, trips=trips).make_lower_ends(trips)
            lower, upper = intervals.compute_cell_bounds(*levels, origin, destination, ends)
            columns |= {"lower": np.minimum(lower, trips).ravel(), "upper": np.maximum(upper, trips).ravel()}
        if distance and segment is None:
            columns["distance_km"] = compute_level_distances(tree, levels, origin, destination)
        flows = pd.DataFrame(columns)
        return flows if interval or segment is None else flows[flows["trips"] > 0].reset_index(drop=True)

    @property
    def has_laplace_noise(self) -> bool:
        """Whether some of the measurements have Laplace noise."""
        return any(part.plan.mechanism.has_laplace_noise for part in self.parts)

    def make_selection(
        self,
        levels: tuple[int, int],
        segment: str | None = None,
        *,
        selected: bool | None = None,
        trips: NDArray[np.int64] | None = None,
    ) -> Selection:
        """Return how the intervals of the flows at a pair of levels allow for the selection of flows above 0.

        Args:
            levels: numbers of the origin level and the destination level.
            segment: name of a breakdown, for the flows in each of its categories.
            selected: see :meth:`flows_at`. If False, the result is ``CHOSEN_BEFORE``, which allows for no selection.
            trips: released trips of all flows above 0, to save the sum over the leaves; shape (flows,), or (flows,
                categories) with ``segment``.
        """

        def compute_selection() -> Selection:
            """Return the selection of flows above 0 among all public pairs of the two levels."""
            released_trips = self._sum_trips(levels, segment)[2] if trips is None else trips
            categories = math.prod(released_trips.shape[1:])
            public = self.tree.count_area_pairs(*levels) * categories
            return Selection.from_numbers(released_trips, public, has_laplace_noise=self.has_laplace_noise)

        is_selected = self.selected if selected is None else selected
        return self.compute_once(("selection", levels, segment), compute_selection) if is_selected else CHOSEN_BEFORE

    def _sum_trips(self, levels: tuple[int, int], segment: str | None) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        """Return the origins and destinations (area numbers) of the flows at two levels, and their released trips.

        Only pairs with trips are listed. Trips have the shape (pairs,), or (pairs, categories) with ``segment``.
        """
        if segment is None:
            return self.tree.sum_trips(self.leaves, *levels)
        return self.tree.sum_values(self.leaves, self.segments[segment], *levels)

    @property
    def counts(self) -> pd.DataFrame:
        """Counts of the zones, in columns ``area`` and ``count`` (int64); see :meth:`counts_at`."""
        return self.counts_at(self.tree.origin.levels[-1])

    def counts_at(self, level: str, *, segment: str | None = None, interval: bool = False) -> pd.DataFrame:
        """Return the counts of the areas of a level: the trips that begin in each, wherever they end.

        Columns, ``segment``, ``interval`` and errors are those of :meth:`flows_at`, with ``area`` and ``count`` in
        place of ``origin`` and ``trips``, and without ``destination``.
        """
        flows = self.flows_at(level, WHOLE_SPACE, segment=segment, interval=interval)
        return flows.drop(columns="destination").rename(columns={"origin": "area", "trips": "count"})

    def _find_level_numbers(self, origin_level: str, destination_level: str) -> tuple[int, int]:
        """Return the numbers of two levels. Raises OdError if there is no level of this name."""
        origin = self.tree.origin.find_level_number(origin_level)
        return origin, self.tree.destination.find_level_number(destination_level)

    def zero_bound(self, origin_level: str, destination_level: str) -> int:
        """Return the largest upper bound, in trips, of the intervals of all pairs of two levels that are released as 0.

        For a sum of releases that dropped areas, the bound may be larger: each release adds the largest of its own.
        Raises OdError if a level is unknown, or if the release has no :attr:`intervals`.
        """
        levels = self._find_level_numbers(origin_level, destination_level)
        return self.compute_once(
            ("zero_bound", levels),
            lambda: self.intervals.compute_zero_bound(*levels, *self.tree.sum_trips(self.leaves, *levels)[:2]),
        )

    def trips_between(
        self,
        origin_level: str,
        origins: Sequence[str],
        destination_level: str,
        destinations: Sequence[str],
        *,
        segment: str | None = None,
        category: str | None = None,
    ) -> TripsBetween:
        """Return the released trips between two sets of areas, and the 90 % interval of this sum.

        The interval of a sum is narrower than the sum of the intervals of its flows.

        Args:
            origin_level, origins: name of a level, and codes of areas of that level.
            destination_level, destinations: the same for the destinations.
            segment, category: name of a breakdown and one of its categories, to sum the trips of this category only.

        Returns:
            Trips, lower bound and upper bound, as the fields ``trips``, ``lower`` and ``upper``. The interval is
            widened to contain the trips, as in :meth:`flows_at`.

        Raises:
            OdError: if a level, an area, the breakdown or the category is unknown, or there are no :attr:`intervals`.
        """
        origin, destination = self.tree.origin, self.tree.destination
        begins = origin.mask_zones(origin.find_level_number(origin_level), origins)
        ends = destination.mask_zones(destination.find_level_number(destination_level), destinations)
        inside = begins[self.leaves.origin] & ends[self.leaves.destination]
        if segment is None and category is None:
            trips = int(self.leaves.trips[inside].sum())
            lower, upper = self.intervals.compute_sum_bounds(begins, ends)
        else:
            position = find_breakdown(self.breakdowns, str(segment)).position(str(category))
            trips = int(self.segments[str(segment)][inside, position].sum())
            bounds_of_categories = self.segment_intervals(str(segment)).compute_sum_bounds(begins, ends)
            lower, upper = (int(bounds[position]) for bounds in bounds_of_categories)
        return TripsBetween(trips, min(lower, trips), max(upper, trips))

    def weighted_sum(
        self,
        weights: Weights,
        *,
        per: Weights | None = None,
        segment: str | None = None,
        category: str | None = None,
        confidence: float = 0.9,
    ) -> WeightedSum:
        """Return the estimate of a weighted sum of the true trips, or of a ratio of two, with its interval.

        For example, ``weighted_sum("distance")`` estimates the kilometres of all trips, and ``weighted_sum("distance",
        per="has_distance")`` the mean distance. The interval contains the truth with the stated confidence for any
        weights that do not depend on the trips of this release, because the estimate is linear in the measurements.
        The interval of a ratio is Fieller's. The method warns if all pairs with a weight in a table were released
        above 0, and this is very improbable by chance: the pairs were then probably chosen by their released trips.

        Args:
            weights: weight of the trips of each pair of zones: a table with the columns origin, destination (zone
                codes) and weight, in which pairs that are left out have the weight 0; a function that returns the
                weights of pairs, given the codes of their origins and of their destinations as arrays; or the name of a
                public quantity: ``trips`` (1), ``within`` (1 within a zone, else 0), ``distance`` (kilometres, 0 if
                unknown) or ``has_distance`` (1 if it is known, else 0).
            per: weights of the denominator of a ratio.
            segment, category: name of a breakdown and one of its categories, to sum the trips of this category only.
            confidence: probability that the interval contains the truth, between 0 and 1.

        Returns:
            The estimate, its standard deviation, the ends of its interval, and the same sum or ratio of the released
            table; see :class:`WeightedSum`.

        Raises:
            OdError: If weights are not finite, have an unknown zone or a pair twice; if ``confidence`` is out of range;
                if the interval of the denominator holds 0; if the breakdown or the category is unknown; or if the
                release has no :attr:`intervals`.
        """
        if not (confidence > 0 and (1 + confidence) / 2 < 1):  # as floats
            raise _make_weights_error(
                f"confidence is {confidence}; it must lie between 0 and 1", "write 0.9 for a 90 % interval"
            )
        leaves, estimate = self._select_summed_leaves(segment, category)
        deviations = compute_deviations(confidence, has_laplace_noise=self.has_laplace_noise)
        part_weights = make_zone_function(self.tree, weights)
        if isinstance(weights, pd.DataFrame):
            _warn_if_selected(weights, part_weights, leaves, self.tree.cells(self.tree.depth))
        part = estimate(part_weights, deviations)
        released_part = _sum_weighted_trips(leaves, part_weights)
        unmeasured = part.bound_dropped_trips(deviations)
        if per is None:
            lower, upper = part.compute_ends(deviations)
            return WeightedSum(part.estimate, math.sqrt(part.variance), lower, upper, released_part, unmeasured)
        whole_weights = make_zone_function(self.tree, per)
        whole = estimate(whole_weights, deviations)
        released_whole = _sum_weighted_trips(leaves, whole_weights)
        covariance = compute_covariance(estimate, (part_weights, part), (whole_weights, whole))
        lower, upper = _compute_ratio_ends(part, whole, covariance, deviations)
        ratio = part.estimate / whole.estimate
        # To first order, the error of the ratio is that of (part - ratio * whole) / whole.
        variance = part.variance - 2 * ratio * covariance + ratio * ratio * whole.variance
        deviation = math.sqrt(max(variance, 0.0)) / abs(whole.estimate)
        released_ratio = released_part / released_whole if released_whole else math.nan
        return WeightedSum(ratio, deviation, lower, upper, released_ratio, unmeasured)

    def _select_summed_leaves(self, segment: str | None, category: str | None) -> tuple[Nodes, SumEstimator]:
        """Return the leaves with their released trips, and the function that estimates weighted sums of true trips.

        With ``segment`` and ``category``, both are of the trips of this category. Raises OdError if there is none, or
        if the release has no :attr:`intervals`.
        """
        if segment is None and category is None:
            return self.leaves, self.intervals.estimate_weighted_sum
        position = find_breakdown(self.breakdowns, str(segment)).position(str(category))
        leaves = replace(self.leaves, trips=self.segments[str(segment)][:, position])
        return leaves, partial(self.segment_intervals(str(segment)).estimate_weighted_sum, category=position)


def _sum_weighted_trips(leaves: Nodes, weight: ZoneFunction) -> float:
    """Return the weighted sum of the released trips of leaves."""
    return float(weight(leaves.origin, leaves.destination) @ leaves.trips.astype(np.float64))
