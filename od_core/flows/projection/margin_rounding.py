"""Round a table of real numbers >= 0 to integers that keep its row sums, and then repair the column sums.

This is the last part of :mod:`od_core.flows.projection.two_margins`. Y is a table in fixed point, N the table of
integers, and d_s the surplus of column s, which is the sum of N_is over i minus c_s. The tables are transposed: they
have the shape (columns, rows).

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

from od_core.kernels import kernel


@kernel
def round_rows(values, row_sums, bits):  # type: ignore[no-untyped-def]  # compiled
    """Return integers near Y with the row sums r; shape (columns, rows).

    Every entry is rounded down. The units that a row then lacks go to the largest entries of fraction plus carry, at
    most one each. A column's carry is the sum of Y - N over the rows above.

    Args:
        values: Y, in fixed point with ``bits`` fractional bits; shape (columns, rows). Rounded down to fixed point, the
            sums of rows are r, so that a row lacks fewer units than there are columns.
        row_sums: Row sums r; shape (rows,).
        bits: Number of fractional bits of Y.
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
def repair_columns(values, column_sums, bits, rounded):  # type: ignore[no-untyped-def]  # compiled
    """Move units within rows of ``rounded`` until its columns have the sums c. Return the number of moves.

    Args:
        values: Y, in fixed point with ``bits`` fractional bits; shape (columns, rows).
        column_sums: Column sums c, whose sum is that of ``rounded``; shape (columns,).
        bits: Number of fractional bits of Y.
        rounded: N; shape (columns, rows).
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
            _spread(rounded[giver], rounded[taker], slack >> bits, moved)
        else:
            moved = np.int64(1)
            _move_unit(rounded[giver], rounded[taker], slack)
        surplus[giver] -= moved
        surplus[taker] += moved
        moves += 1
    return moves


@kernel
def _move_unit(giver, taker, slack):  # type: ignore[no-untyped-def]  # compiled
    """Move one unit from the column ``giver`` to ``taker``, in the row of largest slack that has a unit to give."""
    best = -1
    for i in range(len(slack)):
        if giver[i] > 0 and (best < 0 or slack[i] > slack[best]):
            best = i
    giver[best] -= 1
    taker[best] += 1


@kernel
def _spread(giver, taker, slack, moved):  # type: ignore[no-untyped-def]  # compiled
    """Move ``moved`` units from the column ``giver`` to ``taker``, which has at least as many.

    Row i gives slack_i minus a common level, at least 0 and at most all it has, where ``slack`` is in whole units. The
    bisection keeps two levels: at ``lower``, the rows give at least the units to be moved; at ``upper``, they give
    fewer. They give what ``upper`` says, and the first rows that would give more at ``lower`` give one unit more.
    """
    count = np.uint64(len(slack))
    upper, lower = slack.max(), slack.min() - giver.max()
    while upper - lower > 1:
        middle = lower + (upper - lower) // 2
        given = np.int64(0)
        for i in range(count):
            given += min(max(slack[i] - middle, 0), giver[i])
        if given >= moved:
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
