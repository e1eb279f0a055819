"""What an installation needs: every fault is planted once, and found; nothing is changed by looking."""

import contextlib
import datetime
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
import pytest
from dagster import job, op

from od_assets import definitions
from od_assets.cli import diagnosis as installation
from od_assets.cli.diagnosis import Finding
from od_assets.project import DAGSTER_SETTINGS
from od_assets.resources.dead_runs import HOST_TAG, PROCESS_TAG, mark_process
from od_assets.resources.warehouse import Warehouse
from od_core import OdError
from od_core.kernels import make_cache_folder
from od_core.ledger.confidential import lock_folder
from od_core.ledger.ledger import Ledger
from od_core.noise import backends as noise
from od_core.privacy.budget import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.unit import TRIP
from tests.od_assets.conftest import states

# Python and packages


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Callable[..., None]:
    """Puts another checkout in the place of this one."""

    def write(requires=(), pins="", further="", python=">=3.11"):
        text = f'[project]\nrequires-python = "{python}"\ndependencies = {json.dumps(requires)}\n{further}'
        (tmp_path / "pyproject.toml").write_text(text)
        (tmp_path / "constraints.txt").write_text(pins)
        monkeypatch.setattr(installation, "CHECKOUT", tmp_path)

    return write


def test_python_is_one_that_the_project_is_for(checkout):
    assert installation.inspect_python_version().ok
    checkout(python=">=3.99")
    assert "needs >=3.99" in str(installation.inspect_python_version().fault)


def test_packages_are_those_that_are_required_and_pinned(checkout):
    this, hashes = np.__version__, "".join(f" \\\n    --hash=sha256:{sign * 64}" for sign in "ab")
    checkout(("numpy>=1",), f"numpy=={this}{hashes}\n")
    assert all(one.ok for one in installation.inspect_packages())
    checkout(("numpy>=99", "not-there>=1"), f"numpy==1.0{hashes}\n")
    required, pinned = installation.inspect_packages()
    assert required.fault == f"numpy {this} (needed: >=99), not-there is missing (needed: >=1)"
    assert pinned.fault == f"numpy {this} (needed: ==1.0)"
    extras = 'optional-dependencies = {dagster = ["od-release[checks]", "not-there>=1"], dev = ["nor-this>=1"]}\n'
    checkout(pins="not-there==1.0\n", further=extras)  # a pin of development
    required, pinned = installation.inspect_packages()
    assert pinned.ok
    assert required.fault == "not-there is missing (needed: >=1)"


# Kernels and noise


def test_kernels_are_kept_and_give_what_they_should(tmp_path, monkeypatch):
    installation.intopt(np.array([3, -1]), 2)  # compiled, if nothing has been yet
    assert installation.inspect_kernels(make_cache_folder()).ok
    assert "no folder" in str(installation.inspect_kernels(None).fault)
    assert "none are compiled yet" in str(installation.inspect_kernels(tmp_path).fault)
    monkeypatch.setattr(installation, "intopt", lambda noisy, total: np.array([1, 1]))
    assert "wrong numbers" in str(installation.inspect_kernels(make_cache_folder()).fault)


class Silent:
    def draw(self, variance: Fraction, level: int, first: int, size: int) -> Any:
        raise OSError("no entropy")


class Short(Silent):
    def draw(self, variance: Fraction, level: int, first: int, size: int) -> Any:
        return np.zeros(size - 1, dtype=np.int64)


@pytest.mark.parametrize(("backend", "fault"), [(Silent, "OSError"), (Short, "shape")])
def test_noise_backends_draw(monkeypatch, backend, fault):
    assert [one.what for one in installation.inspect_noise_backends()] == [
        "noise backend opendp",
        "noise backend table",
    ]
    assert all(one.ok for one in installation.inspect_noise_backends())
    monkeypatch.setitem(noise.BACKENDS, "table", backend)
    whole, broken = installation.inspect_noise_backends()
    assert whole.ok
    assert fault in str(broken.fault)


# Folders


def test_dagsters_home_is_the_projects(tmp_path, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert installation.inspect_dagster_home(tmp_path).ok
    assert not list(tmp_path.iterdir())
    home = tmp_path / "dagster"
    home.mkdir()
    assert "differs from the project's settings" in str(installation.inspect_dagster_home(tmp_path).fault)
    shutil.copy(DAGSTER_SETTINGS, home)
    assert installation.inspect_dagster_home(tmp_path).ok
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert installation.inspect_dagster_home(tmp_path).ok
    monkeypatch.setenv("DAGSTER_HOME", "/elsewhere")
    assert "it is /elsewhere" in str(installation.inspect_dagster_home(tmp_path).fault)


@pytest.mark.parametrize(
    ("path", "mode"), [(".", 0o750), ("trips", 0o701), ("trips/counts", 0o640), ("trips/counts", 0o604)]
)
def test_the_confidential_folder_is_closed(tmp_path, path, mode):
    assert installation.inspect_modes(tmp_path).ok
    folder = tmp_path / "confidential"
    (folder / "trips").mkdir(parents=True)
    (folder / "trips" / "counts").touch(mode=0o600)
    for each in (folder, folder / "trips"):
        each.chmod(0o700)
    assert installation.inspect_modes(tmp_path).ok
    (folder / path).chmod(mode)
    finding = installation.inspect_modes(tmp_path)
    assert str(Path("confidential") / path) in str(finding.fault)
    assert stat.S_IMODE((folder / path).stat().st_mode) == mode
    subprocess.run(str(finding.next_step), shell=True, check=True)  # noqa: S602  # the next step does what it says
    assert installation.inspect_modes(tmp_path).ok


def test_the_disk_has_room(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "LEAST_FREE", 1)
    assert installation.inspect_free_disk(tmp_path / "var" / "not" / "there").ok
    monkeypatch.setattr(installation, "LEAST_FREE", 1 << 62)
    assert "needs" in str(installation.inspect_free_disk(tmp_path).fault)
    assert not list(tmp_path.iterdir())


# Ledger


@pytest.fixture
def var(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "var"
    monkeypatch.setenv("OD_VAR", str(folder))
    return folder


def enter(var: Path, *names: str) -> None:
    for name in names:
        Ledger(var / "ledger.sqlite").declare(PrivacyDomain(name, TRIP, Cap(rho=Fraction(1)), "first"))


def looked_at(var: Path) -> Finding:
    before = states(var.parent)
    finding = installation.inspect_ledger(Warehouse())
    assert states(var.parent) == before
    return finding


def test_where_nothing_was_released_there_is_no_ledger(var):
    assert looked_at(var).ok
    assert not var.exists()


def test_a_whole_ledger_has_its_entries(var):
    enter(var, "trips", "rides")
    assert looked_at(var) == Finding("ledger: 4 entries")


def test_an_edited_ledger_is_found(var):
    enter(var, "trips")
    with contextlib.closing(sqlite3.connect(var / "ledger.sqlite")) as connection:
        connection.execute("DROP TRIGGER entries_are_final")
        connection.execute("UPDATE entries SET domain = 'other' WHERE number = 1")
        connection.commit()
    assert str(looked_at(var).fault).startswith("OD-LEDGER-BROKEN")


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0"])
def test_a_file_that_is_no_ledger_is_found_and_stays_as_it_is(var, content):
    """An empty one is what a backup or a killed process may leave before the first release."""
    var.mkdir()
    (var / "ledger.sqlite").write_bytes(content)
    assert looked_at(var).ok == (not content)


def test_an_older_ledger_is_found_by_its_head(var):
    enter(var, "trips")
    older = (var / "ledger.sqlite").read_bytes()
    enter(var, "rides")
    (var / "ledger.sqlite").write_bytes(older)
    assert str(looked_at(var).fault).startswith("OD-LEDGER-ROLLED-BACK")


def test_a_ledger_older_than_a_certificate_or_missing_is_found(var):
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


def test_a_missing_ledger_is_found_by_its_head_alone(var):
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
def test_a_lock_of_a_stopped_process_is_found(tmp_path):
    assert installation.inspect_release_lock(tmp_path).ok
    assert not list(tmp_path.iterdir())
    lock, other = tmp_path / "release.lock", tmp_path / "other"
    other.mkdir()
    (other / "release.lock").touch()
    command = [sys.executable, "-S", "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            until(lambda: " T " in Path(f"/proc/{holder.pid}/stat").read_text())
            finding = installation.inspect_release_lock(tmp_path)
            assert f"process {holder.pid} holds it but is suspended" in str(finding.fault)
            assert installation.inspect_release_lock(other) == Finding("release lock")
            with (
                pytest.raises(OdError, match=f"process {holder.pid} holds it but is suspended"),
                lock_folder(tmp_path, seconds=0),
            ):
                pass
            os.kill(holder.pid, signal.SIGCONT)
            until(lambda: " T " not in Path(f"/proc/{holder.pid}/stat").read_text())
            assert installation.inspect_release_lock(tmp_path).what == "release lock: a release is running now"
        finally:
            holder.kill()  # a stopped process, too
    assert installation.inspect_release_lock(tmp_path) == Finding("release lock")


def until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@op
def nothing() -> None:
    pass


@job
def work() -> None:
    nothing()


def test_runs_of_dead_processes_are_found(tmp_path):
    assert installation.inspect_runs(tmp_path).ok
    assert not list(tmp_path.iterdir())
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(DAGSTER_SETTINGS, home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        living = instance.create_run_for_job(work, status=dg.DagsterRunStatus.STARTED)
        mark_process(instance, living.run_id)
        assert installation.inspect_runs(tmp_path).ok
        tags = instance.get_run_by_id(living.run_id).tags  # type: ignore[union-attr]
        process = tags[PROCESS_TAG].split("-")[0]
        dead = {HOST_TAG: tags[HOST_TAG], PROCESS_TAG: f"{process}-1"}
        gone = instance.create_run_for_job(work, status=dg.DagsterRunStatus.STARTED, tags=dead)
    finding = installation.inspect_runs(tmp_path)
    assert finding.fault == f"1 are listed as started: {gone.run_id}"
    assert "od-release ui" in str(finding.next_step)


def test_runs_that_were_killed_while_they_started_are_found(tmp_path):
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(DAGSTER_SETTINGS, home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = instance.create_run_for_job(work, tags={"od/release": "trips"})
        event = dg.DagsterEvent(event_type_value="PIPELINE_STARTING", job_name=run.job_name)
        instance.run_storage.handle_run_event(run.run_id, event)
        finding = installation.inspect_runs(tmp_path)
        assert finding.ok
        assert "1 starting now" in finding.what
        long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        instance.run_storage.handle_run_event(run.run_id, event, long_ago)
    assert installation.inspect_runs(tmp_path).fault == f"1 are listed as started: {run.run_id}"


def test_a_code_location_that_does_not_load_is_found(monkeypatch):
    def broken():
        return dg.Definitions(
            schedules=[dg.ScheduleDefinition(name="late", job_name="absent", cron_schedule="0 0 * * *")]
        )

    assert installation.inspect_code_location().ok
    monkeypatch.setattr(definitions, "defs", broken)
    finding = installation.inspect_code_location()
    assert "absent" in str(finding.fault)
    assert "\n" not in str(finding.fault)
