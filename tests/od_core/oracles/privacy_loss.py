"""The delta of unit-shift discrete Gaussians by other means: balls, all outcomes one by one, pairs of halves.

delta(eps) = sum over outcomes x of max(0, P(x) - exp(eps) Q(x)), with P the noise and Q the noise moved by one in each
coordinate (Canonne, Kamath & Steinke 2020).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction

import flint
import numpy as np
from flint import arb, arb_poly, fmpq
from numpy.typing import NDArray

DIGITS = 30
"""Tails beyond 10^-DIGITS are left out; each test's delta is above 1e-12."""


def rational(value: Fraction) -> fmpq:
    return fmpq(value.numerator, value.denominator)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before


def reach(variance: Fraction) -> int:
    """Beyond it lie less than 10^-DIGITS of a discrete Gaussian."""
    return math.ceil(math.sqrt(2 * DIGITS * math.log(10) * float(variance))) + 1


def law_of_sum(variance: Fraction, count: int) -> list[arb]:
    """Balls of P(X_1 + ... + X_count = s), s = -count reach, ..., count reach: a power of the generating polynomial."""
    weights = [(-arb(rational(k * k / (2 * variance)))).exp() for k in range(reach(variance) + 1)]
    law = arb_poly([*weights[:0:-1], *weights]) ** count
    normaliser = law(arb(1))
    return [law[s] / normaliser for s in range(law.length())]


def delta_by_balls(variance: Fraction, count: int, epsilon: Fraction) -> arb:
    """A ball of delta where all variances are equal: sum over s = sum of x of P(s) (1 - exp(eps - loss(s)))_+.

    The loss (the log of P(x) / Q(x), Q moved by +1 everywhere) is a function of s: (count - 2 s) / (2 variance).
    """
    with precision(160):
        law = law_of_sum(variance, count)
        total = arb(0)
        for index, mass in enumerate(law):
            loss = (count - 2 * (index - len(law) // 2)) / (2 * variance)
            if loss > epsilon:
                total += mass * (1 - arb(rational(epsilon - loss)).exp())
        return total


def delta_of_outcomes(variances: Sequence[Fraction], shifts: Sequence[int], epsilon: Fraction) -> float:
    """All outcomes of two or three small discrete Gaussians, one by one, from the definition."""
    terms = []
    laws = []
    for variance in variances:
        width = math.ceil(9 * math.sqrt(variance)) + 2
        weights = {k: math.exp(-k * k / (2 * variance)) for k in range(-width - 1, width + 2)}
        total = math.fsum(weights.values())
        laws.append({k: weight / total for k, weight in weights.items()})
    for outcome in itertools.product(*(list(law)[1:-1] for law in laws)):
        p = math.prod(law[x] for law, x in zip(laws, outcome, strict=True))
        q = math.prod(law[x - shift] for law, x, shift in zip(laws, outcome, shifts, strict=True))
        terms.append(max(0.0, p - math.exp(epsilon) * q))
    return math.fsum(terms)


def atoms(variance: Fraction, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses and masses of ``count`` equal Gaussians, masses above 1e-25."""
    with precision(160):
        masses = np.array([float(mass) for mass in law_of_sum(variance, count)])
    sums = np.arange(len(masses)) - len(masses) // 2
    losses = (count - 2 * sums) / (2 * float(variance))
    seen = masses > 1e-25
    return losses[seen], masses[seen]


def delta_by_halves(levels: Sequence[tuple[Fraction, int]], epsilon: float) -> float:
    """Delta of unequal variances, (variance, count) each: every pair of an atom of one half and one of the other.

    Losses of a half are all sums of its levels' losses. For each atom of the first half the atoms of the second that
    lift the sum above eps are a tail of its sorted losses, whose P and Q are running sums.
    """
    halves = []
    for part in (levels[::2], levels[1::2]):
        losses, masses = np.zeros(1), np.ones(1)
        for level in part:
            more, weights = atoms(*level)
            losses = np.add.outer(losses, more).ravel()
            masses = np.multiply.outer(masses, weights).ravel()
            losses, masses = losses[masses > 1e-25], masses[masses > 1e-25]
        order = np.argsort(losses)
        halves.append((losses[order], masses[order]))
    (one, p_one), (other, p_other) = halves
    tail_p = np.append(np.cumsum(p_other[::-1])[::-1], 0)
    tail_q = np.append(np.cumsum((p_other * np.exp(-other))[::-1])[::-1], 0)
    from_ = np.searchsorted(other, epsilon - one, side="right")
    return float(np.sum(p_one * (tail_p[from_] - np.exp(epsilon - one) * tail_q[from_])))


def delta_by_nearest(levels: Sequence[tuple[Fraction, int]], epsilon: float, step: float) -> float:
    """An estimate for many levels: each level's loss goes to the nearest multiple of a very fine step."""
    width = 14 * math.sqrt(sum(count / float(variance) for variance, count in levels))
    size = 1 << math.ceil(math.log2(2 * width / step))
    transform = np.ones(size // 2 + 1, dtype=np.complex128)
    offset = 0.0
    for variance, count in levels:
        losses, masses = atoms(variance, count)
        centre = count / (2 * float(variance))
        offset += centre
        law = np.zeros(size)
        np.add.at(law, np.rint((losses - centre) / step).astype(np.int64) % size, masses)
        transform *= np.fft.rfft(law)
    masses = np.fft.irfft(transform, size)
    excess = offset + step * ((np.arange(size) + size // 2) % size - size // 2) - epsilon
    return float(np.sum(masses[excess > 0] * -np.expm1(-excess[excess > 0])))


def delta_of_gaussian(rho: float, epsilon: float) -> float:
    """The analytic Gaussian mechanism with mu = sqrt(2 rho) (Balle & Wang 2018)."""
    mu = math.sqrt(2 * rho)
    return math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2 - (
        math.exp(epsilon) * math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    )
