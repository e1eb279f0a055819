"""Compute a 90 % interval for the trips of a category in every published cell, at no privacy cost.

Let C_s be the least-squares estimate of a sum for category s alone, and T that of its total; K is the number of
categories. If T has the variance V, and every C_s has the variance W, the estimate

    C_s + (T - sum of C_s over the categories) / K

has the variance V / K^2 + W (1 - 1/K), because T and the differences between the categories are uncorrelated. The
estimate is unbiased, also where nodes were dropped by their combined totals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from od_core.flows.accuracy import segment_variance
from od_core.flows.confidence import upper_bound
from od_core.flows.estimation.fitted_tree import Counts, Estimates, FittedTree, ZoneFunction, find_pairs
from od_core.flows.estimation.intervals import added, bounds_of, refuse_without_intervals
from od_core.flows.estimation.least_squares import FittedLevel, Reals, least_squares
from od_core.flows.estimation.segment_levels import segment_counts
from od_core.flows.estimation.sum_intervals import Weighted, weighted
from od_core.flows.estimation.top_down import Measurement
from od_core.flows.plan import ReleasePlan
from od_core.geography.geography import Numbers


class SegmentFit:
    """The estimates of the flows of one release in each category of a breakdown.

    Args:
        plan: The plan of the release, which has the breakdown.
        totals: The fitted totals of the release.
        measured: The measurements of all steps.
        breakdown: Name of the breakdown.

    Attributes:
        categories: For each category, the tree fitted to its own measurements.

    Raises:
        OdError: As in :func:`od_core.flows.estimation.intervals.refuse_without_intervals`.
    """

    def __init__(self, plan: ReleasePlan, totals: FittedTree, measured: Sequence[Measurement], breakdown: str) -> None:
        refuse_without_intervals(plan, max(len(m.noisy) for m in measured))
        fits = [least_squares(plan, None, counts) for counts in segment_counts(plan, measured, breakdown)]
        self._width = plan.tree.destination.size
        self._totals = totals
        bounded = _with_bounds(totals.levels, fits)
        self.categories = [FittedTree(plan.tree, levels, selected=False) for levels in bounded]

    def of_cells(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers
    ) -> list[Estimates]:
        """Return the estimates of the given cells of a pair of levels in each category; see :class:`SegmentIntervals`.

        A cell below a dropped node has the upper bound of its nearest measured ancestor in the category.
        """
        levels = origin_level, destination_level
        origins, destinations, total = self._totals.cells(*levels)
        own = [category.cells(*levels)[2] for category in self.categories]
        place = find_pairs(origins, destinations, origin, destination, self._width(destination_level))
        return [
            category.estimates_at(levels, origin, destination, place, estimates)
            for category, estimates in zip(self.categories, _segments(total, own), strict=True)
        ]

    def sum_between(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> list[Estimates]:
        """Return the estimate of the trips from one set of zones to another in each category, as one sum each."""
        own = [category.sum_between(origins, destinations) for category in self.categories]
        return _segments(self._totals.sum_between(origins, destinations), own)

    def weighted(self, weight: ZoneFunction, deviations: float | None, category: int) -> Weighted:
        """Return the estimate of the sum of the trips of a category, each with its weight."""
        total, *own = (weighted(fit, weight, deviations) for fit in (self._totals, *self.categories))
        excess = (total.estimate - math.fsum(one.estimate for one in own)) / len(own)
        variance = float(segment_variance(np.array(total.variance), np.array(own[0].variance), len(own)))
        return replace(
            own[category],
            estimate=own[category].estimate + excess,
            variance=variance,
            unseen=total.unseen,
            doubt=total.doubt,
        )


class SegmentIntervals:
    """The 90 % intervals of the flows in each category of a breakdown, of one release or of a sum of releases.

    Args:
        fits: The estimates of each release. Their noise must be independent.
    """

    def __init__(self, fits: Sequence[SegmentFit]) -> None:
        self._fits = fits

    def of_cells(
        self, origin_level: int, destination_level: int, origin: Numbers, destination: Numbers
    ) -> tuple[Counts, Counts]:
        """Return the lower and upper bounds of the given cells of a pair of levels; shape (cells, categories) each.

        A cell below a dropped node has the bounds 0 and the upper bound of its nearest measured ancestor.

        Args:
            origin_level, destination_level: Numbers of the levels.
            origin, destination: Area numbers of the cells; shape (cells,) each.
        """
        each = [fit.of_cells(origin_level, destination_level, origin, destination) for fit in self._fits]
        lower, upper = (np.stack(ends, axis=1) for ends in _bounds(each))
        return lower, upper

    def of_sum(self, origins: NDArray[np.bool_], destinations: NDArray[np.bool_]) -> tuple[Counts, Counts]:
        """Return the lower and upper bounds of the trips from one set of zones to another; shape (categories,) each.

        Args:
            origins, destinations: Masks of the zones in each set; shape (zones,) each.
        """
        lower, upper = map(np.concatenate, _bounds([fit.sum_between(origins, destinations) for fit in self._fits]))
        return lower, upper

    def weighted(self, weight: ZoneFunction, deviations: float | None, category: int) -> Weighted:
        """Return the estimate of a weighted sum of the trips of a category; see :meth:`Intervals.weighted`."""
        return reduce(add, [fit.weighted(weight, deviations, category) for fit in self._fits])


def _bounds(each: Sequence[Sequence[Estimates]]) -> tuple[tuple[Counts, ...], tuple[Counts, ...]]:
    """Return the lower and the upper bounds in each category, from the estimates of each release in each category."""
    lower, upper = zip(*(bounds_of(added(of_category)) for of_category in zip(*each, strict=True)), strict=True)
    return lower, upper


def _segments(total: Estimates, own: Sequence[Estimates]) -> list[Estimates]:
    """Return the estimates of some sums in each category.

    The trips of dropped nodes in a category are at most all their trips.

    Args:
        total: Estimates of the totals of the sums.
        own: Estimates of the sums from the measurements of each category alone.
    """
    estimates, variance = _combined((total.estimate, total.variance), [(one.estimate, one.variance) for one in own])
    return [
        Estimates(estimate, variance, one.most, total.unseen, total.doubt, one.unmeasured)
        for estimate, one in zip(estimates, own, strict=True)
    ]


def _combined(total: tuple[Reals, Reals], own: Sequence[tuple[Reals, Reals]]) -> tuple[list[Reals], Reals]:
    """Return the estimates of each category and their common variance, from estimates with their variances.

    See the module docstring for the formula.
    """
    categories = len(own)
    excess = (total[0] - sum(estimate for estimate, _ in own)) / categories
    variance = segment_variance(total[1], own[0][1], categories)
    return [estimate + excess for estimate, _ in own], variance


def _with_bounds(totals: Sequence[FittedLevel], fits: Sequence[Sequence[FittedLevel]]) -> list[list[FittedLevel]]:
    """Return the fits of each category with upper bounds for the category: at most the bounds of the totals.

    The levels of totals and categories are the same, except that a root without a measured total is exact.
    """
    bounded: list[list[FittedLevel]] = [[] for _ in fits]
    for total, *own in zip(totals, *fits, strict=True):
        estimates, variance = _combined((total.estimate, total.variance), [(one.estimate, one.variance) for one in own])
        for levels, level, estimate in zip(bounded, own, estimates, strict=True):
            levels.append(replace(level, bound=np.minimum(upper_bound(estimate, variance), total.bound)))
    return bounded
