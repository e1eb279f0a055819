"""Compute the ends of the 90 % intervals of unbiased estimates from their variances.

The ends need not contain the released number; ``released_flows.py`` widens them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from od_core.flows.arrays import Integers, Reals

DEVIATIONS = 1.6448536269514722
"""Half-width, in standard deviations, of the interval that contains a normal variable with probability 0.9."""

ROUNDING = 1e-9
"""Largest relative error of an estimate from floating-point rounding, by which intervals are widened."""

_MOST_TOLERANCE = 0.25
"""Largest widening, in trips, so that the interval of a number that is known exactly contains only that number."""

LISTED = 100
"""Most numbers of a table that are read as the list of the largest."""

_FAR = 5.0
"""Standard deviations above 0 from which the selection of an estimate by its sign matters little."""


def compute_selected_deviations(published: int, public: int, *, has_laplace_noise: bool = False) -> float:
    """Return how many standard deviations below the estimates the lower ends of published numbers lie.

    A number is published above 0 because its noise was. So, of ``public`` numbers of which ``published`` are above 0,
    the lower end is that of a one-sided interval with the error 0.05 ``published / public``
    [benjamini2005false, Theorem 1]. It is at least :data:`DEVIATIONS`. Laplace noise, whose tails are wider, exceeds t
    standard deviations with the probability exp(-t sqrt 2) / 2.
    """
    if published >= public:
        return DEVIATIONS
    error = max(published, 1) / (20 * public)
    of_laplace_noise = -math.log(2 * error) / math.sqrt(2) if has_laplace_noise else 0.0
    return max(DEVIATIONS, -NormalDist().inv_cdf(error), of_laplace_noise)


def compute_deviations(confidence: float, *, has_laplace_noise: bool) -> float:
    """Return the half-width, in standard deviations, of an interval that holds with a confidence between 0 and 1."""
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    return max(normal, -math.log(1 - confidence) / math.sqrt(2)) if has_laplace_noise else normal


class LowerEnds(NamedTuple):
    """How far the lower ends of numbers lie below their estimates.

    Attributes:
        deviations: standard deviations, as of :func:`compute_selected_deviations`; shape (numbers,) or ().
        listed: whether a number is read because it is among the :data:`LISTED` largest; shape (numbers,) or ().
    """

    deviations: Reals | float = DEVIATIONS
    listed: NDArray[np.bool_] | bool = False


USUAL = LowerEnds()
"""The lower ends of numbers that were not chosen by what was released."""


@dataclass(frozen=True)
class Selection:
    """Which numbers of a table people read: those that were published above 0, and the largest as a list.

    Attributes:
        published, public: numbers of published numbers above 0 and of public ones.
        least_listed: the least of the :data:`LISTED` largest; 1 if fewer are above 0. With Laplace noise, it is 1: many
            of the numbers that lie far above 0 are noise then, too.
        has_laplace_noise: whether some of the measurements have Laplace noise.
    """

    published: int
    public: int
    least_listed: int
    has_laplace_noise: bool = False

    @classmethod
    def from_numbers(cls, numbers: Integers | Reals, public: int, *, has_laplace_noise: bool = False) -> Selection:
        """Return the selection of a table of ``public`` numbers, of which those above 0 are among ``numbers``."""
        above = numbers[numbers > 0]
        least = int(np.sort(above)[-LISTED]) if len(above) >= LISTED else 1  # np.partition is slow for equal numbers
        return cls(len(above), public, 1 if has_laplace_noise else least, has_laplace_noise)

    @property
    def deviations(self) -> float:
        """Deviations of the lower ends of published numbers; see :func:`compute_selected_deviations`."""
        return compute_selected_deviations(self.published, self.public, has_laplace_noise=self.has_laplace_noise)

    @property
    def deviations_of_changes(self) -> float:
        """Deviations of the ends towards 0 of changes, of which the largest are read."""
        most_read = min(self.published, LISTED)
        return compute_selected_deviations(most_read, self.public, has_laplace_noise=self.has_laplace_noise)

    def make_lower_ends(self, numbers: Integers | Reals) -> LowerEnds:
        """Return the lower ends of some of the numbers."""
        return LowerEnds(np.where(numbers > 0, self.deviations, DEVIATIONS), numbers >= self.least_listed)


CHOSEN_BEFORE = Selection(0, 0, 1)
"""Of numbers that were not chosen by what was released."""


def compute_lower_bound(estimate: Reals, variance: Reals, ends: LowerEnds = USUAL) -> Integers:
    """Return the lower ends of the 90 % intervals of unbiased estimates with the given variances.

    The ends are whole numbers of at least 0, of the shape of the estimates. An estimate of at least five of its
    standard deviations, if it is not listed, has the usual lower end, since it was hardly selected by its noise.
    """
    near = ends.listed | (estimate < _FAR * np.sqrt(variance))
    width = compute_half_width(estimate, variance, np.where(near, ends.deviations, DEVIATIONS))
    return np.maximum(np.ceil(estimate - width), 0).astype(np.int64)


def compute_upper_bound(estimate: Reals, variance: Reals) -> Integers:
    """Return the upper ends of the same intervals as :func:`compute_lower_bound`."""
    return np.maximum(compute_uncut_upper_bound(estimate, variance), 0)


def compute_uncut_upper_bound(estimate: Reals, variance: Reals) -> Integers:
    """Return the upper ends of the 90 % intervals of numbers that may be negative; whole numbers of the same shape."""
    return np.floor(estimate + compute_half_width(estimate, variance)).astype(np.int64)


def compute_half_width(estimate: Reals, variance: Reals, deviations: Reals | float = DEVIATIONS) -> Reals:
    """Return the half-widths of the intervals of estimates with the given variances; shape of ``estimate``.

    An estimate is a multiple of 1 or, if the sum of two areas is known exactly, of 1/2. So a quarter is added to the
    half-width, by which the ends lie between two multiples; or the half-width is rounded to a whole number, if this is
    more. The interval is at least 1 wide.
    """
    width = deviations * np.sqrt(variance)
    rounding = np.minimum(ROUNDING * (1 + np.abs(estimate)), _MOST_TOLERANCE)
    return np.maximum(np.maximum(width + 0.25, 0.5), np.ceil(width - 0.5)) + rounding


def choose_reliability_words(numbers: Integers, lower: Integers, upper: Integers) -> NDArray[np.str_]:
    """Return a word on how much each number says, from the ends of its interval; shape (numbers,).

    A number may be none if its lower end is 0 or below. It is solid if its interval is at most a quarter of it wide. A
    number that was released as 0 has no word.
    """
    is_solid = 4 * (upper - lower) <= numbers
    return np.select([numbers == 0, lower <= 0, is_solid], ["", "may be none", "solid"], "rough")
