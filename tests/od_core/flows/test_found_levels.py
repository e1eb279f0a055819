"""Zones that no public list has: what is published of them, by which noise, and what nobody may see."""

import itertools
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from od_core import (
    Budget,
    Cap,
    Geography,
    InfTDAStability,
    Ledger,
    OdError,
    PrivacyDomain,
    PrivacyUnit,
    Release,
    ReleasePlan,
    evaluate,
    intopt,
    plan_release,
    release_counts,
    release_flows,
)
from od_core.flows.step import ThresholdStep
from od_core.geography.found_levels import FoundLevels
from od_core.noise.opendp import OpenDPNoise
from od_core.privacy.neighbours import NO_FAULTS, Acceptance
from od_core.privacy.plan import check_charges
from od_core.privacy.stability import compute_stability_threshold
from tests.od_core.doubles import ListedLaplace, SeededLaplace
from tests.od_core.ledger.ledger_rows import rows
from tests.od_core.oracles.found_levels import Level, Node, Released, divergence, release
from tests.od_core.oracles.stability import ball
from tests.od_core.published.test_verify_spending import verify_spending

STATES = Geography.from_frame(
    pd.DataFrame([("S", "GA"), ("S", "FL"), ("W", "CA")], columns=["region", "state"], dtype="str"), ["region", "state"]
)
AIRPORT = {"airport": None}
ORDERS = ("destination", "origin", "both")
BUDGET = Budget(epsilon=1, delta="1e-6")


def planned(**changes) -> ReleasePlan:
    given = {"unit": PrivacyUnit("trip"), "budget": BUDGET, "mechanism": "inftda_stability", "found": AIRPORT}
    return plan_release(changes.pop("geography", STATES), **given | {"acceptance": NO_FAULTS} | changes)


def levels_of(plan: ReleasePlan, public: list[tuple[str, ...]]) -> list[Level]:
    """The levels below the root, with the noise that a plan states."""
    tree, levels = plan.tree, []
    for step in plan.steps:
        if step.level:
            facts = step.noise_facts
            own = Fraction(facts["scale"]), facts.get("threshold"), tree.list_divided_sides(step.level), tuple(public)
            levels.append(Level(*tree.level_pair(step.level), *own))
    return levels


def path_of(code: str, geography: Geography, found: FoundLevels) -> tuple[str, ...]:
    """The areas of a zone, by the rule."""
    above = next((path for path in paths_of(geography) if path and code.startswith(path[-1])), ())
    return (*above, *(code[:number] for number in found.characters), code)


def paths_of(geography: Geography) -> list[tuple[str, ...]]:
    columns = [np.array(geography.codes[k])[geography.ancestors(k)] for k in range(1, geography.depth + 1)]
    return [tuple(path) for path in zip(*columns, strict=True)] or [()]


def world(random: Random) -> tuple[Geography, FoundLevels, pd.DataFrame]:
    """Public levels or none, found levels, and trips of which many are few."""
    inner = random.choice([(), (2,), (2, 3)])
    names = ("area", "town", "zone")[-len(inner) - 1 :]
    if random.random() < 0.5:
        geography = Geography.whole()
        codes = ["".join(random.choice("ab") for _ in range(random.randint(4, 5))) for _ in range(6)]
    else:
        geography = STATES
        inner = tuple(number + 1 for number in inner)
        state = random.choice
        codes = [state(["GA", "FL", "CA"]) + "".join(random.choice("12") for _ in range(3)) for _ in range(6)]
    flows = [(random.choice(codes), random.choice(codes), random.choice([1, 2, 9, 30, 80])) for _ in range(12)]
    table = pd.DataFrame(flows, columns=["origin", "destination", "trips"])
    return geography, FoundLevels(names, inner), table


def codes_of(nodes: dict[Node, int]) -> dict[tuple[str, str], int]:
    return {(o[-1] if o else "all", d[-1] if d else "all"): value for (o, d), value in nodes.items()}


def table_of(frame: pd.DataFrame, column: str) -> dict[tuple[str, str], int]:
    return {(o, d): value for o, d, value in zip(frame["origin"], frame["destination"], frame[column], strict=True)}


class RecordedLaplace(ListedLaplace):
    """Listed noise, and the scales that were asked for."""

    def __init__(self, values: list[int]) -> None:
        super().__init__(values)
        self.scales: list[Fraction] = []

    def draw_laplace(self, scale, size):
        self.scales.append(scale)
        return super().draw_laplace(scale, size)


@pytest.mark.parametrize("seed", range(120))
def test_a_release_is_what_its_definition_says(seed):
    """All measurements, in order, and all flows; of both trees and relations, with and without public levels."""
    random = Random(seed)  # noqa: S311  # test data
    geography, found, flows = world(random)
    values = [random.randint(-12, 12) for _ in range(17)]
    unit = PrivacyUnit("trip", random.choice(["bounded", "unbounded"]))
    plan = planned(geography=geography, found=found, unit=unit, tree=ORDERS[seed % 3], budget=Budget(2, "1e-3"))
    noise = RecordedLaplace(values)
    result = release_flows(flows, plan, noise=noise)
    assert list(dict.fromkeys(noise.scales)) == list(dict.fromkeys(step.scale for step in plan.steps))
    trips: dict[Node, int] = {}
    for origin, destination, number in flows.itertuples(index=False):
        node = path_of(origin, geography, found), path_of(destination, geography, found)
        trips[node] = trips.get(node, 0) + number
    root = sum(trips.values()) + (0 if plan.publishes_total else values[0])
    assert plan.steps[-1].variance > 1  # else the projection is another one
    expected = release(
        trips,
        max(0, root),
        levels_of(plan, paths_of(geography)),
        geography.depth + len(found.levels),
        lambda size: [values[k % len(values)] for k in range(size)],
        lambda noisy, total: intopt(noisy, total).tolist(),
    )
    assert table_of(result.flows, "trips") == codes_of(expected.leaves)
    below_root = [step for step in result.plan.steps if step.level]
    for step, measured in zip(below_root, expected.measured, strict=True):
        cells = result.measurements_at(step.level)
        assert list(table_of(cells, "noisy").items()) == list(codes_of(measured).items())
    assert result.flows["trips"].sum() == max(0, root)
    check_published_areas(result, expected)
    assert result.plan.digest == plan.digest
    assert result.spent == plan.spent


def check_published_areas(result: Release, expected: Released) -> None:
    """The geographies have the areas of published nodes and remainders alone."""
    tree = result.tree
    seen = {code for nodes in expected.measured for node in nodes for path in node for code in path}
    for geography in tree.listed_sides:
        for codes in geography.codes:
            assert {code for code in codes if not code.endswith("*")} <= seen | {"all"} | {*STATES.codes[1]} | {
                *STATES.codes[2]
            }


def test_the_order_of_records_does_not_matter():
    flows = world(Random(5))[2].assign(  # noqa: S311  # test data
        origin=lambda t: "GA" + t["origin"], destination=lambda t: "CA" + t["destination"]
    )
    plan = planned(tree="both")
    one, other = (
        release_flows(table, plan, noise=ListedLaplace([3, -4, 50]))
        for table in (flows, flows.sample(frac=1, random_state=1))
    )
    pd.testing.assert_frame_equal(one.flows, other.flows)
    pd.testing.assert_frame_equal(one.measurements, other.measurements)


# Privacy


def small_worlds(m: int, bounded: bool) -> list[tuple[dict[Node, int], dict[Node, int]]]:
    """Pairs of neighbours: trips of others, and the m trips of a unit on zones with and without other trips."""
    zones = [("aa",), ("ab",), ("ac",)]
    pairs = list(itertools.product(zones[:2], zones))
    others: list[dict[Node, int]] = [{}, {(zones[0], zones[0]): 7}, {(zones[0], zones[0]): 2, (zones[0], zones[1]): 9}]
    own = [dict.fromkeys(chosen, 0) for chosen in itertools.combinations(pairs, min(m, 2))]
    contributions = []
    for trips in own:
        first, *rest = trips
        contributions += [{first: m}] + [{first: m - 1, rest[0]: 1} for _ in rest[:1] if m > 1]
    if m == 3:
        contributions.append({pairs[0]: 1, pairs[1]: 1, pairs[5]: 1})
    result = []
    for rest_of_all in others:
        for k, one in enumerate(contributions):
            two = contributions[(5 * k + 3) % len(contributions)] if bounded else {}
            result.append(
                tuple({n: rest_of_all.get(n, 0) + c.get(n, 0) for n in {*rest_of_all, *c}} for c in (one, two))
            )
    return result  # type: ignore[return-value]


def plan_of(
    m: int, relation: str, order: str, epsilon: str, delta: str
) -> tuple[ReleasePlan, list[Level], Fraction | None]:
    unit = PrivacyUnit("trip", relation) if m == 1 else PrivacyUnit("user", relation, "user", m)  # type: ignore[arg-type]
    plan = planned(geography=Geography.whole(), unit=unit, tree=order, budget=Budget(epsilon, delta))
    root = None if plan.publishes_total else Fraction(plan.steps[0].noise_facts["scale"])
    return plan, levels_of(plan, [()]), root


PROMISES = [("2", "1e-2"), ("8", "1e-6"), ("3", "0.3")]


@pytest.mark.representatives
@pytest.mark.parametrize("order", ["destination", "both"])
@pytest.mark.parametrize("relation", ["bounded", "unbounded"])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_neighbours_keep_the_promise_over_all_levels_and_outputs(epsilon, delta, m, relation, order):
    """The divergence of everything that is measured is at most the delta of the plan; both ways round."""
    plan, levels, root = plan_of(m, relation, order, epsilon, delta)
    assert (plan.spent.epsilon, plan.spent.delta) == (Fraction(epsilon), Fraction(delta))
    promised = ball(plan.spent.delta)
    for pair in small_worlds(m, relation == "bounded"):
        for one, other in (pair, pair[::-1]):
            assert divergence(one, other, levels, 1, plan.spent.epsilon, with_root=root) <= promised


LONE = {(("aa",), ("ab",)): 1}
"""One trip between zones that nobody else uses."""


@pytest.mark.parametrize("order", ["destination", "both"])
@pytest.mark.parametrize("found", [0, -1])
def test_a_threshold_that_is_one_less_breaks_the_promise(order, found):
    """At a delta near what the thresholds keep, at the first and at the last found level."""
    plan, levels, _ = plan_of(1, "bounded", order, "6", "1e-3")
    with_trip, epsilon = ({**LONE, (("b",), ("b",)): 1}, {(("b",), ("b",)): 2}), plan.spent.epsilon
    kept = divergence(*with_trip, levels, 1, epsilon)
    assert kept <= ball(plan.spent.delta)
    worse = list(levels)
    worse[found] = replace(worse[found], threshold=worse[found].threshold - 1)
    assert divergence(*with_trip, worse, 1, epsilon) > kept + ball(plan.spent.delta / 4)


def test_the_delta_of_every_found_level_is_needed():
    """Without one of them, less would be charged than neighbours show."""
    plan, levels, _ = plan_of(1, "bounded", "destination", "6", "1e-3")
    deltas = [step.charge.delta for step in plan.steps if isinstance(step, ThresholdStep)]
    assert len(deltas) == 2
    shown = divergence({**LONE, (("b",), ("b",)): 1}, {(("b",), ("b",)): 2}, levels, 1, plan.spent.epsilon)
    assert ball(sum(deltas) - min(deltas)) < shown <= ball(sum(deltas))


@given(
    st.sampled_from([1, 3]),
    st.sampled_from(["bounded", "unbounded"]),
    st.sampled_from(ORDERS),
    st.sampled_from([{"airport": None}, {"town": 3, "airport": None}]),
    st.fractions(Fraction(1, 10), 10, max_denominator=100),
)
def test_epsilon_and_delta_are_charged_whole_and_thresholds_are_the_least(m, relation, order, found, epsilon):
    unit = PrivacyUnit("user", relation, "user", m)
    plan = planned(unit=unit, tree=order, found=found, budget=Budget(epsilon, "1e-7"))
    check_charges(plan)
    charges = [step.charge for step in plan.steps]
    assert sum(charge.epsilon for charge in charges) == epsilon == plan.charge.epsilon == plan.spent.epsilon
    assert sum(charge.delta for charge in charges) == Fraction(1, 10**7) == plan.charge.delta == plan.spent.delta
    thresholds = [step for step in plan.steps if isinstance(step, ThresholdStep)]
    assert len(thresholds) == len(found) * (1 if order == "both" else 2)
    for step in thresholds:
        least = compute_stability_threshold(unit, step.charge.epsilon, step.charge.delta)
        assert step.threshold == least
    assert [plan.tree.finds_areas(step.level) for step in plan.steps if step.level] == [
        isinstance(step, ThresholdStep) for step in plan.steps if step.level
    ]


@pytest.mark.parametrize("forged", ["threshold", "delta"])
def test_the_check_of_charges_finds_what_does_not_keep_the_promise(forged):
    plan = planned()
    last = plan.steps[-1]
    wrong = replace(last, threshold=last.threshold - 1) if forged == "threshold" else replace(last, delta=Fraction(0))
    steps = (*plan.steps[:-1], wrong)
    plan.__dict__.update({"_table_steps": steps, "steps": steps})
    with pytest.raises(OdError, match=r"OD-CHARGE|OD-BUDGET-DELTA"):
        check_charges(plan)


def shown(flows: pd.DataFrame, plan: ReleasePlan, folder: Path) -> tuple[list, dict[str, bytes], list]:
    """All that a release shows: its tables, the stored draws, and what the ledger says of draws; without noise."""
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.declare(PrivacyDomain("trips", plan.unit, Cap(epsilon=9, delta="1e-5"), "a test"))
    result = release_flows(flows, plan, ledger=ledger, release_id="trips/2001-06/r1")
    tables = [
        result.flows,
        result.measurements,
        *(side.codes for side in result.tree.listed_sides),
        str(result),
        repr(result),
    ]
    texts = [table.to_csv() if isinstance(table, pd.DataFrame) else table for table in tables]
    files = {
        file.name: file.read_bytes() for file in sorted((folder / "confidential").rglob("*.parquet")) if file.is_file()
    }
    assert len(files) == len(plan.steps)
    assert not any(code in pickle.dumps(result) for code in (b"GAAAA", b"CAAAA", b"ZZ", b"GA000", b"CA001"))
    entries = [(row["kind"], row["level"], json.loads(row["content"]).get("sha256")) for row in rows(ledger.path)]
    return texts, files, entries


def without_noise(self, scale, size):
    return np.zeros(size, dtype=np.int64)


@pytest.mark.parametrize("order", ORDERS)
def test_zones_that_are_not_published_are_nowhere(order, tmp_path, monkeypatch):
    """Trips of dropped zones become trips of other and of more dropped zones: no byte of a release changes.

    Their order, number and names would show in numbers of areas, in sizes and in digests.
    """
    monkeypatch.setattr(OpenDPNoise, "draw_laplace", without_noise)
    many = [("GAATL", "CALAX", 5000), ("GAATL", "GASAV", 700), ("CALAX", "GAATL", 4000)]
    hidden = [("GAAAA", "CAAAA", 2), ("GAAAA", "CAZZZ", 2)]
    others = [("GAZZZ", "CAZZ1", 1), ("GAZZ2", "CAZZ3", 1), ("GA000", "CA001", 1), ("GA00000", "CAÄÖÜ", 1)]
    found = {"town": 4, "airport": None} if order == "both" else AIRPORT
    plan = planned(tree=order, found=found)
    results = [
        shown(pd.DataFrame(many + few, columns=["origin", "destination", "trips"]), plan, tmp_path / name)
        for name, few in (("one", hidden), ("other", others))
    ]
    assert results[0] == results[1]
    assert not any(b"ZZ" in data for data in results[0][1].values())


# The rule of codes


words = st.text("AB* ", min_size=0, max_size=6)


@given(
    codes=st.sets(words, max_size=6),
    code=words,
    is_public=st.booleans(),
    characters=st.sampled_from([(), (2,), (2, 4)]),
)
@example(codes={"AABBB"}, code="AA*", is_public=False, characters=(2, 4))
@example(codes={"AABBB"}, code="AAB*", is_public=True, characters=(2, 4))
@example(codes={"AABBB"}, code="AABB*", is_public=True, characters=(2, 4))
@example(codes=set(), code="A BB", is_public=False, characters=(2,))
@example(codes=set(), code="A-=BB", is_public=True, characters=(2,))
def test_whether_a_code_has_a_zone_depends_on_the_code_alone(codes, code, is_public, characters):
    """Otherwise a record would be counted, or not, because of another one."""
    found = FoundLevels(("x", "y", "z")[: len(characters) + 1], characters)
    public = Geography.from_frame(pd.DataFrame({"letter": ["A", "B"]}), ["letter"]) if is_public else Geography.whole()
    alone, together = found.extend(public, [code]), found.extend(public, {*codes, code})
    assert (code in alone.zones) == (code in together.zones)
    assert {*alone.zones} <= {*together.zones}
    own = [[path for path in paths_of(geography) if path[-1] == code] for geography in (alone, together)]
    assert own[0] == own[1]
    assert found.select_public(together).codes == public.codes


def test_records_whose_code_breaks_the_rule_are_faults():
    flows = pd.DataFrame([("GAATL", "CALAX"), ("XXATL", "CALAX"), ("GA", "CALAX")], columns=["origin", "destination"])
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as error:
        release_flows(flows, planned(), noise=ListedLaplace([0]))
    assert "ATL" not in str(error.value)


def test_records_without_an_area_go_to_the_remainder_of_the_unknown_area():
    areas = pd.DataFrame({"state": ["CA", "GA", "elsewhere"]}, dtype="str")
    elsewhere = Geography.from_frame(areas, ["state"], unknown="elsewhere")
    flows = pd.DataFrame([("GAATL", "XX", 900), ("", "CALAX", 80)], columns=["origin", "destination", "trips"])
    plan = planned(geography=elsewhere, acceptance=Acceptance(Fraction(1)), tree="both")
    assert plan.publishes_total
    result = release_flows(flows, plan, noise=ListedLaplace([0]))
    table = table_of(result.flows, "trips")
    assert table == {("GAATL", "elsewhere*"): 900, ("elsewhere*", "CALAX"): 80}


def test_counts_by_one_hierarchy_can_have_found_levels():
    table = pd.DataFrame({"area": ["A1x", "A1y", "B2z"], "count": [500, 4, 900]})
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(8, "1e-6"), "mechanism": "inftda_stability"}
    found = {"letter": 1, "class": 2, "item": None}
    result = release_counts(table, Geography.whole(), **given, found=found, noise=ListedLaplace([0]))
    assert dict(result.counts.itertuples(index=False)) == {"A1*": 4, "A1x": 500, "B2z": 900}
    assert dict(result.counts_at("letter").itertuples(index=False)) == {"A": 504, "B": 900}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"found": None}, "OD-FOUND-LEVELS"),
        ({"mechanism": "inftda"}, "OD-FOUND-LEVELS"),
        ({"mechanism": "inftda_refined"}, "OD-FOUND-LEVELS"),
        ({"found": {"airport": 3}}, "OD-FOUND-LEVELS"),
        ({"found": {"town": None, "airport": None}}, "OD-FOUND-LEVELS"),
        ({"found": {"town": 2, "airport": None}}, "OD-FOUND-LEVELS"),
        ({"found": {"town": 4, "place": 3, "airport": None}}, "OD-FOUND-LEVELS"),
        ({"found": {}}, "OD-FOUND-LEVELS"),
        ({"found": {"state": None}}, "OD-GEOGRAPHY-LEVELS"),
        ({"geography": Geography.from_frame(pd.DataFrame({"s": ["GA", "C"]}), ["s"])}, "OD-FOUND-LEVELS"),
        ({"geography": Geography.from_frame(pd.DataFrame({"s": ["GA", "C*"]}), ["s"])}, "OD-FOUND-LEVELS"),
        ({"geography": Geography.whole(), "destination_geography": STATES}, "OD-FOUND-LEVELS"),
        ({"budget": Budget(1, "1e-6", shares="geography")}, "OD-FOUND-LEVELS"),
        ({"budget": Budget(rho=1, delta="1e-6")}, "OD-BUDGET-KIND"),
        ({"budget": Budget(1)}, "OD-BUDGET-KIND"),
        ({"unit": PrivacyUnit("trip", max_weight=3)}, "OD-FOUND-LEVELS"),
        ({"segments": {"mode": ["car", "bus"]}}, "OD-FOUND-LEVELS"),
    ],
)
def test_what_is_refused(changes, code):
    with pytest.raises(OdError) as error:
        planned(**changes)
    assert error.value.code == code


def test_a_release_has_no_intervals_and_no_evaluation_and_replans_from_its_published_areas():
    flows = pd.DataFrame([("GAATL", "CALAX", 900)], columns=["origin", "destination", "trips"])
    result = release_flows(flows, planned(), noise=SeededLaplace(1))
    with pytest.raises(OdError, match="OD-"):
        result.flows_at("state", "state", interval=True)
    with pytest.raises(OdError, match="OD-FOUND-LEVELS"):
        evaluate(result, flows)
    other = result.plan.replan(PrivacyUnit("trip", "unbounded"), Budget(2, "1e-5"))
    assert other.digest == planned(unit=other.unit, budget=other.budget).digest
    again = ReleasePlan.from_facts(result.plan.stored_facts, result.tree.origin, result.tree.destination)
    assert again.digest == result.plan.digest
    assert InfTDAStability().options == {"order": "ascending"}


# The ledger


def test_each_level_is_charged_and_a_repeated_call_reads_the_draws(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    plan = planned(unit=PrivacyUnit("trip", "unbounded"), tree="both")
    ledger.declare(PrivacyDomain("trips", plan.unit, Cap(epsilon=9, delta="1e-5"), "a test"))
    flows = pd.DataFrame([("GAATL", "CALAX", 900), ("GASAV", "CALAX", 300)], columns=["origin", "destination", "trips"])
    given = {"ledger": ledger, "release_id": "trips/2001-06/r1"}
    one = release_flows(flows, plan, **given)
    reserved = [row for row in rows(ledger.path) if row["kind"] == "RESERVED"]
    assert sum(Fraction(row["epsilon"]) for row in reserved) == 1
    assert sum(Fraction(row["delta"]) for row in reserved) == Fraction(1, 10**6)
    assert one.spent == plan.spent
    history = rows(ledger.path)
    again = release_flows(flows, plan, **given)
    pd.testing.assert_frame_equal(one.flows, again.flows)
    pd.testing.assert_frame_equal(one.measurements, again.measurements)
    assert rows(ledger.path) == history
    assert list_faults(ledger.path) == []
    renamed = flows.replace("GASAV", "GASAW")  # the same counts, at the same positions
    with pytest.raises(OdError, match="OD-REPLAY-INPUT-CHANGED"):
        release_flows(renamed, plan, **given)


def list_faults(path: Path, forge: Callable[[dict], None] | None = None) -> list[str]:
    """What the second verifier finds in a ledger, after an edit of what each reservation states of its level."""
    entries = verify_spending.ledger_entries(path)
    for entry in entries:
        if forge is not None and entry["kind"] == "RESERVED":
            forge(entry["facts"])
            for step in entry["facts"]["plan"]["steps"]:
                forge(step)
    looks = (verify_spending.chain_faults, verify_spending.charge_faults, verify_spending.cap_faults)
    return [fault for look in looks for fault in look(entries)]


def lower_threshold(facts: dict) -> None:
    if "threshold" in facts:
        facts["threshold"] -= 1


def halve_scale(facts: dict) -> None:
    facts["scale"] = str(Fraction(facts["scale"]) / 2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("unit", [PrivacyUnit("trip"), PrivacyUnit("user", "unbounded", "user", 3)])
def test_the_second_verifier_recomputes_every_charge(unit, order, tmp_path, monkeypatch):
    """From unit, noise and thresholds alone; less noise and a threshold that is one less are found."""
    monkeypatch.setattr(OpenDPNoise, "draw_laplace", without_noise)
    ledger, plan = Ledger(tmp_path / "ledger.sqlite"), planned(unit=unit, tree=order)
    ledger.declare(PrivacyDomain("trips", unit, Cap(epsilon=9, delta="1e-5"), "a test"))
    flows = pd.DataFrame({"origin": ["GAATL", "GASAV"] * 3, "destination": ["CALAX"] * 6, "user": [*"aaabbb"]})
    flows = flows.drop(columns="user") if unit.kind == "trip" else flows
    release_flows(flows, plan, ledger=ledger, release_id="trips/2001-06/r1")
    assert list_faults(ledger.path) == []
    found = sum(isinstance(step, ThresholdStep) for step in plan.steps)
    assert sum("was charged" in fault for fault in list_faults(ledger.path, lower_threshold)) == found
    assert sum("was charged" in fault for fault in list_faults(ledger.path, halve_scale)) == len(plan.steps)
