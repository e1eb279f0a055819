"""Budgets: numbers read as people write them, shares that sum to 1, and what is refused."""

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, OdError, Spent
from od_core.privacy.accounting import compute_tight_epsilon
from tests.od_core.oracles import conversions as oracle


@pytest.mark.parametrize(
    "written", [0.1, "0.1", "1/10", "1e-1", Decimal("0.1"), Fraction(1, 10), np.float64(0.1), np.float32(0.1)]
)
def test_numbers_are_read_as_decimals(written):
    budget = Budget(epsilon=written, delta=1e-8)
    assert budget.epsilon == Fraction(1, 10) != Fraction(0.1)
    assert budget.delta == Fraction(1, 10**8)
    assert Budget(rho=written, delta=written).rho == Budget(rho=written, delta=written).delta == Fraction(1, 10)


@pytest.mark.parametrize("kind", [int, float, np.int64, np.int32, np.uint8, np.float64])
def test_whole_numbers_of_any_type_give_the_same_budget(kind):
    """Also in what follows from them: exact arithmetic must not fall back to a fixed width."""
    budget, plain = Budget(epsilon=kind(1), delta=1e-8), Budget(epsilon=1, delta=1e-8)
    assert budget.compute_total_rho("tight") == plain.compute_total_rho("tight")
    shares = Budget(rho=kind(3), delta=1e-8, shares=("geometric", kind(7))).compute_level_shares([2] * 40, "uniform")
    assert shares == Budget(rho=3, delta=1e-8, shares=("geometric", 7)).compute_level_shares([2] * 40, "uniform")
    rho = Budget(rho=kind(3), delta=1e-8).compute_total_rho("tight")
    spent = Spent(tuple(rho * share for share in shares), budget.delta)
    assert spent.epsilon_tight == pytest.approx(oracle.epsilon_tight(3.0, 1e-8), rel=1e-12)


@given(levels=st.integers(1, 30), ratio=st.fractions(Fraction(1, 50), Fraction(50)))
def test_shares_by_rule_sum_to_one_exactly(levels, ratio):
    uniform = Budget(1, 1e-8, shares="uniform").compute_level_shares([2] * levels, "uniform")
    assert uniform == (Fraction(1, levels),) * levels == Budget(1, 1e-8).compute_level_shares([2] * levels, "uniform")
    shares = Budget(1, 1e-8, shares=("geometric", ratio)).compute_level_shares([2] * levels, "uniform")
    assert len(shares) == levels
    assert sum(shares) == 1
    assert all(below == above * ratio for above, below in pairwise(shares))


@given(weights=st.lists(st.integers(1, 1000), min_size=1, max_size=12))
def test_explicit_shares_are_taken_as_they_are(weights):
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    assert Budget(1, 1e-8, shares=shares).compute_level_shares([2] * len(shares), "uniform") == tuple(shares)
    with pytest.raises(OdError, match="OD-BUDGET-SHARES"):
        Budget(1, 1e-8, shares=shares).compute_level_shares([2] * (len(shares) + 1), "uniform")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "OD-BUDGET-KIND"),
        ({"epsilon": 1, "rho": 1}, "OD-BUDGET-KIND"),
        ({"epsilon": 0}, "OD-BUDGET-EPSILON"),
        ({"epsilon": -0.5}, "OD-BUDGET-EPSILON"),
        ({"rho": 0}, "OD-BUDGET-RHO"),
        ({"epsilon": float("nan")}, "OD-BUDGET-NUMBER"),
        ({"epsilon": float("inf")}, "OD-BUDGET-NUMBER"),
        ({"epsilon": "one"}, "OD-BUDGET-NUMBER"),
        ({"epsilon": "1/0"}, "OD-BUDGET-NUMBER"),
        ({"epsilon": True}, "OD-BUDGET-NUMBER"),
        ({"epsilon": [1]}, "OD-BUDGET-NUMBER"),
        ({"epsilon": 1, "delta": -1e-9}, "OD-BUDGET-DELTA"),
        ({"epsilon": 1, "delta": 1}, "OD-BUDGET-DELTA"),
        ({"epsilon": 1, "delta": None}, "OD-BUDGET-NUMBER"),
        ({"epsilon": 1, "conversion": "tigth"}, "OD-BUDGET-CONVERSION"),
        ({"epsilon": 1, "shares": "unifrom"}, "OD-BUDGET-SHARES"),
        ({"epsilon": 1, "shares": ["1/2", "1/3"]}, "OD-BUDGET-SHARES"),
        ({"epsilon": 1, "shares": [0.5, 0.5, 1e-12]}, "OD-BUDGET-SHARES"),
        ({"epsilon": 1, "shares": [1, 1, -1]}, "OD-BUDGET-SHARES"),
        ({"epsilon": 1, "shares": []}, "OD-BUDGET-SHARES"),
        ({"epsilon": 1, "shares": ("geometric", 0)}, "OD-BUDGET-SHARES"),
        ({"epsilon": 1, "shares": ("geometric", "much")}, "OD-BUDGET-NUMBER"),
    ],
)
def test_refuses_what_is_no_budget(arguments, code):
    with pytest.raises(OdError, match=f"{code}:") as error:
        Budget(**{"delta": 1e-8} | arguments)
    assert "\n" not in str(error.value)


def test_pure_privacy_is_refused_because_gaussian_noise_cannot_give_it():
    for budget in (Budget(1), Budget(1, 0), Budget(rho=1)):
        with pytest.raises(OdError, match="OD-BUDGET-DELTA"):
            budget.compute_total_rho("tight")


@given(rhos=st.lists(st.fractions(Fraction(1, 10**6), Fraction(1)), min_size=1, max_size=8))
def test_spent_is_the_exact_sum_and_its_epsilons_are_promises(rhos):
    spent = Spent(levels=tuple(rhos), delta=Fraction(1, 10**8))
    assert spent.rho == sum(rhos)
    assert Fraction(spent.epsilon_tight) >= compute_tight_epsilon(spent.rho, spent.delta)
    assert Fraction(spent.epsilon_bun_steinke) >= oracle.digits_bun_steinke(spent.rho, spent.delta)
    assert spent.epsilon_tight == pytest.approx(oracle.epsilon_tight(float(spent.rho), 1e-8), rel=1e-9)
    assert spent.epsilon_tight < spent.epsilon_bun_steinke
    assert spent.epsilon_exact is None
