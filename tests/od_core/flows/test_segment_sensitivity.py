"""Sensitivity by brute force: all neighbours of tiny inputs, counted and measured without noise, query by query.

The stated sensitivity of every query is attained by some neighbours and exceeded by none: of totals, of segments, and
of area totals. Where n is exact, no neighbours have different totals, although their segments differ at the root.
"""

from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from od_core import Acceptance, Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import no_noise
from tests.od_core.flows.neighbours import LISTED, UNKNOWN, counted, of_one_unit, squared_changes
from tests.od_core.mutants import charge_the_root_of_segments_as_a_total
from tests.od_core.strategies import TREES_IN_TURN

DEEP_ZONES = pd.DataFrame({"area": ["A", "A", "B", "U"], "zone": ["a", "c", "b", "?"]})
DEEP = Geography.from_frame(DEEP_ZONES, ["area", "zone"], unknown="?")
SEGMENTS = {"mode": ["car", "bus"], "hour": ["am", "pm", "night"]}

Row = tuple[Any, ...]
"""Origin, destination, mode, hour, weight and user; without mode and hour if there are no breakdowns."""

OTHERS: list[Row] = [("a", "b", "car", "pm", 2.0, "q"), ("b", "b", "bus", "am", 1.0, "r")]
TRIPS = [(*trip, 1.0, "p") for trip in product("abx", "ab", ["car", "bus", "horse"], ["am", "pm"])]
CLEAN = [row for row in TRIPS if row[0] != "x" and row[2] != "horse"]
WEIGHED = [(*row[:4], weight, "p") for row in TRIPS[::5] + CLEAN[:1] + CLEAN[-1:] for weight in (0.4, 1.0, 99.0)]
WITHOUT_BREAKDOWNS = [(origin, destination, 1.0, "p") for origin, destination in product("abx", repeat=2)]
OF_A_USER = [("a", "a", "car", "am", 1.0, "p"), ("a", "a", "bus", "pm", 1.0, "p")]
OF_A_USER += [("b", "b", "bus", "pm", 1.0, "p"), ("b", "b", "horse", "pm", 1.0, "p")]


def plan_of(case: str, relation: str, order: str) -> ReleasePlan:
    unit, geography, threshold, unknown, rows = CASES[case]
    unit, segments = PrivacyUnit(**{**vars(unit), "neighbours": relation}), SEGMENTS
    given = {"unit": unit, "budget": Budget(rho=1, delta=1e-8), "acceptance": Acceptance(Fraction(threshold))}
    given["segments"] = None if rows is WITHOUT_BREAKDOWNS else segments
    return plan_release(geography, **given, segment_unknown=unknown, area_totals="1/10", tree=order)


Query = tuple[int, str | None]


def query_of(step) -> Query:
    return step.level, getattr(step, "breakdown", None)


def answers(plan: ReleasePlan, rows: list[Row]) -> dict[Query, np.ndarray]:
    """What is measured or published of some records, by level and breakdown, without noise."""
    counts = counted(plan, rows)
    release = run_plan(plan, counts, no_noise(), MemoryMeasurements())
    assert [measured.step for measured in release.measured] == list(plan.charged_steps)
    published = {(0, None): np.array([counts.total])} if plan.publishes_total else {}
    return published | {query_of(m.step): m.noisy.read_values() for m in release.measured}


CASES = {
    "one trip": (PrivacyUnit("trip"), LISTED, 1, None, TRIPS),
    "one trip without faults": (PrivacyUnit("trip"), LISTED, 0, None, CLEAN),
    "one trip, unknown areas": (PrivacyUnit("trip"), UNKNOWN, 1, None, TRIPS),
    "one trip, one unknown category": (PrivacyUnit("trip"), UNKNOWN, 1, {"hour": "night"}, TRIPS),
    "one trip, all unknown": (PrivacyUnit("trip"), UNKNOWN, 1, {"mode": "bus", "hour": "night"}, TRIPS),
    "one trip of four levels": (PrivacyUnit("trip"), DEEP, 1, None, TRIPS),
    "one trip of four levels, no breakdowns": (PrivacyUnit("trip"), DEEP, 1, None, WITHOUT_BREAKDOWNS),
    "one weight": (PrivacyUnit("trip", max_weight=3), LISTED, 1, None, WEIGHED),
    "one user": (PrivacyUnit("user", column="id", max_trips=2), LISTED, 1, None, OF_A_USER),
    "one user of a period": (
        PrivacyUnit("user_period", column="id", max_trips=3),
        LISTED,
        1,
        None,
        [OF_A_USER[0], *OF_A_USER[2:]],
    ),
    "one user, one trip of each pair": (
        PrivacyUnit("user", column="id", max_trips=2, max_trips_pair=1),
        LISTED,
        1,
        None,
        [*OF_A_USER[:3], ("b", "a", "car", "am", 1.0, "p"), ("a", "b", "bus", "pm", 1.0, "p")],
    ),
}
EXACT = {"one trip without faults", "one trip, all unknown", "one trip of four levels, no breakdowns"}


@cache
def inputs_of(case: str, order: str) -> dict[tuple[Row, ...], dict[Query, np.ndarray]]:
    """The answers to all inputs: the other records, and none, one or several records of the unit that changes."""
    unit, *_, rows = CASES[case]
    plan = plan_of(case, "bounded", order)
    others = OTHERS if plan.breakdowns else [(*row[:2], *row[4:]) for row in OTHERS]
    return {some: answers(plan, [*others, *some]) for some in of_one_unit(unit, rows)}


def attains_every_sensitivity(case: str, relation: str, order: str = "destination") -> None:
    plan = plan_of(case, relation, order)
    unit, m = plan.unit, plan.unit.contribution_bound
    assert plan.publishes_total is (case in EXACT and relation == "bounded")
    every = list(squared_changes(plan, inputs_of(case, order)))
    changes = {query: max(change[query] for change in every) for query in every[0]}
    of_leaves = m * (unit.max_trips_pair or m)
    squares = {query: of_leaves if query[0] == plan.tree.depth else m**2 for query in changes}
    expected = {query: 2 * each if relation == "bounded" else each for query, each in squares.items()}
    expected[0, None] = 0 if plan.publishes_total else m**2
    assert changes == expected
    stated = {query_of(step): step.sensitivity_squared for step in plan.charged_steps}
    assert stated == {query: change for query, change in changes.items() if change > 0}


@pytest.mark.representatives(
    "unbounded-one trip without faults-*",
    "bounded-one trip, one unknown category-*",
    "unbounded-one trip, all unknown-*",
    "bounded-one trip of four levels, no breakdowns-*",
    "bounded-one weight-*",
    "bounded-one user of a period-*",
)
@pytest.mark.parametrize(
    ("case", "order"),
    [*zip(CASES, TREES_IN_TURN * len(CASES), strict=False), ("one trip", "both"), ("one user", "both")],
)
@pytest.mark.parametrize("relation", ["bounded", "unbounded"])
def test_every_sensitivity_is_attained_and_none_is_exceeded(case, relation, order):
    """Of the orders that refine one side at a time, each case has one, in turn; two cases have the other, too."""
    attains_every_sensitivity(case, relation, order)


@pytest.mark.parametrize("case", ["one trip without faults", "one user"])
def test_a_root_of_segments_that_is_charged_as_the_total_is_found(monkeypatch, case):
    """Also where n is exact: the segment of the one record that is replaced may be another one."""
    charge_the_root_of_segments_as_a_total(monkeypatch)
    with pytest.raises(AssertionError):
        attains_every_sensitivity(case, "bounded")
