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

_MAX_ITERATIONS = 300
"""Largest number of steps of conjugate gradients."""

_RESIDUAL_TOLERANCE = 1e-11
"""Largest length of the residual, as a part of the length of the right side, at which the iteration ends."""


@dataclass(frozen=True, eq=False)
class _LeafSide:
    """One side, origins or destinations, of the leaves and of their families.

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
        """Return the sum of the values of families over all families of each zone's area; shape (zones,)."""
        return self.sum_by_area(values)[self.area_of_zone]

    def sum_by_area(self, values: Reals) -> Reals:
        """Return the sum of the values of the families of each area; shape (areas,)."""
        areas = int(self.area_of_zone[-1]) + 1  # areas are numbered in the order of their zones
        return np.bincount(self.area, values, minlength=areas).astype(np.float64)

    def sum_zones(self, values: Reals) -> Reals:
        """Return the sum of the values of zones over the zones of each family's area; shape (families,)."""
        of_areas = np.bincount(self.area_of_zone, values).astype(np.float64) if self.sums_leaves else values
        return of_areas[self.area]

    def multiply_by_zones(self, values: Reals) -> Reals:
        """Return values of families, each times the number of zones of its area, which is 1 on an undivided side."""
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
        The levels, of which the leaves have other noisy values and, if nodes were dropped, also the fixed level. By the
        position of a level above the leaves, the totals of the areas into which the next level divides its areas.
        Without area totals, the levels are as they were, and there are no totals.
    """
    if not by_side or not len(levels[-1].nodes):
        return list(levels), {}
    system = TotalsSystem(plan.tree, levels, by_side)
    m = system.split_by_side(system.solution)
    leaves = levels[-1]
    added = leaves.noise * (m[0][leaves.nodes.origin] + m[1][leaves.nodes.destination])
    moved = [*levels[:-1], replace(leaves, noisy=leaves.noisy + added)]
    if system.fixed is not None:
        moved[system.fixed] = _take_added_from_fixed_level(levels[system.fixed :], added)
    of_zones: SideTotals = {side: (y - noise * m[side], noise) for side, (y, noise) in by_side.items()}
    if plan.known:  # also the totals of a side without measurements are then estimated
        fitted, bounds = system.fit_zone_totals(moved[-1].noisy), system.bound_variances()
        estimates = {side: estimate for side, (estimate, _) in of_zones.items()}
        of_zones = {side: (estimates.get(side, fitted[side]), bounds[side]) for side in (0, 1)}
    totals_by_position = {}
    for position in range(system.fixed or 0, len(levels) - 1):
        totals = _estimate_divided_totals(plan.tree, levels[position].nodes.level + 1, of_zones)
        if totals is not None:
            totals_by_position[position] = totals
    return moved, totals_by_position


def _take_added_from_fixed_level(levels: Sequence[MeasuredLevel], added: Reals) -> MeasuredLevel:
    """Return the fixed level with noisy values that leave its estimates as they were before the leaves were changed.

    Args:
        levels: The levels from the fixed one to the leaves.
        added: What is added to the noisy value of each leaf; shape (leaves,).
    """
    fixed_level, *between, leaves = levels
    below = [*(replace(level, noisy=np.zeros(len(level.nodes))) for level in between), replace(leaves, noisy=added)]
    *_, (_, _, (sums, variance_of_sums)) = combine_bottom_up(below)  # of the level below the fixed one
    # So the estimate of a node of the fixed level, (x S + sums s2) / (S + s2), stays as it was.
    noisy = fixed_level.noisy.copy()
    noisy[fixed_level.divided] -= fixed_level.noise / variance_of_sums * sums
    return replace(fixed_level, noisy=noisy)


def _estimate_divided_totals(tree: FlowTree, level: int, of_zones: SideTotals) -> EstimatedTotals | None:
    """Return the estimated totals of the areas into which a level divides those above; None if none are measured.

    ``of_zones`` has the estimated totals of the zones, and their variances, by side.
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


def _find_fixed_level(tree: FlowTree, levels: Sequence[MeasuredLevel]) -> int | None:
    """Return the position of the finest level above the zones on both sides; None if no node was dropped.

    Area totals must not change this level and those above; see the module docstring. Return None also if it was not
    measured.
    """
    position = len(levels) - 1 - (1 if tree.refines_both else 2)
    if has_no_dropped_nodes(levels) or np.isinf(levels[position].noise):
        return None
    return position


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
        self.fixed = _find_fixed_level(tree, levels)
        if self.fixed is not None:
            exact_root = replace(levels[self.fixed], offsets=np.zeros(1, dtype=np.int64), noise=0.0)
            self._changes = FamilyFit([exact_root, *levels[self.fixed + 1 :]])
        self._sides = (_LeafSide.from_levels(tree, levels, 0), _LeafSide.from_levels(tree, levels, 1))
        self._size = np.diff(levels[-1].offsets)
        """Number of leaves of each family."""
        self._has_rectangles = tree.possible is None
        self._leaves_of_zone = self._count_leaves_of_zones()
        self._spread = np.concatenate([np.full(len(noisy), noise) for noisy, noise in by_side.values()])
        """The diagonal of S: the variances of the totals, as one vector."""
        self._null_vectors = self._list_null_vectors()
        self._diagonal = self._spread + levels[-1].noise * self._concatenate_sides(self._leaves_of_zone)
        self._diagonal[self._diagonal == 0] = 1.0  # of zones that cannot have trips, where all else is 0

    def _count_leaves_of_zones(self) -> tuple[Reals, Reals]:
        """Return the number of leaves of each zone, of both sides; shape (zones,) each."""
        origins, destinations = self._sides
        if not self._has_rectangles:
            one_for_each = np.ones(len(origins.zone))
            return origins.sum_leaves(one_for_each), destinations.sum_leaves(one_for_each)
        # In each family of its area, a zone has a leaf for each zone of the other side.
        return origins.sum_by_zone(destinations.zones), destinations.sum_by_zone(origins.zones)

    @cached_property
    def solution(self) -> Reals:
        """The multipliers m of the measurements, as one vector; see :meth:`split_by_side`."""
        noisy = self._levels[-1].noisy
        totals = {side: y for side, (y, _) in self._totals_by_side.items()}
        return self.compute_multipliers(noisy, self._estimate_families(noisy), totals)

    def _estimate_families(self, noisy: Reals) -> Reals:
        """Return h of the families from noisy values of the leaves and the levels' own noisy values above them."""
        sums = sum_runs(noisy, self._levels[-1].offsets)
        return self._families.estimate_families(sums, lambda position: self._levels[position].noisy)

    def compute_multipliers(self, noisy: Reals, h: Reals, totals: Mapping[int, Reals]) -> Reals:
        """Return m of measurements that have the variances of this system, as one vector.

        Args:
            noisy: Noisy values of the leaves; shape (leaves,).
            h: Estimates of the families by the tree; shape (families,).
            totals: Measured totals of each side; shape (zones,) each.
        """
        return self._solve(self._concatenate_sides(totals) - self._fit_totals(noisy, h))

    def compute_family_shortfalls(self, m: Reals) -> Reals:
        """Return, for each family, the change of h by C R' m minus the change of its leaves' sum by s2 R' m."""
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

        A bound is the variance of the sum of the zone's noisy leaves or, if the total was measured, of the mean of this
        sum and the measured total, weighted by precision. The shape is (zones,) each.
        """
        bounds = [self._levels[-1].noise * leaves for leaves in self._leaves_of_zone]
        of_totals = self.split_by_side(self._spread)
        for side in self._totals_by_side:
            of_sums = bounds[side]
            bounds[side] = of_totals[side] * of_sums / (of_totals[side] + of_sums)
        of_origins, of_destinations = bounds
        return of_origins, of_destinations

    def fit_zone_totals(self, noisy: Reals) -> list[Reals]:
        """Return the totals of the zones of both sides by the fit of the tree with other noisy values of the leaves."""
        return self._fit_sides(noisy, self._estimate_families(noisy))

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
        """Return an orthogonal basis of the null space of R C R' + S; empty if the matrix is regular.

        If all totals of a side are exact, their sum says again what an exact root says, or what the other side does.
        """
        ends = np.cumsum([0, *(len(noisy) for noisy, _ in self._totals_by_side.values())]).tolist()
        sums_of_exact_sides = []
        for first, last in pairwise(ends):
            if not self._spread[first:last].any():
                weights = np.zeros(ends[-1])
                weights[first:last] = 1.0
                sums_of_exact_sides.append(weights)
        if self._levels[0].noise == 0:  # the sum of all leaves has no variance
            return sums_of_exact_sides
        if len(sums_of_exact_sides) < 2:
            return []
        one_side, other_side = sums_of_exact_sides
        return [one_side - other_side]

    def _remove_null_part(self, right: Reals) -> Reals:
        """Return a right side without its part in the null space of the matrix."""
        for vector in self._null_vectors:
            right = right - vector * (_compute_dot_product(vector, right) / _compute_dot_product(vector, vector))
        return right

    def _concatenate_sides(self, values: Sequence[Reals] | Mapping[int, Reals]) -> Reals:
        """Return the values of the measured sides as one vector; the inverse of :meth:`split_by_side`."""
        return np.concatenate([values[number] for number in self._totals_by_side])

    def _fit_totals(self, noisy: Reals, h: Reals) -> Reals:
        """Return the fitted totals of the measured sides, as one vector; for the arguments, see :meth:`_fit_sides`."""
        return self._concatenate_sides(self._fit_sides(noisy, h))

    def _fit_sides(self, noisy: Reals, h: Reals) -> list[Reals]:
        """Return the fitted totals of the zones of both sides; shape (zones,) each.

        ``noisy`` are noisy values of the leaves, and ``h`` the tree's estimates of the families with these values.
        """
        sums_by_zone = [side.sum_leaves(noisy) if side.sums_leaves else np.empty(0) for side in self._sides]
        return self._compute_fitted_totals(h, sum_runs(noisy, self._levels[-1].offsets), sums_by_zone)

    def _compute_fitted_totals(self, h: Reals, sums: Reals, sums_by_zone: Sequence[Reals]) -> list[Reals]:
        """Return the fitted totals of the zones of both sides, given the estimates ``h`` of the families.

        ``sums`` are the sums of the noisy values of the leaves of each family, and ``sums_by_zone`` those of each zone
        of both sides; a side whose leaves are not summed does not use them.
        """
        lacking = (h - sums) / self._size  # what each leaf of a family gets, in equal parts
        if not self._has_rectangles:
            added = np.repeat(lacking, self._size)
            return [of_zones + side.sum_leaves(added) for side, of_zones in zip(self._sides, sums_by_zone, strict=True)]
        fitted = []
        for side, other, of_zones in zip(self._sides, reversed(self._sides), sums_by_zone, strict=True):
            if side.sums_leaves:
                fitted.append(of_zones + side.sum_by_zone(other.multiply_by_zones(lacking)))
            else:  # an area is one zone, and has whole families
                fitted.append(side.sum_by_area(h))
        return fitted

    def _sum_leaf_changes(self, m: Reals) -> tuple[Reals, list[Reals]]:
        """Return s2 R' m, summed over the leaves of each family, and over those of each zone of both sides.

        A side whose leaves are not summed by zone has an empty array.
        """
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
        for number, sums_of_other_side in enumerate((sums_of_destinations, sums_of_origins)):
            side = self._sides[number]
            if side.sums_leaves:
                by_own_multiplier = self._leaves_of_zone[number] * by_side[number]
                of_zones[number] = noise * (by_own_multiplier + side.sum_by_zone(sums_of_other_side))
        return of_families, of_zones

    def _multiply_by_matrix(self, m: Reals) -> Reals:
        """Return (R C R' + S) m."""
        sums, by_zone = self._sum_leaf_changes(m)
        fitted = self._compute_fitted_totals(self._changes.estimate_families(sums), sums, by_zone)
        return self._concatenate_sides(fitted) + self._spread * m

    def _solve(self, right: Reals) -> Reals:
        """Return v with (R C R' + S) v = ``right``, by conjugate gradients preconditioned by the matrix's diagonal.

        Sums are added in a fixed order, so that every machine has the same result.
        """
        right = self._remove_null_part(right)
        solution, residual = np.zeros_like(right), right.copy()
        scaled = residual / self._diagonal
        direction = scaled
        size = _compute_dot_product(residual, scaled)
        small_enough = _RESIDUAL_TOLERANCE**2 * _compute_dot_product(right, right)
        for _ in range(_MAX_ITERATIONS):
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
    """Return the dot product of two vectors, added in their order, so that every machine has the same result."""
    return float(sum_runs(a * b, np.array([0, len(a)]))[0])
