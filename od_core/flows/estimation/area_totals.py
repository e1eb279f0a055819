"""Fit the flow tree with measured area totals, and estimate the totals of coarser areas.

Beside the tree, the trips that begin in each zone, and those that end there, may be measured once. These are the *area
totals*. A sum of hundreds of noisy flows has far more noise than one measurement.

Let h be the estimates of the leaves by the tree's own least squares
(:mod:`od_core.flows.estimation.least_squares`), C their covariance, R the map from leaves to area totals, y the
measured totals and S the diagonal matrix of their variances. The estimates from all measurements are

    h' = h + C R' m,   (R C R' + S) m = y - R h.

C R' m is the fit of a tree whose noisy values are 0, except those of the leaves, which are s2 R' m, where s2 is their
variance. So h' is what the tree's own least squares estimate if s2 R' m is added to the noisy values of the leaves, and
every estimator uses area totals in this way (:func:`with_area_totals`). All leaves below a divided node have the same
variance, so R C R' m follows from the nodes above the leaves. Conjugate gradients [hestenes1952methods] solve the
system.

R maps the leaves that were measured, but totals also contain the trips of dropped nodes. These are given to the other
leaves of their zone, and must not move the levels above. So if nodes were dropped, C is the covariance given the
estimates of the level two above the leaves, and what the leaves add is taken from the noisy values of that level.

:mod:`od_core.flows.projection.onto_area_totals` makes whole numbers that agree with the estimated totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.least_squares import FamilyFit, MeasuredLevel, nothing_dropped, up
from od_core.flows.estimation.levels import Measurement, SideTotals, of_area_totals
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.onto_area_totals import EstimatedTotals
from od_core.geography.flow_tree import FlowTree, run_sums
from od_core.geography.geography import Numbers

_ITERATIONS = 300
"""Largest number of steps of conjugate gradients."""

_RESIDUAL = 1e-11
"""Part of the right side that may remain."""


@dataclass(frozen=True, eq=False)
class _Families:
    """The families of leaves: each divides an area of one side into its zones, and has one zone on the other side.

    Attributes:
        side: Side that the leaves divide: 0 for origins, 1 for destinations.
        area, zone: Number of the area, and of the zone on the other side; shape (families,) each.
        size: Number of leaves; shape (families,).
        area_of: Number of the area of each zone on the side that is divided; shape (zones,).
        zones: Number of zones of the origins and of the destinations.
        noise: Variance of the noise of the leaves.
    """

    side: int
    area: Numbers
    zone: Numbers
    size: Integers
    area_of: Numbers
    zones: tuple[int, int]
    noise: float

    @classmethod
    def of(cls, tree: FlowTree, levels: Sequence[MeasuredLevel]) -> _Families:
        """Return the families of the last of some levels."""
        above, leaves = levels[-2:]
        side, area_of = _divided(tree, above)
        ends = leaves.nodes.origin, leaves.nodes.destination
        area = (above.nodes.origin, above.nodes.destination)[side][above.divided]
        zones = tree.origin.size(tree.origin.depth), tree.destination.size(tree.destination.depth)
        zone = ends[1 - side][leaves.offsets[:-1]]
        return cls(side, area, zone, np.diff(leaves.offsets), area_of, zones, leaves.noise)

    def begun_and_ended(self, h: Reals, sums: Reals, own: Reals) -> tuple[Reals, Reals]:
        """Return the fitted totals of all origins and of all destinations; shape (zones,) each.

        Args:
            h: Fitted trips of each family.
            sums: Sum of the noisy values of the leaves of each family.
            own: Sum of the noisy values of the leaves of each zone of the side that is divided; shape (zones,).
        """
        lacking = np.bincount(self.area, (h - sums) / self.size, minlength=int(self.area_of[-1]) + 1)
        divided = own + lacking[self.area_of]
        whole: Reals = np.bincount(self.zone, h, minlength=self.zones[1 - self.side]).astype(np.float64)
        return (whole, divided) if self.side else (divided, whole)

    def noise_of(self, m: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        """Return s2 R' m, summed over the leaves of each family, and over those of each zone that is divided."""
        own, other = m[self.side], m[1 - self.side][self.zone]
        of_areas = np.bincount(self.area_of, own)
        number = np.bincount(self.area, minlength=len(of_areas))[self.area_of]
        of_others = np.bincount(self.area, other, minlength=len(of_areas))[self.area_of]
        return self.noise * (of_areas[self.area] + self.size * other), self.noise * (number * own + of_others)

    def diagonal(self, side: int) -> Reals:
        """Return the noise of the leaves of each zone of one side; shape (zones,)."""
        leaves = np.bincount(self.zone, self.size, minlength=self.zones[side])
        if side == self.side:
            leaves = np.bincount(self.area, minlength=int(self.area_of[-1]) + 1)[self.area_of]
        return self.noise * leaves.astype(np.float64)


def _divided(tree: FlowTree, above: MeasuredLevel, below: int = 0) -> tuple[int, Numbers]:
    """Return the side that the children of a level divide, and the area of each zone ``below`` levels below it."""
    side = 0 if tree.refines_origin(above.nodes.level + 1) else 1
    geography, at = (tree.origin, tree.destination)[side], tree.level_pair(above.nodes.level + below)[side]
    return side, geography.ancestors_at(geography.depth, at)


def with_area_totals(
    plan: ReleasePlan, levels: Sequence[MeasuredLevel], measured: Sequence[Measurement]
) -> tuple[list[MeasuredLevel], dict[int, EstimatedTotals]]:
    """Return levels whose least-squares fit is that of all measurements, and the estimated totals of areas.

    Args:
        levels: The levels of the flow tree, as :func:`od_core.flows.estimation.least_squares.measured_levels` returns.
        measured: The measurements of a release, of which those of area totals are used.

    Returns:
        The levels, of which the last one differs and, if nodes were dropped, one more; and the totals of the areas into
        which the children of a level divide others, by the position of the level. Without measured area totals, the
        levels as they are, and none.
    """
    by_side = of_area_totals(measured)
    if not by_side or not len(levels[-1].nodes):
        return list(levels), {}
    system = TotalsSystem(plan.tree, levels, by_side)
    leaves, m, found = levels[-1], system.by_side(system.solution), {}
    added = leaves.noise * (m[0][leaves.nodes.origin] + m[1][leaves.nodes.destination])
    moved = [*levels[:-1], replace(leaves, noisy=leaves.noisy + added)]
    if system.fixed is not None:
        above = levels[system.fixed]
        below = [replace(levels[-2], noisy=np.zeros(len(levels[-2].nodes))), replace(leaves, noisy=added)]
        *_, (_, _, (sums, spread)) = up(below)
        noisy = above.noisy.copy()
        noisy[above.divided] -= above.noise / spread * sums
        moved[system.fixed] = replace(above, noisy=noisy)
    for k in range(system.fixed or 0, len(levels) - 1):
        above = levels[k]
        side, area = _divided(plan.tree, above, 1)
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
        self._levels, self._leaves, self._totals = levels, _Families.of(tree, levels), by_side
        self._families = self._changes = FamilyFit(levels)
        self.fixed: int | None = None
        if not nothing_dropped(levels) and not np.isinf(levels[-3].noise):
            self.fixed = len(levels) - 3
            top = replace(levels[self.fixed], offsets=np.zeros(1, dtype=np.int64), noise=0.0)
            self._changes = FamilyFit([top, *levels[-2:]])
        self._spread = np.concatenate([np.full(len(noisy), noise) for noisy, noise in by_side.values()])
        self._diagonal = self._spread + self._joined([self._leaves.diagonal(0), self._leaves.diagonal(1)])

    @cached_property
    def solution(self) -> Reals:
        """The multipliers m of the measurements, as one vector; see :meth:`by_side`."""
        noisy, offsets = self._levels[-1].noisy, self._levels[-1].offsets
        h = self._families.of(run_sums(noisy, offsets), lambda at: self._levels[at].noisy)
        return self.multipliers(noisy, h, {side: y for side, (y, _) in self._totals.items()})

    def multipliers(self, noisy: Reals, h: Reals, totals: Mapping[int, Reals]) -> Reals:
        """Return m of some measurements with these variances, as one vector.

        Args:
            noisy: Noisy values of the leaves; shape (leaves,).
            h: Estimates of the families by the tree; shape (families,).
            totals: Measured totals of each side; shape (zones,) each.
        """
        return self._solved(self._joined(totals) - self._totals_of(noisy, h))

    def lacking(self, m: Reals) -> Reals:
        """Return what C R' m adds to each family, minus what s2 R' m adds to its leaves; shape (families,)."""
        sums, _ = self._leaves.noise_of(self.by_side(m))
        return self._families.of(sums) - sums

    def improvement(self, weights: Reals) -> tuple[float, float]:
        """Return what the totals add to the tree's estimate of a weighted sum, and by how much its variance falls.

        ``weights`` are those of the leaves. The covariances of the totals and the sum are c = R C w, so the estimate
        changes by c' m, and the variance falls by c' (R C R' + S)^-1 c.
        """
        noisy = self._leaves.noise * weights
        c = self._totals_of(noisy, self._families.of(run_sums(noisy, self._levels[-1].offsets)))
        return _dot(c, self.solution), _dot(c, self._solved(c))

    def by_side(self, values: Reals) -> tuple[Reals, Reals]:
        """Return numbers of the measured totals by side; 0 for a side without measured totals."""
        zones = self._leaves.zones
        ends = np.cumsum([0, *(zones[side] for side in self._totals)])
        found = {side: values[first:last] for side, (first, last) in zip(self._totals, pairwise(ends), strict=True)}
        return found.get(0, np.zeros(zones[0])), found.get(1, np.zeros(zones[1]))

    def _joined(self, values: Sequence[Reals] | Mapping[int, Reals]) -> Reals:
        return np.concatenate([values[side] for side in self._totals])

    def _totals_of(self, noisy: Reals, h: Reals) -> Reals:
        """Return the fitted totals, given the noisy values of the leaves and the estimates of the families."""
        leaves, side = self._levels[-1], self._leaves.side
        zone = (leaves.nodes.origin, leaves.nodes.destination)[side]
        own = np.bincount(zone, noisy, minlength=self._leaves.zones[side]).astype(np.float64)
        return self._joined(self._leaves.begun_and_ended(h, run_sums(noisy, leaves.offsets), own))

    def _product(self, m: Reals) -> Reals:
        """Return (R C R' + S) m."""
        sums, own = self._leaves.noise_of(self.by_side(m))
        return self._joined(self._leaves.begun_and_ended(self._changes.of(sums), sums, own)) + self._spread * m

    def _solved(self, right: Reals) -> Reals:
        """Return the solution for a right side by conjugate gradients, with sums in a fixed order."""
        solution, left = np.zeros_like(right), right.copy()
        scaled = left / self._diagonal
        towards, size, enough = scaled, _dot(left, scaled), _RESIDUAL**2 * _dot(right, right)
        for _ in range(_ITERATIONS):
            if _dot(left, left) <= enough:
                break
            moved = self._product(towards)
            step = size / _dot(towards, moved)
            solution, left = solution + step * towards, left - step * moved
            scaled, before = left / self._diagonal, size
            size = _dot(left, scaled)
            towards = scaled + size / before * towards
        return solution


def _dot(a: Reals, b: Reals) -> float:
    return float(run_sums(a * b, np.array([0, len(a)]))[0])
