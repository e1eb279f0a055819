"""Compute 90 % intervals of a group-size table from its published measurements, at no privacy cost.

Intervals from noisy sizes hold the true number with at least the stated probability, whatever the sizes are. The others
take sums of noise as normal. None depends on how the mechanism estimates the table. An interval is made from the
measurements of the area's own level if that level was measured, and otherwise from those of the next measured level
below, whose noise is independent from area to area. The formulas are in ``docs/explanation/group-sizes.md``, section
"Intervals".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy  # its special functions load at their first use
from numpy.typing import NDArray

from od_core.flows.arrays import Reals
from od_core.flows.interval_ends import compute_lower_bound, compute_upper_bound
from od_core.group_sizes.groups import Counts, Frame, Query
from od_core.privacy.stability import compute_laplace_reach, compute_laplace_variance

_SHIFTS = (0, 1, 2, 4)
"""Distances d of the bounds from noisy sizes, in scales of the noise, rounded up to whole members."""

_TAIL = -math.expm1(-0.05 / len(_SHIFTS))
"""Probability beyond each end at one of ``_SHIFTS``. It is slightly less than an equal part of 0.05, so that the ends
hold for indicators of different probabilities, too."""

_DEVIATIONS_OF_SHIFTS = 2.241402727604947
"""Standard deviations that a normal variable exceeds with probability 0.05 / 4."""


@dataclass(frozen=True, eq=False)
class NoisyGroups:
    """The measurements from which the intervals of the areas of one level are computed.

    Attributes:
        query, scale: query of the mechanism, and scale of the noise on every value.
        least_sizes: see :attr:`od_core.group_sizes.groups.Frame.least_sizes`; shape (K + 1,).
        groups: public number of groups of each area; shape (areas,).
        areas: number of measured areas that each area consists of; shape (areas,).
        noisy: noisy values, summed over these measured areas; shape (areas, values of an area). For ``sizes``, all
            noisy sizes of an area's groups, those of the first area first; shape (groups of the level,).
    """

    query: Query
    scale: Fraction
    least_sizes: Counts
    groups: Counts
    areas: Counts
    noisy: Counts

    @property
    def top_code(self) -> int:
        """K, the number of the last cell of a histogram."""
        return len(self.least_sizes) - 1

    @classmethod
    def from_measured_levels(
        cls, frame: Frame, query: Query, scale: Fraction, measured: Sequence[tuple[int, Counts]], level: int
    ) -> NoisyGroups:
        """Return the noisy values of the areas of a level, summed from the first measured level as fine or finer.

        ``measured`` has the number and the noisy values of each measured level, top first. The last level is the leaf
        areas, which every mechanism measures. ``level`` may be 0, the whole space. Noisy sizes are not numbers of
        groups, so they are not summed.
        """
        measured_level, noisy = next((number, values) for number, values in measured if number >= level)
        geography = frame.geography
        # The measured areas within an area are consecutive, and the first of them begins with the same zone.
        first_measured = np.searchsorted(geography.first_zone[measured_level][:-1], geography.first_zone[level][:-1])
        areas = np.diff(np.append(first_measured, geography.size(measured_level)))
        if query != "sizes":
            noisy = np.add.reduceat(noisy, first_measured, axis=0)
        return cls(query, scale, frame.least_sizes, frame.count_groups(level), areas, noisy)

    def bound_cumulative_counts(self, sizes: Counts, *, exact: bool = True) -> tuple[Counts, Counts]:
        """Return the lower and upper bounds of the number of groups of at most each size; shape (areas, sizes) each.

        The ``sizes``, or numbers of brackets, ascend, from 0 to K - 1. If ``exact`` is false, bounds from noisy sizes
        are Wilson's (:func:`_compute_wilson_end`). ``exact`` does not matter for other queries.
        """
        if self.query == "sizes":
            return self._bound_from_noisy_sizes(sizes, _compute_exact_end if exact else _compute_wilson_end)
        estimate, variance = self._estimate_cumulative_counts(sizes)
        lower, upper = compute_lower_bound(estimate, variance), compute_upper_bound(estimate, variance)
        if self.query == "cumulative":  # areas measured by one draw, whose quantile is known exactly
            is_single, reach = self.areas == 1, compute_laplace_reach(self.scale)
            single_draws = self.noisy[np.ix_(is_single, sizes)]
            lower[is_single] = np.maximum(single_draws - reach, 0)
            upper[is_single] = np.maximum(single_draws + reach, 0)
        groups = self.groups[:, np.newaxis]
        return np.minimum(lower, groups), np.minimum(upper, groups)

    def _estimate_cumulative_counts(self, sizes: Counts) -> tuple[Reals, Reals]:
        """Return estimates of the numbers of groups of at most each size, and their variances; shape (areas, sizes)."""
        estimate: Reals
        variance: Reals
        if self.query == "cumulative":
            estimate = self.noisy[:, sizes].astype(np.float64)
            variance = np.broadcast_to(self._variance * self.areas[:, np.newaxis], estimate.shape)
        else:  # least squares, given that the numbers of all sizes sum to the number of groups
            below, cells = sizes + 1, self.top_code + 1
            surplus = (self.noisy.sum(axis=1) - self.groups)[:, np.newaxis]
            estimate = np.cumsum(self.noisy, axis=1)[:, sizes] - surplus * (below / cells)
            variance = self._variance * np.multiply.outer(self.areas, below * (cells - below) / cells)
        return estimate, variance

    def bound_members(self) -> tuple[Counts, Counts]:
        """Return the lower and upper bounds of the number of members of each area; shape (areas,) each.

        A group of more than K members counts as K members, and a group of a bracket as the bracket's least size.
        """
        top, groups = int(self.least_sizes[-1]), self.groups.astype(np.float64)
        estimate: NDArray[Any]
        draws: NDArray[Any]  # variance of the estimate, in variances of one noisy value
        if self.query == "sizes":
            ends = np.concatenate([[0], np.cumsum(self.groups)])
            estimate = np.diff(np.concatenate([[0], np.cumsum(self.noisy)])[ends]).astype(np.float64)
            draws = groups
        elif self.query == "cumulative":  # an area's members are the sum, over sizes j >= 0, of its groups above j
            to_next_size = np.diff(self.least_sizes)
            estimate = top * groups - self.noisy @ to_next_size
            draws = self.areas * float(to_next_size @ to_next_size)
        else:  # least squares, given the number of groups: the weights of the sizes sum to 0
            mean = self.least_sizes.mean()
            weights = self.least_sizes - mean
            estimate = self.noisy @ weights + groups * mean
            draws = self.areas * float(weights @ weights)
        variance = (self._variance * draws).astype(np.float64)
        lower, upper = compute_lower_bound(estimate, variance), compute_upper_bound(estimate, variance)
        most = top * self.groups
        return np.minimum(lower, most), np.minimum(upper, most)

    @property
    def _variance(self) -> float:
        """Variance of the noise on each noisy value."""
        return float(compute_laplace_variance(self.scale))

    def _bound_from_noisy_sizes(
        self, sizes: Counts, compute_end: Callable[[Reals, Reals, int], Reals]
    ) -> tuple[Counts, Counts]:
        """Return the lower and upper bounds of the number of groups of at most each size; shape (areas, sizes) each.

        ``compute_end`` is :func:`_compute_exact_end` or another function with its arguments and result. At a distance
        d, the indicators are whether noisy sizes are at most j - d, or j + d. ``beyond`` is the probability that noise
        is above d. For the proof, see ``docs/explanation/group-sizes.md``, section "Intervals".
        """
        groups = self.groups[:, np.newaxis].astype(np.float64)
        lower = np.zeros((len(groups), len(sizes)))
        upper = lower + groups
        count_up_to = self._make_size_counter()
        a = math.exp(-1 / self.scale)
        for shift in _SHIFTS:
            distance = math.ceil(shift * self.scale)
            beyond = a ** (distance + 1) / (1 + a)
            least = compute_end(count_up_to(sizes - distance), groups, -1)
            most = compute_end(count_up_to(sizes + distance), groups, 1)
            lower = np.maximum(lower, (least - groups * beyond) / (1 - beyond))
            upper = np.minimum(upper, most / (1 - beyond))
        return np.ceil(lower - _ROUNDING).astype(np.int64), np.floor(upper + _ROUNDING).astype(np.int64)

    def _make_size_counter(self) -> Callable[[Counts], Reals]:
        """Return a function that counts the noisy sizes of each area up to each bound; shape (areas, bounds).

        A key is area * width + (size - least), so one sorted array of keys serves all areas. Sizes are clipped to
        [-reach, K + reach]. No count changes, because all bounds of the caller lie within this range.
        """
        reach = math.ceil(_SHIFTS[-1] * self.scale)
        least, most = -reach, self.top_code + reach
        width = most - least + 1
        key_of_zero = np.arange(len(self.groups)) * width - least
        keys = np.sort(np.repeat(key_of_zero, self.groups) + np.clip(self.noisy, least, most))
        keys_before = (np.cumsum(self.groups) - self.groups)[:, np.newaxis]

        def count_up_to(bounds: Counts) -> Reals:
            """Return the number of noisy sizes of each area up to each bound; shape (areas, bounds)."""
            counted = np.searchsorted(keys, np.add.outer(key_of_zero, bounds), side="right") - keys_before
            return counted.astype(np.float64)

        return count_up_to


_ROUNDING = 1e-6
"""Number of groups by which bounds are widened before they are rounded inwards, for errors of floats."""


def _compute_exact_end(successes: Reals, trials: Reals, sign: int) -> Reals:
    """Return an end of the exact interval [clopper1934use] of the expected number of successes; shape (areas, sizes).

    The end is the lower (``sign`` -1) or the upper one (1). ``successes`` of ``trials`` independent indicators are 1;
    shapes (areas, sizes) and (areas, 1).
    """
    if sign < 0:
        share = scipy.special.betaincinv(successes, trials - successes + 1, _TAIL)
    else:
        share = scipy.special.betaincinv(successes + 1, trials - successes, 1 - _TAIL)
    end: Reals = trials * np.nan_to_num(share, nan=float(sign > 0))  # without successes, or without failures
    return end


def _compute_wilson_end(successes: Reals, trials: Reals, sign: int) -> Reals:
    """Return an end of Wilson's score interval [wilson1927probable] of the expected number of successes.

    Bundles of earlier versions have these intervals, which fail up to twice as often with few groups. For the
    arguments and the shape, see :func:`_compute_exact_end`.
    """
    squared = _DEVIATIONS_OF_SHIFTS**2
    share = np.divide(successes, trials, out=np.zeros_like(successes), where=trials > 0)
    spread = np.sqrt(share * (1 - share) * trials + squared / 4)
    end: Reals = trials / (trials + squared) * (successes + squared / 2 + sign * _DEVIATIONS_OF_SHIFTS * spread)
    return end


def list_interval_sizes(top_code: int) -> Counts:
    """Return the sizes at which bundles have intervals: those below the top code with at most two significant digits.

    So the number of sizes grows with the logarithm of the top code, and neighbours above 10 differ by at most a tenth.
    """
    listed = {digits * 10**zeros for zeros in range(len(str(top_code))) for digits in range(100)}
    return np.array(sorted(size for size in listed if size < top_code), dtype=np.int64)


def list_interval_cells(frame: Frame) -> Counts:
    """Return the cells of a histogram at which bundles have intervals: all brackets but the last, or some sizes."""
    return np.arange(frame.top_code) if frame.brackets else list_interval_sizes(frame.top_code)
