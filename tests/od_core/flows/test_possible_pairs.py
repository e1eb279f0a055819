"""Where the pairs that can have trips are stated, no other pair is measured, estimated or published."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.linalg import null_space

from od_core import (
    Budget,
    Geography,
    InfTDARefined,
    OdError,
    PrivacyUnit,
    Release,
    open_release,
    plan_release,
    release_flows,
)
from od_core.evaluation.known_flows import make_generator
from od_core.flows.estimation import families, shrinkage
from od_core.flows.estimation.area_totals import include_area_totals
from od_core.flows.estimation.least_squares import build_measured_levels, fit_measured_levels
from od_core.flows.estimation.levels import combine_totals, list_side_totals, select_area_totals
from od_core.flows.indicators import indicators
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.release import run_plan
from od_core.flows.step import AreaTotalStep, list_area_total_sides
from od_core.geography.flow_tree import FlowTree, Pairs
from od_core.geography.possible_pairs import PossiblePairs
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from tests.od_core.doubles import SeededLaplace, SeededNoise, no_noise
from tests.od_core.ledger import ledger_rows
from tests.od_core.oracles.intervals import random_zones
from tests.od_core.publication.examples import KEY, atlas_header, facts, publish_bundle, released_trips
from tests.od_core.strategies import geography_of

ORDERS = ("destination", "origin", "both")
TRIP = PrivacyUnit("trip", "unbounded")
MODES = ["car", "bus", "foot"]
LEAVES = InfTDARefined(leaves="empirical_bayes")


def possible_of(random: Random, origins: Geography, destinations: Geography, part: float) -> pd.DataFrame:
    """Some pairs of zones, at least one."""
    pairs = [(one, two) for one in origins.zones for two in destinations.zones if random.random() < part]
    return pd.DataFrame(pairs or [(origins.zones[0], destinations.zones[-1])], columns=["origin", "destination"])


def sides_of(random: Random) -> tuple[Geography, Geography]:
    """Two geographies with as many levels, which may be the same."""
    depth = random.choice([1, 2, 3])
    origins = geography_of(random_zones(random, depth, 3))
    return origins, origins if random.random() < 0.5 else geography_of(random_zones(random, depth, 3, "other "))


def find_areas(tree: FlowTree, possible: PossiblePairs, levels: tuple[int, int]) -> list[NDArray[np.int32]]:
    """The areas of two levels where each possible pair begins, and where it ends."""
    return [
        tree.origin.ancestors(levels[0])[possible.origin],
        tree.destination.ancestors(levels[1])[possible.destination],
    ]


def cells_below(tree: FlowTree, possible: PossiblePairs, cells: Pairs) -> NDArray[np.bool_]:
    """Whether each possible pair is in each of some cells of a level; shape (cells, pairs)."""
    origin, destination = find_areas(tree, possible, tree.level_pair(cells.level))
    return (cells.origin[:, None] == origin) & (cells.destination[:, None] == destination)


@pytest.mark.parametrize("seed", range(40))
def test_the_tree_has_the_nodes_above_possible_pairs_with_their_trips(seed):
    random = Random(seed)  # noqa: S311  # test data
    origins, destinations = sides_of(random)
    order = random.choice(ORDERS)
    table = possible_of(random, origins, destinations, random.choice([0.1, 0.5, 0.9]))
    possible = PossiblePairs.from_frame(table.sample(frac=2, replace=True, random_state=seed), origins, destinations)
    tree, whole = FlowTree(origins, destinations, order, possible), FlowTree(origins, destinations, order)
    trips = make_generator(seed).integers(0, 9, len(possible))
    counts = TripCounts.from_pairs(tree, possible.origin, possible.destination, trips)
    for level in range(tree.depth + 1):
        nodes, every = tree.list_public_nodes(level), whole.list_public_nodes(level)
        has_pairs = cells_below(tree, possible, every).any(axis=1)
        assert np.array_equal(nodes.origin, every.origin[has_pairs])
        assert np.array_equal(nodes.destination, every.destination[has_pairs])
        assert tree.cells(level) == len(nodes)
        if level == tree.depth:
            break
        chosen = np.sort(random.sample(range(len(nodes)), random.randint(1, len(nodes))))
        parents = Pairs(level, nodes.origin[chosen], nodes.destination[chosen])
        for expansion in tree.expand(parents):
            children, counted = expansion.children, np.zeros(len(expansion), dtype=np.int64)
            counts.add_to(counted, tree, expansion)
            assert counted.tolist() == (cells_below(tree, possible, children) @ trips).tolist()
            some = np.flatnonzero([random.random() < 0.5 for _ in range(len(expansion))])
            few = Pairs(children.level, children.origin[some], children.destination[some])
            assert tree.find_positions(expansion, few).tolist() == some.tolist()
            with_trips = expansion.with_trips(counted)
            kept = counted > 0
            assert with_trips.origin.tolist() == children.origin[kept].tolist()
            assert with_trips.destination.tolist() == children.destination[kept].tolist()


def released(
    seed: int, categories: int = 0, *, areas: bool = False, **changes
) -> tuple[Release, PossiblePairs, NDArray[np.int64]]:
    """A release with seeded noise, the pairs that can have trips, and the trips of each.

    By some categories, if any; and with measured ``areas`` totals, unless the tree measures them itself.
    """
    random = Random(seed)  # noqa: S311  # test data
    origins, destinations = sides_of(random)
    possible = PossiblePairs.from_frame(
        possible_of(random, origins, destinations, random.choice([0.2, 0.5, 0.9])), origins, destinations
    )
    options = {
        "unit": PrivacyUnit("trip", random.choice(["bounded", "unbounded"])),
        "budget": Budget("1", "1e-6"),
        "acceptance": NO_FAULTS,
        "tree": random.choice(ORDERS),
    }
    options |= {"destination_geography": destinations, "possible": possible}
    if options["tree"] == "both" and random.random() < 0.5 and not changes:
        options |= {"budget": Budget("1"), "mechanism": InfTDARefined(noise_distribution="laplace")}
    if categories:
        options["segments"] = {"mode": MODES[:categories]}
    options |= changes
    if areas and list_area_total_sides(FlowTree(origins, destinations, options["tree"])):
        options["area_totals"] = random.choice(["1/100", "1/10", "1/2"])
    plan = plan_release(origins, **options)
    trips = make_generator(seed).integers(0, 30, len(possible))
    counts = TripCounts.from_pairs(plan.tree, possible.origin, possible.destination, trips)
    if categories:
        divided = make_generator(seed).multinomial(trips, [1 / categories] * categories).T
        pairs = possible.origin, possible.destination
        by_mode = tuple(TripCounts.from_pairs(plan.tree, *pairs, of_mode) for of_mode in divided)
        counts = TripCounts(counts.rank, counts.before, {"mode": by_mode})
    noise = SeededLaplace(seed) if plan.mechanism.has_laplace_noise else SeededNoise(seed)
    return run_plan(plan, counts, noise, MemoryMeasurements()), possible, trips


def fit_densely(
    release: Release, possible: PossiblePairs, categories: int = 1, *, with_areas: bool = True
) -> tuple[NDArray, NDArray]:
    """The best linear unbiased estimates of all possible pairs, and their covariances, from all measured sums.

    With categories, each pair has one estimate for each of them, one after the other.
    """
    plan, pairs = release.plan, len(possible) * categories
    rows, noisy, variance = [np.zeros((0, pairs))], [np.zeros(0)], [np.zeros(0)]
    for measurement in release.measured:
        if isinstance(measurement.step, AreaTotalStep):
            if not with_areas:
                continue
            zone = (possible.origin, possible.destination)[measurement.step.side]
            values = measurement.noisy.read_values()
            rows.append(np.repeat(zone == np.arange(len(values))[:, None], categories, axis=1).astype(np.float64))
            noisy.append(values)
            variance.append(np.full(len(values), float(measurement.step.variance)))
            continue
        of_cell = np.eye(categories) if measurement.step.by_segment else np.ones((1, categories))
        for cells, values in measurement.iterate_pieces(plan, len(of_cell)):
            rows.append(np.kron(cells_below(plan.tree, possible, cells).astype(np.float64), of_cell))
            noisy.append(values)
            variance.append(np.full(len(values), float(measurement.step.variance)))
    design, weight = np.concatenate(rows), 1 / np.concatenate(variance)
    start, free = np.zeros(pairs), np.eye(pairs)
    if plan.publishes_total:  # the estimates sum to n
        start, free = np.full(pairs, release.leaves.trips.sum() / pairs), null_space(np.ones((1, pairs)))
    information = design.T @ (design * weight[:, None])
    shared = free @ np.linalg.inv(free.T @ information @ free) @ free.T
    return start + shared @ (design.T @ (weight * (np.concatenate(noisy) - design @ start))), shared


@pytest.mark.parametrize("seed", range(20))
def test_estimates_and_variances_of_all_cells_are_those_of_dense_least_squares(seed):
    """At every pair of levels; and the outflow and inflow of areas with their covariance, if sides are the same."""
    release, possible, _ = released(seed)
    best, shared = fit_densely(release, possible)
    tree, fit = release.tree, release.fitted
    leaves = np.arange(len(possible))
    for levels in np.ndindex(tree.origin.depth + 1, tree.destination.depth + 1):
        origin, destination, estimates = fit.estimate_cells(*levels)
        own = [
            tree.origin.ancestors(levels[0])[possible.origin],
            tree.destination.ancestors(levels[1])[possible.destination],
        ]
        found = {}
        for one, two, estimate, of_cell in zip(
            origin, destination, estimates.estimate, estimates.variance, strict=True
        ):
            found[int(one), int(two)] = (estimate, of_cell)
        assert {*zip(own[0].tolist(), own[1].tolist(), strict=True)} <= found.keys()
        for (one, two), (estimate, of_cell) in found.items():
            inside = leaves[(own[0] == one) & (own[1] == two)]
            assert estimate == pytest.approx(best[inside].sum(), abs=1e-4)
            assert of_cell == pytest.approx(shared[np.ix_(inside, inside)].sum(), abs=1e-4)
    if tree.same_geography:
        for level in range(1, tree.origin.depth + 1):
            areas = release.intervals.estimate_areas(level)
            own = find_areas(tree, possible, (level, level))
            for area in range(tree.origin.size(level)):
                out, into = ((own[k] == area) & (own[1 - k] != area) for k in (0, 1))
                assert areas.exchange[area] == pytest.approx(shared[np.ix_(out, into)].sum(), abs=1e-4)
                for part, weight in ((areas.outflow, out), (areas.inflow, into)):
                    assert part.estimate[area] == pytest.approx(best @ weight, abs=1e-4)
                    assert part.variance[area] == pytest.approx(weight @ shared @ weight, abs=1e-4)
                    assert part.unmeasured[area] == part.dropped_bound[area] == 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("categories", "areas"), [(2, False), (3, False), (2, True)])
def test_estimates_by_category_are_those_of_dense_least_squares(seed, categories, areas):
    """By the tree alone, also with measured area totals."""
    release, possible, _ = released(seed, categories, areas=areas)
    best, shared = fit_densely(release, possible, categories, with_areas=False)
    tree, fit = release.tree, release.fit_segment("mode")
    numbers = np.arange(len(best))
    for levels in np.ndindex(tree.origin.depth + 1, tree.destination.depth + 1):
        own = [np.repeat(side, categories) for side in find_areas(tree, possible, levels)]
        areas = tree.list_area_pairs(*levels)
        for category, estimates in enumerate(fit.estimate_cells(*levels, *areas)):
            for k, (one, two) in enumerate(zip(*areas, strict=True)):
                inside = numbers[(own[0] == one) & (own[1] == two) & (numbers % categories == category)]
                assert estimates.estimate[k] == pytest.approx(best[inside].sum(), abs=1e-3)  # weights are rounded
                assert estimates.variance[k] == pytest.approx(shared[np.ix_(inside, inside)].sum(), abs=1e-4)
                assert estimates.unmeasured[k] == estimates.dropped_bound[k] == 0
    flows = release.flows_at(tree.origin.level_names[-1], tree.destination.level_names[-1], segment="mode")
    assert flows["trips"].sum() == release.leaves.trips.sum()


def released_with_areas(number: int, categories: int = 0) -> Iterator[tuple[int, Release, PossiblePairs]]:
    """Yield releases with measured area totals, and their seeds."""
    found = 0
    for seed in count():
        release, possible, _ = released(seed, categories, areas=True)
        if release.plan.area_totals is not None:
            yield seed, release, possible
            found += 1
        if found == number:
            return


def test_estimates_with_area_totals_are_those_of_dense_least_squares():
    """Of each node, of weighted sums of zones with their variances, and of the totals of the zones of each side."""
    seen, without_pairs = set(), 0
    for seed, release, possible in released_with_areas(60):
        plan, tree = release.plan, release.tree
        best, shared = fit_densely(release, possible)
        levels = build_measured_levels(plan, int(release.leaves.trips.sum()), combine_totals(plan, release.measured))
        fitted, divided = include_area_totals(
            plan, levels, list_side_totals(plan, select_area_totals(release.measured))
        )
        near = 1e-6 * max(1, np.abs(best).max())
        for level in fit_measured_levels(fitted):
            sums = cells_below(tree, possible, level.nodes).astype(np.float64)
            np.testing.assert_allclose(level.estimate, sums @ best, rtol=0, atol=near)
        generator = make_generator(seed)
        weights = generator.uniform(-1, 1, len(possible))
        ends = {"origin": tree.origin, "destination": tree.destination}
        codes = {side: np.array(of.zones)[getattr(possible, side)] for side, of in ends.items()}
        found = release.weighted_sum(pd.DataFrame({**codes, "weight": weights}))
        assert found.value == pytest.approx(weights @ best, abs=near)
        assert found.deviation**2 == pytest.approx(weights @ shared @ weights, rel=1e-6, abs=1e-4)
        order = np.lexsort(release.replicated.ends[::-1])
        np.testing.assert_allclose(release.replicated.estimate[order], best, rtol=0, atol=near)
        sides = {step.side for step in plan.area_total_steps}
        for position, totals in divided.items():
            pair, first = tree.level_pair(fitted[position].nodes.level + 1), 0
            for side, size in zip(totals.sides, totals.sizes, strict=True):
                of_areas, noise = totals.trips[first : first + size], totals.noise[first : first + size]
                area, zone = find_areas(tree, possible, pair)[side], (possible.origin, possible.destination)[side]
                np.testing.assert_allclose(of_areas, np.bincount(area, best, size), rtol=0, atol=near)
                of_zone = next(float(step.variance) for step in plan.area_total_steps if step.side == side)
                zones = [len({*zone[area == k].tolist()}) for k in range(size)]
                np.testing.assert_allclose(noise, np.multiply(zones, of_zone))
                without_pairs += zones.count(0)
                first += size
        seen.add((plan.tree.order, plan.mechanism.has_laplace_noise, len(sides), plan.publishes_total))
    assert without_pairs > 20
    assert {(True, 2), (False, 1), (False, 2)} <= {(laplace, sides) for _, laplace, sides, _ in seen}
    assert {order for order, *_ in seen} == {*ORDERS}
    assert {is_exact for *_, is_exact in seen} == {True, False}


def test_a_total_is_the_mean_of_the_tree_and_of_the_measured_zones_that_have_pairs():
    """By inverse variances, of the areas of each level; a total without possible pairs is 0, without an error."""
    for _, release, possible in released_with_areas(30):
        tree, best = release.tree, fit_densely(release, possible, with_areas=False)
        for step in release.plan.area_total_steps:
            side, geography = step.side, (tree.origin, tree.destination)[step.side]
            values = next(one.noisy.read_values() for one in release.measured if one.step is step)
            has_pairs = np.isin(np.arange(len(values)), (possible.origin, possible.destination)[side])
            for level in range(1, geography.depth + 1):
                pair = (0, level) if side else (level, 0)
                area = find_areas(tree, possible, pair)[side]
                inside = (area == np.arange(geography.size(level))[:, None]).astype(np.float64)
                estimate, variance = inside @ best[0], np.einsum("ij,jk,ik->i", inside, best[1], inside)
                areas = geography.ancestors_at(geography.depth, level)
                measured = np.bincount(areas, values * has_pairs)
                own = np.bincount(areas, has_pairs * float(step.variance))
                whole = variance + own
                part = np.divide(variance, whole, out=np.zeros_like(own), where=whole > 1e-9)
                _, _, found = release.fitted.estimate_cells_with_totals(*pair)
                np.testing.assert_allclose(found.estimate, estimate + part * (measured - estimate), atol=1e-4)
                np.testing.assert_allclose(found.variance, part * own, atol=1e-4)
                empty = ~inside.any(axis=1)
                assert not found.estimate[empty].any()
                assert not found.variance[empty].any()


@pytest.mark.parametrize(("areas", "laplace"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("estimate", ["least_squares", "auto", "shrunk", "leaves"])
def test_published_flows_are_possible_and_add_up(monkeypatch, seed, estimate, areas, laplace):
    """Levels of any size learn, so that these do."""
    monkeypatch.setattr(families, "_MIN_CELLS_TO_LEARN", 1)
    options = {"mechanism": InfTDARefined(estimate=estimate) if estimate != "leaves" else LEAVES}
    if estimate == "leaves":
        if areas:
            pytest.skip("refused")
        options["tree"] = ORDERS[seed % 2]
    elif laplace:
        options = {"mechanism": InfTDARefined(estimate=estimate, noise_distribution="laplace"), "tree": "both"}
        options |= {"budget": Budget("1")}
    release, possible, _ = released(seed, areas=areas, **options)
    pairs = {*zip(possible.origin.tolist(), possible.destination.tolist(), strict=True)}
    assert {*zip(release.leaves.origin.tolist(), release.leaves.destination.tolist(), strict=True)} <= pairs
    levels = (release.tree.origin.level_names[1], release.tree.destination.level_names[1])
    coarse = release.flows_at(*levels, interval=True)
    assert coarse["trips"].sum() == release.leaves.trips.sum()
    assert (coarse["lower"] <= coarse["trips"]).all()
    assert (coarse["trips"] <= coarse["upper"]).all()
    if release.tree.same_geography:
        assert (indicators(release)["within"] >= 0).all()


@pytest.mark.parametrize("tree", ORDERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"estimate": "shrunk"},
        {"estimate": "auto"},
        {"leaves": "empirical_bayes"},
        {"noise_distribution": "laplace"},
    ],
    ids=str,
)
def test_a_list_of_all_pairs_changes_no_number(monkeypatch, tree, options):
    """The same noise gives the same release, with measured area totals where the estimator uses them.

    No small flows are gathered; where they are, follows from whether there is a list.
    """
    if (tree == "both" and "leaves" in options) or (tree != "both" and "noise_distribution" in options):
        pytest.skip("refused")
    monkeypatch.setattr(families, "_MIN_CELLS_TO_LEARN", 1)
    monkeypatch.setattr(shrinkage, "SMALL_FLOW_DEVIATIONS", 0)
    geography = geography_of(random_zones(Random(3), 3, 4))  # noqa: S311  # test data
    pairs = np.indices((len(geography.zones),) * 2, dtype=np.int32).reshape(2, -1)
    is_laplace, found = "noise_distribution" in options, []
    for possible in (None, PossiblePairs(*pairs)):
        plan = plan_release(
            geography,
            unit=TRIP,
            budget=Budget("1") if is_laplace else Budget("1", "1e-6"),
            mechanism=InfTDARefined(**options),
            acceptance=NO_FAULTS,
            tree=tree,
            area_totals=None if "leaves" in options else "1/10",
            possible=possible,
        )
        trips = make_generator(2).integers(0, 30, len(pairs[0])) * make_generator(3).integers(0, 2, len(pairs[0]))
        noise = SeededLaplace(4) if is_laplace else SeededNoise(4)
        counts = TripCounts.from_pairs(plan.tree, *pairs, trips)
        found.append(run_plan(plan, counts, noise, MemoryMeasurements()))
    pd.testing.assert_frame_equal(found[0].measurements, found[1].measurements)
    pd.testing.assert_frame_equal(found[0].flows, found[1].flows)


@pytest.mark.parametrize("part", [0.9, 0.2])
def test_small_flows_are_gathered_unless_most_possible_pairs_have_trips(part):
    """Without noise, the trips of 9 in 10 pairs come back, and those of 2 in 10 do not, because some have 3 trips.

    Small is what is below half of a standard deviation of the noise, which is at least 15 trips.
    """
    geography = geography_of([(f"r{k // 4}", f"z{k:02}") for k in range(12)])
    possible = PossiblePairs.from_rule(geography, geography, within_zone=False)
    plan = plan_release(
        geography, unit=TRIP, budget=Budget("0.2", "1e-6"), acceptance=NO_FAULTS, possible=possible, area_totals="1/10"
    )
    assert plan.steps[-1].variance > 30**2
    generator = make_generator(1)
    trips = np.where(generator.random(len(possible)) < part, generator.choice([3, 60, 90], len(possible)), 0)
    counts = TripCounts.from_pairs(plan.tree, possible.origin, possible.destination, trips)
    leaves = run_plan(plan, counts, no_noise(), MemoryMeasurements()).leaves
    found = np.zeros((12, 12), dtype=np.int64)
    found[leaves.origin, leaves.destination] = leaves.trips
    assert np.array_equal(found[possible.origin, possible.destination], trips) == (part > 0.5)


RECORDS = pd.DataFrame({"origin": ["a1", "a1", "a2", "b1"], "destination": ["a2", "b1", "b1", "a1"]})
GEOGRAPHY = geography_of([("a", "a1"), ("a", "a2"), ("b", "b1")])
LISTED = pd.DataFrame({"origin": ["a1", "a2", "a1"], "destination": ["a2", "b1", "b1"]})


@pytest.mark.parametrize("threshold", ["0", "0.1", "0.25", "0.5"])
@pytest.mark.parametrize("as_file", [False, True])
def test_a_record_of_another_pair_is_faulty(threshold, as_file, tmp_path):
    """One of four is, from b1 to a1. The total is not exact if it may be left out, and exact if it is refused."""
    options = {"unit": PrivacyUnit("trip", "bounded"), "budget": Budget("1", "1e-6"), "possible": LISTED}
    table = RECORDS
    if as_file:
        table = tmp_path / "records.parquet"
        RECORDS.to_parquet(table)
    if threshold in ("0", "0.1"):
        with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as refused:
            release_flows(table, GEOGRAPHY, fault_threshold=threshold, one_row_a_trip=True, **options)
        assert refused.value.spent == "nothing was spent"
        assert "possible pairs" in refused.value.next_step
        return
    release = release_flows(table, GEOGRAPHY, fault_threshold=threshold, one_row_a_trip=True, noise="table", **options)
    assert not release.plan.publishes_total
    counts = count_trips(
        table, release.tree, one_row_a_trip=True, fault_threshold=release.plan.acceptance.fault_threshold
    )
    assert counts.total == 3


def test_whether_the_total_is_exact_does_not_follow_from_unknown_areas():
    """A record may have a pair that cannot have trips, also where both sides have an area for unlisted places."""
    unknown = replace(GEOGRAPHY, unknown="b1")
    unit, budget = PrivacyUnit("trip", "bounded"), Budget("1", "1e-6")
    assert plan_release(unknown, unit=unit, budget=budget).publishes_total
    assert not plan_release(unknown, unit=unit, budget=budget, possible=LISTED).publishes_total


@pytest.mark.parametrize("seed", range(10))
def test_a_pair_of_areas_stands_for_all_pairs_of_their_zones(seed):
    random = Random(seed)  # noqa: S311  # test data
    origins, destinations = sides_of(random)
    levels = random.randint(1, origins.depth), random.randint(1, destinations.depth)
    areas = origins.codes[levels[0]], destinations.codes[levels[1]]
    listed = [(random.choice(areas[0]), random.choice(areas[1])) for _ in range(random.randint(1, 5))]
    possible = PossiblePairs.from_frame(pd.DataFrame(listed, columns=["origin", "destination"]), origins, destinations)
    found = {*zip(possible.origin.tolist(), possible.destination.tolist(), strict=True)}
    above = origins.ancestors(levels[0]), destinations.ancestors(levels[1])
    every = np.ndindex(len(origins.zones), len(destinations.zones))
    assert found == {(o, d) for o, d in every if (areas[0][above[0][o]], areas[1][above[1][d]]) in listed}
    assert len(found) == len(possible)


def test_a_rule_excludes_pairs_within_a_zone_or_too_far_apart():
    """One degree of the equator is 111.2 km."""
    zones = pd.DataFrame(
        {"region": "r", "zone": ["a", "b", "c", "d"], "lat": ["0", "0", "0", ""], "lon": ["0", "1", "3", ""]}
    )
    geography = Geography.from_frame(zones, ["region", "zone"], coordinates=("lat", "lon"))

    def pairs(**rule):
        possible = PossiblePairs.from_rule(geography, geography, **rule)
        return {
            geography.zones[a] + geography.zones[b] for a, b in zip(possible.origin, possible.destination, strict=True)
        }

    every = {a + b for a in "abcd" for b in "abcd"}
    assert pairs() == every
    assert pairs(within_zone=False) == every - {"aa", "bb", "cc", "dd"}
    assert pairs(distance_km=(0, 112)) == every - {"ac", "ca", "bc", "cb"}
    assert pairs(distance_km=(112, 300)) == every - {"ab", "ba", "ac", "ca"}
    assert pairs(distance_km=(0, 300), within_zone=False) == every - {"ac", "ca", "aa", "bb", "cc", "dd"}


@pytest.mark.parametrize(
    "given",
    [
        {"possible": LISTED.iloc[:0]},
        {"possible": LISTED.assign(origin="x")},
        {"possible": LISTED.assign(origin=["a", "a2", "a1"])},  # areas of two levels
        {"possible": LISTED.rename(columns={"origin": "from"})},
        {"possible": LISTED, "mechanism": InfTDARefined(keep_all_cap=2)},
        {"possible": LISTED, "mechanism": "inftda"},
        {"possible": LISTED, "mechanism": "stability_histogram"},
    ],
)
def test_what_cannot_be_is_refused(given):
    with pytest.raises(OdError, match="OD-POSSIBLE-PAIRS"):
        plan_release(GEOGRAPHY, unit=TRIP, budget=Budget("1", "1e-6"), **given)


def test_pairs_that_cannot_have_trips_lower_the_error_of_the_others():
    """Nothing is charged for them: with one destination for each zone, a leaf is measured at every level."""
    zones = [(f"r{k // 4}", f"z{k:02}") for k in range(12)]
    geography = geography_of(zones)
    listed = pd.DataFrame({"origin": geography.zones, "destination": geography.zones[1:] + geography.zones[:1]})
    plans = [plan_release(geography, unit=TRIP, budget=Budget("1", "1e-6"), possible=p) for p in (None, listed)]
    assert plans[0].spent == plans[1].spent
    assert [step.variance for step in plans[0].steps] == [step.variance for step in plans[1].steps]
    possible = PossiblePairs.from_frame(listed, geography, geography)
    counts = TripCounts.from_pairs(plans[1].tree, possible.origin, possible.destination, np.full(12, 50))
    release = run_plan(plans[1], counts, SeededNoise(1), MemoryMeasurements())
    _, _, estimates = release.fitted.estimate_cells(2, 2)
    assert (estimates.variance < 0.6 * float(plans[1].steps[-1].variance)).all()


def published_of(tmp_path: Path, **changes) -> Release:
    """A release of two regions with five zones, in which four pairs can have trips; its bundle is in ``r1``."""
    possible = pd.DataFrame({"origin": ["aa", "ab", "ba", "bc"], "destination": ["ba", "ab", "aa", "bb"]})
    made = released_trips(ledger_rows.FLOWS, ledger_rows.GEOGRAPHY, possible=possible, **changes)
    publish_bundle(made, facts(made), tmp_path / "r1")
    FLOWS.store(tmp_path / "release.duckdb", made, KEY, facts(made))
    return made


@pytest.mark.parametrize("area_totals", [None, "1/10"])
def test_a_bundle_says_which_pairs_can_have_trips_and_comes_back(tmp_path, area_totals):
    """They are the measured leaves. Tables with intervals list no other pair."""
    made = published_of(tmp_path, area_totals=area_totals)
    for opened in (open_release(tmp_path / "r1"), open_release(tmp_path / "release.duckdb")):
        assert opened.plan.digest == made.plan.digest
        assert opened.tree.possible.digest == made.tree.possible.digest
        pd.testing.assert_frame_equal(opened.measurements, made.measurements)
        pd.testing.assert_frame_equal(
            opened.flows_at("zone", "zone", interval=True), made.flows_at("zone", "zone", interval=True)
        )
    (flows,) = (tmp_path / "r1").rglob("flows_zone_zone.csv")
    listed = pd.read_csv(flows)
    assert (listed["origin"] + listed["destination"]).tolist() == ["aaba", "abab", "baaa", "bcbb"]
    assert "Only 4 of 25 pairs of zones can have trips" in atlas_header(tmp_path / "r1" / "atlas.html")["notes"][1]
    report = " ".join((tmp_path / "r1" / "report.html").read_text(encoding="utf-8").split())
    assert "Only 4 of 25 pairs of zones can have trips, which was public beforehand. The others have none." in report
    certificate = json.loads((tmp_path / "r1" / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["plan"]["possible"]["pairs"] == 4
    assert "which 4 pairs of zones can have trips, which was public beforehand" in certificate["guarantee"]["public"]


def test_a_bundle_with_other_measured_leaves_is_refused(tmp_path):
    published_of(tmp_path)
    (file,) = (tmp_path / "r1").rglob("noisy_measurements.parquet")
    measured = pq.read_table(file)
    pq.write_table(measured.slice(0, len(measured) - 1), file)
    with pytest.raises(OdError):
        open_release(tmp_path / "r1")
