"""Predict the error of a release at every level, from the tree and the noise variances alone.

A node's estimate is its own value plus its share of the difference between the parent's estimate c and the sum of the
siblings: z_i + (c - sum z) v_i / sum v, where v are the variances of z. In a top-down release, z is the measured value.
In a least-squares release, z is the best estimate from the node and the levels below it. The siblings affect c through
sum z alone, so in both cases

    Var_i = v_i - v_i^2 / S + (v_i / S)^2 Var(c),  S the sum of v over the siblings.

v follows from the shape of the subtree, which combines the subtree of an origin area with that of a destination area.
So nodes are grouped by the pair of the two shapes, and the sums over 10^11 pairs of zones become small matrix products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography

MAX_SHAPES = 1024
"""Shapes distinguished at a level of a geography. Above this number, areas with about as many zones count as one shape,
the mean of theirs. This is an approximation (to 0.4 % where tried) that bounds time (seconds) and memory (8 MB a
level)."""

Reals = NDArray[np.float64]

_NORMAL_VALUES = np.array([NormalDist().inv_cdf((k + 0.5) / 32) for k in range(32)])
"""Equally likely values of a standard normal variable."""


def expected_errors(tree: FlowTree, variances: Mapping[int, Fraction], *, refined: bool) -> list[float]:
    """Return the expected root-mean-square error over all public nodes of each level, where no node is cut at zero.

    Rounding to whole numbers is included. IntOpt does not shift siblings evenly, unlike the formula of this module,
    which matters for standard deviations below about 5. In simulations of siblings that differ by more than the noise,
    the result is within 10 % for standard deviations of at least 0.6. Two cases are outside that range. Least-squares
    errors predicted below 0.75 are smaller in fact, since rounding then finds the truth. Errors of nearly equal
    siblings are larger, since the noise then decides which of them IntOpt takes from: by a quarter for a standard
    deviation of 1, by 5 % for 10.

    Args:
        tree: The public flow tree.
        variances: sigma^2 of each measured level. If level 0 is missing, the total is known exactly. At any other
            missing level, each node has one child and takes its values from it.
        refined: Whether least squares over all levels are followed by integers. If False, each level is estimated from
            the level above and its own noise.

    Returns:
        One number of trips for each level 0 to T.

    Raises:
        OdError: If the last level, or a level whose nodes have several children, is missing.
    """
    _check_measured(tree, variances)
    steps, nodes = _shape_pairs(tree)
    own = [np.full((1, 1), float(variances[tree.depth]))]
    siblings: list[Reals] = []
    for level in range(tree.depth - 1, -1, -1):
        below = steps[level].over_children(own[0])
        siblings.insert(0, below)
        own.insert(0, _own_variance(below, variances.get(level), refined))

    estimate = np.zeros((1, 1))
    if 0 in variances:
        estimate = own[0] + (1 / 12 if refined else 0)  # a least-squares root is rounded, a measured one is whole
    errors = [float(estimate[0, 0]) ** 0.5]
    for level, step in enumerate(steps, start=1):
        v, s = own[level], siblings[level - 1]
        # Least squares are rounded first, so the siblings differ from c by the sum of their rounding errors.
        lacking = step.fan_out / 12 if refined else step.over_whole(estimate + s)
        rounding = _shift_error(step.fan_out, lacking) + ((1 - 1 / step.fan_out) / 12 if refined else 0)
        estimate = v + v**2 * step.over_parents((estimate / s - 1) / s) + step.to_children(rounding)
        estimate = np.maximum(estimate, 0)  # the only child of a known parent is known, up to floating-point error
        origins, destinations = nodes[level]
        errors.append(float(origins @ estimate @ destinations / tree.cells(level)) ** 0.5)
    return errors


def summed_errors(tree: FlowTree, variance: Fraction) -> list[float]:
    """Return the root-mean-square error over all public nodes of levels 0 to T, if leaf pairs have independent noise.

    The noise of the leaf pairs below a node adds up [boninsegna2025inftda, Proposition 1].
    """
    leaves = tree.cells(tree.depth)
    return [float(variance * leaves / tree.cells(level)) ** 0.5 for level in range(tree.depth + 1)]


@dataclass(frozen=True, eq=False)
class _Step:
    """A step from the pairs of shapes of one level to those of the next, which divides one side.

    Attributes:
        splits_origin: Whether the origin is divided; otherwise the destination is.
        children: Number of children of each shape that an area of each shape has; shape (shapes above, shapes below).
        parents: Share of the areas of a shape that lie in areas of each shape above; shape of ``children``.
        whole: Share of the areas of the side that is not divided that have each shape.
    """

    splits_origin: bool
    children: Reals
    parents: Reals
    whole: Reals

    @property
    def fan_out(self) -> Reals:
        """Number of children of an area of each shape above."""
        total: Reals = self.children.sum(axis=1)
        return total

    def over_children(self, values: Reals) -> Reals:
        """Return the sum over the children of each node."""
        return self.children @ values if self.splits_origin else values @ self.children.T

    def over_parents(self, values: Reals) -> Reals:
        """Return the mean over the parents of the nodes of each pair of shapes."""
        return self.parents.T @ values if self.splits_origin else values @ self.parents

    def over_whole(self, values: Reals) -> Reals:
        """Return the mean over the areas of the side that is not divided; shape (shapes above,)."""
        mean: Reals = values @ self.whole if self.splits_origin else self.whole @ values
        return mean

    def to_children(self, values: Reals) -> Reals:
        """Return, for each pair of shapes below, the mean of ``values`` over the parents on the divided side."""
        below: Reals = values @ self.parents
        return below[:, np.newaxis] if self.splits_origin else below


@dataclass(frozen=True, eq=False)
class _Shapes:
    """The areas of a geography, grouped by the shape of their subtrees.

    Attributes:
        areas: For each level, the number of areas of each shape.
        pairs: For each level but the last, the number of parent-child pairs of each two shapes; shape (shapes, shapes
            below).
    """

    areas: list[Reals]
    pairs: list[Reals]


def _own_variance(below: Reals, variance: Fraction | None, refined: bool) -> Reals:
    """Return v of the nodes of a level whose children's v sum to ``below``."""
    if variance is None:
        return below
    return 1 / (1 / float(variance) + 1 / below) if refined else np.full_like(below, float(variance))


def _shift_error(fan_out: Reals, lacking: Reals) -> Reals:
    """Return the mean squared difference of IntOpt's shift from an even one, for a normal deficit with these variances.

    The deficit is what the siblings lack to their parent's c. If none is cut at zero, IntOpt shifts all b siblings by
    a, the deficit / b rounded up, and takes the excess E from the smallest. Where a > 0, siblings fall to -a one after
    the other; otherwise E of them fall by one.
    """
    x = np.rint(np.multiply.outer(_NORMAL_VALUES, np.sqrt(lacking)))
    a = np.ceil(x / fan_out)
    excess = a * fan_out - x
    last = excess % np.maximum(2 * a, 1)  # taken from the last one, which does not fall to -a
    f = excess / fan_out
    up = 2 * a * f - f**2 - (2 * a - last) * last / fan_out
    error: Reals = np.where(a > 0, up, f * (1 - f)).mean(axis=0)
    return error


def _shape_pairs(tree: FlowTree) -> tuple[list[_Step], list[tuple[Reals, Reals]]]:
    """Return the steps between levels, and the number of origin and destination areas of each shape at each level."""
    origin = _shapes(tree.origin)
    destination = origin if tree.destination is tree.origin else _shapes(tree.destination)
    nodes = [
        (origin.areas[at_origin], destination.areas[at_destination])
        for at_origin, at_destination in map(tree.level_pair, range(tree.depth + 1))
    ]
    steps = []
    for level in range(1, tree.depth + 1):
        split = 0 if tree.refines_origin(level) else 1
        pairs = (origin, destination)[split].pairs[tree.level_pair(level - 1)[split]]
        above, below, whole = nodes[level - 1][split], nodes[level][split], nodes[level][1 - split]
        steps.append(_Step(split == 0, pairs / above[:, np.newaxis], pairs / below, whole / whole.sum()))
    return steps, nodes


def _shapes(geography: Geography) -> _Shapes:
    """Group the areas of a geography by shape, bottom up.

    Areas have the same shape if they have equally many children of each shape.
    """
    shape = np.zeros(len(geography.zones), dtype=np.int64)
    areas: list[Reals] = [np.array([float(len(shape))])]
    pairs: list[Reals] = []
    for level in range(geography.depth - 1, -1, -1):
        parents = geography.parents[level + 1]
        above = _shapes_above(geography, level, shape)
        sizes = np.bincount(above)
        width = len(areas[0])
        both = np.bincount(above[parents] * width + shape, minlength=len(sizes) * width)
        pairs.insert(0, both.reshape(-1, width).astype(np.float64))
        areas.insert(0, sizes.astype(np.float64))
        shape = above
    return _Shapes(areas, pairs)


def _shapes_above(geography: Geography, level: int, shape: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the shape of each area of a level, from the shapes of the level below."""
    width = int(shape.max()) + 1
    ordered = np.sort(geography.parents[level + 1] * width + shape) % width  # the children of each area by shape
    known: dict[bytes, int] = {}
    runs = pairwise(geography.first_child[level].tolist())
    above = np.array([known.setdefault(ordered[first:end].tobytes(), len(known)) for first, end in runs])
    if len(known) > MAX_SHAPES:
        by_size = np.lexsort((np.diff(geography.first_child[level]), geography.zones_below(level)))
        above[by_size] = np.arange(len(above)) * MAX_SHAPES // len(above)
    return above


def _check_measured(tree: FlowTree, variances: Mapping[int, Fraction]) -> None:
    for level in range(1, tree.depth + 1):
        if level not in variances and tree.largest_fan_out(level) != 1:
            raise OdError(
                "OD-LEVEL-UNMEASURED",
                f"level {level} is not measured and cannot be computed from the level below it",
                next_step="give the variance of every measured level of the plan",
            )
