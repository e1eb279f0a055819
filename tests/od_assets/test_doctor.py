"""Every fault is planted once, and found; what is whole is called so; nothing is changed by looking."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pytest
import yaml
from dagster import job, op
from typer.testing import CliRunner

from od_assets import declarations, definitions, installation
from od_assets.cli import app
from od_assets.doctor import diagnosis, of_declaration
from od_assets.findings import Finding
from od_assets.input_inspection import inspected
from od_assets.project import DAGSTER_SETTINGS
from od_assets.resources.dead_runs import HOST_TAG, PROCESS_TAG, mark_process
from od_assets.resources.warehouse import Warehouse
from od_core.archive.ledger import Ledger
from od_core.compiled import cache_folder
from od_core.errors import OdError
from od_core.privacy import noise
from od_core.privacy.cap import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.unit import TRIP

from .canary import COUNT, USER, ZONE, leaks, planted
from .conftest import ATTRIBUTES, DOMAIN, ZONES, Project, records


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def states(folder: Path) -> dict[str, tuple[int, str]]:
    """Mode and content of everything in a folder."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


# Findings


@pytest.mark.parametrize(("fault", "step"), [("broken", None), (None, "repair it")])
def test_a_fault_has_a_next_step_and_nothing_else_has(fault: str | None, step: str | None) -> None:
    with pytest.raises(OdError, match="OD-FINDING"):
        Finding("it", fault, step)


# Python and packages


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[..., Path]:
    def write(python: str = ">=3.11", requires: tuple[str, ...] = (), pins: str = "") -> Path:
        text = f'[project]\nrequires-python = "{python}"\ndependencies = {json.dumps(requires)}\n'
        (tmp_path / "pyproject.toml").write_text(text)
        (tmp_path / "constraints.txt").write_text(pins)
        return tmp_path

    return write


def test_python_is_one_that_the_project_is_for(checkout: Callable[..., Path]) -> None:
    assert only(installation.python_version()).ok
    assert "needs >=3.99" in str(only(installation.python_version(checkout(python=">=3.99"))).fault)


def test_packages_are_those_that_are_required_and_pinned(checkout: Callable[..., Path]) -> None:
    this = np.__version__
    assert all(one.ok for one in installation.packages(checkout(requires=("numpy>=1",), pins=f"numpy=={this}\n")))
    required, pinned = installation.packages(checkout(requires=("numpy>=99", "not-there>=1"), pins="numpy==1.0\n"))
    assert required.fault == f"numpy {this} (needed: >=99), not-there is missing (needed: >=1)"
    assert pinned.fault == f"numpy {this} (needed: ==1.0)"
    _, pinned = installation.packages(checkout(pins="not-there==1.0\n"))  # of development
    assert pinned.ok


# Kernels and noise


def test_kernels_are_kept_and_give_what_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installation.intopt(np.array([3, -1]), 2)  # compiled, if nothing has been yet
    assert only(installation.compiled_kernels(cache_folder())).ok
    assert "no folder" in str(only(installation.compiled_kernels(None)).fault)
    assert "none are kept" in str(only(installation.compiled_kernels(tmp_path)).fault)
    monkeypatch.setattr(installation, "intopt", lambda noisy, total: np.array([1, 1]))
    assert "wrong numbers" in str(only(installation.compiled_kernels(cache_folder())).fault)


class Silent:
    def draw(self, variance: Fraction, level: int, first: int, size: int) -> Any:
        raise OSError("no entropy")


class Short(Silent):
    def draw(self, variance: Fraction, level: int, first: int, size: int) -> Any:
        return np.zeros(size - 1, dtype=np.int64)


@pytest.mark.parametrize(("backend", "fault"), [(Silent, "OSError: no entropy"), (Short, "shape")])
def test_noise_backends_draw(monkeypatch: pytest.MonkeyPatch, backend: type, fault: str) -> None:
    assert [one.what for one in installation.noise_backends()] == ["noise backend opendp", "noise backend table"]
    assert all(one.ok for one in installation.noise_backends())
    monkeypatch.setitem(noise.BACKENDS, "table", backend)
    whole, broken = installation.noise_backends()
    assert whole.ok
    assert fault in str(broken.fault)


# Folders


def test_dagsters_home_is_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert only(installation.home_of_dagster(tmp_path)).ok
    assert not list(tmp_path.iterdir())
    home = tmp_path / "dagster"
    home.mkdir()
    assert "is not what the project sets" in str(only(installation.home_of_dagster(tmp_path)).fault)
    shutil.copy(DAGSTER_SETTINGS, home)
    assert only(installation.home_of_dagster(tmp_path)).ok
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert only(installation.home_of_dagster(tmp_path)).ok
    monkeypatch.setenv("DAGSTER_HOME", "/elsewhere")
    assert "it is /elsewhere" in str(only(installation.home_of_dagster(tmp_path)).fault)


@pytest.mark.parametrize(
    ("path", "mode"), [(".", 0o750), ("trips", 0o701), ("trips/counts", 0o640), ("trips/counts", 0o604)]
)
def test_the_confidential_folder_is_closed(tmp_path: Path, path: str, mode: int) -> None:
    assert only(installation.modes(tmp_path)).ok
    folder = tmp_path / "confidential"
    (folder / "trips").mkdir(parents=True)
    (folder / "trips" / "counts").touch(mode=0o600)
    for each in (folder, folder / "trips"):
        each.chmod(0o700)
    assert only(installation.modes(tmp_path)).ok
    (folder / path).chmod(mode)
    finding = only(installation.modes(tmp_path))
    assert str(Path("confidential") / path) in str(finding.fault)
    assert stat.S_IMODE((folder / path).stat().st_mode) == mode
    subprocess.run(str(finding.next_step), shell=True, check=True)  # noqa: S602  # the next step does what it says
    assert only(installation.modes(tmp_path)).ok


def test_the_disk_has_room(tmp_path: Path) -> None:
    assert only(installation.free_disk(tmp_path / "var" / "not" / "there", least=1)).ok
    assert "needs" in str(only(installation.free_disk(tmp_path, least=1 << 62)).fault)
    assert not list(tmp_path.iterdir())


# Ledger


@pytest.fixture
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "var"
    monkeypatch.setenv("OD_VAR", str(folder))
    return folder


def enter(var: Path, *names: str) -> None:
    for name in names:
        Ledger(var / "ledger.sqlite").declare(PrivacyDomain(name, TRIP, Cap(rho=Fraction(1)), "first"))


def looked_at(var: Path) -> Finding:
    before = states(var.parent)
    finding = only(installation.ledger(Warehouse()))
    assert states(var.parent) == before
    return finding


def test_where_nothing_was_released_there_is_no_ledger(var: Path) -> None:
    assert looked_at(var).ok
    assert not var.exists()


def test_a_whole_ledger_has_its_entries(var: Path) -> None:
    enter(var, "trips", "rides")
    assert looked_at(var) == Finding("ledger: 4 entries")


def test_an_edited_ledger_is_found(var: Path) -> None:
    enter(var, "trips")
    with contextlib.closing(sqlite3.connect(var / "ledger.sqlite")) as connection:
        connection.execute("DROP TRIGGER entries_are_final")
        connection.execute("UPDATE entries SET domain = 'other' WHERE number = 1")
        connection.commit()
    assert str(looked_at(var).fault).startswith("OD-LEDGER-BROKEN")


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0"])
def test_a_file_that_is_no_ledger_is_found_and_stays_as_it_is(var: Path, content: bytes) -> None:
    var.mkdir()
    (var / "ledger.sqlite").write_bytes(content)
    assert not looked_at(var).ok


def test_an_older_ledger_is_found_by_its_head(var: Path) -> None:
    enter(var, "trips")
    older = (var / "ledger.sqlite").read_bytes()
    enter(var, "rides")
    (var / "ledger.sqlite").write_bytes(older)
    assert str(looked_at(var).fault).startswith("OD-LEDGER-ROLLED-BACK")


def test_a_ledger_older_than_a_certificate_or_missing_is_found(var: Path) -> None:
    enter(var, "trips")
    bundle = var / "releases" / "trips" / "2001-01" / "r1"
    bundle.mkdir(parents=True)
    certificate = {"release": "trips/2001-01/r1", "ledger": {"entry": 3, "hash": "0" * 64}}
    (bundle / "certificate.json").write_text(json.dumps(certificate))
    assert str(looked_at(var).fault).startswith("OD-LEDGER-ROLLED-BACK")
    (var / "ledger.sqlite").unlink()
    (var / "confidential" / "ledger.head").unlink()
    assert "missing" in str(looked_at(var).fault)
    assert not (var / "ledger.sqlite").exists()


def test_a_missing_ledger_is_found_by_its_head_alone(var: Path) -> None:
    enter(var, "trips")
    (var / "ledger.sqlite").unlink()
    assert "missing" in str(looked_at(var).fault)


# Locks and runs

HOLDER = """
import fcntl, os, signal, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="Linux lists who holds a lock")
def test_a_lock_of_a_stopped_process_is_found(tmp_path: Path) -> None:
    assert only(installation.release_lock(tmp_path)).ok
    assert not list(tmp_path.iterdir())
    lock, other = tmp_path / "release.lock", tmp_path / "other"
    other.mkdir()
    (other / "release.lock").touch()
    command = [sys.executable, "-S", "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            until(lambda: installation._state(holder.pid) == "T")
            finding = only(installation.release_lock(tmp_path))
            assert f"process {holder.pid}, which holds it, is stopped" in str(finding.fault)
            assert only(installation.release_lock(other)) == Finding("release lock")
            os.kill(holder.pid, signal.SIGCONT)
            until(lambda: installation._state(holder.pid) != "T")
            assert only(installation.release_lock(tmp_path)).what == "release lock: a release is running now"
        finally:
            holder.kill()  # a stopped process, too
    assert only(installation.release_lock(tmp_path)) == Finding("release lock")


def until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@op
def nothing() -> None:
    pass


@job
def work() -> None:
    nothing()


def test_runs_of_dead_processes_are_found(tmp_path: Path) -> None:
    assert only(installation.runs(tmp_path)).ok
    assert not list(tmp_path.iterdir())
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(DAGSTER_SETTINGS, home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        living = instance.create_run_for_job(work, status=dg.DagsterRunStatus.STARTED)
        mark_process(instance, living.run_id)
        assert only(installation.runs(tmp_path)).ok
        tags = instance.get_run_by_id(living.run_id).tags  # type: ignore[union-attr]
        process = tags[PROCESS_TAG].split("-")[0]
        dead = {HOST_TAG: tags[HOST_TAG], PROCESS_TAG: f"{process}-1"}
        gone = instance.create_run_for_job(work, status=dg.DagsterRunStatus.STARTED, tags=dead)
    finding = only(installation.runs(tmp_path))
    assert finding.fault == f"1 are taken for started: {gone.run_id}"


def test_a_code_location_that_does_not_load_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> dg.Definitions:
        return dg.Definitions(
            schedules=[dg.ScheduleDefinition(name="late", job_name="absent", cron_schedule="0 0 * * *")]
        )

    assert only(installation.code_location()).ok
    monkeypatch.setattr(definitions, "defs", broken)
    finding = only(installation.code_location())
    assert "absent" in str(finding.fault)
    assert "\n" not in str(finding.fault)


# Declarations


@pytest.fixture
def declared(project: Project, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Project]:
    """Writes the declaration of ``trips``, with changes, and that of its data set."""
    folder = project.root / "defs"
    (folder / "trips").mkdir(parents=True)
    monkeypatch.setattr(declarations, "DEFS", folder)

    def write(attributes: dict[str, Any] = ATTRIBUTES, kind: str = "OdRelease", **changes: Any) -> Project:
        (project.root / "trips.yaml").write_text(yaml.dump(DOMAIN | changes.pop("domain_section", {})))
        text = yaml.dump({"attributes": {**attributes, "name": "trips", **changes}})
        (folder / "trips" / "defs.yaml").write_text(f"type: od_assets.components.{kind}\n{text}")
        return project

    return write


def test_a_declaration_that_fits_is_said_with_its_areas_and_its_plan(declared: Callable[..., Project]) -> None:
    project = declared()
    whole = of_declaration("trips")
    assert all(one.ok for one in whole)
    assert [one.what.partition(":")[0] for one in whole] == [
        "declaration trips, data set trips",
        "geography of trips",
        "plan of trips",
        "assets and schedules of trips",
    ]
    assert whole[1].what.endswith("3 region, 6 zone")
    assert not project.var.exists()


@pytest.mark.parametrize(
    ("changes", "others", "fault"),
    [
        ({"colour": "red"}, 0, "OD-CONFIG"),
        ({"domain": "rides"}, 0, "there is no privacy domain"),
        ({"domain_section": {"unit": "household"}}, 0, "OD-UNIT-UNKNOWN"),
        ({"geography": {"file": "zones.csv", "levels": ["country", "zone"]}}, 2, "OD-GEOGRAPHY-COLUMN"),
        ({"geography": {"file": "none.csv", "levels": ["region", "zone"]}}, 2, "OD-FILE-MISSING"),
        ({"privacy": {"epsilon": "9", "delta": "1e-8"}}, 3, "OD-LEDGER-CAP"),
        ({"schedule": "every monday"}, 3, "cron"),
        ({"freshness": {"deadline": "at noon", "within_days": 3}}, 3, "OD-FRESHNESS"),
    ],
)
def test_a_fault_of_a_declaration_is_found(
    declared: Callable[..., Project], changes: dict[str, Any], others: int, fault: str
) -> None:
    """What does not depend on it is looked at all the same."""
    declared(**changes)
    findings = of_declaration("trips")
    (faulty,) = (one for one in findings if not one.ok)
    assert fault in str(faulty.fault)
    assert "\n" not in str(faulty.fault)
    assert len(findings) == others + 1


# Inputs


def input_of(project: Project, component: Any = None) -> tuple[Finding, str]:
    """What is said of January, and the file of details; nothing else is there but that file."""
    settings = (component or project.component()).settings()
    before = states(project.root)
    finding = only(inspected(settings, "2001-01"))
    made = {name for name in states(project.root) if name not in before}
    details = [name for name in made if name.endswith(".txt")]
    assert made - set(details) <= {"var", "var/confidential", "var/confidential/errors"}
    if not details:
        return finding, ""
    path = project.root / details[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert f"read confidential/errors/{path.name}" in (finding.next_step or finding.what)
    return finding, path.read_text()


def changed(rows: int, column: str, value: Any, frame: pd.DataFrame | None = None) -> pd.DataFrame:
    frame = (records() if frame is None else frame).astype(object)
    frame.iloc[:rows, frame.columns.get_loc(column)] = value
    return frame


def test_a_whole_input_would_not_be_refused(project: Project) -> None:
    finding, detail = input_of(project)
    assert finding.ok
    assert "would not be refused" in finding.what
    assert "origin_unlisted: 0 of 2000 records" in detail


@pytest.mark.parametrize("column", ["origin", "destination", "date"])
def test_faults_are_refused_above_the_threshold_and_not_at_it(project: Project, column: str) -> None:
    value = "2001-02-01" if column == "date" else "Z99"
    kind = "outside_period" if column == "date" else f"{column}_unlisted"
    project.write_records(changed(2, column, value))
    assert input_of(project)[0].ok  # 2 of 2000 are a thousandth
    project.write_records(changed(3, column, value))
    finding, detail = input_of(project)
    assert finding.fault == "it would be refused"
    assert f"{kind}: 3 of 2000 records" in detail
    assert "row,date,origin,destination,in_period" in detail
    assert "  3," in detail


def test_faults_of_several_kinds_are_refused_together(project: Project) -> None:
    """Two of a kind are allowed, two of each of two kinds are not: the count of trips judges that."""
    project.write_records(pd.concat([changed(2, "origin", "Z99")[:2], changed(2, "destination", "Z99")]))
    finding, detail = input_of(project)
    assert finding.fault == "it would be refused"
    assert "OD-TRIPS-FAULTS" in detail


def test_codes_that_lost_their_zeros_are_counted(project: Project) -> None:
    zones = pd.DataFrame({"region": ["1", "1", "2"], "zone": ["0101", "0102", "1203"]})
    zones.to_csv(project.root / "zones.csv", index=False)
    frame = pd.DataFrame({"date": "2001-01-03", "origin": ["101", "102", "7", "01010", "1203"], "destination": "1203"})
    project.write_records(frame)
    finding, detail = input_of(project)
    assert finding.fault == "it would be refused"
    assert "origin_unlisted: 4 of 5 records" in detail
    assert "origin_that_lost_its_zeros: 2 of 4 records" in detail


def test_counts_that_are_none_are_refused(project: Project) -> None:
    project.write_records(records().assign(trips=-1))
    finding, detail = input_of(project, project.component(trips__columns={"date": "date", "trips": "trips"}))
    assert finding.fault == "it would be refused"
    assert "OD-TRIPS-COUNT" in detail


def test_users_without_an_id_are_counted(project: Project) -> None:
    project.write_records(changed(5, "user", "", records().assign(user="u1")))
    component = project.component(domain__unit="user_period", domain__column="user", max_trips=3)
    finding, detail = input_of(project, component)
    assert finding.fault == "it would be refused"
    assert "user_missing: 5 of 2000 records" in detail
    assert not (project.var / "confidential" / "hmac.key").exists()


@pytest.mark.parametrize(
    ("write", "code"),
    [
        (lambda file: file.write_bytes(b"\xff\xfe\xff"), "OD-FILE-UNREADABLE"),
        (lambda file: file.write_text("date,from,to\n2001-01-03,Z00,Z10\n"), "OD-TRIPS-COLUMN"),
        (lambda file: file.write_text("date,origin,destination\n2001-01-03,Z00\n"), "OD-FILE-UNREADABLE"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(project: Project, write: Callable[[Path], Any], code: str) -> None:
    write(project.root / "2001-01.csv")
    finding, detail = input_of(project)
    assert finding.fault == "it would be refused"
    assert code in detail


def test_a_file_that_is_not_there_or_not_whole_is_said(project: Project) -> None:
    component = project.component(arrivals={"settled_seconds": 0, "complete": "{period}.sha256"})
    assert input_of(project, component)[0].fault == "2001-01.csv is there, 2001-01.sha256 is not"
    (project.root / "2001-01.sha256").write_text(f"{'0' * 64}  2001-01.csv\n")
    finding, detail = input_of(project, component)
    assert finding.fault == "it would be refused"
    assert "OD-FILE-INCOMPLETE" in detail
    (project.root / "2001-01.csv").unlink()
    shutil.rmtree(project.var)
    assert input_of(project, component)[0].fault == "there is no file 2001-01.csv"
    assert not project.var.exists()


def test_codes_of_groups_are_read_as_a_run_reads_them(project: Project) -> None:
    """A group may be called what is no place elsewhere: it is not sent to the zone of unknown places."""
    pd.DataFrame({"taxi": ["x", "y"], "zone": ["Z00", "Z11"]}).to_csv(project.root / "groups.csv", index=False)
    pd.DataFrame({"taxi": ["x", "y"] * 9, "date": "2001-01-15"}).to_csv(project.root / "2001-01.csv", index=False)
    component = project.group_sizes(
        trips={"files": "{period}.csv", "columns": {"group": "taxi", "date": "date"}, "nowhere": ["x"]},
        groups={"file": "groups.csv", "group": "taxi", "area": "zone"},
        geography={"file": "zones.csv", "levels": ["region", "zone"], "unknown": "Z00"},
    )
    finding, detail = input_of(project, component)
    assert finding.ok, detail


def test_inputs_of_other_kinds_are_judged_too(project: Project) -> None:
    ZONES.assign(latitude=range(6), longitude=range(6)).to_csv(project.root / "zones.csv", index=False)
    stops = records().assign(stop="Z00")
    for component in (project.group_sizes(), project.stops()):
        project.write_records(stops)
        assert input_of(project, component)[0].ok
        project.write_records(changed(3, "origin", "Z99", stops))
        assert input_of(project, component)[0].fault == "it would be refused"


# The command


def test_no_value_leaves_the_confidential_folder(
    declared: Callable[..., Project], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted zone, user and count: counted as unlisted and too large, then in a file that cannot be read."""
    project = declared(trips={"files": "{period}.csv", "columns": {"date": "date", "trips": "trips"}})
    monkeypatch.setattr(definitions, "defs", dg.Definitions)  # those of this project are looked at elsewhere
    project.write_records(pd.concat([planted(), planted()[:1].assign(trips=-COUNT)]))
    said = ""
    for arguments in (["doctor", "trips", "--period", "2001-01"], ["doctor", "--period", "2001-01", "--json"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 1
        said += result.output
        with (project.root / "2001-01.csv").open("a") as file:
            file.write(f"{ZONE},{USER}\n")
    facts = {one["what"]: one for one in json.loads(result.stdout)}
    assert facts["input of trips/2001-01/r1"]["fault"] == "it would be refused"
    assert facts["declaration trips, data set trips"] == {
        "what": "declaration trips, data set trips",
        "ok": True,
        "fault": None,
        "next_step": None,
    }
    details = [path.read_text() for path in (project.var / "confidential" / "errors").iterdir()]
    assert any(ZONE in detail for detail in details)
    assert leaks(project.root, "\n".join([said, *capfd.readouterr()])) == []
    assert not (project.var / "ledger.sqlite").exists()


def test_the_command_says_a_line_a_finding_and_exits_with_1_where_one_is_wrong(
    declared: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "defs", dg.Definitions)
    monkeypatch.setattr(installation, "LEAST_FREE", 1)
    declared(schedule="every monday")
    result = CliRunner().invoke(app, ["doctor", "trips"])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert sum(line.startswith("WRONG  assets and schedules of trips: OD-CONFIG") for line in lines) == 1
    assert all(line.startswith(("ok     ", "WRONG  ")) for line in lines)
    assert "[next: correct the declaration]" in result.stdout
    assert "ok     code location" in lines


def test_what_is_not_there_is_a_mistake_of_the_command(declared: Callable[..., Project]) -> None:
    declared()
    for arguments in ({"name": "tripz"}, {"name": "trips", "period": "2001-03"}):
        with pytest.raises(OdError, match=r"OD-RELEASE-UNKNOWN|OD-PERIOD"):
            diagnosis(**arguments)
