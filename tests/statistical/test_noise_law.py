"""The backends draw the discrete Gaussian: right draws are accepted, slightly wrong ones rejected."""

import math
from fractions import Fraction

import numpy as np
import pytest

from od_core import FlowTree, Geography
from od_core.geography.flow_tree import Pairs
from od_core.noise.backends import resolve_noise_source
from od_core.noise.table_sampler import TableNoise
from od_core.records.counts import TripCounts
from tests.statistical import laws

EMPTY = np.zeros(1, dtype=np.int32)

VARIANCES = [Fraction(1, 4), Fraction(1), Fraction(12345, 100), Fraction(10**4)]
DRAWS = {"opendp": 120_000, "table": 10**7}


def draw(backend: str, variance: Fraction) -> np.ndarray:
    return resolve_noise_source(backend).draw(variance, 1, 0, DRAWS[backend])


@pytest.fixture(scope="module", params=[(b, v) for b in DRAWS for v in VARIANCES], ids=lambda p: f"{p[0]}-{p[1]}")
def drawn(request) -> tuple[Fraction, np.ndarray]:
    """A variance, and a backend's draws of it."""
    backend, variance = request.param
    return variance, draw(backend, variance)


def test_the_planned_law_is_accepted(drawn):
    """Fails with probability 1e-6 for each variance if the noise is right."""
    variance, values = drawn
    assert laws.law_p_value(values, float(variance)) > laws.ALPHA


@pytest.mark.parametrize("location", [0, 2**40])
def test_the_law_is_the_same_at_any_true_count(drawn, location):
    """Counts of so many trips in every cell, added as a measurement adds them. Fails with probability 1e-6."""
    variance, values = drawn
    side = math.isqrt(min(len(values), 10**6))
    zones = Geography(("zone",), (("all",), tuple(f"z{k:04d}" for k in range(side))), (EMPTY[:0], EMPTY.repeat(side)))
    tree = FlowTree(zones, zones)
    pairs = side * side if location else 0
    counts = TripCounts(np.arange(pairs), np.arange(pairs + 1) * location)
    measured = []
    for families in tree.expand(Pairs(1, np.zeros(side, dtype=np.int32), np.arange(side, dtype=np.int32))):
        noisy = values[families.first : families.first + len(families)].copy()
        counts.add_to(noisy, tree, families)
        measured.append(noisy - location)
    assert laws.law_p_value(np.concatenate(measured), float(variance)) > laws.ALPHA


@pytest.mark.parametrize("factor", [Fraction(97, 100), Fraction(103, 100)])
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_sigma_off_by_3_percent_is_rejected(variance, factor):
    """As many as OpenDP draws in seconds. Fails by chance below 1e-5: so often draws of a wrong sigma pass as right."""
    wrong = variance * factor**2
    assert laws.chance_to_miss(float(variance), float(wrong), DRAWS["opendp"]) < 1e-5
    assert laws.law_p_value(draw("opendp", wrong), float(variance)) < laws.ALPHA


def test_a_tail_clipped_at_3_sigma_is_rejected(drawn):
    """Fails by chance below 1e-10: so seldom no draw at all lies beyond 3 sigma."""
    variance, values = drawn
    limit = int(3 * float(variance) ** 0.5)
    all_values, chances = laws.probabilities(float(variance))
    assert (1 - chances[np.abs(all_values) > limit].sum()) ** len(values) < 1e-10
    assert laws.law_p_value(np.clip(values, -limit, limit), float(variance)) < laws.ALPHA


def test_a_shifted_mean_and_a_rounded_normal_are_rejected(drawn):
    """Noise that is off by one in every twentieth draw; and continuous noise rounded, at a small sigma."""
    variance, values = drawn
    if variance <= 1:
        shifted = values + (np.arange(len(values)) % 20 == 0)
        assert laws.law_p_value(shifted, float(variance)) < laws.ALPHA
        rounded = np.rint(np.random.default_rng(1).normal(0, float(variance) ** 0.5, len(values))).astype(np.int64)
        assert laws.law_p_value(rounded, float(variance)) < laws.ALPHA
    else:
        assert laws.law_p_value(values + int(float(variance) ** 0.5 / 10), float(variance)) < laws.ALPHA


@pytest.mark.parametrize("backend", DRAWS)
def test_a_tiny_variance_follows_the_enumerated_law(backend):
    """At sigma^2 = 1/16 only -1, 0 and 1 come up: P(1) / P(0) = exp(-8). Fails with probability 1e-6."""
    variance = Fraction(1, 16)
    values, chances = laws.probabilities(float(variance))
    at = dict(zip(values.tolist(), chances.tolist(), strict=True))
    assert at[1] / at[0] == pytest.approx(np.exp(-8), rel=1e-12)
    assert at[1] == pytest.approx(1 / (2 + np.exp(8)), rel=1e-6)
    drawn = draw(backend, variance)
    assert laws.law_p_value(drawn, float(variance)) > laws.ALPHA
    assert laws.law_p_value(np.zeros(len(drawn), dtype=np.int64), float(variance)) < laws.ALPHA


@pytest.mark.parametrize("sigma", [1000, 16_384])
def test_a_wide_table_draws_its_law(sigma):
    """Many or most draws need a second limb. Fails with probability 1e-6."""
    drawn = TableNoise().draw(Fraction(sigma**2), 1, 0, 10**6)
    assert laws.law_p_value(drawn, float(sigma**2)) > laws.ALPHA
    assert laws.chance_to_miss(1.03**2 * sigma**2, float(sigma**2), 10**6) < 1e-5
    assert laws.law_p_value(drawn, 1.03**2 * sigma**2) < laws.ALPHA


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(2001, 100), Fraction(300)], ids=str)
def test_the_discrete_laplace_law_is_accepted_and_a_scale_off_by_3_percent_rejected(scale):
    """Fails with probability 1e-6 if the noise is right."""
    values, chances = laws.laplace_probabilities(float(scale))
    sigma = float((values.astype(float) ** 2 * chances).sum() ** 0.5)
    a = float(np.exp(-1 / float(scale)))
    assert sigma**2 == pytest.approx(2 * a / (1 - a) ** 2, rel=1e-9)
    drawn = TableNoise().draw_laplace(scale, 10**7)
    assert laws.p_value(drawn, values, chances, sigma) > laws.ALPHA
    for factor in (Fraction(97, 100), Fraction(103, 100)):
        wrong = TableNoise().draw_laplace(scale * factor, 10**7)
        assert laws.p_value(wrong, values, chances, sigma) < laws.ALPHA


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_several_processes_draw_the_planned_law(variance, monkeypatch):
    """Three, however few processors there are. Fails with probability 1e-6 for each variance if the noise is right."""
    monkeypatch.setenv("OD_THREADS", "3")
    assert laws.law_p_value(draw("opendp", variance), float(variance)) > laws.ALPHA
