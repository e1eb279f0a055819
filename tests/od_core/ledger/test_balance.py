"""Balances: what each elementary period has spent, and the filter that holds the cap in the fullest of them."""

from fractions import Fraction

import pytest

from od_core import Cap, Charge, OdError, PrivacyDomain, PrivacyUnit, ReleaseKey
from od_core.ledger.balance import check_cap
from od_core.ledger.chain import RESERVED
from od_core.privacy.accounting import compute_tight_epsilon
from tests.od_core.ledger.ledger_rows import TRIP, ledger_at, reservations, rows, small_plan

TENTH = Fraction(1, 10)

pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.representatives("*sqlite*", "test_a_lost_draw_is_charged_to_all_its_periods"),
]


def declared(tmp_path, cap, unit=TRIP, elementary="month"):
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", unit, cap, "a test", elementary))
    return ledger


def key(period, revision=1):
    return ReleaseKey("commuters", period, revision)


def test_a_trip_in_a_monthly_and_a_yearly_release_has_spent_twice(tmp_path):
    """Every month of the year is charged, and June by both; the cap holds for June."""
    ledger = declared(tmp_path, Cap(rho=Fraction(1, 4)))
    ledger.reserve(key("2001-06"), "commuters", small_plan(TENTH))
    ledger.reserve(key("2001"), "commuters", small_plan(TENTH))
    found = {balance.period: balance for balance in ledger.balances()}
    assert sorted(found) == [f"2001-{month:02d}" for month in range(1, 13)]
    others = {period: balance.spent for period, balance in found.items() if balance.spent != TENTH}
    assert others == {"2001-06": 2 * TENTH}
    assert [found["2001-06"].releases, found["2001-05"].releases] == [2, 1]
    assert ledger.balance("commuters", "2001") == found["2001-06"]
    before = rows(ledger.path)
    for period in ("2001", "2001-06"):
        with pytest.raises(OdError, match=r"needs rho 0\.1 in 2001-06, .* cap of 0\.25, .* 0\.2 is spent and 0\.05"):
            ledger.reserve(key(period, 2), "commuters", small_plan(TENTH))
    assert rows(ledger.path) == before
    ledger.reserve(key("2001-05"), "commuters", small_plan(TENTH))


def test_what_is_left_may_be_spent_to_the_last_fraction(tmp_path):
    ledger = declared(tmp_path, Cap(rho=Fraction(3, 10)))
    for revision in (1, 2, 3):
        ledger.reserve(key("2001-06", revision), "commuters", small_plan(TENTH))
    assert ledger.balance("commuters", "2001-06").left == 0
    with pytest.raises(OdError, match="OD-LEDGER-CAP"):
        ledger.reserve(key("2001-06", 4), "commuters", small_plan(Fraction(1, 10**12)))


def test_the_periods_of_a_user_add_up(tmp_path):
    unit = PrivacyUnit("user", "unbounded", "person", 2)
    ledger = declared(tmp_path, Cap(rho=Fraction(1, 4)), unit)
    ledger.reserve(key("2001-06"), "commuters", small_plan(TENTH, unit=unit))
    ledger.reserve(key("2001-07"), "commuters", small_plan(TENTH, unit=unit))
    with pytest.raises(OdError, match="in all, but"):
        ledger.reserve(key("2001-08"), "commuters", small_plan(TENTH, unit=unit))
    (balance,) = ledger.balances()
    assert (balance.period, balance.spent, balance.releases) == ("all", 2 * TENTH, 2)


def test_a_lost_draw_is_charged_to_all_its_periods(tmp_path):
    ledger = declared(tmp_path, Cap(rho=Fraction(1)))
    ledger.reserve(key("2001"), "commuters", small_plan(TENTH))
    assert [ledger.start_draw(key("2001"), 4) for _ in range(2)] == [1, 2]
    again = Fraction(reservations(ledger.path, level=4)[-1]["rho"])
    assert {(b.spent, b.lost_draws, b.releases) for b in ledger.balances()} == {(TENTH + again, 1, 1)}


def charge(ledger, what, number):
    """Put an event of any kind into the ledger, by the same filter."""
    with ledger._open_transaction() as entries:
        check_cap(entries, "commuters", ["2001-06"], [({}, what)])
        content = {"periods": ["2001-06"]}
        entries.append(RESERVED, "commuters", key("2001-06", number), level=0, draw=1, charge=what, content=content)


def test_an_epsilon_delta_cap_holds_events_of_every_kind(tmp_path):
    """Deltas are deducted first, epsilons count as half their squares, and the sum is converted at what is left."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    ledger = declared(tmp_path, Cap(epsilon=epsilon, delta=delta))
    events = [Charge(rho=Fraction(1, 200)), Charge(epsilon=Fraction(1, 20))]
    events += [Charge(epsilon=Fraction(1, 20), delta=Fraction(4, 10**7))] * 2
    for number, event in enumerate(events, start=1):
        charge(ledger, event, number)
    rho = Fraction(1, 200) + 3 * Fraction(1, 800)
    (balance,) = ledger.balances()
    assert balance.spent == rho
    assert compute_tight_epsilon(balance.cap, Fraction(2, 10**7)) <= epsilon
    assert compute_tight_epsilon(balance.cap * Fraction(1_000_001, 1_000_000), Fraction(2, 10**7)) > epsilon
    with pytest.raises(OdError, match="OD-LEDGER-CAP"):  # of delta, 2e-7 is left
        charge(ledger, Charge(epsilon=Fraction(1, 1000), delta=Fraction(2, 10**7)), 5)
    with pytest.raises(OdError, match="OD-LEDGER-CAP"):
        charge(ledger, Charge(rho=balance.left + Fraction(1, 2**64)), 5)
    charge(ledger, Charge(rho=balance.left), 5)


def test_a_cap_in_rho_refuses_events_with_a_delta(tmp_path):
    ledger = declared(tmp_path, Cap(rho=Fraction(1)))
    charge(ledger, Charge(epsilon=Fraction(1)), 1)
    with pytest.raises(OdError, match="OD-LEDGER-CAP-KIND"):
        charge(ledger, Charge(epsilon=Fraction(1, 1000), delta=Fraction(1, 10**9)), 2)
    (balance,) = ledger.balances()
    assert (balance.spent, balance.left) == (Fraction(1, 2), Fraction(1, 2))
