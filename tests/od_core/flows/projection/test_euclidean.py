"""The Euclidean projection against sort and threshold in fractions and brute force; its exactness."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from od_core.flows.projection.onto_parents import project_children_euclidean
from tests.od_core.flows.projection.families import Case, cases_near, enumerable_cases, noisy_flows, project_all
from tests.od_core.oracles import euclidean as oracle


def project(cases: list[Case]) -> list[list[int]]:
    return project_all(project_children_euclidean, cases)


def test_is_optimal_among_whole_numbers_by_brute_force_on_2000_small_inputs():
    cases = enumerable_cases(random.Random("brute force"), 2_000)  # noqa: S311
    for (noisy, total), y in zip(cases, project(cases), strict=True):
        assert min(y) >= 0, (noisy, total, y)
        assert sum(y) == total, (noisy, total, y)
        assert oracle.cost(noisy, y) == oracle.least_cost(noisy, total), (noisy, total, y)


def test_equals_sort_and_threshold_on_100_trees_and_at_large_fan_outs():
    """The families of 100 random trees, of 1 to 12 children each; and some of up to 2,000."""
    rng = np.random.default_rng(12)
    sizes = [*rng.integers(1, 13, 100 * 20), *rng.integers(13, 2001, 10), 2000]
    cases = [noisy_flows(rng, size) for size in sizes]
    negative_thresholds = 0
    for (noisy, total), y in zip(cases, project(cases), strict=True):
        assert y == oracle.rounded(noisy, total), (noisy, total)
        negative_thresholds += sum(noisy) < total
    assert 200 < negative_thresholds < 1_800


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
    assert y == oracle.rounded(noisy, total)
    if len(noisy) <= 5:
        assert project([([value + shift for value in noisy], total)]) == [y]
