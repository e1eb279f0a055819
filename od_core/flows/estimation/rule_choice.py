"""Choose between rules of estimation by held-out noise, which shows which of them has less error on a table.

Public noise divides every measurement into two parts (:mod:`od_core.flows.estimation.held_out`). For each rule, a table
is estimated from one part, and judged by the other, and the other way round (``docs/explanation/estimator.md``): by its
total error, its false discoveries, and where it differs most from least squares.

If there are more than two million leaves, those of some families are compared, which are drawn by fixed pseudo-random
words. All tables are estimated from the measurements of all leaves, and nodes above the leaves are compared in full.

The rule with the least estimated error is chosen, among those with at most 1.1 times the false discoveries of least
squares. It must save at least 3 % of the error of least squares, or these are chosen. A rule is also compared with
least squares where it departs from them most: in the 100 cells of each level with the largest differences. If d = r - b
is the difference of the two tables in a cell, and y the held-out measurement with the variance v, then

    (r - y)^2 - (b - y)^2

has the expectation (r - n)^2 - (b - n)^2, the increase of the squared error, and the variance 4 d^2 v. A rule is not
chosen if these increases add up to more than two standard deviations at any level. With Laplace noise, the expectation
and the variance are those of other estimates.

Plans with Laplace noise, with known totals, or of a tree that refines both sides at once, choose more carefully. Their
tables are made with area totals, as the released ones are, and all leaves are compared; of more than two million
leaves, only tables that are estimated from the first part. Known totals are not divided: both parts use them. A rule is
also refused if the squared error increases so clearly over all cells of a level, or over the totals of zones. Where the
expected error of a flow between zones is below one trip, or no level has enough cells to learn from, least squares are
used. Other plans are of earlier versions, whose published choices stay.

With segments, the trips of a node are estimated from the combination of its measured total and of the sum of its
categories. With Gaussian noise, the combination is divided, as one measurement. Of Laplace noise, it has no known law,
so the measured totals alone are divided (:class:`_Divided`). The tables are made from these and from the segments,
whose noise is independent of what the totals then show.

If there is an earlier table, a rule is first chosen without it. With the table, the same rule is kept unless another
one is better by the same conditions. Each choice has noise of its own, so two free choices would often differ where
the table says nothing, and either could be the worse one.

The rule of a series is kept from release to release. What held-out noise shows is pooled over its releases with the
same plan (:class:`Evidence`), and each has other noise W: with the same W, the two halves of consecutive releases would
not be independent together. After n releases, chance is smaller by the square root of n, and so is the part that
another rule must save more. A rule that was chosen before is refused only beyond wider limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.families import find_return_positions, sum_leaves_by_node, sum_trips_by_node, take_trips
from od_core.flows.estimation.held_out import (
    HALVES,
    Shown,
    Tables,
    has_noise,
    iterate_halves,
    show_trips,
)
from od_core.flows.estimation.least_squares import MeasuredLevel
from od_core.flows.estimation.levels import Measurement, select_area_totals
from od_core.flows.estimation.shrinkage import (
    LEAST_SQUARES,
    Prediction,
    Rule,
    blend_shares_by_level,
    estimate_trips_by_rule,
    fit_families,
    predict_by_gravity,
)
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import CombinedTotals
from od_core.geography.flow_tree import Nodes
from od_core.privacy.plan import EARLIER

RULES = (Rule(), *(Rule(u=Fraction(u)) for u in ("1/4", "1/2", "3/4", "1", "3/2", "2", "3")))
"""Rules that are compared with least squares: normal deviations, and a mixture with each u."""

_MAX_FALSE_RATIO = 1.1
"""Largest share of false discoveries of a rule, divided by that of least squares."""

_MIN_GAIN = 0.03
"""Smallest part of the estimated error of least squares that a rule must save. Less may be chance."""

_COMPARED_CELLS = 100
"""Number of cells of each level with the largest differences from least squares, in which the errors are compared."""

_MAX_HARM = 2.0
"""Largest increase of the squared error of these cells, in standard deviations of its estimate."""

_MAX_HARM_OF_KEPT_RULE = 3.0
"""The same for the rule of the release before. It is larger, so that a series rarely changes its rule by chance."""

_MAX_POOLED_RELEASES = 24
"""Number of pooled releases from which on the earlier ones count half, so that a series can change its rule."""

_MILLIONTHS = 1_000_000
"""Evidence is in whole millionths: it can be added without rounding, and is the same on every machine."""

_MAX_EVIDENCE = 1e9
"""Limit of each number of the evidence of one release, so that sums fit 64 bits. Numbers may be huge, since they are
divided by errors of least squares, of which rounding may leave 1e-15 instead of 0."""

_MAX_COMPARED_LEAVES = 1 << 21
"""Largest number of leaves of which all are compared. If there are more, about half this number are drawn at random,
or tables are estimated from one half of the measurements alone."""

_SAMPLE_SEED = 20010102
"""Seed of the words that draw families."""


class _Losses(NamedTuple):
    """What held-out noise shows of each of :data:`RULES`, compared with a base rule.

    Attributes:
        errors: Estimated total error of the leaves, in trips, by the base rule and by the rule, summed over the halves
            that were used; shape (rules, 2).
        false: Shares of false discoveries of both, as means over these halves; shape (rules, 2).
        increase: Increase of the squared error, and the variance of this estimate, in the cells of each level that
            differ most; shape (2, rules, levels). If rules are chosen more carefully, the increases of
            :func:`_estimate_overall_increases` follow as further columns.
    """

    errors: Reals
    false: Reals
    increase: Reals

    def choose_best_rule(self, base: Rule) -> Rule:
        """Return the rule with the least error among those that are not refused, or ``base`` if this saves too little.

        A rule is refused if the squared error clearly increases anywhere, or if it has too many false discoveries.
        """
        harmful = (self.increase[0] > _MAX_HARM * np.sqrt(self.increase[1])).any(axis=1)
        refused = harmful | (self.false[:, 1] > _MAX_FALSE_RATIO * self.false[:, 0])
        saved = np.where(refused, 0.0, self.errors[:, 0] - self.errors[:, 1])
        best = int(np.argmax(saved))
        return RULES[best] if saved[best] > _MIN_GAIN * self.errors[best, 0] else base


@dataclass(frozen=True, eq=False)
class Evidence:
    """What held-out noise shows of each of :data:`RULES`, compared with least squares, over the releases of a series.

    Attributes:
        releases: Number of releases. Once it is ``_MAX_POOLED_RELEASES``, all releases so far count half.
        sums: Sums over the releases, in millionths, for each rule; shape (rules, 3 + increases). The columns are: the
            part of the error of least squares that the rule saves; the shares of false discoveries by least squares and
            by the rule; and the increases of :class:`_Losses`, in standard deviations.
    """

    releases: int
    sums: Integers

    @classmethod
    def from_losses_of_one_release(cls, losses: _Losses) -> Evidence:
        """Return the evidence of one release, each number of which is cut to ``_MAX_EVIDENCE`` on both sides of 0."""
        error_of_base, error_of_rule = losses.errors.T
        deviations = np.sqrt(losses.increase[1])
        increase = np.divide(losses.increase[0], deviations, out=np.zeros_like(deviations), where=deviations > 0)
        saved_errors = error_of_base - error_of_rule
        saved_parts = np.divide(saved_errors, error_of_base, out=np.zeros_like(saved_errors), where=error_of_base > 0)
        numbers = np.clip(np.column_stack((saved_parts, losses.false, increase)), -_MAX_EVIDENCE, _MAX_EVIDENCE)
        return cls(1, np.rint(numbers * _MILLIONTHS).astype(np.int64))

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Evidence:
        """Return the evidence that :meth:`facts` states."""
        rows = [[rule["saved"], *rule["false_discoveries"], *rule["increases"]] for rule in facts["rules"]]
        return cls(facts["releases"], np.array(rows, dtype=np.int64))

    def facts(self) -> dict[str, object]:
        """Return the evidence as JSON-ready facts."""
        rows = zip(RULES, self.sums.tolist(), strict=True)
        rules = [
            {**rule.facts(), "saved": saved, "false_discoveries": [base, false], "increases": increases}
            for rule, (saved, base, false, *increases) in rows
        ]
        return {"releases": self.releases, "rules": rules}

    def __add__(self, newest: Evidence) -> Evidence:
        """Return the evidence with that of one more release. Many earlier ones count half; see :class:`Evidence`."""
        divisor = 1 if self.releases < _MAX_POOLED_RELEASES else 2
        return Evidence(self.releases // divisor + newest.releases, self.sums // divisor + newest.sums)

    def choose_next_rule(self, before: Rule) -> Rule:
        """Return the rule of the newest release: the earlier rule ``before``, unless another one is clearly better.

        A sum over n releases varies by chance root(n) times as much as one release. So the limits of the sums grow in
        proportion to root(n). If the rule ``before`` is refused, least squares take its place.
        """
        root = math.sqrt(self.releases)
        saved, false_by_base, false = self.sums[:, :3].T
        increase = self.sums[:, 3:].max(axis=1) / root
        kept = before
        refused = (increase > _MAX_HARM * _MILLIONTHS) | (false > _MAX_FALSE_RATIO * false_by_base)
        if before.learns:
            position = RULES.index(before)
            max_false_ratio = _MAX_FALSE_RATIO + (_MAX_FALSE_RATIO - 1) / root  # narrows as releases are pooled
            has_harm = increase[position] > _MAX_HARM_OF_KEPT_RULE * _MILLIONTHS
            if has_harm or false[position] > max_false_ratio * false_by_base[position]:
                kept = LEAST_SQUARES
        options = (LEAST_SQUARES, *RULES)
        savings = np.append(0, np.where(refused, np.iinfo(np.int64).min, saved))  # least squares save nothing
        best = int(np.argmax(savings))
        saved_by_kept = np.append(0, saved)[options.index(kept)]
        return options[best] if savings[best] > saved_by_kept + _MIN_GAIN * _MILLIONTHS * root else kept


@dataclass(frozen=True, eq=False)
class Choice:
    """The rule of a release, and what it was chosen by.

    Attributes:
        rule: The rule.
        evidence: The evidence of this release and of those before it.
        since: Key of the first of the consecutive releases with this rule; None if it is this one, or has no key.
    """

    rule: Rule
    evidence: Evidence
    since: str | None = None

    def facts(self) -> dict[str, object]:
        """Return the facts that a certificate states, which the plan of the next release repeats."""
        return {"estimation": self.rule.facts(), "evidence": {"since": self.since, **self.evidence.facts()}}


def read_earlier_evidence(plan: ReleasePlan, stated: Mapping[str, Any]) -> dict[str, object] | None:
    """Return ``ReleasePlan.earlier`` for a plan, given ``stated``, the certificate of the release before it.

    It has the entries ``release``, ``estimation`` and ``evidence`` of the certificate. Return None if that release has
    another plan, or if its certificate has no evidence on :data:`RULES`, as those of early versions.
    """
    evidence = stated.get("evidence", {"rules": []})
    rules = [{"rule": rule["rule"], "u": rule["u"]} for rule in evidence["rules"]]
    same_plan = {**stated["plan"], EARLIER: None} == {**plan.stored_facts, EARLIER: None}
    if not same_plan or rules != [rule.facts() for rule in RULES]:
        return None
    return {name: stated[name] for name in ("release", "estimation", "evidence")}


def choose_rule_with_evidence(
    plan: ReleasePlan, levels: Sequence[MeasuredLevel], measured: Sequence[Measurement] = ()
) -> Choice:
    """Return the rule with the least held-out error, :data:`LEAST_SQUARES` or one of :data:`RULES`, and the evidence.

    If the plan has the evidence of earlier releases, their rule stays unless all evidence is clearly against it.

    Args:
        levels: The measured levels that tables are made from, top level first.
        measured: All measurements of the release. Those of area totals are used if rules are chosen carefully, and
            those of all trips if the plan has segments and Laplace noise; others are ignored.
    """
    losses = _compare_rules(plan, levels, LEAST_SQUARES, None, measured)
    evidence = Evidence.from_losses_of_one_release(losses)
    if plan.earlier is None:
        return Choice(losses.choose_best_rule(LEAST_SQUARES), evidence)
    stated, before = plan.earlier["evidence"], Rule.from_facts(plan.earlier["estimation"])
    pooled = Evidence.from_facts(stated) + evidence
    rule = pooled.choose_next_rule(before)
    since = None  # this release is then the first with the rule
    if rule == before:
        since = stated["since"] or plan.earlier["release"]
    return Choice(rule, pooled, since)


def choose_rule_given_earlier_flows(
    plan: ReleasePlan,
    levels: Sequence[MeasuredLevel],
    earlier_flows: Nodes | None = None,
    measured: Sequence[Measurement] = (),
) -> Rule:
    """Return the rule of :func:`choose_rule_with_evidence`, or a better one for tables that learn from earlier flows.

    ``earlier_flows`` are the leaves of the release of an earlier period, with their trips; None or empty if there is no
    such release.
    """
    rule_without = choose_rule_with_evidence(plan, levels, measured).rule
    if earlier_flows is None or not len(earlier_flows):
        return rule_without
    earlier_trips = sum_trips_by_node(plan, levels, earlier_flows)
    return _compare_rules(plan, levels, rule_without, earlier_trips, measured).choose_best_rule(rule_without)


def _chooses_carefully(plan: ReleasePlan) -> bool:
    """Return whether rules of a plan are chosen carefully, from tables as they are released; see the module docstring.

    Other plans have published choices of earlier versions, which must stay.
    """
    return plan.tree.refines_both or plan.mechanism.has_laplace_noise or bool(plan.known)


class _Divided(NamedTuple):
    """The measurements that held-out noise divides, and their weights in the levels that tables are made from.

    Attributes:
        levels: The divided measurements of each level, top first. They are the levels that tables are made from. But
            with segments and Laplace noise, they are the measured totals, without the segments that are combined with
            them in these levels.
        weights: Weight of the divided measurements in each of these levels; 1 if they are the level itself.
    """

    levels: list[MeasuredLevel]
    weights: list[float]

    @classmethod
    def from_levels(
        cls, plan: ReleasePlan, levels: Sequence[MeasuredLevel], measured: Sequence[Measurement]
    ) -> _Divided:
        """Return what is divided, given the levels that tables are made from."""
        divided, weights = [*levels], [1.0] * len(levels)
        if not plan.mechanism.has_laplace_noise or plan.segments is None:
            return cls(divided, weights)
        combined = {total.level: total for total in plan.totals if isinstance(total, CombinedTotals)}
        of_totals = {m.step.level: m for m in measured if m.step in plan.steps and not m.step.by_segment}
        for k, level in enumerate(levels):
            measurement = of_totals.get(level.nodes.level)
            if measurement is not None and has_noise(level.noise):
                variance = float(measurement.step.variance)
                divided[k] = replace(level, noisy=measurement.read_reals(), noise=variance)
                weight_of_total, *weights_of_sums = combined[level.nodes.level].weights
                weights[k] = weight_of_total / (weight_of_total + sum(weights_of_sums))
        return cls(divided, weights)

    def put_in_half(self, levels: Sequence[MeasuredLevel], half: Sequence[MeasuredLevel]) -> list[MeasuredLevel]:
        """Return the levels that tables are made from, with one half instead of the whole divided measurements.

        ``levels`` are those of :meth:`from_levels`, and ``half`` is one of :func:`iterate_halves` of :attr:`levels`.
        """
        levels_of_half = []
        for level, whole, of_half, weight in zip(levels, self.levels, half, self.weights, strict=True):
            if whole is level:
                levels_of_half.append(of_half)
            else:  # the level is a weighted mean, of which only the measured totals were divided
                noisy = level.noisy + weight * (of_half.noisy - whole.noisy)
                noise = level.noise + weight**2 * (of_half.noise - whole.noise)
                levels_of_half.append(replace(level, noisy=noisy, noise=noise))
        return levels_of_half


def _compare_rules(
    plan: ReleasePlan,
    levels: Sequence[MeasuredLevel],
    base: Rule,
    others: list[Reals] | None,
    measured: Sequence[Measurement],
) -> _Losses:
    """Return what held-out noise shows of each rule, compared with the rule ``base``.

    If there is nothing to learn from the levels, all losses are 0, so that ``base`` is chosen.

    Args:
        others: The trips of another table at the nodes of each level below the root, from which rules learn, too; None
            if there is no such table.
        measured: See :func:`choose_rule_with_evidence`.
    """
    careful, distribution = _chooses_carefully(plan), plan.mechanism.noise_distribution
    number_of_increases = 2 * len(levels) + 2 if careful else len(levels)  # see _estimate_overall_increases
    errors, false = np.zeros((2, len(RULES), 2))
    increases = np.zeros((len(RULES), number_of_increases, 2))  # and their variances
    nothing_shown = _Losses(errors.copy(), false.copy(), np.zeros((2, len(RULES), number_of_increases)))
    if careful and plan.expected_errors[-1] < 1:
        return nothing_shown
    totals = select_area_totals(measured) if careful else {}
    divided = _Divided.from_levels(plan, levels, measured)
    turn = 0 if plan.earlier is None else plan.earlier["evidence"]["releases"]
    sample = np.arange(len(levels[-1].offsets) - 1) if careful else _sample_families(levels, turn)
    return_positions = find_return_positions(plan, levels) if plan.tree.same_geography else None
    halves_used = 1 if careful and len(levels[-1].nodes) > _MAX_COMPARED_LEAVES else 2
    for half, totals_of_half in islice(iterate_halves(divided.levels, totals, distribution, turn), halves_used):
        fitted, families = fit_families(plan, divided.put_in_half(levels, half), totals_of_half)
        if careful and not any(of_level.learns for of_level in families):
            return nothing_shown
        leaves = families[-1].list_child_positions(sample)
        shown = _show_held_out_trips(divided.levels, half, leaves, distribution)
        y, x = divided.levels[-1].noisy[leaves], half[-1].noisy[leaves]
        shown_areas = {
            side: show_trips(distribution, noise, noisy, totals_of_half[side][0])
            for side, (noisy, noise) in totals.items()
        }
        held_out = HALVES[distribution](divided.levels[-1].noise)
        first = predict_by_gravity(fitted, families, others)
        trips_by_base = _estimate_sampled_trips(plan, fitted, first, base, return_positions, sample)
        for number, rule in enumerate(RULES):
            trips_by_rule = _estimate_sampled_trips(plan, fitted, first, rule, return_positions, sample)
            tables = list(zip(trips_by_base, trips_by_rule, strict=True))
            errors_of_both, false_of_both = held_out.estimate_losses(y, x, tables[-1])
            errors[number] += errors_of_both
            false[number] += np.array(false_of_both) / halves_used
            shown_tables = zip(shown, tables, strict=True)
            of_rule = [of_level.estimate_error_increase(both, _COMPARED_CELLS) for of_level, both in shown_tables]
            if careful:
                of_rule += _estimate_overall_increases(plan, levels[-1], shown, shown_areas, tables)
            increases[number] += of_rule
    return _Losses(errors, false, np.moveaxis(increases, -1, 0))


def _show_held_out_trips(
    divided: Sequence[MeasuredLevel], half: Sequence[MeasuredLevel], leaves: Integers, distribution: str
) -> list[Shown]:
    """Return what the rest of the ``divided`` levels shows of trips, by level, if tables are made from one ``half``.

    Of the last level, only the cells at the positions ``leaves`` are shown. ``distribution`` is that of the noise.
    """
    shown = []
    for level, of_half in zip(divided, half, strict=True):
        cells = leaves if level is divided[-1] else slice(None)
        shown.append(show_trips(distribution, level.noise, level.noisy[cells], of_half.noisy[cells]))
    return shown


def _estimate_overall_increases(
    plan: ReleasePlan,
    leaves: MeasuredLevel,
    shown: Sequence[Shown],
    shown_areas: Mapping[int, Shown],
    tables: Sequence[Tables],
) -> list[tuple[float, float]]:
    """Return increases of the squared error, each with its variance, over all cells of a level or all zones of a side.

    First are those of each level, top first; then those of the totals of the origins and of the destinations.

    Args:
        leaves: the last level. All of its leaves are compared, as all plans that choose carefully do.
        shown: what held-out noise shows of the nodes of each level.
        shown_areas: the same of the measured totals of the zones of a side, by side. Totals of a side that were not
            measured are sums of leaves.
        tables: for each level, the trips by the base rule and by the other rule.
    """
    increases = [of_level.estimate_error_increase(both) for of_level, both in zip(shown, tables, strict=True)]
    for side, zone in enumerate((leaves.nodes.origin, leaves.nodes.destination)):
        geography = (plan.tree.origin, plan.tree.destination)[side]
        zones = geography.size(geography.depth)
        of_zones = shown_areas[side] if side in shown_areas else shown[-1].sum_by_area(zone, zones)
        base, table = (np.bincount(zone, trips, minlength=zones).astype(np.int64) for trips in tables[-1])
        increases.append(of_zones.estimate_error_increase((base, table)))
    return increases


def _estimate_sampled_trips(
    plan: ReleasePlan,
    levels: Sequence[MeasuredLevel],
    first: Prediction,
    rule: Rule,
    return_positions: Integers | None,
    sample: Integers,
) -> list[Integers]:
    """Return the trips of the nodes of each level by a rule, top level first; of the leaves, only the sampled families.

    Args:
        first: the prediction from gravity shares.
        return_positions: the result of :func:`find_return_positions`; None if origins and destinations have different
            geographies, so that there is no second round as in :func:`od_core.flows.estimation.shrinkage.shrink`.
        sample: numbers of the sampled families of leaves, ascending.
    """
    prediction = first
    if not rule.learns:
        prediction = Prediction.from_shares(levels, first.families, ())
    elif return_positions is not None:
        leaves = estimate_trips_by_rule(plan, first, rule)[-1]
        others = sum_leaves_by_node(levels, take_trips(return_positions, leaves))
        del leaves  # which need much memory, as the others do
        shares = blend_shares_by_level(first.families, first.shares, others)
        prediction = Prediction.from_shares(levels, first.families, shares)
        del others
    return estimate_trips_by_rule(plan, prediction.select_leaf_families(sample), rule)


def _sample_families(levels: Sequence[MeasuredLevel], turn: int = 0) -> Integers:
    """Return the numbers of the families of leaves in which rules are compared, ascending.

    They are all families or, of more than ``_MAX_COMPARED_LEAVES`` leaves, some that are drawn at random. ``turn`` is
    the number of earlier releases of the series; each release draws other families.
    """
    leaves, families = len(levels[-1].nodes), len(levels[-1].offsets) - 1
    if leaves <= _MAX_COMPARED_LEAVES:
        return np.arange(families)
    words = np.random.Philox(_SAMPLE_SEED).jumped(turn).random_raw(families) >> np.uint64(32)  # the upper 32 bits
    # Each family is drawn with the probability _MAX_COMPARED_LEAVES / (2 * leaves).
    limit = np.uint64((_MAX_COMPARED_LEAVES << 31) // leaves)  # this probability times 2^32
    return np.flatnonzero(words < limit)
