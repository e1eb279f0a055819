"""Plans: what is measured, with how much noise, and that it costs exactly the budget; all from public facts."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from od_core import Budget, InfTDA, OdError, PrivacyUnit, plan_release
from od_core.plan import ReleasePlan, Step
from od_core.privacy.accounting import epsilon_bun_steinke, epsilon_tight
from tests.od_core.strategies import TREES, geography_of, zone_lists

SMALL = geography_of([("a", "aa"), ("a", "ab"), ("b", "ba")])
UNITS = [
    PrivacyUnit("trip", "bounded"),
    PrivacyUnit("trip", "unbounded"),
    PrivacyUnit("user", "bounded", column="id", max_trips=1),
    PrivacyUnit("user", "unbounded", column="id", max_trips=3),
    PrivacyUnit("user_period", "bounded", column="id", max_trips=3),
]
PROMISES = [{"rho": Fraction(1, 7)}, {"epsilon": "0.1"}, {"epsilon": 10}, {"epsilon": 1, "conversion": "bun_steinke"}]


@st.composite
def shares(draw, levels: int):
    """Uniform, geometric or explicit shares of so many levels, and the same as fractions."""
    kind = draw(st.sampled_from(["default", "uniform", "geometric", "explicit"]))
    if kind == "geometric":
        ratio = draw(st.fractions(Fraction(1, 5), Fraction(5)).filter(lambda r: r > 0))
        weights = [ratio**level for level in range(levels)]
        return ("geometric", ratio), [weight / sum(weights) for weight in weights]
    if kind == "explicit":
        weights = draw(st.lists(st.integers(1, 100), min_size=levels, max_size=levels))
        explicit = [Fraction(weight, sum(weights)) for weight in weights]
        return explicit, explicit
    return (None if kind == "default" else kind), [Fraction(1, levels)] * levels


@given(
    zones=zone_lists(max_fan_out=2),
    unit=st.sampled_from(UNITS),
    order=st.sampled_from(TREES),
    promise=st.sampled_from(PROMISES),
    data=st.data(),
)
def test_the_plan_spends_the_budget_exactly(zones, unit, order, promise, data):
    """Every allocation, relation, unit and tree: the charges are the shares, and they are Delta^2 / (2 sigma^2)."""
    geography = geography_of(zones)
    levels = 2 * geography.depth + (0 if unit.publishes_total else 1)
    given_shares, exact = data.draw(shares(levels))
    budget = Budget(**promise, delta=1e-8, shares=given_shares)
    plan = plan_release(geography, unit=unit, budget=budget, tree=order)

    total = promise.get("rho") or budget.total_rho("tight")
    assert plan.spent.rho == sum(plan.spent.levels) == total
    assert list(plan.spent.levels) == [step.rho for step in plan.steps] == [total * share for share in exact]
    assert [step.level for step in plan.steps] == list(range(2 * geography.depth + 1))[-levels:]
    for step in plan.steps:
        root = step.level == 0
        assert step.sensitivity_squared == (unit.root_sensitivity_squared if root else unit.sensitivity_squared)
        assert step.rho == Fraction(step.sensitivity_squared) / (2 * step.variance)
        assert plan.step(step.level) is step
    if "epsilon" in promise:
        convert = epsilon_bun_steinke if "conversion" in promise else epsilon_tight
        assert convert(plan.spent.rho, plan.spent.delta) <= Fraction(promise["epsilon"])


@pytest.mark.parametrize("order", TREES)
def test_published_variances_of_the_uniform_split(order):
    """One trip: sigma^2 = T / rho under substitution, (T + 1) / (2 rho) where n is noised."""
    rho = Fraction(3, 100)
    bounded, unbounded = (
        plan_release(SMALL, unit=unit, budget=Budget(rho=rho, delta=1e-8), tree=order) for unit in UNITS[:2]
    )
    assert [step.variance for step in bounded.steps] == [Fraction(4) / rho] * 4
    assert [step.variance for step in unbounded.steps] == [Fraction(5) / (2 * rho)] * 5
    assert bounded.noises_root is False
    assert unbounded.noises_root is True


def test_the_table_of_a_plan_says_what_is_measured():
    plan = plan_release(SMALL, unit=UNITS[0], budget=Budget(rho=1, delta=1e-8), mechanism="inftda")
    expected = pd.DataFrame(
        {
            "level": [1, 2, 3, 4],
            "origin_level": ["all", "level_1", "level_1", "level_2"],
            "destination_level": ["level_1", "level_1", "level_2", "level_2"],
            "public_cells": [2, 4, 6, 9],
            "sensitivity_squared": [2] * 4,
            "variance": [4.0] * 4,
            "standard_deviation": [2.0] * 4,
            "rho": [0.25] * 4,
            "expected_error": plan.expected_errors[1:],
        }
    )
    pd.testing.assert_frame_equal(plan.to_frame(), expected, check_dtype=False)


def test_every_public_fact_changes_the_digest_and_nothing_else_does():
    def digest(zones=SMALL, **changed) -> str:
        usual = {"unit": UNITS[0], "budget": Budget(epsilon=1, delta=1e-8), "tree": "destination"}
        return plan_release(zones, **usual | changed).digest

    other = geography_of([("a", "aa"), ("a", "ab"), ("b", "bb")])
    changes = [
        {"unit": UNITS[1]},
        {"unit": UNITS[2]},
        {"unit": PrivacyUnit("user", "bounded", column="other_id", max_trips=1)},
        {"unit": UNITS[4]},
        {"budget": Budget(epsilon="1.0000001", delta=1e-8)},
        {"budget": Budget(epsilon=1, delta=1e-9)},
        {"budget": Budget(epsilon=1, delta=1e-8, conversion="bun_steinke")},
        {"budget": Budget(epsilon=1, delta=1e-8, shares=("geometric", 2))},
        {"mechanism": InfTDA(order="descending")},
        {"tree": "origin"},
        {"zones": other},
        {"destination_geography": other},
    ]
    assert len({digest(), *(digest(**change) for change in changes)}) == 13
    same_zones = geography_of([("b", "ba"), ("a", "ab"), ("a", "aa")])
    same = {"zones": same_zones, "destination_geography": SMALL, "budget": Budget(epsilon=1.0, delta="1e-8")}
    assert digest() == digest(**same) == digest(mechanism=InfTDA(order="ascending"))


@settings(max_examples=30)
@given(unit=st.sampled_from(UNITS), level=st.integers(0, 4), data=st.data())
def test_a_plan_that_does_not_add_up_cannot_be_made(unit, level, data):
    plan = plan_release(SMALL, unit=unit, budget=Budget(rho=1, delta=1e-8))
    at = data.draw(st.integers(0, len(plan.steps) - 1))
    step = plan.steps[at]
    with pytest.raises(OdError, match="OD-PLAN-INVALID"):
        Step(step.level, step.sensitivity_squared, step.variance, step.rho * Fraction(999, 1000))
    cheaper = Step(step.level, step.sensitivity_squared, step.variance * 2, step.rho / 2)
    for steps in (
        (*plan.steps[:at], *plan.steps[at + 1 :]),
        (*plan.steps[:at], cheaper, *plan.steps[at + 1 :]),
        (*plan.steps, step),
        plan.steps[::-1],
    ):
        with pytest.raises(OdError, match="OD-PLAN-INVALID"):
            ReleasePlan(plan.tree, unit, plan.budget, plan.mechanism, steps)


def test_plans_cannot_be_changed():
    plan = plan_release(SMALL, unit=UNITS[0], budget=Budget(rho=1, delta=1e-8))
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.steps = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.steps[0].variance = Fraction(1)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"budget": Budget(rho=1)}, "OD-BUDGET-DELTA"),
        ({"budget": Budget(epsilon=1)}, "OD-BUDGET-DELTA"),
        ({"budget": Budget(rho=1, delta=1e-8, shares=["1/2", "1/2"])}, "OD-BUDGET-SHARES.*2 shares for 4"),
        ({"tree": "destinaton"}, "OD-TREE-UNKNOWN.*'destination'"),
        ({"mechanism": "inf_tda"}, "OD-MECHANISM-UNKNOWN.*'inftda'"),
        ({"destination_geography": geography_of([("z",)])}, "OD-TREE-DEPTH"),
    ],
)
def test_refuses_what_cannot_be_planned(changed, error):
    with pytest.raises(OdError, match=error):
        plan_release(SMALL, **{"unit": UNITS[0], "budget": Budget(rho=1, delta=1e-8)} | changed)
    with pytest.raises(OdError, match="OD-INTOPT-ORDER"):
        InfTDA(order="up")
