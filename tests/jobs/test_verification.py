"""The verification of a project: one job for all series, in the time that it has, and the notice of a fault."""

from __future__ import annotations

import json
from itertools import count

import dagster as dg
import pytest

from od_assets.checks.verification import make_verification
from od_assets.components import OdWarehouse
from od_assets.components.project import find_broken_declarations
from od_assets.components.series import build_series_definitions
from od_assets.project import find_current_project
from od_assets.resources.dead_runs import RELEASE_TAG
from tests.od_assets.conftest import ATTRIBUTES, COUNT_ATTRIBUTES, Project, failure_text, records
from tests.od_assets.watch import Kept, Watch
from tests.projects import declare, with_warehouse

CHECK = "stays_as_published"


@pytest.fixture
def published(project: Project) -> Project:
    """Two series with two published months each; February of the counts is newest."""
    project.write_records(records().assign(date="2001-02-03"), "2001-02")
    project.declare(ATTRIBUTES)
    project.declare(COUNT_ATTRIBUTES | {"mechanism": project.mechanism}, "OdCounts")
    for period in ("2001-01", "2001-02"):
        for series in (project.component(domain__cap__rho="1"), project.counts(domain__cap__rho="1")):
            project.publish(series, period)
    return project


def verified(project: Project, releases: int | None = None) -> dg.ExecuteInProcessResult:
    """One run of the job, whose time is over after some releases; never, without a number."""
    job = project.definitions(project.component()).resolve_job_def("od_verification")
    if releases is not None:
        # The clock is read once at the start, and before every release but the first: a minute a release.
        minute = count(0, 60)
        parts = make_verification(find_current_project(), "od_verification", None, releases, lambda: next(minute))
        shared = {"od_warehouse": OdWarehouse().build_defs(None).resources["od_warehouse"]}
        job = dg.Definitions.merge(parts, dg.Definitions(resources=shared)).resolve_job_def("od_verification")
    return project.execute(job)


def evaluations(project: Project, result: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
    """The checks that a run stored; its result lacks those of a step that fails afterwards."""
    entries = project.instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    return [entry.dagster_event.event_specific_data for entry in entries]


def found(project: Project, result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, int, int]]:
    """Whether the check of each series passed, and how many releases were verified and remain."""
    return {
        each.asset_key.path[0]: (each.passed, each.metadata["releases"].value, each.metadata["remaining"].value)
        for each in evaluations(project, result)
    }


def reached(project: Project) -> list[str]:
    """Releases that are verified, in the order of their last verification; those with a fault are first."""
    keys = [f"{series}/{period}/r1" for series in ("trips", "begun") for period in ("2001-01", "2001-02")]
    names = {f"od/verified/{key}": key for key in keys}
    last = project.instance.daemon_cursor_storage.get_cursor_values(set(names))
    return [names[name] for name in sorted(last, key=lambda name: last[name])]


def damage(project: Project, release: str) -> bytes:
    """Change a published certificate, and return what it was."""
    path = project.var / "releases" / release / "certificate.json"
    content = path.read_bytes()
    path.write_text(json.dumps(json.loads(content) | {"noise": "table"}), encoding="utf-8")
    return content


def test_one_run_verifies_all_series_and_each_has_its_check(published):
    result = verified(published)
    assert result.success
    assert found(published, result) == {"trips": (True, 2, 0), "begun": (True, 2, 0)}
    stored = published.instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(dg.AssetKey([series, "bundle"]), CHECK) for series in ("trips", "begun")]
    )
    assert {record.run_id for record in stored.values()} == {result.run_id}
    assert "4 of 4 published releases were verified." in messages(published, result)


def test_when_the_time_is_over_the_next_runs_go_on_and_then_begin_with_the_oldest(published):
    first = verified(published, 1)
    assert (first.success, found(published, first)) == (True, {"begun": (True, 1, 1)})
    assert reached(published) == ["begun/2001-02/r1"]  # the newest
    said = "1 of 4 published releases were verified; the next verification goes on with the other 3."
    assert said in messages(published, first)
    [output] = [event for event in first.all_events if event.is_successful_output]
    assert {name: output.event_specific_data.metadata[name].value for name in ("releases", "remaining")} == {
        "releases": 1,
        "remaining": 3,
    }
    verified(published, 2)
    assert reached(published) == ["begun/2001-02/r1", "trips/2001-02/r1", "begun/2001-01/r1"]
    verified(published, 2)  # the one that was never reached, then the one that waits longest
    assert reached(published) == ["trips/2001-02/r1", "begun/2001-01/r1", "trips/2001-01/r1", "begun/2001-02/r1"]


def test_a_fault_fails_the_run_and_is_looked_at_first_until_it_is_repaired(published):
    watch = Watch.begun(published, "release_failed", kept := Kept())
    whole = damage(published, "trips/2001-01/r1")
    result = verified(published)
    assert not result.success
    assert found(published, result) == {"trips": (False, 2, 0), "begun": (True, 2, 0)}
    assert "OD-RELEASE-UNVERIFIED: not as published: trips/2001-01/r1: " in failure_text(result)
    assert "; 4 of 4 published releases were verified" in failure_text(result)
    watch.look()
    [notice] = kept.said
    assert (notice.series, notice.period, notice.run_id) == ("od_verification", None, result.run_id)
    assert [cause.partition(":")[0] for cause in notice.causes] == ["OD-CHECK-FAILED", "od_verification/releases"]
    assert "trips/bundle: check stays_as_published failed. It found: trips/2001-01/r1: " in notice.causes[0]
    assert "run it again, which repairs the bundle" in notice.causes[0]

    still = verified(published, 1)
    assert (still.success, found(published, still)) == (False, {"trips": (False, 1, 1)})
    (published.var / "releases/trips/2001-01/r1/certificate.json").write_bytes(whole)
    assert found(published, verified(published, 1)) == {"trips": (True, 1, 1)}


def test_a_check_does_not_pass_while_a_known_fault_of_its_series_was_not_reached(published):
    whole = damage(published, "trips/2001-02/r1")
    damage(published, "trips/2001-01/r1")
    verified(published)
    (published.var / "releases/trips/2001-02/r1/certificate.json").write_bytes(whole)
    result = verified(published, 1)  # the newer one is whole again
    assert (result.success, found(published, result)) == (False, {"trips": (False, 1, 1)})
    [evaluation] = evaluations(published, result)
    assert evaluation.description == (
        "trips/2001-01/r1: not as published at its last verification, and not reached in this one"
    )
    assert "1 of 4 published releases were verified; the next verification goes on with the other 3" in failure_text(
        result
    )


def test_a_fault_that_the_button_of_the_check_finds_is_not_forgotten(published):
    """Execute verifies all releases of the series; in a release, one is compared with its certificate."""
    verified(published)
    damage(published, "trips/2001-01/r1")
    job = published.definitions(published.component()).resolve_implicit_global_asset_job_def()
    bundle = dg.AssetKey(["trips", "bundle"])
    chosen = job.get_subset(asset_check_selection={dg.AssetCheckKey(bundle, CHECK)}, asset_selection=set())
    whole = published.execute(chosen)
    assert found(published, whole) == {"trips": (False, 2, 0)}
    assert found(published, published.execute(chosen, tags={"dagster/partition": "2001-02"})) == {"trips": (True, 1, 0)}
    one = published.execute(chosen, tags={"dagster/partition": "2001-01"})
    [evaluation] = evaluations(published, one)
    assert "its certificate differs from the one that was published" in (evaluation.description or "")
    assert found(published, verified(published, 1)) == {"trips": (False, 1, 1)}


def test_releases_of_a_series_that_is_not_declared_any_more_are_verified_and_fail_the_run(published):
    damage(published, "begun/2001-01/r1")
    (published.defs / "begun" / "defs.yaml").unlink()
    result = verified(published)
    assert (result.success, found(published, result)) == (False, {"trips": (True, 2, 0)})
    assert "not as published: begun/2001-01/r1: " in failure_text(result)


def test_without_a_release_there_is_nothing_to_verify(project):
    result = verified(project)
    assert (result.success, found(project, result)) == (True, {})
    assert "0 of 0 published releases were verified." in messages(project, result)


def test_the_schedule_is_as_declared_and_has_the_prefix_of_the_project(project):
    def scheduled(**attributes):
        built = OdWarehouse.model_validate(attributes).build_defs(None)
        [job] = built.jobs
        return job.name, job.tags[RELEASE_TAG], [(each.name, each.cron_schedule) for each in built.schedules]

    assert scheduled() == ("od_verification", "od_verification", [("od_verification", "0 3 * * *")])
    assert scheduled(verification={"cron": None, "minutes": 5}) == ("od_verification", "od_verification", [])
    named = scheduled(key_prefix="north", verification={"cron": "30 4 * * 0"})
    assert named == ("north_verification", "north_verification", [("north_verification", "30 4 * * 0")])
    many = dg.Definitions.merge(*(build_series_definitions(project.component(name=name)) for name in ("one", "two")))
    repository = with_warehouse(many).get_repository_def()
    assert {job.name for job in repository.get_all_jobs()} >= {"one_release", "two_release", "od_verification"}
    assert [each.name for each in repository.schedule_defs if "verif" in each.name] == ["od_verification"]


@pytest.mark.parametrize("wrong", [{"cron": "at night"}, {"cron": "99 3 * * *"}, {"minutes": 0}, {"at": "0 3 * * *"}])
def test_a_wrong_verification_is_said_with_its_line(project, wrong):
    declare(project.defs, "warehouse", "OdWarehouse", {"verification": wrong})
    [fault] = find_broken_declarations().values()
    assert fault.code == "OD-CONFIG"
    assert next(iter(wrong)) in fault.message


def messages(project: Project, result: dg.ExecuteInProcessResult) -> list[str]:
    return [entry.user_message for entry in project.instance.all_logs(result.run_id)]
