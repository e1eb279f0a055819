"""The Euclidean projection by other means: sort and threshold in fractions, controlled rounding, and brute force.

The real problem: x and c >= 0 given, find y >= 0 with sum y = c minimising sum (x_i - y_i)^2.
Plain Python integers and Fractions throughout.
"""

from fractions import Fraction
from itertools import accumulate

from tests.od_core.oracles.intopt import compositions, walk_order


def real_optimum(noisy: list[int], total: int) -> list[Fraction]:
    """The projection onto the simplex: the m largest stay positive, m the most with x_(m) > theta_m."""
    if total == 0:
        return [Fraction(0)] * len(noisy)
    largest_first = sorted(noisy, reverse=True)
    thetas = [Fraction(partial - total, m) for m, partial in enumerate(accumulate(largest_first), 1)]
    theta = max((m, theta) for m, (x, theta) in enumerate(zip(largest_first, thetas, strict=True)) if x > theta)[1]
    return [max(x - theta, Fraction(0)) for x in noisy]


def rounded(noisy: list[int], total: int) -> list[int]:
    """The real optimum rounded down, then one unit each to the largest x, ties by position, until the sum is met."""
    y = [int(value) for value in real_optimum(noisy, total)]  # int rounds down: no value is negative
    for i in walk_order(noisy, "descending")[: total - sum(y)]:
        y[i] += 1
    return y


def cost(noisy: list[int], y: list[int] | tuple[int, ...] | list[Fraction]) -> int | Fraction:
    """Sum of the squares, exactly."""
    return sum((a - b) ** 2 for a, b in zip(noisy, y, strict=True))


def least_cost(noisy: list[int], total: int) -> int | Fraction:
    """Minimum of the sum of squares over all whole y >= 0 with sum y = total, by full enumeration."""
    return min(cost(noisy, y) for y in compositions(total, len(noisy)))
