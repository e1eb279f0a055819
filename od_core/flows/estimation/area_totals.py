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
same variance, so R C R' m follows from the nodes above the leaves, if all pairs can have trips; otherwise, leaves are
summed one by one. Conjugate gradients [hestenes1952methods] solve the system.

R maps the leaves that were measured, but totals also contain the trips of dropped nodes. These are given to the other
leaves of their zone, and must not move the levels above. So if nodes were dropped, C is the covariance given the
estimates of the finest level above the zones on both sides, which is two above the leaves, or one if each step refines
both sides. What the leaves add is taken from the noisy values of that level.

Totals that are known without error have the variance 0. Then m are Lagrange multipliers. If all totals of a side are
exact, and so is the number of all trips, or all totals of the other side, one equation follows from the others, and the
system is singular. C R' maps its null space (:meth:`TotalsSystem._list_null_vectors`) to 0, so the estimates do not
depend on the part of m in it. This part is removed from the residual, where rounding leaves some.

:mod:`od_core.flows.projection.onto_area_totals` makes whole numbers that agree with the estimated totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from od_core.flows.arrays import Reals
from od_core.flows.estimation.least_squares import FamilyFit, MeasuredLevel, combine_bottom_up, has_no_dropped_nodes
from od_core.flows.estimation.levels import SideTotals, sum_variances
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.onto_area_totals import EstimatedTotals
from od_core.geography.flow_tree import FlowTree, sum_runs
from od_core.geography.geography import Numbers

_ITERATIONS = 300
"""Largest number of steps of conjugate gradients."""

_RESIDUAL = 1e-11
"""Part of the right side that may remain."""


@dataclass(frozen=True, eq=False)
class _LeafSide:
    """One side of the leaves and of their families.

    If all pairs can have trips, a family is a rectangle: all pairs of the zones of an area of each side. The area of an
    undivided side is one zone.

    Attributes:
        sums_leaves: Whether leaves are summed by zone: the step to the leaves divides the areas of this side, or some
            pairs cannot have trips. Otherwise, a zone has whole families.
        area_of_zone: Number of the area of each zone; shape (zones,).
        area: Area of each family; shape (families,).
        zones: Number of zones of that area; shape (families,).
        zone: Zone of each leaf; shape (leaves,).
    """

    sums_leaves: bool
    area_of_zone: Numbers
    area: Numbers
    zones: Reals
    zone: Numbers

    @classmethod
    def from_levels(cls, tree: FlowTree, levels: Sequence[MeasuredLevel], side: int) -> _LeafSide:
        """Return a side (0 for origins) of the leaves, given the levels of the tree."""
        above, leaves = (level.nodes for level in levels[-2:])
        geography = (tree.origin, tree.destination)[side]
        is_divided = side in tree.list_divided_sides(above.level + 1)
        area_level = tree.level_pair(above.level)[side] if is_divided else geography.depth
        area_of_zone = geography.ancestors_at(geography.depth, area_level)
        area = (above.origin, above.destination)[side][levels[-2].divided]
        zones = np.bincount(area_of_zone).astype(np.float64)[area]
        sums_leaves = is_divided or tree.possible is not None
        return cls(sums_leaves, area_of_zone, area, zones, (leaves.origin, leaves.destination)[side])

    def sum_leaves(self, values: Reals) -> Reals:
        """Return the sum of the values of the leaves of each zone; shape (zones,)."""
        return np.bincount(self.zone, values, minlength=len(self.area_of_zone)).astype(np.float64)

    def sum_by_zone(self, values: Reals) -> Reals:
        """Return, for each zone, the sum of the values of all families of its area; shape (zones,)."""
        return self.sum_by_area(values)[self.area_of_zone]

    def sum_by_area(self, values: Reals) -> Reals:
        """Return the sum of the values of the families of each area; shape (areas,)."""
        return np.bincount(self.area, values, minlength=int(self.area_of_zone[-1]) + 1).astype(np.float64)

    def sum_zones(self, values: Reals) -> Reals:
        """Return, for each family, the sum of the values of the zones of its area; shape (families,)."""
        of_areas = np.bincount(self.area_of_zone, values).astype(np.float64) if self.sums_leaves else values
        return of_areas[self.area]

    def multiply_by_zones(self, values: Reals) -> Reals:
        """Return values of families, each times the zones of its area."""
        return values * self.zones if self.sums_leaves else values


def include_area_totals(
    plan: ReleasePlan, levels: Sequence[MeasuredLevel], by_side: SideTotals
) -> tuple[list[MeasuredLevel], dict[int, EstimatedTotals]]:
    """Return levels whose least-squares fit is that of all measurements, and the estimated totals of areas.

    Args:
        levels: The levels of the flow tree, as :func:`od_core.flows.estimation.least_squares.build_measured_levels`
            returns.
        by_side: The area totals, as :func:`od_core.flows.estimation.levels.list_side_totals` returns them.

    Returns:
        The levels, of which the last one differs and, if nodes were dropped, one more; and the totals of the areas into
        which the children of a level divide others, by the position of the level. Without measured area totals, the
        levels as they are, and none.
    """
    if not by_side or not len(levels[-1].nodes):
        return list(levels), {}
    system = TotalsSystem(plan.tree, levels, by_side)
    m = system.split_by_side(system.solution)
    leaves = levels[-1]
    added = leaves.noise * (m[0][leaves.nodes.origin] + m[1][leaves.nodes.destination])
    moved = [*levels[:-1], replace(leaves, noisy=leaves.noisy + added)]
    if system.fixed is not None:
        above = levels[system.fixed]
        between = levels[system.fixed + 1 : -1]
        below = [*(replace(level, noisy=np.zeros(len(level.nodes))) for level in between), replace(leaves, noisy=added)]
        *_, (_, _, (sums, spread)) = combine_bottom_up(below)
        noisy = above.noisy.copy()
        noisy[above.divided] -= above.noise / spread * sums
        moved[system.fixed] = replace(above, noisy=noisy)
    totals_by_position = {}
    of_zones: SideTotals = {side: (y - noise * m[side], noise) for side, (y, noise) in by_side.items()}
    if plan.known:
        fitted, bounds = system.fit_zone_totals(moved[-1].noisy), system.bound_variances()
        of_zones = {side: (of_zones.get(side, (fitted[side],))[0], bounds[side]) for side in (0, 1)}
    for k in range(system.fixed or 0, len(levels) - 1):
        totals = _estimate_divided_totals(plan.tree, levels[k].nodes.level + 1, of_zones)
        if totals is not None:
            totals_by_position[k] = totals
    return moved, totals_by_position


def _estimate_divided_totals(tree: FlowTree, level: int, of_zones: SideTotals) -> EstimatedTotals | None:
    """Return the estimated totals of the areas into which a level divides others; None if they are not measured.

    ``of_zones`` are the estimated totals of the zones.
    """
    found = []
    for side in tree.list_divided_sides(level):
        geography, area_level = (tree.origin, tree.destination)[side], tree.level_pair(level)[side]
        if side in of_zones and geography.size(area_level) > 1:
            estimate, noise = of_zones[side]
            area = geography.ancestors_at(geography.depth, area_level)
            trips = np.bincount(area, estimate).astype(np.float64)
            found.append((side, trips, sum_variances(noise, area, geography.size(area_level))))
    return EstimatedTotals.from_sides(found) if found else None


class TotalsSystem:
    """The linear system of the multipliers m, R C R' + S, for the measured totals of one or both sides.

    Attributes:
        fixed: Position of the level above which nothing changes; None if no node was dropped.
    """

    def __init__(self, tree: FlowTree, levels: Sequence[MeasuredLevel], by_side: SideTotals) -> None:
        self._levels, self._totals_by_side = levels, by_side
        self._families = FamilyFit(levels)
        self._changes = self._families
        """Fit of what totals change, which is below the fixed level if there is one."""
        self.fixed: int | None = None
        fixed = len(levels) - 1 - (1 if tree.refines_both else 2)
        if not has_no_dropped_nodes(levels) and not np.isinf(levels[fixed].noise):
            self.fixed = fixed
            top = replace(levels[fixed], offsets=np.zeros(1, dtype=np.int64), noise=0.0)
            self._changes = FamilyFit([top, *levels[fixed + 1 :]])
        self._sides = (_LeafSide.from_levels(tree, levels, 0), _LeafSide.from_levels(tree, levels, 1))
        self._size = np.diff(levels[-1].offsets)
        self._has_rectangles = tree.possible is None
        one, other = self._sides
        # The leaves of a zone are, in each family of its area, those of the zones of the other side.
        self._leaves_of_zone = one.sum_by_zone(other.zones), other.sum_by_zone(one.zones)
        if not self._has_rectangles:
            self._leaves_of_zone = one.sum_leaves(np.ones_like(one.zone)), other.sum_leaves(np.ones_like(other.zone))
        self._spread = np.concatenate([np.full(len(noisy), noise) for noisy, noise in by_side.values()])
        self._null_vectors = self._list_null_vectors()
        self._diagonal = self._spread + levels[-1].noise * self._concatenate_sides(self._leaves_of_zone)
        self._diagonal[self._diagonal == 0] = 1.0  # of zones that cannot have trips, where all else is 0

    @cached_property
    def solution(self) -> Reals:
        """The multipliers m of the measurements, as one vector; see :meth:`split_by_side`."""
        noisy, offsets = self._levels[-1].noisy, self._levels[-1].offsets
        h = self._families.estimate_families(sum_runs(noisy, offsets), lambda at: self._levels[at].noisy)
        return self.compute_multipliers(noisy, h, {side: y for side, (y, _) in self._totals_by_side.items()})

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

    def bound_variances(self) -> tuple[Reals, Reals]:
        """Return, by side, upper bounds of the variances of totals that are estimated from all measurements.

        They are those of the mean of the measured total, if there is one, and of the sum of the noisy leaves.
        """
        of_leaves = [self._levels[-1].noise * leaves for leaves in self._leaves_of_zone]
        spread = self.split_by_side(self._spread)
        one, other = (
            own * of_sum / (own + of_sum) if side in self._totals_by_side else of_sum
            for side, (own, of_sum) in enumerate(zip(spread, of_leaves, strict=True))
        )
        return one, other

    def fit_zone_totals(self, noisy: Reals) -> list[Reals]:
        """Return the totals of the zones of both sides by the fit of the tree with some noisy values of the leaves."""
        h = self._families.estimate_families(
            sum_runs(noisy, self._levels[-1].offsets), lambda at: self._levels[at].noisy
        )
        return self._fit_sides(noisy, h)

    def split_by_side(self, values: Reals) -> tuple[Reals, Reals]:
        """Return a vector with one entry per measured total, such as the multipliers m, cut by side.

        Both parts have the shape (zones,); that of a side that is not measured has zeros. This is the inverse of
        :meth:`_concatenate_sides`.
        """
        by_side = [np.zeros(len(leaf_side.area_of_zone)) for leaf_side in self._sides]
        first = 0
        for number in self._totals_by_side:
            last = first + len(by_side[number])
            by_side[number] = values[first:last]
            first = last
        return by_side[0], by_side[1]

    def _list_null_vectors(self) -> list[Reals]:
        """Return an orthogonal basis of the null space of R C R' + S; empty if the matrix is regular."""
        ends = np.cumsum([0, *(len(noisy) for noisy, _ in self._totals_by_side.values())]).tolist()
        exact = []
        for first, last in pairwise(ends):
            if not self._spread[first:last].any():
                exact.append(np.zeros(ends[-1]))
                exact[-1][first:last] = 1.0
        if self._levels[0].noise == 0:  # the sum of all leaves has no variance
            return exact
        return [exact[0] - exact[1]] if len(exact) > 1 else []

    def _remove_null_part(self, right: Reals) -> Reals:
        """Return a vector without its part in the null space."""
        for vector in self._null_vectors:
            right = right - vector * (_compute_dot_product(vector, right) / _compute_dot_product(vector, vector))
        return right

    def _concatenate_sides(self, values: Sequence[Reals] | Mapping[int, Reals]) -> Reals:
        """Return the values of the measured sides as one vector; the inverse of :meth:`split_by_side`."""
        return np.concatenate([values[number] for number in self._totals_by_side])

    def _fit_totals(self, noisy: Reals, h: Reals) -> Reals:
        """Return the fitted totals, given the noisy values of the leaves and the estimates of the families."""
        return self._concatenate_sides(self._fit_sides(noisy, h))

    def _fit_sides(self, noisy: Reals, h: Reals) -> list[Reals]:
        """Return the fitted totals of both sides; see :meth:`_fit_totals`."""
        sums_by_zone = [side.sum_leaves(noisy) if side.sums_leaves else np.empty(0) for side in self._sides]
        return self._compute_fitted_totals(h, sum_runs(noisy, self._levels[-1].offsets), sums_by_zone)

    def _compute_fitted_totals(self, h: Reals, sums: Reals, sums_by_zone: Sequence[Reals]) -> list[Reals]:
        """Return the fitted totals, given h, and the sums of leaves by family and, of each divided side, by zone."""
        lacking = (h - sums) / self._size  # what each leaf of a family gets, in equal parts
        if not self._has_rectangles:
            equal = np.repeat(lacking, self._size)
            return [of_zones + side.sum_leaves(equal) for side, of_zones in zip(self._sides, sums_by_zone, strict=True)]
        fitted = []
        for side, other, of_zones in zip(self._sides, reversed(self._sides), sums_by_zone, strict=True):
            if side.sums_leaves:
                fitted.append(of_zones + side.sum_by_zone(other.multiply_by_zones(lacking)))
            else:  # an area is one zone, and has whole families
                fitted.append(side.sum_by_area(h))
        return fitted

    def _sum_leaf_changes(self, m: Reals) -> tuple[Reals, list[Reals]]:
        """Return s2 R' m, summed over the leaves of each family, and over those of each zone of a divided side."""
        noise, by_side = self._levels[-1].noise, self.split_by_side(m)
        origins, destinations = self._sides
        if not self._has_rectangles:
            changes = noise * (by_side[0][origins.zone] + by_side[1][destinations.zone])
            return sum_runs(changes, self._levels[-1].offsets), [side.sum_leaves(changes) for side in self._sides]
        sums_of_origins, sums_of_destinations = origins.sum_zones(by_side[0]), destinations.sum_zones(by_side[1])
        of_families = noise * (
            destinations.multiply_by_zones(sums_of_origins) + origins.multiply_by_zones(sums_of_destinations)
        )
        of_zones = [np.empty(0), np.empty(0)]
        for number, others in enumerate((sums_of_destinations, sums_of_origins)):
            side = self._sides[number]
            if side.sums_leaves:
                leaves = self._leaves_of_zone[number] * by_side[number]
                of_zones[number] = noise * (leaves + side.sum_by_zone(others))
        return of_families, of_zones

    def _multiply_by_matrix(self, m: Reals) -> Reals:
        """Return (R C R' + S) m."""
        sums, own = self._sum_leaf_changes(m)
        fitted = self._compute_fitted_totals(self._changes.estimate_families(sums), sums, own)
        return self._concatenate_sides(fitted) + self._spread * m

    def _solve(self, right: Reals) -> Reals:
        """Return the solution for a right side by conjugate gradients, with sums in a fixed order.

        They are preconditioned by the diagonal of the matrix.
        """
        right = self._remove_null_part(right)
        solution, residual = np.zeros_like(right), right.copy()
        scaled = residual / self._diagonal
        direction = scaled
        size = _compute_dot_product(residual, scaled)
        small_enough = _RESIDUAL**2 * _compute_dot_product(right, right)
        for _ in range(_ITERATIONS):
            if _compute_dot_product(residual, residual) <= small_enough:
                break
            product = self._multiply_by_matrix(direction)
            step = size / _compute_dot_product(direction, product)
            solution = solution + step * direction
            residual = self._remove_null_part(residual - step * product)
            scaled = residual / self._diagonal
            size_before, size = size, _compute_dot_product(residual, scaled)
            direction = scaled + size / size_before * direction
        return solution


def _compute_dot_product(a: Reals, b: Reals) -> float:
    """Return the scalar product of two vectors, added in their order."""
    return float(sum_runs(a * b, np.array([0, len(a)]))[0])
