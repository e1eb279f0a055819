"""Make whole numbers of the flows of a level that agree with measured area totals.

Every level divides the areas of one side, or of both, so it determines the totals of smaller areas. Let e be its
estimates, s2 the variance of its noise, and T the estimated totals of these areas, whose noise has the variance S. The
trips of the children sum to those c of their node, and are

    x = max(0, e + w a + b),   sum of x by node = c,   T - sum of x by area = b f S / s2,

with a number a for each node and b for each area, which are found in turn (:func:`shift_towards_totals`), and a
constant f below 1. If both sides are divided, a child has an area of each, and b is the sum of theirs. If w is 1
everywhere, x minimises sum (x - e)^2 / s2 + sum (T - sum of x by area)^2 / (f S). That takes from large flows what the
noise adds to those that are 0. So w falls with the size of the flow, as in the adaptive lasso [zou2006adaptive]:

    w = w0 + (1 - w0) / (1 + max(e, 0)^2 / s2).

Estimates by a mixture have that property already, so their w is 1. Then x is rounded so that the children of a node
keep their sum. Small flows are gathered into lumps, since few pairs of zones have trips, and an area that lacks too
much after rounding gets more of the next lumps (:func:`round_to_totals`).

Totals that are known exactly have S = 0. After rounding, trips move from areas with too many of them to others below
the same node, between flows that share their area of the other side (:func:`hold_exact_totals`). So nodes keep their
sums, and so do the areas of the other side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.flows.projection.onto_parents import shift_to_total
from od_core.geography.flow_tree import iterate_family_blocks
from od_core.geography.geography import Numbers
from od_core.kernels import kernel
from od_core.parallel import map_in_order, process_all

_ROUNDS = 8
"""Number of times that the flows of areas of a side are moved towards their totals."""

_SOFTNESS = 0.2
"""Part of the variance of a measured total by which it may be missed. Flows of at least 0 take trips from large areas,
which is an error beside the noise; with the whole variance, much of it remained."""

_MIN_WEIGHT = 0.03
"""w0. Smaller numbers let a few flows take all that a node lacks."""

_CARRIED_PART = 0.1
"""Part of what rounding has taken from an area that counts when the next trips are given. With more, small flows get
trips of others."""

_ALLOWED_DEVIATIONS = 0.5
"""Standard deviations of the noise of a total that its area may lack before it gets more lumps than its flows fill."""

_ROUNDED_UP_PART = 0.25
"""Part that the last lump of the small flows of a node may lack, if w is 1. Small flows of a mixture are likely trips;
those of other estimates are mostly noise, and get only the lumps that they fill."""

SMALL_FLOW_DEVIATIONS = 0.5
"""Flows below this part of the standard deviation of the leaves' noise are gathered into lumps of this size."""

_MAX_DISTANCE_POWER = 12
"""Trips by which a flow may come to lie further from its estimate than another, as a power of 2, before any may."""

_ROUNDING_TOLERANCE = 1e-9
"""Distance from a whole number that is an error of arithmetic."""


Areas = tuple[Numbers, ...]
"""The number of the area of each child on each side that has totals; shape (children,) each."""


@dataclass(frozen=True, eq=False)
class EstimatedTotals:
    """The estimated totals of the areas into which a level divides others, without the trips of dropped nodes.

    Attributes:
        sides: The sides that have them: 0 for origins, 1 for destinations.
        sizes: Number of areas of each of these sides. The areas of all sides are numbered one after the other.
        trips: T of each area; shape (areas,).
        noise: Variance of the noise of the sum of the measured totals of the zones of each area; shape (areas,).
    """

    sides: tuple[int, ...]
    sizes: tuple[int, ...]
    trips: Reals
    noise: Reals

    @classmethod
    def from_sides(cls, given: Sequence[tuple[int, Reals, Reals]]) -> EstimatedTotals:
        """Return the totals of areas, given T and its variances of each side; shape (areas of the side,) each."""
        sides, trips, noise = zip(*given, strict=True)
        return cls(sides, tuple(map(len, trips)), np.concatenate(trips), np.concatenate(noise))

    def list_exact_sides(self) -> list[tuple[int, Integers]]:
        """Return each side whose totals have no noise, with T of its areas; shape (areas of the side,)."""
        ends = pairwise(accumulate(self.sizes, initial=0))
        found = [(side, slice(*end)) for side, end in zip(self.sides, ends, strict=True)]
        return [(side, np.rint(self.trips[own]).astype(np.int64)) for side, own in found if not self.noise[own].any()]

    def number_areas(self, areas: Mapping[int, Numbers]) -> Areas:
        """Return the numbers of the areas of each child on each side that has totals, among the areas of all sides.

        ``areas`` has those among the areas of the side, by side; shape (children,) each.
        """
        *first, _ = accumulate(self.sizes, initial=0)
        return tuple(
            areas[side] + before if before else areas[side] for side, before in zip(self.sides, first, strict=True)
        )


def project_to_area_totals(
    estimate: Reals,
    noise: float,
    runs: Integers,
    totals: Integers,
    areas: Areas,
    of_areas: EstimatedTotals,
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
        areas: See :data:`Areas`.
        of_areas: Estimated totals of the areas.
        least: Smallest number of trips that is rounded by itself; smaller ones are gathered.
        even: True if w is 1 for all children.
    """
    shift_towards_totals(estimate, noise, runs, totals, areas, of_areas, even=even)
    allowed = _ALLOWED_DEVIATIONS * np.sqrt(of_areas.noise)
    rounded_up = _ROUNDED_UP_PART if even else 0.0
    return round_to_totals(estimate, runs, totals, areas, allowed, least, max(1, math.floor(least)), rounded_up)


def shift_towards_totals(
    estimate: Reals,
    noise: float,
    runs: Integers,
    totals: Integers,
    areas: Areas,
    of_areas: EstimatedTotals,
    *,
    even: bool = False,
) -> None:
    """Replace the estimates e by the real x of the module docstring; see :func:`project_to_area_totals`."""
    move, shift = np.zeros(len(of_areas.trips)), np.full(len(totals), np.inf)
    scale = math.inf if even else math.sqrt(noise)

    def sum_shifted_block(block: tuple[int, int], *, replaces: bool = False) -> Reals:
        (first, last), found = block, np.zeros((2, len(move)))
        families = runs[first : last + 1], totals[first:last]
        _sum_shifted_estimates(estimate, *families, areas, scale, move, shift[first:last], found[0], found[1], replaces)
        return found

    softness, ends = _SOFTNESS * of_areas.noise / noise, list(accumulate(of_areas.sizes, initial=0))
    for first, last in list(pairwise(ends)) * _ROUNDS:
        sums, number = sum(map_in_order(sum_shifted_block, iterate_family_blocks(runs)), start=np.zeros((2, len(move))))
        moved = (of_areas.trips - sums - softness * move) / (np.maximum(number, 1) + softness)
        move[first:last] += moved[first:last]
    process_all(partial(sum_shifted_block, replaces=True), iterate_family_blocks(runs))


@kernel
def _sum_of_areas(values: Reals, areas: Areas, child: int) -> float:
    """Return the sum of values over the areas of a child, one on each side."""
    total = 0.0
    for area in areas:
        total += values[area[child]]
    return total


@kernel
def _sum_shifted_estimates(estimate, runs, totals, areas, scale, move, shift, sums, number, replaces):  # type: ignore[no-untyped-def]
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
            moved[k] = e + _sum_of_areas(move, areas, first + k)
            weight[k] = _MIN_WEIGHT + (1.0 - _MIN_WEIGHT) / (1.0 + (max(e, 0.0) / scale) ** 2)
        if totals[node] > 0 and size > 0:
            shift[node] = shift_to_total(moved[:size], weight[:size], float(totals[node]), shift[node])
        for k in range(size):
            x = max(moved[k] + weight[k] * shift[node], 0.0) if totals[node] > 0 else 0.0
            if x > 0.0:
                for area in areas:
                    sums[area[first + k]] += x
                    number[area[first + k]] += 1.0
            if replaces:
                estimate[first + k] = x


@kernel
def give_in_turn(trips: Integers, cells: Integers, left: int, piece: int) -> None:
    """Add the trips that are left to cells, in pieces, first to last, and in the same order again."""
    at = 0
    while left > 0:
        trips[cells[at % len(cells)]] += min(piece, left)
        left -= min(piece, left)
        at += 1


@kernel
def _order_small_then_large(order: Integers, x: Reals, first: int, short: Reals, least: float) -> tuple[int, int]:
    """Write the positions of a node's flows into ``order``: those below ``least``, then the others.

    Return both numbers. Each group is sorted by what a flow is ``short`` of, most first. The flows begin at the
    position ``first`` of ``x``. Those that are 0 have no place in the order.
    """
    small, large = 0, 0
    shortest_first = np.argsort(-short, kind="mergesort")
    for k in shortest_first:
        if _ROUNDING_TOLERANCE < x[first + k] < least:
            order[small] = first + k
            small += 1
    for k in shortest_first:
        if x[first + k] >= least:
            order[small + large] = first + k
            large += 1
    return small, large


@kernel
def round_to_totals(
    x: Reals,
    runs: Integers,
    totals: Integers,
    areas: Areas,
    allowed: Reals,
    least: float,
    lump: int,
    rounded_up: float,
) -> Integers:
    """Return whole numbers near ``x``, whose sums by node are ``totals``, and those by area nearly those of ``x``.

    Node by node, each x of at least ``least`` is rounded down. The small ones get the lumps that they fill together, of
    which the last one may lack the part ``rounded_up``. Those whose area lacks more trips than are ``allowed`` then get
    another lump, and the x of at least ``least`` get the rest. If there is no such x, the small ones get all.

    What an area lacks is the sum of its x minus that of its trips at the nodes before. Flows are served in the order of
    what they are short of, to which a part of what their area lacks is added. So what rounding takes stays small. Of
    two sides, what an area lacks, and may lack, is the sum of both.
    """
    trips, lacks = np.zeros(len(x), dtype=np.int64), np.zeros(len(allowed))
    widest = np.max(np.diff(runs))
    short, order = np.empty(widest), np.empty(widest, dtype=np.int64)
    for node in range(len(totals)):
        first, last, left = runs[node], runs[node + 1], totals[node]
        if left == 0 or first == last:
            continue
        rounded, of_small = _round_down(x, first, last, least, trips)
        left -= rounded
        for i in range(first, last):
            short[i - first] = x[i] - trips[i] + _CARRIED_PART * _sum_of_areas(lacks, areas, i)
        number_small, number_large = _order_small_then_large(order, x, first, short[: last - first], least)
        small, large = order[:number_small], order[number_small : number_small + number_large]
        filled = lump * np.int64(math.floor(of_small / lump + rounded_up))
        given = min(max(left, 0), filled) if number_large > 0 else left
        give_in_turn(trips, small, given, lump)
        left -= given
        for i in small:
            if left >= lump and _sum_of_areas(lacks, areas, i) > _sum_of_areas(allowed, areas, i):
                trips[i] += lump
                left -= lump
        give_in_turn(trips, large, left, -(-left // max(number_large, 1)))
        if left < 0:  # floating-point error of totals near the limit
            trips[first + np.argmax(trips[first:last])] += left
        for i in range(first, last):
            for area in areas:
                lacks[area[i]] += x[i] - trips[i]
    return trips


@kernel
def _round_down(x: Reals, first: int, last: int, least: float, trips: Integers) -> tuple[int, float]:
    """Round each x of a node of at least ``least`` down; return the sum of these trips, and that of the smaller x."""
    rounded, of_small = 0, 0.0
    for i in range(first, last):
        if x[i] >= least:
            trips[i] = np.int64(math.floor(x[i] + _ROUNDING_TOLERANCE))
            rounded += trips[i]
        elif x[i] > _ROUNDING_TOLERANCE:
            of_small += x[i]
    return rounded, of_small


def hold_exact_totals(
    trips: Integers, estimate: Reals, runs: Integers, areas: Mapping[int, Numbers], of_areas: EstimatedTotals
) -> None:
    """Move trips between the children of each node until those of every area sum to its total, if that is exact.

    The children of each node of an undivided side, or all pairs of its areas, must be there. If the trips of all nodes
    sum to the exact totals of the areas that they divide, all of these are met.

    Args:
        trips: Trips of each child, which are changed; shape (children,).
        estimate: The estimates to which they stay near; shape (children,).
        runs: As in :func:`project_to_area_totals`.
        areas: Area of each child on each side that the level divides, by side; shape (children,) each.
        of_areas: Estimated totals of the areas.
    """
    for side, totals in of_areas.list_exact_sides():
        order, groups = np.arange(len(trips)), runs
        for other in (own for number, own in areas.items() if number != side):
            node = np.repeat(np.arange(len(runs) - 1), np.diff(runs))
            order = np.lexsort((other, node))
            is_first = (np.diff(node[order], prepend=-1) != 0) | (np.diff(other[order], prepend=-1) != 0)
            groups = np.append(np.flatnonzero(is_first), len(trips))
        surplus = np.bincount(areas[side], trips, len(totals)).astype(np.int64) - totals
        for power in range(_MAX_DISTANCE_POWER + 1):
            if surplus.any():
                _move_surplus(
                    trips, estimate, order, groups, areas[side], surplus, 2.0**power, power == _MAX_DISTANCE_POWER
                )


@kernel
def _move_surplus(trips, estimate, order, groups, area, surplus, most, is_last):  # type: ignore[no-untyped-def]
    """Move trips within each group of children, from areas with a surplus to those that lack trips.

    Before the last pass, a flow gets trips only if it has some, and as long as it does not come to lie more than
    ``most`` trips further above its estimate than the other flow.
    """
    for group in range(len(groups) - 1):
        for place in range(groups[group], groups[group + 1]):
            giver = order[place]
            if surplus[area[giver]] <= 0 or trips[giver] == 0:
                continue
            for other_place in range(groups[group], groups[group + 1]):
                taker = order[other_place]
                moved = min(trips[giver], surplus[area[giver]], -surplus[area[taker]])
                if not is_last:
                    further = (trips[taker] - estimate[taker]) - (trips[giver] - estimate[giver])
                    allowed = np.int64(math.floor((most - further) / 2)) if trips[taker] > 0 else 0
                    moved = min(moved, allowed)
                if moved > 0:
                    trips[giver] -= moved
                    trips[taker] += moved
                    surplus[area[giver]] -= moved
                    surplus[area[taker]] += moved
