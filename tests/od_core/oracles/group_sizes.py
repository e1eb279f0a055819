"""The mechanisms of Kuo et al. by other means: group by group, in dictionaries and fractions, from the spec alone.

The tree is a dictionary from an area to its children; a group is a pair of its estimated size and variance.
"""

from bisect import insort
from fractions import Fraction
from itertools import accumulate, pairwise
from math import floor

from tests.od_core.oracles import euclidean

Area = str
Group = tuple[Fraction, Fraction]


def min_max(row: list[int], lower: int, upper: int) -> list[Fraction]:
    """Least squares: at place i, the greatest over j <= i of the least over k >= i of the mean of j..k; clipped."""
    sums = [0, *accumulate(row)]
    places = range(len(row))
    best = [Fraction(lower)] * len(row)
    for j in places:
        least = None
        for k in reversed(places[j:]):
            mean = Fraction(sums[k + 1] - sums[j], k + 1 - j)
            least = mean if least is None else min(least, mean)
            best[k] = max(best[k], least)
    return [min(value, Fraction(upper)) for value in best]


def best_extremes(row: list[int], lower: int, upper: int) -> list[tuple[int, int]]:
    """Least absolute distances: the same formula with the lower median gives the least answer.

    A place lies in the least set of places above a cut where a run of values from there on has, however long it is
    made, more values above the cut than below it. The greatest answer is the least one upside down.
    """
    upside_down = [-value for value in reversed(row)]
    greatest = [-value for value in reversed(_least_best(upside_down, -upper, -lower))]
    return list(zip(_least_best(row, lower, upper), greatest, strict=True))


def _least_best(row: list[int], lower: int, upper: int) -> list[int]:
    best = [lower] * len(row)
    for j in range(len(row)):
        ordered: list[int] = []
        medians = []
        for value in row[j:]:
            insort(ordered, value)
            medians.append(ordered[(len(ordered) - 1) // 2])
        for k in reversed(range(j, len(row))):
            medians[k - j] = min(medians[k - j :][:2])
            best[k] = max(best[k], medians[k - j])
    return [min(value, upper) for value in best]


def half_up(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


def groups_of(query: str, noisy: list[int], total: int, top_code: int, scale: Fraction, power: int) -> list[Group]:
    """Sizes and variances of the groups of one area, from its noisy values alone, eps1 being that of its level."""
    if query == "sizes":
        eps1 = 1 / scale
        sizes = min_max(noisy, 0, top_code)
        if power == 1:
            sizes = [Fraction(least + most, 2) for least, most in best_extremes(noisy, 0, top_code)]
        return [(size, 2 / (sizes.count(size) * eps1**2)) for size in sizes]
    if query == "histogram":
        eps1, histogram = 2 / scale, euclidean.rounded(noisy, total)
        factor = 16
    else:
        eps1, factor = 1 / scale, 4
        if power == 1:
            counts = [half_up(Fraction(least + most, 2)) for least, most in best_extremes(noisy, 0, total)]
        else:
            counts = [half_up(value) for value in min_max(noisy, 0, total)]
        histogram = [after - before for before, after in pairwise([0, *counts, total])]
    return [
        (Fraction(size), Fraction(factor) / (eps1**2 * number))
        for size, number in enumerate(histogram)
        for _ in range(number)
    ]


def match(parent: list[Group], children: dict[Area, list[Group]]) -> list[tuple[Group, Area, Group]]:
    """Algorithm 2, corrected. Parents of one size: larger variance first, each variance by itself."""
    top = sorted(parent, key=lambda group: (group[0], -group[1]))
    bottom = {child: sorted(groups) for child, groups in children.items()}
    matching = []
    while top:
        tied_top = [group for group in top if group == top[0]]
        smallest = min(groups[0][0] for groups in bottom.values() if groups)
        tied = {child: sum(size == smallest for size, _ in groups) for child, groups in bottom.items()}
        matched = min(len(tied_top), sum(tied.values()))
        quotas = {child: Fraction(matched * number, sum(tied.values())) for child, number in tied.items()}
        shares = {child: floor(quota) for child, quota in quotas.items()}
        by_remainder = sorted(shares, key=lambda child: shares[child] - quotas[child])  # stable: the first child
        for child in by_remainder[: matched - sum(shares.values())]:
            shares[child] += 1
        for child, share in shares.items():
            assert share <= tied[child]
            matching += [(top.pop(0), child, bottom[child].pop(0)) for _ in range(share)]
    return matching


def merged(tree: dict[Area, list[Area]], roots: list[Area], groups: dict[Area, list[Group]]) -> dict[Area, list[Group]]:
    """Algorithm 1, lines 9 to 15: every area's groups with what the areas above it say."""
    updated = {root: groups[root] for root in roots}
    waiting = list(roots)
    while waiting:
        area = waiting.pop()
        below = {child: groups[child] for child in tree.get(area, [])}
        for child in below:
            updated[child] = []
            waiting.append(child)
        if below:
            for (size, variance), child, (other_size, other_variance) in match(updated[area], below):
                weight = 1 / variance + 1 / other_variance
                size = (size / variance + other_size / other_variance) / weight
                updated[child].append((size, 1 / weight))
    return updated


def leaf_histogram(groups: list[Group], top_code: int) -> list[int]:
    sizes = [half_up(size) for size, _ in groups]
    return [sizes.count(size) for size in range(top_code + 1)]
