"""The planning page in a real browser: its numbers are those of the plans, and it asks nobody."""

import math
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import pytest
import yaml
from scipy import stats

from od_core import Budget, ReleasePlan
from od_core.flows.planning_page import render_planning_page
from od_core.meaning.subject import Subject
from od_core.privacy.accounting import compute_bun_steinke_epsilon, compute_tight_epsilon, format_rounded_up
from od_core.privacy.budget import Cap
from od_core.privacy.domain import compute_largest_rho
from od_core.privacy.posterior import Guarantee
from od_core.publication.templates import render_clauses
from tests.browser.conftest import DESK, PHONE, inaccessible, show, too_wide
from tests.browser.plannings import CAP, CASES, UNEVEN, Case, Setting
from tests.od_core.publication.reports import EVIL

SETTINGS = 8
"""Of each case, so that there are more than a hundred."""

READ = """() => {
    const value = (cell) => Number(cell.querySelector("data").value);
    const named = (row, name) => row.querySelector(`[data-name=${name}]`);
    const rows = (where) => [...document.querySelectorAll(`${where} tbody tr`)];
    const text = (name) => document.querySelector(`#short [data-name=${name}]`).textContent;
    return {
        epsilon: text("budget"), charge: text("charge"),
        exactCharge: value(document.querySelector("#short [data-name=charge]")),
        verdicts: [...document.querySelectorAll(".verdicts li")].map((item) => item.textContent),
        accuracy: rows("#accuracy").map((row) => ({
            by: row.dataset.by, level: Number(row.dataset.level), name: row.cells[0].textContent,
            cells: row.cells[1].textContent, width: value(named(row, "width")), shown: named(row, "width").textContent,
            error: value(named(row, "error")), shownError: named(row, "error").textContent,
        })),
        seen: rows("#seen").map((row) => [Number(row.dataset.level), value(named(row, "seen"))]),
        persons: rows("#promise").map((row) => ({
            trips: row.cells[0].textContent,
            ...Object.fromEntries(["epsilon", "guess", "odds"].map((name) => [name, value(named(row, name))])),
            shown: named(row, "epsilon").textContent,
        })),
        alternatives: rows("#alternatives").map((row) => [
            row.dataset.alternative, [...row.cells].slice(1).map((cell) => cell.querySelector("data") && value(cell)),
        ]),
        promise: document.querySelector("#promise p").textContent,
        text: document.querySelector("#promise").textContent,
        declaration: document.querySelector("#declaration pre").textContent,
    };
}"""


def at(page, fragment: str) -> dict:
    """What the page shows at an address."""
    page.evaluate("fragment => { location.hash = fragment; }", fragment)
    page.wait_for_function("shown => document.getElementById('results').dataset.shown.startsWith(shown)", arg=fragment)
    return page.evaluate(READ)


def near(found: list[float], expected: list[float]) -> None:
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def same_numbers(found: dict, plan: ReleasePlan) -> None:
    """Compare what is shown with a plan."""
    measure, charge = ("rho", plan.spent.rho) if plan.charges_rho else ("epsilon", plan.spent.epsilon)
    assert found["charge"] == f"{measure} {format_rounded_up(charge)}"
    assert found["exactCharge"] == float(charge)
    promised = Fraction(found["epsilon"].removeprefix("epsilon "))
    if plan.budget.epsilon is not None:
        assert promised == plan.budget.epsilon
    else:
        assert format_rounded_up(compute_tight_epsilon(plan.spent.rho, plan.budget.delta)) == str(float(promised))
    assert plan.spent.epsilon <= promised
    assert found["verdicts"] == plan.verdicts()[: -len(plan.area_total_steps) or None]  # those of levels
    accuracies = {"": (plan.expected_errors, plan.half_widths)}
    for one in plan.breakdowns:
        accuracies[one.name] = plan.expected_segment_errors(one.name), plan.segment_half_widths(one.name)
    assert sorted({row["by"] for row in found["accuracy"]}) == sorted(accuracies)
    for by, (errors, widths) in accuracies.items():
        rows = [row for row in found["accuracy"] if row["by"] == by]
        near([row["error"] for row in rows], errors)
        near([row["width"] for row in rows], widths)
        assert [row["cells"] for row in rows] == [f"{plan.tree.cells(row['level']):,}" for row in rows]
        names = [(own, "all") if plan.tree.has_one_side else (own, other) for own, other in plan.tree.level_names]
        shown = [tuple(row["name"].split(" x ")) for row in rows]
        assert [(*each, "all")[:2] for each in shown] == names
        exact = not by and plan.publishes_total
        assert [row["shown"] == "exact" for row in rows] == [exact, *[False] * plan.tree.depth]
        assert [float(row["shownError"].replace(",", "")) for row in rows] == [float(f"{e:.3g}") for e in errors]
    change = render_clauses(Subject.from_plan(plan))["change"]
    assert found["promise"].startswith(
        f"The promise compares the records as they are with the records as they would be if {change}."
    )
    assert ("is published exactly" in found["promise"]) == plan.publishes_total


def same_chances(found: dict, plan: ReleasePlan, periods: int = 12, *, looser: bool = False) -> None:
    """Compare what is said of small flows and of persons with formulas of Python."""
    of_year = {}
    if is_of_year(plan):
        of_year = {f"a year of {periods} such releases": year_factor(plan, periods)}
    times = {"any number": 1, "one release": 1, **of_year, "such a year without its bound": periods}
    assert len(found["persons"]) == 3 or not of_year
    largest = plan._compute_largest_variances(plan.totals)
    for level, chance in found["seen"]:
        noise, least = math.sqrt(largest[level]), plan.half_widths[level]
        of_noise = 1 - NormalDist(5, noise).cdf(least) if noise else float(least < 5)  # 5 is the number in question
        if noise and not plan.charges_rho:
            of_noise = max(of_noise, stats.laplace.sf(least, 5, noise / 2**0.5))
        assert chance == pytest.approx(of_noise, abs=1e-9)
    delta = plan.budget.delta
    for person in found["persons"]:
        own = person["trips"]
        factor = times[own] if own in times else int(own.split()[0]) ** 2
        rho = plan.spent.rho * factor
        if plan.charges_rho:
            stated, log_odds = Guarantee.from_rho(rho, delta), compute_bun_steinke_epsilon(rho, delta)
        else:
            of_person = Guarantee.from_spent(plan.spent).scale_to_units(math.isqrt(factor))
            assert of_person is not None
            stated, log_odds = of_person, of_person.epsilon
        if factor == 1 and not looser:  # as `explain` states it
            stated = Guarantee.from_spent(plan.spent)
        near([person["epsilon"]], [float(stated.epsilon)])
        assert float(person["shown"].replace(",", "")) == float(format_rounded_up(stated.epsilon, 3))
        near([person["guess"]], [float(stated.bound_guess_probability())])
        near([person["odds"]], [float(log_odds)])
    assert ("computed from rho alone" in found["text"]) == (looser and plan.spent.variances is not None)
    assert ("except with a chance" in found["text"]) == plan.charges_rho == ("at delta" in found["text"])


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_random_settings_are_those_of_the_plans(opened, tmp_path, name):
    case = CASES[name]
    page, seen = opened(case.write(tmp_path))
    for setting in case.settings(SETTINGS, seed=list(CASES).index(name)):
        found, plan = at(page, case.fragment(setting)), case.plan(setting)
        same_numbers(found, plan)
        looser = setting.weights is not None or not (setting.epsilon is None or plan.conversion == "exact")
        same_chances(found, plan, case.periods, looser=looser)
        same_declaration(found, plan)
    same_numbers(at(page, "#"), case.declared())
    assert seen.errors == []


def year_factor(plan: ReleasePlan, periods: int) -> Fraction:
    """What a year of releases like this one costs, as a multiple of one."""
    if plan.unit.max_trips_pair is None:
        return compute_largest_rho([Fraction(1)] * periods, plan.unit.max_trips, plan.unit.max_trips_year)
    return plan.rho_of_year(plan.spent, periods) / plan.spent.rho


def is_of_year(plan: ReleasePlan) -> bool:
    return plan.unit.kind == "user_year"


def same_declaration(found: dict, plan: ReleasePlan) -> None:
    """The printed lines make the same plan."""
    lines = yaml.safe_load(found["declaration"])
    names = ["shares", "conversion"] if "shares" in lines["privacy"] else []
    kept = {name: getattr(plan.budget, name) for name in ("shares", "conversion") if name not in names}
    assert Budget(**lines["privacy"], **kept) == plan.budget
    if plan.unit.max_trips and (not is_of_year(plan) or "unit" in lines):
        unit = plan.unit
        bounds = {"max_trips": unit.max_trips, "max_trips_pair": unit.max_trips_pair}
        bounds["max_trips_year"] = unit.max_trips_year
        assert lines["bounds"] == {name: most for name, most in bounds.items() if most is not None}
    if "geography" in lines:
        assert tuple(lines["geography"]["levels"]) == plan.tree.origin.levels
    if "unit" in lines:
        assert (lines["unit"], lines["neighbours"]) == (plan.unit.kind, plan.unit.neighbours)


@pytest.mark.parametrize("name", ["uneven", "segments", "two sides", "counts of people", "both sides", "laplace"])
def test_the_alternatives_are_plans_of_their_own(opened, tmp_path, name):
    case = CASES[name]
    page, _ = opened(case.write(tmp_path))
    for setting in case.settings(SETTINGS, seed=99):
        found = at(page, case.fragment(setting))
        named = dict(found["alternatives"])
        assert next(iter(named)) == "This setting"
        expected = {"This setting": setting, "A period 4 times as long": setting}
        for level in setting.levels if len(setting.levels) > 1 else ():
            title = " and ".join(dict.fromkeys(side.columns[level - 1] for side in case.sides))
            finest = "Coarser zones: without" if level == setting.levels[-1] else "Without"
            fewer = tuple(each for each in setting.levels if each != level)
            expected[f"{finest} {title}"] = replace(setting, levels=fewer)
        if setting.segments:
            expected["Without segments"] = replace(setting, segments=False)
        if setting.pair:
            zones = "zone" if case.has_one_side else "pair of zones"
            expected[f"Without the cap for each {zones}"] = replace(setting, pair=None)
        plans = {title: case.plan(each) for title, each in expected.items()} | {"As declared": case.declared()}
        assert set(expected) <= set(named) <= set(plans)
        for title, widths in named.items():
            plan = plans[title]
            names = [names[0] for names in plan.tree.level_names]
            for level, width in zip(case.origins.columns, widths, strict=True):
                if level in names:
                    per_area = 1 if plan.tree.refines_both else len(case.sides)
                    near([width], [plan.half_widths[per_area * plan.tree.origin.find_level_number(level)]])
                else:
                    assert width is None


def test_every_control_changes_the_plan_and_the_address_leads_back(opened, tmp_path):
    case = CASES["segments"]
    page, seen = opened(case.write(tmp_path))
    setting = Setting(None, "trip", "bounded", 10, (1, 2, 3), segments=True, weights=None)
    page.wait_for_selector("#results[data-shown]")

    def changed(**changes):
        nonlocal setting
        setting = replace(setting, **changes)
        same_numbers(page.evaluate(READ), case.plan(setting))

    changed()
    page.focus("#budget")
    page.keyboard.press("End")
    changed(epsilon="20")
    page.keyboard.press("ArrowLeft")
    changed(epsilon="15")
    assert page.get_attribute("#budget", "aria-valuetext") == "epsilon 15"
    page.select_option("#relation", "unbounded")
    changed(relation="unbounded")
    page.select_option("#kind", "user")
    page.fill("#trips", "6")
    changed(unit="user", trips=6)
    page.fill("#trips", "0")
    changed()
    assert page.get_attribute("#trips", "aria-invalid") == "true"
    page.focus("#budget")
    assert page.input_value("#trips") == "6"
    assert (page.input_value("#pair"), page.get_attribute("#pair", "max")) == ("6", "6"), "no cap"
    page.fill("#pair", "2")
    changed(pair=2)
    page.fill("#pair", "7")
    assert page.get_attribute("#pair", "aria-invalid") == "true"
    changed()
    page.fill("#pair", "6")
    changed(pair=None)
    page.fill("#trips", "9")
    changed(trips=9)
    page.fill("#pair", "1")
    changed(pair=1)
    page.get_by_role("checkbox", name="town").uncheck()
    changed(levels=(1, 3))
    page.get_by_role("checkbox", name="zone").uncheck()
    changed(levels=(1,))
    assert page.get_by_role("checkbox", name="region").is_disabled(), "one level must stay"
    page.get_by_role("checkbox", name="zone").check()
    changed(levels=(1, 3))
    page.uncheck("#segments")
    changed(segments=False)
    page.click("#weights summary")
    for level in range(5):
        page.locator("#weights input").nth(level).fill(str(10 + level))
    weights = page.evaluate("location.hash.match(/weights=([0-9,]+)/)[1]")
    changed(weights=tuple(map(int, weights.split(","))))
    assert [each.input_value() for each in page.locator("#weights input").all()] == ["10", "11", "12", "13", "14"]
    link = page.url
    again, _ = opened(link)
    again.wait_for_selector("#results[data-shown]")
    assert again.evaluate(READ) == page.evaluate(READ)
    page.click("#rule")
    changed(weights=None)
    page.click("#declared")
    changed(epsilon=None, unit="trip", relation="bounded", levels=(1, 2, 3), segments=True, trips=10, pair=None)
    assert seen.errors == []


def test_the_share_of_the_cap_is_that_of_the_declared_unit_alone(opened, tmp_path):
    case = CASES["uneven"]
    page, _ = opened(case.write(tmp_path))
    share = format_rounded_up(100 * case.declared().spent.rho / CAP.allowed_rho(), 3)
    assert f"{share} % of the cap of the data set" in page.inner_text("#short")
    page.focus("#budget")
    page.keyboard.press("End")
    assert "more than it allows, so od-release would refuse it" in page.inner_text("#short")
    page.select_option("#relation", "unbounded")
    assert "cap" not in page.inner_text("#short")


@pytest.mark.parametrize(
    ("cap", "measure"),
    [
        (Cap(rho="1/3"), "rho"),
        (Cap(epsilon=5), "epsilon"),
        (Cap(epsilon=1, delta="1e-6"), "epsilon"),
        (Cap(epsilon=100, delta="1e-1"), "rho"),
    ],
)
def test_the_share_of_the_cap_with_laplace_noise_is_that_of_the_smaller_measure(opened, tmp_path, cap, measure):
    """An epsilon of 20 exceeds the first three caps. A cap in epsilon needs no delta."""
    plan = CASES["laplace"].declared()
    (tmp_path / "planning.html").write_text(render_planning_page(plan, "flows", cap), encoding="utf-8")
    page, seen = opened((tmp_path / "planning.html").as_uri())
    page.wait_for_selector("#results[data-shown]")
    usage = cap.compute_usage(plan.charges)
    assert usage.measure == measure
    share = format_rounded_up(usage.percent, 3)
    said = page.inner_text("#short")
    assert f"{share} % of the cap of the data set" in said
    assert ("as rho" in said) == (measure == "rho")
    assert "without delta" in said
    assert "delta" not in page.inner_text("#declaration pre")
    page.focus("#budget")
    page.keyboard.press("End")
    assert ("more than it allows" in page.inner_text("#short")) == (cap.epsilon != 100)
    assert seen.errors == []


def test_a_declared_pair_cap_is_that_of_the_first_setting_and_can_be_lifted(opened, tmp_path):
    """Under a year of a user, the cap is one of the data set, whose budget another cap does not share."""
    case = CASES["people of a year"]
    page, _ = opened(case.write(tmp_path))
    assert page.input_value("#pair") == "1"
    assert "of the cap of the data set" in page.inner_text("#short")
    page.fill("#pair", "2")
    assert "of the cap of the data set" not in page.inner_text("#short")
    assert "As declared" in page.inner_text("#alternatives")
    page.fill("#pair", "25")
    assert "max_trips_pair is left out." in page.inner_text("#declaration")
    assert "with the same origin and destination zone" not in page.inner_text("#promise")
    page.select_option("#kind", "trip")
    assert not page.locator("#pair").is_visible()
    page.click("#declared")
    same_numbers(page.evaluate(READ), case.declared())


def test_what_is_told_from_0_has_an_interval_without_0(opened, tmp_path):
    """An exact total is always told from 0."""
    one = Case(UNEVEN.assign(region="all of it"), budget=Budget(epsilon=3, delta="1e-8"))
    page, _ = opened(one.write(tmp_path))
    assert dict(page.evaluate(READ)["seen"])[2] == 1


@pytest.mark.parametrize(
    "fragment",
    ["#budget=99", "#levels=3,1", "#levels=", "#unit=pair", "#weights=1,2", "#weights=0,0,0,0,0,0,0", "#flow=-1"],
)
def test_an_address_that_states_nothing_true_shows_the_declared_setting(opened, tmp_path, fragment):
    case = CASES["uneven"]
    page, seen = opened(case.write(tmp_path) + fragment)
    page.wait_for_selector("#results[data-shown]")
    same_numbers(page.evaluate(READ), case.declared())
    assert seen.errors == []


CHOSEN = "#budget=12&unit=user&neighbours=unbounded&trips=4&pair=1&levels=1,3&segments=1&weights=50,50,60,50,9,50,90"


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    return CASES["segments"].write(tmp_path_factory.mktemp("segments"))


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_asks_nobody_fits_and_is_accessible(opened, address, width, scheme):
    for name, fragment in (("declared", ""), ("chosen", CHOSEN)):
        page, seen = opened(address + fragment, width)
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector("#results[data-shown]")
        page.click("#weights summary")
        page.click("#accuracy summary")
        assert too_wide(page) == ""
        show(page, f"planning-{name}-{'phone' if width == PHONE else 'desk'}-{scheme}", whole=True)
        assert inaccessible(page) == []
        assert (seen.asked, seen.errors) == ([address], [])


def test_names_that_are_markup_are_read_and_do_nothing(opened, tmp_path):
    levels = list(EVIL)[:3]
    frame = UNEVEN.rename(columns=dict(zip(UNEVEN.columns, levels, strict=True)))
    case = Case(frame, budget=Budget(rho="0.01", delta="1e-8"))  # breakdowns have names of letters alone
    page, seen = opened(case.write(tmp_path, name="</script><script>alert(4)</script>"))
    page.wait_for_selector("#results[data-shown]")
    assert page.evaluate(READ)["verdicts"] == case.declared().verdicts()
    text = page.inner_text("body")
    assert all(name in text for name in (*levels, "</script><script>alert(4)</script>"))
    assert page.locator("script").count() == 2
    assert page.locator("img, b, i:not(.bar i)").count() == 0
    assert (len(seen.asked), seen.errors) == (1, [])
