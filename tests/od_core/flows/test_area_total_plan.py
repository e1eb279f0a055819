"""Plans with area totals: charges that sum to the budget, sensitivities by brute force, and what is refused."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from od_core import Budget, FlowTree, Geography, Ledger, OdError, PrivacyUnit, ReleasePlan, plan_release, release_flows
from od_core.flows.bands import Bands
from od_core.flows.interval_ends import compute_half_width
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.step import AreaTotalStep
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, NO_FAULTS
from od_core.privacy.plan import Uncounted, check_charges
from od_core.records import counts as counted
from od_core.records.counting import count_trips
from tests.od_core.flows.test_segment_plan import UNITS
from tests.od_core.ledger.ledger_rows import domain, rows
from tests.od_core.strategies import TREES, geography_of, worlds

YEAR = PrivacyUnit("user_year", "bounded", column="id", max_trips=2, max_trips_year=3, id_pattern="[a-z]+")
TWO = geography_of([("a", "aa"), ("a", "ab"), ("b", "ba")])
FLAT = geography_of([("x",), ("y",), ("z",)])
ONE = geography_of([("only",)])


def plan_of(origin: Geography = TWO, destination: Geography | None = None, **given_: object) -> ReleasePlan:
    budget = {"unit": UNITS[0], "budget": Budget(rho=1, delta="1e-8"), "area_totals": "1/10"}
    return plan_release(origin, destination_geography=destination, **budget | given_)


@given(
    world=worlds(),
    unit=st.sampled_from([*UNITS, YEAR]),
    order=st.sampled_from(TREES),
    promise=st.sampled_from([{"rho": Fraction(1, 7)}, {"epsilon": "0.1"}, {"epsilon": 1, "conversion": "tight"}]),
    acceptance=st.sampled_from([NO_FAULTS, DEFAULT_ACCEPTANCE]),
    shares=st.sampled_from([None, "uniform", "geography", ("geometric", 3)]),
    share=st.sampled_from(["1/10", 0.25, Fraction(1, 2), Fraction(1, 10**6)]),
    segments=st.sampled_from([None, {"mode": ["car", "bus"]}, {"mode": ["car", "bus"], "hour": ["am", "pm", "night"]}]),
    uncounted=st.sampled_from([None, Uncounted("1/3", 7)]),
)
def test_the_charges_of_all_steps_sum_to_the_budget(
    world, unit, order, promise, acceptance, shares, share, segments, uncounted
):
    """The sides share what is declared, and the tree has the rest, as it has it alone; each step has its own number."""
    uncounted = uncounted if unit.kind == "user_year" else None
    budget = Budget(**promise, delta="1e-8", shares=shares)
    given_ = {"unit": unit, "budget": budget, "tree": order, "acceptance": acceptance}
    given_ |= {"segments": segments, "uncounted": uncounted}
    alone = plan_release(world.origin, destination_geography=world.destination, **given_)
    try:
        plan = plan_of(world.origin, world.destination, **given_, area_totals=share)
    except OdError as error:
        assume(error.code != "OD-AREA-TOTALS")
        raise
    check_charges(plan)
    exact, areas = Fraction(str(share)), plan.area_total_steps
    of_table = 1 - (0 if uncounted is None else uncounted.share)
    rho = sum(step.charge.rho for step in plan.charged_steps)
    assert rho == plan.spent.rho == plan.charge.rho == sum(plan.spent.levels)
    if "rho" in promise:
        assert rho == promise["rho"]
    assert [step.rho for step in areas] == [rho * of_table * exact / len(areas)] * len(areas)
    assert len(plan.steps) == len(alone.steps)
    for step, other in zip(plan.steps, alone.steps, strict=True):
        of_other = (other.level, other.number, other.sensitivity_squared)
        assert (step.level, step.number, step.sensitivity_squared) == of_other
        assert step.rho / rho == other.rho / alone.spent.rho * (1 - exact)
    assert plan.charged_steps == (*plan.steps, *areas, *([] if uncounted is None else [plan.uncounted_step]))
    assert len({step.number for step in plan.charged_steps}) == len(plan.charged_steps)
    if uncounted is not None:
        assert plan.uncounted_step.number == alone.uncounted_step.number
        assert plan.spent.every_period == plan.uncounted_step.rho == rho * uncounted.share
    m, sides = unit.contribution_bound, [0, 1]
    for step in areas:
        assert step.sensitivity_squared == m**2 * (2 if unit.neighbours == "bounded" else 1)
        assert step.rho == Fraction(step.sensitivity_squared) / (2 * step.variance)
    assert [step.side for step in areas] == [side for side in sides if is_beside_the_tree(plan.tree, side)]
    assert [step.level for step in areas] == [plan.tree.depth + 1 + k for k in range(len(areas))]
    assert plan.stored_facts["area_totals"] == str(exact)
    if plan.spent.epsilon_exact is not None:
        cells = 2 if unit.neighbours == "bounded" else 1
        assert plan.spent.shifted_cells[-len(areas) :] == (cells,) * len(areas)
        if "epsilon" in promise:
            assert plan.spent.epsilon_exact <= float(promise["epsilon"])


def is_beside_the_tree(tree: FlowTree, side: int) -> bool:
    """Whether no level of the tree has each zone of a side with the whole space; one zone is the root."""
    zones = (tree.origin, tree.destination)[side].zones
    pairs = [tree.level_pair(level) for level in range(tree.depth + 1)]
    cells = {(tree.origin.size(o), tree.destination.size(d)) for o, d in pairs}
    return len(zones) > 1 and ((len(zones), 1), (1, len(zones)))[side] not in cells


# What is refused


OUT_OF_RANGE = "OD-AREA-TOTALS: .* above 0 and at most 1/2"
NO_NUMBER = "the share of the budget for area totals"
OF_THE_TREE = "OD-AREA-TOTALS: .* the flow tree measures the trips from and to each zone"
OTHERS_USE_NONE = "OD-AREA-TOTALS: .*only mechanism 'inftda_refined' uses them"


@pytest.mark.parametrize(
    ("given_", "refusal"),
    [
        *(({"area_totals": share}, OUT_OF_RANGE) for share in (0, "0", 1, "0.6", Fraction(51, 100), -1, 7)),
        *(({"area_totals": share}, NO_NUMBER) for share in ("much", float("nan"), float("inf"), [1])),
        ({"origin": ONE, "destination": FLAT}, OF_THE_TREE),
        ({"origin": FLAT, "destination": ONE}, OF_THE_TREE),
        ({"origin": ONE}, OF_THE_TREE),
        ({"origin": geography_of([("a", "aa")]), "destination": TWO}, OF_THE_TREE),
        ({"origin": TWO, "destination": geography_of([("a", "aa")]), "tree": "origin"}, OF_THE_TREE),
        ({"bands": Bands((2,))}, r"OD-AREA-TOTALS: .* a release in parts \(`bands`\) has none"),
        *(({"mechanism": name}, OTHERS_USE_NONE) for name in ("inftda", "vanilla_gauss")),
        ({"mechanism": "stability_histogram", "budget": Budget(1, "1e-8")}, OTHERS_USE_NONE),
        (
            {"mechanism": InfTDARefined(leaves="empirical_bayes")},
            "OD-AREA-TOTALS: .*empirical_bayes needs estimate: shrunk",
        ),
    ],
)
def test_what_has_no_area_totals_is_refused(given_, refusal):
    with pytest.raises(OdError, match=refusal):
        plan_of(**given_)


def test_where_nodes_may_be_dropped_a_total_is_promised_by_the_better_of_two_estimates():
    """Its published interval is that of the measured total or that of the flows of the zone, and not of both."""
    both, better = (plan_of(mechanism=InfTDARefined(keep_all_cap=cap), area_totals="1/2") for cap in (5_000_000, 0))
    assert (both.keeps_all, better.keeps_all) == (True, False)
    for step in better.area_total_steps:
        name, of_flows = " x ".join(better.level_names(step)), 3 * float(better.totals[-1].variance)
        best = min(float(step.variance), of_flows)
        assert better.known_to_within[name] == compute_half_width(np.zeros(1), np.array([best]))[0]
        assert both.known_to_within[name] < better.known_to_within[name]
        assert both.bound_area_total_variance(step) == better.bound_area_total_variance(step)


# Sensitivity


@pytest.mark.parametrize("factor", [Fraction(1, 2), 2])
def test_the_check_of_charges_finds_a_wrong_sensitivity(factor):
    """Of the first and of the second side, with the charge that the wrong one would have."""
    for at in (0, 1):
        plan = plan_of()
        wrong = [
            replace(step, sensitivity_squared=int(step.sensitivity_squared * factor), variance=step.variance * factor)
            if isinstance(step, AreaTotalStep) and step.side == at
            else step
            for step in plan.charged_steps
        ]
        assert sum(step.rho for step in wrong) == 1
        plan.__dict__["_table_steps"] = tuple(wrong)
        with pytest.raises(OdError, match=r"OD-.*the sensitivity of level [56] does not match the unit"):
            check_charges(plan)


@given(world=worlds(), order=st.sampled_from(TREES), size=st.integers(1, 9))
def test_totals_of_zones_equal_a_group_by(world, order, size):
    tree, _ = world.trees(order)
    frame = world.frame
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "PAIRS_PER_FILE", size)
        counts = count_trips(frame, tree)
        for side, name in enumerate(("origin", "destination")):
            zones, found = (tree.origin, tree.destination)[side].zones, counts.sum_by_zone(tree, side)
            assert found.dtype == np.int64
            grouped = frame["trips"].groupby(frame[name]).sum()
            assert dict(zip(zones, found.tolist(), strict=True)) == Counter(dict.fromkeys(zones, 0)) | grouped.to_dict()


def test_each_side_is_drawn_once_with_noise_of_its_own_and_read_back(tmp_path):
    """Two steps with equal counts and variances have different noise; a second call draws and charges nothing."""
    frame = pd.DataFrame({"origin": ["aa", "bb"], "destination": ["bb", "aa"], "trips": [5, 5]})
    ledger, given_ = Ledger(tmp_path / "ledger.sqlite"), {"unit": UNITS[0], "area_totals": "1/10", "noise": "table"}
    given_ |= {"budget": Budget(rho=Fraction(1, 100), delta="1e-8"), "release_id": "commuters/2001-06/r1"}
    ledger.declare(domain(1))
    geography = geography_of([("a", "aa"), ("a", "ab"), ("b", "ba"), ("b", "bb")])
    first, before = release_flows(frame, geography, ledger=ledger, **given_), rows(ledger.path)
    again = release_flows(frame, geography, ledger=ledger, **given_)
    assert rows(ledger.path) == before
    first_values, again_values = ([m.noisy.read_values().tolist() for m in one.measured] for one in (first, again))
    assert again_values == first_values
    assert first.spent.rho == again.spent.rho == Fraction(1, 100)
    key = ReleaseKey("commuters", "2001-06")
    assert [ledger.count_draws(key, step.number) for step in first.plan.charged_steps] == [1] * len(first.measured)
    origins, destinations = (m.noisy.read_values().tolist() for m in first.measured[-2:])
    assert origins != destinations
    tables = [first.measurements_at(step.level) for step in first.plan.area_total_steps]
    assert set(tables[0]["destination"]) == set(tables[1]["origin"]) == {"all"}
    assert tables[0]["origin"].tolist() == list(first.plan.tree.origin.zones)
    assert tables[0]["noisy"].tolist() == origins
    assert tables[1]["destination"].tolist() == list(first.plan.tree.destination.zones)
    assert tables[1]["noisy"].tolist() == destinations
