"""A release explained: other choices cost what algebra says, the ledger is used if it is the release's own."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from od_core import Budget, Ledger, Plan, PrivacyUnit, ReleasePlan, plan_release, release_stops
from od_core.privacy.accounting import compute_tight_epsilon, round_up_to_float
from od_core.privacy.stability import compute_laplace_reach
from od_core.published.explanation import PRIORS, Alternative, describe_own_choice, explain_release, list_alternatives
from tests.od_core.ledger.ledger_rows import GEOGRAPHY
from tests.od_core.publication.published_kinds import EXAMPLES, POINTS, Made, publish_examples
from tests.od_core.published.disclosure.certified import certified

DELTA = Fraction(1, 10**6)
RHO = Fraction(1, 20)


def users(most: int = 3, neighbours: str = "unbounded", rho: Fraction = RHO, share: str | None = None) -> Plan:
    """Every level is measured, so the noise of all is that of one rho; epsilon is by the conversion ``tight``."""
    unit, budget = PrivacyUnit("user", neighbours, "who", most), Budget(rho=rho, delta=DELTA, conversion="tight")  # type: ignore[arg-type]
    return plan_release(GEOGRAPHY, unit=unit, budget=budget, area_totals=share)


def by_choice(plan: Plan) -> Mapping[tuple[str, str], Alternative]:
    return {(one.decision, one.choice): one for one in list_alternatives(plan)}


def promised(rho: Fraction) -> float:
    return round_up_to_float(compute_tight_epsilon(rho, DELTA))


@pytest.mark.parametrize("share", [None, "1/10"])
def test_another_bound_costs_its_square_in_rho_or_itself_in_noise(share: str | None) -> None:
    """Area totals have the same share of every alternative."""
    plan = users(4, share=share)
    found = by_choice(plan)
    for most in (2, 8):
        other, ratio = found["m", f"at most {most} trips"], Fraction(most, 4)
        assert other.times == pytest.approx(float(ratio), rel=1e-6)
        assert other.epsilon == pytest.approx(promised(RHO * ratio**2), rel=1e-9)
    trip = found["unit", "one trip, unbounded"]
    assert trip.times == pytest.approx(1 / 4, rel=1e-6)
    assert trip.epsilon is not None
    assert 0.9 * promised(RHO / 16) < trip.epsilon < promised(RHO / 16)  # its exact privacy loss is defined
    period = found["unit", "a user in a period, at most 4 trips, unbounded"]
    assert (period.times, period.epsilon) == pytest.approx((1, promised(RHO)), rel=1e-6)


def test_another_unit_has_the_promise_by_its_own_conversion() -> None:
    """A bundle states the conversion of its plan, but the exact loss of a single record may be defined, too."""
    unit, budget = PrivacyUnit("user", "unbounded", "who", 3), Budget(2, DELTA)
    found = by_choice(plan_release(GEOGRAPHY, unit=unit, budget=replace(budget, conversion="tight")))
    alone = plan_release(GEOGRAPHY, unit=PrivacyUnit("trip", "unbounded"), budget=budget)
    assert found["unit", "one trip, unbounded"].noise == alone.detail_noise().deviation


def test_another_bound_of_a_period_raises_that_of_a_year_if_it_must() -> None:
    unit = PrivacyUnit("user_year", "unbounded", "who", 4, max_trips_year=6, id_pattern="[0-9]+")
    plan = plan_release(GEOGRAPHY, unit=unit, budget=Budget(rho=RHO, delta=DELTA, conversion="tight"))
    found = by_choice(plan)
    assert ("m", "at most 2 trips in a period and 6 in the year") in found
    assert ("m", "at most 8 trips in a period and 8 in the year") in found


def test_a_period_of_a_year_keeps_the_pair_cap() -> None:
    """Without the bound of the year, the same noise protects the user of one period."""
    unit = PrivacyUnit("user_year", "unbounded", "who", 10, max_trips_pair=1, max_trips_year=10, id_pattern="[0-9]+")
    plan = plan_release(GEOGRAPHY, unit=unit, budget=Budget(rho=RHO, delta=DELTA, conversion="tight"))
    units = {choice: one for (decision, choice), one in by_choice(plan).items() if decision == "unit"}
    [period] = [one for choice, one in units.items() if "in a period" in choice]
    assert period.times == pytest.approx(1)


def test_another_delta_has_another_epsilon_at_the_same_noise() -> None:
    found = by_choice(users())
    for delta, text in ((DELTA * 100, "0.0001"), (DELTA / 100, "1e-8")):
        other = found["delta", text]
        assert other.epsilon == pytest.approx(float(compute_tight_epsilon(RHO, delta)), rel=1e-9)
        assert other.times is not None
        assert (other.times < 1) == (delta > DELTA)


@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
def test_listed_shares_fit_other_neighbours(neighbours: str) -> None:
    """The root is measured for unbounded neighbours alone. The other levels keep their proportions."""
    base = certified("trips").plan
    levels = base.tree.depth + (neighbours == "unbounded")
    shares = [Fraction(number + 1, levels * (levels + 1) // 2) for number in range(levels)]

    def planned(relation: str, shares: list[Fraction]) -> ReleasePlan:
        return plan_release(
            base.tree.origin,
            unit=PrivacyUnit("trip", neighbours=relation),  # type: ignore[arg-type]  # one of the relations
            budget=Budget(rho="1/10", delta="1e-6", shares=shares),
            acceptance=base.acceptance,
        )

    plan = planned(neighbours, shares)
    other = by_choice(plan)["neighbours", "unbounded" if neighbours == "bounded" else "bounded"]
    if neighbours == "bounded":
        fitted = [Fraction(1, levels + 1), *(share * levels / (levels + 1) for share in shares)]
    else:
        fitted = [share / sum(shares[1:]) for share in shares[1:]]
    again = planned("unbounded" if neighbours == "bounded" else "bounded", fitted)
    now, then = plan.steps[-1], again.steps[-1]
    shares_of_leaves = (then.rho / again.spent.rho) / (now.rho / plan.spent.rho)
    assert other.times is not None
    expected = Fraction(then.sensitivity_squared, now.sensitivity_squared) / shares_of_leaves
    assert other.times**2 == pytest.approx(float(expected), rel=0.02)


@pytest.mark.representatives("segments", "users", "threshold")
@pytest.mark.parametrize("name", ["trips", "unbounded", "segments", "users", "user periods", "weights", "threshold"])
def test_an_alternative_is_the_plan_that_it_says(name: str) -> None:
    """Made again with the epsilon that it states, the other plan has the noise of the release, and no less."""
    plan = certified(name).plan
    now = describe_own_choice(plan)
    assert now.epsilon == round_up_to_float(plan.spent.epsilon)
    neighbours = "unbounded" if plan.unit.neighbours == "bounded" else "bounded"
    other = by_choice(plan)["neighbours", neighbours]
    assert None not in (other.epsilon, other.noise, now.noise)
    again = plan_release(
        plan.tree.origin,
        unit=replace(plan.unit, neighbours=neighbours),
        budget=Budget(other.epsilon, plan.budget.delta, conversion=plan.budget.conversion, shares=plan.budget.shares),
        mechanism=plan.mechanism,
        acceptance=plan.acceptance,
        segments=plan.segments,
    )
    assert describe_own_choice(again).noise == pytest.approx(now.noise, rel=1e-3)
    assert other.times == pytest.approx(other.noise / now.noise)  # type: ignore[operator]


def deviation(scale: Fraction) -> float:
    """The standard deviation of discrete Laplace noise, whose probabilities fall by one factor at each step."""
    fall = math.exp(-1 / float(scale))
    return math.sqrt(2 * fall) / (1 - fall)


def test_the_noise_of_boxes_is_known_once_they_are_drawn(tmp_path: Path) -> None:
    """It is not that of the total, which a hundredth of the budget measures."""
    make = partial(release_stops, POINTS, (8, 8, 8, 8), unit=PrivacyUnit("trip"), budget=Budget(2))
    example = replace(EXAMPLES["boxes"], make=partial(make, mechanism="daf_homogeneity"))
    made = publish_examples(tmp_path, {"boxes": example})["boxes"]
    for one in (describe_own_choice(made.release.plan), by_choice(made.release.plan)["epsilon", "4"]):
        assert (one.noise, one.note) == (None, "the noise of a box depends on the boxes that are drawn")
    found = explain_release(made.place.bundle)
    drawn, wider = found.chosen, {(one.decision, one.choice): one for one in found.others}["epsilon", "1"]
    assert drawn is not None
    assert drawn.noise is not None
    scale = made.release.scale
    assert drawn.noise == pytest.approx(deviation(scale))
    assert (wider.noise, wider.times) == pytest.approx((deviation(2 * scale), deviation(2 * scale) / drawn.noise))
    assert made.release.reach < compute_laplace_reach(dict(made.release.plan.step.scales)["total"]) / 9


# -- whole releases --------------------------------------------------------------------------------------------------


def test_what_is_left_is_of_the_ledger_of_the_release(
    all_published: dict[str, Made], published_by_category: Made, tmp_path: Path
) -> None:
    """And of no other ledger, even one in which another release has the same key."""
    namesake = Ledger(published_by_category.root / "ledger.sqlite")
    assert published_by_category.example.key == all_published["flows"].example.key
    assert explain_release(all_published["flows"].place.bundle, namesake).balance is None
    for made in all_published.values():
        ledger = Ledger(made.root / "ledger.sqlite")
        found = explain_release(made.place.bundle, ledger)
        assert found.balance is not None
        cap, spent = Fraction(9), Fraction(made.facts["spent"]["rho_exact"])
        assert (found.balance.cap, found.balance.spent, found.balance.left) == (cap, spent, cap - spent)
        assert f"{float(cap - spent):.6g} is left" in found.said["spent"]
        for other in (None, Ledger(tmp_path / "other.sqlite")):
            assert "not at hand" in explain_release(made.place.bundle, other).said["spent"]


def test_an_explanation_is_ready_for_json_and_holds_for_every_kind(all_published: dict[str, Made]) -> None:
    for made in all_published.values():
        found = json.loads(json.dumps(explain_release(made.place.bundle).to_facts(), allow_nan=False))
        assert found["release"] == str(made.example.key)
        assert found["spent"]["cap"] is None
        for row in found["attacker"]["beliefs"]:
            assert row["posterior_at_least"] < row["prior"] < row["posterior_at_most"]
            assert row["best_guess_before"] <= row["best_guess_after"]
        assert [row["prior"] for row in found["attacker"]["beliefs"]] == [float(prior) for prior in PRIORS]
        assert [row["units"] for row in found["attacker"]["persons"]] == [1, 2, 5, 10, 40]
        as_released = found["decisions"]["as_released"]["epsilon_at_the_same_noise"]
        assert found["attacker"]["persons"][0]["epsilon"] == as_released
        decisions = {one["decision"] for one in found["decisions"]["alternatives"]}
        assert decisions == {"unit", "neighbours", "epsilon", *(["delta"] if made.facts["spent"]["delta"] else [])}
