"""IntOpt by other means: both algorithms of the paper line by line, the closed form of its result, and brute force.

The problem: integers x and c >= 0 given, find integers y >= 0 with sum y = c minimising max|x_i - y_i|.
Plain Python integers throughout. `# n:` names line n of the paper's pseudocode.
"""

from functools import cache
from itertools import combinations, pairwise


def walk_order(noisy: list[int], order: str) -> list[int]:
    """Indices by ascending (descending) x; equal values keep ascending index in both orders."""
    sign = {"ascending": 1, "descending": -1}[order]
    return sorted(range(len(noisy)), key=lambda i: sign * noisy[i])


def _start(x: list[int], target: int) -> list[int]:
    ceiling = -((-target) // len(x))  # ceil((c - sum x) / b), exactly
    return [max(ceiling, -xi) for xi in x]


def transcription_simple(noisy: list[int], total: int, order: str = "ascending") -> list[int]:
    """Algorithm 2: the threshold t rises by one after each full walk."""
    x, target = noisy, total - sum(noisy)  # 1: x in Z^b, c in N
    z = _start(x, target)  # 2: z <- max(ceil((c - sum x) / b), -x)
    t = max(abs(zi) for zi in z)  # 3: t <- ||z||_inf
    index = walk_order(x, order)  # 4: I <- sorted indices of x
    j = 0  # 5
    excess = sum(z) - target
    while excess > 0:  # 6: while sum z > c - sum x
        i = index[j]  # 7: Delta <- sum z - c + sum x, kept up to date
        lowered = max(z[i] - excess, -x[i], -t)  # 8
        excess -= z[i] - lowered
        z[i] = lowered
        j = (j + 1) % len(index)  # 9
        if j == 0:  # 10
            t += 1  # 11
    return [xi + zi for xi, zi in zip(x, z, strict=True)]  # 12: return x + z


def transcription(noisy: list[int], total: int, order: str = "ascending") -> list[int]:
    """Algorithm 4 (Appendix C): only reducible indices are walked, and t may rise by more than one.

    Correction: lines 12-14 are skipped once the sum is met. As printed, c = 0 with a positive initial
    excess ends its last walk with I empty, and line 13 divides by |I| = 0.
    """
    x, target = noisy, total - sum(noisy)  # 1: x in Z^b, c in N
    z = _start(x, target)  # 2: z <- max(ceil((c - sum x) / b), -x)
    t = max(abs(zi) for zi in z)  # 3: t <- ||z||_inf
    index = [i for i in walk_order(x, order) if z[i] > -x[i]]  # 4, 5: I <- sorted (i : z_i > -x_i)
    j = 0  # 6
    excess = sum(z) - target
    while excess > 0:  # 7: while sum z > c - sum x
        i = index[j]  # 8: Delta <- sum z - c + sum x, kept up to date
        lowered = max(z[i] - excess, -x[i], -t)  # 9
        excess -= z[i] - lowered
        z[i] = lowered
        j = (j + 1) % len(index)  # 10
        if j == 0 and excess > 0:  # 11, with the correction above
            index = [i for i in index if z[i] > -x[i]]  # 12: I <- (i in I : z_i > -x_i)
            t += max(1, excess // len(index))  # 13, 14: t <- t + max(1, floor(excess / |I|))
    return [xi + zi for xi, zi in zip(x, z, strict=True)]  # 15: return x + z


def closed_form(noisy: list[int], total: int, order: str = "ascending") -> list[int]:
    """The result in two steps: t* is the least t >= t0 with sum max(-x_i, -t) <= c - sum x.

    Up to t0 the first walk alone takes the excess; beyond, everything stands at max(-x_i, -(t* - 1)) and
    the first E indices that are not yet at -x_i lose one unit more.
    """
    x, target = noisy, total - sum(noisy)
    z = _start(x, target)
    floor_at = max(abs(zi) for zi in z)
    if sum(max(-xi, -floor_at) for xi in x) > target:
        low, high = floor_at, max(x)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if sum(max(-xi, -middle) for xi in x) <= target else (middle, high)
        z = [max(-xi, -(high - 1)) for xi in x]
        floor_at = high
    excess = sum(z) - target
    for i in walk_order(x, order):
        lowered = max(z[i] - excess, -x[i], -floor_at)
        excess -= z[i] - lowered
        z[i] = lowered
    return [xi + zi for xi, zi in zip(x, z, strict=True)]


@cache
def compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """Every tuple of `parts` >= 1 non-negative integers with the given sum (stars and bars). Not to be changed."""
    slots = total + parts - 1
    every = combinations(range(slots), parts - 1)
    return [tuple(right - left - 1 for left, right in pairwise((-1, *bars, slots))) for bars in every]


def best_distance(noisy: list[int], total: int) -> int:
    """Minimum of max|x_i - y_i| over all y >= 0 with sum y = total, by full enumeration."""
    return min(max(abs(xi - yi) for xi, yi in zip(noisy, y, strict=True)) for y in compositions(total, len(noisy)))
