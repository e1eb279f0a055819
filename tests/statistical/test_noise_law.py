"""Backends draw discrete Gaussian and Laplace noise: right draws are accepted, slightly wrong ones rejected."""

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from od_core import Budget, FlowTree, Geography, InfTDARefined, PrivacyUnit, plan_release
from od_core.evaluation.forecast import RepeatableNoise
from od_core.flows.measuring import draw_noise
from od_core.geography.flow_tree import Pairs
from od_core.noise.backends import require_laplace_source, resolve_noise_source
from od_core.noise.table_sampler import TableNoise
from od_core.records.counts import TripCounts
from tests.od_core.oracles import samplers
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
    of_both = laws.probabilities(float(variance)), laws.probabilities(float(wrong))
    assert laws.chance_to_miss(*of_both, math.sqrt(variance), DRAWS["opendp"]) < 1e-5
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
    of_both = laws.probabilities(1.03**2 * sigma**2), laws.probabilities(float(sigma**2))
    assert laws.chance_to_miss(*of_both, 1.03 * sigma, 10**6) < 1e-5
    assert laws.law_p_value(drawn, 1.03**2 * sigma**2) < laws.ALPHA


@pytest.mark.parametrize("backend", DRAWS)
@pytest.mark.parametrize(
    ("epsilon", "place"), [("0.1", 0), ("1", -1), ("10", -3)], ids=["root", "area totals", "flows"]
)
def test_each_step_of_a_plan_has_the_laplace_noise_that_it_is_charged_for(airport_geography, backend, epsilon, place):
    """At scales from 0.4 to 500. Fails with probability 1e-6 if the noise is right.

    Noise of a scale that is off by a few percent, and Gaussian noise of the same variance, are rejected. Fails by
    chance below 1e-6: so often one of them passes as right.
    """
    mechanism = InfTDARefined(noise_distribution="laplace")
    unit, budget = PrivacyUnit("trip", "unbounded"), Budget(epsilon)
    plan = plan_release(
        airport_geography, unit=unit, budget=budget, mechanism=mechanism, tree="both", area_totals="0.18"
    )
    step, draws = plan.charged_steps[place], DRAWS[backend]
    scale = unit.contribution_bound / step.charge.epsilon
    law = values, chances = laws.laplace_probabilities(float(scale))
    variance, a = float((values.astype(float) ** 2 * chances).sum()), math.exp(-1 / scale)
    assert variance == pytest.approx(2 * a / (1 - a) ** 2, rel=1e-9)
    sigma = math.sqrt(variance)
    assert laws.p_value(draw_noise(step, resolve_noise_source(backend), 0, draws), *law, sigma) > laws.ALPHA
    off = Fraction(3, 100) if backend == "table" else Fraction(1, 20)
    for wrong in (scale * (1 - off), scale * (1 + off)):
        missed = laws.chance_to_miss(law, laws.laplace_probabilities(float(wrong)), sigma, draws)
        assert missed < laws.ALPHA
        assert laws.p_value(TableNoise().draw_laplace(wrong, draws), *law, sigma) < laws.ALPHA
    assert laws.chance_to_miss(law, laws.probabilities(variance), sigma, draws) < laws.ALPHA
    assert laws.p_value(TableNoise().draw(Fraction(variance), 1, 0, draws), *law, sigma) < laws.ALPHA


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_several_processes_draw_the_planned_law(variance, monkeypatch):
    """Three, however few processors there are. Fails with probability 1e-6 for each variance if the noise is right."""
    monkeypatch.setenv("OD_THREADS", "3")
    assert laws.law_p_value(draw("opendp", variance), float(variance)) > laws.ALPHA


SCALES = [Fraction(2, 5), Fraction(37, 3), Fraction(500)]
REFERENCE_DRAWS = 500_000
SOURCES = [*DRAWS, "positioned"]


@dataclass(frozen=True)
class Case:
    """A distribution, and draws of it by rejection: neither a table nor OpenDP has a part in them."""

    gaussian: bool
    parameter: Fraction
    reference: np.ndarray

    def law(self, factor: Fraction = Fraction(1)) -> laws.Law:
        """Values and their probabilities, with a scale that is off by a factor."""
        if self.gaussian:
            return laws.probabilities(float(self.parameter * factor**2))
        return laws.laplace_probabilities(float(self.parameter * factor))

    @property
    def sigma(self) -> float:
        values, chances = self.law()
        return math.sqrt(float(values.astype(float) ** 2 @ chances))

    def drawn(self, source: str, factor: Fraction = Fraction(1)) -> np.ndarray:
        """As many draws of a backend; of noise that follows from positions, in the pieces of several levels."""
        if source == "positioned":
            pieces, noise = 500, RepeatableNoise(7)
            size = REFERENCE_DRAWS // pieces
            draw = noise.draw if self.gaussian else noise.draw_laplace_at
            return np.concatenate([draw(self.parameter, k % 5, k // 5 * size, size) for k in range(pieces)])
        backend = resolve_noise_source(source)
        if self.gaussian:
            return backend.draw(self.parameter * factor**2, 1, 0, REFERENCE_DRAWS)
        return require_laplace_source(backend).draw_laplace(self.parameter * factor, REFERENCE_DRAWS)

    def p_value(self, drawn: np.ndarray) -> float:
        return laws.two_sample_p_value(drawn, self.reference, self.law(), self.sigma)


LAWS = [(samplers.gaussian, variance) for variance in VARIANCES] + [(samplers.laplace, scale) for scale in SCALES]


@pytest.fixture(scope="module", params=LAWS, ids=lambda law: f"{law[0].__name__}-{law[1]}")
def case(request) -> Case:
    sampler, parameter = request.param
    drawn = [sampler(parameter, secrets.randbits) for _ in range(REFERENCE_DRAWS)]
    return Case(sampler is samplers.gaussian, parameter, np.array(drawn))


def test_draws_by_rejection_follow_the_law(case):
    """Fails with probability 1e-6 for each law."""
    assert laws.p_value(case.reference, *case.law(), case.sigma) > laws.ALPHA


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_draws_what_rejection_draws(case, source):
    """Fails with probability 1e-6 for each law and source if the noise is right."""
    assert case.p_value(case.drawn(source)) > laws.ALPHA


@pytest.mark.parametrize("factor", [Fraction(98, 100), Fraction(102, 100)], ids=str)
def test_a_scale_off_by_2_percent_is_not_what_rejection_draws(case, factor):
    """Fails by chance below 1e-6: so often draws of a wrong scale pass as right."""
    assert laws.two_sample_chance_to_miss(case.law(), case.law(factor), REFERENCE_DRAWS) < laws.ALPHA
    assert case.p_value(case.drawn("table", factor)) < laws.ALPHA


def test_wrong_rejection_is_found(case):
    """Two defects: a negative 0 is kept, so 0 comes up twice as often; the sign is forgotten as k is accepted."""
    drawn = case.drawn("table")
    assert case.p_value(np.concatenate([drawn, drawn[drawn == 0]])) < laws.ALPHA
    sigma = max(case.sigma, 1)
    kept = np.random.default_rng(1).random(len(drawn)) < np.exp(2 * drawn / sigma)
    assert case.p_value(drawn[kept]) < laws.ALPHA
