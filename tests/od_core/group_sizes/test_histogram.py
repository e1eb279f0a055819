from fractions import Fraction

import numpy as np
import pytest

from od_core.group_sizes.mechanisms import GroupSizeMechanism, Histogram, HistogramRelaxed
from tests.od_core.group_sizes.trees import assert_consistent, cost, least_cost, random_case


@pytest.mark.representatives("True")
@pytest.mark.parametrize("area_totals", [True, False])
def test_keeps_its_promise_and_is_optimal_on_100_trees(area_totals):
    mechanism, rng = Histogram(area_totals=area_totals), np.random.default_rng(15)
    assert isinstance(mechanism, GroupSizeMechanism)
    for _ in range(100):
        frame, noisy, scale = random_case(rng)
        histograms = mechanism.estimate(frame, noisy, Fraction(scale))
        assert_consistent(frame, histograms, all_totals=area_totals)
        assert cost(noisy, histograms) == least_cost(frame, noisy, area_totals=area_totals)


def test_the_same_values_give_the_same_histograms():
    frame, noisy, scale = random_case(np.random.default_rng(3), most_groups=50, most_sizes=30, max_fan_out=5)
    for mechanism in (Histogram(), Histogram(area_totals=False), HistogramRelaxed()):
        first, again = (mechanism.estimate(frame, noisy, Fraction(scale)) for _ in range(2))
        assert all((a == b).all() for a, b in zip(first, again, strict=True))


def test_the_relaxed_one_is_no_dearer_than_the_optimum_but_does_not_add_up():
    """Rounding adds at most 1/4 a cell to the cost of the relaxation, which is at most that of whole numbers."""
    rng, broken = np.random.default_rng(7), 0
    for _ in range(60):
        frame, noisy, scale = random_case(rng, most_groups=20, most_sizes=10)
        histograms = HistogramRelaxed().estimate(frame, noisy, Fraction(scale))
        rounded = [values.astype(float) for values in histograms]
        assert all(values.min() >= 0 for values in rounded)
        distance = sum(((a - b) ** 2).sum() for a, b in zip(rounded, noisy, strict=True)) ** 0.5
        cells = sum(values.size for values in noisy)
        assert distance <= least_cost(frame, noisy, area_totals=True) ** 0.5 + (cells / 4) ** 0.5 + 0.1
        broken += any((values != frame.sums(histograms[-1], level)).any() for level, values in enumerate(histograms, 1))
    assert broken > 20


def test_what_they_say_of_themselves():
    assert Histogram().options == {"area_totals": "true"}
    assert Histogram().keeps_totals
    assert not Histogram(area_totals=False).keeps_totals
    assert not HistogramRelaxed().adds_up
    assert not HistogramRelaxed().keeps_totals
