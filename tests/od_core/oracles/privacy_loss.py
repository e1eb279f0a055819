"""The delta of shifted discrete Gaussians by other means: balls, all outcomes one by one, pairs of halves.

delta(eps) = sum over outcomes x of max(0, P(x) - exp(eps) Q(x)), with P the noise and Q the noise moved in each
coordinate, by one or by several trips (Canonne, Kamath & Steinke 2020).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction

import flint
import numpy as np
from flint import arb, arb_poly, fmpq
from numpy.typing import NDArray
from scipy.fft import next_fast_len

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
    """Balls of P(X_1 + ... + X_count = s), from -s to s: a power of the generating polynomial, by squaring.

    A sum of k is sub-Gaussian with k variances: what lies beyond their reach is cut off as soon as it appears.
    """
    weights = [(-arb(rational(k * k / (2 * variance)))).exp() for k in range(reach(variance) + 1)]
    normaliser = 2 * sum(weights[1:], start=arb(0)) + weights[0]
    one = arb_poly([weight / normaliser for weight in (*weights[:0:-1], *weights)])
    law, copies = one, 1
    for bit in f"{count:b}"[1:]:
        law, copies = law * law * (one if bit == "1" else 1), 2 * copies + int(bit)
        masses = law.coeffs()
        beyond = max(0, len(masses) // 2 - reach(copies * variance))
        law = arb_poly(masses[beyond : len(masses) - beyond])
    return law.coeffs()


def delta_by_balls(variance: Fraction, count: int, epsilon: Fraction, shift: int = 1) -> arb:
    """A ball of delta where all variances are equal: sum over s = sum of x of P(s) (1 - exp(eps - loss(s)))_+.

    The loss (the log of P(x) / Q(x), Q moved by m = ``shift`` everywhere) is a function of s:
    (count m^2 - 2 m s) / (2 variance).
    """
    with precision(160):
        law = law_of_sum(variance, count)
        total = arb(0)
        for index, mass in enumerate(law):
            loss = (count * shift**2 - 2 * shift * (index - len(law) // 2)) / (2 * variance)
            if loss <= epsilon:
                break  # and so is every further one
            total += mass * (1 - arb(rational(epsilon - loss)).exp())
        return total


def delta_of_outcomes(variances: Sequence[Fraction], shifts: Sequence[int], epsilon: Fraction) -> float:
    """All outcomes of two or three small discrete Gaussians, one by one, from the definition."""
    terms = []
    laws = []
    most = max(map(abs, shifts))
    for variance in variances:
        width = math.ceil(9 * math.sqrt(variance)) + 1 + most
        weights = {k: math.exp(-k * k / (2 * variance)) for k in range(-width - most, width + most + 1)}
        total = math.fsum(weights.values())
        laws.append({k: weight / total for k, weight in weights.items()})
    for outcome in itertools.product(*(list(law)[most:-most] for law in laws)):
        p = math.prod(law[x] for law, x in zip(laws, outcome, strict=True))
        q = math.prod(law[x - shift] for law, x, shift in zip(laws, outcome, shifts, strict=True))
        terms.append(max(0.0, p - math.exp(epsilon) * q))
    return math.fsum(terms)


def losses_of_division(variance: Fraction, shifts: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses and masses of a level whose cells move by whole numbers of trips.

    The loss is a function of the sum of d_i x_i, a whole number, whose law is that of independent multiples.
    """
    width = math.ceil(12 * math.sqrt(variance)) + 2
    at = np.arange(-width, width + 1)
    weights = np.exp(-(at**2) / (2 * float(variance)))
    law = np.ones(1)
    for shift in filter(None, map(abs, shifts)):
        multiple = np.zeros(2 * shift * width + 1)
        multiple[::shift] = weights / weights.sum()
        law = np.convolve(law, multiple)
    sums = np.arange(len(law)) - len(law) // 2
    losses = (sum(shift**2 for shift in shifts) - 2 * sums) / (2 * float(variance))
    return losses[law > 1e-30], law[law > 1e-30]


def delta_of_divisions(levels: Sequence[tuple[Fraction, Sequence[int]]], epsilon: float) -> float:
    """Delta of one or two levels, each with the moves of its cells: every pair of losses."""
    losses, masses = np.zeros(1), np.ones(1)
    for level in levels:
        more, weights = losses_of_division(*level)
        losses, masses = np.add.outer(losses, more).ravel(), np.multiply.outer(masses, weights).ravel()
    excess = np.maximum(losses - epsilon, 0)
    return float(-masses @ np.expm1(-excess))


def atoms(variance: Fraction, count: int, shift: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses and masses of ``count`` equal Gaussians, masses above 1e-25."""
    with precision(160):
        masses = np.array([float(mass) for mass in law_of_sum(variance, count)])
    sums = np.arange(len(masses)) - len(masses) // 2
    losses = (count * shift**2 - 2 * shift * sums) / (2 * float(variance))
    seen = masses > 1e-25
    return losses[seen], masses[seen]


def delta_by_halves(levels: Sequence[tuple[Fraction, int]], epsilon: float, shift: int = 1) -> float:
    """Delta of unequal variances, (variance, count) each: every pair of an atom of one half and one of the other.

    Losses of a half are all sums of its levels' losses. For each atom of the first half the atoms of the second that
    lift the sum above eps are a tail of its sorted losses, whose P and Q are running sums.
    """
    halves = []
    for part in (levels[::2], levels[1::2]):
        losses, masses = np.zeros(1), np.ones(1)
        for level in part:
            more, weights = atoms(*level, shift)
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
    size = next_fast_len(math.ceil(2 * width / step), real=True)
    transform = np.ones(size // 2 + 1, dtype=np.complex128)
    offset = 0.0
    for variance, count in levels:
        losses, masses = atoms(variance, count)
        centre = count / (2 * float(variance))
        offset += centre
        dots = np.rint((losses - centre) / step).astype(np.int64) % size
        transform *= np.fft.rfft(np.bincount(dots, masses, size))
    masses = np.fft.fftshift(np.fft.irfft(transform, size))
    excess = offset + step * (np.arange(size) - size // 2) - epsilon
    above = int(np.searchsorted(excess, 0, side="right"))
    return float(-masses[above:] @ np.expm1(-excess[above:]))


def delta_of_gaussian(rho: float, epsilon: float) -> float:
    """The analytic Gaussian mechanism with mu = sqrt(2 rho) (Balle & Wang 2018)."""
    mu = math.sqrt(2 * rho)
    return math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2 - (
        math.exp(epsilon) * math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    )
