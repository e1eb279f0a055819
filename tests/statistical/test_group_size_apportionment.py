import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from od_core.group_sizes.area_totals import Prices, apportioned, largest_remainders, relaxed_prices
from tests.od_core.group_sizes.trees import assert_consistent, bound, cost, least_cost, random_case


def test_keeps_its_promise_on_1000_trees():
    rng = np.random.default_rng(1000)
    for _ in range(1000):
        frame, noisy, _ = random_case(rng, most_groups=50, most_sizes=20, max_fan_out=5)
        assert_consistent(frame, apportioned(frame, noisy, relaxed_prices(frame, noisy)), all_totals=True)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), reach=st.sampled_from([1.0, 100.0, 1e7]))
def test_keeps_its_promise_whatever_the_prices(seed, reach):
    rng = np.random.default_rng(seed)
    frame, noisy, _ = random_case(rng)
    right = relaxed_prices(frame, noisy)
    wrong = Prices(
        [rng.normal(0, reach, one.shape) for one in right.totals],
        [rng.normal(0, reach, one.shape) for one in right.children],
    )
    assert_consistent(frame, apportioned(frame, noisy, wrong), all_totals=True)


def test_is_near_the_optimum():
    """On small trees against the optimum itself, on larger ones against its bound from below."""
    rng = np.random.default_rng(100)
    near = least = 0
    for _ in range(100):
        frame, noisy, _ = random_case(rng, most_groups=20, most_sizes=15, max_fan_out=5)
        near += cost(noisy, apportioned(frame, noisy, relaxed_prices(frame, noisy)))
        least += least_cost(frame, noisy, area_totals=True)
    assert least <= near < 1.01 * least
    near, below = 0, 0.0
    for _ in range(20):
        frame, noisy, _ = random_case(rng, most_groups=300, most_sizes=200, max_fan_out=8)
        prices = relaxed_prices(frame, noisy)
        near += cost(noisy, apportioned(frame, noisy, prices))
        below += bound(frame, noisy, prices)
    assert below <= near < 1.01 * below


@pytest.mark.parametrize(
    ("y", "total", "expected"),
    [
        ([0.2, 1.7, 0.6], 3, [0, 2, 1]),
        ([0.2, 1.7, 0.6], 2, [0, 2, 0]),
        ([0.5, 0.5, 0.5], 1, [1, 0, 0]),  # ties: the smallest size first
        ([3.1, 2.9, -4.0], 2, [1, 1, 0]),
        ([-1.0, -2.0], 5, [3, 2]),
        ([7.0, 5.0], 0, [0, 0]),
    ],
)
def test_largest_remainders(y, total, expected):
    assert largest_remainders(np.array(y), total).tolist() == expected
