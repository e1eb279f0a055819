"""The rule of a series: what is pooled over its releases, when the rule stays, and when it changes."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.flows.estimation import rule_choice
from od_core.flows.estimation.least_squares import build_measured_levels
from od_core.flows.estimation.rule_choice import (
    LEAST_SQUARES,
    RULES,
    Evidence,
    choose_rule_given_earlier_flows,
    read_earlier_evidence,
)
from od_core.flows.estimation.shrinkage import Rule
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import SeededNoise
from tests.od_core.flows.estimation.test_empirical_bayes import counts_of
from tests.od_core.flows.estimation.test_rule_choice import SPARSE, assert_is_evidence, best, fitted_of, halves, shown
from tests.od_core.flows.estimation.test_shrinkage import plan_of

LEVELS = 3
STRONG = Rule(u=Fraction(3, 2))
MILLION = 1_000_000


def showing(saved):
    """What one release shows: a strong rule that saves this part of the error, and others that save nothing."""
    sums = np.zeros((len(RULES), 3 + LEVELS), dtype=np.int64)
    sums[:, 1:3] = MILLION // 5
    sums[RULES.index(STRONG), 0] = round(saved * MILLION)
    return Evidence(1, sums)


def rules_of(each):
    """The rules of a series whose releases show ``each``, one after the other."""
    evidence, rules = each[0], [each[0].choose_next_rule(LEAST_SQUARES)]
    for own in each[1:]:
        evidence += own
        rules.append(evidence.choose_next_rule(rules[-1]))
    return rules


# What is pooled


def test_old_releases_count_less_so_that_a_series_can_change():
    one, other = showing(0.1), showing(-0.1)
    evidence = one
    for _ in range(23):
        evidence += one
    assert evidence.releases == 24
    evidence += other
    assert evidence.releases == 13
    assert evidence.sums[RULES.index(STRONG), 0] == (12 - 1) * 0.1 * MILLION
    rules = rules_of([one] * 60 + [other] * 24)
    assert set(rules[:60]) == {STRONG}
    assert rules[-1] == LEAST_SQUARES
    assert sum(before != after for before, after in pairwise(rules)) == 1


# When the rule stays, and when it changes


@given(st.data())
def test_the_rule_is_the_one_before_unless_another_saves_more_than_chance(data):
    """Against the same decision in words, with exact numbers."""
    number = st.integers(-MILLION // 5, MILLION // 5)
    releases = data.draw(st.integers(2, 24))
    harms = st.lists(number, min_size=2, max_size=2)
    sums = np.array([[data.draw(number) * releases, 0, 0, *data.draw(harms)] for _ in RULES])
    sums[:, 1] = 300_000 * releases
    sums[:, 2] = [data.draw(st.integers(250_000, 370_000)) * releases for _ in RULES]
    sums[:, 3:] *= 15 * releases
    before = data.draw(st.sampled_from([LEAST_SQUARES, *RULES]))
    root, saved, fine = math.sqrt(releases), {LEAST_SQUARES: 0.0}, [LEAST_SQUARES]
    base = before
    for rule, (part, least, false, *harm) in zip(RULES, sums.tolist(), strict=True):
        saved[rule] = part / releases / MILLION
        score, ratio = max(harm) / root / MILLION, false / least
        if score <= 2 and ratio <= 1.1:
            fine.append(rule)
        if rule == before and (score > 3 or ratio > 1.1 + 0.1 / root):
            base = LEAST_SQUARES
    best = max(fine, key=lambda rule: saved[rule])
    expected = best if saved[best] - saved[base] > 0.03 / root else base
    assert Evidence(releases, sums).choose_next_rule(before) == expected


# Releases


def auto_release(seed, earlier=None):
    plan = plan_of(SPARSE, estimate="auto", epsilon="1")
    if earlier is not None:
        stated = {"release": earlier[0], "plan": earlier[1].plan.stored_facts, **earlier[1].choice.facts()}
        plan = replace(plan, earlier=read_earlier_evidence(plan, stated))
    counts = counts_of(plan, SPARSE)
    return run_plan(plan, counts, SeededNoise(seed), MemoryMeasurements())


def test_the_first_release_is_planned_and_chosen_as_without_evidence():
    release = auto_release(2)
    assert release.plan.earlier is None
    assert "earlier" not in release.plan.facts()
    plan, levels = fitted_of(SPARSE, "1", 2)
    assert release.choice.rule == best(*shown(plan, levels))
    assert (release.choice.evidence.releases, release.choice.since) == (1, None)


@pytest.mark.slow
def test_a_release_keeps_the_rule_and_adds_its_evidence():
    """By public noise of its own: the same W in each release would be a bias that pooling does not lower."""
    first = auto_release(2)
    second = auto_release(3, ("s/2001-01/r1", first))
    levels = build_measured_levels(second.plan, second.exact_trips, second.measured)
    assert second.choice.evidence.releases == 2
    assert_is_evidence(second.choice.evidence.sums - first.choice.evidence.sums, *shown(second.plan, levels, turn=1))
    w = [np.concatenate([own.noisy for own in halves(levels, turn)[0]]) for turn in range(4)]
    w -= np.concatenate([level.noisy for level in levels])
    assert np.abs(np.corrcoef(w) - np.eye(4)).max() < 0.2
    assert second.choice.rule == first.choice.rule == choose_rule_given_earlier_flows(second.plan, levels)
    assert second.choice.since == "s/2001-01/r1"
    third = auto_release(4, ("s/2001-02/r1", second))
    assert (third.choice.evidence.releases, third.choice.since) == (3, "s/2001-01/r1")
    levels = build_measured_levels(third.plan, third.exact_trips, third.measured)
    assert rule_choice.choose_rule_with_evidence(third.plan, levels).facts() == third.choice.facts()


def test_evidence_of_another_plan_or_on_other_rules_is_not_used():
    first = auto_release(2)
    stated = {"release": "s/2001-01/r1", "plan": first.plan.stored_facts, **first.choice.facts()}
    names = ("release", "estimation", "evidence")
    assert read_earlier_evidence(first.plan, stated) == {name: stated[name] for name in names}
    assert read_earlier_evidence(plan_of(SPARSE, estimate="auto", epsilon="2"), stated) is None
    few = stated | {"evidence": stated["evidence"] | {"rules": stated["evidence"]["rules"][:-1]}}
    assert read_earlier_evidence(first.plan, few) is None
    del stated["evidence"]
    assert read_earlier_evidence(first.plan, stated) is None
