"""The nearest consistent histograms with every area's total, over the reals (Fioretto et al., Model 1; spec 4).

Minimise the sum over areas r and sizes j of (x_rj - noisy_rj)^2 subject to x >= 0, x_rj = sum of x_cj over the children
c of r, and sum_j x_rj = G_r. With half a price m_r for each total and t_rj for each sum of children the best values are

    x_rj = max(y_rj, 0),   y_rj = noisy_rj + m_r + t_pj - t_rj   (p the parent; t is 0 above the top and of leaves).

The dual is ascended exactly in one block of prices after the other: all m of a level (the threshold of a projection on
a simplex for each area), and all t of a level (for each area and size the t at which the children sum to the value
of the area; max(y, 0) is never needed there, since a sum of the children's values is not negative). Each is the zero
of a convex function that rises in one unknown, found by Newton's method. The prices m of inner levels are redundant,
since their totals are the sums of the leaves'; without them the mean of all sizes would converge slowly.
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
"""Sweeps over all prices at the most."""

_TOLERANCE = 0.02
"""Groups by which an area's sum may be off when the sweeps end."""

_NEWTON = 1e-4
"""The same, for a single price in a sweep."""

_CELLS = 1 << 21
"""Cells of the areas that one thread works on at a time."""


@dataclass(frozen=True, eq=False)
class Prices:
    """Half of what a group more or less is worth, by level, top first.

    Attributes:
        totals: m, of each area; shape (areas,).
        children: t, of each area and size, 0 for the leaf areas; shape (areas, K + 1), and (1, K + 1) for the leaves.
    """

    totals: list[Reals]
    children: list[Reals]


def relaxed_prices(frame: Frame, noisy: Sequence[Counts]) -> Prices:
    """Prices of the relaxation, by as many sweeps as it takes, at most MOST_SWEEPS. ``noisy`` as in its head."""
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
    """The values y of some areas of level k + 1 before they are held against 0; shape (areas, K + 1)."""
    y = noisy[k][areas] + prices.totals[k][areas, None]
    if k > 0:
        y += prices.children[k - 1][frame.geography.parents[k + 1][areas]]
    if k + 1 < len(noisy):
        y -= prices.children[k][areas]
    return np.asarray(y, dtype=np.float64)


def _meet_totals(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int) -> float:
    """Each area's m at which its values sum to its total; the most that a sum was off before."""
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
    """The t of every area of level k, and each size, at which its children sum to its value."""
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
    """Ranges of areas with about as many cells as one thread works on at a time."""
    step = max(1, _CELLS // cells)
    return (slice(first, min(first + step, areas)) for first in range(0, areas, step))


@kernel
def _thresholds(noisy, above, parents, own, leaves, totals, prices):  # type: ignore[no-untyped-def]  # compiled
    """Set each area's price so that sum_j max(z_j + m, 0) = G; the most that a sum was off before."""
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
    """Set the prices t of one area, a size at a time: sum_c max(z_c + t, 0) + t = own."""
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
