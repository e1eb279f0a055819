"""The number of trips that the bounds of a year leave out: what is counted, drawn once, charged and published."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from od_core import Budget, Cap, Charge, OdError, PrivacyUnit, ReleaseKey, Uncounted, plan_release, release_flows
from od_core.privacy.domain import PrivacyDomain, compute_largest_rho
from od_core.privacy.plan import check_charges
from tests.od_core.ledger.ledger_rows import Claims, ledger_at, rows
from tests.od_core.ledger.person_years import (
    COLUMNS,
    FEBRUARY,
    GEOGRAPHY,
    JANUARY,
    MARCH,
    PersonYear,
    Trip,
    plan_of,
    trips_of,
    unit_of,
)

pytestmark = pytest.mark.usefixtures("one_scratch_database")

MANY = trips_of("ann", 9) + trips_of("bob", 1, zone=1) + trips_of("cy", 4, zone=2)
"""With m = 2 and M = 3: seven trips of ann and two of cy are left out in January, and all but one each in February."""

HALF = Uncounted("1/2", 5)
"""Half of the budget, for at most five trips of a user."""


@pytest.fixture
def year(tmp_path: Path) -> PersonYear:
    return PersonYear(tmp_path, m=2, most=3)


def released(year: PersonYear, key: ReleaseKey, trips: list[Trip] = MANY, **changes: object):
    """A release of one call, whose noise is so narrow that it is 0."""
    frame = pd.DataFrame(trips, columns=COLUMNS, dtype="str")
    given = {"unit": year.unit, "budget": Budget(rho=10**4, delta="1e-8"), "uncounted": HALF, "noise": "table"}
    asked = {"ledger": year.ledger, "release_id": str(key), "one_row_a_trip": True}
    return release_flows(frame, GEOGRAPHY, **asked, **given | changes)


def test_the_number_is_that_of_all_trips_up_to_k_of_each_user_less_the_counted_ones(year):
    """January counts 2 + 1 + 2 trips, February what the year has left: 1 + 1 + 1."""
    april = ReleaseKey("commuters", "2001-04")
    for key, trips, counted in ((JANUARY, MANY, 5), (FEBRUARY, MANY, 3), (MARCH, MANY, 1), (april, [], 0)):
        year.finish(key, trips)
        for most in (2, 5, 8, 100):
            considered = sum(min(number, most) for number in (9, 1, 4)) if trips else 0
            assert year.counters(key).count_uncounted_trips(most) == considered - counted


def test_it_is_drawn_once_and_read_back(year):
    """Seven are left out in January: three of ann's first five, and two of cy's four, and none of bob's."""
    first = released(year, JANUARY)
    assert first.uncounted == (5 - 2) + (1 - 1) + (4 - 2)
    before = rows(year.ledger.path)
    again = released(year, JANUARY)
    assert (again.uncounted, rows(year.ledger.path)) == (first.uncounted, before)
    assert released(year, FEBRUARY).uncounted == (5 - 1) + (1 - 1) + (4 - 1)
    assert released(year, MARCH, uncounted=None).uncounted is None


def test_area_totals_are_charged_beside_it(year):
    """All steps have numbers of their own, and each is drawn once."""
    made = released(year, JANUARY, area_totals="1/4")
    plan, budget = made.plan, Fraction(10**4)
    assert made.uncounted == (5 - 2) + (1 - 1) + (4 - 2)
    assert made.spent.rho == budget
    assert plan.uncounted_step.rho == budget / 2
    assert sum(step.rho for step in plan.area_total_steps) == budget / 8
    draws = [year.ledger.count_draws(JANUARY, step.number) for step in plan.charged_steps]
    assert draws == [1] * len(plan.charged_steps)
    assert sum(made.measured[-1].noisy.read_values()) == 5


@pytest.mark.slow
def test_its_noise_is_what_the_plan_states(year):
    """Without noise, all eight releases would state the same number. The chance of that is below (1/12)^7 < 1e-7."""
    budget = Budget(rho=1, delta="1e-8")
    seen = {released(year, ReleaseKey("commuters", "2001-01", k), budget=budget).uncounted for k in range(1, 9)}
    assert len(seen) > 1
    deviation = float(plan_of(year.unit, HALF).uncounted_step.variance) ** 0.5
    assert all(abs(number - 5) < 10 * deviation for number in seen)  # a normal tail below 1e-20 for each


def test_the_plan_divides_the_budget_and_states_the_step():
    unit = unit_of(2, 3)
    with_it, without = plan_of(unit, Uncounted("1/4", 10)), plan_of(unit)
    step = with_it.uncounted_step
    assert (with_it.spent.rho, with_it.charge.rho) == (1, 1)
    assert (step.charge.rho, step.variance, step.sensitivity_squared) == (Fraction(1, 4), Fraction(200), 100)
    assert [one.rho for one in with_it.steps] == [one.rho * Fraction(3, 4) for one in without.steps]
    assert with_it.spent.every_period == Fraction(1, 4)
    assert without.spent.every_period == 0
    assert with_it.facts()["steps"][-1]["max_uncounted"] == 10
    assert len({one.number for one in with_it.charged_steps}) == len(with_it.steps) + 1
    given = {"unit": unit, "budget": Budget(rho=1, delta="1e-8"), "uncounted": HALF}
    by_mode = plan_release(GEOGRAPHY, **given, segments={"mode": ["car", "bus"]})
    assert len({one.number for one in by_mode.charged_steps}) == len(by_mode.steps) + 1
    check_charges(with_it)
    check_charges(by_mode)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("0", 5), "above 0 and at most 1/2"),
        (("0.51", 5), "above 0 and at most 1/2"),
        (("1/4", 0), "whole number"),
        (("1/4", True), "whole number"),
        (("1/4", 2.5), "whole number"),
        (("1/4", 10**6 + 1), "whole number"),
    ],
)
def test_a_declaration_out_of_range_is_refused(given, message):
    with pytest.raises(OdError, match=message) as refused:
        Uncounted(*given)
    assert refused.value.code == "OD-UNCOUNTED"


def test_it_needs_counters_of_users(year):
    """A unit that keeps them, a bound above theirs, and a ledger."""
    with pytest.raises(OdError, match=r"OD-UNCOUNTED.*below the bound of 2"):
        plan_of(year.unit, Uncounted("1/4", 1))
    period = PrivacyUnit("user_period", "unbounded", "person", 2)
    with pytest.raises(OdError, match=r"OD-UNCOUNTED.*only unit 'user_year' keeps counters"):
        plan_of(period, HALF)
    records = pd.DataFrame(MANY, columns=COLUMNS, dtype="str")
    given = {"budget": Budget(rho=1, delta="1e-8"), "uncounted": HALF, "one_row_a_trip": True}
    with pytest.raises(OdError, match=r"OD-UNCOUNTED.*without a ledger"):
        release_flows(records, GEOGRAPHY, unit=year.unit, **given)


# What it costs


def reserved(folder: Path, unit: PrivacyUnit, months: int, uncounted: Uncounted, cap: Fraction = Fraction(10**6)):
    ledger = ledger_at(folder / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", unit, Cap(rho=cap), "a test"))
    for month in range(1, months + 1):
        ledger.reserve(ReleaseKey("commuters", f"2001-{month:02d}"), "commuters", plan_of(unit, uncounted))
    return ledger


def largest_cost(m: int, most: int, k: int, months: int, in_full: Fraction, neighbours: str) -> Fraction:
    """What a user, or a pair of users, costs at most: squared changes of all numbers, counted in every order alike.

    A month's levels cost a user with x counted trips (1 - in_full) x^2 / m^2, and its number of u uncounted trips costs
    in_full u^2 / k^2. Two users who are exchanged have their counted trips in different cells. All is summed in whole
    numbers, as multiples of what one counted and one uncounted trip cost.
    """
    users = []
    for trips in product(range(k + 2), repeat=months):
        used, counted = 0, []
        for number in trips:
            counted.append(min(number, m, most - used))
            used += counted[-1]
        users.append([(x, min(number, k) - x) for x, number in zip(counted, trips, strict=True)])
    nobody = [(0, 0)] * months
    pairs = [(one, nobody) for one in users] if neighbours == "unbounded" else product(users, repeat=2)
    counted, uncounted = (1 - in_full) / ((2 if neighbours == "bounded" else 1) * m * m), in_full / (k * k)
    whole = counted.denominator * uncounted.denominator
    a, b = int(counted * whole), int(uncounted * whole)
    most_parts = max(
        sum(a * (x * x + y * y) + b * (u - v) ** 2 for (x, u), (y, v) in zip(one, other, strict=True))
        for one, other in pairs
    )
    return Fraction(most_parts, whole)


@pytest.mark.parametrize("neighbours", ["unbounded", "bounded"])
@pytest.mark.parametrize(("m", "most", "k"), [(1, 1, 2), (1, 2, 2), (2, 3, 3)])
def test_no_user_of_a_year_costs_more_than_the_ledger_states(tmp_path, neighbours, m, most, k):
    """By all users of three months with up to k + 1 trips each."""
    unit, share = unit_of(m, most, neighbours), Fraction(1, 2)
    ledger = reserved(tmp_path, unit, 3, Uncounted(share, k))
    (balance,) = ledger.balances()
    assert balance.spent == compute_largest_rho([1 - share] * 3, m, most) + 3 * share
    assert balance.parts == dict.fromkeys(("2001-01", "2001-02", "2001-03"), Fraction(1))
    found = largest_cost(m, most, k, 3, share, neighbours)
    assert found <= balance.spent
    if most == 1:  # charging the number like the levels would state too little
        assert found > compute_largest_rho([Fraction(1)] * 3, m, most)


def test_a_lost_draw_of_the_number_is_charged_in_full_again(tmp_path):
    """Also in a month whose levels would cost nothing more."""
    unit, uncounted = unit_of(1, 1), Uncounted("1/2", 5)
    ledger, number = reserved(tmp_path, unit, 3, uncounted), plan_of(unit, uncounted).uncounted_step.number
    assert ledger.balances()[0].spent == Fraction(1, 2) + 3 * Fraction(1, 2)
    assert [ledger.start_draw(MARCH, number) for _ in range(2)] == [1, 2]
    assert ledger.balances()[0].spent == Fraction(1, 2) + 4 * Fraction(1, 2)
    assert ledger.compute_spent_budget(MARCH, plan_of(unit, uncounted)).every_period == 1


def test_the_cap_of_the_year_includes_it(tmp_path):
    """The second month's levels add nothing, but its number does, and so does another draw of it."""
    unit, uncounted = unit_of(1, 1), Uncounted("1/2", 5)
    ledger = reserved(tmp_path, unit, 2, uncounted, cap=Fraction(3, 2))
    before = rows(ledger.path)
    with pytest.raises(OdError, match=r"OD-LEDGER-CAP: the release needs rho 0\.5 in 2001"):
        ledger.reserve(MARCH, "commuters", plan_of(unit, uncounted))
    assert rows(ledger.path) == before
    number = plan_of(unit, uncounted).uncounted_step.number
    ledger.start_draw(FEBRUARY, number)
    with pytest.raises(OdError, match="OD-LEDGER-CAP: drawing a lost level again needs"):
        ledger.start_draw(FEBRUARY, number)


def test_a_charge_below_its_noise_is_refused():
    """The number of uncounted trips costs half."""
    plan = plan_of(unit_of(1, 1), HALF)
    step = plan.uncounted_step
    cheaper = Claims(step, charge=Charge(rho=step.charge.rho / 2))
    with pytest.raises(OdError, match="OD-CHARGE"):
        check_charges(Claims(plan, charged_steps=(*plan.steps, cheaper)))
