"""Whole counts of at least 0 with the same total: against taking away one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import OdError
from od_core.stops.release import make_counts_nonnegative


def one_by_one(noisy):
    """Cut at 0; then take one from the smallest count above 0, the first of equal ones at the start, until it fits."""
    counts = [max(value, 0) for value in noisy]
    order = sorted(range(len(counts)), key=lambda k: (counts[k], k))
    while sum(counts) > max(sum(noisy), 0):
        first = next(k for k in order if counts[k] > 0)
        counts[first] -= 1
    return counts


@given(st.lists(st.integers(-9, 20), max_size=30))
def test_the_excess_is_taken_from_the_smallest_first(noisy):
    found = make_counts_nonnegative(np.array(noisy, dtype=np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == one_by_one(noisy)


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=200))
def test_whole_counts_keep_the_total_and_what_is_whole_already(noisy):
    values = np.array(noisy, dtype=np.int64)
    found = make_counts_nonnegative(values)
    assert (found >= 0).all()
    assert found.sum() == max(values.sum(), 0)
    assert (found <= np.maximum(values, 0)).all()
    assert make_counts_nonnegative(found).tolist() == found.tolist()
    assert np.count_nonzero((found > 0) & (found < values)) <= 1  # the one that the excess ended at


def test_sums_that_do_not_fit_are_refused():
    with pytest.raises(OdError, match="OD-STOPS-OVERFLOW"):
        make_counts_nonnegative(np.array([1 << 62, 1 << 62]))
