"""The OpenDP backend draws the discrete Gaussian: right draws are accepted, slightly wrong ones rejected."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from od_core.privacy.opendp_noise import OpenDPNoise
from od_core.privacy.opendp_pool import Pool
from od_core.privacy.opendp_worker import GAUSSIAN, LAPLACE
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


@pytest.fixture(scope="module")
def pool():
    """Worker processes, however few processors there are."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OD_THREADS", "2")
        workers = Pool(worth=0)
        yield workers
        workers.end()


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_workers_draw_the_planned_law(variance, pool):
    """Fails with probability 1e-6 for each variance if the noise is right."""
    drawn = pool.draw(GAUSSIAN, float(variance) ** 0.5, DRAWS)
    assert all(worker.pid for worker in pool.workers)
    assert law_p_value(drawn, float(variance)) > ALPHA


def laplace_p_value(drawn: np.ndarray, scale: float) -> float:
    """Chi-square over the values whose expected number is at least 10, the rest at each side in one bin.

    P(k) = (1 - a) / (1 + a) a^|k| with a = exp(-1 / scale); beyond k on one side lies a^(k + 1) / (1 + a).
    """
    a = np.exp(-1 / scale)
    reach = int(scale * np.log(len(drawn) * (1 - a) / 10))
    inner = (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))
    tail = a ** (reach + 1) / (1 + a)
    expected = len(drawn) * np.array([tail, *inner, tail])
    assert expected.sum() == pytest.approx(len(drawn))
    clipped = np.clip(drawn, -reach - 1, reach + 1)
    return float(stats.chisquare(np.bincount(clipped + reach + 1, minlength=2 * reach + 3), expected).pvalue)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(20)], ids=str)
def test_laplace_draws_follow_the_planned_law_and_no_other(scale, pool):
    """Fails with probability 2e-6 for each scale if the noise is right; off by 5 percent it passes below 1e-5."""
    here, there = OpenDPNoise().draw_laplace(scale, DRAWS), pool.draw(LAPLACE, float(scale), DRAWS)
    for drawn in (here, there):
        assert laplace_p_value(drawn, float(scale)) > ALPHA
        assert law_p_value(drawn, 2 * float(scale) ** 2) < ALPHA
    wrong = OpenDPNoise().draw_laplace(scale * Fraction(105, 100), DRAWS)
    assert laplace_p_value(wrong, float(scale)) < ALPHA
