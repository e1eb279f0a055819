"""Compute the cost tables of the tree of one size from the leaves up, and the values of its nodes from the root down.

For the tables and their slopes, see :mod:`od_core.group_sizes.estimation.cost_tables`. ``first_child`` and the node
numbers are those of its class ``Tree``. The table of an inner node v begins at the value ``low[v]``, and its slopes are
``slopes[v, :size[v]]``. Leaves have no table, because slope k of a leaf is 2k - 1 - 2 noisy. A node *takes* a slope if
its value is at least the value that the slope leads to. A price is an upper limit of the slopes that are taken.
"""

from __future__ import annotations

import numpy as np

from od_core.kernels import kernel


@kernel
def _taken(price, node, first_child, noisy, total, low, size, slopes):  # type: ignore[no-untyped-def]  # compiled
    """Return the sum of the values of a node's children if each child takes all its slopes up to the price."""
    inner, taken = len(first_child) - 1, np.int64(0)
    if first_child[node] >= inner:
        shift = (price + 1) >> 1  # slope k of a leaf, 2k - 1 - 2 noisy, is at most the price for k <= noisy + shift
        for child in range(np.uint64(first_child[node]), np.uint64(first_child[node + 1])):
            taken += min(max(noisy[child] + shift, 0), total)
    else:
        for child in range(first_child[node], first_child[node + 1]):
            taken += low[child] + np.searchsorted(slopes[child, : size[child]], price, side="right")
    return taken


@kernel
def _least(at_least, below, above, node, first_child, noisy, total, low, size, slopes):  # type: ignore[no-untyped-def]  # compiled
    """Return the least price in (``below``, ``above``] at which the children's values sum to ``at_least`` or more."""
    while above - below > 1:
        price = below + (above - below) // 2
        if _taken(price, node, first_child, noisy, total, low, size, slopes) >= at_least:
            above = price
        else:
            below = price
    return above


@kernel
def _fill(node, first_child, noisy, cut, total, low, size, slopes, merged):  # type: ignore[no-untyped-def]  # compiled
    """Compute a node's cost table from its children's, and write it into ``low``, ``size`` and ``slopes``.

    The node's own term has the noisy value ``noisy[node]``. ``merged`` is scratch space.
    """
    inner, own = len(first_child) - 1, noisy[node]
    if node >= inner:  # a top area without children
        least = min(max(own, 0), total)
        begin, end = max(least - cut, 0), min(least + cut, total)
        low[node], size[node] = begin, end - begin
        for k in range(begin + 1, end + 1):
            slopes[node, k - begin - 1] = 2 * k - 1 - 2 * own
        return
    first, last = first_child[node], first_child[node + 1]
    begin = end = np.int64(0)
    high_noisy = low_noisy = noisy[first]
    for child in range(first, last):
        low_noisy, high_noisy = min(low_noisy, noisy[child]), max(high_noisy, noisy[child])
        if first < inner:
            begin, end = begin + low[child], end + low[child] + size[child]
        else:
            end += total
    end = min(end, total)
    # The cost of the node is least at the last k whose slope, merged slope + 2k - 1 - 2 own, is below 0. If the
    # children take all slopes up to s, their values have a sum k that grows with s, so k is found by bisection on s.
    below, above = 2 * (own - end), 2 * (own - begin) + 1
    while above - below > 1:
        price = below + (above - below) // 2
        if price + 2 * _taken(price, node, first_child, noisy, total, low, size, slopes) < 2 * own + 1:
            below = price
        else:
            above = price
    at_least = _taken(below, node, first_child, noisy, total, low, size, slopes)
    at_most = _taken(above, node, first_child, noisy, total, low, size, slopes)
    least = min(max(at_least, min(at_most, (2 * own - above) >> 1)), end)
    begin, end = max(begin, least - cut), min(end, least + cut)
    low[node], size[node] = begin, max(end - begin, 0)
    if end <= begin:  # one value, or the children begin above the total, which the root detects
        return
    # Sort all slopes of the children from that of begin + 1 to that of end, including ties.
    reach = np.int64(1)
    while _taken(below - reach, node, first_child, noisy, total, low, size, slopes) > begin:
        reach *= 2
    most = _above(end, above, node, first_child, noisy, total, low, size, slopes)
    lowest = _least(begin + 1, below - reach, most, node, first_child, noisy, total, low, size, slopes)
    highest = _least(end, lowest - 1, most, node, first_child, noisy, total, low, size, slopes)
    found = 0
    for child in range(first, last):
        if first >= inner:
            k = max(noisy[child] + (lowest >> 1), 0) + 1  # the first slope that is at least `lowest`
            while k <= total and 2 * k - 1 - 2 * noisy[child] <= highest:
                merged[found] = 2 * k - 1 - 2 * noisy[child]
                found, k = found + 1, k + 1
        else:
            table = slopes[child, : size[child]]
            for i in range(np.searchsorted(table, lowest), np.searchsorted(table, highest, side="right")):
                merged[found] = table[i]
                found += 1
    merged[:found].sort()
    skipped = begin - _taken(lowest - 1, node, first_child, noisy, total, low, size, slopes)
    for i in range(end - begin):
        slopes[node, i] = merged[skipped + i] + 2 * (begin + i) + 1 - 2 * own


@kernel
def _above(at_least, price, node, first_child, noisy, total, low, size, slopes):  # type: ignore[no-untyped-def]  # compiled
    """Return a price above ``price`` at which the children's values sum to ``at_least`` or more."""
    reach = np.int64(1)
    while _taken(price + reach, node, first_child, noisy, total, low, size, slopes) < at_least:
        reach *= 2
    return price + reach


@kernel
def _fill_all(first_child, noisy, cut, total, low, size, slopes, merged):  # type: ignore[no-untyped-def]  # compiled
    """Write the cost tables of all inner nodes for one column (the noisy values of one size), from the leaves up."""
    for node in range(max(len(first_child) - 2, 0), -1, -1):
        _fill(node, first_child, noisy, cut, total, low, size, slopes, merged)


@kernel
def _width(cut, total):  # type: ignore[no-untyped-def]  # compiled
    return max(min(2 * cut, total), 1)


@kernel
def root_tables(first_child, columns, cut, total):  # type: ignore[no-untyped-def]  # compiled
    """Return the root's cost table for each column: its first value, its number of slopes, and its slopes.

    The shapes are (columns,), (columns,) and (columns, largest number of slopes).

    Args:
        first_child: children of each node, as in :class:`od_core.group_sizes.estimation.cost_tables.Tree`.
        columns: noisy values of all nodes for one size each; shape (columns, nodes).
        cut: largest number of stored values on either side of a table's minimum.
        total: number of groups of the top area, the largest value of a node.
    """
    inner, nodes, width = max(len(first_child) - 1, 1), columns.shape[1], _width(cut, total)
    lows, sizes = np.empty(len(columns), dtype=np.int64), np.empty(len(columns), dtype=np.int64)
    found = np.empty((len(columns), width), dtype=np.int64)
    low, size = np.empty(inner, dtype=np.int64), np.empty(inner, dtype=np.int64)
    slopes, merged = np.empty((inner, width), dtype=np.int64), np.empty(width + 2 * nodes, dtype=np.int64)
    for column in range(len(columns)):
        _fill_all(first_child, columns[column], cut, total, low, size, slopes, merged)
        lows[column], sizes[column] = low[0], size[0]
        found[column, : size[0]] = slopes[0, : size[0]]
    return lows, sizes, found


@kernel
def leaf_values(first_child, columns, roots, cut, total):  # type: ignore[no-untyped-def]  # compiled
    """Return the leaf values of each column at its root value in ``roots``, and mark columns with a value on a cut end.

    The shapes are (columns, leaves) and (columns,). The other arguments are those of :func:`root_tables`.
    """
    inner, nodes, width = len(first_child) - 1, columns.shape[1], _width(cut, total)
    tables = max(inner, 1)
    low, size = np.empty(tables, dtype=np.int64), np.empty(tables, dtype=np.int64)
    slopes, merged = np.empty((tables, width), dtype=np.int64), np.empty(width + 2 * nodes, dtype=np.int64)
    values = np.empty(nodes, dtype=np.int64)
    leaves = np.empty((len(columns), nodes - inner), dtype=np.int64)
    at_cut = np.zeros(len(columns), dtype=np.bool_)
    for column in range(len(columns)):
        noisy = columns[column]
        _fill_all(first_child, noisy, cut, total, low, size, slopes, merged)
        values[0] = roots[column]
        for node in range(inner):
            _share(values, node, first_child, noisy, total, low, size, slopes)
        for node in range(tables):
            begin, end = low[node], low[node] + size[node]
            if (values[node] == begin and begin > 0) or (values[node] == end and end < total):
                at_cut[column] = True
        leaves[column] = values[inner:]
    return leaves, at_cut


@kernel
def _share(values, node, first_child, noisy, total, low, size, slopes):  # type: ignore[no-untyped-def]  # compiled
    """Divide a node's value among its children at the least cost, and write the children's values into ``values``.

    The smallest slopes are taken first, and equal slopes in the order of the children.
    """
    inner = len(first_child) - 1
    first, last = first_child[node], first_child[node + 1]
    some = -np.int64(1)
    while _taken(some, node, first_child, noisy, total, low, size, slopes) > values[node]:
        some *= 2
    most = _above(values[node], 0, node, first_child, noisy, total, low, size, slopes)
    price = _least(values[node], some - 1, most, node, first_child, noisy, total, low, size, slopes)
    left = values[node] - _taken(price - 1, node, first_child, noisy, total, low, size, slopes)
    for child in range(first, last):
        if first >= inner:
            taken = min(max(noisy[child] + (price >> 1), 0), total)
            tied = taken < total and taken + 1 > 0 and 2 * (taken + 1) - 1 - 2 * noisy[child] == price
        else:
            table = slopes[child, : size[child]]
            place = np.searchsorted(table, price - 1, side="right")
            taken = low[child] + place
            tied = place < len(table) and table[place] == price
        if tied and left > 0:
            taken, left = taken + 1, left - 1
        values[child] = taken
