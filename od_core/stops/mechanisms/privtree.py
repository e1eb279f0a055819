"""Grow a PrivTree [zhang2016privtree], a binary tree whose privacy cost does not grow with its depth."""

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
from od_core.stops.geometry import Boxes, Counts, Grid, Nodes, Points, Rows, filled_cells, joined, refuse_too_many
from od_core.stops.mechanisms.mechanism import Drawn, Path, whole_number

_LN_2 = Fraction(6931471806, 10**10)
"""Upper bound of ln 2."""

LARGEST_THETA = 1 << 53

_STEPS = 1000
"""Number of values of lambda that :func:`proven_scale` may try: k / ``_STEPS`` of the lambda of [zhang2016privtree]."""


@dataclass(frozen=True)
class PrivTree:
    """A binary tree in which a node is cut in half if a biased noisy count of its trips exceeds a threshold.

    The cut is across the side of the node that is widest relative to the grid. A node of depth i with c trips is cut if
    max(c - i delta, theta - delta) + Laplace noise of scale lambda exceeds theta. A node of one cell is a leaf without
    a test. Finally, all leaves are measured.

    In [zhang2016privtree], lambda = 3 / epsilon and delta = lambda ln 2, and all splits of a path together cost at most
    epsilon, for any length of the path. Here, the noise is discrete, and :func:`path_cost` proves the cost for the
    lambda and delta of a plan before they are used. This proof allows less noise than the paper.

    Attributes:
        tree_share: share of the budget for all splits. The rest of the budget measures the leaves.
        theta: threshold of the splits, an integer.
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
                "the share of the tree must be above 0 and below 1, and theta must be a whole number from -2^53 to"
                " 2^53",
                next_step="correct the mechanism's options",
            )
        object.__setattr__(self, "theta", theta)

    @property
    def options(self) -> dict[str, str]:
        """Options of the mechanism by name, as public text."""
        return {"tree_share": str(self.tree_share), "theta": str(self.theta)}

    def refuse(self, grid: Grid) -> None:
        """Accept every grid, because the number of boxes depends on the trips."""

    def scales(self, epsilon: Fraction, sensitivity: int) -> dict[str, Fraction]:
        """Return the noise scales of the splits and of the leaf counts; see :class:`StopsMechanism`.

        Raises:
            OdError: the splits of a path could cost more than their charge.
        """
        scale, _ = proven_scale(self.tree_share * epsilon, sensitivity)
        leaves = sensitivity / ((1 - self.tree_share) * epsilon)
        return {"splits": scale, "leaves": leaves}

    def count_scale(self, boxes: Boxes, grid: Grid, epsilon: Fraction, sensitivity: int) -> Fraction:
        """Return the noise scale of the leaf counts; see :class:`StopsMechanism`."""
        return self.scales(epsilon, sensitivity)["leaves"]

    def draw(self, points: Points, grid: Grid, path: Path) -> Drawn:
        """Grow the tree, and return its leaves with their noisy counts; see :class:`StopsMechanism`."""
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
    """Return lambda and delta of :class:`PrivTree` with which its splits are proven to cost at most epsilon.

    lambda is the scale of the noise, and delta the decay of the counts per depth. The lambda of [zhang2016privtree] is
    3 / epsilon for unbounded neighbours, and twice that for bounded neighbours. With discrete noise, this lambda costs
    less than epsilon, and for bounded neighbours far less. So fractions k / 1000 of it are tried in ascending order of
    k, and the first with a proven cost of at most epsilon is returned. k begins where the cost would be epsilon if the
    cost were proportional to 1 / lambda.

    Raises:
        OdError: no fraction up to 1000 / 1000 has a proven cost of at most epsilon.
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
    """Return delta, the decay of the counts per depth: lambda (``scale``) times ln 2, rounded up to an integer."""
    return -int(-scale * _LN_2 // 1)


def _halved(nodes: Nodes, sides: Counts, sizes: Counts, rows: Rows) -> Nodes:
    """Cut every node in half across its widest side relative to the grid, the first of equally wide sides.

    The filled cells ``rows`` are sorted in place by half; see :meth:`Nodes.divided`.
    """
    widest = np.argmax(np.where(sides > 1, sides / sizes, 0), axis=1)
    begins = np.empty(2 * len(nodes), dtype=np.int32)
    each = np.arange(len(nodes))
    begins[::2] = nodes.lower[each, widest]
    begins[1::2] = begins[::2] + sides[each, widest] // 2
    return nodes.divided(rows, widest, np.full(len(nodes), 2), begins)


# Cost of the splits along a path, proven by ball arithmetic (docs/explanation/stops.md).


_BITS = 192
"""Precision of the ball arithmetic in bits. For scales up to 2^50, more than a hundred bits of a result are exact."""

_TERMS = 200
"""Number of terms of the sum in :func:`path_cost` that are added one by one. A geometric series bounds the rest."""

_RESULT_BITS = 64


@lru_cache(maxsize=64)
def path_cost(scale: Fraction, decay: int, sensitivity: int) -> Fraction:
    """Return an upper bound of the epsilon that all splits on a path cost together.

    This bounds the logarithm of the ratio of the probabilities of these splits for two neighbouring inputs. A node of
    depth i with c trips splits if max(c - i decay, theta - decay) + L > theta, where L is discrete Laplace noise of
    this scale. Let x = c - i decay - theta, a = exp(-1 / scale) and rho(x) = ln(P(x + 1 + L > 0) / P(x + L > 0)). Then

        rho(x) = 1 / scale for x <= 0, and ln((1 + a - a^(x+1)) / (1 + a - a^x)) for x > 0.

    An added trip raises x by 1 at every node that contains it. At nodes with x < -decay, the maximum hides the added
    trip. The number of trips does not grow down a path, so x falls by at least decay from node to node. Since rho does
    not increase with x, the sum of rho over the nodes that split is largest if, from the last of them upwards, the
    values of x are -decay, 0, decay, ... This gives two bounds:

        one trip added: 2 / scale + rho(decay) + rho(2 decay) + ...
        one trip removed: at most 1 / scale, from the node that does not split; splits only lower the ratio.

    A path whose nodes have these values of x comes near the bound, so the bound cannot be lowered. Replacing a trip
    adds one on one path and removes one on another, so the two bounds are added.

    Args:
        scale: lambda, the scale of the noise. Noise backends may draw with a scale of up to (1 + 2^-30) lambda. The
            bound holds for all scales in this range.
        decay: delta, an integer of at least 1; the theorem of [zhang2016privtree] requires at least scale ln 2.
        sensitivity: 1, or 2 if a trip may be replaced.
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
