"""Exact accounting of users and of weights: only if it is declared, and what earlier versions planned stays."""

import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows.planning_page import build_planning_facts
from od_core.flows.publishing import derived_kind
from od_core.privacy.accounting import round_up_to_float
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.posterior import Guarantee
from od_core.publication.certificate import read_guarantee_for_one_unit
from od_core.published.explanation import list_alternatives
from tests.od_core.oracles.privacy_loss import delta_by_halves

ZONES = pd.DataFrame({"region": ["a", "a", "a", "b", "b"], "zone": ["a1", "a2", "a3", "b1", "b2"]})
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"])
DELTA = Fraction("1e-8")


def user(m: int, kind: str = "user_period", relation: str = "unbounded", **given: Any) -> PrivacyUnit:
    return PrivacyUnit(kind, relation, column="id", max_trips=m, **given)  # type: ignore[arg-type]


def planned(unit: PrivacyUnit, conversion: str | None = "exact", **given: Any) -> ReleasePlan:
    promise = given.pop("promise", {"epsilon": 1})
    budget = Budget(**promise, delta=given.pop("delta", DELTA), conversion=conversion)
    return plan_release(GEOGRAPHY, unit=unit, budget=budget, acceptance=NO_FAULTS, **given)


def again(plan: ReleasePlan) -> ReleasePlan:
    """The plan that is read from the facts of a bundle or of the ledger."""
    return ReleasePlan.from_facts(json.loads(json.dumps(plan.facts())), GEOGRAPHY, GEOGRAPHY)


UNITS = [
    *(user(m, kind) for m in (1, 3, 40) for kind in ("user", "user_period")),
    user(3, relation="bounded"),
    PrivacyUnit("trip", "bounded", max_weight=1),
    PrivacyUnit("trip", "unbounded", max_weight=9),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"tree": "both"},
    {"area_totals": "1/5"},
    {"segments": {"mode": ["car", "bus"]}},
    {"mechanism": "inftda"},
    {"promise": {"rho": "1/50"}},
]


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_declared_exact_is_used(unit, options):
    """The exact epsilon is promised, the noise is narrower, and facts that are read back say the same."""
    plan = planned(unit, **options)
    m, cells = unit.contribution_bound, 1 if unit.neighbours == "unbounded" else 2
    assert plan.conversion == plan.facts()["conversion"] == "exact"
    numbers = [1 if step.level == 0 and not step.by_segment else cells for step in plan.charged_steps]
    assert [step.sensitivity_squared for step in plan.charged_steps] == [m**2 * number for number in numbers]
    assert plan.spent.shifted_cells == tuple(numbers)
    steps = zip(plan.charged_steps, numbers, strict=True)
    assert plan.spent.variances == tuple(step.variance for step, number in steps for _ in range(number))
    assert float(plan.spent.epsilon) <= plan.spent.epsilon_exact < plan.spent.epsilon_tight
    if "promise" not in options:
        assert 0.998 < plan.spent.epsilon <= 1
        assert 1.05 < plan.spent.rho / planned(unit, "tight", **options).spent.rho < 1.25
    assert again(plan).facts() == plan.facts()
    assert again(plan).spent == plan.spent


@pytest.mark.parametrize(("m", "epsilon", "relation"), [(2, 8, "unbounded"), (3, 6, "bounded"), (10, 8, "unbounded")])
def test_delta_of_the_plan_is_that_of_all_losses(m, epsilon, relation):
    """The laws of all levels, from the variances of the plan alone; half a percent of epsilon less breaks it."""
    plan = planned(user(m, relation=relation), promise={"epsilon": epsilon})
    by_variance: dict[Fraction, int] = {}
    for step in plan.charged_steps:
        number = step.sensitivity_squared // m**2
        by_variance[step.variance] = by_variance.get(step.variance, 0) + number
    levels = list(by_variance.items())
    assert delta_by_halves(levels, epsilon, m) <= float(DELTA) * (1 + 1e-9)
    assert delta_by_halves(levels, epsilon * 0.995, m) > float(DELTA)


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_without_a_declared_conversion_a_plan_is_that_of_earlier_versions(unit, options):
    """Which state ``tight`` and no exact epsilon, also where the rho is given."""
    plan = planned(unit, None, **options)
    assert plan.facts() == planned(unit, "tight", **options).facts()
    assert plan.conversion == "tight"
    assert plan.spent.epsilon_exact is None
    assert again(plan).facts() == plan.facts()
    assert again(plan).spent == plan.spent


@pytest.mark.parametrize(
    ("unit", "delta"),
    [
        (user(3, max_trips_pair=1), DELTA),
        (user(3, "user_year", max_trips_year=9, id_pattern="[a-z]+"), DELTA),
        (user(3), Fraction("1e-13")),
    ],
)
def test_where_the_exact_loss_is_not_defined_tight_takes_its_place(unit, delta):
    plan = planned(unit, delta=delta)
    assert plan.facts() == planned(unit, "tight", delta=delta).facts()
    assert plan.spent.epsilon_exact is None
    assert again(plan).spent == plan.spent


def test_a_release_that_an_earlier_version_reserved_goes_on_with_its_plan():
    """It took ``tight`` for a declared ``exact``. For single trips, another conversion is another plan."""
    for unit in UNITS:
        declared, earlier = planned(unit), planned(unit, "tight")
        assert declared.as_reserved(earlier.facts()).facts() == earlier.facts() != declared.facts()
        assert declared.as_reserved(declared.facts()) is declared
        assert earlier.as_reserved(declared.facts()) is earlier
    one = PrivacyUnit("trip", "unbounded")
    assert planned(one).as_reserved(planned(one, "tight").facts()).facts() == planned(one).facts()


def test_the_best_guess_follows_from_the_moves_by_m():
    """It is a little above that of single trips with noise of 1/m the width, whose losses are the coarser ones."""
    alone = Guarantee.from_spent(planned(PrivacyUnit("trip", "unbounded"), promise={"rho": "1/50"}).spent)
    many = Guarantee.from_spent(planned(user(40), promise={"rho": "1/50"}).spent)
    assert many.shift == 40
    assert float(many.bound_guess_probability()) == pytest.approx(float(alone.bound_guess_probability()), rel=1e-4)
    by_rho = replace(many, variances=None)
    assert many.bound_guess_probability() < by_rho.bound_guess_probability()


def test_other_choices_keep_the_declared_accounting():
    plan = planned(user(4), promise={"epsilon": 1})
    found = {(one.decision, one.choice): one for one in list_alternatives(plan)}
    assert found["m", "at most 2 trips"].times == pytest.approx(1 / 2, rel=1e-3)
    assert found["m", "at most 8 trips"].times == pytest.approx(2, rel=1e-3)


def test_a_page_with_any_number_of_trips_takes_the_simple_conversion():
    facts = build_planning_facts(planned(user(4)), "flows")
    by_unit = zip(facts["units"], facts["rules"][0], strict=True)
    of_users = [rule for unit, rules in by_unit if unit["kind"] != "trip" for rule in rules]
    assert [(rule["rho"], rule["promise"]) for rule in of_users] == [(None, None)] * 2


@pytest.mark.parametrize("relation", ["bounded", "unbounded"])
def test_a_certificate_has_the_guarantee_of_its_release(relation):
    """Also that of flows that are derived from two releases."""
    spent = (plan := planned(user(7, relation=relation))).spent
    of_release = {"epsilon": round_up_to_float(spent.epsilon), "epsilon_exact": spent.epsilon_exact, "lost_draws": 0}
    stated = {
        "contribution_bound": 7,
        "unit": "user_period",
        "plan": plan.facts(),
        "spent": of_release | {"rho_exact": str(spent.rho)},
    }
    of_spent = replace(Guarantee.from_spent(spent), epsilon=Fraction(round_up_to_float(spent.epsilon)))
    assert read_guarantee_for_one_unit(stated) == of_spent  # type: ignore[arg-type]
    both = derived_kind._make_one_period_guarantee([SimpleNamespace(spent=spent)] * 2)  # type: ignore[list-item]
    assert both == Guarantee.from_spent(spent)
    one_period = {"epsilon": float(both.epsilon), "delta": float(both.delta)}
    loss = {"one_period": derived_kind._make_loss_facts(both)}
    derived = stated | {"sources": [], "spent": {"one_period": one_period}, "privacy_loss": loss}
    found = read_guarantee_for_one_unit(derived)  # type: ignore[arg-type]
    assert (found.rho, found.variances, found.shift) == (spent.rho, spent.variances, 7)
