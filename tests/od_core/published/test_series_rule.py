"""The rule of a series in published bundles: what they state, and what verification finds of a forged one."""

import json
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from od_core import Budget, Cap, InfTDARefined, Ledger, OdError, PrivacyUnit, Release, open_release, release_flows
from od_core.flows.estimation import rule_choice
from od_core.flows.estimation.rule_choice import RULES, Choice, _Losses
from od_core.flows.estimation.shrinkage import Rule
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.domain import PrivacyDomain
from od_core.published.publishing import Published
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.examples import restated
from tests.od_core.publication.published_kinds import faults, locations, publish

MONTHS = [ReleaseKey("commuters", f"2001-0{month}") for month in (1, 2, 3)]
BETTER = Rule(u=Fraction(1))


def shown(saved: float) -> Callable[..., _Losses]:
    """Held-out noise by which one rule saves a part; the tables here are too small to learn from."""

    def losses(plan: Any, levels: Any, *_: Any) -> _Losses:
        errors, false = np.full((len(RULES), 2), 1000.0), np.full((len(RULES), 2), 0.2)
        errors[RULES.index(BETTER), 1] -= 1000 * saved
        return _Losses(errors, false, np.zeros((2, len(RULES), len(levels))))

    return losses


@pytest.fixture(autouse=True, scope="module")
def near_the_limit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_choice, "_compare_rules", shown(0.028))
        yield


def released(root: Path, key: ReleaseKey, previous: Release | None = None) -> Release:
    ledger = Ledger(root / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", PrivacyUnit("trip"), Cap(rho=Fraction(9)), "a test"))
    return release_flows(
        ledger_rows.FLOWS,
        ledger_rows.ONE_LEVEL,
        unit=PrivacyUnit("trip"),
        budget=Budget(rho=2, delta="1e-8"),
        mechanism=InfTDARefined(estimate="auto"),
        fault_threshold=0,
        ledger=ledger,
        release_id=str(key),
        previous=previous,
    )


def series(root: Path) -> list[Published]:
    """Three months, each after the one before."""
    places: list[Published] = []
    for key in MONTHS:
        previous = open_release(places[-1].bundle) if places else None
        assert previous is None or isinstance(previous, Release)
        places.append(publish(FLOWS, released(root, key, previous), key, "commuters", root)[0])
    return places


@pytest.fixture(scope="module")
def whole(near_the_limit: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three months. Not to be changed."""
    root = tmp_path_factory.mktemp("whole")
    series(root)
    return root


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


def stated(place: Published) -> dict[str, Any]:
    return dict(json.loads((place.bundle / "certificate.json").read_text(encoding="utf-8")))


def test_a_series_states_its_rule_its_evidence_and_what_it_comes_from(whole: Path) -> None:
    first, second, third = (stated(locations(whole, key)) for key in MONTHS)
    assert [one["estimation"]["rule"] for one in (first, second, third)] == ["least_squares", "mixture", "mixture"]
    assert [one["evidence"]["releases"] for one in (first, second, third)] == [1, 2, 3]
    assert [one["evidence"]["rules"][4]["saved"] for one in (first, second, third)] == [28_000, 56_000, 84_000]
    assert "earlier" not in first["plan"]
    for before, after in ((first, second), (second, third)):
        assert after["plan"]["earlier"]["estimation"] == before["estimation"]
        assert after["plan"]["earlier"]["evidence"] == before["evidence"]
        assert after["plan_digest"] != before["plan_digest"]
    schema = json.loads((locations(whole, MONTHS[2]).bundle / "certificate.schema.json").read_text("utf-8"))
    for one in (first, second, third):
        Draft202012Validator(schema).validate(one)
    assert not Draft202012Validator(schema).is_valid(first | {"evidence": {"releases": 1}})
    words = [(locations(whole, key).bundle / "report.html").read_text("utf-8") for key in MONTHS]
    assert ["The evidence is that of" in text for text in words] == [False, True, True]
    assert "The evidence is that of 3 releases of the series." in words[2]
    assert "the former saves 0.0 % of the error of least squares, and the latter 2.8 %" in words[1]
    assert "the former saves" not in words[2]


def test_a_release_is_not_made_again_after_another_one(tmp_path: Path) -> None:
    first = released(tmp_path, MONTHS[0])
    released(tmp_path, MONTHS[1], first)
    with pytest.raises(OdError, match="OD-REPLAY-PLAN-CHANGED:") as error:
        released(tmp_path, MONTHS[1])
    assert "changed: earlier" in error.value.message


def forge_earlier(facts: dict[str, Any]) -> None:
    facts["plan"]["earlier"]["evidence"]["rules"][4]["saved"] = 0


def forge_rule_before(facts: dict[str, Any]) -> None:
    facts["plan"]["earlier"]["estimation"] = {"rule": "normal", "u": None}


def forge_pooled(facts: dict[str, Any]) -> None:
    facts["evidence"]["rules"][4]["saved"] += 1


def forge_rule(facts: dict[str, Any]) -> None:
    facts["estimation"] = {"rule": "least_squares", "u": None}


def drop_earlier(facts: dict[str, Any]) -> None:
    del facts["plan"]["earlier"]


@pytest.mark.representatives("forge_rule")
@pytest.mark.parametrize("forge", [forge_earlier, forge_rule_before, forge_pooled, forge_rule, drop_earlier])
def test_a_forged_rule_or_evidence_is_found(copied: Path, forge: Callable[[dict[str, Any]], None]) -> None:
    """In the ledger, which has the plan, and by computing the certificate again from the measurements."""
    place = locations(copied, MONTHS[1])
    restated(place.bundle, forge)
    assert {"bundle", "ledger"} <= faults(place).keys()


@pytest.mark.slow
def test_a_certificate_without_evidence_opens_verifies_and_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As early versions wrote it, which stated the rule alone."""
    whole = Choice.facts
    with monkeypatch.context() as early:
        early.setattr(Choice, "facts", lambda choice: {"estimation": whole(choice)["estimation"]})
        place, facts = publish(FLOWS, released(tmp_path, MONTHS[0]), MONTHS[0], "commuters", tmp_path)
    assert "evidence" not in facts
    assert faults(place) == {}
    opened = open_release(place.bundle)
    assert isinstance(opened, Release)
    assert opened.plan.earlier is None
    assert rule_choice.read_earlier_evidence(opened.plan, facts) is None
