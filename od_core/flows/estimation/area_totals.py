"""Use measured area totals: fit the flow tree with them, and make whole numbers that agree with them.

Beside the tree, the trips that begin in each zone, and those that end there, may be measured once. These are the *area
totals*. A sum of hundreds of noisy flows has far more noise than one measurement. Moreover, whole numbers of at least 0
with given sums take trips from large areas and give them to small ones.

**Fit.** Let h be the estimates of the leaves by the tree's own least squares
(:mod:`od_core.flows.estimation.least_squares`), C their covariance, R the map from leaves to area totals, y the
measured totals and S the diagonal matrix of their variances. The estimates from all measurements are

    h' = h + C R' m,   (R C R' + S) m = y - R h.

C R' m is the fit of a tree whose noisy values are 0, except those of the leaves, which are s2 R' m, where s2 is their
variance. So h' is what the tree's own least squares estimate if s2 R' m is added to the noisy values of the leaves, and
every estimator uses area totals in this way (:func:`with_area_totals`). All leaves below a divided node have the same
variance, so R C R' m follows from the nodes above the leaves. Conjugate gradients [hestenes1952methods] solve the
system. R maps the leaves that were measured: the trips of dropped nodes are given to the other leaves of their zone.

**Whole numbers.** Every level divides the areas of one side, so it determines the totals of smaller areas. Let e be its
estimates, s2 the variance of its noise, and T the estimated totals of these areas, whose noise has the variance S. The
trips of the children sum to those c of their node, and are

    x = max(0, e + w a + b),   sum of x by node = c,   T - sum of x by area = b f S / s2,

with a number a for each node and b for each area, which are found in turn (:func:`towards_totals`), and a constant f
below 1. If w is 1 everywhere, x minimises sum (x - e)^2 / s2 + sum (T - sum of x by area)^2 / (f S). That takes from
large flows what the noise adds to those that are 0. So w falls with the size of the flow, as in the adaptive lasso
[zou2006adaptive]:

    w = w0 + (1 - w0) / (1 + max(e, 0)^2 / s2).

Estimates by a mixture have that property already, so their w is 1. Then x is rounded so that the children of a node
keep their sum. Small flows are gathered into lumps, since few pairs of zones have trips, and an area that lacks too
much after rounding gets more of the next lumps (:func:`gathered`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.families import family_blocks
from od_core.flows.estimation.least_squares import FamilyFit, MeasuredLevel
from od_core.flows.estimation.levels import Measurement, SideTotals, of_area_totals
from od_core.flows.plan import ReleasePlan
from od_core.flows.projection.onto_parents import shift_to_total
from od_core.geography.flow_tree import FlowTree, run_sums
from od_core.geography.geography import Numbers
from od_core.kernels import kernel
from od_core.parallel import in_order

_ITERATIONS = 300
"""Largest number of steps of conjugate gradients."""

_RESIDUAL = 1e-11
"""Part of the right side that may remain."""

_ROUNDS = 8
"""Number of times that the flows of areas are moved towards their totals."""

_SOFTNESS = 0.2
"""Part of the variance of a measured total by which it may be missed. Flows of at least 0 take trips from large areas,
which is an error beside the noise; with the whole variance, much of it remained."""

_LEAST_WEIGHT = 0.03
"""w0. Smaller numbers let a few flows take all that a node lacks."""

_CARRIED = 0.1
"""Part of what rounding has taken from an area that counts when the next trips are given. With more, small flows get
trips of others."""

_ALLOWED = 0.5
"""Standard deviations of the noise of a total that its area may lack before it gets more lumps than its flows fill."""

_ROUNDED_UP = 0.25
"""Part of a lump that the small flows of a node get as a whole one, if they fill no other."""

SMALL = 0.5
"""Flows below this part of the standard deviation of the leaves' noise are gathered into lumps of this size."""

_NEARLY = 1e-9
"""Distance from a whole number that is an error of arithmetic."""


@dataclass(frozen=True, eq=False)
class MeasuredTotals:
    """The estimated totals of the areas of one side at a level, without the trips of dropped nodes.

    Attributes:
        trips: T of each area; shape (areas,).
        noise: Variance of the noise of the sum of the measured totals of the zones of each area; shape (areas,).
    """

    trips: Reals
    noise: Reals


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
) -> tuple[list[MeasuredLevel], dict[int, MeasuredTotals]]:
    """Return levels whose least-squares fit is that of all measurements, and the estimated totals of areas.

    Args:
        levels: The levels of the flow tree, as :func:`od_core.flows.estimation.least_squares.measured_levels` returns.
        measured: The measurements of a release, of which those of area totals are used.

    Returns:
        The levels, of which only the last one differs; and the totals of the areas into which the children of a level
        divide others, by the position of the level. Without measured area totals, the levels as they are, and none.
    """
    by_side = of_area_totals(measured)
    if not by_side or not len(levels[-1].nodes):
        return list(levels), {}
    system = TotalsSystem(plan.tree, levels, by_side)
    leaves, m, found = levels[-1], system.by_side(system.solution), {}
    noisy = leaves.noisy + leaves.noise * (m[0][leaves.nodes.origin] + m[1][leaves.nodes.destination])
    for k, above in enumerate(levels[:-1]):
        side, area = _divided(plan.tree, above, 1)
        if side in by_side and area[-1] > 0:
            (y, noise), zones = by_side[side], np.bincount(area)
            trips = np.bincount(area, y - noise * m[side])
            found[k] = MeasuredTotals(trips.astype(np.float64), (noise * zones).astype(np.float64))
    return [*levels[:-1], replace(leaves, noisy=noisy)], found


class TotalsSystem:
    """The linear system of the multipliers m, R C R' + S, for the measured totals of one or both sides."""

    def __init__(self, tree: FlowTree, levels: Sequence[MeasuredLevel], by_side: SideTotals) -> None:
        self._levels, self._leaves, self._totals = levels, _Families.of(tree, levels), by_side
        self._families = FamilyFit(levels)
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
        return self._joined(self._leaves.begun_and_ended(self._families.of(sums), sums, own)) + self._spread * m

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


def whole_trips(
    estimate: Reals,
    noise: float,
    runs: Integers,
    totals: Integers,
    area: Numbers,
    of_areas: MeasuredTotals,
    least: float,
    *,
    even: bool = False,
) -> Integers:
    """Return whole trips of the children of all nodes of a level, which sum to those of the nodes; shape (children,).

    Args:
        estimate: e of each child, which x replaces; shape (children,).
        noise: Variance of the noise of the level.
        runs: The children of node ``p`` are ``runs[p]:runs[p + 1]``; shape (nodes + 1,).
        totals: Trips of each node; shape (nodes,).
        area: Number of the area of each child; shape (children,).
        of_areas: Estimated totals of the areas.
        least: Smallest number of trips that is rounded by itself; smaller ones are gathered.
        even: True if w is 1 for all children.
    """
    towards_totals(estimate, noise, runs, totals, area, of_areas, even=even)
    allowed = _ALLOWED * np.sqrt(of_areas.noise)
    trips: Integers = gathered(estimate, runs, totals, area, allowed, least, max(1, math.floor(least)))
    return trips


def towards_totals(
    estimate: Reals,
    noise: float,
    runs: Integers,
    totals: Integers,
    area: Numbers,
    of_areas: MeasuredTotals,
    *,
    even: bool = False,
) -> None:
    """Replace the estimates e by the real x of the module docstring; see :func:`whole_trips`."""
    move, shift = np.zeros(len(of_areas.trips)), np.full(len(totals), np.inf)
    scale = math.inf if even else math.sqrt(noise)

    def near(block: tuple[int, int], *, replaces: bool = False) -> Reals:
        (first, last), found = block, np.zeros((2, len(move)))
        families = runs[first : last + 1], totals[first:last]
        _near(estimate, *families, area, scale, move, shift[first:last], *found, replaces)
        return found

    softness = _SOFTNESS * of_areas.noise / noise
    for _ in range(_ROUNDS):
        sums, number = sum(in_order(near, family_blocks(runs)), start=np.zeros((2, len(move))))
        move += (of_areas.trips - sums - softness * move) / (np.maximum(number, 1) + softness)
    deque(in_order(partial(near, replaces=True), family_blocks(runs)), maxlen=0)


@kernel
def _near(estimate, runs, totals, area, scale, move, shift, sums, number, replaces):  # type: ignore[no-untyped-def]
    """Add, by area, the sum of x and the number of those above 0, given b of each area, called ``move``.

    ``scale`` is the standard deviation of the noise, or infinite if w is 1 for all. ``shift`` is a of each node, and is
    found from its last value. If asked, x replaces the estimates.
    """
    widest = np.max(np.diff(runs))
    moved, weight = np.empty(widest), np.empty(widest)
    for node in range(len(totals)):
        first, size = runs[node], runs[node + 1] - runs[node]
        for k in range(size):
            e = estimate[first + k]
            moved[k] = e + move[area[first + k]]
            weight[k] = _LEAST_WEIGHT + (1.0 - _LEAST_WEIGHT) / (1.0 + (max(e, 0.0) / scale) ** 2)
        if totals[node] > 0 and size > 0:
            shift[node] = shift_to_total(moved[:size], weight[:size], float(totals[node]), shift[node])
        for k in range(size):
            x = max(moved[k] + weight[k] * shift[node], 0.0) if totals[node] > 0 else 0.0
            if x > 0.0:
                sums[area[first + k]] += x
                number[area[first + k]] += 1.0
            if replaces:
                estimate[first + k] = x


@kernel
def give_in_turn(trips, cells, left, piece):  # type: ignore[no-untyped-def]  # compiled
    """Add the trips that are left to cells, in pieces, first to last, and in the same order again."""
    at = 0
    while left > 0:
        trips[cells[at % len(cells)]] += min(piece, left)
        left -= min(piece, left)
        at += 1


@kernel
def gathered(x, runs, totals, area, allowed, least, lump):  # type: ignore[no-untyped-def]  # compiled
    """Return whole numbers near ``x``, whose sums by node are ``totals``, and those by area nearly those of ``x``.

    Each x of at least ``least`` is rounded down. The others of a node get the lumps that they fill together, the
    largest first. If their area lacks more trips than are ``allowed`` after the nodes before, they may get another one.
    What remains is divided among the x of at least ``least``, or, without one, among the small ones. A part of what the
    area lacks counts in both orders.
    """
    trips, lacks = np.zeros(len(x), dtype=np.int64), np.zeros(len(allowed))
    widest = np.max(np.diff(runs))
    short, order = np.empty(widest), np.empty(widest, dtype=np.int64)
    for node in range(len(totals)):
        first, last, left = runs[node], runs[node + 1], totals[node]
        if left == 0 or first == last:
            continue
        small, large, of_small = 0, 0, 0.0
        for i in range(first, last):
            if x[i] >= least:
                trips[i] = np.int64(math.floor(x[i] + _NEARLY))
                left -= trips[i]
                large += 1
            elif x[i] > _NEARLY:
                of_small += x[i]
                small += 1
            short[i - first] = x[i] - trips[i] + _CARRIED * lacks[area[i]]
        at, behind = 0, small
        for k in np.argsort(-short[: last - first], kind="mergesort"):  # small ones first
            if x[first + k] >= least:
                order[behind] = first + k
                behind += 1
            elif x[first + k] > _NEARLY:
                order[at] = first + k
                at += 1
        given = left if large == 0 else min(max(left, 0), lump * np.int64(math.floor(of_small / lump + _ROUNDED_UP)))
        give_in_turn(trips, order[:small], given, lump)
        left -= given
        for i in order[:small]:
            if left >= lump and lacks[area[i]] > allowed[area[i]]:
                trips[i] += lump
                left -= lump
        give_in_turn(trips, order[small : small + large], left, -(-left // max(large, 1)))
        if left < 0:  # floating-point error of totals near the limit
            trips[first + np.argmax(trips[first:last])] += left
        for i in range(first, last):
            lacks[area[i]] += x[i] - trips[i]
    return trips
