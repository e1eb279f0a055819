"""Find the nearest real histograms in which children sum to their parent and every area has its number of groups.

Minimise the sum of (x_rj - noisy_rj)^2 over areas r and sizes j, subject to x >= 0, x_rj = sum of x_cj over the
children c of r, and sum_j x_rj = G_r, the number of groups of r. The price of a constraint is its Lagrange multiplier.
Let m_r be half the price of the total G_r, and t_rj half the price of the sum of children x_rj. The optimal values are

    x_rj = max(y_rj, 0),   y_rj = noisy_rj + m_r + t_pj - t_rj,

where p is the parent of r, and t is 0 above the top and at the leaves.

The dual problem is maximised exactly over one block of prices after the other. A block is all m of a level, or all t of
a level. Each m is the threshold of a projection onto a simplex. Each t is the value at which the children sum to the
value of the area; max(y, 0) is not needed for the area, because the children's values sum to at least 0. Each price is
the root of an increasing convex function of one unknown, and is found by Newton's method. The prices m of inner levels
are redundant, because the totals of inner levels are sums over the leaves. Without them, however, the mean over all
sizes would converge slowly.

References:
    [fioretto2019hierarchical, Model 1]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.group_sizes.groups import Counts, Frame
from od_core.kernels import kernel
from od_core.parallel import in_order

Reals = NDArray[np.float64]

MOST_SWEEPS = 40
"""Largest number of sweeps over all prices."""

_TOLERANCE = 0.02
"""Largest deviation, in groups, of an area's sum from its number of groups at which the sweeps end."""

_NEWTON = 1e-4
"""Largest deviation, in groups, of a constrained sum at which Newton's method for its price ends."""

_CELLS = 1 << 21
"""Number of cells that one thread works on at a time."""


@dataclass(frozen=True, eq=False)
class Prices:
    """Half the Lagrange multipliers (prices) of the constraints, in one array per level, top first.

    Attributes:
        totals: m, for the number of groups of each area; shape (areas,).
        children: t, for the sum of the children of each area and size; shape (areas, K + 1). The array of the leaf
            level has zeros and the shape (1, K + 1).
    """

    totals: list[Reals]
    children: list[Reals]


def relaxed_prices(frame: Frame, noisy: Sequence[Counts]) -> Prices:
    """Return nearly optimal prices, the Lagrange multipliers of all constraints, after at most ``MOST_SWEEPS`` sweeps.

    Args:
        frame: the areas and their numbers of groups.
        noisy: noisy histograms of every level, top first; shape (areas, K + 1) each.
    """
    sizes = frame.top_code + 1
    rows = [frame.geography.size(level) for level in frame.levels]
    prices = Prices([np.zeros(areas) for areas in rows], [np.zeros((areas, sizes)) for areas in (*rows[:-1], 1)])
    for _ in range(MOST_SWEEPS):
        off = 0.0
        for k in reversed(range(len(rows))):
            off = max(off, _meet_totals(frame, noisy, prices, k))
            if k > 0:
                _meet_children(frame, noisy, prices, k)
        if off < _TOLERANCE:
            break
    return prices


def reals(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int, areas: slice) -> Reals:
    """Return the real numbers y of some areas of level k + 1, with the solution max(y, 0); shape (areas, K + 1).

    ``noisy`` has the noisy histograms of every level, top first, and ``prices`` the result of :func:`relaxed_prices`.
    """
    y = noisy[k][areas] + prices.totals[k][areas, None]
    if k > 0:
        y += prices.children[k - 1][frame.geography.parents[k + 1][areas]]
    if k + 1 < len(noisy):
        y -= prices.children[k][areas]
    return np.asarray(y, dtype=np.float64)


def _meet_totals(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int) -> float:
    """Set m, half the Lagrange multiplier of an area's number of groups, for level k + 1, so that areas have this sum.

    Returns:
        The largest deviation of an area's sum from its number of groups before this step.
    """
    parents = frame.geography.parents[k + 1]
    above = prices.children[k - 1] if k > 0 else np.zeros((1, frame.top_code + 1))
    totals, leaves = frame.totals(k + 1), k + 1 == len(noisy)

    def work(areas: slice) -> float:
        off: float = _thresholds(
            noisy[k][areas],
            above,
            parents[areas],
            prices.children[k] if leaves else prices.children[k][areas],
            leaves,
            totals[areas],
            prices.totals[k][areas],
        )
        return off

    return max(in_order(work, _pieces(len(parents), frame.top_code + 1)), default=0.0)


def _meet_children(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int) -> None:
    """Set t, half the Lagrange multiplier of a sum of children, for level k, so that the children sum to the area."""
    first_child = frame.geography.first_child[k]
    leaves = k + 1 == len(noisy)
    above = prices.children[k - 2] if k > 1 else np.zeros((1, frame.top_code + 1))
    parents = frame.geography.parents[k]

    def work(areas: slice) -> None:
        for area in range(areas.start, areas.stop):
            own = noisy[k - 1][area] + prices.totals[k - 1][area] + above[parents[area]]
            below = slice(first_child[area], first_child[area + 1])
            _balance(
                own,
                noisy[k][below],
                prices.totals[k][below],
                prices.children[k] if leaves else prices.children[k][below],
                leaves,
                prices.children[k - 1][area],
            )

    children = -(-len(noisy[k]) // len(noisy[k - 1]))
    for _ in in_order(work, _pieces(len(noisy[k - 1]), children * (frame.top_code + 1))):
        pass


def _pieces(areas: int, cells: int) -> Iterator[slice]:
    """Yield consecutive ranges of areas with at most about ``_CELLS`` cells each.

    Args:
        areas: number of areas.
        cells: number of cells per area.
    """
    step = max(1, _CELLS // cells)
    return (slice(first, min(first + step, areas)) for first in range(0, areas, step))


@kernel
def _thresholds(noisy, above, parents, own, leaves, totals, prices):  # type: ignore[no-untyped-def]  # compiled
    """Write m (see :class:`Prices`) of each area into ``prices``, so that sum_j max(z_j + m, 0) = G.

    z_j is the y of :func:`reals` for size j without m, and G the area's entry of ``totals``. Returns the largest
    deviation of the sum from G before this step.
    """
    sizes, most_off = noisy.shape[1], 0.0
    z = np.empty(sizes)
    for area in range(len(noisy)):
        highest = -np.inf
        for j in range(np.uint64(sizes)):
            z[j] = noisy[area, j] + above[parents[area], j] - (0.0 if leaves else own[area, j])
            highest = max(highest, z[j])
        m, goal = prices[area], np.float64(totals[area])
        if goal == 0:
            prices[area] = -highest
            continue
        for step in range(60):
            over, active = -goal, 0
            for j in range(np.uint64(sizes)):
                value = z[j] + m
                over += max(value, 0.0)
                active += value > 0
            if step == 0:
                most_off = max(most_off, abs(over))
            if abs(over) < _NEWTON:
                break
            m = m - over / active if active else goal - highest
        prices[area] = m
    return most_off


@kernel
def _balance(own, noisy, totals, below, leaves, prices):  # type: ignore[no-untyped-def]  # compiled
    """Write t (see :class:`Prices`) of one area into ``prices``, so that sum_c max(z_c + t, 0) + t = own for each size.

    The sum is over the children c of the area. z_c is the y of :func:`reals` of a child without t, and ``own`` - t is
    the y of the area.
    """
    children, sizes, block = noisy.shape[0], noisy.shape[1], 512
    over, active = np.empty(block), np.empty(block)
    for first in range(0, sizes, block):
        width = min(block, sizes - first)
        for _ in range(60):
            for i in range(np.uint64(width)):
                over[i] = prices[first + i] - own[first + i]
                active[i] = 1.0
            for child in range(children):
                m = totals[child]
                if leaves:
                    for i in range(np.uint64(width)):
                        value = noisy[child, first + i] + m + prices[first + i]
                        over[i] += max(value, 0.0)
                        active[i] += 1.0 if value > 0 else 0.0
                else:
                    for i in range(np.uint64(width)):
                        value = noisy[child, first + i] + m + prices[first + i] - below[child, first + i]
                        over[i] += max(value, 0.0)
                        active[i] += 1.0 if value > 0 else 0.0
            farthest = 0.0
            for i in range(np.uint64(width)):
                prices[first + i] -= over[i] / active[i]
                farthest = max(farthest, abs(over[i]))
            if farthest < _NEWTON:
                break
