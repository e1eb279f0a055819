"""``od-release prune``, and the logs of Dagster that a run compresses: what goes, and above all what stays."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from od_assets.project import prepare_dagster_home
from od_assets.resources import pruning
from od_assets.resources.dead_runs import RELEASE_TAG
from od_assets.resources.warehouse import Warehouse, verify_published_releases
from od_core.files.durable import is_locked
from od_core.ledger.confidential import LOCK_NAME
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.cli.commands import printed, stated
from tests.od_assets.conftest import Project, public_bytes, states
from tests.od_core.ledger.ledger_rows import domain, finish, small_plan

DAYS = dg.StaticPartitionsDefinition(["1", "2", "3", "4"])
KEPT = (
    *("identity.json", "read_as.json", "source_file.json", "raw_trips.parquet", "noisy_measurement_1.draw_1.parquet"),
    *("attempt.json", "attempts/1/level_1/0.parquet"),
)
STAGED = ("estimate_1.parquet", "refined_1.parquet", "flows.parquet", "trip_counts/1/0.parquet", "current_trip_counts")


@dg.asset(partitions_def=DAYS)
def table(context) -> None:
    if context.partition_key == "4":
        raise ValueError


@pytest.fixture
def instance(project, monkeypatch) -> Iterator[dg.DagsterInstance]:
    """Dagster's own home of the project."""
    monkeypatch.setenv("DAGSTER_HOME", str(project.var / "dagster"))
    prepare_dagster_home()
    with dg.DagsterInstance.get() as instance:
        yield instance


def runs(instance: dg.DagsterInstance, *days: str, release: str | None = "trips") -> list[str]:
    """Runs of a table, with the tag of releases or without, oldest first."""
    tags = {} if release is None else {RELEASE_TAG: release}
    made = [
        dg.materialize([table], instance=instance, partition_key=day, tags=tags, raise_on_error=False) for day in days
    ]
    return [run.run_id for run in made]


def logs(project: Project) -> dict[str, Path]:
    return {log.stem: log for log in (project.var / "dagster" / "history" / "runs").glob("*.db")}


def plant(folder: Path, *names: str) -> list[Path]:
    """Files with three bytes each."""
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("all", encoding="utf-8")
    return paths


def prune(*options: str) -> dict[str, object]:
    found: dict[str, object] = stated("prune", *options)
    return found


def test_older_logs_of_releases_are_compressed_and_can_be_brought_back(project, instance, monkeypatch):
    monkeypatch.setattr(pruning, "_UNCOMPRESSED_LOGS", 1)
    first, second, failed = runs(instance, "1", "2", "4")
    (foreign,) = runs(instance, "1", release=None)
    (newest,) = runs(instance, "3")
    before = {run: instance.all_logs(run) for run in (first, second, failed, foreign, newest)}
    for number, run in enumerate(before):
        os.utime(logs(project)[run], (number, number))
    pruning.compress_logs(instance, project.var)
    pruning.compress_logs(instance, project.var)  # what it has compressed already stays compressed
    now = {run: instance.all_logs(run) for run in before}
    assert {run for run in before if now[run] != before[run]} == {first, second}
    assert now[first] == []
    assert instance.get_materialized_partitions(table.key) == {"1", "2", "3"}
    assert instance.get_run_by_id(first).tags[RELEASE_TAG] == "trips"  # type: ignore[union-attr]
    for run in (first, second):
        packed = logs(project)[run].with_suffix(".db.gz")
        assert logs(project)[run].stat().st_size + packed.stat().st_size < 40_000
        logs(project)[run].write_bytes(gzip.decompress(packed.read_bytes()))  # as gunzip -f does
        assert instance.all_logs(run) == before[run]
        brought_back = {logs(project)[run], packed}
        assert brought_back <= {*pruning.find_removable_paths(Warehouse(), instance, 0)["logs of runs"]}


def test_logs_in_another_home_are_the_teams_own(project, tmp_path):
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        (run,) = runs(instance, "1")
        own = plant(project.var / "dagster" / "history" / "runs", f"{run}.db")[0]
        own.write_bytes(bytes(1 << 17))
        assert pruning.find_removable_paths(Warehouse(), instance, 0)["logs of runs"] == []


def test_what_may_go_is_listed_then_removed_and_all_else_stays(project):
    """Of a published release with its bundle, an unpublished one, and series with the names of what may go."""
    ledger, var = Ledger(project.var / "ledger.sqlite"), project.var
    ledger.declare(domain(1))
    keys = [ReleaseKey(name, month) for name in ("commuters", "spill") for month in ("2001-06", "2001-07")]
    stays, goes = [var / "ledger.sqlite"], []
    for key in keys:
        ledger.reserve(key, "commuters", small_plan())
        staged = plant(var / "confidential" / key.folder, *STAGED)
        stays += plant(var / "confidential" / key.folder, *KEPT)
        if key == keys[0]:
            for level in (1, 2, 3, 4):
                ledger.start_draw(key, level)
                finish(ledger, key, level, "0")
            ledger.publish(key, "0" * 64)
            goes += staged
        else:
            stays += staged
        stays += plant(var / "releases" / key.folder, "certificate.json", "static/index.html")
        stays += plant(var / "data_docs" / key.folder, "published_flows.html")
    stays += plant(var / "confidential", "hmac.key", ".hmac.key.77", "user-counters/2001.parquet")
    stays += [var / "confidential" / "ledger.head"]
    first = var / "confidential" / keys[0].folder
    for site in (var / "data_docs" / keys[1].folder / "published_flows", first / "data_docs" / "raw_records"):
        goes += plant(site, "index.html", "static/fonts/a.otf")
    goes += plant(first, ".estimate_1.parquet.7.tmp", "spill/a.tmp", "counts-77/a.parquet")
    goes += plant(var, ".release.duckdb.7.tmp.wal", "confidential/doctor-77/raw_trips.parquet")
    goes += plant(var / "releases" / keys[0].folder, "../.r1.staged/report.html")
    stays += plant(var / "releases" / keys[0].folder, "../.r9.replaced/report.html")  # there is no r9
    before = states(var)
    found = prune("--older-than", "0")
    assert states(var) == before
    assert (found["removed"], found["bytes"]) == (False, 3 * len(goes))
    assert {row["folder"] for row in found["folders"]} == {"confidential", "data_docs", "releases", "."}  # type: ignore[attr-defined]
    younger = prune("--older-than", "1")
    assert [row["what"] for row in younger["folders"]] == ["pages of Great Expectations"] * 2  # type: ignore[attr-defined]
    said = " ".join(printed("prune", "--older-than", "0").split())
    assert f"{3 * len(goes)} bytes may be removed: od-release prune --remove." in said
    assert prune("--older-than", "0", "--remove")["bytes"] == 3 * len(goes)
    assert [path for path in goes if path.exists()] == []
    assert [path for path in stays if not path.exists()] == []
    assert prune("--older-than", "0") == {"removed": False, "bytes": 0, "folders": []}


def test_nothing_is_removed_while_a_release_runs(project, monkeypatch):
    plant(project.var, ".a.7.tmp", ".b.7.tmp")
    seen = []
    monkeypatch.setattr(
        pruning, "remove_path", lambda path: seen.append((path.name, is_locked(project.var / LOCK_NAME)))
    )
    prune("--older-than", "0")
    assert seen == []
    prune("--older-than", "0", "--remove")
    assert sorted(seen) == [(".a.7.tmp", True), (".b.7.tmp", True)]


def test_logs_of_finished_runs_are_removed_and_their_materializations_stay(project, instance):
    runs(instance, "1", "4")
    (foreign,) = runs(instance, "2", release=None)
    (row,) = prune("--older-than", "0", "--remove")["folders"]  # type: ignore[misc]
    assert (row["what"], row["folder"], row["number"]) == ("logs of runs", "dagster", 2)
    assert [len(instance.all_logs(run.run_id)) > 0 for run in instance.get_runs()] == [True, False, False]
    assert instance.get_runs()[0].run_id == foreign
    assert instance.get_materialized_partitions(table.key) == {"1", "2"}
    assert prune("--older-than", "0")["folders"] == []


@pytest.mark.slow
def test_a_pruned_release_is_verified_and_run_again_as_before(released):
    before, ledger = public_bytes(released.var), (released.var / "ledger.sqlite").read_bytes()
    assert {row["what"] for row in prune("--older-than", "0", "--remove")["folders"]} == {"counts and estimates"}  # type: ignore[attr-defined]
    assert [row["verified"] for row in verify_published_releases()] == [True]
    draws = sorted((released.var / "confidential" / "trips").rglob("noisy_measurement_*"))
    assert draws
    assert released.run().success
    assert public_bytes(released.var) == before
    assert Ledger(released.var / "ledger.sqlite").verify() > 0
    assert (released.var / "ledger.sqlite").read_bytes() == ledger
    assert sorted((released.var / "confidential" / "trips").rglob("noisy_measurement_*")) == draws
