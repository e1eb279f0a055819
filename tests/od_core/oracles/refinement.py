"""The refined mechanism once more, as dictionaries: written from its description alone, slow and short.

``refined`` takes the stated rounding, in Python integers, which have no width to overflow; ``least_squares`` is the
problem that it solves where nothing is cut off at 0, in linear algebra without any tree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import ceil, floor

import numpy as np

from tests.od_core.oracles.euclidean import rounded
from tests.od_core.oracles.inftda import Node, Tree, trips_below
from tests.od_core.oracles.intopt import transcription

ROOT: Node = ((), ())


@dataclass
class Query:
    """One measured level: the cells measured below each kept node, and the noisy value of each cell.

    A measured root is the only cell, below no node; the families are then of None.
    """

    level: int
    variance: Fraction
    families: dict[Node | None, list[Node]] = field(default_factory=dict)
    noisy: dict[Node, int] = field(default_factory=dict)


def first_pass(
    tree: Tree,
    flows: Mapping[Node, int],
    noise: Callable[[Fraction, int, int], int],
    variances: Mapping[int, Fraction],
    *,
    total_is_public: bool,
    keeps_all: bool,
    order: str = "ascending",
) -> list[Query]:
    """The measurements of the given levels, with the noise of (variance, level, position in the level)."""
    nodes: dict[Node | None, int] = {None: 0}
    if total_is_public:
        total = trips_below(ROOT, flows)
        nodes = {ROOT: total} if total > 0 or keeps_all else {}
    queries = []
    for level, variance in variances.items():
        query = Query(level, variance)
        estimates: dict[Node | None, int] = {}
        for parent, count in nodes.items():
            cells = [ROOT] if parent is None else tree.children(parent)
            cells = [_only_below(tree, cell, level) for cell in cells]
            for cell in cells:
                query.noisy[cell] = trips_below(cell, flows) + noise(variance, level, len(query.noisy))
            x = [query.noisy[cell] for cell in cells]
            y = [max(0, x[0])] if parent is None else transcription(x, count, order)
            estimates |= dict(zip(cells, y, strict=True))
            query.families[parent] = cells
        nodes = {node: count for node, count in estimates.items() if count > 0 or keeps_all}
        queries.append(query)
    return queries


def estimates(queries: list[Query], total: int, order: str) -> dict[Node, int]:
    """The leaves of the first pass; ``total`` is used where the root is not measured."""
    trips: dict[Node | None, int] = {ROOT: total}
    for query in queries:
        below: dict[Node | None, int] = {}
        for parent, cells in query.families.items():
            x = [query.noisy[cell] for cell in cells]
            y = [max(0, x[0])] if parent is None else transcription(x, trips[parent], order)
            below |= dict(zip(cells, y, strict=True))
        trips = below
    return {node: count for node, count in trips.items() if node is not None}


def _only_below(tree: Tree, node: Node, level: int) -> Node:
    while tree.level(node) < level:
        [node] = tree.children(node)
    return node


def refined(
    queries: list[Query], total: int | None, order: str = "ascending", *, least_squares: bool = False
) -> list[dict[Node, int]]:
    """Positive nodes of the root and of every measured level; ``total`` is n where it is public, else None.

    With ``least_squares``, rounded estimates are projected by the least sum of squares.
    z is x + d / 2^bits. On the way up d is the gap to the sum of the children times a weight of 20 bits, rounded down;
    on the way down every kept child gets its part of what is missing, rounded down, and z half up. Variances are
    floating-point numbers, summed child after child, the dropped ones last and at once.
    """
    project = rounded if least_squares else partial(transcription, order=order)
    bits = max(0, min(16, 24 - ceil(max(query.variance for query in queries)).bit_length() // 2))
    differences: list[dict[Node, int]] = [{} for _ in queries]
    variances: list[dict[Node, float]] = [{} for _ in queries]
    for k in reversed(range(len(queries) - 1)):
        own, below = float(queries[k].variance), queries[k + 1]
        for node, cells in below.families.items():
            assert node is not None
            kept = [cell for cell in cells if cell in variances[k + 1]]
            sv = 0.0
            for cell in kept:
                sv += variances[k + 1][cell]
            sv += (len(cells) - len(kept)) * float(below.variance)
            gap = (sum(below.noisy[cell] for cell in cells) - queries[k].noisy[node]) * 2**bits
            gap += sum(differences[k + 1][cell] for cell in kept)
            differences[k][node] = gap * floor(own / (own + sv) * 2**20) // 2**20
            variances[k][node] = 1 / (1 / own + 1 / sv)
    trips: dict[Node, int] = {} if total is None else {ROOT: total}
    levels = [trips]
    for k, query in enumerate(queries):
        last, level = k == len(queries) - 1, {}
        for parent, cells in query.families.items():
            x = query.noisy
            if parent is None:
                [root] = cells
                level = {root: max(0, x[root] + _half_up(differences[k].get(root, 0), 2**bits))}
                levels = [{ROOT: level[root]}]
                continue
            kept = cells if last else [cell for cell in cells if cell in differences[k]]
            if not kept:
                continue
            v = dict.fromkeys(cells, 1)
            if not last:
                v = {c: max(1, floor(variances[k][c] / max(variances[k].values()) * 2**20)) for c in kept}
            d = dict.fromkeys(cells, 0) | differences[k]
            missing = (trips[parent] - sum(x[cell] for cell in kept)) * 2**bits - sum(d[cell] for cell in kept)
            if last:
                z = [x[cell] + _half_up(missing, 2**bits * len(kept)) for cell in kept]
            else:
                z = [x[c] + _half_up(d[c] + missing * v[c] // sum(v.values()), 2**bits) for c in kept]
            level |= dict(zip(kept, project(z, trips[parent]), strict=True))
        trips = level
        if query.level > 0:
            levels.append(trips)
    return [{node: count for node, count in level.items() if count > 0} for level in levels]


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def least_squares(tree: Tree, queries: list[Query], total: int | None) -> list[dict[Node, float]]:
    """Weighted least squares over the leaf counts, given their sum where it is public: every cell of every query.

    A matrix with one column a leaf and one row a measured cell; the sum is a Lagrange multiplier.
    """
    leaves = tree.leaves_below(ROOT)
    rows, values, weights = [], [], []
    for query in queries:
        for (origin, destination), value in query.noisy.items():
            rows.append([o[: len(origin)] == origin and d[: len(destination)] == destination for o, d in leaves])
            values.append(value)
            weights.append(1 / float(query.variance))
    design, weight = np.array(rows, dtype=float), np.array(weights) / max(weights)
    normal, right = design.T * weight @ design, design.T * weight @ np.array(values, dtype=float)
    if total is not None:
        one = np.ones((len(leaves), 1))
        normal = np.block([[normal, one], [one.T, np.zeros((1, 1))]])
        right = np.append(right, total)
    fitted = design @ np.linalg.solve(normal, right)[: len(leaves)]
    cells = [list(query.noisy) for query in queries]
    ends = np.cumsum([0, *map(len, cells)])
    return [dict(zip(nodes, fitted[start:].tolist(), strict=False)) for nodes, start in zip(cells, ends, strict=False)]
