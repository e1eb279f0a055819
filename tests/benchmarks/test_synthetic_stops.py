"""Trips with stops for evaluation: the shapes that they are said to have, the same at every call, and marked."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.synthetic_stops import gaussian, zipf

ALPHA = 1e-6


@pytest.mark.parametrize("spread", [0.05, 0.2])
def test_a_gaussian_is_a_rounded_normal_law_within_the_side(spread):
    """Each coordinate against the law with that centre, cut at the space; 1e-6 each. Half the spread is refused."""
    data, side = gaussian(4, 4, spread, trips=20_000, side=40), 40
    centres = np.random.default_rng(4).integers(0, side, 4)
    edges = np.arange(side + 1) - 0.5
    for centre, column in zip(centres, data.points.T, strict=True):
        seen = np.bincount(column, minlength=side)
        for share, is_law in ((spread, True), (spread / 2, False)):
            law = np.diff(stats.norm.cdf(edges, centre, share * side))
            law /= law.sum()
            common = law * 20_000 > 5
            groups = [np.append(of[common], of[~common].sum()) for of in (seen, law * 20_000)]
            if groups[1][-1] < 1e-9:
                groups = [of[:-1] for of in groups]
            assert (stats.chisquare(*groups, sum_check=False).pvalue > ALPHA) == is_law
    assert abs(np.corrcoef(data.points.T) - np.eye(4)).max() < 0.05  # 7 standard deviations


@pytest.mark.parametrize("a", [1.5, 2.5])
def test_zipf_is_the_law_within_the_side(a):
    """Each coordinate against k^-a over its sum; 1e-6 each. Another exponent is refused."""
    data = zipf(4, 3, a, trips=20_000, side=25)
    for column in data.points.T:
        seen = np.bincount(column, minlength=25)
        for exponent in (a, a + 0.3):
            law = np.arange(1, 26.0) ** -exponent
            assert (stats.chisquare(seen, law / law.sum() * 20_000).pvalue > ALPHA) == (exponent == a)
    assert abs(np.corrcoef(data.points.T) - np.eye(3)).max() < 0.05
