"""State the expected accuracy of the totals and segments of a planned release, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from od_core.flows.confidence import half_width
from od_core.flows.expected_error import (
    expected_errors,
    largest_summed_variances,
    largest_variances,
    summed_errors,
)
from od_core.records.segments import Breakdown

if TYPE_CHECKING:
    from od_core.flows.plan import ReleasePlan

Variance = TypeVar("Variance", float, NDArray[np.float64])

UNMEASURED = 10**12
"""Variance of a root that was not measured, as a multiple of the largest variance of the noise."""


def total_errors(plan: ReleasePlan) -> list[float]:
    """Return the expected root-mean-square error of each level, root first, in trips, if no estimate is cut at zero.

    See :func:`od_core.flows.expected_error.expected_errors` for the accuracy of these values. All are NaN if the
    mechanism has a threshold, because the true trips determine which counts are below the threshold.
    """
    if plan.has_threshold:
        return [math.nan] * (plan.tree.depth + 1)
    variances = {step.level: step.variance for step in plan.totals}
    if plan.mechanism.measures == "all_leaves":
        return summed_errors(plan.tree, variances[plan.tree.depth])
    return expected_errors(plan.tree, variances, refined=plan.mechanism.refines)


def segment_errors(plan: ReleasePlan, breakdown: Breakdown) -> list[float]:
    """Return the expected root-mean-square error of the trips of one category at each level, root first.

    For the variance, see :func:`segment_variance`.
    """
    own = expected_errors(plan.tree, _segment_variances(plan, breakdown), refined=True)
    pairs = zip(plan.expected_errors, own, strict=True)
    return [segment_variance(v**2, w**2, len(breakdown.categories)) ** 0.5 for v, w in pairs]


def segment_variance(total: Variance, own: Variance, categories: int) -> Variance:
    """Return the variance of the trips of one category: V / K^2 + W (1 - 1/K), with K categories.

    Args:
        total: V, the variance of the estimate of the total.
        own: W, the variance of the estimate of the category from its own measurements.
        categories: K.
    """
    return total / categories**2 + own * (1 - 1 / categories)


def total_half_widths(plan: ReleasePlan) -> list[float]:
    """Return the largest distance, at each level, root first, from an estimate to the end of its 90 % interval.

    The estimate is the unbiased one of :mod:`od_core.flows.estimation.least_squares`. It is at most this far from the
    true number of counted trips with a probability of 0.9, whatever that number is. If nodes may be dropped, the values
    are those of the measured counts alone, which no estimate exceeds. All are NaN if the mechanism has a threshold,
    because such a release has no intervals.
    """
    if plan.has_threshold:
        return [math.nan] * (plan.tree.depth + 1)
    return _half_widths(_largest_totals(plan))


def half_widths_of_segments(plan: ReleasePlan, breakdown: Breakdown) -> list[float]:
    """Return an upper bound of the same distance for the trips of one category, for each level, root first."""
    variances = _segment_variances(plan, breakdown)
    own = largest_variances(plan.tree, variances) if plan.keeps_all else _measured_alone(plan, variances, None)
    pairs = zip(_largest_totals(plan), own, strict=True)
    return _half_widths([segment_variance(v, w, len(breakdown.categories)) for v, w in pairs])


def _largest_totals(plan: ReleasePlan) -> list[float]:
    """Return the largest variance of an unbiased estimate of a total at each level, root first."""
    variances = {step.level: step.variance for step in plan.totals}
    if plan.mechanism.measures == "all_leaves":
        return largest_summed_variances(plan.tree, variances[plan.tree.depth])
    if plan.keeps_all:
        return largest_variances(plan.tree, variances)
    return _measured_alone(plan, variances, 0.0 if plan.publishes_total else None)


def _measured_alone(plan: ReleasePlan, variances: Mapping[int, Fraction], root: float | None) -> list[float]:
    """Return the variance of the measured counts of each level, root first; ``root`` is that of an exact root."""
    largest = [float(variances[0]) if root is None else root]
    for level in range(plan.tree.depth, 0, -1):  # an unmeasured level has the counts of the level below
        largest.insert(1, float(variances[level]) if level in variances else largest[1])
    return largest


def _segment_variances(plan: ReleasePlan, breakdown: Breakdown) -> dict[int, Fraction]:
    """Return the variance of the noise of each level that is measured by a breakdown, and of the root."""
    variances = {step.level: step.variance for step in plan.segment_steps(breakdown.name)}
    return {0: UNMEASURED * max(variances.values())} | variances


def _half_widths(largest: Sequence[float]) -> list[float]:
    """Return the half width of the 90 % interval of a noisy 0 with each of the variances."""
    return [float(width) for width in half_width(np.zeros(len(largest)), np.array(largest))]


def verdict(width: float) -> str:
    """Return what intervals of at most this half-width say of flows. The width is rounded up to two digits."""
    digits = max(len(str(math.ceil(width))) - 2, 0)
    trips = math.ceil(width / 10**digits) * 10**digits
    return (
        f"below {trips:,} trips, a flow cannot always be told from 0; from {10 * trips:,} on, it is known to within"
        " 10 %, 9 times in 10."
    )
