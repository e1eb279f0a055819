"""Trees whose depth i cuts dimension i + 1 as finely as a noisy count allows (Shaham et al., section 4; spec 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.kernels import kernel
from od_core.noise.keystream import Keystream
from od_core.privacy.budget import exact_fraction
from od_core.stops.geometry.grid import Counts, Grid, Points, Rows, filled_cells
from od_core.stops.geometry.nodes import Nodes, joined, refuse_too_many
from od_core.stops.mechanisms.mechanism import Drawn, Rounding, check_rounding, fan_out, whole_number
from od_core.stops.mechanisms.path import Path

ROOT_SHARE = Fraction(1, 100)
"""Of the budget, for the number of all trips (equation 33)."""

_BITS_OF_WEIGHT = 20
"""Weights of the depths are powers of m0^(1/3), rounded down to so many bits after the point: shares are fractions."""


@dataclass(frozen=True)
class DensityTree:
    """What DAF-Entropy and DAF-Homogeneity have in common (algorithms 2 and 3).

    Every node is counted with noise; where the count is below 1 / (budget left on its path) the node is a leaf. Else
    its dimension is cut into as many parts as :func:`od_core.stops.mechanisms.mechanism.fan_out` says for the
    dimensions and the budget that are left. A leaf is measured again, with all that its path has left; its first count
    is not used again. At full depth there is one measurement, with what is left. Where trips may be replaced, half the
    budget buys the same noise, and both rules, which are about noise, take half: twice the budget then gives the same
    tree.

    Attributes:
        rounding: of the number of parts; three halves of m was measured best.
    """

    rounding: Rounding = "times_1.5"

    def __post_init__(self) -> None:
        check_rounding(self.rounding)

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {"rounding": self.rounding}

    def refuse(self, grid: Grid) -> None:
        """No grid is too large: the tree follows the trips."""

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """That of the number of all trips; see :meth:`od_core.stops.mechanisms.mechanism.StopsMechanism.scales`."""
        return {"total": sensitivity / (ROOT_SHARE * epsilon)}

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """See :meth:`od_core.stops.mechanisms.mechanism.StopsMechanism.draw`."""
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
        """What the choice of cuts is charged: out of the depth's share, but for the root's, which is beside it."""
        return Fraction(0)

    def cuts(
        self, rows: Rows, nodes: Nodes, depth: int, parts: Counts, length: int, choosing: Fraction, path: Path
    ) -> NDArray[np.int32]:
        """First cells of all parts of all nodes, which are whole in dimension ``depth``; shape (sum of parts,).

        Args:
            choosing: what the path has paid for the choice, if the length is above 1.
        """
        return equal_parts(parts, length)


def equal_parts(parts: Counts, length: int) -> NDArray[np.int32]:
    """First cells of each of so many nearly equal parts of ``length`` cells, one after the other."""
    of = np.repeat(parts, parts)
    return (number_of_part(parts) * length // of).astype(np.int32)


def number_of_part(parts: Counts) -> Counts:
    """0, 1, ..., parts - 1 for every node; shape (sum of parts,)."""
    return np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)


def shares_below(left: Fraction, root_parts: int, dimensions: int) -> list[Fraction]:
    """Shares of depths 1 to d of what is left below the root, as m0^(i / 3) to depth i (equation 32)."""
    weights = [_cube_root(root_parts**depth << 3 * _BITS_OF_WEIGHT) for depth in range(1, dimensions + 1)]
    return [left * Fraction(weight, sum(weights)) for weight in weights]


def _cube_root(number: int) -> int:
    """The largest whole number whose cube is at most this one."""
    root = 1 << -(-number.bit_length() // 3)  # at least the root; Newton's steps fall from there
    while (lower := (2 * root + number // root**2) // 3) < root:
        root = lower
    return root


# How uneven the parts of a box are: what DAF-Homogeneity makes small (Shaham et al., equation 22).


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


# A choice among candidates by their noisy scores, charged whatever their number.


def choice_scale(epsilon: Fraction, sensitivity: int) -> Fraction:
    """Scale of the noise on every score: 2 D / epsilon, where a trip moves a score by D."""
    return 2 * SENSITIVITY * sensitivity / epsilon


def noisy_minimum(scores: Counts, epsilon: Fraction, path: Path) -> Counts:
    """The candidate of least score with discrete Laplace noise; shape (nodes,) from (nodes, candidates).

    It costs epsilon, which the path has paid, and no more whatever the number of candidates. Fix the noise of all but
    one of them: that one is chosen if its noise is at most some whole number (ties go to the first). A trip more or
    less moves its own score by D at most and those that it is compared with by D, so that number by 2 D, and the
    probability by a factor of exp(2 D / scale) at most. D scores move apart, some up and some down, so that half the
    noise would not do. A replaced trip is one fewer and one more, in one node or in two: the noise is twice as wide.
    """
    noise = path.noise(choice_scale(epsilon, path.sensitivity), scores.size)
    chosen: Counts = np.argmin(scores + noise.reshape(scores.shape), axis=1)
    return chosen


# DAF-Entropy (Shaham et al., section 4.2): nodes are cut into equal parts.


@dataclass(frozen=True)
class DAFEntropy(DensityTree):
    """The tree of algorithm 2, each node cut into nearly equal parts."""

    name: ClassVar[str] = "daf_entropy"


# DAF-Homogeneity (Shaham et al., section 4.3, corrected): nodes are cut where their parts are most even.


MOST_CANDIDATES = 1000
"""The work grows with them, the gain hardly does."""


@dataclass(frozen=True)
class DAFHomogeneity(DensityTree):
    """The tree of algorithm 3: of some random ways to cut a node, the one whose parts are most even, with noise.

    The cuts are those of p random candidates whose parts are most even (``heterogeneity.py``), chosen with noise
    (``choice.py``). The paper differs in what would break the promise: its noise is 2 / (p epsilon) wide, and its root
    chooses without a charge; and in what would not work: it draws m cuts and sums m + 1 parts. Here the choice comes
    after the test whether a node stops, so that a leaf keeps what it would have cost, and the root pays for its own. A
    node that goes on in one part, with nothing to choose, pays all the same, so that a depth has one path.

    Attributes:
        rounding: see :class:`DensityTree`.
        candidates: p, the number of ways to cut that are looked at.
        choosing_share: q, of the share of a depth, what the choice is charged.
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
        """Options as public text."""
        more = {"candidates": str(self.candidates), "choosing_share": str(self.choosing_share)}
        return super().options | more

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Those of the number of all trips and of the root's choice; see ``StopsMechanism``."""
        choice = choice_scale(ROOT_SHARE * epsilon, sensitivity)
        return {**super().scales(epsilon, sensitivity), "root_choice": choice}

    def choosing(self, depth: int, share: Fraction) -> Fraction:
        """The share of the choice; at the root as much as its count."""
        return self.choosing_share * share if depth else share

    def cuts(
        self, rows: Rows, nodes: Nodes, depth: int, parts: Counts, length: int, choosing: Fraction, path: Path
    ) -> NDArray[np.int32]:
        """First cells of the parts of the chosen candidates; see :class:`DensityTree`."""
        candidates = random_parts(parts, length, self.candidates)
        scores = heterogeneity(rows, nodes, depth, parts, candidates)
        chosen, is_cut = np.zeros(len(parts), dtype=np.int64), parts > 1
        chosen[is_cut] = noisy_minimum(scores[is_cut], choosing, path)
        begins: NDArray[np.int32] = candidates[np.repeat(chosen, parts), np.arange(parts.sum())]
        return begins


def random_parts(parts: Counts, length: int, candidates: int) -> NDArray[np.int32]:
    """Random first cells of the parts of every node, of so many candidates; shape (candidates, sum of parts).

    The cut before part j is uniform on the cells within half a part of j / m, where an equal cut would be: these
    stretches are disjoint and have a cell at least, so the cuts are distinct. Drawn by a key of the operating system's
    for this call alone, and no function of the trips but through the numbers of parts, which have noise.
    """
    of, part = np.repeat(parts, parts), number_of_part(parts)
    low, high = (-(-((2 * part + side) * length) // (2 * of)) for side in (-1, 1))  # least cells at or after the ends
    words = (Keystream().words(64, candidates * len(part)) >> np.uint64(33)).astype(np.int64)
    begins = low + (words.reshape(candidates, len(part)) * (high - low) >> 31)
    return np.where(part == 0, 0, begins).astype(np.int32)
