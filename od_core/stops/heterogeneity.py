"""Score the cuts of a node by how evenly trips are spread within the parts, in whole numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from od_core.kernels import kernel
from od_core.stops.geometry import Counts, Nodes, Rows, find_part

SCORE_SENSITIVITY = 2
"""Largest change of a score of a cut (:func:`compute_heterogeneity`) when one trip is added or removed."""

_LARGE = np.int64((1 << 63) - 1)
"""Largest 64-bit integer, which replaces every larger number of cells."""


def compute_heterogeneity(
    rows: Rows, nodes: Nodes, dimension: int, parts: Counts, candidates: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the score of every candidate cut of every node; shape (nodes, candidates). The result is confidential.

    A low score means that trips are spread evenly within the parts. The score is the sum of floor(O) over the parts of
    the node [shaham2022stops, equation 22]. O is the sum of |f - c / V| over all V cells of the part, including empty
    cells, where f is the number of trips in a cell and c the number in the part. The deviations f - c / V sum to 0, so
    O is twice the sum of the positive deviations: 2 (S - K c / V), where K is the number of cells with more than c / V
    trips, and S is the number of trips in these cells. Therefore floor(O) = 2 S - ceil(2 K c / V), which is exact in 64
    bits for fewer than 2^31 trips. For every V of at least 2 K c > 0, floor(O) is 2 S - 1.

    One additional trip changes one deviation of one part by at most 1 - 1 / V and the V - 1 others by 1 / V, so O
    changes by at most 2. Then floor(O) changes by at most 2 as well, because O <= O' + 2 implies floor(O) <=
    floor(O') + 2. Rounding to integers loses little, because the noise is about a hundred times as wide.

    The nodes are not yet cut in ``dimension``. ``parts`` has the number of parts of each node, and ``candidates`` the
    first cell of every part in each candidate cut; shape (candidates, sum of parts).
    """
    sides = nodes.upper.astype(np.int64) - nodes.lower + 1
    sides[:, dimension] = 1
    layer_cells = np.ones(len(nodes), dtype=np.int64)  # number of a node's cells per cell of the cut dimension
    for side in sides.T:
        layer_cells = np.where(layer_cells > _LARGE // side, _LARGE, layer_cells * side)
    scores = np.zeros((len(nodes), len(candidates)), dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(parts)))
    upper, most_parts = nodes.upper[:, dimension], int(parts.max())
    _add_scores(rows, nodes.first, nodes.last, dimension, starts, candidates, upper, layer_cells, most_parts, scores)
    return scores


_CELLS, _TRIPS, _TRIPS_ABOVE, _CELLS_ABOVE = range(4)
"""Rows of the array ``of_parts``, with one column per part: V, c, S and K of :func:`compute_heterogeneity`."""


@kernel
def _add_scores(rows, firsts, lasts, dimension, starts, candidates, upper, layer_cells, most_parts, scores):  # type: ignore[no-untyped-def]  # compiled
    """Add the scores of all candidates of all nodes to ``scores``, which are 0.

    The first cells of the parts of all candidates of a node are sorted into one list of edges, and the trips between
    adjacent edges are counted once. The rows of a node are read once, and once more for each candidate that has a dense
    part. The parts of node n are ``starts[n]:starts[n + 1]``, and ``upper`` has the last cell of each node in the
    dimension. The score of a part is 2 S - ceil(2 K c / V); see :func:`compute_heterogeneity`.
    """
    before = np.empty((2, len(candidates) * most_parts + 1), np.int64)
    begins, of_parts = np.empty(most_parts + 1, np.int64), np.empty((4, most_parts), np.int64)
    for node in range(len(firsts)):
        first, last, start, end = firsts[node], lasts[node], starts[node], starts[node + 1]
        edges, parts = np.sort(candidates[:, start:end].copy().ravel()), end - start
        _count_before_edges(rows, first, last, dimension, edges, before)
        begins[parts] = np.int64(upper[node]) + 1  # where a further part would begin
        for candidate in range(len(candidates)):
            begins[:parts] = candidates[candidate, start:end]
            if _summarise_parts(begins[: parts + 1], edges, before, layer_cells[node], of_parts):
                _count_in_dense_parts(rows, first, last, dimension, begins[:parts], of_parts)
            for part in range(parts):
                ceiling = -((-2 * of_parts[_CELLS_ABOVE, part] * of_parts[_TRIPS, part]) // of_parts[_CELLS, part])
                scores[node, candidate] += 2 * of_parts[_TRIPS_ABOVE, part] - ceiling


@kernel
def _count_before_edges(rows, first, last, dimension, edges, before):  # type: ignore[no-untyped-def]  # compiled
    """Write the numbers of trips (row 0) and of filled cells (row 1) before each edge, and in total, into ``before``.

    The rows ``first:last`` belong to the node. The first of the sorted ``edges`` is the first cell of the node.
    """
    trips, filled = before
    trips[: len(edges) + 1], filled[: len(edges) + 1] = 0, 0
    for i in range(first, last):
        edge = find_part(rows[i, dimension], edges, 0, len(edges))
        trips[edge + 1] += rows[i, -1]
        filled[edge + 1] += 1
    for edge in range(len(edges)):
        trips[edge + 1] += trips[edge]
        filled[edge + 1] += filled[edge]


@kernel
def _summarise_parts(begins, edges, before, layer_cells, of_parts):  # type: ignore[no-untyped-def]  # compiled
    """Write V, c, S and K of the parts between adjacent ``begins`` into ``of_parts``; return whether a part is dense.

    A part is dense if it has at least as many trips as cells. Its S and K are set to 0, and are still to be counted. In
    other parts, every filled cell is above the mean. ``layer_cells`` is the number of the node's cells per cell of the
    cut dimension.
    """
    is_dense, begin = False, 0
    for part in range(len(begins) - 1):
        end = np.searchsorted(edges, begins[part + 1])
        length = begins[part + 1] - begins[part]
        cells = _LARGE if layer_cells > _LARGE // length else layer_cells * length
        trips, filled = before[0, end] - before[0, begin], before[1, end] - before[1, begin]
        of_parts[_CELLS, part], of_parts[_TRIPS, part] = cells, trips
        of_parts[_TRIPS_ABOVE, part], of_parts[_CELLS_ABOVE, part] = (0, 0) if trips >= cells else (trips, filled)
        is_dense |= trips >= cells
        begin = end
    return is_dense


@kernel
def _count_in_dense_parts(rows, first, last, dimension, begins, of_parts):  # type: ignore[no-untyped-def]  # compiled
    """Add the cells above the mean of each dense part to its K, and the trips in these cells to its S."""
    for i in range(first, last):
        part = find_part(rows[i, dimension], begins, 0, len(begins))
        trips_in_cell = np.int64(rows[i, -1])
        cells, trips = of_parts[_CELLS, part], of_parts[_TRIPS, part]
        is_dense = trips >= cells  # then both are below 2^31, so the next product fits 64 bits
        if is_dense and trips_in_cell * cells > trips:
            of_parts[_TRIPS_ABOVE, part] += trips_in_cell
            of_parts[_CELLS_ABOVE, part] += 1
