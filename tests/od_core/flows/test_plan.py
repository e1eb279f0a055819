"""Plans: what is measured, with how much noise, and that it costs exactly the budget; all from public facts."""

from dataclasses import replace
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, Geography, InfTDA, InfTDARefined, OdError, PrivacyUnit, plan_release
from od_core.privacy.accounting import compute_bun_steinke_epsilon, compute_tight_epsilon
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, NO_FAULTS, Acceptance, compute_sensitivity_squared
from tests.od_core.oracles.inftda import Tree
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


def planned(geography: Geography = SMALL, **changes):
    usual = {"unit": UNITS[0], "budget": Budget(rho=1, delta=1e-8), "acceptance": NO_FAULTS}
    return plan_release(geography, **usual | changes)


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


def has_exact_total(unit: PrivacyUnit, acceptance: Acceptance) -> bool:
    """Of generated geographies, which have no unknown area."""
    return (unit.kind, unit.neighbours, acceptance.fault_threshold) == ("trip", "bounded", 0)


@given(
    zones=zone_lists(max_fan_out=2),
    unit=st.sampled_from(UNITS),
    order=st.sampled_from(TREES),
    promise=st.sampled_from(PROMISES),
    acceptance=st.sampled_from([NO_FAULTS, DEFAULT_ACCEPTANCE]),
    data=st.data(),
)
def test_the_plan_spends_the_budget_exactly(zones, unit, order, promise, acceptance, data):
    """Every allocation, relation, unit and tree: the charges are the shares, and they are Delta^2 / (2 sigma^2)."""
    geography = geography_of(zones)
    depth = geography.depth if order == "both" else 2 * geography.depth
    levels = depth + (0 if has_exact_total(unit, acceptance) else 1)
    given_shares, exact = data.draw(shares(levels))
    budget = Budget(**promise, delta=1e-8, shares=given_shares)
    plan = plan_release(geography, unit=unit, budget=budget, tree=order, mechanism="inftda", acceptance=acceptance)

    total = promise.get("rho") or budget.compute_total_rho("tight")
    assert plan.spent.rho == sum(plan.spent.levels) == total
    assert list(plan.spent.levels) == [step.rho for step in plan.steps] == [total * share for share in exact]
    assert [step.level for step in plan.steps] == list(range(depth + 1))[-levels:]
    for step in plan.steps:
        m = unit.contribution_bound
        assert step.sensitivity_squared == (m**2 if step.level == 0 else compute_sensitivity_squared(unit))
        assert step.rho == Fraction(step.sensitivity_squared) / (2 * step.variance)
        assert plan.step(step.level) is step
    if "epsilon" in promise:
        convert = compute_bun_steinke_epsilon if "conversion" in promise else compute_tight_epsilon
        assert convert(plan.spent.rho, plan.spent.delta) <= Fraction(promise["epsilon"])


def test_the_total_is_measured_where_a_record_may_leave():
    """Where a record may leave, by zone or category, and only there, the root is measured."""
    unknown = Geography.from_frame(pd.DataFrame({"zone": ["a", "b", "?"]}), ["zone"], unknown="?")
    listed = Geography.from_frame(pd.DataFrame({"zone": ["a", "b"]}), ["zone"])
    default, no_faults = Acceptance(), Acceptance(Fraction(0))
    no_categories, categories = (replace(no_faults, has_categories=has) for has in (False, True))
    for origin, destination, acceptance, publishes in (
        (listed, listed, default, False),
        (listed, listed, no_categories, True),
        (listed, listed, categories, False),
        (unknown, unknown, default, True),
        (unknown, unknown, replace(default, has_categories=True), False),
        (unknown, listed, default, False),
        (listed, unknown, default, False),
    ):
        plan = planned(origin, destination_geography=destination, acceptance=acceptance)
        assert plan.publishes_total is publishes
        assert (plan.steps[0].level == 0) is not publishes


@pytest.mark.parametrize("mechanism", ["inftda", "inftda_refined", "vanilla_gauss", "stability_histogram"])
def test_no_plan_has_the_sensitivity_of_another_unit(mechanism):
    """A plan whose unit, relation or acceptance is exchanged has the noise that keeps what it promises then."""
    budget = Budget(1, "1e-8")
    plan = planned(budget=budget, mechanism=mechanism)
    many = PrivacyUnit("user_period", column="person", max_trips=50)
    changes = [{"unit": many}, {"unit": UNITS[1]}, {"unit": PrivacyUnit("user", column="person", max_trips=2)}]
    if mechanism.startswith("inftda"):
        changes.append({"acceptance": DEFAULT_ACCEPTANCE})
    for change in changes:
        other = replace(plan, **change)
        assert other.steps == planned(budget=budget, mechanism=mechanism, **change).steps != plan.steps
        if mechanism != "stability_histogram":
            needed = [other.neighbours.sensitivity_squared(step.level) for step in other.steps]
            assert [step.sensitivity_squared for step in other.steps] == needed


def test_the_table_of_a_plan_says_what_is_measured():
    plan = planned(mechanism="inftda")
    levels = {"level": [1, 2, 3, 4], "origin_level": ["all", "level_1", "level_1", "level_2"]}
    levels |= {"destination_level": ["level_1", "level_1", "level_2", "level_2"], "public_cells": [2, 4, 6, 9]}
    noise = {"sensitivity_squared": [2] * 4, "variance": [4.0] * 4, "standard_deviation": [2.0] * 4, "rho": [0.25] * 4}
    expected = pd.DataFrame({**levels, **noise, "expected_error": plan.expected_errors[1:]})
    pd.testing.assert_frame_equal(plan.to_frame(), expected, check_dtype=False)


@given(zones=zone_lists(), others=st.data(), unit=st.sampled_from(UNITS), order=st.sampled_from(TREES))
def test_geography_shares_follow_the_largest_fan_outs(zones, others, unit, order):
    """w_l = 1 - 1/k for the largest number k of children of a node of level l, 3/2 at the leaves; 0 is no step.

    Where each step refines both sides, the root has a fifteenth of the mean share of the other levels.
    """
    destinations = others.draw(zone_lists(depth=len(zones[0])))
    budget = Budget(rho=Fraction(1, 7), delta=1e-8, shares="geography")
    sides = {"geography": geography_of(zones), "destination_geography": geography_of(destinations)}
    plan = planned(**sides, unit=unit, budget=budget, tree=order)
    reference = Tree(zones, destinations, order)
    largest = [max(len(reference.children(node)) for node in level) for level in reference.levels()[:-1]]
    weights = dict(enumerate([*(1 - Fraction(1, k) for k in largest), Fraction(3, 2)]))
    if has_exact_total(unit, NO_FAULTS):
        del weights[0]
    elif order == "both" and weights[0]:
        del weights[0]
        others = [weight for weight in weights.values() if weight]
        weights = {0: sum(others) / len(others) / 15} | weights
    whole = sum(weights.values())
    assert {step.level: step.rho * 7 for step in plan.steps} == {k: w / whole for k, w in weights.items() if w > 0}
    assert plan.spent.rho == sum(plan.spent.levels) == Fraction(1, 7)
    assert plan.unmeasured_levels == [level for level, weight in weights.items() if weight == 0]


def test_every_public_fact_changes_the_digest_and_nothing_else_does():
    def digest(zones=SMALL, **changed) -> str:
        return planned(zones, **{"budget": Budget(epsilon=1, delta=1e-8), "mechanism": "inftda"} | changed).digest

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
        {"mechanism": "inftda_refined"},
        {"mechanism": InfTDARefined(order="descending")},
        {"mechanism": InfTDARefined(keep_all_cap=0)},
        {"mechanism": InfTDARefined(keep_all_cap=1)},
        {"budget": Budget(epsilon=1, delta=1e-8, shares="geography")},
        {"tree": "origin"},
        {"zones": other},
        {"destination_geography": other},
    ]
    assert len({digest(), *(digest(**change) for change in changes)}) == 1 + len(changes)
    same_zones = geography_of([("b", "ba"), ("a", "ab"), ("a", "aa")])
    same = {"zones": same_zones, "destination_geography": SMALL, "budget": Budget(epsilon=1.0, delta="1e-8")}
    assert digest() == digest(**same) == digest(mechanism=InfTDA(order="ascending")) == digest(tree="destination")
    assert digest(mechanism="inftda_refined") == digest(mechanism=InfTDARefined("ascending", keep_all_cap=5_000_000))


@pytest.mark.parametrize("cap", [0, 8, 9, 10, 53, 54, 5_000_000])
def test_all_nodes_are_kept_up_to_so_many_leaf_pairs(cap):
    """SMALL has 3 zones, so 9 pairs, which count once for their total and once for each of five categories."""
    segments, mechanism = {"mode": ["car", "bus", "walk"], "hour": ["am", "pm"]}, InfTDARefined(keep_all_cap=cap)
    plan = planned(mechanism=mechanism)
    assert plan.keeps_all is (cap >= 9)
    assert planned(mechanism=mechanism, segments=segments).keeps_all is (cap >= 9 * 6)
    assert plan.facts()["mechanism_options"] == {"order": "ascending", "keep_all_cap": str(cap)}
    assert planned(mechanism="inftda").keeps_all is False


@pytest.mark.parametrize("cap", [-1, 1.0, True, None])
def test_a_wrong_number_of_leaf_pairs_is_refused(cap):
    with pytest.raises(OdError, match=r"OD-MECHANISM-OPTION.*keep_all_cap"):
        InfTDARefined(keep_all_cap=cap)


@pytest.mark.parametrize("mechanism", [InfTDA, InfTDARefined])
def test_an_unknown_order_is_refused(mechanism):
    with pytest.raises(OdError, match="OD-INTOPT-ORDER"):
        mechanism(order="up")
