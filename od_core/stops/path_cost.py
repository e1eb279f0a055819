"""What the splits along a path of PrivTree tell of a trip, proven by ball arithmetic (docs/stops-privtree.md)."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from flint import arb

from od_core.privacy.certified_law import at_precision, rational
from od_core.privacy.stability import SCALE_SLACK

_BITS = 192
"""Of the balls; scales up to 2^50 leave more than a hundred of them."""

_TERMS = 200
"""That are summed one by one; the others are bounded by a geometric series."""

_RESULT_BITS = 64


@lru_cache(maxsize=64)
def path_cost(scale: Fraction, decay: int, sensitivity: int) -> Fraction:
    """The most that all splits on a path can tell: an upper bound of the log ratio of their probabilities.

    A node of depth i with c trips splits if max(c - i decay, theta - decay) + L > theta, L discrete Laplace of this
    scale. Write x = c - i decay - theta and, with a = exp(-1 / scale),

        rho(x) = ln P(x + 1 + L > 0) / P(x + L > 0) = 1 / scale for x <= 0, ln (1 + a - a^(x+1)) / (1 + a - a^x) above.

    A trip more raises x by 1 at every node that it is in; below x = -decay the floor hides it. Down a path trips become
    fewer, so x falls by decay or more from node to node. rho never rises with x, so the sum of rho over the nodes that
    split is largest where the last of them has x = -decay, and each above it decay more: -decay, 0, decay, ...:

        one trip more than without it: 2 / scale + rho(decay) + rho(2 decay) + ...
        one trip fewer: at most 1 / scale, from the node that does not split; splits only lower the ratio.

    Every path with as many trips in each of its nodes comes near it, so it is no less. A replaced trip is one more on
    one path and one fewer on another, and both bounds add up.

    Args:
        scale: of the noise, lambda; holds for all scales from this to (1 + 2^-30) times it, which backends draw from.
        decay: delta, a whole number of at least 1; the theorem of Zhang et al. 2016 asks for scale ln 2 or more.
        sensitivity: 1, or 2 where a trip may be replaced.
    """
    with at_precision(_BITS):
        rate = 1 / arb(rational(scale)).union(arb(rational(scale * (1 + SCALE_SLACK))))
        a, complement = (-rate).exp(), -(-rate).expm1()
        fading = (-rate * decay).exp()  # a^decay
        more, power = 2 * rate, arb(1)
        for _ in range(_TERMS):
            power *= fading
            more += (power * complement / (1 + a - power)).log1p()
        # ln(1 + y) <= y, and 1 + a - a^x >= 1: the rest is at most a geometric series
        more += power * fading * complement / -(-rate * decay).expm1()
        total = more if sensitivity == 1 else more + rate
        units = (total.upper() * 2**_RESULT_BITS).ceil().upper()
        return Fraction(int(units.unique_fmpz()), 2**_RESULT_BITS)
