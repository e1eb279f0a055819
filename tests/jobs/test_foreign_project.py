"""The wheel in another team's Dagster project, which keeps its executor, IO manager, resources and schedules."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.od_core.ledger.ledger_rows import rows
from tests.postgres import programs
from tests.wheels import Environment

DG = "import sys; from dagster_dg_cli.cli import main; sys.argv[0] = 'dg'; main()"
CREATE_DAGSTER = "from create_dagster.cli import main; main()"

TICK = """\
import datetime, sys
import dagster as dg
from team.definitions import defs

repository = defs().get_repository_def()
when = datetime.datetime.fromisoformat(sys.argv[1])
with dg.build_schedule_context(scheduled_execution_time=when, repository_def=repository) as context:
    [request] = repository.get_schedule_def("trips_schedule").evaluate_tick(context).run_requests
    print(request.partition_key)
"""


class Team:
    """A project as create-dagster makes it, and an environment with the wheel and what three of its extras require.

    The extras are ``dagster``, ``postgres`` and ``notices``. The folder has the name ``team``.
    """

    def __init__(self, folder: Path, installed: Path) -> None:
        self.folder, self.packages = folder, installed
        self.settings: dict[str, str] = {}
        self.defs = folder / "src" / "team" / "defs"
        make = [sys.executable, "-c", CREATE_DAGSTER, "project", "--no-uv-sync", str(folder)]
        variables = os.environ | {"DAGSTER_DISABLE_TELEMETRY": "1"}
        subprocess.run(make, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=variables)
        self.environment = Environment(folder / ".venv", installed, ["dagster", "postgres", "notices"])
        # What pip install --editable does: the project states that its own file is installed beside the packages.
        (self.environment.packages / "of_the_team.pth").write_text(f"{folder / 'src'}\n")
        shutil.copy(folder / "pyproject.toml", self.environment.packages)
        home = folder / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")

    def run(self, *command: str) -> str:
        """What a Python command prints in the project, in the environment of the team."""
        home = str(self.folder / "home")
        done = self.environment.run(*command, folder=self.folder, DAGSTER_HOME=home, **self.settings)
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout

    def dg(self, *command: str) -> str:
        return self.run("-c", DG, *command)

    def installed(self) -> dict[str, str]:
        """Digest of every installed file but compiled ones."""
        files = (path for path in self.packages.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def team(tmp_path_factory, installed) -> Team:
    return Team(tmp_path_factory.mktemp("of") / "team", installed)


@pytest.fixture(scope="module")
def declared(team) -> Iterator[Callable[[], Team]]:
    """The project with its own definitions and a scaffolded release, whose values are changed as a user does."""
    before = team.installed()
    team.dg("scaffold", "defs", "od_assets.components.OdWarehouse", "warehouse")
    team.dg("scaffold", "defs", "od_assets.components.OdRelease", "trips")
    team.dg("scaffold", "defs", "od_assets.components.OdSite", "site")
    shutil.copy(Path(__file__).with_name("foreign_host.py"), team.defs / "host.py")
    path = team.defs / "trips" / "defs.yaml"
    scaffolded = yaml.safe_load(path.read_text())
    changes = {
        "geography": {"file": "data/trips/zones.csv", "levels": ["zone"]},
        "periods": {"first": "2001-01", "last": "2001-02"},
        "schedule": "0 6 2 * *",
        "noise": "table",
    }
    scaffolded["attributes"] |= changes
    path.write_text(yaml.dump(scaffolded))
    data = team.folder / "data" / "trips"
    data.mkdir(parents=True)
    zones = pd.DataFrame({"zone": ["Z0", "Z1", "Z2"]})
    zones.to_csv(data / "zones.csv", index=False)
    for month in ("2001-01", "2001-02"):
        ends = np.random.default_rng(3).choice(zones["zone"].to_numpy(), (2, 500))
        frame = pd.DataFrame({"date": f"{month}-15", "origin": ends[0], "destination": ends[1]})
        frame.to_parquet(data / f"{month}.parquet")
    yield lambda: team
    assert team.installed() == before


@pytest.mark.timeout(1_800)  # each of some twenty steps loads the project in a process of its own
def test_a_release_runs_in_the_teams_own_deployment(declared, tmp_path, request):
    """Each step is a process of the team's executor; a schedule asks for the month; the command line goes on.

    The second month is charged to a ledger in PostgreSQL, to which the first one's entries are moved.
    """
    team = declared()
    team.dg("check", "defs")
    month = "2001-01"
    team.dg("launch", "--job", "trips_release", "--partition", month)
    assert team.run("-c", TICK, "2001-03-02T06:00:00+00:00").strip() == "2001-02"
    var = team.folder / "var"
    certificate = json.loads((var / "releases" / "trips" / month / "r1" / "certificate.json").read_text())
    assert all(check["passed"] for check in certificate["checks"])
    team.dg("launch", "--assets", "weather")
    team.dg("launch", "--assets", "dashboard", "--partition", month)
    files = [*(team.folder / "stored").iterdir()]
    stored = {path.name: pickle.loads(path.read_bytes()) for path in files}  # noqa: S301  # the team's own files
    published = pd.read_parquet(var / "releases" / "trips" / month / "r1" / "tables/flows.parquet")
    between_zones = (published.origin_level == "zone") & (published.destination_level == "zone")
    assert stored == {"weather": 3, "dashboard": published.trips[between_zones].sum()}  # nothing of a release

    if programs():
        address = request.getfixturevalue("postgres").new_ledger(tmp_path)
        assert "entries were copied" in team.run("-m", "od_assets.cli", "ledger", "copy", address)
        team.settings["OD_LEDGER"] = address
    [said] = json.loads(team.run("-m", "od_assets.cli", "run", "trips", "--period", "2001-02", "--json"))
    assert said["published"]
    verified = json.loads(team.run("-m", "od_assets.cli", "verify", "--json"))
    assert [(row["release"], row["verified"]) for row in verified] == [
        ("trips/2001-01/r1", True),
        ("trips/2001-02/r1", True),
    ]
    assert not (var / "dagster").exists()  # the team has a home of its own
    team.run("-m", "od_assets.cli", "doctor")
    if programs():
        spent = {row["release"] for row in rows(tmp_path / "ledger.sqlite") if row["kind"] == "PUBLISHED"}
        assert spent == {"trips/2001-01/r1", "trips/2001-02/r1"}
        assert not any(address.encode() in path.read_bytes() for path in team.folder.rglob("*") if path.is_file())


RECORDS = pd.DataFrame({"date": "2026-01-15", "origin": ["N1", "N2", "S1"] * 40, "destination": ["S1"] * 120})

INIT = (
    *("init", "my_city", "--records", "data/my_city/{period}.parquet", "--date", "date", "--first", "2026-01"),
    *("--zones", "data/my_city/zones.csv", "--levels", "region,zone"),
    *("--unit", "trip", "--epsilon", "1", "--delta", "1e-8"),
)


def test_in_a_new_project_one_command_declares_a_release_that_loads_and_runs(installed, tmp_path):
    team = Team(tmp_path / "team", installed)
    data = team.folder / "data" / "my_city"
    data.mkdir(parents=True)
    (data / "zones.csv").write_text("region,zone\nnorth,N1\nnorth,N2\nsouth,S1\n")
    RECORDS.to_parquet(data / "2026-01.parquet")
    team.run("-m", "od_assets.cli", *INIT)
    assert {path.parent.name for path in team.defs.rglob("*.yaml")} == {"my_city", "domains", "warehouse"}
    team.dg("check", "defs")
    [said] = json.loads(team.run("-m", "od_assets.cli", "run", "my_city", "--period", "2026-01", "--json"))
    assert said["published"]
    assert (team.folder / "var" / "releases" / "my_city" / "2026-01" / "r1" / "report.html").is_file()
    # The settings of the project are beside the installed packages, which are no project for that.
    outside = team.environment.run("-m", "od_assets.cli", "status", folder=tmp_path)
    assert "OD-PROJECT-ABSENT" in outside.stderr
    assert re.search(r"\d\d packages that od-release requires", team.run("-m", "od_assets.cli", "doctor"))
