"""The projection by a general solver: IntOpt's distance, the first children, its limit and what it does not believe."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import Bounds

from od_core import OdError, intopt
from od_core.flows.projection.linear_programs import _solve_linear_program, _verify_solution, project_children_by_solver
from tests.od_core.flows.projection.families import Case, cases_near, noisy_flows, project_all, small_case

LIMIT = 2**29


def project(cases: list[Case]) -> list[list[int]]:
    return project_all(project_children_by_solver, cases)


def distance(noisy: list[int], y: list[int]) -> int:
    return max(abs(a - b) for a, b in zip(noisy, y, strict=True))


def assert_as_near_as_intopt(cases: list[Case]) -> None:
    for (noisy, total), y in zip(cases, project(cases), strict=True):
        assert min(y) >= 0, (noisy, total, y)
        assert sum(y) == total, (noisy, total, y)
        assert distance(noisy, y) == distance(noisy, intopt(noisy, total).tolist()), (noisy, total, y)


def test_is_as_near_as_intopt_at_large_fan_outs():
    rng = np.random.default_rng(7)
    assert_as_near_as_intopt([noisy_flows(rng, size) for size in (40, 190, 300, 2000)])


def test_is_as_near_as_intopt_up_to_the_limit_on_100_inputs():
    """Where a gap of one in ten thousand, which the solver allows itself by default, would be thousands of trips."""
    assert_as_near_as_intopt(cases_near(LIMIT, random.Random("near the limit"), 100))  # noqa: S311


@given(noisy=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=12), total=st.integers(0, 10**7))
def test_the_same_call_has_the_same_answer(noisy, total):
    """Also beside other parents, before which the solver was called."""
    first = project([(noisy, total)])
    assert project([(noisy, total)]) == first
    assert project([([3, -1, 10], 9), (noisy, total), (noisy, total)])[1:] == [first[0], first[0]]
    assert distance(noisy, first[0]) == distance(noisy, intopt(noisy, total).tolist())


@pytest.mark.parametrize(("noisy", "total"), [([LIMIT - 5, 0], 5), ([-(LIMIT - 5), 0], 5), ([5, -7], LIMIT - 12)])
def test_values_from_the_limit_on_are_refused(noisy, total):
    with pytest.raises(OdError, match="OD-SOLVER-OVERFLOW"):
        project([([1, 2], 3), (noisy, total)])
    assert_as_near_as_intopt([(noisy, total - 1)])


def test_the_first_children_have_the_most_trips_that_the_distance_allows():
    """For many parents at a time, of which the solver gets some together."""
    rng = random.Random("first children")  # noqa: S311
    cases = [small_case(rng) for _ in range(1000)]
    for (noisy, total), y in zip(cases, project(cases), strict=True):
        t = distance(noisy, intopt(noisy, total).tolist())
        filled, left = [max(count - t, 0) for count in noisy], total - sum(max(count - t, 0) for count in noisy)
        for i, count in enumerate(noisy):
            more = min(left, count + t - filled[i])
            filled[i], left = filled[i] + more, left - more
        assert y == filled, (noisy, total)


X, TOTALS, STARTS = np.array([1, -1, 10, 4]), np.array([9, 6]), np.array([0, 3])
"""Noisy counts, with the least distances 1, at 0, 0 and 9, and 2."""


@pytest.mark.parametrize(
    ("y", "t"),
    [
        ([0, 0, 8, 6], [1, 2]),  # the sum is 8
        ([1, -1, 9, 6], [1, 2]),  # a negative value
        ([0, 1, 8, 6], [1, 2]),  # the distance is 2, not 1
        ([0, 1, 8, 6], [2, 2]),  # a smaller distance is possible
        ([0, 0, 9, 6], [0, 2]),  # the distance is 1, not 0
        ([0, 0, 9, 6], [1, 3]),
    ],
)
def test_an_answer_is_believed_only_in_whole_numbers(y, t):
    with pytest.raises(OdError, match="OD-SOLVER-INEXACT"):
        _verify_solution(np.array(y), X, TOTALS, STARTS, np.array(t))


def test_no_answer_is_an_error():
    """Two integers of at most 1 have no sum of 3."""
    with pytest.raises(OdError, match=r"OD-SOLVER-FAILED.*infeasible"):
        _solve_linear_program([0, 0], sparse.csc_array(np.ones((1, 2))), ([3], [3]), Bounds(0, 1))
