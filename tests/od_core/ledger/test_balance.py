"""Balances: what each elementary period has spent, and the filter that holds the cap in the fullest of them."""

from fractions import Fraction

import pytest

from od_core import Cap, Charge, OdError, PrivacyDomain, PrivacyUnit, ReleaseKey
from od_core.ledger.balance import check_cap, find_least_balance
from od_core.ledger.chain import RESERVED
from od_core.privacy.accounting import compute_tight_epsilon
from tests.od_core.ledger.ledger_rows import TRIP, ledger_at, pure_plan, reservations, rows, small_plan

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


def test_a_cap_in_epsilon_admits_pure_releases_up_to_its_epsilon(tmp_path):
    """Their rho is larger than the cap allows; so what is charged in rho is refused after them."""
    cap = Cap(epsilon=1, delta="1e-6")
    ledger = declared(tmp_path, cap)
    half = pure_plan("1/2")
    assert half.charge.as_rho > cap.allowed_rho()
    for revision in (1, 2):
        assert ledger.find_balances("commuters", ["2001-06"], half)["2001-06"].measure == "epsilon"
        ledger.reserve(key("2001-06", revision), "commuters", half)
    balance = ledger.balance("commuters", "2001-06")
    assert (balance.measure, balance.cap, balance.spent, balance.left) == ("epsilon", 1, 1, 0)
    assert balance.charged == {"commuters/2001-06/r1": Fraction(1, 2), "commuters/2001-06/r2": Fraction(1, 2)}
    before = rows(ledger.path)
    said = "needs epsilon 0.001 in 2001-06, but data set 'commuters' has a cap of 1, of which 1 is spent and 0 remains"
    with pytest.raises(OdError, match=said):
        ledger.reserve(key("2001-06", 3), "commuters", pure_plan("1/1000"))
    with pytest.raises(OdError, match=r"needs rho 0\.0001 in 2001-06"):
        ledger.reserve(key("2001-06", 3), "commuters", small_plan(Fraction(1, 10**4), delta="1e-6"))
    assert rows(ledger.path) == before
    ledger.reserve(key("2001-07"), "commuters", small_plan(Fraction(1, 100), delta="1e-6"))
    with pytest.raises(OdError, match="needs rho"):
        ledger.reserve(key("2001-07", 2), "commuters", half)
    ledger.reserve(key("2001-07", 2), "commuters", pure_plan("1/20"))
    assert ledger.balance("commuters", "2001-07").measure == "rho"


def test_the_least_balance_is_that_with_the_least_remaining_part(tmp_path):
    """Of a period whose epsilons add up, half is left; of another one, nine tenths of a much smaller amount of rho."""
    cap = Cap(epsilon=1, delta="1e-6")
    ledger = declared(tmp_path, cap)
    ledger.reserve(key("2001-06"), "commuters", pure_plan("1/2"))
    ledger.reserve(key("2001-07"), "commuters", small_plan(cap.allowed_rho() / 10, delta="1e-6"))
    pure, other = ledger.find_balances("commuters", ["2001-06", "2001-07"]).values()
    assert (pure.measure, pure.left_part, other.measure, other.left_part) == ("epsilon", 0.5, "rho", Fraction(9, 10))
    assert other.left < pure.left
    assert find_least_balance([other, pure]) is pure


def test_a_cap_without_a_delta_admits_pure_releases_alone(tmp_path):
    ledger = declared(tmp_path, Cap(epsilon=1))
    with pytest.raises(OdError, match=r"needs rho 0\.0001 in 2001-06, .* a cap of 0,"):
        ledger.reserve(key("2001-06"), "commuters", small_plan(Fraction(1, 10**4)))
    ledger.reserve(key("2001-06"), "commuters", pure_plan("1"))
    assert ledger.balance("commuters", "2001-06").left == 0


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
