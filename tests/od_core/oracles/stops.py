"""Trees of boxes from their definitions: plain lists of cells, every count a count, nothing sorted in place."""

import itertools
import math
from collections import Counter
from fractions import Fraction

from od_core.stops.mechanisms import find_scale_and_decay

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""First and last cell in each dimension."""


def inside(box: Box, cell: tuple[int, ...]) -> bool:
    return all(low <= x <= high for low, x, high in zip(box[0], cell, box[1], strict=True))


def trips_in(box: Box, points: list[tuple[int, ...]]) -> int:
    return sum(inside(box, cell) for cell in points)


def part_of(box: Box, dimension: int, first: int, last: int) -> Box:
    lower, upper = list(box[0]), list(box[1])
    lower[dimension], upper[dimension] = first, last
    return tuple(lower), tuple(upper)


def unevenness(points: list[tuple[int, ...]], box: Box) -> Fraction:
    """Sum over all cells of the box, empty ones included, of |f - mean| (equation 22)."""
    cells = list(itertools.product(*(range(low, high + 1) for low, high in zip(*box, strict=True))))
    held = Counter(points)
    mean = Fraction(sum(held[cell] for cell in cells), len(cells))
    return sum((abs(held[cell] - mean) for cell in cells), start=Fraction(0))


def stops_by_count(stop: str, threshold: Fraction, n: int, total: int, rate: float) -> bool:
    """By the noisy count n of a node alone; rate is the budget left over the sensitivity."""
    if stop == "count":
        return n * Fraction(rate) < threshold
    if stop != "entropy":
        return False
    share = max(n, 0) / max(total, 1)
    parts = (max(n, 1) * float(rate) / math.sqrt(2)) ** (2 / 3)  # of equation 19, in all dimensions that remain
    return share * math.log2(parts) < threshold


def daf_entropy(
    points, sizes, epsilon: Fraction, sensitivity: int, noise, stop="count", threshold=Fraction(1)
) -> list[tuple[Box, int]]:
    """Algorithm 2 breadth first, m as the nearest to 3/2 of equation 19; noise(scale, number) as in the library.

    The cube roots of the shares are taken in floating point, rounded down at 2^-20.
    """
    d, root = len(sizes), (tuple(0 for _ in sizes), tuple(size - 1 for size in sizes))
    cells, d = math.prod(sizes), int(threshold) if stop == "depth" else d
    nodes, leaves, left, shares, total = [root], [], epsilon, {0: epsilon / 100}, None
    for depth in range(d):
        least = [math.prod(high - low + 1 for low, high in zip(*node, strict=True)) for node in nodes]
        small = [n for n, volume in zip(nodes, least, strict=True) if stop == "extent" and volume <= threshold * cells]
        if small:
            leaves += zip(small, measured(small, points, sensitivity / left, noise), strict=True)
            nodes = [node for node in nodes if node not in small]
            if not nodes:
                return leaves
        share = shares[depth]
        noisy = measured(nodes, points, sensitivity / share, noise)
        left -= share
        total = noisy[0] if depth == 0 else total
        stops = [stops_by_count(stop, threshold, n, total, left / sensitivity) for n in noisy]
        stopped = [node for node, ends in zip(nodes, stops, strict=True) if ends]
        if stopped:
            leaves += zip(stopped, measured(stopped, points, sensitivity / left, noise), strict=True)
        children = []
        for node, n, ends in zip(nodes, noisy, stops, strict=True):
            if ends:
                continue
            m = (n * float(left / sensitivity) / math.sqrt(2)) ** (2 / (3 * (d - depth))) if n > 1 else Fraction(2, 3)
            m = min(max(math.floor(1.5 * m + 0.5), 1), sizes[depth])
            if depth == 0:
                weights = [Fraction(math.floor(m ** (i / 3) * 2**20 + 1e-6)) for i in range(1, d + 1)]
                shares |= {i: left * weight / sum(weights) for i, weight in enumerate(weights, start=1)}
            edges = [k * sizes[depth] // m for k in range(m + 1)]
            children += [part_of(node, depth, first, end - 1) for first, end in itertools.pairwise(edges)]
        nodes = children
        if not nodes:
            return leaves
    return leaves + list(zip(nodes, measured(nodes, points, sensitivity / left, noise), strict=True))


def privtree(points, sizes, epsilon: Fraction, sensitivity: int, noise, theta: int = 0) -> list[tuple[Box, int]]:
    """Zhang et al. 2016, algorithm 2 with beta = 2, breadth first; 7/10 of the budget for the tree; proven lambda."""
    scale = find_scale_and_decay(Fraction(7, 10) * epsilon, sensitivity)[0]
    delta = math.ceil(float(scale) * math.log(2))
    nodes = [(tuple(0 for _ in sizes), tuple(size - 1 for size in sizes))]
    leaves, depth = [], 0
    while nodes:
        sides = [[high - low + 1 for low, high in zip(*node, strict=True)] for node in nodes]
        tested = [node for node, side in zip(nodes, sides, strict=True) if max(side) > 1]
        draws = iter(noise(scale, len(tested)) if tested else [])
        children = []
        for node, side in zip(nodes, sides, strict=True):
            if max(side) == 1:
                leaves.append(node)
                continue
            if max(trips_in(node, points) - depth * delta, theta - delta) + next(draws) <= theta:
                leaves.append(node)
                continue
            widest = max(range(len(sizes)), key=lambda k: (side[k] > 1, Fraction(side[k], sizes[k]), -k))
            middle = node[0][widest] + side[widest] // 2
            children.append(part_of(node, widest, node[0][widest], middle - 1))
            children.append(part_of(node, widest, middle, node[1][widest]))
        nodes, depth = children, depth + 1
    return list(zip(leaves, measured(leaves, points, sensitivity / (Fraction(3, 10) * epsilon), noise), strict=True))


def measured(nodes, points, scale, noise):
    drawn = noise(scale, len(nodes))
    return [trips_in(node, points) + int(z) for node, z in zip(nodes, drawn, strict=True)]
