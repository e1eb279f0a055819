"""Find the nearest consistent histograms in which every area has its public number of groups.

This is constraint H2 of [fioretto2019hierarchical, Model 1]. The totals of all areas couple all sizes, so the cost
tables cannot be used. The problem is a flow with convex costs: G_r groups flow from each leaf area through its cells
and up the tree of each size. The problem is first solved over the reals and then apportioned to integers. The result
keeps all totals and is near the optimum.

On small trees, integer programming then makes the result exact. It repeatedly applies the best change of at most one
unit per cell while such a change reduces the cost. When no such change is left, the result is optimal: the difference
of two flows is a sum of cycles, each cycle changes a cell by at most one unit, and all cycles change a given cell in
the same direction. Since the costs are convex, the cost change of all cycles together is at least the sum of the cost
changes of the single cycles.
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
"""Largest number of cells (areas of all levels times sizes) that is solved exactly; HiGHS takes about a second."""

_LIMIT = 1 << 24
"""Bound on noisy values and totals for the exact solver. Below it, unit costs are exact in floating point, and the
solver's tolerance of 1e-7, over all cells, is smaller than 1, the least possible gain of a change."""


def nearest_with_area_totals(frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
    """Find the histograms of all levels that keep the total of every area.

    They are optimal on small trees, and near the optimum on others.

    Args:
        frame: the areas and their numbers of groups.
        noisy: noisy histograms of every level, top first; shape (areas, K + 1).

    Returns:
        Histograms of every level, top first; shape (areas, K + 1); integers of at least 0 that add up.

    Raises:
        OdError: Values are beyond 2^40, or the solver finds no optimum of a small tree.
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
    """The option ``area_totals`` of both integer programs of [fioretto2019hierarchical], and what it guarantees.

    Attributes:
        area_totals: if true, every area keeps its number of groups; the result is optimal on small trees and near the
            optimum on large ones. If false, only the top areas keep theirs, as in the published algorithms, and the
            result is optimal.
    """

    area_totals: bool = True

    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "area_totals", _truth_value(self.area_totals))

    @property
    def keeps_totals(self) -> bool:
        """True if every area keeps its number of groups."""
        return self.area_totals

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {"area_totals": str(self.area_totals).lower()}

    def nearest(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Find the histograms nearest to the noisy ones. Raises OdError for values beyond 2^40."""
        if self.area_totals:
            return nearest_with_area_totals(frame, noisy)
        return nearest_histograms(frame, noisy, first_cut(scale))


def _truth_value(option: object) -> bool:
    """Return the option ``area_totals`` from a truth value or its text. Raises OdError for anything else."""
    values: dict[object, bool] = {True: True, False: False, "true": True, "false": False}
    if not isinstance(option, bool | str) or option not in values:
        raise OdError(
            "OD-MECHANISM-OPTION", "area_totals must be true or false", next_step="correct the option of the mechanism"
        )
    return values[option]


# Rounding of the relaxation, from the top down: each area's histogram is shared among its children.


_STEPS = 1024
"""Number of buckets per unit when cells are sorted by their distance from y."""


def apportioned(frame: Frame, noisy: Sequence[Counts], prices: Prices) -> list[Counts]:
    """Round the relaxation to integers of at least 0 that add up and have the total of every area.

    Args:
        frame: the areas and their numbers of groups.
        noisy: noisy histograms that the prices belong to, of every level, top first; shape (areas, K + 1).
        prices: prices of the relaxation. They affect how near the result is, not whether it meets the constraints.

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
    """Compute the histograms of level k + 1 from those of level k, ``above``."""
    first_child, totals, below = frame.geography.first_child[k], frame.totals(k + 1), np.empty_like(noisy[k])

    def work(area: int) -> None:
        children = slice(int(first_child[area]), int(first_child[area + 1]))
        y = reals(frame, noisy, prices, k, children)
        _share(y, totals[children], above[area].copy(), below[children])

    for _ in in_order(work, range(len(above))):
        pass
    return below


def largest_remainders(y: Reals, total: int) -> Counts:
    """Return integers of at least 0 near y that have the given sum; y may have any sign, the sum is at least 0."""
    shared: Counts = np.maximum(np.floor(y), 0).astype(np.int64)
    while missing := total - int(shared.sum()):
        step = max(1, abs(missing) // len(y))  # more than 1 only if y is far from the sum
        if missing > 0:
            shared[np.argsort(shared - y, kind="stable")[: missing // step]] += step
        else:
            order = np.argsort(y - shared, kind="stable")
            order = order[shared[order] > 0][: -missing // step]
            shared[order] -= np.minimum(shared[order], step)
    return shared


@kernel
def _share(y, rows, columns, shared):  # type: ignore[no-untyped-def]  # compiled
    """Write integers of at least 0 near y with the sums ``rows`` (children) and ``columns`` (sizes).

    ``columns`` is overwritten. Each cell starts at floor(y), or 0. Columns and rows that have too much give up units
    from the cells furthest above y. Then units go to the cells furthest below y whose row and column still lack some.
    Rows and columns lack the same sum, so some cell can take a unit while any row lacks one. The sums are therefore met
    for every y.
    """
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
            taken = min(shared[farthest, j], max(1, -columns[j] // children))  # 1, unless y is far from the sums
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
    """Give units to the cells furthest below y whose row and column still lack some.

    The first two rounds give at most one unit to a cell. Only the cells of a round can take what the round leaves, so
    from the third round on a cell takes as much as its row and column lack. Distances are sorted into _STEPS buckets
    per unit, with ties in order of position.
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
    """Return the bucket of a cell: 0 if it is at least one unit below y, the last if it is at least 3 units above."""
    return np.int64(min(max((1.0 - distance) * _STEPS, 0.0), 4.0 * _STEPS - 1.0))
