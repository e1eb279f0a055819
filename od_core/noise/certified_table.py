"""The laws of the noise on integers, as probabilities with proven error bounds (spec 3).

Everything here is ball arithmetic by python-flint: an interval that surely holds the true number, at any precision.
A statement about a ball is made only where it holds for all of the ball, so no rounding can make it wrong.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from threading import Lock

import flint
from flint import arb, fmpq

_GUARD_BITS = 96
"""Carried beyond the wanted bits. Too few cost time, never exactness: what stays open is computed again."""

_PRECISION = Lock()
"""Flint's precision is one for the process. Somebody else who changes it makes our balls wider, not wrong."""
os.register_at_fork(after_in_child=_PRECISION._at_fork_reinit)  # type: ignore[attr-defined]  # else it may stay taken


@dataclass(frozen=True)
class DiscreteGaussian:
    """N_Z(0, variance): P(k) proportional to exp(-k^2 / (2 variance)) (Canonne, Kamath & Steinke 2020)."""

    variance: Fraction

    def tails(self, bits: int) -> list[arb]:
        """Balls of P(X >= k) for k = 1, 2, ..., at flint's precision, until surely below 2^-bits.

        The weights w(k) = exp(-k^2 / (2 variance)) are summed from the far tail inwards, two multiplications each.
        The sum starts at a K with w(K) < 2^-precision (7/5 is above 2 ln 2); P(X >= K) is less still, for
        w(K + j) <= w(K) w(j). What lies beyond goes into the ball: the ratios of neighbouring weights fall
        outwards, so it is at most a geometric series with the first of them.
        """
        rate = arb(rational(1 / (2 * self.variance)))
        reach = isqrt(int(self.variance * max(bits, flint.ctx.prec) * 7 / 5)) + 1
        weight = (-rate * reach**2).exp()
        outwards = (-rate * (2 * reach + 1)).exp()
        inwards, change = (rate * (2 * reach - 1)).exp(), (-2 * rate).exp()
        total = (weight * outwards / (1 - outwards)).union(arb(0))
        sums = []
        for _ in range(reach):
            total += weight
            sums.append(total)
            weight *= inwards
            inwards *= change
        share = 1 / (1 + 2 * total)  # the weight of 0 is 1
        return [each * share for each in reversed(sums)]


@dataclass(frozen=True)
class DiscreteLaplace:
    """P(k) = (1 - a) / (1 + a) a^|k|, a = exp(-1 / scale); so P(X >= k) = a^k / (1 + a) for k >= 1."""

    scale: Fraction

    def tails(self, bits: int) -> list[arb]:
        """As for the Gaussian; a^k < 2^-bits from k = bits ln 2 scale on (7/10 is above ln 2)."""
        ratio = (-arb(rational(1 / self.scale))).exp()
        tail, tails = 1 / (1 + ratio), []
        for _ in range(int(self.scale * bits * 7 / 10) + 1):
            tail *= ratio
            tails.append(tail)
        return tails


SymmetricLaw = DiscreteGaussian | DiscreteLaplace
"""P(X = k) = P(X = -k) > 0 for every whole k."""


def floors_of_tails(law: SymmetricLaw, bits: int) -> list[int]:
    """floor(2^bits P(X >= k)) for k = 1, 2, ..., K, proven; the last one, and no other, is 0.

    None of these 2^bits P(X >= k) is a whole number, which is proven with them. By symmetry
    floor(2^bits P(X <= -k)) is the same number, and floor(2^bits P(X <= k - 1)) is 2^bits - 1 less it.
    """
    precision = bits + _GUARD_BITS
    while True:
        with at_precision(precision):
            unit = arb(2) ** bits  # exact, and made once: a tail times a Python number takes seven times as long
            floors = _surely_floors([tail * unit for tail in law.tails(bits)])
        if floors is not None:
            return floors
        precision *= 2


def quantile(law: SymmetricLaw, word: int, bits: int) -> int | None:
    """The least k with U < P(X <= k), the same for all U in [word, word + 1) / 2^bits; None where that is not proven.

    More bits of U decide it in the end, for all U but a set of probability 0.
    """
    with at_precision(bits + _GUARD_BITS):
        tails = law.tails(bits)
        unit = arb(2) ** bits
        boundaries = [tail * unit for tail in reversed(tails)]
        boundaries += [(1 - tail) * unit for tail in tails]
        # The last boundary is within 1 of 2^bits, hence never surely at or below the word: it is always found.
        found = bisect_left(boundaries, True, key=lambda boundary: not boundary <= word)
        return found - len(tails) if boundaries[found] >= word + 1 else None


def _surely_floors(balls: list[arb]) -> list[int] | None:
    """Floors of the positive numbers in the balls, up to the first 0; None where a ball holds a whole number."""
    floors: list[int] = []
    for ball in balls:
        if ball < 1:
            return [*floors, 0]
        floor = ball.floor().unique_fmpz()
        if floor is None or ball.contains_integer():
            return None
        floors.append(int(floor))
    return None


@contextmanager
def at_precision(bits: int) -> Iterator[None]:
    """Ball arithmetic at so many bits, by one thread of the process at a time."""
    with _PRECISION, flint.ctx.workprec(bits):
        yield


def rational(number: Fraction) -> fmpq:
    """The fraction in flint's own type, exact."""
    return fmpq(number.numerator, number.denominator)
