"""``od-release sum`` on published releases, in this process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from od_assets.cli.app import app
from od_core import OdError
from tests.published_flights import KEYS

OLD, NEW = map(str, KEYS)
SUM = "us_flights_sum/2001-05--2001-06/r1"


@pytest.fixture
def var(published_few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two published months, and nothing else: no ledger, no database, no confidential folder."""
    shutil.copytree(published_few / "releases", tmp_path / "alone" / "releases")
    monkeypatch.setenv("OD_VAR", str(tmp_path / "alone"))
    return tmp_path / "alone"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sum", *arguments])


def test_named_releases_as_json(var: Path) -> None:
    found = json.loads(run(NEW, OLD, "--json").stdout)
    assert (found["release"], found["published_now"]) == (SUM, True)
    assert [one["release"] for one in found["certificate"]["sources"]] == [OLD, NEW]
    assert json.loads(run(NEW, OLD, "--json").stdout) == found | {"published_now": False}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([OLD], "OD-SUM-FEW"),
        ([OLD, OLD], "OD-SUM-OVERLAP"),
        (["us_flights"], "OD-SUM-NAMES"),
        (["yr"], "OD-RELEASE-ABSENT"),
        ([OLD, "us_flights"], "OD-RELEASE-KEY"),
        ([OLD, NEW, "--periods", "2001-05..2001-06"], "OD-SUM-NAMES"),
        (["us_flights", "--periods", "2001-05..2001-07"], "OD-SUM-PERIOD"),
        (["us_flights", "--periods", "2001-06"], "OD-SUM-FEW"),
        (["us_flights", "--periods", "May"], "OD-PERIOD-TEXT"),
        (["journeys", "--periods", "2001-05..2001-06"], "OD-RELEASE-ABSENT"),
        ([NEW, "us_flights/2001-07/r1"], "OD-RELEASE-ABSENT"),
    ],
)
def test_mistakes_are_refused_and_leave_nothing(var: Path, arguments: list[str], code: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, OdError), result.output
    assert (result.exception.code, result.stdout) == (code, "")
    assert not (var / "releases" / "us_flights_sum").exists()


def test_status_and_report_know_a_sum(var: Path) -> None:
    said = " ".join(run("us_flights", "--periods", "2001-05..2001-06").stdout.split())
    assert f"Bundle: {var / 'releases' / SUM}" in said
    rows = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
    (mine,) = (row for row in rows if row["release"] == SUM)
    assert (mine["state"], mine["rho_spent"], mine["measured_levels"]) == ("published", 0.0, "none, derived")
    page = CliRunner().invoke(app, ["report", "us_flights_sum"]).stdout.strip()
    assert page == str(var / "releases" / SUM / "report.html")
