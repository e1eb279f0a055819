"""Known totals of zones: estimates against dense least squares, and whole numbers that keep exact ones."""

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.linalg import null_space

from od_core import Budget, Geography, KnownTotals, OdError, PrivacyUnit, Release, plan_release, release_flows
from od_core.evaluation.known_flows import make_generator
from od_core.flows.estimation.area_totals import include_area_totals
from od_core.flows.estimation.least_squares import build_measured_levels, fit_measured_levels
from od_core.flows.estimation.levels import combine_totals, list_side_totals
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Pairs
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.doubles import SeededLaplace, SeededNoise
from tests.od_core.oracles.intervals import random_zones
from tests.od_core.strategies import geography_of

SIDES = ("origin", "destination")
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


def released(seed: int, errors: tuple[str | None, str | None], most: int = 3, **changes: Any) -> Release:
    """A release of random trips with seeded noise and known totals."""
    random = Random(seed)  # noqa: S311  # test data
    origins, destinations = sides_of(random, most)
    trips = make_generator(seed).integers(0, 30, (len(origins.zones), len(destinations.zones)))
    trips *= make_generator(seed + 1).integers(0, 2, trips.shape)
    order = random.choice(["destination", "origin", "both"])
    is_laplace = order == "both" and random.random() < 0.5
    mechanism = changes.pop("mechanism", {}) | ({"noise_distribution": "laplace"} if is_laplace else {})
    options = {
        "unit": PrivacyUnit("trip", random.choice(["bounded", "unbounded"])),
        "budget": Budget("1", 0 if is_laplace else "1e-6"),
        "acceptance": NO_FAULTS,
        "tree": order,
        "mechanism": InfTDARefined(**mechanism),
        "known": known_of(trips, errors, seed),
    }
    plan = plan_release(origins, destination_geography=destinations, **options | changes)
    ends = np.nonzero(np.ones_like(trips))
    counts = TripCounts.from_pairs(plan.tree, *(end.astype(np.int32) for end in ends), trips.ravel())
    noise = SeededLaplace(seed) if is_laplace else SeededNoise(seed)
    return run_plan(plan, counts, noise, MemoryMeasurements())


def pairs_below(release: Release, levels: tuple[int, int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The areas of two levels where each pair of zones begins and ends; pairs are in the order of origins."""
    tree = release.tree
    ends = np.nonzero(np.ones((len(tree.origin.zones), len(tree.destination.zones))))
    return tree.origin.ancestors(levels[0])[ends[0]], tree.destination.ancestors(levels[1])[ends[1]]


def cells_below(release: Release, cells: Pairs, levels: tuple[int, int]) -> NDArray[np.float64]:
    """1 for each pair of zones in each of some cells of two levels; shape (cells, pairs)."""
    origin, destination = pairs_below(release, levels)
    return ((cells.origin[:, None] == origin) & (cells.destination[:, None] == destination)).astype(float)


def fit_densely(release: Release, *, with_known: bool = True) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best linear unbiased estimates of all pairs of zones, and their covariances, from all that is known."""
    plan = release.plan
    pairs = len(plan.tree.origin.zones) * len(plan.tree.destination.zones)
    rows, noisy, variance = [np.zeros((0, pairs))], [np.zeros(0)], [np.zeros(0)]
    fixed, exact = [np.zeros((0, pairs))], [np.zeros(0)]
    for measurement in release.measured:
        for cells, values in measurement.iterate_pieces(plan):
            rows.append(cells_below(release, cells, plan.tree.level_pair(cells.level)))
            noisy.append(values)
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
@pytest.mark.parametrize("seed", range(24))
def test_estimates_and_variances_of_all_cells_are_those_of_dense_least_squares(seed, errors):
    """Of each node of the tree; and of each cell at every pair of levels, as a weighted sum."""
    release = released(seed, errors)
    plan, tree = release.plan, release.tree
    best, shared = fit_densely(release)
    levels = build_measured_levels(plan, int(release.leaves.trips.sum()), combine_totals(plan, release.measured))
    fitted, _ = include_area_totals(plan, levels, list_side_totals(plan, release.measured))
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
@pytest.mark.parametrize("seed", range(16))
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
@pytest.mark.parametrize("seed", range(12))
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

