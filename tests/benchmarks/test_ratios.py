"""Ratios of mean errors and their bootstrap bounds, against exact enumerations of the resamples."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.ratios import OPEN, ratios_of_means

RUNS = 10
"""Half of them 0, half of them 2, say: a resample's sum is twice a binomial number, with no quantile near a step."""


def halves(least: float, most: float) -> np.ndarray:
    return np.repeat([least, most], RUNS // 2)[:, None]


def exact_quantiles(law: dict[float, float]) -> list[float]:
    """Of a discrete law, where the outer half per cents are cut."""
    values = sorted(law)
    before = np.cumsum([law[value] for value in values])
    return [values[np.searchsorted(before, at)] for at in (0.005, 0.995)]


def resampled_mean(least: float, most: float) -> dict[float, float]:
    """The exact law of the mean of a resample of ``halves``."""
    return {least + (most - least) * count / RUNS: float(binom.pmf(count, RUNS, 0.5)) for count in range(RUNS + 1)}


def test_bounds_of_scattered_errors():
    (ratio,), _ = ratios_of_means(halves(0.0, 2.0), np.ones((RUNS, 1)))
    assert ratio.ratio == 1
    assert [ratio.lower, ratio.upper] == pytest.approx(exact_quantiles(resampled_mean(0.0, 2.0)))


def test_both_sides_are_resampled_independently():
    """An error over itself: bounds of 1 if the same runs were taken on both sides."""
    errors = halves(1.0, 3.0)
    (ratio,), _ = ratios_of_means(errors, errors)
    law: dict[float, float] = {}
    for (above, chance), (below, other) in product(resampled_mean(1.0, 3.0).items(), repeat=2):
        law[above / below] = law.get(above / below, 0.0) + chance * other
    assert ratio.ratio == 1
    assert [ratio.lower, ratio.upper] == pytest.approx(exact_quantiles(law), rel=0.05)  # its steps lie close together
    assert ratio.verdict == OPEN


def test_columns_of_a_run_stay_together():
    """Two columns whose mean is the same in every run: each scatters, their mean does not."""
    errors = np.hstack([halves(0.0, 2.0), halves(2.0, 0.0)])
    columns, over = ratios_of_means(errors, np.ones((RUNS, 2)))
    assert all(ratio.lower < 0.5 < 1.5 < ratio.upper for ratio in columns)
    assert [over.ratio, over.lower, over.upper] == pytest.approx([1, 1, 1])
