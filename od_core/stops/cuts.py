"""Choose where to cut the nodes of a density tree, by a score of each candidate and noise on the scores."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from od_core.kernels import kernel
from od_core.noise.table import Keystream
from od_core.stops.geometry import Counts, Nodes, Rows, part_of

if TYPE_CHECKING:
    from od_core.stops.mechanisms import Path


def equal_parts(parts: Counts, length: int) -> NDArray[np.int32]:
    """Divide ``length`` cells into nearly equal parts for each node, and return the first cell of every part.

    ``parts`` has the number of parts of each node. The parts of the first node come first; shape (sum of parts,).
    """
    of = np.repeat(parts, parts)
    return (number_of_part(parts) * length // of).astype(np.int32)


def number_of_part(parts: Counts) -> Counts:
    """Return the number of every part within its node: 0, 1, ..., parts - 1 for each node; shape (sum of parts,)."""
    return np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)


SENSITIVITY = 2
"""Largest change of a score of a cut (:func:`heterogeneity`) when one trip is added or removed."""

_LARGE = np.int64((1 << 63) - 1)
"""Largest 64-bit integer, which replaces every larger number of cells."""


def heterogeneity(
    rows: Rows, nodes: Nodes, dimension: int, parts: Counts, candidates: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the score of every candidate cut of every node; shape (nodes, candidates). The result is confidential.

    A low score means that trips are spread evenly within the parts. The score is the sum of floor(O) over the parts of
    the node [shaham2022stops, equation 22]. O is the sum of |f - c / V| over all V cells of the part, including empty
    cells, where f is the number of trips in a cell and c the number in the part. The deviations f - c / V sum to 0, so
    O is twice the sum of the positive deviations: 2 (S - K c / V), where K is the number of cells with more than c / V
    trips, and S is the number of trips in these cells. Therefore floor(O) = 2 S - ceil(2 K c / V), which is exact in 64
    bits for fewer than 2^31 trips. For every V of at least 2 K c > 0, floor(O) is 2 S - 1.

    One additional trip changes one part. It changes one deviation by at most 1 - 1 / V and the V - 1 others by 1 / V,
    so O changes by at most 2. Then floor(O) changes by at most 2 as well, because O <= O' + 2 implies floor(O) <=
    floor(O') + 2. Rounding to integers loses little, because the noise is about a hundred times as wide.

    Args:
        rows: cells with trips, as in :data:`od_core.stops.geometry.Rows`.
        nodes: nodes that are not yet cut in the dimension.
        dimension: dimension to cut.
        parts: number of parts of each node; shape (nodes,).
        candidates: first cell of every part in each candidate cut; shape (candidates, sum of parts).
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
    """Write the scores of all candidates of all nodes into ``scores``.

    The first cells of the parts of all candidates of a node are sorted into one list of edges, and the trips between
    adjacent edges are counted once. A part is dense if it has at least as many trips as cells. The rows of a node are
    read once, and once more for each candidate that has a dense part.
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
            edge = part_of(rows[i, dimension], edges, 0, count)
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
                above[part], among[part] = held[part], filled[end] - filled[begin]  # sparse: all filled cells count
                if held[part] >= cells[part]:
                    is_dense = True
                    above[part], among[part] = 0, 0
                begin = end
            if is_dense:
                for i in range(first, last):
                    part = part_of(rows[i, dimension], begins, 0, parts)
                    f = np.int64(rows[i, of_row])
                    if held[part] >= cells[part] and f * cells[part] > held[part]:
                        above[part] += f
                        among[part] += 1
            score = np.int64(0)
            for part in range(parts):
                score += 2 * above[part] + (-2 * among[part] * held[part]) // cells[part]
            scores[node, candidate] = score


def choice_scale(epsilon: Fraction, sensitivity: int) -> Fraction:
    """Return the scale of the noise on every score, 2 D / epsilon, where D is the most that a score may change.

    D is ``SENSITIVITY`` times ``sensitivity``, which is 1 for unbounded and 2 for bounded neighbours.
    """
    return 2 * SENSITIVITY * sensitivity / epsilon


def noisy_minimum(scores: Counts, epsilon: Fraction, path: Path) -> Counts:
    """Return the number of the candidate with the least noisy score for each node; shape (nodes,).

    The choice costs epsilon for any number of candidates. To see this, fix the noise of all candidates but one. This
    candidate is chosen if its noise is at most some integer (of equal noisy scores, the first is chosen). Adding or
    removing a trip changes the candidate's score by at most D = ``SENSITIVITY``, and the scores that it is compared
    with by at most D. So it changes the integer by at most 2 D, and the probability of the choice by a factor of at
    most exp(2 D / scale). Some scores may rise while others fall, so half the noise would not be enough. Replacing a
    trip removes one and adds one, in one node or in two, so the noise is then twice as wide.

    The scores are confidential; shape (nodes, candidates). The caller has already charged epsilon to the path.
    """
    noise = path.noise(choice_scale(epsilon, path.sensitivity), scores.size)
    chosen: Counts = np.argmin(scores + noise.reshape(scores.shape), axis=1)
    return chosen


def random_parts(parts: Counts, length: int, candidates: int) -> NDArray[np.int32]:
    """Draw random cuts of each node, and return the first cells of their parts; shape (candidates, sum of parts).

    For a node with m parts, equal parts would begin at j ``length`` / m for j = 0, ..., m - 1. Here, part 0 begins at
    cell 0, and the beginning of any other part j is uniform on the cells within half a part of that position. These
    ranges are disjoint and have at least one cell each, so the parts are not empty. The key of the random numbers comes
    from the operating system and is used in this call only. The result depends on the trips only through the noisy
    numbers of parts.
    """
    of, part = np.repeat(parts, parts), number_of_part(parts)
    low, high = (-(-((2 * part + side) * length) // (2 * of)) for side in (-1, 1))  # first cells at or after the ends
    words = (Keystream().words(64, candidates * len(part)) >> np.uint64(33)).astype(np.int64)
    begins = low + (words.reshape(candidates, len(part)) * (high - low) >> 31)
    return np.where(part == 0, 0, begins).astype(np.int32)
