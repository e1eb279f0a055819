from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Geography, OdError
from od_core.group_sizes.cost_tables import (
    first_cut,
    leaf_values,
    nearest_histograms,
    root_tables,
    tree_below,
)
from od_core.group_sizes.groups import Frame
from tests.od_core.group_sizes.trees import cost, random_case, random_geography


def chain() -> Geography:
    """One area in three levels."""
    return Geography.from_frame(pd.DataFrame({"a": ["x"], "b": ["y"], "c": ["z"]}), ["a", "b", "c"])


def test_a_feasible_answer_on_a_cut_end_is_not_taken_for_the_optimum():
    """By calculus: (a - 90)^2 + 2 a^2 + (60 - a)^2 + 2 a^2 is least at a = 25. The table of the middle area for size 0
    is least at 0, and a cut of 1 leaves it 0 and 1: with (1, 69) there is an answer, but not the best."""
    frame = Frame(chain(), np.array([70]), 1)
    noisy = [np.array([row]) for row in ([90, 10], [0, 70], [0, 70])]
    for cut in (1, 2, 8, 16, 1000):
        assert nearest_histograms(frame, noisy, cut)[0].tolist() == [[25, 45]]


def test_no_cut_end_is_overlooked_in_any_node():
    """Noise far wider than the cut, three levels, many children: against tables that are not cut at all."""
    rng = np.random.default_rng(300)
    for _ in range(300):
        geography = random_geography(rng, tops=1, depth=3, max_fan_out=4)
        frame = Frame(geography, rng.integers(0, 9, len(geography.zones)), 2)
        noisy = [rng.integers(-40, 41, (geography.size(level), 3)) for level in frame.levels]
        least = cost(noisy, nearest_histograms(frame, noisy, int(frame.groups.sum()) + 1))
        for cut in (1, 2, 8):
            assert cost(noisy, nearest_histograms(frame, noisy, cut)) == least


def test_what_is_found_for_a_size_does_not_depend_on_other_sizes():
    """Leaf values and marks of cut ends, for columns solved together and one by one."""
    rng = np.random.default_rng(301)
    for _ in range(60):
        geography = random_geography(rng, tops=1, depth=3, max_fan_out=3)
        frame = Frame(geography, np.ones(len(geography.zones), dtype=np.int64), 1)
        first_child, total, cut = tree_below(frame, 0)[1], int(rng.integers(1, 20)), int(rng.integers(1, 4))
        nodes = sum(geography.size(level) for level in frame.levels)
        columns = rng.integers(-3, 12, (6, nodes))
        lows, sizes, _ = root_tables(first_child, columns, cut, total)
        columns, roots = columns[lows <= total], rng.integers(lows, lows + sizes + 1)[lows <= total]
        leaves, at_cut = leaf_values(first_child, columns, roots, cut, total)
        for column in range(len(columns)):
            own, mark = leaf_values(first_child, columns[[column]], roots[[column]], cut, total)
            assert (leaves[column] == own[0]).all()
            assert at_cut[column] == mark[0]


def test_values_far_below_the_cut_are_found():
    """The areas of a level sum to 0 of 5 groups where all noise is far below 0 or above all groups."""
    frame = Frame(chain(), np.array([5]), 2)
    noisy = [np.array([[-1000, 40, -1000]])] * 3
    assert nearest_histograms(frame, noisy, 1)[-1].tolist() == [[0, 5, 0]]


def test_equal_slopes_go_to_the_smallest_size_and_the_first_child():
    geography = Geography.from_frame(pd.DataFrame({"a": list("xxx"), "b": list("pqr")}), ["a", "b"])
    frame = Frame(geography, np.array([1, 1, 0]), 3)
    histograms = nearest_histograms(frame, [np.zeros((1, 4), dtype=np.int64), np.zeros((3, 4), dtype=np.int64)], 16)
    assert histograms[1].tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


@given(seed=st.integers(0, 2**32), data=st.data())
def test_the_cost_does_not_depend_on_the_order_of_sizes(seed, data):
    frame, noisy, _ = random_case(np.random.default_rng(seed))
    order = data.draw(st.permutations(range(frame.top_code + 1)))
    moved = [values[:, order] for values in noisy]
    assert cost(noisy, nearest_histograms(frame, noisy, 2)) == cost(moved, nearest_histograms(frame, moved, 2))


def test_cuts_begin_at_sixteen_scales():
    assert [first_cut(Fraction(*scale)) for scale in ((3, 1), (1, 100), (7, 3))] == [48, 1, 38]


@pytest.mark.parametrize("value", [2**40, -(2**40)])
def test_values_from_the_limit_on_are_refused(value):
    frame = Frame(chain(), np.array([5]), 1)
    near = np.array([[value - np.sign(value), 0]])
    assert nearest_histograms(frame, [near] * 3, 1)[0].sum() == 5
    with pytest.raises(OdError, match="OD-GROUPS-OVERFLOW"):
        nearest_histograms(frame, [near, near, np.array([[value, 0]])], 1)
