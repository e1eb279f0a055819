"""Discrete Gaussian and Laplace noise by rejection, from uniform bits and integers alone.

The algorithms are those of [canonne2020discrete, Algorithms 1 to 3], of which [demedeiros2025sampcert] proves the
distributions. No step uses a table, a float or a library of noise, so it shares no defect with a backend.
"""

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

Bits = Callable[[int], int]
"""Returns an integer of so many uniform bits: ``secrets.randbits``."""


def uniform(bound: int, bits: Bits) -> int:
    """An integer from 0 to ``bound`` - 1."""
    while True:
        drawn = bits((bound - 1).bit_length())
        if drawn < bound:
            return drawn


def bernoulli_exp(numerator: int, denominator: int, bits: Bits) -> bool:
    """True with probability exp(-numerator / denominator) (Algorithm 1)."""
    while numerator > denominator:
        if not bernoulli_exp(denominator, denominator, bits):
            return False
        numerator -= denominator
    tries = 1
    while uniform(denominator * tries, bits) < numerator:
        tries += 1
    return tries % 2 == 1


def laplace(scale: Fraction, bits: Bits) -> int:
    """k with probability proportional to exp(-\\|k\\| / scale) (Algorithm 2)."""
    numerator, denominator = scale.numerator, scale.denominator
    while True:
        remainder = uniform(numerator, bits)
        if not bernoulli_exp(remainder, numerator, bits):
            continue
        quotient = 0
        while bernoulli_exp(1, 1, bits):
            quotient += 1
        magnitude = (remainder + numerator * quotient) // denominator
        negative = bits(1) == 1
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def gaussian(variance: Fraction, bits: Bits) -> int:
    """k with probability proportional to exp(-k^2 / (2 variance)) (Algorithm 3)."""
    numerator, denominator = variance.numerator, variance.denominator
    scale = isqrt(numerator // denominator) + 1
    while True:
        proposed = laplace(Fraction(scale), bits)
        distance = abs(proposed) * scale * denominator - numerator
        if bernoulli_exp(distance**2, 2 * numerator * denominator * scale**2, bits):
            return proposed
