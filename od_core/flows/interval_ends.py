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

_MAX_WIDENING = 0.25
"""Largest widening, in trips, so that the interval of a number that is known exactly contains only that number."""

TOP_LIST_LENGTH = 100
"""Length of the list of largest numbers that readers are assumed to look at."""

_FAR_DEVIATIONS = 5.0
"""Number of standard deviations from 0 beyond which an estimate is hardly selected by the sign of its noise."""


def compute_selected_deviations(published: int, public: int, *, has_laplace_noise: bool = False) -> float:
    """Return the distance of lower ends of numbers published above 0 from their estimates, in standard deviations.

    Such a number may be above 0 only because its noise is. To correct for this selection, if ``published`` of
    ``public`` numbers are above 0, the lower end is that of a one-sided interval with the error
    0.05 ``published / public`` [benjamini2005false, Theorem 1]. The result is at least :data:`DEVIATIONS`. Laplace
    noise, whose tails are heavier, exceeds t standard deviations with the probability exp(-t sqrt 2) / 2.
    """
    if published >= public:
        return DEVIATIONS
    error = max(published, 1) / (20 * public)
    of_laplace_noise = -math.log(2 * error) / math.sqrt(2) if has_laplace_noise else 0.0
    return max(DEVIATIONS, -NormalDist().inv_cdf(error), of_laplace_noise)


def compute_deviations(confidence: float, *, has_laplace_noise: bool) -> float:
    """Return the half-width, in standard deviations, of an interval with a confidence above 0 and below 1."""
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    return max(normal, -math.log(1 - confidence) / math.sqrt(2)) if has_laplace_noise else normal


class LowerEnds(NamedTuple):
    """How far the lower ends of numbers lie below their estimates.

    Attributes:
        deviations: standard deviations, as of :func:`compute_selected_deviations`; shape (numbers,) or ().
        listed: whether a number is read because it is among the ``TOP_LIST_LENGTH`` largest; shape (numbers,) or ().
    """

    deviations: Reals | float = DEVIATIONS
    listed: NDArray[np.bool_] | bool = False


UNSELECTED_ENDS = LowerEnds()
"""Lower ends of numbers that were chosen before the release, so that no selection widens their intervals."""


@dataclass(frozen=True)
class Selection:
    """How the numbers of a table that people read were selected: as published above 0, or as the largest in a list.

    Attributes:
        published: how many numbers of the table were published above 0.
        public: how many numbers the table has, with those of 0.
        least_listed: the least of the ``TOP_LIST_LENGTH`` largest; 1 if fewer are above 0. With Laplace noise, it is 1,
            because numbers far above 0 may then be noise, too.
        has_laplace_noise: whether some of the measurements have Laplace noise.
    """

    published: int
    public: int
    least_listed: int
    has_laplace_noise: bool = False

    @classmethod
    def from_numbers(cls, numbers: Integers | Reals, public: int, *, has_laplace_noise: bool = False) -> Selection:
        """Return the selection of a table of ``public`` numbers, given those above 0; ``numbers`` may have others."""
        above = numbers[numbers > 0]
        least_listed = 1
        if len(above) >= TOP_LIST_LENGTH and not has_laplace_noise:
            least_listed = int(np.sort(above)[-TOP_LIST_LENGTH])  # np.partition is slow for equal numbers
        return cls(len(above), public, least_listed, has_laplace_noise)

    @property
    def deviations(self) -> float:
        """Distance of the lower ends of numbers published above 0; see :func:`compute_selected_deviations`."""
        return compute_selected_deviations(self.published, self.public, has_laplace_noise=self.has_laplace_noise)

    @property
    def deviations_of_changes(self) -> float:
        """Distance of the ends nearer to 0 of differences between tables, if the largest differences are read."""
        most_read = min(self.published, TOP_LIST_LENGTH)
        return compute_selected_deviations(most_read, self.public, has_laplace_noise=self.has_laplace_noise)

    def make_lower_ends(self, numbers: Integers | Reals) -> LowerEnds:
        """Return how far the lower ends of some released ``numbers`` of the table lie below their estimates."""
        return LowerEnds(np.where(numbers > 0, self.deviations, DEVIATIONS), numbers >= self.least_listed)


CHOSEN_BEFORE = Selection(0, 0, 1)
"""Selection of numbers that were chosen before the release."""


def compute_lower_bound(estimate: Reals, variance: Reals, ends: LowerEnds = UNSELECTED_ENDS) -> Integers:
    """Return the lower ends of the 90 % intervals of unbiased estimates with the given variances.

    The ends are whole numbers of at least 0, of the shape of the estimates. Estimates that are not listed,
    and are at least ``_FAR_DEVIATIONS`` standard deviations, have the end of an unselected number: they were hardly
    selected by their noise.
    """
    near = ends.listed | (estimate < _FAR_DEVIATIONS * np.sqrt(variance))
    width = compute_half_width(estimate, variance, np.where(near, ends.deviations, DEVIATIONS))
    return np.maximum(np.ceil(estimate - width), 0).astype(np.int64)


def compute_upper_bound(estimate: Reals, variance: Reals) -> Integers:
    """Return the upper ends of 90 % intervals of unbiased estimates, cut at 0; whole numbers of the same shape."""
    return np.maximum(compute_uncut_upper_bound(estimate, variance), 0)


def compute_uncut_upper_bound(estimate: Reals, variance: Reals) -> Integers:
    """Return the upper ends of the 90 % intervals of numbers that may be negative; whole numbers of the same shape."""
    return np.floor(estimate + compute_half_width(estimate, variance)).astype(np.int64)


def compute_half_width(estimate: Reals, variance: Reals, deviations: Reals | float = DEVIATIONS) -> Reals:
    """Return the half-widths of the intervals of estimates with the given variances; shape of ``estimate``.

    An estimate is a multiple of 1 or, if the sum of two areas is known exactly, of 1/2. So a quarter is added to the
    half-width, by which the ends lie between two multiples; or the half-width is rounded to a whole number, if this is
    more. The half-width is at least 0.5.
    """
    width = deviations * np.sqrt(variance)
    rounding = np.minimum(ROUNDING * (1 + np.abs(estimate)), _MAX_WIDENING)
    between_multiples = np.maximum(width + 0.25, 0.5)
    rounded_to_whole = np.ceil(width - 0.5)
    return np.maximum(between_multiples, rounded_to_whole) + rounding


def choose_reliability_words(numbers: Integers, lower: Integers, upper: Integers) -> NDArray[np.str_]:
    """Return a word on how reliable each released number is, from the ends of its interval; shape (numbers,).

    The word is ``may be none`` if the lower end is at most 0, otherwise ``solid`` if the interval is at most a quarter
    of the number wide, and otherwise ``rough``. It is empty for a number that was released as 0.
    """
    is_solid = 4 * (upper - lower) <= numbers
    return np.select([numbers == 0, lower <= 0, is_solid], ["", "may be none", "solid"], "rough")
