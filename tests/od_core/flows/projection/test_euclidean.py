"""The Euclidean projection against sort and threshold in fractions, CLARABEL and brute force; its exactness."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.flows.projection.onto_parents import project_children_euclidean
from tests.od_core.flows.projection.families import (
    Case,
    cases_near,
    enumerable_cases,
    noisy_flows,
    project_all,
    small_case,
)
from tests.od_core.oracles import euclidean as oracle


def project(cases: list[Case]) -> list[list[int]]:
    return project_all(project_children_euclidean, cases)


@cache
def real_problem(children: int) -> tuple[cvxpy.Problem, cvxpy.Variable, cvxpy.Parameter, cvxpy.Parameter]:
    """The real problem of any values of as many children. CVXPY takes longer to build one than to solve it."""
    y, noisy, total = cvxpy.Variable(children), cvxpy.Parameter(children), cvxpy.Parameter()
    distance = cvxpy.Minimize(cvxpy.sum_squares(y - noisy))
    return cvxpy.Problem(distance, [cvxpy.sum(y) == total, y >= 0]), y, noisy, total


def clarabel(noisy: list[int], total: int) -> list[float]:
    """The real problem, by an interior-point solver."""
    problem, y, values, of_all = real_problem(len(noisy))
    values.value, of_all.value = noisy, total
    problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert problem.status == cvxpy.OPTIMAL
    return y.value.tolist()


def test_equals_sort_and_threshold_in_fractions_on_10000_small_inputs():
    rng = random.Random("small inputs")  # noqa: S311
    cases = [small_case(rng) for _ in range(10_000)]
    for (noisy, total), y in zip(cases, project(cases), strict=True):
        assert y == oracle.rounded(noisy, total), (noisy, total)


def test_is_optimal_among_whole_numbers_by_brute_force_on_5000_small_inputs():
    cases = enumerable_cases(random.Random("brute force"), 5_000)  # noqa: S311
    for (noisy, total), y in zip(cases, project(cases), strict=True):
        assert min(y) >= 0, (noisy, total, y)
        assert sum(y) == total, (noisy, total, y)
        assert oracle.cost(noisy, y) == oracle.least_cost(noisy, total), (noisy, total, y)
        assert oracle.no_unit_moves(noisy, y), (noisy, total, y)


def test_no_unit_moves_tells_what_is_optimal():
    """The certificate that stands in for brute force at large fan-outs, itself against brute force."""
    rng = random.Random("certificate")  # noqa: S311
    told = set()
    for noisy, total in enumerable_cases(rng, 3_000):
        y = [0] * len(noisy)
        for _ in range(total):
            y[rng.randrange(len(y))] += 1
        optimal = oracle.cost(noisy, y) == oracle.least_cost(noisy, total)
        assert oracle.no_unit_moves(noisy, y) == optimal, (noisy, y)
        told.add(optimal)
    assert told == {True, False}


def test_is_the_rounded_optimum_of_clarabel_on_200_families():
    """To 1e-6 wherever an interior-point solver can be so near: where no x stands at the threshold itself.

    There (a whole threshold) the distance of the points is only the root of that of the objectives.
    """
    rng = np.random.default_rng(500)
    fractional = 0
    while fractional < 200:
        noisy = np.rint(rng.normal(0.0, rng.choice((2.0, 20.0)), rng.integers(1, 13))).astype(int).tolist()
        total = max(0, sum(noisy) + int(rng.integers(-20, 20))) if rng.random() < 0.5 else int(rng.integers(0, 60))
        exact, solved = oracle.real_optimum(noisy, total), clarabel(noisy, total)
        cost = float(oracle.cost(noisy, exact))
        assert sum((a - b) ** 2 for a, b in zip(noisy, solved, strict=True)) == pytest.approx(cost, rel=1e-8, abs=1e-8)
        if all(value.denominator == 1 for value in exact):
            assert project([(noisy, total)]) == [exact]
            continue
        fractional += 1
        assert solved == pytest.approx([float(value) for value in exact], abs=1e-6), (noisy, total)
        (y,) = project([(noisy, total)])
        for whole, real in zip(y, solved, strict=True):
            assert np.floor(real + 1e-6) <= whole <= np.ceil(real - 1e-6), (noisy, total)
        assert y == oracle.rounded(noisy, total), (noisy, total)


def test_equals_sort_and_threshold_on_500_trees_and_at_large_fan_outs():
    """The families of 500 random trees, of 1 to 12 children each; and some of up to 2,000."""
    rng = np.random.default_rng(12)
    sizes = [*rng.integers(1, 13, 500 * 20), *rng.integers(13, 2001, 40), *[2000] * 10]
    cases = [noisy_flows(rng, size) for size in sizes]
    negative_thresholds = 0
    for (noisy, total), y in zip(cases, project(cases), strict=True):
        assert y == oracle.rounded(noisy, total), (noisy, total)
        assert oracle.no_unit_moves(noisy, y)
        negative_thresholds += sum(noisy) < total
    assert 1_000 < negative_thresholds < 9_000


def test_is_exact_up_to_the_bound_of_64_bit_sums_on_4000_inputs():
    cases = cases_near(3 * 2**60, random.Random("near the bound"), 4_000)  # noqa: S311
    assert sum(total > 2**60 for _, total in cases) > 1_000
    for (noisy, total), y in zip(cases, project(cases), strict=True):
        assert y == oracle.rounded(noisy, total), (noisy, total)


@given(
    noisy=st.lists(st.integers(-(2**40), 2**40) | st.integers(-4, 4), min_size=1, max_size=40),
    total=st.integers(0, 2**41) | st.integers(0, 20),
    shift=st.integers(-(2**58), 2**58),
)
def test_is_optimal_and_blind_to_a_shift_of_all_values(noisy, total, shift):
    """The threshold moves with the values, wherever it stands: what is added to all x changes nothing."""
    (y,) = project([(noisy, total)])
    assert sum(y) == total
    assert min(y) >= 0
    assert oracle.no_unit_moves(noisy, y)
    assert y == oracle.rounded(noisy, total)
    if len(noisy) <= 5:
        assert project([([value + shift for value in noisy], total)]) == [y]


@given(noisy=st.lists(st.integers(-50, 50), min_size=1, max_size=12))
def test_what_is_non_negative_and_has_the_sum_stays(noisy):
    kept = [abs(value) for value in noisy]
    assert project([(kept, sum(kept))]) == [kept]


def test_the_units_that_are_left_go_to_the_largest_first_ties_by_position():
    """By hand: theta is 2/3, 1/2, 3/4 and -1/2; left are 1, 2, 1 and 1 units."""
    assert oracle.real_optimum([3, 5, 4], 10) == [Fraction(7, 3), Fraction(13, 3), Fraction(10, 3)]
    assert project([([3, 5, 4], 10)]) == [[2, 5, 3]]
    assert project([([2, 2, 2, 2], 6)]) == [[2, 2, 1, 1]]
    assert project([([1, 5, 5, 1], 9)]) == [[0, 5, 4, 0]]
    assert project([([-9, 0, 0], 1)]) == [[0, 1, 0]]
