"""Plan the measurements and the cost of a release, from public facts alone, before any data is read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.flows.accuracy import (
    UNMEASURED,
    compute_error_ratio,
    compute_expected_errors,
    compute_largest_variances,
    compute_segment_variance,
    describe_half_width,
    find_most_leaf_pairs,
)
from od_core.flows.arrays import Integers
from od_core.flows.bands import Bands
from od_core.flows.interval_ends import compute_half_width
from od_core.flows.known_totals import KnownTotals, list_known_totals, make_known_totals_error
from od_core.flows.mechanisms import COMPARED_MECHANISMS, MECHANISMS, Mechanism
from od_core.flows.optimal_shares import VarianceModel, minimise_expected_error
from od_core.flows.projection.onto_parents import project_children_euclidean
from od_core.flows.step import (
    AreaTotalStep,
    CombinedTotals,
    Segments,
    SegmentStep,
    TotalStep,
    compute_uncounted_step_number,
    count_shifted_cells,
    has_one_trip,
    list_area_total_sides,
    list_measured_levels,
    make_threshold_step,
    parse_area_total_share,
    plan_steps,
    relate_neighbours,
    suggest_area_total_share,
)
from od_core.geography.flow_tree import FlowTree, TreeOrder
from od_core.geography.found_levels import Found, FoundLevels
from od_core.geography.geography import Geography
from od_core.geography.places import has_distances
from od_core.geography.possible_pairs import PossiblePairs
from od_core.meaning.features import list_given_options, refuse_unsupported
from od_core.privacy.accounting import Number, round_up_to_float
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, Acceptance, Neighbours
from od_core.privacy.plan import (
    EARLIER,
    DetailNoise,
    GaussianStep,
    Plan,
    Step,
    Table,
    Uncounted,
    UncountedStep,
    compute_table_share,
    read_plan_options,
)
from od_core.privacy.shares import MinimiseRule
from od_core.privacy.unit import PrivacyUnit
from od_core.records.segments import Breakdown, check_name, find_breakdown, make_breakdowns

GAUSSIAN_DELTA = Fraction(1, 10**8)
"""Delta of a variant with Gaussian noise of a plan with Laplace noise, which itself has no delta."""

NOISE_PROMISES = {"gaussian": "Gaussian noise, delta 1e-8", "laplace": "Laplace noise, epsilon alone"}
"""Words for a noise distribution and the guarantee that it gives, for variants in which the distribution changes."""

WORTHWHILE_RATIO = 0.85
"""Largest ratio of expected errors for which another choice of levels and noise is proposed. In tests, realised ratios
vary by about 10 % around the expected ones."""


@dataclass(frozen=True, eq=False, repr=False)
class ReleasePlan(Plan):
    """The fixed list of steps of one release, with the public facts that determine it.

    Attributes:
        tree, unit, budget, mechanism, bands, acceptance: see :func:`plan_release`.
        segments: breakdowns by which trips are also counted; None if there are none.
        uncounted: how the number of uncounted trips is measured; None if it is not measured.
        area_totals: share of the budget for the trips from and to each zone; None if they are not measured.
        known: public numbers of trips from or to each zone, at most one for each side, in the order of the sides.
        earlier: what the certificate of the release before states of the rule of estimation of its series: ``release``,
            ``estimation`` and ``evidence``. None if there is none, or if the mechanism does not choose a rule.

    Raises:
        OdError: If the plan has features that are not supported together, if the number of uncounted trips or the bands
            do not suit the unit and the tree, or if a band has no step.

    Examples:
        >>> plan
        ReleasePlan(inftda_refined, rho 2519/131072; .to_frame() lists its steps)
    """

    protects_trips_alone: ClassVar[bool] = False

    tree: FlowTree
    unit: PrivacyUnit
    budget: Budget
    mechanism: Mechanism
    bands: Bands | None = None
    acceptance: Acceptance = DEFAULT_ACCEPTANCE
    segments: Segments | None = None
    uncounted: Uncounted | None = None
    area_totals: Fraction | None = None
    known: tuple[KnownTotals, ...] = ()
    earlier: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        refuse_unsupported(self.table, self.features)
        for breakdown in self.breakdowns:
            check_name(breakdown.name, of_counts=self.tree.has_one_side)
        if self.tree.possible is not None and self.mechanism.measures == "every_level" and not self.keeps_all:
            raise OdError(
                "OD-POSSIBLE-PAIRS",
                "the pairs that can have trips are stated, but nodes without trips are dropped before all are measured",
                next_step="state fewer pairs, or use mechanism inftda_refined with a larger keep_all_cap",
            )
        if self.known and not self.keeps_all:
            raise OdError(
                "OD-KNOWN-TOTALS",
                "known totals are stated, but nodes without trips are dropped before all are measured",
                next_step="leave out the known totals, or use mechanism inftda_refined with a larger keep_all_cap",
            )
        if self.uncounted is not None:
            self.uncounted.check(self.unit)
        if self.bands is not None:
            self.bands.check(self.tree.depth)
        stated_bands = 1 if self.bands is None else 1 + len(self.bands.cuts)
        if len(self.step_bands) < stated_bands:
            raise OdError(
                "OD-BANDS",
                "a band has no level that is measured, because each of its nodes has one child",
                next_step="leave out the cut above or below this band",
            )

    @property
    def table(self) -> Table:
        """What the release has: counts of the areas of one side, or flows between two sides."""
        return "counts" if self.tree.has_one_side else "flows"

    @property
    def features(self) -> frozenset[str]:
        """Names of the options that this plan has, as ``od_core/meaning/support.yaml`` lists them."""
        options = {name: getattr(self, name) for name in ("segments", "uncounted", "area_totals", "known", "bands")}
        return (
            super().features
            | self.mechanism.features
            | list_given_options(
                coordinates=has_distances(self.tree),
                both_sides=self.tree.refines_both,
                possible=self.tree.possible,
                found=self.tree.found,
                **options,
            )
        )

    @cached_property
    def steps(self) -> tuple[GaussianStep, ...]:
        """All steps of the flow tree, top level first; the steps of a level are its totals and then its segments."""
        return tuple(step for step in self._table_steps if not isinstance(step, AreaTotalStep))

    @cached_property
    def area_total_steps(self) -> tuple[AreaTotalStep, ...]:
        """The steps that measure the trips from or to each zone; empty if these are not measured."""
        return tuple(step for step in self._table_steps if isinstance(step, AreaTotalStep))

    @cached_property
    def _table_steps(self) -> tuple[GaussianStep, ...]:
        """All steps except the step of the uncounted trips: first those of the tree, then those of area totals."""
        if self.mechanism.measures == "present_leaves":
            return (make_threshold_step(self.unit, self.budget, self.tree.depth, self.mechanism.threshold),)
        options = self.segments, self.area_totals, compute_table_share(self.uncounted)
        return plan_steps(self.tree.public, self.neighbours, self.mechanism, self.budget, *options)

    @property
    def charged_steps(self) -> tuple[Step, ...]:
        """All steps that the ledger charges: those of the tree, of area totals, and of the uncounted trips."""
        return self._table_steps if self.uncounted_step is None else (*self._table_steps, self.uncounted_step)

    @cached_property
    def uncounted_step(self) -> UncountedStep | None:
        """Step that measures the number of uncounted trips; None if it is not measured.

        Its number is that of :func:`od_core.flows.step.compute_uncounted_step_number`.
        """
        if self.uncounted is None:
            return None
        number = compute_uncounted_step_number(self.tree, len(self.breakdowns))
        rho_of_table = sum((step.rho for step in self._table_steps), start=Fraction(0))
        rho_of_release = rho_of_table / compute_table_share(self.uncounted)  # the table has only its share
        return self.uncounted.make_step(number, rho_of_release * self.uncounted.share)

    @cached_property
    def totals(self) -> tuple[TotalStep, ...]:
        """Measurements of the totals of each measured level, top level first.

        Without segments, these are :attr:`steps`. With segments, each combines the step of the totals of a level with
        its steps by segment, whose noisy counts sum to the same totals. A root with an exact total has none.
        """
        if self.segments is None:
            return self.steps
        combined = []
        for total in self.steps:
            if total.by_segment:
                continue
            segments = [
                (step, len(find_breakdown(self.breakdowns, step.breakdown).categories))
                for step in self.steps_at(total.level)
                if isinstance(step, SegmentStep)
            ]
            combined.append(CombinedTotals.from_steps(total, segments))
        return tuple(combined)

    def segment_steps(self, breakdown: str) -> tuple[SegmentStep, ...]:
        """Return the steps that count trips by a breakdown, top level first. Raises OdError if it is not declared."""
        name = find_breakdown(self.breakdowns, breakdown).name
        return tuple(step for step in self.steps if isinstance(step, SegmentStep) and step.breakdown == name)

    @property
    def uses_area_totals(self) -> bool:
        """True if the trips from or to each zone are measured beside the tree, or known."""
        return self.area_totals is not None or bool(self.known)

    @property
    def known_total(self) -> int | None:
        """The number of all trips if the known totals of a side are exact; otherwise None."""
        return next((totals.total for totals in self.known if totals.is_exact), None)

    def refuse_other_counts(self, counted: int) -> None:
        """Raise OdError if the total is published exactly, and exact known totals do not sum to ``counted`` trips."""
        if self.publishes_total and self.known_total not in (None, counted):
            raise make_known_totals_error(
                "the exact known totals do not sum to the number of all trips, which is exact"
            )

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The breakdowns by which trips are also counted; empty if there are none."""
        return () if self.segments is None else self.segments.breakdowns

    @cached_property
    def neighbours(self) -> Neighbours:
        """Definition of the neighbouring inputs, which the guarantee makes hard to distinguish."""
        return relate_neighbours(self.unit, self.acceptance, self.tree, self.segments)

    @property
    def publishes_total(self) -> bool:
        """True if the total number of trips, n, is an invariant: published exactly, as the root of the flow tree."""
        return self.neighbours.have_equal_totals and self.mechanism.measures == "every_level"

    @property
    def has_threshold(self) -> bool:
        """True if only nodes with trips are measured at the leaves, and those below a threshold are dropped.

        The guarantee of such a release has no rho.
        """
        return self.mechanism.measures == "present_leaves" or self.tree.found is not None

    @property
    def charges_rho(self) -> bool:
        """True if the steps are charged in rho, as Gaussian noise is; False if Laplace noise is charged in epsilon."""
        return not (self.has_threshold or self.mechanism.has_laplace_noise)

    def project(self, noisy: Integers, totals: Integers, offsets: Integers) -> Integers:
        """Return the estimated counts of the children of all parents; shape (children,). They sum to the totals.

        For the arguments, see :func:`od_core.flows.projection.onto_parents.check_parents`. The projection of the
        mechanism usually minimises the largest change of a count. If the noise of a leaf is below one trip, this would
        take trips from arbitrary children, so the sum of squared changes is minimised instead. Plans with Gaussian
        noise and one side refined at a time, which earlier versions had, keep the projection of the mechanism.
        """
        has_little_noise = self.steps[-1].variance < 1
        if has_little_noise and (self.tree.refines_both or not self.charges_rho):
            return project_children_euclidean(noisy, totals, offsets)
        return self.mechanism.project(noisy, totals, offsets)

    @property
    def keeps_all(self) -> bool:
        """True if nodes that are estimated as 0 are kept. If False, they are dropped with all nodes below them."""
        return self.tables * self.tree.cells(self.tree.depth) <= self.mechanism.keep_all_cap

    @property
    def tables(self) -> int:
        """Number of tables that are measured: the totals, and one for each category of each breakdown."""
        return 1 + sum(len(breakdown.categories) for breakdown in self.breakdowns)

    @cached_property
    def expected_errors(self) -> list[float]:
        """Expected root-mean-square error of the totals of each level, root first, in trips, without cuts at zero.

        See :func:`od_core.flows.accuracy.compute_expected_errors` for their accuracy. All are NaN if the mechanism has
        a threshold, because the true trips determine which counts are below the threshold.
        """
        return self._compute_expected_errors(self.totals)

    def expected_segment_errors(self, breakdown: str) -> list[float]:
        """Return :attr:`expected_errors` of one category of a breakdown. Raises OdError if it is not declared."""
        categories = len(find_breakdown(self.breakdowns, breakdown).categories)
        errors_of_category_alone = self._compute_expected_errors(self.segment_steps(breakdown))
        return [
            compute_segment_variance(error_of_total**2, own_error**2, categories) ** 0.5
            for error_of_total, own_error in zip(self.expected_errors, errors_of_category_alone, strict=True)
        ]

    def _map_noise_variances_by_level(self, measured: Sequence[TotalStep]) -> dict[int, Fraction | float]:
        """Return the variance of the noise of each level that ``measured`` measures, by number of the level.

        It is NaN if the mechanism has a threshold. A root that is neither measured nor exact is added with an infinite
        variance, or a very large one if the steps are those of a breakdown.
        """
        variances = {step.level: math.nan if self.has_threshold else step.variance for step in measured}
        if isinstance(measured[0], SegmentStep):
            return {0: UNMEASURED * max(variances.values())} | variances
        unknown: dict[int, Fraction | float] = {} if self.publishes_total else {0: math.inf}
        return unknown | variances

    def _compute_expected_errors(self, measured: Sequence[TotalStep]) -> list[float]:
        """Return the expected error in trips of each level, root first, if only ``measured`` is measured."""
        depth, variances = self.tree.depth, self._map_noise_variances_by_level(measured)
        if self.has_threshold or self.mechanism.measures == "all_leaves":
            # A node is a sum of leaves, so its variance is that of a leaf times the mean number of leaves of a node.
            variance_of_all = variances[depth] * self.tree.cells(depth)
            return [float(variance_of_all / self.tree.cells(level)) ** 0.5 for level in range(depth + 1)]
        return compute_expected_errors(self.tree, variances, refined=self.mechanism.refines)

    @cached_property
    def half_widths(self) -> list[float]:
        """Largest half-width in trips, at each level, root first, of the 90 % interval of an estimate.

        The unbiased estimate (:mod:`od_core.flows.estimation.least_squares`) is at most this far from the true number
        of counted trips with probability 0.9, whatever that number is. If nodes may be dropped, the values are those of
        the measured counts alone, which no estimate exceeds. All are NaN if the mechanism has a threshold.
        """
        return list(map(_compute_half_width, self._compute_largest_variances(self.totals)))

    def segment_half_widths(self, breakdown: str) -> list[float]:
        """Return :attr:`half_widths` of one category of a breakdown. Raises OdError if it is not declared."""
        categories = len(find_breakdown(self.breakdowns, breakdown).categories)
        total_variances = self._compute_largest_variances(self.totals)
        own_variances = self._compute_largest_variances(self.segment_steps(breakdown))
        return [
            _compute_half_width(compute_segment_variance(total, own, categories))
            for total, own in zip(total_variances, own_variances, strict=True)
        ]

    def _compute_largest_variances(self, measured: Sequence[TotalStep]) -> list[float]:
        """Return the largest variance, at each level, root first, of an unbiased estimate from ``measured`` alone.

        If nodes may be dropped, it is that of the noisy count of a node of the level, without those of other levels.
        """
        depth, variances = self.tree.depth, self._map_noise_variances_by_level(measured)
        if self.mechanism.measures != "every_level":
            return [float(variances[depth] * find_most_leaf_pairs(self.tree, level)) for level in range(depth + 1)]
        if self.keeps_all:
            return compute_largest_variances(self.tree, variances)
        largest = [float(variances[depth])]
        for level in range(depth - 1, -1, -1):  # an unmeasured level has the counts of the level below
            noise = float(variances.get(level, math.inf))
            largest.insert(0, noise if noise < math.inf else largest[0])
        if self.publishes_total and 0 not in variances:
            largest[0] = 0.0
        return largest

    @cached_property
    def known_to_within(self) -> dict[str, float]:
        """Half-widths in trips (:attr:`half_widths`) by the name of the query, such as ``zone x region by mode``.

        The dictionary is empty if the mechanism has a threshold.
        """
        if self.has_threshold:
            return {}
        sides = len(self.tree.listed_sides)

        def name_query(step: TotalStep, suffix: str = "") -> str:
            """Return the names of the levels of a step, such as ``zone x region``, and the suffix."""
            return " x ".join(self.level_names(step)[:sides]) + suffix

        widths = {name_query(step): self.half_widths[step.level] for step in self.totals}
        for breakdown in self.breakdowns:
            segment_widths = self.segment_half_widths(breakdown.name)
            for step in self.segment_steps(breakdown.name):
                widths[name_query(step, f" by {breakdown.name}")] = segment_widths[step.level]
        for area_step in self.area_total_steps:
            variance = self.bound_area_total_variance(area_step)
            if not self.keeps_all:  # an interval is from the measured total or from the flows, not from both
                variance = float(min(area_step.variance, self._compute_flow_sum_variance(area_step)))
            widths[name_query(area_step)] = _compute_half_width(variance)
        return widths

    def verdicts(self) -> list[str]:
        """Return a sentence for each query on what its noise allows to be read; see :attr:`known_to_within`."""
        return [f"{levels}: {describe_half_width(width)}" for levels, width in self.known_to_within.items()]

    @property
    def conversion(self) -> str:
        """Name of the conversion from epsilon to rho that the budget states; by default, that of the mechanism.

        ``exact`` is replaced by ``tight`` if it is not defined for this unit and this delta.
        """
        return self.budget.choose_conversion(self.mechanism.default_conversion, self._shifted_cells)

    def compute_spent(self, draws: Sequence[int | Fraction]) -> Spent:
        """Return the budget that is spent if each of :attr:`charged_steps` was drawn as often as ``draws`` states."""
        if not self.charges_rho:
            return super().compute_spent(draws)
        rhos = tuple(times * step.charge.rho for times, step in zip(draws, self.charged_steps, strict=True))
        every_period = rhos[-1] if self.uncounted is not None else Fraction(0)  # uncounted trips are the last step
        cells = self._shifted_cells if set(draws) == {1} else None  # the exact loss is that of one draw of each step
        return Spent(rhos, self.budget.delta, cells, every_period, shift=self.unit.contribution_bound)

    @property
    def unmeasured_levels(self) -> list[int]:
        """Levels that have no step, because their share of the budget is 0.

        Each node of such a level has one child, so the level below measures the same counts.
        """
        measured = {step.level for step in self.totals} | ({0} if self.publishes_total else set())
        return [level for level in self._list_measured_levels() if level not in measured]

    def _list_measured_levels(self) -> list[int]:
        """Return the levels that share the budget, top first, also those with a share of 0."""
        return list_measured_levels(
            self.neighbours, self.mechanism, self.tree.depth, segments=self.segments is not None
        )

    @property
    def step_bands(self) -> list[tuple[GaussianStep, ...]]:
        """Steps of each band, top band first; all steps as one band if the plan has no bands."""
        if self.bands is None:
            return [self.steps]
        return [self.steps[band] for band in self.bands.split([step.level for step in self.steps])]

    @property
    def _shifted_cells(self) -> tuple[int, ...] | None:
        """For each step, the number of cells that differ by the contribution bound, for the exact privacy loss.

        None if this loss is not defined for the release: it measures the number of uncounted trips, or as for
        :func:`od_core.flows.step.count_shifted_cells`.
        """
        if self.uncounted is not None:
            return None
        queries = [(step.level, step.by_segment) for step in self._table_steps]
        return count_shifted_cells(self.neighbours, self.budget, queries)

    def find_level_above(self, step: TotalStep) -> int | None:
        """Return the nearest level above a step whose totals are measured or exact; None for one of area totals.

        None also if the step is the first, and no root above it is exact. The totals of its level must be measured.
        """
        if isinstance(step, AreaTotalStep):
            return None
        levels = [total.level for total in self.totals]
        before = levels.index(step.level) - 1
        if before >= 0:
            return levels[before]
        return 0 if self.publishes_total else None

    def level_pair(self, step: TotalStep) -> tuple[int, int]:
        """Return the level of the origins and the level of the destinations that a step counts; 0 is all areas."""
        if isinstance(step, AreaTotalStep):
            depth = self.tree.origin.depth
            return (0, depth) if step.side else (depth, 0)
        return self.tree.level_pair(step.level)

    def level_names(self, step: TotalStep) -> tuple[str, str]:
        """Return the names of the origin level and of the destination level that a step counts."""
        origin_level, destination_level = self.level_pair(step)
        return self.tree.origin.level_names[origin_level], self.tree.destination.level_names[destination_level]

    def count_public_cells(self, step: TotalStep) -> int:
        """Return the number of counts that a step can measure, which is public: nodes or zones, times categories."""
        if isinstance(step, AreaTotalStep):
            geography = (self.tree.origin, self.tree.destination)[step.side]
            return geography.size(geography.depth)
        cells = self.tree.cells(step.level)
        if isinstance(step, SegmentStep):
            cells *= len(find_breakdown(self.breakdowns, step.breakdown).categories)
        return cells

    def bound_area_total_variance(self, step: AreaTotalStep) -> float:
        """Return an upper bound of the variance of the estimated total of a zone on the side of ``step``.

        It is that of the measured total and the sum of the noisy flows, weighted by precision: 1 / (1/V + 1/W).
        """
        return 1 / float(1 / step.variance + 1 / self._compute_flow_sum_variance(step))

    def _compute_flow_sum_variance(self, step: AreaTotalStep) -> Fraction:
        """Return the variance of the sum of a zone's noisy flows to or from all zones of the other side of ``step``."""
        other_side = (self.tree.destination, self.tree.origin)[step.side]
        return other_side.size(other_side.depth) * self.totals[-1].variance

    def steps_at(self, level: int) -> list[GaussianStep]:
        """Return the steps that measure a level, its totals first; empty if the level is not measured."""
        return [step for step in self.steps if step.level == level]

    def step(self, level: int) -> GaussianStep:
        """Return the step that measures the totals of a level, or area totals. Raises OdError if there is none."""
        for step in (*self.steps, *self.area_total_steps):
            if step.level == level and not step.by_segment:
                return step
        raise OdError(
            "OD-LEVEL-UNMEASURED", f"level {level} is not measured", next_step="see plan.steps for the measured levels"
        )

    def replan(
        self, unit: PrivacyUnit, budget: Budget, mechanism: Mechanism | None = None, tree: TreeOrder | None = None
    ) -> ReleasePlan:
        """Return the plan with another unit and budget, and optionally another mechanism or order of the tree.

        Another mechanism or tree has its default shares of the budget. Area totals and known totals are kept if the
        mechanism refines, and the measurement of uncounted trips if the kind of the unit stays. What earlier releases
        showed (:attr:`earlier`) is dropped: it is about releases with this plan. Raises OdError if the library has no
        such release.
        """
        chosen_mechanism = mechanism or self.mechanism
        plan_with = partial(
            plan_release,
            self.tree.origin,
            unit=unit,
            mechanism=chosen_mechanism,
            tree=tree or self.tree.order,
            destination_geography=self.tree.destination,
            bands=self.bands,
            acceptance=self.acceptance,
            segments=self.segments,
            uncounted=self.uncounted if unit.kind == self.unit.kind else None,
            area_totals=self.area_totals if chosen_mechanism.refines else None,
            possible=self.tree.possible,
            known=self.known if chosen_mechanism.refines else None,
            found=self.tree.found,
        )
        shares = budget.shares if mechanism is None and tree is None else None
        if isinstance(shares, tuple) and shares[0] != "geometric":
            with_default_shares = plan_with(budget=replace(budget, shares=None))
            levels = len(with_default_shares._list_measured_levels())
            # If the root becomes measured or exact, the listed shares gain or lose its share. The shares below keep
            # their proportions.
            _, *below = shares
            if levels == len(shares) + 1:
                shares = (Fraction(1, levels), *(share * (levels - 1) / levels for share in shares))
            elif levels == len(below):
                shares = tuple(share / sum(below) for share in below)
        return plan_with(budget=replace(budget, shares=shares))

    def detail_noise(self, measured: Any = None) -> DetailNoise:
        """Return the noise of the flows between zones, in trips. ``measured`` is not used."""
        if not self.charges_rho:
            return super().detail_noise(measured)
        variance = self.step(self.tree.depth).variance
        return DetailNoise(variance, math.sqrt(variance), self.expected_errors[-1])

    @property
    def compared_levels(self) -> dict[int, str]:
        """Names, by level, of up to three levels of the flow tree: coarse, middle and most detailed.

        At each, origins and destinations are at the same level of their geographies, if both have levels.
        """
        tree, square = self.tree, self._square_levels
        chosen = sorted({square[0], square[len(square) // 2], tree.depth})
        return {level: " x ".join(dict.fromkeys(tree.level_names[level][: len(tree.listed_sides)])) for level in chosen}

    @property
    def _square_levels(self) -> list[int]:
        """Levels below the root at which both sides have the same detail; all below the root if there is one side."""
        square = []
        for level in range(1, self.tree.depth + 1):
            origin_level, destination_level = self.tree.level_pair(level)
            if self.tree.has_one_side or origin_level == destination_level:
                square.append(level)
        return square

    @property
    def compared_widths(self) -> tuple[float, ...]:
        """Half-widths in trips of the 90 % intervals at the first of :attr:`compared_levels` and at the leaves.

        Empty if the mechanism has a threshold, because such a release has no intervals.
        """
        first, *_ = self.compared_levels
        return () if self.has_threshold else tuple(self.half_widths[level] for level in (first, self.tree.depth))

    def iterate_variants(self) -> Iterator[tuple[str, Callable[[], ReleasePlan], str]]:
        """Yield this plan with other area totals, with another order of the tree or noise, and with other mechanisms.

        Each has three items: the change in words, a function that returns the plan, and an empty text as its note. The
        function raises OdError if the library has no such release.
        """
        if self.mechanism.refines and list_area_total_sides(self.tree) and not self.known:
            share = self.usual_area_total_share if self.area_totals is None else None
            choice = (
                "area totals not measured" if share is None else f"area totals measured, with {share} of the budget"
            )
            yield choice, partial(replace, self, area_totals=share), ""
        for order, noise in self._list_levels_and_noise():
            changed = [] if order == self.tree.order else [f"tree {order}"]
            if noise != self.mechanism.noise_distribution:
                changed.append(NOISE_PROMISES[noise])
            yield ", ".join(changed), partial(self.with_levels_and_noise, order, noise), ""
        gaussian = self.mechanism.with_noise("gaussian")
        budget = self.budget if gaussian == self.mechanism else replace(self.budget, delta=GAUSSIAN_DELTA)
        for mechanism in COMPARED_MECHANISMS:
            if (mechanism.name, mechanism.options) != (gaussian.name, gaussian.options):
                name = mechanism.name + (", estimate auto" if mechanism.estimate == "auto" else "")
                choice = f"mechanism {name}" + (f", {NOISE_PROMISES['gaussian']}" if budget != self.budget else "")
                yield choice, partial(self.replan, self.unit, budget, mechanism), ""

    def _list_levels_and_noise(self) -> list[tuple[TreeOrder, str]]:
        """Return alternatives to the order of the tree and the noise distribution of this plan, as pairs of both.

        A tree that refines one side at a time has many levels, and one that refines both at once has few. Gaussian
        noise suits both, and Laplace noise few levels. A table of counts has one side, and therefore one order. The
        list is empty if the mechanism does not refine or the plan has bands, which exclude these options.
        """
        if not self.mechanism.refines or self.bands is not None:
            return []
        few_levels: TreeOrder = self.tree.order if self.tree.has_one_side else "both"
        many_levels: TreeOrder = "destination" if self.tree.refines_both else self.tree.order
        pairs = dict.fromkeys([(many_levels, "gaussian"), (few_levels, "gaussian"), (few_levels, "laplace")])
        return [pair for pair in pairs if pair != (self.tree.order, self.mechanism.noise_distribution)]

    def with_levels_and_noise(self, order: TreeOrder, noise: str) -> ReleasePlan:
        """Return the plan with another order of the tree or another distribution of the noise, at the same epsilon.

        Gaussian noise in place of Laplace noise has the delta ``GAUSSIAN_DELTA``. If the noise changes, area totals
        have their default share for this noise. Raises OdError if the library has no such release.
        """
        if noise == self.mechanism.noise_distribution:
            return self.replan(self.unit, replace(self.budget, shares=None), tree=order)
        epsilon = self.budget.epsilon or self.spent.epsilon
        budget = Budget(epsilon, GAUSSIAN_DELTA if noise == "gaussian" else 0)
        plan = self.replan(self.unit, budget, self.mechanism.with_noise(noise), order)
        if plan.area_totals is None:
            return plan
        return replace(plan, area_totals=plan.usual_area_total_share)

    @property
    def usual_area_total_share(self) -> Fraction:
        """Share of the budget that area totals have by default; see :func:`suggest_area_total_share`."""
        alone = self if self.area_totals is None else replace(self, area_totals=None)
        return suggest_area_total_share(self.tree, self.mechanism, alone.step(self.tree.depth).variance)

    def find_less_error(self) -> tuple[ReleasePlan, float] | None:
        """Return the plan with fewer levels or Laplace noise that has the least expected error, and the error ratio.

        The ratio of its errors to those of this plan is a geometric mean over the levels with the same detail on both
        sides. Return None if no ratio is at most ``WORTHWHILE_RATIO``, or if the plan has breakdowns or bands. Laplace
        noise is not proposed for a budget in rho, which it cannot guarantee. It is not proposed either where it was
        worse in tests (with a pair cap) or is worse over many releases (for units that span periods).
        """
        if self.segments is not None or self.bands is not None:
            return None
        unit = self.unit
        laplace_fits = self.budget.epsilon is not None and unit.max_trips_pair is None and not unit.spans_periods
        candidates: list[tuple[ReleasePlan, float]] = []
        for order, noise in self._list_levels_and_noise():
            has_more_levels = self.tree.refines_both and order != "both"
            if has_more_levels or self.mechanism.has_laplace_noise or (noise == "laplace" and not laplace_fits):
                continue
            with suppress(OdError):  # the library has no such release
                plan = self.with_levels_and_noise(order, noise)
                candidates.append((plan, compute_error_ratio(self._square_errors, plan._square_errors)))
        worthwhile = [(plan, ratio) for plan, ratio in candidates if ratio <= WORTHWHILE_RATIO]
        return min(worthwhile, key=lambda candidate: candidate[1], default=None)

    @property
    def _square_errors(self) -> list[float]:
        """Expected errors at the levels below the root at which both sides have the same detail."""
        return [self.expected_errors[level] for level in self._square_levels]

    def as_reserved(self, reserved: Mapping[str, Any]) -> ReleasePlan:
        """Return the plan of a release that the ledger has reserved, given the facts of its plan in the reservation.

        For users and records with weights, earlier versions used the conversion ``tight`` in place of a declared
        ``exact``. A release that they reserved keeps ``tight``.
        """
        is_of_earlier_version = (reserved.get("conversion"), self.conversion) == ("tight", "exact")
        if not is_of_earlier_version or has_one_trip(self.unit):
            return self
        return replace(self, budget=replace(self.budget, conversion="tight"))

    def with_earlier_evidence(self, found: Callable[[], Mapping[str, Any] | None]) -> ReleasePlan:
        """Return the plan with the evidence of earlier releases, which ``found`` reads, if its mechanism needs any."""
        return replace(self, earlier=found()) if self.mechanism.estimator.key == "auto" else self

    def require_forecastable(self, _refusal: OdError) -> ReleasePlan:
        """Return the plan: every release of flows can be simulated, so ``_refusal`` is never raised."""
        return self

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per step.

        Returns:
            Columns: level, origin_level, destination_level (names), breakdown (only if there are segments; empty for
            totals), public_cells (number of public nodes, times the categories), sensitivity_squared, variance,
            standard_deviation (of the noise), rho (the charge) and expected_error (root mean square, in trips). The
            step of the uncounted trips has no row.
        """
        by_breakdown = {breakdown.name: self.expected_segment_errors(breakdown.name) for breakdown in self.breakdowns}
        errors_of_levels = {"": self.expected_errors} | by_breakdown
        rows = []
        for step in (*self.steps, *self.area_total_steps):
            by = step.breakdown if isinstance(step, SegmentStep) else ""
            origin_level, destination_level = self.level_names(step)
            if isinstance(step, AreaTotalStep):
                error = self.bound_area_total_variance(step) ** 0.5
            else:
                error = errors_of_levels[by][step.level]
            rows.append(
                {
                    "level": step.level,
                    "origin_level": origin_level,
                    "destination_level": destination_level,
                    **({} if self.segments is None else {"breakdown": by}),
                    "public_cells": self.count_public_cells(step),
                    "sensitivity_squared": step.sensitivity_squared,
                    "variance": round_up_to_float(step.variance),
                    "standard_deviation": round_up_to_float(step.variance) ** 0.5,
                    "rho": round_up_to_float(step.rho),
                    "expected_error": error,
                }
            )
        return pd.DataFrame(rows)

    def _list_own_facts(self) -> dict[str, Any]:
        """Return the facts that only plans of flows have, ready for JSON.

        Options that are not declared are left out, so that the digests of plans of earlier versions stay the same.
        """
        pair_cap = self.unit.max_trips_pair
        return {
            "contribution_bound": self.unit.contribution_bound,
            **({} if self.unit.max_weight is None else {"max_weight": self.unit.max_weight}),
            **self.unit.list_year_facts(),
            **({} if pair_cap is None else {"max_trips_pair": pair_cap}),
            "user_column": self.unit.column,
            "tree": self.tree.order,
            "epsilon": None if self.budget.epsilon is None else str(self.budget.epsilon),
            "rho": str(self.spent.rho),
            "delta": str(self.budget.delta),
            **({} if self.mechanism.has_laplace_noise else {"conversion": self.conversion}),
            "shares": self.budget.format_shares(self.mechanism.default_shares),
            "origin_geography": self.tree.public.origin.digest,
            "destination_geography": self.tree.public.destination.digest,
            "origin_unknown_zone": self.tree.origin.unknown,
            "destination_unknown_zone": self.tree.destination.unknown,
            **({} if self.bands is None else {"bands": self.bands.facts()}),
            **({} if self.segments is None else {"segments": self.segments.facts()}),
            **({} if self.uncounted is None else {"uncounted": self.uncounted.facts()}),
            **({} if self.area_totals is None else {"area_totals": str(self.area_totals)}),
            **({} if self.tree.possible is None else {"possible": self.tree.possible.facts()}),
            **({} if self.tree.found is None else {"found": self.tree.found.facts()}),
            **({"known": [totals.facts() for totals in self.known]} if self.known else {}),
            **({} if self.earlier is None else {EARLIER: json.loads(json.dumps(self.earlier, sort_keys=True))}),
        }

    @classmethod
    def from_facts(
        cls,
        facts: Mapping[str, Any],
        origin: Geography,
        destination: Geography,
        possible: PossiblePairs | None = None,
        known_table: pd.DataFrame | None = None,
    ) -> ReleasePlan:
        """Plan a release again from the :meth:`facts` of its plan, and raise OdError as :func:`plan_release` does.

        The steps are computed, not read from ``facts``, so the caller must compare the facts of the result with them.
        ``possible`` are the pairs that can have trips, of which the facts state the digest; None if all can.
        ``known_table`` has the columns ``side``, ``area`` and ``known`` of the known totals; None if there are none.
        """
        known = None
        if known_table is not None:
            sides = {"origin": origin, "destination": destination}
            known = [KnownTotals.from_facts(stated, known_table, sides[stated["side"]]) for stated in facts["known"]]
        plan = plan_release(
            origin,
            destination_geography=destination,
            tree=facts["tree"],
            bands=Bands.from_facts(facts["bands"]) if "bands" in facts else None,
            segments=Segments.from_facts(facts.get("segments")),
            uncounted=Uncounted.from_facts(facts.get("uncounted")),
            area_totals=facts.get("area_totals"),
            possible=possible,
            known=known,
            found=facts.get("found"),
            **read_plan_options(facts, MECHANISMS),
        )
        return replace(plan, earlier=facts.get(EARLIER))


def plan_release(
    geography: Geography,
    *,
    unit: PrivacyUnit,
    budget: Budget,
    mechanism: str | Mechanism = "inftda_refined",
    tree: TreeOrder = "destination",
    destination_geography: Geography | None = None,
    bands: Bands | None = None,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
    segments: Mapping[str, Sequence[str]] | Segments | None = None,
    segment_unknown: Mapping[str, str] | None = None,
    segment_share: Number | None = None,
    uncounted: Uncounted | None = None,
    area_totals: Number | None = None,
    possible: pd.DataFrame | PossiblePairs | None = None,
    known: KnownTotals | Sequence[KnownTotals] | None = None,
    found: Found | None = None,
) -> ReleasePlan:
    """Plan a release from public facts alone.

    Args:
        geography: geography of the origins, and of the destinations unless ``destination_geography`` is given.
        unit: the privacy unit. It determines the sensitivities, which scale the noise.
        budget: the budget, and its division among the levels. The plan states exact shares in place of the rule
            ``minimise``.
        mechanism: name or object. Its defaults apply where the budget names no conversion or no shares.
        tree: side that the flow tree refines first; or ``both``, whose levels refine both sides at once. There are half
            as many, so each has more of the budget, but no level has coarser areas on one side than on the other.
        destination_geography: geography of the destinations, if it differs from that of the origins. If one has fewer
            levels, its first level is repeated (:func:`od_core.geography.flow_tree.equalise_depths`), which
            ``plan.tree.repeated_levels`` states.
        bands: cuts of the flow tree, for a release that is processed in parts.
        acceptance: rules that determine which records are counted and which inputs are refused. If a record may be left
            out under these rules, the total number of trips is measured with noise; see
            :mod:`od_core.privacy.neighbours`.
        segments: public categories of each breakdown, by its name, such as ``{"mode": ["car", "bus", "other"]}``. Every
            trip is also counted by them. See :class:`od_core.records.segments.Breakdown`. A
            :class:`od_core.flows.step.Segments` states everything itself: the next two arguments are then not used.
        segment_unknown: for some breakdowns, the category of records whose category is missing or not listed.
        segment_share: share of the budget that all breakdowns have together; see
            :meth:`od_core.flows.step.Segments.of` for the default.
        uncounted: for a unit of a year, how the number of trips that are not counted is measured.
        area_totals: share of the budget for the trips from and to each zone, which are then measured beside the tree;
            by default, they are sums of the flows.
        possible: the pairs of zones that can have trips, which must be public, as a table with the columns ``origin``
            and ``destination``; by default, all. The others are published as pairs without trips, and cost nothing.
        known: the numbers of trips from or to each zone that are public beforehand, from registers or gates; for both
            sides, two. They are further measurements, which cost nothing.
        found: further levels below the geographies, whose areas are found in the records, for mechanism
            ``inftda_stability``; see :meth:`od_core.geography.found_levels.FoundLevels.parse`.

    Raises:
        OdError: If a name is unknown, delta is 0, the number of shares is wrong, there are more pairs of zones than the
            mechanism allows, the mechanism has a threshold and the unit is of a year or bounds weights, or the
            segments are not valid.

    Examples:
        >>> plan_release(geography, unit=unit, budget=budget).spent.epsilon < 1
        True
    """
    destinations = destination_geography or geography
    if isinstance(possible, pd.DataFrame):
        possible = PossiblePairs.from_frame(possible, geography, destinations)
    sides, found_levels = (geography, destinations), None if found is None else FoundLevels.parse(found)
    if found_levels is not None:
        sides = found_levels.extend_sides(geography, destination_geography)
    flow_tree = FlowTree(*sides, tree, possible, found_levels)
    chosen = MECHANISMS.make(mechanism)
    pairs = flow_tree.cells(flow_tree.depth)
    if chosen.most_pairs is not None and pairs > chosen.most_pairs:
        raise OdError(
            "OD-MECHANISM-TOO-LARGE",
            f"mechanism {chosen.name!r} is for at most {chosen.most_pairs:,} pairs of zones, and there are {pairs:,}",
            next_step="choose coarser zones, or a mechanism that drops branches without trips",
        )
    if not isinstance(segments, Segments):
        segments = Segments.of(make_breakdowns(segments, segment_unknown), segment_share)
    if isinstance(budget.shares, MinimiseRule):
        neighbours = relate_neighbours(unit, acceptance, flow_tree, segments)
        model = VarianceModel(flow_tree, neighbours, chosen, segments)
        budget = replace(budget, shares=model.fill_level_shares(minimise_expected_error(model, budget.shares).shares))
    share_of_areas = None if area_totals is None else parse_area_total_share(area_totals)
    # Known totals are of the public zones, also where found levels are below them.
    totals = list_known_totals(known, [len(side.zones) for side in (geography, destinations)])
    return ReleasePlan(flow_tree, unit, budget, chosen, bands, acceptance, segments, uncounted, share_of_areas, totals)


def _compute_half_width(variance: float) -> float:
    """Return the half-width in trips of the 90 % interval of an estimate with this variance."""
    estimate = np.zeros(1)  # matters only to the tolerance for rounding
    return float(compute_half_width(estimate, np.array([variance]))[0])
