"""The nearest consistent histograms in which every area has its number of groups (Fioretto et al., H2 of Model 1).

The totals of all areas couple all sizes, so the cost tables do not serve. The problem is a flow of convex cost: groups
flow from the leaf areas (G_r each) through their cells, and up the tree of each size. At scale it is solved over the
reals and apportioned: the answer keeps the promise and is near the optimum. On small trees it is then made exact by
integer programming: as long as changes of one unit a cell at the most make it better, the best of them are made. Where
none does, it is optimal, since the difference of two flows is a sum of cycles that change each cell by one unit, all of
one sign in each cell, and of costs that are convex those of all cycles together are at least their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from od_core.errors import OdError
from od_core.group_sizes.estimation.cost_tables import first_cut, nearest_histograms, refuse_too_large
from od_core.group_sizes.estimation.relaxation import Prices, Reals, reals, relaxed_prices
from od_core.group_sizes.groups import Counts, Frame
from od_core.kernels import kernel
from od_core.parallel import in_order

MOST_EXACT_CELLS = 10_000
"""Cells (areas of all levels times sizes) up to which the answer is optimal: HiGHS takes up to about a second."""

_LIMIT = 1 << 24
"""Bound of noisy values and totals for the solver: costs of a unit are whole in floating point, and its tolerance of
1e-7, over all cells, is below the whole number that a change can gain at the least."""


def nearest_with_area_totals(frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
    """Histograms of all levels that keep the total of every area: optimal on small trees, else near the optimum.

    Args:
        frame: the areas and their numbers of groups.
        noisy: of every level, top first; shape (areas, K + 1).

    Returns:
        Histograms of every level, top first; shape (areas, K + 1); whole numbers of at least 0 that add up.

    Raises:
        OdError: values beyond 2^40; the solver did not find an optimum of a small tree.
    """
    refuse_too_large(frame, noisy)
    near = apportioned(frame, noisy, relaxed_prices(frame, noisy))
    largest = max(int(frame.groups.sum()), *(int(max(values.max(), -values.min())) for values in noisy))
    if sum(values.size for values in noisy) <= MOST_EXACT_CELLS and largest < _LIMIT:
        from od_core.group_sizes.estimation.exact_totals import made_exact  # SciPy takes a second to import

        return made_exact(frame, noisy, near)
    return near


@dataclass(frozen=True)
class WithAreaTotals:
    """What both programs of Fioretto et al. have in common: the option, and what is promised with it.

    Attributes:
        area_totals: whether every area keeps its number of groups (optimal on small trees, near the optimum on large
            ones); without it only the top areas do, and the program is optimal, as published.
    """

    area_totals: bool = True

    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "area_totals", _truth_value(self.area_totals))

    @property
    def keeps_totals(self) -> bool:
        """Of every area, if it was asked for."""
        return self.area_totals

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {"area_totals": str(self.area_totals).lower()}

    def nearest(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """The histograms nearest to the noisy ones; raises OdError for values beyond 2^40."""
        if self.area_totals:
            return nearest_with_area_totals(frame, noisy)
        return nearest_histograms(frame, noisy, first_cut(scale))


def _truth_value(option: object) -> bool:
    """The option ``area_totals``, as it is given or as it is written down. Raises OdError for anything else."""
    values: dict[object, bool] = {True: True, False: False, "true": True, "false": False}
    if not isinstance(option, bool | str) or option not in values:
        raise OdError(
            "OD-MECHANISM-OPTION", "area_totals is true or false", next_step="correct the option of the mechanism"
        )
    return values[option]


# Whole numbers near the relaxation, from the top down: each area's histogram shared among its children.
#
# A parent's histogram is given, and so is the number of groups of each child: a table with given sums of its rows
# (children) and columns (sizes), whose cells should be near given real values y. Each cell begins at floor(y), or 0;
# what a column or row has too much is taken from the cells furthest above y; then units go to the cells furthest below
# y whose row and column still lack some. Since rows and columns lack the same in sum, some cell can always take a unit
# while any row lacks one: whatever y is, the sums are met.


_STEPS = 1024
"""Buckets a unit in which cells are sorted by their distance from y."""


def apportioned(frame: Frame, noisy: Sequence[Counts], prices: Prices) -> list[Counts]:
    """Histograms of all levels by their relaxation: whole, at least 0, with all totals, and they add up.

    Args:
        frame: the areas and their numbers of groups.
        noisy: what the prices were found for; of every level, top first, shape (areas, K + 1).
        prices: of the relaxation. They decide how near the answer is, not whether it keeps its promise.

    Returns:
        Histograms of every level, top first; shape (areas, K + 1).
    """
    everywhere = slice(0, len(noisy[0]))
    tops = reals(frame, noisy, prices, 0, everywhere)
    histograms = [np.array([largest_remainders(y, total) for y, total in zip(tops, frame.totals(1), strict=True)])]
    for k in range(1, len(noisy)):
        histograms.append(_shared_among_children(frame, noisy, prices, k, histograms[-1]))
    return histograms


def _shared_among_children(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int, above: Counts) -> Counts:
    """Histograms of level k + 1 by those of level k."""
    first_child, totals, below = frame.geography.first_child[k], frame.totals(k + 1), np.empty_like(noisy[k])

    def work(area: int) -> None:
        children = slice(int(first_child[area]), int(first_child[area + 1]))
        y = reals(frame, noisy, prices, k, children)
        _share(y, totals[children], above[area].copy(), below[children])

    for _ in in_order(work, range(len(above))):
        pass
    return below


def largest_remainders(y: Reals, total: int) -> Counts:
    """Whole numbers of at least 0 near y, of any sign, with the given sum of at least 0; shape of ``y``."""
    shared: Counts = np.maximum(np.floor(y), 0).astype(np.int64)
    while missing := total - int(shared.sum()):
        step = max(1, abs(missing) // len(y))  # more than 1 only where y is far from that sum
        if missing > 0:
            shared[np.argsort(shared - y, kind="stable")[: missing // step]] += step
        else:
            order = np.argsort(y - shared, kind="stable")
            order = order[shared[order] > 0][: -missing // step]
            shared[order] -= np.minimum(shared[order], step)
    return shared


@kernel
def _share(y, rows, columns, shared):  # type: ignore[no-untyped-def]  # compiled
    """Write whole numbers of at least 0 near y with the sums ``rows`` and ``columns`` (which is used up)."""
    children, sizes = y.shape
    rows = rows.copy()
    for child in range(children):
        for j in range(sizes):
            shared[child, j] = max(np.int64(np.floor(y[child, j])), 0)
            columns[j] -= shared[child, j]
    for j in range(sizes):
        while columns[j] < 0:
            farthest = -1
            for child in range(children):
                if shared[child, j] > 0 and (
                    farthest < 0 or y[child, j] - shared[child, j] < y[farthest, j] - shared[farthest, j]
                ):
                    farthest = child
            taken = min(shared[farthest, j], max(1, -columns[j] // children))  # 1, but where y is far from the sums
            shared[farthest, j] -= taken
            columns[j] += taken
    for child in range(children):
        rows[child] -= shared[child].sum()
        while rows[child] < 0:
            farthest = -1
            for j in range(sizes):
                if shared[child, j] > 0 and (
                    farthest < 0 or y[child, j] - shared[child, j] < y[child, farthest] - shared[child, farthest]
                ):
                    farthest = j
            taken = min(shared[child, farthest], max(1, -rows[child] // sizes))
            shared[child, farthest] -= taken
            columns[farthest] += taken
            rows[child] += taken
    _give(y, rows, columns, shared)


@kernel
def _give(y, rows, columns, shared):  # type: ignore[no-untyped-def]  # compiled
    """Give units to the cells furthest below y whose row and column still lack some, in rounds of one unit a cell.

    The distances are sorted by _STEPS buckets a unit, ties by position. What a round leaves, its own cells alone can
    take: from the third round on, all that they can.
    """
    children, sizes = y.shape
    buckets = 4 * _STEPS
    left = rows.sum()
    rounds = 0
    while left > 0:
        held = np.zeros(buckets + 1, dtype=np.int64)
        for child in range(children):
            if rows[child] > 0:
                for j in range(sizes):
                    if columns[j] > 0:
                        held[_bucket(y[child, j] - shared[child, j]) + 1] += 1
        starts = np.cumsum(held)
        cells = np.empty(starts[-1], dtype=np.int64)
        for child in range(children):
            if rows[child] > 0:
                for j in range(sizes):
                    if columns[j] > 0:
                        bucket = _bucket(y[child, j] - shared[child, j])
                        cells[starts[bucket]] = child * sizes + j
                        starts[bucket] += 1
        for cell in cells:
            child, j = cell // sizes, cell % sizes
            lacked = min(rows[child], columns[j])
            if lacked > 0:
                given = lacked if rounds > 1 else 1
                shared[child, j] += given
                rows[child] -= given
                columns[j] -= given
                left -= given
        rounds += 1


@kernel
def _bucket(distance):  # type: ignore[no-untyped-def]  # compiled
    """From 0, for cells a unit below y or more, to the last, for those 3 units above it or more."""
    return np.int64(min(max((1.0 - distance) * _STEPS, 0.0), 4.0 * _STEPS - 1.0))
