"""Notices of releases that are published and of runs that fail, and the examples of docs/how-to/operate.md."""

import json
import logging
import math
import re
import runpy
import traceback
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import StepMaterializationData
from dagster._core.utils import make_new_run_id

from od_assets.failures import describe_failures
from od_assets.resources.dead_runs import RELEASE_TAG
from od_assets.sensors.notices import Failed, Notices, Published
from od_core.errors import OdError
from od_core.ledger.ledger import Ledger
from od_core.publication.certify import describe_promise

from .conftest import Project, records
from .watch import Kept, Watch

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "operate.md"
TAGS = ("od/release", "od/period", "od/revision")


def blocks(after: str) -> list[str]:
    """The Python examples of the document behind a heading."""
    text = DOCUMENT.read_text(encoding="utf-8").split(f"## {after}", 1)[1]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def executed(example: str, folder: Path, **given: Any) -> dict[str, Any]:
    """The names that an example makes, in a module of its own."""
    (folder / "example.py").write_text(example, encoding="utf-8")
    return runpy.run_path(str(folder / "example.py"), init_globals=given)


def bundle_of(period: str, revision: int) -> dg.AssetMaterialization:
    """A bundle as its asset reports it, with metadata that no notice takes along."""
    release = f"trips/{period}/r{revision}"
    return dg.AssetMaterialization(
        ["trips", "bundle"],
        partition=period,
        metadata={"release": release, "rho": 0.5, "pictures": dg.MetadataValue.md("![](data:)")},
        tags={"dagster/data_version": release},
    )


def reported(project: Project, period: str, revision: int, series: str = "trips") -> None:
    """A bundle is made by a run of a release series."""
    run = project.instance.create_run_for_job(_others, tags={RELEASE_TAG: series})
    said_by(project, run.run_id, bundle_of(period, revision))


def said_by(project: Project, run_id: str, materialization: dg.AssetMaterialization) -> None:
    event = dg.DagsterEvent(
        event_type_value="ASSET_MATERIALIZATION",
        job_name="others",
        event_specific_data=StepMaterializationData(materialization),
    )
    project.instance.report_dagster_event(event, run_id)


def test_each_published_release_is_said_once_whatever_was_there_before(project):
    reported(project, "2001-01", 1)
    watch = Watch.begun(project, "release_published", kept := Kept())
    watch.look()
    assert kept.said == []

    reported(project, "2001-01", 2)
    reported(project, "2001-02", 1)  # two in one look
    reported(project, "2001-01", 2)  # read back: the same bytes
    assert watch.look().skip_message == "Published since the last evaluation: trips/2001-01/r2, trips/2001-02/r1."
    expected = [Published(release, {"rho": 0.5}) for release in ("trips/2001-01/r2", "trips/2001-02/r1")]
    assert expected == kept.said
    watch.look()
    reported(project, "2001-02", 1)
    assert "none" in watch.look().skip_message
    assert expected == kept.said


def test_the_first_releases_of_a_series_that_is_declared_later_are_said(project):
    watch = Watch.begun(project, "release_published", kept := Kept(), project.component(name="older"))
    reported(project, "2001-01", 1)
    reported(project, "2001-02", 1)
    watch.repository = project.definitions(project.component()).get_repository_def()  # the location is loaded again
    watch.look()
    watch.look()
    assert [notice.release for notice in kept.said] == ["trips/2001-01/r1", "trips/2001-02/r1"]


def test_a_release_of_a_run_of_several_series_is_said(project):
    watch = Watch.begun(project, "release_published", kept := Kept())
    keys = frozenset({dg.AssetKey(["trips", "bundle"]), dg.AssetKey(["departures", "bundle"])})
    run = dg.DagsterRun("some", run_id=make_new_run_id(), asset_selection=keys, tags={RELEASE_TAG: "departures"})
    project.instance.add_run(run)
    said_by(project, run.run_id, bundle_of("2001-01", 1))
    watch.look()
    assert [notice.release for notice in kept.said] == ["trips/2001-01/r1"]


def test_what_is_reported_from_outside_is_no_news_and_silences_none(project):
    """Anybody who reaches the UI can report a bundle by hand, and any job can say that it made one."""
    reported(project, "2001-01", 1)
    watch = Watch.begun(project, "release_published", kept := Kept())
    forged = bundle_of("2001-02", 1)
    project.instance.report_runless_asset_event(dg.AssetMaterialization(["trips", "bundle"]))
    project.instance.report_runless_asset_event(dg.AssetMaterialization(["trips", "bundle"], partition="2001-01"))
    project.instance.report_runless_asset_event(forged)
    said_by(project, project.instance.create_run_for_job(_others).run_id, forged)
    reported(project, "2001-02", 1, series="another")
    foreign = project.instance.create_run_for_job(_others, tags={RELEASE_TAG: "trips"})
    said_by(project, foreign.run_id, dg.AssetMaterialization(["trips", "bundle"], partition="2001-02"))
    assert "none" in watch.look().skip_message

    reported(project, "2001-01", 1)  # read back, the same bytes: what was said between does not make it news
    reported(project, "2001-02", 1)  # what was said before does not make it old
    watch.look()
    assert [notice.release for notice in kept.said] == ["trips/2001-02/r1"]


def test_a_failed_check_and_a_failed_step_are_said_and_nothing_of_others(project):
    watch = Watch.begun(project, "release_failed", kept := Kept())
    project.write_records(records().assign(origin="NOWHERE"))
    first = project.run()
    (project.root / "2001-01.csv").unlink()
    second = project.run()
    project.instance.create_run_for_job(_others, status=dg.DagsterRunStatus.STARTED)
    for run in project.instance.get_runs(dg.RunsFilter(job_name="others")):
        project.instance.report_run_failed(run)
    watch.look()
    assert [(notice.series, notice.period, notice.run_id) for notice in kept.said] == [
        ("trips", "2001-01", first.run_id),
        ("trips", "2001-01", second.run_id),
    ]
    [checked], [stepped] = (notice.causes for notice in kept.said)
    assert checked.startswith(
        "OD-CHECK-FAILED: trips/raw_trips: check meets_expectations failed. It requires: Records match the schema"
    )
    assert stepped.startswith("trips/raw_trips: OD-FILE-MISSING: ")
    assert not any("NOWHERE" in str(notice) for notice in kept.said)


def test_a_check_that_only_warned_is_no_cause_of_a_failure():
    def failed(severity):
        evaluation = dg.AssetCheckEvaluation(dg.AssetKey("flows"), "is_usual", passed=False, severity=severity)
        return dg.DagsterEvent("ASSET_CHECK_EVALUATION", "trips_release", event_specific_data=evaluation)

    assert describe_failures([failed(dg.AssetCheckSeverity.WARN)]) == []
    assert len(describe_failures([failed(dg.AssetCheckSeverity.ERROR)])) == 1


class Webhook(Notices):
    """A channel whose library quotes the address of the webhook, which is a secret, in its errors."""

    def published(self, notice: Published, log: logging.Logger) -> None:
        raise ConnectionError("no answer from https://hooks.example.org/services/" + "hunter2")

    def failed(self, notice: Failed, log: logging.Logger) -> None:
        self.published(Published("", {}), log)


@pytest.mark.slow
def test_a_channel_that_fails_says_no_secret_and_the_notice_is_given_again(project):
    def fail_twice(watch: Watch) -> None:
        for _ in range(2):
            with pytest.raises(OdError, match=r"OD-NOTICE-UNSENT: .* \(ConnectionError\)") as refused:
                watch.look()
            assert "hunter2" not in "".join(traceback.format_exception(refused.value))
        watch.notices = Kept()
        watch.look()

    watch = Watch.begun(project, "release_published", Webhook())
    reported(project, "2001-01", 1)
    fail_twice(watch)
    assert [notice.release for notice in watch.notices.said] == ["trips/2001-01/r1"]

    watch = Watch.begun(project, "release_failed", Webhook())
    project.write_records(records().assign(origin="NOWHERE"))
    project.run()
    fail_twice(watch)
    watch.look()
    assert [(notice.series, notice.period) for notice in watch.notices.said] == [("trips", "2001-01")]


def test_a_cursor_of_an_earlier_version_gives_no_notice_of_old_failures(project):
    project.write_records(records().assign(origin="NOWHERE"))
    project.run()
    watch = Watch(project, "release_failed", kept := Kept())
    watch.cursor = '{"__class__": "RunStatusSensorCursor", "record_id": 0, "update_timestamp": "2026-11-30T00:00:00"}'
    watch.look()
    watch.look()
    assert kept.said == []
    project.run()
    watch.look()
    assert [notice.series for notice in kept.said] == ["trips"]


@dg.job(name="others")
def _others() -> None:
    """A job of somebody else."""


def test_a_run_that_never_began_is_said(project):
    watch = Watch.begun(project, "release_failed", kept := Kept())
    component = project.component(periods={"first": "2001-Q1", "last": "2001-Q2", "every": "quarter"})
    job = project.definitions(component).resolve_job_def("trips_release")
    tags = {**job.tags, "dagster/partition": "2001-04"}
    run = project.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=tags)
    project.instance.report_run_failed(run, message="The process of this run no longer exists; run the release again.")
    watch.look()
    assert [(notice.period, notice.causes) for notice in kept.said] == [
        ("2001-Q2", ("The process of this run no longer exists; run the release again.",))
    ]


def test_a_failed_run_of_chosen_assets_is_said_with_its_period(project):
    """As "Materialize all" and automation request it: with the published table, and an asset of the team."""
    component = project.component(revision=2, periods={"first": "2001-Q1", "last": "2001-Q2", "every": "quarter"})
    quarters = component.require_valid().periods.make_partitions_definition()

    @dg.asset(deps=["trips_flows"], partitions_def=quarters)
    def dashboard() -> None:
        """An asset of the team below the release."""

    watch = Watch.begun(project, "release_failed", kept := Kept(), component)
    definitions = dg.Definitions.merge(project.definitions(component), dg.Definitions(assets=[dashboard]))
    chosen = (["trips", "geography"], ["trips", "raw_trips"], ["trips_flows"], dashboard.key)
    result = project.execute(definitions.resolve_implicit_global_asset_job_def(), *chosen, partition="2001-04")
    watch.look()
    tags = project.instance.get_run_by_id(result.run_id).tags
    assert [tags.get(name) for name in (*TAGS, "od/every")] == ["trips", "2001-Q2", "2", "quarter"]
    assert [(notice.series, notice.period) for notice in kept.said] == [("trips", "2001-Q2")]


@pytest.mark.slow
def test_a_release_is_said_as_the_document_shows_and_seen_by_the_team_downstream(project):
    """All examples of the document on one release; what is downstream loads without this project's definitions."""
    mails, automation, sensor = blocks("Receive notices")
    sent: list[tuple[str, str, str]] = []
    notices = executed(mails, project.root, send_mail=lambda *mail: sent.append(mail))["MailNotices"]("team")
    names = executed((automation + sensor).replace("us_flights", "trips"), project.root)
    downstream = dg.Definitions(assets=[names["bundle"], names["busiest_pairs"]], sensors=[names["newest_release"]])

    watch = Watch.begun(project, "release_published", notices)
    before = dg.evaluate_automation_conditions(downstream, project.instance)
    ran = project.run(project.component(revision=3))
    watch.look()
    after = dg.evaluate_automation_conditions(downstream, project.instance, cursor=before.cursor)

    folder = project.var / "releases/trips/2001-01/r3"
    certificate = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    notices.failed(Failed("trips", "2001-02", "7", ("a: b", "c: d")), logging.getLogger())
    assert sent == [
        ("team", "trips/2001-01/r3 is out", describe_promise(certificate["guarantee"])),
        ("team", "trips 2001-02 failed", "a: b\nc: d"),
    ]
    requested = [each.get_requested_partitions(dg.AssetKey("busiest_pairs")) for each in (before, after)]
    assert requested == [set(), {"2001-01"}]
    with dg.build_sensor_context(project.instance, repository_def=downstream.get_repository_def()) as context:
        assert names["newest_release"].evaluate_tick(context).skip_message == f"trips/2001-01/r3 is at {folder}"
    assert [project.instance.get_run_by_id(ran.run_id).tags.get(name) for name in TAGS] == ["trips", "2001-01", "3"]
    balance, logged = (
        Ledger(project.var / "ledger.sqlite").balance("trips", "2001-01"),
        project.instance.all_logs(ran.run_id),
    )
    up, down = math.ceil(balance.spent * 10**7) / 10**7, math.floor(balance.left * 10**7) / 10**7  # six digits
    spent = f"It spent rho {up}. Of the cap, rho 0.1, {down} remains."
    assert f"Published trips/2001-01/r3 in {folder}. {spent}" in [entry.user_message for entry in logged]
