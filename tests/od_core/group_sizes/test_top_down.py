"""TopDown for group sizes: each step against the optimum of its two levels."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import linprog

from od_core import Geography
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.mechanisms import TopDown
from tests.od_core.group_sizes.trees import assert_consistent, cost, random_case


def by_units(noisy: list[int], total: int) -> int:
    """The least cost of whole numbers of at least 0 that sum to a total: one unit after the other, where it is best."""
    values = [0] * len(noisy)
    for _ in range(total):
        values[min(range(len(noisy)), key=lambda i: 2 * (values[i] - noisy[i]))] += 1
    return sum((value - x) ** 2 for value, x in zip(values, noisy, strict=True))


def by_transport(noisy: Counts, rows: Counts, columns: Counts) -> int:
    """The least cost of whole numbers with these sums: a transport problem, each cell in units that cost ever more."""
    units = int(rows.max(initial=0))
    if units == 0:
        return int((noisy**2).sum())
    price = (2 * np.arange(1, units + 1) - 1 - 2 * noisy[..., None]).ravel()
    eye, ones = sparse.eye_array, np.ones
    of_rows = sparse.kron(eye(len(rows)), ones((1, len(columns) * units)))
    of_columns = sparse.kron(ones((1, len(rows))), sparse.kron(eye(len(columns)), ones((1, units))))
    sums = sparse.vstack([of_rows, of_columns])
    found = linprog(price, A_eq=sums.tocsc(), b_eq=[*rows, *columns], bounds=(0, 1))
    assert found.success
    return round(found.fun) + int((noisy**2).sum())


@pytest.mark.parametrize("area_totals", [True, False])
def test_keeps_its_promise_and_each_step_is_nearest(area_totals):
    rng, reached, least = np.random.default_rng(70), 0, 0
    for _ in range(10):
        frame, noisy, scale = random_case(rng, most_groups=12, max_fan_out=4)
        histograms = TopDown(area_totals=area_totals).estimate(frame, noisy, Fraction(scale))
        assert_consistent(frame, histograms, all_totals=area_totals)
        tops = zip(noisy[0].tolist(), frame.count_groups(1).tolist(), strict=True)
        assert cost([noisy[0]], [histograms[0]]) == sum(by_units(row, total) for row, total in tops)
        for level in frame.levels[:-1]:
            first = frame.geography.first_child[level]
            for area, above in enumerate(histograms[level - 1]):
                children = slice(first[area], first[area + 1])
                own = cost([noisy[level][children]], [histograms[level][children]])
                if area_totals:
                    best = by_transport(noisy[level][children], frame.count_groups(level + 1)[children], above)
                else:
                    columns = zip(noisy[level][children].T.tolist(), above.tolist(), strict=True)
                    best = sum(by_units(column, total) for column, total in columns)
                    assert own == best
                reached, least = reached + own, least + best
    assert least <= reached < 1.005 * least


def test_a_parent_is_divided_by_hand():
    """One size alone has groups. The children want 5, 3 and 0 of 4, so each loses 2, and the last one has none."""
    geography = Geography.from_frame(pd.DataFrame({"a": list("xxx"), "b": list("pqr")}), ["a", "b"])
    frame = Frame(geography, np.array([2, 2, 0]), 1)
    noisy = [np.array([[4, -3]]), np.array([[5, 0], [3, 0], [0, 0]])]
    assert TopDown(area_totals=False).estimate(frame, noisy, Fraction(1))[1].tolist() == [[3, 0], [1, 0], [0, 0]]
    assert TopDown().estimate(frame, noisy, Fraction(1))[1].tolist() == [[2, 0], [2, 0], [0, 0]]
