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
"""Number of times that the flows of the areas of each side are moved towards their totals."""

_SOFTNESS = 0.2
"""f, the part of the variance of a measured total that counts as its error. Flows of at least 0 take trips from large
areas, which is an error beside the noise; with f = 1, much of it remained."""

_MIN_WEIGHT = 0.03
"""w0. Smaller numbers let a few flows take all that a node lacks."""

_CARRIED_PART = 0.1
"""Part of the trips that an area lacks after rounding, which is added to what its next flows lack. With a larger part,
small flows would get the trips of others."""

_ALLOWED_DEVIATIONS = 0.5
"""Trips that an area may lack, in standard deviations of its total, before its flows get another lump."""

_ROUNDED_UP_PART = 0.25
"""Part that the last lump of the small flows of a node may lack, if w is 1. Small flows of a mixture are likely trips;
those of other estimates are mostly noise, and get only the lumps that they fill."""

SMALL_FLOW_DEVIATIONS = 0.5
"""Size of lumps in standard deviations of the leaves' noise. Smaller flows are gathered into lumps."""

_MAX_DISTANCE_POWER = 12
"""Last pass of the moves that hold exact totals. Pass p may bring a flow 2^p trips further above its estimate than the
flow that gives the trips; the last pass has no limit."""

_ROUNDING_TOLERANCE = 1e-9
"""Largest distance of a flow from a whole number that is an error of floating-point arithmetic."""


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
        """Return the totals of areas, given the number, T and variances of each side; shape (areas of the side,)."""
        sides, trips, noise = zip(*given, strict=True)
        return cls(sides, tuple(map(len, trips)), np.concatenate(trips), np.concatenate(noise))

    def list_exact_sides(self) -> list[tuple[int, Integers]]:
        """Return each side whose totals have no noise, with T of its areas, whole trips; shape (areas of the side,)."""
        exact_sides = []
        for side, (first, end) in zip(self.sides, pairwise(accumulate(self.sizes, initial=0)), strict=True):
            if not self.noise[first:end].any():
                exact_sides.append((side, np.rint(self.trips[first:end]).astype(np.int64)))
        return exact_sides

    def number_areas(self, areas: Mapping[int, Numbers]) -> Areas:
        """Return the number of each child's area on each side that has totals, counted through all sides.

        ``areas`` has the area numbers within each side, by side; shape (children,) each.
        """
        *areas_before, _ = accumulate(self.sizes, initial=0)
        return tuple(
            areas[side] + before if before else areas[side]  # a side without others before it needs no copy
            for side, before in zip(self.sides, areas_before, strict=True)
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

    The letters are those of the module docstring.

    Args:
        estimate: e of each child, which is overwritten with x; shape (children,).
        noise: Variance of the noise of the level.
        runs: The children of node ``p`` are ``runs[p]:runs[p + 1]``; shape (nodes + 1,).
        totals: Trips of each node; shape (nodes,).
        areas: See :data:`Areas`.
        of_areas: Estimated totals of the areas.
        least: Smallest number of trips that is rounded by itself; smaller ones are gathered into lumps of this size.
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
    """Overwrite the estimates e with the real x of the module docstring; see :func:`project_to_area_totals`.

    The b of the areas of one side are adjusted at a time, ``_ROUNDS`` times each, with the a that fit the nodes.
    """
    area_shift = np.zeros(len(of_areas.trips))  # b of each area
    node_shift = np.full(len(totals), np.inf)  # a of each node; infinite before it is first computed
    scale = math.inf if even else math.sqrt(noise)

    def sum_shifted_block(block: tuple[int, int], *, replaces: bool = False) -> Reals:
        """Return the sums of x by area over the children of some nodes, and the numbers of x above 0; (2, areas)."""
        (first, last), found = block, np.zeros((2, len(area_shift)))
        nodes = runs[first : last + 1], totals[first:last]
        shifts = area_shift, node_shift[first:last]
        _sum_shifted_estimates(estimate, *nodes, areas, scale, *shifts, found[0], found[1], replaces)
        return found

    softness = _SOFTNESS * of_areas.noise / noise  # f S / s2
    sides = list(pairwise(accumulate(of_areas.sizes, initial=0)))
    for first, last in sides * _ROUNDS:
        of_blocks = map_in_order(sum_shifted_block, iterate_family_blocks(runs))
        sums, number = sum(of_blocks, start=np.zeros((2, len(area_shift))))
        # A step towards T - sum of x = b f S / s2, as if each x above 0 grew as much as b.
        change = (of_areas.trips - sums - softness * area_shift) / (np.maximum(number, 1) + softness)
        area_shift[first:last] += change[first:last]
    process_all(partial(sum_shifted_block, replaces=True), iterate_family_blocks(runs))


@kernel
def _sum_of_areas(values: Reals, areas: Areas, child: int) -> float:
    """Return the sum of values over the areas of a child, one on each side."""
    total = 0.0
    for area in areas:
        total += values[area[child]]
    return total


@kernel
def _sum_shifted_estimates(estimate, runs, totals, areas, scale, area_shift, node_shift, sums, number, replaces):  # type: ignore[no-untyped-def]
    """Add x to ``sums`` by area, and 1 to ``number`` for each x above 0, given b of each area, ``area_shift``.

    ``scale`` is the standard deviation of the noise, or infinite if w is 1 for all. ``node_shift`` is a of each node;
    it is computed again from its last value. If ``replaces``, x overwrites the estimates.
    """
    widest = np.max(np.diff(runs))
    moved, weight = np.empty(widest), np.empty(widest)
    for node in range(len(totals)):
        first, size = runs[node], runs[node + 1] - runs[node]
        for k in range(size):
            e = estimate[first + k]
            moved[k] = e + _sum_of_areas(area_shift, areas, first + k)
            weight[k] = _MIN_WEIGHT + (1.0 - _MIN_WEIGHT) / (1.0 + (max(e, 0.0) / scale) ** 2)
        if totals[node] > 0 and size > 0:
            node_shift[node] = shift_to_total(moved[:size], weight[:size], float(totals[node]), node_shift[node])
        for k in range(size):
            x = max(moved[k] + weight[k] * node_shift[node], 0.0) if totals[node] > 0 else 0.0
            if x > 0.0:
                for area in areas:
                    sums[area[first + k]] += x
                    number[area[first + k]] += 1.0
            if replaces:
                estimate[first + k] = x


@kernel
def give_in_turn(trips: Integers, cells: Integers, left: int, piece: int) -> None:
    """Add ``left`` trips to the given cells, ``piece`` trips to one after the other, until none are left.

    After the last cell, the first one is next. ``cells`` are positions in ``trips``. The last piece may be smaller.
    """
    turn = 0
    while left > 0:
        trips[cells[turn % len(cells)]] += min(piece, left)
        left -= min(piece, left)
        turn += 1


@kernel
def _order_small_then_large(order: Integers, x: Reals, first: int, short: Reals, least: float) -> tuple[int, int]:
    """Write the positions of a node's flows into ``order``, and return the numbers of small and of large ones.

    The small ones, below ``least``, are first, and then the large ones. In both groups, the flows that lack the most
    trips, by ``short``, are first. The node's flows begin at the position ``first`` of ``x``. Flows of 0 are left out.
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
    """Return whole numbers near ``x`` that sum to ``totals`` by node, and by area nearly to the sums of ``x``.

    Each node is processed in turn:

    1. Large x, of at least ``least``, are rounded down.
    2. Small x get as many lumps as they fill together; the last lump may lack the part ``rounded_up``. If there are no
       large x, the small ones get all trips of the node.
    3. Each small x whose area lacks more trips than ``allowed`` gets another lump while there are trips left.
    4. Large x get the trips that are left, in parts as equal as possible.

    What an area lacks is the sum of its x minus the sum of its trips, over the nodes before. Trips are given first to
    the x that lack the most, by their own rounding and by ``_CARRIED_PART`` of what their area lacks. So the errors of
    areas stay small. If both sides have totals, what areas lack, and may lack, is added over both.

    Args:
        x: real trips of each child; shape (children,).
        runs, totals, areas: as in :func:`project_to_area_totals`.
        allowed: trips that each area may lack; shape (areas,).
        least: smallest x that is large.
        lump: trips of a lump, at least 1.
        rounded_up: largest part of the last lump that the small x need not fill.
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
        for i in range(first, last):  # what each x lacks, which decides the order
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
        part = -(-left // max(number_large, 1))  # rounded up
        give_in_turn(trips, large, left, part)
        if left < 0:  # floating-point error of totals near the limit
            trips[first + np.argmax(trips[first:last])] += left
        for i in range(first, last):
            for area in areas:
                lacks[area[i]] += x[i] - trips[i]
    return trips


@kernel
def _round_down(x: Reals, first: int, last: int, least: float, trips: Integers) -> tuple[int, float]:
    """Write each large x of a node, rounded down, into ``trips``; return their sum, and the sum of the small x.

    Large x are at least ``least``. The node's children are ``first:last``.
    """
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
    """Move trips between the children of each node until the trips of every area with an exact total sum to it.

    Nodes keep their sums. Every node must have all of its children, for each pair of the areas that the level divides.
    If the trips of the nodes sum to the exact totals of the areas above, all exact totals are then met.

    Args:
        trips: Trips of each child, which are changed in place; shape (children,).
        estimate: The estimates that they are kept near to; shape (children,).
        runs: As in :func:`project_to_area_totals`.
        areas: Area of each child on each side that the level divides, by side; shape (children,) each.
        of_areas: Estimated totals of the areas.
    """
    for side, totals in of_areas.list_exact_sides():
        others = [area for number, area in areas.items() if number != side]
        order, groups = _group_children(runs, others[0] if others else None)
        surplus = np.bincount(areas[side], trips, len(totals)).astype(np.int64) - totals
        for power in range(_MAX_DISTANCE_POWER + 1):
            if surplus.any():
                is_last = power == _MAX_DISTANCE_POWER
                _move_surplus(trips, estimate, order, groups, areas[side], surplus, 2.0**power, is_last)


def _group_children(runs: Integers, area: Numbers | None) -> tuple[Integers, Integers]:
    """Return the positions of the children in groups between whose members trips may move, and the groups' offsets.

    A group is the children of a node or, if both sides are divided, those of a node with the same ``area`` of the other
    side; None if that is undivided. The children of group ``g`` are ``[offsets[g]:offsets[g + 1]]`` of the positions.
    """
    children = int(runs[-1])
    if area is None:
        return np.arange(children), runs
    node = np.repeat(np.arange(len(runs) - 1), np.diff(runs))
    order = np.lexsort((area, node))
    is_first = (np.diff(node[order], prepend=-1) != 0) | (np.diff(area[order], prepend=-1) != 0)
    return order, np.append(np.flatnonzero(is_first), children)


@kernel
def _move_surplus(trips, estimate, order, groups, area, surplus, largest_gap, is_last):  # type: ignore[no-untyped-def]
    """Move trips within each group of children, from areas with a surplus to areas with a negative one.

    Before the last pass, a flow gets trips only if it has some, and only until it lies ``largest_gap`` trips further
    above its estimate than the flow that gives them. ``order`` and ``groups`` are those of :func:`_group_children`.
    """
    for group in range(len(groups) - 1):
        for giver_index in range(groups[group], groups[group + 1]):
            giver = order[giver_index]
            if surplus[area[giver]] <= 0 or trips[giver] == 0:
                continue
            for taker_index in range(groups[group], groups[group + 1]):
                taker = order[taker_index]
                moved = min(trips[giver], surplus[area[giver]], -surplus[area[taker]])
                if not is_last:
                    further = (trips[taker] - estimate[taker]) - (trips[giver] - estimate[giver])
                    allowed = np.int64(math.floor((largest_gap - further) / 2)) if trips[taker] > 0 else 0
                    moved = min(moved, allowed)
                if moved > 0:
                    trips[giver] -= moved
                    trips[taker] += moved
                    surplus[area[giver]] -= moved
                    surplus[area[taker]] += moved
