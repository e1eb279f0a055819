"""Choose between rules of estimation by held-out noise, which shows which of them has less error on a table.

If y is a measurement and W is new public noise of the same variance, then y + W and y - W are two independent
measurements of twice the variance, whose mean is y. A table is estimated from the first and compared with the second,
and the other way round, for each rule (``docs/explanation/estimator.md``).

The total absolute error of a table s is the sum of E|s - n| over the leaves, where n is the true number of trips.
Leaves are grouped by their sizes in both tables that are compared. The second measurement is independent of this
grouping given n. In each group, it gives the distribution of n by expectation-maximisation
(:mod:`od_core.flows.estimation.empirical_bayes`), and so E|s - n| and the probability of n = 0.

If there are more than two million leaves, those of some families are compared, which are drawn by fixed pseudo-random
words. All tables are estimated from the measurements of all leaves, and nodes above the leaves are compared in full.

The rule with the least estimated error is chosen, among those with at most 1.1 times the false discoveries of least
squares. It must save at least 3 % of the error of least squares, or these are chosen. A rule is also compared with
least squares where it departs from them most: in the 100 cells of each level with the largest differences. If d = r - b
is the difference of the two tables in a cell, and y the held-out measurement with the variance v, then

    (r - y)^2 - (b - y)^2

has the expectation (r - n)^2 - (b - n)^2, the increase of the squared error, and the variance 4 d^2 v. A rule is not
chosen if these increases add up to more than two standard deviations at any level.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimation.empirical_bayes import GridNoise, maximise_likelihood
from od_core.flows.estimation.families import (
    assign_bins,
    find_return_positions,
    iterate_families,
    sum_leaves_by_node,
    sum_trips_by_node,
    take_trips,
)
from od_core.flows.estimation.least_squares import MeasuredLevel
from od_core.flows.estimation.shrinkage import (
    LEAST_SQUARES,
    Prediction,
    Rule,
    blend_shares_by_level,
    estimate_trips_by_rule,
    predict_by_gravity,
)
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, sum_runs
from od_core.privacy.plan import EARLIER

RULES = (Rule(), *(Rule(u=Fraction(u)) for u in ("1/4", "1/2", "3/4", "1", "3/2", "2", "3")))
"""Rules that are compared with least squares."""

_MOST_FALSE = 1.1
"""Largest share of false discoveries, relative to that of least squares."""

_LEAST_GAIN = 0.03
"""Smallest part of the estimated error of least squares that a rule must save. Less may be chance."""

_LARGEST = 100
"""Number of cells of each level in which rules are compared with least squares one by one."""

_MOST_HARM = 2.0
"""Largest increase of the squared error of these cells, in standard deviations of its estimate."""

_MOST_HARM_KEPT = 3.0
"""The same for the rule of the releases before."""

_MOST_POOLED = 24
"""Number of pooled releases at which all that are pooled begin to count half, so that a series can change."""

_UNIT = 1_000_000
"""Evidence is in whole millionths: it can be added without rounding, and is the same on every machine."""

_MOST_SHOWN = 1e9
"""Limit of each number that one release shows, so that sums fit 64 bits: rounding may leave an error of 0 at 1e-15."""

_MOST_COMPARED = 1 << 21
"""Largest number of leaves of which all are compared. If there are more, about half as many are drawn at random."""

_EDGES = (0.0, 0.25, 1.0, 4.0)
"""Sizes by which leaves are grouped, in standard deviations of the held-out noise. Leaves of 0 are a group."""

_LEAST_CELLS = 300
"""Smallest number of leaves of a group, unless there are fewer in all. Neighbouring sizes with fewer share a group."""

_BLOCK = 1 << 18
"""Number of noisy values to which W is added at once, which limits the memory."""

_ITERATIONS = 150
"""Number of iterations of expectation-maximisation."""

_SEED = 20010101
"""Seed of the public noise. It decides no released number, only between rules that are close."""


class _Losses(NamedTuple):
    """What held-out noise shows of each of :data:`RULES`, compared with a base rule; sums over the two halves."""

    errors: Reals  # estimated total error of the leaves by the base rule and by the rule; shape (rules, 2)
    false: Reals  # shares of false discoveries of both; shape (rules, 2)
    increase: Reals  # of the squared error in the largest cells of each level, and its variance; (2, rules, levels)

    def choose_best_rule(self, base: Rule) -> Rule:
        """Return the rule with the least error if it is better than the base rule, and otherwise the base rule."""
        harmful = (self.increase[0] > _MOST_HARM * np.sqrt(self.increase[1])).any(axis=1)
        refused = harmful | (self.false[:, 1] > _MOST_FALSE * self.false[:, 0])
        saved = np.where(refused, 0.0, self.errors[:, 0] - self.errors[:, 1])
        best = int(np.argmax(saved))
        return RULES[best] if saved[best] > _LEAST_GAIN * self.errors[best, 0] else base


@dataclass(frozen=True, eq=False)
class Evidence:
    """What held-out noise shows of each of :data:`RULES`, compared with least squares, over the releases of a series.

    Attributes:
        releases: Number of releases. Once it is ``_MOST_POOLED``, all releases so far count half.
        sums: Sums over the releases, in millionths, for each rule: the part of the error of least squares that it
            saves, the shares of false discoveries by least squares and by the rule, and the increase of the squared
            error in the largest cells of each level, in standard deviations; shape (rules, 3 + levels).
    """

    releases: int
    sums: Integers

    @classmethod
    def from_losses_of_one_release(cls, losses: _Losses) -> Evidence:
        """Return the evidence of one release: each sum has one term, whole millionths within ``_MOST_SHOWN``."""
        base, errors = losses.errors.T
        spread = np.sqrt(losses.increase[1])
        increase = np.divide(losses.increase[0], spread, out=np.zeros_like(spread), where=spread > 0)
        saved = np.divide(base - errors, base, out=np.zeros_like(base), where=base > 0)
        shown = np.clip(np.column_stack((saved, losses.false / 2, increase)), -_MOST_SHOWN, _MOST_SHOWN)
        return cls(1, np.rint(shown * _UNIT).astype(np.int64))

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Evidence:
        """Return the evidence that :meth:`facts` states."""
        rows = [[one["saved"], *one["false_discoveries"], *one["increases"]] for one in facts["rules"]]
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
        """Return the evidence with that of one more release."""
        part = 1 if self.releases < _MOST_POOLED else 2
        return Evidence(self.releases // part + newest.releases, self.sums // part + newest.sums)

    def choose_next_rule(self, before: Rule) -> Rule:
        """Return the rule of the newest release. It is that of the release before unless another one is clearly better.

        Of n releases, a mean varies less than one value by the square root of n, and a sum more.
        """
        root = math.sqrt(self.releases)
        saved, base, false = self.sums[:, :3].T
        increase = self.sums[:, 3:].max(axis=1) / root
        options, kept = (LEAST_SQUARES, *RULES), before
        refused = (increase > _MOST_HARM * _UNIT) | (false > _MOST_FALSE * base)
        if before.learns:
            own, most = RULES.index(before), _MOST_FALSE + (_MOST_FALSE - 1) / root
            if increase[own] > _MOST_HARM_KEPT * _UNIT or false[own] > most * base[own]:
                kept = LEAST_SQUARES
        worth = np.append(0, np.where(refused, np.iinfo(np.int64).min, saved))
        best = int(np.argmax(worth))
        saved_by_kept = np.append(0, saved)[options.index(kept)]
        return options[best] if worth[best] > saved_by_kept + _LEAST_GAIN * _UNIT * root else kept


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
    """Return what ``ReleasePlan.earlier`` is, given what the certificate of an earlier release of the series states.

    Return None if the release has another plan, or states no evidence on these rules, as those of early versions do.
    """
    evidence = stated.get("evidence", {"rules": []})
    rules = [{"rule": one["rule"], "u": one["u"]} for one in evidence["rules"]]
    same_plan = {**stated["plan"], EARLIER: None} == {**plan.stored_facts, EARLIER: None}
    if not same_plan or rules != [rule.facts() for rule in RULES]:
        return None
    return {name: stated[name] for name in ("release", "estimation", "evidence")}


def choose_rule_with_evidence(plan: ReleasePlan, levels: Sequence[MeasuredLevel]) -> Choice:
    """Return the rule with the least held-out error, :data:`LEAST_SQUARES` or one of :data:`RULES`, and the evidence.

    If the plan has the evidence of earlier releases, their rule stays unless all evidence is clearly against it.
    """
    losses = _compare_rules(plan, levels, LEAST_SQUARES, None)
    own = Evidence.from_losses_of_one_release(losses)
    if plan.earlier is None:
        return Choice(losses.choose_best_rule(LEAST_SQUARES), own)
    stated, before = plan.earlier["evidence"], Rule.from_facts(plan.earlier["estimation"])
    pooled = Evidence.from_facts(stated) + own
    rule = pooled.choose_next_rule(before)
    since = None
    if rule == before:
        since = stated["since"] or plan.earlier["release"]
    return Choice(rule, pooled, since)


def choose_rule_given_earlier_flows(
    plan: ReleasePlan, levels: Sequence[MeasuredLevel], earlier_flows: Nodes | None = None
) -> Rule:
    """Return the rule of :func:`choose_rule_with_evidence`, or a better one that learns from ``earlier_flows``, too.

    These are the leaves of the release of an earlier period, with their trips.
    """
    alone = choose_rule_with_evidence(plan, levels).rule
    if earlier_flows is None or not len(earlier_flows):
        return alone
    others = sum_trips_by_node(plan, levels, earlier_flows)
    return _compare_rules(plan, levels, alone, others).choose_best_rule(alone)


def _compare_rules(
    plan: ReleasePlan, levels: Sequence[MeasuredLevel], base: Rule, others: list[Reals] | None
) -> _Losses:
    """Return what held-out noise shows of each rule beside ``base``; rules learn from ``others``, trips at nodes."""
    errors, false = np.zeros((2, len(RULES), 2))
    increase = np.zeros((2, len(RULES), len(levels)))
    turn = 0 if plan.earlier is None else plan.earlier["evidence"]["releases"]
    sample = _sample_families(levels, turn)
    back = find_return_positions(plan, levels) if plan.tree.same_geography else None
    for half in _iterate_halves(levels, turn):
        families = list(iterate_families(plan, half))
        held_out = _make_held_out_levels(levels, half, families[-1].list_child_positions(sample))
        noise, y = GridNoise.from_variance(Fraction(held_out[-1].noise)), held_out[-1].noisy
        first = predict_by_gravity(half, families, others)
        by_base = _estimate_sampled_trips(plan, half, first, base, back, sample)
        for number, rule in enumerate(RULES):
            tables = _estimate_sampled_trips(plan, half, first, rule, back, sample)
            errors_of_both, false_of_both = _estimate_table_losses(noise, y, (by_base[-1], tables[-1]))
            errors[number] += errors_of_both
            false[number] += false_of_both
            for at, level in enumerate(held_out):
                increase[:, number, at] += _estimate_error_increase(level, by_base[at], tables[at])
    return _Losses(errors, false, increase)


def _estimate_sampled_trips(
    plan: ReleasePlan,
    levels: Sequence[MeasuredLevel],
    first: Prediction,
    rule: Rule,
    back: Integers | None,
    sample: Integers,
) -> list[Integers]:
    """Return the trips of all nodes of each level by a rule; of the last level, only of the sampled families.

    ``first`` is the prediction from gravity shares, and ``back`` the position of each leaf in the opposite direction;
    None if there is none.
    """
    given = first
    if not rule.learns:
        given = Prediction.from_shares(levels, first.families, ())
    elif back is not None:
        others = sum_leaves_by_node(levels, take_trips(back, estimate_trips_by_rule(plan, first, rule)[-1]))
        given = Prediction.from_shares(
            levels, first.families, blend_shares_by_level(first.families, first.shares, others)
        )
        del others
    return estimate_trips_by_rule(plan, given.select_leaf_families(sample), rule)


def _sample_families(levels: Sequence[MeasuredLevel], turn: int = 0) -> Integers:
    """Return the numbers of the families of leaves in which rules are compared: all, or some drawn at random.

    ``turn`` is the number of earlier releases of the series; each release draws others.
    """
    leaves, families = len(levels[-1].nodes), len(levels[-1].offsets) - 1
    if leaves <= _MOST_COMPARED:
        return np.arange(families)
    words = np.random.Philox(_SEED + 1).jumped(turn).random_raw(families) >> np.uint64(32)  # the upper 32 bits
    return np.flatnonzero(words < np.uint64((_MOST_COMPARED << 31) // leaves))


def _iterate_halves(levels: Sequence[MeasuredLevel], turn: int = 0) -> Iterator[list[MeasuredLevel]]:
    """Yield the levels measured with y + W, and then those measured with y - W.

    ``turn`` is the number of earlier releases of the series; each release has a W of its own.
    """
    for sign in (1, -1):
        words, half = np.random.Philox(_SEED).jumped(turn), []
        for level in levels:
            noisy = level.noisy.copy()
            has_noise = 0 < level.noise < math.inf
            for first in range(0, len(noisy) if has_noise else 0, _BLOCK):
                block = noisy[first : first + _BLOCK]
                quantiles = compute_normal_quantiles()[words.random_raw(len(block)) >> np.uint64(48)]
                block += sign * np.rint(quantiles * math.sqrt(level.noise))
            half.append(MeasuredLevel(level.nodes, level.offsets, level.divided, noisy, 2 * level.noise))
        yield half


def _make_held_out_levels(
    levels: Sequence[MeasuredLevel], half: Sequence[MeasuredLevel], leaves: Integers
) -> list[MeasuredLevel]:
    """Return the levels of a half with the measurements that it lacks; of the last level, only those of some leaves.

    They are y - W for y + W: 2 y - (y + W), which is exact for whole numbers. Combined totals are not whole: rounded.
    """
    above = [replace(own, noisy=2 * y.noisy - own.noisy) for y, own in zip(levels[:-1], half[:-1], strict=True)]
    y, used = levels[-1].noisy[leaves], half[-1].noisy[leaves]
    return [*above, replace(half[-1], noisy=2 * y - used)]


def _estimate_error_increase(held_out: MeasuredLevel, base: Integers, table: Integers) -> tuple[float, float]:
    """Return how much the squared error of ``table`` exceeds that of ``base``, estimated from a held-out measurement.

    The sums are over the cells of a level that differ most. The second number is the variance of the estimate.
    """
    differences = table - base
    cells = np.flatnonzero(differences)
    sizes, left_out = np.abs(differences[cells]), len(cells) - _LARGEST
    if left_out > 0:
        cells = cells[sizes >= np.partition(sizes, left_out)[left_out]]
    d, ends = differences[cells].astype(np.float64), np.array([0, len(cells)])
    (increase,) = sum_runs(d * (table[cells] + base[cells] - 2.0 * held_out.noisy[cells]), ends)
    (squares,) = sum_runs(d * d, ends)
    variance = 4 * held_out.noise * float(squares) if squares > 0 else 0.0  # noise may be infinite
    return float(increase), variance


@cache
def compute_normal_quantiles() -> Reals:
    """Return 65,536 quantiles of the normal distribution, rounded so that they are the same on every machine."""
    law = NormalDist()
    return np.array([round(law.inv_cdf((k + 0.5) / 65536) * 1024) / 1024 for k in range(65536)])


def _estimate_table_losses(
    noise: GridNoise, y: Reals, tables: tuple[Integers, Integers]
) -> tuple[list[float], list[float]]:
    """Return the estimated total error of each of two tables, and its estimated share of false discoveries."""
    code, point = _classify_cells(noise, y, *tables)
    group = assign_bins(np.bincount(code, minlength=(len(_EDGES) + 1) ** 2), _LEAST_CELLS)[code]
    known, groups = point < noise.points, int(group.max(initial=0)) + 1
    counts = np.bincount(group[known] * noise.points + point[known], minlength=groups * noise.points)
    counts = counts.reshape(groups, noise.points)
    by_x = np.ascontiguousarray(noise.likelihood.T)
    start = maximise_likelihood(noise, counts.sum(axis=0), None, _ITERATIONS)
    losses, zeros = [], []
    for of_group in counts:
        prior = maximise_likelihood(noise, of_group, start, _ITERATIONS)
        loss, zero = _compute_posterior_losses(by_x, prior, of_group)
        losses.append(loss)
        zeros.append(zero)
    errors, false = [], []
    for trips in tables:
        error, share = _compute_expected_losses(noise.step, y, trips, group, point, np.array(losses), np.array(zeros))
        errors.append(error)
        false.append(share)
    return errors, false


def _classify_cells(noise: GridNoise, y: Reals, base: Integers, table: Integers) -> tuple[Integers, Integers]:
    """Return the class of each cell, by its sizes in two tables, and its point on the grid of noisy values."""
    by_base, by_table = (np.searchsorted(_EDGES, trips / noise.sigma) for trips in (base, table))
    point = np.floor((y + noise.step // 2) / noise.step).astype(np.int64) - noise.low
    return by_base * (len(_EDGES) + 1) + by_table, np.maximum(point, 0)


def _compute_expected_losses(
    step: int, y: Reals, trips: Integers, group: Integers, point: Integers, loss: Reals, zero: Reals
) -> tuple[float, float]:
    """Return a table's expected error, the distance from y beyond the grid, and its share of false discoveries."""
    error, false = np.abs(trips - y), np.zeros(len(y))
    on_grid = np.flatnonzero(point < zero.shape[1])
    at, place = (group[on_grid], point[on_grid]), trips[on_grid] / float(step)
    below = np.minimum(place.astype(np.int64), loss.shape[2] - 2)
    loss_below = loss[*at, below]
    error[on_grid] = (loss_below + (place - below) * (loss[*at, below + 1] - loss_below)) * step  # interpolated
    false[on_grid] = np.where(trips[on_grid] > 0, zero[at], 0.0)
    ends = np.array([0, len(y)])
    (total_error,), (false_discoveries,) = sum_runs(error, ends), sum_runs(false, ends)
    return float(total_error), float(false_discoveries) / max(int(np.count_nonzero(trips > 0)), 1)


def _compute_posterior_losses(by_x: Reals, prior: Reals, counts: Integers) -> tuple[Reals, Reals]:
    """Return what a table loses by stating s where x was measured: E|s - n| in steps, and the probability of n = 0.

    Both are of the true count n given x, and 0 where ``counts`` has no x; shapes (points of x, points of s) and (points
    of x,).
    """
    weight = prior * by_x
    below = np.cumsum(weight, axis=1)
    whole, mean = below[:, -1:], np.cumsum(np.arange(len(prior)) * weight, axis=1)[:, -1:]
    # From E|s - n| to E|s + 1 - n|: + 1 for each n of at most s, - 1 for the others.
    error = np.cumsum(np.hstack((mean, 2.0 * below[:, :-1] - whole)), axis=1)
    known = (counts[:, np.newaxis] > 0) & (whole > 0.0)
    loss = np.divide(error, whole, out=np.zeros_like(error), where=known)
    return loss, np.divide(weight[:, :1], whole, out=np.zeros_like(whole), where=known)[:, 0]
