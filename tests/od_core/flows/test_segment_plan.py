"""Plans of segments: which queries are measured, their sensitivities, and charges that sum to the budget exactly."""

from fractions import Fraction
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from od_core import Budget, OdError, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows.mechanisms import MECHANISMS, InfTDARefined
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, NO_FAULTS
from tests.od_core.strategies import TREES, geography_of, zone_lists

SMALL = geography_of([("a", "aa"), ("a", "ab"), ("b", "ba")])
MODE, HOUR, AGE = {"mode": ["car", "bus", "walk"]}, {"hour": ["am", "pm"]}, {"age": ["0", "18", "65", "?"]}
LISTS = [MODE, {**MODE, **HOUR}, {**AGE, **HOUR, **MODE}]
UNITS = [
    PrivacyUnit("trip", "bounded"),
    PrivacyUnit("trip", "unbounded"),
    PrivacyUnit("trip", "bounded", max_weight=5),
    PrivacyUnit("trip", "unbounded", max_weight=3),
    PrivacyUnit("user", "bounded", column="id", max_trips=4),
    PrivacyUnit("user_period", "unbounded", column="id", max_trips=3),
]
PROMISES = [{"rho": Fraction(1, 7)}, {"epsilon": "0.1", "conversion": "tight"}]


def plan_of(geography=SMALL, *, segments=MODE, acceptance=NO_FAULTS, unit=UNITS[0], **given_) -> ReleasePlan:
    promise = {"rho": 1} | given_.pop("promise", {"rho": 1})
    budget = Budget(**promise, delta=1e-8, shares=given_.pop("shares", None))
    return plan_release(geography, unit=unit, budget=budget, acceptance=acceptance, segments=segments, **given_)


def queries(plan: ReleasePlan) -> dict[tuple[int, str | None], object]:
    """The steps by level and breakdown, None for totals."""
    found = {(step.level, getattr(step, "breakdown", None)): step for step in plan.steps}
    assert len(found) == len(plan.steps)
    return found


@given(
    zones=zone_lists(),
    unit=st.sampled_from(UNITS),
    order=st.sampled_from(TREES),
    promise=st.sampled_from(PROMISES),
    acceptance=st.sampled_from([NO_FAULTS, DEFAULT_ACCEPTANCE]),
    segments=st.sampled_from(LISTS),
    share=st.sampled_from([None, "1/2", "1/3", "0.999", Fraction(1, 1000), Fraction(617, 1000)]),
    shares=st.sampled_from([None, "uniform", "geography", ("geometric", 3)]),
)
def test_the_charges_of_all_queries_sum_to_the_budget_exactly(
    zones, unit, order, promise, acceptance, segments, share, shares
):
    """Every level has its totals and each breakdown, by the table of sensitivities and the shares of the levels.

    Relative to the totals that a release without segments has, a level keeps its share; the totals of it have t.
    """
    geography = geography_of(zones)
    budget = Budget(**promise, delta=1e-8, shares=shares)
    given_ = {"unit": unit, "budget": budget, "tree": order, "acceptance": acceptance}
    plan = plan_release(geography, **given_, segments=segments, segment_share=share)
    found, m = queries(plan), unit.contribution_bound
    exact = unit == UNITS[0] and acceptance == NO_FAULTS

    rho = budget.rho if budget.rho is not None else plan.spent.rho
    assert sum(step.rho for step in plan.steps) == plan.spent.rho == rho
    if "epsilon" in promise:
        assert plan.spent.epsilon_tight <= float(promise["epsilon"])
    parts = len(segments)
    of_segments = Fraction(parts, parts + 1) if share is None else Fraction(share)
    bounded = 2 if unit.neighbours == "bounded" else 1
    by_level = {level: list(steps) for level, steps in groupby(plan.steps, lambda step: step.level)}
    assert list(by_level) == sorted(by_level)
    for level, steps in by_level.items():
        names = [None] * (not (exact and level == 0)) + list(segments)
        assert [getattr(step, "breakdown", None) for step in steps] == names
        for name in segments:
            assert found[level, name].sensitivity_squared == bounded * m**2
            assert found[level, name].rho == found[level, next(iter(segments))].rho
        if None in names:
            assert found[level, None].sensitivity_squared == (m**2 if level == 0 else bounded * m**2)
            charge = found[level, None].rho / (1 - of_segments)
            assert found[level, names[-1]].rho == charge * of_segments / parts
        for step in steps:
            assert step.rho == Fraction(step.sensitivity_squared) / (2 * step.variance)

    one_child = {level for level in range(1, plan.tree.depth + 1) if plan.tree.largest_fan_out(level) == 1}
    if (shares or "geography") == "geography":
        assert not one_child & (set(by_level) - {plan.tree.depth})
    assert sorted(step.number for step in plan.steps) == sorted({step.number for step in plan.steps})

    # The totals alone, of the same shares. The root has a share even where n is exact.
    alone = plan_release(geography, **given_)
    assert [level for level, name in found if name is None] == [step.level for step in alone.steps]
    ratios = {found[step.level, None].rho / step.rho for step in alone.steps}
    assert len(ratios) == 1
    if not exact:
        assert ratios == {(1 - of_segments) * plan.spent.rho / alone.spent.rho}


@pytest.mark.parametrize("unit", UNITS[:2])
def test_the_exact_conversion_counts_every_query(unit):
    """Noise is wide here, and nearly normal: the exact delta of epsilon is that of one normal query of all of rho.

    Every query may change by its whole sensitivity at once, so that its mean moves by sqrt(2 rho) deviations.
    """
    plan = plan_of(geography_of([("a",), ("b",)]), unit=unit, promise={"rho": None, "epsilon": "0.1"})
    assert plan.conversion == "exact"
    shift = float(2 * plan.spent.rho) ** 0.5
    ends = np.array([-0.1 / shift + shift / 2, -0.1 / shift - shift / 2])
    delta = stats.norm.cdf(ends[0]) - np.exp(0.1) * stats.norm.cdf(ends[1])
    assert delta == pytest.approx(1e-8, rel=1e-3)


# -- what segments cost ------------------------------------------------------------------------------------------------


PUBLISHED = {2: 1.155, 4: 1.265, 7: 1.323, 10: 1.348, 24: 1.386}
"""Standard deviation relative to a release without segments, where half of the budget is for them, by categories."""


@pytest.mark.parametrize("k", PUBLISHED)
@pytest.mark.parametrize("t", [Fraction(1, 2), Fraction(1, 4), Fraction(999, 1000)])
def test_totals_and_segments_cost_what_the_formulas_say(k, t):
    """F_T and F_S at every level, exactly; half and half, they are equal, with the published values."""
    unit, listed = PrivacyUnit("trip", "unbounded"), {"mode": [f"m{s}" for s in range(k)]}
    wide = {"rho": Fraction(1, 10**8)}  # so that the rounding of estimates adds nothing to the expected errors
    plan = plan_of(unit=unit, segments=listed, segment_share=1 - t, promise=wide)
    alone = plan_of(unit=unit, segments=None, promise=wide)
    totals = Fraction(k) / (1 + (k - 1) * t)
    segments = (1 + (k - 2) * t) / ((1 - t) * (1 + (k - 1) * t))
    for step, combined in zip(alone.steps, plan.totals, strict=True):
        assert combined.level == step.level
        assert combined.variance / step.variance == totals
        own = queries(plan)[step.level, "mode"].variance
        assert (combined.variance / k**2 + own * (1 - Fraction(1, k))) / step.variance == segments
        w_total, w_sum = 1 / queries(plan)[step.level, None].variance, 1 / (k * own)
        assert Fraction(combined.weights[1], sum(combined.weights)) == w_sum / (w_total + w_sum)
    np.testing.assert_allclose(plan.expected_errors, np.array(alone.expected_errors) * float(totals) ** 0.5, rtol=1e-7)
    if t == Fraction(1, 2):
        assert float(totals) ** 0.5 == pytest.approx(PUBLISHED[k], abs=5e-4)
        assert segments == totals


def test_several_breakdowns_have_the_published_costs():
    """Of totals and of each category; every query of a level has one charge."""
    k_a, k_b = 10, 4
    ten, four = ({name: [f"c{s}" for s in range(k)]} for name, k in (("mode", k_a), ("age", k_b)))
    plan, alone = plan_of(unit=UNITS[1], segments={**ten, **four}), plan_of(unit=UNITS[1], segments=None)
    for combined, step in zip(plan.totals, alone.steps, strict=True):
        costs = [combined.variance]
        variances = [(queries(plan)[step.level, name].variance, k) for name, k in (("mode", k_a), ("age", k_b))]
        costs += [combined.variance / k**2 + variance * (1 - Fraction(1, k)) for variance, k in variances]
        published = [1.49, 1.65, 1.55]
        assert [float(cost / step.variance) ** 0.5 for cost in costs] == pytest.approx(published, abs=6e-3)


def test_the_digest_has_list_order_unknown_and_share():
    plans = [
        plan_of(segments=None),
        plan_of(),
        plan_of(segments={"mode": ["bus", "car", "walk"]}),
        plan_of(segments={"modes": MODE["mode"]}),
        plan_of(segment_unknown={"mode": "walk"}),
        plan_of(segment_share="1/3"),
        plan_of(segments={**MODE, **HOUR}),
        plan_of(segments={**HOUR, **MODE}),
    ]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert plan_of(segment_share="0.5").digest == plans[1].digest


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED = {
    "one category": {"segments": {"mode": ["car"]}},
    "no category": {"segments": {"mode": []}},
    "65 categories": {"segments": {"mode": [f"m{s}" for s in range(65)]}},
    "twice the same": {"segments": {"mode": ["car", "bus", "car"]}},
    "twice but for the case": {"segments": {"mode": ["car", "Car"]}},
    "an empty category": {"segments": {"mode": ["car", ""]}},
    "a space before": {"segments": {"mode": ["car", " bus"]}},
    "a tab after": {"segments": {"mode": ["car", "bus\t"]}},
    "a number": {"segments": {"mode": ["car", 1]}},
    "unknown outside the list": {"segment_unknown": {"mode": "other"}},
    "unknown of no breakdown": {"segment_unknown": {"modes": "car"}},
    "a share of 0": {"segment_share": 0},
    "a share of 1": {"segment_share": "1"},
    "a share above 1": {"segment_share": 1.5},
    "a negative share": {"segment_share": "-1/2"},
    "no number": {"segment_share": "half"},
    "a share without segments": {"segments": None, "segment_share": "1/2"},
    "unknown without segments": {"segments": None, "segment_unknown": {"mode": "car"}},
    "leaves by empirical Bayes": {"mechanism": InfTDARefined(leaves="empirical_bayes")},
    "four breakdowns": {"segments": {name: ["x", "y"] for name in ("k1", "k2", "k3", "k4")}},
    "names that differ in case": {"segments": {"mode": ["x", "y"], "Mode": ["x", "y"]}},
    **{
        f"mechanism {name}": {"mechanism": name}
        for name in MECHANISMS
        if name not in ("inftda_refined", "inftda_stability")  # the latter is refused before it asks for segments
    },
    **{
        f"a breakdown named {name}": {"segments": {name: ["x", "y"]}}
        for name in ("origin", "destination", "trips", "Total", "in_period", "lower", "upper", "weight", "a b", "")
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_segments_cannot_be_is_refused(case):
    with pytest.raises(OdError) as refused:
        plan_of(**{"segments": MODE, **REFUSED[case]})
    assert refused.value.code.startswith(("OD-SEGMENT", "OD-BUDGET-NUMBER", "OD-NUMBER"))
    assert refused.value.next_step
