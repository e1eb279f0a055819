"""Two projects with a series of one name: on one Dagster instance, and charged to one ledger in PostgreSQL."""

from __future__ import annotations

import datetime
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pytest
import yaml
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget

from od_assets.cli import app
from od_assets.code_location import load_definitions
from od_assets.resources.published_tables import PublishedTables
from od_assets.sensors.notices import _is_made_by_series
from od_core.errors import OdError
from tests.od_assets import conftest
from tests.od_core.ledger.ledger_rows import rows
from tests.projects import DEFINED, SETTINGS, declare, declare_domain

ATTRIBUTES: dict[str, Any] = conftest.ATTRIBUTES | {
    "name": "commuting",
    "trips": {"files": "{period}.csv", "columns": {"date": "date"}},
    "geography": {"file": "zones.csv", "levels": ["zone"]},
    "noise": "table",
}


class Team:
    """A project of a team with the series ``commuting``; its package has the name of its folder."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, prefix: str | None, data_set: str, seed: int) -> None:
        self.folder, self._patch = folder, patch
        self.package = folder / folder.name
        (self.package / "defs" / "domains").mkdir(parents=True)
        settings = SETTINGS.replace('"declared"', f'"{folder.name}"')
        settings = settings.replace("od_assets.definitions", f"{folder.name}.definitions")
        (folder / "pyproject.toml").write_text(settings)
        (self.package / "__init__.py").touch()
        (self.package / "defs" / "__init__.py").touch()
        (self.package / "definitions.py").write_text(DEFINED.format(package="od_assets.code_location"))
        self.declare("commuting", "OdRelease", ATTRIBUTES | {"domain": data_set})
        self.declare("site", "OdSite", {"owners": ["team:statistics"]})
        self.declare("rivals", "OdComparison", {"name": "rivals", "owners": ["team:statistics"], "runs": 1})
        self.set_prefix(prefix)
        declare_domain(self.package / "defs", conftest.DOMAIN | {"name": data_set})
        zones = ["Z0", "Z1", "Z2"]
        pd.DataFrame({"zone": zones}).to_csv(folder / "zones.csv", index=False)
        for month in ("2001-01", "2001-02"):
            ends = np.random.default_rng(seed).choice(zones, (2, 300))
            frame = pd.DataFrame({"date": f"{month}-15", "origin": ends[0], "destination": ends[1]})
            frame.to_csv(folder / f"{month}.csv", index=False)

    def declare(self, name: str, component: str, attributes: dict[str, Any]) -> None:
        declare(self.package / "defs", name, component, attributes)

    def set_prefix(self, prefix: str | None) -> None:
        self.declare("warehouse", "OdWarehouse", {} if prefix is None else {"key_prefix": prefix})

    def joins(self, other: Team) -> None:
        """Copy the name of the newest entry of the ledger, as the manual says."""
        (self.folder / "var" / "confidential").mkdir(parents=True)
        shutil.copy(other.folder / "var" / "confidential" / "ledger.head", self.folder / "var" / "confidential")

    def here(self) -> None:
        self._patch.setenv("OD_PROJECT", str(self.folder))

    def run(self, capsys: pytest.CaptureFixture[str], *command: str, ends: int | None = None) -> list[dict[str, Any]]:
        """What a command prints as JSON in the project, which must end with an exit code if one is given."""
        self.here()
        self._patch.setattr(sys, "argv", ["od-release", *command, "--json"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert ends in (None, ended.value.code)
        said = capsys.readouterr()
        assert not said.err, said.err
        return json.loads(said.out)

    def release(self, capsys: pytest.CaptureFixture[str], period: str) -> dict[str, Any]:
        [said] = self.run(capsys, "run", "commuting", "--period", period)
        return said

    def tick(self) -> Any:
        """What the schedule says a day after January."""
        self.here()
        repository = load_definitions().get_repository_def()
        [name] = [found.name for found in repository.schedule_defs if found.name.endswith("commuting_schedule")]
        when = datetime.datetime(2001, 2, 2, 6, tzinfo=datetime.UTC)
        with dg.build_schedule_context(scheduled_execution_time=when, repository_def=repository) as context:
            return repository.get_schedule_def(name).evaluate_tick(context)


@pytest.fixture
def home(tmp_path, monkeypatch, own_folders) -> Path:
    """Dagster's home of both teams."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    monkeypatch.delenv("OD_VAR", raising=False)
    return folder


def team(home: Path, patch: pytest.MonkeyPatch, name: str, prefix: str | None, data_set: str, seed: int = 1) -> Team:
    patch.syspath_prepend(str(home.parent / name))
    (home.parent / name).mkdir()
    return Team(home.parent / name, patch, prefix, data_set, seed)


def keys_of(home: Path, *teams: Team) -> dict[str, set[str]]:
    """Keys of all assets by the name of their code location, as an instance loads these; each has one location."""

    def module_of(one):
        name = one.folder.name
        named = {"module_name": f"{name}.definitions", "location_name": name}
        return {"python_module": named | {"working_directory": str(one.folder)}}

    locations = [module_of(one) for one in teams]
    file = home.parent / "workspace.yaml"
    file.write_text(yaml.dump({"load_from": locations}))
    found = {}
    with (
        dg.DagsterInstance.get() as instance,
        WorkspaceProcessContext(instance, WorkspaceFileTarget([str(file)])) as process,
    ):
        context = process.create_request_context()
        for one in teams:
            [repository] = context.get_code_location(one.folder.name).get_repositories().values()
            found[one.folder.name] = {node.asset_key.to_user_string() for node in repository.get_asset_node_snaps()}
        graph = context.asset_graph
        assert all(len(graph.get(key).repo_scoped_asset_infos) == 1 for key in graph.get_all_asset_keys())
    return found


def test_both_release_and_verify_and_no_asset_has_two_locations(home, monkeypatch, capsys, postgres):
    monkeypatch.setenv("OD_LEDGER", postgres.new_ledger(home.parent))
    north = team(home, monkeypatch, "team_a", "north", "people_north")
    south = team(home, monkeypatch, "team_b", "south", "people_south", seed=2)
    assert north.release(capsys, "2001-01")["published"]
    south.joins(north)
    waits = "south_commuting/2001-01/r1 is waiting: this ledger has no release of data set 'people_south' yet"
    assert south.tick().skip_message.startswith(waits)
    assert south.release(capsys, "2001-01")["published"]
    assert north.tick().skip_message == "north_commuting/2001-01/r1 was published."
    for one, name in ((north, "north"), (south, "south")):
        [said] = one.run(capsys, "verify")
        assert (said["release"], said["verified"]) == (f"{name}_commuting/2001-01/r1", True)

    entries = rows(home.parent / "ledger.sqlite")
    spent = {(row["domain"], row["release"]) for row in entries if row["kind"] == "RESERVED"}
    assert spent == {("people_north", "north_commuting/2001-01/r1"), ("people_south", "south_commuting/2001-01/r1")}
    found = keys_of(home, north, south)
    for one, prefix in (("team_a", "north"), ("team_b", "south")):
        assert {f"{prefix}/od/site", f"{prefix}/rivals/tables", f"{prefix}/commuting_flows"} <= found[one]
        assert all(key.startswith(f"{prefix}/") for key in found[one])
    assert {key.partition("/")[2] for key in found["team_a"]} == {key.partition("/")[2] for key in found["team_b"]}

    tables = PublishedTables(folder=str(south.folder / "var" / "releases"))
    published = pd.read_parquet(south.folder / "var/releases/south_commuting/2001-01/r1/tables/flows.parquet")
    loaded = tables.load(dg.AssetKey(["south", "commuting_flows"]), ["2001-01"])
    assert loaded.trips.tolist() == published.trips.tolist()
    with dg.DagsterInstance.get() as instance:
        [record] = instance.fetch_materializations(dg.AssetKey(["north", "commuting", "bundle"]), limit=1).records
        assert _is_made_by_series(instance, record)
        tags = {run.job_name: run.tags["od/release"] for run in instance.get_runs()}
    assert tags == {f"{name}_commuting_release": f"{name}_commuting" for name in ("north", "south")}


@pytest.mark.parametrize("data_set", ["people_south", "people_north"], ids=["another data set", "the same data set"])
def test_series_of_one_name_are_refused_before_anything_is_charged(home, monkeypatch, capsys, postgres, data_set):
    """Without prefixes; in the period that the other team has released, and in one that nobody has."""
    monkeypatch.setenv("OD_LEDGER", postgres.new_ledger(home.parent))
    first = team(home, monkeypatch, f"first_of_{data_set}", None, "people_north")  # Python imports a name once
    second = team(home, monkeypatch, f"second_of_{data_set}", None, data_set, seed=2)
    assert first.release(capsys, "2001-01")["published"]
    second.joins(first)
    ledger = rows(home.parent / "ledger.sqlite")
    code = "OD-DOMAIN-CONFLICT" if data_set == "people_south" else "OD-IDENTITY-MISSING"
    # A period that the ledger has for another data set is refused as the records are read.
    first_step = "raw_trips" if data_set == "people_south" else "trip_counts"
    for period, step in (("2001-01", first_step), ("2001-02", "trip_counts")):
        said = second.release(capsys, period)
        assert not said["published"]
        assert said["failures"][0].startswith(f"commuting/{step}: {code}")
        assert "give one of them a key_prefix" in said["failures"][0]
    with pytest.raises(dg.DagsterError) as failed:
        second.tick()
    assert isinstance(failed.value.__cause__, OdError)
    assert failed.value.__cause__.code == code
    assert [row for row in rows(home.parent / "ledger.sqlite") if row["kind"] not in ("DOMAIN", "CAP")] == [
        row for row in ledger if row["kind"] not in ("DOMAIN", "CAP")
    ]


def test_a_period_is_not_charged_again_under_another_prefix(home, monkeypatch, capsys):
    """A prefix is added, changed and removed; a period that was never released goes on under the new name."""
    one = team(home, monkeypatch, "team_e", None, "people_north")
    assert one.release(capsys, "2001-01")["published"]
    one.set_prefix("north")
    said = one.release(capsys, "2001-01")["failures"]
    assert "OD-PREFIX-CHANGED: 2001-01 of commuting was drawn as commuting/2001-01/r1" in said[0]
    assert said[0].startswith("north/commuting/trip_counts: ")
    assert one.release(capsys, "2001-02")["published"]
    for prefix in ("south", None):
        one.set_prefix(prefix)
        said = one.release(capsys, "2001-02")["failures"]
        assert "OD-PREFIX-CHANGED: 2001-02 of commuting was drawn as north_commuting/2001-02/r1" in said[0]
    one.set_prefix("north")
    verified = {row["release"]: row["verified"] for row in one.run(capsys, "verify")}
    assert verified == {"commuting/2001-01/r1": True, "north_commuting/2001-02/r1": True}


def test_a_renamed_series_is_not_charged_again(home, monkeypatch, capsys):
    """With a prefix. Other periods go on, and a person may state a revision."""
    one = team(home, monkeypatch, "team_f", "north", "people_north")
    assert one.release(capsys, "2001-01")["published"]
    (one.package / "defs" / "commuting").rename(one.package / "defs" / "commutes")
    one.declare("commutes", "OdRelease", ATTRIBUTES | {"domain": "people_north", "name": "commutes"})
    ledger = rows(one.folder / "var" / "ledger.sqlite")
    doctor = one.run(capsys, "doctor", "commutes", "--period", "2001-01", ends=1)
    [found] = [finding for finding in doctor if finding["what"].startswith("input of")]
    [said] = one.run(capsys, "run", "commutes", "--period", "2001-01")
    for fault, step in ((found["fault"], found["next_step"]), (said["failures"][0], said["failures"][0])):
        assert "OD-SERIES-RENAMED: north_commutes/2001-01/r1: north_commuting/2001-01/r1 was drawn from" in fault
        assert "give the series the name north_commuting again" in step
    assert rows(one.folder / "var" / "ledger.sqlite") == ledger
    assert one.run(capsys, "run", "commutes", "--period", "2001-02")[0]["published"]
    one.declare("commutes", "OdRelease", ATTRIBUTES | {"domain": "people_north", "name": "commutes", "revision": 2})
    assert one.run(capsys, "run", "commutes", "--period", "2001-01")[0]["published"]


def test_two_declared_series_may_release_the_same_input(home, monkeypatch, capsys):
    """They compose, and are read back alone. Other records are a new release under any name."""
    one = team(home, monkeypatch, "team_g", None, "people_north")
    assert one.release(capsys, "2001-01")["published"]
    one.declare("commutes", "OdRelease", ATTRIBUTES | {"domain": "people_north", "name": "commutes"})
    assert one.run(capsys, "run", "commutes", "--period", "2001-01")[0]["published"]
    shutil.rmtree(one.package / "defs" / "commuting")
    assert one.run(capsys, "run", "commutes", "--period", "2001-01")[0]["published"]  # it is read back
    (one.package / "defs" / "commutes").rename(one.package / "defs" / "journeys")
    one.declare("journeys", "OdRelease", ATTRIBUTES | {"domain": "people_north", "name": "journeys"})
    records = pd.read_csv(one.folder / "2001-01.csv")
    records[1:].to_csv(one.folder / "2001-01.csv", index=False)
    assert one.run(capsys, "run", "journeys", "--period", "2001-01")[0]["published"]
