"""Into how many parts: the formula, its roundings, its limits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.stops.mechanisms import compute_fan_out, make_equal_parts, split_budget_by_depth
from tests.od_core.stops.worlds import ROUNDINGS


@given(st.integers(2, 10**9), st.fractions("1/1000", 10), st.integers(1, 6), st.integers(1, 300))
def test_the_noise_is_as_large_as_what_the_cut_loses(n, epsilon, dimensions, length):
    """Equation 18, solved by bisection on reals: log2(sqrt 2 m^(d/2) / epsilon) = log2 N - d log2 m."""

    def noise_beyond_loss(log_m):
        noise = 0.5 + dimensions / 2 * log_m - math.log2(epsilon)
        return noise - (math.log2(n) - dimensions * log_m)

    low, high = -200.0, 200.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if noise_beyond_loss(middle) < 0 else (low, middle)
    exact = 2**low
    given = (np.array([n]), epsilon, dimensions, length)
    found = {rounding: int(compute_fan_out(*given, rounding)[0]) for rounding in ROUNDINGS}
    wanted = {"nearest": exact, "up": exact + 0.5, "down": exact - 0.5, "times_1.5": 1.5 * exact}
    for rounding, m in found.items():
        assert 1 <= m <= length
        assert abs(m - min(max(wanted[rounding], 1), length)) <= 0.5 + 1e-9 * exact


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(40, 1 << 31))
def test_equal_parts_differ_by_a_cell_at_most(parts, length):
    begins = np.split(make_equal_parts(np.array(parts), length), np.cumsum(parts)[:-1])
    for number, begin in zip(parts, begins, strict=True):
        sides = np.diff([*begin.astype(np.int64), length])
        assert len(sides) == number
        assert begin[0] == 0
        assert sides.min() >= 1
        assert np.ptp(sides) <= 1


@given(st.fractions("1/100", 10), st.integers(1, 1 << 31), st.integers(1, 8))
def test_shares_grow_with_the_cube_root_of_the_nodes_and_sum_to_what_is_left(left, m0, dimensions):
    shares = split_budget_by_depth(left, m0, dimensions)
    assert len(shares) == dimensions
    assert sum(shares) == left
    whole = sum(m0 ** (depth / 3) for depth in range(1, dimensions + 1))
    for depth, share in enumerate(shares, start=1):
        assert float(share / left) == pytest.approx(m0 ** (depth / 3) / whole, rel=1e-5)
    if m0 == 1:
        assert set(shares) == {left / dimensions}
