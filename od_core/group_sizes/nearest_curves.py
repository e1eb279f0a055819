"""Find the cumulative counts of all areas that are nearest to noisy ones, and that ascend and add up.

For area r and size j below the top code, c_rj is the number of groups of at most size j. The sum of (c_rj - noisy_rj)^2
over all areas and sizes is minimised, subject to 0 <= c_r0 <= c_r1 <= .. <= G_r in every leaf area, and c_rj = sum of
c_cj over the children c of r [fioretto2019hierarchical, Model 2]. The counts of other areas then ascend, too.

**Over the reals** (:func:`project_onto_intersection`), the solution is the point nearest to the noisy values in two
sets: the counts that add up, and those whose leaf rows ascend within bounds. The nearest point of either set alone is
found directly: by one pass up and one pass down the tree, and by pooling adjacent violators. The method of Dykstra
alternates between the two, and keeps what the second one has moved [boyle1986dykstra]. That is a gradient step for the
dual problem, so it is accelerated [beck2009fast], and starts again without momentum where the momentum leads away
[odonoghue2015adaptive].

**In whole numbers** (:func:`round_curves`), the curves of top areas are rounded, and the rest is found from the top
down: for one size after the other, the nearest whole numbers that sum to the parent's and are at least those of the
size before. They meet all constraints, and are near the optimum. On small trees, integer programming then makes the
result exact (:func:`find_optimal_curves`). Unlike the histograms of :mod:`od_core.group_sizes.area_totals`, the problem
is no flow, because sums over areas and sums over sizes overlap, so the solver must branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np
import scipy  # its solvers take a second to import, and load at their first use
from numpy.typing import NDArray

from od_core.geography.geography import Geography
from od_core.group_sizes.area_totals import iterate_row_ranges, round_optimum
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.top_totals import refuse_too_large
from od_core.kernels import kernel
from od_core.parallel import map_in_order
from od_core.privacy.stability import compute_laplace_reach

Reals = NDArray[np.float64]

MAX_ROUNDS = 100
"""Largest number of rounds of :func:`project_onto_intersection`."""

TOLERANCE = 0.02
"""Largest distance, in groups, between the points in the two sets at which the rounds end."""


def project_onto_intersection(
    noisy: Reals, onto_sums: Callable[[Reals], Reals], onto_rows: Callable[[slice, Reals], Reals]
) -> Reals:
    """Return nearly the point nearest to ``noisy`` in both an affine set and a set of rows; shape (rows, columns).

    The rows of the result are in their set. Its sums are off by about ``TOLERANCE`` at most, unless the search ends
    after ``MAX_ROUNDS`` rounds. The distance may have further terms that depend on the sums alone.

    Args:
        noisy: the values of the rows.
        onto_sums: function that returns the nearest point in the affine set, as a new array.
        onto_rows: function that returns the nearest points of some rows in their set, given the range of the rows and
            their values.
    """
    moved = np.zeros_like(noisy)  # distance by which the rows were moved into their set
    ahead = moved  # this distance, continued by the momentum
    momentum = 1.0
    for _ in range(MAX_ROUNDS):
        point, next_moved = onto_sums(noisy - ahead), np.empty_like(noisy)
        move = partial(_move_rows_into_set, onto_rows, point, ahead, moved, next_moved)
        largest_change, uphill = 0.0, 0.0
        for change_of_rows, uphill_of_rows in map_in_order(move, iterate_row_ranges(*noisy.shape)):
            largest_change = max(largest_change, change_of_rows)
            uphill += uphill_of_rows
        if largest_change < TOLERANCE:
            break
        if uphill > 0:
            momentum, ahead = 1.0, next_moved
        else:
            next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            ahead = next_moved + (momentum - 1) / next_momentum * (next_moved - moved)
            momentum = next_momentum
        moved = next_moved
    return point


def _move_rows_into_set(
    onto_rows: Callable[[slice, Reals], Reals], point: Reals, ahead: Reals, moved: Reals, next_moved: Reals, rows: slice
) -> tuple[float, float]:
    """Move the rows of ``point`` in the range ``rows`` into their set, and write the distances into ``next_moved``.

    Return the largest change of a value, and these rows' part of a sum that is above 0 if the momentum led away.
    """
    free = point[rows] + ahead[rows]
    inside = onto_rows(rows, free)
    next_moved[rows] = free - inside
    largest_change = float(np.abs(point[rows] - inside).max())
    uphill = float(((ahead[rows] - next_moved[rows]) * (next_moved[rows] - moved[rows])).sum())
    point[rows] = inside
    return largest_change, uphill


def fit_real_curves(frame: Frame, noisy: Sequence[Counts]) -> list[Reals]:
    """Return nearly the nearest real curves of every level, top first; shape (areas, K) each.

    ``noisy`` has the noisy cumulative counts of every level for the sizes 0 to K - 1; shape (areas, K) each. The curves
    ascend from 0 to the number of groups G_r, and children sum to their parent. Raises OdError if a value is 2^40 or
    more.
    """
    refuse_too_large(frame, noisy)
    upper = frame.groups.astype(np.float64)

    def project_onto_ascending(rows: slice, values: Reals) -> Reals:
        """Return the nearest curves of some leaf areas that ascend within their bounds."""
        pooled = np.empty_like(values)
        _pool_rows(values, upper[rows], pooled)
        return pooled

    leaves = project_onto_intersection(
        noisy[-1].astype(np.float64), partial(_fit_leaves_to_sums, frame, noisy), project_onto_ascending
    )
    return [np.add.reduceat(leaves, first[:-1]) for first in frame.geography.first_zone[1:]]


def _fit_leaves_to_sums(frame: Frame, noisy: Sequence[Counts], leaves: Reals) -> Reals:
    """Return the leaf values nearest to ``leaves`` whose sums by area are also near the ``noisy`` values of all levels.

    The sum of squares of all these distances is least. On the way up, the sum of an area's children estimates the area,
    with the sum of their variances. This estimate is averaged with the noisy value of the area, which has variance 1.
    On the way down, the difference between an area's value and the sum of its children is divided among the children in
    proportion to their variances.
    """
    geography = frame.geography
    levels_below = []
    means, variances = leaves, np.ones((len(leaves), 1))
    for level in reversed(frame.levels[:-1]):
        first, parents = geography.first_child[level][:-1], geography.parents[level + 1]
        sums, sum_variances = np.add.reduceat(means, first), np.add.reduceat(variances, first)
        levels_below.append((means, sums, variances / sum_variances[parents], parents))
        means = (noisy[level - 1] * sum_variances + sums) / (1 + sum_variances)
        variances = sum_variances / (1 + sum_variances)
    for child_means, sums, shares, parents in reversed(levels_below):
        means = child_means + shares * (means - sums)[parents]
    return means if len(frame.levels) > 1 else leaves.copy()


@kernel
def _pool_rows(values: Reals, upper: Reals, pooled: Reals) -> None:
    """Write the values nearest to those of each row that ascend, between 0 and ``upper`` of the row, into ``pooled``.

    Values that are pooled to one mean are a step. ``totals`` and ``lengths`` have the sum and the number of its values.
    """
    sizes = values.shape[1]
    totals, lengths = np.empty(sizes), np.empty(sizes)
    for row in range(len(values)):
        steps = 0
        for j in range(sizes):
            total, length = values[row, j], 1.0
            while steps > 0 and totals[steps - 1] * length >= total * lengths[steps - 1]:
                steps -= 1
                total += totals[steps]
                length += lengths[steps]
            totals[steps], lengths[steps] = total, length
            steps += 1
        end = 0
        for step in range(steps):
            value = min(max(totals[step] / lengths[step], 0.0), upper[row])
            for _ in range(np.int64(lengths[step])):
                pooled[row, end] = value
                end += 1


def round_curves(frame: Frame, curves: Sequence[Reals]) -> list[Counts]:
    """Round real curves to whole numbers that ascend from 0 to G_r, and in which children sum to their parent.

    ``curves`` has real curves of every level, top first, which need not meet the constraints; shape (areas, K) each, as
    the result.
    """
    rounded = [np.floor(np.clip(curves[0], 0, frame.count_groups(1)[:, None]) + 0.5).astype(np.int64)]
    np.maximum.accumulate(rounded[0], axis=1, out=rounded[0])
    for level, near in enumerate(curves[1:], start=2):
        children = np.empty(near.shape, dtype=np.int64)
        _round_child_curves(
            rounded[-1], near, frame.geography.first_child[level - 1], frame.count_groups(level), children
        )
        rounded.append(children)
    return rounded


@kernel
def _round_child_curves(
    parents: Counts, curves: Reals, first_child: NDArray[np.int32], upper: Counts, children: Counts
) -> None:
    """Write whole curves of the children of every area into ``children``, near their real curves ``curves``.

    Sizes are solved one after the other: the values of all children are rounded within their bounds. Then units are
    added where a value is furthest below the real value, or taken where it is furthest above, until the values sum to
    the value of the parent. The bounds are the value at the size before and the number of groups, ``upper``.
    """
    for parent in range(len(parents)):
        first, last = first_child[parent], first_child[parent + 1]
        for j in range(parents.shape[1]):
            missing = parents[parent, j]
            for child in range(first, last):
                least = children[child, j - 1] if j > 0 else 0
                children[child, j] = min(max(np.int64(np.floor(curves[child, j] + 0.5)), least), upper[child])
                missing -= children[child, j]
            while missing != 0:
                unit, farthest, chosen = (1 if missing > 0 else -1), -np.inf, first
                for child in range(first, last):
                    least = children[child, j - 1] if j > 0 else 0
                    distance = unit * (curves[child, j] - children[child, j])
                    if distance > farthest and least <= children[child, j] + unit <= upper[child]:
                        farthest, chosen = distance, child
                children[chosen, j] += unit
                missing -= unit


def make_frame_of_numbers(geography: Geography, noisy: Sequence[Counts], scale: Fraction) -> Frame:
    """Return the facts of a table with top code 1, whose cumulative counts of size 0 are numbers of groups.

    So the functions for cumulative counts can estimate numbers of groups, within an upper bound of each leaf area's
    number. The bound is the largest noisy number of the area and of the areas that contain it, plus the reach of the
    noise. A nearest number is not above the largest noisy number, because a smaller number would be nearer to each of
    them. Intervals can be, so the reach is added. A further bound, the same for all areas, keeps sums below 2^40.

    Args:
        noisy: noisy number of groups of every area of every level, top first; shape (areas,) each.
        scale: scale of the noise.
    """
    levels = enumerate(noisy, start=1)
    by_leaf = [np.repeat(values, np.diff(geography.first_zone[level])) for level, values in levels]
    bounds = np.max([np.zeros_like(by_leaf[-1]), *by_leaf], axis=0) + compute_laplace_reach(scale)
    return Frame(geography, np.minimum(bounds, ((1 << 40) - 1) // len(bounds)), top_code=1)


def fit_numbers(geography: Geography, noisy: Sequence[Counts], scale: Fraction) -> Counts:
    """Return whole numbers of groups of the leaf areas, at least 0, whose sums are near the noisy numbers of areas.

    The numbers are found by least squares over the areas of all levels; see :func:`fit_whole_curves`. For the
    arguments, see :func:`make_frame_of_numbers`. The shape of the result is (leaf areas,).

    References:
        [kuo2018countofcounts, section 3, footnote 5]
    """
    frame = make_frame_of_numbers(geography, noisy, scale)
    curves = fit_whole_curves(frame, [values[:, np.newaxis] for values in noisy])
    leaf_curves = curves[-1]
    return leaf_curves[:, 0]


MAX_EXACT_CELLS = 200
"""Largest number of cells (areas of all levels times sizes) for which the problem is solved exactly."""

_EXACT_LIMIT = 1 << 20
"""Exclusive bound on noisy values and totals for the exact solver, so that costs are exact in floating point."""


def fit_whole_curves(frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
    """Return whole curves that ascend and add up: on small trees the nearest ones, on large trees almost nearest.

    For the arguments and the result, see :func:`fit_real_curves`. Raises OdError if a value is 2^40 or more, or the
    solver fails on a small tree.
    """
    curves = round_curves(frame, fit_real_curves(frame, noisy))
    largest = max(int(frame.groups.sum()), *(int(np.abs(values).max()) for values in noisy))
    is_small = sum(values.size for values in noisy) <= MAX_EXACT_CELLS and largest < _EXACT_LIMIT
    return find_optimal_curves(frame, noisy, curves[-1]) if is_small else curves


def find_optimal_curves(frame: Frame, noisy: Sequence[Counts], leaves: Counts) -> list[Counts]:
    """Return the nearest whole curves by integer programming, beginning from ``leaves``, curves of the leaf areas.

    The unknowns are the counts of the leaf areas, and the cost of every cell (a count of an area of any level). In
    place of the squared distance, the cost is at least every chord of the square between neighbouring whole numbers. At
    whole numbers, no chord exceeds the square. The chords on both sides of every solution are added, until a solution
    costs what the solver says, and so no more than any other.

    Raises OdError if the solver finds no optimum.
    """
    areas, sizes = leaves.shape
    sums = scipy.sparse.csr_array(np.concatenate(frame.sum_every_level(np.eye(areas, dtype=np.int64))))
    cells = scipy.sparse.kron(sums, scipy.sparse.eye_array(sizes), format="csr")  # counts of all areas, from the leaves
    target = np.concatenate([values.ravel() for values in noisy])
    steps = scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(sizes - 1, sizes))
    ascent = scipy.sparse.kron(scipy.sparse.eye_array(areas), steps)
    conditions = [[ascent, scipy.sparse.csr_array((ascent.shape[0], len(target)))]]  # one block of counts, one of costs
    lower_limits = [np.zeros(ascent.shape[0])]
    is_count = np.repeat([1, 0], [leaves.size, len(target)])
    most = np.where(is_count, np.resize(np.repeat(frame.groups, sizes), len(is_count)), np.inf)
    counts = leaves.ravel()
    while True:
        values = np.asarray(cells @ counts, dtype=np.int64)
        for left in (values - 1, values):  # the chords from ``left`` to ``left`` + 1
            slope = 2 * (left - target) + 1
            conditions.append([-cells.multiply(slope[:, None]), scipy.sparse.eye_array(len(target))])
            lower_limits.append((left - target) ** 2 - slope * left)
        matrix = scipy.sparse.block_array(conditions, format="csc")
        result = scipy.optimize.milp(
            1 - is_count,
            integrality=is_count,
            bounds=scipy.optimize.Bounds(0, most),
            constraints=scipy.optimize.LinearConstraint(matrix, np.concatenate(lower_limits)),
            options={"mip_rel_gap": 0.0},
        )
        counts = round_optimum(result)[: leaves.size]
        if int(((cells @ counts - target) ** 2).sum()) < result.fun + 0.5:  # costs are integers
            return frame.sum_every_level(counts.reshape(leaves.shape))
