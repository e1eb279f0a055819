"""The noise in real releases: as much as was planned, at every level, on empty cells as on full ones."""

from fractions import Fraction

import numpy as np
import pytest

from od_core.noise.backends import BACKENDS, resolve_noise_source
from tests.statistical.laws import ALPHA, mean_p_value, variance_p_value


def pooled(releases) -> np.ndarray:
    return np.concatenate([r.standardised(level) for r in releases for level in r.residuals])


class Misscaled:
    """A backend's noise at a sigma that is off by a factor."""

    def __init__(self, backend: str, factor: Fraction) -> None:
        self.source, self.factor = resolve_noise_source(backend), factor

    def draw(self, variance, level, first, size):
        return self.source.draw(variance * self.factor**2, level, first, size)


@pytest.mark.parametrize("level", range(1, 9))
def test_every_level_has_its_planned_variance(level, real_releases):
    """Chi-square of the standardised residuals of all releases. Fails with probability 1e-6 for each level."""
    values = np.concatenate([r.standardised(level) for r in real_releases])
    assert len(values) >= len(real_releases) * 5 >= 24 * 5
    assert variance_p_value(values) > ALPHA / 2
    assert mean_p_value(values) > ALPHA / 2


def test_all_levels_together_have_variance_1_and_mean_0(real_releases):
    """Fails with probability 1e-6; rejects a sigma that is 1 % or 3 % off, by scaling the same residuals.

    One that is 1 % off lies 10 standard errors away or more, and a mean of 0.013 does nearly: each is missed with less
    than 1e-6.
    """
    values = pooled(real_releases)
    assert len(values) >= 560_000
    assert variance_p_value(values) > ALPHA / 2
    assert mean_p_value(values) > ALPHA / 2
    for factor in (0.97, 0.99, 1.01, 1.03):
        assert variance_p_value(values * factor) < ALPHA
    assert mean_p_value(values + 0.013) < ALPHA


@pytest.mark.parametrize("factor", [Fraction(97, 100), Fraction(103, 100)])
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_releases_with_a_sigma_3_percent_off_are_rejected(backend, factor, make_release):
    """At 75,000 residuals a sigma 3 % off lies 11 standard errors away: missed with probability below 1e-9."""
    months = ("2001-01", "2001-02", "2001-03")
    releases = [make_release(month, "1", "destination", Misscaled(backend, factor)) for month in months]
    values = pooled(releases)
    assert len(values) >= 60_000
    assert not any(r.release.has_guarantee for r in releases)
    assert variance_p_value(values) < ALPHA


def test_empty_cells_get_the_same_noise_as_cells_with_trips(real_releases):
    """Variance and mean apart for both. Fails with probability 1e-6."""
    for wanted in (True, False):
        values = np.concatenate(
            [r.standardised(level)[r.empty[level] == wanted] for r in real_releases for level in r.residuals]
        )
        assert len(values) >= 60_000
        assert variance_p_value(values) > ALPHA / 4
        assert mean_p_value(values) > ALPHA / 4
