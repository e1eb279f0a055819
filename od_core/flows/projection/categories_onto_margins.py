"""Project counts by category onto the totals of children and of parents.

A family is one parent and its children. It has the estimates C_is of the trips of child i in category s, with the
variances v_i; the released trips r_i of each child; and the released trips c_s of the parent by category. The sum of r
equals the sum of c. The projection returns integers N_is >= 0 with row sums r_i and column sums c_s. Every r and c of
equal sums have such N, so every family succeeds, and releases are consistent by induction from the root down.

1. Rows with r_i = 0 and columns with c_s = 0 are 0, and are left out. K' columns are left. If one row is left, it is c;
   if one column is left, it is r.
2. :func:`fit_to_margins` fits the estimates to both margins by least squares:

       E_is = C_is + v_i / S (c_s - sum_j C_js),    S = sum v,    and then    E_is += (r_i - sum_s E_is) / K'

3. :func:`_ascend` finds the Euclidean projection of E onto the tables of real numbers >= 0 with these margins. It has
   the form Y_is = max(E_is - a_i - b_s, 0), since this form and the margins are the conditions of Karush, Kuhn and
   Tucker for the nearest table. Coordinate ascent on the dual problem sets every b_s so that column s has its sum, then
   every a_i so that row i has its sum, and repeats this. It ends when the columns are almost right, at the latest after
   ``SWEEPS`` sweeps.
4. :func:`round_rows` makes integers of Y, and :func:`repair_columns` makes the columns exact.

All operations are on integers, in fixed point. Divisions are rounded down, and ties are broken by position. So the
result is the same on every machine.

In step 4, Y is a table in fixed point, N the table of integers, and d_s the surplus of column s, which is the sum of
N_is over i minus c_s. The tables are transposed: they have the shape (columns, rows).

:func:`round_rows` rounds every row to integers with the sum r_i. The rounding errors of a column are carried to the
rows below, so the surpluses remain small if Y has nearly the column sums c.

:func:`repair_columns` moves units within rows, from the column with the largest surplus to the one with the smallest.
So rows keep their sums. The rows that change are those where N is farthest above Y in the one column or below Y in the
other. There are two kinds of moves:

- A spread clears the surplus of one of the two columns at once. The rows share it such that the largest distance
  between N and Y, in the two columns, becomes as small as possible.
- A move of a single unit.

Each reduces the sum of |d| and is possible, since a column with a surplus has units to give. As the surpluses sum to 0,
the repair ends with exact columns. It takes fewer spreads than there are columns, and then at most two units a column,
however far Y is from the column sums c.
"""

from __future__ import annotations

import numpy as np

from od_core.errors import OdError
from od_core.flows.arrays import Integers
from od_core.flows.projection.onto_parents import find_least_threshold
from od_core.kernels import kernel


@kernel
def round_rows(values: Integers, row_sums: Integers, bits: int) -> Integers:
    """Return integers near Y with the row sums r; shape (columns, rows).

    Every entry is rounded down. The units that a row then lacks go to the largest entries of fraction plus carry, at
    most one each. A column's carry is the sum of Y - N over the rows above.

    ``values`` is Y in fixed point with ``bits`` fractional bits. Rounded down to fixed point, the sums of rows are r,
    so that a row lacks fewer units than there are columns.
    """
    width, height = values.shape
    rounded = np.empty((width, height), dtype=np.int64)
    carry, raised_in = np.zeros(width, dtype=np.int64), np.full(width, -1)
    for i in range(height):
        lacking = row_sums[i]
        for s in range(width):
            rounded[s, i] = values[s, i] >> bits
            lacking -= rounded[s, i]
            carry[s] += values[s, i] - (rounded[s, i] << bits)
        for _ in range(lacking):
            most = -1
            for s in range(width):
                if raised_in[s] != i and (most < 0 or carry[s] > carry[most]):
                    most = s
            rounded[most, i] += 1
            carry[most] -= np.int64(1) << bits
            raised_in[most] = i
    return rounded


@kernel
def repair_columns(values: Integers, column_sums: Integers, bits: int, rounded: Integers) -> int:
    """Move units within rows of N, ``rounded``, until its columns have the sums c. Return the number of moves.

    ``values`` is Y in fixed point with ``bits`` fractional bits.
    """
    surplus, slack = -column_sums, np.empty(values.shape[1], dtype=np.int64)
    for s in range(len(surplus)):
        surplus[s] += rounded[s].sum()
    moves = 0
    while surplus.any():
        giver, taker = surplus.argmax(), surplus.argmin()
        for i in range(np.uint64(len(slack))):
            above = (rounded[giver, i] << bits) - values[giver, i]
            below = values[taker, i] - (rounded[taker, i] << bits)
            slack[i] = min(above, below)
        if np.abs(surplus).sum() > 4 * len(surplus):
            moved = min(surplus[giver], -surplus[taker])
            _move_units(rounded[giver], rounded[taker], slack >> bits, moved)
        else:  # in the row of largest slack that has a unit to give
            moved, best = np.int64(1), -1
            for i in range(len(slack)):
                if rounded[giver, i] > 0 and (best < 0 or slack[i] > slack[best]):
                    best = i
            rounded[giver, best] -= moved
            rounded[taker, best] += moved
        surplus[giver] -= moved
        surplus[taker] += moved
        moves += 1
    return moves


@kernel
def _move_units(giver: Integers, taker: Integers, slack: Integers, moved: int) -> None:
    """Move ``moved`` units from the column ``giver`` to ``taker``, which has at least as many.

    Row i gives slack_i minus a common level, at least 0 and at most all it has, where ``slack`` is in whole units. At
    the level ``lower``, the rows give at least the units to be moved; at ``upper``, they give fewer. They give what
    ``upper`` says, and the first rows that would give more at ``lower`` give one unit more.
    """
    count = np.uint64(len(slack))
    upper, lower = slack.max(), slack.min() - giver.max()
    while upper - lower > 1:
        middle = lower + (upper - lower) // 2
        total_given = np.int64(0)
        for i in range(count):
            total_given += min(max(slack[i] - middle, 0), giver[i])
        if total_given >= moved:
            lower = middle
        else:
            upper = middle
    for i in range(count):
        gives = min(max(slack[i] - upper, 0), giver[i])
        giver[i] -= gives
        taker[i] += gives
        moved -= gives
    for i in range(count):
        if moved == 0:
            break
        if slack[i] >= upper and giver[i] > 0:
            giver[i] -= 1
            taker[i] += 1
            moved -= 1


SWEEPS = 100
"""Largest number of sweeps of the dual ascent. Nearly all families need far fewer."""

_LIMIT = 1 << 55
"""Upper limit of a family's trips plus the sum of |C|, in fixed point. Then |E| < 2^57 and the thresholds are below
2^60: a sweep is a map of the thresholds that never increases their largest distance from a fixed point."""

_PRODUCT_LIMIT = 1 << 62
"""Upper limit of a family's trips, in fixed point, times its number of rows or columns; and of products of weights."""

_MARGINS, _OVERFLOW = 1, 2


def project_to_margins(
    estimates: Integers, weights: Integers, totals: Integers, parents: Integers, offsets: Integers, bits: int
) -> Integers:
    """Return integers near the estimates that sum to the children's totals and to the parents' trips by category.

    Args:
        estimates: Estimate of every child and category, in fixed point with ``bits`` fractional bits; the children of
            all parents, one parent after the other; shape (children, categories).
        weights: Whole numbers from 1 to 2^20 in proportion to the variances of the estimates; shape (children,).
        totals: Released trips of each child, at least 0; shape (children,).
        parents: Released trips of each parent by category, at least 0; shape (parents, categories).
        offsets: The children of parent ``p`` are ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).
        bits: Number of fractional bits of the estimates, at least 0.

    Raises:
        OdError: If the margins of a family have negative values or different sums, or if values are too large for
            64-bit arithmetic.

    >>> estimates = np.array([[30, 12, -2], [11, 6, 3]]) << 16
    >>> totals, parents = np.array([40, 20]), np.array([[39, 17, 4]])
    >>> project_to_margins(estimates, np.array([1, 1]), totals, parents, np.array([0, 2]), bits=16)
    array([[29, 11,  0],
           [10,  6,  4]])
    """
    projected = np.zeros(estimates.shape, dtype=np.int64)
    fault = _project_all(estimates, weights, totals, parents, offsets, bits, projected)
    if fault == _MARGINS:
        raise OdError(
            "OD-REFINEMENT-MARGINS",
            "the trips of a parent by category do not have the sum of its children's trips, or some are negative",
            next_step="report this defect",
            spent="draws already made stay charged",
        )
    if fault == _OVERFLOW:
        raise OdError(
            "OD-REFINEMENT-OVERFLOW",
            "the noisy values by category are too large for 64-bit sums",
            next_step="use less noise, or count in larger units, such as thousands",
            spent="draws already made stay charged",
        )
    return projected


@kernel
def _project_all(estimates, weights, totals, parents, offsets, bits, projected):  # type: ignore[no-untyped-def]  # compiled
    """Write the trips of all children into ``projected``, which is 0. Return the first fault found, or 0."""
    for parent in range(len(parents)):
        first, last = offsets[parent], offsets[parent + 1]
        trips = _sum_margins(totals[first:last], parents[parent], bits)
        if trips < 0:
            return -trips
        if trips == 0:
            continue
        rows, columns = np.flatnonzero(totals[first:last]) + first, np.flatnonzero(parents[parent])
        if len(rows) == 1:
            projected[rows[0]] = parents[parent]
        elif len(columns) == 1:
            projected[first:last, columns[0]] = totals[first:last]
        elif not fits_in_64_bits(estimates, weights, rows, columns, trips, bits):
            return _OVERFLOW
        else:
            row_sums, column_sums = totals[rows], parents[parent][columns]
            values = fit_to_margins(estimates, weights[rows], rows, columns, row_sums, column_sums, bits)
            _ascend(values, row_sums, column_sums, bits)
            rounded = round_rows(values, row_sums, bits)
            repair_columns(values, column_sums, bits, rounded)
            for s in range(len(columns)):
                for i in range(len(rows)):
                    projected[rows[i], columns[s]] = rounded[s, i]
    return 0


@kernel
def _sum_margins(totals: Integers, by_category: Integers, bits: int) -> int | np.int64:
    """Return the trips of a family, which are the sum of both margins; or a fault, as a negative number."""
    limit = np.int64(_LIMIT) >> bits
    children = categories = np.int64(0)
    for i in range(np.uint64(len(totals))):
        if totals[i] < 0:
            return -_MARGINS
        children += min(totals[i], limit)
        if children >= limit:
            return -_OVERFLOW
    for s in range(len(by_category)):
        if by_category[s] < 0:
            return -_MARGINS
        categories += min(by_category[s], limit)
    return children if children == categories else -_MARGINS


@kernel
def fits_in_64_bits(
    estimates: Integers, weights: Integers, rows: Integers, columns: Integers, trips: int | np.int64, bits: int
) -> bool | np.bool_:
    """Return whether no sum or product of the family with these rows and columns can overflow."""
    size, total_weight = np.float64(trips) * np.float64(1 << bits), np.float64(0)
    longer = np.float64(max(len(rows), len(columns)))
    if size * longer >= _PRODUCT_LIMIT:
        return False
    for i in range(len(rows)):
        total_weight += weights[rows[i]]
        for s in range(len(columns)):
            size += abs(np.float64(estimates[rows[i], columns[s]]))
    return size < _LIMIT and total_weight * (1 << 20) < _PRODUCT_LIMIT


@kernel
def fit_to_margins(estimates, weights, rows, columns, row_sums, column_sums, bits):  # type: ignore[no-untyped-def]  # compiled
    """Return E, the estimates of the family fitted to both margins by least squares; shape (columns, rows)."""
    values = np.empty((len(columns), len(rows)), dtype=np.int64)
    for i in range(len(rows)):
        for s in range(len(columns)):
            values[s, i] = estimates[rows[i], columns[s]]
    total_weight = weights.sum()
    for s in range(len(columns)):
        column = values[s]
        gap = (column_sums[s] << bits) - column.sum()
        part, rest = gap // total_weight, gap % total_weight  # no product exceeds 63 bits
        for i in range(np.uint64(len(rows))):
            column[i] += part * weights[i] + rest * weights[i] // total_weight
    for i in range(len(rows)):
        shift = ((row_sums[i] << bits) - values[:, i].sum()) // len(columns)
        for s in range(len(columns)):
            values[s, i] += shift
    return values


@kernel
def _ascend(values: Integers, row_sums: Integers, column_sums: Integers, bits: int) -> int:
    """Replace E by Y = max(E - a - b, 0), which has the row sums r and nearly the column sums c.

    Rounded down, row i has between r_i - K' 2^-bits and r_i. Columns are nearly right if they miss by less than 1/2
    unit in all, or by no more than what is rounded down. Return the number of sweeps.
    """
    width, height = np.uint64(values.shape[0]), np.uint64(values.shape[1])
    a, b = np.zeros(height, dtype=np.int64), np.zeros(width, dtype=np.int64)
    column, row = np.empty(height, dtype=np.int64), np.empty(width, dtype=np.int64)
    missed = np.empty(width, dtype=np.int64)
    tolerable = max((np.int64(1) << bits) >> 1, np.int64(values.size))
    sweeps = 0
    while sweeps < SWEEPS:
        sweeps += 1
        for s in range(width):
            for i in range(height):
                column[i] = values[s, i] - a[i]
            b[s] = _find_threshold(column, column_sums[s] << bits)
            missed[s] = -(column_sums[s] << bits)
        for i in range(height):
            for s in range(width):
                row[s] = values[s, i] - b[s]
            a[i] = _find_threshold(row, row_sums[i] << bits)
            for s in range(width):
                missed[s] += max(row[s] - a[i], 0)
        if np.abs(missed).sum() <= tolerable:
            break
    for s in range(width):
        for i in range(height):
            values[s, i] = max(values[s, i] - a[i] - b[s], 0)
    return sweeps


@kernel
def _find_threshold(x: Integers, total: np.int64) -> np.int64:
    """Return the smallest whole number t with sum max(x - t, 0) <= ``total``, from where no sum can overflow."""
    count = np.uint64(len(x))
    high = x[0]
    for i in range(count):
        high = max(high, x[i])
    return find_least_threshold(x, np.uint64(0), count, high, total, high - total)
