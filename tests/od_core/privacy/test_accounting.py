"""Conversions between rho and (epsilon, delta): published figures, other implementations, outward rounding."""

import math
from fractions import Fraction

import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import OdError
from od_core.privacy.accounting import (
    compute_bun_steinke_epsilon,
    compute_tight_epsilon,
    find_rho_for_epsilon,
    format_rounded_down,
    format_rounded_up,
    round_up_to_float,
)
from tests.od_core.oracles import conversions as oracle

dp.enable_features("contrib")  # OpenDP asks that users of unvetted parts say so

RHOS = [Fraction(r) for r in ("1e-9", "1e-4", "0.0172053", "0.5", "3", "40", "1000")]
DELTAS = [Fraction(d) for d in ("1e-15", "1e-8", "1e-3", "0.5")]
DIGITS = {"tight": oracle.digits_tight, "bun_steinke": oracle.digits_bun_steinke}
CONVERSIONS = {"tight": compute_tight_epsilon, "bun_steinke": compute_bun_steinke_epsilon}


def test_published_rho_at_delta_1e_8():
    """The figures of the method's description, and how much sigma falls from one conversion to the other."""
    figures = {"0.1": (1.3535e-4, 2.0882e-4, 19.5), "1": (0.0132154, 0.0172053, 12.4), "10": (1.07988, 1.20837, 5.5)}
    for epsilon, (loose_figure, tight_figure, fall) in figures.items():
        loose = find_rho_for_epsilon(Fraction(epsilon), Fraction("1e-8"), "bun_steinke")
        tight = find_rho_for_epsilon(Fraction(epsilon), Fraction("1e-8"), "tight")
        assert float(loose) == pytest.approx(loose_figure, rel=5e-5)
        assert float(tight) == pytest.approx(tight_figure, rel=5e-5)
        assert 100 * (1 - math.sqrt(loose / tight)) == pytest.approx(fall, abs=0.05)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", RHOS)
def test_agrees_with_plain_minimisation(rho, delta):
    """Corollary 13 minimised on a grid, read in both directions; Bun & Steinke's by the formula."""
    tight = float(compute_tight_epsilon(rho, delta))
    assert tight == pytest.approx(oracle.epsilon_tight(float(rho), float(delta)), rel=1e-9, abs=1e-12)
    if tight > 0:
        assert oracle.delta_tight(float(rho), tight) == pytest.approx(float(delta), rel=1e-6)
    loose = float(compute_bun_steinke_epsilon(rho, delta))
    assert loose == pytest.approx(oracle.epsilon_bun_steinke(float(rho), float(delta)), rel=1e-14)
    assert tight < loose


@pytest.mark.parametrize("delta", [1e-15, 1e-8, 1e-3])
@pytest.mark.parametrize("rho", [1e-6, 1e-4, 0.0172053, 1.2, 30.0])
def test_agrees_with_opendp(rho, delta):
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T=float)
    measurement = dp.m.make_gaussian(*space, scale=math.sqrt(1 / (2 * rho)))
    theirs = dp.c.make_zCDP_to_approxDP(measurement).map(1.0).epsilon(delta)
    ours = float(compute_tight_epsilon(Fraction(measurement.map(1.0)), Fraction(delta)))
    assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-15)


@given(
    rho=st.fractions(Fraction(1, 10**12), Fraction(10**4)),
    delta=st.fractions(Fraction(1, 10**30), Fraction(9, 10)),
    name=st.sampled_from(sorted(CONVERSIONS)),
)
def test_epsilon_is_rounded_up_and_by_a_hair(rho, delta, name):
    """Above the value known to 80 digits (or both are 0), and by less than 1e-28 of it."""
    exact, promised = DIGITS[name](rho, delta), CONVERSIONS[name](rho, delta)
    assert exact < promised or exact == promised == 0
    assert promised - exact < (exact + 1) * Fraction(1, 10**28)


@given(
    epsilon=st.decimals("0.001", "60", places=3).map(Fraction),
    delta=st.integers(1, 14).map(lambda k: Fraction(1, 10**k)),
    name=st.sampled_from(sorted(CONVERSIONS)),
)
def test_rho_is_the_largest_multiple_of_its_unit_that_keeps_the_promise(epsilon, delta, name):
    rho = find_rho_for_epsilon(epsilon, delta, name)
    assert (rho * 2**64).denominator == 1
    assert DIGITS[name](rho, delta) <= epsilon
    assert CONVERSIONS[name](rho, delta) <= epsilon
    assert DIGITS[name](rho + Fraction(1, 2**64), delta) > epsilon


@given(value=st.fractions(Fraction(-(10**9)), Fraction(10**9)))
def test_a_displayed_bound_is_the_least_float_that_is_not_below(value):
    shown = round_up_to_float(value)
    assert Fraction(shown) >= value
    assert Fraction(math.nextafter(shown, -math.inf)) < value


@pytest.mark.parametrize("convert", CONVERSIONS.values())
def test_refuses_rho_and_delta_out_of_range(convert):
    for rho in (Fraction(0), Fraction(-1)):
        with pytest.raises(OdError, match="OD-BUDGET-RHO"):
            convert(rho, Fraction(1, 2))
    for delta in (Fraction(0), Fraction(1), Fraction(-1, 2), Fraction(3, 2)):
        with pytest.raises(OdError, match="OD-BUDGET-DELTA"):
            convert(Fraction(1), delta)
    for epsilon in (Fraction(0), Fraction(-1), Fraction(1, 10**12)):
        with pytest.raises(OdError, match="OD-BUDGET-EPSILON"):
            find_rho_for_epsilon(epsilon, Fraction(1, 10**300), "tight")


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-400"), ("1e400", "1e-8"), ("1e-400", "1e-8")])
@pytest.mark.parametrize("name", sorted(CONVERSIONS))
def test_numbers_beyond_floats_are_answered_or_refused(epsilon, delta, name):
    """Epsilon and delta are exact, so that they may lie outside the range of floats."""
    try:
        rho = find_rho_for_epsilon(Fraction(epsilon), Fraction(delta), name)
    except OdError:
        return
    assert rho > 0
    assert DIGITS[name](rho, Fraction(delta)) <= Fraction(epsilon)


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (Fraction(1, 3), "0.333334", "0.333333"),
        (Fraction(1, 10), "0.1", "0.1"),
        (0.1 + 0.2, "0.3", "0.3"),  # floats next to a decimal number
        (0.3 - 0.1 - 0.1, "0.1", "0.1"),
        (1e-8, "1e-8", "1e-8"),
        (Fraction(0), "0", "0"),
        (Fraction(2, 3 * 10**7), "6.66667e-8", "6.66666e-8"),
        (1234567.5, "1234570", "1234560"),
    ],
)
def test_a_bound_is_shown_rounded_to_the_weaker_side(value, up, down):
    assert (format_rounded_up(value), format_rounded_down(value)) == (up, down)
