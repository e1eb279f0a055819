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

The tables of the tree of one size are computed from the leaves up, and the values of its nodes from the root down. The
kernels get ``first_child`` of :func:`make_tree_below_top`, the ``noisy`` value of every node, and ``total``, the number
of groups of the top area. The table of an inner node v begins at the value ``low[v]``, and its slopes are ``slopes[v,
:size[v]]``. Leaves have no table, because slope k of a leaf is 2k - 1 - 2 noisy. A node *takes* a slope if its value is
at least the value that the slope leads to. A price is an upper limit of the slopes that are taken.

References:
    [fioretto2019hierarchical, sections 6 and 7]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.group_sizes.groups import Counts, Frame
from od_core.kernels import kernel
from od_core.parallel import map_in_order


class _Tables(NamedTuple):
    """The cost tables of the nodes of the tree of one size, and what they are computed from; see the module."""

    first_child: NDArray[np.int64]
    noisy: NDArray[np.int64]
    total: int
    low: NDArray[np.int64]
    size: NDArray[np.int64]
    slopes: NDArray[np.int64]


@kernel
def _compute_value(price, node, tables):  # type: ignore[no-untyped-def]  # compiled
    """Return the value of a node that takes all its slopes up to the price."""
    if node >= len(tables.first_child) - 1:
        return min(max(tables.noisy[node] + ((price + 1) >> 1), 0), tables.total)
    return tables.low[node] + np.searchsorted(tables.slopes[node, : tables.size[node]], price, side="right")


@kernel
def _sum_child_values(price: int | np.int64, node: int, tables: _Tables) -> np.int64:
    """Return the sum of the values of a node's children if each child takes all its slopes up to the price."""
    first_child, noisy, total, low, size, slopes = tables
    first, last, number = first_child[node], first_child[node + 1], np.int64(0)
    if first >= len(first_child) - 1:  # leaves, in a loop of its own that is compiled to vector instructions
        shift = (price + 1) >> 1
        for child in range(np.uint64(first), np.uint64(last)):
            number += min(max(noisy[child] + shift, 0), total)
    else:
        for child in range(first, last):
            number += low[child] + np.searchsorted(slopes[child, : size[child]], price, side="right")
    return number


@kernel
def _find_price(value: np.int64, near: int | np.int64, node: int, tables: _Tables) -> int | np.int64:
    """Return a price p with sum(p - 1) <= ``value`` <= sum(p), where sum(p) is the sum of the children's values at p.

    The search goes outwards from the price ``near``, then by bisection. If several prices have the sum ``value``, any
    of them is returned, because both callers take all slopes up to p - 1, and then as many of slope p as are missing.
    """
    below = above = near
    step = np.int64(1)
    while _sum_child_values(below, node, tables) > value:
        above, below, step = below, below - step, 2 * step
    while _sum_child_values(above, node, tables) < value:
        below, above, step = above, above + step, 2 * step
    while above - below > 1:
        price = below + (above - below) // 2
        if _sum_child_values(price, node, tables) >= value:
            above = price
        else:
            below = price
    return above


@kernel
def _compute_table(node: int, cut: int, tables: _Tables, merged: Counts) -> None:
    """Write a node's cost table, computed from the tables of its children, into the arrays of ``tables``.

    The table has at most ``cut`` values on either side of its minimum. ``merged`` is scratch space for slopes.
    """
    first_child, noisy, total, low, size, slopes = tables
    inner, skipped = len(first_child) - 1, np.int64(0)
    begin, end = np.int64(0), total  # the first and the last value of the table
    if node >= inner:  # a top area without children, whose only cost is its own term
        least = min(max(noisy[node], 0), total)
        begin, end = max(begin, least - cut), min(end, least + cut)
        merged[: end - begin] = 0
    else:
        first, last = first_child[node], first_child[node + 1]
        if first < inner:  # the children's tables are cut
            begin = low[first:last].sum()
            end = min(begin + size[first:last].sum(), total)
        least, below, above = _find_minimum(node, begin, end, tables)
        begin, end = max(begin, least - cut), min(end, least + cut)
        if begin < end:
            lowest, highest = _find_price(begin, below, node, tables), _find_price(end, above, node, tables)
            _merge_child_slopes(node, lowest, highest, tables, merged)
            skipped = begin - _sum_child_values(lowest - 1, node, tables)  # equal slopes before that of begin + 1
    low[node], size[node] = begin, max(end - begin, 0)  # a begin above the total is detected at the root
    for i in range(end - begin):
        slopes[node, i] = merged[skipped + i] + 2 * (begin + i) + 1 - 2 * noisy[node]


@kernel
def _find_minimum(node, begin, end, tables):  # type: ignore[no-untyped-def]  # compiled
    """Return the value from ``begin`` to ``end`` at which a node's cost is least, and prices to both sides of it.

    The cost is least at the last value k whose slope is below 0. This slope is s + 2k - 1 - 2 noisy, where s is the
    k-th slope of the children. If the children take all slopes up to a price, their values have a sum that grows with
    the price. So bisection finds the last price, ``below``, to whose sum the cost falls. The next price is ``above``.
    All slopes of the children between the two sums are equal to it, so the last k among them follows directly.
    """
    twice = 2 * tables.noisy[node]
    below, above = twice - 2 * end, twice - 2 * begin + 1
    while above - below > 1:
        price = below + (above - below) // 2
        if price + 2 * _sum_child_values(price, node, tables) < twice + 1:
            below = price
        else:
            above = price
    at_least = _sum_child_values(below, node, tables)
    at_most = _sum_child_values(above, node, tables)
    last_below_zero = (twice - above) >> 1  # the last k with above + 2k - 1 - twice < 0
    least = max(at_least, min(at_most, last_below_zero))
    return min(least, end), below, above


@kernel
def _merge_child_slopes(node, lowest, highest, tables, merged):  # type: ignore[no-untyped-def]  # compiled
    """Write those slopes of a node's children that are from ``lowest`` to ``highest`` into ``merged``, ascending."""
    first_child, noisy, _, low, _, slopes = tables
    number_merged = 0
    for child in range(first_child[node], first_child[node + 1]):
        value = _compute_value(lowest - 1, child, tables)
        number = _compute_value(highest, child, tables) - value
        if child >= len(first_child) - 1:  # a leaf
            for i in range(number):
                merged[number_merged + i] = 2 * (value + i) + 1 - 2 * noisy[child]
        else:
            first_slope = value - low[child]
            merged[number_merged : number_merged + number] = slopes[child, first_slope : first_slope + number]
        number_merged += number
    merged[:number_merged].sort()


@kernel
def _make_empty_tables(first_child: Counts, nodes: int, cut: int, total: int) -> tuple[Counts, Counts, Counts, Counts]:
    """Return ``low``, ``size`` and ``slopes`` (see the module) for all nodes with a cost table, and scratch space.

    The nodes are the inner nodes, or the top area if it has no children. The scratch space holds the merged slopes of a
    node's children: those of a table, and ties with its ends.
    """
    inner, width = max(len(first_child) - 1, 1), max(min(2 * cut, total), 1)
    low, size = np.empty(inner, dtype=np.int64), np.empty(inner, dtype=np.int64)
    return low, size, np.empty((inner, width), dtype=np.int64), np.empty(width + 2 * nodes, dtype=np.int64)


@kernel
def compute_root_tables(first_child: Counts, columns: Counts, cut: int, total: int) -> tuple[Counts, Counts, Counts]:
    """Return the root's cost table for each column: its first value, its number of slopes, and its slopes.

    ``columns`` are noisy values of all nodes of the tree of :func:`make_tree_below_top` for one size each; shape
    (columns, nodes). ``cut`` is the largest number of stored values on either side of a table's minimum, and ``total``
    the number of groups of the top area, the largest value of a node.
    """
    low, size, slopes, merged = _make_empty_tables(first_child, columns.shape[1], cut, total)
    lows, sizes = np.empty(len(columns), dtype=np.int64), np.empty(len(columns), dtype=np.int64)
    values = np.empty((len(columns), slopes.shape[1]), dtype=np.int64)
    for column in range(len(columns)):
        tables = _Tables(first_child, columns[column], total, low, size, slopes)
        for node in range(len(low) - 1, -1, -1):
            _compute_table(node, cut, tables, merged)
        lows[column], sizes[column] = low[0], size[0]
        values[column, : size[0]] = slopes[0, : size[0]]
    return lows, sizes, values


@kernel
def compute_leaf_values(
    first_child: Counts, columns: Counts, roots: Counts, cut: int, total: int
) -> tuple[Counts, NDArray[np.bool_]]:
    """Return the leaf values of each column at its root value in ``roots``, and mark columns with a value on a cut end.

    The shapes are (columns, leaves) and (columns,). The other arguments are those of :func:`compute_root_tables`.
    """
    inner, nodes = len(first_child) - 1, columns.shape[1]
    low, size, slopes, merged = _make_empty_tables(first_child, nodes, cut, total)
    values = np.empty(nodes, dtype=np.int64)
    leaves = np.empty((len(columns), nodes - inner), dtype=np.int64)
    at_cut = np.zeros(len(columns), dtype=np.bool_)
    for column in range(len(columns)):
        tables = _Tables(first_child, columns[column], total, low, size, slopes)
        for node in range(len(low) - 1, -1, -1):
            _compute_table(node, cut, tables, merged)
        values[0] = roots[column]
        for node in range(inner):
            _divide_node_value(values, node, tables)
        for node in range(len(low)):
            begin, end = low[node], low[node] + size[node]
            if (values[node] == begin and begin > 0) or (values[node] == end and end < total):
                at_cut[column] = True
        leaves[column] = values[inner:]
    return leaves, at_cut


@kernel
def _divide_node_value(values: Counts, node: int, tables: _Tables) -> None:
    """Write the values of a node's children, which sum to the node's value, into ``values``.

    The children take their smallest slopes first. Equal slopes are taken in the children's order.
    """
    price = _find_price(values[node], 0, node, tables)
    remaining = values[node] - _sum_child_values(price - 1, node, tables)
    for child in range(tables.first_child[node], tables.first_child[node + 1]):
        values[child] = _compute_value(price - 1, child, tables)
        if remaining > 0 and _compute_value(price, child, tables) > values[child]:
            values[child], remaining = values[child] + 1, remaining - 1


CUT_IN_SCALES = 16
"""Initial number of stored values on either side of a table's minimum, as a multiple of the noise scale."""

_PIECE_COLUMNS = 128
"""Number of columns (noisy values of one size) that one thread solves at a time."""

_VALUE_LIMIT = 1 << 40
"""Exclusive bound on noisy values and totals. Below it, slopes, sums of values and bisection bounds fit 64 bits."""


def compute_first_cut(scale: Fraction) -> int:
    """Return the initial number of stored values on either side of a table's minimum, at least 1, for a noise scale."""
    return max(1, math.ceil(CUT_IN_SCALES * scale))


def fit_histograms_to_top_totals(frame: Frame, noisy: Sequence[Counts], cut: int) -> list[Counts]:
    """Return the nearest histograms in which children sum to their parent and top areas have their numbers of groups.

    Areas below the top may have other numbers of groups.

    ``noisy`` has the histograms of every level, top first; shape (areas, K + 1) each, as the result, whose integers are
    at least 0. ``cut`` is the initial number of stored values on either side of a table's minimum, at least 1. The cost
    of the result does not depend on it, but the choice among several optimal results may. Raises OdError if a value is
    2^40 or more.
    """
    refuse_too_large(frame, noisy)
    leaves = np.empty((len(frame.groups), frame.top_code + 1), dtype=np.int64)
    totals = frame.count_groups(1)
    for top in range(len(totals)):
        rows, first_child = make_tree_below_top(frame, top)
        noisy_of_tree = [values[areas] for values, areas in zip(noisy, rows, strict=True)]
        columns, column_of_size = find_distinct_columns(noisy_of_tree)
        leaves[rows[-1]] = _solve_tree(first_child, columns, column_of_size, int(totals[top]), cut)
    return frame.sum_every_level(leaves)


def refuse_too_large(frame: Frame, noisy: Sequence[Counts]) -> None:
    """Raise OdError if the number of all groups or the absolute value of a noisy value is 2^40 or more."""
    if frame.groups.sum() >= _VALUE_LIMIT or any(max(values.max(), -values.min()) >= _VALUE_LIMIT for values in noisy):
        message = "the noisy numbers of groups are too large for 64-bit sums"
        step = "use smaller counts or less noise"
        raise OdError("OD-GROUPS-OVERFLOW", message, next_step=step, spent="draws already made stay charged")


def make_tree_below_top(frame: Frame, top: int) -> tuple[list[slice], NDArray[np.int64]]:
    """Return the tree of the areas below one top area, which are numbered within the tree from the top, level by level.

    Returns:
        The range of the tree's areas among all areas of a level, one slice per level; and ``first_child``, with which
        the areas ``first_child[a]:first_child[a + 1]`` of the tree are the children of its area a; shape (areas with
        children + 1,). The areas with children come first, because all leaf areas are at the last level.
    """
    rows = [slice(top, top + 1)]
    first_child, nodes = [], 1
    for level in frame.levels[:-1]:
        areas = rows[-1]
        first_of_level = frame.geography.first_child[level][areas.start : areas.stop + 1].astype(np.int64)
        first, end = int(first_of_level[0]), int(first_of_level[-1])  # the tree's areas of the next level
        first_child.append(first_of_level[:-1] - first + nodes)
        rows.append(slice(first, end))
        nodes += end - first
    return rows, np.concatenate([*first_child, [nodes]]).astype(np.int64)


def find_distinct_columns(levels: Sequence[Counts]) -> tuple[Counts, NDArray[np.int64]]:
    """Return the distinct columns of the noisy histograms of a tree, and the column number of each size.

    A column has the noisy values of all areas of the tree for one size. Many columns are equal, and equal columns are
    solved once. The columns are returned as rows; shape (distinct columns, areas of the tree).
    """
    number_of_column: dict[bytes, int] = {}
    column_of_size: list[int] = []
    for first in range(0, levels[0].shape[1], _PIECE_COLUMNS):
        piece = np.concatenate([values[:, first : first + _PIECE_COLUMNS] for values in levels])
        for column in piece.T:
            next_number = len(number_of_column)
            column_of_size.append(number_of_column.setdefault(column.tobytes(), next_number))
    columns = np.frombuffer(b"".join(number_of_column), dtype=np.int64)
    return columns.reshape(len(number_of_column), -1), np.array(column_of_size)


@dataclass(frozen=True, eq=False)
class _Tree:
    """The tree of one top area, with the distinct columns of noisy values for which it is solved.

    Attributes:
        first_child, columns: as in :func:`compute_root_tables`.
        total: number of groups of the top area.
        cuts: number of stored values on either side of a table's minimum, by column; they grow; shape (columns,).
    """

    first_child: NDArray[np.int64]
    columns: Counts
    total: int
    cuts: Counts

    def iterate_root_tables(self, chosen: Counts) -> Iterator[tuple[int, int, Counts]]:
        """Yield the number of each chosen column, with the first value and the slopes of the root's cost table."""

        def compute_tables(columns: Counts) -> tuple[Counts, Counts, Counts]:
            """Return the cost tables of the root for some columns."""
            cut = self.cuts[columns[0]]  # all columns of a piece have one cut, as _split_by_cut makes them
            return compute_root_tables(self.first_child, self.columns[columns], cut, self.total)

        pieces = [chosen[piece] for piece in _split_by_cut(self.cuts[chosen])]
        for piece, (low, size, slopes) in zip(pieces, map_in_order(compute_tables, pieces), strict=True):
            for column, first, length, table in zip(piece.tolist(), low.tolist(), size, slopes, strict=True):
                yield column, first, table[:length].copy()

    def iterate_leaf_values(self, pairs: Counts) -> Iterator[tuple[tuple[int, int], Counts, bool]]:
        """Yield each pair with the leaf values of its column, and whether a value of a node is on a cut end.

        ``pairs`` has one pair a row, of the number of a column and a value of the root; shape (pairs, 2).
        """

        def compute_leaves(piece: Counts) -> tuple[Counts, NDArray[np.bool_]]:
            """Return the leaf values of some pairs, and whether each has a value on a cut end."""
            columns, root_values = piece.T  # a piece has one pair a row
            cut = self.cuts[columns[0]]  # all columns of a piece have one cut, as _split_by_cut makes them
            return compute_leaf_values(self.first_child, self.columns[columns], root_values, cut, self.total)

        pieces = [pairs[piece] for piece in _split_by_cut(self.cuts[pairs[:, 0]])]
        for piece, (histograms, at_cut) in zip(pieces, map_in_order(compute_leaves, pieces), strict=True):
            column_values = [(column, value) for column, value in piece.tolist()]
            yield from zip(column_values, histograms, at_cut.tolist(), strict=True)


def _solve_tree(
    first_child: NDArray[np.int64], columns: Counts, column_of_size: NDArray[np.int64], total: int, cut: int
) -> Counts:
    """Return the optimal histograms of the leaf areas of a top area with ``total`` groups; shape (areas, sizes).

    Tables have ``cut`` values on either side of their minimum at first. Until no value lies on a cut end, the cuts of
    the columns concerned are doubled, and they are solved again. For the arrays, see :func:`find_distinct_columns`.
    """
    cuts = np.minimum(np.full(len(columns), cut, dtype=np.int64), max(total, 1))
    tree = _Tree(first_child, columns, total, cuts)
    lows = np.zeros(len(columns), dtype=np.int64)  # with `root_slopes`, the cost table of the root, by column
    root_slopes = [np.empty(0, dtype=np.int64)] * len(columns)
    solved: dict[tuple[int, int], Counts] = {}  # leaf values by the column and the value of the root
    widened = np.arange(len(columns))
    while True:
        for column, low, slopes in tree.iterate_root_tables(widened):
            lows[column], root_slopes[column] = low, slopes
        values, too_narrow = choose_root_values(lows, root_slopes, column_of_size, total)
        if values is None:
            widened = np.array([column for column in too_narrow if cuts[column] < total])
        else:
            pair_of_size = list(zip(column_of_size.tolist(), values.tolist(), strict=True))
            unsolved = np.array(sorted({*pair_of_size} - solved.keys()), dtype=np.int64).reshape(-1, 2)
            columns_at_cut = set[int]()
            for (column, value), leaf_values, is_at_cut in tree.iterate_leaf_values(unsolved):
                solved[column, value] = leaf_values
                if is_at_cut:
                    columns_at_cut.add(column)
            if not columns_at_cut:
                return np.array([solved[pair] for pair in pair_of_size]).T
            solved = {pair: leaf_values for pair, leaf_values in solved.items() if pair[0] not in columns_at_cut}
            widened = np.array(sorted(columns_at_cut), dtype=np.int64)
        cuts[widened] = np.minimum(2 * cuts[widened], total)


def _split_by_cut(cuts: Counts) -> list[NDArray[np.int64]]:
    """Return the positions of the given cuts, in pieces of at most ``_PIECE_COLUMNS`` positions with the same cut."""
    pieces = []
    for cut in np.unique(cuts):
        positions = np.flatnonzero(cuts == cut)
        pieces += np.split(positions, range(_PIECE_COLUMNS, len(positions), _PIECE_COLUMNS))
    return pieces


def choose_root_values(
    lows: Counts, tables: list[Counts], column_of_size: NDArray[np.int64], total: int
) -> tuple[Counts | None, list[int]]:
    """Choose the values of the root (the top area's histogram) that sum to ``total`` at the least cost.

    For each distinct column, ``lows`` has the first value of the root's cost table, and ``tables`` its slopes.
    ``column_of_size`` has the number of the column of every size. Returns the root value of every size, and an empty
    list. If the tables are cut so narrowly that no root values have this sum, returns None, and the numbers of the
    columns whose cuts must be widened.
    """
    offsets = np.cumsum([0, *map(len, tables)])
    slopes = np.concatenate(tables)
    times = np.bincount(column_of_size, minlength=len(tables))  # number of sizes that have each column
    highs = lows + np.diff(offsets)
    if int(times @ lows) > total:  # smaller values are needed, of the tables that are cut below
        return None, np.flatnonzero(lows > 0).tolist()
    if int(times @ highs) < total:  # larger values are needed, of the tables that are cut above
        return None, np.flatnonzero(highs < total).tolist()
    price, beyond = int(slopes.min(initial=0)) - 1, int(slopes.max(initial=0)) + 1
    while beyond - price > 1:  # find the largest price at which the root values sum to at most the total
        middle = (price + beyond) // 2
        if times @ _compute_root_values(lows, slopes, offsets, middle) <= total:
            price = middle
        else:
            beyond = middle
    value_of_column = _compute_root_values(lows, slopes, offsets, price)
    takes_more = _compute_root_values(lows, slopes, offsets, price + 1) > value_of_column
    values = value_of_column[column_of_size]
    missing = total - int(values.sum())
    tied_sizes = np.flatnonzero(takes_more[column_of_size])  # whose next slope is price + 1; the first ones take it
    values[tied_sizes[:missing]] += 1
    return values, []


@kernel
def _compute_root_values(lows: Counts, slopes: Counts, offsets: Counts, price: int) -> Counts:
    """Return the root value of each column if it takes all slopes up to ``price``; shape (columns,)."""
    values = np.empty_like(lows)
    for column in range(len(lows)):
        table = slopes[offsets[column] : offsets[column + 1]]
        values[column] = lows[column] + np.searchsorted(table, price, side="right")
    return values
