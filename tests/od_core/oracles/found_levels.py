"""Found levels from their definition alone: dictionaries of paths of codes, and sums over all outputs in balls.

A record has a path of areas on each side, coarse to fine. A node is a pair of paths. A level refines one side or both.
At a public level, every child gets noise. At a found level, only children with trips do, and those below the threshold
become the remainder of their parent: on every side that the step refines, the code of the parent and ``*``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from flint import arb

from tests.od_core.oracles.privacy_loss import precision, rational
from tests.od_core.oracles.stability import BITS, Change, at_least, outcomes

Path = tuple[str, ...]
Node = tuple[Path, Path]
Trips = Mapping[Node, int]
"""Trips of pairs of zones, each with its whole path."""


@dataclass(frozen=True)
class Level:
    """A level of the flow tree: the levels of both sides, the scale of its noise and, if it is found, its threshold."""

    origin: int
    destination: int
    scale: Fraction
    threshold: int | None = None
    divided: tuple[int, ...] = ()
    public: tuple[Path, ...] = ()
    """Paths of all public areas of the geography, whole; of both sides the same."""

    def cut(self, node: Node) -> Node:
        return node[0][: self.origin], node[1][: self.destination]

    def remainder(self, parent: Node) -> Node:
        paths = list(parent)
        for side in self.divided:
            paths[side] = (*parent[side], (parent[side][-1] if parent[side] else "").removesuffix("*") + "*")
        return paths[0], paths[1]

    def children(self, parent: Node) -> list[Node]:
        """All public children, in order."""
        choices = []
        for side, depth in enumerate((self.origin, self.destination)):
            areas = {path[:depth] for path in self.public}
            own = [area for area in areas if area[: len(parent[side])] == parent[side]]
            choices.append(sorted(own) if side in self.divided else [parent[side]])
        return list(itertools.product(*choices))

    def found(self, parent: Node, trips: Trips) -> list[Node]:
        """The children with trips that are not the remainder, in order."""
        with_trips = {self.cut(node) for node, number in trips.items() if number and is_below(node, parent)}
        return sorted(with_trips - {self.remainder(parent)})


def is_below(node: Node, parent: Node) -> bool:
    return all(path[: len(above)] == above for path, above in zip(node, parent, strict=True))


def count(trips: Trips, node: Node) -> int:
    return sum(number for other, number in trips.items() if is_below(other, node))


def move(trips: Trips, level: Level, parent: Node, published: Iterable[Node], depth: int) -> dict[Node, int]:
    """The trips below a parent; those of no published child are in its remainder, down to the zones."""
    kept, moved = set(published), Counter[Node]()
    for node, number in trips.items():
        if is_below(node, parent):
            paths = list(node)
            if level.cut(node) not in kept:
                for side in level.divided:
                    path = level.remainder(parent)[side]
                    paths[side] = (*path, *[path[-1]] * (depth - len(path)))
            moved[paths[0], paths[1]] += number
    return dict(moved)


@dataclass
class Released:
    """What a release shows: the nodes that are measured, by level, with their noisy counts; and the leaves."""

    measured: list[dict[Node, int]] = field(default_factory=list)
    leaves: dict[Node, int] = field(default_factory=dict)


def release(
    trips: Trips,
    root: int,
    levels: Sequence[Level],
    depth: int,
    noise: Callable[[int], Sequence[int]],
    project: Callable[[list[int], int], Sequence[int]],
) -> Released:
    """Draw and estimate the levels below the root; ``noise`` gives the values of a level, and ``project`` those of a
    parent's children."""
    result, nodes, current = Released(), {((), ()): root} if root else {}, dict(trips)
    for level in levels:
        families = {p: level.children(p) if level.threshold is None else level.found(p, current) for p in nodes}
        values = noise(sum(map(len, families.values())))
        drawn = iter(values)
        measured, below, moved = dict[Node, int](), dict[Node, int](), dict[Node, int]()
        for parent, children in families.items():
            noisy = {child: count(current, child) + next(drawn) for child in children}
            if level.threshold is not None:
                noisy = {child: value for child, value in noisy.items() if value >= level.threshold}
            measured |= noisy
            if level.threshold is not None:
                moved |= move(current, level, parent, noisy, depth)
                noisy[level.remainder(parent)] = max(0, nodes[parent] - sum(noisy.values()))
                noisy = dict(sorted(noisy.items()))
            estimates = zip(noisy, project(list(noisy.values()), nodes[parent]), strict=True)
            below |= {child: estimate for child, estimate in estimates if estimate > 0}
        result.measured.append(measured)
        nodes, current = below, moved if level.threshold is not None else current
    result.leaves = nodes
    return result


def noisy_outcomes(change: Change, scale: Fraction) -> list[tuple[arb, arb]]:
    """P and Q of a public node's noisy count: each value between the two counts, and all on either side."""
    low, high = min(change), max(change)
    result = []
    for value in range(low, high + 1):
        masses = []
        for true in change:
            above = at_least(value + 1 - true, scale) if value < high else arb(0)
            masses.append((at_least(value - true, scale) if value > low else arb(1)) - above)
        result.append((masses[0], masses[1]))
    return result


def divergence(
    one: Trips,
    other: Trips,
    levels: Sequence[Level],
    depth: int,
    epsilon: Fraction,
    *,
    with_root: Fraction | None = None,
) -> arb:
    """A ball of delta(epsilon) of all measurements of a release, with the first input as P.

    No node is dropped because its estimate is 0, so what a release shows is a function of what is summed over here.
    ``with_root`` is the scale of the noise of the number of all trips; None if it is exact.
    """
    with precision(BITS):
        factor = arb(rational(epsilon)).exp()
        start = [(arb(1), arb(1))]
        if with_root is not None:
            start = noisy_outcomes((sum(one.values()), sum(other.values())), with_root)
        total = arb(0)
        for p, q in start:
            total += _sum_outputs(p, q, (dict(one), dict(other)), {((), ())}, levels, depth, factor)
        return total


def _sum_outputs(
    p: arb, q: arb, inputs: tuple[Trips, Trips], parents: set[Node], levels: Sequence[Level], depth: int, factor: arb
) -> arb:
    if not levels:
        return (p - factor * q).max(arb(0))
    level, *below = levels
    cells: list[tuple[Node, Node, list[tuple[arb, arb, bool]]]] = []
    for parent in sorted(parents):
        if level.threshold is None:
            children = level.children(parent)
        else:
            children = sorted({*level.found(parent, inputs[0]), *level.found(parent, inputs[1])})
        for child in children:
            change = count(inputs[0], child), count(inputs[1], child)
            cells.append((parent, child, list(_list_outcomes(change, level))))
    total = arb(0)
    for chosen in itertools.product(*(own for *_, own in cells)):
        one, other = p, q
        for mass, other_mass, _ in chosen:
            one, other = one * mass, other * other_mass
        published = {
            (parent, child) for (parent, child, _), (*_, is_there) in zip(cells, chosen, strict=True) if is_there
        }
        if level.threshold is None:
            total += _sum_outputs(one, other, inputs, {child for _, child in published}, below, depth, factor)
            continue
        moved: list[dict[Node, int]] = [{}, {}]
        for parent in parents:
            kept = [child for above, child in published if above == parent]
            for trips, own in zip(moved, inputs, strict=True):
                trips |= move(own, level, parent, kept, depth)
        nodes = {child for _, child in published} | {level.remainder(parent) for parent in parents}
        total += _sum_outputs(one, other, (moved[0], moved[1]), nodes, below, depth, factor)
    return total


def _list_outcomes(change: Change, level: Level) -> Iterator[tuple[arb, arb, bool]]:
    """P and Q of what is seen of a node, and whether it is published. Equal counts need no values."""
    if level.threshold is None:
        for p, q in [(arb(1), arb(1))] if change[0] == change[1] else noisy_outcomes(change, level.scale):
            yield p, q, True
        return
    (absent_p, absent_q), *seen = outcomes(change, level.threshold, level.scale)
    yield absent_p, absent_q, False
    if change[0] == change[1]:
        yield 1 - absent_p, 1 - absent_q, True
        return
    for p, q in seen:
        yield p, q, True
