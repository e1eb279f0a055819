"""After an update: published periods stay as certified, the next month goes on, and nothing goes back."""

import json
import sqlite3
import tarfile
from contextlib import closing, nullcontext
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from od_assets.cli.printing import print_outcome
from od_assets.components.series import build_series_definitions
from od_assets.resources.warehouse import verify_published_releases
from od_assets.runs import jobs
from od_assets.series.reading import read_declared_series
from od_core.ledger import ledger as ledger_module
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle_files import locate_zip, write_zip
from od_core.published.opening import find_bundle_folders
from tests.od_assets.conftest import Project, failure_text, records
from tests.projects import with_warehouse

VARS = sorted((Path(__file__).parents[1] / "vars").glob("*.tar.xz"))


def spent(project: Project, period: str) -> Fraction:
    return Ledger(project.var / "ledger.sqlite").balance("trips", period).spent


@pytest.mark.parametrize("kind", ["component", "group_sizes"])
def test_a_published_period_keeps_its_settings_and_is_repaired_with_them(project, kind, monkeypatch, capsys):
    """Its declaration has another budget and more, and its records are gone."""
    make = getattr(project, kind)
    first = make()
    assert project.run(first).success
    before = spent(project, "2001-01")
    folder = project.var / "releases" / first.key("2001-01").folder
    certificate = (folder / "certificate.json").read_bytes()
    (folder / "report.html").unlink()
    (folder / "codebook.md").write_text("damaged", encoding="utf-8")
    (project.root / "2001-01.csv").unlink()
    if kind == "component":
        changed = make(privacy={"epsilon": "2", "delta": "1e-8"}, area_totals={"share": "1/10"})
    else:
        changed = make(privacy={"epsilon": "1/5"}, top_code=30)
    job = with_warehouse(build_series_definitions(changed)).resolve_job_def(f"{changed.name}_release")
    monkeypatch.setattr(jobs, "open_dagster_instance", lambda: nullcontext(project.instance))
    outcome = jobs.run_period(changed, job, "2001-01", quiet=True)
    assert outcome.facts["published"], outcome.facts
    assert (outcome.facts["settings_changed"], outcome.facts["drawn"]) == (True, 0)
    print_outcome(outcome)
    assert "was published with other settings than those declared now" in " ".join(capsys.readouterr().out.split())
    assert (folder / "certificate.json").read_bytes() == certificate
    assert [row["faults"] for row in verify_published_releases()] == [{}]
    assert spent(project, "2001-01") == before


def in_certificate(project: Project) -> None:
    path = project.var / "releases" / "trips" / "2001-01" / "r1" / "certificate.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(facts | {"bundle_format": 1000}), encoding="utf-8")


def in_database(project: Project) -> None:
    with duckdb.connect(str(project.var / "release.duckdb")) as connection:
        connection.execute("UPDATE format SET version = 1000")


def in_ledger(project: Project) -> None:
    """The later version has begun a release, and drawn nothing."""
    series = project.component(revision=2)
    plan = series.plan_without_cap(series.read_geography(), "2001-01")
    with pytest.MonkeyPatch.context() as later:
        later.setattr(ledger_module, "BUNDLE_FORMAT", 1000)
        Ledger(project.var / "ledger.sqlite").reserve(ReleaseKey("trips", "2001-01", 2), "trips", plan)


@pytest.mark.parametrize(
    ("write", "code"),
    [(in_certificate, "OD-BUNDLE-NEWER"), (in_database, "OD-DATABASE-NEWER"), (in_ledger, "OD-LEDGER-NEWER")],
)
def test_what_a_later_version_has_written_is_refused_before_a_charge(project, write, code):
    project.write_records(records().assign(date="2001-02-03"), "2001-02")
    assert project.run().success
    write(project)
    refused = project.run(period="2001-02")
    assert not refused.success
    assert code in failure_text(refused)
    assert kinds(project.var, "2001-02") == set()


def kinds(var: Path, period: str) -> set[str]:
    with closing(sqlite3.connect(var / "ledger.sqlite")) as connection:
        return {kind for (kind,) in connection.execute("SELECT kind FROM entries WHERE period = ?", [period])}


@pytest.mark.parametrize("archive", VARS, ids=lambda archive: archive.name.partition(".")[0])
def test_the_next_month_of_an_earlier_state_is_released(project, archive):
    """Its report compares it with the month before, which the earlier state published."""
    with tarfile.open(archive) as packed:
        packed.extractall(project.root, filter="data")
    root = project.root / "project"
    with pytest.MonkeyPatch.context() as patch:  # ends before that of the project
        patch.setenv("OD_PROJECT", str(root))
        patch.setenv("OD_VAR", str(root / "var"))
        for key, folder in find_bundle_folders(root / "var" / "releases").items():
            write_zip(folder, str(key), locate_zip(folder))
        before = [row["release"] for row in verify_published_releases()]
        for month in ("2001-02", "2001-03"):
            project.publish(read_declared_series("trips"), period=month)
        rows = {row["release"]: row["faults"] for row in verify_published_releases()}
        assert {*rows} == {*before, "trips/2001-03/r1"}
        assert rows["trips/2001-02/r1"] == rows["trips/2001-03/r1"] == {}
        report = (root / "var/releases/trips/2001-03/r1/report.html").read_text(encoding="utf-8")
        assert "February 2001" in report or "2001-02" in report
