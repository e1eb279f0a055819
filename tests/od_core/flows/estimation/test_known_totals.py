"""Known totals of zones: estimates against dense least squares, and whole numbers that keep exact ones."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.linalg import null_space

from od_core import (
    Budget,
    Geography,
    KnownTotals,
    OdError,
    PossiblePairs,
    PrivacyUnit,
    Release,
    ReleasePlan,
    open_release,
    plan_release,
    release_flows,
)
from od_core.evaluation.forecast import forecast
from od_core.evaluation.known_flows import KnownFlows, make_generator
from od_core.flows.estimation.area_totals import include_area_totals
from od_core.flows.estimation.least_squares import build_measured_levels, fit_measured_levels
from od_core.flows.estimation.levels import combine_totals, list_side_totals
from od_core.flows.known_totals import SIDES
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.projection.onto_area_totals import EstimatedTotals, hold_exact_totals
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Pairs
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.doubles import SeededLaplace, SeededNoise
from tests.od_core.ledger import ledger_rows
from tests.od_core.oracles.intervals import random_zones
from tests.od_core.publication.examples import KEY, facts, publish_bundle, released_trips
from tests.od_core.strategies import geography_of

ERRORS = [("0", None), (None, "0"), ("1/50", None), (None, "1/5"), ("0", "1/10"), ("1/50", "1/5"), ("0", "0")]
"""Stated errors of the known totals of both sides; None for a side without."""


def sides_of(random: Random, most: int = 3) -> tuple[Geography, Geography]:
    """Two geographies with as many levels, which may be the same."""
    while True:
        depth = random.choice([1, 2, 3])
        origins = geography_of(random_zones(random, depth, most))
        others = origins if random.random() < 0.5 else geography_of(random_zones(random, depth, most, "other "))
        if min(len(origins.zones), len(others.zones)) > 1:
            return origins, others


def known_of(trips: NDArray[np.int64], errors: tuple[str | None, str | None], seed: int) -> list[KnownTotals]:
    """Known totals of a table of trips by zones, with errors as large as stated."""
    known, generator = [], make_generator(seed)
    for axis, (side, error) in enumerate(zip(SIDES, errors, strict=True)):
        if error is not None:
            true = trips.sum(axis=1 - axis)
            given = np.maximum(true * (1 + float(Fraction(error)) * generator.standard_normal(len(true))), 0)
            known.append(KnownTotals(side, given if Fraction(error) else true.astype(float), Fraction(error)))
    return known


def counted(plan: ReleasePlan, trips: NDArray[np.int64]) -> TripCounts:
    """The counts of a table of trips by zones."""
    origin, destination = (end.astype(np.int32) for end in np.nonzero(np.ones_like(trips)))
    return TripCounts.from_pairs(plan.tree, origin, destination, trips.ravel())


def released(seed: int, errors: tuple[str | None, str | None], most: int = 3, **changes: Any) -> Release:
    """A release of random trips with seeded noise and known totals."""
    random = Random(seed)  # noqa: S311  # test data
    origins, destinations = sides_of(random, most)
    trips = make_generator(seed).integers(0, 30, (len(origins.zones), len(destinations.zones)))
    trips *= make_generator(seed + 1).integers(0, 2, trips.shape)
    order = random.choice(["destination", "origin", "both"])
    is_laplace = order == "both" and random.random() < 0.5
    mechanism = changes.pop("mechanism", {}) | ({"noise_distribution": "laplace"} if is_laplace else {})
    options: dict[str, Any] = {
        "unit": PrivacyUnit("trip", random.choice(["bounded", "unbounded"])),
        "budget": Budget("1", 0 if is_laplace else "1e-6"),
        "acceptance": NO_FAULTS,
        "tree": order,
        "mechanism": InfTDARefined(**mechanism),
        "known": known_of(trips, errors, seed),
    }
    plan = plan_release(origins, destination_geography=destinations, **options | changes)
    noise = SeededLaplace(seed) if is_laplace else SeededNoise(seed)
    return run_plan(plan, counted(plan, trips), noise, MemoryMeasurements())


def pairs_below(release: Release, levels: tuple[int, int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The areas of two levels where each pair of zones begins and ends; pairs are in the order of origins."""
    tree = release.tree
    ends = np.nonzero(np.ones((len(tree.origin.zones), len(tree.destination.zones))))
    return tree.origin.ancestors(levels[0])[ends[0]], tree.destination.ancestors(levels[1])[ends[1]]


def cells_below(release: Release, cells: Pairs, levels: tuple[int, int]) -> NDArray[np.float64]:
    """1 for each pair of zones in each of some cells of two levels; shape (cells, pairs)."""
    origin, destination = pairs_below(release, levels)
    inside = (cells.origin[:, None] == origin) & (cells.destination[:, None] == destination)
    return np.asarray(inside, dtype=np.float64)


def fit_densely(release: Release, *, with_known: bool = True) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best linear unbiased estimates of all pairs of zones, and their covariances, from all that is known."""
    plan = release.plan
    pairs = len(plan.tree.origin.zones) * len(plan.tree.destination.zones)
    rows, noisy, variance = [np.zeros((0, pairs))], [np.zeros(0)], [np.zeros(0)]
    fixed, exact = [np.zeros((0, pairs))], [np.zeros(0)]
    for measurement in release.measured:
        for cells, values in measurement.iterate_pieces(plan):
            rows.append(cells_below(release, cells, plan.tree.level_pair(cells.level)))
            noisy.append(values.astype(np.float64))
            variance.append(np.full(len(values), float(measurement.step.variance)))
    ends = pairs_below(release, (plan.tree.origin.depth, plan.tree.destination.depth))
    for totals in plan.known if with_known else ():
        own = (np.arange(len(totals.trips))[:, None] == ends[totals.number]).astype(float)
        has_error = totals.trips * float(totals.error) > 0
        rows.append(own[has_error])
        noisy.append(totals.trips[has_error])
        variance.append((totals.trips[has_error] * float(totals.error)) ** 2)
        fixed.append(own[~has_error])
        exact.append(totals.trips[~has_error])
    if plan.publishes_total:
        fixed.append(np.ones((1, pairs)))
        exact.append(np.array([release.leaves.trips.sum()]))
    design, weight = np.concatenate(rows), 1 / np.concatenate(variance)
    held, sums = np.concatenate(fixed), np.concatenate(exact)
    start, free = (np.linalg.pinv(held) @ sums, null_space(held)) if len(held) else (np.zeros(pairs), np.eye(pairs))
    information = design.T @ (design * weight[:, None])
    shared = free @ np.linalg.inv(free.T @ information @ free) @ free.T
    return start + shared @ (design.T @ (weight * (np.concatenate(noisy) - design @ start))), shared


@pytest.mark.parametrize("errors", ERRORS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_estimates_and_variances_of_all_cells_are_those_of_dense_least_squares(seed, errors):
    """Of each node of the tree; and of each cell at every pair of levels, as a weighted sum."""
    release = released(seed, errors)
    plan, tree = release.plan, release.tree
    best, shared = fit_densely(release)
    levels = build_measured_levels(plan, int(release.leaves.trips.sum()), combine_totals(plan, release.measured))
    fitted, _ = include_area_totals(plan, levels, list_side_totals(plan, {}))
    near = 1e-6 * max(1, np.abs(best).max())
    for level in fit_measured_levels(fitted):
        sums = cells_below(release, level.nodes, tree.level_pair(level.nodes.level))
        np.testing.assert_allclose(level.estimate, sums @ best, rtol=0, atol=near)
    ends = pairs_below(release, (tree.origin.depth, tree.destination.depth))
    codes = [np.array(side.zones)[end] for side, end in zip((tree.origin, tree.destination), ends, strict=True)]
    random = Random(seed)  # noqa: S311  # test data
    for pair in np.ndindex(tree.origin.depth + 1, tree.destination.depth + 1):
        cells = Pairs(0, *(one.astype(np.int32) for one in tree.list_area_pairs(*pair)))
        inside = cells_below(release, cells, pair)
        for weights in inside[random.sample(range(len(inside)), min(3, len(inside)))]:
            table = pd.DataFrame({"origin": codes[0], "destination": codes[1], "weight": weights})
            found = release.weighted_sum(table)
            assert found.value == pytest.approx(weights @ best, abs=near)
            assert found.deviation**2 == pytest.approx(weights @ shared @ weights, rel=1e-6, abs=1e-4)


def sums_by_zone(release: Release, side: int) -> NDArray[np.int64]:
    """Released trips that begin, or that end, in each zone."""
    leaves, geography = release.leaves, (release.tree.origin, release.tree.destination)[side]
    ends = (leaves.origin, leaves.destination)[side]
    return np.bincount(ends, leaves.trips, len(geography.zones)).astype(np.int64)


@pytest.mark.parametrize("estimate", ["least_squares", "auto", "shrunk"])
@pytest.mark.parametrize("errors", [errors for errors in ERRORS if "0" in errors], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_whole_numbers_keep_exact_totals(seed, errors, estimate, small_levels_learn):
    """Beside the number of all trips, where this is exact; all trips are at least 0, as sums over all pairs are."""
    release = released(seed, errors, most=4, mechanism={"estimate": estimate})
    for totals in release.plan.known:
        if totals.is_exact:
            assert sums_by_zone(release, totals.number).tolist() == totals.trips.tolist()
    assert release.leaves.trips.min(initial=1) >= 1


def spread_of_tree(release: Release, level: int, side: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimates of the totals of the areas of a side by the tree alone, and their variances, densely."""
    best, shared = fit_densely(release, with_known=False)
    pair = (0, level) if side else (level, 0)
    tree = release.tree
    inside = cells_below(release, Pairs(0, *(one.astype(np.int32) for one in tree.list_area_pairs(*pair))), pair)
    return inside @ best, np.einsum("ij,jk,ik->i", inside, shared, inside)


@pytest.mark.parametrize("errors", ERRORS[:-1], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_an_interval_of_a_total_is_of_the_mean_of_the_tree_and_of_the_known_totals(seed, errors):
    """By inverse variances, of each area of a level; and of all trips, of which both sides may know the sum."""
    release = released(seed, errors)
    known = {totals.number: totals for totals in release.plan.known}
    for side, geography in enumerate((release.tree.origin, release.tree.destination)):
        for level in range(geography.depth + 1):
            estimate, variance = spread_of_tree(release, level, side)
            for one in known if level == 0 else [side] if side in known else []:
                of_side = (release.tree.origin, release.tree.destination)[one]
                areas = of_side.ancestors_at(of_side.depth, level if one == side else 0)
                measured = np.bincount(areas, known[one].trips)
                own = np.bincount(areas, known[one].variances)
                part = np.divide(variance, variance + own, out=np.zeros_like(own), where=variance + own > 1e-9)
                estimate, variance = estimate + part * (measured - estimate), part * own
            pair = (0, level) if side else (level, 0)
            origin, destination, found = release.fitted.estimate_cells_with_totals(*pair)
            order = np.argsort(destination if side else origin)
            np.testing.assert_allclose(found.estimate[order], estimate, atol=1e-4)
            np.testing.assert_allclose(found.variance[order], variance, atol=1e-4)


def test_trips_move_until_exact_totals_are_met_whenever_that_is_possible():
    """Of a few areas of one or both sides, on tables built so that they can be met; nodes keep their sums."""
    met = set()
    for seed in range(400):
        random = Random(seed)  # noqa: S311  # test data
        # Two areas of a side are divided into two and one; both sides are, or the columns stay as they are.
        groups = [np.array([0, 0, 1]), np.array([0, 0, 1]) if seed % 2 else np.array([0, 1])]
        pairs = np.array([*product(range(3), range(len(groups[1])))])
        nodes = groups[0][pairs[:, 0]] * 2 + groups[1][pairs[:, 1]]
        order = np.argsort(nodes, kind="stable")
        area = {0: pairs[order, 0], 1: pairs[order, 1]} if seed % 2 else {0: pairs[order, 0]}
        runs = np.append(0, np.cumsum(np.bincount(nodes)))
        trips = np.array([random.randint(0, 3) for _ in order], dtype=np.int64)
        sums = np.add.reduceat(trips, runs[:-1])
        is_possible = random.random() < 0.7
        wanted = np.array([random.randint(0, 3) for _ in order])
        if is_possible:  # totals of a table with the same sums of nodes
            for node, (first, last) in enumerate(pairwise(runs)):
                share = random.randint(0, int(sums[node]))
                wanted[first:last] = 0
                wanted[first] += share
                wanted[random.randint(first, last - 1)] += sums[node] - share
        totals = {side: np.bincount(own, wanted).astype(float) for side, own in area.items()}
        of_areas = EstimatedTotals.from_sides([(side, t, np.zeros(len(t))) for side, t in totals.items()])
        before, estimate = trips.copy(), trips + np.array([random.uniform(-1, 1) for _ in order])
        hold_exact_totals(trips, estimate, runs, area, of_areas)
        assert trips.min() >= 0
        assert np.add.reduceat(trips, runs[:-1]).tolist() == sums.tolist()
        found = all(np.bincount(own, trips).tolist() == totals[side].tolist() for side, own in area.items())
        assert found or not is_possible
        met.add((found, bool((before != trips).any()), bool(seed % 2)))
    assert {(True, True, False), (True, True, True), (False, True, True)} <= met


REGIONS = [(f"r{k // 4}", f"z{k:02}") for k in range(12)]


GEOGRAPHY = geography_of([("a", "a1"), ("a", "a2"), ("b", "b1")])
GATES = pd.DataFrame({"area": ["a1", "a2", "b1"], "trips": [2, 1, 1]})
RECORDS = pd.DataFrame({"origin": ["a1", "a1", "a2", "b1"], "destination": ["a2", "b1", "b1", "a1"]})
GIVEN: dict[str, Any] = {"unit": PrivacyUnit("trip", "bounded"), "budget": Budget("1", "1e-6")}


def known_gates(table: pd.DataFrame = GATES, error: str = "0", side: Any = "origin", **given: Any) -> KnownTotals:
    return KnownTotals.from_frame(table, GEOGRAPHY, side=side, error=error, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"table": GATES.iloc[:2]},
        {"table": pd.concat([GATES, GATES])},
        {"table": GATES.assign(area=["a1", "a2", "c1"])},
        {"table": GATES.assign(trips=[2, 1, -1])},
        {"table": GATES.assign(trips=["2", "1", "many"])},
        {"table": GATES.assign(trips=[2.0, 1.0, np.nan])},
        {"table": GATES.assign(trips=[2.0, 1.0, np.inf])},
        {"table": GATES.assign(trips=[2.0, 1.5, 0.5])},
        {"table": GATES.assign(trips=[2, 1, 1 << 54])},
        {"table": GATES.drop(columns="trips")},
        {"table": GATES.drop(columns="area")},
        {"error": "-1/100"},
        {"error": "2"},
        {"level": "county"},
        {"level": "level_1"},
        {"side": "both"},
    ],
)
def test_bad_tables_of_known_totals_are_refused(given):
    with pytest.raises(OdError, match="OD-KNOWN-TOTALS"):
        known_gates(**given)


def test_codes_and_numbers_may_be_text_and_in_any_order():
    table = GATES.astype(str).iloc[::-1]
    assert known_gates(table, level="level_2").trips.tolist() == [2, 1, 1]
    with pytest.raises(OdError, match="OD-BUDGET-NUMBER"):
        known_gates(error="two per cent")


@pytest.mark.parametrize(
    "given",
    [
        {"known": [known_gates(), known_gates()]},
        {"known": [known_gates(), known_gates(GATES.assign(trips=[2, 1, 2]), side="destination")]},
        {"known": KnownTotals("origin", np.ones(2), Fraction(0))},
        {"known": known_gates(), "area_totals": "1/10"},
        {"known": known_gates(), "possible": PossiblePairs.from_rule(GEOGRAPHY, GEOGRAPHY, within_zone=False)},
        {"known": known_gates(), "segments": {"mode": ["car", "bus"]}},
        {"known": known_gates(), "mechanism": "inftda"},
        {"known": known_gates(), "mechanism": "stability_histogram"},
        {"known": known_gates(), "mechanism": InfTDARefined(keep_all_cap=2)},
        {"known": known_gates(), "mechanism": InfTDARefined(leaves="empirical_bayes")},
        {"known": known_gates(), "destination_geography": Geography.whole()},
        {
            "known": known_gates(),
            "unit": PrivacyUnit("user_year", "bounded", "user", 2, max_trips_year=9, id_pattern="[0-9]{9}"),
        },
    ],
)
def test_what_cannot_be_is_refused(given):
    with pytest.raises(OdError, match="OD-KNOWN-TOTALS"):
        plan_release(GEOGRAPHY, **GIVEN | given)


@pytest.mark.parametrize("noise", ["table", "opendp"])
def test_exact_totals_that_do_not_sum_to_an_exact_number_of_trips_are_refused_before_a_draw(noise):
    """Where the number of trips is not exact, they say what it is."""
    other = known_gates(GATES.assign(trips=[2, 2, 1]))
    with pytest.raises(OdError, match="OD-KNOWN-TOTALS") as refused:
        release_flows(RECORDS, GEOGRAPHY, known=other, fault_threshold=0, one_row_a_trip=True, noise=noise, **GIVEN)
    assert refused.value.spent == "nothing was spent"
    for known in (known_gates(), known_gates(GATES.assign(trips=[2, 2, 1]), error="1/2")):
        release = release_flows(RECORDS, GEOGRAPHY, known=known, fault_threshold=0, one_row_a_trip=True, **GIVEN)
        assert release.leaves.trips.sum() == 4
    given = GIVEN | {"unit": PrivacyUnit("trip", "unbounded")}
    release = release_flows(RECORDS, GEOGRAPHY, known=other, fault_threshold=0, one_row_a_trip=True, **given)
    assert release.leaves.trips.sum() == 5
    assert tuple(release.trips_between("all", ["all"], "all", ["all"])) == (5, 5, 5)


def test_known_totals_cost_nothing():
    plans = [plan_release(GEOGRAPHY, known=known, **GIVEN) for known in (None, known_gates())]
    assert plans[0].steps == plans[1].steps
    assert plans[0].spent == plans[1].spent
    assert plans[0].digest != plans[1].digest
    facts_of_plan = plans[1].facts()["known"]
    assert facts_of_plan == [{"side": "origin", "error": "0", "digest": known_gates().digest}]


def test_a_forecast_of_other_trips_leaves_known_totals_out():
    table = KnownFlows.from_frame("records", "public", RECORDS, GEOGRAPHY)
    plans = [plan_release(GEOGRAPHY, known=known, **GIVEN) for known in (None, known_gates(GATES.assign(trips=900)))]
    pd.testing.assert_frame_equal(*(forecast(plan, table, runs=2) for plan in plans))


def published_of(tmp_path: Any) -> Release:
    """A release of two regions with five zones and known totals of both sides; its bundle is in ``r1``."""
    zones = ledger_rows.GEOGRAPHY.zones
    true = {side: ledger_rows.FLOWS.groupby(side)["trips"].sum().reindex(list(zones), fill_value=0) for side in SIDES}
    known = []
    for side, error, far in (("origin", "0", 0.0), ("destination", "1/50", 9e5)):
        table = pd.DataFrame({"area": zones, "trips": true[side].to_numpy()})
        if far:
            table["trips"] = table["trips"] * 1.01 + 0.5
            table.loc[table["area"] == "ab", "trips"] += far
        known.append(
            KnownTotals.from_frame(
                table, ledger_rows.GEOGRAPHY, side=side, error=error, source="gates.csv", date="2001-06-30"
            )
        )
    made = released_trips(ledger_rows.FLOWS, ledger_rows.GEOGRAPHY, known=known)
    publish_bundle(made, facts(made), tmp_path / "r1")
    FLOWS.store(tmp_path / "release.duckdb", made, KEY, facts(made))
    return made


def test_a_bundle_has_the_known_totals_and_comes_back(tmp_path):
    """Its certificate names them as public facts, and its report names those that the measurements contradict."""
    made = published_of(tmp_path)
    for opened in (open_release(tmp_path / "r1"), open_release(tmp_path / "release.duckdb")):
        assert opened.plan.digest == made.plan.digest
        pd.testing.assert_frame_equal(
            opened.flows_at("zone", "all", interval=True), made.flows_at("zone", "all", interval=True)
        )
        again, examinations = FLOWS.recompute_release(opened, facts(made))
        assert again.leaves.trips.tolist() == made.leaves.trips.tolist()
        assert [fault for examine in examinations.values() for fault in examine()] == []
    certificate = json.loads((tmp_path / "r1" / "certificate.json").read_text(encoding="utf-8"))
    public = certificate["guarantee"]["public"]
    assert "how many trips begin in each zone, exactly (gates.csv, 2001-06-30), which was public beforehand" in public
    assert "how many trips end in each zone, with a standard error of 2 % (gates.csv, 2001-06-30)" in public
    assert [known["error"] for known in certificate["plan"]["known"]] == ["0", "1/50"]
    assert not list((tmp_path / "r1").rglob("atlas.html"))
    report = (tmp_path / "r1" / "report.html").read_text(encoding="utf-8")
    assert made.contradicted_totals["area"].tolist() == ["ab"]
    section = report[report.index("Known totals that the measurements contradict") :]
    assert '<th scope="row">ab' in section[: section.index("</table>")]
    (table,) = (tmp_path / "r1").rglob("known_totals.csv")
    listed = pd.read_csv(table)
    assert listed["side"].tolist() == ["origin"] * 5 + ["destination"] * 5
    assert listed["known"].tolist() == [n for known in made.plan.known for n in known.trips]


def test_a_bundle_with_other_known_totals_is_refused(tmp_path):
    published_of(tmp_path)
    (file,) = (tmp_path / "r1").rglob("known_totals.parquet")
    table = pd.read_parquet(file)
    table.loc[0, "known"] += 1
    table.to_parquet(file, index=False)
    with pytest.raises(OdError):
        open_release(tmp_path / "r1")


def test_leaves_that_do_not_sum_to_exact_totals_fail_the_check():
    release = released(3, ("0", None))
    assert list(FLOWS.check_invariants(release)) == []
    leaves = replace(release.leaves, trips=release.leaves.trips + 1)
    assert "the flows do not sum to the exact known totals of the origins" in [
        *FLOWS.check_invariants(replace(release, leaves=leaves))
    ]
