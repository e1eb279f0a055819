"""PrivTree (Zhang, Xiao & Xie 2016): a binary tree whose depth needs no budget of its own; then one count a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import count
from typing import ClassVar

import numpy as np
from flint import arb
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.noise.opendp import SCALE_SLACK
from od_core.noise.table import at_precision, rational
from od_core.privacy.budget import exact_fraction
from od_core.stops.geometry.grid import Counts, Grid, Points, Rows, filled_cells
from od_core.stops.geometry.nodes import Nodes, joined, refuse_too_many
from od_core.stops.mechanisms.mechanism import Drawn, whole_number
from od_core.stops.mechanisms.path import Path

_LN_2 = Fraction(6931471806, 10**10)
"""Above ln 2."""

LARGEST_THETA = 1 << 53

_STEPS = 1000
"""Lambda is so many parts of the paper's, or fewer."""


@dataclass(frozen=True)
class PrivTree:
    """Nodes are halved across their relatively widest side while a count, lowered by their depth, stands out of noise.

    A node of depth i with c trips splits if max(c - i delta, theta - delta) + Laplace noise of scale lambda exceeds
    theta. In the paper lambda = 3 / epsilon and delta = lambda ln 2, and all splits of a path together cost epsilon at
    most, however long it is. For whole numbers that is proven anew for the very lambda and delta of a plan, before they
    are used (:func:`od_core.stops.mechanisms.privtree.path_cost`), and so less noise is enough. A node of one cell is a
    leaf without a test.

    Attributes:
        tree_share: of the budget, for all splits; the leaves' counts have the rest.
        theta: a whole number.
    """

    tree_share: Fraction = Fraction(7, 10)
    theta: int = 0

    name: ClassVar[str] = "privtree"

    def __post_init__(self) -> None:
        share = exact_fraction("the share of the tree", self.tree_share)
        object.__setattr__(self, "tree_share", share)
        theta = whole_number(self.theta)
        if not 0 < share < 1 or theta is None or abs(theta) > LARGEST_THETA:
            raise OdError(
                "OD-STOPS-PRIVTREE",
                "the share of the tree must be above 0 and below 1, and theta a whole number from -2^53 to 2^53",
                next_step="correct the mechanism's options",
            )
        object.__setattr__(self, "theta", theta)

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {"tree_share": str(self.tree_share), "theta": str(self.theta)}

    def refuse(self, grid: Grid) -> None:
        """No grid is too large: the tree follows the trips."""

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Those of splits and of leaves; see ``StopsMechanism``. Raises OdError where a path could cost more."""
        scale, _ = proven_scale(self.tree_share * epsilon, sensitivity)
        leaves = sensitivity / ((1 - self.tree_share) * epsilon)
        return {"splits": scale, "leaves": leaves}

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """See :meth:`od_core.stops.mechanisms.mechanism.StopsMechanism.draw`."""
        tree_budget = self.tree_share * path.left
        scale, decay = proven_scale(tree_budget, path.sensitivity)
        path = path.charged(tree_budget)
        rows = filled_cells(points, grid)
        sizes = np.array(grid.sizes, dtype=np.int64)
        nodes, leaves = Nodes.root(rows, grid), []
        for depth in count():
            sides = nodes.upper.astype(np.int64) - nodes.lower + 1
            splits: NDArray[np.bool_] = np.any(sides > 1, axis=1)
            noisy = np.maximum(nodes.trips[splits] - depth * decay, self.theta - decay)
            noisy += path.noise(scale, len(noisy))
            splits[splits] = noisy > self.theta
            leaves.append(nodes.chosen(~splits))
            if not splits.any():
                break
            nodes, sides = nodes.chosen(splits), sides[splits]
            refuse_too_many(sum(map(len, leaves)) + 2 * len(nodes))
            nodes = _halved(nodes, sides, sizes, rows)
        noisy, path = path.measured(np.concatenate([each.trips for each in leaves]), path.left)
        return Drawn(joined(leaves, [noisy]), (path,), np.zeros(len(noisy), dtype=np.int32))


@cache
def proven_scale(epsilon: Fraction, sensitivity: int) -> tuple[Fraction, int]:
    """Lambda and delta for a tree that may cost so much, proven to cost no more. Raises OdError where none is.

    The paper's lambda, 3 / epsilon for one trip more or less, costs less than epsilon in whole numbers, and twice as
    wide, for replaced trips, far less. So lambda is the least multiple of a thousandth of that which is proven.
    """
    paper = 3 * sensitivity / epsilon
    enough = path_cost(paper, _decay(paper), sensitivity) / epsilon
    for steps in range(max(1, int(enough * _STEPS)), _STEPS + 1):
        scale = paper * Fraction(steps, _STEPS)
        if path_cost(scale, _decay(scale), sensitivity) <= epsilon:
            return scale, _decay(scale)
    raise OdError(
        "OD-STOPS-PATH-COST",
        f"the splits of a path with noise of scale {float(paper):.6g} could cost more than epsilon {epsilon}",
        next_step="report this defect",
    )


def _decay(scale: Fraction) -> int:
    """Delta: the least whole number above lambda ln 2."""
    return -int(-scale * _LN_2 // 1)


def _halved(nodes: Nodes, sides: Counts, sizes: Counts, rows: Rows) -> Nodes:
    """Both halves of every node, cut across the side that is widest for its dimension; the first of equal ones."""
    widest = np.argmax(np.where(sides > 1, sides / sizes, 0), axis=1)
    begins = np.empty(2 * len(nodes), dtype=np.int32)
    each = np.arange(len(nodes))
    begins[::2] = nodes.lower[each, widest]
    begins[1::2] = begins[::2] + sides[each, widest] // 2
    return nodes.divided(rows, widest, np.full(len(nodes), 2), begins)


# What the splits along a path of PrivTree tell of a trip, proven by ball arithmetic (docs/stops-privtree.md).


_BITS = 192
"""Of the balls; scales up to 2^50 leave more than a hundred of them."""

_TERMS = 200
"""That are summed one by one; the others are bounded by a geometric series."""

_RESULT_BITS = 64


@lru_cache(maxsize=64)
def path_cost(scale: Fraction, decay: int, sensitivity: int) -> Fraction:
    """The most that all splits on a path can tell: an upper bound of the log ratio of their probabilities.

    A node of depth i with c trips splits if max(c - i decay, theta - decay) + L > theta, L discrete Laplace of this
    scale. Write x = c - i decay - theta and, with a = exp(-1 / scale),

        rho(x) = ln P(x + 1 + L > 0) / P(x + L > 0) = 1 / scale for x <= 0, ln (1 + a - a^(x+1)) / (1 + a - a^x) above.

    A trip more raises x by 1 at every node that it is in; below x = -decay the floor hides it. Down a path trips become
    fewer, so x falls by decay or more from node to node. rho never rises with x, so the sum of rho over the nodes that
    split is largest where the last of them has x = -decay, and each above it decay more: -decay, 0, decay, ...:

        one trip more than without it: 2 / scale + rho(decay) + rho(2 decay) + ...
        one trip fewer: at most 1 / scale, from the node that does not split; splits only lower the ratio.

    Every path with as many trips in each of its nodes comes near it, so it is no less. A replaced trip is one more on
    one path and one fewer on another, and both bounds add up.

    Args:
        scale: of the noise, lambda; holds for all scales from this to (1 + 2^-30) times it, which backends draw from.
        decay: delta, a whole number of at least 1; the theorem of Zhang et al. 2016 asks for scale ln 2 or more.
        sensitivity: 1, or 2 where a trip may be replaced.
    """
    with at_precision(_BITS):
        rate = 1 / arb(rational(scale)).union(arb(rational(scale * (1 + SCALE_SLACK))))
        a, complement = (-rate).exp(), -(-rate).expm1()
        fading = (-rate * decay).exp()  # a^decay
        more, power = 2 * rate, arb(1)
        for _ in range(_TERMS):
            power *= fading
            more += (power * complement / (1 + a - power)).log1p()
        # ln(1 + y) <= y, and 1 + a - a^x >= 1: the rest is at most a geometric series
        more += power * fading * complement / -(-rate * decay).expm1()
        total = more if sensitivity == 1 else more + rate
        units = (total.upper() * 2**_RESULT_BITS).ceil().upper()
        return Fraction(int(units.unique_fmpz()), 2**_RESULT_BITS)
