"""Rounding and repair of a table by categories: rows are kept, columns are made exact, and the work is bounded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.flows.projection.categories_onto_margins import SWEEPS, repair_columns, round_rows
from tests.od_core.flows.projection.margin_families import BITS, adversarial_family, ascended, most_moves


def test_the_work_is_bounded():
    rng = np.random.default_rng(52)
    most = 0
    for _ in range(300):
        family = adversarial_family(rng, int(rng.integers(2, 60)), int(rng.integers(2, 12)))
        if not family.truth.any():
            continue
        values, row_sums, column_sums, sweeps = ascended(family)
        moves = repair_columns(values, column_sums, BITS, round_rows(values, row_sums, BITS))
        assert sweeps <= SWEEPS
        assert moves <= most_moves(len(column_sums))
        most = max(most, moves)
    assert most > 12


@given(data=st.data())
def test_any_table_is_repaired(data):
    """However far its columns are from their sums, and whatever Y is."""
    width, height = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 8))
    counts = st.lists(st.sampled_from((0, 0, 1, 2, 30, 10**6)), min_size=width * height, max_size=width * height)
    rounded, other = (np.array(data.draw(counts)).reshape(width, height) for _ in range(2))
    reals = st.lists(st.integers(0, 2**40), min_size=width * height, max_size=width * height)
    values = np.array(data.draw(reals)).reshape(width, height)
    other[0, 0] += max(0, rounded.sum() - other.sum())
    rounded[0, 0] += max(0, other.sum() - rounded.sum())
    row_sums, column_sums = rounded.sum(axis=0), other.sum(axis=1)
    moves = repair_columns(values, column_sums, BITS, rounded)
    assert rounded.min() >= 0
    assert (rounded.sum(axis=0) == row_sums).all()
    assert (rounded.sum(axis=1) == column_sums).all()
    assert moves <= most_moves(width)


@pytest.mark.parametrize(
    ("surplus", "giver"),
    [
        (20, [1, 3, 4, 0]),  # the rows give 8, 6, 5 and 1: their slack and 6 more, if they have it
        (19, [1, 3, 5, 0]),  # the third row gives only 4, because the first rows come first
        (2, [7, 9, 9, 1]),  # two single units from the row of largest slack
    ],
)
def test_a_repair_takes_the_rows_of_largest_slack(surplus, giver):
    """Four rows with 9, 9, 9 and 1 units in one category, which are 2, 0, -1 and 0 above Y, and none in the other."""
    rounded = np.array([[9, 9, 9, 1], [0, 0, 0, 0]])
    values = np.array([[7, 9, 10, 1], [5, 5, 5, 5]]) << BITS
    repair_columns(values, np.array([28 - surplus, surplus]), BITS, rounded)
    assert rounded.tolist() == [giver, [9 - giver[0], 9 - giver[1], 9 - giver[2], 1 - giver[3]]]
