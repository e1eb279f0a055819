"""Fit the flow tree with measured area totals, and estimate the totals of coarser areas.

Beside the tree, the trips that begin in each zone, and those that end there, may be measured once. These are the *area
totals*. A sum of hundreds of noisy flows has far more noise than one measurement.

Let h be the estimates of the leaves by the tree's own least squares
(:mod:`od_core.flows.estimation.least_squares`), C their covariance, R the map from leaves to area totals, y the
measured totals and S the diagonal matrix of their variances. The estimates from all measurements are

    h' = h + C R' m,   (R C R' + S) m = y - R h.

C R' m is the fit of a tree whose noisy values are 0, except those of the leaves, which are s2 R' m, where s2 is their
variance. So h' is what the tree's own least squares estimate if s2 R' m is added to the noisy values of the leaves, and
every estimator uses area totals in this way (:func:`include_area_totals`). All leaves below a divided node have the
same variance, so R C R' m follows from the nodes above the leaves. Conjugate gradients [hestenes1952methods] solve the
system.

R maps the leaves that were measured, but totals also contain the trips of dropped nodes. These are given to the other
leaves of their zone, and must not move the levels above. So if nodes were dropped, C is the covariance given the
estimates of the level two above the leaves, and what the leaves add is taken from the noisy values of that level.

:mod:`od_core.flows.projection.onto_area_totals` makes whole numbers that agree with the estimated totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from od_core.flows.arrays import Reals
from od_core.flows.estimation.least_squares import FamilyFit, MeasuredLevel, combine_bottom_up, has_no_dropped_nodes
from od_core.flows.estimation.levels import Measurement, SideTotals, select_area_totals
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.onto_area_totals import EstimatedTotals
from od_core.geography.flow_tree import FlowTree, sum_runs
from od_core.geography.geography import Numbers

_ITERATIONS = 300
"""Largest number of steps of conjugate gradients."""

_RESIDUAL = 1e-11
"""Part of the right side that may remain."""


def _find_divided_side(tree: FlowTree, above: MeasuredLevel, below: int = 0) -> tuple[int, Numbers]:
    """Return the side that the children of a level divide, and the area of each zone ``below`` levels below it."""
    side = 0 if tree.refines_origin(above.nodes.level + 1) else 1
    geography, at = (tree.origin, tree.destination)[side], tree.level_pair(above.nodes.level + below)[side]
    return side, geography.ancestors_at(geography.depth, at)


def include_area_totals(
    plan: ReleasePlan, levels: Sequence[MeasuredLevel], measured: Sequence[Measurement]
) -> tuple[list[MeasuredLevel], dict[int, EstimatedTotals]]:
    """Return levels whose least-squares fit is that of all measurements, and the estimated totals of areas.

    Args:
        levels: The levels of the flow tree, as :func:`od_core.flows.estimation.least_squares.build_measured_levels`
            returns.
        measured: The measurements of a release, of which those of area totals are used.

    Returns:
        The levels, of which the last one differs and, if nodes were dropped, one more; and the totals of the areas into
        which the children of a level divide others, by the position of the level. Without measured area totals, the
        levels as they are, and none.
    """
    by_side = select_area_totals(measured)
    if not by_side or not len(levels[-1].nodes):
        return list(levels), {}
    system = TotalsSystem(plan.tree, levels, by_side)
    leaves, m, found = levels[-1], system.split_by_side(system.solution), {}
    added = leaves.noise * (m[0][leaves.nodes.origin] + m[1][leaves.nodes.destination])
    moved = [*levels[:-1], replace(leaves, noisy=leaves.noisy + added)]
    if system.fixed is not None:
        above = levels[system.fixed]
        below = [replace(levels[-2], noisy=np.zeros(len(levels[-2].nodes))), replace(leaves, noisy=added)]
        *_, (_, _, (sums, spread)) = combine_bottom_up(below)
        noisy = above.noisy.copy()
        noisy[above.divided] -= above.noise / spread * sums
        moved[system.fixed] = replace(above, noisy=noisy)
    for k in range(system.fixed or 0, len(levels) - 1):
        above = levels[k]
        side, area = _find_divided_side(plan.tree, above, 1)
        if side in by_side and area[-1] > 0:
            (y, noise), zones = by_side[side], np.bincount(area)
            trips = np.bincount(area, y - noise * m[side])
            found[k] = EstimatedTotals(trips.astype(np.float64), (noise * zones).astype(np.float64))
    return moved, found


class TotalsSystem:
    """The linear system of the multipliers m, R C R' + S, for the measured totals of one or both sides.

    Attributes:
        fixed: Position of the level above which nothing changes; None if no node was dropped.
    """

    def __init__(self, tree: FlowTree, levels: Sequence[MeasuredLevel], by_side: SideTotals) -> None:
        self._levels, self._totals = levels, by_side
        self._families = self._changes = FamilyFit(levels)
        self.fixed: int | None = None
        if not has_no_dropped_nodes(levels) and not np.isinf(levels[-3].noise):
            self.fixed = len(levels) - 3
            top = replace(levels[self.fixed], offsets=np.zeros(1, dtype=np.int64), noise=0.0)
            self._changes = FamilyFit([top, *levels[-2:]])
        above, leaves = levels[-2:]
        # A family of leaves divides an area of one side into its zones, and has one zone on the other side.
        self._side, self._area_of = _find_divided_side(tree, above)
        ends = leaves.nodes.origin, leaves.nodes.destination
        self._area = (above.nodes.origin, above.nodes.destination)[self._side][above.divided]
        self._own, self._zone = ends[self._side], ends[1 - self._side][leaves.offsets[:-1]]
        self._size = np.diff(leaves.offsets)
        self._zones = tree.origin.size(tree.origin.depth), tree.destination.size(tree.destination.depth)
        families = np.bincount(self._area, minlength=int(self._area_of[-1]) + 1)
        self._families_of_zone = families[self._area_of].astype(np.float64)
        whole = np.bincount(self._zone, self._size, minlength=self._zones[1 - self._side]).astype(np.float64)
        by_leaves = (whole, self._families_of_zone) if self._side else (self._families_of_zone, whole)
        self._spread = np.concatenate([np.full(len(noisy), noise) for noisy, noise in by_side.values()])
        self._diagonal = self._spread + leaves.noise * self._concatenate_sides(by_leaves)

    @cached_property
    def solution(self) -> Reals:
        """The multipliers m of the measurements, as one vector; see :meth:`split_by_side`."""
        noisy, offsets = self._levels[-1].noisy, self._levels[-1].offsets
        h = self._families.estimate_families(sum_runs(noisy, offsets), lambda at: self._levels[at].noisy)
        return self.compute_multipliers(noisy, h, {side: y for side, (y, _) in self._totals.items()})

    def compute_multipliers(self, noisy: Reals, h: Reals, totals: Mapping[int, Reals]) -> Reals:
        """Return m of some measurements with these variances, as one vector.

        Args:
            noisy: Noisy values of the leaves; shape (leaves,).
            h: Estimates of the families by the tree; shape (families,).
            totals: Measured totals of each side; shape (zones,) each.
        """
        return self._solve(self._concatenate_sides(totals) - self._fit_totals(noisy, h))

    def compute_family_shortfalls(self, m: Reals) -> Reals:
        """Return what C R' m adds to each family, minus what s2 R' m adds to its leaves; shape (families,)."""
        sums, _ = self._sum_leaf_changes(m)
        return self._families.estimate_families(sums) - sums

    def compute_improvement(self, weights: Reals) -> tuple[float, float]:
        """Return what the totals add to the tree's estimate of a weighted sum, and by how much its variance falls.

        ``weights`` are those of the leaves. The covariances of the totals and the sum are c = R C w, so the estimate
        changes by c' m, and the variance falls by c' (R C R' + S)^-1 c.
        """
        noisy = self._levels[-1].noise * weights
        c = self._fit_totals(noisy, self._families.estimate_families(sum_runs(noisy, self._levels[-1].offsets)))
        return _compute_dot_product(c, self.solution), _compute_dot_product(c, self._solve(c))

    def split_by_side(self, values: Reals) -> tuple[Reals, Reals]:
        """Return numbers of the measured totals by side; 0 for a side without measured totals."""
        zones = self._zones
        ends = np.cumsum([0, *(zones[side] for side in self._totals)])
        found = {side: values[first:last] for side, (first, last) in zip(self._totals, pairwise(ends), strict=True)}
        return found.get(0, np.zeros(zones[0])), found.get(1, np.zeros(zones[1]))

    def _concatenate_sides(self, values: Sequence[Reals] | Mapping[int, Reals]) -> Reals:
        return np.concatenate([values[side] for side in self._totals])

    def _fit_totals(self, noisy: Reals, h: Reals) -> Reals:
        """Return the fitted totals, given the noisy values of the leaves and the estimates of the families."""
        own = np.bincount(self._own, noisy, minlength=self._zones[self._side]).astype(np.float64)
        return self._compute_fitted_totals(h, sum_runs(noisy, self._levels[-1].offsets), own)

    def _compute_fitted_totals(self, h: Reals, sums: Reals, own: Reals) -> Reals:
        """Return the fitted totals, given h, and the sums of leaves by family and by zone of the divided side."""
        lacking = np.bincount(self._area, (h - sums) / self._size, minlength=int(self._area_of[-1]) + 1)
        whole = np.bincount(self._zone, h, minlength=self._zones[1 - self._side]).astype(np.float64)
        divided = own + lacking[self._area_of]
        return self._concatenate_sides((whole, divided) if self._side else (divided, whole))

    def _sum_leaf_changes(self, m: Reals) -> tuple[Reals, Reals]:
        """Return s2 R' m, summed over the leaves of each family, and over those of each zone that is divided."""
        by_side, noise = self.split_by_side(m), self._levels[-1].noise
        own, other = by_side[self._side], by_side[1 - self._side][self._zone]
        of_areas = np.bincount(self._area_of, own)
        of_others = np.bincount(self._area, other, minlength=len(of_areas))[self._area_of]
        return noise * (of_areas[self._area] + self._size * other), noise * (self._families_of_zone * own + of_others)

    def _multiply_by_matrix(self, m: Reals) -> Reals:
        """Return (R C R' + S) m."""
        sums, own = self._sum_leaf_changes(m)
        return self._compute_fitted_totals(self._changes.estimate_families(sums), sums, own) + self._spread * m

    def _solve(self, right: Reals) -> Reals:
        """Return the solution for a right side by conjugate gradients, with sums in a fixed order."""
        solution, left = np.zeros_like(right), right.copy()
        scaled = left / self._diagonal
        towards = scaled
        size = _compute_dot_product(left, scaled)
        enough = _RESIDUAL**2 * _compute_dot_product(right, right)
        for _ in range(_ITERATIONS):
            if _compute_dot_product(left, left) <= enough:
                break
            moved = self._multiply_by_matrix(towards)
            step = size / _compute_dot_product(towards, moved)
            solution, left = solution + step * towards, left - step * moved
            scaled, before = left / self._diagonal, size
            size = _compute_dot_product(left, scaled)
            towards = scaled + size / before * towards
        return solution


def _compute_dot_product(a: Reals, b: Reals) -> float:
    return float(sum_runs(a * b, np.array([0, len(a)]))[0])
