"""What can be found by subtraction in a suppressed table is what enumeration of all possible tables shows."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.suppression import by_subtraction

LEAST = 4
"""A number is suppressed if it is 1, 2 or 3, so that all tables can be enumerated."""


@given(st.lists(st.sampled_from([0, 1, 2, 3, 3, 4, 9]), min_size=6, max_size=6))
def test_bounds_hold_for_every_table_with_the_same_margins(cells):
    true = np.array(cells).reshape(2, 3)
    hidden = (true > 0) & (true < LEAST)
    possible = []
    for values in product(range(1, LEAST), repeat=int(hidden.sum())):
        table = true.copy()
        table[hidden] = values
        if (table.sum(0) == true.sum(0)).all() and (table.sum(1) == true.sum(1)).all():
            possible.append(table)
    low, high = by_subtraction(true, LEAST)
    assert (low <= np.min(possible, axis=0)).all()
    assert (np.max(possible, axis=0) <= high).all()
    if hidden.sum() == 1:
        assert (low == high).all()
