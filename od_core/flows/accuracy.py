"""Predict the errors of a release at every level, from the flow tree and the noise variances alone.

Let z_i be the value of child i of a node before it is adjusted to the node's estimate c, and v_i the variance of z_i.
In a top-down release, z_i is the measured value. In a least-squares release, z_i is the best estimate from the child
and the levels below it. The estimate of the child is z_i + (c - sum z) v_i / S, where the sums are over all children of
the node and S = sum v. Since c depends on the children only through sum z, the variance of this estimate is

    Var_i = v_i - v_i^2 / S + (v_i / S)^2 Var(c).

The shape of the subtree below a node determines its v. It follows from two shapes: that of the subtree of the node's
origin area and that of its destination area. So nodes are grouped by pairs of shapes, and sums over 10^11 pairs of
zones become small matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.publication.number_formats import format_trips_rounded_up

MAX_SHAPES = 1024
"""Largest number of shapes (classes of equal subtrees) that are distinguished at a level of a geography. If there are
more, areas with similar numbers of zones are treated as one shape with the mean of their children. In trials, the
errors changed by at most 0.4 %. This limits the time to seconds and the memory to 8 MB per level."""


@dataclass(frozen=True, eq=False)
class Step:
    """A step from one level of the flow tree to the next, with nodes grouped by the shapes of their areas' subtrees.

    A value per pair of shapes is an array of shape (origin shapes, destination shapes). The step divides the areas of
    one side. The other side is called the whole side. "Above" and "below" are the two levels.

    Attributes:
        splits_origin: Whether the origin is the divided side. If False, it is the destination.
        children: On the divided side, the number of children of shape j of an area of shape i, in row i and column j;
            shape (shapes above, shapes below).
        parents: On the divided side, the share of the areas of shape j whose parent has shape i, in row i and column j;
            shape (shapes above, shapes below).
        whole: On the whole side, the share of the areas that have each shape; shape (shapes,).
    """

    splits_origin: bool
    children: Reals
    parents: Reals
    whole: Reals

    @property
    def fan_out(self) -> Reals:
        """Number of children of an area of each shape of the divided side; shape (shapes above,)."""
        total: Reals = self.children.sum(axis=1)
        return total

    def sum_over_children(self, values: Reals) -> Reals:
        """Return, for each pair of shapes above, the sum of ``values`` over the children of a node."""
        return self.children @ values if self.splits_origin else values @ self.children.T

    def average_over_parents(self, values: Reals) -> Reals:
        """Return, for each pair of shapes below, the mean of ``values`` over the parents of its nodes."""
        return self.parents.T @ values if self.splits_origin else values @ self.parents

    def find_largest_over_parents(self, values: Reals) -> Reals:
        """Return, for each pair of shapes below, the largest of ``values`` over the parents of its nodes."""
        above = values if self.splits_origin else values.T
        largest = np.array([above[shares > 0].max(axis=0) for shares in self.parents.T])
        return largest if self.splits_origin else largest.T

    def average_over_undivided_side(self, values: Reals) -> Reals:
        """Return, for each shape above of the divided side, the mean of ``values`` over the areas of the whole side."""
        return values @ self.whole if self.splits_origin else self.whole @ values


@dataclass(frozen=True, eq=False)
class Shapes:
    """The areas of a geography, grouped by the shape of their subtrees.

    Attributes:
        areas: For each level, the number of areas of each shape; shape (shapes,).
        pairs: For each level except the last, the number of pairs of a parent and a child by the shapes of both; shape
            (shapes of parents, shapes of children).
        of_areas: For each level, the number of the shape of each area; shape (areas,).
    """

    areas: list[Reals]
    pairs: list[Reals]
    of_areas: list[Integers]


def group_areas_by_shape(geography: Geography, max_shapes: int | None = None) -> Shapes:
    """Return the areas of a geography grouped by shape, from the zones upwards.

    Two areas have the same shape if, for each shape of the level below, they have the same number of children.
    ``max_shapes`` is the largest number of shapes that are distinguished at a level, by default :data:`MAX_SHAPES`.
    """
    max_shapes = MAX_SHAPES if max_shapes is None else max_shapes
    shape = np.zeros(len(geography.zones), dtype=np.int64)
    areas: list[Reals] = [np.array([float(len(shape))])]
    pairs: list[Reals] = []
    of_areas = [shape]
    for level in range(geography.depth - 1, -1, -1):
        parents, first_child, width = geography.parents[level + 1], geography.first_child[level], len(areas[0])
        shapes_of_children = np.sort(parents * width + shape) % width  # in ascending order within each area
        shape_numbers: dict[bytes, int] = {}  # by the shapes of all children
        shape_of_area = []
        for first, end in pairwise(first_child.tolist()):
            key = shapes_of_children[first:end].tobytes()
            shape_of_area.append(shape_numbers.setdefault(key, len(shape_numbers)))
        shape_above = np.array(shape_of_area)
        if len(shape_numbers) > max_shapes:  # that many groups of equal size, of areas with similar numbers of zones
            by_size = np.lexsort((np.diff(first_child), geography.count_zones_below(level)))
            shape_above[by_size] = np.arange(len(shape_above)) * max_shapes // len(shape_above)
        areas_of_shapes = np.bincount(shape_above)
        pairs_of_shapes = np.bincount(shape_above[parents] * width + shape, minlength=len(areas_of_shapes) * width)
        pairs.insert(0, pairs_of_shapes.reshape(-1, width).astype(np.float64))
        areas.insert(0, areas_of_shapes.astype(np.float64))
        of_areas.insert(0, shape_above)
        shape = shape_above
    return Shapes(areas, pairs, of_areas)


@dataclass(frozen=True, eq=False)
class ShapedTree:
    """The nodes of a flow tree, grouped by the shapes of their origin and destination areas.

    Attributes:
        steps: The steps to each level below the root.
        sides: The areas of the origin side and of the destination side, grouped by shape.
        nodes: For each level, root first, the numbers of origin areas and of destination areas of each shape.
    """

    steps: list[Step]
    sides: tuple[Shapes, Shapes]
    nodes: list[tuple[Reals, Reals]]

    @classmethod
    def from_tree(cls, tree: FlowTree, max_shapes: int | None = None) -> ShapedTree:
        """Return the grouped nodes of a tree that refines one side a step; see :func:`group_areas_by_shape`."""
        origin = group_areas_by_shape(tree.origin, max_shapes)
        destination = origin if tree.destination is tree.origin else group_areas_by_shape(tree.destination, max_shapes)
        nodes = [
            (origin.areas[at_origin], destination.areas[at_destination])
            for at_origin, at_destination in map(tree.level_pair, range(tree.depth + 1))
        ]
        steps = []
        for level in range(1, tree.depth + 1):
            split = 0 if tree.refines_origin(level) else 1
            pairs = (origin, destination)[split].pairs[tree.level_pair(level - 1)[split]]
            above, below, undivided = nodes[level - 1][split], nodes[level][split], nodes[level][1 - split]
            children, parents = pairs / above[:, np.newaxis], pairs / below
            steps.append(Step(split == 0, children, parents, whole=undivided / undivided.sum()))
        return cls(steps, (origin, destination), nodes)

    def compute_level_means(self, values: Iterator[Reals]) -> list[float]:
        """Return the mean over all nodes of each level, root first, of ``values`` by pair of shapes of that level."""
        return [
            float(origins @ value @ destinations / (origins.sum() * destinations.sum()))
            for (origins, destinations), value in zip(self.nodes, values, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class NodeVariances:
    """The variances of the nodes of a flow tree before and after they are adjusted to their parents, by pair of shapes.

    Attributes:
        shaped: The nodes by shape.
        own: v of the nodes of each level, root first.
        siblings: S of the children of each node, for all levels but the last.
        root: Variance of the root's estimate; shape (1, 1).
    """

    shaped: ShapedTree
    own: list[Reals]
    siblings: list[Reals]
    root: Reals

    @classmethod
    def from_noise_variances(
        cls, shaped: ShapedTree, variances: Mapping[int, Fraction | float], *, refined: bool
    ) -> NodeVariances:
        """Return the variances of nodes, from the variance of the noise of each measured level.

        ``variances`` and ``refined`` are as in :func:`compute_expected_errors`.
        """
        own = [np.full((1, 1), float(variances[len(shaped.steps)]))]
        siblings: list[Reals] = []
        for level in range(len(shaped.steps) - 1, -1, -1):
            of_children = shaped.steps[level].sum_over_children(own[0])
            noise = float(variances.get(level, math.inf))
            if noise == math.inf:
                v = of_children
            elif refined:
                v = 1 / (1 / noise + 1 / of_children)
            else:
                v = np.full_like(of_children, noise)
            siblings.insert(0, of_children)
            own.insert(0, v)
        root = own[0] if 0 in variances else np.zeros((1, 1))  # without a variance, the root is known exactly
        return cls(shaped, own, siblings, root)

    def iterate_estimate_variances(
        self,
        above: Callable[[Step, Reals], Reals] = Step.average_over_parents,
        rounding: Callable[[Step, Reals, Reals], Reals | float] = lambda *_: 0.0,
    ) -> Iterator[Reals]:
        """Yield the variance of the estimates of the nodes of each level, root first, by pair of shapes.

        Args:
            above: Returns one value for the nodes of each pair of shapes, given a value for each pair of their parents.
            rounding: Returns what rounding adds to the variance of children, given the variance of their parents and S.
        """
        estimate = self.root
        yield estimate
        for step, v, s in zip(self.shaped.steps, self.own[1:], self.siblings, strict=True):
            # Var_i of the module docstring, in which v_i and S are v and s
            estimate = v + v**2 * above(step, (estimate / s - 1) / s) + rounding(step, estimate, s)
            estimate = np.maximum(estimate, 0)  # an only child of an exact parent is exact, up to floating-point error
            yield estimate

    @cached_property
    def means(self) -> list[float]:
        """Mean variance of the estimates over all nodes of each level, root first, without rounding."""
        return self.shaped.compute_level_means(self.iterate_estimate_variances())


NORMAL_VALUES = np.array([NormalDist().inv_cdf((k + 0.5) / 32) for k in range(32)])
"""32 equally likely values that approximate a standard normal variable."""


def compute_expected_errors(tree: FlowTree, variances: Mapping[int, Fraction | float], *, refined: bool) -> list[float]:
    """Return the expected root-mean-square error over all public nodes of each level, if no estimate is cut at zero.

    The errors include rounding to whole numbers and the uneven shifts of IntOpt, which matter for standard deviations
    of the noise below about 5. In simulations of siblings that differ by more than the noise, the result is within 10 %
    for standard deviations of at least 0.6, except in two cases. Least-squares errors that are predicted below 0.75 are
    smaller in reality, because rounding then often gives the true count. Errors of nearly equal siblings are larger,
    because the noise then determines which of them IntOpt lowers: by a quarter for a deviation of 1, by 5 % for 10.

    Args:
        variances: Variance of the noise of each measured level; infinite at level 0 if the total is neither measured
            nor known. If level 0 is missing, the total is known exactly. At any other missing level, each node must
            have one child, whose values it takes.
        refined: Whether the release is refined by least squares over all levels. If False, each level is estimated from
            the level above and its own noise.

    Returns:
        The expected error of each level, root first, in trips.
    """

    def compute_rounding_variance(step: Step, estimate: Reals, s: Reals) -> Reals:
        """Return what rounding and IntOpt's uneven shifts add to the variance of children, by pair of shapes below."""
        # Rounding has the variance 1/12. Least-squares values are rounded before IntOpt, so their sum differs from c by
        # their rounding errors only; measured values are whole, and their sum differs by its own error and that of c.
        variance_of_sum = step.fan_out / 12 if refined else step.average_over_undivided_side(estimate + s)
        uneven = _compute_shift_error(step.fan_out, variance_of_sum)
        below: Reals = (uneven + ((1 - 1 / step.fan_out) / 12 if refined else 0)) @ step.parents
        return below[:, np.newaxis] if step.splits_origin else below

    nodes = _make_node_variances(tree, variances, refined=refined)
    if refined and 0 in variances:  # a least-squares root is rounded, a measured one is whole
        nodes = replace(nodes, root=nodes.root + 1 / 12)
    means = nodes.shaped.compute_level_means(nodes.iterate_estimate_variances(rounding=compute_rounding_variance))
    return [means[tree.find_level_in_turn(level)] ** 0.5 for level in range(tree.depth + 1)]


def compute_error_ratio(errors: Sequence[float], others: Sequence[float]) -> float:
    """Return the geometric mean of the ratios of ``others`` to ``errors``, level by level; 1 if no level is left.

    Levels that are exact, with an error of 0, in either are left out.
    """
    inexact = [pair for pair in zip(errors, others, strict=True) if min(pair) > 0]
    return math.exp(sum(math.log(other / error) for error, other in inexact) / max(1, len(inexact)))


def compute_largest_variances(tree: FlowTree, variances: Mapping[int, Fraction | float]) -> list[float]:
    """Return the largest variance, over the public nodes of each level, root first, of a node's least-squares estimate.

    The 90 % intervals are based on these estimates, whatever the mechanism. No node may have been dropped. The result
    is an approximation if areas of similar shapes are treated as one; see :data:`MAX_SHAPES`. For ``variances``, see
    :func:`compute_expected_errors`.
    """
    nodes = _make_node_variances(tree, variances, refined=True)
    # Var_i grows with Var(c), so the largest Var_i of a pair of shapes follows from the largest Var(c).
    largest = [estimate.max() for estimate in nodes.iterate_estimate_variances(Step.find_largest_over_parents)]
    return [float(largest[tree.find_level_in_turn(level)]) for level in range(tree.depth + 1)]


def _make_node_variances(
    tree: FlowTree, noise_variances: Mapping[int, Fraction | float], *, refined: bool
) -> NodeVariances:
    """Return the variances of the nodes of ``tree.in_turn``, from the variance of the noise of each level of ``tree``.

    If the tree refines both sides at once, every other level of ``in_turn`` is not measured, and takes the sums of its
    children. ``refined`` is that of :func:`compute_expected_errors`.
    """
    shaped = ShapedTree.from_tree(tree.in_turn)
    in_turn = {tree.find_level_in_turn(level): variance for level, variance in noise_variances.items()}
    return NodeVariances.from_noise_variances(shaped, in_turn, refined=refined)


def find_most_leaf_pairs(tree: FlowTree, level: int) -> int:
    """Return the largest number of leaf pairs below any node of a level."""
    origin, destination = tree.level_pair(level)
    return int(tree.origin.count_zones_below(origin).max()) * int(tree.destination.count_zones_below(destination).max())


def _compute_shift_error(fan_out: Reals, deficit_variance: Reals) -> Reals:
    """Return the mean squared difference between IntOpt's shifts of siblings and equal shifts.

    The deficit of b siblings is their parent's trips minus their sum. If no sibling is cut at zero, IntOpt shifts all
    siblings by a, which is deficit / b rounded up, and then removes the excess, b a minus the deficit, from the
    smallest siblings. If a > 0, it lowers one sibling after the other to a shift of -a. Otherwise, it lowers as many
    siblings as there are excess units by one each. ``fan_out`` is b for each shape of the parent, and
    ``deficit_variance`` the variance of the deficit, which is taken as normal; shape (shapes,) each, and so the result.
    """
    deficit = np.rint(np.multiply.outer(NORMAL_VALUES, np.sqrt(deficit_variance)))
    a = np.ceil(deficit / fan_out)
    excess = a * fan_out - deficit
    last = excess % np.maximum(2 * a, 1)  # by how much the last sibling is lowered, which does not reach -a
    mean_excess = excess / fan_out  # an equal shift is a minus this
    # The mean square of what siblings lose (2a, ``last`` or 0) minus its squared mean; otherwise, they lose 1 or 0.
    if_raised = 2 * a * mean_excess - mean_excess**2 - (2 * a - last) * last / fan_out
    error: Reals = np.where(a > 0, if_raised, mean_excess * (1 - mean_excess)).mean(axis=0)
    return error


Variance = TypeVar("Variance", float, Reals)
"""A variance, or an array of variances."""

UNMEASURED = 10**12
"""Variance of a root that was not measured, as a multiple of the largest variance of the noise."""


def compute_segment_variance(total: Variance, own: Variance, categories: int) -> Variance:
    """Return the variance of the trips of one of K categories: V / K^2 + W (1 - 1/K).

    V is the variance of the estimate of the ``total``, and W that of the category from its ``own`` measurements.
    """
    return total / categories**2 + own * (1 - 1 / categories)


def describe_half_width(width: float) -> str:
    """Return in words which flows an interval with this half-width tells from 0 and from each other."""
    least, known = format_trips_rounded_up(width), format_trips_rounded_up(width, 10)
    return (
        f"below {least} trips, a flow cannot always be told from 0; from {known} on, it"
        " is known to within 10 %, 9 times in 10."
    )
