"""Caps and charges: what cannot be built, and what a cap allows, against the conversion computed apart."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from od_core import Cap, Charge, OdError
from od_core.privacy.accounting import compute_tight_epsilon
from od_core.privacy.posterior import Guarantee

ONE = Fraction(1)


@pytest.mark.parametrize(
    "charge",
    [
        {},
        {"rho": Fraction(0)},
        {"rho": -ONE},
        {"epsilon": -ONE},
        {"rho": ONE, "epsilon": ONE},
        {"rho": ONE, "delta": Fraction(1, 100)},
        {"epsilon": ONE, "delta": ONE},
        {"epsilon": ONE, "delta": -ONE},
        {"delta": Fraction(1, 100)},
    ],
)
def test_a_charge_is_of_one_kind(charge):
    with pytest.raises(OdError, match="OD-CHARGE"):
        Charge(**charge)


def test_pure_epsilon_counts_as_half_its_square():
    """Bun & Steinke 2016, Proposition 1.4; the same for epsilon beside a delta."""
    assert Charge(rho=Fraction(1, 7)).as_rho == Fraction(1, 7)
    assert Charge(epsilon=Fraction(1, 10)).as_rho == Fraction(1, 200)
    assert Charge(epsilon=Fraction(1, 10), delta=Fraction(1, 10**9)).as_rho == Fraction(1, 200)


@pytest.mark.parametrize(
    "cap",
    [
        {},
        {"rho": Fraction(0)},
        {"rho": -ONE},
        {"rho": Fraction(10**10)},
        {"rho": ONE, "epsilon": ONE},
        {"rho": ONE, "delta": Fraction(1, 100)},
        {"epsilon": ONE},
        {"epsilon": ONE, "delta": ONE},
        {"epsilon": Fraction(0), "delta": Fraction(1, 100)},
    ],
)
def test_a_cap_is_of_one_kind(cap):
    with pytest.raises(OdError, match="OD-DOMAIN-CAP"):
        Cap(**cap)


def test_a_cap_in_rho_holds_rho_alone():
    """It says nothing of a delta: an event that has one is refused."""
    cap = Cap(rho=Fraction(1, 10))
    assert cap.allowed_rho() == Fraction(1, 10)
    with pytest.raises(OdError, match="OD-LEDGER-CAP-KIND"):
        cap.allowed_rho(Fraction(1, 10**12))


@pytest.mark.parametrize("spent", [Fraction(0), Fraction(1, 10**9), Fraction(99, 10**10)])
def test_a_cap_in_epsilon_converts_the_sum_at_the_delta_that_is_left(spent):
    """What it allows keeps epsilon at the delta that is left, and a little more would not."""
    cap = Cap(epsilon=ONE, delta=Fraction(1, 10**8))
    allowed = cap.allowed_rho(spent)
    assert compute_tight_epsilon(allowed, cap.delta - spent) <= 1
    assert compute_tight_epsilon(allowed * Fraction(1_000_001, 1_000_000), cap.delta - spent) > 1


@pytest.mark.parametrize("spent", [Fraction(1, 10**8), Fraction(2, 10**8)])
def test_no_delta_left_allows_nothing(spent):
    assert Cap(epsilon=ONE, delta=Fraction(1, 10**8)).allowed_rho(spent) == 0


def test_a_cap_holds_at_twice_its_delta_where_results_decide_on_deltas():
    """After half of rho, either the rest follows or an event with almost all of delta, whichever shows more."""
    cap, spent = Cap(epsilon=ONE, delta=Fraction(1, 10**5)), Fraction(999, 10**8)
    half = float(cap.allowed_rho()) / 2
    assert half < cap.allowed_rho(spent)
    normal, step = np.linspace(-9, 9, 100_001, retstep=True)
    left = 1 - half - np.sqrt(2 * half) * normal  # of epsilon, after the privacy loss of the first half
    of_rho = norm.cdf((half - left) / np.sqrt(2 * half)) - np.exp(left) * norm.cdf((-half - left) / np.sqrt(2 * half))
    true = float((norm.pdf(normal) * step * np.maximum(of_rho, float(spent))).sum())
    of_threshold, of_noise = Guarantee(ONE, cap.delta), Guarantee(ONE, cap.delta, Fraction(half))
    assert cap.delta < true <= Guarantee.from_cap(cap, of_threshold).delta < 2 * cap.delta
    assert Guarantee.from_cap(cap, of_noise).delta == cap.delta
