"""Files that arrive: released by themselves, waited for, or refused, and said so."""

import datetime
import hashlib
import json
import os
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from od_assets.assets import release, steps
from od_assets.resources.arrivals import check_arrival, hold_to_marker
from od_core import Ledger, OdError
from od_core.periods import Period
from tests.od_assets.conftest import Project, draw_by_hand, failure_text, records

NOW = {"settled_seconds": 0}
JANUARY = "trips/2001-01/r1"


def look(project: Project, cursor: str | None = None, is_known: bool = True, **changes: Any) -> dg.SensorResult:
    """One look of the sensor at the files, of a data set of which something was released, if it ``is_known``."""
    component = project.component(**({"arrivals": NOW} | changes))
    if is_known and not (project.var / "ledger.sqlite").exists():
        draw_by_hand(component, project.var)
    repository = project.definitions(component).get_repository_def()
    with dg.build_sensor_context(instance=project.instance, cursor=cursor, repository_def=repository) as context:
        return repository.get_sensor_def("trips_arrivals").evaluate_tick(context)


def tick(project: Project, day: datetime.datetime, is_known: bool = True) -> Any:
    component = project.component()
    if is_known and not (project.var / "ledger.sqlite").exists():
        draw_by_hand(component, project.var)
    repository = project.definitions(component).get_repository_def()
    with dg.build_schedule_context(scheduled_execution_time=day, repository_def=repository) as context:
        return repository.get_schedule_def("trips_schedule").evaluate_tick(context)


def asked(outcome: Any) -> list[str]:
    return [request.partition_key for request in outcome.run_requests or []]


def run_of(project: Project, outcome: Any) -> dg.ExecuteInProcessResult:
    (partition,) = asked(outcome)
    return project.run(period=partition)


def test_a_file_that_arrives_is_asked_for_once_and_a_better_one_again(project):
    written = (project.root / "2001-01.csv").stat().st_mtime_ns
    first = look(project)
    assert asked(first) == ["2001-01"]
    assert [key.partition("@")[0] for key in json.loads(first.cursor)] == [JANUARY]
    again = look(project, first.cursor)
    assert asked(again) == []
    assert f"{JANUARY} was requested" in again.skip_message
    assert "trips/2001-02/r1 is waiting: there is no file 2001-02.csv" in again.skip_message
    project.write_records(records().assign(origin="Z99"))
    os.utime(project.root / "2001-01.csv", ns=(written, written))  # as `cp -p` and `rsync -a` set it
    better = look(project, again.cursor)
    assert asked(better) == ["2001-01"]
    assert len(json.loads(better.cursor)) == 1


def test_what_is_published_is_not_asked_for_and_a_corrected_file_is_refused(project):
    project.write_records(records().assign(date="2001-02-03"), "2001-02")
    assert asked(look(project)) == ["2001-01", "2001-02"]
    assert project.run().success
    assert project.run(period="2001-02").success
    done = look(project)
    assert asked(done) == []
    assert done.skip_message == "Every ended period of trips is published."
    project.write_records(records(1000))
    later = datetime.datetime.now().timestamp() + 10
    os.utime(project.root / "2001-01.csv", (later, later))
    corrected = look(project)
    assert asked(corrected) == []
    assert f"the file of {JANUARY} was changed after it was read" in corrected.skip_message
    assert "revision 2, which is charged again" in corrected.skip_message
    refused = project.run()
    assert not refused.success
    assert "OD-REPLAY-INPUT-CHANGED" in failure_text(refused)
    assert "as revision 2, which is charged again" in failure_text(refused)
    by_hand = look(project, revision=2)
    assert asked(by_hand) == []
    assert "trips/2001-02/r2 is charged again, so run it by hand" in by_hand.skip_message


def test_a_corrected_file_is_noticed_whatever_its_time_and_a_copy_of_the_same_is_not(project):
    path = project.root / "2001-01.csv"
    assert project.run().success
    read, written = path.read_bytes(), path.stat().st_mtime_ns
    for text, is_noticed in ((read, False), (read.replace(b"2001-01-15", b"2001-01-16", 1), True), (read + read, True)):
        copy = path.with_suffix(".new")
        copy.write_bytes(text)
        os.utime(copy, ns=(written - 10**12, written - 10**12))  # as `cp -p` and `rsync -a` set it
        copy.replace(path)
        assert ("was changed after it was read" in look(project).skip_message) == is_noticed


@pytest.mark.parametrize(("module", "name"), [(release, "load_period"), (steps, "count_records")])
def test_a_file_that_is_replaced_while_or_after_it_is_read_is_noticed(project, monkeypatch, module, name):
    path, work = project.root / "2001-01.csv", getattr(module, name)

    def replace_after(*given, **named):
        done = work(*given, **named)
        path.write_bytes(path.read_bytes() * 2)
        return done

    monkeypatch.setattr(module, name, replace_after)
    outcome = project.run()
    assert outcome.success == (module is steps)
    if outcome.success:
        assert "was changed after it was read" in look(project).skip_message
    else:
        assert "2001-01.csv was changed while it was read" in failure_text(outcome)


def test_a_file_is_taken_once_it_is_whole_and_still(project):
    path, marker = project.root / "2001-01.csv", project.root / "2001-01.done"
    os.utime(path, (1, 1))  # a copy keeps the time of its original, the file system does not
    assert "2001-01.csv changed less than 60 seconds ago" in look(project, arrivals={}).skip_message
    settings = project.component(arrivals={"complete": "{period}.done"}).require_valid()
    january, soon = Period("2001-01"), datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=61)
    assert check_arrival(settings, january, soon).waits == "2001-01.csv exists, but 2001-01.done does not"
    marker.touch()
    assert check_arrival(settings, january, soon).waits is None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    marker.write_text(f"{'0' * 64}  other.csv\nready")  # nothing of this file
    hold_to_marker(path, marker)
    names = ("  2001-01.csv", " *2001-01.csv", "  rides/2001-01.csv", " */rides/2001-01.csv", "  ./2001-01.csv")
    forms = [*(f"{{}}{name}\n" for name in names), "SHA256 (rides/2001-01.csv) = {}\n"]
    for form in (*forms, f"{'0' * 64}  old/2001-01.csv\n{{}}  2001-01.csv"):  # the last: of two folders
        marker.write_text(form.format(digest.upper()))
        hold_to_marker(path, marker)
        marker.write_text(form.format("0" * 64))
        with pytest.raises(OdError, match="OD-FILE-INCOMPLETE"):
            hold_to_marker(path, marker)
    refused = project.run(project.component(arrivals={"complete": "{period}.done"}))
    assert "2001-01.csv does not have the SHA-256 that 2001-01.done states" in failure_text(refused)


def test_one_file_of_all_periods_holds_those_that_it_was_written_after(project):
    changes = {"trips__files": "all.csv", "arrivals": NOW}
    path = project.root / "all.csv"
    records().to_csv(path, index=False)
    january = datetime.datetime(2001, 2, 1, tzinfo=datetime.UTC).timestamp()
    os.utime(path, (january, january))
    outcome = look(project, **changes)
    assert asked(outcome) == ["2001-01"]


def test_a_tick_releases_waits_and_leaves_what_is_published(project):
    morning = datetime.datetime(2001, 3, 1, 6, tzinfo=datetime.UTC)
    waits = tick(project, morning)
    assert waits.skip_message == "trips/2001-02/r1 is waiting: there is no file 2001-02.csv."
    project.write_records(records().assign(date="2001-02-03"), "2001-02")
    arrived = tick(project, morning + datetime.timedelta(days=1))
    assert asked(arrived) == ["2001-02"]
    again = tick(project, morning + datetime.timedelta(days=2))
    assert arrived.run_requests[0].run_key != again.run_requests[0].run_key  # a run that failed is tried again
    assert run_of(project, arrived).success
    assert tick(project, morning + datetime.timedelta(days=3)).skip_message == "trips/2001-02/r1 was published."


UNATTENDED = [
    {"dagster/schedule_name": "trips_schedule"},
    {"dagster/sensor_name": "of_the_team"},
    {"dagster/from_automation_condition": "true", "dagster/backfill": "abc"},
]


@pytest.mark.parametrize("tags", UNATTENDED, ids=["schedule", "sensor", "condition"])
def test_the_first_release_of_a_data_set_in_a_ledger_is_run_by_hand(project, tags):
    """Also where another data set was released before; afterwards, whatever requests a run is served."""
    project.write_records(records().assign(date="2001-02-03"), "2001-02")
    other = project.group_sizes()
    job = project.definitions(project.component(arrivals=NOW)).resolve_job_def("trips_release")

    def run(tags, period="2001-01"):
        return project.execute(job, partition=period, tags=tags)

    why = "this ledger has no release of data set 'trips' yet, so run the first by hand: od-release run trips --period"
    (project.var / "confidential").mkdir(parents=True)
    Ledger(project.var / "ledger.sqlite").declare(replace(other.domain, name="others"))
    refused = run(tags)
    assert not refused.success
    assert f"OD-LEDGER-UNATTENDED: {JANUARY}: {why} 2001-01 [nothing was spent" in failure_text(refused)
    assert not [*project.var.glob("confidential/trips/*/*/raw_trips.parquet")]
    assert Ledger(project.var / "ledger.sqlite").balances() == []
    looked = look(project, is_known=False)
    assert asked(looked) == []
    assert f"{JANUARY} is waiting: {why} 2001-01" in looked.skip_message
    morning = datetime.datetime(2001, 3, 1, 6, tzinfo=datetime.UTC)
    assert tick(project, morning, is_known=False).skip_message == f"trips/2001-02/r1 is waiting: {why} 2001-02."

    assert run({}).success
    assert asked(look(project)) == ["2001-02"]
    assert asked(tick(project, morning)) == ["2001-02"]
    assert run(tags, "2001-02").success


def test_the_second_release_of_a_data_set_is_refused_when_the_cap_is_used_up(project):
    """Whatever asks for the run: the cap is that of the data set."""
    flows = project.component(domain__cap={"rho": "0.02", "reason": "for one release"})
    assert project.run(flows).success
    project.write_records(records(1000))  # the same would be those of a renamed series
    refused = project.run(project.component(name="others", domain__cap={"rho": "0.02", "reason": "for one release"}))
    assert not refused.success
    assert "OD-LEDGER-CAP" in failure_text(refused)
    assert "a cap of 0.02" in failure_text(refused)
    assert not (project.var / "releases" / "others").exists()
    small = project.group_sizes(privacy__epsilon="0.01", domain__cap={"rho": "0.02", "reason": "for one release"})
    assert project.run(small).success  # it asks for what is left


def test_a_bundle_is_due_by_the_deadline(project):
    freshness = {"deadline": "0 6 15 * *", "within_days": 14}
    component = project.component(freshness=freshness, domain__time_zone="Europe/Rome")
    specs = {spec.key.path[-1]: spec for spec in project.definitions(component).resolve_all_asset_specs()}
    expected = dg.FreshnessPolicy.cron("0 6 15 * *", datetime.timedelta(days=14), "Europe/Rome")
    assert specs["bundle"].freshness_policy == expected
    assert specs["flows"].freshness_policy is None
    for wrong, cause in (
        ({"deadline": "monthly"}, "OD-CONFIG: freshness.deadline: 'monthly' is no cron line"),
        ({"deadline": "0 6 31 4 *"}, "no cron line"),
        ({"within_days": 29}, "OD-FRESHNESS: freshness.within_days is 29, not from 1 to the 28 between two deadlines"),
        ({"within_days": 0}, "OD-FRESHNESS"),
    ):
        with pytest.raises(OdError, match=cause):
            project.component(freshness=freshness | wrong).require_valid()
