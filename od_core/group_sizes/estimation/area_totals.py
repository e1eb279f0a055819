"""Estimate histograms that are consistent and in which every area has its number of groups.

Here, histograms are consistent if every area's histogram is the sum of its children's. That every area r has its number
of groups G_r is constraint H2 of [fioretto2019hierarchical, Model 1]. The constraint connects the histograms' entries
for different sizes, so the cost tables of :mod:`od_core.group_sizes.estimation.cost_tables`, which solve each size on
its own, cannot be used. The problem is a flow with convex costs: G_r groups flow from each leaf area through its cells
(the entries of its histogram) and up the tree of each size. The problem is first solved over the reals
(:mod:`od_core.group_sizes.estimation.relaxation`), and the solution is then rounded to integers. The result has the
number of groups of every area and is near the optimum.

On small trees, integer programming then makes the result exact (:func:`made_exact`). It repeatedly applies the best
change of at most one unit (group) per cell, until no change reduces the cost. The result is then optimal. The reason is
that the difference of two flows is a sum of cycles, where each cycle changes a cell by at most one unit, and all cycles
change a given cell in the same direction. Since the costs are convex, the cost change of all cycles together is at
least the sum of the cost changes of the single cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import scipy  # its solvers take a second to import, and load at their first use

from od_core.errors import OdError
from od_core.group_sizes.estimation.cost_tables import first_cut, nearest_histograms, refuse_too_large
from od_core.group_sizes.estimation.relaxation import Prices, Reals, reals, relaxed_prices
from od_core.group_sizes.groups import Counts, Frame
from od_core.kernels import kernel
from od_core.parallel import in_order


def made_exact(frame: Frame, noisy: Sequence[Counts], histograms: list[Counts]) -> list[Counts]:
    """Return the nearest histograms in which children sum to their parent and every area has its number of groups.

    The best change of at most one group per entry is applied repeatedly, until no change reduces the sum of squared
    distances. The module docstring proves that the result is optimal.

    Args:
        frame: the areas and their numbers of groups.
        noisy: noisy histograms of every level, top first; shape (areas, K + 1) each.
        histograms: histograms that meet these constraints, from which to start; same shapes.

    Returns:
        Histograms of every level, top first; integers of at least 0, shape (areas, K + 1) each.

    Raises:
        OdError: the solver finds no optimum, or its optimum breaks a constraint when it is rounded to integers.
    """
    flat, target = _flat(histograms), _flat(noisy)
    conditions = _conditions(frame)
    while True:
        more, less = 2 * (flat - target) + 1, 2 * (target - flat) + 1  # costs of adding and removing a unit
        result = scipy.optimize.milp(
            np.concatenate([more, less]).astype(np.float64),
            integrality=np.ones(2 * len(flat)),
            bounds=scipy.optimize.Bounds(0, np.concatenate([np.ones(len(flat)), flat > 0])),
            constraints=scipy.optimize.LinearConstraint(conditions, 0, 0),
            options={"mip_rel_gap": 0.0},
        )
        if not result.success:
            raise OdError(
                "OD-SOLVER-FAILED",
                f"the solver found no optimum: {result.message}",
                next_step="report this",
                spent="draws already made stay charged",
            )
        taken = np.rint(result.x).astype(np.int64)
        change = taken[: len(flat)] - taken[len(flat) :]
        if int(more @ taken[: len(flat)] + less @ taken[len(flat) :]) >= 0:
            ends = np.cumsum([values.size for values in noisy])[:-1]
            return [part.reshape(values.shape) for part, values in zip(np.split(flat, ends), noisy, strict=True)]
        if np.any(conditions @ taken) or np.any(flat + change < 0):
            raise OdError(
                "OD-SOLVER-INEXACT",
                "the solver's optimum is not valid in whole numbers",
                next_step="report this",
                spent="draws already made stay charged",
            )
        flat = flat + change


def _conditions(frame: Frame) -> scipy.sparse.csc_array:
    """Return the constraint matrix of changes, which are vectors of the units added to, then removed from each cell.

    The product of the matrix and a change is 0 if and only if, after the change, children still sum to their parents
    and leaf areas keep their numbers of groups.
    """
    sizes = frame.top_code + 1
    blocks = []
    for level in frame.levels[:-1]:
        parents = frame.geography.parents[level + 1]
        sums = scipy.sparse.csr_array(
            (np.ones(len(parents)), (parents, np.arange(len(parents)))),
            shape=(frame.geography.size(level), len(parents)),
        )
        row = [None] * len(frame.levels)
        row[level - 1] = scipy.sparse.eye_array(frame.geography.size(level) * sizes)
        row[level] = -scipy.sparse.kron(sums, scipy.sparse.eye_array(sizes))
        blocks.append(row)
    leaves = len(frame.groups)
    last = [None] * len(frame.levels)
    last[-1] = scipy.sparse.kron(scipy.sparse.eye_array(leaves), np.ones((1, sizes)))
    more = scipy.sparse.block_array([*blocks, last], format="csc")
    return scipy.sparse.hstack([more, -more], format="csc")


def _flat(levels: Sequence[Counts]) -> Counts:
    return np.concatenate([values.ravel() for values in levels])


MOST_EXACT_CELLS = 10_000
"""Largest number of cells (areas of all levels times sizes) for which the problem is solved exactly. At this size, the
solver HiGHS takes about a second."""

_LIMIT = 1 << 24
"""Exclusive bound on noisy values and totals for the exact solver. Below it, the cost of a unit is exact in floating
point. The solver's tolerance of 1e-7, added over all cells, is smaller than 1, the least possible gain of a change."""


def nearest_with_area_totals(frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
    """Return histograms in which children sum to their parent and every area has its public number of groups.

    On small trees, the result is nearest to the noisy histograms; on large trees, almost nearest.

    Args:
        frame: the areas and their numbers of groups.
        noisy: noisy histograms of every level, top first; shape (areas, K + 1) each.

    Returns:
        Histograms of every level, top first; integers of at least 0, shape (areas, K + 1) each.

    Raises:
        OdError: a value is 2^40 or more, or the solver fails on a small tree.
    """
    refuse_too_large(frame, noisy)
    near = apportioned(frame, noisy, relaxed_prices(frame, noisy))
    largest = max(int(frame.groups.sum()), *(int(max(values.max(), -values.min())) for values in noisy))
    if sum(values.size for values in noisy) <= MOST_EXACT_CELLS and largest < _LIMIT:
        return made_exact(frame, noisy, near)
    return near


@dataclass(frozen=True)
class WithAreaTotals:
    """The base of the two mechanisms with integer programs of [fioretto2019hierarchical], with their one option.

    Attributes:
        area_totals: if true, every area has its number of groups in the result. The result is then optimal on small
            trees and near the optimum on large trees. If false, only the top areas have their numbers of groups, as in
            the published algorithms, and the result is optimal.
    """

    area_totals: bool = True

    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "area_totals", _truth_value(self.area_totals))

    @property
    def keeps_totals(self) -> bool:
        """True if every area has its number of groups in the result."""
        return self.area_totals

    @property
    def options(self) -> dict[str, str]:
        """Options of the mechanism by name, as public text."""
        return {"area_totals": str(self.area_totals).lower()}

    def nearest(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return histograms of all levels with a small total absolute difference from the noisy histograms.

        The histogram of each area is the sum of the histograms of its children. If ``area_totals`` is true, each
        histogram also sums to the public number of groups of its area.

        Args:
            frame: the areas and their numbers of groups.
            noisy: noisy histograms of every level, top first; shape (areas, K + 1) each.
            scale: scale of the noise. It is used only if ``area_totals`` is false, and then affects only the running
                time and the choice among equally near results.

        Raises:
            OdError: a value is 2^40 or more, or the exact solver fails.
        """
        if self.area_totals:
            return nearest_with_area_totals(frame, noisy)
        return nearest_histograms(frame, noisy, first_cut(scale))


def _truth_value(option: object) -> bool:
    """Convert the option ``area_totals`` from a bool or its text to a bool. Raises OdError for any other value."""
    values: dict[object, bool] = {True: True, False: False, "true": True, "false": False}
    if not isinstance(option, bool | str) or option not in values:
        raise OdError(
            "OD-MECHANISM-OPTION", "area_totals must be true or false", next_step="correct the option of the mechanism"
        )
    return values[option]


# Rounding of the real solution to integers, from the top down: each area's histogram is divided among its children.


_STEPS = 1024
"""Number of buckets per group when :func:`_give` sorts cells by their distance from the real solution y."""


def apportioned(frame: Frame, noisy: Sequence[Counts], prices: Prices) -> list[Counts]:
    """Round the solution over the reals to integer histograms with the number of groups of every area.

    Args:
        frame: the areas and their numbers of groups.
        noisy: noisy histograms of every level, top first; shape (areas, K + 1) each.
        prices: the Lagrange multipliers that :func:`relaxed_prices` returns for these noisy histograms. With other
            prices, the result is further from the noisy histograms, but still meets all constraints.

    Returns:
        Histograms of every level, top first; integers of at least 0, shape (areas, K + 1) each. Every histogram is the
        sum of the children's.
    """
    everywhere = slice(0, len(noisy[0]))
    tops = reals(frame, noisy, prices, 0, everywhere)
    histograms = [np.array([largest_remainders(y, total) for y, total in zip(tops, frame.totals(1), strict=True)])]
    for k in range(1, len(noisy)):
        histograms.append(_shared_among_children(frame, noisy, prices, k, histograms[-1]))
    return histograms


def _shared_among_children(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int, above: Counts) -> Counts:
    """Divide ``above``, the histograms of level k, among the children, and return the histograms of level k + 1."""
    first_child, totals, below = frame.geography.first_child[k], frame.totals(k + 1), np.empty_like(noisy[k])

    def work(area: int) -> None:
        children = slice(int(first_child[area]), int(first_child[area + 1]))
        y = reals(frame, noisy, prices, k, children)
        _share(y, totals[children], above[area].copy(), below[children])

    for _ in in_order(work, range(len(above))):
        pass
    return below


def largest_remainders(y: Reals, total: int) -> Counts:
    """Round real numbers y to integers of at least 0, in the shape of y, that sum to ``total``, which is at least 0."""
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
    """Write integers of at least 0 near y into ``shared``, with the row sums ``rows`` and the column sums ``columns``.

    A row is a child, and a column is a size. ``columns`` is overwritten. Each cell starts at floor(y), or at 0 if that
    is negative. If a column or row sum is too large, units are removed from the cells that exceed y most. Then units
    are added to the cells that are furthest below y, among those whose row and column sums are both too small. Rows and
    columns lack the same number of units in total, so while a row lacks a unit, some column lacks one too. The sums are
    therefore met for every y.
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
    """Add units to ``shared`` until no unit is missing. ``rows`` and ``columns`` have the missing units of each sum.

    Each round visits the cells whose row and column both lack units, those furthest below y first. The first two rounds
    add at most one unit per cell. From the third round on, a cell gets as many units as its row and column both lack,
    so that few rounds are needed. Cells are sorted by their distance from y, in ``_STEPS`` buckets per unit. Cells of
    one bucket are visited in order of position.
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
    """Return the bucket of a cell by its distance, y minus the cell: 0 for 1 or more, the last for -3 or less."""
    return np.int64(min(max((1.0 - distance) * _STEPS, 0.0), 4.0 * _STEPS - 1.0))
