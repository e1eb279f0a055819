"""The planning page of a data set that protects a year of a person: what its releases cost together, and its bounds."""

import math

import pytest

from od_core import Budget, PrivacyUnit
from od_core.privacy.accounting import format_rounded_up
from tests.browser.plannings import CAP, UNEVEN, Case, Setting
from tests.browser.test_planning_page import READ, at, same_chances, same_declaration, same_numbers, year_factor

BOUNDS = [(1, 1), (10, 10), (10, 25), (10, 40), (3, 35), (3, 36), (7, 900)]
"""Trips of a user that are counted in a period, and in a year."""

CAPPED = [(10, 10, 1), (40, 77, 1), (40, 130, 3), (3, 35, 2), (7, 83, 1), (7, 900, 6)]
"""The same, and with the same origin and destination zone."""


def case_of(rho: str = "0.05", yearly: int = 40) -> Case:
    unit = PrivacyUnit("user_year", "unbounded", "person", 10, max_trips_year=yearly, id_pattern="[0-9]+")
    return Case(UNEVEN, unit=unit, budget=Budget(rho=rho, delta="1e-8"))


def setting_of(m: int, most: int, pair: int | None = None, relation: str = "unbounded") -> Setting:
    return Setting(None, "user_year", relation, m, (1, 2, 3), segments=False, weights=None, yearly=most, pair=pair)


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    return case_of().write(tmp_path_factory.mktemp("year"))


@pytest.fixture
def page(opened, address):
    page, seen = opened(address)
    page.wait_for_selector("#results[data-shown]")
    yield page
    assert seen.errors == []


def test_a_year_costs_what_it_costs_in_python(page):
    """With the bound of the year and without it; and the noise that it saves."""
    case = case_of()
    for m, most, pair in [*((*bounds, None) for bounds in BOUNDS), *CAPPED]:
        for relation in ("bounded", "unbounded"):
            setting = setting_of(m, most, pair, relation)
            found, plan = at(page, case.fragment(setting)), case.plan(setting)
            same_numbers(found, plan)
            same_chances(found, plan)
            same_declaration(found, plan)
            factor = year_factor(plan, 12)
            times = [factor, 12] if factor < 12 else [12]
            shown = page.locator("[data-cost]").all()
            assert [each.inner_text() for each in shown] == [
                f"rho {format_rounded_up(n * plan.spent.rho, 3)}" for n in times
            ]
            assert [float(each.get_attribute("data-cost")) for each in shown] == pytest.approx(list(map(float, times)))
            text = page.inner_text("#promise")
            assert ("at most as much as one release" in text) == (factor == 1)
            assert f"at most {m} of them are counted in each period, and at most {most} in the year." in text
            assert (f"without it, at most {12 * m} would be counted" in text) == (factor == 12)
            if factor < 12:
                larger = float(page.locator("[data-name=larger] data").get_attribute("value"))
                assert larger == pytest.approx(math.sqrt(12 / factor))


def test_no_more_trips_are_counted_in_a_period_than_in_a_year(page):
    case = case_of()
    assert page.get_attribute("#trips", "max") == "40"
    assert page.get_attribute("#yearly", "min") == "10"
    for name, refused, declared in (("trips", "41", "10"), ("yearly", "9", "40")):
        page.fill(f"#{name}", refused)
        assert page.get_attribute(f"#{name}", "aria-invalid") == "true"
        same_numbers(page.evaluate(READ), case.declared())
        page.focus("#budget")
        assert page.input_value(f"#{name}") == declared
    page.fill("#yearly", "60")
    page.fill("#trips", "41")
    same_chances(page.evaluate(READ), case.plan(setting_of(41, 60)))
    assert "&trips=41&pair=41&yearly=60&" in page.url
    assert "of which at most 41 in each period and 60 in the year are counted" in page.inner_text("#short")
    page.click("#declared")
    same_chances(page.evaluate(READ), case.declared())
    page.evaluate("location.hash = '#trips=50&yearly=45'")
    page.wait_for_function("document.getElementById('results').dataset.shown.includes('trips=10&pair=10&yearly=40')")


def test_the_share_of_the_cap_is_that_of_the_declared_bounds_alone(opened, tmp_path, monkeypatch):
    """A year of releases may take the whole cap; what rounding alone adds to it is not more than it allows."""
    monkeypatch.setattr("od_core.flows.planning_page.EPSILONS", ("1",))  # a page for each budget is slow
    refused = "more than it allows, so od-release would refuse"
    for rho, yearly, one, year, too_much in (
        ("0.05", 40, "10", "40", ""),
        ("25/108", 24, "46.3", "100", ""),
        ("0.13", 40, "26", "104", f": {refused} some of them"),
        ("0.6", 40, "120", None, f": {refused} it"),
    ):
        page, _ = opened(case_of(rho, yearly).write(tmp_path))
        said = f"{one} % of the cap of the data set"
        if year:
            said += f", which is for a year; 12 such releases, one of each period, take {year} %"
        text = page.inner_text("#short")
        assert f"{said}{too_much}\n" in text
        assert (refused in text) == bool(too_much)
        page.fill("#yearly", "41")
        assert "cap" not in page.inner_text("#short"), "the data set would be another one"
    assert CAP.rho == 1 / 2
