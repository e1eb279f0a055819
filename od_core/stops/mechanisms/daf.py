"""Grow trees of boxes in which the nodes of depth i, from 0, are cut in dimension i + 1 [shaham2022stops, section 4].

The noisy count of a node determines its number of parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.kernels import kernel
from od_core.noise.table import Keystream
from od_core.privacy.budget import exact_fraction
from od_core.stops.geometry import Boxes, Counts, Grid, Nodes, Points, Rows, filled_cells, joined, refuse_too_many
from od_core.stops.mechanisms.mechanism import (
    Drawn,
    Path,
    Rounding,
    check_rounding,
    fan_out,
    shares_below,
    whole_number,
)

ROOT_SHARE = Fraction(1, 100)
"""Share of the budget for the noisy total number of trips, the count of the root [shaham2022stops, equation 33]."""


@dataclass(frozen=True)
class DensityTree:
    """The common base of DAF-Entropy and DAF-Homogeneity [shaham2022stops, Algorithms 2 and 3].

    The tree grows from the root, which is the whole grid. Every node that has an uncut dimension is measured. Let
    epsilon be the budget that then remains on its path. If the noisy count is below 1 / epsilon, the node becomes a
    leaf. A leaf is measured again with the whole remaining budget, and its first count is discarded. Any other node is
    charged for the choice of its cuts, if there is a choice, and is cut in the dimension of its depth.
    :func:`od_core.stops.mechanisms.mechanism.fan_out` gives the number of parts from the noisy count, the remaining
    budget and the number of uncut dimensions. A node that is cut in all dimensions is a leaf too, and is measured once,
    with the whole remaining budget.

    For bounded neighbours, both rules (for leaves and for parts) use half of the remaining budget, because they depend
    on the scale of the noise. Twice the budget then gives the same tree as for unbounded neighbours.

    Attributes:
        rounding: rounding of the number of parts m to an integer. In tests, rounding three halves of m was best.
    """

    rounding: Rounding = "times_1.5"

    def __post_init__(self) -> None:
        check_rounding(self.rounding)

    @property
    def options(self) -> dict[str, str]:
        """Options of the mechanism by name, as public text."""
        return {"rounding": self.rounding}

    def refuse(self, grid: Grid) -> None:
        """Accept every grid, because the number of boxes depends on the trips."""

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scale of the total number of trips, as ``total``; see :class:`StopsMechanism`."""
        return {"total": sensitivity / (ROOT_SHARE * epsilon)}

    def count_scale(self, boxes: Boxes, grid: Grid, epsilon: Fraction, sensitivity: int) -> Fraction:
        """Return the noise scale of a box that is cut in every dimension; see :class:`StopsMechanism`.

        A node that becomes a leaf earlier has more budget left, so the noise on its count is narrower. The published
        boxes do not tell the two apart: a side of a box that is as long as the grid was either not cut, or cut into a
        single part. The number of parts of the root, which determines the shares of the budget, is the number of
        different first cells of the boxes in dimension 1.
        """
        shares = [ROOT_SHARE * epsilon]
        left = epsilon
        for depth, length in enumerate(grid.sizes):
            choosing = self.choosing(depth, shares[depth])
            left -= shares[depth] - (choosing if depth else 0)
            if length > 1:
                left -= choosing
            if depth == 0:
                shares += shares_below(left, len(np.unique(boxes.lower[:, 0])), grid.dimensions)
        return sensitivity / left

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """Grow the tree, and return its leaves with their noisy counts; see :class:`StopsMechanism`."""
        rows = filled_cells(points, grid)
        nodes, shares = Nodes.root(rows, grid), [ROOT_SHARE * path.left]
        leaves: list[tuple[Nodes, Counts, Path]] = []
        for depth, length in enumerate(grid.sizes):
            choosing = self.choosing(depth, shares[depth])
            counted, path = path.measured(nodes.trips, shares[depth] - (choosing if depth else 0))
            goes_on = counted >= math.ceil(path.sensitivity / path.left)
            if not goes_on.all():
                stopped = nodes.chosen(~goes_on)
                leaves.append((stopped, *path.measured(stopped.trips, path.left)))
            if not goes_on.any():
                break
            nodes = nodes.chosen(goes_on)
            if choosing and length > 1:
                path = path.charged(choosing)
            epsilon = path.left / path.sensitivity
            parts = fan_out(counted[goes_on], epsilon, grid.dimensions - depth, length, self.rounding)
            refuse_too_many(sum(len(stopped) for stopped, _, _ in leaves) + int(parts.sum()))
            begins = self.cuts(rows, nodes, depth, parts, length, choosing, path)
            nodes = nodes.divided(rows, np.full(len(nodes), depth), parts, begins)
            if depth == 0:
                shares += shares_below(path.left, int(parts[0]), grid.dimensions)
        else:
            leaves.append((nodes, *path.measured(nodes.trips, path.left)))
        kept, noisy, paths = zip(*leaves, strict=True)
        path_of = np.repeat(np.arange(len(kept), dtype=np.int32), [len(each) for each in kept])
        return Drawn(joined(kept, noisy), paths, path_of)

    def choosing(self, depth: int, share: Fraction) -> Fraction:
        """Return the epsilon that the choice of cuts costs at a depth. By default, it is 0: there is no choice.

        Args:
            depth: depth of the nodes that are cut.
            share: budget of this depth. Below the root, the choice is paid from this share. At the root, it is paid in
                addition.
        """
        return Fraction(0)

    def cuts(
        self, rows: Rows, nodes: Nodes, depth: int, parts: Counts, length: int, choosing: Fraction, path: Path
    ) -> NDArray[np.int32]:
        """Return where to cut the nodes in dimension ``depth``: the first cell of every part; shape (sum of parts,).

        The parts of the first node come first, then the parts of the second node, and so on. By default, the parts of a
        node are nearly equal.

        Args:
            rows: cells with trips, as in :data:`od_core.stops.geometry.Rows`.
            nodes: nodes of this depth, which are not yet cut in this dimension.
            depth: depth of the nodes, which is also the number of the dimension to cut, from 0.
            parts: number of parts of each node; shape (nodes,).
            length: number of cells of the dimension.
            choosing: epsilon that the path was charged for the choice of cuts. If ``length`` is 1, it was not charged.
            path: path of the nodes after this charge.
        """
        return equal_parts(parts, length)


def equal_parts(parts: Counts, length: int) -> NDArray[np.int32]:
    """Divide ``length`` cells into nearly equal parts for each node, and return the first cell of every part.

    ``parts`` has the number of parts of each node; shape (nodes,). The result has the parts of the first node first;
    shape (sum of parts,).
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
                above[part], among[part] = held[part], filled[end] - filled[begin]  # sparse: all filled cells count
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
    """Return the number of the last part that begins at or before the cell, by branch-free bisection."""
    part = 0
    while parts > 1:
        half = parts >> 1
        part += half * (begins[part + half] <= cell)
        parts -= half
    return part


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

    Args:
        scores: confidential scores; shape (nodes, candidates).
        epsilon: cost of the choice, which the caller has already charged to the path.
        path: path of the nodes.
    """
    noise = path.noise(choice_scale(epsilon, path.sensitivity), scores.size)
    chosen: Counts = np.argmin(scores + noise.reshape(scores.shape), axis=1)
    return chosen


@dataclass(frozen=True)
class DAFEntropy(DensityTree):
    """A tree of boxes whose nodes are cut into nearly equal parts [shaham2022stops, section 4.2, Algorithm 2]."""

    name: ClassVar[str] = "daf_entropy"


MOST_CANDIDATES = 1000
"""Largest number of candidates. More candidates take more time, but hardly improve the result."""


@dataclass(frozen=True)
class DAFHomogeneity(DensityTree):
    """A tree of boxes whose nodes are cut so that trips are spread evenly within the parts.

    For each node, p candidate cuts are drawn at random. The candidate with the lowest noisy score
    (:func:`heterogeneity`, :func:`noisy_minimum`) is chosen. The source is [shaham2022stops, section 4.3, Algorithm 3].

    The source has three errors that are corrected here. Its noise has scale 2 / (p epsilon), and the choice at the root
    is not charged; each of these breaks the privacy guarantee. It also draws m cuts but sums over m + 1 parts.

    A choice is charged only after the test whether a node becomes a leaf, so a leaf spends this part of the budget on
    its count. A node with a single part is charged although it has no choice, so that all nodes of a depth that are not
    leaves have the same path. In a dimension of one cell, no node is charged.

    Attributes:
        rounding: see :class:`DensityTree`.
        candidates: p, the number of candidate cuts.
        choosing_share: q, the part of the budget of a depth below the root that the choice costs.
    """

    candidates: int = 10
    choosing_share: Fraction = Fraction(3, 10)

    name: ClassVar[str] = "daf_homogeneity"

    def __post_init__(self) -> None:
        super().__post_init__()
        share = exact_fraction("the share of the choice", self.choosing_share)
        object.__setattr__(self, "choosing_share", share)
        candidates = whole_number(self.candidates)
        if candidates is None or not 1 <= candidates <= MOST_CANDIDATES or not 0 < share < 1:
            raise OdError(
                "OD-STOPS-CHOICE",
                f"there must be 1 to {MOST_CANDIDATES} candidates, and a share of the choice above 0 and below 1",
                next_step="correct the mechanism's options",
            )
        object.__setattr__(self, "candidates", candidates)

    @property
    def options(self) -> dict[str, str]:
        """Options of the mechanism by name, as public text."""
        more = {"candidates": str(self.candidates), "choosing_share": str(self.choosing_share)}
        return super().options | more

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales of the total number of trips and of the root's scores; see ``StopsMechanism``."""
        choice = choice_scale(ROOT_SHARE * epsilon, sensitivity)
        return {**super().scales(epsilon, sensitivity), "root_choice": choice}

    def choosing(self, depth: int, share: Fraction) -> Fraction:
        """Return the epsilon that the choice of cuts costs; see :meth:`DensityTree.choosing`.

        Below the root, it is ``choosing_share`` of the depth's share. At the root, the choice costs as much as the
        count.
        """
        return self.choosing_share * share if depth else share

    def cuts(
        self, rows: Rows, nodes: Nodes, depth: int, parts: Counts, length: int, choosing: Fraction, path: Path
    ) -> NDArray[np.int32]:
        """Choose a candidate for each node, and return the first cells of its parts; see :meth:`DensityTree.cuts`."""
        candidates = random_parts(parts, length, self.candidates)
        scores = heterogeneity(rows, nodes, depth, parts, candidates)
        chosen, is_cut = np.zeros(len(parts), dtype=np.int64), parts > 1
        chosen[is_cut] = noisy_minimum(scores[is_cut], choosing, path)
        begins: NDArray[np.int32] = candidates[np.repeat(chosen, parts), np.arange(parts.sum())]
        return begins


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
