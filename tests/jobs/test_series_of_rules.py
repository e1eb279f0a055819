"""A series whose rule held-out noise chooses: which releases each learns from, whenever and however often it is run."""

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from od_assets.cli.diagnosis import inspect_budget
from od_assets.components import OdRelease
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.period_status import list_release_statuses
from od_core.flows.estimation import rule_choice
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.published.verification import verify_release
from tests.od_assets.conftest import Project, failure_text, projects_in, public_bytes, with_two_flows
from tests.od_core.published.test_series_rule import shown

Months = Callable[[int], Project]
"""Return the project in which so many months are published."""

PERIODS = ["2001-01", "2001-02", "2001-03"]


@pytest.fixture(autouse=True, scope="module")
def near_the_limit() -> Iterator[None]:
    """One release alone does not show enough, and two do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_choice, "_compare_rules", shown(0.028))
        yield


@pytest.fixture
def months(project) -> Project:
    return with_two_flows(project, PERIODS)


@pytest.fixture(scope="module")
def stages(near_the_limit, tmp_path_factory) -> Callable[[int], Path]:
    """Return ``var`` after the first months were published in their order. Not to be changed."""
    folder = tmp_path_factory.mktemp("stages")

    @functools.cache
    def stage(number: int) -> Path:
        with projects_in(folder / f"project_{number}") as make:
            project = with_two_flows(make(), PERIODS)
            if number > 1:
                shutil.copytree(stage(number - 1), project.var)
            run(project, PERIODS[number - 1])
            return project.var

    return stage


@pytest.fixture
def published(months, stages) -> Months:
    """Return the project in which so many months are published. Dagster knows nothing of their runs."""

    def after(number):
        shutil.copytree(stages(number), months.var, dirs_exist_ok=True)
        return months

    return after


def component(project: Project, **changes: Any) -> OdRelease:
    return project.component(estimate="auto", periods__last="2001-03", **changes)


def run(project: Project, *periods: str, **changes: Any) -> None:
    for period in periods:
        project.publish(component(project, **changes), period)


def stated(project: Project, period: str, revision: int = 1) -> dict[str, Any]:
    path = project.var / "releases" / "trips" / period / f"r{revision}" / "certificate.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def pooled(project: Project, period: str, revision: int = 1) -> tuple[str, int, str | None, str | None]:
    """The rule, the number of releases, since when the rule holds, and the release that is learnt from."""
    facts = stated(project, period, revision)
    earlier = facts["plan"].get("earlier", {"release": None})["release"]
    return facts["estimation"]["rule"], facts["evidence"]["releases"], facts["evidence"]["since"], earlier


def test_a_series_changes_its_rule_when_its_evidence_is_clear_and_keeps_it(published):
    months = published(3)
    assert [pooled(months, period) for period in PERIODS] == [
        ("least_squares", 1, None, None),
        ("mixture", 2, None, "trips/2001-01/r1"),
        ("mixture", 3, "trips/2001-02/r1", "trips/2001-02/r1"),
    ]
    ledger = Ledger(months.var / "ledger.sqlite")
    assert [
        row["settings_changed"] for row in list_release_statuses([component(months)], ledger, ledger.read_states())
    ] == [[]] * 3
    assert inspect_budget(component(months).require_valid(), "2001-03").fault is None


def test_a_release_that_is_run_again_after_others_has_the_same_bytes_and_draws_nothing(months):
    run(months, "2001-02")
    run(months, "2001-01", "2001-03")
    assert pooled(months, "2001-02")[1:] == (1, None, None)  # nothing before it was published
    assert pooled(months, "2001-03") == ("mixture", 2, None, "trips/2001-02/r1")
    before, entries = public_bytes(months.var), Ledger(months.var / "ledger.sqlite").verify()
    run(months, "2001-02")
    assert public_bytes(months.var) == before
    assert Ledger(months.var / "ledger.sqlite").verify() == entries


def test_a_revision_learns_from_an_earlier_period_and_never_from_its_own(published):
    """What it would learn of its own period would be of the same records, for which it promises its own epsilon."""
    months = published(2)
    run(months, "2001-01", revision=2)
    assert pooled(months, "2001-01", 2) == ("least_squares", 1, None, None)
    run(months, "2001-02", revision=2)
    assert pooled(months, "2001-02", 2) == ("mixture", 2, None, "trips/2001-01/r2")
    run(months, "2001-03")
    assert pooled(months, "2001-03")[3] == "trips/2001-02/r2"


def test_a_release_with_another_budget_begins_anew(published):
    months = published(1)
    run(months, "2001-02", privacy__epsilon="1/2")
    assert pooled(months, "2001-02") == ("least_squares", 1, None, None)
    run(months, "2001-03")
    assert pooled(months, "2001-03") == ("mixture", 2, None, "trips/2001-01/r1")


COUNTED = ("geography", "raw_trips", "trip_counts")


def test_a_run_that_was_killed_goes_on_with_what_it_reserved(months):
    """It ended after the first level. Then the month before is published, and it is run again."""
    begun = months.materialize(*COUNTED, "levels/noisy_measurement_1", period="2001-02", component=component(months))
    assert begun.success, failure_text(begun)
    run(months, "2001-01", "2001-02", "2001-03")
    assert pooled(months, "2001-02") == ("least_squares", 1, None, None)
    assert pooled(months, "2001-03") == ("mixture", 2, None, "trips/2001-02/r1")


def test_a_run_that_only_counted_goes_on_with_what_was_published_since(months):
    """Counts do not depend on evidence, so they are not refused."""
    assert months.materialize(*COUNTED, period="2001-02", component=component(months)).success
    run(months, "2001-01")
    begun = months.materialize("levels/noisy_measurement_1", period="2001-02", component=component(months))
    assert begun.success, failure_text(begun)
    plan = Ledger(months.var / "ledger.sqlite").read_reserved_plan(ReleaseKey("trips", "2001-02"))
    assert plan is not None
    assert plan["earlier"]["release"] == "trips/2001-01/r1"


def test_every_release_of_a_series_verifies(published):
    months = published(3)
    warehouse = Warehouse.from_project(component(months).require_valid().project)
    for period in PERIODS:
        place = warehouse.locate_release(ReleaseKey("trips", period))
        assert [finding.fault for finding in verify_release(place) if finding.fault] == [], period


def test_a_changed_certificate_of_an_earlier_release_is_refused_before_anything_is_charged(published):
    months = published(1)
    path = months.var / "releases" / "trips" / "2001-01" / "r1" / "certificate.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    facts["evidence"]["rules"][4]["saved"] = 900_000
    path.write_text(json.dumps(facts), encoding="utf-8")
    result = months.run(component(months), "2001-02")
    assert not result.success
    assert "OD-BUNDLE-DAMAGED" in failure_text(result)
    assert Ledger(months.var / "ledger.sqlite").list_charges(ReleaseKey("trips", "2001-02")) == []
