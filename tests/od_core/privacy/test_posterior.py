"""What an attacker learns at most, held to mechanisms whose every outcome is listed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from od_core import OdError
from od_core.privacy.accounting import compute_tight_epsilon
from od_core.privacy.posterior import Guarantee

PRIORS = [Fraction(1, 1000), Fraction(1, 20), Fraction(1, 3), Fraction(1, 2), Fraction(4, 5), Fraction(99, 100)]
DELTA = Fraction(1, 10**6)
REACH = 60
Distribution = NDArray[np.float64]


def gaussian(variance: float, shift: int = 0) -> Distribution:
    """The discrete Gaussian around a count, at every integer up to ``REACH``."""
    weights = np.exp(-((np.arange(-REACH, REACH + 1) - shift) ** 2) / (2 * variance))
    return weights / weights.sum()


def laplace(scale: float, shift: int = 0) -> Distribution:
    weights = np.exp(-np.abs(np.arange(-8 * REACH, 8 * REACH + 1) - shift) / scale)
    return weights / weights.sum()


def product(*cells: Distribution) -> Distribution:
    """All outcomes of independent cells."""
    whole = cells[0]
    for cell in cells[1:]:
        whole = np.outer(whole, cell).ravel()
    return whole


def best_guess(one: Distribution, other: Distribution, prior: Fraction) -> float:
    """Guess the likelier case at every outcome. The rounding of the sum is taken off."""
    return float(np.maximum(float(prior) * one, float(1 - prior) * other).sum()) - 1e-12


def beyond(one: Distribution, other: Distribution, factor: Fraction) -> float:
    """The probability, if ``one`` is true, of the outcomes that multiply its odds by more than a factor."""
    return float(one[one > float(factor) * other].sum())


def of_cells(*variances: Fraction) -> Guarantee:
    """What a release promises whose noise has these variances, in cells that differ by one each."""
    rho = sum((1 / (2 * variance) for variance in variances), Fraction(0))
    return Guarantee(compute_tight_epsilon(rho, DELTA), DELTA, rho, variances)


MECHANISMS = {
    "one cell": (of_cells(Fraction(4)), gaussian(4), gaussian(4, 1)),
    "two cells, as one record is replaced": (
        of_cells(Fraction(9), Fraction(9)),
        product(gaussian(9, 1), gaussian(9)),
        product(gaussian(9), gaussian(9, 1)),
    ),
    "two levels": (
        of_cells(Fraction(3), Fraction(25)),
        product(gaussian(3), gaussian(25)),
        product(gaussian(3, 1), gaussian(25, 1)),
    ),
    "hardly any noise": (of_cells(Fraction(1, 9)), gaussian(1 / 9), gaussian(1 / 9, 1)),
}


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("prior", PRIORS)
def test_no_guess_is_right_more_often(name: str, prior: Fraction) -> None:
    guarantee, one, other = MECHANISMS[name]
    true = max(best_guess(one, other, prior), best_guess(other, one, prior))
    assert (
        true <= guarantee.bound_guess_probability(prior) <= true + 0.002
    )  # and the exact privacy loss hardly exceeds it
    weaker = Guarantee(guarantee.epsilon, guarantee.delta, guarantee.rho)
    alone = Guarantee(guarantee.epsilon, guarantee.delta).bound_guess_probability(prior)
    assert true <= weaker.bound_guess_probability(prior) <= alone


@pytest.mark.parametrize("name", MECHANISMS)
def test_odds_grow_by_more_than_the_factor_as_rarely_as_stated(name: str) -> None:
    guarantee, one, other = MECHANISMS[name]
    for known in (guarantee, Guarantee(guarantee.epsilon, guarantee.delta)):
        assert known.odds is not None
        factor, missed = known.odds
        assert max(beyond(one, other, factor), beyond(other, one, factor)) <= missed
        assert missed <= 2 * DELTA


@pytest.mark.parametrize("prior", PRIORS)
def test_a_belief_moves_within_its_bounds_but_for_rare_outcomes(prior: Fraction) -> None:
    guarantee, one, other = MECHANISMS["one cell"]
    low, high = map(float, guarantee.bound_posterior(prior))
    after = float(prior) * one / (float(prior) * one + float(1 - prior) * other)
    outside = (after < low) | (after > high)
    assert max(one[outside].sum(), other[outside].sum()) <= DELTA
    assert low < prior < high


def test_an_attacker_who_does_not_know_another_record_learns_no_more() -> None:
    """Another record is in the cell or not, with any probability: the cases are mixtures of neighbours."""
    guarantee, _, _ = MECHANISMS["one cell"]
    for known in (0.0, 0.3, 0.5, 1.0):
        one, other = (known * gaussian(4, k) + (1 - known) * gaussian(4, k + 1) for k in (0, 1))
        for prior in PRIORS:
            assert best_guess(one, other, prior) <= guarantee.bound_guess_probability(prior)
        assert guarantee.odds is not None
        assert beyond(one, other, guarantee.odds[0]) <= guarantee.odds[1]


@pytest.mark.parametrize("units", [2, 3, 5])
def test_several_units_are_protected_as_stated(units: int) -> None:
    of_all = MECHANISMS["one cell"][0].scale_to_units(units)
    assert of_all is not None
    one, other = gaussian(4), gaussian(4, units)
    for prior in PRIORS:
        assert best_guess(one, other, prior) <= of_all.bound_guess_probability(prior)
    assert of_all.odds is not None
    assert beyond(one, other, of_all.odds[0]) <= of_all.odds[1]
    pure = Guarantee(Fraction(1, 2)).scale_to_units(units)
    assert pure == Guarantee(Fraction(units, 2))
    assert best_guess(laplace(2), laplace(2, units), Fraction(1, 2)) <= pure.bound_guess_probability()


@pytest.mark.parametrize("prior", PRIORS)
def test_a_pure_epsilon_is_attained(prior: Fraction) -> None:
    """The discrete Laplace noise of a single count, at every outcome."""
    guarantee, one, other = Guarantee(Fraction(1, 2)), laplace(2), laplace(2, 1)
    assert guarantee.bound_guess_probability(prior) == pytest.approx(best_guess(one, other, prior), abs=1e-9)
    after = float(prior) * one / (float(prior) * one + float(1 - prior) * other)
    low, high = map(float, guarantee.bound_posterior(prior))
    assert (after.min(), after.max()) == pytest.approx((low, high), rel=1e-9)
    assert guarantee.odds is not None
    assert guarantee.odds[1] == 0


@pytest.mark.parametrize("prior", PRIORS)
def test_epsilon_and_delta_are_attained_by_an_answer_that_may_slip_out(prior: Fraction) -> None:
    """The truth with probability delta, and otherwise randomized response: no bound from both alone is lower."""
    guarantee, delta = Guarantee(Fraction(1), Fraction(1, 50)), 0.02
    told = (1 - delta) / (1 + math.e)
    one, other = np.array([delta, math.e * told, told, 0.0]), np.array([0.0, told, math.e * told, delta])
    assert guarantee.bound_guess_probability(prior) == pytest.approx(best_guess(one, other, prior), abs=1e-9)
    assert guarantee.odds is not None
    assert beyond(one, other, guarantee.odds[0]) <= guarantee.odds[1]


def test_what_promises_nothing_says_so() -> None:
    assert Guarantee(Fraction(20_000)).odds is None
    assert Guarantee(Fraction(20_000)).bound_posterior(Fraction(1, 3)) == (0, 1)
    assert Guarantee(Fraction(20_000)).bound_guess_probability() == 1
    assert Guarantee(Fraction(1), Fraction(1, 1000)).scale_to_units(40) is None
    assert Guarantee(Fraction(1), Fraction(1, 2)).odds is None
    huge = Fraction(10) ** 12
    assert Guarantee(huge, DELTA, huge).bound_guess_probability() == 1


def test_numbers_that_are_no_guarantee_or_no_belief_are_refused() -> None:
    for numbers in ((0, 0), (1, 1), (1, -1), (-1, 0)):
        with pytest.raises(OdError, match="OD-BUDGET-NUMBER"):
            Guarantee(*map(Fraction, numbers))
    with pytest.raises(OdError, match="OD-BUDGET-NUMBER"):
        Guarantee(Fraction(1), DELTA, Fraction(0))
    for prior in (0, 1, 2):
        with pytest.raises(OdError, match="OD-BUDGET-NUMBER"):
            Guarantee(Fraction(1)).bound_posterior(Fraction(prior))
