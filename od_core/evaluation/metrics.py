"""Compute the errors of a release against the true flows, and by category."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.files.data_frame import TableOrFile
from od_core.flows.accuracy import find_most_leaf_pairs
from od_core.flows.arrays import Integers
from od_core.flows.plan import ReleasePlan
from od_core.flows.release import Release
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.notebook import Confidential
from od_core.privacy.unit import LARGEST_WEIGHT, TRIP
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from od_core.records.segments import Breakdown, find_breakdown

Level = tuple[Integers, Integers]
"""The cells of a level that have trips, as two arrays of shape (cells,): keys, ascending, and trips.

The rank of a node is the position of its first leaf pair among all leaf pairs of the flow tree. Without a breakdown, a
cell is a node, and its key is the rank. With one of K categories, a cell is a node and a category, and its key is K r +
k, where r is the rank of the node and k the position of the category."""


@dataclass(frozen=True, eq=False, repr=False)
class Truth(Confidential):
    """The true flows at every level of a flow tree, with which releases are compared. NOT private.

    Attributes:
        tree: the flow tree of the releases.
        levels: true flows at levels 0 (root) to T (leaves).
        categories: number of categories, if the flows are those of a breakdown.
    """

    tree: FlowTree
    levels: tuple[Level, ...]
    categories: int = 1

    @classmethod
    def from_counts(cls, tree: FlowTree, counts: TripCounts, breakdown: str | None = None) -> Truth:
        """Create the true flows from counts of the trips of leaf pairs; by category, if a breakdown is named."""
        segments = None if breakdown is None else tabulate_trips_by_category(counts, breakdown)
        levels = tuple(sum_trips_by_level(tree, make_leaf_nodes(tree, counts), segments))
        return cls(tree, levels, 1 if segments is None else segments.shape[1])

    def compute_errors(self, leaves: Nodes, segments: Integers | None = None) -> list[dict[str, float]]:
        """Return the errors of released leaves: one row per level, with the names of :func:`compute_level_errors`.

        If these true flows are by category, ``segments`` must have the released trips of each leaf by the same
        categories; shape (leaves, categories).
        """
        rows = []
        for level, released in enumerate(sum_trips_by_level(self.tree, leaves, segments)):
            cells = self.tree.cells(level) * self.categories
            rows.append({"level": level, **compute_level_errors(self.levels[level], released, cells)})
        return rows


def make_leaf_nodes(tree: FlowTree, counts: TripCounts) -> Nodes:
    """Return the leaf nodes that have trips in some counts, in tree order."""
    pairs = tree.find_leaf_pairs(counts.rank)
    return Nodes(tree.depth, pairs.origin, pairs.destination, np.diff(counts.before))


def tabulate_trips_by_category(counts: TripCounts, breakdown: str) -> Integers:
    """Return the trips of each leaf with trips by the categories of a breakdown; shape (leaves, categories)."""
    categories = counts.by_segment[breakdown]
    trips = np.zeros((len(counts.rank), len(categories)), dtype=np.int64)
    for k, category in enumerate(categories):  # a leaf with trips of a category has trips, so its rank is found
        trips[np.searchsorted(counts.rank, category.rank), k] = np.diff(category.before)
    return trips


def sum_trips_by_level(tree: FlowTree, leaves: Nodes, segments: Integers | None = None) -> Iterator[Level]:
    """Yield, for each level from 0 (root) to T, the sums of the trips of leaves. The leaves must be in tree order.

    If ``segments`` has the trips of each leaf by the categories of a breakdown, shape (leaves, categories), the sums
    are by category. Cells whose trips sum to 0 are left out.
    """
    trips = leaves.trips if segments is None else segments
    categories = np.arange(1 if segments is None else segments.shape[1])
    rank_of_leaves = tree.compute_first_ranks(leaves)
    for level in range(tree.depth + 1):
        rank_of_nodes = tree.compute_first_ranks(tree.find_ancestors(leaves, level))  # each node once
        first_leaves = np.searchsorted(rank_of_leaves, rank_of_nodes)  # the leaves below a node are consecutive
        keys = (rank_of_nodes[:, np.newaxis] * len(categories) + categories).ravel()
        sums = np.add.reduceat(trips, first_leaves, axis=0).ravel()
        yield keys[sums != 0], sums[sums != 0]


def align_trips(true: Level, released: Level) -> tuple[Integers, Integers]:
    """Return the true and the released trips of all cells with true or released trips; shape (cells,) each."""
    (true_keys, true_trips), (released_keys, released_trips) = true, released
    keys = np.union1d(true_keys, released_keys)
    aligned_true, aligned_released = np.zeros((2, len(keys)), dtype=np.int64)
    aligned_true[np.searchsorted(keys, true_keys)] = true_trips
    aligned_released[np.searchsorted(keys, released_keys)] = released_trips
    return aligned_true, aligned_released


def compute_level_errors(true: Level, released: Level, cells: int) -> dict[str, float]:
    """Return the errors of one level by name, as :func:`evaluate` explains them.

    ``cells`` is the number of all public cells of the level, also of those without trips, whose errors are 0.
    """
    true_trips, released_trips = align_trips(true, released)
    errors = np.abs(released_trips - true_trips)
    is_true, is_released = true_trips > 0, released_trips > 0
    false_discoveries, false_negatives = int((is_released & ~is_true).sum()), int((is_true & ~is_released).sum())
    return {
        "max_abs_error": int(errors.max(initial=0)),
        "mean_abs_error": float(errors.sum()) / cells,
        "false_discovery_rate": false_discoveries / max(int(is_released.sum()), 1),
        "false_negative_rate": false_negatives / max(int(is_true.sum()), 1),
    }


# Bounds of the errors from public facts alone. [boninsegna2025inftda] states orders of growth; the bounds below are
# explicit numbers that hold with a stated probability. The noise is sub-Gaussian:
# Pr[|Z| >= t] <= 2 exp(-t^2 / (2 sigma^2)) for the discrete Gaussian with variance parameter sigma^2. The sum of k
# independent draws is sub-Gaussian with k sigma^2 in place of sigma^2 [canonne2020discrete, Corollary 17].


BETA = Fraction(1, 20)
"""Default of ``beta``, the probability that an error exceeds its bound at one or more levels, between 0 and 1."""

TOP_DOWN = ("inftda", "tda_l2", "tda_linf")
"""Mechanisms that :func:`compute_top_down_bounds` covers.

They project the noisy children of each node onto the nearest integers that sum to the node's value.
"""


def compute_top_down_bounds(plan: ReleasePlan, beta: Fraction = BETA) -> list[float]:
    """Return bounds of the largest absolute error of a top-down release at levels 0 (root) to T, in trips.

    All bounds hold together with probability 1 - beta. This is [boninsegna2025inftda, Theorem 4] with explicit
    constants. Let m_k be the largest absolute noise of measured level k.

    - A parent with released value c >= 0 and error e has true children q with sum c - e. Some integers z >= 0 with sum
      c lie within |e| of q: add all of e to one child, or subtract |e| in total from the children.
    - The noisy children x lie within m_k of q, hence within m_k + |e| of z. The projection y of x has, of all z with
      sum c, the smallest maximum distance from x. So y is within m_k + |e| of x, and within 2 m_k + |e| of q.
    - Therefore, the error at level l is at most that of the root plus 2 sum m_k over k <= l. A dropped node and the
      nodes below it are released as 0, so their errors are at most the error of the dropped node.
    - The root is exact, or its error is at most its noise m_0 (not 2 m_0, because the root is not projected).
    - m_k is below sigma_k sqrt(2 ln(2 N_k / beta_k)) except with probability beta_k, by a union bound over all N_k
      public nodes of the level, measured or not. sigma_k^2 is the variance of the noise. The measured levels share beta
      equally. (The published proof sums one term too few, and applies the union bound to one level at a time.)

    The bound also holds for ``tda_linf``, and for ``tda_l2``, for which the authors only conjecture it. Proof for
    ``tda_l2``: the Euclidean projection is max(x - theta, 0). If some z with sum c is within d of x, then |theta| <= d,
    because at theta = d the sum of the projection is at most that of z, and at theta = -d at least that. So an x_i
    above theta moves by |theta| <= d. Any other x_i lies between z_i - d >= -d and theta, and moves to 0, by at most d.
    For whole x and d, rounding theta up or down does not change this.
    """
    beta_of_level = beta / len(plan.steps)
    maxima = [_compute_noise_bound(plan.tree.cells(step.level), step.variance, beta_of_level) for step in plan.steps]
    return accumulate_error_bounds(plan, maxima)


def bound_largest_errors(plan: ReleasePlan, trips: int) -> list[float] | None:
    """Return bounds of a release's largest absolute error at levels 0 (root) to T; None if no bound is known.

    All bounds hold together with probability 1 - ``BETA``. ``trips`` is the public number of trips.
    """
    step = plan.steps[-1]
    if plan.mechanism.measures == "present_leaves":
        facts = step.noise_facts
        return compute_stability_bounds(plan.tree, Fraction(facts["scale"]), facts["threshold"], trips=trips)
    if plan.mechanism.measures == "all_leaves":
        return compute_gauss_bounds(plan.tree, step.variance)
    return compute_top_down_bounds(plan) if plan.mechanism.name in TOP_DOWN else None


def accumulate_error_bounds(plan: ReleasePlan, maxima: Sequence[float]) -> list[float]:
    """Return the bounds of :func:`compute_top_down_bounds` at levels 0 to T.

    ``maxima`` has, for each step from the top, a bound of its largest absolute noise, m_k; shape (steps,).
    """
    measures_root = plan.find_level_above(plan.steps[0]) is None
    bounds = [] if measures_root else [0.0]
    error = 0.0
    for step, maximum in zip(plan.steps, maxima, strict=True):
        is_root = plan.find_level_above(step) is None
        error += maximum if is_root else 2 * maximum
        # The nodes of an unmeasured level have one child each, so their errors are those of this next measured level.
        unmeasured_and_own = step.level + 1 - len(bounds)
        bounds += [error] * unmeasured_and_own
    return bounds


def compute_gauss_bounds(tree: FlowTree, variance: Fraction, beta: Fraction = BETA) -> list[float]:
    """Return bounds of the largest absolute error at levels 0 to T if Gaussian noise is added to the leaves only.

    All bounds hold together with probability 1 - beta. This is the first part of [boninsegna2025inftda, Proposition 1].
    The error of a node is the sum of the noise of its leaves. The sum of k draws is sub-Gaussian with variance
    parameter k sigma^2. The union bound is over the N_l nodes of a level l. k_l is the largest number of leaves of a
    node of the level. All T + 1 levels share beta equally:

        sqrt(2 k_l sigma^2 ln(2 N_l (T + 1) / beta)).

    ``variance`` is sigma^2, that of the noise of a leaf.
    """
    beta_of_level = beta / (tree.depth + 1)
    bounds = []
    for level in range(tree.depth + 1):
        variance_of_node = variance * find_most_leaf_pairs(tree, level)
        bounds.append(_compute_noise_bound(tree.cells(level), variance_of_node, beta_of_level))
    return bounds


def compute_stability_bounds(
    tree: FlowTree, scale: Fraction, threshold: int, beta: Fraction = BETA, *, trips: int | None = None
) -> list[float]:
    """Return bounds of the largest absolute error of a stability histogram at levels 0 to T.

    The bounds hold together with probability 1 - beta. They are those of [boninsegna2025inftda, Proposition 1], second
    part, with explicit constants. A stability histogram adds noise to positive leaves alone, and releases the noisy
    values that reach a threshold.

    The noise L of a positive leaf is discrete Laplace: Pr[|L| >= t] = 2 a^t / (1 + a) for t >= 1, a = exp(-1 / scale).
    A leaf of count q >= 1 is released as q + L if that is at least the threshold, with error |L|. Otherwise it is
    released as 0, with error q, at most threshold - 1 - L. A leaf of count 0 has no error. So the error of a leaf is at
    most m + threshold - 1, where m is the largest |L|. The error of a node is at most that times the number of its
    positive leaves. That number is at most k_l, the largest number of leaves of a node of its level, and at most the
    number of trips n, if n is public. m is bounded by a union bound over all P positive leaves:

        min(k_l, n) (m + threshold - 1),   m < t = ceil(scale ln(2 P / ((1 + a) beta))),   P = min(leaves, n).

    One event bounds every leaf, so the levels do not share beta. (In the publication, beta is n delta, because the
    threshold itself bounds the noise.)

    ``scale`` is that of the discrete Laplace noise, ``threshold`` the smallest noisy value that is released, at least
    1, and ``trips`` is n, if it is public.
    """
    most_positive = tree.cells(tree.depth) if trips is None else min(tree.cells(tree.depth), trips)
    ratio = math.exp(-1 / float(scale))
    exceeding_noise = math.ceil(float(scale) * math.log(2 * max(most_positive, 1) / ((1 + ratio) * float(beta))))
    largest_noise = max(exceeding_noise, 1) - 1  # the tail formula holds from t = 1
    leaf_error = largest_noise + threshold - 1
    most_below = [min(find_most_leaf_pairs(tree, level), most_positive) for level in range(tree.depth + 1)]
    return [float(leaves * leaf_error) for leaves in most_below]


def _compute_noise_bound(cells: int, variance: Fraction, beta: Fraction) -> float:
    """Return a bound that the absolute noise of none of ``cells`` cells exceeds, with probability 1 - ``beta``.

    The noise is sub-Gaussian with the parameter ``variance``. The bound, in trips, is from a union bound.
    """
    return math.sqrt(2 * float(variance) * math.log(2 * cells / float(beta)))


def evaluate(
    release: Release,
    flows: TableOrFile,
    *,
    columns: Mapping[str, str] | None = None,
    segment: str | None = None,
    one_row_a_trip: bool = False,
) -> pd.DataFrame:
    """Return the errors of every level of the flow tree. NOT private: the errors depend on the true flows.

    Args:
        release: the release to evaluate.
        flows: the true flows from which the release was made, in the form that :func:`od_core.release_flows` accepts.
            All trips of a user count, and every weight as it is (rounded, up to 2^20), without the release's bounds.
        columns: your names of the columns in ``flows``, as for :func:`od_core.release_flows`.
        segment: name of a breakdown, to return the errors of the flows in its categories. Then a category of a pair
            takes the place of a pair.
        one_row_a_trip: whether each row is one trip, as for :func:`od_core.release_flows`.

    Returns:
        One row per level 0 to T, with these columns:

        - level;
        - max_abs_error: largest absolute error, in trips;
        - mean_abs_error: mean absolute error, in trips, over all public pairs, including pairs without trips;
        - false_discovery_rate: share of the pairs released with trips whose true count is 0;
        - false_negative_rate: share of the pairs with true trips that are released as 0 or below.

        A rate over no pairs is 0. Released numbers below 0 (of ``vanilla_gauss``, and their sums) count in the errors
        unchanged, and in the rates as not positive.

    Raises:
        OdError: the release has no such breakdown, or ``flows`` cannot be counted.

    Examples:
        >>> errors = evaluate(release, flows)
        >>> errors.columns.tolist()  # a row for each level
        ['level', 'max_abs_error', 'mean_abs_error', 'false_discovery_rate', 'false_negative_rate']
    """
    if release.plan.tree.found is not None:
        message = "the errors of a release with found levels cannot be computed yet"
        raise OdError("OD-FOUND-LEVELS", message, next_step="compare its flows with the true ones by their codes")
    breakdowns = () if segment is None else (find_breakdown(release.plan.breakdowns, segment),)
    counts = _count_true_trips(release, flows, breakdowns, columns=columns, one_row_a_trip=one_row_a_trip)
    truth = Truth.from_counts(release.plan.tree, counts, segment)
    released_segments = None if segment is None else release.segments[segment]
    return pd.DataFrame(truth.compute_errors(release.leaves, released_segments))


def _count_true_trips(release: Release, flows: TableOrFile, by: Sequence[Breakdown] = (), **reading: Any) -> TripCounts:
    """Count the trips from which a release was made, without the bounds of its privacy unit.

    ``by`` lists breakdowns by which the trips are counted, too. ``reading`` is passed on to :func:`count_trips`, and
    says how to read ``flows``.
    """
    plan, unit = release.plan, release.plan.unit
    names_without_trips = [breakdown.name for breakdown in plan.breakdowns]
    if unit.column is not None:
        names_without_trips.append(unit.column)
    return count_trips(
        flows,
        plan.tree,
        unit=TRIP if unit.max_weight is None else replace(unit, max_weight=LARGEST_WEIGHT),
        fault_threshold=Fraction(1),
        breakdowns=by,
        unread=names_without_trips,
        **reading,
    )


def evaluate_area_totals(
    release: Release, flows: TableOrFile, *, columns: Mapping[str, str] | None = None, one_row_a_trip: bool = False
) -> pd.DataFrame:
    """Return the errors of the released trips from and to each zone. NOT private: they depend on the true flows.

    For the arguments, see :func:`evaluate`.

    Returns:
        One row for the trips that begin in each zone, and one for those that end there, with these columns:

        - side: ``origin`` or ``destination``;
        - root_mean_square_error: in trips, over all zones;
        - largest_bias: mean of the released by the true number, minus 1, over the ``LARGEST`` zones with most trips.
          Below 0, flows of at least 0 have taken trips from large zones.

    Raises:
        OdError: ``flows`` cannot be counted.

    Examples:
        >>> evaluate_area_totals(release, flows)["side"].tolist()
        ['origin', 'destination']
    """
    tree = release.plan.tree
    counts = _count_true_trips(release, flows, columns=columns, one_row_a_trip=one_row_a_trip)
    true = sum_trips_by_zone(tree, make_leaf_nodes(tree, counts))
    return pd.DataFrame(compute_area_total_errors(true, sum_trips_by_zone(tree, release.leaves)))


LARGEST = 20
"""Number of the largest zones whose bias is measured."""


def compute_area_total_errors(true: Mapping[str, Integers], released: Mapping[str, Integers]) -> list[dict[str, Any]]:
    """Return, for the origins and the destinations, the errors of the released totals of zones, one row each.

    A row has the root mean square over all zones, in trips, and the mean relative error of the largest zones.
    """
    rows = []
    for side, totals in true.items():
        measured_zones = min(LARGEST, np.count_nonzero(totals))  # a bias relative to 0 trips is not defined
        largest = np.argsort(-totals, kind="stable")[:measured_zones]
        bias = float(np.mean(released[side][largest] / totals[largest] - 1)) if len(largest) else 0.0
        error = math.sqrt(np.mean((released[side] - totals) ** 2.0))
        rows.append({"side": side, "root_mean_square_error": error, "largest_bias": bias})
    return rows


def sum_trips_by_zone(tree: FlowTree, leaves: Nodes) -> dict[str, Integers]:
    """Return the trips that begin in each zone (``origin``) and that end there (``destination``); shape (zones,) each.

    If the tree counts by one hierarchy, the result has the side ``origin`` alone.
    """
    zones_of_sides = {"origin": leaves.origin, "destination": leaves.destination}
    totals = {}
    for (side, zones), geography in zip(zones_of_sides.items(), tree.listed_sides, strict=False):
        totals[side] = np.zeros(len(geography.zones), dtype=np.int64)
        np.add.at(totals[side], zones, leaves.trips)
    return totals
