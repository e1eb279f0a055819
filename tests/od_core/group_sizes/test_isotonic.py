"""Isotonic regression against the min-max formula in fractions, SciPy, a linear program and every ascending row."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression, linprog

from od_core.group_sizes.area_curves import least_absolute, least_squares
from tests.od_core.oracles.group_sizes import best_extremes, min_max

ROWS = st.lists(
    st.tuples(st.lists(st.integers(-6, 6) | st.integers(-(2**40), 2**40), max_size=12), st.integers(0, 8)),
    min_size=1,
    max_size=4,
)


def arguments(rows: list[list[int]], upper: list[int]):
    offsets = np.cumsum([0, *map(len, rows)])
    return np.array([value for row in rows for value in row], dtype=np.int64), offsets, np.array(upper, dtype=np.int64)


def values_of(steps: tuple[np.ndarray, np.ndarray, np.ndarray], row: int) -> list[Fraction]:
    """The values of a row, each by itself."""
    first, lengths, totals = steps
    own = slice(first[row], first[row + 1])
    runs = zip(lengths[own].tolist(), totals[own].tolist(), strict=True)
    return [Fraction(total, length) for length, total in runs for _ in range(length)]


def ascending_best(row: list[int], lower: int, upper: int, power: int) -> list[tuple[int, ...]]:
    """Every ascending row of whole numbers within bounds at the least cost."""
    answers = list(combinations_with_replacement(range(lower, upper + 1), len(row)))
    costs = [sum(abs(a - x) ** power for a, x in zip(answer, row, strict=True)) for answer in answers]
    return [answer for answer, cost in zip(answers, costs, strict=True) if cost == min(costs)]


@given(ROWS)
def test_least_squares_is_the_min_max_formula_clipped_with_one_step_a_value(rows):
    noisy, bounds = [row for row, _ in rows], [upper for _, upper in rows]
    steps = least_squares(*arguments(noisy, bounds))
    for number, (row, upper) in enumerate(zip(noisy, bounds, strict=True)):
        values = values_of(steps, number)
        assert values == min_max(row, 0, upper)
        first, lengths, totals = steps
        own = slice(first[number], first[number + 1])
        heights = [Fraction(int(t), int(s)) for t, s in zip(totals[own], lengths[own], strict=True)]
        assert all(a < b for a, b in pairwise(heights))


def test_least_squares_is_exact_where_products_of_sums_and_lengths_leave_64_bits():
    """Runs of 8 and 16 values with means about 2^56: cross products of sums and lengths lie on both sides of 2^63."""
    rng = np.random.default_rng(56)
    for _ in range(100):
        low, high = (np.sort(rng.integers(-9, 9, size))[::-1] + shift for size, shift in ((8, -1), (16, 1)))
        row = (2**56 + np.concatenate((low, high))).tolist()
        upper = 2**56 + int(rng.integers(5, 9))
        assert values_of(least_squares(*arguments([row], [upper])), 0) == min_max(row, 0, upper)


def test_least_squares_is_scipys_on_long_rows():
    rng = np.random.default_rng(2)
    rows = [np.rint(np.sort(rng.gamma(2, 60, 3000)) + rng.laplace(0, 25, 3000)).astype(int).tolist() for _ in range(5)]
    steps = least_squares(*arguments(rows, [200] * 5))
    for number, row in enumerate(rows):
        expected = np.clip(isotonic_regression(np.array(row, dtype=float)).x, 0, 200)
        np.testing.assert_allclose([float(v) for v in values_of(steps, number)], expected, rtol=0, atol=1e-8)


def test_least_absolute_gives_the_ends_of_all_best_rows_by_enumeration():
    """The optimal rows have whole ends, and a row of the least (greatest) value at every place is itself optimal."""
    rng = np.random.default_rng(3)
    rows = [rng.integers(-2, 7, rng.integers(0, 7)).tolist() for _ in range(400)]
    bounds = rng.integers(0, 8, 400).tolist()
    noisy, offsets, upper = arguments(rows, bounds)
    least, greatest = least_absolute(noisy, offsets, upper)
    ambiguous = 0
    for number, (row, high) in enumerate(zip(rows, bounds, strict=True)):
        best = ascending_best(row, 0, high, 1)
        own = slice(offsets[number], offsets[number + 1])
        assert least[own].tolist() == [min(place) for place in zip(*best, strict=True)], (row, high)
        assert greatest[own].tolist() == [max(place) for place in zip(*best, strict=True)], (row, high)
        ambiguous += len(best) > 1
    assert ambiguous > 50


@given(ROWS)
def test_least_absolute_is_the_min_max_formula_of_medians_clipped(rows):
    noisy, bounds = [row for row, _ in rows], [upper for _, upper in rows]
    given_rows = arguments(noisy, bounds)
    least, greatest = least_absolute(*given_rows)
    for (first, last), row, upper in zip(pairwise(given_rows[1]), noisy, bounds, strict=True):
        found = list(zip(least[first:last].tolist(), greatest[first:last].tolist(), strict=True))
        assert found == best_extremes(row, 0, upper)


def test_the_formula_of_medians_gives_the_ends_of_all_best_rows():
    """The oracle itself, against enumeration."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        row = rng.integers(-2, 7, rng.integers(1, 6)).tolist()
        best = ascending_best(row, 0, 4, 1)
        assert best_extremes(row, 0, 4) == [(min(place), max(place)) for place in zip(*best, strict=True)]


def least_cost(row: np.ndarray, lower: int, upper: int) -> float:
    """The least cost, by a linear program: values y and distances d >= |y - x|."""
    size = len(row)
    one, none = np.eye(size), np.zeros((size - 1, size))
    step = one[:-1] - one[1:]
    limits = np.block([[one, -one], [-one, -one], [step, none]])
    bounds = [(lower, upper)] * size + [(0, None)] * size
    solved = linprog(np.repeat([0, 1], size), limits, np.concatenate((row, -row, np.zeros(size - 1))), bounds=bounds)
    assert solved.status == 0
    return float(solved.fun)


def test_least_absolute_is_ascending_and_costs_what_a_linear_program_says():
    rng = np.random.default_rng(4)
    for size in (1, 2, 30, 120, 200):
        for scale in (2, 40):
            row = np.rint(np.sort(rng.integers(0, 100, size)) + rng.laplace(0, scale, size)).astype(np.int64)
            extremes = least_absolute(*arguments([row.tolist()], [90]))
            for answer in (*extremes, sum(extremes) / 2):
                assert (np.diff(answer) >= 0).all()
                assert answer.min() >= 0
                assert answer.max() <= 90
                assert np.abs(answer - row).sum() == pytest.approx(least_cost(row, 0, 90), abs=1e-6)


@given(ROWS, st.integers(0, 20))
def test_neither_regression_moves_a_row_that_ascends_within_its_bounds(rows, width):
    noisy = [sorted(value % (width + 1) for value in row) for row, _ in rows]
    given_rows = arguments(noisy, [width] * len(rows))
    least, greatest = least_absolute(*given_rows)
    assert least.tolist() == greatest.tolist() == given_rows[0].tolist()
    steps = least_squares(*given_rows)
    assert [values_of(steps, number) for number in range(len(rows))] == noisy
