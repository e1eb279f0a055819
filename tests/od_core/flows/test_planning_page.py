"""The facts of a planning page: the levels that may be kept, the budgets, and what is refused."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product

import pandas as pd
import pytest

from od_core import Budget, Geography, InfTDARefined, OdError, PrivacyUnit, Uncounted, plan_release
from od_core.flows import planning_page as module
from od_core.flows.planning_page import build_planning_facts, list_level_subsets, render_planning_page, select_levels
from od_core.meaning.subject import Subject
from od_core.privacy.accounting import round_up_to_float
from od_core.privacy.budget import Cap
from od_core.privacy.neighbours import NO_FAULTS, compute_largest_square_sum
from od_core.publication.templates import render_clauses
from tests.od_core.publication.examples import of_unit
from tests.od_core.publication.reports import EVIL

PATHS = [("b", "b2", "b21"), ("b", "b2", "b22"), ("b", "b1", "b11"), ("a", "a1", "a11"), ("a", "a1", "a12")]
ZONES = pd.DataFrame([*PATHS, ("z", "z", "z")], columns=["region", "town", "zone"])


@pytest.fixture(autouse=True)
def few_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EPSILONS", ("0.5", "1", "3"))


def planned(**options):
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(epsilon=2, delta="1e-8"), "acceptance": NO_FAULTS} | options
    return plan_release(given.pop("geography", Geography.from_frame(ZONES, list(ZONES))), **given)


@pytest.mark.parametrize("depth", range(1, 8))
def test_levels_that_may_be_kept(depth):
    """Any, if there are few; otherwise those from one level to another."""
    levels = range(1, depth + 1)
    every = {kept for number in levels for kept in combinations(levels, number)}
    if depth > 4:
        every = {kept for kept in every if all(after - before == 1 for before, after in pairwise(kept))}
    found = list_level_subsets(depth)
    assert found[0] == tuple(levels)
    assert (len(found), set(found)) == (len(every), every)


@pytest.mark.parametrize("unknown", [None, "z"])
@pytest.mark.parametrize("kept", list_level_subsets(3))
def test_the_geography_of_some_levels_is_that_of_a_list_with_these_columns(kept, unknown):
    names = [ZONES.columns[at - 1] for at in kept]
    listed = Geography.from_frame(ZONES[names].drop_duplicates(), names, unknown=unknown)
    found = select_levels(Geography.from_frame(ZONES, list(ZONES), unknown=unknown), kept)
    assert found.digest == listed.digest


def test_budgets_are_in_order_and_the_declared_one_is_among_them_once():
    cases = {"2": ["0.5", "1", "2", "3"], "1.0": ["0.5", "1", "3"]}
    for declared, expected in ((Budget(epsilon=epsilon, delta="1e-8"), each) for epsilon, each in cases.items()):
        facts = build_planning_facts(planned(budget=declared), "flows")
        assert [each["epsilon"] for each in facts["budgets"]] == expected
        assert facts["budgets"][facts["declared"]["budget"]]["exact"] == str(declared.epsilon)
    facts = build_planning_facts(planned(budget=Budget(rho="0.01", delta="1e-8")), "flows")
    promised = [each["promised"] for each in facts["budgets"]]
    assert promised == sorted(promised)
    assert facts["budgets"][facts["declared"]["budget"]]["charge"] == [0.01, "0.01"]


def test_rho_of_declared_shares_is_that_of_a_plan_at_every_epsilon():
    facts = build_planning_facts(planned(), "flows")
    for number, relation in enumerate(("bounded", "unbounded")):
        [rule] = facts["rules"][0][number]
        for budget, rho in zip(facts["budgets"], rule["rho"], strict=True):
            plan = planned(unit=PrivacyUnit("trip", relation), budget=Budget(budget["epsilon"], delta="1e-8"))
            assert rho[0] == float(plan.spent.rho)
            assert Fraction(rho[1]) >= plan.spent.rho
    assert facts["rules"][0][2][0]["rho"] is None, "the exact conversion is not defined for users"


def test_with_laplace_noise_epsilon_is_the_charge_and_there_is_no_delta():
    laplace = InfTDARefined(noise_distribution="laplace")
    plan = planned(mechanism=laplace, tree="both", budget=Budget("0.7"), area_totals="1/5")
    facts = build_planning_facts(plan, "flows", Cap(epsilon=3))
    assert facts["delta"] is None
    assert facts["cap"] == {"rho": None, "epsilon": 3.0}
    assert [each["charge"] for each in facts["budgets"]] == [[0.5, "0.5"], [0.7, "0.7"], [1.0, "1"], [3.0, "3"]]
    [rule] = facts["rules"][0][facts["declared"]["unit"]]
    assert (rule["rho"], rule["promise"]) == (None, None)
    shares = {step.level: float(step.charge.epsilon / Fraction("0.7") / Fraction(4, 5)) for step in plan.steps}
    assert dict(rule["shares"]) == pytest.approx(shares)
    both = build_planning_facts(plan, "flows", Cap(epsilon=3, delta="1e-6"))["cap"]
    assert both == {"rho": float(Cap(epsilon=3, delta="1e-6").allowed_rho()), "epsilon": 3.0}
    assert build_planning_facts(plan, "flows", Cap(rho=1))["cap"] == {"rho": 1.0, "epsilon": None}


def test_the_cap_of_gaussian_noise_is_a_rho():
    cap = Cap(epsilon=3, delta="1e-6")
    found = build_planning_facts(planned(), "flows", cap)["cap"]
    assert found == {"rho": float(cap.allowed_rho()), "epsilon": None}
    with pytest.raises(OdError, match="OD-LEDGER-CAP-KIND"):
        build_planning_facts(planned(), "flows", Cap(epsilon=3))


@pytest.mark.parametrize("relation", ["bounded", "unbounded"])
def test_a_year_of_a_user_has_its_periods_and_both_bounds(relation):
    unit = PrivacyUnit("user_year", relation, "person", 10, max_trips_year=40, id_pattern="[0-9]+")
    facts = build_planning_facts(planned(unit=unit), "flows", periods=52)
    assert facts["year"] == {"periods": 52, "trips": 40}
    assert facts["declared"]["trips"] == 10
    declared = facts["units"][facts["declared"]["unit"]]
    assert [(each["kind"], each["trips"]) for each in facts["units"]] == [("trip", 1)] * 2 + [("user_year", None)] * 2
    assert (declared["relation"], declared["publishesTotal"]) == (relation, [False, False])
    whole = render_clauses(Subject.from_plan(planned(unit=unit)))["change"]
    for change in declared["change"]:
        assert change.replace("{trips}", "10").replace("{yearly}", "40") == whole
    assert {rule["rho"] is None for rules in facts["rules"] for one in rules[2:] for rule in one} == {True}


@pytest.mark.parametrize("tree", ["destination", "origin"])
def test_the_largest_nodes_of_a_level_suffice_for_any_bounds(monkeypatch, tree):
    """Compared with all nodes of the level, whose sizes are the leaf pairs that are counted below each."""
    monkeypatch.setattr(module, "MOST_TRIPS", 7)
    unit = PrivacyUnit("user", column="person", max_trips=4, max_trips_pair=2)
    plan = planned(unit=unit, tree=tree)
    facts = build_planning_facts(plan, "flows")
    assert facts["declared"]["pair"] == 2
    for one in facts["sets"]:
        ends = [["everywhere"] * 6, *(ZONES[ZONES.columns[at - 1]] for at in one["kept"])]
        finest = pd.Series(ends[-1]).nunique()
        for level, nodes in enumerate(one["nodes"]):
            is_of_area_totals = level > 2 * len(one["kept"])
            first, second = (ends[0], ends[-1]) if is_of_area_totals else (ends[(level + 1) // 2], ends[level // 2])
            sides = [pd.DataFrame({"area": side, "zone": ends[-1]}).drop_duplicates() for side in (first, second)]
            below = [side["area"].value_counts() for side in sides]
            every = sorted((a * b for a in below[0] for b in below[1]), reverse=True)
            assert sum(every) == finest**2
            for trips, cap in filter(lambda both: both[1] <= both[0], product(range(1, 8), repeat=2)):
                left, squares = trips, 0
                for pairs in every:
                    filled = min(left, trips, cap * pairs)
                    squares, left = squares + filled**2, left - filled
                assert compute_largest_square_sum(trips, cap, nodes) == squares


@pytest.mark.parametrize("kind", ["user", "user_period", "user_year"])
def test_the_promise_of_a_pair_cap_is_that_of_the_plan(kind):
    year = {"max_trips_year": 40, "id_pattern": "[0-9]+"} if kind == "user_year" else {}
    unit = PrivacyUnit(kind, column="person", max_trips=10, max_trips_pair=3, **year)
    facts, may_leave = build_planning_facts(planned(unit=unit), "flows"), planned(unit=unit).neighbours.record_may_leave
    declared = facts["units"][facts["declared"]["unit"]]
    for texts, cap in ((declared["changeOfPairs"], 3), (declared["change"], None)):
        whole = render_clauses(of_unit(replace(unit, max_trips_pair=cap), may_leave=may_leave))["change"]
        for text in texts:
            assert text.replace("{trips}", "10").replace("{pair}", "3").replace("{yearly}", "40") == whole
    assert {each["changeOfPairs"] for each in facts["units"] if each["kind"] == "trip"} == {None}


def test_a_plan_that_no_page_compares_is_refused():
    """That of another kind is refused in test_what_cannot_be_written_is_refused."""
    year = PrivacyUnit("user_year", column="person", max_trips=3, max_trips_year=9, id_pattern="[a-z]+")
    for plan, refusal in (
        (planned(mechanism="stability_histogram"), "OD-FORECAST-KIND: .*has a threshold"),
        (planned(unit=year, uncounted=Uncounted("0.01", 50)), "OD-UNCOUNTED: .* gives a table the whole budget"),
    ):
        with pytest.raises(OdError, match=refusal):
            render_planning_page(plan, "trips")


def test_the_promise_includes_area_totals_which_leave_the_rest_to_the_levels():
    """As the plan of each relation states it; a level of a single area has no totals of its own."""
    plan = planned(area_totals="1/10", geography=Geography.from_frame(ZONES.assign(region="a"), list(ZONES)))
    facts = build_planning_facts(plan, "flows")
    for number, relation in enumerate(("bounded", "unbounded")):
        [rule] = facts["rules"][0][number]
        own = replace(plan, unit=PrivacyUnit("trip", relation)).spent
        assert rule["ofTree"] == 0.9
        assert rule["promise"][facts["declared"]["budget"]][0] == round_up_to_float(own.epsilon)
        assert rule["rho"][facts["declared"]["budget"]][0] == float(own.rho)
    sets = zip(facts["sets"], facts["rules"], strict=True)
    by_levels = {tuple(one["kept"]): rules[0][0]["ofTree"] for one, rules in sets}
    assert by_levels == {kept: 1.0 if kept == (1,) else 0.9 for kept in by_levels}


def test_names_cannot_end_the_data_of_the_page():
    zones = ZONES.rename(columns=dict(zip(ZONES, EVIL, strict=False)))
    plan = planned(geography=Geography.from_frame(zones, list(zones)))
    page = render_planning_page(plan, "</script><b>")
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data)["levels"][0] == list(zones)
    assert json.loads(data)["name"] == "</script><b>"
    assert "<b>" not in page.replace("\\u003c", "")
