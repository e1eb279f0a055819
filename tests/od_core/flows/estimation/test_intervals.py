"""Intervals against linear algebra, against each other, by enumeration of the noise, and where they have edges."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from od_core import Budget, OdError
from od_core.flows import interval_ends
from od_core.flows.estimation import fitted_tree, intervals
from od_core.flows.interval_ends import compute_lower_bound, compute_upper_bound
from od_core.flows.mechanisms import MECHANISMS, InfTDARefined
from od_core.publication import columns
from tests.od_core.doubles import ListedNoise, SeededLaplace, no_noise
from tests.od_core.oracles.intervals import DROPPING, KEEPING, LAPLACE, Case, case_of, made, meets, within
from tests.statistical.laws import probabilities

RANDOMS = st.randoms(use_true_random=True)
DEVIATIONS = 1.6448536269514722
ALL_MECHANISMS = [*KEEPING, *DROPPING]


def bounds_at(case: Case, o_level: int, d_level: int, release: Any = None) -> dict:
    """(lower, upper) of every public pair of two levels, by its areas, before the released value is taken in."""
    origins, destinations = case.areas(0, o_level), case.areas(1, d_level)
    pairs = np.array(list(product(range(len(origins)), range(len(destinations)))), dtype=np.int32)
    bounds = (release or case.release).intervals.compute_cell_bounds(o_level, d_level, pairs[:, 0], pairs[:, 1])
    areas = [(origins[o], destinations[d]) for o, d in pairs]
    return dict(zip(areas, zip(*(b.tolist() for b in bounds), strict=True), strict=True))


def summed(case: Case, origins, destinations) -> tuple[int, int]:
    """Bounds of the sum over some zones, by their areas."""
    zones, chosen = (case.areas(side, case.tree.origin.depth) for side in (0, 1)), (origins, destinations)
    sides = [np.array([zone in mine for zone in own]) for own, mine in zip(zones, chosen, strict=True)]
    return case.release.intervals.compute_sum_bounds(*sides)


def assert_is_interval(found: tuple[int, int], estimate: float, variance: float) -> None:
    """Whole numbers of at least 0 that lie within 1.645 deviations and one half, and all those within 1.645."""
    lower, upper = found
    width, error = DEVIATIONS * variance**0.5, 1e-6 * (1 + abs(estimate)) + 1e-5 * variance**0.5
    inner = math.ceil(estimate - width + error), math.floor(estimate + width - error)
    outer = math.ceil(estimate - width - 0.5 - error), math.floor(estimate + width + 0.5 + error)
    assert max(0, outer[0]) <= lower <= max(0, inner[0])
    assert max(0, inner[1]) <= upper <= max(0, outer[1])


# -- against linear algebra ------------------------------------------------------------------------------------------


@given(random=RANDOMS, fine=st.booleans())
def test_every_cell_and_every_sum_has_the_interval_of_linear_algebra(random: Random, fine: bool):
    """At every pair of levels, on the flow tree and off it, where no node was dropped.

    With noise of many thousand trips on counts far from 0, so that half a trip more or less is little; and with little.
    """
    budget, least = ({"epsilon": 10}, 0) if fine else ({"rho": "1e-7"}, 10**5)
    case = case_of(
        random,
        [*KEEPING, LAPLACE] if fine else KEEPING,
        budget=budget,
        least_trips=least,
        most_trips=least + 40,
        most_pairs=36,
    )
    dense = case.dense
    for o_level, d_level in case.level_pairs():
        for cell, found in bounds_at(case, o_level, d_level).items():
            assert_is_interval(found, *dense.of_node(cell))
    for _ in range(3):
        sides = (case.origins, case.destinations)
        origins, destinations = ([zone for zone in zones if random.random() < 0.5] for zones in sides)
        taken = np.array([o in origins and d in destinations for o, d in dense.columns])
        assert_is_interval(summed(case, origins, destinations), *dense.sum_of(taken))


@given(random=RANDOMS)
def test_below_dropped_nodes_stands_the_bound_of_the_nearest_measured_one(random: Random):
    """Where nodes were dropped: measured cells by linear algebra; cells below dropped ones at most what those may have.

    A sum with a part in dropped nodes: its lower end from what was measured below those that were kept, its upper end
    between that and all that each dropped node may have.
    """
    mechanisms = [*DROPPING, replace(LAPLACE, keep_all_cap=0)]
    case = case_of(random, mechanisms, budget={"epsilon": random.choice([1, 10])}, most_trips=random.choice([3, 60]))
    dense = case.dense
    event(f"dropped: {case.drops}")
    fitted = {node: dense.of_node(node) for level in dense.cells.values() for node in level}
    tops = {node: int(compute_upper_bound(*(np.array([v]) for v in fit))[0]) for node, fit in fitted.items()}
    dropped = [node for node in dense.columns if not case.is_leaf(node)]
    for o_level, d_level in case.level_pairs():
        finest = min(level for level in dense.cells if _is_below(case.tree.level_pair(level), (o_level, d_level)))
        measured = dense.cells[finest]
        pair, depths = (o_level, d_level), range(case.tree.depth + 1)
        on_the_tree = [level for level in depths if _is_below(pair, case.tree.level_pair(level))]
        known = [0] * case.release.plan.publishes_total + list(dense.cells)
        hub = min(level for level in known if level >= max(on_the_tree))
        for cell, found in bounds_at(case, o_level, d_level).items():
            mine = [node for node in measured if within(node, cell)]
            above = [node for node in dropped if within(cell, node) and node not in mine]
            if not dense.columns:
                assert found == (0, 0)
            elif (o_level, d_level) == (0, 0) and case.release.plan.publishes_total:
                assert found == (case.trips, case.trips)
            elif above and not mine:
                assert found == (0, tops[above[0]])
            elif not case.drops:
                assert_is_interval(found, *dense.of_node(cell))
            elif hub == finest:  # the cells are measured nodes, by this name or another
                assert_is_interval(found, *fitted[mine[0]])
            else:
                columns = zip((0, 0), *(measured[node] for node in mine), strict=True)
                x, s2 = (np.array([sum(column)]) for column in columns)
                most = int(compute_upper_bound(x, s2)[0])
                assert found[0] == int(compute_lower_bound(x, s2)[0])
                assert most <= found[1] <= most + sum(tops[n] for n in dropped if n not in measured and meets(n, cell))


def _is_below(pair, other) -> bool:
    return all(level >= above for level, above in zip(pair, other, strict=True))


# -- two ways to the same interval -----------------------------------------------------------------------------------


@given(random=RANDOMS)
def test_tables_hold_every_public_pair_with_what_was_released_inside(random: Random):
    """All pairs up to the limit, above it those with trips alone, of the same bounds; what is 0 then has a bound.

    And the numbers of a release are the same whether intervals are asked for or not.
    """
    case = case_of(random, ALL_MECHANISMS)
    release, names = case.release, (case.tree.origin.level_names, case.tree.destination.level_names)
    for o_level, d_level in case.level_pairs():
        levels = names[0][o_level], names[1][d_level]
        every = release.flows_at(*levels, interval=True)
        origins, destinations = case.tree.origin.codes[o_level], case.tree.destination.codes[d_level]
        assert list(zip(every["origin"], every["destination"], strict=True)) == list(product(origins, destinations))
        assert (every["lower"] <= every["trips"]).all()
        assert (every["trips"] <= every["upper"]).all()
        assert (every["lower"][every["trips"] >= 0] >= 0).all()
        assert set(every.dtypes[["trips", "lower", "upper"]].astype(str)) == {"int64"}
        positive = every[every["trips"] != 0].reset_index(drop=True)
        pd.testing.assert_frame_equal(positive[["origin", "destination", "trips"]], release.flows_at(*levels))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(intervals, "MOST_LISTED", len(every))
            pd.testing.assert_frame_equal(release.flows_at(*levels, interval=True), every)
            patch.setattr(intervals, "MOST_LISTED", len(every) - 1)
            pd.testing.assert_frame_equal(release.flows_at(*levels, interval=True), positive)
        zeros = every[every["trips"] == 0]
        assert release.zero_bound(*levels) == zeros["upper"].max() if len(zeros) else True
    if release.plan.publishes_total:
        whole = release.flows_at("all", "all", interval=True)
        assert whole[["lower", "upper"]].to_numpy().tolist() == [[case.trips] * 2]
        whole = release.trips_between("all", ["all"], names[1][-1], case.tree.destination.zones)
        assert whole == (case.trips, case.trips, case.trips)


@given(random=RANDOMS)
def test_neither_the_size_of_the_pieces_nor_the_threads_change_a_number(random: Random):
    case = case_of(random, ALL_MECHANISMS)
    found = []
    for block, threads in ((1, "1"), (1, "3"), (7, "3"), (1 << 20, "1")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fitted_tree, "_BLOCK", block)
            patch.setenv("OD_THREADS", threads)
            case.release.__dict__.pop("intervals", None)
            found.append([bounds_at(case, *levels) for levels in case.level_pairs()])
    assert found[1:] == found[:1] * 3


# -- the exact law ---------------------------------------------------------------------------------------------------

SIGMAS = np.concatenate([np.arange(0.1, 4, 0.01), np.arange(4, 50.1, 0.37)])


def law_of(weights, sigma: float):
    """Errors and probabilities of a weighted sum of discrete Gaussians."""
    errors, chances = np.zeros(1), np.ones(1)
    for weight in weights:
        values, law = probabilities(sigma**2)
        values, law = values[law > 1e-14], law[law > 1e-14]
        errors = np.round(np.add.outer(errors, weight * values).ravel(), 9)
        errors, place = np.unique(errors, return_inverse=True)
        chances = np.bincount(place, np.multiply.outer(chances, law).ravel())
    return errors, chances


def covered(trips: int, errors, chances, variance: float) -> float:
    """Probability that the interval holds the true count; there always is one."""
    spread = np.full(len(errors), variance)
    lower, upper = compute_lower_bound(trips + errors, spread), compute_upper_bound(trips + errors, spread)
    assert (lower <= upper).all()
    return float(chances[(lower <= trips) & (trips <= upper)].sum())


@pytest.mark.representatives("2")
@pytest.mark.parametrize("cells", [1, 2, 3])
def test_sums_of_measured_cells_are_covered_by_the_exact_law(cells):
    """For every sigma and true count: the discrete Gaussian, enumerated; what is left out weighs less than 1e-9."""
    for sigma in SIGMAS[:: cells**2]:
        errors, chances = law_of([1] * cells, sigma)
        most = math.ceil(4 * sigma * cells**0.5)
        for trips in {0, 1, 2, 3, *range(0, most, max(1, most // 7)), most, 10**6}:
            assert covered(trips, errors, chances, cells * sigma**2) >= 0.9 - 1e-9


WEIGHTS = {
    "two below a public total": [1 / 2, -1 / 2],
    "three below a public total": [2 / 3, -1 / 3, -1 / 3],
    "four below a public total": [3 / 4, -1 / 4, -1 / 4, -1 / 4],
    "two below a measured one": [1 / 3, 2 / 3, -1 / 3],
    "a sum of two of three below a measured one": [1 / 2, 1 / 2, 1 / 2, -1 / 2],
    "a grandchild of a public total": [1 / 6, -1 / 6, 7 / 12, -5 / 12, -1 / 12, -1 / 12],
}
"""Of independent noise of one variance in the least-squares estimate of a node."""


@pytest.mark.parametrize("name", WEIGHTS)
def test_estimates_between_whole_numbers_are_covered_by_the_exact_law(name):
    """They move by steps of 1/2 or 1/3: with little noise an end that lies just short of a step misses it."""
    weights = WEIGHTS[name]
    most = 3 if len(weights) < 5 else 1
    for sigma in SIGMAS[most > SIGMAS][:: 1 if len(weights) < 4 else 5]:
        errors, chances = law_of(weights, sigma)
        for trips in (0, 1, 10**6):
            assert covered(trips, errors, chances, float(np.square(weights).sum()) * sigma**2) >= 0.9 - 1e-9


def test_intervals_are_no_wider_than_they_must_be():
    """With sigma 50, nine tenths within half a trip to either side."""
    errors, chances = law_of([1], 50.0)
    assert covered(10**6, errors, chances, 2500.0) <= 0.9 + 2 * probabilities(2500.0)[1].max() * 0.5 + 1e-3


# -- edges -----------------------------------------------------------------------------------------------------------

FEW = [("A", "a"), ("A", "b"), ("B", "c")]


def few(truth: np.ndarray, noise: Any, **changes: Any) -> Case:
    """A release of true trips between three zones."""
    return made(FEW, FEW, truth, noise=noise, **{"mechanism": InfTDARefined(), "budget": Budget(1, 1e-8)} | changes)


def test_a_large_public_total_stays_the_only_number():
    """Rounding of floats is not made up for by a thousand trips where n is 10^12: the total is known."""
    case = few(np.full((3, 3), 10**12), no_noise())
    every = np.ones(3, dtype=bool)
    assert case.release.intervals.compute_sum_bounds(every, every) == (9 * 10**12,) * 2
    widths = case.release.flows_at("level_2", "level_2", interval=True)
    assert (widths["upper"] - widths["lower"]).max() <= 100


@pytest.fixture(scope="module")
def small() -> Case:
    """Of three zones, with noise."""
    return few(np.arange(9).reshape(3, 3), ListedNoise([3, -5, 8, 0]))


def test_sums_over_areas_a_user_names(small):
    """Of any level, in any order, twice or not at all."""
    release = small.release
    between = release.trips_between("level_1", ["A"], "level_2", ["c", "a", "c"])
    trips, lower, upper = between
    assert (between.trips, between.lower, between.upper) == between
    flows = release.flows
    assert trips == flows[flows["origin"].isin(["a", "b"]) & flows["destination"].isin(["a", "c"])]["trips"].sum()
    assert lower <= trips <= upper
    assert release.trips_between("level_2", ["a", "b"], "level_2", ["a", "c"]) == (trips, lower, upper)
    assert release.trips_between("level_2", [], "level_2", ["a"]) == (0, 0, 0)
    assert release.trips_between("level_2", [], "all", []) == (0, 0, 0)
    cells = release.flows_at("level_1", "level_2", interval=True)
    of_cells = cells[(cells["origin"] == "A") & cells["destination"].isin(["a", "c"])]
    assert upper - lower <= (of_cells["upper"] - of_cells["lower"]).sum()


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (("level_9", ["A"], "all", ["all"]), "OD-LEVEL-UNKNOWN.*level_9"),
        (("level_1", ["Z"], "all", ["all"]), "OD-AREA-UNKNOWN.*level 'level_1' has no area 'Z'"),
        (("level_1", ["a"], "all", ["all"]), "OD-AREA-UNKNOWN"),
        (("level_1", ["A", 5], "all", ["all"]), "OD-AREA-UNKNOWN"),
        (("level_1", ["A", None], "all", ["all"]), "OD-AREA-UNKNOWN"),
        (("level_1", [["A"]], "all", ["all"]), "OD-AREA-UNKNOWN"),
        (("level_1", ["A"], "level_2", "ac"), "OD-AREA-LIST"),
    ],
)
def test_what_is_not_there_is_named(small, asked, code):
    with pytest.raises(OdError, match=code):
        small.release.trips_between(*asked)


def test_what_has_no_intervals_says_so(small, monkeypatch):
    """A threshold says nothing of what falls below it; and more cells than the memory is meant for are refused."""
    hidden = few(np.full((3, 3), 500), SeededLaplace(3), mechanism=MECHANISMS["stability_histogram"]()).release
    for ask in (
        lambda: hidden.flows_at("level_1", "level_2", interval=True),
        lambda: hidden.zero_bound("level_1", "level_2"),
        lambda: hidden.trips_between("level_1", ["A"], "level_2", ["c"]),
        lambda: next(hidden.replicates(1)),
    ):
        with pytest.raises(OdError, match="OD-INTERVAL-MECHANISM"):
            ask()
    for cached in ("intervals", "fitted"):
        small.release.__dict__.pop(cached, None)
    monkeypatch.setattr(intervals, "MAX_MEASURED_CELLS", 8)
    with pytest.raises(OdError, match=r"OD-INTERVAL-SIZE.*9 measured cells.*at most 8"):
        small.release.flows_at("all", "all", interval=True)
    monkeypatch.setattr(intervals, "MAX_MEASURED_CELLS", 9)
    small.release.flows_at("all", "all", interval=True)


def test_confidence_is_the_probability_of_the_deviations():
    """Nine tenths of a normal variable, by the error function."""
    assert Fraction(9, 10) == columns.CONFIDENCE
    assert math.erf(interval_ends.DEVIATIONS / math.sqrt(2)) == pytest.approx(float(columns.CONFIDENCE), abs=1e-12)


def test_a_sum_that_is_released_outside_its_interval_is_taken_in():
    """Leaves released as they were measured may be below 0, where no interval is; the bounds then reach to them."""
    given = {"mechanism": MECHANISMS["vanilla_gauss"](), "budget": Budget(30, 1e-8)}
    case = few(np.zeros((3, 3), dtype=np.int64), ListedNoise([-50]), **given)
    assert case.release.trips_between("level_1", ["A"], "level_2", ["a", "c"]) == (-200, -200, 0)
    table = case.release.flows_at("level_2", "level_2", interval=True)
    assert table[["trips", "lower", "upper"]].drop_duplicates().to_numpy().tolist() == [[-50, -50, 0]]
