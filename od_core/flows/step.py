"""Define the steps of a plan of flows, and turn the share of each in the budget into the scale of its noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, cast

from od_core.errors import OdError
from od_core.flows.mechanisms import Mechanism
from od_core.geography.flow_tree import FlowTree
from od_core.privacy.accounting import Number, parse_exact_fraction
from od_core.privacy.budget import Budget, Charge
from od_core.privacy.neighbours import (
    Acceptance,
    Neighbours,
    NodeSizes,
    compute_leaf_sensitivity,
    compute_sensitivity_squared,
    select_node_sizes,
)
from od_core.privacy.plan import GaussianStep
from od_core.privacy.stability import (
    bound_laplace_variance,
    compute_laplace_scale,
    compute_laplace_variance,
    compute_stability_threshold,
)
from od_core.privacy.unit import PrivacyUnit
from od_core.records.segments import Breakdown, has_unknown_categories


@dataclass(frozen=True)
class SegmentStep(GaussianStep):
    """The planned query of one level by a breakdown: the trips of each node in each category, as one vector.

    The vector has the trips of the first node in each category, then those of the second node, in tree order.

    Attributes:
        breakdown: name of the breakdown.
        first_number: number of the step that counts the root by this breakdown. Later levels have the numbers after it.
    """

    breakdown: str
    first_number: int

    @property
    def number(self) -> int:
        """Number of the step, by which the ledger and the measurement files identify it within the release."""
        return self.first_number + self.level

    by_segment = True

    @property
    def noise_facts(self) -> dict[str, object]:
        """The facts of a Gaussian step, with the name of the breakdown."""
        return {"breakdown": self.breakdown, **super().noise_facts}


@dataclass(frozen=True)
class CombinedTotals:
    """The mean of the measured totals of a level and of the sums of its segments, weighted by precision.

    A total is measured with the variance 1 / w, and each of the K_j categories of breakdown j with 1 / w_j. Both the
    total and the sum of the categories estimate the trips of a node. Their weighted mean has the least variance,
    1 / (w + sum of w_j / K_j). With Laplace noise, the weights are rounded, and the variance is that of the mean with
    the rounded weights.

    Attributes:
        level: level of the flow tree.
        weights: whole weights of the measured total and of the sum of the categories of each breakdown. The combination
            is the weighted mean.
        variance: variance of the combination: exact, or an upper bound with Laplace noise.
    """

    level: int
    weights: tuple[int, ...]
    variance: Fraction

    @classmethod
    def from_steps(cls, total: GaussianStep, segments: Sequence[tuple[SegmentStep, int]]) -> CombinedTotals:
        """Return the combination of the queries of one level.

        ``segments`` has the query and the number of categories of each breakdown.
        """
        # Of the total, and of the sum of each breakdown's categories. Weights are in proportion to 1 / variance.
        variances = [total.variance, *(categories * step.variance for step, categories in segments)]
        common_denominator = math.lcm(*(variance.numerator for variance in variances))
        precisions = [int(common_denominator / variance) for variance in variances]
        common_factor = Fraction(math.gcd(*precisions))
        if isinstance(total, LaplaceLevelStep):
            common_factor = max(common_factor, Fraction(max(precisions), MAX_LAPLACE_WEIGHT))
        weights = [round(precision / common_factor) for precision in precisions]
        squares = [weight**2 * variance for weight, variance in zip(weights, variances, strict=True)]
        return cls(total.level, tuple(weights), sum(squares, start=Fraction(0)) / sum(weights) ** 2)


MAX_LAPLACE_WEIGHT = 1 << 25
"""Largest weight of totals with Laplace noise that are combined, so that combinations of 10^10 trips fit 64 bits.

Ratios of variances of Laplace noise are no simple fractions, so such weights are rounded. This increases the variance
by less than 1 part in 10^7."""


@dataclass(frozen=True)
class AreaTotalStep(GaussianStep):
    """The planned query of the trips that begin in each zone, or that end there, measured beside the flow tree.

    Its ``level`` is no level of the flow tree, but a number after them: ``tree.depth + 1`` for the first such step.

    Attributes:
        side: 0 for the trips that begin in each origin zone, 1 for those that end in each destination zone.
        step_number: number of the step within the release.
    """

    side: int
    step_number: int

    @property
    def number(self) -> int:
        """Number of the step, by which the ledger and the files of measurements identify it within the release."""
        return self.step_number

    @property
    def noise_facts(self) -> dict[str, object]:
        """Facts of a Gaussian step, and the side whose zones have the totals."""
        return {"area_totals": ("origin", "destination")[self.side], **super().noise_facts}


@dataclass(frozen=True)
class LaplaceLevelStep(GaussianStep):
    """The planned query of one level that is measured with discrete Laplace noise, and is charged in epsilon.

    Attributes:
        variance: upper bound of the variance of the noise.
        sensitivity: L1 sensitivity of the counts of the level.
        scale: scale of the noise, exact: P(k) is proportional to exp(-|k| / scale). The charge is sensitivity / scale.
    """

    sensitivity: int = field(kw_only=True)
    scale: Fraction = field(kw_only=True)

    @property
    def rho(self) -> Fraction:
        """The rho that is implied by the step's epsilon, epsilon^2 / 2. A delta is charged in addition."""
        return self.charge.as_rho

    @property
    def charge(self) -> Charge:
        """Charge of one draw of the noise, in epsilon."""
        return Charge(epsilon=self.sensitivity / self.scale)

    @property
    def variance_bound(self) -> Fraction:
        """Twice the squared scale, an upper bound of the variance of discrete Laplace noise."""
        return 2 * self.scale**2

    @property
    def noise_facts(self) -> dict[str, object]:
        """L1 sensitivity and noise scale, ready for JSON; the scale is exact text."""
        return {"sensitivity": self.sensitivity, "scale": str(self.scale)}


@dataclass(frozen=True)
class LaplaceSegmentStep(SegmentStep, LaplaceLevelStep):
    """The query of one level by a breakdown that is measured with discrete Laplace noise."""


@dataclass(frozen=True)
class LaplaceAreaTotalStep(AreaTotalStep, LaplaceLevelStep):
    """The query of area totals that is measured with discrete Laplace noise."""


def parse_area_total_share(share: Number) -> Fraction:
    """Return the share of the budget for area totals, exactly.

    Raises OdError if it is not a number above 0 and of at most 1/2.
    """
    exact = parse_exact_fraction("the share of the budget for area totals", share)
    if not 0 < exact <= Fraction(1, 2):
        raise _make_area_totals_error(f"their share of the budget is {exact}; it must be above 0 and at most 1/2")
    return exact


def suggest_area_total_share(tree: FlowTree, mechanism: Mechanism, leaf_variance: Fraction) -> Fraction:
    """Return the share of the budget for area totals of both sides that is suggested for a plan.

    With Gaussian noise, the share of rho is 1/10. With Laplace noise, each side has 0.45 times the mean share of
    epsilon of a level of the tree, of which at least two are assumed. That share is halved if ``leaf_variance``, the
    variance of the noise of the leaves without area totals, is below 1, because errors then grow exponentially as
    epsilon falls.
    """
    if not mechanism.has_laplace_noise:
        return Fraction(1, 10)
    levels = max(2, tree.depth)
    share = Fraction(round(900 / (10 * levels + 9)), 100)  # 0.9 / (levels + 0.9) in whole percent, for both sides
    return share if leaf_variance >= 1 else share / 2


def list_area_total_sides(tree: FlowTree) -> tuple[int, ...]:
    """Return the sides whose zone totals are no nodes of the tree, so that they may be measured beside it.

    A side is 0 for the origins, 1 for the destinations.
    """
    level_pairs = [tree.level_pair(level) for level in range(tree.depth + 1)]
    geographies = (tree.origin, tree.destination)
    sides = []
    for side, geography in enumerate(geographies):
        zones = geography.size(geography.depth)
        # The totals of zones are nodes if the other side is the whole space where this side has all zones. A level of
        # areas with a single zone each counts as the zones.
        other_levels = [pair[1 - side] for pair in level_pairs if geography.size(pair[side]) == zones]
        if zones > 1 and geographies[1 - side].size(min(other_levels)) > 1:
            sides.append(side)
    return tuple(sides)


def _make_area_totals_error(message: str) -> OdError:
    """Return the error for area totals that cannot be measured."""
    return OdError(
        "OD-AREA-TOTALS", f"area totals cannot be measured: {message}", next_step="correct or leave out `area_totals`"
    )


TotalStep = GaussianStep | CombinedTotals
"""The query, or the combination of queries, from which the totals of a level are estimated."""


@dataclass(frozen=True)
class ThresholdStep(LaplaceLevelStep):
    """The planned query of the nodes of a level with trips, measured with discrete Laplace noise and a threshold.

    These nodes are leaf pairs, or children of estimated nodes at a level whose areas are found in the records. Noisy
    counts below the threshold are dropped; see ``docs/explanation/noise.md``.

    Attributes:
        delta: the charge beside epsilon.
        threshold: smallest noisy count that is released.
    """

    delta: Fraction = field(kw_only=True)
    threshold: int = field(kw_only=True)

    @property
    def charge(self) -> Charge:
        """Charge of one draw of the noise, in epsilon and delta."""
        return replace(super().charge, delta=self.delta)

    @property
    def noise_facts(self) -> dict[str, object]:
        """L1 sensitivity, noise scale and threshold, ready for JSON; the scale is exact text."""
        return {**super().noise_facts, "threshold": self.threshold}


MAX_SHARE_DENOMINATOR = 1_000
"""Largest denominator of a segment share, so that combinations of counts are exact in 64 bits."""


@dataclass(frozen=True)
class Segments:
    """The breakdowns of a release, and their share of the budget.

    Attributes:
        breakdowns: the breakdowns, at least one.
        share: share of a level's budget that all breakdowns have together, in equal parts. The totals have the rest.

    Raises:
        OdError: The share is not above 0 and below 1, or its denominator exceeds ``MAX_SHARE_DENOMINATOR``.

    Examples:
        >>> Segments.of((Breakdown("mode", ("car", "train")),), share="1/4").share
        Fraction(1, 4)
    """

    breakdowns: tuple[Breakdown, ...]
    share: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or self.share.denominator > MAX_SHARE_DENOMINATOR:
            raise OdError(
                "OD-SEGMENT-SHARE",
                f"segment_share is {self.share}; it must be above 0 and below 1, with a denominator of at most"
                f" {MAX_SHARE_DENOMINATOR:,}",
                next_step="leave segment_share out, or write a fraction such as 1/2",
            )

    @classmethod
    def of(cls, breakdowns: tuple[Breakdown, ...], share: object = None) -> Segments | None:
        """Return the segments of some breakdowns; None if there are none.

        By default, the totals and each of J breakdowns have an equal share, so ``share`` is J / (J + 1). With one
        breakdown, this makes the largest loss of accuracy smallest, compared with a release without segments and with a
        release for each segment. Raises OdError if a share is given without a breakdown, or is not valid.
        """
        if not breakdowns:
            if share is None:
                return None
            raise OdError(
                "OD-SEGMENT-SHARE",
                "segment_share is given without segments",
                next_step="declare segments, or leave it out",
            )
        default = Fraction(len(breakdowns), len(breakdowns) + 1)
        return cls(breakdowns, default if share is None else parse_exact_fraction("segment_share", share))

    def facts(self) -> dict[str, object]:
        """Return the segments as JSON-ready public facts, which :meth:`from_facts` reads."""
        return {"breakdowns": [breakdown.facts() for breakdown in self.breakdowns], "share": str(self.share)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any] | None) -> Segments | None:
        """Return the segments whose :meth:`facts` are given; None for None."""
        if facts is None:
            return None
        return cls(tuple(Breakdown(**breakdown) for breakdown in facts["breakdowns"]), Fraction(facts["share"]))


ROOT_SHARE = Fraction(1, 15)
"""Share of rho that the root of a tree with few measured levels has, as a multiple of the mean share of the others."""

ROOT_SHARE_OF_EPSILON = Fraction(1, 10)
"""The same for epsilon. It is larger because, with Laplace noise, a small share costs more accuracy."""


def compute_level_shares(
    tree: FlowTree, neighbours: Neighbours, mechanism: Mechanism, budget: Budget, *, segments: bool
) -> dict[int, Fraction]:
    """Return the share of the budget of each measured level, top first. Levels with a share of 0 are left out.

    By the rule ``geography``, a measured root has only a part of the mean share of the other levels, if the mechanism
    refines and the tree has few levels: it refines both sides at once, or the noise is Laplace noise.

    Raises:
        OdError: The budget states shares for another number of levels, or a level of found areas would have no share.
    """
    levels = list_measured_levels(neighbours, mechanism, tree.depth, segments=segments)
    root: list[Fraction] = []
    has_few_levels = mechanism.refines and (tree.refines_both or mechanism.has_laplace_noise)
    if levels[0] == 0 and has_few_levels and budget.format_shares(mechanism.default_shares) == "geography":
        root = [_compute_root_share(tree, mechanism)]
    fan_outs = [tree.largest_fan_out(level) for level in levels[len(root) :]]
    other_shares = budget.compute_level_shares(
        fan_outs, mechanism.default_shares, of_epsilon=mechanism.has_laplace_noise
    )
    if tree.found is not None and not all(other_shares):
        message = "a share is 0, but the areas of a found level must be measured to be published"
        raise OdError("OD-FOUND-LEVELS", message, next_step="state other shares of the levels, or leave them out")
    shares = [*root, *((1 - sum(root)) * share for share in other_shares)]
    return {level: share for level, share in zip(levels, shares, strict=True) if share > 0}


def _compute_root_share(tree: FlowTree, mechanism: Mechanism) -> Fraction:
    """Return the share of the budget of the root, which is ``ratio`` times the mean share of the other levels.

    Levels whose nodes have one child each, which has the same count, are left out. If the root is one, return 0.
    """
    counted_levels = [level for level in range(tree.depth + 1) if tree.largest_fan_out(level) != 1]
    ratio = ROOT_SHARE_OF_EPSILON if mechanism.has_laplace_noise else ROOT_SHARE
    return ratio / (ratio + len(counted_levels) - 1) if counted_levels[0] == 0 else Fraction(0)


def list_measured_levels(
    neighbours: Neighbours, mechanism: Mechanism, depth: int, *, segments: bool = False
) -> list[int]:
    """Return the levels that share the budget, top first; ``depth`` is the level of the leaves.

    A mechanism that does not measure every level measures the leaves alone. Otherwise, all levels share the budget,
    except the root if the total is an invariant. With ``segments``, the root has a share even then, because the total
    says nothing about the trips of each category.
    """
    if mechanism.measures != "every_level":
        return [depth]
    omits_root = neighbours.have_equal_totals and not segments
    return list(range(1 if omits_root else 0, depth + 1))


def list_level_queries(
    shares: Mapping[int, Fraction], neighbours: Neighbours, segments: Segments | None
) -> list[tuple[int, Breakdown | None, Fraction]]:
    """Return the level, the breakdown (None for the totals) and the share of each query.

    Queries are in the order of the levels; within a level, the totals are first. An exact total is not queried, so the
    shares of all queries then sum to less than ``shares``, those of the levels.
    """
    queries: list[tuple[int, Breakdown | None, Fraction]] = []
    for level, share in shares.items():
        if neighbours.sensitivity_squared(level) > 0:
            queries.append((level, None, share if segments is None else share * (1 - segments.share)))
        if segments is not None:
            share_of_breakdown = share * segments.share / len(segments.breakdowns)
            queries += [(level, breakdown, share_of_breakdown) for breakdown in segments.breakdowns]
    return queries


def compute_uncounted_step_number(tree: FlowTree, breakdowns: int) -> int:
    """Return the number of the step of uncounted trips, given the number of breakdowns.

    It is the first after the steps of the flow tree and its segments. Those of area totals follow it, even if uncounted
    trips are not measured.
    """
    return (1 + breakdowns) * (tree.depth + 1)


def plan_steps(
    tree: FlowTree,
    neighbours: Neighbours,
    mechanism: Mechanism,
    budget: Budget,
    segments: Segments | None = None,
    area_totals: Fraction | None = None,
    of_table: Fraction = Fraction(1),
) -> tuple[GaussianStep, ...]:
    """Return the steps of a mechanism that measures levels, top level first; within a level, the totals first.

    The steps of area totals are the last.

    Args:
        area_totals: share of the budget of the area totals of both sides; None if they are not measured.
        of_table: share of the budget of all of these steps together. The rest pays for the number of uncounted trips.

    Raises:
        OdError: The budget has no delta that the mechanism needs, or shares for another number of levels; or area
            totals are asked for, but the tree measures them itself.
    """
    declared_shares = compute_level_shares(tree, neighbours, mechanism, budget, segments=segments is not None)
    queries = list_level_queries(declared_shares, neighbours, segments)
    sides: tuple[int, ...] = ()
    share_of_areas = Fraction(0)
    if area_totals is not None:
        sides, share_of_areas = list_area_total_sides(tree), area_totals
        if not sides:
            raise _make_area_totals_error("the flow tree measures the trips from and to each zone itself")
    sum_of_shares = sum(share for *_, share in queries)
    query_shares = [(1 - share_of_areas) * share / sum_of_shares for *_, share in queries]
    side_shares = [share_of_areas / len(sides) for _ in sides]
    if mechanism.has_laplace_noise:
        shared = [(*query[:2], share) for query, share in zip(queries, query_shares, strict=True)]
        share_of_side = dict(zip(sides, side_shares, strict=True))
        # of_table is 1: uncounted trips are refused with Laplace noise.
        return _plan_laplace_steps(tree, neighbours, budget, shared, share_of_side, segments)
    # Area totals have as many cells that differ as the leaves. With uncounted trips, the exact loss is not defined.
    counted = [(level, breakdown is not None) for level, breakdown, _ in queries] + [(tree.depth, False)] * len(sides)
    cells = count_shifted_cells(neighbours, budget, counted) if of_table == 1 else None
    all_shares, shift = (*query_shares, *side_shares), neighbours.unit.contribution_bound
    rho = of_table * budget.compute_total_rho(mechanism.default_conversion, all_shares, cells, shift)
    steps: list[GaussianStep] = []
    for (level, breakdown, _), share in zip(queries, query_shares, strict=True):
        steps.append(_plan_level_step(neighbours, tree, segments, level, breakdown, rho * share))
    last_number = compute_uncounted_step_number(tree, 0 if segments is None else len(segments.breakdowns))
    for index, (side, share) in enumerate(zip(sides, side_shares, strict=True), start=1):
        level = tree.depth + index
        sensitivity = neighbours.sensitivity_squared(level)
        variance = Fraction(sensitivity) / (2 * rho * share)
        sizes = neighbours.list_node_sizes(level)
        steps.append(AreaTotalStep(level, sensitivity, variance, side, last_number + index, node_sizes=sizes))
    return tuple(steps)


def _plan_laplace_steps(
    tree: FlowTree,
    neighbours: Neighbours,
    budget: Budget,
    queries: Sequence[tuple[int, Breakdown | None, Fraction]],
    share_of_side: Mapping[int, Fraction],
    segments: Segments | None,
) -> tuple[GaussianStep, ...]:
    """Return the steps of :func:`plan_steps` with Laplace noise.

    The L1 sensitivity is that of :meth:`Neighbours.absolute_sensitivity`; a pair cap does not lower it.

    Args:
        queries: level, breakdown and share of epsilon of each query, as of :func:`list_level_queries`.
        share_of_side: share of epsilon of the area totals of each measured side.
    """
    whole_epsilon = cast("Fraction", budget.epsilon)  # mechanisms with Laplace noise refuse a budget in rho

    def make_common_arguments(level: int, share: Fraction, *, by_segment: bool = False) -> dict[str, Any]:
        """Return the arguments that all classes of steps with Laplace noise have."""
        sensitivity = neighbours.absolute_sensitivity(level, by_segment=by_segment)
        scale = sensitivity / (share * whole_epsilon)
        return {
            "level": level,
            "sensitivity_squared": neighbours.sensitivity_squared(level, by_segment=by_segment),
            "variance": bound_laplace_variance(scale),
            "sensitivity": sensitivity,
            "scale": scale,
        }

    steps: list[GaussianStep] = []
    found_levels = sum(map(tree.finds_areas, range(1, tree.depth + 1)))  # they have equal parts of delta
    for level, breakdown, share in queries:
        arguments = make_common_arguments(level, share, by_segment=breakdown is not None)
        if level and tree.finds_areas(level):
            delta = budget.delta / found_levels
            threshold = max(1, compute_stability_threshold(neighbours.unit, share * whole_epsilon, delta))
            steps.append(ThresholdStep(**arguments, delta=delta, threshold=threshold))
        elif segments is None or breakdown is None:
            steps.append(LaplaceLevelStep(**arguments))
        else:
            first_number = _compute_first_segment_number(tree, segments, breakdown)
            steps.append(LaplaceSegmentStep(**arguments, breakdown=breakdown.name, first_number=first_number))
    last_number = compute_uncounted_step_number(tree, 0 if segments is None else len(segments.breakdowns))
    for index, (side, share) in enumerate(share_of_side.items(), start=1):
        arguments = make_common_arguments(tree.depth + index, share)
        steps.append(LaplaceAreaTotalStep(**arguments, side=side, step_number=last_number + index))
    return tuple(steps)


def _compute_first_segment_number(tree: FlowTree, segments: Segments, breakdown: Breakdown) -> int:
    """Return the number of the step that counts the root by a breakdown."""
    return (1 + segments.breakdowns.index(breakdown)) * (tree.depth + 1)


def _plan_level_step(
    neighbours: Neighbours,
    tree: FlowTree,
    segments: Segments | None,
    level: int,
    breakdown: Breakdown | None,
    rho: Fraction,
) -> GaussianStep:
    """Return the step with Gaussian noise that measures a level, and is charged ``rho``.

    The step counts by the breakdown or, if that is None, the totals.
    """
    sensitivity = neighbours.sensitivity_squared(level, by_segment=breakdown is not None)
    variance = Fraction(sensitivity) / (2 * rho)
    sizes = neighbours.list_node_sizes(level)
    if segments is None or breakdown is None:
        return GaussianStep(level, sensitivity, variance, node_sizes=sizes)
    first_number = _compute_first_segment_number(tree, segments, breakdown)
    return SegmentStep(level, sensitivity, variance, breakdown.name, first_number, node_sizes=sizes)


def has_one_trip(unit: PrivacyUnit) -> bool:
    """Return whether the privacy unit is a single record, without weights, so that it counts as one trip."""
    return not unit.is_of_users and unit.max_weight is None


def count_shifted_cells(
    neighbours: Neighbours, budget: Budget, queries: Sequence[tuple[int, bool]]
) -> tuple[int, ...] | None:
    """Return the number of cells of each query that differ between neighbours, by the contribution bound each.

    The exact privacy loss is computed from these numbers. Return None if it is not defined for the unit and a query.
    For users, and for records with weights, it is used only if the budget declares the conversion ``exact``: earlier
    versions planned such releases with ``tight``, and what those have published or begun stays as it is.

    Args:
        queries: the level of each query, and whether it counts by segment.
    """
    if not has_one_trip(neighbours.unit) and budget.choose_conversion("tight", ()) != "exact":
        return None
    cells = [neighbours.count_shifted_cells(level, by_segment=by_segment) for level, by_segment in queries]
    return None if None in cells else tuple(number for number in cells if number is not None)


def make_threshold_step(unit: PrivacyUnit, budget: Budget, depth: int, rule: str) -> ThresholdStep:
    """Return the single step of a mechanism with a threshold; ``rule`` is that of :func:`compute_stability_threshold`.

    Raises OdError as that function does.
    """
    epsilon = cast("Fraction", budget.epsilon)  # a budget in rho is not supported
    scale = compute_laplace_scale(unit, epsilon)
    threshold = compute_stability_threshold(unit, epsilon, budget.delta, rule)
    return ThresholdStep(
        level=depth,
        sensitivity_squared=compute_sensitivity_squared(unit),
        variance=compute_laplace_variance(scale),
        sensitivity=compute_leaf_sensitivity(unit),
        scale=scale,
        delta=budget.delta,
        threshold=max(1, threshold),  # below 1 only if delta is near 1
    )


def relate_neighbours(
    unit: PrivacyUnit, acceptance: Acceptance, tree: FlowTree, segments: Segments | None
) -> Neighbours:
    """Return the neighbour relation of a release.

    It depends on whether every record is counted: all pairs of zones must be possible, and both geographies and each
    breakdown must have a catch-all area or category for records with unlisted values.
    """
    return Neighbours(
        unit,
        acceptance,
        has_unknown_areas=tree.possible is None and None not in (tree.origin.unknown, tree.destination.unknown),
        has_unknown_categories=segments is None or has_unknown_categories(segments.breakdowns),
        nodes=list_node_sizes(*unit.bounds, tree),
    )


def list_node_sizes(max_trips: int, max_trips_pair: int | None, tree: FlowTree) -> tuple[NodeSizes, ...]:
    """Return the sizes (numbers of leaf pairs) of the largest nodes of each level, and then of zones with area totals.

    An entry is :data:`od_core.privacy.neighbours.NodeSizes`. It bounds the sum of squares of a user's counts at a level
    under a cap on the trips of each leaf pair. The largest nodes that hold ``max_trips`` under this cap suffice, also
    for fewer trips and under a larger cap. Without a cap, no sizes are needed, and the result is empty.
    """
    if max_trips_pair is None:
        return ()
    node_counts_by_size = [tree.count_nodes_by_size(level) for level in range(tree.depth + 1)]
    zones = [geography.size(geography.depth) for geography in (tree.origin, tree.destination)]
    for side in list_area_total_sides(tree):
        pairs_of_zone = zones[1 - side]  # with every zone of the other side
        node_counts_by_size.append([(pairs_of_zone, zones[side])])
    return tuple(select_node_sizes(max_trips, max_trips_pair, nodes) for nodes in node_counts_by_size)
