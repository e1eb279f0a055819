"""Balances of a year: the largest rho of one user is charged, whatever order its releases are reserved in."""

import datetime
import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from od_core import Budget, BudgetExceeded, Cap, OdError, PrivacyUnit, ReleaseKey, Uncounted, plan_release
from od_core.periods import iterate_periods
from od_core.privacy.domain import PrivacyDomain
from tests.od_core.ledger.ledger_rows import GEOGRAPHY, ledger_at, reservations, rows, small_plan
from tests.od_core.oracles.person_year import largest_by_search

TENTH = Fraction(1, 10)
UNIT = PrivacyUnit("user_year", "unbounded", "person", 2, max_trips_year=5, id_pattern="[a-z]+")
"""The worst user of a year has two trips in each of the two costliest periods, and one in the third."""

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.representatives("*sqlite*")]


def declared(tmp_path, cap, unit=UNIT, year=None):
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", unit, Cap(rho=Fraction(cap)), "a test", year=year))
    return ledger


def reserve(ledger, period, rho=TENTH, *, revision=1, series="commuters", unit=UNIT):
    ledger.reserve(ReleaseKey(series, period, revision), "commuters", small_plan(rho, unit=unit))


def spent(ledger, period="2001-01"):
    return ledger.balance("commuters", period).spent


@pytest.mark.representatives
@pytest.mark.parametrize(
    ("kind", "uncounted"),
    [("user_year", None), ("user_year", Uncounted("1/4", 9)), ("user", None), ("user_period", None)],
)
@pytest.mark.parametrize(
    ("engine", "cap"),
    [*(("sqlite", cap) for cap in ("1/5", "19/20", "9/4", "29/10", "20")), ("postgresql", "9/4")],
    indirect=["engine"],
)
def test_as_many_periods_are_payable_as_can_then_be_reserved(tmp_path, kind, cap, uncounted):
    """In turn, for a unit whose losses add up over periods or a year. Another series was charged in February before."""
    unit = UNIT if kind == "user_year" else PrivacyUnit(kind, "unbounded", "person", 2)
    domain = PrivacyDomain("commuters", unit, Cap(rho=Fraction(cap)), "a test")
    budget = Budget(rho="9/10", delta="1e-8")
    plan = plan_release(GEOGRAPHY, unit=unit, budget=budget, mechanism="inftda", uncounted=uncounted)
    ledger = declared(tmp_path, cap, unit)
    reserve(ledger, "2001-02", series="walkers", unit=unit)
    periods = list(itertools.islice(iterate_periods(datetime.date(2001, 1, 1), "month"), 15))
    before = rows(ledger.path)
    found = ledger.count_payable_periods("commuters", domain, plan, periods)
    assert rows(ledger.path) == before
    reserved = 0
    for period in periods:
        try:
            ledger.reserve(ReleaseKey("commuters", period.text), "commuters", plan)
        except BudgetExceeded:
            continue
        reserved += 1
    assert found == reserved


def test_a_year_costs_what_its_costliest_periods_cost_a_user_with_m_trips(tmp_path):
    """Every charge is the increase of the maximum: nothing for a cheap period, and less than rho for the third one."""
    ledger, increases, before = declared(tmp_path, 1), [], Fraction(0)
    for period, rho in (("2001-03", 1), ("2001-01", 4), ("2001-12", 2), ("2001-07", 1), ("2001-02", 3)):
        reserve(ledger, period, Fraction(rho, 100))
        increases.append(100 * (spent(ledger) - before))
        before = spent(ledger)
    assert increases == [1, 4, Fraction(5, 4), 0, Fraction(5, 4)]
    (balance,) = ledger.balances()
    assert (balance.domain, balance.period, balance.releases, balance.lost_draws) == ("commuters", "2001", 5, 0)
    assert balance == ledger.balance("commuters", "2001-06")
    hundredths = {"2001-01": 4, "2001-02": 3, "2001-03": 1, "2001-07": 1, "2001-12": 2}
    assert balance.parts == {month: Fraction(number, 100) for month, number in hundredths.items()}


@pytest.mark.parametrize("year", [None, "2001-07--2002-06"])
def test_another_year_has_its_own_cap(tmp_path, year):
    ledger = declared(tmp_path, Fraction(9, 4) * TENTH, year=year)
    months = {None: ("2001-01", "2001-06", "2001-12"), "2001-07--2002-06": ("2001-07", "2001-12", "2002-06")}[year]
    for month in months:
        reserve(ledger, month)
    others = {None: ("2000-12", "2002-01"), "2001-07--2002-06": ("2001-06", "2002-07")}[year]
    for month in others:
        reserve(ledger, month, Fraction(9, 4) * TENTH)
    first, last = others
    names = ["2000", "2001", "2002"] if year is None else ["2000-07--2001-06", "2001-07--2002-06", "2002-07--2003-06"]
    assert [balance.period for balance in ledger.balances()] == names
    assert {balance.left for balance in ledger.balances()} == {0}
    assert [ledger.balance("commuters", month).releases for month in (first, months[0], last)] == [1, 3, 1]


def test_a_cap_that_is_used_up_allows_what_costs_the_worst_user_nothing(tmp_path):
    """A fourth month as cheap as the third adds nothing. One that is dearer is refused, and nothing is spent."""
    ledger = declared(tmp_path, Fraction(9, 4) * TENTH)
    for period in ("2001-01", "2001-02", "2001-03", "2001-04"):
        reserve(ledger, period)
    assert ledger.balance("commuters", "2001-05").left == 0
    before = rows(ledger.path)
    with pytest.raises(OdError, match="OD-LEDGER-CAP:") as refused:
        reserve(ledger, "2001-05", 2 * TENTH)
    said = "the release needs rho 0.1 in 2001, but data set 'commuters' has a cap of 0.225, of which 0.225 is spent and"
    assert refused.value.message == f"{said} 0 remains"
    assert refused.value.spent == "nothing was spent"
    for revised in ({"revision": 2}, {"series": "walkers"}):
        with pytest.raises(OdError, match="OD-LEDGER-CAP: the release needs rho"):
            reserve(ledger, "2001-01", **revised)
    assert rows(ledger.path) == before
    reserve(ledger, "2002-01", 2 * TENTH)


def test_a_lost_draw_is_charged_to_its_period_again(tmp_path):
    """The cap of the year decides whether the level may be drawn again; in a cheap period, that costs nothing."""
    ledger = declared(tmp_path, Fraction(9, 4) * TENTH)
    for period in ("2001-01", "2001-02", "2001-03"):
        reserve(ledger, period)
    reserve(ledger, "2001-04", Fraction(1, 1000))
    cheap, dear = (ReleaseKey("commuters", period) for period in ("2001-04", "2001-01"))
    assert [ledger.start_draw(cheap, 4) for _ in range(2)] == [1, 2]
    assert (spent(ledger), ledger.balances()[0].lost_draws) == (Fraction(9, 4) * TENTH, 1)
    assert ledger.balances()[0].parts["2001-04"] == Fraction(1, 1000) * Fraction(20, 15)
    assert ledger.start_draw(dear, 4) == 1
    before = rows(ledger.path)
    with pytest.raises(OdError, match="OD-LEDGER-CAP: drawing a lost level again needs rho") as refused:
        ledger.start_draw(dear, 4)
    assert refused.value.spent == "nothing more was spent"
    assert rows(ledger.path) == before
    raised = PrivacyDomain("commuters", UNIT, Cap(rho=Fraction(1)), "a power cut")
    ledger.declare(raised)
    assert ledger.start_draw(dear, 4) == 2
    again = Fraction(reservations(ledger.path, level=4, release=str(dear))[-1]["rho"])
    assert spent(ledger) == Fraction(9, 4) * TENTH + again


OTHER_UNITS = {
    "m": {"max_trips": 1},
    "M": {"max_trips_year": 6},
    "c": {"max_trips_pair": 1},
    "pattern": {"id_pattern": "[a-z]*"},
    "relation": {"neighbours": "bounded"},
    "column": {"column": "user"},
    "kind": {"kind": "user_period", "max_trips_year": None, "id_pattern": None},
    "trips": {"kind": "trip", "column": None, "max_trips": None, "max_trips_year": None, "id_pattern": None},
}


@pytest.mark.parametrize("what", OTHER_UNITS)
def test_all_releases_of_a_data_set_have_the_same_bounds(tmp_path, what):
    """A smaller m of one series would need the noise of the common m; a larger M would break the promise."""
    ledger = declared(tmp_path, 1)
    reserve(ledger, "2001-01")
    before, other = rows(ledger.path), replace(UNIT, **OTHER_UNITS[what])
    with pytest.raises(OdError, match="OD-DOMAIN-CONFLICT: the release's unit") as refused:
        reserve(ledger, "2001-02", unit=other)
    assert refused.value.spent == "nothing was spent"
    with pytest.raises(OdError, match="OD-DOMAIN-CONFLICT"):
        declared(tmp_path, 1, other)
    assert rows(ledger.path) == before


def test_the_year_of_a_data_set_does_not_move(tmp_path):
    """Two cuts into years would let a user have 2 M trips in twelve months."""
    ledger = declared(tmp_path, 1)
    before = rows(ledger.path)
    for changes in ({"year": "2001-07--2002-06"}, {"elementary_period": "day"}, {"time_zone": "Europe/Rome"}):
        with pytest.raises(OdError, match="OD-DOMAIN-CONFLICT: data set 'commuters' is declared with"):
            ledger.declare(PrivacyDomain("commuters", UNIT, Cap(rho=Fraction(1)), "a test", **changes))
    assert rows(ledger.path) == before


@pytest.mark.parametrize("unit", [PrivacyUnit("user_period", "unbounded", "person", 2), PrivacyUnit("trip")])
def test_a_data_set_whose_users_have_no_bound_for_a_year_gets_another_name(tmp_path, unit):
    ledger = declared(tmp_path, 1, unit)
    before = rows(ledger.path)
    with pytest.raises(OdError, match="OD-DOMAIN-CONFLICT:") as refused:
        declared(tmp_path, 1, UNIT)
    assert f"has releases of unit '{unit.kind}', whose users have no bound for a year" in refused.value.message
    assert "declare a data set with another name" in refused.value.next_step
    assert "first period of a year" in refused.value.next_step
    assert rows(ledger.path) == before


def test_a_release_of_several_elementary_periods_is_refused(tmp_path):
    ledger = declared(tmp_path, 1)
    for period in ("2001", "2001-Q2", "2001-01--2001-02"):
        with pytest.raises(OdError, match=r"OD-DOMAIN-PERIOD: a release of .* spans several"):
            reserve(ledger, period)
    assert ledger.balances() == []


def test_random_years_cost_what_a_search_over_all_users_finds(tmp_path):
    """Series, revisions and periods in random order: after every charge, the spent rho is that of the worst user."""
    ledger, generator = declared(tmp_path, 100), np.random.default_rng(31)
    by_period: dict[str, Fraction] = {}
    for number in range(1, 13):
        period = f"2001-{generator.integers(1, 5):02d}"
        rho = Fraction(int(generator.integers(1, 50)), 60)
        reserve(ledger, period, rho, revision=number, series=f"series_{number % 3}")
        by_period[period] = by_period.get(period, Fraction(0)) + rho
        assert spent(ledger) == largest_by_search(list(by_period.values()), 2, 5)
        assert ledger.balance("commuters", period).parts == dict(sorted(by_period.items()))


def test_a_year_of_users_with_a_pair_cap_costs_at_least_what_a_search_over_their_trips_finds(tmp_path):
    """The search enumerates the trips of a user in every period. A lost draw, too, is charged by them."""
    unit = PrivacyUnit("user_year", "unbounded", "person", 3, None, 4, "[a-z]+", 2)
    ledger, generator = declared(tmp_path, 100, unit), np.random.default_rng(3)
    costs: dict[str, list[Fraction]] = {}
    shares = [*[Fraction(1, 100)] * 4, Fraction(96, 100)]  # a user with 2 trips costs 4/5 of one with 3 at the leaves
    for number in range(1, 9):
        period, rho = f"2001-{generator.integers(1, 4):02d}", Fraction(int(generator.integers(1, 50)), 60)
        plan, key = small_plan(rho, unit=unit, shares=shares), ReleaseKey("commuters", period, number)
        ledger.reserve(key, "commuters", plan)
        of_period = costs.setdefault(period, [Fraction(0)] * 4)
        for step in plan.steps:
            sizes = [size for size, nodes in step.node_sizes for _ in range(nodes)]
            for trips in range(4):
                of_period[trips] += Fraction(most_squares(sizes, trips, 2)) / (2 * step.variance)
        chosen = [each for each in itertools.product(range(4), repeat=len(costs)) if sum(each) <= 4]
        worst = max(sum(cost[k] for cost, k in zip(costs.values(), each, strict=True)) for each in chosen)
        assert worst <= spent(ledger) <= sum(cost[3] for cost in costs.values())
    before = spent(ledger)
    assert [ledger.start_draw(key, 0) for _ in range(2)] == [1, 2]
    assert spent(ledger) > before


def most_squares(sizes: list[int], trips: int, of_pair: int) -> int:
    """The largest sum of squares of so many trips in nodes with these numbers of leaf pairs."""
    numbers = itertools.product(*(range(min(trips, of_pair * size) + 1) for size in sizes))
    return max(sum(x**2 for x in each) for each in numbers if sum(each) <= trips)
