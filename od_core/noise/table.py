"""Draw exact noise by inverting the cumulative distribution bit by bit (proof: ``docs/explanation/noise.md``)."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from threading import Lock
from typing import ClassVar

import flint
import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.kernels import kernel
from od_core.noise.keystream import Keystream, Words

MAX_TABLE_VARIANCE = 1 << 28
"""Sigma 16,384. Beyond it, most draws need more than one lookup in a table that takes seconds to certify."""

_BLOCK = 1 << 18
"""Draws at a time. A smaller block stays in the cache, but threads contend more often for the interpreter's lock."""

_UNDECIDED = -(1 << 15)
"""Mark of an undecided cell in the guide.

It is never a value: a k that fills a cell of 2^-16 is one of 2 |k| + 1 values with P >= 2^-16, so |k| < 2^15.
"""


class TableNoise:
    """A source of noise from certified tables, many times faster than OpenDP and just as exact."""

    __slots__ = ()  # no attribute of an instance can be replaced
    largest_variance: ClassVar[int] = MAX_TABLE_VARIANCE

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Draw from N_Z(0, variance); shape (size,).

        Raises:
            OdError: the variance is not above 0, or too large for a table.
        """
        if not 0 < variance <= MAX_TABLE_VARIANCE:
            raise _refused("variance")
        return _table(DiscreteGaussian(variance)).draw(Keystream(), size)

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Draw k with probability proportional to exp(-|k| / scale); shape (size,).

        The variance is below 2 scale^2.

        Raises:
            OdError: the scale (sensitivity over epsilon) is not above 0, or too large for a table.
        """
        if not (scale > 0 and 2 * scale**2 <= MAX_TABLE_VARIANCE):
            raise _refused("scale")
        return _table(DiscreteLaplace(scale)).draw(Keystream(), size)


class _Table:
    """A table of the boundaries F(k) = P(X <= k) of a noise distribution, cut after two limbs.

    A uniform U in [0, 1) is read limb by limb. Its value is the least k with U < F(k). The first limb names a cell of
    the guide, which holds that k if no F lies in the cell. Otherwise the second limb is compared with the second limbs
    of the F in the cell. If it equals one of them, more limbs are read and compared with F itself.
    """

    def __init__(self, distribution: SymmetricDistribution, first_bits: int = 16, further_bits: int = 64) -> None:
        self._distribution, self._first_bits, self._further_bits = distribution, first_bits, further_bits
        cells, seconds = _limbs(distribution, first_bits, further_bits)
        least = -(len(cells) // 2)
        held = np.bincount(cells, minlength=1 << first_bits)  # boundaries in each cell
        starts = np.concatenate([[0], np.cumsum(held)])
        values = starts[:-1] + least
        guide = values.astype(np.int16)  # only undecided cells wrap
        guide[held > 0] = _UNDECIDED
        self._guide, self._starts, self._seconds, self._least = guide, starts.astype(np.int32), seconds, least
        for array in (self._guide, self._starts, self._seconds):
            array.setflags(write=False)

    def draw(self, source: Words, size: int) -> NDArray[np.int64]:
        """Draw from the distribution; shape (size,)."""
        values = np.empty(size, dtype=np.int64)
        undecided = np.empty(min(size, _BLOCK), dtype=np.int32)
        for start in range(0, size, _BLOCK):
            self._fill(source, values[start : start + _BLOCK], undecided)
        return values

    def _fill(self, source: Words, values: NDArray[np.int64], undecided: NDArray[np.int32]) -> None:
        firsts = source.words(self._first_bits, len(values))
        count = _look_up(firsts, self._guide, values, undecided)
        seconds = source.words(self._further_bits, count)
        equal = np.empty(count, dtype=np.int32)
        table = self._starts, self._seconds, self._least
        open_still = _compare(firsts, undecided, seconds, *table, values, equal)
        for i in equal[:open_still]:
            place = undecided[i]
            word = int(firsts[place]) << self._further_bits | int(seconds[i])
            values[place] = self._refine(source, word)

    def _refine(self, source: Words, word: int) -> int:
        """Return the value of a U whose first two limbs are read, after reading as many more as it takes."""
        bits = self._first_bits + self._further_bits
        while True:
            bits += self._further_bits
            word = word << self._further_bits | int(source.words(self._further_bits, 1)[0])
            value = quantile(self._distribution, word, bits)
            if value is not None:
                return value


_BUILDING = Lock()
os.register_at_fork(after_in_child=_BUILDING._at_fork_reinit)  # type: ignore[attr-defined]  # else it may stay locked


def _table(distribution: SymmetricDistribution) -> _Table:
    """Return the table of a distribution. It is built once: threads that want the same one wait for it."""
    with _BUILDING:
        return _built(distribution)


_built = lru_cache(maxsize=32)(_Table)


def _limbs(
    distribution: SymmetricDistribution, first_bits: int, further_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the first and second limbs of the boundaries F(-K), ..., F(K - 1), in order.

    F(k - 1) = 1 - F(-k), and no boundary ends after two limbs, so the limbs above the middle are complements.
    """
    floors = floors_of_tails(distribution, first_bits + further_bits)
    top, mask = (1 << first_bits) - 1, (1 << further_bits) - 1
    firsts = np.array([floor >> further_bits for floor in floors], dtype=np.int64)
    seconds = np.array([floor & mask for floor in floors], dtype=np.uint64)
    return np.concatenate([firsts[::-1], top - firsts]), np.concatenate([seconds[::-1], np.uint64(mask) - seconds])


@kernel
def _look_up(words, guide, values, undecided):  # type: ignore[no-untyped-def]  # compiled
    """Fill in the values that the first limbs decide, and collect the places of the others, without a branch."""
    count = 0
    for i in range(len(words)):
        value = guide[words[i]]
        values[i] = value
        undecided[count] = i
        count += value == _UNDECIDED
    return count


@kernel
def _compare(firsts, undecided, words, starts, seconds, least, values, equal):  # type: ignore[no-untyped-def]  # compiled
    """Fill in the values that the second limbs decide, by bisection in the cell; collect the indices of the others."""
    count = 0
    for i in range(len(words)):
        place, word = undecided[i], words[i]
        cell = firsts[place]
        low = starts[cell]
        size = starts[cell + 1] - low
        while size > 1:
            half = size >> 1
            low += half * (seconds[low + half - 1] < word)
            size -= half
        equal[count] = i
        count += seconds[low] == word
        values[place] = least + low + (seconds[low] < word)
    return count


def _refused(what: str) -> OdError:
    return OdError(
        "OD-NOISE-TABLE",
        f"the noise table cannot be made: the {what} is not above 0 or is too large",
        next_step="use the noise backend opendp",
        spent="the level stays charged",
    )


# Noise distributions on integers, as probabilities with proven error bounds.
#
# All computations use the ball arithmetic of python-flint: intervals that contain the true number, at any precision.
# A statement about a ball is made only if it holds for the whole ball, so no rounding can make it wrong.


_GUARD_BITS = 96
"""Bits beyond the wanted ones. Too few cost time, never exactness: values that stay undecided are computed again."""

_PRECISION = Lock()
"""Lock on flint's precision, which is global. Other code that changes it makes the balls wider, not wrong."""
os.register_at_fork(after_in_child=_PRECISION._at_fork_reinit)  # type: ignore[attr-defined]  # else it may stay locked


@dataclass(frozen=True)
class DiscreteGaussian:
    """The discrete Gaussian N_Z(0, variance): P(k) proportional to exp(-k^2 / (2 variance)) [canonne2020discrete]."""

    variance: Fraction

    def tails(self, bits: int) -> list[arb]:
        """Return balls of P(X >= k) for k = 1, 2, ..., at flint's precision, until certainly below 2^-bits.

        The weights w(k) = exp(-k^2 / (2 variance)) are summed from the far tail inwards, with two multiplications
        each. The sum starts at a K with w(K) < 2^-precision (7/5 is above 2 ln 2). P(X >= K) is smaller still, because
        w(K + j) <= w(K) w(j). The sum beyond K goes into the ball. Ratios of consecutive weights fall outwards, so
        this sum is at most a geometric series with the first of these ratios.
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
    """The discrete Laplace distribution: P(k) = (1 - a) / (1 + a) a^|k| with a = exp(-1 / scale).

    So P(X >= k) = a^k / (1 + a) for k >= 1.
    """

    scale: Fraction

    def tails(self, bits: int) -> list[arb]:
        """Return the balls as for the Gaussian. From k = bits ln 2 scale on, a^k < 2^-bits (7/10 is above ln 2)."""
        ratio = (-arb(rational(1 / self.scale))).exp()
        tail, tails = 1 / (1 + ratio), []
        for _ in range(int(self.scale * bits * 7 / 10) + 1):
            tail *= ratio
            tails.append(tail)
        return tails


SymmetricDistribution = DiscreteGaussian | DiscreteLaplace
"""A distribution with P(X = k) = P(X = -k) > 0 for every integer k."""


def floors_of_tails(distribution: SymmetricDistribution, bits: int) -> list[int]:
    """Return the proven floor(2^bits P(X >= k)) for k = 1, 2, ..., K. The last one, and no other, is 0.

    It is also proven that no 2^bits P(X >= k) is an integer. By symmetry floor(2^bits P(X <= -k)) is the same
    number f, and floor(2^bits P(X <= k - 1)) is 2^bits - 1 - f.
    """
    precision = bits + _GUARD_BITS
    while True:
        with at_precision(precision):
            unit = arb(2) ** bits  # exact, and made once: a product with a Python number takes seven times as long
            floors = _surely_floors([tail * unit for tail in distribution.tails(bits)])
        if floors is not None:
            return floors
        precision *= 2


def quantile(distribution: SymmetricDistribution, word: int, bits: int) -> int | None:
    """Return the least k with U < P(X <= k) if it is proven to be the same for all U in [word, word + 1) / 2^bits.

    Return None if it is not. More bits of U decide it eventually, except on a set of probability 0.
    """
    with at_precision(bits + _GUARD_BITS):
        tails = distribution.tails(bits)
        unit = arb(2) ** bits
        boundaries = [tail * unit for tail in reversed(tails)]
        boundaries += [(1 - tail) * unit for tail in tails]
        # The last boundary is within 1 of 2^bits, so it is never certainly at or below the word: one is always found.
        found = bisect_left(boundaries, True, key=lambda boundary: not boundary <= word)
        return found - len(tails) if boundaries[found] >= word + 1 else None


def _surely_floors(balls: list[arb]) -> list[int] | None:
    """Return the proven floors of the positive numbers in the balls, up to the first 0; None if one is not proven."""
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
    """Set the precision of ball arithmetic, for one thread of the process at a time."""
    with _PRECISION, flint.ctx.workprec(bits):
        yield


def rational(number: Fraction) -> fmpq:
    """Convert a fraction to flint's own type, exactly."""
    return fmpq(number.numerator, number.denominator)
