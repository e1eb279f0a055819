"""Find the nearest histograms in which children sum to their parent and top areas have their numbers of groups.

For every top area with G groups, minimise the sum of (x_rj - noisy_rj)^2 over the areas r of its tree and the sizes j.
The constraints are integers x >= 0, x_rj = sum of x_cj over the children c of r, and sum_j x_rj = G for the top area.
The last constraint alone connects different sizes. Apart from it, each size is a problem of its own, on a tree that has
one node per area. Each node has a cost table: cost(k) is the least cost of its subtree if the value of the node is k.
The cost is convex in k, so a table is stored as the sorted list of its integer slopes, slope k = cost(k) - cost(k - 1).
To add the tables of the children, their slopes are merged in ascending order. The term of the node itself,
(k - noisy)^2, adds 2k - 1 - 2 noisy to slope k. A leaf has no other slope, so its table need not be stored.

A table is cut to some values on either side of its minimum. An end of a table is a cut end unless it is 0 or G. The
result is optimal if no value lies on a cut end. The reason is that the cost is a sum of convex functions over nested
sets of leaf cells (an M-natural convex function). Such a function is minimal if no move of one unit between two leaf
cells, or into or out of one, reduces it, and such a move changes each node by at most one unit. If a value lies on a
cut end, the cuts of the sizes concerned are doubled, and the problem is solved again.

Ties are frequent, and any choice is optimal. Of equal slopes, that of the smallest size is taken first and, within a
tree, that of the first child.

References:
    [fioretto2019hierarchical, sections 6 and 7]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.group_sizes.estimation.tree_tables import leaf_values, root_tables
from od_core.group_sizes.groups import Counts, Frame
from od_core.kernels import kernel
from od_core.parallel import in_order

CUT_IN_SCALES = 16
"""Initial number of stored values on either side of a table's minimum, as a multiple of the noise scale."""

_PIECE = 128
"""Number of columns (noisy values of one size) that one thread solves at a time."""

_LIMIT = 1 << 40
"""Exclusive bound on noisy values and totals. Below it, slopes, sums of values and bisection bounds fit 64 bits."""


def first_cut(scale: Fraction) -> int:
    """Return the number of values first stored on either side of a cost table's minimum: 16 scales, at least 1."""
    return max(1, -(-CUT_IN_SCALES * scale.numerator // scale.denominator))


def nearest_histograms(frame: Frame, noisy: Sequence[Counts], cut: int) -> list[Counts]:
    """Return the nearest histograms in which children sum to their parent and top areas have their numbers of groups.

    Areas below the top may have other numbers of groups.

    Args:
        frame: the areas and their numbers of groups.
        noisy: noisy histograms of every level, top first; shape (areas, K + 1) each.
        cut: initial number of stored values on either side of a table's minimum, at least 1. The cost of the result
            does not depend on it, but the choice among several optimal results may.

    Returns:
        Histograms of every level, top first; integers of at least 0, shape (areas, K + 1) each. Every histogram is the
        sum of the children's.

    Raises:
        OdError: a value is 2^40 or more.
    """
    refuse_too_large(frame, noisy)
    leaves = np.empty((len(frame.groups), frame.top_code + 1), dtype=np.int64)
    totals = frame.totals(1)
    for top in range(len(totals)):
        tree = tree_below(frame, top)
        columns, which = distinct_columns([values[rows] for values, rows in zip(noisy, tree.rows, strict=True)])
        leaves[tree.rows[-1]] = _solve(tree.first_child, columns, which, int(totals[top]), cut)
    return frame.every_level(leaves)


def refuse_too_large(frame: Frame, noisy: Sequence[Counts]) -> None:
    """Raise OdError if the number of groups or the absolute value of a noisy value is 2^40 or more."""
    if frame.groups.sum() >= _LIMIT or any(max(values.max(), -values.min()) >= _LIMIT for values in noisy):
        raise OdError(
            "OD-GROUPS-OVERFLOW",
            "the noisy numbers of groups are too large for 64-bit sums",
            next_step="use smaller counts or less noise",
            spent="draws already made stay charged",
        )


class Tree(NamedTuple):
    """The areas below one top area, numbered within the tree from the top, level by level.

    The areas with children come first, because all leaf areas are at the last level.

    Attributes:
        rows: range of the tree's areas among all areas of a level, one slice per level.
        first_child: the areas ``first_child[a]:first_child[a + 1]`` of the tree are the children of its area a; shape
            (areas with children + 1,).
    """

    rows: list[slice]
    first_child: NDArray[np.int64]


def tree_below(frame: Frame, top: int) -> Tree:
    """Return the tree whose root is the top area with the number ``top``."""
    rows, first_child, nodes = [slice(top, top + 1)], [], 1
    for level in frame.levels[:-1]:
        first = frame.geography.first_child[level][rows[-1].start : rows[-1].stop + 1].astype(np.int64)
        first_child.append(first[:-1] - first[0] + nodes)
        rows.append(slice(int(first[0]), int(first[-1])))
        nodes += int(first[-1] - first[0])
    return Tree(rows, np.concatenate([*first_child, [nodes]]).astype(np.int64))


def distinct_columns(levels: Sequence[Counts]) -> tuple[Counts, NDArray[np.int64]]:
    """Return the distinct columns of the noisy histograms of a tree, and the column number of each size.

    A column has the noisy values of all areas of the tree for one size. Many columns are equal, and equal columns are
    solved once.

    Args:
        levels: noisy histograms of the tree's areas, one array per level; shape (areas, sizes) each.

    Returns:
        The distinct columns, one per row, shape (distinct columns, areas of the tree); and the row of each size, shape
        (sizes,).
    """
    sizes = levels[0].shape[1]
    which, numbers, found = np.empty(sizes, dtype=np.int64), dict[bytes, int](), list[Counts]()
    for first in range(0, sizes, _PIECE):
        piece = np.concatenate([np.ascontiguousarray(values[:, first : first + _PIECE].T) for values in levels], axis=1)
        for size, column in enumerate(piece, start=first):
            number = numbers.setdefault(column.tobytes(), len(found))
            if number == len(found):
                found.append(column.copy())
            which[size] = number
    return np.array(found), which


def _solve(first_child: NDArray[np.int64], columns: Counts, which: NDArray[np.int64], total: int, cut: int) -> Counts:
    """Return the optimal histograms of the leaf areas of a top area with ``total`` groups; shape (leaf areas, sizes).

    ``columns`` and ``which`` are those of :func:`distinct_columns`, and ``cut`` that of :func:`nearest_histograms`.
    """
    cuts = np.minimum(np.full(len(columns), cut, dtype=np.int64), max(total, 1))
    lows, tops = np.zeros(len(columns), dtype=np.int64), [np.empty(0, dtype=np.int64)] * len(columns)
    solved: dict[tuple[int, int], Counts] = {}
    widened = np.arange(len(columns))
    while True:
        for piece, (low, tables) in _by_cut(first_child, columns, cuts, widened, total):
            lows[piece] = low
            for column, table in zip(piece.tolist(), tables, strict=True):
                tops[column] = table
        values, ended = share_out(lows, tops, which, total)
        if values is None:
            widened = np.array([column for column in ended if cuts[column] < total])
        else:
            asked = sorted({*zip(which.tolist(), values.tolist(), strict=True)} - solved.keys())
            at_cut = _solve_at(first_child, columns, cuts, asked, total, solved)
            widened = np.array(sorted({column for column, _ in at_cut}), dtype=np.int64)
            if len(widened) == 0:
                return np.array([solved[pair] for pair in zip(which.tolist(), values.tolist(), strict=True)]).T
            for pair in [pair for pair in solved if pair[0] in set(widened.tolist())]:
                del solved[pair]
        cuts[widened] = np.minimum(2 * cuts[widened], total)


def _by_cut(
    first_child: NDArray[np.int64], columns: Counts, cuts: Counts, wanted: NDArray[np.int64], total: int
) -> Iterator[tuple[NDArray[np.int64], tuple[Counts, list[Counts]]]]:
    """Yield the cost tables of the root for the wanted columns, in pieces of columns with the same cut.

    Each item has the column numbers of a piece, the values at which their tables begin, and the slopes of the tables.
    """
    pieces = [
        same[first : first + _PIECE]
        for cut in np.unique(cuts[wanted])
        for same in [wanted[cuts[wanted] == cut]]
        for first in range(0, len(same), _PIECE)
    ]

    def tables(piece: NDArray[np.int64]) -> tuple[Counts, list[Counts]]:
        low, size, slopes = root_tables(first_child, columns[piece], cuts[piece[0]], total)
        return low, [one[:length].copy() for one, length in zip(slopes, size, strict=True)]

    return zip(pieces, in_order(tables, pieces), strict=True)


def _solve_at(
    first_child: NDArray[np.int64],
    columns: Counts,
    cuts: Counts,
    asked: list[tuple[int, int]],
    total: int,
    solved: dict[tuple[int, int], Counts],
) -> list[tuple[int, int]]:
    """Compute the leaf values for each pair (column, root value) in ``asked``, and write them into ``solved``.

    Returns:
        The pairs in whose solution a value lies at a cut end of a cost table, so that this table is too narrow.
    """
    asked = sorted(asked, key=lambda pair: (cuts[pair[0]], pair))
    steps = np.flatnonzero(np.diff([cuts[column] for column, _ in asked])) + 1
    edges = sorted({*range(0, len(asked), _PIECE), *steps.tolist(), len(asked)})

    def leaves(edge: tuple[int, int]) -> tuple[Counts, NDArray[np.bool_]]:
        pairs = np.array(asked[edge[0] : edge[1]], dtype=np.int64)
        found: tuple[Counts, NDArray[np.bool_]] = leaf_values(
            first_child, columns[pairs[:, 0]], pairs[:, 1], cuts[pairs[0, 0]], total
        )
        return found

    at_cut: list[tuple[int, int]] = []
    for edge, (found, ends) in zip(pairwise(edges), in_order(leaves, pairwise(edges)), strict=True):
        for pair, values, end in zip(asked[slice(*edge)], found, ends, strict=True):
            solved[pair] = values
            if end:
                at_cut.append(pair)
    return at_cut


def share_out(
    lows: Counts, tables: list[Counts], which: NDArray[np.int64], total: int
) -> tuple[Counts | None, list[int]]:
    """Choose the values of the root (the top area's histogram) that sum to ``total`` at the least cost.

    Args:
        lows: value at which the root's cost table begins for each distinct column; shape (columns,).
        tables: slopes of the root's cost table for each distinct column.
        which: column number of every size; shape (sizes,).
        total: G, the sum of the root values of all sizes.

    Returns:
        The root value of every size, and an empty list. If the tables are cut so narrowly that no root values have this
        sum: None, and the columns whose cuts must be widened.
    """
    offsets = np.cumsum([0, *map(len, tables)])
    slopes = np.concatenate(tables)
    often = np.bincount(which, minlength=len(tables))
    highs = lows + np.diff(offsets)
    if int(often @ lows) > total:
        return None, np.flatnonzero(lows > 0).tolist()
    if int(often @ highs) < total:
        return None, np.flatnonzero(highs < total).tolist()
    price = _price(lows, slopes, offsets, often, total)
    counts, next_slope = _below(lows, slopes, offsets, price)
    values = counts[which]
    tied = np.flatnonzero(next_slope[which])
    values[tied[: total - int(values.sum())]] += 1
    return values, []


@kernel
def _below(lows, slopes, offsets, price):  # type: ignore[no-untyped-def]  # compiled
    """Return the root value of each column if it takes all slopes up to ``price``; shape (columns,).

    A second array of this shape marks the columns whose next slope is ``price`` + 1.
    """
    counts, tied = np.empty_like(lows), np.zeros(len(lows), dtype=np.bool_)
    for column in range(len(lows)):
        table = slopes[offsets[column] : offsets[column + 1]]
        taken = np.searchsorted(table, price, side="right")
        counts[column] = lows[column] + taken
        tied[column] = taken < len(table) and table[taken] == price + 1
    return counts, tied


@kernel
def _price(lows, slopes, offsets, often, total):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest price (limit of the slopes that are taken) at which all root values sum to at most ``total``.

    ``often`` has the number of sizes that share each column.
    """
    low, high = np.int64(-1), np.int64(1)
    for slope in slopes:
        low, high = min(low, slope - 1), max(high, slope + 1)
    while high - low > 1:
        price = low + (high - low) // 2
        taken = np.int64(0)
        for column in range(len(lows)):
            table = slopes[offsets[column] : offsets[column + 1]]
            taken += often[column] * (lows[column] + np.searchsorted(table, price, side="right"))
        if taken <= total:
            low = price
        else:
            high = price
    return low
