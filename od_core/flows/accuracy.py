"""Predict the errors of a release at every level, from the flow tree and the noise variances alone.

Let z_i be the value of child i of a node before it is adjusted to the node's estimate c, and v_i the variance of z_i.
In a top-down release, z_i is the measured value. In a least-squares release, z_i is the best estimate from the child
and the levels below it. The estimate of the child is z_i + (c - sum z) v_i / S, where the sums are over all children of
the node and S = sum v. Since c depends on the children only through sum z, the variance of this estimate is

    Var_i = v_i - v_i^2 / S + (v_i / S)^2 Var(c).

The shape of the subtree below a node determines its v, so nodes are grouped by shape; see
:mod:`od_core.flows.subtree_shapes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.confidence import half_width
from od_core.flows.subtree_shapes import Reals, ShapedTree, Step
from od_core.geography.flow_tree import FlowTree
from od_core.records.segments import Breakdown

if TYPE_CHECKING:
    from od_core.flows.plan import ReleasePlan


NORMAL_VALUES = np.array([NormalDist().inv_cdf((k + 0.5) / 32) for k in range(32)])
"""32 equally likely values that approximate a standard normal variable."""


def expected_errors(tree: FlowTree, variances: Mapping[int, Fraction], *, refined: bool) -> list[float]:
    """Return the expected root-mean-square error over all public nodes of each level, if no estimate is cut at zero.

    The errors include rounding to whole numbers and the uneven shifts of IntOpt, which matter for standard deviations
    of the noise below about 5. In simulations of siblings that differ by more than the noise, the result is within 10 %
    for standard deviations of at least 0.6, except in two cases. Least-squares errors that are predicted below 0.75 are
    smaller in reality, because rounding then often gives the true count. Errors of nearly equal siblings are larger,
    because the noise then determines which of them IntOpt lowers: by a quarter for a standard deviation of 1, by 5 %
    for 10.

    Args:
        variances: Variance of the noise of each measured level. If level 0 is missing, the total is known exactly. At
            any other missing level, each node must have one child, whose values it takes.
        refined: Whether the release is refined by least squares over all levels. If False, each level is estimated from
            the level above and its own noise.

    Returns:
        The expected error of each level, root first, in trips.

    Raises:
        OdError: If the last level, or a level whose nodes have several children, is missing.
    """
    _check_measured(tree, variances)
    shaped = ShapedTree.of(tree)
    steps, nodes = shaped.steps, shaped.nodes
    own, siblings = own_variances(steps, variances, refined=refined)
    estimate = np.zeros((1, 1))
    if 0 in variances:
        estimate = own[0] + (1 / 12 if refined else 0)  # a least-squares root is rounded, a measured one is whole
    errors = [float(estimate[0, 0]) ** 0.5]
    for level, step in enumerate(steps, start=1):
        v, s = own[level], siblings[level - 1]
        # Least-squares values are rounded before IntOpt, so their sum differs from c by their rounding errors only.
        lacking = step.fan_out / 12 if refined else step.over_whole(estimate + s)
        rounding = _shift_error(step.fan_out, lacking) + ((1 - 1 / step.fan_out) / 12 if refined else 0)
        estimate = v + v**2 * step.over_parents((estimate / s - 1) / s) + step.to_children(rounding)
        estimate = np.maximum(estimate, 0)  # an only child of an exact parent is exact, up to floating-point error
        origins, destinations = nodes[level]
        errors.append(float(origins @ estimate @ destinations / tree.cells(level)) ** 0.5)
    return errors


def summed_errors(tree: FlowTree, variance: Fraction) -> list[float]:
    """Return the root-mean-square error over all public nodes of each level, root first, for sums of noisy leaf pairs.

    The noise of the leaf pairs below a node adds up [boninsegna2025inftda, Proposition 1]. ``variance`` is that of the
    noise of each leaf pair, which is independent of the other pairs.
    """
    leaves = tree.cells(tree.depth)
    return [float(variance * leaves / tree.cells(level)) ** 0.5 for level in range(tree.depth + 1)]


def largest_variances(tree: FlowTree, variances: Mapping[int, Fraction]) -> list[float]:
    """Return the largest variance, over the public nodes of each level, of the least-squares estimate of a node.

    These are the estimates of :mod:`od_core.flows.estimation.least_squares`, on which the 90 % intervals are based.
    They do not depend on the mechanism, only on what was measured. No node may have been dropped. The result is an
    approximation if areas of similar shapes are treated as one; see :data:`od_core.flows.subtree_shapes.MAX_SHAPES`.

    Args:
        variances: see :func:`expected_errors`.

    Returns:
        The largest variance at each level, root first, in trips squared.

    Raises:
        OdError: As in :func:`expected_errors`.
    """
    _check_measured(tree, variances)
    steps = ShapedTree.of(tree).steps
    own, siblings = own_variances(steps, variances, refined=True)
    estimate = own[0] if 0 in variances else np.zeros((1, 1))
    largest = [float(estimate.max())]
    for step, v, s in zip(steps, own[1:], siblings, strict=True):
        # Var_i grows with Var(c), so the largest Var_i of a pair of shapes follows from the largest Var(c).
        estimate = np.maximum(v + v**2 * step.largest_parent((estimate / s - 1) / s), 0)
        largest.append(float(estimate.max()))
    return largest


def largest_summed_variances(tree: FlowTree, variance: Fraction) -> list[float]:
    """Return the largest variance over the public nodes of each level, root first, for sums of noisy leaf pairs.

    ``variance``: see :func:`summed_errors`.
    """
    most = [
        int(tree.origin.zones_below(origin).max()) * int(tree.destination.zones_below(destination).max())
        for origin, destination in map(tree.level_pair, range(tree.depth + 1))
    ]
    return [float(variance * leaves) for leaves in most]


def own_variances(
    steps: Sequence[Step], variances: Mapping[int, Fraction] | Mapping[int, float], *, refined: bool
) -> tuple[list[Reals], list[Reals]]:
    """Return v of the nodes of each level, root first, and S of the children of each node of all levels but the last.

    ``variances`` and ``refined``: see :func:`expected_errors`. Each array has one value per pair of shapes.
    """
    own = [np.full((1, 1), float(variances[len(steps)]))]
    siblings: list[Reals] = []
    for level in range(len(steps) - 1, -1, -1):
        below = steps[level].over_children(own[0])
        siblings.insert(0, below)
        own.insert(0, _own_variance(below, variances.get(level), refined))
    return own, siblings


def _own_variance(below: Reals, variance: Fraction | float | None, refined: bool) -> Reals:
    """Return the variance v of each node of a level before it is adjusted to its parent.

    Args:
        below: Sum of v over the children of each node.
        variance: Variance of the noise of the level; None if the level is not measured.
        refined: See :func:`expected_errors`.
    """
    if variance is None:
        return below
    return 1 / (1 / float(variance) + 1 / below) if refined else np.full_like(below, float(variance))


def _shift_error(fan_out: Reals, lacking: Reals) -> Reals:
    """Return the mean squared difference between IntOpt's shifts of siblings and equal shifts.

    The deficit of b siblings is their parent's trips minus their sum. If no sibling is cut at zero, IntOpt shifts all
    siblings by a, which is deficit / b rounded up, and then removes the excess, b a minus the deficit, from the
    smallest siblings. If a > 0, it lowers one sibling after the other to a shift of -a. Otherwise, it lowers as many
    siblings as there are excess units by one each.

    Args:
        fan_out: Number of siblings b, for each shape of the parent.
        lacking: Variance of the deficit, which is taken as normal; shape of ``fan_out``.
    """
    x = np.rint(np.multiply.outer(NORMAL_VALUES, np.sqrt(lacking)))
    a = np.ceil(x / fan_out)
    excess = a * fan_out - x
    last = excess % np.maximum(2 * a, 1)  # by how much the last sibling is lowered, which does not reach -a
    f = excess / fan_out
    up = 2 * a * f - f**2 - (2 * a - last) * last / fan_out
    error: Reals = np.where(a > 0, up, f * (1 - f)).mean(axis=0)
    return error


def _check_measured(tree: FlowTree, variances: Mapping[int, Fraction]) -> None:
    for level in range(1, tree.depth + 1):
        if level not in variances and tree.largest_fan_out(level) != 1:
            raise OdError(
                "OD-LEVEL-UNMEASURED",
                f"level {level} is not measured and cannot be computed from the level below it",
                next_step="give the variance of every measured level of the plan",
            )


Variance = TypeVar("Variance", float, NDArray[np.float64])

UNMEASURED = 10**12
"""Variance of a root that was not measured, as a multiple of the largest variance of the noise."""


def total_errors(plan: ReleasePlan) -> list[float]:
    """Return the expected root-mean-square error of each level, root first, in trips, if no estimate is cut at zero.

    See :func:`od_core.flows.accuracy.expected_errors` for the accuracy of these values. All are NaN if the
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
