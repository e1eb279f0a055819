"""The facts of a plan are its whole: a plan that is made from them, after a round trip through JSON, is the same."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, reject
from hypothesis import strategies as st

from od_core import (
    Acceptance,
    Bands,
    Budget,
    Geography,
    GroupSizePlan,
    MapGrid,
    OdError,
    Plan,
    PrivacyUnit,
    ReleasePlan,
    StopsPlan,
    TopCodeEstimate,
    Uncounted,
    plan_group_sizes,
    plan_release,
    plan_stops,
)
from od_core.flows.mechanisms import MECHANISMS
from od_core.group_sizes.mechanisms import MECHANISMS as OF_GROUP_SIZES
from od_core.stops.mechanisms import MECHANISMS as OF_STOPS

PAIRS = [(f"R{region}", f"Z{region}{zone}") for region in range(3) for zone in range(4)]
ZONES = pd.DataFrame(PAIRS, columns=["region", "zone"])
GEOGRAPHY = Geography.from_frame(ZONES, levels=["region", "zone"])
WITH_UNKNOWN = Geography.from_frame(ZONES.assign(zone="Q" + ZONES["zone"]), levels=["region", "zone"], unknown="QZ00")

RELATIONS = st.sampled_from(["bounded", "unbounded"])
EPSILONS = st.fractions(Fraction(1, 10), 10, max_denominator=97)
ACCEPTANCES = st.builds(Acceptance, st.fractions(0, 1, max_denominator=31), st.booleans(), st.booleans())


@st.composite
def units(draw: st.DrawFn) -> PrivacyUnit:
    """Any valid unit."""
    relation, kind = draw(RELATIONS), draw(st.sampled_from(["trip", "user", "user_period", "user_year"]))
    if kind == "trip":
        return PrivacyUnit("trip", relation, max_weight=draw(st.none() | st.integers(1, 9)))  # type: ignore[arg-type]
    most = draw(st.integers(1, 9))
    pair = draw(st.none() | st.integers(1, most))
    year: dict[str, Any] = {}
    if kind == "user_year":
        year = {"max_trips_year": most * draw(st.integers(1, 12)), "id_pattern": "[0-9a-f]{16}"}
    return PrivacyUnit(kind, relation, "user", most, max_trips_pair=pair, **year)  # type: ignore[arg-type]


@st.composite
def flow_plans(draw: st.DrawFn) -> ReleasePlan:
    """Plans of flows and of counts by one hierarchy, with every option."""
    unit, other = draw(units()), draw(st.sampled_from([None, WITH_UNKNOWN, Geography.whole()]))
    promise = draw(st.sampled_from(["epsilon", "rho"]))
    shares: Any = draw(st.sampled_from([None, "uniform", "geography", ("geometric", "1/2")]))
    conversion = draw(st.sampled_from([None, "tight", "bun_steinke", "exact"]))
    budget = Budget(**{promise: draw(EPSILONS)}, delta="1e-8", conversion=conversion, shares=shares)
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["segments"] = {"mode": ["car", "bus", "other"], "hour": ["am", "pm"]}
        options["segment_unknown"] = draw(st.sampled_from([None, {"mode": "other"}]))
        options["segment_share"] = draw(st.sampled_from([None, "1/3"]))
    elif other is not None and other.levels and draw(st.booleans()):
        options["area_totals"] = draw(st.fractions(Fraction(1, 50), Fraction(1, 2), max_denominator=50))
    if "area_totals" not in options and (other is None or other.levels) and draw(st.booleans()):
        options["bands"] = Bands((2,), draw(st.integers(1, 10**6)))
    if unit.kind == "user_year" and draw(st.booleans()):
        options["uncounted"] = Uncounted("1/20", unit.contribution_bound + draw(st.integers(0, 50)))
    mechanism = MECHANISMS.make(
        "inftda_refined",
        order=draw(st.sampled_from(["ascending", "descending"])),
        keep_all_cap=draw(st.integers(0, 10**7)),
        **draw(st.sampled_from([{}, {"estimate": "auto"}, {"leaves": "empirical_bayes", "u": "5/4"}])),
    )
    tree = draw(st.sampled_from(["destination", "origin"]))
    acceptance = draw(ACCEPTANCES)
    try:
        plan = plan_release(
            GEOGRAPHY,
            unit=unit,
            budget=budget,
            mechanism=mechanism,
            tree=tree,  # type: ignore[arg-type]
            destination_geography=other,
            acceptance=acceptance,
            **options,
        )
    except OdError:  # such as leaves: empirical_bayes with segments
        reject()
    evidence = {"release": "trips/2001-05/r1", "evidence": {"rule": ["a", 1, None]}}
    return plan.with_earlier_evidence(lambda: draw(st.sampled_from([None, evidence])))


@st.composite
def baselines(draw: st.DrawFn) -> ReleasePlan:
    """Plans of the mechanisms that serve comparisons."""
    name = draw(st.sampled_from(["inftda", "tda_l2", "tda_linf", "vanilla_gauss", "stability_histogram"]))
    unit = PrivacyUnit("trip", draw(RELATIONS))  # type: ignore[arg-type]
    return plan_release(GEOGRAPHY, unit=unit, budget=Budget(draw(EPSILONS), "1e-8"), mechanism=name)


@st.composite
def group_size_plans(draw: st.DrawFn) -> tuple[GroupSizePlan, Any]:
    """Plans of group sizes, with the numbers of groups."""
    groups = np.array(draw(st.lists(st.integers(1, 9), min_size=12, max_size=12)), dtype=np.int64)
    top_code: Any = draw(st.integers(1, 40))
    if draw(st.booleans()):
        top_code = TopCodeEstimate(draw(st.fractions(Fraction(1, 99), Fraction(1, 2), max_denominator=99)), top_code)
    plan = plan_group_sizes(
        draw(st.sampled_from([GEOGRAPHY, WITH_UNKNOWN])),
        groups,
        unit=PrivacyUnit("trip", draw(RELATIONS)),  # type: ignore[arg-type]
        budget=Budget(draw(EPSILONS)),
        mechanism=draw(st.sampled_from([*OF_GROUP_SIZES])),
        top_code=top_code,
        acceptance=draw(ACCEPTANCES),
    )
    return plan, groups


@st.composite
def stops_plans(draw: st.DrawFn) -> StopsPlan:
    """Plans of trips with stops, on a grid or on a map."""
    grid: Any = draw(st.sampled_from([(4, 4), (8, 4, 8, 4), MapGrid(-1.5, 2.0, 40.0, 41.25, 8, ("origin", "end"))]))
    return plan_stops(
        grid,
        unit=PrivacyUnit("trip", draw(RELATIONS)),  # type: ignore[arg-type]
        budget=Budget(draw(EPSILONS)),
        mechanism=draw(st.sampled_from([*OF_STOPS])),
        acceptance=draw(ACCEPTANCES),
    )


def stored(plan: Plan) -> dict[str, Any]:
    """The facts of a plan as a certificate has them."""
    facts: dict[str, Any] = json.loads(json.dumps(plan.facts(), sort_keys=True))
    return facts


def assert_same(plan: Plan, read: Plan) -> None:
    """All that follows from a plan is the same."""
    assert (read.digest, read.counts_digest) == (plan.digest, plan.counts_digest)
    assert read.facts() == plan.facts()
    assert (read.unit, read.acceptance, read.spent) == (plan.unit, plan.acceptance, plan.spent)
    assert [*read.charged_steps] == [*plan.charged_steps]


@given(flow_plans() | baselines())
def test_a_plan_of_flows_follows_from_its_facts(plan: ReleasePlan) -> None:
    assert_same(plan, ReleasePlan.from_facts(stored(plan), plan.tree.origin, plan.tree.destination))


@given(group_size_plans())
def test_a_plan_of_group_sizes_follows_from_its_facts(case: tuple[GroupSizePlan, Any]) -> None:
    plan, groups = case
    assert_same(plan, GroupSizePlan.from_facts(stored(plan), plan.frame.geography, groups))


@given(stops_plans())
def test_a_plan_of_stops_follows_from_its_facts(plan: StopsPlan) -> None:
    assert_same(plan, StopsPlan.from_facts(stored(plan)))


@given(flow_plans())
def test_with_its_own_unit_and_budget_a_plan_stays_as_it_is(plan: ReleasePlan) -> None:
    again = plan.replan(plan.unit, plan.budget)
    assert again.counts_digest == plan.counts_digest
