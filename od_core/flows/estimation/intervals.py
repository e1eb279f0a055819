"""Compute a 90 % interval for every published cell from the published measurements, at no privacy cost.

The least-squares estimate of a cell is unbiased and nearly normal, so its interval contains the true number of counted
trips with the stated probability, whatever that number is (``docs/explanation/uncertainty.md``). Cells at pairs of
levels that are not in the flow tree are sums of nodes of the tree, as are the flows between two sets of areas.

Nothing was measured below a node that the top-down pass dropped. A cell below such a node has the upper bound of its
nearest measured ancestor. A sum that overlaps dropped nodes may contain any number of their trips, from none to all.

The noise of different releases is independent. So the estimates of a sum of releases add up, and their variances, too.

**Outflow and inflow of an area** have correlated errors (:func:`compute_exchange_covariances`). Let f and g be two sums
of estimates below a node with the estimate h, with the factors c and d of :mod:`od_core.flows.estimation.fitted_tree`.
Their covariance is q + c d V, where V is the variance of h. If the sums below the children i of the node have the
factors c_i and d_i and the shared residuals q_i, then

    q = sum (q_i + c_i d_i v_i) - c d S.

The outflow of an area has leaves below its row of the table, and its inflow below its column. Both have leaves below
one node of each level only: the one from the ancestor of the area to the same ancestor.

**Categories.** The estimate C_s + (T - sum C) / K of category s follows from the estimates C of a sum for each of K
categories alone, and from T, that of its total; ``docs/explanation/segments.md`` has its variance.

**Area totals.** If the trips from and to each zone were measured beside the tree, these measurements are independent
of the tree's. The estimate of a total is then the mean of both, weighted by precision. The trips within an area, its
outflow and its inflow have known covariances, so they are improved by the same measurements of the area, one after the
other: with the covariance c of a part with the sum B of variance V, and the measured sum y of variance S, a part moves
by c (y - B) / (V + S).

Totals that are known from elsewhere are such measurements, whose variance is that of their stated error.

**Weighted sums.** A weighted sum of the least-squares estimates of the leaves is unbiased, and its variance is known.
The covariance C of two sums N and B follows from the variance V of N + s B:

    C = (V - V_N - s^2 V_B) / (2 s),

where V_N and V_B are the variances of the two. The interval of a ratio N / B has all r for which N - r B is nearer to 0
than its own uncertainty [fieller1954problems]:

    (N - r B)^2 <= z^2 (V_N - 2 r C + r^2 V_B),

where z is the quantile of the interval.

The trips of a dropped node, which are at most its upper bound, may have any weight that occurs below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.accuracy import compute_segment_variance
from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.fitted_tree import (
    FACTOR,
    MEASURED_ROWS,
    OTHERS,
    Estimates,
    FittedTree,
    GroupFunction,
    NodeSums,
    Weights,
    ZoneFunction,
    find_pairs,
)
from od_core.flows.estimation.least_squares import FittedLevel, fit_least_squares
from od_core.flows.estimation.levels import Measurement, list_segment_counts
from od_core.flows.interval_ends import (
    DEVIATIONS,
    ROUNDING,
    UNSELECTED_ENDS,
    LowerEnds,
    compute_lower_bound,
    compute_upper_bound,
)
from od_core.flows.known_totals import KnownTotals
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import FlowTree, Pairs
from od_core.geography.geography import Numbers
from od_core.meaning.features import refuse_unsupported
from od_core.publication.columns import MOST_LISTED


def compute_exchange_covariances(fit: FittedTree, level: int) -> Reals:
    """Return the covariance of the outflow and the inflow of each area of a level; shape (areas,).

    Both geographies of the tree must be the same, and ``level`` must be at least 1. If nodes were dropped, both are
    sums of noisy values, which are independent, and no value is in both. Then the covariances are 0.
    """
    covariance = np.zeros(fit.tree.origin.size(level))
    if not fit.nothing_dropped:
        return covariance
    _, finest = fit.find_enclosing_levels(level, level)
    nodes = fit.levels[finest].nodes
    are_apart = nodes.origin != nodes.destination
    sides = []  # sums of outflows, by origin area (f), and of inflows, by destination area (g)
    for side in (0, 1):
        area, _ = fit.find_overlapped_areas(fit.levels[finest], side, level)
        sides.append(NodeSums.from_level(fit.levels[finest], are_apart, MEASURED_ROWS, first=area))
    node, product = _find_common_nodes(fit, finest, level, sides)
    # At each level, q = q_i + c_i d_i v_i - c d S, because only one child i has a part of both sums.
    for k in range(finest, 0, -1):
        fitted = fit.levels[k]
        covariance += product * fitted.own[node]
        sides = [sums.sum_to_parents(fitted) for sums in sides]
        node, product = _find_common_nodes(fit, k - 1, level, sides)
        # No node was dropped, so nodes and divided nodes have the same positions.
        covariance -= product * fitted.siblings[node]
    return covariance + product * fit.levels[0].variance[node]


def _find_common_nodes(fit: FittedTree, k: int, level: int, sides: Sequence[NodeSums]) -> tuple[Integers, Reals]:
    """Return the position of the node of ``fit.levels[k]`` above both flows of each area, and the product c d.

    The node above both the outflow and the inflow of an area of ``level`` is the one from the area's ancestor to the
    same ancestor. ``sides`` has the sums of outflows, with the factors c, and of inflows, with the factors d, below the
    nodes. Without such a node, the position is -1 and the product is 0. Both arrays have the shape (areas,).
    """
    nodes, tree = fit.levels[k].nodes, fit.tree
    areas = np.arange(tree.origin.size(level), dtype=np.int32)
    pair = tree.level_pair(nodes.level)
    origin, destination = (tree.origin.ancestors_at(level, min(above, level)) for above in pair)
    node = find_pairs(nodes.origin, nodes.destination, origin, destination, tree.destination.size(pair[1]))
    product = np.ones(len(areas))
    for sums in sides:
        sum_of_node = areas - sums.first[node]  # number of the area's sum among those of the node
        # An area without such a node (-1), or without a sum below it, cannot have trips there.
        has_sum = (node >= 0) & (sum_of_node >= 0) & (sum_of_node < np.diff(sums.offsets)[node])
        product[~has_sum] = 0.0
        product[has_sum] *= sums.values[FACTOR, (sums.offsets[node] + sum_of_node)[has_sum]]
    return node, product


MAX_MEASURED_CELLS = 50_000_000
"""Largest number of measured cells of a level with which intervals are computed. All levels must fit in memory."""


Cells = tuple[Numbers, Numbers, Estimates]
"""Origins, destinations and estimates of cells of a pair of levels."""


class AreaEstimates(NamedTuple):
    """Unbiased estimates of the trips of each area of a level; shape (areas,) each.

    Attributes:
        within, begun: trips from the area to itself, and to anywhere, itself included.
        outflow, inflow: trips from the area to all other areas of the level, and from all others to it.
        exchange: covariance of outflow and inflow.
    """

    within: Estimates
    begun: Estimates
    outflow: Estimates
    inflow: Estimates
    exchange: Reals


class Intervals:
    """The 90 % intervals of the flows of one release, or of the sum of several with independent noise."""

    def __init__(self, fits: Sequence[FittedTree]) -> None:
        self.fits = fits
        self._tree = fits[0].tree

    @property
    def nothing_dropped(self) -> bool:
        """Whether no node of any release was dropped, so that all estimates are consistent with each other."""
        return all(fit.nothing_dropped for fit in self.fits)

    def has_measured_totals(self, side: int) -> bool:
        """Return whether every release has area totals of a side: 0 for origins, 1 for destinations."""
        return all(side in fit.area_totals for fit in self.fits)

    def compute_zero_bound(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers
    ) -> int:
        """Return the upper bound that holds for every cell of a pair of levels that was released without trips.

        It is the largest of their upper bounds. For a sum of releases that dropped nodes, it may be larger, because
        each release adds the largest of its own bounds. ``origin`` and ``destination`` are the area numbers of all
        cells that were released with trips; shape (cells,) each.
        """
        levels, width = (origin_level, destination_level), self._tree.destination.size(destination_level)
        estimated = [fit.estimate_cells_with_totals(*levels) for fit in self.fits]
        origins, destinations, _ = estimated[0]
        if len(estimated) > 1:  # cells that any release estimates
            codes = [origins.astype(np.int64) * width + destinations for origins, destinations, _ in estimated]
            origins, destinations = np.divmod(np.unique(np.concatenate(codes)), width)
            origins, destinations = origins.astype(np.int32), destinations.astype(np.int32)
        sums = self._sum_cell_estimates(levels, estimated, origins, destinations)
        upper = compute_sum_upper_bounds(sums, compute_upper_bound)
        position = find_pairs(origins, destinations, origin, destination, width)
        upper[position[position >= 0]] = 0  # leaves out the given cells
        dropped_bounds = [fit.find_largest_dropped_bound(*levels) for fit in self.fits]
        # Only if every release dropped nodes may there be cells that no release estimates.
        bound_of_unestimated = 0 if None in dropped_bounds else sum(filter(None, dropped_bounds))
        return int(max(upper.max(initial=0), bound_of_unestimated))

    def compute_cell_bounds(
        self,
        origin_level: int,
        destination_level: int,
        origin: Numbers,
        destination: Numbers,
        ends: LowerEnds = UNSELECTED_ENDS,
    ) -> tuple[Integers, Integers]:
        """Return the lower and upper bounds of the given cells of a pair of levels; shape (cells,) each.

        ``origin`` and ``destination`` are area numbers, shape (cells,). By default, the lower bounds hold for cells
        that were chosen before the release.
        """
        levels = origin_level, destination_level
        sums = self._sum_cell_estimates(
            levels, [fit.estimate_cells_with_totals(*levels) for fit in self.fits], origin, destination
        )
        return compute_bounds(sums, ends)

    def estimate_areas(self, level: int) -> AreaEstimates:
        """Return estimates of the trips within, from and to each area of a level. Both geographies must be the same."""
        of_releases = [_estimate_areas_of_release(fit, level) for fit in self.fits]
        return AreaEstimates(*(_add_in_order(of_field) for of_field in zip(*of_releases, strict=True)))

    def estimate_begun_trips(
        self, level: int, weight: ZoneFunction | None = None, group: GroupFunction | None = None, groups: int = 1
    ) -> list[Estimates]:
        """Return, for each group of pairs of zones, estimates of the trips that begin in each area of a level.

        Each has the shape (areas,). For the functions of pairs of zones, see
        :class:`od_core.flows.estimation.fitted_tree.Weights`. The trips of dropped nodes, and their bounds, have the
        weight 1 in every group.
        """
        areas = np.arange(self._tree.origin.size(level), dtype=np.int32)
        weights, zones = Weights(weight, group, groups), self._tree.origin.depth
        estimated = [fit.estimate_cells(level, 0, weights, zones) for fit in self.fits]
        sums_of_groups = []
        for number in range(groups):
            cells = []
            for origin, destination, estimates in estimated:
                in_group = np.arange(number, groups * len(origin), groups)  # a cell's groups follow each other
                cells.append((origin, destination, estimates.take(in_group)))
            sums_of_groups.append(self._sum_cell_estimates((level, 0), cells, areas, np.zeros_like(areas)))
        return sums_of_groups

    def compute_sum_bounds(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> tuple[int, int]:
        """Return the lower and upper bound of the trips between two sets, given as masks of zones, shape (zones,)."""
        lower, upper = compute_bounds(
            sum_estimates([fit.estimate_sum_with_totals(origins, destinations) for fit in self.fits])
        )
        return int(lower[0]), int(upper[0])

    def estimate_weighted_sum(self, weight: ZoneFunction, deviations: float | None) -> Weighted:
        """Return the estimate of the sum of all trips, each with its weight; see :func:`estimate_weighted_tree_sum`."""
        return _add_in_order([estimate_weighted_tree_sum(fit, weight, deviations) for fit in self.fits])

    def _sum_cell_estimates(
        self, levels: tuple[int, int], estimated: Sequence[Cells], origin: Numbers, destination: Numbers
    ) -> Estimates:
        """Return the estimates of the given cells, summed over releases, given the estimated cells of each release."""
        of_releases = zip(self.fits, estimated, strict=True)
        return sum_estimates(
            [_select_cell_estimates(fit, levels, cells, origin, destination) for fit, cells in of_releases]
        )


def _select_cell_estimates(
    fit: FittedTree, levels: tuple[int, int], cells: Cells, origin: Numbers, destination: Numbers
) -> Estimates:
    """Return the estimates of the given cells of a pair of levels, from the estimated cells of a release."""
    origins, destinations, estimates = cells
    position = find_pairs(origins, destinations, origin, destination, fit.tree.destination.size(levels[1]))
    return fit.take_estimates(levels, origin, destination, position, estimates)


def _estimate_areas_of_release(fit: FittedTree, level: int) -> AreaEstimates:
    """Return the estimates of each area of a level from one release; both geographies must be the same."""
    areas = np.arange(fit.tree.origin.size(level), dtype=np.int32)
    whole_space = np.zeros_like(areas)

    def select_origins(cells: Cells) -> Estimates:  # of cells from each area to the whole space
        return _select_cell_estimates(fit, (level, 0), cells, areas, whole_space)

    def select_destinations(cells: Cells) -> Estimates:  # of cells from the whole space to each area
        return _select_cell_estimates(fit, (0, level), cells, whole_space, areas)

    origin, destination, estimates = fit.estimate_cells(level, level)
    diagonal = np.flatnonzero(origin == destination)
    cells_within = origin[diagonal], destination[diagonal], estimates.take(diagonal)
    within = _select_cell_estimates(fit, (level, level), cells_within, areas, areas)
    outflow = select_origins(fit.estimate_cells(level, 0, OTHERS, level))
    inflow = select_destinations(fit.estimate_cells(0, level, OTHERS, level))
    exchange = compute_exchange_covariances(fit, level)
    if fit.area_totals and fit.nothing_dropped:
        sums = [select_origins(fit.estimate_cells(level, 0)), select_destinations(fit.estimate_cells(0, level))]
        return _combine_with_measured_totals(fit, level, [within, outflow, inflow], sums, exchange)
    begun = select_origins(fit.estimate_cells_with_totals(level, 0))
    outflow, is_out_measured = _subtract_trips_within(fit.sum_measured_totals(0, level), within, outflow)
    inflow, is_in_measured = _subtract_trips_within(fit.sum_measured_totals(1, level), within, inflow)
    # Where both are measured totals minus the trips within, they share the error of the trips within.
    exchange = np.where(is_out_measured & is_in_measured, within.variance, exchange)
    return AreaEstimates(within, begun, outflow, inflow, exchange)


def _subtract_trips_within(
    measured: Estimates | None, within: Estimates, of_tree: Estimates
) -> tuple[Estimates, NDArray[np.bool_]]:
    """Return the outflow or inflow of areas, and a mask of where it is the measured total minus the trips within.

    Elsewhere, it is the estimate by the tree, ``of_tree``, because that has the smaller variance, or because no total
    was measured. The shapes are (areas,). The measured total contains the trips of dropped nodes; ``of_tree`` does not.
    Up to ``within_bound`` trips within the area were dropped. So the difference is lowered by that bound, which is
    stated as the bound of its dropped trips.
    """
    if measured is None:
        return of_tree, np.zeros(len(within.estimate), dtype=np.bool_)
    within_bound = within.dropped_bound + within.unmeasured
    nothing = np.zeros(len(within_bound))
    difference = Estimates(
        estimate=measured.estimate - within.estimate - within_bound,
        variance=measured.variance + within.variance,
        dropped_bound=within_bound,
        dropped_estimate=within_bound,
        dropped_variance=nothing,
        unmeasured=nothing,
    )
    is_measured = difference.variance < of_tree.variance
    return difference.choose_where(is_measured, of_tree), is_measured


def _combine_with_measured_totals(
    fit: FittedTree, level: int, parts: Sequence[Estimates], sums: Sequence[Estimates], exchange: Reals
) -> AreaEstimates:
    """Return estimates of areas by the tree, improved by measured totals; the module docstring has the formula.

    No node may have been dropped.

    Args:
        parts: The tree's estimates of the trips within, of the outflow and of the inflow of each area, in this order.
        sums: The tree's estimates of all trips from each area, and of all trips to it.
        exchange: The covariance of outflow and inflow; shape (areas,).
    """
    estimate = np.array([part.estimate for part in parts])
    covariances = np.zeros((3, 3, estimate.shape[1]))  # of the three parts of each area
    for k, part in enumerate(parts):
        covariances[k, k] = part.variance
    for k, total in enumerate(sums, start=1):  # each is the sum of part 0, the trips within, and part k
        covariances[0, k] = covariances[k, 0] = (total.variance - parts[0].variance - parts[k].variance) / 2
    covariances[1, 2] = covariances[2, 1] = exchange
    for side, k in ((0, 1), (1, 2)):  # the total of side 0 is the sum of parts 0 and 1, that of side 1 of 0 and 2
        measured = fit.sum_measured_totals(side, level)
        if measured is not None:
            with_sum = covariances[0] + covariances[k]  # covariances of the parts with the sum
            total_variance = with_sum[0] + with_sum[k] + measured.variance
            gain = np.divide(with_sum, total_variance, out=np.zeros_like(with_sum), where=total_variance > 0)
            estimate += gain * (measured.estimate - estimate[0] - estimate[k])
            covariances -= gain[:, np.newaxis] * with_sum
    within, outflow, inflow = (Estimates.from_nodes(estimate[k], np.maximum(covariances[k, k], 0)) for k in range(3))
    variance_of_begun = np.maximum(covariances[0, 0] + covariances[1, 1] + 2 * covariances[0, 1], 0)
    begun = Estimates.from_nodes(estimate[0] + estimate[1], variance_of_begun)
    return AreaEstimates(within, begun, outflow, inflow, covariances[1, 2])


CONTRADICTION_DEVIATIONS = 4.0
"""Difference of a known total from the tree's estimate, in standard deviations, beyond which it is contradicted."""


def find_contradicted_totals(fit: FittedTree, totals: KnownTotals) -> tuple[Integers, Reals, Reals]:
    """Return the numbers of the zones whose known totals the measurements contradict, with two arrays on them.

    The arrays are the estimates by the tree, and the known totals minus these estimates, in standard deviations of this
    difference. All have the shape (zones found,). If the known totals and their errors are true, about one of 16,000
    zones is found by chance: a normal variable is beyond 4 standard deviations with the probability 6e-5.
    """
    geography = (fit.tree.origin, fit.tree.destination)[totals.number]
    zones = np.arange(geography.size(geography.depth), dtype=np.int32)
    whole_space = np.zeros_like(zones)
    levels, ends = (geography.depth, 0), (zones, whole_space)
    if totals.side == "destination":
        levels, ends = (0, geography.depth), (whole_space, zones)
    of_tree = _select_cell_estimates(fit, levels, fit.estimate_cells(*levels), *ends)
    distance = (totals.trips - of_tree.estimate) / np.sqrt(of_tree.variance + totals.variances)
    found = np.flatnonzero(np.abs(distance) > CONTRADICTION_DEVIATIONS)
    return found, of_tree.estimate[found], distance[found]


def fill_pairs_if_few(
    tree: FlowTree, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers, trips: Integers
) -> tuple[Numbers, Numbers, Integers]:
    """Return the origins, destinations and trips of all public pairs of areas if they are few, else the given cells.

    Pairs that are not among the given cells have 0 trips. The trips of a cell are one number or one for each category;
    shape (cells,) or (cells, categories). Pairs are few if all have at most ``MOST_LISTED`` numbers together.
    """
    width = tree.destination.size(destination_level)
    if tree.origin.size(origin_level) * width * math.prod(trips.shape[1:]) > MOST_LISTED:
        return origin, destination, trips
    origins, destinations = tree.list_area_pairs(origin_level, destination_level)
    trips_of_pairs = np.zeros((len(origins), *trips.shape[1:]), dtype=np.int64)
    position = origin.astype(np.int64) * width + destination  # if all pairs are public, they are listed row by row
    if tree.possible is not None:
        position = np.searchsorted(origins.astype(np.int64) * width + destinations, position)
    trips_of_pairs[position] = trips
    return origins, destinations, trips_of_pairs


def refuse_without_intervals(plan: ReleasePlan, largest: int) -> None:
    """Raise OdError if the plan has no intervals, or the ``largest`` number of cells of a level is too large."""
    refuse_unsupported(plan.table, plan.features | {"intervals"})
    if largest > MAX_MEASURED_CELLS:
        raise OdError(
            "OD-INTERVAL-SIZE",
            f"a level has {largest:,} measured cells, but intervals are computed for at most {MAX_MEASURED_CELLS:,}",
            next_step="request flows without intervals, or release coarser zones",
        )


T = TypeVar("T", Estimates, Reals, "Weighted")


def _add_in_order(values: Sequence[T]) -> T:
    """Return the sum of one or more values, added one after the other, so that rounding is the same everywhere."""
    return sum(values[1:], start=values[0])


def sum_estimates(of_releases: Sequence[Estimates]) -> Estimates:
    """Return the estimates of the sums over releases with independent noise, given the estimates of each release."""
    return _add_in_order(of_releases)


def compute_bounds(sums: Estimates, ends: LowerEnds = UNSELECTED_ENDS) -> tuple[Integers, Integers]:
    """Return the lower and upper ends of the 90 % intervals of sums; shape (sums,) each.

    The lower ends assume that dropped nodes have no trips. For the upper ends, see :func:`compute_sum_upper_bounds`.
    """
    return compute_lower_bound(sums.estimate, sums.variance, ends), compute_sum_upper_bounds(sums, compute_upper_bound)


def compute_dropped_bounds(sums: Estimates) -> Integers:
    """Return the upper bounds of the trips of the dropped nodes that sums overlap; shape (sums,)."""
    nothing = np.zeros(len(sums.estimate))
    return compute_bounds(replace(sums, estimate=nothing, variance=nothing))[1]


def compute_sum_upper_bounds(sums: Estimates, end: Callable[[Reals, Reals], Integers]) -> Integers:
    """Return the upper bounds of sums with their dropped nodes; shape (sums,).

    A bound is the smaller of two: that of the sum without dropped nodes plus the upper bound of each dropped node; and
    that of the sum plus the estimated trips of all dropped nodes. The upper bounds of unmeasured cells are added.
    ``end`` returns an upper bound from an estimate and its variance.
    """
    upper = end(sums.estimate, sums.variance) + sums.dropped_bound.astype(np.int64)
    if sums.dropped_bound.any():
        together = end(sums.estimate + np.maximum(sums.dropped_estimate, 0), sums.variance + sums.dropped_variance)
        np.minimum(upper, together, out=upper, where=sums.dropped_bound > 0)
    return upper + sums.unmeasured.astype(np.int64)


class SegmentFit:
    """The estimates of the flows of one release in each category of a breakdown, from the measurements of all steps.

    Raises OdError as :func:`refuse_without_intervals` does.

    Attributes:
        categories: For each category, the tree fitted to its own measurements.
    """

    def __init__(self, plan: ReleasePlan, totals: FittedTree, measured: Sequence[Measurement], breakdown: str) -> None:
        refuse_without_intervals(plan, max(len(m.noisy) for m in measured))
        fits = [fit_least_squares(plan, None, counts) for counts in list_segment_counts(plan, measured, breakdown)]
        self._totals = totals
        bounded = _add_category_bounds(totals.levels, fits)
        self.categories = [FittedTree(plan.tree, levels, by_noise=False) for levels in bounded]

    def estimate_cells(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers
    ) -> list[Estimates]:
        """Return the estimates of the given cells of a pair of levels, shape (cells,), in each category."""
        levels = origin_level, destination_level
        origins, destinations, total = self._totals.estimate_cells(*levels)
        of_categories = [category.estimate_cells(*levels)[2] for category in self.categories]
        width = self._totals.tree.destination.size(destination_level)
        # A category has the same nodes as the totals, so its cells are at the same positions.
        position = find_pairs(origins, destinations, origin, destination, width)
        adjusted = _adjust_categories_to_total(total, of_categories)
        return [
            category.take_estimates(levels, origin, destination, position, estimates)
            for category, estimates in zip(self.categories, adjusted, strict=True)
        ]

    def compute_share_bounds(self, level: int) -> tuple[Reals, Reals]:
        """Return lower and upper bounds of each category's share in the trips from each area of a level.

        The shapes are (categories, areas). The estimates of one of K categories and of the total T have the covariance
        var(T) / K. If nodes were dropped, their covariance is not known, so the ends follow from the bounds of both,
        and are wider.
        """
        areas = np.arange(self._totals.tree.origin.size(level), dtype=np.int32)
        ends = areas, np.zeros_like(areas)
        total = _select_cell_estimates(self._totals, (level, 0), self._totals.estimate_cells(level, 0), *ends)
        categories = self.estimate_cells(level, 0, *ends)
        if self._totals.nothing_dropped:
            shared = total.variance / len(categories)
            bounds = [bound_ratio(of_category, total, shared, 1.0) for of_category in categories]
            return np.array([lower for lower, _ in bounds]), np.array([upper for _, upper in bounds])
        lower_parts, upper_parts = _compute_category_bounds([categories])
        lower_total, upper_total = compute_bounds(total)
        lower_shares = lower_parts.T / np.maximum(upper_total, 1)
        upper_shares = np.minimum(upper_parts.T / np.maximum(lower_total, 1), 1.0)
        return lower_shares, upper_shares

    def sum_between(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> list[Estimates]:
        """Return the estimate of the trips between two sets of zones in each category, as one sum each."""
        of_categories = [category.sum_between(origins, destinations) for category in self.categories]
        return _adjust_categories_to_total(self._totals.sum_between(origins, destinations), of_categories)

    def estimate_weighted_sum(self, weight: ZoneFunction, deviations: float | None, category: int) -> Weighted:
        """Return the estimate of the sum of the trips of a category, given by its number, each with its weight."""
        total, *of_categories = (
            estimate_weighted_tree_sum(fit, weight, deviations) for fit in (self._totals, *self.categories)
        )
        estimates, variance = _combine_categories(total, of_categories)
        adjusted = {"estimate": float(estimates[category]), "variance": float(variance)}
        # All dropped trips may be in this category.
        dropped = {"dropped_estimate": total.dropped_estimate, "dropped_variance": total.dropped_variance}
        return replace(of_categories[category], **adjusted, **dropped)


class SegmentIntervals:
    """The 90 % intervals of the flows in each category of a breakdown, of one release or of a sum of several."""

    def __init__(self, fits: Sequence[SegmentFit]) -> None:
        self._fits = fits

    def compute_cell_bounds(
        self,
        origin_level: int,
        destination_level: int,
        origin: Numbers,
        destination: Numbers,
        ends: LowerEnds = UNSELECTED_ENDS,
    ) -> tuple[Integers, Integers]:
        """Return the bounds of :meth:`Intervals.compute_cell_bounds` by category; shape (cells, categories) each."""
        of_releases = [fit.estimate_cells(origin_level, destination_level, origin, destination) for fit in self._fits]
        return _compute_category_bounds(of_releases, ends)

    def compute_sum_bounds(
        self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]
    ) -> tuple[Integers, Integers]:
        """Return the bounds of :meth:`Intervals.compute_sum_bounds` for each category; shape (categories,) each."""
        lower, upper = _compute_category_bounds([fit.sum_between(origins, destinations) for fit in self._fits])
        return lower[0], upper[0]

    def estimate_weighted_sum(self, weight: ZoneFunction, deviations: float | None, category: int) -> Weighted:
        """Return the estimate of a weighted sum of the trips of a category.

        See :meth:`Intervals.estimate_weighted_sum`.
        """
        return _add_in_order([fit.estimate_weighted_sum(weight, deviations, category) for fit in self._fits])


def _compute_category_bounds(
    of_releases: Sequence[Sequence[Estimates]], ends: LowerEnds = UNSELECTED_ENDS
) -> tuple[Integers, Integers]:
    """Return lower and upper bounds of sums over releases by category; shape (sums, categories) each.

    ``of_releases`` has the estimates of each release in each category, shape (sums,) each. The numbers of ``ends`` have
    the shape (sums, categories) or ().
    """
    of_categories = [sum_estimates(of_category) for of_category in zip(*of_releases, strict=True)]
    shape = len(of_categories[0].estimate), len(of_categories)
    ends_of_categories = map(LowerEnds, *(np.broadcast_to(values, shape).T for values in ends))
    lower, upper = zip(*map(compute_bounds, of_categories, ends_of_categories), strict=True)
    return np.stack(lower, axis=1), np.stack(upper, axis=1)


def _adjust_categories_to_total(total: Estimates, of_categories: Sequence[Estimates]) -> list[Estimates]:
    """Return the estimates of each category, adjusted so that they sum to the total.

    All dropped trips may be in one category, so each has the total's ``dropped_estimate`` and ``dropped_variance``.
    """
    estimates, variance = _combine_categories(total, of_categories)
    dropped = {"dropped_estimate": total.dropped_estimate, "dropped_variance": total.dropped_variance}
    with_estimates = zip(of_categories, estimates, strict=True)
    return [replace(category, estimate=estimate, variance=variance, **dropped) for category, estimate in with_estimates]


def _combine_categories(
    total: Estimates | FittedLevel | Weighted, of_categories: Sequence[Estimates | FittedLevel | Weighted]
) -> tuple[list[Reals], Reals]:
    """Return the adjusted estimates of each category, C_s + (T - sum C) / K, and their common variance.

    ``total`` has T, and ``of_categories`` the C of each of K categories, which all have the same variance. The results
    have the shape of these: (sums,) each or, for :class:`Weighted`, ().
    """
    estimates = [np.asarray(category.estimate) for category in of_categories]
    number = len(of_categories)  # K
    adjustment = (total.estimate - sum(estimates)) / number
    variance = compute_segment_variance(np.asarray(total.variance), np.asarray(of_categories[0].variance), number)
    return [estimate + adjustment for estimate in estimates], variance


def _add_category_bounds(
    totals: Sequence[FittedLevel], fits: Sequence[Sequence[FittedLevel]]
) -> list[list[FittedLevel]]:
    """Return the fitted levels of each category, whose bounds are those of its adjusted estimates.

    No bound exceeds that of the total. ``fits`` has the fitted levels of each category, which have the nodes of
    ``totals``.
    """
    bounded: list[list[FittedLevel]] = [[] for _ in fits]
    for total, *of_categories in zip(totals, *fits, strict=True):
        estimates, variance = _combine_categories(total, of_categories)
        for levels, level, estimate in zip(bounded, of_categories, estimates, strict=True):
            levels.append(replace(level, bound=np.minimum(compute_upper_bound(estimate, variance), total.bound)))
    return bounded


SumEstimator = Callable[[ZoneFunction, float | None], "Weighted"]
"""Function that estimates a weighted sum, with the arguments of :func:`estimate_weighted_tree_sum` but the tree."""

_BLOCK = 1 << 20
"""Number of pairs of zones below dropped nodes whose weights are computed at once."""


@dataclass(frozen=True)
class Weighted:
    """The estimate of a weighted sum of trips, without those of dropped nodes, and what dropped nodes may add.

    Attributes:
        estimate, variance: the estimate and its variance.
        min_dropped, max_dropped: limits of the weighted sum of the trips of dropped nodes, by the bound of each node.
        min_weight, max_weight: least and greatest weight below dropped nodes, or 0 if this is less or greater.
        dropped_estimate, dropped_variance: estimate of the trips of all dropped nodes together, and its variance.
    """

    estimate: float
    variance: float
    min_dropped: float = 0.0
    max_dropped: float = 0.0
    min_weight: float = 0.0
    max_weight: float = 0.0
    dropped_estimate: float = 0.0
    dropped_variance: float = 0.0

    def __add__(self, other: Weighted) -> Weighted:
        """Return the estimate of a weighted sum over two releases: this one, and another with independent noise."""
        added = {name: value + getattr(other, name) for name, value in vars(self).items()}
        added["min_weight"] = min(self.min_weight, other.min_weight)
        added["max_weight"] = max(self.max_weight, other.max_weight)
        return Weighted(**added)

    @property
    def dropped(self) -> bool:
        """Whether the weighted sum may include trips of dropped nodes."""
        return self.min_dropped < 0 or self.max_dropped > 0

    def bound_dropped_trips(self, deviations: float) -> tuple[float, float]:
        """Return lower and upper bounds of what the trips of dropped nodes add to the weighted sum.

        Each is the one nearer to 0 of two bounds. The first is the sum of the bounds of the nodes. The second gives the
        extreme weight to all dropped trips, whose number is bounded by their estimate plus ``deviations`` standard
        deviations.
        """
        max_trips = max(self.dropped_estimate, 0.0) + deviations * math.sqrt(self.dropped_variance)
        return max(self.min_dropped, self.min_weight * max_trips), min(self.max_dropped, self.max_weight * max_trips)

    def compute_ends(self, deviations: float) -> tuple[float, float]:
        """Return the ends of the interval of the weighted sum, with dropped trips.

        The half-width is in standard ``deviations``. Dropped trips are bounded in the two ways of
        :meth:`bound_dropped_trips`; the second combines the errors of both estimates. The ends are wider by the
        rounding of floating-point sums, so that a sum that is known exactly lies between them.
        """
        half_width, dropped = deviations * math.sqrt(self.variance), max(self.dropped_estimate, 0.0)
        low, high = (
            weight * dropped + sign * deviations * math.sqrt(self.variance + weight * weight * self.dropped_variance)
            for weight, sign in ((self.min_weight, -1), (self.max_weight, 1))
        )
        rounding = ROUNDING * (1 + abs(self.estimate))
        lower = max(self.min_dropped - half_width, low) - rounding
        upper = min(self.max_dropped + half_width, high) + rounding
        return self.estimate + lower, self.estimate + upper


def estimate_weighted_tree_sum(fit: FittedTree, weight: ZoneFunction, deviations: float | None) -> Weighted:
    """Return the estimate of the sum of the trips of all pairs of zones, each with its weight.

    ``deviations`` is the half-width of the interval that will be computed, in standard deviations, which the bounds of
    dropped nodes depend on. With None, the result lacks what dropped nodes may add.
    """
    _, _, whole_space = fit.estimate_cells(0, 0, Weights(weight), fit.tree.origin.depth)
    # These are sums over one cell, or over none if the root was dropped.
    estimate, variance = float(whole_space.estimate.sum()), float(whole_space.variance.sum())
    of_dropped_trips = float(whole_space.dropped_estimate.sum()), float(whole_space.dropped_variance.sum())
    if fit.totals_system is not None:
        leaves = fit.levels[-1].nodes
        of_leaves = np.asarray(weight(leaves.origin, leaves.destination), dtype=np.float64)
        change, fall = fit.totals_system.compute_improvement(of_leaves)
        estimate, variance = estimate + change, max(variance - fall, 0.0)
    if fit.nothing_dropped or deviations is None:
        return Weighted(estimate, variance)
    return Weighted(estimate, variance, *_compute_dropped_limits(fit, weight, deviations), *of_dropped_trips)


def compute_covariance(
    estimate: SumEstimator, one: tuple[ZoneFunction, Weighted], other: tuple[ZoneFunction, Weighted]
) -> float:
    """Return the covariance C of the estimates of two weighted sums N and B, given the weights and estimate of each.

    It follows from the variance of N + s B; the module docstring has the formula. The scale s makes the variances of N
    and s B equal, which loses the fewest digits. If one of them is 0, return 0.

    ``estimate`` estimates weighted sums from the measurements of both.
    """
    (weight_of_n, n), (weight_of_b, b) = one, other
    if n.variance <= 0 or b.variance <= 0:
        return 0.0
    scale = math.sqrt(n.variance / b.variance)
    mixed = estimate(lambda *pairs: weight_of_n(*pairs) + scale * weight_of_b(*pairs), None)
    return (mixed.variance - n.variance - scale**2 * b.variance) / (2 * scale)


def compute_fieller_ends(
    part: Estimates | Weighted, whole: Estimates | Weighted, shared: Reals | float, deviations: float
) -> tuple[Reals, Reals, NDArray[np.bool_]]:
    """Return the lower and upper ends of the intervals of ratios, and whether they are known; shape (ratios,) or ().

    They are Fieller's intervals of N / B; the module docstring has the formula. Where the whole may be 0, an interval
    has no ends.

    ``part`` and ``whole`` are the estimates of N and B, ``shared`` is their covariance, and ``deviations`` is z.
    """
    # The interval has all r with a r^2 - 2 b r + c <= 0.
    square = deviations**2
    a = np.asarray(whole.estimate**2 - square * whole.variance)
    b = np.asarray(part.estimate * whole.estimate - square * shared)
    c = np.asarray(part.estimate**2 - square * part.variance)
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(np.maximum(b * b - a * c, 0))
        return (b - root) / a, (b + root) / a, a > 0


def bound_ratio(part: Estimates, whole: Estimates, shared: Reals, largest: float) -> tuple[Reals, Reals]:
    """Return the ends of the 90 % intervals of ratios from 0 to ``largest``; shape (ratios,) each.

    They are those of :func:`compute_fieller_ends`, cut to this range. Where they are not known, the interval is the
    whole range.
    """
    low, high, is_known = compute_fieller_ends(part, whole, shared, DEVIATIONS)
    is_known &= whole.estimate > 0
    lower = np.where(is_known, np.clip(low, 0, largest), 0.0)
    upper = np.where(is_known, np.clip(high, 0, largest), largest)
    return lower, upper


def _compute_dropped_limits(
    fit: FittedTree, weight: ZoneFunction, deviations: float
) -> tuple[float, float, float, float]:
    """Return ``min_dropped``, ``max_dropped``, ``min_weight`` and ``max_weight`` of :class:`Weighted`.

    The bounds of the nodes hold for half-widths of ``deviations``, at least those of 90 % intervals.
    """
    nodes, bounds = [], []  # of the dropped nodes of each level
    added_deviations = max(deviations - DEVIATIONS, 0.0)  # ``bound`` of a level is that of 90 % intervals
    for level in fit.levels[:-1]:
        undivided = np.delete(np.arange(len(level.nodes)), level.divided)
        nodes.append(Pairs(level.nodes.level, level.nodes.origin[undivided], level.nodes.destination[undivided]))
        bounds.append(level.bound[undivided] + added_deviations * np.sqrt(level.variance[undivided]))
    low, high = _find_extreme_weights(fit.tree, nodes, weight)
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    max_trips = np.concatenate(bounds)
    return float(low @ max_trips), float(high @ max_trips), float(low.min(initial=0)), float(high.max(initial=0))


def _find_extreme_weights(tree: FlowTree, nodes: Sequence[Pairs], weight: ZoneFunction) -> tuple[Reals, Reals]:
    """Return the least and the greatest weight of the pairs of zones below each node; shape (all nodes,) each.

    ``nodes`` has some nodes of each level. The results are in their order, one level after the other.
    """
    none = np.empty(0, dtype=np.int64)
    first_rank = np.concatenate([none, *map(tree.compute_first_ranks, nodes)])
    number_of_pairs = np.concatenate([none, *map(tree.count_pairs_below, nodes)])
    low, high = np.full(len(first_rank), np.inf), np.full(len(first_rank), -np.inf)
    end = np.cumsum(number_of_pairs)
    begin, total = end - number_of_pairs, int(number_of_pairs.sum())
    for start in range(0, total, _BLOCK):  # pairs are numbered node after node; a node may be in several blocks
        pair = np.arange(start, min(start + _BLOCK, total))
        node = np.searchsorted(end, pair, side="right")
        below = tree.find_leaf_pairs(first_rank[node] + pair - begin[node])
        weights = weight(below.origin, below.destination).astype(np.float64)
        first_of_node = np.flatnonzero(np.diff(node, prepend=-1))
        present = node[first_of_node]
        low[present] = np.minimum(low[present], np.minimum.reduceat(weights, first_of_node))
        high[present] = np.maximum(high[present], np.maximum.reduceat(weights, first_of_node))
    return low, high
