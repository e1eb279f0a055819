"""The decision page: what it compares, and that its numbers follow from the plan and a public table."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest

from od_core import (
    Budget,
    Cap,
    Geography,
    InfTDARefined,
    Plan,
    PrivacyDomain,
    PrivacyUnit,
    plan_group_sizes,
    plan_release,
)
from od_core.evaluation.decision import Option, compute_risks, iterate_options, select_example_flows
from od_core.evaluation.forecast import SIZE_CLASSES
from od_core.evaluation.known_flows import KnownFlows
from od_core.periods import Period

PAIRS = [(f"R{region}", f"Z{region}{zone}") for region in range(3) for zone in range(4)]
ZONES = pd.DataFrame(PAIRS, columns=["region", "zone"])
GEOGRAPHY = Geography.from_frame(ZONES, levels=["region", "zone"])
TRIP = PrivacyUnit("trip")
BUDGET = Budget("1", "1e-8")


def flows(number: int = 40) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    cells = generator.choice(12 * 12, number, replace=False)
    zones = ZONES["zone"].to_numpy()
    trips = generator.integers(1, 900, number)
    return pd.DataFrame({"origin": zones[cells // 12], "destination": zones[cells % 12], "trips": trips})


@pytest.mark.parametrize("tree", ["origin", "destination"])
def test_named_flows_are_those_of_the_table_with_the_interval_of_the_plan(tree: str) -> None:
    """The oracle sums the table by group, and reads the half width of the level from the plan's own words."""
    plan = plan_release(GEOGRAPHY, unit=TRIP, budget=BUDGET, tree=tree)  # type: ignore[arg-type]
    table = KnownFlows.from_frame("table", "public", flows(), GEOGRAPHY)
    found = [*select_example_flows(plan, table)]
    region = dict(zip(ZONES["zone"], ZONES["region"], strict=True))
    assert [flow["levels"] for flow in found] == ["region"] * 2 + ["zone"] * 3
    for level, own in (("region", found[:2]), ("zone", found[2:])):
        ends = flows().replace(region) if level == "region" else flows()
        sums = ends.groupby(["origin", "destination"])["trips"].sum()
        between = sums[[origin != destination for origin, destination in sums.index]]
        for flow in own:
            assert between[tuple(flow["areas"])] == flow["trips"]
            assert flow["within"] == plan.known_to_within[f"{level} x {level}"]
        assert own[0]["trips"] == between.max()
        assert own[-1]["trips"] == between.sort_values(ascending=False).iloc[len(between) // 2]


def test_every_option_has_the_same_public_facts_and_states_its_own_numbers() -> None:
    plan = plan_release(GEOGRAPHY, unit=TRIP, budget=BUDGET)
    found = {option.choice: option for option in iterate_options(plan)}
    assert next(iter(found)) == "the decision"
    assert {"a budget of epsilon 2", "a budget of epsilon 0.5", "mechanism tda_l2"} < {*found}
    assert "a user, at most 2 trips, bounded" in found
    assert "mechanism inftda_refined" not in found  # it is the decision
    assert not {"mechanism vanilla_gauss", "mechanism stability_histogram"} & {*found}  # neither can be published
    assert found["mechanism tda_l2"].note == ""
    for option in found.values():
        assert option.plan is not None
        facts = option.plan.facts()
        delta = "0" if "Laplace noise" in option.choice else str(Fraction(1, 10**8))
        assert (facts["origin_geography"], facts["delta"]) == (GEOGRAPHY.digest, delta)
    assert found["a budget of epsilon 0.5"].guess < found["the decision"].guess < found["a budget of epsilon 2"].guess
    own = plan_release(GEOGRAPHY, unit=TRIP, budget=Budget("3", "1e-8"))
    (_, given, *others) = iterate_options(plan, ["3"])
    assert given.plan is not None
    assert given.plan.facts() == own.facts()
    assert not [option for option in others if option.choice.startswith("epsilon")]
    shares = plan_release(GEOGRAPHY, unit=TRIP, budget=Budget("1", "1e-8", shares=("1/2", *["1/8"] * 4)))
    assert all(option.plan is not None for option in iterate_options(shares))


def test_a_pure_plan_is_compared_with_gaussian_noise_and_the_other_way_round() -> None:
    """At the same epsilon. Nothing else of the promise changes, but for the delta that Gaussian noise needs."""
    areas = partial(plan_release, GEOGRAPHY, unit=TRIP, area_totals="1/10")
    gaussian = areas(budget=Budget("0.5", "1e-6"))
    laplace = InfTDARefined(noise_distribution="laplace")
    pure = areas(budget=Budget("0.5"), mechanism=laplace, tree="both", area_totals="31/100")
    usual = Budget("0.5", "1e-8")

    found = {option.choice: option.plan for option in iterate_options(gaussian)}
    expected = {
        "tree both, Laplace noise, epsilon alone": pure,
        "tree both": areas(budget=gaussian.budget, tree="both"),
    }
    assert {name: found[name].digest for name in expected} == {name: plan.digest for name, plan in expected.items()}  # type: ignore[union-attr]

    found = {option.choice: option.plan for option in iterate_options(pure)}
    expected = {
        "Gaussian noise, delta 1e-8": areas(budget=usual, tree="both"),
        "tree destination, Gaussian noise, delta 1e-8": areas(budget=usual),
    }
    assert {name: found[name].digest for name in expected} == {name: plan.digest for name, plan in expected.items()}  # type: ignore[union-attr]
    others = [name for name in found if name.startswith("mechanism")]
    assert others == [
        f"mechanism {name}, Gaussian noise, delta 1e-8"
        for name in ("inftda", "inftda_refined, estimate auto", "tda_l2")
    ]


def test_simulated_errors_are_of_flows_with_trips() -> None:
    """With noise that is nearly always 0 there is no error; a dropped flow is off by its size."""
    table = KnownFlows.from_frame("table", "public", flows().assign(trips=5), GEOGRAPHY)
    exact = plan_release(GEOGRAPHY, unit=TRIP, budget=Budget(rho=1000, delta="1e-8"))
    assert Option("", exact).with_simulated_errors(table, 1).errors == (0.0, 0.0, 0.0)
    hidden = plan_release(GEOGRAPHY, unit=TRIP, budget=Budget("0.5", "1e-8"), mechanism="stability_histogram")
    assert hidden.steps[-1].noise_facts["threshold"] > 30
    errors = Option("", hidden).with_simulated_errors(table, 1).errors
    assert errors[1] == 5
    assert errors[2] == 5 * 2 * len(flows()) / sum(flows()[side].nunique() for side in ("origin", "destination"))
    assert SIZE_CLASSES[:3] == (0, 1, 10)
    wide = plan_release(GEOGRAPHY, unit=TRIP, budget=Budget(rho="1e-9", delta="1e-8"))
    assert Option("", wide).with_simulated_errors(table, 1).errors == ()


def domain(unit: PrivacyUnit, rho: str = "0.1") -> PrivacyDomain:
    return PrivacyDomain("trips", unit, Cap(rho), "a reason")


def test_the_risk_of_a_pure_epsilon_is_that_of_randomized_response() -> None:
    """No epsilon-private release lets a guess at even odds be right with more than e^eps / (1 + e^eps)."""
    epsilon, groups = 0.3, np.full(12, 5)
    plan: Plan = plan_group_sizes(GEOGRAPHY, groups, unit=TRIP, budget=Budget("0.3"), top_code=9)
    found = compute_risks(plan, domain(TRIP), Period("2001-01"))
    assert found["release"] == math.ceil(100 * math.exp(epsilon) / (1 + math.exp(epsilon)))
    assert found["person"] == math.ceil(100 * math.exp(40 * epsilon) / (1 + math.exp(40 * epsilon)))
    assert found["release"] < found["cap"] < found["person"]


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        (PrivacyUnit("user", "unbounded", "who", 3), ["release", "cap"]),
        (PrivacyUnit("user_period", "unbounded", "who", 3), ["release", "periods", "cap"]),
        (
            PrivacyUnit("user_year", "unbounded", "who", 3, max_trips_year=9, id_pattern=".+"),
            ["release", "year", "cap"],
        ),
    ],
    ids=lambda each: each.kind if isinstance(each, PrivacyUnit) else "",
)
def test_what_a_unit_leaves_open_costs_a_person_more_than_one_release(unit: PrivacyUnit, names: list[str]) -> None:
    plan = plan_release(GEOGRAPHY, unit=unit, budget=Budget(rho="0.01", delta="1e-8"))
    found = compute_risks(plan, domain(unit), Period("2001-01"))
    assert [*found] == names
    # At least as a Gaussian with this rho in all [dong2022gaussian]; at most by Pinsker's inequality.
    times = {"release": 1, "periods": 12, "year": 3, "cap": 10}
    for name, number in found.items():
        mu = math.sqrt(2 * 0.01 * times[name])
        at_least = 100 * 0.5 * (1 + math.erf(mu / 2 / math.sqrt(2)))
        right = Fraction(min(0.5 * (1 + math.sqrt(0.01 * times[name] / 2)), 1))
        assert at_least - 0.1 <= number <= math.ceil(100 * (right + Fraction(1, 10**6)))
