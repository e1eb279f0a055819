"""Errors of a release against the truth, level by level (spec 2, "Metrics per level")."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.plan import ReleasePlan, ThresholdStep
from od_core.flows.release import Release
from od_core.geography.flow_tree import FlowTree, Nodes, Pairs
from od_core.geography.geography import Numbers
from od_core.records.trip_counts import place_trips

Level = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rank of the first leaf pair of every node with trips, ascending, and its trips; shape (nodes,) each."""


def evaluate(release: Release, flows: pd.DataFrame) -> pd.DataFrame:
    """Errors of every level of the flow tree against the true flows. NOT private: it compares with the truth.

    All pairs count: those released, those true, and the public pairs that are neither.

    Args:
        release: the release to judge.
        flows: the true flows it was made from, as :func:`od_core.release_flows` takes them; all trips of a user count.

    Returns:
        One row a level 0 to T: level, max_abs_error (trips), mean_abs_error (trips, over all public pairs),
        false_discovery_rate (share of released positive pairs whose true count is 0), false_negative_rate
        (share of truly positive pairs that were released as 0 or below); a rate over no pairs is 0. Released numbers
        below 0 (of ``vanilla_gauss``, and sums of them) enter the errors as they are, and no rate as positive.
    """
    tree = release.plan.tree
    truth = Truth.from_pairs(tree, *place_trips(flows, tree, fault_threshold=Fraction(1)))
    return pd.DataFrame(truth.errors(release.leaves))


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """The true flows at every level of a flow tree, made once to judge any number of releases. NOT private.

    Attributes:
        tree: the public flow tree, in the order of the releases.
        levels: 0 to T.
    """

    tree: FlowTree
    levels: tuple[Level, ...]

    def __repr__(self) -> str:
        return "Truth(confidential)"

    @classmethod
    def from_pairs(cls, tree: FlowTree, origin: Numbers, destination: Numbers, trips: NDArray[np.int64]) -> Truth:
        """Of leaf pairs in any order, equal pairs summed; shape (pairs,) each."""
        rank = tree.first_rank(Pairs(tree.depth, origin, destination))
        order = np.argsort(rank, kind="stable")
        first = np.flatnonzero(np.diff(rank[order], prepend=-1))
        summed = np.add.reduceat(trips[order], first)
        first, summed = order[first][summed > 0], summed[summed > 0]
        leaves = Nodes(tree.depth, origin[first], destination[first], summed)
        return cls(tree, tuple(sums_by_level(tree, leaves)))

    def errors(self, leaves: Nodes) -> list[dict[str, float]]:
        """Errors of released leaves, in tree order; one row a level, see :func:`evaluate`."""
        pairs = zip(self.levels, sums_by_level(self.tree, leaves), strict=True)
        return [{"level": level, **_errors(*pair, self.tree.cells(level))} for level, pair in enumerate(pairs)]


def sums_by_level(tree: FlowTree, leaves: Nodes) -> Iterator[Level]:
    """The sums of leaves in tree order at levels 0 to T."""
    for level in range(tree.depth + 1):
        origin_level, destination_level = tree.level_pair(level)
        origin = tree.origin.ancestors(origin_level)[leaves.origin]
        destination = tree.destination.ancestors(destination_level)[leaves.destination]
        rank = tree.first_rank(Pairs(level, origin, destination))
        first = np.flatnonzero(np.diff(rank, prepend=-1))  # the leaves of a node stand side by side
        yield rank[first], np.add.reduceat(leaves.trips, first)


def _errors(true: Level, released: Level, cells: int) -> dict[str, float]:
    """Errors of one level over the union of both; nodes that only one of them has count 0 in the other."""
    (true_rank, true_trips), (rank, trips) = true, released
    place = np.searchsorted(true_rank, rank)
    both = np.zeros(len(rank), dtype=bool)
    inside = place < len(true_rank)
    both[inside] = true_rank[place[inside]] == rank[inside]
    error, missed = trips.copy(), true_trips.copy()
    error[both] -= true_trips[place[both]]
    missed[place[both]] = 0
    np.abs(error, out=error)
    positive = trips > 0
    discovered, found = int(positive.sum()), int((positive & both).sum())
    return {
        "max_abs_error": max(int(error.max(initial=0)), int(missed.max(initial=0))),
        "mean_abs_error": float(error.sum() + missed.sum()) / cells,
        "false_discovery_rate": (discovered - found) / discovered if discovered else 0.0,
        "false_negative_rate": (len(true_rank) - found) / len(true_rank) if len(true_rank) else 0.0,
    }


# What theory says of the errors beforehand, from public facts alone (spec 1, "Theory to expose beside a release").
#
# The paper states orders of growth; these are explicit numbers that hold with a stated probability. The noise is
# sub-Gaussian: Pr[|Z| >= t] <= 2 exp(-t^2 / (2 sigma^2)) for the discrete Gaussian of variance parameter sigma^2, and
# the sum of k independent draws has k sigma^2 for sigma^2 (Canonne, Kamath & Steinke 2020, Corollary 17).


BETA = Fraction(1, 20)
"""Probability that a bound may fail at any of its levels."""

TOP_DOWN = ("inftda", "tda_l2", "tda_linf")
"""Mechanisms that Theorem 4 is about: every level is projected below the one above, as near as can be."""


def theorem_4(plan: ReleasePlan, beta: Fraction = BETA) -> list[float]:
    """Largest absolute error at levels 0 to T of a top-down release, all at once with probability 1 - beta.

    Boninsegna & Silvestri, Theorem 4, with its constants. Let m_k be the largest absolute noise of measured level k.

    - A parent with error e has true children q with sum c - e, where c >= 0 is its released value. Some whole numbers
      z >= 0 with sum c lie within |e| of q: all of e is added to one child, or |e| is taken from children while they
      last. The noisy children x lie within m_k of q, hence within m_k + |e| of z.
    - The projection y of x has the least largest distance from x of all such z, so y is within m_k + |e| of x and
      within 2 m_k + |e| of q. From the root on, the error at level l is at most that of the root and 2 sum m_k, k <= l.
      A dropped node is one that was released as 0, and so are those below it: their errors are at most its own.
    - The root is exact, or its error is at most its own noise m_0, once: nothing is projected there.
    - m_k is below sigma_k sqrt(2 ln(2 N_k / beta_k)) but with probability beta_k, by a union bound over all N_k public
      nodes of the level; those that were never measured count as if they had been drawn. Each of the measured levels
      has the same part of beta. (The paper sums one term too few, and takes the union for one level at a time.)

    That holds for ``tda_linf`` too, and for ``tda_l2``, of which the paper only believes it. For where some z with sum
    c is within d of x, the threshold theta of the Euclidean projection max(x - theta, 0) is within d of 0: at d its sum
    is at most that of z, at -d at least. So an x_i above theta moves by |theta| <= d, and any other, which lies between
    z_i - d >= -d and theta, by at most d too. For whole x and d, rounding theta up or down does not change that.

    Args:
        plan: of a mechanism of ``TOP_DOWN``.
        beta: above 0, below 1.

    Raises:
        OdError: the plan is of another mechanism; beta is no probability.
    """
    if plan.mechanism.name not in TOP_DOWN:
        raise _fault(f"Theorem 4 is of {', '.join(TOP_DOWN)}, not of {plan.mechanism.name}")
    part = _probability(beta) / len(plan.steps)
    maxima = [_largest(plan.tree.cells(step.level), step.variance, part) for step in plan.steps]
    return accumulated(plan, maxima)


def bound_of(plan: ReleasePlan, trips: int, beta: Fraction = BETA) -> list[float] | None:
    """Largest absolute error at levels 0 to T, all at once with probability 1 - beta; None where no bound is known.

    Args:
        plan: of any mechanism.
        trips: n, the number of trips, which need not be private: see :func:`proposition_1_stability`.
        beta: above 0, below 1.
    """
    step = plan.steps[-1]
    if isinstance(step, ThresholdStep):
        return proposition_1_stability(plan.tree, step.scale, step.threshold, beta, trips=trips)
    if plan.mechanism.measures == "all_leaves":
        return proposition_1_gauss(plan.tree, step.variance, beta)
    return theorem_4(plan, beta) if plan.mechanism.name in TOP_DOWN else None


def accumulated(plan: ReleasePlan, maxima: Sequence[float]) -> list[float]:
    """The bound of levels 0 to T where no noise of a step is above its maximum; see :func:`theorem_4`.

    The nodes of a level that is not measured have one child each, so that their errors are those of the level below.

    Args:
        plan: of a top-down mechanism.
        maxima: of the absolute noise of every step; shape (steps,).
    """
    noises_root = plan.level_above(plan.steps[0]) is None
    error, bounds = 0.0, [] if noises_root else [0.0]
    for step, maximum in zip(plan.steps, maxima, strict=True):
        error += maximum if plan.level_above(step) is None else 2 * maximum
        bounds += [error] * (step.level + 1 - len(bounds))
    return bounds


def proposition_1_gauss(tree: FlowTree, variance: Fraction, beta: Fraction = BETA) -> list[float]:
    """Largest absolute error at levels 0 to T where noise is added to the leaves alone, with probability 1 - beta.

    Boninsegna & Silvestri, Proposition 1, first part. The error of a node is the sum of the noise of its leaves. Of
    k draws it is sub-Gaussian with k sigma^2. The union is over the N_l nodes of a level, each counted as if it had as
    many leaves as the largest, k_l; each of the T + 1 levels has the same part of beta:

        sqrt(2 k_l sigma^2 ln(2 N_l (T + 1) / beta)).

    Args:
        tree: public.
        variance: sigma^2 of the noise of a leaf.
        beta: above 0, below 1.

    Raises:
        OdError: beta is no probability.
    """
    part = _probability(beta) / (tree.depth + 1)
    levels = range(tree.depth + 1)
    return [_largest(tree.cells(level), variance * most_leaves(tree, level), part) for level in levels]


def proposition_1_stability(
    tree: FlowTree, scale: Fraction, threshold: int, beta: Fraction = BETA, *, trips: int | None = None
) -> list[float]:
    """Largest absolute error at levels 0 to T of the stability histogram, with probability 1 - beta.

    Boninsegna & Silvestri, Proposition 1, second part. The noise L of a positive leaf is discrete Laplace:
    Pr[|L| >= t] = 2 a^t / (1 + a) for t >= 1, a = exp(-1 / scale). A leaf of count q >= 1 is released as q + L, where
    that is at least the threshold: an error of |L|. Else it is released as 0: an error of q, at most threshold - 1 - L.
    A leaf of count 0 has no error. So no leaf has an error above m + threshold - 1, where m is the largest |L|, and a
    node none above that times the number of its positive leaves: at most k_l, the leaves of the largest node of its
    level, and at most n, the number of trips, where that is public. m is bounded by a union over all P positive leaves:

        min(k_l, n) (m + threshold - 1),   m < t = ceil(scale ln(2 P / ((1 + a) beta))),   P = min(leaves, n).

    One event bounds every leaf, so beta is not shared over the levels. (The paper's beta is n delta, since it takes the
    threshold itself for a bound of the noise. Errors do not cancel here: those of dropped leaves have one sign.)

    Args:
        tree: public.
        scale: of the discrete Laplace noise.
        threshold: least noisy value that is released; at least 1.
        beta: above 0, below 1.
        trips: n, where it is an invariant.

    Raises:
        OdError: beta is no probability; a threshold below 1.
    """
    if threshold < 1:
        raise _fault("a threshold below 1 does not hide a pair without trips")
    limit = tree.cells(tree.depth) if trips is None else min(tree.cells(tree.depth), trips)
    ratio = math.exp(-1 / float(scale))
    reached = math.ceil(float(scale) * math.log(2 * max(limit, 1) / ((1 + ratio) * float(_probability(beta)))))
    leaf_error = max(reached, 1) - 1 + threshold - 1
    return [float(min(most_leaves(tree, level), limit) * leaf_error) for level in range(tree.depth + 1)]


def most_leaves(tree: FlowTree, level: int) -> int:
    """Number of leaf pairs below the largest node of a level."""
    origin_level, destination_level = tree.level_pair(level)
    origins, destinations = tree.origin.zones_below(origin_level), tree.destination.zones_below(destination_level)
    return int(origins.max()) * int(destinations.max())


def _largest(cells: int, variance: Fraction, beta: Fraction) -> float:
    """What sub-Gaussian noise of so many cells exceeds nowhere, with probability 1 - beta."""
    return math.sqrt(2 * float(variance) * math.log(2 * cells / float(beta)))


def _probability(beta: Fraction) -> Fraction:
    if not 0 < beta < 1:
        raise _fault("the probability of failure must be above 0 and below 1")
    return Fraction(beta)


def _fault(message: str) -> OdError:
    return OdError("OD-EVALUATION-BOUND", message, next_step="ask for a bound of what it is known for")
