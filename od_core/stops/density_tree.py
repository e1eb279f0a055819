"""Trees whose depth i cuts dimension i + 1 as finely as a noisy count allows (Shaham et al., section 4; spec 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from od_core.stops.boxes import Drawn
from od_core.stops.fan_out import Rounding, check_rounding, fan_out
from od_core.stops.filled_cells import Rows, filled_cells
from od_core.stops.grid import Counts, Grid, Points
from od_core.stops.nodes import Nodes, joined, refuse_too_many
from od_core.stops.path import Path

ROOT_SHARE = Fraction(1, 100)
"""Of the budget, for the number of all trips (equation 33)."""

_BITS_OF_WEIGHT = 20
"""Weights of the depths are powers of m0^(1/3), rounded down to so many bits after the point: shares are fractions."""


@dataclass(frozen=True)
class DensityTree:
    """What DAF-Entropy and DAF-Homogeneity have in common (algorithms 2 and 3).

    Every node is counted with noise; where the count is below 1 / (budget left on its path) the node is a leaf. Else
    its dimension is cut into as many parts as :func:`od_core.stops.fan_out.fan_out` says for the dimensions and the
    budget that are left. A leaf is measured again, with all that its path has left; its first count is not used again.
    At full depth there is one measurement, with what is left. Where trips may be replaced, half the budget buys the
    same noise, and both rules, which are about noise, take half: twice the budget then gives the same tree.

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
        """That of the number of all trips; see :meth:`od_core.stops.mechanism.StopsMechanism.scales`."""
        return {"total": sensitivity / (ROOT_SHARE * epsilon)}

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """See :meth:`od_core.stops.mechanism.StopsMechanism.draw`."""
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
