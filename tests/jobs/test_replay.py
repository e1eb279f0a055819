"""Re-execution from failure and later runs read what is stored; the daily check looks at all of it."""

from __future__ import annotations

import copy
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import dagster as dg

import od_assets.assets.flows
from od_assets.components import OdRelease
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.conftest import ATTRIBUTES, SILENT, ZONES, Project, failure_text, public_bytes, records
from tests.projects import with_warehouse


def release_job() -> dg.JobDefinition:
    """The job, as another process would load it."""
    component = OdRelease.model_validate(copy.deepcopy(ATTRIBUTES))
    return with_warehouse(component.build_defs(None)).resolve_job_def("trips_release")


def execute(project: Project, month: str, failed_run: str | None = None) -> dg.ExecuteJobResult:
    again = None if failed_run is None else dg.ReexecutionOptions.from_failure(failed_run, project.instance)
    with dg.execute_job(
        dg.reconstructable(release_job),
        instance=project.instance,
        tags={"dagster/partition": month},
        run_config=SILENT,
        raise_on_error=False,
        reexecution_options=again,
    ) as result:
        return result


def draws(project: Project, month: str) -> list[int]:
    ledger = Ledger(project.var / "ledger.sqlite")
    return [ledger.count_draws(ReleaseKey("trips", month), level) for level in range(1, 5)]


def spent(project: Project, month: str) -> Fraction:
    return Ledger(project.var / "ledger.sqlite").balance("trips", month).spent


def test_re_execution_from_failure_draws_nothing_twice(project, monkeypatch):
    """The run fails between the second measurement and its estimate; the next one takes it up from there."""
    project.component()  # writes the domain
    with monkeypatch.context() as patch:
        estimate = od_assets.assets.flows.estimate_pieces

        def fail_at_2(plan, step, *rest):
            if step.level == 2:
                raise RuntimeError("no such luck")
            return estimate(plan, step, *rest)

        patch.setattr(od_assets.assets.flows, "estimate_pieces", fail_at_2)
        first = execute(project, "2001-01")
    assert not first.success
    once = spent(project, "2001-01")
    drawn = {path.name: path.read_bytes() for path in (project.var / "confidential").rglob("noisy_*.parquet")}
    assert len(drawn) == 2
    second = execute(project, "2001-01", failed_run=first.run_id)
    assert second.success
    steps = {event.step_key for event in second.all_events if event.is_step_success}
    assert "trips__levels__noisy_measurement_2" not in steps
    assert "trips__levels__estimate_2" in steps
    assert draws(project, "2001-01") == [1, 1, 1, 1]
    assert spent(project, "2001-01") == once
    kept = {path.name: path.read_bytes() for path in (project.var / "confidential").rglob("noisy_*.parquet")}
    assert drawn.items() <= kept.items()


def test_a_release_keeps_its_words_after_a_death_before_the_ledger_knows_of_it_and_a_loss(project, monkeypatch):
    """The title and the names of zones change before each run; the bundle is public at the first one's end."""

    def run(title):
        zones = ZONES.assign(name=[f"{title} {zone}" for zone in ZONES["zone"]])
        zones.to_csv(project.root / "zones.csv", index=False)
        about = {"title": title, "description": "A test.", "source": "none", "licence": "none"}
        return project.run(project.component(about=about, geography__names={"zone": "name"})).success

    with monkeypatch.context() as patch:
        patch.delattr(Ledger, "publish")
        assert not run("One")
    public = public_bytes(project.var)
    assert run("Two")
    assert public_bytes(project.var) == public
    shutil.rmtree(project.var / "releases" / "trips" / "2001-01" / "r1")
    assert run("Three")
    assert public_bytes(project.var) == public


def test_a_ledger_older_than_a_public_certificate_blocks(project):
    """Restored together with its head it is whole by itself; the entry that February's certificate names is missing."""
    project.write_records(records().assign(date="2001-02-03"), "2001-02")
    assert project.run().success
    backup = {path: path.read_bytes() for path in (project.var / "ledger.sqlite", head(project))}
    with closing(sqlite3.connect(project.var / "ledger.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    backup[project.var / "ledger.sqlite"] = (project.var / "ledger.sqlite").read_bytes()
    assert project.run(period="2001-02").success
    for path in project.var.glob("ledger.sqlite-*"):
        path.unlink()
    for path, content in backup.items():
        path.write_bytes(content)
    Ledger(project.var / "ledger.sqlite").verify()
    before = spent(project, "2001-01")
    refused = project.run(project.component(revision=2))
    assert "OD-LEDGER-ROLLED-BACK: trips/2001-02/r1 is public" in failure_text(refused)
    assert spent(project, "2001-01") == before


def head(project: Project) -> Path:
    return project.var / "confidential" / "ledger.head"
