"""Estimate weighted sums of the true flows, and ratios of two such sums, with the ends of their intervals.

A weighted sum of the least-squares estimates of the leaves is unbiased, and its variance is known
(:mod:`od_core.flows.estimation.node_sums`). So is the covariance C of two sums N and B, from the variance V of N + s B:

    C = (V - V_N - s^2 V_B) / (2 s),

where V_N and V_B are the variances of the two. The interval of a ratio N / B has all r for which N - r B is nearer to 0
than its own uncertainty [fieller1954problems]:

    (N - r B)^2 <= z^2 (V_N - 2 r C + r^2 V_B),

where z is the quantile of the interval.

Nothing was measured below a node that the top-down pass dropped. Its trips, which are at most its upper bound, may have
any weight that occurs below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from od_core.flows.confidence import DEVIATIONS
from od_core.flows.estimation.fitted_tree import Estimates, FittedTree, ZoneFunction
from od_core.geography.flow_tree import FlowTree, Pairs

Reals = NDArray[np.float64]

Estimator = Callable[[ZoneFunction, float | None], "Weighted"]
"""A function that returns the estimate of a weighted sum, given the arguments of :func:`weighted` but the tree."""

_BLOCK = 1 << 20
"""Number of pairs of zones below dropped nodes whose weights are computed at once."""


@dataclass(frozen=True)
class Weighted:
    """The estimate of a weighted sum of trips, without those of dropped nodes, and what dropped nodes may add.

    Attributes:
        estimate, variance: the estimate and its variance.
        least, most: what the trips of dropped nodes add at least and at most, by the upper bound of each node.
        lowest, highest: least and greatest weight below dropped nodes, or 0 if it is greater or less.
        unseen, doubt: estimate of the trips of all dropped nodes together, and the variance of that estimate.
    """

    estimate: float
    variance: float
    least: float = 0.0
    most: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0
    unseen: float = 0.0
    doubt: float = 0.0

    def __add__(self, other: Weighted) -> Weighted:
        """Return the estimate of the sum with that of another release, whose noise must be independent."""
        added = {name: value + getattr(other, name) for name, value in vars(self).items()}
        ends = {"lowest": min(self.lowest, other.lowest), "highest": max(self.highest, other.highest)}
        return replace(self, **added | ends)

    @property
    def dropped(self) -> bool:
        """Whether dropped nodes may add anything."""
        return self.least < 0 or self.most > 0

    def unmeasured(self, deviations: float) -> tuple[float, float]:
        """Return what dropped nodes add at least and at most: each of them, and all of them together."""
        unseen, doubt = max(self.unseen, 0.0), deviations * math.sqrt(self.doubt)
        return max(self.least, self.lowest * (unseen + doubt)), min(self.most, self.highest * (unseen + doubt))

    def ends(self, deviations: float) -> tuple[float, float]:
        """Return the ends of the interval with a half-width of some standard deviations, with all dropped nodes."""
        alone, unseen = deviations * math.sqrt(self.variance), max(self.unseen, 0.0)
        low, high = (
            each * unseen + sign * deviations * math.sqrt(self.variance + each * each * self.doubt)
            for each, sign in ((self.lowest, -1), (self.highest, 1))
        )
        return self.estimate + max(self.least - alone, low), self.estimate + min(self.most + alone, high)


def weighted(fit: FittedTree, weight: ZoneFunction, deviations: float | None) -> Weighted:
    """Return the estimate of the sum of the trips of all pairs of zones, each with its weight.

    Args:
        fit: the fitted tree.
        weight: returns the weights of pairs of zones, given their numbers.
        deviations: half-width of intervals, in standard deviations; None leaves out what dropped nodes may add.
    """
    _, _, (cells,) = fit.begun(0, weight)  # the whole space; no cell if it was dropped
    estimate, variance, unseen, doubt = (
        float(values.sum()) for values in (cells.estimate, cells.variance, cells.unseen, cells.doubt)
    )
    if fit.nothing_dropped or deviations is None:
        return Weighted(estimate, variance)
    return Weighted(estimate, variance, *_limits(fit, weight, deviations), unseen, doubt)


def covariance(
    estimate: Estimator,
    one: tuple[ZoneFunction, Weighted],
    other: tuple[ZoneFunction, Weighted],
) -> float:
    """Return the covariance of the estimates of two weighted sums.

    Args:
        estimate: estimates a weighted sum.
        one, other: weights and estimate of each of the two sums.
    """
    (of_one, n), (of_other, b) = one, other
    if n.variance <= 0 or b.variance <= 0:
        return 0.0
    scale = math.sqrt(n.variance / b.variance)
    mixed = estimate(lambda *pairs: of_one(*pairs) + scale * of_other(*pairs), None)
    return (mixed.variance - n.variance - scale**2 * b.variance) / (2 * scale)


def fieller(
    part: Estimates | Weighted, whole: Estimates | Weighted, shared: Reals | float, deviations: float
) -> tuple[Reals, Reals, NDArray[np.bool_]]:
    """Return the ends of the intervals of ratios, and whether they are known; shape (ratios,) or () each.

    Where the whole may be 0, an interval has no ends, and nothing is known of the ratio.

    Args:
        part, whole: estimates of the two sums of each ratio.
        shared: covariances of the two.
        deviations: half-width of the intervals, in standard deviations.
    """
    square = deviations**2
    a = np.asarray(whole.estimate**2 - square * whole.variance)
    b = np.asarray(part.estimate * whole.estimate - square * shared)
    c = np.asarray(part.estimate**2 - square * part.variance)
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = np.sqrt(np.maximum(b * b - a * c, 0))
        return (b - reach) / a, (b + reach) / a, a > 0


def _limits(fit: FittedTree, weight: ZoneFunction, deviations: float) -> tuple[float, float, float, float]:
    """Return what dropped nodes add at least and at most, and the least and greatest weight below them, with 0."""
    nodes, trips = [], []
    wider = max(deviations - DEVIATIONS, 0.0)  # bounds of nodes are of 90 % intervals
    for level in fit.levels[:-1]:
        at = np.delete(np.arange(len(level.nodes)), level.divided)
        nodes.append(Pairs(level.nodes.level, level.nodes.origin[at], level.nodes.destination[at]))
        trips.append(level.bound[at] + wider * np.sqrt(level.variance[at]))
    low, high = _extremes(fit.tree, nodes, weight)
    low, high, most = np.minimum(low, 0.0), np.maximum(high, 0.0), np.concatenate(trips)
    return float(low @ most), float(high @ most), float(low.min(initial=0)), float(high.max(initial=0))


def _extremes(tree: FlowTree, nodes: Sequence[Pairs], weight: ZoneFunction) -> tuple[Reals, Reals]:
    """Return the least and the greatest weight of the pairs of zones below each node; shape (nodes,) each.

    Args:
        tree: the flow tree.
        nodes: nodes of each level.
        weight: returns the weights of pairs of zones.
    """
    first = np.concatenate([np.empty(0, dtype=np.int64), *map(tree.first_rank, nodes)])
    pairs = np.concatenate([np.empty(0, dtype=np.int64), *(tree.pairs_below(each) for each in nodes)])
    low, high = np.full(len(first), np.inf), np.full(len(first), -np.inf)
    for at, rank in _ranks(first, pairs):
        below = tree.pairs_at(rank)
        weights = weight(below.origin, below.destination).astype(np.float64)
        begin = np.flatnonzero(np.diff(at, prepend=-1))
        low[at[begin]] = np.minimum(low[at[begin]], np.minimum.reduceat(weights, begin))
        high[at[begin]] = np.maximum(high[at[begin]], np.maximum.reduceat(weights, begin))
    return low, high


def _ranks(first: NDArray[np.int64], pairs: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the pairs of zones below nodes in blocks: number of the node, and rank; shape (pairs,) each.

    Args:
        first: rank of the first pair below each node.
        pairs: number of pairs below each node.
    """
    ends = np.cumsum(pairs)
    for start in range(0, int(pairs.sum()), _BLOCK):
        place = np.arange(start, min(start + _BLOCK, int(ends[-1])))
        at = np.searchsorted(ends, place, side="right")
        yield at, first[at] + place - (ends - pairs)[at]
