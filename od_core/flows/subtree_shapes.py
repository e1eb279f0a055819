"""Group the nodes of a flow tree by the shapes of the subtrees below them, from which the errors of a release follow.

The subtree below a node is determined by two shapes: that of the subtree of the node's origin area and that of its
destination area. So nodes are grouped by pairs of shapes, and sums over 10^11 pairs of zones become small matrix
products.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography

MAX_SHAPES = 1024
"""Largest number of shapes (classes of equal subtrees) that are distinguished at a level of a geography. If there are
more, areas with similar numbers of zones are treated as one shape with the mean of their children. In trials, the
errors changed by at most 0.4 %. This limits the time to seconds and the memory to 8 MB per level."""

Reals = NDArray[np.float64]


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

    def over_children(self, values: Reals) -> Reals:
        """Return, for each pair of shapes above, the sum of ``values`` over the children of a node."""
        return self.children @ values if self.splits_origin else values @ self.children.T

    def over_parents(self, values: Reals) -> Reals:
        """Return, for each pair of shapes below, the mean of ``values`` over the parents of its nodes."""
        return self.parents.T @ values if self.splits_origin else values @ self.parents

    def largest_parent(self, values: Reals) -> Reals:
        """Return, for each pair of shapes below, the largest of ``values`` over the parents of its nodes."""
        above = values if self.splits_origin else values.T
        largest = np.array([above[shares > 0].max(axis=0) for shares in self.parents.T])
        return largest if self.splits_origin else largest.T

    def over_whole(self, values: Reals) -> Reals:
        """Return, for each shape of the divided side, the mean of ``values`` over the areas of the whole side.

        The shape of the result is (shapes above,).
        """
        mean: Reals = values @ self.whole if self.splits_origin else self.whole @ values
        return mean

    def to_children(self, values: Reals) -> Reals:
        """Return, for each shape below on the divided side, the mean of ``values`` over the parents of its areas.

        ``values`` has one entry per shape above on the divided side; shape (shapes above,). The result broadcasts
        against values per pair of shapes below.
        """
        below: Reals = values @ self.parents
        return below[:, np.newaxis] if self.splits_origin else below


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
    of_areas: list[NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class ShapedTree:
    """The nodes of a flow tree, grouped by the shapes of their origin and destination areas.

    Attributes:
        steps: The steps to each level below the root.
        origin, destination: The areas of both sides, grouped by shape.
        nodes: For each level, root first, the number of origin areas of each shape and the number of destination areas
            of each shape.
    """

    steps: list[Step]
    origin: Shapes
    destination: Shapes
    nodes: list[tuple[Reals, Reals]]

    @classmethod
    def of(cls, tree: FlowTree, most: int | None = None) -> ShapedTree:
        """Group the nodes of a tree. ``most``: largest number of shapes of a level, by default :data:`MAX_SHAPES`."""
        origin = shapes_of(tree.origin, most)
        destination = origin if tree.destination is tree.origin else shapes_of(tree.destination, most)
        nodes = [
            (origin.areas[at_origin], destination.areas[at_destination])
            for at_origin, at_destination in map(tree.level_pair, range(tree.depth + 1))
        ]
        steps = []
        for level in range(1, tree.depth + 1):
            split = 0 if tree.refines_origin(level) else 1
            pairs = (origin, destination)[split].pairs[tree.level_pair(level - 1)[split]]
            above, below, whole = nodes[level - 1][split], nodes[level][split], nodes[level][1 - split]
            steps.append(Step(split == 0, pairs / above[:, np.newaxis], pairs / below, whole / whole.sum()))
        return cls(steps, origin, destination, nodes)


def shapes_of(geography: Geography, most: int | None = None) -> Shapes:
    """Group the areas of a geography by shape, from the zones upwards, and return the groups.

    Two areas have the same shape if, for each shape of the level below, they have the same number of children.

    Args:
        geography: the geography.
        most: largest number of shapes that are distinguished at a level; by default :data:`MAX_SHAPES`.
    """
    shape = np.zeros(len(geography.zones), dtype=np.int64)
    areas: list[Reals] = [np.array([float(len(shape))])]
    pairs: list[Reals] = []
    of_areas = [shape]
    for level in range(geography.depth - 1, -1, -1):
        parents = geography.parents[level + 1]
        above = _shapes_above(geography, level, shape, MAX_SHAPES if most is None else most)
        sizes = np.bincount(above)
        width = len(areas[0])
        both = np.bincount(above[parents] * width + shape, minlength=len(sizes) * width)
        pairs.insert(0, both.reshape(-1, width).astype(np.float64))
        areas.insert(0, sizes.astype(np.float64))
        of_areas.insert(0, above)
        shape = above
    return Shapes(areas, pairs, of_areas)


def _shapes_above(geography: Geography, level: int, shape: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the shape of each area of a level as a number, counted from 0; shape (areas,).

    ``shape`` has the number of the shape of each area of the level below. ``most``: see :func:`shapes_of`.
    """
    width = int(shape.max()) + 1
    ordered = np.sort(geography.parents[level + 1] * width + shape) % width  # sorted shapes of each area's children
    known: dict[bytes, int] = {}
    runs = pairwise(geography.first_child[level].tolist())
    above = np.array([known.setdefault(ordered[first:end].tobytes(), len(known)) for first, end in runs])
    if len(known) > most:
        by_size = np.lexsort((np.diff(geography.first_child[level]), geography.zones_below(level)))
        above[by_size] = np.arange(len(above)) * most // len(above)
    return above
