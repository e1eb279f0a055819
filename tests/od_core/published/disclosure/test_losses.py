"""Every document states first what everything about a unit promises, and all state the same numbers."""

import copy
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from od_core import Budget, Explanation, PrivacyUnit, plan_release
from od_core.meaning.subject import Subject
from od_core.periods import Period
from od_core.privacy.domain import bound_periods_per_year
from od_core.privacy.posterior import Guarantee
from od_core.publication.certificate import bound_right_guesses_of_100
from od_core.publication.certify import describe_year_cost
from od_core.published import documents as made
from od_core.published.documents import Facts, compute_losses, disclosure_documents
from tests.od_core.ledger.ledger_rows import GEOGRAPHY
from tests.od_core.published.disclosure.certified import certified, written

GUESS = "between two cases that are equally likely beforehand, a best guess is right at most {} times in 100"
"""What a bound on guesses says. Without the equal odds beforehand it would not be true."""

RHO = Fraction("0.1234")
DELTA = Fraction(1, 10**6)


def of_user_year(most: int = 36, periods: int | None = 12, of_pair: int | None = None, **cap: str) -> dict[str, Any]:
    """The certificate of users with the plan of a month of a year, and a cap."""
    unit = PrivacyUnit("user_year", "unbounded", "who", 3, None, most, "[a-z0-9]+", of_pair)
    plan = plan_release(GEOGRAPHY, unit=unit, budget=Budget(rho=RHO, delta=DELTA))
    facts = copy.deepcopy(certified("users").facts)
    stated = json.loads(json.dumps(plan.facts()))
    facts |= {"unit": unit.kind, "subject": Subject.from_plan(plan).facts(), "plan": stated}
    exact, levels = str(plan.spent.rho), [str(rho) for rho in plan.spent.levels]
    facts["spent"] |= {"rho_exact": exact, "rho_planned_exact": exact, "rho_by_level_exact": levels}
    facts["spent"]["epsilon"] = float(plan.spent.epsilon)
    if cap:
        facts["account"] = {"cap": cap, **({} if periods is None else {"periods_of_year": periods})}
    return facts


def with_cap(name: str, **cap: str) -> dict[str, Any]:
    return copy.deepcopy(certified(name).facts) | {"account": {"cap": cap}}


CASES = {
    "a year of users": lambda: of_user_year(rho="1.6"),
    "a year of people": lambda: of_user_year(of_pair=1, rho="2"),
    "a year of weeks": lambda: of_user_year(periods=52, rho="2"),
    "a year without its account": of_user_year,
    "users": lambda: with_cap("users", epsilon="6", delta="1e-6"),
    "user periods": lambda: with_cap("user periods", rho="0.7"),
    "trips": lambda: with_cap("trips", rho="1/2"),
    "threshold": lambda: with_cap("threshold", epsilon="3", delta="1e-5"),
    "group sizes": lambda: with_cap("group sizes", rho="4"),
    "sum": lambda: with_cap("sum", rho="1"),
}


def cases(guarantee: Guarantee) -> int:
    return math.ceil(100 * guarantee.bound_guess_probability())


@pytest.mark.representatives("a year of users", "a year of weeks", "a year without its account", "users", "group sizes")
@pytest.mark.parametrize("name", CASES)
def test_all_documents_state_the_same_losses_and_the_whole_first(name: str, tmp_path: Path) -> None:
    facts = CASES[name]()
    folder = written(facts, tmp_path / "r1")
    _, texts = disclosure_documents(folder)
    losses = compute_losses(facts)
    explained = Explanation(Facts.from_bundle(folder), None, None, ()).to_facts()["attacker"]["losses"]
    assert [row["epsilon"] for row in explained] == pytest.approx([float(one.guarantee.epsilon) for one in losses])
    for document in (made.REGISTRY, made.CHECKLIST, made.ASSESSMENT):
        text = " ".join(texts[document].replace("\\", "").split())
        places = [text.find(f"{one.of}: epsilon") for one in losses]
        assert -1 not in places, document
        assert places == sorted(places), document
        for one in losses:
            assert GUESS.format(cases(one.guarantee)) in text, document
        likely = text.count("between two cases that are equally likely beforehand")
        assert text.count("a best guess is right at most") == likely
    notice = texts[made.NOTICE]
    assert f"right in at most {cases(losses[0].guarantee)} of 100 cases. This holds for:" in notice
    for one in losses[1:]:
        assert f"{one.of}: at most {cases(one.guarantee)} of 100 cases." in notice


def test_a_year_of_months_of_epsilon_3_is_not_a_month() -> None:
    """With 3 trips a month and 36 in the year, the best guess is right 93 times in 100, and not 63 times."""
    whole, year, month = compute_losses(of_user_year(rho="2"))
    assert float(month.guarantee.bound_guess_probability()) == pytest.approx(0.5 + math.sqrt(float(RHO) / 2) / 2)
    assert [bound_right_guesses_of_100(each.guarantee) for each in (month, year)] == [63, 93]
    assert year.guarantee.rho == 12 * RHO
    assert whole.guarantee.rho == 2
    four = compute_losses(of_user_year(12, rho="2"))[1]
    assert four.guarantee.rho == 4 * RHO
    people = compute_losses(of_user_year(12, of_pair=1, rho="2"))[1]
    assert people.guarantee.rho == 4 * RHO


def test_the_periods_of_a_year_are_those_of_the_data_set() -> None:
    unit = PrivacyUnit("user_year", "unbounded", "who", 1, max_trips_year=60, id_pattern="[a-z]+")
    plan = plan_release(GEOGRAPHY, unit=unit, budget=Budget(rho=RHO, delta=DELTA))
    said = describe_year_cost(plan, plan.spent, 52, Subject.from_plan(plan))
    assert "each of the 52 periods" in said
    assert f"({float(Guarantee.from_rho(52 * RHO, DELTA).epsilon):.4g}"[:4] in said
    lengths = ("2001-03-05", "2001-W05", "2001-03", "2001-Q2")
    assert [bound_periods_per_year(Period(text)) for text in lengths] == [366, 53, 12, 4]


def test_charges_add_up_after_a_lost_draw(tmp_path: Path) -> None:
    facts = copy.deepcopy(certified("trips").facts)
    planned = Fraction(facts["spent"]["rho_planned_exact"])
    facts["spent"] |= {"lost_draws": 1, "rho_exact": str(planned * 5 / 4), "epsilon_exact": None}
    _, texts = disclosure_documents(written(facts, tmp_path / "r1"))
    said = " ".join(texts[made.REGISTRY].split())
    assert f"steps add up to rho {planned}, as exact fractions" in said
    assert f"charged once more (1), they add up to {planned * 5 / 4}" in said


def test_a_sum_of_trips_states_what_its_releases_do(tmp_path: Path) -> None:
    """The records of a trip are of one of the periods, so the sum reveals as much as one of them."""
    own, each = (compute_losses(certified(name).facts)[-1].guarantee for name in ("sum", "trips"))
    assert bound_right_guesses_of_100(own) == bound_right_guesses_of_100(each)
