"""Compute a 90 % interval for every published cell from the published measurements, at no privacy cost.

The least-squares estimate of a cell is unbiased and nearly normal. So its interval contains the true number of counted
trips with the stated probability, whatever that number is, even if it is small and released as 0. Cells at pairs of
levels that are not in the flow tree are sums of nodes of the tree. So are the flows between sets of areas that a user
chooses.

Nothing was measured below a node that the top-down pass dropped. A cell below such a node has the upper bound of its
nearest measured ancestor. A sum that overlaps dropped nodes may contain any number of their trips, from none to all.

The noise of different releases is independent. So the estimates of a sum of releases add up, and their variances, too.

**Outflow and inflow of an area** have correlated errors (:func:`exchange_covariances`). Let f and g be two sums of
estimates below a node with the estimate h, with the factors c and d of :mod:`od_core.flows.estimation.node_sums`. Their
covariance is q + c d V, where V is the variance of h. If the sums below the children i of the node have the factors c_i
and d_i and the shared residuals q_i, then

    q = sum (q_i + c_i d_i v_i) - c d S.

The outflow of an area has leaves below its row of the table, and its inflow below its column. Both have leaves below
one node of each level only: the one from the ancestor of the area to the same ancestor. So c_i d_i is 0 for all other
nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.confidence import highest, lower_bound, upper_bound
from od_core.flows.estimation.fitted_tree import Counts, Estimates, FittedTree, ZoneFunction, between_areas, find_pairs
from od_core.flows.estimation.least_squares import Positions, Reals, least_squares
from od_core.flows.estimation.node_sums import NodeSums
from od_core.flows.estimation.sum_intervals import Weighted, weighted
from od_core.flows.estimation.top_down import NoisyCounts
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Numbers
from od_core.publication.columns import MOST_LISTED


def exchange_covariances(fit: FittedTree, level: int) -> Reals:
    """Return the covariance of the outflow and the inflow of each area of a level; shape (areas,).

    Both geographies of the tree must be the same. If nodes were dropped, the sums are of noisy values, which are
    independent, and no value is in both. Then the covariances are 0.

    Args:
        fit: The fitted tree.
        level: Number of the level of both geographies, at least 1.
    """
    shared = np.zeros(fit.tree.origin.size(level))
    if not fit.nothing_dropped:
        return shared
    finest = fit.span(level, level)[1]
    sides = [NodeSums.of_fitted(fit.levels[finest], between_areas(fit.levels[finest])).factors for _ in range(2)]
    node, product = _common(fit, finest, level, sides)
    for k in range(finest, 0, -1):
        at = fit.levels[k]
        shared += product * at.own[node]
        sides = [sums.carried(at, fit.areas_of(at, side, level)[0]) for side, sums in enumerate(sides)]
        node, product = _common(fit, k - 1, level, sides)
        shared -= product * at.siblings[node]
    covariances: Reals = shared + product * fit.levels[0].variance[node]
    return covariances


def _common(fit: FittedTree, k: int, level: int, sides: Sequence[NodeSums]) -> tuple[Positions, Reals]:
    """Return the one node of a level that is above leaves of both sums of each area, and the product c d there.

    Args:
        fit: The fitted tree.
        k: Position of the level of the nodes in ``fit.levels``.
        level: Number of the level of the areas.
        sides: The sums of the outflow and of the inflow below each node.

    Returns:
        Positions of the nodes, and products; shape (areas,) each.
    """
    at, tree = fit.levels[k], fit.tree
    areas = np.arange(tree.origin.size(level), dtype=np.int32)
    pair = tree.level_pair(at.nodes.level)
    origin, destination = (tree.origin.ancestors_at(level, min(above, level)) for above in pair)
    node = find_pairs(at.nodes.origin, at.nodes.destination, origin, destination, tree.destination.size(pair[1]))
    product = np.ones(len(areas))
    for side, sums in enumerate(sides):
        product *= sums.factor_at(node, areas - fit.areas_of(at, side, level)[0][node])
    return node, product


MOST_MEASURED = 50_000_000
"""Largest number of measured cells of a level for which intervals are computed, since all levels must fit in memory."""


class AreaEstimates(NamedTuple):
    """Unbiased estimates of the trips of each area of a level.

    Attributes:
        within: trips from the area to itself.
        begun: trips from the area to anywhere, itself included.
        outflow: trips from the area to all other areas of the level.
        inflow: trips from all other areas of the level to the area.
        exchange: covariance of outflow and inflow; shape (areas,).
    """

    within: Estimates
    begun: Estimates
    outflow: Estimates
    inflow: Estimates
    exchange: Reals


class Intervals:
    """The 90 % intervals of the flows of one release, or of the sum of several, computed on request.

    Args:
        fits: The fitted tree of each release, over the same areas. Their noise must be independent.
    """

    def __init__(self, fits: Sequence[FittedTree]) -> None:
        self.fits = fits
        self._tree = fits[0].tree

    @property
    def nothing_dropped(self) -> bool:
        """Whether no node of any release was dropped, so that all estimates are consistent with each other."""
        return all(fit.nothing_dropped for fit in self.fits)

    def around(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers, trips: Counts
    ) -> tuple[Numbers, Numbers, Counts, Counts, Counts]:
        """Return the released cells of a pair of levels with their intervals.

        If the two levels have at most ``MOST_LISTED`` public pairs, the result has all of these pairs. Otherwise, it
        has the given cells only.

        Args:
            origin_level, destination_level: Numbers of the levels.
            origin, destination, trips: All released cells that are not 0, sorted by origin and then destination; shape
                (cells,) each.

        Returns:
            Origin, destination (area numbers), trips, lower bound and upper bound; shape (listed cells,) each. The
            interval always contains the released trips.
        """
        levels = origin_level, destination_level
        origin, destination, trips = every_pair(self._tree, *levels, origin, destination, trips)
        lower, upper = self.of_cells(origin_level, destination_level, origin, destination)
        return origin, destination, trips, np.minimum(lower, trips), np.maximum(upper, trips)

    def of_zeros(self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers) -> int:
        """Return the largest upper bound of the cells of a pair of levels that are released as 0.

        Args:
            origin_level, destination_level: Numbers of the levels.
            origin, destination: Area numbers of all released cells that are not 0; shape (cells,) each.
        """
        levels, width = (origin_level, destination_level), self._tree.destination.size(destination_level)
        estimated = [fit.cells(*levels) for fit in self.fits]
        numbers = [_numbered(*cells[:2], width) for cells in estimated]
        zeros = numbers[0] if len(numbers) == 1 else np.unique(np.concatenate(numbers))
        zeros = zeros[~np.isin(zeros, _numbered(origin, destination, width))]
        places = (zeros // width).astype(np.int32), (zeros % width).astype(np.int32)
        upper = self._bounds(levels, estimated, *places)[1]
        dropped = [fit.largest_dropped(*levels) for fit in self.fits]
        return int(max(upper.max(initial=0), sum(dropped) if all(dropped) else 0))

    def of_cells(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers
    ) -> tuple[Counts, Counts]:
        """Return the lower and upper bounds of the given cells of a pair of levels; shape (cells,) each.

        Args:
            origin_level, destination_level: Numbers of the levels.
            origin, destination: Area numbers of the cells; shape (cells,) each.
        """
        levels = origin_level, destination_level
        return self._bounds(levels, [fit.cells(*levels) for fit in self.fits], origin, destination)

    def by_area(self, level: int) -> AreaEstimates:
        """Return estimates of the trips within, from and to each area of a level. Both geographies are the same."""
        areas = np.arange(self._tree.origin.size(level), dtype=np.int32)
        none = np.zeros_like(areas)
        return AreaEstimates(
            within=self._estimates((level, level), [fit.within(level) for fit in self.fits], areas, areas),
            begun=self._estimates((level, 0), [fit.cells(level, 0) for fit in self.fits], areas, none),
            outflow=self._estimates((level, 0), [fit.elsewhere(level, 0) for fit in self.fits], areas, none),
            inflow=self._estimates((0, level), [fit.elsewhere(0, level) for fit in self.fits], none, areas),
            exchange=np.sum([exchange_covariances(fit, level) for fit in self.fits], axis=0),
        )

    def begun(
        self, level: int, weight: ZoneFunction | None = None, group: ZoneFunction | None = None, groups: int = 1
    ) -> list[Estimates]:
        """Return estimates of sums of the trips that begin in each area of a level, weighted or in groups.

        Args:
            level: Number of the origin level.
            weight: Returns the weight of pairs of zones; by default, all are 1.
            group: Returns the number, from 0, of the group to which pairs of zones belong.
            groups: Number of groups.

        Returns:
            For each group, estimates of the areas. The trips of dropped nodes, and their bounds, have the weight 1 in
            every group.
        """
        areas = np.arange(self._tree.origin.size(level), dtype=np.int32)
        none = np.zeros_like(areas)
        sums = [fit.begun(level, weight, group, groups) for fit in self.fits]
        return [
            self._estimates(
                (level, 0), [(origin, destination, each[k]) for origin, destination, each in sums], areas, none
            )
            for k in range(groups)
        ]

    def of_sum(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> tuple[int, int]:
        """Return the lower and upper bound of the trips from one set of zones to another.

        Args:
            origins, destinations: Masks of the zones in each set; shape (zones,) each.
        """
        lower, upper = bounds_of(added([fit.sum_between(origins, destinations) for fit in self.fits]))
        return int(lower[0]), int(upper[0])

    def weighted(self, weight: ZoneFunction, deviations: float | None) -> Weighted:
        """Return the estimate of the sum of all trips, each with its weight, as :func:`weighted` does."""
        return reduce(add, [weighted(fit, weight, deviations) for fit in self.fits])

    def _bounds(
        self,
        levels: tuple[int, int],
        estimated: Sequence[tuple[Numbers, Numbers, Estimates]],
        origin: Numbers,
        destination: Numbers,
    ) -> tuple[Counts, Counts]:
        """Return the bounds of the given cells of a pair of levels, from the estimated cells of each release."""
        return bounds_of(self._estimates(levels, estimated, origin, destination))

    def _estimates(
        self,
        levels: tuple[int, int],
        estimated: Sequence[tuple[Numbers, Numbers, Estimates]],
        origin: Numbers,
        destination: Numbers,
    ) -> Estimates:
        """Return the estimates of the given cells of a pair of levels, from the estimated cells of each release."""
        sums, width = [], self._tree.destination.size(levels[1])
        for fit, (origins, destinations, estimates) in zip(self.fits, estimated, strict=True):
            place = find_pairs(origins, destinations, origin, destination, width)
            sums.append(fit.estimates_at(levels, origin, destination, place, estimates))
        return added(sums)


def fitted_totals(plan: ReleasePlan, total: int, measured: Sequence[NoisyCounts]) -> FittedTree:
    """Return the tree of a release with the estimates of all nodes.

    Args:
        plan: The plan of the release.
        total: The sum of the released leaves. Used only if the total is an invariant.
        measured: The measurements of the release, top level first.

    Raises:
        OdError: As in :func:`refuse_without_intervals`.
    """
    refuse_without_intervals(plan, max(len(m.noisy) for m in measured))
    return FittedTree(plan.tree, least_squares(plan, total, measured))


def _numbered(origin: Numbers, destination: Numbers, width: int) -> NDArray[np.int64]:
    """Return one number for each cell of a level with ``width`` destinations; shape (cells,)."""
    return origin.astype(np.int64) * width + destination


def every_pair(
    tree: FlowTree, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers, trips: Counts
) -> tuple[Numbers, Numbers, Counts]:
    """Return all public pairs of two levels with their trips if they are few, and otherwise the given cells.

    Args:
        tree: The flow tree.
        origin_level, destination_level: Numbers of the levels.
        origin, destination: Area numbers of cells; shape (cells,) each.
        trips: Trips of the cells, one number or one for each category; shape (cells, ...). All public pairs are
            returned if the result has at most ``MOST_LISTED`` numbers.
    """
    width = tree.destination.size(destination_level)
    pairs = tree.origin.size(origin_level) * width
    if pairs * math.prod(trips.shape[1:]) > MOST_LISTED:
        return origin, destination, trips
    every, listed = np.arange(pairs), np.zeros((pairs, *trips.shape[1:]), dtype=np.int64)
    listed[origin.astype(np.int64) * width + destination] = trips
    return (every // width).astype(np.int32), (every % width).astype(np.int32), listed


def refuse_without_intervals(plan: ReleasePlan, largest: int) -> None:
    """Refuse a release that cannot have intervals.

    Args:
        largest: Largest number of measured cells of a level.

    Raises:
        OdError: If the mechanism has a threshold, or the largest measured level has more than ``MOST_MEASURED`` cells.
    """
    if plan.has_threshold:
        raise OdError(
            "OD-INTERVAL-MECHANISM",
            f"mechanism {plan.mechanism.name!r} has no intervals, because it releases nothing about the pairs below"
            " its threshold",
            next_step="request flows without intervals, or release with another mechanism",
        )
    if largest > MOST_MEASURED:
        raise OdError(
            "OD-INTERVAL-SIZE",
            f"a level has {largest:,} measured cells, but intervals are computed for at most {MOST_MEASURED:,}",
            next_step="request flows without intervals, or release coarser zones",
        )


def added(each: Sequence[Estimates]) -> Estimates:
    """Return the estimates of the sums of independent releases, given those of each release, in their order."""
    return reduce(add, each)


def bounds_of(sums: Estimates) -> tuple[Counts, Counts]:
    """Return the lower and upper bounds of sums; shape (sums,) each.

    A sum may contain any number of the trips of the dropped nodes that it overlaps. The lower bound assumes none. The
    upper bound is the smaller of two bounds: the upper bound of the sum without dropped nodes, plus the upper bound of
    each dropped node; and the upper bound of the sum plus the estimated trips of all dropped nodes together. The upper
    bounds of cells of which nothing was measured are added to it.
    """
    return lower_bound(sums.estimate, sums.variance), _upper(sums, upper_bound)


def dropped_bound(sums: Estimates) -> Counts:
    """Return the upper bounds of the trips of the dropped nodes that sums overlap; shape (sums,)."""
    nothing = np.zeros(len(sums.estimate))
    return bounds_of(replace(sums, estimate=nothing, variance=nothing))[1]


def upper_end(sums: Estimates) -> Counts:
    """Return the upper bounds of sums that may be negative, such as a balance; shape (sums,)."""
    return _upper(sums, highest)


def _upper(sums: Estimates, end: Callable[[Reals, Reals], Counts]) -> Counts:
    """Return the upper bounds of sums; ``end`` returns that of an estimate with a variance."""
    alone = end(sums.estimate, sums.variance) + sums.most.astype(np.int64)
    together = end(sums.estimate + np.maximum(sums.unseen, 0), sums.variance + sums.doubt)
    upper: Counts = np.where(sums.most > 0, np.minimum(alone, together), alone) + sums.unmeasured.astype(np.int64)
    return upper
