"""Caps and charges: what cannot be built, and what a cap allows, against the conversion computed apart."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from od_core import Cap, Charge, OdError
from od_core.privacy.accounting import compute_tight_epsilon, find_rho_for_epsilon
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
        {"epsilon": ONE, "delta": ONE},
        {"epsilon": ONE, "delta": -ONE},
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


PURE, GAUSSIAN = Charge(epsilon=Fraction(1, 4)), Charge(rho=Fraction(1, 1000))


@pytest.mark.parametrize(
    ("cap", "charges", "measure", "used", "fits"),
    [
        (Cap(epsilon=1, delta="1e-6"), [PURE] * 4, "epsilon", 1, True),
        (Cap(epsilon=1, delta="1e-6"), [PURE] * 5, "epsilon", Fraction(5, 4), False),
        (Cap(epsilon=1, delta="1e-6"), [PURE, GAUSSIAN], "rho", Fraction(1, 32) + Fraction(1, 1000), False),
        (Cap(epsilon=1, delta="1e-6"), [GAUSSIAN] * 3, "rho", Fraction(3, 1000), True),
        # Their epsilons sum to 2, but their rho is small: 200 / 20,000.
        (Cap(epsilon=1, delta="1e-6"), [Charge(epsilon=Fraction(1, 100))] * 200, "rho", Fraction(1, 100), True),
        (
            Cap(epsilon=1, delta="1e-6"),
            [Charge(epsilon=Fraction(1, 4), delta=Fraction(1, 10**9))] * 4,
            "rho",
            Fraction(1, 8),
            False,
        ),
        (Cap(epsilon=1), [PURE] * 4, "epsilon", 1, True),
        (Cap(epsilon=1), [GAUSSIAN], "rho", Fraction(1, 1000), False),
        (Cap(rho="1/8"), [PURE] * 4, "rho", Fraction(1, 8), True),
    ],
)
def test_a_cap_counts_pure_charges_by_the_measure_that_takes_less_of_it(cap, charges, measure, used, fits):
    """By their epsilons only if all charges are pure, and the cap is in epsilon."""
    usage = cap.compute_usage(charges)
    assert (usage.measure, usage.used, usage.fits) == (measure, used, fits)
    if cap.epsilon is not None:
        rho = sum(charge.as_rho for charge in charges)
        delta = cap.delta - sum(charge.delta for charge in charges)
        by_epsilon = (
            all(charge.is_pure for charge in charges) and sum(charge.epsilon for charge in charges) <= cap.epsilon
        )
        by_rho = delta > 0 and rho <= find_rho_for_epsilon(cap.epsilon, delta, "tight")
        assert fits == (by_epsilon or by_rho)


@pytest.mark.parametrize(
    "cap", [Cap(epsilon=1, delta="1e-6"), Cap(epsilon=3), Cap(epsilon=2, delta="1e-5"), Cap(rho="1/3")]
)
@pytest.mark.parametrize("charges", [[PURE] * 3, [GAUSSIAN], [Charge(epsilon=Fraction(1, 50))], [PURE, GAUSSIAN]])
def test_as_many_releases_are_counted_as_the_cap_allows(cap, charges):
    number = max(cap.count_releases(charges).values())
    assert cap.compute_usage(charges * number).fits
    assert not cap.compute_usage(charges * (number + 1)).fits


def test_the_delta_of_releases_is_subtracted_before_they_are_counted():
    each = Charge(epsilon=Fraction(1, 100), delta=Fraction(1, 10**7))
    number = Cap(epsilon=1, delta="1e-6").count_releases([each])["rho"]
    left = [Fraction(10 - k, 10**7) for k in range(10)]
    assert number == sum(k * each.as_rho <= find_rho_for_epsilon(ONE, d, "tight") for k, d in enumerate(left) if k) < 10


def test_a_cap_holds_where_results_decide_whether_all_charges_are_pure():
    """A pure event is followed by another one that takes all of epsilon, or by normal noise that takes all of rho.

    The pure events are randomised responses, which have the largest loss that their epsilon allows. Delta is added up
    over their outcomes for each way to choose what follows; it is largest if normal noise follows the worse one.
    """
    cap, first = Cap(epsilon=ONE, delta=Fraction(1, 10**5)), Fraction(1, 20)
    rho = float(cap.allowed_rho() - first**2 / 2)

    def delta_of_rho(epsilon: float) -> float:
        spread = np.sqrt(2 * rho)
        return float(norm.cdf((rho - epsilon) / spread) - np.exp(epsilon) * norm.cdf((-rho - epsilon) / spread))

    def delta_of_pure(epsilon: float) -> float:
        rest = float(1 - first)
        return max(0.0, 1 / (1 + np.exp(-rest)) - np.exp(epsilon) / (1 + np.exp(rest)))

    likely, loss = 1 / (1 + np.exp(-float(first))), float(first)
    found = [
        likely * worse(1 - loss) + (1 - likely) * better(1 + loss)
        for worse in (delta_of_rho, delta_of_pure)
        for better in (delta_of_rho, delta_of_pure)
    ]
    assert 0 < max(found) <= cap.delta
    assert found[3] == 0  # all of both is pure
    wrong_rho = 1.5 * rho  # with the pure event left out of a larger sum, the cap would not hold
    rho = wrong_rho
    assert likely * delta_of_rho(1 - loss) + (1 - likely) * delta_of_rho(1 + loss) > cap.delta


def test_a_cap_in_epsilon_promises_its_epsilon_and_delta_alone():
    """Its rho does not bound pure releases, which are counted by their epsilons, also beside one with a rho."""
    pure, gaussian = Guarantee(ONE, rho=Fraction(1, 8)), Guarantee(ONE, Fraction(1, 10**6), Fraction(1, 50))
    cap = Cap(epsilon=1, delta="1e-6")
    assert Guarantee.from_cap(cap, pure) == Guarantee(ONE, cap.delta)
    assert Guarantee.from_cap(cap, gaussian) == Guarantee(ONE, cap.delta)
    heads = 1 / (1 + np.exp(-1.0))  # of a pure epsilon of 1, which the cap admits in place of the other release
    assert heads <= Guarantee.from_cap(cap, gaussian).bound_guess_probability()
    assert heads > 0.5 + np.sqrt(float(cap.allowed_rho()) / 8) + 1e-6
    assert Guarantee.from_cap(Cap(epsilon=1), pure) == Guarantee(ONE)
    assert Guarantee.from_cap(cap, pure).bound_guess_probability() >= 1 / (1 + np.exp(-1.0))


def test_a_pure_release_has_the_better_bound_of_its_epsilon_and_its_rho():
    """Four levels at epsilon 1/4 each: a guess is bounded by rho 1/8 better than by epsilon 1, and holds for them."""
    levels = Guarantee(ONE, rho=Fraction(1, 8))
    by_epsilon, by_rho = Guarantee(ONE), Guarantee.from_rho(Fraction(1, 8), Fraction(1, 10**6))
    bound = levels.bound_guess_probability()
    assert bound == min(by_epsilon.bound_guess_probability(), by_rho.bound_guess_probability())
    heads = 1 / (1 + np.exp(-0.25))  # four randomised responses: right if most of them are
    right = heads**4 + 4 * heads**3 * (1 - heads) + 3 * heads**2 * (1 - heads) ** 2
    assert right <= bound < 0.65
    assert levels.odds == by_epsilon.odds
    assert levels.scale_to_units(3) == Guarantee(Fraction(3), rho=Fraction(9, 8))
