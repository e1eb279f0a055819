"""Tables at equal shares of false discoveries, against thresholds that are tried one after the other."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from benchmarks.false_discoveries import Curve

CELLS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=10)


def by_trial(true: list[int], found: list[int], threshold: int) -> tuple[Fraction, Fraction, Fraction]:
    """The share of false discoveries, the share of false negatives, and the error in trips, after a threshold."""
    left = [trips if trips >= threshold else 0 for trips in found]
    pairs = list(zip(true, left, strict=True))
    released, there = sum(b > 0 for _, b in pairs), sum(a > 0 for a, _ in pairs)
    false, missed = sum(a == 0 < b for a, b in pairs), sum(b == 0 < a for a, b in pairs)
    error = sum(abs(a - b) for a, b in pairs)
    return Fraction(false, max(1, released)), Fraction(missed, max(1, there)), Fraction(error, sum(true))


@given(cells=CELLS, percent=st.integers(0, 100))
@example(cells=[(0, 1), (0, 2), (3, 3), (4, 5)], percent=25)
@example(cells=[(0, 6), (2, 0)], percent=50)
@example(cells=[(2, 0)], percent=0)
def test_the_curve_and_what_is_read_from_it_are_those_of_every_threshold(cells, percent):
    true, found = (list(side) for side in zip((1, 1), *cells, strict=True))
    curve = Curve.of(np.array(true), np.array(found))
    trials = [by_trial(true, found, t) for t in range(1, max(found) + 2)]
    for k, t in enumerate(curve.thresholds):
        found_at = (curve.false_discoveries[k], curve.false_negatives[k], curve.leaf_error[k])
        assert found_at == pytest.approx([float(each) for each in trials[t - 1]])
    assert set(trials) == {trials[t - 1] for t in curve.thresholds}  # no other threshold differs
    share = Fraction(percent, 100)
    first = next(t for t, (false, _, _) in enumerate(trials) if false <= share)
    expected = trials[first]
    if first:
        above, below = trials[first - 1], trials[first]
        weight = (above[0] - share) / (above[0] - below[0])
        expected = tuple((1 - weight) * a + weight * b for a, b in zip(above, below, strict=True))
    event("without a threshold" if first == 0 else "between two thresholds")
    for values, figure in zip(
        (curve.false_discoveries, curve.false_negatives, curve.leaf_error), expected, strict=True
    ):
        assert sum(weight * values[k] for k, weight in curve.at(float(share))) == pytest.approx(float(figure))
