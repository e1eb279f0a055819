"""The OpenDP backend draws the discrete Gaussian: right draws are accepted, slightly wrong ones rejected."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from od_core.privacy.opendp_noise import OpenDPNoise
from tests.statistical.laws import ALPHA, chance_to_miss, law_p_value, probabilities

VARIANCES = [Fraction(1, 4), Fraction(1), Fraction(12345, 100), Fraction(10**4)]
DRAWS = 120_000


@pytest.fixture(scope="module", params=VARIANCES, ids=str)
def drawn(request) -> tuple[Fraction, np.ndarray]:
    """A variance, and draws of it."""
    return request.param, OpenDPNoise().draw(request.param, 1, 0, DRAWS)


def test_the_planned_law_is_accepted(drawn):
    """Fails with probability 1e-6 for each variance if the noise is right."""
    variance, values = drawn
    assert law_p_value(values, float(variance)) > ALPHA


@pytest.mark.parametrize("factor", [Fraction(97, 100), Fraction(103, 100)])
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_sigma_off_by_3_percent_is_rejected(variance, factor):
    """Fails by chance with a probability below 1e-5: so often the draws of a wrong sigma pass as right."""
    wrong = variance * factor**2
    assert chance_to_miss(float(variance), float(wrong), DRAWS) < 1e-5
    assert law_p_value(OpenDPNoise().draw(wrong, 1, 0, DRAWS), float(variance)) < ALPHA


def test_a_tail_clipped_at_3_sigma_is_rejected(drawn):
    """Fails by chance below 1e-10: so seldom no draw at all lies beyond 3 sigma."""
    variance, values = drawn
    limit = int(3 * float(variance) ** 0.5)
    all_values, chances = probabilities(float(variance))
    assert (1 - chances[np.abs(all_values) > limit].sum()) ** DRAWS < 1e-10
    assert law_p_value(np.clip(values, -limit, limit), float(variance)) < ALPHA


def test_a_shifted_mean_and_a_rounded_normal_are_rejected(drawn):
    """Noise that is off by one in every twentieth draw; and continuous noise rounded, at a small sigma."""
    variance, values = drawn
    if variance <= 1:
        shifted = values + (np.arange(DRAWS) % 20 == 0)
        assert law_p_value(shifted, float(variance)) < ALPHA
        rounded = np.rint(np.random.default_rng(1).normal(0, float(variance) ** 0.5, DRAWS)).astype(np.int64)
        assert law_p_value(rounded, float(variance)) < ALPHA
    else:
        assert law_p_value(values + int(float(variance) ** 0.5 / 10), float(variance)) < ALPHA


def test_a_tiny_variance_follows_the_enumerated_law():
    """At sigma^2 = 1/16 only -1, 0 and 1 come up: P(1) / P(0) = exp(-8). Fails with probability 1e-6."""
    variance = Fraction(1, 16)
    values, chances = probabilities(float(variance))
    at = dict(zip(values.tolist(), chances.tolist(), strict=True))
    assert at[1] / at[0] == pytest.approx(np.exp(-8), rel=1e-12)
    assert at[1] == pytest.approx(1 / (2 + np.exp(8)), rel=1e-6)
    drawn = OpenDPNoise().draw(variance, 1, 0, DRAWS)
    assert law_p_value(drawn, float(variance)) > ALPHA
    assert law_p_value(np.zeros(DRAWS, dtype=np.int64), float(variance)) < ALPHA
