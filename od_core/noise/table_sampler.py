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
from typing import Any, ClassVar, Protocol

import flint
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from flint import arb, fmpq
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.kernels import kernel

_ZEROS = memoryview(bytes(1 << 19))
"""Plaintext to encrypt: it fits in the cache, and is so long that threads rarely wait for the interpreter's lock."""


class Words(Protocol):
    """A source of uniform random bits."""

    def draw_words(self, bits: int, size: int) -> NDArray[Any]:
        """Return the next ``size`` unsigned words of ``bits`` random bits each; shape (size,)."""
        ...


class Keystream:
    """A stream of uniform words. Each stream has its own random key, which exists only inside this object.

    Make a new stream in every call that draws, so that no two threads, or processes after a fork, use the same stream.
    """

    __slots__ = ("_encryptor",)

    def __init__(self) -> None:
        key, nonce = os.urandom(32), os.urandom(16)
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(nonce)).encryptor()

    def draw_words(self, bits: int, size: int) -> NDArray[Any]:
        """Return the next ``size`` unsigned words of ``bits`` random bits each, 16 or 64; shape (size,)."""
        words = np.empty(size, dtype=f"u{bits // 8}")
        all_bytes = words.view(np.uint8).data
        for start in range(0, len(all_bytes), len(_ZEROS)):
            piece = all_bytes[start : start + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(piece)], piece)
        return words


MAX_TABLE_VARIANCE = 1 << 28
"""Largest variance (sigma 16,384). Above it, most draws need several lookups, and a table takes seconds to make."""

_DRAWS_PER_BLOCK = 1 << 18
"""Number of draws at a time. Larger blocks leave the cache; with smaller blocks, threads wait more for each other."""

_UNDECIDED = -(1 << 15)
"""Mark of a cell of the guide (see :class:`_Table`) whose first limb does not decide the value. No value equals it."""


class TableNoise:
    """A source of noise that uses tables with proven values. It is as exact as OpenDP, and many times faster."""

    __slots__ = ()  # no attribute of an instance can be replaced
    largest_variance: ClassVar[int] = MAX_TABLE_VARIANCE

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws from the discrete Gaussian N_Z(0, variance); shape (size,).

        ``level`` and ``first`` are not used. Raises OdError if the variance is not above 0, or too large for a table.
        """
        if not 0 < variance <= MAX_TABLE_VARIANCE:
            raise _make_table_error("variance")
        return _build_table_once(DiscreteGaussian(variance)).draw(Keystream(), size)

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws of k, with P(k) proportional to exp(-|k| / scale); shape (size,).

        Raises OdError if the scale (sensitivity over epsilon) is not above 0, or too large for a table.
        """
        if not (scale > 0 and 2 * scale**2 <= MAX_TABLE_VARIANCE):  # an upper bound of the variance
            raise _make_table_error("scale")
        return _build_table_once(DiscreteLaplace(scale)).draw(Keystream(), size)


def simulate_draws(distribution: SymmetricDistribution, words: Words, size: int) -> NDArray[np.int64]:
    """Return ``size`` draws from a distribution, made from given ``words``, for simulations; shape (size,).

    Releases must not use this function: :class:`TableNoise` takes the words of a new :class:`Keystream` in every call.
    """
    return _build_table_once(distribution).draw(words, size)


class _Table:
    """A table for drawing a distribution from uniform random bits by inversion; see ``docs/explanation/noise.md``.

    The draw for a uniform number U in [0, 1) is the least k with U < F(k) = P(X <= k). The bits of U and of each
    boundary F(k) are divided into *limbs*: the first limb has ``first_bits`` bits, and each further one has
    ``further_bits``. The table has the first two limbs of every boundary, rounded down. The *guide* has one cell for
    each value of the first limb: the draw, or ``_UNDECIDED`` if a boundary is in the cell.
    """

    def __init__(self, distribution: SymmetricDistribution, first_bits: int = 16, further_bits: int = 64) -> None:
        self._distribution, self._first_bits, self._further_bits = distribution, first_bits, further_bits
        cells, seconds = _compute_limbs(distribution, first_bits, further_bits)
        least = -(len(cells) // 2)  # the k of the first boundary
        boundaries_in_cell = np.bincount(cells, minlength=1 << first_bits)
        starts = np.concatenate([[0], np.cumsum(boundaries_in_cell)])  # number of boundaries before each cell
        values = starts[:-1] + least
        guide = values.astype(np.int16)  # int16 overflows only in undecided cells, which the next line overwrites
        guide[boundaries_in_cell > 0] = _UNDECIDED
        self._guide, self._starts, self._seconds, self._least = guide, starts.astype(np.int32), seconds, least
        for array in (self._guide, self._starts, self._seconds):
            array.setflags(write=False)

    def draw(self, source: Words, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws from the distribution, made from the bits of ``source``; shape (size,)."""
        values = np.empty(size, dtype=np.int64)
        undecided = np.empty(min(size, _DRAWS_PER_BLOCK), dtype=np.int32)
        for start in range(0, size, _DRAWS_PER_BLOCK):
            self._fill_block(source, values[start : start + _DRAWS_PER_BLOCK], undecided)
        return values

    def _fill_block(self, source: Words, values: NDArray[np.int64], undecided: NDArray[np.int32]) -> None:
        """Write independent draws into ``values``, shape (draws,).

        The first limb decides most draws, and the others take a second limb, or more. ``undecided`` is scratch space,
        at least as long as ``values``.
        """
        firsts = source.draw_words(self._first_bits, len(values))
        undecided_count = _look_up_first_limbs(firsts, self._guide, values, undecided)
        seconds = source.draw_words(self._further_bits, undecided_count)
        equal = np.empty(undecided_count, dtype=np.int32)
        equal_count = _compare_second_limbs(
            firsts, undecided, seconds, self._starts, self._seconds, self._least, values, equal
        )
        for index in equal[:equal_count]:
            position = undecided[index]
            word = int(firsts[position]) << self._further_bits | int(seconds[index])
            values[position] = self._draw_from_more_limbs(source, word)

    def _draw_from_more_limbs(self, source: Words, word: int) -> int:
        """Return the draw for a uniform number whose first two limbs, the bits of ``word``, do not decide it.

        Further limbs are drawn from ``source`` until the value is proven.
        """
        bits = self._first_bits + self._further_bits
        while True:
            bits += self._further_bits
            word = word << self._further_bits | int(source.draw_words(self._further_bits, 1)[0])
            value = find_quantile(self._distribution, word, bits)
            if value is not None:
                return value


_BUILDING = Lock()
os.register_at_fork(after_in_child=_BUILDING._at_fork_reinit)  # type: ignore[attr-defined]  # else it may stay locked


def _build_table_once(distribution: SymmetricDistribution) -> _Table:
    """Return the table of a distribution, which is built once while other threads wait."""
    with _BUILDING:
        return _build_table(distribution)


_build_table = lru_cache(maxsize=32)(_Table)


def _compute_limbs(
    distribution: SymmetricDistribution, first_bits: int, further_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the first and the second limbs of the boundaries F(-K), ..., F(K - 1), in order; shape (2 K,) each.

    K is the length of :func:`compute_tail_floors`, whose item k is F(-k) = P(X >= k), scaled and rounded down. Since
    F(k - 1) = 1 - F(-k), and no boundary is an exact number of two limbs, the limbs of F(0), ..., F(K - 1) are the
    bitwise complements of those of F(-1), ..., F(-K).
    """
    floors = compute_tail_floors(distribution, first_bits + further_bits)
    first_mask, further_mask = (1 << first_bits) - 1, (1 << further_bits) - 1
    firsts = np.array([floor >> further_bits for floor in floors], dtype=np.int64)
    seconds = np.array([floor & further_mask for floor in floors], dtype=np.uint64)
    all_firsts = np.concatenate([firsts[::-1], first_mask - firsts])
    return all_firsts, np.concatenate([seconds[::-1], np.uint64(further_mask) - seconds])


@kernel
def _look_up_first_limbs(
    words: NDArray[np.uint16], guide: NDArray[np.int16], values: NDArray[np.int64], undecided: NDArray[np.int32]
) -> int:
    """Write the draws that first limbs decide into ``values``, and return the number of undecided draws.

    Args:
        words: first limb of each draw; shape (draws,).
        guide: guide of the table; see :class:`_Table`.
        values: output, shape (draws,). Undecided draws get the value ``_UNDECIDED``.
        undecided: output of at least the same length. Its beginning becomes the positions of the undecided draws.
    """
    count = 0
    for position in range(len(words)):
        value = guide[words[position]]
        values[position] = value
        undecided[count] = position  # the next undecided draw overwrites it, unless this one is undecided
        count += value == _UNDECIDED
    return count


@kernel
def _compare_second_limbs(firsts, undecided, words, starts, seconds, least, values, equal):  # type: ignore[no-untyped-def]  # compiled
    """Write the draws that second limbs decide into ``values``, and return the number of draws still undecided.

    A binary search finds the first boundary of the draw's cell whose second limb is at least that of the draw. The draw
    is undecided if the two limbs are equal.

    Args:
        firsts: first limb of every draw; shape (draws,).
        undecided: positions of the draws that first limbs do not decide; shape (at least n,).
        words: second limb of each of these draws; shape (n,).
        starts, seconds, least: attributes of the table.
        values: output, shape (draws,).
        equal: output, shape (n,). Its beginning becomes the indices, in ``undecided``, of the draws still undecided.
    """
    count = 0
    for index in range(len(words)):
        position, word = undecided[index], words[index]
        cell = firsts[position]
        boundary = starts[cell]
        size = starts[cell + 1] - boundary
        while size > 1:
            half = size >> 1
            boundary += half * (seconds[boundary + half - 1] < word)
            size -= half
        equal[count] = index  # the next undecided draw overwrites it, unless this one is undecided
        count += seconds[boundary] == word
        values[position] = least + boundary + (seconds[boundary] < word)
    return count


def _make_table_error(what: str) -> OdError:
    """Return the OdError for a ``variance`` or ``scale`` with which no table can be made."""
    message = f"the noise table cannot be made: the {what} is not above 0 or is too large"
    return OdError("OD-NOISE-TABLE", message, next_step="use the noise backend opendp", spent="the level stays charged")


# Noise distributions on integers, as probabilities with proven error bounds.
#
# All computations use the ball arithmetic of python-flint. A ball is an interval that contains the true number, and can
# have any precision. A comparison counts as true only if it holds for the whole ball, so rounding cannot make it wrong.


_GUARD_BITS = 96
"""Number of additional bits of precision. If they are too few, undecided values are computed again with more."""

_PRECISION = Lock()
"""Lock for flint's global precision. If other code changes the precision, the balls become wider, but stay valid."""
os.register_at_fork(after_in_child=_PRECISION._at_fork_reinit)  # type: ignore[attr-defined]  # else it may stay locked


@dataclass(frozen=True)
class DiscreteGaussian:
    """The discrete Gaussian N_Z(0, variance), with P(X = k) proportional to exp(-k^2 / (2 variance)).

    See [canonne2020discrete, Definition 1].
    """

    variance: Fraction

    def compute_tails(self, bits: int) -> list[arb]:
        """Return balls that contain P(X >= k) for k = 1, 2, ..., K, at flint's precision, where P(X >= K) < 2^-bits.

        The weight of k is exp(-k^2 / (2 variance)). Let p be the larger of ``bits`` and flint's precision. K is chosen
        so that K^2 > 7/5 p variance. Because 7/5 > 2 ln 2, the weight of K is below 2^-p, and P(X >= K) is below this
        weight. The weights are summed from K down to 1. The sum starts with a ball that contains the sum of all weights
        beyond K, which is at most that of a geometric series.
        """
        rate = arb(convert_to_rational(1 / (2 * self.variance)))
        reach = isqrt(int(self.variance * max(bits, flint.ctx.prec) * 7 / 5)) + 1
        weight = (-rate * reach**2).exp()
        outwards = (-rate * (2 * reach + 1)).exp()  # ratio of weights K + 1 and K; later ones are smaller
        # The ratio of the weight of k - 1 to that of k is exp(rate (2k - 1)), which changes by exp(-2 rate) per step.
        inwards, change = (rate * (2 * reach - 1)).exp(), (-2 * rate).exp()
        total = (weight * outwards / (1 - outwards)).union(arb(0))  # from 0 to the bound of the weights beyond K
        sums = []
        for _ in range(reach):
            total += weight
            sums.append(total)
            weight *= inwards  # of the next smaller k
            inwards *= change
        probability_of_0 = 1 / (1 + 2 * total)  # the weight of 0 is 1
        return [sum_of_weights * probability_of_0 for sum_of_weights in reversed(sums)]


@dataclass(frozen=True)
class DiscreteLaplace:
    """The discrete Laplace distribution: P(X = k) = (1 - a) / (1 + a) a^|k|, where a = exp(-1 / scale).

    It follows that P(X >= k) = a^k / (1 + a) for k >= 1.
    """

    scale: Fraction

    def compute_tails(self, bits: int) -> list[arb]:
        """Return balls that contain P(X >= k) for k = 1, 2, ..., K, at flint's precision, where P(X >= K) < 2^-bits.

        If k is at least bits * ln(2) * scale, then a^k <= 2^-bits. The factor 7/10 is an upper bound of ln 2.
        """
        ratio = (-arb(convert_to_rational(1 / self.scale))).exp()
        tail, tails = 1 / (1 + ratio), []
        for _ in range(int(self.scale * bits * 7 / 10) + 1):
            tail *= ratio
            tails.append(tail)
        return tails


SymmetricDistribution = DiscreteGaussian | DiscreteLaplace
"""A distribution with P(X = k) = P(X = -k) > 0 for every integer k."""


def compute_tail_floors(distribution: SymmetricDistribution, bits: int) -> list[int]:
    """Return floor(2^bits P(X >= k)) for k = 1, 2, ..., up to and including the first k for which the floor is 0.

    X has the given distribution. Every floor is proven, and so is that no 2^bits P(X >= k) is an integer.
    """
    precision = bits + _GUARD_BITS
    while True:
        with set_precision(precision):
            unit = arb(2) ** bits  # exact, and made once: a product with a Python number takes seven times as long
            floors = _prove_floors([tail * unit for tail in distribution.compute_tails(bits)])
        if floors is not None:
            return floors
        precision *= 2


def find_quantile(distribution: SymmetricDistribution, word: int, bits: int) -> int | None:
    """Return the least k with U < P(X <= k), if k is proven to be the same for all U in [word, word + 1) / 2^bits.

    X has the given distribution. Return None if this is not proven, so that more bits of U are needed.
    """
    with set_precision(bits + _GUARD_BITS):
        tails = distribution.compute_tails(bits)
        unit = arb(2) ** bits
        boundaries = [tail * unit for tail in reversed(tails)]
        boundaries += [(1 - tail) * unit for tail in tails]
        # The last boundary is above 2^bits - 1, so it is not proven to be at most the word: one is always found.
        position = bisect_left(boundaries, True, key=lambda boundary: not boundary <= word)
        return position - len(tails) if boundaries[position] >= word + 1 else None


def _prove_floors(balls: list[arb]) -> list[int] | None:
    """Return the floors of positive, descending numbers in balls, up to and including the first 0.

    Return None if a floor is not proven, if a ball contains an integer, or if no floor is 0.
    """
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
def set_precision(bits: int) -> Iterator[None]:
    """Set flint's precision of ball arithmetic to ``bits`` during this context. Threads enter it one at a time."""
    with _PRECISION, flint.ctx.workprec(bits):
        yield


def convert_to_rational(number: Fraction) -> fmpq:
    """Return a fraction as flint's type of fractions, without rounding."""
    return fmpq(number.numerator, number.denominator)
