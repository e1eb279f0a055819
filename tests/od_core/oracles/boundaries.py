"""P(X <= k) of the noise laws in decimal arithmetic of 140 digits, and what a uniform word is worth by them.

The Gaussian weights are made from 0 outwards (the library makes them from the tail inwards, in binary balls). Every
operation is right to 140 digits; n steps of a product of products lose at most n^2 units, and n stays below 10^6: each
probability is right to 120 digits, and a floor is taken only where 10^-20 up or down does not change it.
"""

import decimal
from bisect import bisect_left
from decimal import Decimal
from fractions import Fraction

_DIGITS = 140
_NOTHING = Decimal("1e-130")


def gaussian_tails(variance: Fraction) -> list[Decimal]:
    """P(X >= k), k = 1, 2, ..., for P(k) proportional to exp(-k^2 / (2 variance)), until about 1e-130."""
    with decimal.localcontext(prec=_DIGITS):
        rate = Decimal(variance.denominator) / Decimal(2 * variance.numerator)
        weights, ratio, change = [Decimal(1)], (-rate).exp(), (-2 * rate).exp()
        while weights[-1] > _NOTHING:
            weights.append(weights[-1] * ratio)
            ratio *= change
        return _tails(weights)


def laplace_tails(scale: Fraction) -> list[Decimal]:
    """P(X >= k), k = 1, 2, ..., for P(k) proportional to exp(-|k| / scale), until about 1e-130."""
    with decimal.localcontext(prec=_DIGITS):
        weights, ratio = [Decimal(1)], (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
        while weights[-1] > _NOTHING:
            weights.append(weights[-1] * ratio)
        return _tails(weights)


def _tails(weights: list[Decimal]) -> list[Decimal]:
    """Sums of the weights of 0, 1, 2, ... from the smallest on, over the sum of all and of their mirrored ones."""
    tails, total = [], Decimal(0)
    for weight in reversed(weights[1:]):
        total += weight
        tails.append(total)
    return [tail / (weights[0] + 2 * total) for tail in reversed(tails)]


def floors(tails: list[Decimal], bits: int) -> list[int]:
    """floor(2^bits P(X >= k)) for k = 1, 2, ... up to the first 0."""
    found = []
    with decimal.localcontext(prec=_DIGITS):
        for tail in tails:
            scaled, doubt = tail * 2**bits, Decimal("1e-20")
            floor = int(scaled)
            assert scaled < doubt or int(scaled - doubt) == int(scaled + doubt) == floor
            found.append(floor)
            if floor == 0:
                return found
    raise AssertionError("these bits reach beyond the tails")


class Inversion:
    """The least k with U < P(X <= k), for a U of which some bits are known."""

    def __init__(self, tails: list[Decimal]) -> None:
        self.tails = tails
        self._boundaries: dict[int, list[int]] = {}

    def boundaries(self, bits: int) -> list[int]:
        """floor(2^bits P(X <= k)) for k = -K, ..., K - 1."""
        if bits not in self._boundaries:
            below = floors(self.tails, bits)
            self._boundaries[bits] = below[::-1] + [2**bits - 1 - floor for floor in below]
        return self._boundaries[bits]

    def value(self, word: int, bits: int) -> int | None:
        """None where a boundary lies between word / 2^bits and (word + 1) / 2^bits."""
        boundaries = self.boundaries(bits)
        place = bisect_left(boundaries, word)
        return None if boundaries[place] == word else place - len(boundaries) // 2
