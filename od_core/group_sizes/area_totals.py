"""Estimate histograms that are consistent and in which every area has its number of groups.

Here, histograms are consistent if every area's histogram is the sum of its children's. That every area r has its number
of groups G_r is constraint H2 of [fioretto2019hierarchical, Model 1]. The constraint connects the entries for different
sizes, so :mod:`od_core.group_sizes.top_totals`, which solves each size on its own, cannot be used. The problem is a
flow with convex costs: G_r groups flow from each leaf area through its cells (the entries of its histogram) and up the
tree of each size. It is first solved over the reals (:func:`compute_relaxed_prices`), and the solution is then rounded
to integers, which have the number of groups of every area and are near the optimum.

On small trees, integer programming then makes the result exact (:func:`find_nearest_histograms`). It repeatedly applies
the best change of at most one unit (group) per cell, until no change reduces the cost. The result is then optimal. The
reason is that the difference of two flows is a sum of cycles, where each cycle changes a cell by at most one unit, and
all cycles change a given cell in the same direction. Since the costs are convex, the cost change of all cycles together
is at least the sum of the cost changes of the single cycles.

Over the reals, the sum of (x_rj - noisy_rj)^2 over areas r and sizes j is minimised, subject to x >= 0, x_rj = sum of
x_cj over the children c of r, and sum_j x_rj = G_r. Let m_r be half the price (Lagrange multiplier) of the total G_r,
and t_rj half the price of the sum of children x_rj. The optimal values are

    x_rj = max(y_rj, 0),   y_rj = noisy_rj + m_r + t_pj - t_rj,

where p is the parent of r, and t is 0 above the top and at the leaves.

The dual problem is maximised exactly over one block of prices after the other: all m of a level, or all t of a level.
Each m is the threshold of a projection onto a simplex. Each t is the value at which the children sum to the value of
the area; max(y, 0) is not needed for the area, because the children's values sum to at least 0. Each price is the root
of an increasing convex function of one unknown, and is found by Newton's method. The prices m of inner levels are
redundant, as inner totals are sums over the leaves. But without them, the mean over all sizes would converge slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy  # its solvers take a second to import, and load at their first use
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.top_totals import refuse_too_large
from od_core.kernels import kernel
from od_core.parallel import map_in_order, process_all

Reals = NDArray[np.float64]

MAX_SWEEPS = 40
"""Largest number of sweeps over all prices."""

_TOLERANCE = 0.02
"""Largest deviation, in groups, of an area's sum from its number of groups at which the sweeps end."""

_NEWTON_TOLERANCE = 1e-4
"""Largest deviation, in groups, of a constrained sum at which Newton's method for its price ends."""

_MAX_NEWTON_STEPS = 60
"""Largest number of steps of Newton's method for a price, which is then taken as it is."""

_PIECE_CELLS = 1 << 18
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


def compute_relaxed_prices(frame: Frame, noisy: Sequence[Counts]) -> Prices:
    """Return nearly optimal prices, the Lagrange multipliers of all constraints, after at most ``MAX_SWEEPS`` sweeps.

    A sweep updates the prices of one level after the other, from the leaves up. In the code, k is the position of
    level k + 1 in lists by level. The arguments are those of :func:`fit_histograms_to_totals`.
    """
    sizes = frame.top_code + 1
    rows = [frame.geography.size(level) for level in frame.levels]
    prices = Prices([np.zeros(areas) for areas in rows], [np.zeros((areas, sizes)) for areas in (*rows[:-1], 1)])
    for _ in range(MAX_SWEEPS):
        deviation = 0.0
        for k in reversed(range(len(rows))):
            deviation = max(deviation, _update_total_prices(frame, noisy, prices, k))
            if k > 0:
                _update_child_prices(frame, noisy, prices, k)
        if deviation < _TOLERANCE:
            break
    return prices


def compute_real_solution(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int, areas: slice) -> Reals:
    """Return the real numbers y of some areas of level k + 1; shape (areas, K + 1). The solution is max(y, 0).

    See the module for y. ``noisy`` has the noisy histograms of every level, top first, and ``prices`` is the result of
    :func:`compute_relaxed_prices`.
    """
    y = noisy[k][areas] + prices.totals[k][areas, None]
    if k > 0:
        y += prices.children[k - 1][frame.geography.parents[k + 1][areas]]
    if k + 1 < len(noisy):
        y -= prices.children[k][areas]
    return np.asarray(y, dtype=np.float64)


def _update_total_prices(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int) -> float:
    """Update m (see :class:`Prices`) of level k + 1, and return the largest deviation, in groups, that it had before.

    The deviation of an area is that of the sum of its solution from its number of groups.
    """
    parents = frame.geography.parents[k + 1]
    t_above = prices.children[k - 1] if k > 0 else np.zeros((1, frame.top_code + 1))
    totals, leaves = frame.count_groups(k + 1), k + 1 == len(noisy)

    def update_prices(areas: slice) -> Any:
        """Update m of a range of areas, and return the largest deviation of their sums."""
        t_of_areas = prices.children[k] if leaves else prices.children[k][areas]
        return compute_total_prices(
            noisy[k][areas], t_above, parents[areas], t_of_areas, leaves, totals[areas], prices.totals[k][areas]
        )

    return max(map_in_order(update_prices, iterate_row_ranges(len(parents), frame.top_code + 1)), default=0.0)


def _update_child_prices(frame: Frame, noisy: Sequence[Counts], prices: Prices, k: int) -> None:
    """Update t (see :class:`Prices`) of the areas of level k, in ``prices.children[k - 1]``.

    Their children, whose noisy values are ``noisy[k]``, are the areas of level k + 1.
    """
    first_child = frame.geography.first_child[k]
    leaves = k + 1 == len(noisy)
    t_above = prices.children[k - 2] if k > 1 else np.zeros((1, frame.top_code + 1))
    parents = frame.geography.parents[k]

    def update_prices(areas: slice) -> None:
        """Update t of a range of areas of level k."""
        for area in range(areas.start, areas.stop):
            own = noisy[k - 1][area] + prices.totals[k - 1][area] + t_above[parents[area]]  # y without t of the area
            children = slice(first_child[area], first_child[area + 1])
            t_of_children = prices.children[k] if leaves else prices.children[k][children]
            _compute_child_prices(
                own,
                noisy[k][children],
                prices.totals[k][children],
                t_of_children,
                leaves,
                prices.children[k - 1][area],
            )

    mean_children = -(-len(noisy[k]) // len(noisy[k - 1]))  # rounded up
    process_all(update_prices, iterate_row_ranges(len(noisy[k - 1]), mean_children * (frame.top_code + 1)))


def iterate_row_ranges(areas: int, cells: int) -> Iterator[slice]:
    """Yield consecutive ranges of ``areas`` areas of ``cells`` cells each, with at most ``_PIECE_CELLS`` cells a range.

    If a single area has more cells, each range is one area.
    """
    step = max(1, _PIECE_CELLS // cells)
    return (slice(first, min(first + step, areas)) for first in range(0, areas, step))


@kernel
def compute_total_prices(noisy, t_above, parents, t_of_areas, leaves, totals, prices):  # type: ignore[no-untyped-def]  # compiled
    """Write m (see :class:`Prices`) of each area into ``prices``, so that sum_j max(z_j + m, 0) = G.

    z_j is the y of :func:`compute_real_solution` for size j without m, and G the area's entry of ``totals``. The rows
    of ``t_above`` are t of the areas of the level above, and ``parents`` the row of each area's parent. ``t_of_areas``
    has t of the areas themselves, and is not read if they are ``leaves``. Returns the largest deviation of the sum from
    G before this step.
    """
    sizes, largest_deviation = noisy.shape[1], 0.0
    z = np.empty(sizes)
    for area in range(len(noisy)):
        highest = -np.inf
        for j in range(np.uint64(sizes)):  # without a sign, so that the loop is compiled to vector instructions
            z[j] = noisy[area, j] + t_above[parents[area], j] - (0.0 if leaves else t_of_areas[area, j])
            highest = max(highest, z[j])
        m, goal = prices[area], np.float64(totals[area])
        if goal == 0:
            prices[area] = -highest  # the largest price at which all values are 0
            continue
        for step in range(_MAX_NEWTON_STEPS):
            excess, active = -goal, 0
            for j in range(np.uint64(sizes)):
                value = z[j] + m
                excess += max(value, 0.0)
                active += value > 0
            if step == 0:
                largest_deviation = max(largest_deviation, abs(excess))
            if abs(excess) < _NEWTON_TOLERANCE:
                break
            if active:
                m -= excess / active
            else:  # the sum is 0; start where the largest value alone is G
                m = goal - highest
        prices[area] = m
    return largest_deviation


@kernel
def _compute_child_prices(
    own: Reals, noisy: Counts, totals: Reals, t_of_children: Reals, leaves: bool, prices: Reals
) -> None:
    """Write t (see :class:`Prices`) of one area into ``prices``, so that sum_c max(z_c + t, 0) + t = own for each size.

    The sum is over the children c. z_c is the y of :func:`compute_real_solution` for c without t, and ``own`` - t is
    the y of the area. ``noisy`` has the noisy values of the children, ``totals`` their m, and ``t_of_children`` their
    t, which is one row of zeros if the children are ``leaves``.
    """
    children, sizes = noisy.shape
    block = 512  # sizes are solved in blocks whose arrays stay in the processor's cache
    excess, active = np.empty(block), np.empty(block)
    for first in range(0, sizes, block):
        width = min(block, sizes - first)
        for _ in range(_MAX_NEWTON_STEPS):
            for i in range(np.uint64(width)):
                excess[i] = prices[first + i] - own[first + i]
                active[i] = 1.0
            for child in range(children):
                m, t_of_child = totals[child], t_of_children[0 if leaves else child]
                for i in range(np.uint64(width)):
                    value = noisy[child, first + i] + m + prices[first + i] - t_of_child[first + i]
                    excess[i] += max(value, 0.0)
                    active[i] += 1.0 if value > 0 else 0.0
            farthest = 0.0
            for i in range(np.uint64(width)):
                prices[first + i] -= excess[i] / active[i]
                farthest = max(farthest, abs(excess[i]))
            if farthest < _NEWTON_TOLERANCE:
                break


def find_nearest_histograms(frame: Frame, noisy: Sequence[Counts], histograms: list[Counts]) -> list[Counts]:
    """Return the nearest histograms that meet the constraints. Each step makes the best change of at most one per cell.

    The steps start from ``histograms``, which meet the constraints. For the other arguments and the result, see
    :func:`fit_histograms_to_totals`. For the proof, see the module. Raises OdError if the solver finds no optimum, or
    one that breaks a constraint when it is rounded to integers.
    """
    flat = np.concatenate([values.ravel() for values in histograms])
    target = np.concatenate([values.ravel() for values in noisy])
    conditions = _make_condition_matrix(frame)
    while True:
        cost_of_adding, cost_of_removing = 2 * (flat - target) + 1, 2 * (target - flat) + 1  # for one unit
        result = scipy.optimize.milp(
            np.concatenate([cost_of_adding, cost_of_removing]).astype(np.float64),
            integrality=np.ones(2 * len(flat)),
            bounds=scipy.optimize.Bounds(0, np.concatenate([np.ones(len(flat)), flat > 0])),
            constraints=scipy.optimize.LinearConstraint(conditions, 0, 0),
            options={"mip_rel_gap": 0.0},
        )
        units = round_optimum(result)
        added, removed = units[: len(flat)], units[len(flat) :]
        change = added - removed
        if int(cost_of_adding @ added + cost_of_removing @ removed) >= 0:
            ends = np.cumsum([values.size for values in noisy])[:-1]
            return [part.reshape(values.shape) for part, values in zip(np.split(flat, ends), noisy, strict=True)]
        if np.any(conditions @ units) or np.any(flat + change < 0):
            raise _make_solver_error("OD-SOLVER-INEXACT", "the solver's optimum is not valid in whole numbers")
        flat = flat + change


def _make_condition_matrix(frame: Frame) -> scipy.sparse.csc_array:
    """Return the matrix whose product with a valid change is 0; shape (conditions, 2 * cells).

    A change is a vector of the units added to each cell, then of those removed from each cell. After a valid change,
    children still sum to their parents, and leaf areas keep their numbers of groups.
    """
    sizes, leaves = frame.top_code + 1, len(frame.groups)
    first_areas = np.cumsum([0, *map(frame.geography.size, frame.levels)])  # numbered level by level, top first
    inner, areas = first_areas[-2], first_areas[-1]  # numbers of areas with children, and of all areas
    parents = [first_areas[level - 1] + frame.geography.parents[level + 1] for level in frame.levels[:-1]]
    parents.insert(0, np.empty(0, dtype=np.int64))  # if there is one level
    children = np.arange(first_areas[1], areas)
    sums = scipy.sparse.csr_array((np.ones(len(children)), (np.concatenate(parents), children)), shape=(inner, areas))
    add_up = scipy.sparse.kron(scipy.sparse.eye_array(inner, areas) - sums, scipy.sparse.eye_array(sizes))
    totals = scipy.sparse.kron(scipy.sparse.eye_array(leaves, areas, k=inner), np.ones((1, sizes)))
    conditions = scipy.sparse.vstack([add_up, totals], format="csc")
    return scipy.sparse.hstack([conditions, -conditions], format="csc")


def round_optimum(result: Any) -> Counts:
    """Return the unknowns in a result of ``scipy.optimize.milp`` as integers. Raises OdError if there is no optimum."""
    if not result.success:
        raise _make_solver_error("OD-SOLVER-FAILED", f"the solver found no optimum: {result.message}")
    units: Counts = np.rint(result.x).astype(np.int64)
    return units


def _make_solver_error(code: str, message: str) -> OdError:
    """Return the OdError for a solver that failed, or whose result cannot be used."""
    return OdError(code, message, next_step="report this", spent="draws already made stay charged")


MAX_EXACT_CELLS = 10_000
"""Largest number of cells (areas of all levels times sizes) for which the problem is solved exactly. At this size, the
solver HiGHS takes about a second."""

_EXACT_LIMIT = 1 << 24
"""Exclusive bound on noisy values and totals for the exact solver. Below it, the cost of a unit is exact in floating
point. The solver's tolerance of 1e-7, added over all cells, is smaller than 1, the least possible gain of a change."""


def fit_histograms_to_totals(frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
    """Return histograms in which children sum to their parent and every area has its public number of groups.

    On small trees, the result is nearest to the noisy histograms; on large trees, almost nearest.

    ``noisy`` has the histograms of every level, top first; shape (areas, K + 1) each, as the result, whose integers are
    at least 0. Raises OdError if a value is 2^40 or more, or the solver fails on a small tree.
    """
    refuse_too_large(frame, noisy)
    rounded = round_relaxed_solution(frame, noisy, compute_relaxed_prices(frame, noisy))
    largest = max(int(frame.groups.sum()), *(int(max(values.max(), -values.min())) for values in noisy))
    if sum(values.size for values in noisy) <= MAX_EXACT_CELLS and largest < _EXACT_LIMIT:
        return find_nearest_histograms(frame, noisy, rounded)
    return rounded


# Rounding of the real solution to integers, from the top down: each area's histogram is divided among its children.


_BUCKETS_PER_GROUP = 1024
"""Number of buckets per group when :func:`_add_units` sorts cells by their distance from the real solution y."""

_BUCKETS = 4 * _BUCKETS_PER_GROUP
"""Number of buckets, for the distances from 1 down to -3."""


def round_relaxed_solution(frame: Frame, noisy: Sequence[Counts], prices: Prices) -> list[Counts]:
    """Round the solution over the reals to integer histograms with the number of groups of every area.

    For the arguments and the result, see :func:`fit_histograms_to_totals`. With other ``prices`` than those of
    :func:`compute_relaxed_prices`, the result is further from the noisy histograms, but still meets all constraints.
    """
    tops = compute_real_solution(frame, noisy, prices, 0, slice(0, len(noisy[0])))
    rounded_tops = [round_by_largest_remainders(y, total) for y, total in zip(tops, frame.count_groups(1), strict=True)]
    histograms = [np.array(rounded_tops)]
    for k in range(1, len(noisy)):
        solution = partial(compute_real_solution, frame, noisy, prices, k)
        histograms.append(divide_among_children(frame, solution, k, histograms[-1]))
    return histograms


def divide_among_children(frame: Frame, near: Callable[[slice], Reals], k: int, above: Counts) -> Counts:
    """Divide ``above``, the histograms of level k, among the children, and return the histograms of level k + 1.

    The result has the numbers of groups of the areas, and is near the real histograms that the function ``near``
    returns for a range of areas of level k + 1.
    """
    first_child, totals = frame.geography.first_child[k], frame.count_groups(k + 1)
    below = np.empty((len(totals), above.shape[1]), dtype=np.int64)

    def divide_area(area: int) -> None:
        """Write the histograms of the children of an area into ``below``."""
        children = slice(int(first_child[area]), int(first_child[area + 1]))
        _round_to_sums(near(children), totals[children], above[area].copy(), below[children])

    process_all(divide_area, range(len(above)))
    return below


def round_by_largest_remainders(y: Reals, total: int) -> Counts:
    """Round the numbers y to integers of at least 0 that sum to ``total``, which is at least 0; shape as y."""
    shared: Counts = np.maximum(np.floor(y), 0).astype(np.int64)
    while True:
        missing = total - int(shared.sum())
        if missing == 0:
            return shared
        step = max(1, abs(missing) // len(y))  # more than 1 only if y is far from the sum
        if missing > 0:
            shared[np.argsort(shared - y, kind="stable")[: missing // step]] += step
        else:
            order = np.argsort(y - shared, kind="stable")
            order = order[shared[order] > 0][: -missing // step]
            shared[order] -= np.minimum(shared[order], step)


@kernel
def _round_to_sums(y, rows, columns, shared):  # type: ignore[no-untyped-def]  # compiled
    """Write integers of at least 0 near y into ``shared``, with the row sums ``rows`` and the column sums ``columns``.

    A row is a child, and a column is a size. ``columns`` is overwritten. Each cell starts at floor(y) or 0. Units are
    removed from the columns and rows with too large sums, until no sum is too large, and then added. Rows and columns
    lack the same number of units in total. So while a row lacks a unit, some column lacks one too, and the sums are met
    for every y.
    """
    rows = rows.copy()
    for child in range(len(rows)):
        for j in range(len(columns)):
            shared[child, j] = max(np.int64(np.floor(y[child, j])), 0)
            rows[child] -= shared[child, j]
            columns[j] -= shared[child, j]
    _remove_units(y.T, shared.T, columns, rows)
    _remove_units(y, shared, rows, columns)
    _add_units(y, rows, columns, shared)


@kernel
def _remove_units(y: Reals, shared: Counts, rows: Counts, columns: Counts) -> None:
    """Remove units from the rows with too large sums, one after the other from the cell that exceeds y most.

    ``rows`` and ``columns`` have the units that each sum of ``shared`` lacks, below 0 if the sum is too large.
    """
    for row in range(len(rows)):
        while rows[row] < 0:
            farthest = -1
            for j in range(len(columns)):
                if shared[row, j] > 0 and (
                    farthest < 0 or y[row, j] - shared[row, j] < y[row, farthest] - shared[row, farthest]
                ):
                    farthest = j
            taken = min(shared[row, farthest], max(1, -rows[row] // len(columns)))  # 1, unless y is far from the sums
            shared[row, farthest] -= taken
            rows[row] += taken
            columns[farthest] += taken


@kernel
def _add_units(y: Reals, rows: Counts, columns: Counts, shared: Counts) -> None:
    """Add units to ``shared`` until no unit is missing. ``rows`` and ``columns`` have the units that each sum lacks.

    Each round visits the cells whose row and column both lack units, those furthest below y first, by buckets and then
    by position. From the third round on, a cell gets all units that both lack, so that few rounds are needed.
    """
    children, sizes = y.shape
    units_missing = rows.sum()
    rounds = 0
    while units_missing > 0:
        cells_in_bucket = np.zeros(_BUCKETS + 1, dtype=np.int64)
        for child in range(children):
            if rows[child] > 0:
                for j in range(sizes):
                    if columns[j] > 0:
                        cells_in_bucket[_compute_bucket(y[child, j] - shared[child, j]) + 1] += 1
        starts = np.cumsum(cells_in_bucket)  # of each bucket in the sorted cells; the last entry is their number
        cells = np.empty(starts[-1], dtype=np.int64)
        for child in range(children):
            if rows[child] > 0:
                for j in range(sizes):
                    if columns[j] > 0:
                        bucket = _compute_bucket(y[child, j] - shared[child, j])
                        cells[starts[bucket]] = child * sizes + j
                        starts[bucket] += 1
        for cell in cells:
            child, j = cell // sizes, cell % sizes
            lacked = min(rows[child], columns[j])
            if lacked > 0:
                units = lacked if rounds > 1 else 1
                shared[child, j] += units
                rows[child] -= units
                columns[j] -= units
                units_missing -= units
        rounds += 1


@kernel
def _compute_bucket(distance: float) -> np.int64:
    """Return the bucket of a cell by its distance, y minus the cell: 0 for 1 or more, the last for -3 or less."""
    return np.int64(min(max((1.0 - distance) * _BUCKETS_PER_GROUP, 0.0), _BUCKETS - 1.0))
