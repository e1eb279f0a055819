"""Counts by one hierarchy: against sums by brute force, and against flows to a single area."""

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from od_core import (
    Budget,
    FlowTree,
    Geography,
    InfTDARefined,
    OdError,
    PrivacyUnit,
    evaluate,
    plan_release,
    release_counts,
    release_flows,
)
from od_core.flows.planning_page import build_planning_facts
from od_core.flows.publishing.flow_tables import adapt_count_columns
from od_core.geography.geography import with_unknown_area
from tests.od_core.doubles import NoiseNotWanted, SeededNoise, no_noise
from tests.od_core.strategies import Area, geography_of, zone_lists

TRIP, ADDED = PrivacyUnit("trip"), PrivacyUnit("trip", "unbounded")
USUAL: dict[str, Any] = {"unit": ADDED, "budget": Budget(1, "1e-8")}


class OfFlows(SeededNoise):
    """The noise of a level of a hierarchy, for the two levels of a flow tree to one area that it stands for."""

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        return super().draw(variance, level // 2, first, size)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Area], list[int]]:
    """The zones of a hierarchy, and the count of each."""
    zones = draw(zone_lists())
    return zones, draw(st.lists(st.integers(0, 40), min_size=len(zones), max_size=len(zones)))


def table_of(zones: list[Area], counts: list[int]) -> pd.DataFrame:
    return pd.DataFrame({"area": pd.array([zone[-1] for zone in zones], dtype="string"), "count": counts})


@given(tables(), st.sampled_from([TRIP, ADDED]), st.sampled_from(["inftda_refined", InfTDARefined(estimate="shrunk")]))
def test_counts_are_flows_to_one_area(table: tuple[list[Area], list[int]], unit: PrivacyUnit, mechanism: Any) -> None:
    """With the same noise, all numbers are those of flows to the only area of a geography, level by level."""
    (zones, _), given_counts = table, table_of(*table)
    hierarchy = geography_of(zones)
    options: dict[str, Any] = {"unit": unit, "budget": Budget(1, "1e-8"), "mechanism": mechanism, "fault_threshold": 0}
    released = release_counts(given_counts, hierarchy, noise=SeededNoise(3), **options)
    trips = given_counts.rename(columns={"area": "origin", "count": "trips"}).assign(destination="here")
    given = {"destination_geography": geography_of([("here",)]), "tree": "origin", "noise": OfFlows(3)}
    to_one_area = release_flows(trips, hierarchy, **given, **options)
    assert released.plan.tree.depth == hierarchy.depth
    assert released.spent.rho == to_one_area.spent.rho
    assert [step.variance for step in released.plan.steps] == [step.variance for step in to_one_area.plan.steps]
    assert [step.level for step in released.plan.steps] == [step.level // 2 for step in to_one_area.plan.steps]
    for own, other in zip(released.measured, to_one_area.measured, strict=True):
        assert own.noisy.read_values().tolist() == other.noisy.read_values().tolist()
    for level in hierarchy.level_names:
        interval = mechanism == "inftda_refined"
        expected = to_one_area.flows_at(level, "all", interval=interval).drop(columns="destination")
        expected = expected.rename(columns={"origin": "area", "trips": "count"})
        pd.testing.assert_frame_equal(released.counts_at(level, interval=interval), expected)
    if mechanism == "inftda_refined":
        odd = {zone[-1]: place % 2 for place, zone in enumerate(zones)}
        weighted = [
            release.weighted_sum(lambda o, _: np.array([odd[code] for code in o], dtype=float))
            for release in (released, to_one_area)
        ]
        assert weighted[0] == weighted[1]


def test_a_level_that_is_measured_with_the_noise_of_another_is_found() -> None:
    """A planted defect: the levels of the hierarchy have the noise of those above them."""
    table = pd.DataFrame({"area": ["A001", "A150", "J001"], "count": [500, 40, 3]})
    made = [release_counts(table, HIERARCHY, noise=noise, **USUAL) for noise in (SeededNoise(3), OfFlows(3))]
    numbers = [[measured.noisy.read_values().tolist() for measured in one.measured] for one in made]
    assert numbers[0] != numbers[1]


@given(tables(), st.booleans(), st.sampled_from(["inftda", "inftda_refined", "tda_l2", "tda_linf"]))
def test_without_noise_each_area_has_the_sum_of_its_parts(
    table: tuple[list[Area], list[int]], one_row_a_record: bool, mechanism: str
) -> None:
    """By brute force; a table with one row a record is read like one with a column of counts."""
    zones, counts = table
    given_table = table_of(zones, counts)
    if one_row_a_record:
        given_table = given_table.loc[np.repeat(np.arange(len(counts)), counts), ["area"]]
    given = {"mechanism": mechanism, "noise": no_noise(), "fault_threshold": 0}
    released = release_counts(given_table, geography_of(zones), **USUAL, **given)
    for level, name in enumerate(released.plan.tree.origin.levels):
        expected: Counter[str] = Counter()
        for zone, count in zip(zones, counts, strict=True):
            expected[zone[level]] += count
        found = released.counts_at(name)
        assert dict(zip(found["area"], found["count"], strict=True)) == {area: n for area, n in expected.items() if n}
    assert released.counts.equals(released.counts_at(released.plan.tree.origin.levels[-1]))
    assert (evaluate(released, given_table)["max_abs_error"] == 0).all()


@given(zone_lists(), st.sampled_from([TRIP, ADDED]))
def test_the_tree_of_a_table_is_its_hierarchy(zones: list[Area], unit: PrivacyUnit) -> None:
    """Level by level, with the numbers of areas and children that the list of zones has, and nothing repeated."""
    hierarchy = geography_of(zones)
    given = {"destination_geography": Geography.whole(), "mechanism": "inftda"}
    plan = plan_release(hierarchy, **given, unit=unit, budget=Budget(rho=Fraction(1, 7), delta="1e-8"))
    tree, depth = plan.tree, hierarchy.depth
    assert tree.level_names == [(level, "all") for level in hierarchy.level_names]
    assert [tree.cells(level) for level in range(depth + 1)] == [*map(len, hierarchy.codes)]
    inner = [{zone[: level + 1] for zone in zones} for level in range(depth)]
    most = [max(Counter(area[:-1] for area in areas).values()) for areas in inner]
    assert [tree.largest_fan_out(level) for level in range(depth)] == most
    assert tree.repeated_levels["destination"] == []
    assert [step.level for step in plan.steps] == [*range(depth + 1)]  # a faulty record is dropped, so n is measured
    shares = Fraction(1, 7 * (depth + 1))
    sensitivities = [1 if unit is ADDED or level == 0 else 2 for level in range(depth + 1)]
    assert [step.variance for step in plan.steps] == [Fraction(s) / (2 * shares) for s in sensitivities]


ZONES = pd.DataFrame({"chapter": ["I", "I", "X"], "block": ["A00", "A15", "J00"], "code": ["A001", "A150", "J001"]})
HIERARCHY = Geography.from_frame(ZONES, ["chapter", "block", "code"])


@pytest.mark.parametrize(
    ("table", "options", "error"),
    [
        ({"code": ["A001"]}, {}, "OD-TRIPS-COLUMN.*no column 'area'"),
        ({"area": [1]}, {}, "OD-TRIPS-NOT-TEXT"),
        ({"area": ["A001"], "count": [-1]}, {}, "OD-TRIPS-COUNT"),
        ({"area": ["A001"], "count": [1.5]}, {}, "OD-TRIPS-COUNT"),
        ({"area": ["A001"], "age": [7]}, {}, 'OD-TRIPS-ROWS.*columns={"count": COLUMN}'),
        ({"area": ["A001"]}, {"columns": {"origin": "area"}}, "OD-TABLE-COLUMNS.*known: area, count, weight"),
        ({"area": ["A001"]}, {"columns": {"trips": "count"}}, "OD-TABLE-COLUMNS"),
        ({"area": ["A001", "Z999"]}, {}, "OD-TRIPS-FAULTS"),
        ({"area": ["A00", "A15"]}, {}, "OD-TRIPS-FAULTS"),
        ({"area": ["A001"]}, {"budget": Budget(1)}, "OD-BUDGET-DELTA"),
    ],
)
def test_refuses_what_is_no_table_of_counts(table: dict[str, list[Any]], options: dict[str, Any], error: str) -> None:
    with pytest.raises(OdError, match=error) as refused:
        release_counts(pd.DataFrame(table), HIERARCHY, **USUAL | {"noise": NoiseNotWanted()} | options)
    assert refused.value.spent == "nothing was spent"


@pytest.mark.parametrize("name", ["area", "Count"])
def test_a_breakdown_cannot_have_the_name_of_a_column_of_counts(name: str) -> None:
    options: dict[str, Any] = {"unit": ADDED, "budget": Budget(rho=1, delta="1e-6")}
    options["segments"] = {name: ["old", "young"]}
    with pytest.raises(OdError, match="names a column of every release"):
        plan_release(HIERARCHY, destination_geography=Geography.whole(), **options)
    plan_release(HIERARCHY, **options)


def test_only_whole_names_of_columns_are_those_of_counts() -> None:
    names = ["origin", "origin name", "destination", "trips_by_origin", "original", "trips", "lower"]
    shown = adapt_count_columns(FlowTree(HIERARCHY, Geography.whole()), pa.table({name: [1] for name in names}))
    assert shown.column_names == ["area", "area name", "trips_by_origin", "original", "count", "lower"]


@pytest.mark.parametrize(("unit", "changed"), [(TRIP, 2), (ADDED, 1)])
def test_no_neighbour_changes_a_level_by_more_than_its_sensitivity(unit: PrivacyUnit, changed: int) -> None:
    """All tables of two records, and all that have another one in place of one, or one more: some attain it."""
    codes = HIERARCHY.zones

    def levels(records: tuple[str, ...]) -> list[NDArray[np.int64]]:
        options: dict[str, Any] = {"unit": unit, "budget": Budget(1, "1e-8", shares="uniform"), "noise": no_noise()}
        released = release_counts(pd.DataFrame({"area": records}), HIERARCHY, **options)
        assert [step.level for step in released.plan.steps] == [0, 1, 2, 3]
        found.update(dict(enumerate(step.sensitivity_squared for step in released.plan.steps)))
        return [measured.noisy.read_values() for measured in released.measured]

    found: dict[int, int] = {}
    tables = {records: levels(records) for records in product(codes, repeat=2)}
    more = {(*records, code): levels((*records, code)) for records in tables for code in codes}
    others = tables if unit is TRIP else more
    largest = [0] * 4
    for one, other in product(tables, others):
        if (one[0] == other[0]) if unit is TRIP else (one == other[:2]):
            for level, (a, b) in enumerate(zip(tables[one], others[other], strict=True)):
                largest[level] = max(largest[level], int(((a - b) ** 2).sum()))
    assert all(largest[level] <= found[level] for level in range(4))
    assert largest[1:] == [changed] * 3 == [found[level] for level in (1, 2, 3)]


def test_a_planning_page_has_the_hierarchies_of_the_kept_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("od_core.flows.planning_page.EPSILONS", ("3",))
    plan = plan_release(HIERARCHY, destination_geography=Geography.whole(), **USUAL)
    facts = build_planning_facts(plan, "admissions")
    assert facts["levels"] == [list(HIERARCHY.levels)]
    for one, [rules, *_] in zip(facts["sets"], facts["rules"], strict=True):
        sizes = [1, *(HIERARCHY.size(level) for level in one["kept"])]
        assert [sum(areas) for areas in one["origin"]["areas"]] == sizes
        assert one["destination"]["areas"] == [[1]]
        assert {len(sizes) - 1} < {level for level, _ in rules[0]["shares"]} <= {*range(len(sizes))}


def test_an_unknown_area_takes_records_of_other_codes_so_that_n_is_exact() -> None:
    """No record can leave the release: the whole space takes every record, and the hierarchy has a place for it."""
    table = pd.DataFrame({"area": ["A001", "Z999", "A00", None]})
    options: dict[str, Any] = USUAL | {"unit": TRIP, "noise": no_noise(), "fault_threshold": 1}
    dropped = release_counts(table, HIERARCHY, **options)
    kept = release_counts(table, with_unknown_area(HIERARCHY, "other"), **options)
    assert (dropped.plan.publishes_total, kept.plan.publishes_total) == (False, True)
    assert (dropped.plan.steps[0].level, kept.plan.steps[0].level) == (0, 1)
    assert dropped.counts.to_dict("list") == {"area": ["A001"], "count": [1]}
    assert kept.counts.to_dict("list") == {"area": ["A001", "other"], "count": [1, 3]}
