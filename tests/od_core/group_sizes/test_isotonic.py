"""Isotonic regression against the min-max formula in fractions, SciPy, a linear program and every ascending row."""

from fractions import Fraction
from itertools import combinations_with_replacement, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from od_core.group_sizes.area_curves import fit_least_absolute, fit_least_squares
from tests.od_core.oracles.group_sizes import best_extremes, min_max

VALUES = st.integers(-6, 6) | st.integers(-(2**40), 2**40)
ROWS = st.lists(st.tuples(st.lists(VALUES, max_size=12), st.integers(0, 8)), min_size=1, max_size=4)


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
    steps = fit_least_squares(*arguments(noisy, bounds))
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
        assert values_of(fit_least_squares(*arguments([row], [upper])), 0) == min_max(row, 0, upper)


@given(ROWS)
def test_least_absolute_is_the_min_max_formula_of_medians_clipped(rows):
    noisy, bounds = [row for row, _ in rows], [upper for _, upper in rows]
    given_rows = arguments(noisy, bounds)
    least, greatest = fit_least_absolute(*given_rows)
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


def test_both_ends_and_the_middle_of_the_best_rows_have_the_least_cost_of_a_linear_program():
    """Longer rows than can be enumerated; their middle is what mechanisms release, in halves.

    Variables of the program are the values and their distances from the noisy ones.
    """
    rng = np.random.default_rng(42)
    for _ in range(40):
        size, upper = int(rng.integers(1, 41)), int(rng.integers(1, 30))
        true = np.sort(rng.integers(0, upper + 1, size))
        row = true + np.rint(rng.laplace(0, 6, size)).astype(np.int64)
        least, greatest = fit_least_absolute(*arguments([row.tolist()], [upper]))
        one = np.eye(size)
        steps = np.eye(size)[:-1] - np.eye(size, k=1)[:-1]
        above, below = np.hstack([one, -one]), np.hstack([-one, -one])
        limits = np.vstack([above, below, np.hstack([steps, np.zeros_like(steps)])])
        rights = np.concatenate([row, -row, np.zeros(size - 1)])
        bounds = [(0, upper)] * size + [(0, None)] * size
        found = linprog(np.repeat([0, 1], size), A_ub=limits, b_ub=rights, bounds=bounds, method="highs")
        assert found.success
        for doubled in (2 * least, 2 * greatest, least + greatest):
            assert (np.diff(doubled) >= 0).all()
            assert doubled.min() >= 0
            assert doubled.max() <= 2 * upper
            assert abs(np.abs(doubled - 2 * row).sum() / 2 - found.fun) < 1e-6
