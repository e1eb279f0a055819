"""How uneven the parts of a box are: what DAF-Homogeneity makes small (Shaham et al., equation 22)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.compiled import kernel
from od_core.stops.filled_cells import Rows
from od_core.stops.grid import Counts
from od_core.stops.nodes import Nodes

SENSITIVITY = 2
"""What one trip more or less changes a score by, at most."""

_LARGE = np.int64((1 << 63) - 1)
"""Stands for any larger number of cells."""


def heterogeneity(
    rows: Rows, nodes: Nodes, dimension: int, parts: Counts, candidates: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Confidential: the score of every way to cut every node; shape (nodes, candidates).

    It is the sum over the parts of the whole number below O, O = sum of |f - mean| over all V cells of the part, empty
    ones included. As the deviations sum to 0, O is twice the sum of those above the mean: 2 (S - K c / V), with c the
    trips of the part, K the number of cells with more than c / V trips and S their trips. So 2 S - ceil(2 K c / V) is
    exact in 64 bits, for fewer than 2^31 trips; and where V is above 2 K c it is 2 S - 1, whatever V is.

    One trip more changes one part. There it changes one deviation by 1 - 1 / V at most and the V - 1 others by 1 / V,
    so O by 2 at most; and floor(O) by 2 at most, too, since O <= O' + 2 gives floor(O) <= floor(O') + 2. No finer unit
    is needed: the noise is some hundred times as wide.

    Args:
        rows: filled cells.
        nodes: whole in the dimension.
        dimension: that is cut.
        parts: of each node; shape (nodes,).
        candidates: first cells of the parts; shape (candidates, sum of parts).
    """
    sides = nodes.upper.astype(np.int64) - nodes.lower + 1
    sides[:, dimension] = 1
    others = np.ones(len(nodes), dtype=np.int64)
    for side in sides.T:
        others = np.where(others > _LARGE // side, _LARGE, others * side)
    scores = np.zeros((len(nodes), len(candidates)), dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(parts)))
    upper = nodes.upper[:, dimension]
    _score(rows, nodes.first, nodes.last, dimension, starts, candidates, upper, others, int(parts.max()), scores)
    return scores


@kernel
def _score(rows, firsts, lasts, dimension, starts, candidates, upper, others, most, scores):  # type: ignore[no-untyped-def]  # compiled
    """Scores of all nodes. The rows of a node are read once, and once more for each candidate that has dense parts.

    All cuts of all candidates of a node, sorted, are edges: what lies between two of them is counted once.
    """
    of_row, number = rows.shape[1] - 1, len(candidates)
    trips, filled = np.empty(number * most + 1, np.int64), np.empty(number * most + 1, np.int64)  # before each edge
    held, above, among, cells = np.empty((4, most), np.int64)
    for node in range(len(firsts)):
        first, last, start = firsts[node], lasts[node], starts[node]
        parts = starts[node + 1] - start
        edges = np.sort(candidates[:, start : start + parts].copy().ravel())
        count = len(edges)
        trips[: count + 1], filled[: count + 1] = 0, 0
        for i in range(first, last):
            edge = _part_of(rows[i, dimension], edges, count)
            trips[edge + 1] += rows[i, of_row]
            filled[edge + 1] += 1
        for edge in range(count):
            trips[edge + 1] += trips[edge]
            filled[edge + 1] += filled[edge]
        for candidate in range(number):
            begins = candidates[candidate, start : start + parts]
            is_dense = False
            begin = 0
            for part in range(parts):
                end = np.searchsorted(edges, begins[part + 1]) if part + 1 < parts else count
                length = np.int64(begins[part + 1] if part + 1 < parts else upper[node] + 1) - begins[part]
                cells[part] = _LARGE if others[node] > _LARGE // length else others[node] * length
                held[part] = trips[end] - trips[begin]
                above[part], among[part] = held[part], filled[end] - filled[begin]  # sparse: all are above the mean
                if held[part] >= cells[part]:
                    is_dense = True
                    above[part], among[part] = 0, 0
                begin = end
            if is_dense:
                for i in range(first, last):
                    part = _part_of(rows[i, dimension], begins, parts)
                    f = np.int64(rows[i, of_row])
                    if held[part] >= cells[part] and f * cells[part] > held[part]:
                        above[part] += f
                        among[part] += 1
            score = np.int64(0)
            for part in range(parts):
                score += 2 * above[part] + (-2 * among[part] * held[part]) // cells[part]
            scores[node, candidate] = score


@kernel
def _part_of(cell, begins, parts):  # type: ignore[no-untyped-def]  # compiled
    """The last part that begins at or before the cell, by bisection without a branch."""
    part = 0
    while parts > 1:
        half = parts >> 1
        part += half * (begins[part + half] <= cell)
        parts -= half
    return part
