"""Compute the distributions of sums of independent numbers of trips, and divide a given sum among its terms.

The terms are added in pairs, the sums of pairs in pairs, and so on. So a sum is divided from the top down: first into
those of the first and of the second half of its terms.

A distribution is an array of probabilities up to a constant factor, with the number of trips of its first value. All
arrays of a set of sums are parts of one array.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.random_counter import random_number
from od_core.kernels import kernel

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]

_LEAST_PART = 1e-18
"""Probabilities below this part of the largest one are left out at both ends of a distribution."""


class PartialSums(NamedTuple):
    """The distributions of some terms, of the sums of pairs of them, of the sums of pairs of these, and so on.

    Attributes:
        tier: The distributions ``tier[j]:tier[j + 1]`` are those of sums of up to 2^j consecutive terms. The last tier
            has one distribution, that of the sum of all terms. Shape (tiers + 1,).
        low: The smallest number of trips of each distribution; shape (distributions,).
        length: Number of its values; shape (distributions,).
        at: Position of its first value in ``values``; shape (distributions,).
        factor: What its values were divided by after the convolution; shape (distributions,).
        mean, variance: Moments of its number of trips above ``low``; shape (distributions,).
        values: The values of all distributions.
    """

    tier: _Values
    low: _Values
    length: _Values
    at: _Values
    factor: _Reals
    mean: _Reals
    variance: _Reals
    values: _Reals


@kernel
def convolve(one, other, skipped, sums):  # type: ignore[no-untyped-def]  # compiled
    """Write the values of the convolution of two arrays from position ``skipped`` on, as many as ``sums`` has.

    Each value is the sum of its terms in the order of ``one``. Four of them are added at a time, which takes two thirds
    of the time of single ones.
    """
    sums[:] = 0.0
    padded, factors = np.zeros(len(other) + 6), np.zeros(len(one) + 3)
    padded[3:-3], factors[: len(one)] = other, one
    for a in range(0, len(one), 4):
        first, last = max(skipped - a, 0), min(skipped + len(sums) - a, len(other) + 3)
        if first < last:
            to = sums[first + a - skipped : last + a - skipped]
            terms, second = padded[first + 3 : last + 3], padded[first + 2 : last + 2]
            third, fourth = padded[first + 1 : last + 1], padded[first:last]
            for b in range(len(to)):
                three = to[b] + factors[a] * terms[b] + factors[a + 1] * second[b] + factors[a + 2] * third[b]
                to[b] = three + factors[a + 3] * fourth[b]


@kernel
def trimmed(low, values, size):  # type: ignore[no-untyped-def]  # compiled
    """Move the first ``size`` values to the front without those that are nearly 0 at both ends, and scale them.

    Return the number of trips of the first value, how many values there are, and what they were divided by. If all are
    0, one is left.
    """
    top = 0.0
    for k in range(size):
        top = max(top, values[k])
    if top == 0.0:
        values[0] = 1.0
        return low, 1, 0.0
    first, last = 0, size
    while values[first] <= _LEAST_PART * top:
        first += 1
    while values[last - 1] <= _LEAST_PART * top:
        last -= 1
    for k in range(first, last):
        values[k - first] = values[k] / top
    return low + first, last - first, top


@kernel
def partial_sums(term_low, term_length, terms, least, most):  # type: ignore[no-untyped-def]  # compiled
    """Return the distributions of all partial sums of independent terms, if their sum is from ``least`` to ``most``.

    Args:
        term_low: The smallest number of trips of each term; shape (terms,).
        term_length: How many values the distribution of each term has; shape (terms,).
        terms: These distributions; shape (terms, width).
        least, most: Smallest and largest sum of all terms that is considered.
    """
    tier = _tiers(len(term_low))
    nodes = tier[-1]
    low, length, at = np.empty(nodes, np.int64), np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    factor, mean, variance = np.ones(nodes), np.empty(nodes), np.empty(nodes)
    highest = np.empty(nodes, np.int64)  # the largest trips of each, if all others have their smallest
    values, used, spare = np.empty(4 * term_length.sum() + 1024), 0, max(most - term_low.sum(), 0)
    for k in range(len(term_low)):
        skipped = min(max(least - term_low[k], 0), term_length[k] - 1) if nodes == 1 else 0
        low[k], highest[k], at[k] = term_low[k] + skipped, term_low[k] + spare, used
        length[k] = max(min(term_length[k], spare + 1) - skipped, 1)
        values[used : used + length[k]] = terms[k, skipped : skipped + length[k]]
        used += length[k]
    for j in range(1, len(tier) - 1):
        for node in range(tier[j], tier[j + 1]):
            left = tier[j - 1] + 2 * (node - tier[j])
            if left + 1 == tier[j]:  # the last one has no other half
                low[node], length[node], at[node], factor[node] = low[left], length[left], at[left], factor[left]
                highest[node] = highest[left]
                continue
            short, long = left, left + 1
            if length[short] > length[long]:
                short, long = long, short
            least_here = low[left] + low[left + 1]
            highest[node] = highest[left] + highest[left + 1] - spare
            size = min(length[left] + length[left + 1] - 1, highest[node] - least_here + 1)
            skipped = min(max(least - least_here, 0), size - 1) if node == nodes - 1 else 0
            size = max(size - skipped, 1)
            if used + size > len(values):
                longer = np.empty(max(2 * len(values), used + size))
                longer[:used] = values[:used]
                values = longer
            own, one, other = values[used : used + size], at[short], at[long]
            convolve(values[one : one + length[short]], values[other : other + length[long]], skipped, own)
            low[node], length[node], factor[node] = trimmed(least_here + skipped, own, size)
            at[node] = used
            used += length[node]
    for node in range(nodes):
        mean[node], variance[node] = _moments(values[at[node] : at[node] + length[node]])
    return PartialSums(tier, low, length, at, factor, mean, variance, values)


@kernel
def _tiers(terms):  # type: ignore[no-untyped-def]  # compiled
    """Return the first distribution of each tier, and how many there are."""
    tiers = 1
    while 1 << (tiers - 1) < terms:
        tiers += 1
    tier = np.zeros(tiers + 1, np.int64)
    for j in range(tiers):
        tier[j + 1] = tier[j] + (terms + (1 << j) - 1 >> j)
    return tier


@kernel
def _moments(values):  # type: ignore[no-untyped-def]  # compiled
    """Return the mean and the variance of the positions in a distribution."""
    whole, first, second = 0.0, 0.0, 0.0
    for k in range(len(values)):
        whole += values[k]
        first += k * values[k]
        second += k * k * values[k]
    mean = first / whole
    return mean, max(second / whole - mean * mean, 0.0)


@kernel
def divide(sums, whole, counter, draw, start, given):  # type: ignore[no-untyped-def]  # compiled
    """Divide a given sum among its terms at random. Return whether that is possible.

    The probability of a division of a partial sum is a term of the convolution, whose value is known. So the terms are
    added only until they exceed a random part of that value, from the most probable ones on.

    Args:
        sums: The result of :func:`partial_sums`.
        whole: The sum of all terms.
        counter, draw, start: The random numbers are those of the nodes ``start``, ``start + 1``, ... in a draw. A
            partial sum uses that of the first term of its second half.
        given: Where all partial sums are written, the terms first; shape (distributions,).
    """
    tier, values, last = sums.tier, sums.values, len(sums.low) - 1
    if not 0 <= whole - sums.low[last] < sums.length[last]:
        return False
    given[last] = whole
    for j in range(len(tier) - 2, 0, -1):
        for node in range(tier[j], tier[j + 1]):
            left = tier[j - 1] + 2 * (node - tier[j])
            right = left + 1
            if right == tier[j]:  # the last one has no other half
                given[left] = given[node]
                continue
            above = given[node] - sums.low[left] - sums.low[right]  # what both have together above their smallest
            fewest, most = max(above - sums.length[right] + 1, 0), min(above, sums.length[left] - 1)
            if fewest < most:
                middle = start + ((2 * (node - tier[j]) + 1) << (j - 1))
                place = sums.at[node] + given[node] - sums.low[node]
                goal = random_number(counter, draw, middle) * (values[place] * sums.factor[node])
                spread, share = sums.variance[left] + sums.variance[right], 0.0
                if spread > 0.0:
                    share = sums.variance[left] / spread
                expected = sums.mean[left] + share * (above - sums.mean[left] - sums.mean[right])
                first = min(max(int(expected + 0.5), fewest), most)
                one = values[sums.at[left] : sums.at[left] + sums.length[left]]
                other = values[sums.at[right] : sums.at[right] + sums.length[right]]
                fewest = _chosen_part(one, other, above, fewest, most, first, goal)
            elif fewest > most:
                return False
            if fewest < 0:
                return False
            given[left] = sums.low[left] + fewest
            given[right] = given[node] - given[left]
    return True


@kernel
def _chosen_part(one, other, above, fewest, most, first, goal):  # type: ignore[no-untyped-def]  # compiled
    """Return the position in ``one`` at which the terms of a convolution exceed ``goal``; -1 if all are 0.

    The terms are added from position ``first`` on, to both sides in turn.
    """
    total, up, down = 0.0, first, first - 1
    while up <= most or down >= fewest:
        if up <= most:
            total += one[up] * other[above - up]
            if total > goal:
                return up
            up += 1
        if down >= fewest:
            total += one[down] * other[above - down]
            if total > goal:
                return down
            down -= 1
    best, top = -1, 0.0  # the sum differs from the goal by rounding: the most probable position
    for k in range(fewest, most + 1):
        if one[k] * other[above - k] > top:
            best, top = k, one[k] * other[above - k]
    return best
