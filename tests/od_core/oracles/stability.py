"""The stability histogram from its definition: every pair of neighbours, every output, in balls.

Cells with trips get discrete Laplace noise, P(Z = k) = (1 - a) / (1 + a) a^|k| with a = exp(-1 / scale); what is below
the threshold is absent, and so is a cell without trips. delta(eps) = sum over outputs of max(0, P - exp(eps) Q).
"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

from flint import arb

from tests.od_core.oracles.privacy_loss import precision, rational

BITS = 512
"""Enough for a delta of 1e-100 beside 1."""

Change = tuple[int, int]
"""True counts of a cell in one data set and in its neighbour."""


def ball(number: Fraction) -> arb:
    """The number, to all the bits."""
    with precision(BITS):
        return arb(rational(number))


@cache
def at_least(k: int, scale: Fraction) -> arb:
    """P(Z >= k): a geometric series for k >= 1, its mirror below."""
    with precision(BITS):
        if k <= 0:
            return 1 - at_least(1 - k, scale)
        a = (-1 / arb(rational(scale))).exp()
        return (1 - a) / (1 + a) * a**k / (1 - a)


def law(count: int, threshold: int, top: int, scale: Fraction) -> list[arb]:
    """P of absent, of each value from the threshold to top - 1, and of top and more."""
    if count == 0:
        return [arb(1)] + [arb(0)] * (top - threshold + 1)
    reached = [at_least(value - count, scale) for value in range(threshold, top + 1)]
    return [1 - reached[0], *(one - next_ for one, next_ in itertools.pairwise(reached)), reached[-1]]


def outcomes(change: Change, threshold: int, scale: Fraction) -> list[tuple[arb, arb]]:
    """P and Q of what is seen of a cell. From the larger count on, P / Q is one number: such values are one outcome."""
    top = max(threshold, *change)
    return list(zip(*(law(count, threshold, top, scale) for count in change), strict=True))


def hockey_stick(changes: tuple[Change, ...], threshold: int, scale: Fraction, epsilon: Fraction) -> arb:
    """A ball of delta(eps), with the first data set as P; cells whose counts are equal have no part in it."""
    with precision(BITS):
        factor, total = arb(rational(epsilon)).exp(), arb(0)
        for output in itertools.product(*(outcomes(change, threshold, scale) for change in changes)):
            p, q = (math.prod(chances, start=arb(1)) for chances in zip(*output, strict=True))
            total += (p - factor * q).max(arb(0))
        return total


def spreads(trips: int, cells: int) -> Iterator[tuple[int, ...]]:
    """All ways to have at most so many trips in the cells."""
    if cells == 0:
        yield ()
        return
    for here in range(trips + 1):
        for others in spreads(trips - here, cells - 1):
            yield (here, *others)


@cache
def neighbours(m: int, bounded: bool, cells: int, others: tuple[int, ...]) -> list[tuple[Change, ...]]:
    """The changes of all neighbours in which everybody else has these numbers of trips in a cell; up to order."""
    found = set()
    for rest in itertools.product(others, repeat=cells):
        for before in spreads(m, cells):
            for after in spreads(m, cells) if bounded else [(0,) * cells]:
                counts = [(r + b, r + a) for r, b, a in zip(rest, before, after, strict=True) if b != a]
                found.add(tuple(sorted(counts)))
                found.add(tuple(sorted((a, b) for b, a in counts)))
    return sorted(found - {()})


def partitions(m: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to write m as a sum of whole numbers of at least 1, up to order."""
    if m == 0:
        yield ()
    for first in range(min(m, largest or m), 0, -1):
        for others in partitions(m - first, first):
            yield (first, *others)


def seen(partition: tuple[int, ...], threshold: int, scale: Fraction) -> arb:
    """Probability that cells with these counts are not all absent."""
    with precision(BITS):
        return 1 - math.prod((1 - at_least(threshold - count, scale) for count in partition), start=arb(1))
