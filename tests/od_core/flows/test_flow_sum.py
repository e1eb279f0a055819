"""Sums of releases: exact at every pair of levels, with the intervals of stacked linear algebra."""

import copy
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from scipy.linalg import null_space
from scipy.stats import norm

from od_core import Budget, FlowSum, OdError, PrivacyUnit, Release, sum_releases
from od_core.flows.interval_ends import LowerEnds, compute_upper_bound
from od_core.flows.mechanisms import MECHANISMS, InfTDARefined
from tests.od_core.doubles import SeededLaplace, SeededNoise
from tests.od_core.flows.estimation.test_intervals import assert_is_interval, bounds_at
from tests.od_core.oracles.intervals import DROPPING, KEEPING, UNITS, Case, made, meets, within, zones_of_both_sides
from tests.od_core.oracles.segments import cells_of, segment_case

RANDOMS = st.randoms(use_true_random=True)


def cases_of(random: Random, mechanisms: list[Any], *, most_trips: int = 12, rho: Any = None) -> list[Case]:
    """Two or three releases over the same areas: other trips, other budgets, other noise."""
    origins, destinations = zones_of_both_sides(random, 36)
    unit, order, filled = random.choice(UNITS), random.choice(["origin", "destination"]), random.choice([0.1, 0.5, 1.0])

    def trips() -> int:
        return random.randint(0, most_trips) if random.random() < filled else 0

    return [
        made(
            origins,
            destinations,
            np.array([[trips() for _ in destinations] for _ in origins]),
            mechanism=random.choice(mechanisms),
            unit=unit,
            order=order,
            budget=Budget(rho=rho or random.choice(["0.001", "0.05", 1, 10]), delta=1e-8),
            noise=SeededNoise(random.randrange(2**32)),
        )
        for _ in range(random.randint(2, 3))
    ]


def sum_of(cases: list[Case]) -> FlowSum:
    return sum_releases([case.release for case in cases])


def stacked(cases: list[Case]) -> tuple[list[tuple[int, Any]], np.ndarray, np.ndarray]:
    """Generalised least squares on the measurements of all releases at once, where no node was dropped.

    One column for each release and each pair of zones, one row for each measured cell of each release. An exact total
    confines the columns of its release to a plane, of which the null space of the constraints is a basis.

    Returns:
        The columns, the estimate of each, and their covariance.
    """
    columns = [(k, pair) for k, case in enumerate(cases) for pair in product(case.origins, case.destinations)]
    rows, values, precisions, exact, totals = [], [], [], [], []
    for k, case in enumerate(cases):
        for nodes in case.dense.cells.values():
            for node, (noisy, variance) in nodes.items():
                rows.append([float(k == j and within(pair, node)) for j, pair in columns])
                values.append(noisy)
                precisions.append(1 / variance)
        if case.release.plan.publishes_total:
            exact.append([float(k == j) for j, _ in columns])
            totals.append(case.trips)
    a, x, w = np.array(rows), np.array(values), np.array(precisions)
    if exact:
        plane, offset = null_space(np.array(exact)), np.linalg.lstsq(np.array(exact), np.array(totals), rcond=None)[0]
    else:
        plane, offset = np.eye(len(columns)), np.zeros(len(columns))
    b = a @ plane
    inverse = np.linalg.pinv(b.T @ (w[:, None] * b), rcond=1e-13, hermitian=True)
    estimate = offset + plane @ inverse @ b.T @ (w * (x - a @ offset))
    return columns, estimate, plane @ inverse @ plane.T


# -- sums ------------------------------------------------------------------------------------------------------------


@given(random=RANDOMS)
def test_at_every_pair_of_levels_the_trips_are_the_sums_of_the_released_trips(random: Random) -> None:
    cases = cases_of(random, [*KEEPING[:2], *DROPPING])
    total = sum_of(cases)
    tree = total.tree
    assert np.all(total.leaves.trips > 0)
    assert np.all(np.diff(tree.compute_first_ranks(total.leaves)) > 0)
    for origin_level, destination_level in product(tree.origin.level_names, tree.destination.level_names):
        each = [case.release.flows_at(origin_level, destination_level) for case in cases]
        expected = pd.concat(each).groupby(["origin", "destination"])["trips"].sum()
        found = total.flows_at(origin_level, destination_level).set_index(["origin", "destination"])["trips"]
        assert found.to_dict() == expected.to_dict()
        listed = total.flows_at(origin_level, destination_level, interval=True)
        assert listed["trips"].sum() == found.sum()
        assert (listed["lower"] <= listed["trips"]).all()
        assert (listed["trips"] <= listed["upper"]).all()
        levels = tree.origin.find_level_number(origin_level), tree.destination.find_level_number(destination_level)
        pairs = np.indices((tree.origin.size(levels[0]), tree.destination.size(levels[1])), np.int32).reshape(2, -1)
        above = listed["trips"] > 0
        z = norm.isf(0.05 * max(above.mean(), 1e-9))
        both = (LowerEnds(z, listed=True), LowerEnds())
        ends = [total.intervals.compute_cell_bounds(*levels, *pairs, own)[0] for own in both]
        assert (listed["lower"] == np.minimum(np.where(above, *ends), listed["trips"])).all()


def test_leaves_that_cancel_are_left_out() -> None:
    """Noisy leaves of vanilla_gauss may be negative; trips of a sum may then be 0, which no table of flows lists."""
    zones = [("a",), ("b",)]
    given = {"mechanism": MECHANISMS["vanilla_gauss"](), "unit": PrivacyUnit("trip", "unbounded")}
    given |= {"budget": Budget(rho="0.5", delta=1e-8)}
    cases = [made(zones, zones, np.diag([5, 5]), **given, noise=SeededNoise(seed)) for seed in range(40)]
    sums = [sum_of([one, other]) for one, other in zip(cases[::2], cases[1::2], strict=True)]
    assert all(np.all(total.leaves.trips != 0) for total in sums)
    assert any(len(total.leaves) < 4 for total in sums)
    assert any(np.any(total.leaves.trips < 0) for total in sums)
    assert all(total.may_be_negative for total in sums)


# -- intervals -------------------------------------------------------------------------------------------------------


@given(random=RANDOMS)
def test_every_cell_and_every_sum_has_the_interval_of_linear_algebra(random: Random) -> None:
    """Every cell at every pair of levels, and sums over sets of zones, where all nodes were kept."""
    cases = cases_of(random, KEEPING, rho=random.choice(["1e-6", "0.01", 5]))
    total = sum_of(cases)
    columns, estimate, covariance = stacked(cases)

    def fit(taken: np.ndarray) -> tuple[float, float]:
        return float(taken @ estimate), max(0.0, float(taken @ covariance @ taken))

    for levels in cases[0].level_pairs():
        for cell, found in bounds_at(cases[0], *levels, total).items():
            assert_is_interval(found, *fit(np.array([float(within(pair, cell)) for _, pair in columns])))
    chosen = [[zone for zone in zones if random.random() < 0.5] for zones in (cases[0].origins, cases[0].destinations)]
    zones = [cases[0].areas(side, cases[0].tree.origin.depth) for side in (0, 1)]
    masks = [np.array([zone in mine for zone in own]) for own, mine in zip(zones, chosen, strict=True)]
    taken = np.array([float(o in chosen[0] and d in chosen[1]) for _, (o, d) in columns])
    assert_is_interval(total.intervals.compute_sum_bounds(*masks), *fit(taken))


@given(random=RANDOMS)
def test_leaves_below_nodes_that_only_some_releases_dropped_add_the_bounds_of_those_nodes(random: Random) -> None:
    """Pairs of zones: estimates of the releases that measured them, and the bounds of the nodes of the others."""
    cases = cases_of(random, [*DROPPING, KEEPING[0]], most_trips=random.choice([2, 40]))
    total, depth = sum_of(cases), cases[0].tree.depth
    partly = 0
    for cell, found in bounds_at(cases[0], *cases[0].tree.level_pair(depth), total).items():
        measured = [cell in case.dense.cells[depth] for case in cases]
        fits = [case.dense.of_node(cell) for case, there in zip(cases, measured, strict=True) if there]
        hidden = sum(
            int(compute_upper_bound(*(np.array([value]) for value in case.dense.of_node(node)))[0])
            for case, there in zip(cases, measured, strict=True)
            for node in case.dense.columns
            if not there and within(cell, node)
        )
        partly += 0 < sum(measured) < len(cases)
        low, high = found[0], found[1] - hidden
        if fits:
            assert_is_interval((low, high), sum(h for h, _ in fits), sum(v for _, v in fits))
        else:
            assert (low, high) == (0, 0)
    event(f"some releases measured it: {partly > 0}")


def _is_dropped(case: Case, node: tuple[Any, Any]) -> bool:
    return sum(map(len, node)) < case.tree.depth


@given(random=RANDOMS)
def test_sums_that_overlap_dropped_nodes_hold_none_to_all_of_their_trips(random: Random) -> None:
    """The lower end leaves out what was dropped, and the upper end is at most the sum of the ends of all releases.

    Lower ends of 0 may have been cut there; a sum is cut once, so it may begin below their sum. Each release takes the
    smaller of two upper bounds where it dropped nodes, and a sum takes one of the two for all, so that it may end above
    the sum of the ends where several releases dropped nodes.
    """
    cases = cases_of(random, DROPPING, most_trips=random.choice([2, 40]))
    total = sum_of(cases)
    for levels in cases[0].level_pairs():
        alone = [bounds_at(case, *levels) for case in cases]
        for cell, (lower, upper) in bounds_at(cases[0], *levels, total).items():
            ends = [bounds[cell] for bounds in alone]
            if all(end[0] > 0 for end in ends):
                assert lower >= sum(end[0] for end in ends) - len(ends)
            dropping = [
                any(_is_dropped(case, node) and meets(cell, node) for node in case.dense.columns) for case in cases
            ]
            if all(case.dense.columns for case in cases) and sum(dropping) <= 1:
                assert upper <= sum(end[1] for end in ends) + len(ends)


@given(random=RANDOMS, dropping=st.booleans())
@example(Random(31272344), True)  # noqa: S311  # nodes dropped with a bound of 0 in one release, and with more in another
def test_the_bound_of_unlisted_pairs_is_that_of_the_pairs_released_as_zero(random: Random, dropping: bool) -> None:
    cases = cases_of(random, DROPPING if dropping else KEEPING)
    total, tree = sum_of(cases), cases[0].tree
    for o, d in cases[0].level_pairs():
        names = tree.origin.level_names[o], tree.destination.level_names[d]
        listed = total.flows_at(*names, interval=True)
        zeros = listed[listed["trips"] == 0]["upper"].max() if (listed["trips"] == 0).any() else 0
        bound = total.zero_bound(*names)
        assert bound >= zeros
        if not any(case.drops for case in cases):
            assert bound == zeros


@given(random=RANDOMS)
def test_categories_have_the_intervals_of_linear_algebra_too(random: Random) -> None:
    """A release and its copy: as if the same noise had been drawn twice, so estimates and variances double."""
    case = segment_case(random, most_pairs=9)
    dense, release = case.dense, case.release
    if not dense.columns:
        return
    total = sum_releases([release, copy.copy(release)])
    for name, listed in case.segments.items():
        assert np.array_equal(total.segments[name], 2 * release.segments[name])
        for levels in case.level_pairs():
            areas, numbers = cells_of(case, levels)
            lower, upper = total.segment_intervals(name).compute_cell_bounds(*levels, numbers[:, 0], numbers[:, 1])
            for s, category in enumerate(listed):
                for area, low, high in zip(areas, lower[:, s], upper[:, s], strict=True):
                    estimate, variance = dense.segment(dense.inside(area), name, category)
                    assert_is_interval((low, high), 2 * estimate, 2 * variance)
    pair = release.levels[-1]
    by = total.flows_at(*pair, segment=name, interval=True)
    assert by.groupby(["origin", "destination"])["trips"].sum().sum() == total.leaves.trips.sum()


# -- refusals --------------------------------------------------------------------------------------------------------


def one(mechanism: Any = None, zones: Any = (("a",), ("b",)), **changes: Any) -> Release:
    given = {"budget": Budget(epsilon=1, delta=1e-8), "noise": SeededNoise(1)} | changes
    zones = list(zones)
    return made(zones, zones, np.ones((2, 2), dtype=int), mechanism=mechanism or InfTDARefined(), **given).release


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"zones": (("a",), ("c",))}, "the areas of the origins"),
        ({"order": "origin"}, "the order of the flow tree"),
        ({"unit": PrivacyUnit("trip", "unbounded")}, "the privacy unit"),
        ({"unit": PrivacyUnit("user", "bounded", column="user", max_trips=2)}, "the privacy unit"),
    ],
)
def test_releases_with_other_public_facts_are_refused_by_name(changes: dict[str, Any], fact: str) -> None:
    with pytest.raises(OdError, match=rf"OD-DERIVED-OTHER: {fact} of release 2 differs from release 1"):
        sum_releases([one(), one(**changes)])
    with pytest.raises(OdError, match=rf"{fact} of release 2, release 4 differ from release 1"):
        sum_releases([one(), one(**changes), one(), one(**changes)])


def test_what_cannot_be_summed_is_refused() -> None:
    release = one()
    for few in ([], [release], [release, release], [release, one(), release]):
        with pytest.raises(OdError, match="OD-SUM-FEW"):
            sum_releases(few)
    hidden = one(MECHANISMS["stability_histogram"](), noise=SeededLaplace(3))
    with pytest.raises(OdError, match="OD-SUM-THRESHOLD: release 2: mechanism 'stability_histogram' leaves out"):
        sum_releases([release, hidden])
    with pytest.raises(OdError, match="OD-DERIVED-KIND: release 1 is not a release of flows"):
        sum_releases([sum_releases([release, one()]), one()])  # type: ignore[list-item]  # refused
    assert repr(sum_releases([release, one()])).startswith("FlowSum(2 releases")
